# SPDX-License-Identifier: MIT
"""The paper's figures and tables of accuracy and memory: Fig 1-4, 7-10, Tables 1-3."""
from lab.page import Section, agrees, bar, listing, mean, number, percent, points, table
from lab.samples import GENERATION, RETRIEVAL, TASKS, error_of
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


def keys_of(spec):
    return dict(part.split("=", 1) for part in spec.partition(":")[2].split(",") if part)


def formats(spec):
    """(high, low) of a spec; low None where there is none."""
    name, keys = spec.partition(":")[0], keys_of(spec)
    if name == "leankv":
        return keys.get("high", "k8v4"), keys.get("low", "k4v2")
    if name == "topk":
        return keys.get("format", "k8v4"), None
    return name, None


def share_at(spec, head_dim, levels):
    """Bytes over f16's at another head dimension: tokens alone, no slack and tables.  None if levels are wanted."""
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
        if spec.startswith("topk:"):
            keep = float(keys_of(spec)["keep"].rstrip("%")) / 100
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


def fig2(bench):
    s = Section("fig2", "Figure 2: 8 bits, pruning, and both", printed.SAYS["fig2"])
    alpha = threshold_for(bench, s, 0.5)
    specs = {"f16": "f16", "8 bits": "k8v8", "half pruned": pruned(alpha, "f16"), "both": pruned(alpha, "k8v8")}
    rows = {name: bench.rows.tasks(s, spec) for name, spec in specs.items()}
    text = bench.rows.text(s, list(specs.values()))
    levels = {name: bench.rows.levels(s, spec) for name, spec in specs.items()}
    base = rows["f16"]["accuracy"]
    s.add(table(("", "KV", "accuracy, %", "against f16", "KL, text", "tokens kept, %", "bytes, % of f16", "d = 128"),
                [(name, f"`{spec}`", percent(rows[name]["accuracy"]), points(rows[name]["accuracy"] - base),
                  number(text[spec]["kld_mean"], 4), percent(kept_share(levels[name]) if levels[name] else 1),
                  percent(rows[name]["fraction"]), percent(share_at(spec, 128, levels[name])))
                 for name, spec in specs.items()]))
    s.add(noise(list(rows.values())))
    worst = min(rows[n]["accuracy"] - base for n in rows)
    s.say(agrees(worst >= -0.01, "the four are nearly indistinguishable in accuracy (here: within a point)",
                 f"the worst is {points(worst)} points from f16"),
          agrees(rows["both"]["fraction"] == min(r["fraction"] for r in rows.values()),
                 "both together hold least memory"))
    return s


def fig8(bench):
    s = Section("fig8", "Figure 8: thresholds per KV head against an equal share for each", printed.SAYS["fig8"])
    base = bench.rows.tasks(s, "k8v8")
    lines, gaps = [], []
    for target in bench.pruned_shares:
        spec = pruned(threshold_for(bench, s, target), "k8v8")
        ours, levels = bench.rows.tasks(s, spec), bench.rows.levels(s, spec)
        kept = kept_share(levels)
        for name, keep in rivals(bench, s, kept, ours):
            rival_spec = f"topk:keep={100 * keep:.2f}%,format=k8v8"
            rival = bench.rows.tasks(s, rival_spec)
            gap = ours["accuracy"] - rival["accuracy"]
            gaps.append((name, 1 - kept, gap))
            lines.append((percent(1 - kept), f"`{spec}`", percent(ours["accuracy"]), percent(ours["fraction"]), name,
                          f"`{rival_spec}`", percent(rival["accuracy"]), percent(rival["fraction"]), points(gap)))
    s.add(table(("pruned, %", "per head", "accuracy", "bytes", "equal", "equal share", "accuracy", "bytes", "gain"),
                lines))
    s.add(f"Without pruning, k8v8: {percent(base['accuracy'])} %. Bytes in % of f16. " + noise([base]))
    for name in sorted({g[0] for g in gaps}):
        of_kind = [g for g in gaps if g[0] == name]
        won = sum(g[2] > 0 for g in of_kind)
        tied = sum(g[2] == 0 for g in of_kind)
        s.say(f"At equal {name} thresholds per head gain {points(min(g[2] for g in of_kind))} to "
              f"{points(max(g[2] for g in of_kind))} points: better in {won}, equal in {tied} of {len(of_kind)}.")
    s.say(agrees(all(g[2] >= 0 for g in gaps) and any(g[2] > 0 for g in gaps),
                 "thresholds per head are at least as accurate throughout"))
    return s


def rivals(bench, section, kept, ours):
    """(what is equal, keep) of the equal-budget rows that a row is compared with."""
    yield "tokens", kept
    at_equal_tokens = bench.rows.tasks(section, f"topk:keep={100 * kept:.2f}%,format=k8v8")
    ratio = ours["fraction"] / at_equal_tokens["fraction"]
    if abs(ratio - 1) > 0.01:
        yield "bytes", min(1.0, kept * ratio)


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


