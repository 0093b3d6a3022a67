# SPDX-License-Identifier: MIT
"""What blocks of the model's own keys and values take (blocks.c): Figures 3 and 8, and ratios over KIVI's."""
import math

from kvcomp import printed
from lab.page import Section, agrees, bar, listing, mean, number, percent, points, table

PROGRAM = "kvcomp_blocks"
FINEST = "0.00392157"  # 256 levels: for what is not looked at
FIG3 = ("kvcomp:k=0.05,v=0.15,kunit=block", "kvcomp:k=0.2,v=0.15")


def k_alone(scale, unit="channel", block=64):
    words = ([f"kunit={unit}"] if unit != "channel" else []) + ([f"block={block}"] if block != 64 else [])
    return f"kvcomp:{','.join([f'k={scale:g}', f'v={FINEST}', *words])}"


def v_alone(scale):
    return f"kvcomp:k={FINEST},v={scale:g}"


def kivi_bits(scale):
    """KIVI's width that has this relative step, as if there were parts of a bit."""
    return math.log2(1 / scale + 1)


def step_of(bits):
    return 1 / (2**bits - 1)


class Sizes:
    """Rows of kvcomp_blocks.  Each spec is compressed once, whoever asks."""

    def __init__(self, bench):
        self.bench = bench

    def rows(self, section, specs):
        """{(spec, context): row}"""
        bench = self.bench
        record = bench.lab.measure("blocks", bench.model, bench.text, ",".join(map(str, bench.contexts)), bench.windows,
                                   *dict.fromkeys(specs), program=bench.blocks_program)
        section.used({**record, "command": record["command"].split(" kvcomp:")[0].split(" kivi:")[0] + " SPEC..."})
        return {(r["kv"], r["context"]): r for r in record["result"]["rows"]}


def bits(row, matrix):
    """Of a number of the keys (k) or values (v): codes, units, half of what serves both, and its codebooks."""
    b = row["bytes"]
    shared = b["header"] + b["order"] + row["books"]
    return 8 * (b[f"{matrix}_codes"] + b[f"{matrix}_units"] + shared / 2) / row["values"]


def both_bits(row):
    return (bits(row, "k") + bits(row, "v")) / 2


def ratio(row):
    """f16's bits over all that compressed tokens take."""
    return 16 / both_bits(row)


def ratio_with_buffer(row, buffer, n_tokens):
    """Of n_tokens tokens whose newest `buffer` are f16."""
    return n_tokens * 16 / ((n_tokens - buffer) * both_bits(row) + buffer * 16)


# ---- Figure 3 ---------------------------------------------------------------------------------------


def pooled(codes):
    width = max(map(len, codes))
    return [sum(layer[i] if i < len(layer) else 0 for layer in codes) for i in range(width)]


def entropy(counts):
    n = sum(counts)
    return -sum(c / n * math.log2(c / n) for c in counts if c)


def most_within(counts, share):
    """The fewest codes that have this share of all."""
    left, n = share * sum(counts), 0
    for c in sorted(counts, reverse=True):
        if left <= 0:
            break
        left, n = left - c, n + 1
    return n


def histogram(counts):
    n, top = sum(counts), max(counts)
    return "```\n" + "\n".join(f"{i:3d} {100 * c / n:5.1f} % {bar(c / top, 50)}" for i, c in enumerate(counts)) + "\n```"


