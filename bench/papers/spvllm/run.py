#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reproduces SpvLLM's evaluation in miniature, on the reference model, and writes docs/papers/spvllm.md.

    python3 bench/papers/spvllm/run.py [--quick] [--only fig3,fig4] [--out FILE]

Serves one trace with `pleat bench serve` under every strategy and budget, counts the same steps with
build/bench/spvllm_steps, and keeps each raw result under build/papers/spvllm/: an interrupted run goes on where it was.

    printed.py   what the paper prints         memory.py   Fig 2, Fig 3, Table 1, other policies
    runs.py      trace, specs, runs, prices    speed.py    Fig 4 to 6, preemptions, pools
    steps.c      what each step does and holds

Measuring, keeping and writing pages: ../lab.  Exit codes: 0 ok, 1 a measurement failed (the page says
which), 2 wrong usage, 130 interrupted.
"""
import os
import statistics
import sys

sys.dont_write_bytecode = True  # the tree stays as it was
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
from gpu import sections as on_gpu
from lab import lab, page
from spvllm import memory, printed, runs, speed

# In the order in which they are measured: what is timed comes first.
LIST = (speed.fig4, speed.fig6, speed.table_preemptions, memory.fig2, memory.fig3, memory.table1, memory.table_policies,
        speed.table_pools, speed.table_priced, speed.table_formats)
ORDER = ("fig2", "fig3", "policies", "table1", "fig4", "fig6", "preemptions", "pools", "priced", "formats")

HEAD = """# SpvLLM's evaluation in miniature

`{command}` wrote this page; each section says when and of which commit its figures are. SpvLLM gives the slots
of dropped tokens to new ones, so that dropping tokens
frees memory in a paged cache (*SpvLLM: Efficient KV Cache Sparsification in vLLM*, Xiao and Gebrie). The page repeats
the paper's evaluation as far as one small model on a CPU can show it, with the paper's figures next to ours.
"Agrees" and "differs", "met" and "not met" are computed from the tables.

- **Requests**: {n}, all there from the start, with {mean_in:.1f} tokens in and {mean_out:.1f} out on average. The
  paper has {paper_in} and {paper_out}, over 1000 requests. The longest here has {longest}. Lengths are made up:
  log-normal, with seed {seed}, the first whose means are so near. Those that vLLM's sampler leaves out are left out:
  prompts above {longest_prompt} tokens and sums above {context}. Prompts are cut from eval/prose.txt, and answers run
  to their lengths.
- **Model**: {model}, 28 million parameters: 8 layers, 8 query heads and 4 KV heads of 64. The paper does not name its
  own. Caches are f16 in pages of 16 tokens as vLLM's; h2o has 4 sinks and a window of 64.
- **Evictions**: one for each lane and step of generation. The paper's requests keep their prompts. Here h2o also cuts
  a prompt down to its budget when it has been read. Pages that this empties are returned at once, and slots that stay
  dead count as fragmentation. All four strategies keep the same tokens and attend to those alone. The paper's own
  version of reuse did not compute what it should, by its own words.
- **Pool**: {pool} MiB, {pool_tokens:.0f} tokens of f16: {pool_longest:.1f} of the longest allowed request,
  {pool_mean:.1f} of the mean one. It is small because two cores are soon busy: {alone}
  (`pleat bench run -p 0 -n 64 -d 200 -np N`). Measured {alone_when}. With a pool for many requests, memory
  would limit nothing. How the
  paper's T4 compares cannot be told without its model. Its 2007 steps for 1000 * 209 tokens would be 104 requests at
  once.