# ---- Figure 9: calibration --------------------------------------------------------------------------


class Choice:
    """What `pleat calibrate` finds, on samples that no other table uses: the curve, and the thresholds it chose.

    The loss that it tolerates is half a point or, where the samples cannot show that, one answer of a task.
    """

    def __init__(self, bench):
        ah, al = (",".join(f"{x:g}" for x in xs) for xs in (bench.ah, bench.al))
        program = bench.lab.hash_of(bench.pleat)[:12]
        kept = f"{bench.store}/profile-{program}-{bench.n_calibration}-{len(bench.ah)}.json"
        tolerance = max(WITHIN, 1 / len(TASKS) / bench.n_calibration + 1e-6)
        self.record = bench.lab.measure(
            "calibration", "calibrate", "-m", bench.model, "--tasks", bench.sets["calibration"], "--ah", ah, "--al", al,
            "--tolerance", f"{tolerance:.6f}", "--format", "json", "-q", output=kept)
        profile = self.record["result"]
        self.f16, self.curve, self.tolerance = profile["f16"], profile["curve"], profile["tolerance"]
        self.ah, self.al = profile["chosen"]["ah"], profile["chosen"]["al"]

    @property
    def spec(self):
        return f"leankv:ah={self.ah:g},al={self.al:g}"

    def most_accurate(self):
        """The paper's rule: the best accuracy over ah with al = 0, then over al; of equals the smallest."""
        def best(points_):
            return max(points_, key=lambda p: (round(p["accuracy"], 6), -p["fraction"]))
        ah = best([p for p in self.curve if p["al"] == 0])["ah"]
        return best([p for p in self.curve if p["ah"] == ah])


def fig9(bench):
    s = Section("fig9", "Figure 9: calibration of ah and al", printed.SAYS["fig9"])
    choice = bench.choice()
    s.used(choice.record)
    f16 = choice.f16["accuracy"]
    rows = [("f16", "", percent(f16), "", percent(choice.f16["fraction"]), "")]
    for p in choice.curve:
        mark = "**chosen**" if (p["ah"], p["al"]) == (choice.ah, choice.al) else ""
        rows.append((f"{p['ah']:g}", f"{p['al']:g}", percent(p["accuracy"]), points(p["accuracy"] - f16),
                     percent(p["fraction"]), mark))
    s.add(table(("ah", "al", "accuracy, %", "against f16", "bytes, % of f16", ""), rows))
    s.add(f"{bench.n_calibration} samples a task, none of which is in another table. Chosen are the fewest bytes "
          f"within {percent(choice.tolerance)} points of f16 (half a point, or one answer of a task if that is more); "
          "the paper takes the most accurate.")
    s.add("The paper's choices: " + "; ".join(f"{m} ah={ah:g} al={al:g}" for m, ah, al in printed.CALIBRATED) + ".")
    off = [p for p in choice.curve if p["al"] == 0 and p["ah"] <= 5 and p["accuracy"] < f16 - 2 * WITHIN]
    rule = choice.most_accurate()
    s.say(f"Chosen: `{choice.spec}`; the paper's rule would give ah={rule['ah']:g} al={rule['al']:g}.",
          agrees(not off, "every ah up to 5 is as accurate as f16 (here: within a point)",
                 f"the worst is {points(min(p['accuracy'] for p in off) - f16)} points off" if off else None))
    costly = [p for p in choice.curve if p["al"] > 0]
    if costly:
        s.say(f"With ah = {costly[0]['ah']:g}, " + listing(f"al = {p['al']:g} is {points(p['accuracy'] - f16)}"
                                                          for p in costly) +
              " points from f16 (paper: al = 0.1 costs at least 5 % on the larger models).")
    return s


# ---- Figure 10 and the tables -----------------------------------------------------------------------


