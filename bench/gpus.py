#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What was asked of one GPU, measured on the one that is here: one table, of `pleat bench` and bench_images.

    python3 bench/gpus.py [--build DIR] [--parts one,many32,...] [--rounds 1] [--peers FILE] [--commit TEXT] [--out FILE]
                          [--json FILE]

Each line has a figure, what it is divided by, their ratio and what was asked.  A figure is of a model of Llama-3-8B's
shape with random weights but where it says otherwise.  Rounds go over all parts, one after the other; medians over the
rounds, least and most beside.  --json has all figures, commands and what the card did meanwhile: its clock and power, by
nvidia-smi, once a second; medians of the samples that have four fifths of the most power or more.

    one        one sequence, empty and behind 8128 tokens, weights in four types
    many32, many128      32 sequences behind 8128 tokens, 128 behind 960, F16 weights
    types32, types128    the same with weights of 8 and 4 bits
    prompts    2048 to 32768 tokens, whole and in parts, with leankv's scoring and without
    attn       attention and a layer's whole step, 32 sequences of 8192 tokens
    codec      attention's products with Huffman-coded keys and values, over cuBLAS's with f16
    images     sequences leave the GPU and come back, 8192 tokens
    serving    64 requests through the scheduler, over the engine's own steps
    reclaim    requests in a steady pool of 1 GiB that keep 128 tokens a lane, by what becomes of their slots
    pool4, pool16, pool64    requests in steady pools of so many GiB; the last is a quarter, and 8 of 32 layers

FILE of --peers is an object of tokens/s: {"PyTorch, 32 behind 8k": 2246, ...}; names are in BASES.  Those of llama.cpp are
its CUDA build's on an H200 (2026-11-23, docs/GPU.md).  DIR (default build) holds pleat and bench/bench_images, or both.

