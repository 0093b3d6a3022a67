# SPDX-License-Identifier: MIT
"""What the paper prints: KVComp (Jiang, Yang, Liu, Zhang, He, Jin), sections 3 and 4.  Its figures are plots: what the
text and the captions say of them is here."""

RULE = 0.03  # the turning point: the largest scale at which normalised accuracy drops by less
TURNING = {"k block": (0.05, 0.06), "k channel": (0.25, 0.3), "v token": (0.15, 0.2)}
OVER_KIVI = {"k": (0.32, 0.41), "v": (0.62, 0.83)}  # gain in ratio: on average, at most
MODELS = "Llama2 7B and 13B, Ministral 8B"

SAYS = {
    "fig3": "Llama2-13B on GSM8K. Codes of keys (a step for each block) and of values (a step for each token) are "
            "highly skewed, most of them on a few levels.",
    "fig5": f"{MODELS} on CoQA, one of keys and values compressed. Accuracy holds up to a turning point, the largest "
            "scale that loses less than 3 %, and falls off dramatically behind it. The point is 0.05 to 0.06 for "
            "keys by block, 0.25 to 0.3 for keys by channel, 0.15 to 0.2 for values by token.",
    "fig6": "Both compressed, CoQA and GSM8K, scales in the ratio of the turning points. The same scales serve all "
            "three models.",
    "fig7": "Llama2-13B: keys compress up to 41 % better than KIVI's and 32 % on average with no or minimum loss of "
            "accuracy. KIVI's curve is vertical, since its bits are whole numbers whatever the scale.",
    "ratio": "Over KIVI at the same accuracy: keys +32 % on average, +41 % at most; values +62 % and +83 %.",
    "fig8": "Values by token, WikiText-103, 2048 to 16384 tokens. They compress up to 83 % (scale 0.12, 16384 "
            "tokens) and on average 62 % better than KIVI's, alike for all lengths.",
    "fig9": "V100 and RTX 4090, 2048 to 16384 tokens. The fused kernel beats Huffman decoding, dequantisation and "
            "the product as kernels of their own throughout. Larger scales are faster, since a bit is decoded at a "
            "time. Over 400 GB/s for keys, 180 GB/s for values.",
    "fig10": "Against cuBLAS's matrix-vector product on f16, which decodes nothing, it is slower at short contexts "
             "and faster at long ones. Throughput grows with the context.",
    "fig11": "The time that decoding adds to cuBLAS's gives an equivalent throughput of decompression, which passes the product's own "
             "beyond 8192 tokens.",
}
