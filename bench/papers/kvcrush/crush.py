# SPDX-License-Identifier: MIT
"""The paper's tables and figures of accuracy: Tables 2 and 3, Figures 4 to 6."""
from kvcrush import printed
from lab import lab
from lab.page import Section, agrees, percent, table
from lab.samples import REFERENCE, TASKS, delta_text, evicting, is_clear, with_error

INNER = ("h2o", "snapkv", "pyramidkv")
ANCHORS = ("random", "mean", "alternate", "kmeans")
MIDDLE = 25  # percent of the tokens, where a table has one budget
HALF = 50  # where anchors are compared: the paper's 512 of GSM8K's prompts are about half, and at 25 % little differs


def pair_of(policy, budget, crush="+kvcrush"):
    return evicting(policy, budget), evicting(policy, budget, crush=crush)


def sized(n_blocks):
    return f"{4 * n_blocks} samples a task, {n_blocks} block{'s' if n_blocks > 1 else ''}"


def samples_note(n_blocks):
    return (f"{sized(n_blocks)}. Errors (±) are one standard error: binomial for an accuracy; for a difference, from "
            "the same samples with and without. With 0.0 ± 0.0 no count of right answers differs.")


# ---- Table 2 ----------------------------------------------------------------------------------------


def anchor_spec(anchor, budget):
    return evicting("h2o", budget, crush="+kvcrush" if anchor == "mean" else f"+kvcrush:anchor={anchor}")


def table2(bench):
    s = Section("table2", "Table 2: anchors", printed.SAYS["table2"])
    n = bench.n_blocks
    plain = evicting("h2o", HALF)
    base = bench.rows.row(s, plain, n)
    lines = [("none (h2o)", with_error(base), "", percent(base["fraction"]), *printed.ANCHORS["none"])]
    deltas = {}
    for anchor in ANCHORS:
        row = bench.rows.row(s, anchor_spec(anchor, HALF), n)
        deltas[anchor] = bench.rows.difference(s, [(plain, anchor_spec(anchor, HALF))], n)
        lines.append((anchor, with_error(row), delta_text(deltas[anchor]), percent(row["fraction"]),
                      *printed.ANCHORS.get(anchor, ("-",) * 6)))
    s.add(table(("anchor", "accuracy, %", "against h2o", "bytes, % of f16",
                 *(f"paper: {h}" for h in printed.ANCHORS_HEAD)), lines))
    s.add(f"`h2o:budget={HALF}%,format=f16+kvcrush:anchor=...`; {samples_note(n)} Row kmeans is Figure 3's "
          "comparison, not an anchor of the paper's table.")
    own = [deltas[a] for a in ANCHORS[:3]]
    s.say(agrees(all(d[0] > 0 for d in own), "every anchor beats h2o alone"),
          "No anchor differs from h2o by more than two standard errors: what Table 2 finds on GSM8K is not to be seen "
          "on these tasks." if not any(map(is_clear, own)) else
          f"Beyond two standard errors: {', '.join(a for a in ANCHORS[:3] if is_clear(deltas[a]))}.")
    return s


# ---- Table 3 ----------------------------------------------------------------------------------------


def table3(bench):
    s = Section("table3", "Table 3: policies with and without representatives at equal total budget",
                printed.SAYS["table3"])
    n = bench.n_blocks
    full = bench.rows.row(s, REFERENCE, n)
    lines = [("f16", "100", *(percent(full["tasks"][t]["accuracy"], 0) for t in TASKS), with_error(full), "",
              percent(full["fraction"]))]
    deltas, pairs = {}, {}
    for budget in bench.budgets:
        for policy in INNER:
            pair = pairs[budget, policy] = pair_of(policy, budget)
            deltas[budget, policy] = bench.rows.difference(s, [pair], n)
            for spec, name in zip(pair, (policy, "+kvcrush")):
                row = bench.rows.row(s, spec, n)
                lines.append((name, f"{budget:g}", *(percent(row["tasks"][t]["accuracy"], 0) for t in TASKS),
                              with_error(row), delta_text(deltas[budget, policy]) if name == "+kvcrush" else "",
                              percent(row["fraction"])))
    s.add(table(("policy", "budget, %", *TASKS, "**mean**", "gain", "bytes, % of f16"), lines))
    s.add(f"{samples_note(n)} Specs `POLICY:budget=B%,format=f16` and the same with `+kvcrush` (share=25%, "
          "anchor=mean). Bytes differ a little within a pair, since representatives need a score for each query head.")
    add_averages(bench, s, deltas)
    say_table3(bench, s, deltas, pairs)
    return s


def add_averages(bench, s, deltas):
    lines = []
    for policy in INNER:
        models = printed.AVERAGE[policy]
        lines.append((policy, *(f"{a} → {b} ({b - a:+.2f})" for a, b in models.values()),
                      *(delta_text(deltas[budget, policy]) for budget in bench.budgets)))
    s.add("Gain of the mean, the paper's next to ours (f16 there: " +
          ", ".join(f"{m} {v}" for m, v in printed.FULL.items()) + "):\n\n" +
          table(("policy", *(f"paper, {m}" for m in printed.FULL), *(f"here, {b:g} %" for b in bench.budgets)), lines))


