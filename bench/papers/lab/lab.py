# SPDX-License-Identifier: MIT
"""Runs commands that print JSON, keeps what they print, and knows how much is left.

A result lies in STORE/KIND-KEY.json, KEY being the hash of the command line, of the program and of every file that the
command line names.  What was measured once is not measured again, so an interrupted run goes on where it was; a rebuilt
program or another model starts afresh.
"""
import argparse
import datetime
import functools
import hashlib
import json
import os
import subprocess
import sys
import time


ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


class Failed(Exception):
    """A command that ended badly; the text says which and how."""


def machine():
    """CPU model, cores and memory, in one line."""
    model, memory = "unknown CPU", 0
    try:
        with open("/proc/cpuinfo") as f:
            lines = dict(line.split(":", 1) for line in f if ":" in line)
        fields = {k.strip(): v.strip() for k, v in lines.items()}
        model = fields.get("model name", model)
        if "cpu family" in fields:
            model += f" (family {fields['cpu family']} model {fields['model']})"
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (OSError, ValueError, KeyError):
        pass
    return f"{model}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB"


@functools.cache
def commit_of_tree():
    """The commit that is checked out, and whether the tree differs from it; nothing outside a repository."""
    try:
        done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--abbrev=7", "--exclude=*", "--dirty= with changes"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def features_of(program):
    """"; cpu: ...", the CPU features that it found; nothing if it does not say."""
    done = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True, check=False)
    parts = [part.strip() for line in done.stdout.splitlines()[1:] for part in line.split(";")]
    return "".join(f"; {part}" for part in parts if part.startswith("cpu:"))


def version_of(program):
    """Its name and version, the commit, and the CPU features that it found."""
    done = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True, check=False)
    first = (done.stdout.splitlines() or ["of unknown version"])[0]
    commit = commit_of_tree()
    return first + (f", commit {commit}" if commit else "") + features_of(program)


def today():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")


