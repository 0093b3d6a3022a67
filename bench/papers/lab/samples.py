# SPDX-License-Identifier: MIT
"""Specs evaluated on blocks of samples, and what the blocks say about noise.

Block b holds sample b of each task and length, so blocks are alike and two specs can be compared block by block:

    accuracy     of a task the share of right turns over all blocks; the mean over tasks, each alike
    error        of one spec: binomial for each task, were turns independent
    difference   of two specs on the same blocks: mean over (task, block) of what differs; its error from the spread
                 between blocks within each task
"""
import json
import os
import statistics

from lab.lab import write
from lab.page import mean, points

TASK_FILE = "eval/tasks.jsonl"
RETRIEVAL = ("passkey", "kv_recall", "two_hop", "code_recall")
GENERATION = ("word_problem", "chain_sum", "copy_list")
TASKS = (*RETRIEVAL, "few_shot", *GENERATION)
REFERENCE = "f16"
TOLERANCE = 0.006  # of a fraction of f16's bytes that is looked for
OFF = 1000000  # the ah that no attention reaches: significance is off (include/pleat/spec.h)


def is_odd(place):
    """Whether a sample at that place of its task is of the odd half (`--half odd`, cli/lib/half.h)."""
    return bin(place).count("1") % 2 == 1


def profile_path(model):
    """Where a model's own profile stands."""
    return model.removesuffix(".gguf") + ".leankv.json"


def calibrated_spec(model):
    """What "calibrated" means on every page: the spec that the model's own profile chose."""
    with open(profile_path(model), encoding="utf-8") as f:
        return json.load(f)["kv"]


def keys_of(spec):
    return dict(part.split("=", 1) for part in spec.partition(":")[2].split(",") if part)


def without_significance(spec, window=None):
    """The leankv spec with significance off, and with another window: what is older than it is low."""
    keys = {**keys_of(spec), "ah": OFF, "al": 0}
    if window is not None:
        keys["window"] = window
    return "leankv:" + ",".join(f"{key}={value}" for key, value in keys.items())


def write_blocks(store, odd_first=False):
    """The files of all blocks.  odd_first: the first half of the blocks has the odd half of the samples, by which the
    model's profile was not chosen."""
    groups, places = {}, {}
    with open(TASK_FILE, encoding="utf-8") as f:
        for line in f:
            sample = json.loads(line)
            place = places[sample["task"]] = places.get(sample["task"], -1) + 1
            groups.setdefault((sample["task"], int(sample["id"].split("-")[1])), []).append(
                (odd_first and not is_odd(place), json.dumps(sample) + "\n"))
    groups = {key: [line for _, line in sorted(lines, key=lambda x: x[0])] for key, lines in groups.items()}
    return [write(os.path.join(store, f"block-{b}.jsonl"), "".join(lines[b] for lines in groups.values()))
            for b in range(min(map(len, groups.values())))]


def evicting(policy, share, form="f16", crush=""):
    """The spec of a policy that keeps `share` percent of the tokens."""
    key = "keep" if policy == "topk" else "budget"
    return f"{policy}:{key}={share:g}%,format={form}{crush}"


def error_of(row):
    """Standard error of the mean over tasks, were turns independent."""
    tasks = row["tasks"].values()
    total = sum(t["accuracy"] * (1 - t["accuracy"]) / t["total"] for t in tasks)
    return total**0.5 / len(tasks)


def delta_text(delta, digits=1):
    """In points with its error; without one of a single block."""
    return points(delta[0], digits) + (f" ± {100 * delta[1]:.{digits}f}" if delta[1] == delta[1] else "")


def is_clear(delta):
    """A difference of more than two standard errors."""
    return abs(delta[0]) > 2 * delta[1] and delta[0] != 0


class Rows:
    """Each spec is measured once on a block, whoever asks."""

    def __init__(self, bench):
        self.bench = bench

    def on_block(self, section, spec, b):
        bench = self.bench
        record = bench.lab.measure("tasks", "eval", "-m", bench.model, "--tasks", bench.blocks[b], "-np", 32, "--kv",
                                   spec, "--format", "json", "-q")
        section.used({**record, "command": record["command"].replace(f"block-{b}.", "block-BLOCK.")})
        return record["result"]["rows"][0]

    def cells(self, section, spec, n_blocks):
        return [self.on_block(section, spec, b) for b in range(n_blocks)]

    def row(self, section, spec, n_blocks):
        """One row of all blocks, of the shape that one block has."""
        rows = self.cells(section, spec, n_blocks)
        tasks = {}
        for name in rows[0]["tasks"]:
            correct, total = (sum(r["tasks"][name][key] for r in rows) for key in ("correct", "total"))
            tasks[name] = {"correct": correct, "total": total, "accuracy": correct / total}
        return {"kv": spec, "tasks": tasks, "accuracy": mean(t["accuracy"] for t in tasks.values()),
                "fraction": sum(r["bytes"] for r in rows) / sum(r["bytes_f16"] for r in rows)}

    def difference(self, section, pairs, n_blocks):
        """(mean, standard error) of with - without, over all (without, with) of `pairs` together."""
        deltas = {}
        for b in range(n_blocks):
            both = [(self.on_block(section, p, b)["tasks"], self.on_block(section, q, b)["tasks"]) for p, q in pairs]
            for name in both[0][0]:
                deltas.setdefault(name, []).append(mean(q[name]["accuracy"] - p[name]["accuracy"] for p, q in both))
        if n_blocks < 2:
            return mean(d[0] for d in deltas.values()), float("nan")
        spread = sum(statistics.variance(d) / n_blocks for d in deltas.values())
        return mean(mean(d) for d in deltas.values()), spread**0.5 / len(deltas)

    def text(self, section, specs):
        """{spec: row} of perplexity and divergence from f16."""
        bench, found = self.bench, {}
        specs = [s for s in dict.fromkeys(specs) if s != REFERENCE]
        for first in range(0, len(specs), 5):
            some = [REFERENCE, *specs[first:first + 5]]
            args = [word for spec in some for word in ("--kv", spec)]
            record = bench.lab.measure("text", "eval", "-m", bench.model, "--text", bench.text, "--text-windows",
                                       bench.windows, *args, "--format", "json", "-q")
            section.used(record)
            found.update(zip(some, record["result"]["rows"]))
        return found

    def search(self, section, spec_of, low, high, target, hint=None):
        """(spec, x): the spec spec_of(x) whose fraction of f16's bytes is `target` on the first block, to TOLERANCE if it
        can be.  low, high: (x, fraction expected there), x rising from low to high.  hint: the x to try first."""
        best = None
        for _ in range(6):
            x = low[0] + (high[0] - low[0]) * (target - low[1]) / (high[1] - low[1])
            x = min(max(x if best or hint is None else hint, low[0]), high[0])
            spec = spec_of(x)
            fraction = self.on_block(section, spec, 0)["fraction"]
            if best is None or abs(fraction - target) < best[0]:
                best = (abs(fraction - target), spec, x)
            if best[0] < TOLERANCE or fraction in (low[1], high[1]):
                break
            if (fraction > target) == (high[1] > target):
                high = (x, fraction)
            else:
                low = (x, fraction)
        return best[1:]


def with_error(row, digits=1):
    return f"{100 * row['accuracy']:.{digits}f} ± {100 * error_of(row):.{digits}f}"