- **Service**: a request is admitted as long as a hundredth of the pool is left (vLLM's watermark). Preempted ones are
  computed again, as in the paper, and no prefix is kept. Chunks of 512 prompt tokens stand in one step with
  everybody's next token. The paper's vLLM 0.6.2 reads prompts in steps of their own unless told otherwise.
- **Machines** are shared with other work. Specs take turns, {rounds} rounds, medians; ratios say more than times.
"""


class Bench:
    """What the figures need: the programs, the inputs, the sizes."""

    def __init__(self, options, progress):
        quick = options.quick
        self.lab = lab.Lab(options.pleat, options.store, progress)
        self.store, self.pleat, self.model, self.text = options.store, options.pleat, options.model, "eval/prose.txt"
        self.steps = os.path.join(os.path.dirname(options.pleat), "bench", "spvllm_steps")
        self.n_requests, self.n_long, self.off = (12, 825, 60) if quick else (120, 2048, 4)
        self.drawn = (265, 230)  # means before those that are too long are left out
        self.budgets = printed.BUDGETS[:1] if quick else printed.BUDGETS
        self.rounds = 1 if quick else 3
        self.pools = (20, 40)
        self.pool = self.pools[0]
        self.runs = runs.Runs(self)
        self.kvs = [kv for _, _, kv in memory.rows_of(self)]
        least = self.budgets[0]
        self.swap_kvs = [runs.FULL, *(runs.spec_of(least, how) for how in ("reuse", "block"))]
        self.format_kvs = [runs.FULL, runs.spec_of(least, "reuse"), "k8v4", runs.spec_of(least, "reuse", form="k8v4")]


def read_options():
    parser = lab.parser_for(__doc__, "spvllm", ORDER, "few requests, one budget, one round")
    options = parser.parse_args()
    lab.check_options(parser, options, ORDER)
    return options


def alone(bench):
    """Tokens a second of so many requests at once, with room for all; when and where."""
    speeds, records = [], []
    for n in (1, 4, 16):
        record = bench.lab.measure("run", "bench", "run", "-m", bench.model, "-p", 0, "-n", 64, "-d", 200, "-np", n, "-r",
                                   5, "--kv", runs.FULL, "--format", "json", "-q")
        records.append(record)
        speeds.append(f"{record['result']['rows'][0]['tokens_per_s']:.0f} with {n}")
    return f"{page.listing(speeds)} requests at once, in tokens/s", page.dates(records) + page.source(records, ", on ")


def head(bench, options):
    requests = bench.runs.requests
    mean = {k: statistics.mean(r[k] for r in requests) for k in ("prompt_tokens", "output_tokens")}
    speeds, when = alone(bench)
    pool_tokens = bench.pool * runs.MIB / runs.TOKEN_BYTES
    return HEAD.format(command=lab.command_of("spvllm", options), n=len(requests),
                       mean_in=mean["prompt_tokens"], mean_out=mean["output_tokens"], paper_in=printed.MEAN_INPUT,
                       paper_out=printed.MEAN_OUTPUT, longest=max(map(runs.total, requests)), seed=bench.runs.seed,
                       longest_prompt=runs.LONGEST_PROMPT, context=runs.CONTEXT, model=bench.model, pool=bench.pool,
                       pool_tokens=pool_tokens, pool_longest=pool_tokens / runs.CONTEXT, alone=speeds, alone_when=when,
                       pool_mean=pool_tokens / sum(mean.values()), rounds=bench.rounds)


def summary(sections):
    said = [v.split(":", 1) for v in page.requirements(sections)]
    return "\n".join(f"- **{verdict}**:{what}" for verdict, what in said)


def write_page(bench, options, sections):
    parts = [head(bench, options), "## Requirements\n\n" + summary(sections), *(s.text() for s in sections)]
    shown = {bench.steps: "build/bench/spvllm_steps", options.pleat: "build/pleat", options.store: "build/papers/spvllm"}
    page.write(options.out, parts, shown, on_gpu.sections_of("spvllm")[0])


def main():
    os.chdir(lab.ROOT)
    options = read_options()
    progress = lab.Progress({"serve": 70, "steps": 45}, {"serve": 12, "steps": 8}, options.quiet)
    return page.run_page(progress, options, lambda: Bench(options, progress), LIST, write_page, head,
                         order=ORDER)


if __name__ == "__main__":
    sys.exit(main())
