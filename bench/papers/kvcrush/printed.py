# SPDX-License-Identifier: MIT
"""What the paper prints: KVCrush (Jha, Gobriel, Talamanova, Jain), section 4.  Accuracies in percent; plots as the text
has them."""

SAYS = {
    "table2": "GSM8K, a budget of 512 tokens. By the table 128 are for H2O and 384 for representatives, by Table 1 "
              "a quarter is for representatives. Every anchor beats H2O alone.",
    "table3": "LongBench, 16 data sets, a budget of 2048 tokens (4x less than the prompts' mean), a quarter of it "
              "for representatives. KVCrush has the best mean on both models. No standard errors are given.",
    "fig2": "LongBench microbenchmark on a Xeon Platinum 8470. H2O and H2O+KVCrush hold a quarter of the cache, "
            "which cuts memory access 3.2 times. KVCrush adds about 0.2 % to the latency (abstract: less than 0.5 "
            "%).",
    "fig3": "GSM8K: k-means on the same vectors is slightly more accurate than KVCrush and adds about 200 % to the "
            "inference latency, KVCrush less than 0.5 %.",
    "fig4": "The share that is best lies between 20 and 50 % for most data sets and reaches 90 % for one "
            "(narrativeqa).",
    "fig5": "2wikimqa: KVCrush improves H2O, SnapKV and PyramidKV, when they drop tokens and when they drop chunks.",
    "fig6": "Pages of 32 tokens, GSM8K and XSUM, three models: paged KVCrush outperforms paged H2O.",
}

# Table 2: strict and flexible match of GSM8K.
ANCHORS_HEAD = ("Phi-3-mini, strict", "flexible", "Llama-3-8B, strict", "flexible", "Llama-2-7b, strict", "flexible")
ANCHORS = {
    "none": (70.7, 79.3, 74.9, 74.7, 20.9, 22.5),
    "random": (75.4, 80.9, 76.2, 76.2, 21.1, 22.6),
    "mean": (75.2, 80.6, 76.5, 76.4, 21.0, 22.9),
    "alternate": (74.6, 80.9, 75.7, 75.6, 21.2, 22.7),
}

# Table 3: the column "Average": policy -> (without, with) for Mistral-7B-Instruct-v0.2 and Llama-3-8B-Instruct.
FULL = {"Mistral-7B": 41.79, "Llama-3-8B": 40.73}
AVERAGE = {
    "h2o": {"Mistral-7B": (39.49, 40.15), "Llama-3-8B": (38.69, 39.15)},
    "snapkv": {"Mistral-7B": (41.32, 41.40), "Llama-3-8B": (40.53, 40.59)},
    "pyramidkv": {"Mistral-7B": (41.06, 41.14), "Llama-3-8B": (40.48, 40.56)},
}
