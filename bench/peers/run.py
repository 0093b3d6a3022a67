#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures Pleat and the llama.cpp family on the same GGUF in the same run, turn and turn about, and prints ratios.

    python3 bench/peers/run.py --model FILE.gguf [--llama-bench PATH]... [--reps N] [--threads N] [--out FILE]

    pleat              `pleat bench run`, built in build/
    llama-cpp-python   from the package index, if this python has it:  pip install llama-cpp-python
    llama-bench        of llama.cpp or ik_llama.cpp, each that --llama-bench names

A repetition is at least one process of each; figures are medians over the repetitions.  A peer takes the best of its
settings, by their medians: micro-batches of 512 or 2048 tokens for prompts, flash attention or not for f16 caches
(others need it), weights repacked or not.  Settings that are a quarter slower than the best of the first repetition are
not tried again.  Pleat runs with its defaults.  Tokens are random, sampling is not timed, threads are equal.

Exit codes: 0 ok, 1 a measurement failed, 2 wrong usage or no peer.
"""
import argparse
import collections
import datetime
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PROFILE = os.path.join(ROOT, "models", "pleat-28m-q8_0.leankv.json")
N_PROMPT, N_GEN, DEPTH = 2048, 96, 4000
PEER_TYPES = ("f16", "q8_0", "q4_0")

# One test: `n` tokens as a prompt (pp) or one by one (tg), after `depth` others.
Test = collections.namedtuple("Test", "kind n depth")
TESTS = {"prompt": Test("pp", N_PROMPT, 0), "empty": Test("tg", N_GEN, 0), "depth": Test("tg", N_GEN, DEPTH)}

# What is compared: test, Pleat's cache, the peer's, and the targets: against llama-cpp-python, against llama-bench.
Row = collections.namedtuple("Row", "test kv type python bench")
ROWS = (Row("prompt", "f16", "f16", 1.1, None), Row("prompt", "k8v4", "f16", 1.1, None),
        Row("prompt", "leankv", "f16", 1.0, 1.0), Row("empty", "f16", "f16", 1.1, None),
        Row("empty", "k8v4", "f16", 1.1, None), Row("empty", "leankv", "f16", 1.1, None),
        Row("depth", "f16", "f16", None, None), Row("depth", "k8v4", "f16", None, None),
        Row("depth", "leankv", "f16", None, None), Row("depth", "k8v4", "q8_0", 1.7, None),
        Row("depth", "leankv", "q8_0", 2.0, 2.0), Row("depth", "k8v4", "q4_0", None, None),
        Row("depth", "leankv", "q4_0", None, None))
PLEAT_KVS = ("f16", "k8v4", "leankv")

# A peer's settings in one test.
Setting = collections.namedtuple("Setting", "ubatch flash repack")


class Failed(Exception):
    """A command that ended badly, or printed something else than was asked for."""


def name_of(test):
    return f"{test.kind}{test.n}" + (f" @ d{test.depth}" if test.depth else "")


def words_of(setting):
    if not setting:
        return ""
    return f"ubatch {setting.ubatch}, {'' if setting.flash else 'no '}flash{', repacked' if setting.repack else ''}"


def types_of(name):
    """The peer's caches that a test is run with."""
    return [t for t in PEER_TYPES if any(row.test == name and row.type == t for row in ROWS)]


def peer_keys(tests):
    """(test, KV, Setting) of all that a peer is tried with."""
    return [(name, kv, Setting(ubatch, flash, repack)) for name in tests for kv in types_of(name) for repack in (0, 1)
            for flash in ((1, 0) if kv == "f16" else (1,))
            for ubatch in ((512, 2048) if TESTS[name].kind == "pp" else (512,))]


