# SPDX-License-Identifier: MIT
"""What the paper prints: LeanKV (arXiv 2412.03131), sections 3 and 7 and Tables 1 to 3.

Accuracies in percent; memory in percent of FP16 in the second place where the paper gives it.  Figures that exist only
as plots are quoted as the text describes them (SAYS).
"""

SAYS = {
    "fig1": "Llama3-8B, 1000 articles of Wikitext, three layers. Scores span seven orders of magnitude, value norms "
            "at most two.",
    "fig2": "Llama3-8B on MMLU: FP16, 8 bit, about 50 % of the tokens pruned, and both together. The four are "
            "nearly indistinguishable in accuracy; the last holds least memory.",
    "fig3": "Llama3-8B, 1000 articles: the tokens that hold 95 % of the attention vary considerably across layers and "
            "across requests.",
    "fig4": "Within a layer they vary significantly across KV heads, and in some heads substantially across requests.",
    "fig7": "Llama3 8B and 70B, Qwen2.5-7B on GSM8K and HumanEval+. K8V4 matches FP16 everywhere; K4V8 degrades, to "
            "nearly zero for Qwen2.5-7B. K4V2 keeps over 65 % of FP16's accuracy on the Llamas; K2V4 is near zero.",
    "fig8": "Per-head thresholds keep full accuracy with 50 % of the tokens pruned (Llama3-8B, GSM8K) and with 10 % "
            "(HumanEval+). Qwen2.5-7B stays above 80 % on GSM8K with 50 % pruned. The same share for every head is "
            "worse throughout.",
    "fig9": "ah in 1..5 with al = 0, then al in 0..0.1, on MATH's training split. Every ah is as accurate as FP16, "
            "except for Qwen2.5-7B; al = 0.1 costs the larger models at least 5 %.",
    "fig10": "LeanKV matches FP16 over ah in 0..5 and al in 0.02..0.1; pruning and partial loading lose accuracy "
             "quickly as memory shrinks. On average -0.3 % at 19.3 to 36.7 % of the memory.",
    "fig11": "L40, 1024 tokens, several batch sizes. In parallel on the GPU it is up to three orders of magnitude "
             "faster than with several threads on the CPU.",
    "fig12": "Memory management takes less than 0.2 % of a prompt step and under 0.9 % of a generation step. The "
             "model takes 96 to 97 % and 92 to 93 %.",
    "fig13": "L40: K8V8 reaches 1.7 times FP16's speed, of 2 that its bytes would allow; longer sequences gain more.",
    "fig14": "L40, MATH, generations up to 4K to 16K tokens: 1.9 to 5.4 times vLLM's throughput. QwQ-32B gains 5.4 "
             "times with a batch of 15.9 against 2.7 (Quest 1.6 and SnapKV 1.8 times).",
}

# Fig 9: what calibration chose: model, ah, al.
CALIBRATED = [
    ("Llama3-8B", 1, 0.02),
    ("Llama3-70B", 1, 0),
    ("Qwen2.5-7B", 0, 0.04),
    ("Qwen2.5-32B", 3, 0),
    ("QwQ-32B", 3, 0),
]

