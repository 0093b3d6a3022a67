# SPDX-License-Identifier: MIT
"""Pages: tables, numbers, sentences that the numbers choose, sections; and how a page's program ends."""
import re
import sys

from lab import lab
from lab.fill import fill


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
    """Whether `what`, a finding of the paper, holds in the numbers; `instead`: what does."""
    if condition:
        return f"Agrees: {what}."
    return f"Differs: it does not hold here that {what}." + (f" Instead: {instead}." if instead else "")


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else None


def listing(words):
    words = list(words)
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1] if words else "none"


def grouped(titles):
    """Titles as "Figure 3": "Figures 3, 4 and 7, Table 1"; "none" of none."""
    kinds = {}
    for title in titles:
        kind, _, name = title.partition(" ")
        kinds.setdefault(kind, []).append(name)
    return ", ".join(f"{kind}{'s' if len(names) > 1 else ''} {listing(names)}" for kind, names in kinds.items()) or "none"


def commands(records):
    """The command lines; those that differ in one spec alone become one, with SPEC in its place."""
    seen = {}
    for record in records:
        text = record["command"]
        specs = re.findall(r"--kv (\S+)|(?:leankv_observe|spvllm_steps) \S+ (\S+)", text)
        spec = "".join(specs[0]) if len(specs) == 1 else None
        seen.setdefault(text.replace(f" {spec} ", " SPEC ") if spec else text, set()).add(spec or "")
    return [text.replace(" SPEC ", f" {min(specs)} ") if len(specs) == 1 else f"{text}  # SPEC: each of the table's"
            for text, specs in seen.items()]


def dates(records):
    found = sorted({r["date"] for r in records})
    if not found:
        return ""
    return found[0] if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


def source(records, on=". Machine: "):
    """Of which commits, and on which machines: of each section, for a page may hold those of several."""
    commits = sorted({r["commit"] for r in records if r.get("commit")})
    machines = sorted({r["machine"] for r in records if r["machine"]})
    return (f", commit{'s' if len(commits) > 1 else ''} {listing(commits)}" if commits else "") + \
        (on + ", and ".join(machines) if machines else "")


class Section:
    """One figure or table of the paper: what the paper says, our table, the verdict, and how it was measured."""

    def __init__(self, key, title, says):
        self.key, self.title, self.says = key, title, says
        self.body, self.verdict, self.records = [], [], []
        self.is_missing = False  # its measurement failed

    def add(self, text):
        self.body.append(text)

    def say(self, *sentences):
        self.verdict += [s for s in sentences if s]

    def used(self, *records):
        self.records += [r for r in records if r is not None and r not in self.records]

    def text(self, remark=None):
        parts = [f"## {self.title}", f"**Paper.** {self.says}" if self.says else "", *self.body]
        words = " ".join(self.verdict + ([remark] if remark else []))
        if words:
            parts.append(f"**Here.** {words}")
        if self.records:
            how = "\n".join(commands(self.records))
            parts.append(f"Measured {dates(self.records)}{source(self.records)}:\n\n```sh\n{how}\n```")
        return "\n\n".join(p for p in parts if p)


class Kept:
    """A section as a page has it already, with what it says of when and of which commit it is."""
    key = None

    def __init__(self, text):
        self.title, self.whole = text.partition("\n")[0].removeprefix("## "), text.strip()
        here = " ".join(re.findall(r"^\*\*Here\.\*\* (.*?)(?:\n\n|\Z)", text, flags=re.M | re.S)).replace("\n", " ")
        self.verdict = [s.strip() for s in re.split(r"(?=\b(?:Agrees|Differs|Met|Not met): )", here)]

    def text(self, remark=None):
        return self.whole


def name_of(section):
    return section.title.split(":")[0]


def with_rest(sections, path, head, end="\n<!-- "):
    """`sections`, and those of the page at `path` that are not among them, in the page's order; new ones come last.
    What could not be measured stays as the page has it.  Failed if the page does not begin with `head`: what it tells of settings and samples holds for all sections."""
    with open(path, encoding="utf-8") as f:
        text = f.read().partition(end)[0]
    if not text.startswith(fill(head).rstrip()):
        raise lab.Failed(f"--keep-rest: {path} was written by another command, or its head says other things")
    parts = re.split(r"^(?=## )", text, flags=re.M)[1:]
    kept = [Kept(part) for part in parts if not part.startswith("## Requirements\n")]
    made = {name_of(s): s for s in sections if not s.is_missing}
    return [made.pop(name_of(s), s) for s in kept] + list(made.values())


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
            sections[-1].is_missing = True
            print(f"run.py: {name}: {failure}", file=sys.stderr)
    return sections, n_failed


def verdicts(sections):
    """(figures and tables in which nothing differs from the paper, those in which something does), by their titles."""
    said = {name_of(s): s.verdict for s in sections if s.verdict}
    differs = [title for title, verdict in said.items() if any(v.startswith("Differs") for v in verdict)]
    return [title for title in said if title not in differs], differs


def requirements(sections):
    """What the sections say of requirements, met and not met."""
    return [v for s in sections for v in s.verdict if v.startswith(("Met:", "Not met:"))]


def write(path, parts, shown, end=""):
    """The page of `parts`; shown: {what a part names: what the page says in its place}; `end` is a page's end as it is."""
    text = "\n\n".join(p.rstrip() for p in parts) + "\n"
    for name, other in shown.items():
        text = text.replace(name, other)
    return lab.write(path, fill(text) + ("\n" + end if end else ""))


def tell(path, sections, n_failed, what="tables"):
    print(f"{path}: {len(sections)} {what}, {n_failed} not measured", file=sys.stderr)


def run(progress, work):
    """Exit code of a page's program.  `work` measures, writes, and gives the number of failures."""
    try:
        n_failed = work()
    except KeyboardInterrupt:
        progress.end()
        print("run.py: interrupted; results are kept, the same command goes on from there", file=sys.stderr)
        return 130
    except lab.Failed as failure:  # of what the page cannot be without
        progress.end()
        print(f"run.py: {failure}", file=sys.stderr)
        return 1
    return 1 if n_failed else 0


def run_page(progress, options, make_bench, makers, write_page, head, what="tables", section=Section, order=()):
    """Exit code of the program of one page.  head(bench, options): what it says before all sections; order: of its
    keys, if it is not that of `makers`."""
    def work():
        bench = make_bench()
        sections, n_failed = make_all(bench, makers, options.only, section)
        if order:
            sections.sort(key=lambda s: order.index(s.key))
        if options.keep_rest:
            sections = with_rest(sections, options.out, head(bench, options))
        write_page(bench, options, sections)
        progress.end()
        tell(options.out, sections, n_failed, what)
        return n_failed
    return run(progress, work)
