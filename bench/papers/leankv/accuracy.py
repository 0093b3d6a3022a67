# SPDX-License-Identifier: MIT
"""Rows of accuracy and bytes, and the paper's figures of attention, formats and pruning: Fig 1-4, 7, 8."""
from lab.page import Section, agrees, bar, listing, mean, number, percent, points, table
from lab.samples import error_of, keys_of
from leankv import printed

UNIFORM = ("k8v8", "k8v4", "k4v8", "k4v4", "k4v2", "k2v4")
STUDY = "leankv:ah=0,al=0,high=f16,low=f16"
HEAD_DIM = 64  # of the reference model
WITHIN = 0.005  # what counts as near-lossless: mean accuracy within half a point of f16

# ---- bytes ------------------------------------------------------------------------------------------


def token_bytes(spec_format, head_dim, is_scored):
    """Bytes of one token in one lane: codes, scale and minimum of K and V, score and position where a policy runs."""
    tracked = 8 if is_scored else 0
    if spec_format in ("f16", "f32"):
        return 4 * head_dim * (2 if spec_format == "f32" else 1) + tracked
    k_bits, v_bits = int(spec_format[1]), int(spec_format[3])
    return head_dim * (k_bits + v_bits) / 8 + 8 + tracked


def formats(spec):
    """(high, low) of a spec; low None where there is none."""
    name, keys = spec.partition(":")[0], keys_of(spec)
    if name == "leankv":
        return keys.get("high", "k8v4"), keys.get("low", "k4v2")
    if name == "topk":
        return keys.get("format", "k8v4"), None
    return name, None


def share_at(spec, head_dim, levels):
    """Bytes over f16's at another head dimension: tokens alone, no slack and tables.  None if levels are wanted, and of
    policies by position, whose pages hold no scores."""
    if spec.startswith("recent:"):
        return None
    high, low = formats(spec)
    f16 = 4 * head_dim
    if ":" not in spec and spec != "leankv":
        return token_bytes(high, head_dim, False) / f16
    if not levels:
        return None
    n = levels["high"] + levels["low"] + levels["dropped"]
    held = levels["high"] * token_bytes(high, head_dim, True)
    if low:  # without al none is ever dropped, and low tokens carry neither score nor position
        held += levels["low"] * token_bytes(low, head_dim, float(keys_of(spec).get("al", 0)) > 0)
    return held / (n * f16)


def kept_share(levels):
    return (levels["high"] + levels["low"]) / sum(levels.values()) if levels else None


# ---- rows -------------------------------------------------------------------------------------------


class Rows:
    """Evaluated specs.  Each is measured once, whoever asks."""

    def __init__(self, bench):
        self.bench = bench

    def tasks(self, section, spec, tasks="main"):
        kind = {"main": "tasks", "calibration": "calibration", "long": "long"}[tasks]
        record = self.bench.lab.measure(kind, "eval", "-m", self.bench.model, "--tasks", self.bench.sets[tasks], "--kv",
                                        spec, "--format", "json", "-q")
        section.used(record)
        return record["result"]["rows"][0]

    def text(self, section, specs):
        """{spec: row} of perplexity and divergence; the first spec is the reference."""
        args = [word for spec in specs for word in ("--kv", spec)]
        record = self.bench.lab.measure("text", "eval", "-m", self.bench.model, "--text", self.bench.text,
                                        "--text-windows", self.bench.windows, *args, "--format", "json", "-q")
        section.used(record)
        return dict(zip(specs, record["result"]["rows"]))

    def levels(self, section, spec):
        """Tokens high, low and dropped, summed over lanes, at the ends of the samples; None for a uniform spec."""
        if ":" not in spec and spec != "leankv":
            return None
        row = self.tasks(section, spec)
        if "tokens" in row:
            return row["tokens"]
        keep = keys_of(spec).get("keep" if spec.startswith("topk:") else "budget")
        if keep:
            keep = float(keep.rstrip("%")) / 100
            return {"high": keep, "low": 0, "dropped": 1 - keep}
        record = self.bench.observe(spec, self.bench.sets["prompts"])
        section.used(record)
        return record["result"]["levels"]


