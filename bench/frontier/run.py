#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Accuracy and divergence against bytes, of every way to keep a cache: docs/FRONTIER.md and its pictures.

    python3 bench/frontier/run.py --measure [--only pleat,smollm2,gemma3] [--groups N,..] [--parts prose,..]
                                         run what is not measured yet, and keep what it printed in bench/frontier/results/
    python3 bench/frontier/run.py        put the tables between the page's markers and draw docs/frontier-MODEL.svg

Everything is of the half that shows (`pleat eval --half show`), and nothing of what is compared was chosen on it.

    prose        windows of eval/prose.txt: divergence from f16; of the real models, docs/MODELS.md's window of 4096 tokens
    tasks        eval/tasks.jsonl, which the reference model alone was taught
    documents    eval/documents.py's tasks, each document read before its question comes (--unseen).  A task that the model
                 fails with an f16 cache on the half that chooses is left out for it; the page says which, with the figures.  Those of
                 methods.SEEN are asked once more with each question behind its document

    methods.py   models and specs      picture.py   the SVG      bench/models/measure.py   commands and records

Exit codes: 0 ok, 1 a measurement failed, 2 wrong usage, 130 interrupted (what was measured is kept).
"""
import argparse
import json
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True  # the tree stays as it was
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.join(sys.path[0], "papers"))
from lab.lab import ROOT, Failed, write
from lab.page import listing, number, percent, points, table
from frontier import methods, picture
from models import measure, specs

PARTS = ("prose", "tasks", "documents")
PASSES = 0.5  # accuracy with an f16 cache, on the half that chooses, at which a task is asked
# Windows of prose: so many, of so many tokens, of which the last so many are scored; samples of tasks; documents' lengths;
# samples of documents where tasks are tried, and where they are asked.  A sample is of either half, so a half has about half.
SIZES = {"pleat": ((8, 1024, 256), 16, "1k,2k", (12, 12)), "smollm2": (None, 0, "1k", (12, 132)),
         "gemma3": (None, 0, "1k", (16, 16))}


def options_of():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [m.name for m in methods.MODELS]
    parser.add_argument("--measure", action="store_true", help="what is not measured yet, instead of writing the page")
    parser.add_argument("--only", default=",".join(names), help="these models (default: %(default)s)")
    parser.add_argument("--parts", default=",".join(PARTS), help="default: %(default)s")
    parser.add_argument("--groups", help="numbers from 1 of the groups of methods.py (default: all)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all CPUs")
    parser.add_argument("--pleat", default=os.path.join("build", "pleat"))
    parser.add_argument("--results", default=os.path.join("bench", "frontier", "results"), help="where records are kept (default: bench/frontier/results)")
    parser.add_argument("--out", default=os.path.join("docs", "FRONTIER.md"), help="pictures go beside it")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    options = parser.parse_args()
    options.only, options.parts = options.only.split(","), options.parts.split(",")
    measure.RESULTS = os.path.abspath(options.results)
    if not set(options.only) <= set(names) or not set(options.parts) <= set(PARTS):
        parser.error(f"--only: of {','.join(names)}; --parts: of {','.join(PARTS)}")
    try:
        wanted = [methods.GROUPS[int(n) - 1] for n in options.groups.split(",")] if options.groups else methods.GROUPS
    except (ValueError, IndexError):
        parser.error(f"--groups: numbers from 1 to {len(methods.GROUPS)}")
    options.groups = wanted
    return options


# ---- measuring -------------------------------------------------------------------------------------


def kept_of(model, part):
    """The records of a part; of a real model's prose, those that docs/MODELS.md is made of."""
    if part == "prose" and not SIZES[model.name][0]:
        kept = measure.Kept(model, specs.CONTEXTS[0])
        kept.path = os.path.join("bench", "models", "results", os.path.basename(kept.path))
        kept.records = kept.read()
        return kept
    return measure.Kept(model, part)


def words_of(kvs):
    return [word for kv in (specs.REFERENCE, *kvs) for word in ("--kv", kv)]


def document_file(model, only=None):
    """A file of the model's documents: of all tasks, or of those named."""
    _, _, lengths, samples = SIZES[model.name]
    form = "reference" if model is methods.REFERENCE_MODEL else "any"
    made = subprocess.run([sys.executable, os.path.join("eval", "documents.py"), "--form", form, "--lengths", lengths,
                           "--samples", str(samples[only is not None])], stdout=subprocess.PIPE, check=True).stdout.decode()
    lines = [line for line in made.splitlines(True) if only is None or json.loads(line)["task"] in only]
    return write(os.path.join(measure.TEXTS, f"documents-{model.name}{'' if only is None else '-passed'}.jsonl"), "".join(lines))


def tried(model):
    """{task: f16's figures on the half that chooses}, or None where that is not measured."""
    records = measure.Kept(model, "choose").records
    return records[-1]["result"]["rows"][0]["tasks"] if records else None


