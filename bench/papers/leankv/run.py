#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reproduces LeanKV's evaluation in miniature, on the reference model, and writes docs/papers/leankv.md.

    python3 bench/papers/leankv/run.py [--samples N | --quick] [--only fig8,table1] [--out FILE]

Runs `pleat` for every figure and table that the paper has, keeps each raw result under build/papers/leankv/ (an
interrupted run goes on where it was), and writes one page with our figures next to the paper's.

    printed.py    what the paper prints            accuracy.py   Fig 1-4, 7, 8
    control.py    Fig 9, 10, Tables 1-3            speed.py      Fig 11-14
    observe.c     attention itself, for Fig 1, 3, 4
    remarks.md    what somebody has to add to the computed sentences, by figure

Measuring, keeping and writing pages: ../lab.  Exit codes: 0 ok, 1 a measurement failed (the page says which), 2 wrong
usage, 130 interrupted.
"""
import collections
import json
import os
import re
import sys

sys.dont_write_bytecode = True  # the tree stays as it was
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
from gpu import sections as on_gpu
from lab import lab, page
from lab.samples import RETRIEVAL, calibrated_spec, is_odd, profile_path
from leankv import accuracy, control, speed

TASKS = "eval/tasks.jsonl"
TEXT = "eval/prose.txt"
LONG = 1500  # tokens: prompts above it are long
LIST = (accuracy.fig1, accuracy.fig2, accuracy.fig3, accuracy.fig4, accuracy.fig7, accuracy.fig8, control.fig9,
        control.fig10, speed.fig11, speed.fig12, speed.fig13, speed.fig14, control.table1, control.table2,
        control.table3)
# Seconds that one measurement of a kind takes on two cores with 16 samples a task, until there is one to go by.
GUESS = {"tasks": 35, "calibration": 250, "long": 45, "text": 60, "observe": 20, "attn": 60, "pages": 5, "run": 15}


class Bench:
    """What the figures need: the program, the inputs, the sizes."""

    def __init__(self, options, progress):
        quick = options.quick
        self.lab = lab.Lab(options.pleat, options.store, progress)
        self.store = options.store
        self.pleat, self.model, self.text = options.pleat, options.model, TEXT
        self.observer = os.path.join(os.path.dirname(options.pleat), "bench", "leankv_observe")
        self.n_samples, self.windows = options.samples, 2 if quick else 8
        self.n_calibration = max(1, options.samples // 2)
        self.pruned_shares = (0.5,) if quick else (0.1, 0.5, 0.7)
        self.ah = (0, 1, 3, 8) if quick else (0, 1, 2, 3, 5, 8, 12)
        self.al = (0.1, 1) if quick else (0.02, 0.1, 0.3, 0.6, 1)
        self.ah_shown = (1, 8) if quick else (1, 3, 5, 12)
        self.keeps = (50,) if quick else (50, 25)
        self.lanes = (1024, 32768) if quick else (256, 1024, 8192, 32768)
        self.batches = (1, 8) if quick else (1, 4, 16)
        self.contexts = (1024, 4096) if quick else (1024, 4096, 16384, 32768)
        self.reps = 7
        self.rows = accuracy.Rows(self)
        self.sets = make_sets(self.store, options.samples, self.n_calibration)
        self.text_requests = write_requests(self.store, "prose", [head_of(TEXT, 12000 * self.windows)])
        self.calibrated = calibrated_spec(options.model)
        self.swept = None

    def sweep(self):
        """What calibration finds on the samples that are kept for it."""
        if self.swept is None:
            self.swept = control.Sweep(self)
        return self.swept

    def observe(self, spec, requests, window=4096):
        return self.lab.measure("observe", self.model, spec, requests, window, program=self.observer)


# ---- inputs -----------------------------------------------------------------------------------------


def head_of(path, n_bytes):
    with open(path, "rb") as f:
        return f.read(n_bytes).decode("utf-8", "ignore")


def length_of(sample):
    return int(sample["id"].split("-")[1])


def spread_out(samples):
    """The samples of one task, taking one of each length in turn: any first N of them have all lengths alike."""
    groups = collections.OrderedDict()
    for sample in samples:
        groups.setdefault(length_of(sample), []).append(sample)
    queues, out = list(groups.values()), []
    for i in range(max(map(len, queues))):
        out += [q[i] for q in queues if i < len(q)]
    return out


def write_tasks(store, name, samples):
    return lab.write(os.path.join(store, f"{name}.jsonl"), "".join(json.dumps(s) + "\n" for s in samples))


def write_requests(store, name, texts):
    return lab.write(os.path.join(store, f"{name}.requests"), "\0".join(texts))


def whole_text(sample):
    return "".join(t["prompt"] + t["answer"] for t in sample["turns"]) + "<|im_end|>"


def make_sets(store, n, n_calibration):
    """{name: file}: n samples of each task, n_calibration others, n long ones of retrieval tasks, some as requests.

    Those of tables are of the odd half, which had no part in the choice of the model's profile (`pleat calibrate`);
    those of the sweep are of the even one."""
    os.makedirs(store, exist_ok=True)
    with open(TASKS, encoding="utf-8") as f:
        samples = [json.loads(line) for line in f]
    tasks = {}
    for sample in samples:
        tasks.setdefault(sample["task"], []).append(sample)
    order = {name: spread_out([s for i, s in enumerate(rows) if is_odd(i)]) for name, rows in tasks.items()}
    main = [s for rows in order.values() for s in rows[:n]]
    calibration = [s for rows in tasks.values()
                   for s in spread_out([s for i, s in enumerate(rows) if not is_odd(i)])[:n_calibration]]
    long = [s for name in RETRIEVAL for s in [x for x in order[name] if length_of(x) > LONG][:n]]
    few = [s for rows in order.values() for s in rows[:min(n, 4)]]
    return {"main": write_tasks(store, f"tasks-{n}", main), "long": write_tasks(store, f"long-{n}", long),
            "calibration": write_tasks(store, f"calibration-{n_calibration}", calibration),
            "prompts": write_requests(store, f"prompts-{n}", [whole_text(s) for s in few])}


# ---- the page ---------------------------------------------------------------------------------------


def expected(bench):
    """{kind: measurements} that the whole list makes, about: what two figures share counts once."""
    n_pruned = len(bench.pruned_shares)
    return {"tasks": 7 + 4 + 4 * n_pruned + 3 * len(bench.ah_shown) + 4 + len(bench.keeps) + 2,
            "calibration": 1, "long": 5, "text": 3,
            "observe": 3 + n_pruned + 2 * len(bench.ah_shown) + len(bench.keeps) + 5, "pages": len(bench.lanes),
            "attn": 2, "run": 5 * speed.TURNS + 2 * len(bench.batches)}


def read_remarks():
    """{key: text} of remarks.md, whose headings are the keys."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "remarks.md")
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as f:
        parts = re.split(r"^## (\w+)\n", f.read(), flags=re.M)
    return {key: " ".join(text.split()) for key, text in zip(parts[1::2], parts[2::2])}