def execute(argv, text=None):
    """What a command prints; Failed with its last words if it ends badly."""
    done = subprocess.run(argv, input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Failed(f"`{' '.join(argv)}` ended with {done.returncode}: {last}")
    return done.stdout


def execute_json(argv, text=None):
    try:
        return json.loads(execute(argv, text))
    except ValueError as error:
        raise Failed(f"`{' '.join(argv)}` printed no JSON: {error}") from error


# ---- engines ------------------------------------------------------------------------------------------
#
# Each has a name, a version (known after a repetition), all_keys() of what it can measure, and repetition(keys), which
# gives {key: tokens/s} of those.  A key is (test, KV, Setting).


class Pleat:
    name = "pleat"

    def __init__(self, options):
        self.path, self.model, self.threads, self.tests = options.pleat, options.model, options.threads, options.tests
        self.version = "; ".join(execute([self.path, "--version"]).split("\n")).strip("; ")
        is_reference = os.path.basename(self.model) == "pleat-28m-q8_0.gguf" and os.path.exists(PROFILE)
        self.specs = dict(zip(PLEAT_KVS, ("f16", "k8v4", f"leankv:profile={PROFILE}" if is_reference else "leankv")))

    def all_keys(self):
        return [(name, kv, None) for name in self.tests for kv in PLEAT_KVS]

    def repetition(self, _):
        speeds = {}
        for name in self.tests:
            test = TESTS[name]
            argv = [self.path, "bench", "run", "-m", self.model, "-t", str(self.threads), "-r", "1", "-p",
                    str(test.n if test.kind == "pp" else 0), "-n", str(test.n if test.kind == "tg" else 0), "-d",
                    str(test.depth), "--format", "json", "-q"]
            argv += [word for kv in PLEAT_KVS for word in ("--kv", self.specs[kv])]
            rows = execute_json(argv)["rows"]
            if len(rows) != len(PLEAT_KVS):
                raise Failed(f"`{' '.join(argv)}` printed {len(rows)} rows, not {len(PLEAT_KVS)}")
            speeds.update({(name, kv, None): row["tokens_per_s"] for kv, row in zip(PLEAT_KVS, rows)})
        return speeds


class LlamaCppPython:
    """Repacked weights go to other kernels; where these crash, as ggml's for AMX did when built with gcc 12 (2026-11),
    they are left out and the version says so."""
    name = "llama-cpp-python"
    version = ""

    def __init__(self, options):
        self.model, self.threads, self.tests = options.model, options.threads, options.tests
        self.can_repack = True

    @staticmethod
    def is_missing():
        done = subprocess.run([sys.executable, "-c", "import llama_cpp"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, check=False)
        return done.returncode != 0

    def all_keys(self):
        return peer_keys(self.tests)

    def measure(self, keys):
        if not keys:
            return {}
        cases = [{**TESTS[name]._asdict(), "type": kv, **setting._asdict()} for name, kv, setting in keys]
        result = execute_json([sys.executable, os.path.join(HERE, "llama_cpp_python.py"), self.model,
                               str(self.threads)], json.dumps(cases))
        self.version = f"llama-cpp-python {result['version']}"
        return dict(zip(keys, result["speeds"]))

    def repetition(self, keys):
        speeds = self.measure([key for key in keys if not key[2].repack])
        try:
            speeds.update(self.measure([key for key in keys if key[2].repack and self.can_repack]))
        except Failed as error:
            self.can_repack = False
            print(f"llama-cpp-python with repacked weights is left out: {error}", file=sys.stderr)
        self.version += "" if self.can_repack else ", without repacked weights, which crash it here"
        return speeds


class LlamaBench:
    """llama-bench in either dialect: generation at a depth is `-d DEPTH` upstream and `-gp DEPTH,N` in ik_llama.cpp."""

    def __init__(self, path, options):
        self.path, self.model, self.threads, self.tests = path, options.model, options.threads, options.tests
        self.name, self.version = os.sep.join(os.path.abspath(path).split(os.sep)[-2:]), ""
        done = subprocess.run([path, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        self.has_gp, self.has_rtr = "-gp " in done.stdout, "-rtr" in done.stdout
        if not self.has_gp and "--n-depth" not in done.stdout:
            raise Failed(f"{path}: no llama-bench that can generate at a depth (neither --n-depth nor -gp)")

    def all_keys(self):
        return [key for key in peer_keys(self.tests) if self.has_rtr or not key[2].repack]

    def shape(self, test):
        if test.kind == "pp":
            return ["-p", str(test.n), "-n", "0"]
        if not test.depth:
            return ["-p", "0", "-n", str(test.n)]
        if self.has_gp:
            return ["-p", "0", "-n", "0", "-gp", f"{test.depth},{test.n}"]
        return ["-p", "0", "-n", str(test.n), "-d", str(test.depth)]

    def measure(self, test, kv, setting):
        repack = ["-rtr", str(setting.repack)] if self.has_rtr else []
        argv = [self.path, "-m", self.model, "-t", str(self.threads), "-r", "1", "-ngl", "0", "-ctk", kv, "-ctv", kv,
                "-ub", str(setting.ubatch), "-fa", str(setting.flash), *repack, *self.shape(test), "-o", "json"]
        rows = [row for row in execute_json(argv) if is_row_of(row, test, kv)]
        if len(rows) != 1:
            raise Failed(f"`{' '.join(argv)}` printed {len(rows)} rows of {name_of(test)}, not one")
        build = f"{rows[0].get('build_commit', 'unknown')} ({rows[0].get('build_number', 0)})"
        self.version = f"{self.name}, build {build}"
        return float(rows[0]["avg_ts"])

    def repetition(self, keys):
        return {(name, kv, setting): self.measure(TESTS[name], kv, setting) for name, kv, setting in keys}


def is_row_of(row, test, kv):
    """Whether llama-bench's row is of this test; ik_llama.cpp gives the depth as n_prompt beside n_gen."""
    is_tg = row["n_gen"] > 0
    depth = row.get("n_depth", row["n_prompt"] if is_tg else 0)
    n = row["n_gen"] if is_tg else row["n_prompt"]
    return ("tg" if is_tg else "pp", n, depth, row["type_k"]) == (*test, kv)


# ---- measuring ----------------------------------------------------------------------------------------


def measure(engines, reps, quiet):
    """{engine: {(test, KV, Setting): [tokens/s of each repetition]}}, all engines in turn."""
    speeds = {e.name: collections.defaultdict(list) for e in engines}
    keys = {e.name: e.all_keys() for e in engines}
    for rep in range(reps):
        for engine in engines:
            if not quiet:
                print(f"repetition {rep + 1} of {reps}: {engine.name}", file=sys.stderr, flush=True)
            for key, speed in engine.repetition(keys[engine.name]).items():
                speeds[engine.name][key].append(speed)
            keys[engine.name] = near_best(speeds[engine.name])
    return speeds


def near_best(speeds):
    """Keys whose first speed is not a quarter below the best of their test and KV."""
    top = collections.defaultdict(float)
    for (test, kv, _), values in speeds.items():
        top[test, kv] = max(top[test, kv], values[0])
    return [key for key, values in speeds.items() if values[0] >= 0.75 * top[key[:2]]]


def best(speeds, test, kv):
    """(median tokens/s, Setting) of the fastest setting, among those that were measured to the end."""
    n = max(len(values) for values in speeds.values())
    return max(((statistics.median(values), setting) for (t, k, setting), values in speeds.items()
                if (t, k) == (test, kv) and len(values) == n), key=lambda pair: pair[0])


def compare(engines, speeds, tests):
    """The lines of the table, as dicts."""
    pleat, lines = engines[0], []
    for peer in engines[1:]:
        for row in ROWS:
            if row.test not in tests:
                continue
            ours, _ = best(speeds[pleat.name], row.test, row.kv)
            theirs, setting = best(speeds[peer.name], row.test, row.type)
            lines.append({"test": name_of(TESTS[row.test]), "kv": row.kv, "tokens_per_s": ours, "peer": peer.name,
                          "peer_kv": row.type, "peer_setting": words_of(setting), "peer_tokens_per_s": theirs,
                          "ratio": ours / theirs,
                          "target": row.python if isinstance(peer, LlamaCppPython) else row.bench})
    return lines


# ---- the page -----------------------------------------------------------------------------------------


def verdict(line):
    if line["target"] is None:
        return ""
    return f">= {line['target']:g}: {'met' if line['ratio'] >= line['target'] else 'MISSED'}"


def machine():
    """CPU model and cores, in a few words."""
    try:
        with open("/proc/cpuinfo") as f:
            names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    except OSError:
        names = []
    return f"{names[0] if names else 'unknown CPU'}, {len(os.sched_getaffinity(0))} cores"


def page(options, engines, lines):
    titles = ("test", "pleat --kv", "tokens/s", "peer", "its KV and settings", "tokens/s", "ratio", "target")
    text = [f"`{os.path.basename(options.model)}`, {options.threads} threads, medians of {options.reps} alternating "
            f"repetitions; {machine()}; {datetime.date.today()}.", ""]
    text += [f"- {engine.version}" for engine in engines]
    text += ["", "| " + " | ".join(titles) + " |", "|---|---|---:|---|---|---:|---:|---|"]
    for line in lines:
        text.append(f"| {line['test']} | {line['kv']} | {line['tokens_per_s']:.0f} | {line['peer']} | "
                    f"{line['peer_kv']}, {line['peer_setting']} | {line['peer_tokens_per_s']:.0f} | "
                    f"**{line['ratio']:.2f}** | {verdict(line)} |")
    return "\n".join(text) + "\n"


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


# ---- the command --------------------------------------------------------------------------------------


def positive(text):
    n = int(text)
    if n < 1:
        raise argparse.ArgumentTypeError(f"{n} is below 1")
    return n


def parse_options(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", required=True, help="GGUF that all measure; its context holds 4096 tokens or more")
    parser.add_argument("--llama-bench", action="append", default=[], metavar="PATH",
                        help="a llama-bench binary; may be repeated")
    parser.add_argument("--no-python", action="store_true", help="leave llama-cpp-python out")
    parser.add_argument("--pleat", default=os.path.join(ROOT, "build", "pleat"), help="default: build/pleat")
    parser.add_argument("--reps", type=positive, default=5, help="repetitions (default 5)")
    parser.add_argument("--threads", type=positive, default=len(os.sched_getaffinity(0)), help="default: all CPUs")
    parser.add_argument("--tests", default=",".join(TESTS), help=f"which of {','.join(TESTS)} (default: all)")
    parser.add_argument("--out", metavar="FILE", help="write the table to FILE too")
    parser.add_argument("--json", metavar="FILE", help="write the rows and every repetition's figures to FILE")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    options = parser.parse_args(argv)
    options.tests = options.tests.split(",")
    for test in options.tests:
        if test not in TESTS:
            parser.error(f"--tests: '{test}' is none of {', '.join(TESTS)}")
    return options


def find_peers(options):
    found = [LlamaBench(path, options) for path in options.llama_bench]
    if options.no_python:
        return found
    if LlamaCppPython.is_missing():
        print(f"{sys.executable} has no llama_cpp, so llama-cpp-python is left out; to have it: "
              "pip install llama-cpp-python", file=sys.stderr)
        return found
    return [LlamaCppPython(options), *found]


def main(argv):
    options = parse_options(argv)
    try:
        peers = find_peers(options)
        if not peers:
            print("no peer to measure: install llama-cpp-python or give --llama-bench PATH", file=sys.stderr)
            return 2
        engines = [Pleat(options), *peers]
        speeds = measure(engines, options.reps, options.quiet)
    except (Failed, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    lines = compare(engines, speeds, options.tests)
    text = page(options, engines, lines)
    print(text, end="")
    if options.out:
        write(options.out, text)
    if options.json:
        raw = {e: {" ".join(filter(None, (t, kv, words_of(setting)))): v for (t, kv, setting), v in s.items()}
               for e, s in speeds.items()}
        write(options.json, json.dumps({"machine": machine(), "rows": lines, "repetitions": raw}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
