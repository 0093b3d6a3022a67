#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reproduces KVComp's evaluation in miniature, and writes docs/papers/kvcomp.md.

    python3 bench/papers/kvcomp/run.py [--samples N | --quick] [--only fig5,ratio] [--kept]

Each raw result is kept under build/papers/kvcomp/ (an interrupted run goes on where it was); --kept
measures nothing and writes the page from what is there.

    printed.py   what the paper prints            curves.py   Fig 5 to 7, a recommended setting
    blocks.c     a model's own blocks             sizes.py    Fig 3 and 8, ratios over KIVI's
    speed.py     Fig 9 to 11, fixed widths

Measuring, keeping and writing pages: ../lab.  Exit codes: 0 ok, 1 a measurement failed or is not there (the page says
which), 2 wrong usage, 130 interrupted.
"""
import os
import sys

sys.dont_write_bytecode = True  # the tree stays as it was
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
from gpu import sections as on_gpu
from kvcomp import curves, printed, sizes, speed
from lab import lab, page
from lab.samples import Rows, write_blocks

# What is timed comes first.
LIST = (speed.fig9, speed.fig10, speed.fig11, speed.table_pack, curves.table_recommended, sizes.fig3, sizes.fig8, curves.fig5,
        sizes.table_ratio, curves.fig7, curves.fig6)
ORDER = ("fig3", "fig5", "fig6", "fig7", "ratio", "fig8", "fig9", "fig10", "fig11", "pack", "recommended")
GUESS = {"tasks": 6, "blocks": 60, "ways": 40, "attn": 40, "codec": 30}

HEAD = """# KVComp's evaluation in miniature

`{command}` wrote this page; each section says when and of which commit its figures are. KVComp quantises
blocks of older tokens with a bounded error and codes them with
Huffman's codes (*KVComp: A High-Performance, LLM-Aware, Lossy Compression Framework for KV Cache*, Jiang et al.). The
page repeats the paper's evaluation as far as one small model on a CPU can show it, and puts what the paper says next
to it. "Agrees" and "differs", "met" and "not met" are computed from the tables.

- **What was measured**: {model}, 28 million parameters: 8 layers, 8 query heads and 4 KV heads of 64, context 4096. Accuracy is
  over samples of eval/tasks.jsonl, as many of each of four lengths: {few} a task along curves, {sure} at turning
  points and where KIVI is as accurate, {all} for the recommended setting. Bytes are over {windows} windows of
  eval/prose.txt of {contexts} tokens each. The paper has {models} (d = 128), CoQA and GSM8K; only trends compare.
- **Blocks** have 64 tokens and the buffer 128 where a spec says no other; the paper does not say what it took.
  Prompts are read exactly, and compressed when they end; questions, answers and later turns find them compressed.
- **KIVI** here is `kivi:bits=...`, in the same container. Keys are quantised by channel in groups of 32 tokens, values
  by 32 dimensions of a token; the newest 128 tokens stay f16.
- **Where we depart from the paper, and why**:
  - Metadata and codebooks count in every ratio. The paper speaks of offsets of rows alone, and calls them negligible.
  - KIVI is compared at equal error and at equal accuracy besides at equal step, and with parts of a bit besides whole
    ones.
  - Where payloads stand follows from a prefix sum, so the same tokens give the same bytes. The paper takes an atomic
    counter.
  - Every code has a word, seen in the prompt or not: one is added to each count. Words are limited to what a table
    lookup decodes (7 to 9 bits), and a one-code alphabet still has one bit. Blocks that coding does not shrink are
    stored raw.
  - A stream serves a whole block, so there are no offsets for rows. A minimum and its step are 16 bits together,
    rounded so that no value is off by more than half a step (docs/FORMAT.md).
- **Errors**: the figure after ± is one standard error: binomial for an accuracy. For a difference from f16 it comes
  from blocks of 4 samples a task, the same samples for both.
