# SPDX-License-Identifier: MIT
"""What PyTorch's attention takes on this GPU: what decode attention of `pleat bench attn --device cuda` is held against.

    python3 bench/kernels/device_sdpa.py [--prompt] [--repeat N] [--one-by-one]

One JSON object a line.  Decode, one query position a sequence, 32 query heads, 8 KV heads of 128, contiguous f16; bytes
are those of K and V:

    {"what": "decode", "backend": "cudnn" | "flash", "batch", "ctx", "us", "tb_per_s"}

--prompt adds whole prompts, causal, of one sequence, and counts the visible half:

    {"what": "prompt", "backend", "batch", "ctx", "us", "tflops"}

Times are medians by device events, launches not counted; with --one-by-one each call is issued to an idle GPU, and what
PyTorch takes to issue it counts.  Calls of a case go round as many keys and values as are four
times the level-2 cache, four at least, as `pleat bench` goes round layers: each reads from memory.

Without PyTorch or a GPU, one line {"what": "skipped", "why"} and exit code 0; a backend that refuses a case says so in
{"what", "backend", "batch", "ctx", "failed"}.
"""
import argparse
import json
import sys

QUERY_HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
L2_TIMES, LEAST_SETS = 4, 4
DECODE = [(1, 8192), (1, 131072), (8, 8192), (32, 2048), (32, 8192), (64, 16384)]
PROMPT = [(1, 2048), (1, 8192), (1, 32768)]


def say(**fields):
    print(json.dumps(fields), flush=True)


def load_torch():
    """PyTorch, or None after a line that says why not."""
    try:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: F401  (2.3 and later)
    except ImportError as e:
        say(what="skipped", why=f"no PyTorch with torch.nn.attention: {e}")
        return None
    if not torch.cuda.is_available():
        say(what="skipped", why="PyTorch finds no GPU")
        return None
    return torch


def median_us(torch, call, sets, repeat, is_queued):
    """Queued: behind a kernel that does nothing for a while, so that what is timed is there before it runs."""
    for i in range(len(sets)):
        call(*sets[i])
    torch.cuda.synchronize()
    if is_queued:
        torch.cuda._sleep(10_000_000 + 200_000 * repeat)  # clocks: 5 ms, and 0.1 ms a call
    events = []
    for i in range(repeat):
        if not is_queued:
            torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call(*sets[i % len(sets)])
        end.record()
        events.append((start, end))
    torch.cuda.synchronize()
    times = sorted(start.elapsed_time(end) * 1e3 for start, end in events)
    return times[len(times) // 2]


def tensors(torch, batch, n_queries, ctx):
    """q, k, v; decode's as a cache of its own holds them, a prompt's as the model's projections give them."""
    def heads(n, length):
        x = torch.randn(batch, *((length, n) if n_queries > 1 else (n, length)), HEAD_DIM, device="cuda",
                        dtype=torch.float16)
        return x.transpose(1, 2) if n_queries > 1 else x
    return heads(QUERY_HEADS, n_queries), heads(KV_HEADS, ctx), heads(KV_HEADS, ctx)


def measure(torch, what, batch, ctx, repeat, is_queued):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention
    is_prompt = what == "prompt"
    l2_bytes, kv_bytes = torch.cuda.get_device_properties(0).L2_cache_size, 2 * batch * KV_HEADS * ctx * HEAD_DIM * 2
    n_sets = max(LEAST_SETS, -(-L2_TIMES * l2_bytes // kv_bytes))
    sets = [tensors(torch, batch, ctx if is_prompt else 1, ctx) for _ in range(n_sets)]
    for name, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)):
        case = {"what": what, "backend": name, "batch": batch, "ctx": ctx}
        try:
            with sdpa_kernel(backend):
                us = median_us(torch, lambda q, k, v: scaled_dot_product_attention(
                    q, k, v, is_causal=is_prompt, enable_gqa=True), sets, repeat, is_queued)
        except (RuntimeError, TypeError) as e:  # TypeError: before 2.5 there is no enable_gqa
            say(**case, failed=(str(e).splitlines() or ["no message"])[0][:120])
            continue
        if is_prompt:
            flops = 4 * batch * QUERY_HEADS * HEAD_DIM * ctx * (ctx + 1) / 2
            say(**case, us=round(us, 1), tflops=round(flops / us * 1e-6, 1))
        else:
            say(**case, us=round(us, 1), tb_per_s=round(kv_bytes / us * 1e-6, 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompt", action="store_true", help="whole prompts too")
    parser.add_argument("--one-by-one", action="store_true", help="issue each call to an idle GPU, instead of queueing them")
    parser.add_argument("--repeat", type=int, default=30, help="calls of a case (default 30)")
    args = parser.parse_args()
    torch = load_torch()
    if not torch:
        return 0
    say(what="device", name=torch.cuda.get_device_name(), torch=torch.__version__)
    for what, cases in (("decode", DECODE), ("prompt", PROMPT if args.prompt else [])):
        for batch, ctx in cases:
            try:
                measure(torch, what, batch, ctx, args.repeat, not args.one_by_one)
            except torch.cuda.OutOfMemoryError:
                say(what=what, batch=batch, ctx=ctx, failed="out of device memory")
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