Exit codes: 0 ok, 1 a measurement failed or a file cannot be read or written, 2 wrong usage, 130 interrupted.
"""
import argparse
import collections
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIMIT_S = 300  # of one command
LEANKV, CALIBRATED = "leankv:ah=3,al=0.05", "leankv:ah=30,al=0,window=256"
PACKS = ("kvcomp:k=0.13,v=0.25+pack", "kvcomp:k=0.13,v=0.15+pack", "kvcomp+pack")
TYPES = ("F16", "Q8_0", "Q4_0", "Q4_K")
SHAPE = {"model_type": "llama", "num_hidden_layers": 8, "num_attention_heads": 32, "num_key_value_heads": 8,
         "hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192,
         "rope_theta": 500000, "rms_norm_eps": 1e-5}

# What other programs made, tokens/s: llama.cpp's CUDA build for sm_90 on an H200, 2026-11-23.
LLAMA = {"F16": (209, 189, None), "Q8_0": (251, 224, 11500), "Q4_0": (342, 293, 11700), "Q4_K": (295, 255, 10500)}
BASES = {"PyTorch, 32 behind 8k": None, "PyTorch, 128 behind 1k": None, "PyTorch, a prompt of 2048": None,
         "PyTorch, a prompt of 8192": None, "PyTorch, a prompt of 32768": None,
         "llama.cpp, Q4_0 in q8_0, behind 8k": 227}
for _name, (_empty, _behind, _prompt) in LLAMA.items():
    BASES[f"llama.cpp, {_name}, empty"], BASES[f"llama.cpp, {_name}, behind 8k"] = _empty, _behind
    BASES[f"llama.cpp, {_name}, a prompt of 2048"] = _prompt

# What a line is divided by, one of BASES or of the lines, and the least that was asked of the ratio.  With no base the
# figure itself is asked to be at least, or at most, so much.
Asked = collections.namedtuple("Asked", "base least most")
TIMES = ("us", "ms")


def over(base, least):
    return Asked(base, least, None)


ASKED = {
    **{f"one, {t}, f16, {where}": over(f"llama.cpp, {t}, {where}", least) for where in ("empty", "behind 8k")
       for t, least in zip(TYPES, (1.1, 1.4, 1.45, 1.5))},
    "one, Q4_0, k8v4, behind 8k": over("llama.cpp, Q4_0 in q8_0, behind 8k", 2.0),
    "32 behind 8k, F16, f16": over("PyTorch, 32 behind 8k", 1.1),
    "32 behind 8k, F16, k8v4": over("PyTorch, 32 behind 8k", 1.75),
    f"32 behind 8k, F16, {LEANKV}": over("PyTorch, 32 behind 8k", 1.8),
    f"32 behind 8k, F16, {LEANKV},every=8": over("PyTorch, 32 behind 8k", 1.8),
    "128 behind 1k, F16, f16": over("PyTorch, 128 behind 1k", 1.25),
    **{f"{where}, {t}, k8v4": over(f"{where}, F16, k8v4", 1.15) for where in ("32 behind 8k", "128 behind 1k")
       for t in ("Q8_0", "Q4_0")},
    f"management behind a step, {LEANKV}": Asked(None, None, 0.03),
    f"management behind a step, {LEANKV},every=8": Asked(None, None, 0.03),
    **{f"a prompt of {n}, F16, f16": over(f"PyTorch, a prompt of {n}", 1.15) for n in (2048, 8192, 32768)},
    **{f"a prompt of {n}, F16, {kv}": over(f"a prompt of {n}, F16, f16", 0.85) for n in (2048, 8192, 32768)
       for kv in (LEANKV, "leankv:ah=3,al=0,every=8")},
    "a prompt of 8192 in parts of 2048": over("a prompt of 8192, F16, f16", 0.9),
    **{f"a prompt of 2048, {t}, f16": over(f"llama.cpp, {t}, a prompt of 2048", 2.2) for t in TYPES[1:]},
    "attention, h2v2": over("attention, k4v2", 1.0),
    "attention, h3v2": over("attention, k4v2", 1.0),
    **{f"a step, {kv}": over("a step, f16", 1.2) for kv in PACKS},
    **{f"a step, {kv}": over("a step, f16", 2.5) for kv in
       (f"{LEANKV},low=h2v2", f"{CALIBRATED}, a tenth high", f"{CALIBRATED},every=8, a tenth high")},
    **{f"not attention, of a step, {kv}": Asked(None, None, 0.08) for kv in
       (LEANKV, f"{LEANKV},every=8", f"{CALIBRATED},every=8, a tenth high")},
    "products, K q": Asked(None, 1.1, None),
    "products, p V": Asked(None, 1.1, None),
    **{f"images, {kv}, {way}": Asked(None, 0.85, None) for kv in ("f16", "k8v4", "k4v2") for way in ("out", "back")},
    **{f"images, {kv}, others longer": Asked(None, None, 0.03) for kv in ("f16", "k8v4", "k4v2")},
    "serving, between tokens of 64": over("serving, the engine's step of 64", 0.95),
    "reclaim, reuse": over("reclaim, none", 2.2),
    "reclaim, reuse, preempted": Asked(None, None, 0),
    "reclaim, reuse, P99": over("reclaim, none, P99", 1 / 0.6),
    **{f"{pool}, {CALIBRATED},every=8": over(f"{pool}, f16", least)
       for pool, least in (("pool4", 3.5), ("pool16", 3), ("pool64", 2.7))},
}


class Failed(Exception):
    pass


# ---- programs -----------------------------------------------------------------------------------


class Bench:
    """What runs the programs, and keeps what was run."""

    def __init__(self, options):
        self.options, self.commands = options, []

    def run(self, program, *words):
        """What a program prints."""
        folders = (self.options.build, os.path.join(self.options.build, "bench"))
        path = next((p for p in (os.path.join(f, program) for f in folders) if os.path.exists(p)), None)
        if not path:
            raise Failed(f"there is no {program} in {self.options.build}")
        command, begun = f"{program} {' '.join(words)}", time.monotonic()
        try:
            done = subprocess.run([path, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                                  check=False, timeout=LIMIT_S)
        except OSError as error:
            raise Failed(f"{path}: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise Failed(f"`{command}` did not end in {LIMIT_S} s") from error
        if done.returncode:
            raise Failed(f"`{command}`: " + (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1])
        self.commands.append({"command": command, "seconds": round(time.monotonic() - begun, 1)})
        return done.stdout

    def rows(self, what, *words):
        """The rows that `pleat bench` prints."""
        text = self.run("pleat", "bench", what, "--device", "cuda", "-q", "--format", "json", *words)
        try:
            return json.loads(text)["rows"]
        except (ValueError, LookupError, TypeError) as error:
            raise Failed(f"`pleat bench {what}` printed something else than rows") from error

    def speeds(self, weights, kvs, *words, shape="llama3-8b"):
        """{(kv, tokens, behind so many): tokens/s} of `bench run`."""
        rows = self.rows("run", "--shape", shape, "--weights", weights.lower(), *words, *kv_words(kvs))
        return {(p["kv"], p["n"], p["depth"]): row["tokens_per_s"] for row in rows for p in (row["params"],)}

    def serve(self, kvs, *words, shape="llama3-8b"):
        """Rows of `bench serve`, by KV."""
        rows = self.rows("serve", "--shape", shape, "--weights", "f16", "--free-splits", "--prefix-tokens", "0", *words,
                         *kv_words(kvs))
        return {row["params"]["kv"]: row for row in rows}


def kv_words(kvs):
    return [word for kv in kvs for word in ("--kv", kv)]


# ---- parts: each gives [(line, unit, figure)] ------------------------------------------------------


def one(bench):
    for weights in TYPES:
        found = bench.speeds(weights, ("f16", "k8v4"), "-p", "0", "-n", "64", "-d", "0,8128", "-r", "3")
        for (kv, _, depth), speed in found.items():
            yield f"one, {weights}, {kv}, {'behind 8k' if depth else 'empty'}", "tokens/s", speed


def many(bench, weights, n, depth, kvs):
    words = ("-np", str(n), "-d", str(depth), "-p", "0", "-n", "32", "-r", "1")
    for (kv, _, _), speed in bench.speeds(weights, kvs, *words).items():
        yield f"{n} behind {'8k' if depth > 8000 else '1k'}, {weights}, {kv}", "tokens/s", speed


def many32(bench):
    yield from many(bench, "F16", 32, 8128, ("f16", "k8v4", LEANKV, f"{LEANKV},every=8"))


def many128(bench):
    yield from many(bench, "F16", 128, 960, ("f16", "k8v4"))


def types32(bench):
    for weights in ("Q8_0", "Q4_0"):
        yield from many(bench, weights, 32, 8128, ("k8v4",))


def types128(bench):
    for weights in ("Q8_0", "Q4_0"):
        yield from many(bench, weights, 128, 960, ("k8v4",))


def prompts(bench):
    kvs = ("f16", LEANKV, "leankv:ah=3,al=0,every=8")
    found = bench.speeds("F16", kvs, "-p", "2048,8192,32768", "-n", "0", "-r", "3", shape="llama3.1-8b")
    for (kv, n, _), speed in found.items():
        yield f"a prompt of {n}, F16, {kv}", "tokens/s", speed
    parts = bench.speeds("F16", ("f16",), "-p", "2048", "-d", "0,2048,4096,6144", "-n", "0", "-r", "3", shape="llama3.1-8b")
    yield "a prompt of 8192 in parts of 2048", "tokens/s", statistics.harmonic_mean(parts.values())
    for name in TYPES[1:]:
        for speed in bench.speeds(name, ("f16",), "-p", "2048", "-n", "0", "-r", "3").values():
            yield f"a prompt of 2048, {name}, f16", "tokens/s", speed


def attention_of(bench, kvs, *words, suffix=""):
    rows = bench.rows("attn", "--batch", "32", "--ctx", "8192", "--heads", "32", "-r", "7", *words, *kv_words(kvs))
    for row in rows:
        kv, how, us = row["params"]["kv"], row["params"]["how"], row["us"]["median"]
        named = kv + (suffix if "leankv" in kv else "")
        if suffix and not named.endswith(suffix):
            continue
        if how in ("launched", "graph"):
            yield f"attention{' in a graph' if how == 'graph' else ''}, {named}", "us", us
        if how == "step":
            yield f"a step, {named}", "us", us


def not_attention_of(bench, kvs, *words, suffix=""):
    """Of a step in as many layers as a model has."""
    rows = bench.rows("attn", "--batch", "32", "--ctx", "8192", "--heads", "32", "--layers", "32", "-r", "7", *words,
                      *kv_words(kvs))
    us = {(row["params"]["kv"], row["params"]["how"]): row["us"]["median"] for row in rows}
    for kv in kvs:
        yield f"not attention, of a step, {kv}{suffix}", "share", 1 - us[kv, "graph"] / us[kv, "step"]


def attn(bench):
    kvs = ("f16", "k8v8", "k8v4", "k4v4", "k4v2", "h4v4", "h3v2", "h2v2", LEANKV, f"{LEANKV},every=8", f"{LEANKV},low=h2v2",
           *PACKS)
    yield from attention_of(bench, kvs)
    yield from attention_of(bench, ("f16", CALIBRATED, f"{CALIBRATED},every=8"), "--low-share", "0.9", suffix=", a tenth high")
    yield from not_attention_of(bench, ("k8v4", LEANKV, f"{LEANKV},every=8"))
    yield from not_attention_of(bench, (CALIBRATED, f"{CALIBRATED},every=8"), "--low-share", "0.9", suffix=", a tenth high")


def codec(bench):
    rows = bench.rows("codec", "--batch", "32", "--ctx", "8192", "--gqa", "1", "-r", "7", "--kv", "kvcomp:k=0.13,v=0.15")
    for row in rows:
        if row["params"]["how"] == "fused":
            yield f"products, {row['params']['product']}", "times cuBLAS", row["speed_to_cublas"]


def images(bench):
    for line in bench.run("bench_images", "8192").splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if cells[0] not in ("f16", "k8v4", "k4v2"):
            continue
        try:  # "49.3, 0.89 of the link's 55.4"; "2.22 for 2.14 ms, +4.0 %; ..."
            yield f"images, {cells[0]}, out", "of the link", float(cells[2].split()[1])
            yield f"images, {cells[0]}, back", "of the link", float(cells[3].split()[1])
            yield f"images, {cells[0]}, others longer", "share", float(cells[4].split()[4]) / 100
            yield f"images, {cells[0]}, others beside plain copies", "share", float(cells[5].split()[4]) / 100
        except (LookupError, ValueError) as error:
            raise Failed(f"bench_images printed '{line}'") from error


def serving(bench):
    rows = bench.serve(("f16",), "-c", "1024", "--pool-bytes", "16GiB", "--max-running", "64", "--rate", "inf", "--requests",
                       "64", "--synthetic", "fixed:prompt=64,output=384")
    found = bench.speeds("F16", ("f16",), "-np", "64", "-p", "0", "-d", "64", "-n", "383", "-r", "1")
    yield "serving, between tokens of 64", "ms", rows["f16"]["median_itl_ms"]
    for speed in found.values():
        yield "serving, the engine's step of 64", "ms", 64e3 / speed
    yield "serving, scheduling", "share", rows["f16"]["scheduling_share"]
    yield "serving, management", "share", rows["f16"]["management_share"]


def reclaim(bench):
    specs = {how: f"streaming:budget=128,format=f16,reclaim={how}" for how in ("none", "block", "copy", "reuse")}
    rows = bench.serve(specs.values(), "-c", "2048", "--max-running", "192", "--pool-bytes", "1GiB", "--synthetic",
                       "sharegpt:prompt=200,output=900,shape=0.3", "--requests", "300", "--steady", "--warmup", "1",
                       "--seconds", "6")
    for how, spec in specs.items():
        row = rows[spec]
        yield f"reclaim, {how}", "tokens/s", row["output_throughput"]
        yield f"reclaim, {how}, P99", "ms", row["p99_itl_ms"]
        yield f"reclaim, {how}, preempted", "requests", row["preempted_swap"] + row["preempted_recompute"]


def pool(bench, name, shape, *words):
    rows = bench.serve(("f16", f"{CALIBRATED},every=8"), "-c", "8192", "--synthetic",
                       "sharegpt:prompt=200,output=4500,shape=0.35", "--steady", *words, shape=shape)
    for kv, row in rows.items():
        yield f"{name}, {kv}", "tokens/s", row["output_throughput"]
        yield f"{name}, {kv}, at once", "requests", row["mean_concurrency"]
        yield f"{name}, {kv}, management", "share", row["management_share"]
        yield f"{name}, {kv}, P99", "ms", row["p99_itl_ms"]


def pool4(bench):
    yield from pool(bench, "pool4", "llama3-8b", "--pool-bytes", "4GiB", "--max-running", "512", "--swap-bytes", "16GiB",
                    "--requests", "1000", "--warmup", "2", "--seconds", "11")


def pool16(bench):
    yield from pool(bench, "pool16", "llama3-8b", "--pool-bytes", "16GiB", "--max-running", "1024", "--swap-bytes", "32GiB",
                    "--requests", "1500", "--warmup", "1.5", "--seconds", "8")


def pool64(bench):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "eight-layers.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(SHAPE, file)
        yield from pool(bench, "pool64", path, "--pool-bytes", "16GiB", "--max-running", "2048", "--swap-bytes", "32GiB",
                        "--requests", "3000", "--warmup", "1", "--seconds", "6")


PARTS = {f.__name__: f for f in (one, many32, many128, types32, types128, prompts, attn, codec, images, serving, reclaim,
                                      pool4, pool16, pool64)}


# ---- the card -------------------------------------------------------------------------------------


def smi(fields, *words):
    return ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", *words]


def card():
    try:
        done = subprocess.run(smi("name,driver_version,power.limit"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              encoding="utf-8", check=True, timeout=20)
        name, driver, watts = (cell.strip() for cell in done.stdout.splitlines()[0].split(","))
        return f"{name}, driver {driver}, at most {watts} W"
    except (OSError, subprocess.SubprocessError, LookupError, ValueError):
        return "a card that nvidia-smi does not name"


class Watch:
    """Clock (MHz) and power (W) while the body runs; None where nobody tells."""

    def __enter__(self):
        self.mhz = self.watts = None
        try:
            self.smi = subprocess.Popen(smi("clocks.sm,power.draw", "-l", "1"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        encoding="utf-8")
        except OSError:
            self.smi = None
        return self

    def __exit__(self, *_):
        if not self.smi:
            return
        self.smi.terminate()
        samples = []
        for line in self.smi.communicate()[0].splitlines():
            try:
                mhz, watts = (float(cell) for cell in line.split(","))
                samples.append((watts, mhz))
            except ValueError:
                pass
        busy = [s for s in samples if s[0] >= 0.8 * max(samples)[0]]
        if busy:
            self.watts, self.mhz = (statistics.median(values) for values in zip(*busy))


# ---- figures ------------------------------------------------------------------------------------


def derived(found):
    """Lines of several parts' figures: what a step of leankv has more than one of k8v4, beside attention."""
    for every in ("", ",every=8"):
        kv = LEANKV + every
        lines = (f"32 behind 8k, F16, {kv}", "32 behind 8k, F16, k8v4", f"attention in a graph, {kv}",
                 "attention in a graph, k8v4")
        if all(line in found for line in lines):
            step, plain, its, plain_its = (statistics.median(found[line].values) for line in lines)
            ms, plain_ms = 32e3 / step, 32e3 / plain
            yield f"management behind a step, {kv}", "share", (ms - plain_ms + 32 * (plain_its - its) / 1e3) / ms