def accuracy_of(row, names):
    return mean(row["tasks"][n]["accuracy"] for n in names)


def noise(rows):
    worst = max(error_of(r) for r in rows)
    step = max(1 / t["total"] for t in rows[0]["tasks"].values()) / len(rows[0]["tasks"])
    return f"One turn moves the mean by up to {points(step, 2)} points; standard error at most {percent(worst)}."


# ---- Figures 1, 3, 4 --------------------------------------------------------------------------------


def study(bench, section):
    record = bench.observe(STUDY, bench.text_requests, 2048)
    section.used(record)
    return record["result"]


def spread(logs, at, low=0.0, high=1.0):
    return logs[at.index(high)] - logs[at.index(low)]


def fig1(bench):
    s = Section("fig1", "Figure 1: spread of attention scores and of value norms", printed.SAYS["fig1"])
    r = study(bench, s)
    at = r["at"]
    rows = []
    for layer, (score, norm) in enumerate(zip(r["significance"], r["norm"])):
        rows.append((layer, *(f"{score[at.index(q)]:.1f}" for q in (0, 0.01, 0.5, 0.99, 1)),
                     number(spread(score, at), 1), *(f"{norm[at.index(q)]:.2f}" for q in (0, 0.5, 1)),
                     number(spread(norm, at), 1)))
    s.add(table(("layer", "score: min", "1 %", "median", "99 %", "max", "**decades**", "norm: min", "median", "max",
                 "**decades**"), rows))
    s.add("Base-10 logarithms of the mean attention that a token received, and of its value vector's norm. Over "
          f"{r['requests']} windows of {r['tokens']['mean']:.0f} tokens of eval/prose.txt and all KV heads of a "
          "layer.")
    scores = [spread(x, at) for x in r["significance"]]
    norms = [spread(x, at) for x in r["norm"]]
    s.say(f"Scores span {min(scores):.1f} to {max(scores):.1f} decades, norms {min(norms):.1f} to {max(norms):.1f}.",
          agrees(min(a - b for a, b in zip(scores, norms)) >= 1, "in every layer scores spread over at least a decade "
                 "more than norms do"),
          agrees(max(scores) >= 7, "scores span seven decades", f"the most is {max(scores):.1f}"))
    return s


def fig3(bench):
    s = Section("fig3", "Figure 3: tokens that receive 95 % of the attention, per layer", printed.SAYS["fig3"])
    r = study(bench, s)
    n = r["tokens"]["mean"]
    s.add(table(("layer", "one query: tokens", "sd over requests", "% of the tokens", "", "all queries: tokens", "sd"),
                [(i, f"{x['mean']:.0f}", f"{x['sd']:.0f}", percent(x["mean"] / n), bar(x["mean"] / n),
                  f"{y['mean']:.0f}", f"{y['sd']:.0f}")
                 for i, (x, y) in enumerate(zip(r["query"]["layers"], r["all"]["layers"]))]))
    s.add(f"Mean over a layer's KV heads; {r['requests']} requests of {n:.0f} tokens. \"One query\" counts the "
          "attention that each of the last tokens pays, on average over them. \"All queries\" counts what tokens "
          "received from all later ones together. The paper does not say which it counts.")
    means = [x["mean"] for x in r["query"]["layers"]]
    s.say(f"One query needs from {min(means):.0f} to {max(means):.0f} tokens, a factor of "
          f"{max(means) / min(means):.1f}.",
          agrees(max(means) >= 1.5 * min(means), "layers differ considerably (here: by half and more)"))
    return s


