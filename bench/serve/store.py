#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures what beginning from a store takes beside computing: `pleat serve --store`, asked, ended, started and asked again.

    python3 bench/serve/store.py --model FILE.gguf --tokens N [--tokens N]... [--place disk|redis]... [--kv SPEC] [--key]

Prompts are made-up token ids, --prompts of each length, which ask for one token; what is measured is from the request to
the whole answer.  The first server computes and stores, the next one begins from what is stored.  Both have answered another
prompt before.  redis: a redis-server of its own on loopback.  Prints a row of Markdown for each length; medians.

    python3 bench/serve/store.py --model FILE.gguf --tokens N --miss ROUNDS

What storing and telling cost where nothing is found: eight new prompts at once, 64 tokens of answer each, to a server without
either and to one with a folder, --events and --events-replay, in turn.  Prints tokens/s of both and their ratio, round by round.

Exit codes: 0 ok, 1 a measurement failed, 2 wrong usage.
"""
import argparse
import concurrent.futures
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import run
from traffic import Failed

WARM_TOKENS = 700
MISS_PROMPTS, MISS_ANSWER = 8, 64
IDS = (1000, 8000)


def ids(n, seed):
    pick = random.Random(seed)
    return [pick.randrange(*IDS) for _ in range(n)]


def post(server, fields):
    body = json.dumps({"temperature": 0, **server.fields, **fields}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/v1/completions", body,
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def ask(server, prompt):
    """(seconds, text, tokens that were there)"""
    start = time.monotonic()
    said = post(server, {"prompt": prompt, "max_tokens": 1})
    seconds = time.monotonic() - start
    return seconds, said["choices"][0]["text"], said["usage"]["prompt_tokens_details"]["cached_tokens"]


def gauge(server, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name + "{"):
                return float(line.rpartition(" ")[2])
    raise Failed(f"no {name}")


def await_written(server, n_bytes):
    end = time.monotonic() + 60
    while gauge(server, "pleat_store_written_bytes_total") <= n_bytes:
        if time.monotonic() > end:
            raise Failed("nothing is written")
        time.sleep(0.02)


def pleat(o, more, n_texts=2):
    server = run.Server("pleat serve", [o.pleat, "serve", "-m", o.model, "--kv", o.kv, "--port", "{port}", "-np", str(n_texts),
                                        "-t", str(o.threads), "-q", *more])
    server.fields = {"prompt_cache_key": "bench"} if o.key else {}
    return server


def compute(o, place):
    """{length: [(seconds, text)]}"""
    out = {}
    with pleat(o, ["--store", place]) as server:
        ask(server, ids(WARM_TOKENS, 1))
        for n in o.tokens:
            for i in range(o.prompts):
                written = gauge(server, "pleat_store_written_bytes_total")
                out.setdefault(n, []).append(ask(server, ids(n, 1000 * n + i)))
                await_written(server, written)
    return out


def restore(o, place):
    out = {}
    with pleat(o, ["--store", place]) as server:
        ask(server, ids(WARM_TOKENS, 2))
        for n in o.tokens:
            out[n] = [ask(server, ids(n, 1000 * n + i)) for i in range(o.prompts)]
    return out


def measure(o, name, place):
    computed, restored = compute(o, place), restore(o, place)
    for n in o.tokens:
        if [c[1] for c in computed[n]] != [r[1] for r in restored[n]]:
            raise Failed("another text than the one that was computed")
        slow = statistics.median(c[0] for c in computed[n])
        fast = statistics.median(r[0] for r in restored[n])
        print(f"| {os.path.basename(o.model)} | `{o.kv}` | {name} | {n} | {restored[n][0][2]} | {slow:.3f} | {fast:.3f} | "
              f"{slow / fast:.0f} |", flush=True)


def burst(server, prompts):
    """tokens/s of these prompts, asked for at once"""
    def one(prompt):
        said = post(server, {"prompt": prompt, "max_tokens": MISS_ANSWER, "ignore_eos": True})
        if said["usage"]["prompt_tokens_details"]["cached_tokens"] or said["usage"]["completion_tokens"] != MISS_ANSWER:
            raise Failed("a prompt was there, or its answer is short")

    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        list(pool.map(one, prompts))
    return sum(len(p) + MISS_ANSWER for p in prompts) / (time.monotonic() - start)


def miss(o):
    n, ratios = o.tokens[0], []
    seeds = iter(range(10**9))
    with tempfile.TemporaryDirectory() as folder:
        sockets = [f"tcp://127.0.0.1:{run.free_port()}" for _ in range(2)]
        told = ["--store", folder, "--events", sockets[0], "--events-replay", sockets[1]]
        pool = ["--pool-bytes", "256MiB"]
        with pleat(o, pool, MISS_PROMPTS) as without, pleat(o, pool + told, MISS_PROMPTS) as with_both:
            for i in range(o.miss + 1):
                speeds = {}
                for server in (without, with_both) if i % 2 else (with_both, without):
                    speeds[server] = burst(server, [ids(n, next(seeds)) for _ in range(MISS_PROMPTS)])
                if i == 0:
                    continue  # it warms them
                ratios.append(speeds[with_both] / speeds[without])
                print(f"{speeds[without]:.0f} {speeds[with_both]:.0f} {ratios[-1]:.3f}", flush=True)
    print(f"median {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


def on_redis(o):
    port = run.free_port()
    with subprocess.Popen(["redis-server", "--port", str(port), "--save", "", "--bind", "127.0.0.1"],
                          stdout=subprocess.DEVNULL) as server:
        try:
            time.sleep(0.5)
            measure(o, "redis", f"redis://127.0.0.1:{port}")
        finally:
            server.kill()


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--pleat", default=os.path.join(run.ROOT, "build", "pleat"))
    p.add_argument("--model", required=True)
    p.add_argument("--kv", default="k8v4")
    p.add_argument("--tokens", type=int, action="append", required=True)
    p.add_argument("--place", choices=("disk", "redis"), action="append")
    p.add_argument("--key", action="store_true", help="with a prompt_cache_key: what is stored ends where the prompt does")
    p.add_argument("--prompts", type=int, default=3)
    p.add_argument("--miss", type=int, metavar="ROUNDS", help="what storing and telling cost where nothing is found")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    o = p.parse_args()
    if o.miss:
        miss(o)
        return
    for place in o.place or ("disk", "redis"):
        if place == "redis":
            on_redis(o)
            continue
        with tempfile.TemporaryDirectory() as folder:
            measure(o, "disk", folder)


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        print(f"store.py: {error}", file=sys.stderr)
        sys.exit(1)
