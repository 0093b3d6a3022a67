# SPDX-License-Identifier: MIT
"""The frontier's picture of a model: a panel for each figure, a mark for each spec, a line through each family."""
import html
import math
import textwrap

PANEL, GAP = (380, 330), 70
LEFT, TOP, BOTTOM, RIGHT = 64, 64, 54, 190
MARKS = ("circle", "diamond", "triangle", "square")
COLOURS = ("#0969da", "#bc4c00", "#1a7f37", "#8250df", "#bf3989", "#9a6700", "#1b7c83", "#57606a", "#cf222e", "#4d7c0f",
           "#e36209", "#6d28d9")
STYLE = """
.page { fill: #ffffff } .grid { stroke: #d8dee4 } text { fill: #1f2328; font: 12px sans-serif }
.title { font-weight: bold; font-size: 15px } .soft { fill: #59636e } .line { fill: none; stroke-width: 1.2; opacity: .55 }
.bar { stroke-width: 1; opacity: .6 }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117 } .grid { stroke: #30363d } text { fill: #e6edf3 } .soft { fill: #9198a1 }
}
"""


def wrapped(text):
    return textwrap.fill(text, 110, break_on_hyphens=False, break_long_words=False)


def words(x, y, text, anchor="start", kind=""):
    of_kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{of_kind}>{html.escape(text)}</text>'


def mark(kind, colour, x, y, r=4.5):
    if kind == "circle":
        return f'<circle fill="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="{r}"/>'
    corners = {"diamond": ((0, -1.2), (1.2, 0), (0, 1.2), (-1.2, 0)), "triangle": ((0, -1.1), (1.1, 0.9), (-1.1, 0.9)),
               "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9))}[kind]
    at = " ".join(f"{x + r * dx:.1f},{y + r * dy:.1f}" for dx, dy in corners)
    return f'<polygon fill="{colour}" points="{at}"/>'


class Axis:
    """Numbers to places, by logarithms or as they are."""

    def __init__(self, ends, places, is_log):
        self.f = math.log if is_log else float
        self.ends, self.places = [self.f(v) for v in ends], places

    def at(self, value):
        part = (self.f(value) - self.ends[0]) / (self.ends[1] - self.ends[0])
        return self.places[0] + part * (self.places[1] - self.places[0])


# part: the key of a row; value, error: its fields; a scale from the worst to the best, and its ticks' words
PANELS = (
    {"part": "prose", "value": "kld_mean", "error": "kld_se", "title": "mean KLD from f16 on prose, nats", "is_log": True},
    {"part": "tasks", "value": "accuracy", "error": "accuracy_se", "title": "tasks, share right", "is_log": False},
    {"part": "documents", "value": "accuracy", "error": "accuracy_se", "title": "documents, question unseen, share right",
     "is_log": False},
)
BYTE_TICKS = (3, 4, 5, 7, 10, 14, 20, 28, 40, 57, 80, 100)


def points_of(panel, lines):
    """[(family, spec, bytes, value, error)]; a divergence of nothing has no place on its scale."""
    found = []
    for family, kv, rows, shares in lines:
        row = rows.get(panel["part"])
        value = row and row.get(panel["value"])
        if value is not None and (value > 0 or not panel["is_log"]):
            found.append((family, kv, 100 * shares[panel["part"]], value, row.get(panel["error"]) or 0))
    return found


def ticks_of(panel, found):
    if not panel["is_log"]:
        return (0, 1), [(v / 5, f"{20 * v} %") for v in range(6)]
    low, high = min(p[3] for p in found), max(p[3] for p in found)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high) + 1e-9)
    return (10.0**last, 10.0**first), [(10.0**e, f"{10.0**e:g}") for e in range(first, last + 1)]


def one_panel(panel, found, left, styles):
    ends, ticks = ticks_of(panel, found)
    top, low, right = TOP, TOP + PANEL[1], left + PANEL[0]
    x_ends = (min(p[2] for p in found) * 0.93, max(p[2] for p in found) * 1.07)
    x_axis, y_axis = Axis(x_ends, (left, right), True), Axis(ends, (low, top), panel["is_log"])
    yield words(left, top - 10, panel["title"], kind="soft")
    for tick in BYTE_TICKS:
        if x_ends[0] <= tick <= x_ends[1]:
            x = x_axis.at(tick)
            yield f'<line class="grid" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{low}"/>'
            yield words(x, low + 16, f"{tick} %", "middle", "soft")
    for tick, text in ticks:
        y = y_axis.at(tick)
        yield f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>'
        yield words(left - 6, y + 4, text, "end", "soft")
    yield words((left + right) / 2, low + 36, "bytes of the KV cache, of f16's", "middle", "soft")
    for family, (colour, kind) in styles.items():
        own = sorted((p for p in found if p[0] == family), key=lambda p: p[2])
        places = [(x_axis.at(p[2]), y_axis.at(p[3])) for p in own]
        if len(places) > 1:
            at = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            yield f'<polyline class="line" stroke="{colour}" points="{at}"/>'
        for (x, y), (_, kv, n_bytes, value, error) in zip(places, own):
            floor = ends[1] if panel["is_log"] else 0
            ends_of = [min(max(v, min(ends)), max(ends)) for v in (max(value - error, floor), value + error)]
            y1, y2 = (y_axis.at(v) for v in ends_of)
            yield f'<line class="bar" stroke="{colour}" x1="{x:.1f}" y1="{y1:.1f}" x2="{x:.1f}" y2="{y2:.1f}"/>'
            yield f"<g><title>{html.escape(kv)}: {value:.4g} at {n_bytes:.1f} %</title>{mark(kind, colour, x, y)}</g>"


def draw(title, lines):
    panels = [(panel, points_of(panel, lines)) for panel in PANELS]
    panels = [(panel, found) for panel, found in panels if found]
    families = list(dict.fromkeys(line[0] for line in lines))
    styles = {family: (COLOURS[i % len(COLOURS)], MARKS[i % len(MARKS)]) for i, family in enumerate(families)}
    width = LEFT + len(panels) * (PANEL[0] + GAP) + RIGHT - GAP + 20
    height = TOP + PANEL[1] + BOTTOM
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">',
             "<!-- SPDX-License-Identifier: MIT.  bench/frontier/run.py draws this. -->",
             f"<title>What a smaller KV cache costs: {html.escape(title)}</title>", f"<style>{STYLE}</style>",
             f'<rect class="page" width="{width}" height="{height}" rx="8"/>',
             words(LEFT, 24, f"What a smaller KV cache costs: {title}", kind="title"),
             words(LEFT, 40, "up and left is better; bars are standard errors", kind="soft")]
    for i, (panel, found) in enumerate(panels):
        parts += one_panel(panel, found, LEFT + i * (PANEL[0] + GAP), styles)
    for i, (family, (colour, kind)) in enumerate(styles.items()):
        y = TOP + 12 + 20 * i
        parts += [mark(kind, colour, width - RIGHT + 12, y - 4), words(width - RIGHT + 24, y, family)]
    return "\n".join(parts + ["</svg>"]) + "\n"