def fig10(bench):
    s = Section("fig10", "Figure 10: accuracy against memory", printed.SAYS["fig10"])
    choice = bench.choice()
    lean = [f"leankv:ah={ah:g},al=0" for ah in bench.ah_shown]
    others = [choice.spec + ",step=code", choice.spec + ",threshold=position"]
    equal = [f"topk:keep={keep}%,format=k8v4" for keep in bench.keeps]
    same_bytes = topk_of_bytes(bench, s, choice.spec)
    specs = list(dict.fromkeys(["f16", *UNIFORM, *lean, choice.spec, *others, *equal, same_bytes]))
    rows = {spec: bench.rows.tasks(s, spec) for spec in specs}
    lines = []
    names = list(rows["f16"]["tasks"])
    for spec in sorted(specs, key=lambda x: -rows[x]["fraction"]):
        row, levels = rows[spec], bench.rows.levels(s, spec)
        note = "calibrated" if spec == choice.spec else "bytes as calibrated" if spec == same_bytes else ""
        lines.append((f"`{spec}`", percent(row["accuracy"]), points(row["accuracy"] - rows["f16"]["accuracy"]),
                      percent(accuracy_of(row, [n for n in names if n in RETRIEVAL])),
                      percent(accuracy_of(row, [n for n in names if n in GENERATION])), percent(row["fraction"]),
                      percent(share_at(spec, 128, levels)), "yes" if is_best(spec, rows) else "", note))
    s.add(table(("KV", "accuracy, %", "against f16", "retrieval", "long generation", "bytes, % of f16", "d = 128",
                 "nothing smaller is as accurate", ""), lines))
    s.add("Everything is counted: pages with their unused slots, tables, lane records. Column d = 128 has the same "
          "tokens at that head dimension, without slack. Of the paper's rivals H2O and SnapKV stand in eviction.md "
          "and KIVI in kvcomp.md; Quest is not built. Pruning with equal budgets is `topk`. " + noise([rows["f16"]]))
    say_memory(s, rows, choice.spec, same_bytes, [*lean, choice.spec])
    return s


def topk_of_bytes(bench, section, spec):
    """The equal-budget spec that holds as many bytes as `spec`: from those of half the tokens, by the bytes of one."""
    half, wanted = (bench.rows.tasks(section, x)["fraction"] for x in ("topk:keep=50%,format=k8v4", spec))
    keep = 0.5 + (wanted - half) / (token_bytes("k8v4", HEAD_DIM, True) / (4 * HEAD_DIM))
    return f"topk:keep={100 * min(1.0, keep):.1f}%,format=k8v4"


def is_best(spec, rows):
    """No other row is both at most as large and at least as accurate."""
    me = rows[spec]
    return not any(r["fraction"] <= me["fraction"] and r["accuracy"] >= me["accuracy"] for k, r in rows.items()
                   if k != spec and (r["fraction"], r["accuracy"]) != (me["fraction"], me["accuracy"]))


def say_memory(s, rows, chosen, same_bytes, lean):
    f16 = rows["f16"]["accuracy"]
    for name, within in (("half a point", WITHIN), ("a point", 2 * WITHIN)):
        good = [k for k in lean if rows[k]["accuracy"] >= f16 - within]
        if good:
            k = min(good, key=lambda x: rows[x]["fraction"])
            s.say(f"Smallest LeanKV within {name} of f16: `{k}`, {percent(rows[k]['fraction'])} % of its bytes.")
        else:
            s.say(f"No LeanKV row is within {name} of f16.")
    me = rows[chosen]
    beaten = [k for k in UNIFORM if rows[k]["fraction"] <= me["fraction"] and rows[k]["accuracy"] >= me["accuracy"]]
    s.say(agrees(not beaten, f"no uniform format is both as small and as accurate as `{chosen}`",
                 f"{listing(beaten)} {'is' if len(beaten) == 1 else 'are'}" if beaten else None))
    gap = me["accuracy"] - rows[same_bytes]["accuracy"]
    s.say(agrees(gap > 0, f"at equal bytes it beats equal budgets ({points(gap)} points over `{same_bytes}`)"))


def paper_summary():
    """Mean over Table 1's cells of LeanKV - FP16, in points, and the least and greatest memory."""
    cells = [(printed.accuracy(c[1]) - c[0], printed.memory(c[1])) for row in printed.TABLE_1.values() for c in row.values()]
    return mean(c[0] for c in cells), min(c[1] for c in cells), max(c[1] for c in cells)


def cell(row, name):
    t = row["tasks"][name]
    return f"{percent(t['accuracy'])} ({percent(t['fraction'], 0)})"


