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

--keep FILE spreads the repetitions over several calls: what it holds counts as measured, and this call's are added.
--shape and --weights give Pleat random weights of a known model in place of --model, which the peers read.

Exit codes: 0 ok, 1 a measurement failed or a file cannot be read or written, 2 wrong usage or no peer, 130 interrupted.
"""
import argparse
import collections
import datetime
import json
import math
import os
import signal
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PROFILE = os.path.join(ROOT, "models", "pleat-28m-q8_0.leankv.json")
N_PROMPT, N_GEN, DEPTH = 2048, 96, 4000
PEER_TYPES = ("f16", "q8_0", "q4_0")
PLEAT_KVS = ("f16", "k8v4", "leankv")
TEST_NAMES = ("prompt", "empty", "depth")

# One test: `n` tokens as a prompt (pp) or one by one (tg), after `depth` others.
Test = collections.namedtuple("Test", "kind n depth")

# What is compared: test, Pleat's cache, the peer's, and the targets: against llama-cpp-python, against llama-bench, and
# against the better of all peers.
Row = collections.namedtuple("Row", "test kv type python bench better")
ROWS = (Row("prompt", "f16", "f16", 1.1, None, 1.1), Row("prompt", "k8v4", "f16", 1.1, None, 1.1),
        Row("prompt", "leankv", "f16", 1.0, 1.0, None), Row("empty", "f16", "f16", 1.1, None, 1.1),
        Row("empty", "k8v4", "f16", 1.1, None, 1.1), Row("empty", "leankv", "f16", 1.1, None, None),
        Row("depth", "f16", "f16", None, None, None), Row("depth", "k8v4", "f16", None, None, None),
        Row("depth", "leankv", "f16", None, None, None), Row("depth", "k8v4", "q8_0", 1.7, None, 1.7),
        Row("depth", "leankv", "q8_0", 2.0, 2.0, None), Row("depth", "k8v4", "q4_0", None, None, None),
        Row("depth", "leankv", "q4_0", None, None, None))

# A peer's settings in one test.
Setting = collections.namedtuple("Setting", "ubatch flash repack")


class Failed(Exception):
    """`who`, a command or a file, and what went wrong with it, in one line."""

    def __init__(self, who, what):
        super().__init__(f"{who}: {what}")
        self.what = what


def name_of(test):
    return f"{test.kind}{test.n}" + (f" @ d{test.depth}" if test.depth else "")


def words_of(setting):
    if not setting:
        return ""
    return f"ubatch {setting.ubatch}, {'' if setting.flash else 'no '}flash{', repacked' if setting.repack else ''}"


def rows_of(options):
    """The rows that were asked for."""
    return [row for row in ROWS if row.test in options.tests and row.kv in options.kv and row.type in options.peer_kv]


def types_of(name, rows):
    """The peer's caches that a test is run with."""
    return [t for t in PEER_TYPES if any(row.test == name and row.type == t for row in rows)]


def peer_keys(options):
    """(test, KV, Setting) of all that a peer is tried with."""
    rows = rows_of(options)
    return [(name, kv, Setting(ubatch, flash, repack)) for name, test in options.tests.items()
            for kv in types_of(name, rows) for repack in options.repack
            for flash in ((1, 0) if kv == "f16" and not options.few else (1,))
            for ubatch in ((512, 2048) if test.kind == "pp" and test.n > 512 and not options.few else (512,))]


def run(argv, text=""):
    """A command that was run to its end, well or badly, with `text` on its stdin."""
    try:
        return subprocess.run(argv, input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                              errors="replace", check=False)
    except OSError as error:
        raise Failed(argv[0], f"cannot be run: {error.strerror}") from error


def last_line(text):
    return (text.strip().splitlines() or ["no message"])[-1]


def ending(done):
    """How a command ended badly, with its last words."""
    if done.returncode > 0:
        return f"ended with {done.returncode}: {last_line(done.stderr)}"
    try:
        name = signal.Signals(-done.returncode).name
    except ValueError:
        name = f"signal {-done.returncode}"
    return f"killed by {name}; its last line: {last_line(done.stderr)}"