TABLE_1_METHODS = {
    "Llama3-8B": ("FP16", "LeanKV", "INT4", "DuoAttn"),
    "Qwen2.5-7B": ("FP16", "LeanKV", "Quest", "SnapKV", "KIVI"),
    "Qwen2.5-32B": ("FP16", "LeanKV", "Quest", "KIVI"),
    "Llama3-70B": ("FP16", "LeanKV", "H2O"),
}
# Percent of FP16's memory; LeanKV's differs by task and stands with its accuracy.
TABLE_1_MEMORY = {"FP16": 100, "INT4": 25, "DuoAttn": 50, "Quest": 50, "SnapKV": 50, "H2O": 50, "KIVI": 12.5}
TABLE_1 = {
    "GSM8K": {"Llama3-8B": (76.3, (75.7, 19.3), 72.6, 32.2), "Qwen2.5-7B": (83.5, (83.6, 26.8), 76.7, 66.7, 72.2),
              "Qwen2.5-32B": (90.4, (90.2, 23.6), 82.8, 79.3), "Llama3-70B": (90.5, (90.2, 21.6), 52.4)},
    "MATH": {"Llama3-8B": (28.1, (27.9, 21.6), 23.9, 9.3), "Qwen2.5-7B": (58.0, (57.7, 32.3), 41.7, 45.1, 39.5),
             "Qwen2.5-32B": (63.2, (67.2, 25.3), 44.3, 42.6), "Llama3-70B": (48.7, (47.6, 21.3), 26.6)},
    "MMLU": {"Llama3-8B": (66.5, (66.1, 17.8), 65.2, 42.4), "Qwen2.5-7B": (75.1, (74.7, 30.3), 64.7, 48.2, 53.1),
             "Qwen2.5-32B": (83.8, (83.8, 23.1), 68.5, 70.5), "Llama3-70B": (81.0, (80.9, 20.1), 55.9)},
    "MMLU-Pro": {"Llama3-8B": (41.5, (41.0, 21.5), 39.1, 34.6), "Qwen2.5-7B": (55.4, (54.9, 30.2), 51.6, 49.7, 45.2),
                 "Qwen2.5-32B": (67.8, (67.4, 24.5), 59.5, 54.5), "Llama3-70B": (60.1, (60.0, 21.5), 46.5)},
    "HumanEval+": {"Llama3-8B": (50.0, (48.0, 27.6), 45.1, 4.8), "Qwen2.5-7B": (57.5, (55.9, 36.7), 8.5, 32.9, 15.2),
                   "Qwen2.5-32B": (49.4, (49.4, 26.2), 11.0, 15.3), "Llama3-70B": (71.3, (71.5, 26.7), 29.2)},
    "MBPP+": {"Llama3-8B": (59.3, (61.6, 17.6), 58.8, 35.6), "Qwen2.5-7B": (64.3, (62.8, 27.9), 33.3, 44.7, 18.3),
              "Qwen2.5-32B": (71.1, (70.5, 21.8), 35.2, 38.6), "Llama3-70B": (68.6, (69.7, 22.0), 33.2)},
}

# LongBench; memory in percent, of all tasks together.
TABLE_2_TASKS = ("Qasper", "HotpotQA", "GovReport", "TREC", "PCount", "Lcc")
TABLE_2 = {
    "Llama3.1-8B": {"FP16": (100, 40.9, 61.3, 34.0, 73.0, 6.9, 62.2),
                    "LeanKV": (14.9, 42.8, 61.3, 32.9, 73.0, 7.2, 61.9),
                    "Quest": (25, 38.9, 59.8, 30.6, 66.5, 6.4, 56.8),
                    "SnapKV": (25, 39.2, 59.6, 30.1, 65.9, 6.2, 57.2)},
    "Qwen2.5-7B": {"FP16": (100, 26.5, 27.8, 33.4, 71.0, 5.7, 61.9),
                   "LeanKV": (27.0, 26.4, 28.2, 32.2, 70.0, 5.3, 62.3),
                   "Quest": (25, 23.6, 25.2, 31.4, 65.6, 4.3, 53.3),
                   "SnapKV": (25, 22.6, 25.5, 30.8, 64.6, 4.5, 52.6)},
}

# QwQ-32B, the thinking model: long generations.
TABLE_3_METHODS = ("FP16", "LeanKV", "INT4", "Quest", "KIVI", "SnapKV")
TABLE_3 = {
    "MATH": (90.6, (90.6, 26.8), 87.3, 63.3, 80.6, 65.4),
    "GPQA": (62.1, (63.2, 27.6), 57.8, 1.2, 2.6, 0.8),
    "AIME24": (75.5, (75.3, 27.8), 64.3, 23.3, 10.0, 19.2),
}


def accuracy(cell):
    return cell[0] if isinstance(cell, tuple) else cell


def memory(cell):
    """Percent of FP16's bytes where the cell has it, else None."""
    return cell[1] if isinstance(cell, tuple) else None