def clock(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class Progress:
    """One line on stderr: how many measurements are done, and about how long the rest takes.

    expected: {kind: how many}.  The rest is reckoned from the mean of each kind, or guess[kind] before there is one.
    """

    def __init__(self, expected, guess, quiet):
        self.expected, self.guess, self.quiet = dict(expected), guess, quiet
        self.seconds = {kind: [] for kind in expected}
        self.start = time.monotonic()

    def left(self):
        total = 0.0
        for kind, n in self.expected.items():
            done = self.seconds.get(kind, [])
            mean = sum(done) / len(done) if done else self.guess.get(kind, 30)
            total += max(0, n - len(done)) * mean
        return total

    def done(self, kind, seconds):
        self.seconds.setdefault(kind, []).append(seconds)

    def show(self, what):
        if self.quiet:
            return
        n_done = sum(len(s) for s in self.seconds.values())
        n_all = max(n_done + 1, sum(self.expected.values()))
        bar = "#" * (20 * n_done // n_all)
        gone, left = clock(time.monotonic() - self.start), clock(self.left())
        text = f"[{bar:<20}] {n_done}/{n_all}  {gone} gone, about {left} left"
        if sys.stderr.isatty():
            print(f"\r\033[K{text}  {what}"[:200], end="", file=sys.stderr, flush=True)
        else:
            print(f"{text}  {what}", file=sys.stderr, flush=True)

    def end(self):
        if not self.quiet and sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def write(path, text):
    """A file that is seen whole or not at all; its folder is made.  Gives the path."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path + ".part", "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(path + ".part", path)
    return path


class Lab:
    def __init__(self, program, store, progress):
        self.program, self.store, self.progress = program, store, progress
        self.machine = machine() + features_of(program)
        self.hashes = {}
        self.asked = {}  # key -> record or Failed, of this run
        self.n_new = 0
        os.makedirs(store, exist_ok=True)

    def hash_of(self, path):
        if path not in self.hashes:
            with open(path, "rb") as f:
                self.hashes[path] = hashlib.sha256(f.read()).hexdigest()
        return self.hashes[path]

    def key_of(self, argv):
        files = {a: self.hash_of(a) for a in argv if os.path.isfile(a)}
        text = json.dumps([argv[1:], self.hash_of(argv[0]), files], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def measure(self, kind, *args, program=None, output=None, turn=0, parse=json.loads):
        """The record {command, date, commit, seconds, machine, result} of `program args`; Failed if it ends badly.  `output`
        goes to -o; it is a file that the command keeps for itself, and no part of the key.  Another `turn` is another
        measurement by the same command line.  `parse` makes the result of what was printed; ValueError if it cannot."""
        argv = [program or self.program, *map(str, args)]
        key = self.key_of(argv) + (f"-{turn}" if turn else "")
        argv += ["-o", output] if output else []
        if key not in self.asked:
            self.asked[key] = self.load(kind, key) or self.execute(kind, key, argv, parse)
            seconds = 0 if isinstance(self.asked[key], Failed) else self.asked[key]["seconds"]
            self.progress.done(kind, seconds)
        if isinstance(self.asked[key], Failed):
            raise self.asked[key]
        return self.asked[key]

    def path(self, kind, key):
        return os.path.join(self.store, f"{kind}-{key}.json")

    def load(self, kind, key):
        try:
            with open(self.path(kind, key)) as f:
                return json.load(f)
        except (OSError, ValueError):
            return None

    def execute(self, kind, key, argv, parse):
        command = " ".join(f'"{a}"' if " " in a else a for a in argv)
        self.progress.show(command)
        start = time.monotonic()
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        seconds = time.monotonic() - start
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return Failed(f"`{command}` ended with {done.returncode}: {last}")
        try:
            result = parse(done.stdout)
        except ValueError as error:
            return Failed(f"`{command}` printed what cannot be read: {error}")
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        record = {"command": command, "program_sha256": self.hash_of(argv[0]), "date": now,
                  "commit": commit_of_tree(), "seconds": round(seconds, 2), "machine": self.machine, "result": result}
        write(self.path(kind, key), json.dumps(record, indent=1))
        self.n_new += 1
        return record


class KeptLab(Lab):
    """Measures nothing."""

    def execute(self, kind, key, argv, *more):
        return Failed(f"not measured yet: {' '.join(argv)}")


def parser_for(doc, paper, names, quick, out=None):
    """The options that all pages have.  quick: what --quick leaves of the work; out: --out, if not one page."""
    out = out or f"docs/papers/{paper}.md"
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pleat", default="build/pleat", help="the command (default build/pleat)")
    parser.add_argument("--model", default="models/pleat-28m-q8_0.gguf", help="default: the reference model")
    parser.add_argument("--quick", action="store_true", help=f"{quick}: a try-out")
    parser.add_argument("--only", default="", help=f"some of {','.join(names)}; the rest is left out")
    parser.add_argument("--keep-rest", action="store_true", help="what --only leaves out stays as the page has it")
    parser.add_argument("--out", default=out, help=f"where the text goes (default {out})")
    parser.add_argument("--store", default=f"build/papers/{paper}", help=f"raw results (default build/papers/{paper})")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    return parser


def command_of(paper, options, samples=None):
    """The command line that `options` came from; samples: the default of --samples, if there is that option."""
    more = " --quick" if options.quick else ""
    if samples and not options.quick and options.samples != samples:
        more = f" --samples {options.samples}"
    return f"python3 bench/papers/{paper}/run.py{more}"


def check_options(parser, options, names, needed=()):
    """What every page's command line is held against: programs, model and `needed` are there, --only names tables.  Leaves
    options.only a list, of all names where none was given."""
    for path in (options.pleat, options.model, *needed):
        if not os.path.isfile(path):
            parser.error(f"{path} is not there; run make first, or name another")
    options.only = [w for w in options.only.split(",") if w] or names
    unknown = [w for w in options.only if w not in names]
    if unknown:
        parser.error(f"--only {unknown[0]}: not among {', '.join(names)}")


def read_samples(parser, names, default, what, needed=lambda options: ()):
    """The options of a page that judges by `samples` of each task, which come in four lengths."""
    parser.add_argument("--samples", type=int, default=default,
                        help=f"of each task{what}, a multiple of 4 up to 64 (default {default})")
    parser.add_argument("--kept", action="store_true", help="measure nothing: from what is kept, or exit code 1")
    options = parser.parse_args()
    if options.quick:
        options.samples = 4
    if not 4 <= options.samples <= 64 or options.samples % 4:
        parser.error("--samples: a multiple of 4, up to 64: as many of each of four lengths")
    check_options(parser, options, names, needed(options))
    return options