def execute(argv, text=""):
    """What a command prints; Failed if it ends badly."""
    done = run(argv, text)
    if done.returncode:
        raise Failed(f"`{' '.join(argv)}`", ending(done))
    return done.stdout


def execute_json(argv, read, text=""):
    """`read` of the JSON that a command prints; Failed if that is of another shape than `read` takes it for."""
    printed = execute(argv, text)
    try:
        return read(json.loads(printed))
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        what = f"printed something else than was asked for: {type(error).__name__}: {error}"
        raise Failed(f"`{' '.join(argv)}`", what) from error


def speed_of(value):
    """Tokens/s that can be divided by."""
    speed = float(value)
    if not 0 < speed < math.inf:
        raise ValueError(f"{speed} tokens/s")
    return speed


def speeds_of(values, n):
    if len(values) != n:
        raise ValueError(f"{len(values)} speeds, not {n}")
    return [speed_of(value) for value in values]


# ---- engines ------------------------------------------------------------------------------------------
#
# Each has a name, a version (known after a repetition), all_keys() of what it can measure, and repetition(keys), which
# gives {key: tokens/s} of those.  A key is (test, KV, Setting).  can_repack turns False where repacked weights fail:
# what was measured with them before counts no longer.


class Pleat:
    name = "pleat"
    can_repack = False

    def __init__(self, options):
        self.path, self.tests, self.kvs = options.pleat, options.tests, options.kv
        self.version = "; ".join(execute([self.path, "--version"]).split("\n")).strip("; ")
        self.what = ["-m", options.model]
        if options.shape:
            self.what = ["--shape", options.shape, "--weights", options.weights]
            self.version += f"; random weights, {' '.join(self.what)}"
        self.what += ["-t", str(options.threads)]
        if options.cpu_mask:
            self.what += ["--cpu-mask", options.cpu_mask]
            self.version += f"; --cpu-mask {options.cpu_mask}"
        is_reference = os.path.basename(options.model) == "pleat-28m-q8_0.gguf" and os.path.exists(PROFILE)
        self.specs = {"leankv": f"leankv:profile={PROFILE}"} if is_reference else {}

    def all_keys(self):
        return [(name, kv, None) for name in self.tests for kv in self.kvs]

    def repetition(self, _):
        speeds = {}
        for name, test in self.tests.items():
            argv = [self.path, "bench", "run", *self.what, "-r", "1", "-p", str(test.n if test.kind == "pp" else 0),
                    "-n", str(test.n if test.kind == "tg" else 0), "-d", str(test.depth), "--format", "json", "-q"]
            argv += [word for kv in self.kvs for word in ("--kv", self.specs.get(kv, kv))]
            values = execute_json(argv, self.read)
            speeds.update({(name, kv, None): value for kv, value in zip(self.kvs, values)})
        return speeds

    def read(self, result):
        return speeds_of([row["tokens_per_s"] for row in result["rows"]], len(self.kvs))


class LlamaCppPython:
    """Repacked weights go to other kernels; where these fail, as ggml's for AMX did when built with gcc 12 (2026-11),
    they are left out and the version says why."""
    name = "llama-cpp-python"

    def __init__(self, options):
        self.options, self.tests = options, options.tests
        self.can_repack, self.number, self.note = True, "", ""

    @property
    def version(self):
        return f"llama-cpp-python {self.number}{self.note}"

    @staticmethod
    def why_missing():
        """Why this python cannot import it, "" if it can."""
        done = run([sys.executable, "-c", "import llama_cpp"])
        if not done.returncode:
            return ""
        if last_line(done.stderr) == "ModuleNotFoundError: No module named 'llama_cpp'":
            return "has no llama_cpp (to have it: pip install llama-cpp-python)"
        return f"cannot import llama_cpp ({last_line(done.stderr) if done.returncode > 0 else ending(done)})"

    def all_keys(self):
        return peer_keys(self.options)

    def measure(self, keys):
        if not keys:
            return {}
        cases = [{**self.tests[name]._asdict(), "type": kv, **setting._asdict()} for name, kv, setting in keys]
        argv = [sys.executable, os.path.join(HERE, "llama_cpp_python.py"), self.options.model,
                str(self.options.threads)]
        self.number, speeds = execute_json(argv, lambda result: (result["version"],
                                                                 speeds_of(result["speeds"], len(keys))),
                                           json.dumps(cases))
        return dict(zip(keys, speeds))

    def repetition(self, keys):
        speeds = self.measure([key for key in keys if not key[2].repack])
        try:
            speeds.update(self.measure([key for key in keys if key[2].repack]))
        except Failed as error:
            self.can_repack, self.note = False, f", without repacked weights ({error.what})"
            print(f"llama-cpp-python with repacked weights is left out: {error}", file=sys.stderr)
        return speeds