def fig4(bench):
    s = Section("fig4", "Figure 4: the same per KV head", printed.SAYS["fig4"])
    r = study(bench, s)
    all_heads = r["query"]["heads"]
    n_heads = len(all_heads[0])
    rows = [(i, *(f"{x['mean']:.0f} ± {x['sd']:.0f}" for x in heads),
             number(max(x["mean"] for x in heads) / min(x["mean"] for x in heads), 1))
            for i, heads in enumerate(all_heads)]
    s.add(table(("layer", *(f"head {h}" for h in range(n_heads)), "most / least"), rows))
    s.add("Tokens that hold 95 % of one query's attention, mean and deviation over requests.")
    ratios = [max(x["mean"] for x in heads) / min(x["mean"] for x in heads) for heads in all_heads]
    worst = max((x["sd"] / x["mean"] for heads in all_heads for x in heads))
    s.say(f"Within a layer heads differ by a factor of {min(ratios):.1f} to {max(ratios):.1f}. Over requests one "
          f"head's need deviates by up to {percent(worst, 0)} % of its mean.",
          agrees(max(ratios) >= 1.5, "some layers' heads differ significantly (here: by half and more)"),
          agrees(worst >= 0.15,
                 "some heads differ substantially between requests (here: a deviation of 15 % and more)"))
    return s


# ---- Figure 2 and 8: how many tokens go -------------------------------------------------------------


def threshold_for(bench, section, dropped):
    """The ah = al that drops this share of the tokens, by a look at what the tasks' prompts receive."""
    record = bench.observe(STUDY, bench.sets["prompts"])
    section.used(record)
    r = record["result"]
    share = min(1.0, dropped / (1 - r["newest"]))
    at = share * (len(r["relative"]) - 1)
    i = min(int(at), len(r["relative"]) - 2)
    log = r["relative"][i] + (at - i) * (r["relative"][i + 1] - r["relative"][i])
    return float(f"{10 ** log:.2g}")


def pruned(alpha, fmt):
    return f"leankv:ah={alpha:g},al={alpha:g},high={fmt},low={fmt}"


def by_position(spec, levels):
    """Pruning with significance off: as many tokens as `spec` keeps, the newest."""
    return f"recent:budget={100 * kept_share(levels):.2f}%,format={formats(spec)[0]}"


def fig2(bench):
    s = Section("fig2", "Figure 2: 8 bits, pruning, and both", printed.SAYS["fig2"])
    alpha = threshold_for(bench, s, 0.5)
    specs = {"f16": "f16", "8 bits": "k8v8", "half pruned": pruned(alpha, "f16"), "both": pruned(alpha, "k8v8")}
    levels = {name: bench.rows.levels(s, spec) for name, spec in specs.items()}
    for name in ("half pruned", "both"):
        control = f"{name}, significance off"
        specs[control] = by_position(specs[name], levels[name])
        levels[control] = bench.rows.levels(s, specs[control])
    rows = {name: bench.rows.tasks(s, spec) for name, spec in specs.items()}
    text = bench.rows.text(s, list(specs.values()))
    base = rows["f16"]["accuracy"]
    s.add(table(("", "KV", "accuracy, %", "against f16", "KL, text", "tokens kept, %", "bytes, % of f16", "d = 128"),
                [(name, f"`{spec}`", percent(rows[name]["accuracy"]), points(rows[name]["accuracy"] - base),
                  number(text[spec]["kld_mean"], 4), percent(kept_share(levels[name]) if levels[name] else 1),
                  percent(rows[name]["fraction"]), percent(share_at(spec, 128, levels[name])))
                 for name, spec in specs.items()]))
    s.add(noise(list(rows.values())))
    four = ("f16", "8 bits", "half pruned", "both")
    worst = min(rows[n]["accuracy"] - base for n in four)
    s.say(agrees(worst >= -0.01, "the four are nearly indistinguishable in accuracy (here: within a point)",
                 f"the worst is {points(worst)} points from f16"),
          agrees(rows["both"]["fraction"] == min(rows[n]["fraction"] for n in four),
                 "both together hold least memory"),
          "With as many tokens, kept by position alone, accuracy is " + listing(
              f"{points(rows[f'{n}, significance off']['accuracy'] - rows[n]['accuracy'])} ({n})" for n in four[2:]) +
          " points from that.")
    return s