def table1(bench):
    s = Section("table1", "Table 1: accuracy and memory by task", None)
    for model, methods in printed.TABLE_1_METHODS.items():
        lines = []
        for name, row in printed.TABLE_1.items():
            cells = [f"{printed.accuracy(c)}" + (f" ({printed.memory(c)})" if printed.memory(c) else "") for c in row[model]]
            lines.append((name, *cells))
        titles = [m if m == "LeanKV" else f"{m} ({printed.TABLE_1_MEMORY[m]})" for m in methods]
        s.add(f"Paper, {model}:\n\n" + table(("accuracy (memory, %)", *titles), lines))
    choice = bench.choice()
    specs = ["f16", choice.spec, "k4v4", "k4v2", "topk:keep=50%,format=f16", topk_of_bytes(bench, s, choice.spec)]
    rows = {spec: bench.rows.tasks(s, spec) for spec in specs}
    names = list(rows["f16"]["tasks"])
    s.add("Here:\n\n" + table(("accuracy (memory, %)", *(f"`{x}`" for x in specs)),
                              [(n, *(cell(rows[x], n) for x in specs)) for n in names] +
                              [("**mean**", *(f"{percent(rows[x]['accuracy'])} ({percent(rows[x]['fraction'], 0)})"
                                              for x in specs))]))
    s.add(noise(list(rows.values())))
    loss, low, high = paper_summary()
    ours = rows[choice.spec]
    shares = [t["fraction"] for t in ours["tasks"].values()]
    delta = ours["accuracy"] - rows["f16"]["accuracy"]
    s.say(f"The paper's LeanKV cells average {loss:+.1f} points at {low} to {high} % of FP16's memory. Here it is "
          f"{points(delta)} points at {percent(min(shares))} to {percent(max(shares))} %, "
          f"{percent(ours['fraction'])} % over all samples.",
          agrees(max(shares) > 1.15 * min(shares), "memory follows the task: some need noticeably more than others"),
          agrees(all(ours["accuracy"] >= rows[x]["accuracy"] for x in specs[2:]),
                 "LeanKV is at least as accurate as every rival in the table",
                 listing(f"`{x}` is better" for x in specs[2:] if rows[x]["accuracy"] > ours["accuracy"])))
    return s


def table2(bench):
    s = Section("table2", "Table 2: long prompts", None)
    lines = [(model, method, *row[1:], row[0]) for model, methods in printed.TABLE_2.items()
             for method, row in methods.items()]
    s.add("Paper, LongBench:\n\n" + table(("model", "method", *printed.TABLE_2_TASKS, "memory, %"), lines))
    choice = bench.choice()
    specs = ["f16", choice.spec, "k4v2", "topk:keep=25%,format=f16"]
    rows = {spec: bench.rows.tasks(s, spec, "long") for spec in specs}
    names = list(rows["f16"]["tasks"])
    s.add("Here, prompts of about 1800 and 3400 tokens:\n\n" +
          table(("KV", *names, "**mean**", "memory, %"),
                [(f"`{x}`", *(percent(rows[x]["tasks"][n]["accuracy"]) for n in names), percent(rows[x]["accuracy"]),
                  percent(rows[x]["fraction"])) for x in specs]))
    s.add(noise(list(rows.values())))
    deltas = [mean(a - b for a, b in zip(m["LeanKV"][1:], m["FP16"][1:])) for m in printed.TABLE_2.values()]
    ours = rows[choice.spec]
    s.say(f"The paper's LeanKV averages {listing(f'{d:+.1f}' for d in deltas)} points against FP16; here "
          f"{points(ours['accuracy'] - rows['f16']['accuracy'])} points at {percent(ours['fraction'])} %.",
          agrees(ours["accuracy"] >= rows[specs[3]]["accuracy"],
                 "it is at least as accurate as pruning to a quarter with equal budgets"),
          f"The latter has {percent(rows[specs[3]]['accuracy'])} % at {percent(rows[specs[3]]['fraction'])} % of the "
          "bytes.")
    return s


def table3(bench):
    s = Section("table3", "Table 3: long generations", None)
    s.add("Paper, QwQ-32B:\n\n" + table(
        ("accuracy (memory, %)", *printed.TABLE_3_METHODS),
        [(n, *(f"{printed.accuracy(c)}" + (f" ({printed.memory(c)})" if printed.memory(c) else "") for c in row))
         for n, row in printed.TABLE_3.items()]))
    choice = bench.choice()
    specs = ["f16", choice.spec, "k4v4", "k4v2", "topk:keep=50%,format=f16"]
    rows = {spec: bench.rows.tasks(s, spec) for spec in specs}
    names = [n for n in rows["f16"]["tasks"] if n in GENERATION]
    means = {x: accuracy_of(rows[x], names) for x in specs}
    s.add("Here:\n\n" + table(("accuracy (memory, %)", *(f"`{x}`" for x in specs)),
                              [(n, *(cell(rows[x], n) for x in specs)) for n in names] +
                              [("**mean**", *(percent(means[x]) for x in specs))]))
    s.say(f"LeanKV against f16: {points(means[choice.spec] - means['f16'])} points; uniform k4v2 "
          f"{points(means['k4v2'] - means['f16'])}, half of the tokens pruned "
          f"{points(means[specs[4]] - means['f16'])}.",
          agrees(all(means[choice.spec] >= means[x] for x in specs[2:]), "LeanKV is at least as accurate as its rivals",
                 listing(f"`{x}` is better" for x in specs[2:] if means[x] > means[choice.spec])),
          agrees(min(means[x] for x in specs[2:]) < means[choice.spec] - 0.05,
                 "long generations tell the methods apart (here: by 5 points and more)"))
    return s