class LlamaBench:
    """llama-bench in either dialect: generation at a depth is `-d DEPTH` upstream and `-gp DEPTH,N` in ik_llama.cpp."""

    def __init__(self, path, name, options):
        self.path, self.options, self.name, self.version = path, options, name, ""
        done = run([path, "--help"])
        words = done.stdout + done.stderr
        self.has_gp, self.can_repack = "-gp " in words, "-rtr" in words
        if not self.has_gp and "--n-depth" not in words:
            raise Failed(path, ending(done) if done.returncode else
                         "no llama-bench that can generate at a depth (neither --n-depth nor -gp)")

    def all_keys(self):
        return [key for key in peer_keys(self.options) if self.can_repack or not key[2].repack]

    def shape(self, test):
        if test.kind == "pp":
            return ["-p", str(test.n), "-n", "0"]
        if not test.depth:
            return ["-p", "0", "-n", str(test.n)]
        if self.has_gp:
            return ["-p", "0", "-n", "0", "-gp", f"{test.depth},{test.n}"]
        return ["-p", "0", "-n", str(test.n), "-d", str(test.depth)]

    def measure(self, test, kv, setting):
        repack = ["-rtr", str(setting.repack)] if self.can_repack else []
        argv = [self.path, "-m", self.options.model, "-t", str(self.options.threads), "-r", "1", "-ngl", "0",
                "-ctk", kv, "-ctv", kv, "-ub", str(setting.ubatch), "-fa", str(setting.flash), *repack,
                *self.shape(test), "-o", "json"]
        build, speed = execute_json(argv, lambda rows: self.read(rows, test, kv))
        self.version = f"{self.name}, build {build}"
        return speed

    @staticmethod
    def read(rows, test, kv):
        """(build, tokens/s) of the one row of this test."""
        rows = [row for row in rows if is_row_of(row, test, kv)]
        if len(rows) != 1:
            raise ValueError(f"{len(rows)} rows of {name_of(test)}, not one")
        build = f"{rows[0].get('build_commit', 'unknown')} ({rows[0].get('build_number', 0)})"
        return build, speed_of(rows[0]["avg_ts"])

    def repetition(self, keys):
        return {(name, kv, setting): self.measure(self.options.tests[name], kv, setting) for name, kv, setting in keys}


def is_row_of(row, test, kv):
    """Whether llama-bench's row is of this test; ik_llama.cpp gives the depth as n_prompt beside n_gen."""
    is_tg = row["n_gen"] > 0
    depth = row.get("n_depth", row["n_prompt"] if is_tg else 0)
    n = row["n_gen"] if is_tg else row["n_prompt"]
    return ("tg" if is_tg else "pp", n, depth, row["type_k"]) == (*test, kv)


# ---- measuring ----------------------------------------------------------------------------------------


def keys_of(engine, speeds):
    """What a repetition has to measure: all, or what came near the best before."""
    before = near_best(usable(engine, speeds))
    measured = {key[:2] for key in before}
    return before + [key for key in engine.all_keys() if key[:2] not in measured]


