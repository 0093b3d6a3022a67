# SPDX-License-Identifier: MIT
"""One repetition of llama-cpp-python: reads a list of cases, times llama_decode, prints the speeds as JSON.

    python3 llama_cpp_python.py MODEL THREADS < CASES

    CASES   [{"kind": "pp" | "tg", "n", "depth", "type": "f16" | "q8_0" | "q4_0", "ubatch", "flash": 0 | 1,
             "repack": 0 | 1}, ..]

A process of its own for each repetition, so that neither its threads nor its memory are there while others are
measured.  The low-level calls only: no sampling, no Python between the tokens of a batch.  Tokens are random ones, as
llama-bench and `pleat bench run` take them.
"""
import ctypes
import json
import os
import random
import sys
import time

import llama_cpp as llama

TYPES = {"f16": 1, "q4_0": 2, "q8_0": 8}  # ggml's numbers
WARM_UP = 32
BATCH = 2048


def load(path, repack):
    """Repacked, weights may go to the AMX kernels, where the library has them."""
    params = llama.llama_model_default_params()
    params.n_gpu_layers = 0
    params.use_extra_bufts = bool(repack)
    model = llama.llama_model_load_from_file(os.fsencode(path), params)
    if not model:
        raise RuntimeError(f"cannot load {path}")
    return model


class Context:
    def __init__(self, model, threads, case):
        params = llama.llama_context_default_params()
        params.n_ctx = (max(case["depth"] + case["n"], WARM_UP) + 255) // 256 * 256
        params.n_batch, params.n_ubatch = BATCH, case["ubatch"]
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = TYPES[case["type"]]
        params.flash_attn_type = case["flash"]
        self.ctx = llama.llama_init_from_model(model, params)
        if not self.ctx:
            raise RuntimeError(f"no context for {case}")
        self.n_vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
        self.random = random.Random(5)

    def decode(self, n, n_batch):
        """Seconds for n tokens, n_batch at once."""
        tokens = (llama.llama_token * n)(*(self.random.randrange(self.n_vocab // 2, self.n_vocab) for _ in range(n)))
        at, size = ctypes.addressof(tokens), ctypes.sizeof(llama.llama_token)
        seconds = 0.0
        for first in range(0, n, n_batch):
            here = ctypes.cast(at + first * size, ctypes.POINTER(llama.llama_token))
            batch = llama.llama_batch_get_one(here, min(n_batch, n - first))
            start = time.perf_counter()
            status = llama.llama_decode(self.ctx, batch)
            llama.llama_synchronize(self.ctx)
            seconds += time.perf_counter() - start
            if status:
                raise RuntimeError(f"llama_decode returned {status}")
        return seconds

    def forget(self):
        llama.llama_memory_clear(llama.llama_get_memory(self.ctx), True)


def speed(model, threads, case):
    context = Context(model, threads, case)
    n, n_batch = case["n"], BATCH if case["kind"] == "pp" else 1
    context.decode(min(n, case["ubatch"] if case["kind"] == "pp" else WARM_UP), n_batch)  # warms up
    context.forget()
    if case["depth"]:
        context.decode(case["depth"], BATCH)
    seconds = context.decode(n, n_batch)
    llama.llama_free(context.ctx)
    return n / seconds


def main():
    path, threads, cases = sys.argv[1], int(sys.argv[2]), json.load(sys.stdin)
    models = {repack: load(path, repack) for repack in {case["repack"] for case in cases}}
    speeds = [speed(models[case["repack"]], threads, case) for case in cases]
    print(json.dumps({"version": llama.__version__, "speeds": speeds}))


if __name__ == "__main__":
    main()
