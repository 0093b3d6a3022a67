#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What compression costs on real models: the tables of docs/MODELS.md.

    python3 bench/models/run.py --measure [--only smollm2-4096,gemma3-8192] [--families N,..]
                                     run `pleat eval` for every spec that is not measured yet, and keep what it printed
                                     in bench/models/results/
    python3 bench/models/run.py      put the tables, made of what is kept, between the page's markers

    specs.py    the models, and their specs by families      measure.py    commands, records, leankv's calibration
    tables.py   tables and sentences

The models are those of `make real-models`.  Exit codes: 0 ok, 1 a measurement failed or is missing (the page says
which), 2 wrong usage, 130 interrupted (what was measured is kept).
"""
import argparse
import os
import sys

sys.dont_write_bytecode = True  # the tree stays as it was
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.join(sys.path[0], "papers"))
from lab.lab import ROOT, Failed
from models import measure, specs, tables

TABLES = [f"{model.name}-{context}" for context in specs.CONTEXTS for model in specs.MODELS]


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="what is not measured yet, instead of writing the page")
    parser.add_argument("--only", default=",".join(TABLES), help="these tables (default: %(default)s)")
    parser.add_argument("--families", help="numbers from 1 of the families, in their order (default: all)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all CPUs")
    parser.add_argument("--pleat", default=os.path.join("build", "pleat"))
    parser.add_argument("--results", default=measure.RESULTS, help="where records are kept (default: bench/models/results)")
    parser.add_argument("--out", default=os.path.join("docs", "MODELS.md"))
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    options = parser.parse_args()
    options.only = options.only.split(",")
    measure.RESULTS = os.path.abspath(options.results)
    names = list(specs.FAMILIES)
    try:
        options.families = [names[int(n) - 1] for n in options.families.split(",")] if options.families else names
    except (ValueError, IndexError):
        parser.error(f"--families: numbers from 1 to {len(names)}")
    for name in options.only:
        if name not in TABLES:
            parser.error(f"--only: '{name}' is none of {', '.join(TABLES)}")
    return options


def measure_all(options):
    measure.write_texts()
    bench = measure.Bench(options.pleat, options.threads,
                          lambda what: options.quiet or print(what, file=sys.stderr, flush=True))
    n_failed = 0
    for name in options.only:
        model = next(m for m in specs.MODELS if m.name == name.split("-")[0])
        for family in options.families:
            try:
                bench.family(model, int(name.split("-")[1]), family)
            except Failed as error:
                n_failed += 1
                print(f"run.py: {name}, {family}: {error}", file=sys.stderr)
    return 1 if n_failed else 0


def main():
    os.chdir(ROOT)
    options = read_options()
    try:
        if options.measure:
            return measure_all(options)
        missing = tables.fill_page(options.out)
    except KeyboardInterrupt:
        print("run.py: interrupted; what was measured is kept", file=sys.stderr)
        return 130
    except (Failed, OSError) as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 1
    for what in missing:
        print(f"run.py: {what}: not measured yet", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