def measure(engines, options):
    """{engine: {(test, KV, Setting): [tokens/s of each repetition]}}, all engines in turn."""
    speeds, reps = read_kept(engines, options), options.reps
    keys = {e.name: keys_of(e, speeds) for e in engines}
    for rep in range(reps):
        for engine in engines:
            if not options.quiet:
                print(f"repetition {rep + 1} of {reps}: {engine.name}", file=sys.stderr, flush=True)
            for key, speed in engine.repetition(keys[engine.name]).items():
                speeds[engine.name][key].append(speed)
            keys[engine.name] = keys_of(engine, speeds)
            write_kept(speeds, options)
    return speeds


def usable(engine, speeds):
    """An engine's speeds, less those with repacked weights where these failed later."""
    return {key: values for key, values in speeds[engine.name].items()
            if engine.can_repack or not (key[2] and key[2].repack)}


def near_best(speeds):
    """Keys whose first speed is not a quarter below the best of their test and KV."""
    top = collections.defaultdict(float)
    for (test, kv, _), values in speeds.items():
        top[test, kv] = max(top[test, kv], values[0])
    return [key for key, values in speeds.items() if values[0] >= 0.75 * top[key[:2]]]


def settings_kept(options):
    """What two calls have to have in common for their repetitions to count together."""
    names = ("model", "threads", "shape", "weights", "cpu_mask", "prompt", "gen", "depth")
    return {"machine": machine(), **{name: getattr(options, name) for name in names}}


def read_kept(engines, options):
    """The speeds that earlier calls left in --keep, for these engines and tests; none without."""
    speeds = {e.name: collections.defaultdict(list) for e in engines}
    if not options.keep or not os.path.exists(options.keep):
        return speeds
    with open(options.keep, encoding="utf-8") as f:
        kept = json.load(f)
    if kept["settings"] != settings_kept(options):
        raise Failed(options.keep, f"is of other settings: {kept['settings']}")
    for engine, test, kv, setting, values in kept["speeds"]:
        key = (test, kv, Setting(*setting) if setting else None)
        options.others[engine, key] = values
        if engine in speeds and key in next(e for e in engines if e.name == engine).all_keys():
            speeds[engine][key] = values
    return speeds


def write_kept(speeds, options):
    """All that was measured, this call's and earlier ones', into --keep."""
    if not options.keep:
        return
    options.others.update({(engine, key): values for engine, some in speeds.items() for key, values in some.items()})
    kept = [[engine, *key, values] for (engine, key), values in options.others.items()]
    write(options.keep, json.dumps({"settings": settings_kept(options), "speeds": kept}, indent=0) + "\n")


def best(speeds, test, kv):
    """(median tokens/s, Setting) of the fastest setting, among those that were measured to the end."""
    pairs = [(values, setting) for (t, k, setting), values in speeds.items() if (t, k) == (test, kv)]
    n = max(len(values) for values, _ in pairs)
    return max(((statistics.median(values), setting) for values, setting in pairs if len(values) == n),
               key=lambda pair: pair[0])


def compare(engines, speeds, options):
    """The lines of the table, as dicts: all rows of each peer; of several, some rows of the better."""
    pleat, peers, lines = engines[0], engines[1:], []
    for peer in peers:
        for row in rows_of(options):
            ours, _ = best(usable(pleat, speeds), row.test, row.kv)
            theirs, setting = best(usable(peer, speeds), row.test, row.type)
            target = row.python if isinstance(peer, LlamaCppPython) else row.bench
            lines.append({"test": name_of(options.tests[row.test]), "kv": row.kv, "tokens_per_s": ours,
                          "peer": peer.name, "peer_kv": row.type, "peer_setting": words_of(setting),
                          "peer_tokens_per_s": theirs, "ratio": ours / theirs,
                          "target": target or (row.better if len(peers) == 1 else None)})
    if len(peers) < 2:
        return lines
    for row in filter(lambda row: row.better, rows_of(options)):
        same = [line for line in lines if (line["test"], line["kv"], line["peer_kv"]) ==
                (name_of(options.tests[row.test]), row.kv, row.type)]
        line = min(same, key=lambda line: line["ratio"])
        lines.append({**line, "peer": f"the better, {line['peer']}", "target": row.better})
    return lines