def fig3(bench):
    s = Section("fig3", "Figure 3: how often codes occur", printed.SAYS["fig3"])
    rows = bench.sizes.rows(s, FIG3)
    block, channel = (rows[spec, bench.contexts[-1]] for spec in FIG3)
    shown = (("keys, block, 0.05", block["k"]["codes"]), ("keys, channel, 0.2", channel["k"]["codes"]),
             ("values, token, 0.15", block["v"]["codes"]))
    for name, codes in shown:
        s.add(f"{name[0].upper()}{name[1:]}, all layers:\n\n{histogram(pooled(codes))}")
    layers = range(len(block["k"]["codes"]))
    s.add("Entropy of a code in bits:\n\n" + table(
        ("", "levels", *(f"layer {i}" for i in layers), "mean", "of all together", "codes that are 90 %"),
        [(name, len(pooled(codes)), *(number(entropy(c)) for c in codes), number(mean(map(entropy, codes))),
          number(entropy(pooled(codes))), most_within(pooled(codes), 0.9)) for name, codes in shown]))
    lost = [entropy(pooled(codes)) - mean(map(entropy, codes)) for _, codes in shown]
    saved = [math.log2(len(pooled(codes))) - mean(map(entropy, codes)) for _, codes in shown]
    s.say(*(agrees(2 * most_within(pooled(c), 0.9) <= len(pooled(c)), f"a few levels have most of the codes of {name} (here: 90 % in "
                   "half of them or fewer)", f"it takes {most_within(pooled(c), 0.9)} of {len(pooled(c))}")
            for name, c in (shown[0], shown[2])), "All are bells: coarse steps leave them few levels to be skewed over.",
          "Against codes of equal length, of the logarithm of the levels, entropy saves "
          f"{listing(f'{v:.2f}' for v in saved)} bits a number; codebooks for each layer rather than for all save "
          f"{listing(f'{v:.2f}' for v in lost)} bits of that.")
    return s


# ---- Figure 8 ---------------------------------------------------------------------------------------


def gain(theirs, ours):
    return theirs / ours - 1


def fig8(bench):
    s = Section("fig8", "Figure 8: compression ratio of values over scales and contexts", printed.SAYS["fig8"])
    rows = bench.sizes.rows(s, [*map(v_alone, bench.v_sizes), "kivi:bits=2", "kivi:bits=4"])
    lines, exact, whole, wide = [], [], [], []
    for scale in bench.v_sizes:
        ours = [bits(rows[v_alone(scale), n], "v") for n in bench.contexts]
        theirs = [kivi_stored(rows, "v", kivi_bits(scale), n) for n in bench.contexts]
        up = [kivi_stored(rows, "v", math.ceil(kivi_bits(scale)), n) for n in bench.contexts]
        exact += map(gain, theirs, ours)
        whole += map(gain, up, ours)
        units = [8 * r["bytes"]["v_units"] / r["values"] for r in (rows[v_alone(scale), n] for n in bench.contexts)]
        wide += map(gain, up, (o - u / 2 for o, u in zip(ours, units)))
        lines.append((f"{scale:g}", number(rows[v_alone(scale), bench.contexts[-1]]["v"]["entropy"]),
                      *(number(16 / o) for o in ours), number(kivi_bits(scale)), number(16 / theirs[-1]),
                      points(gain(theirs[-1], ours[-1]), 0), math.ceil(kivi_bits(scale)), number(16 / up[-1]),
                      points(gain(up[-1], ours[-1]), 0)))
    s.add(table(("scale", "entropy, bits", *(f"ratio, {n} tokens" for n in bench.contexts), "KIVI's bits of that step",
                 "its ratio", "gain, %", "in whole bits", "its ratio", "gain, %"), lines))
    s.add("A ratio is 16 bits over all that a number takes: codes, minimum and step of each token, half of the "
          "payload's header, codebooks. KIVI has a minimum and a step for each 32 dimensions. Between and beyond "
          "the 2 and 4 bits that it has, its bits are those plus the difference in width. Gains are at the longest "
          "context.")
    s.say(f"Over KIVI with the same step, as if it had parts of a bit, the gain is {points(min(exact), 0)} to "
          f"{points(max(exact), 0)} %, mean {points(mean(exact), 0)}. In whole bits, as it has to store them, it is "
          f"{points(min(whole), 0)} to {points(max(whole), 0)} %, mean {points(mean(whole), 0)} (paper: mean 62, at "
          "most 83). The paper's best scale, 0.12, is 3.2 bits: 4 in whole ones. Tokens of 128 dimensions, as the "
          "paper's, would have half the minimums and steps. With the same codes, computed and not measured, that is "
          f"{points(min(wide), 0)} to {points(max(wide), 0)} %, mean {points(mean(wide), 0)}.",
          agrees(spread(rows, bench) < 0.06, "the ratio hardly depends on the context (here: by less than 6 %)"))
    return s


