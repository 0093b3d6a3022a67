# SPDX-License-Identifier: MIT
"""Measures a model with `pleat eval` on its own text, and keeps each command's record in results/MODEL-WHAT.json.

    eval/prose.txt    [ first half: calibration                | second half: what the tables show ]

A record is {command, date, machine, version, threads, seconds, result}; its date is that of its beginning.  What is
kept is not measured again.
"""
import datetime
import json
import os
import subprocess
import time

from lab.lab import ROOT, Failed, machine, version_of, write
from models import specs

RESULTS = os.path.join(ROOT, "bench", "models", "results")
TEXTS = os.path.join("build", "models")
SCORED = 512          # tokens of a window that are scored, its last
CALIBRATION = 2048    # tokens of the calibration's windows
GOAL = 2              # times the mean KLD of leankv's high format: what the calibration allows


def write_texts():
    """The halves of eval/prose.txt, cut between two lines."""
    with open(os.path.join(ROOT, "eval", "prose.txt"), encoding="utf-8") as f:
        text = f.read()
    middle = text.index("\n", len(text) // 2) + 1
    for name, part in (("calibration", text[:middle]), ("shown", text[middle:])):
        write(os.path.join(TEXTS, f"{name}.txt"), part)


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def rows_of(record):
    """{spec: row} of a record, by the specs' names in its command: a row has the canonical ones."""
    words = record["command"].split()
    kvs = [kv for flag, kv in zip(words, words[1:]) if flag == "--kv"]
    return dict(zip(kvs, record["result"]["rows"]))


class Kept:
    """The records of one model and one use: a context's table, or the calibration."""

    def __init__(self, model, what):
        self.path = os.path.join(RESULTS, f"{model.name}-{what}.json")
        self.records = self.read()

    def read(self):
        if not os.path.exists(self.path):
            return []
        with open(self.path, encoding="utf-8") as f:
            return json.load(f)

    def add(self, record):
        """Read again: another process may measure another family meanwhile."""
        self.records = [*self.read(), record]
        write(self.path, json.dumps(self.records, indent=1) + "\n")

    def rows(self):
        """{spec: row} of all records."""
        return {spec: row for record in self.records for spec, row in rows_of(record).items()}

    def find(self, argv):
        return next((r for r in self.records if r["command"] == " ".join(argv)), None)


class Bench:
    def __init__(self, pleat, threads, progress):
        self.pleat, self.threads, self.progress = pleat, threads, progress
        self.version = version_of(pleat)  # once: the records that are kept change the tree

    def run(self, kept, argv):
        """The rows of `pleat ARGV`, kept."""
        argv = ["build/pleat", *map(str, argv)]
        record = kept.find(argv)
        if not record:
            self.progress(" ".join(argv))
            before = {"command": " ".join(argv), "date": now(), "machine": machine(),
                      "version": self.version, "threads": self.threads}
            start = time.monotonic()
            done = subprocess.run([self.pleat, *argv[1:], "-t", str(self.threads), "--format", "json", "-q"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["no message"])[-1]
                raise Failed(f"`{' '.join(argv)}` ended with {done.returncode}: {last}")
            seconds = round(time.monotonic() - start)
            record = {**before, "seconds": seconds, "result": json.loads(done.stdout)}
            kept.add(record)
        return rows_of(record)

    def eval(self, kept, model, text, context, kvs, scored=SCORED):
        words = [word for kv in kvs for word in ("--kv", kv)]
        return self.run(kept, ["eval", "-m", model.path, "--text", os.path.join(TEXTS, f"{text}.txt"), "--ctx-window",
                               context, "--text-windows", 1, "--scored", scored, *words])

    def calibrate(self, model):
        """The spec of fewest bytes among the points whose mean KLD is at most GOAL times k8v4's; if there is none, the
        one of least KLD."""
        rows = self.eval(Kept(model, "calibration"), model, "calibration", CALIBRATION,
                         [specs.REFERENCE, specs.HIGH, *specs.POINTS])
        return chosen(rows)

    def control(self, kept, model, context, spec, row):
        """The spec without significance whose window makes its bytes those of `row`."""
        window = specs.window_of(spec)
        probe = specs.lean(specs.OFF, window)
        held = self.eval(kept, model, "shown", context, [probe], 1)[probe]["bytes"]
        more = (row["bytes"] - held) / slope(model)
        return specs.lean(specs.OFF, max(1, round(window + more)))

    def statistics(self, model):
        """Of the first half of the text, beside the model, where rd looks for them; one model and tree have one file."""
        path = f"{os.path.splitext(model.path)[0]}.stats"
        if os.path.exists(path):
            return
        argv = ["stats", "-m", model.path, "--text", "eval/prose.txt", "--fit-windows", "2"]
        self.progress(" ".join(["build/pleat", *argv]))
        done = subprocess.run([self.pleat, *argv, "-t", str(self.threads), "-q"], stderr=subprocess.PIPE, text=True,
                              check=False)
        if done.returncode:
            raise Failed(f"`pleat {' '.join(argv)}` ended with {done.returncode}: {done.stderr.strip()}")

    def family(self, model, context, name):
        """Measure a family's specs; {what the page calls it: spec}."""
        kept = Kept(model, context)
        names = {kv: kv for kv in specs.FAMILIES[name] if kv != specs.CONTROL}
        if specs.CALIBRATED in names:
            names[specs.CALIBRATED] = self.calibrate(model)
        if any(kv.partition(":")[0] == "rd" for kv in names):
            self.statistics(model)
        rows = self.eval(kept, model, "shown", context, [specs.REFERENCE, *dict.fromkeys(names.values())])
        if specs.CALIBRATED in names:
            spec = names[specs.CALIBRATED]
            control = names[specs.CONTROL] = self.control(kept, model, context, spec, rows[spec])
            self.eval(kept, model, "shown", context, [specs.REFERENCE, control])
        return names


def slope(model):
    """Bytes that a token takes more in leankv's high format, k8v4, than in its low one, k4v2."""
    return model.full_lanes * model.head_dim * (12 - 6) / 8


def chosen(rows):
    """The calibration's choice of its rows."""
    good = [spec for spec in specs.POINTS if rows[spec]["kld_mean"] <= GOAL * rows[specs.HIGH]["kld_mean"]]
    if not good:
        return min(specs.POINTS, key=lambda spec: rows[spec]["kld_mean"])
    return min(good, key=lambda spec: (rows[spec]["bytes"], rows[spec]["kld_mean"]))