# ---- the page -----------------------------------------------------------------------------------------


def verdict(line):
    if line["target"] is None:
        return ""
    return f">= {line['target']:g}: {'met' if line['ratio'] >= line['target'] else 'MISSED'}"


def digits(speed):
    return f"{speed:.0f}" if speed >= 20 else f"{speed:.2f}"


def machine():
    """CPU model and cores, in a few words."""
    try:
        with open("/proc/cpuinfo") as f:
            names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    except OSError:
        names = []
    return f"{names[0] if names else 'unknown CPU'}, {len(os.sched_getaffinity(0))} cores"


def page(options, engines, lines, n_reps):
    titles = ("test", "pleat --kv", "tokens/s", "peer", "its KV and settings", "tokens/s", "ratio", "target")
    figures = "one repetition" if n_reps == 1 else f"medians of {n_reps} alternating repetitions"
    text = [f"`{os.path.basename(options.model)}`, threads: {options.threads}, {figures}; {machine()}; "
            f"{datetime.date.today()}.", ""]
    text += [f"- {engine.version}" for engine in engines]
    text += ["", "| " + " | ".join(titles) + " |", "|---|---|---:|---|---|---:|---:|---|"]
    for line in lines:
        text.append(f"| {line['test']} | {line['kv']} | {digits(line['tokens_per_s'])} | {line['peer']} | "
                    f"{line['peer_kv']}, {line['peer_setting']} | {digits(line['peer_tokens_per_s'])} | "
                    f"**{line['ratio']:.2f}** | {verdict(line)} |")
    return "\n".join(text) + "\n"


def write(path, text, mode="w"):
    try:
        with open(path, mode) as f:
            f.write(text)
    except OSError as error:
        raise Failed(path, f"cannot be written: {error.strerror}") from error


# ---- the command --------------------------------------------------------------------------------------


def positive(text):
    n = int(text)
    if n < 1:
        raise argparse.ArgumentTypeError(f"{n} is below 1")
    return n


LENGTHS = (f"Tests: prompt, {N_PROMPT} tokens at once; empty, {N_GEN} one by one from an empty cache; depth, {N_GEN} "
           f"after {DEPTH} others.")
EXIT_CODES = " ".join(__doc__[__doc__.index("Exit codes:"):].split())