def spread(rows, bench):
    """The most that a ratio changes from the shortest to the longest context."""
    each = [[bits(rows[v_alone(x), n], "v") for n in bench.contexts] for x in bench.v_sizes]
    return max(max(e) / min(e) - 1 for e in each)


def kivi_stored(rows, matrix, width, context):
    """KIVI's bits a number at any width: as measured at 2, and what codes take beyond."""
    return bits(rows["kivi:bits=2", context], matrix) + width - 2


# ---- ratios over KIVI's -----------------------------------------------------------------------------


def width_of_error(rows, matrix, error, context):
    """KIVI's width, with parts of a bit, of this error: error halves as steps do."""
    coarse = rows["kivi:bits=2", context][matrix]["error"]
    return kivi_bits(error / coarse / 3)


def table_ratio(bench):
    s = Section("ratio", "Keys and values against KIVI at the turning points", printed.SAYS["ratio"])
    found = bench.curves.turning(s)
    cases = [("keys, channel", "k", k_alone(found["k channel"]), found["k channel"]),
             ("keys, block", "k", k_alone(found["k block"], "block"), None),
             ("values, token", "v", v_alone(found["v token"]), found["v token"])]
    rows = bench.sizes.rows(s, [c[2] for c in cases] + ["kivi:bits=2", "kivi:bits=4"])
    lines, gains = [], {}
    for name, matrix, spec, scale in cases:
        width, how = bench.curves.equal_width(s, matrix, spec, rows)
        for n in bench.contexts:
            row = rows[spec, n]
            ours = bits(row, matrix)
            widths = (kivi_bits(scale) if scale else None, width_of_error(rows, matrix, row[matrix]["error"], n), width)
            theirs = [None if w is None else kivi_stored(rows, matrix, w, n) for w in widths]
            gains.setdefault(name, []).append([None if t is None else gain(t, ours) for t in theirs])
            lines.append((name, f"`{spec}`", n, number(row[matrix]["entropy"]), number(ours), number(16 / ours),
                          percent(row[matrix]["error"]),
                          *(v for w, t, g in zip(widths, theirs, gains[name][-1])
                            for v in (w if isinstance(w, int) else number(w), number(t), points(g, 0)))))
        s.say(how)
    s.add(table(("", "KV", "tokens", "entropy", "bits", "ratio", "rms error, %", "KIVI, equal step", "bits", "gain, %",
                 "equal error", "bits", "gain, %", "equal accuracy", "bits", "gain, %"), lines))
    s.add("Bits of a number with all metadata and codebooks, without the f16 buffer. Equal step: 1/(2^b-1) is the "
          "scale, of a channel of 64 tokens here and of 32 there, or of 64 dimensions here and of 32 there. Equal "
          "error: the b with which what comes back is as far from what went in (rms). Equal accuracy: the fewest "
          "whole b that lose no more on the tasks, to one standard error. Widths that KIVI does not have are its 2 "
          "bits and the difference.")
    say_gains(s, gains)
    return s


def say_gains(s, gains):
    for name, wanted in (("keys, channel", 0.3), ("keys, block", 0.3), ("values, token", 0.5)):
        step, error, accuracy = (mean([g[i] for g in gains[name]]) if gains[name][0][i] is not None else None
                                 for i in range(3))
        verdict = "Met" if accuracy is not None and accuracy >= wanted else "Not met"
        s.say(f"{verdict}: {name} {percent(wanted, 0)} % better than KIVI of the same accuracy ({points(accuracy, 0)} %; of the same "
              f"error {points(error, 0)} %" + (f"; of the same step {points(step, 0)} %" if step is not None else "") + ").")