def passed(model):
    return [task for task, figures in (tried(model) or {}).items() if figures["accuracy"] >= PASSES]


class Frontier(measure.Bench):
    def statistics(self, model, kvs):
        """The option that names the model's statistics, which are made once, if a spec needs some that are not beside it."""
        if not any(kv.startswith("rd") or "mean=model" in kv for kv in kvs) or os.path.exists(model.path.replace(".gguf", ".stats")):
            return []
        path = os.path.join(measure.TEXTS, f"{model.name}.stats")
        if not os.path.exists(path):
            self.progress(f"statistics of {model.title}")
            os.makedirs(measure.TEXTS, exist_ok=True)
            made = [self.pleat, "stats", "-m", model.path, "--text", "eval/prose.txt", "--stats-file", path, "-q", "-t", str(self.threads)]
            if subprocess.run(made).returncode:
                raise Failed(f"{model.name}: its statistics could not be made")
        return ["--stats", path]

    def part(self, model, part, kvs):
        """Measure those of the specs that have no row yet."""
        kvs = [kv for kv in kvs if kv not in kept_of(model, part).rows()]
        if not kvs:
            return
        prose, samples, _, _ = SIZES[model.name]
        front = ["eval", "-m", model.path, *self.statistics(model, kvs)]
        if part == "prose":
            windows, window, scored = prose
            asked = ["--text", "eval/prose.txt", "--ctx-window", window, "--text-windows", windows, "--scored", scored]
        elif part == "tasks":
            asked = ["--tasks", "eval/tasks.jsonl", "--samples", samples]
        else:
            everything = document_file(model)
            self.run(measure.Kept(model, "choose"),
                     [*front, "--tasks", everything, "--half", "choose", "--kv", specs.REFERENCE])
            asked = ["--tasks", document_file(model, passed(model)), *(["--unseen"] if part == "documents" else [])]
        self.run(kept_of(model, part), [*front, *asked, "--half", "show", *words_of(kvs)])


def measure_all(options):
    bench = Frontier(options.pleat, options.threads, lambda what: options.quiet or print(what, file=sys.stderr, flush=True))
    n_failed = 0
    for model in (m for m in methods.MODELS if m.name in options.only):
        for part in (p for p in options.parts if p == "documents" or SIZES[model.name][PARTS.index(p)]):
            asked = [(part, [kv for family in group for kv in methods.FAMILIES[family]]) for group in options.groups]
            for what, kvs in [*asked, *([("seen", list(methods.SEEN))] if part == "documents" else [])]:
                try:
                    bench.part(model, what, kvs)
                except Failed as error:
                    n_failed += 1
                    print(f"run.py: {model.name}, {what}, {listing(kvs)}: {error}", file=sys.stderr)
    return 1 if n_failed else 0


# ---- the page --------------------------------------------------------------------------------------


def bytes_of(model, row, f16):
    """The share of f16's bytes: of 4 * head_dim a token and lane or, where there are windows, of what an f16 cache holds."""
    return row["bytes"] / f16["bytes"] if model.name == "gemma3" else row["fraction"]


def rows_beside_f16(kept):
    """{spec: row} of the records that begin with f16: others have nothing to diverge from.  Of most samples, the last."""
    return {spec: row for record in sorted(kept.records, key=lambda record: record["result"]["samples"]) if record["result"]["rows"][0]["kv"] == specs.REFERENCE
            for spec, row in measure.rows_of(record).items()}


def figures(model):
    """[(family, spec, {part: row}, {part: share of bytes})] of what is measured, f16 first."""
    rows = {part: rows_beside_f16(kept_of(model, part)) for part in PARTS}
    lines = []
    names = dict.fromkeys(("f16", *methods.FAMILIES, *methods.OF_MODELS))
    for family in names:
        kvs = (specs.REFERENCE,) if family == "f16" else methods.FAMILIES.get(family, ())
        for kv in (*kvs, *methods.OF_MODELS.get(family, ())):
            found = {part: r[kv] for part, r in rows.items() if kv in r}
            shares = {part: bytes_of(model, row, rows[part][specs.REFERENCE]) for part, row in found.items()}
            if found:
                lines.append((family, kv, found, shares))
    return lines


def plus_minus(value, error, digits):
    return "-" if value is None else f"{value:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


def with_sign(share):
    """A share in percent, with the sign where there is a figure."""
    return "-" if share is None else f"{percent(share)} %"


def line(kv, found, shares, parts):
    cells = [f"`{kv}`"]
    if "prose" in parts:
        row = found.get("prose", {})
        cells += [plus_minus(row.get("kld_mean"), row.get("kld_se"), 4), with_sign(row.get("same_top1")),
                  with_sign(shares.get("prose"))]
    for part in parts[1:] if "prose" in parts else parts:
        row = found.get(part, {})
        gain = row.get("gain")
        error = row.get("gain_se")
        cells += [percent(row.get("accuracy")), "-" if gain is None else points(gain) + (f" ± {100 * error:.1f}" if error is not None else ""),
                  with_sign(shares.get(part))]
    return cells