def parse_options(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0], epilog=f"{LENGTHS}  {EXIT_CODES}")
    parser.add_argument("--model", required=True, help="GGUF that all measure; its context holds 4096 tokens or more")
    parser.add_argument("--llama-bench", action="append", default=[], metavar="PATH",
                        help="a llama-bench binary; may be repeated")
    parser.add_argument("--no-python", action="store_true", help="leave llama-cpp-python out")
    parser.add_argument("--pleat", default=os.path.join(ROOT, "build", "pleat"), help="default: build/pleat")
    parser.add_argument("--reps", type=positive, default=5, help="repetitions (default 5)")
    parser.add_argument("--threads", type=positive, default=len(os.sched_getaffinity(0)), help="default: all CPUs")
    parser.add_argument("--tests", default=",".join(TEST_NAMES),
                        help=f"which of {','.join(TEST_NAMES)} (default: all)")
    parser.add_argument("--kv", default=",".join(PLEAT_KVS),
                        help=f"which of Pleat's {','.join(PLEAT_KVS)} (default: all)")
    parser.add_argument("--peer-kv", default=",".join(PEER_TYPES),
                        help=f"which of the peers' {','.join(PEER_TYPES)} (default: all)")
    parser.add_argument("--prompt", type=positive, default=N_PROMPT, metavar="N",
                        help=f"tokens of a prompt (default {N_PROMPT})")
    parser.add_argument("--gen", type=positive, default=N_GEN, metavar="N", help=f"tokens generated (default {N_GEN})")
    parser.add_argument("--depth", type=positive, default=DEPTH, metavar="N",
                        help=f"tokens before these (default {DEPTH})")
    parser.add_argument("--few", action="store_true", help="fewer settings of the peers: micro-batches of 512, flash")
    parser.add_argument("--repack", choices=("0", "1"), help="peers' weights: as they are (0), repacked (1); default: both")
    parser.add_argument("--shape", help="a known model's shape with random weights for Pleat, as llama3-8b")
    parser.add_argument("--weights", default="q4_k", help="type of these weights (default q4_k)")
    parser.add_argument("--cpu-mask", help="for Pleat, as its --cpu-mask")
    parser.add_argument("--keep", metavar="FILE", help="count the repetitions in FILE as measured, and add to them")
    parser.add_argument("--out", metavar="FILE", help="write the table to FILE too")
    parser.add_argument("--json", metavar="FILE", help="write the rows and every repetition's figures to FILE")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    options = parser.parse_args(argv)
    options.pleat = os.path.abspath(options.pleat)
    options.llama_bench = list(dict.fromkeys(map(os.path.abspath, options.llama_bench)))
    options.repack = (0, 1) if options.repack is None else (int(options.repack),)
    options.tests = picked(parser, "--tests", options.tests, TEST_NAMES)
    options.kv = picked(parser, "--kv", options.kv, PLEAT_KVS)
    options.peer_kv = picked(parser, "--peer-kv", options.peer_kv, PEER_TYPES)
    every = {"prompt": Test("pp", options.prompt, 0), "empty": Test("tg", options.gen, 0),
             "depth": Test("tg", options.gen, options.depth)}
    options.tests = {name: every[name] for name in options.tests}
    options.others = {}
    return options


def picked(parser, name, words, known):
    """The words of an option, each once; a usage error where one is not known."""
    words = list(dict.fromkeys(words.split(",")))
    for word in words:
        if word not in known:
            parser.error(f"{name}: '{word}' is none of {', '.join(known)}")
    return words


def check_files(options):
    """Failed if the model cannot be read, or a file not be written: before hours of measuring, not after."""
    try:
        with open(options.model, "rb"):
            pass
    except OSError as error:
        raise Failed(options.model, f"cannot be read: {error.strerror}") from error
    for path in filter(None, (options.out, options.json, options.keep)):
        is_new = not os.path.lexists(path)
        write(path, "", "a")
        if is_new:
            os.remove(path)


def tails(paths):
    """The last parts of each path: two, or as many as tell all of them apart."""
    parts, n = [path.split(os.sep) for path in paths], 2
    while len({tuple(p[-n:]) for p in parts}) < len(parts):
        n += 1
    return [os.sep.join(p[-n:]) for p in parts]


def find_peers(options):
    found = [LlamaBench(path, name, options) for path, name in zip(options.llama_bench, tails(options.llama_bench))]
    if options.no_python:
        return found
    why = LlamaCppPython.why_missing()
    if why:
        print(f"{sys.executable} {why}: llama-cpp-python is left out", file=sys.stderr)
        return found
    return [LlamaCppPython(options), *found]


def report(options, engines, speeds):
    lines = compare(engines, speeds, options)
    n_reps = max(len(values) for some in speeds.values() for values in some.values())
    text = page(options, engines, lines, n_reps)
    print(text, end="")
    if options.out:
        write(options.out, text)
    if options.json:
        raw = {e: {" ".join(filter(None, (t, kv, words_of(setting)))): v for (t, kv, setting), v in s.items()}
               for e, s in speeds.items()}
        write(options.json, json.dumps({"machine": machine(), "rows": lines, "repetitions": raw}, indent=1) + "\n")


def main(argv):
    options = parse_options(argv)
    try:
        check_files(options)
        peers = find_peers(options)
        if not peers:
            print("no peer to measure: install llama-cpp-python or give --llama-bench PATH", file=sys.stderr)
            return 2
        engines = [Pleat(options), *peers]
        report(options, engines, measure(engines, options))
    except (Failed, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
