#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws docs/accuracy-per-byte.svg from the kept rows beside this file; with --check it only says whether it is current.

The bytes run on a logarithmic scale.  So does the accuracy, by the answers that are wrong: near 99 % a tenth of a per
cent matters, at 20 % it does not.  The picture brings its own background, so it reads the same in light and dark pages.
"""
import html
import json
import math
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROWS = HERE / "accuracy-per-byte.json"
PICTURE = HERE.parent / "accuracy-per-byte.svg"

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 70, 24, 62, 58
BYTES = (20.0, 115.0)  # per cent of f16's
WRONG = (0.8, 100.0)  # per cent of the answers
BYTE_TICKS = (20, 25, 30, 40, 50, 60, 80, 100)
ACCURACY_TICKS = (99, 98, 95, 90, 80, 50, 0)
MARK = 5.5  # half a mark's size

STYLE = """
.page { fill: #ffffff } .grid { stroke: #d8dee4 } text { fill: #1f2328; font: 13px sans-serif }
.title { font-weight: bold; font-size: 15px } .soft { fill: #59636e }
.circle { fill: #0969da } .diamond { fill: #bc4c00 } .triangle { fill: #1a7f37 }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117 } .grid { stroke: #30363d } text { fill: #e6edf3 } .soft { fill: #9198a1 }
  .circle { fill: #58a6ff } .diamond { fill: #f0883e } .triangle { fill: #3fb950 }
}
"""


def scale(value, ends, first, last):
    part = math.log(value / ends[0]) / math.log(ends[1] / ends[0])
    return first + part * (last - first)


def x_of(n_bytes):
    return scale(n_bytes, BYTES, LEFT, WIDTH - RIGHT)


def y_of(accuracy):
    """The best on top."""
    return scale(100.0 - accuracy, WRONG, TOP, HEIGHT - BOTTOM)


def words(x, y, text, anchor="start", kind=""):
    of_kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{of_kind}>{html.escape(text)}</text>'


def mark(kind, x, y):
    r = MARK
    if kind == "circle":
        return f'<circle class="circle" cx="{x:.1f}" cy="{y:.1f}" r="{r}"/>'
    corners = {"diamond": ((0, -1.2), (1.2, 0), (0, 1.2), (-1.2, 0)), "triangle": ((0, -1.1), (1.1, 0.9), (-1.1, 0.9))}
    points = " ".join(f"{x + r * dx:.1f},{y + r * dy:.1f}" for dx, dy in corners[kind])
    return f'<polygon class="{kind}" points="{points}"/>'


def axes():
    low, high = HEIGHT - BOTTOM, TOP
    for tick in BYTE_TICKS:
        x = x_of(tick)
        yield f'<line class="grid" x1="{x:.1f}" y1="{high}" x2="{x:.1f}" y2="{low}"/>'
        yield words(x, low + 18, f"{tick} %", "middle", "soft")
    for tick in ACCURACY_TICKS:
        y = y_of(tick)
        yield f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
        yield words(LEFT - 8, y + 4, f"{tick} %", "end", "soft")
    yield words((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, "bytes of the KV cache, of f16's: everything counted (logarithmic)", "middle")
    middle = (low + high) / 2
    yield (f'<text x="18" y="{middle:.1f}" text-anchor="middle" transform="rotate(-90 18 {middle:.1f})">'
           "answers exactly right (stretched near 100 %)</text>")


def label(row, x, y):
    """A row without one is known by its mark: its series stands in the legend."""
    at = row.get("at", "right")
    if at == "right":
        return words(x + 10, y + 4, row["label"])
    return words(x, y + (20 if at == "below" else -11), row["label"], "middle")


def legend(series):
    """In the empty room on the right, where few answers are right."""
    for idx, one in enumerate(series):
        x, y = x_of(34), y_of(72) + 24 * idx
        yield mark(one["mark"], x, y)
        yield words(x + 14, y + 4, one["name"])


def draw(kept):
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'role="img">')
    yield "<!-- SPDX-License-Identifier: MIT.  docs/figures/accuracy_per_byte.py draws this. -->"
    yield f"<title>Accuracy against bytes: {html.escape(kept['samples'])}, {kept['date']}</title>"
    yield f"<style>{STYLE}</style>"
    yield f'<rect class="page" width="{WIDTH}" height="{HEIGHT}" rx="8"/>'
    yield words(LEFT, 26, "What a smaller KV cache costs in answers", kind="title")
    yield words(LEFT, 45, f"reference model, {kept['samples']}; {kept['date']}; up and left is better", kind="soft")
    yield from axes()
    for series in kept["series"]:
        for row in series["rows"]:
            x, y = x_of(row["bytes"]), y_of(100.0 * row["accuracy"])
            yield mark(series["mark"], x, y)
            yield label(row, x, y)
    yield from legend(kept["series"])
    yield "</svg>"


def main():
    text = "\n".join(draw(json.loads(ROWS.read_text(encoding="utf-8")))) + "\n"
    if "--check" not in sys.argv[1:]:
        PICTURE.write_text(text, encoding="utf-8")
    elif not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != text:
        print(f"docs/{PICTURE.name}: not what docs/figures/accuracy_per_byte.py draws")


if __name__ == "__main__":
    main()