class Line:
    """Of one line: its part, unit, and a figure of each round."""

    def __init__(self, part, unit):
        self.part, self.unit, self.values = part, unit, []


def measure(bench, options, found, cards):
    """Adds to `found`, {line: Line}; returns what failed."""
    failed = []
    for i in range(options.rounds):
        for part in options.parts:
            print(f"gpus.py: round {i + 1}, {part}", file=sys.stderr, flush=True)
            begun = time.monotonic()
            with Watch() as watch:
                try:
                    for line, unit, value in PARTS[part](bench):
                        found.setdefault(line, Line(part, unit)).values.append(value)
                        write(bench, options, found, cards, failed)
                except Failed as error:
                    failed.append(f"{part}: {error}")
                    print(f"gpus.py: {part}: {error}", file=sys.stderr)
            cards.append({"part": part, "seconds": round(time.monotonic() - begun, 1), "mhz": watch.mhz, "watts": watch.watts})
            write(bench, options, found, cards, failed)
    return failed


def number(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def cells(found, peers, name, line):
    """Figure, base, ratio, asked, and whether it holds."""
    value = statistics.median(line.values)
    text = f"{number(value)} {line.unit}"
    if len(line.values) > 1:
        text += f" ({number(min(line.values))} to {number(max(line.values))})"
    asked = ASKED.get(name)
    if not asked:
        return text, "", "", "", ""
    if not asked.base:
        is_held = value >= asked.least if asked.least is not None else value <= asked.most
        bound = f">= {asked.least:g}" if asked.least is not None else f"<= {asked.most:g}"
        return text, "", "", bound, "held" if is_held else "**missed**"
    base = statistics.median(found[asked.base].values) if asked.base in found else peers.get(asked.base)
    if not base or not value:
        return text, f"{asked.base}: not measured", "", f">= {asked.least:.3g}", ""
    ratio = base / value if line.unit in TIMES else value / base
    return (text, f"{asked.base}: {number(base)}", f"{ratio:.4f}", f">= {asked.least:.3g}",
            "held" if ratio >= asked.least else "**missed**")


def table(options, found, cards):
    lines = [f"{options.card}; commit {options.commit}; {options.date}; rounds: {options.rounds}", "",
             "| part | line | figure | over | times | asked | |", "|---" * 7 + "|"]
    for name, line in found.items():
        lines.append(f"| {line.part} | {name} | " + " | ".join(cells(found, options.bases, name, line)) + " |")
    lines += ["", "| part | s | clock, MHz | power, W |", "|---" * 4 + "|"]
    for c in cards:
        lines.append(f"| {c['part']} | {c['seconds']} | {c['mhz'] or ''} | {c['watts'] or ''} |")
    return "\n".join(lines) + "\n"


def write(bench, options, found, cards, failed):
    """Both files, after each part: what was measured stays when the next is cut short."""
    now = dict(found)
    for name, unit, value in derived(found):
        now[name] = Line("derived", unit)
        now[name].values.append(value)
    options.text = table(options, now, cards)
    if options.out:
        put(options.out, options.text)
    if options.json:
        rows = [dict(zip(("figure", "base", "ratio", "asked", "held"), cells(now, options.bases, name, line)),
                     part=line.part, line=name, unit=line.unit, values=line.values) for name, line in now.items()]
        put(options.json, json.dumps({"card": options.card, "commit": options.commit, "date": options.date, "lines": rows,
                                      "parts": cards, "commands": bench.commands, "failed": failed}, indent=1) + "\n")


def put(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


# ---- the command line -----------------------------------------------------------------------------


def commit_of_tree():
    try:
        done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--exclude=*", "--dirty= with changes"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8", check=True)
        return done.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def read_peers(path):
    """BASES with the file's figures."""
    try:
        with open(path, encoding="utf-8") as file:
            given = json.load(file)
        for name, value in given.items():
            if name not in BASES:
                raise Failed(f"{path}: '{name}' is none of {', '.join(BASES)}")
            if not isinstance(value, (int, float)) or not value > 0:
                raise Failed(f"{path}: '{name}' is no speed")
    except (ValueError, AttributeError) as error:
        raise Failed(f"{path}: no JSON object of tokens/s") from error
    return {**BASES, **given}


def part_of(word):
    if word not in PARTS:
        raise argparse.ArgumentTypeError(f"'{word}' is none of {', '.join(PARTS)}")
    return word


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="where the programs are (default build)")
    parser.add_argument("--parts", type=lambda text: [part_of(word) for word in text.split(",")], default=list(PARTS),
                        help=f"of {','.join(PARTS)} (default all)")
    parser.add_argument("--rounds", type=int, default=1, help="rounds (default 1)")
    parser.add_argument("--peers", help="other programs' tokens/s on this card, a JSON file")
    parser.add_argument("--commit", help="of the programs (default: this tree's)")
    parser.add_argument("--out", help="write the table to FILE instead of stdout")
    parser.add_argument("--json", help="write all that was measured to FILE too")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds: at least 1")
    return options


def main():
    options = parse()
    try:
        options.bases = read_peers(options.peers) if options.peers else BASES
        options.commit = options.commit or commit_of_tree()
        options.date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        options.card = card()
        failed = measure(Bench(options), options, {}, [])
        if not options.out:
            print(options.text, end="")
        return 1 if failed else 0
    except Failed as error:
        print(f"gpus.py: {error}", file=sys.stderr)
    except OSError as error:
        print(f"gpus.py: {error.filename}: {error.strerror}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 1


if __name__ == "__main__":
    sys.exit(main())