def fig8(bench):
    s = Section("fig8", "Figure 8: thresholds per KV head against an equal share for each", printed.SAYS["fig8"])
    base = bench.rows.tasks(s, "k8v8")
    lines, gaps = [], []
    for target in bench.pruned_shares:
        spec = pruned(threshold_for(bench, s, target), "k8v8")
        ours, levels = bench.rows.tasks(s, spec), bench.rows.levels(s, spec)
        kept = kept_share(levels)
        for name, rival_spec in [*rivals(bench, s, kept, ours), ("tokens, by position", by_position(spec, levels))]:
            rival = bench.rows.tasks(s, rival_spec)
            gap = ours["accuracy"] - rival["accuracy"]
            gaps.append((name, 1 - kept, gap))
            lines.append((percent(1 - kept), f"`{spec}`", percent(ours["accuracy"]), percent(ours["fraction"]), name,
                          f"`{rival_spec}`", percent(rival["accuracy"]), percent(rival["fraction"]), points(gap)))
    s.add(table(("pruned, %", "per head", "accuracy", "bytes", "equal", "equal share", "accuracy", "bytes", "gain"),
                lines))
    s.add(f"Without pruning, k8v8: {percent(base['accuracy'])} %. Bytes in % of f16. Rows \"by position\" look at no "
          "attention: every head keeps its newest tokens. " + noise([base]))
    for name in sorted({g[0] for g in gaps}):
        of_kind = [g for g in gaps if g[0] == name]
        won = sum(g[2] > 0 for g in of_kind)
        tied = sum(g[2] == 0 for g in of_kind)
        s.say(f"At equal {name}, thresholds per head gain {points(min(g[2] for g in of_kind))} to "
              f"{points(max(g[2] for g in of_kind))} points: better in {won}, equal in {tied} of {len(of_kind)}.")
    shared = [g[2] for g in gaps if g[0] != "tokens, by position"]
    s.say(agrees(all(g >= 0 for g in shared) and any(g > 0 for g in shared),
                 "thresholds per head are at least as accurate throughout"))
    return s


def rivals(bench, section, kept, ours):
    """(what is equal, spec) of the equal-budget rows that a row is compared with."""
    equal_tokens = f"topk:keep={100 * kept:.2f}%,format=k8v8"
    yield "tokens", equal_tokens
    ratio = ours["fraction"] / bench.rows.tasks(section, equal_tokens)["fraction"]
    if abs(ratio - 1) > 0.01:
        yield "bytes", f"topk:keep={100 * min(1.0, kept * ratio):.2f}%,format=k8v8"


# ---- Figure 7 ---------------------------------------------------------------------------------------


def fig7(bench):
    s = Section("fig7", "Figure 7: bits for keys against bits for values", printed.SAYS["fig7"])
    specs = ("f16", "k8v4", "k4v8", "k4v2", "k2v4")
    rows = {spec: bench.rows.tasks(s, spec) for spec in specs}
    text = bench.rows.text(s, ["f16", *UNIFORM])
    names = list(rows["f16"]["tasks"])
    s.add(table(("KV", *names, "**mean**", "perplexity", "KL", "bytes, % of f16", "d = 128"),
                [(spec, *(percent(rows[spec]["tasks"][n]["accuracy"], 0) for n in names),
                  percent(rows[spec]["accuracy"]), number(text[spec]["perplexity"]), number(text[spec]["kld_mean"], 4),
                  percent(rows[spec]["fraction"]), percent(share_at(spec, 128, None))) for spec in specs]))
    s.add(noise(list(rows.values())))
    a = {spec: rows[spec]["accuracy"] for spec in specs}
    s.say(agrees(a["k8v4"] >= a["f16"] - WITHIN, "k8v4 matches f16 (within half a point)"),
          agrees((a["k4v8"], -text["k4v8"]["kld_mean"]) < (a["k8v4"], -text["k8v4"]["kld_mean"]),
                 "its mirror k4v8 loses more (accuracy or, where that is equal, divergence)"),
          f"Against k8v4, k4v8 is {points(a['k4v8'] - a['k8v4'])} points off; its divergence (KL) is "
          f"{text['k4v8']['kld_mean']:.4f} against {text['k8v4']['kld_mean']:.4f}.",
          f"Of f16's accuracy k4v2 keeps {percent(a['k4v2'] / a['f16'], 0)} % (paper: over 65 %), k2v4 "
          f"{percent(a['k2v4'] / a['f16'], 0)} % (near zero).",
          agrees(a["k4v2"] > a["k2v4"], "k4v2 is better than k2v4"))
    return s
