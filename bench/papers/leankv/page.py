# SPDX-License-Identifier: MIT
"""Pieces of the page: tables, numbers, and sentences that the numbers choose."""
import re
import sys

import lab


def table(titles, rows):
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    lines += ["| " + " | ".join(str(c) for c in row) + " |" for row in rows]
    return "\n".join(lines)


def number(v, digits=2):
    return "-" if v is None else f"{v:.{digits}f}"


def percent(v, digits=1):
    """Of a share 0..1, without the sign."""
    return "-" if v is None else f"{100 * v:.{digits}f}"


def points(v, digits=1):
    """A difference of shares in points, with its sign."""
    if v is None:
        return "-"
    text = f"{100 * v:+.{digits}f}"
    return text[1:] if float(text) == 0 else text


def bar(share, width=20):
    return "#" * max(0, min(width, round(width * share)))


def agrees(condition, what, instead=None):
    """A sentence that says whether `what`, a finding of the paper, holds in the numbers; `instead`: what does."""
    if condition:
        return f"Agrees: {what}."
    return f"Differs: it is not so here that {what}" + (f"; {instead}." if instead else ".")


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else None


def listing(words):
    words = list(words)
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1] if words else "none"


def commands(records):
    """The command lines; those that differ in one spec alone become one, with SPEC in its place."""
    seen = {}
    for record in records:
        text = record["command"]
        specs = re.findall(r"--kv (\S+)|(?:leankv_observe|spvllm_steps) \S+ (\S+)", text)
        spec = "".join(specs[0]) if len(specs) == 1 else None
        seen.setdefault(text.replace(f" {spec} ", " SPEC ") if spec else text, set()).add(spec or "")
    return [f"`{text.replace(' SPEC ', f' {min(specs)} ')}`" if len(specs) == 1 else
            f"`{text}`, SPEC each of the table's" for text, specs in seen.items()]


def dates(records):
    found = sorted({r["date"] for r in records})
    if not found:
        return ""
    return found[0] if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


class Section:
    """One figure or table of the paper: what the paper says, our table, the verdict, and how it was measured."""

    def __init__(self, key, title, says):
        self.key, self.title, self.says = key, title, says
        self.body, self.verdict, self.records = [], [], []

    def add(self, text):
        self.body.append(text)

    def say(self, *sentences):
        self.verdict += [s for s in sentences if s]

    def used(self, *records):
        self.records += [r for r in records if r is not None and r not in self.records]

    def text(self, remark, here):
        parts = [f"## {self.title}", f"**Paper.** {self.says}" if self.says else "", *self.body]
        words = " ".join(self.verdict + ([remark] if remark else []))
        if words:
            parts.append(f"**Here.** {words}")
        if self.records:
            lines = commands(self.records)
            machines = sorted({r["machine"] for r in self.records} - {here})
            on = f", on {'; '.join(machines)}" if machines else ""
            how = lines[0] if len(lines) == 1 else "\n- " + "\n- ".join(lines)
            parts.append(f"Measured {dates(self.records)}{on}: {how}")
        return "\n\n".join(p for p in parts if p)


def make_all(bench, makers, only, section=Section):
    """(sections, number of failures) of those makers whose names, without table_, are among `only`; of one whose
    measurement failed the page says so."""
    sections, n_failed = [], 0
    for make in makers:
        name = make.__name__.removeprefix("table_")
        if name not in only:
            continue
        try:
            sections.append(make(bench))
        except lab.Failed as failure:
            n_failed += 1
            sections.append(section(name, name.capitalize(), ""))
            sections[-1].add(f"Not measured: {failure}.")
            print(f"run.py: {name}: {failure}", file=sys.stderr)
    return sections, n_failed