TITLES = {"prose": ("KLD on prose", "same top-1", "bytes"), "tasks": ("tasks, right in %", "against f16, points", "bytes"),
          "documents": ("documents, unseen, right in %", "against f16, points", "bytes")}


def largest(kept):
    """The first of the records of most samples."""
    return max(kept.records, key=lambda record: record["result"]["samples"])


def asked_of(result, what):
    return f"{sum(t['total'] for t in result['rows'][0]['tasks'].values())} answers of {result['samples']} {what}"


def fewer(kept, what):
    """What is said of rows that no record of most samples has."""
    most = largest(kept)["result"]["samples"]
    known = {spec for r in kept.records if r["result"]["samples"] == most for spec in measure.rows_of(r)}
    said = [f"{listing(rest)}: {asked_of(r['result'], what)}" for r in kept.records
            if r["result"]["samples"] < most and (rest := [spec for spec in measure.rows_of(r) if spec not in known])]
    return "; ".join(said)


def end_of(model):
    records = [r for part in PARTS for r in kept_of(model, part).records]
    dates = sorted(r["date"].split()[0] for r in records)
    versions = listing(sorted({r["version"].partition(", commit ")[2].split(";")[0] for r in records}))
    date = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    counts, rest = [], ""
    for part in PARTS:
        kept = kept_of(model, part)
        if kept.records:
            result = largest(kept)["result"]
            what = "samples of eval/tasks.jsonl" if part == "tasks" else "documents"
            counts.append(f"{result['scored_tokens']} tokens of prose scored" if part == "prose" else asked_of(result, what))
            if part != "prose" and (of_fewer := fewer(kept, what)):
                rest += f" Of fewer: {of_fewer}."
    machines = ". ".join(dict.fromkeys(r["machine"] for r in records))
    return f"{listing(counts).capitalize()}.{rest} Measured {date}, commit {versions}. Machines: {machines}."


def left_out(model):
    """A sentence on the tasks that the model was tried at."""
    figures_of = tried(model)
    if figures_of is None:
        return ""
    said = [f"{task} {percent(f['accuracy'], 0)} %" for task, f in figures_of.items() if f["accuracy"] < PASSES]
    asked = listing(passed(model))
    if not said:
        return f" Documents are of {asked}; none was left out."
    return f" Documents are of {asked}. Left out, for what f16 has right of them on the half that chooses: {', '.join(said)}."


def seen(model):
    """A sentence on what is right where the question stood behind the document."""
    kept = kept_of(model, "seen")
    rows = rows_beside_f16(kept)
    said = [f"{kv} {percent(row['accuracy'])} ({points(row['gain'])} ± {100 * row['gain_se']:.1f})"
            for kv, row in rows.items() if kv in methods.SEEN]
    f16 = percent(rows[specs.REFERENCE]["accuracy"]) if said else ""
    of_fewer = fewer(kept, "documents") if said else ""
    return f" With the question in sight: {listing(said)}; f16 {f16}{f' ({of_fewer})' if of_fewer else ''}." if said else ""


def section(model):
    lines = figures(model)
    if not lines:
        return "Not measured yet."
    parts = [part for part in PARTS if any(part in found for _, _, found, _ in lines)]
    titles = ["KV spec", *(title for part in parts for title in TITLES[part])]
    rows, last = [], None
    for family, kv, found, shares in lines:
        if family != last and family != "f16":
            rows.append([f"*{family}*"] + [""] * (len(titles) - 1))
        rows.append(line(kv, found, shares, parts))
        last = family
    asked = left_out(model) + seen(model) if "documents" in parts else ""
    words = (end_of(model) + asked).replace("`", "")
    return f"![Accuracy and divergence against bytes](frontier-{model.name}.svg)\n\n{table(titles, rows)}\n\n{picture.wrapped(words)}"


def fill_page(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    missing = 0
    for model in methods.MODELS:
        body, lines = section(model), figures(model)
        pattern = re.compile(f"(<!-- {model.name} -->\n).*?(<!-- end -->)", re.S)
        if not pattern.search(text):
            raise Failed(f"{path}: no '<!-- {model.name} -->' with an '<!-- end -->' behind it")
        text = pattern.sub(lambda found, body=body: f"{found[1]}\n{body}\n\n{found[2]}", text)
        missing += not lines
        if lines:
            write(os.path.join(os.path.dirname(path), f"frontier-{model.name}.svg"), picture.draw(model.title, lines))
    write(path, text)
    return missing


def main():
    os.chdir(ROOT)
    options = options_of()
    try:
        if options.measure:
            return measure_all(options)
        missing = fill_page(options.out)
    except KeyboardInterrupt:
        print("run.py: interrupted; what was measured is kept", file=sys.stderr)
        return 130
    except (Failed, OSError) as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 1
    if missing:
        print(f"run.py: not measured yet: {missing} of {len(methods.MODELS)} models", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
