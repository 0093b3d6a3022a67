# SPDX-License-Identifier: MIT
"""The tables of docs/MODELS.md, made of what is kept in results/, and put between the page's markers."""
import re
import textwrap

from lab.lab import Failed, write
from lab.page import listing, number, percent, table
from models import measure, specs

TITLES = ("KV spec", "perplexity", "mean KLD", "same top-1", "MB", "bytes, of f16's")


def spec_of(model, kept, name):
    """(the spec of a row's name, why there is none)"""
    if name not in (specs.CALIBRATED, specs.CONTROL):
        return name, None
    rows = measure.Kept(model, "calibration").rows()
    if not rows:
        return None, "the calibration"
    spec = measure.chosen(rows)
    if name == specs.CALIBRATED:
        return spec, None
    control = [kv for kv in kept if kv.startswith(f"leankv:ah={specs.OFF},") and kept[kv]["kld_mean"] > 0]
    return (control[-1], None) if control else (None, "the control")


def threads_of(n):
    return "one thread" if n == 1 else f"{n} threads"


def line(name, spec, row, base):
    text = f"`{spec}`" if name == spec else f"{name}: `{spec}`"
    return (text, number(row["perplexity"]), number(row["kld_mean"], 4), f"{percent(row['same_top1'])} %",
            number(row["bytes"] / 1e6, 1), f"{percent(row['bytes'] / base)} %")


def measured(kept):
    """The sentences below a table: on what, when, of which commit and for how long."""
    seconds = sum(r["seconds"] for r in kept.records)
    n_scored = kept.records[0]["result"]["scored_tokens"]
    dates = sorted(r["date"] for r in kept.records)
    versions = listing(sorted({r["version"].partition(", commit ")[2].split(";")[0] for r in kept.records}))
    threads = listing([threads_of(n) for n in sorted({r["threads"] for r in kept.records})])
    begun = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    sets = kept.records[0]["version"].partition("cpu: ")[2]
    end = (f"{n_scored} tokens scored, on {kept.records[0]['machine']} ({sets}). Begun {begun}, commit {versions}. The commands took "
           f"{seconds / 60:.0f} minutes on {threads} each, beside other work.")
    return textwrap.fill(end, 110, break_on_hyphens=False)


def one_table(model, context):
    """(the table's text, what is not measured)"""
    kept = measure.Kept(model, context)
    rows, missing = kept.rows(), []
    if specs.REFERENCE not in rows:
        return "Not measured yet.", [f"{model.name}-{context}"]
    base = rows[specs.REFERENCE]["bytes"]
    lines = [line(specs.REFERENCE, specs.REFERENCE, rows[specs.REFERENCE], base)]
    for family, names in specs.FAMILIES.items():
        lines.append((f"*{family}*", "", "", "", "", ""))
        n_before = len(lines)
        for name in names:
            spec, why = spec_of(model, rows, name)
            if spec in rows:
                lines.append(line(name, spec, rows[spec], base))
            else:
                missing.append(f"{model.name}-{context}: {why or spec}")
        if len(lines) == n_before:
            lines[-1] = (f"*{family}: not measured yet*", "", "", "", "", "")
    return f"{table(TITLES, lines)}\n\n{measured(kept)}", missing


def calibration(model):
    """What was measured to choose leankv's thresholds."""
    kept = measure.Kept(model, "calibration")
    rows = kept.rows()
    if not rows:
        return "Not measured yet.", [f"{model.name}: the calibration"]
    spec, base = measure.chosen(rows), rows[specs.REFERENCE]["bytes"]
    lines = [line(name, name, row, base) for name, row in rows.items()]
    return f"{table(TITLES, lines)}\n\nChosen: `{spec}`.\n\n{measured(kept)}", []


def fill_page(path):
    """Put all tables in; what is not measured."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    missing = []
    made = [(f"{m.name}-{c}", one_table(m, c)) for m in specs.MODELS for c in specs.CONTEXTS]
    made += [(f"{m.name}-calibration", calibration(m)) for m in specs.MODELS]
    for name, (body, lacking) in made:
        pattern = re.compile(f"(<!-- {name} -->\n).*?(<!-- end -->)", re.S)
        if not pattern.search(text):
            raise Failed(f"{path}: no '<!-- {name} -->' with an '<!-- end -->' behind it")
        text = pattern.sub(lambda found, body=body: f"{found[1]}\n{body}\n\n{found[2]}", text)
        missing += lacking
    write(path, text)
    return missing
