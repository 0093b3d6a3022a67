#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reproduces KVCrush's evaluation in miniature, and compares every policy with every other.

    python3 bench/papers/kvcrush/run.py [--samples N | --quick] [--only table3,fig4] [--kept]

Writes docs/papers/kvcrush.md, with the paper's figures next to ours, and docs/papers/eviction.md, all policies at equal
tokens and at equal bytes.  Each raw result is kept under build/papers/kvcrush/ (an interrupted run goes on where
it was); --kept measures nothing and writes the pages from what is there.

    printed.py   what the paper prints           crush.py      Tables 2 and 3, Figures 4 to 6
    eviction.py  every policy in one table       cost.py       Figures 2 and 3

Measuring, keeping and writing pages: ../lab.  Exit codes: 0 ok, 1 a measurement failed or is not there
(the page says which), 2 wrong usage, 130 interrupted.
"""
import os
import sys

sys.dont_write_bytecode = True  # the tree stays as it was
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
from kvcrush import cost, crush, eviction
from lab import lab, page
from lab.samples import Rows, calibrated_spec, profile_path, write_blocks

PAGES = {"kvcrush.md": (crush.table2, crush.table3, cost.fig2, cost.fig3, crush.fig4, crush.fig5),
         "eviction.md": (eviction.tokens25, eviction.tokens12, eviction.bytes36, eviction.bytes25)}
NAMES = [make.__name__ for sections in PAGES.values() for make in sections]
# Seconds that one measurement of a kind takes on two cores, until there is one to go by.
GUESS = {"tasks": 8, "text": 30, "run": 20, "stage": 2}

ABOUT = """- **What was measured**: {model}, 28 million parameters: 8 layers, 8 query heads and 4 KV heads of 64, context 4096. Accuracy
  is over {samples} samples a task of eval/tasks.jsonl, as many of each of its four lengths (300 to 3400 tokens), or {few}
  where a table sweeps something. Perplexity is over {windows} windows of eval/prose.txt. Only trends compare with models
  of 4 to 8 billion parameters.
- **Budgets** are shares of the prompt, `sinks=4` and `window=64` within them: short prompts keep 68 tokens at least.
  Questions come after the text, in later turns of some tasks: what was dropped before is gone.
- **Bytes** are everything that a cache holds, over f16's: metadata, tables and unused slots count.
- **Errors**: the figure after ± is one standard error; "clear" or "beyond" means two of them. Where two rows are
  compared, the error is that of the difference over the same samples. It comes from blocks of 4 samples a task and has
  8 (blocks - 1) degrees of freedom.
- **Machines** are shared with other work: ratios say more than times.
"""

HEADS = {"kvcrush.md": """# KVCrush's evaluation in miniature

`{command}` wrote this page; each section says when and of which commit its figures are. KVCrush spends a part
of a policy's budget on tokens that stand for many like
them (*KVCrush: Key Value Cache size-reduction using similarity in head-behaviour*, Jha et al.). The page repeats the
paper's evaluation as far as one small model on a CPU can show it, next to the paper's figures. "Agrees" and "differs"
are computed from the tables. The stage is `+kvcrush` of `--kv` (include/pleat/spec.h); src/policy/kvcrush.h says where
and why it departs from the paper's formulas. The row "KVCrush*" of the paper's Table 3 picks, for each data set, the
best of three on the test score. That is not a method, and not here.

""", "eviction.md": """# Every policy in one table

`{command}` wrote this page; each section says when and of which commit its figures are. It compares eviction
policies, equal shares (topk) and LeanKV in two ways: once
with equal shares of the tokens in the same format (f16), so that only what is dropped differs, and once with equal
bytes. At equal bytes 8 and 4 bits (k8v4) leave room for about 2.4 times the tokens of f16, and LeanKV may keep all at
fewer.

- **random, recent, streaming, h2o** evict in generation too, so their tokens stay within the budget. In contrast
  **snapkv, pyramidkv, adakv** evict at the end of prompts alone and grow by what is generated. The text (half a window
  as prompt, half token by token) shows it: the last column has what was held there at the end.
- The recall tasks ask for lines that hardly anything attended to before the question came. Policies that rank by the
  attention received so far (h2o, topk, leankv with al > 0) drop them like the rest. In contrast snapkv, pyramidkv and
  adakv look at the last 64 queries, the question among them, and lose what later turns ask.
- **novel, leverage, expected, dropkv and kvzip** are not among these, which are of questions that come later.
  [ACCURACY.md](../ACCURACY.md) and [FRONTIER.md](../FRONTIER.md) have them beside some of these.
- **LeanKV, calibrated** is the model's own profile. It was chosen on the even half of the samples; the first 32 of a
  task here are of the odd half. The eviction policies have nothing to calibrate. LeanKV's control looks at no attention:
  what is older than its window is low, and the window makes the bytes equal.
- **KL** is the mean divergence of the text's predictions from f16's; **same first** is how often both have the same
  first choice.
"""}


class Bench:
    """What the tables need: the program, the inputs, the sizes."""

    def __init__(self, options, progress):
        quick = options.quick
        self.lab = (lab.KeptLab if options.kept else lab.Lab)(options.pleat, options.store, progress)
        self.pleat, self.model, self.text = options.pleat, options.model, "eval/prose.txt"
        self.n_blocks = options.samples // 4
        self.n_few = min(self.n_blocks, max(2, self.n_blocks // 2))  # of sweeps
        self.windows = 1 if quick else 2
        self.n_layers = 8
        self.n_turns = 1 if quick else 5
        self.budgets = (25,) if quick else (12.5, 25, 50)
        self.shares = (0, 25) if quick else (0, 25, 50, 75, 90)
        self.blocks = write_blocks(options.store, odd_first=True)
        self.calibrated = calibrated_spec(options.model)
        self.rows = Rows(self)


def read_options():
    parser = lab.parser_for(__doc__, "kvcrush", NAMES, "4 samples of each task and shorter sweeps", "docs/papers")
    return lab.read_samples(parser, NAMES, 16, "", lambda options: [profile_path(options.model)])


def head(bench, options, name):
    return (HEADS[name] + ABOUT).format(
        command=lab.command_of("kvcrush", options, 16), model=options.model,
        samples=options.samples, few=4 * bench.n_few, windows=bench.windows)


def write_page(bench, options, name, sections):
    parts = [head(bench, options, name), *(s.text() for s in sections)]
    page.write(os.path.join(options.out, name), parts, {options.pleat: "build/pleat"})


def main():
    os.chdir(lab.ROOT)
    options = read_options()
    n = options.samples // 4
    progress = lab.Progress({"tasks": 48 * n + 52 * min(n, max(2, n // 2)) + 20, "text": 14, "run": 10, "stage": 5}, GUESS,
                            options.quiet)
    bench = Bench(options, progress)

    def work():
        n_all = 0
        for name, makers in PAGES.items():
            sections, n_failed = page.make_all(bench, makers, options.only)
            n_all += n_failed
            if sections:
                progress.end()
                if options.keep_rest:
                    sections = page.with_rest(sections, os.path.join(options.out, name), head(bench, options, name))
                write_page(bench, options, name, sections)
                page.tell(os.path.join(options.out, name), sections, n_failed)
        return n_all
    return page.run(progress, work)


if __name__ == "__main__":
    sys.exit(main())