HEAD = """# LeanKV's evaluation in miniature

`{command}` wrote this page; each section says when and of which commit its figures are. LeanKV keeps the
tokens that receive much attention in more bits than the
others (*Unifying KV Cache Compression for Large Language Models with LeanKV*, Zhang et al., 2024). The page repeats
the paper's evaluation as far as one small model on a CPU can show it, with the paper's figures next to ours.
"Agrees" and "differs" are computed from the tables.

- **What was measured**: {model}, 28 million parameters: 8 layers, 8 query heads and 4 KV heads of 64, context 4096. Accuracy
  is over {samples} samples a task of eval/tasks.jsonl ({n} samples of {n_tasks} tasks, lengths alike). They are of
  the odd half, by which the model's profile was not chosen. Perplexity is over {windows} windows of eval/prose.txt. The paper has models of 7 to 70 billion parameters on GPUs.
  Our speeds come from a CPU, so only trends compare.
- **Machines** are shared with other work: ratios say more than times.
- **Bytes** are everything that a cache holds, over 4 * head_dim of f16 per token and KV head. Metadata weighs twice
  as much at our head dimension of 64 as at the paper's 128. With score and position k8v4 takes 112 of 256 bytes
  (43.8 %) here, and 208 of 512 (40.6 %) there. For k4v2 it is 64 of 256 (25 %) and 112 of 512 (21.9 %), or 56 and
  104 where al = 0 and nothing is ever dropped. Columns "d = 128" have the larger dimension's bytes. The paper leaves
  metadata out in places.
- **Specs** are those of `--kv` (include/pleat/spec.h); a bare `leankv` means high=k8v4, low=k4v2, window=64.
- **Calibrated** is what the model's own profile says, `{calibrated}`. Where a table has one LeanKV row, it is that.
  Its *control* has significance off (ah=1000000: what is older than the window is low) and a window that makes the
  bytes equal. What attention brings is what LeanKV has beyond its control.
"""


def head(bench, options):
    with open(bench.sets["main"], encoding="utf-8") as f:
        lines = f.readlines()
    n_tasks = len({json.loads(line)["task"] for line in lines})
    return HEAD.format(command=lab.command_of("leankv", options, 16), model=options.model,
                       samples=options.samples, n=len(lines), n_tasks=n_tasks, windows=bench.windows, calibrated=bench.calibrated)


def in_short(sections):
    agreed, differs = page.verdicts(sections)
    return (f"- **In short**: nothing contradicts the paper in {page.grouped(agreed)}. Something differs in "
            f"{page.grouped(differs)}.\n")


def write_page(bench, options, sections):
    remarks = read_remarks()
    parts = [head(bench, options) + in_short(sections), *(s.text(remarks.get(s.key)) for s in sections)]
    shown = {bench.observer: "build/bench/leankv_observe",
             options.pleat: os.path.join("build", os.path.basename(options.pleat))}
    page.write(options.out, parts, shown, on_gpu.sections_of("leankv")[0])


# ---- all --------------------------------------------------------------------------------------------


def read_options():
    names = [f.__name__ for f in LIST]
    parser = lab.parser_for(__doc__, "leankv", names, "4 samples of each task and shorter sweeps")
    parser.add_argument("--samples", type=int, default=16, help="of each task, 2 to 32 (default 16)")
    options = parser.parse_args()
    if options.quick:
        options.samples = 4
    if not 2 <= options.samples <= 32:
        parser.error("--samples: 2 to 32: each task has 64, and the even half is calibration's")
    lab.check_options(parser, options, names, [profile_path(options.model)])
    return options


def main():
    os.chdir(lab.ROOT)
    options = read_options()
    progress = lab.Progress({}, GUESS, options.quiet)

    def make_bench():
        bench = Bench(options, progress)
        progress.expected = expected(bench)
        return bench
    return page.run_page(progress, options, make_bench, LIST, write_page, head, "figures and tables")


if __name__ == "__main__":
    sys.exit(main())