def counted(n, noun):
    return f"{n} {noun}{'' if n == 1 else 's'}"


def say_table3(bench, s, deltas, pairs):
    """One sentence: the whole, each policy, and whether that is more than noise."""
    n = bench.n_blocks
    whole = bench.rows.difference(s, list(pairs.values()), n)
    each = [f"{p} {delta_text(bench.rows.difference(s, [v for (_, q), v in pairs.items() if q == p], n))}" for p in INNER]
    n_up, n_down = sum(d[0] > 0 for d in deltas.values()), sum(d[0] < 0 for d in deltas.values())
    clear = [f"{p} at {b:g} % ({delta_text(d)})" for (b, p), d in deltas.items() if is_clear(d)]
    what = ("On these tasks a quarter of the budget for representatives is, all in all, neither gain nor loss beyond "
            "noise" if not is_clear(whole) else f"So representatives {'gain' if whole[0] > 0 else 'cost'} accuracy here")
    s.say(f"Over all {counted(len(deltas), 'pair')} accuracy changes by {delta_text(whole, 2)} points with "
          f"representatives: {counted(n_up, 'pair')} better, {n_down} worse. By policy it is {', '.join(each)}. "
          f"Beyond two standard errors: {', '.join(clear) if clear else 'none'}. {what}.")


# ---- Figure 4 ---------------------------------------------------------------------------------------


def share_spec(policy, share):
    """Without the stage at 0, and by its default at 25, as the other tables have it."""
    crush = {0: "", 25: "+kvcrush"}.get(share, f"+kvcrush:share={share}%")
    return evicting(policy, MIDDLE, crush=crush)


def fig4_line(bench, s, share, gains):
    line = [f"{share}"]
    for policy in ("h2o", "snapkv"):
        row = bench.rows.row(s, share_spec(policy, share), bench.n_few)
        pair = share_spec(policy, 0), share_spec(policy, share)
        delta = gains[policy, share] = bench.rows.difference(s, [pair], bench.n_few)
        line += [with_error(row), delta_text(delta) if share else "", "#" * round(40 * row["accuracy"])]
    return line


def fig4(bench):
    s = Section("fig4", "Figure 4: share of the budget for representatives", printed.SAYS["fig4"])
    lines, gains, missing = [], {}, []
    for share in bench.shares:
        try:
            lines.append(fig4_line(bench, s, share, gains))
        except lab.Failed:
            missing.append(share)
    shares = [share for share in bench.shares if share not in missing]
    if 0 not in shares:
        raise lab.Failed("without representatives it failed")
    s.add(table(("share, %", "h2o, %", "gain", "", "snapkv, %", "gain", ""), lines))
    s.add(f"`POLICY:budget={MIDDLE}%,format=f16+kvcrush:share=...`; {samples_note(bench.n_few)}" +
          (f" Not measured: {', '.join(f'{share} %' for share in missing)}." if missing else ""))
    clear = [f"{p} at {share} % ({delta_text(d)})" for (p, share), d in gains.items() if is_clear(d)]
    best = {p: max(shares, key=lambda share, p=p: (gains[p, share][0], -share)) for p in ("h2o", "snapkv")}
    s.say("Best are " + " and ".join(f"{share} % for {p} ({delta_text(gains[p, share])})" for p, share in best.items())
          + f". Beyond two standard errors from none: {', '.join(clear) if clear else 'nothing'}.",
          agrees(all(20 <= b <= 50 for b in best.values()), "the best share lies between 20 and 50 %"))
    return s


# ---- Figures 5 and 6 --------------------------------------------------------------------------------


def fig5(bench):
    s = Section("fig5", "Figures 5 and 6: tokens and pages", f"{printed.SAYS['fig5']} {printed.SAYS['fig6']}")
    n, lines, deltas = bench.n_few, [], {}
    for policy in INNER:
        for unit in ("token", "page"):
            pair = (pair_of(policy, MIDDLE) if unit == "token" else
                    tuple(evicting(policy, MIDDLE, crush=f"+kvcrush:{share}unit=page") for share in ("share=0%,", "")))
            deltas[policy, unit] = bench.rows.difference(s, [pair], n)
            without, crushed = (bench.rows.row(s, spec, n) for spec in pair)
            lines.append((policy, unit, with_error(without), with_error(crushed), delta_text(deltas[policy, unit]),
                          percent(without["fraction"]), percent(crushed["fraction"])))
    s.add(table(("policy", "unit", "without, %", "with kvcrush, %", "gain", "bytes without", "with"), lines))
    s.add(f"Budget {MIDDLE} %, format f16; {samples_note(n)} Pages are the cache's, and whole pages are kept or "
          "dropped; `share=0%,unit=page` is the paged policy alone.")
    paged = deltas["h2o", "page"]
    clear = [f"{p} by {u} ({delta_text(d)})" for (p, u), d in deltas.items() if is_clear(d)]
    s.say(f"Beyond two standard errors: {', '.join(clear) if clear else 'nothing'}.",
          agrees(paged[0] > 0, "paged KVCrush outperforms paged H2O", f"the gain is {delta_text(paged)}"),
          agrees(all(d[0] > 0 for d in deltas.values()), "KVCrush improves every policy, by token and by page"))
    return s
