# SPDX-License-Identifier: MIT
"""What the article prints: "KV Cache: The Hidden Memory Giant in LLM Serving" (Inference Optimization Timeline, part 2).

Sizes of caches are in GiB (its code divides by 1024^3 and writes GB), weights in GB.
"""

# Table "KV Cache Memory for Popular Models", 4096 tokens: name, model (models.py), batch, weights, cache.
MODELS = [
    ("Llama 3 8B", "llama3-8b", 32, 16, 4.0),
    ("Mistral 7B", "mistral-7b", 32, 14, 4.0),
    ("Llama 3 70B", "llama3-70b", 32, 140, 10.0),
    ("Llama 3 70B", "llama3-70b", 64, 140, 20.0),
    ("Llama 3 70B", "llama3-70b", 128, 140, 40.0),
    ("Llama 3 405B", "llama3.1-405b", 32, 810, 15.8),
    ("GPT-4 class (est.)", "gpt4-guess", 32, 800, 30.0),
]

# Figure "KV Cache Size vs Batch Size", Llama 3 70B, 4096 tokens.
BATCHES = {1: 0.31, 8: 2.5, 16: 5, 32: 10, 64: 20, 128: 40, 256: 80}

# "When NOT to Optimize": model, batch, tokens, GiB, weights GB or None.
SMALL = [("Llama 3 8B", "llama3-8b", 32, 512, 0.5, None), ("Llama 3.2 1B", "llama3.2-1b", 64, 4096, 4.3, 2)]

# Table "Computational Cost": seconds for 4096 tokens, without and with a cache.
NO_CACHE_S, CACHE_S = 180, 12

# Table "Memory Waste in Contiguous Allocation": our workload's name, mean length, longest, percent used.
WASTE = [
    ("ShareGPT (chat)", "chat", 830, 4096, 20),
    ("Alpaca (instruction)", "instruct", 380, 2048, 19),
    ("Code generation", "code", 1200, 4096, 29),
    ("Summarization", "summary", 2800, 4096, 68),
]
WASTE_MEAN_USED = 32

# Table "Memory Utilization": our allocators, its utilisation in percent, external and internal fragmentation.
ALLOCATORS = [
    ("Contiguous (max_len)", ("max",), "20-40", "high", "very high"),
    ("Contiguous (growing)", ("double", "double-best", "step16", "step16-best"), "60-70", "high", "medium"),
    ("Paged, 16 tokens", ("paged16",), "96-99", "zero", "< 0.4 %"),
    ("Paged, 1 token", ("paged1",), "~100", "zero", "zero"),
]

# Figure "Block Size Tradeoff": percent of internal fragmentation and of page tables, by block size.
BLOCKS = {1: (0, 8), 4: (0.5, 3.5), 8: (1, 1.8), 16: (1.8, 1), 32: (3.2, 0.6), 64: (5.5, 0.3), 128: (9, 0.2)}

# Copy-on-write: beams, tokens, how many differ at the end, block; what it says it costs of one sequence's blocks.
BEAMS, BEAM_TOKENS, BEAM_DIFFERENT, BEAM_BLOCK, BEAM_COST = 4, 2048, 50, 16, 1.05

# Table "KV Cache Quantization Impact", batch 64, 4096 tokens: name, bytes an element, GiB, our format or None.
PRECISIONS = [
    ("FP16", 2, 80, "f16"),
    ("INT8", 1, 40, "k8v8"),
    ("INT4", 0.5, 20, "k4v4"),
    ("INT4 + FP16 outliers", 0.6, 24, None),
    ("INT2", 0.25, 10, "k2v2"),
]

# Table "Memory Bandwidth Breakdown per Decode Step", 2048 tokens: batch: cache, A100 time in ms.
DECODE = {1: (0.6, 70), 8: (5, 73), 32: (20, 80), 64: (40, 90), 128: (80, 110), 256: (160, 150)}
COMPUTE_MS = 20  # for the matrix products at batch 256

# Figure "Decode Throughput vs Batch Size": tokens/s of FP16, INT8, INT4.
THROUGHPUT = {1: (14, 14, 14), 8: (100, 105, 107), 32: (350, 370, 385), 64: (580, 640, 670), 128: (850, 980, 1050),
              256: (1050, 1320, 1500)}

# Table "Swap vs Recompute": prompt: GiB, swap ms, recompute ms.
SWAP = {128: (0.005, 0.2, 15), 512: (0.02, 0.8, 55), 2048: (0.08, 3.2, 210), 8192: (0.31, 12.4, 830),
        32768: (1.25, 50.0, 3300)}

# Table "Watermark Tuning Impact": percent: most requests, tokens/s, preemptions/min, p99 ms.
WATERMARKS = {70: (42, 580, 0, 120), 85: (54, 720, 0.2, 135), 90: (58, 760, 1.5, 180), 95: (61, 780, 8, 450),
              98: (63, 790, 25, 1200)}

# Table "End-to-End Serving Throughput": most requests, tokens/s, p50 ms, p99 ms, GPU use in percent.
SERVING = [
    ("Contiguous FP16", 24, 420, 85, 350, 55),
    ("Paged FP16", 58, 780, 72, 180, 82),
    ("Paged INT8", 96, 1050, 65, 160, 88),
    ("Paged INT8 + prefix cache", 96, 1180, 55, 145, 90),
    ("Paged INT4 + prefix cache", 140, 1420, 52, 155, 91),
]