- **Machines** are shared with other work: ratios say more than times.
"""


class Bench:
    """What the figures need: the programs, the inputs, the sizes."""

    def __init__(self, options, progress):
        quick = options.quick
        self.lab = (lab.KeptLab if options.kept else lab.Lab)(options.pleat, options.store, progress)
        self.pleat, self.model, self.text = options.pleat, options.model, "eval/prose.txt"
        self.blocks_program, self.codec_program = (os.path.join(os.path.dirname(options.pleat), "bench", name)
                                                   for name in (sizes.PROGRAM, "bench_codec"))
        self.n_sure = options.samples // 4
        self.n_few = min(self.n_sure, 4)
        self.n_all = 1 if quick else 16
        self.windows = 1 if quick else 4
        self.contexts = (1024,) if quick else (1024, 2048, 4096)
        self.long = (1024, 4096) if quick else (1024, 2048, 4096, 8192, 16384)
        self.reps = 7 if quick else 15
        self.scales = {"k block": (0.02, 0.05, 0.15) if quick else (0.03, 0.05, 0.08, 0.1, 0.15),
                       "k channel": (0.1, 0.25, 0.5) if quick else (0.05, 0.1, 0.15, 0.2, 0.25, 0.3),
                       "v token": (0.05, 0.2, 0.4) if quick else (0.1, 0.15, 0.25, 0.4)}
        self.v_sizes = (0.12, 0.2) if quick else (0.05, 0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.4)
        self.factors = (0.5, 1) if quick else (0.5, 0.75, 1, 1.25)
        self.speed_scales = (("channel", 0.1, 0.1), ("channel", 0.2, 0.15), ("channel", 0.3, 0.2), ("block", 0.05, 0.15))
        self.timed = (*speed.SPECS, "kivi:bits=2", "kivi:bits=4")
        self.candidates = ("kvcomp:k=0.13,v=0.25,buffer=94", "kvcomp:k=0.13,v=0.25,buffer=96", "kvcomp:k=0.12,v=0.25,buffer=80")
        self.blocks = write_blocks(options.store)
        self.rows = Rows(self)
        self.sizes, self.curves = sizes.Sizes(self), curves.Curves(self)


def read_options():
    parser = lab.parser_for(__doc__, "kvcomp", ORDER, "4 samples of each task and shorter sweeps")
    return lab.read_samples(parser, ORDER, 32, " at turning points and where KIVI is as accurate (along curves 16 at most, for the "
                            "recommended setting all)")


def head(bench, options):
    return HEAD.format(command=lab.command_of("kvcomp", options, 32), model=options.model, few=4 * bench.n_few,
                       sure=4 * bench.n_sure, all=4 * bench.n_all, windows=bench.windows,
                       contexts=page.listing(map(str, bench.contexts)), models=printed.MODELS)


def write_page(bench, options, sections):
    said = page.requirements(sections)
    parts = [head(bench, options)] + (["## Requirements\n\n" + "\n".join(f"- {v}" for v in said)] if said else [])
    parts += [s.text() for s in sections]
    shown = {bench.blocks_program: f"build/bench/{sizes.PROGRAM}", options.pleat: "build/pleat",
             options.store: "build/papers/kvcomp"}
    page.write(options.out, parts, shown, on_gpu.sections_of("kvcomp")[0])


def main():
    os.chdir(lab.ROOT)
    options = read_options()
    progress = lab.Progress({}, GUESS, options.quiet)

    def make_bench():
        bench = Bench(options, progress)
        progress.expected = {"tasks": 40 * bench.n_few + 8 * (bench.n_sure - bench.n_few) + 3 * bench.n_all, "blocks": 5,
                             "ways": 2 * len(bench.speed_scales), "attn": 2, "codec": 1}
        return bench
    return page.run_page(progress, options, make_bench, LIST, write_page, head, "figures and tables", order=ORDER)


if __name__ == "__main__":
    sys.exit(main())
