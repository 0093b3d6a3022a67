#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What LeanKV, KVComp and SpvLLM measured on GPUs, measured on one: the sections "On a GPU" of docs/papers/leankv.md,
kvcomp.md and spvllm.md.

    python3 bench/papers/gpu/run.py --measure     run `pleat bench ... --device cuda` for each of sections.COMMANDS, on a
                                                  machine with a GPU, and keep what it printed in bench/papers/gpu/results/
    python3 bench/papers/gpu/run.py               put the sections, made of what is kept, at the end of the pages

The pages' own programs, which need no GPU, end it with these sections (sections.py).

Exit codes: 0 ok, 1 a measurement failed or a result is missing, 2 wrong usage.
"""
import argparse
import datetime
import json
import os
import subprocess
import sys

sys.dont_write_bytecode = True  # the tree stays as it was
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
from gpu import sections
from lab import lab


def measure_one(pleat, name):
    command = f"{sections.COMMANDS[name]} --format json -q"
    done = subprocess.run([pleat, *command.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise lab.Failed(f"ended with {done.returncode}: {last}")
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    try:
        result = json.loads(done.stdout)
        if not sections.has_rows(result):
            raise ValueError("no rows")
    except ValueError as error:
        raise lab.Failed(f"what was printed cannot be read: {error}") from error
    record = {"command": f"build/pleat {command}", "date": now, "commit": lab.commit_of_tree(), "result": result}
    lab.write(sections.path_of(name), json.dumps(record, indent=1) + "\n")


def measure(pleat, names):
    """How many failed; one that fails as the failure before it did ends it."""
    n_failed, last = 0, None
    for name in names:
        try:
            measure_one(pleat, name)
            print(f"{name}: done", file=sys.stderr)
        except lab.Failed as error:
            print(f"run.py: {name}: `{pleat} {sections.COMMANDS[name]}`: {error}", file=sys.stderr)
            n_failed += 1
            if str(error) == last:
                print("run.py: the same twice: not going on", file=sys.stderr)
                break
            last = str(error)
    return n_failed


def main():
    os.chdir(lab.ROOT)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="on this machine's GPU, instead of writing pages")
    parser.add_argument("--only", help="these results, e.g. pages-256,codec")
    parser.add_argument("--pleat", default=os.path.join("build", "pleat"))
    parser.add_argument("--results", default=sections.RESULTS, help="folder of what is kept")
    parser.add_argument("--out", default=os.path.join("docs", "papers"), help="folder of the pages")
    options = parser.parse_args()
    if options.only and not options.measure:
        parser.error("--only goes with --measure: pages are written whole")
    sections.RESULTS = options.results
    names = options.only.split(",") if options.only else list(sections.COMMANDS)
    unknown = [n for n in names if n not in sections.COMMANDS]
    if unknown:
        parser.error(f"--only: no result {unknown[0]!r}; there are {', '.join(sections.COMMANDS)}")
    if options.measure:
        try:
            return 1 if measure(options.pleat, names) else 0
        except OSError as error:
            print(f"run.py: cannot run or write {error.filename}: {error.strerror}", file=sys.stderr)
            return 1
    missing = []
    try:
        for paper in sections.PAGES:
            missing += sections.splice(os.path.join(options.out, f"{paper}.md"), paper)
    except (OSError, ValueError) as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 1
    for what in sorted(set(missing)):
        print(f"run.py: {what}: its figures say so; measure it with --measure on a machine with a GPU", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
