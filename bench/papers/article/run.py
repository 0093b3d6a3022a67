#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Computes and measures the tables of an article on KV-cache management again, and writes docs/papers/article.md.

    python3 bench/papers/article/run.py [--quick] [--only waste,swap] [--out FILE]

Tables of bytes follow from formulas; those of allocators from build/bench/bench_allocators, whose raw results are kept
under build/papers/article/.

    printed.py   what the article prints     memory.py      models, batch, precision, beams
    models.py    shapes of models            traffic.py     bytes read in a step, swapping
    section.py   sections, numbers as text   allocators.py  waste, allocators, block sizes
    serve.py     a whole server

Measuring, keeping and writing pages: ../lab.  Exit codes: 0 ok, 1 a measurement failed (the page says
which), 2 wrong usage, 130 interrupted.
"""
import os
import sys

sys.dont_write_bytecode = True  # the tree stays as it was
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
from article import allocators, memory, models, serve, traffic
from article.section import Section
from lab import lab, page

LIST = (traffic.table_no_cache, memory.table_models, memory.table_batches, *allocators.LIST, memory.table_beams,
        memory.table_precisions, traffic.table_decode, traffic.table_gain, traffic.table_swap, *serve.serve_tables(),
        memory.table_small)

HEAD = """# An article's tables, computed again

`{command}` wrote this page; each section says when and of which commit its figures are. It goes through the
tables of *KV Cache: The Hidden Memory Giant in LLM Serving*
(Inference Optimization Timeline, part 2). What follows from a formula or from a replay stands next to what is printed
there, and the page says what was wrong.

- **Computed**: sizes and bounds, from the shapes of the models. Where `pleat plan` is named it gave the same bytes, or
  the table would not be here. GiB are 2^30 bytes, GB 10^9; the article writes GB for both.
- **Replayed**: allocators, {requests} requests a workload, in build/bench/bench_allocators. It counts memory and
  allocates for real, the paged ones with the library's own pool and tables. Time passes in steps of one token for each
  running request.
- **Machines** are shared with other work: it matters for nanoseconds alone.
- **Served**: `pleat bench serve` on the reference model, requests from one pool on this machine's cores.
- **Not here**: times on GPUs, and the quality columns of quantisation and eviction. For the latter
  docs/papers/leankv.md has measurements of another kind.
"""


class Bench:
    """What the tables need: the programs and the sizes."""

    def __init__(self, options, progress):
        self.lab = lab.Lab(options.pleat, options.store, progress)
        self.pleat, self.model = options.pleat, options.model
        self.pool_tokens, self.n_requests = (32768, 1250) if options.quick else (262144, 10000)
        self.n_served, self.n_shared = (4, 2) if options.quick else (120, 64)
        self.allocators = os.path.join(os.path.dirname(options.pleat), "bench", "bench_allocators")

    def plan(self, name, tokens, batch, *specs):
        """(record, {spec: row}) of `pleat plan`; Failed if it disagrees with the formulas of models.py."""
        kv = [word for spec in specs for word in ("--kv", spec)]
        record = self.lab.measure("plan", "plan", "--arch", name, "--ctx", tokens, "--batch", batch, *kv, "--format",
                                  "json")
        found = record["result"]
        rows = {row["kv"]: row for row in found["rows"]}
        mine = {"params": models.params(models.MODELS[name])}
        its = {"params": found["model"]["params"]}
        for spec in specs:
            mine[spec], its[spec] = models.kv_bytes(name, 1, 1, spec), rows[spec]["bytes_per_token"]
            swapped = f"{spec}, one sequence"
            mine[swapped], its[swapped] = models.kv_bytes(name, tokens, 1, spec), rows[spec]["preempt"]["swap_bytes"]
        for key in mine:
            if mine[key] != its[key]:
                raise lab.Failed(f"{name}, {key}: `pleat plan` says {its[key]}, the formula {mine[key]}")
        return record, rows


def read_options():
    names = [f.__name__.removeprefix("table_") for f in LIST]
    parser = lab.parser_for(__doc__, "article", names, "an eighth of the pool and of the requests")
    options = parser.parse_args()
    lab.check_options(parser, options, names)
    return options


def head(bench, options):
    return HEAD.format(command=lab.command_of("article", options), requests=f"{bench.n_requests:,}")


def write_page(bench, options, sections):
    parts = [head(bench, options), *(s.text() for s in sections)]
    page.write(options.out, parts, {bench.allocators: "build/bench/bench_allocators", options.pleat: "build/pleat"})


def main():
    os.chdir(lab.ROOT)
    options = read_options()
    progress = lab.Progress({"allocators": 2, "plan": 12}, {"allocators": 15, "plan": 0.1}, options.quiet)
    return page.run_page(progress, options, lambda: Bench(options, progress), LIST, write_page, head,
                         section=Section)


if __name__ == "__main__":
    sys.exit(main())
