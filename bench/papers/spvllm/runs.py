# SPDX-License-Identifier: MIT
"""What is run: requests, specs, served runs on the clock and counted ones (steps.c), and prices put on the latter."""
import json
import os
import statistics
import subprocess

from lab import lab
from spvllm import printed

CONTEXT, LONGEST_PROMPT = 2048, 1024  # of vLLM 0.6.2's sampler of ShareGPT, which leaves out what is longer
MIB = 1 << 20
HOWS = ("reuse", "copy", "block", "none")
NAMES = {"reuse": "reuse (SpvLLM)", "copy": "copy (sparse-copy)", "block": "block (free-block)", "none": "none (no-op)"}
FULL = "f16"
TOKEN_BYTES = 8 * 4 * 4 * 64  # of f16 in the reference model: 8 layers, 4 KV heads of 64


def spec_of(budget, how, policy="h2o", form="f16"):
    return f"{policy}:budget={budget},format={form}" + ("" if how == "reuse" else f",reclaim={how}")


def total(r):
    return r["prompt_tokens"] + r["output_tokens"]


def write(path, rows):
    return lab.write(path, "".join(json.dumps(r) + "\n" for r in rows))


def draw(bench, seed):
    """Requests as --synthetic makes them, those that vLLM's sampler would leave out taken away."""
    path = os.path.join(bench.store, "drawn.jsonl")
    args = ["bench", "serve", "--simulate", "--arch", "llama3-8b", "--prices", "1,1,1,1", "--synthetic",
            "sharegpt-vllm:prompt={},output={}".format(*bench.drawn), "--requests", str(2 * bench.n_requests), "-c",
            str(4 * CONTEXT), "--seed", str(seed), "--pool-bytes", "100GiB", "--write-trace", path, "-q"]
    done = subprocess.run([bench.pleat, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise lab.Failed("no trace: " + (done.stderr.strip().splitlines() or ["no message"])[-1])
    with open(path, encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    return [r for r in rows if r["prompt_tokens"] <= LONGEST_PROMPT and total(r) <= CONTEXT][:bench.n_requests]


def make_trace(bench):
    """(file, requests, seed): of the first seed whose means are as near to the paper's as bench.off."""
    for seed in range(1, 400):
        rows = draw(bench, seed)
        means = [statistics.mean(r[k] for r in rows) for k in ("prompt_tokens", "output_tokens")]
        if max(abs(means[0] - printed.MEAN_INPUT), abs(means[1] - printed.MEAN_OUTPUT)) <= bench.off:
            return write(os.path.join(bench.store, "trace.jsonl"), rows), rows, seed
    raise lab.Failed("no seed gives the paper's mean lengths")


class Runs:
    """Served and counted runs of one trace."""

    def __init__(self, bench):
        self.bench = bench
        self.trace, self.requests, self.seed = make_trace(bench)
        self.one = write(os.path.join(bench.store, "one.jsonl"),
                         [{"arrival": 0, "prompt_tokens": 225, "output_tokens": bench.n_long - 225}])

    def served_once(self, kv, pool_mib, preempt, turn):
        b = self.bench
        return b.lab.measure("serve", "bench", "serve", "-m", b.model, "--trace", self.trace, "--rate", "inf", "-c", CONTEXT,
                             "--page-tokens", 16, "--prefix-tokens", 0, "--pool-bytes", f"{pool_mib}MiB", "--preempt",
                             preempt, "--max-running", 256, "--watermarks", "0.99,1", "--text", b.text, "--kv", kv,
                             "--format", "json", "-q", turn=turn)

    def served(self, section, kvs, pool_mib, preempt="recompute"):
        """{spec: figures, each the median of the rounds}; specs take turns.  The section names the records."""
        rows = {kv: [] for kv in kvs}
        for turn in range(self.bench.rounds):
            for kv in kvs:
                record = self.served_once(kv, pool_mib, preempt, turn)
                section.used(record)
                rows[kv].append(record["result"]["rows"][0])
        return {kv: {k: statistics.median(r[k] for r in found) if isinstance(v, (int, float)) else v
                     for k, v in found[0].items()} for kv, found in rows.items()}

    def counted(self, section, kv, pool_mib, trace=None):
        """What steps.c counts."""
        b = self.bench
        record = b.lab.measure("steps", b.model, kv, trace or self.trace, b.text, pool_mib * MIB, CONTEXT,
                               program=b.steps)
        section.used(record)
        return record["result"]


# ---- another machine's prices ------------------------------------------------------------------------

# OPT-6.7B in f16 on the paper's T4: bytes of weights and of KV a token, operations a token, as published; the card's
# memory and its f16 units, by NVIDIA's data sheet.
WEIGHTS_BYTES, KV_TOKEN_BYTES, FLOPS_TOKEN = 13.3e9, 2 * 32 * 4096 * 2, 2 * 6.7e9
CARD_BYTES_S, CARD_FLOPS = 320e9, 65e12


def step_s(step, pages_total, pool_bytes):
    """A step's least time there: it reads the weights and all pages in use, and computes, at the same time."""
    _, prompt, generated, pages = step
    tokens = pages / pages_total * pool_bytes / TOKEN_BYTES
    return max((WEIGHTS_BYTES + tokens * KV_TOKEN_BYTES) / CARD_BYTES_S,
               (prompt + generated) * FLOPS_TOKEN / CARD_FLOPS)


def at(values, share):
    values = sorted(values)
    rank = share * (len(values) - 1)
    i = int(rank)
    return values[-1] if i + 1 >= len(values) else values[i] + (rank - i) * (values[i + 1] - values[i])


def priced(run):
    """Figures of a counted run on that card, named as those of `bench serve`."""
    ends, now = [], 0.0
    for step in run["steps"]:
        now += step_s(step, run["pages_total"], run["pool_bytes"])
        ends.append(now)
    times = [[ends[s] for s in steps] for steps in run["tokens"]]
    between = [b - a for t in times for a, b in zip(t, t[1:])]
    per_token = [(t[-1] - t[0]) / (len(t) - 1) for t in times if len(t) > 1]
    generated = sum(map(len, times))
    return {"request_throughput": len(times) / now, "output_throughput": generated / now,
            "mean_concurrency": generated / len(ends), "steps": len(ends),
            "p99_ttft_ms": 1e3 * at([t[0] for t in times], 0.99), "p99_tpot_ms": 1e3 * at(per_token, 0.99),
            "p99_itl_ms": 1e3 * at(between, 0.99)}


def most_gain(requests, budget):
    """How many more requests of this trace can run at once in the same memory where each holds `budget` tokens at most:
    slots held in a step of generation without, to those with."""
    held = {None: 0, budget: 0}
    for r in requests:
        for i in range(r["output_tokens"]):
            n = r["prompt_tokens"] + i
            held[None] += n
            held[budget] += min(n, budget)
    return held[None] / held[budget]
