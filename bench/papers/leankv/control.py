# SPDX-License-Identifier: MIT
"""LeanKV as calibrated and its control, which looks at no attention: Fig 9, 10, Tables 1-3."""
from lab.page import Section, agrees, listing, mean, percent, points, table
from lab.samples import GENERATION, RETRIEVAL, TASKS, keys_of, without_significance
from leankv import printed
from leankv.accuracy import HEAD_DIM, UNIFORM, WITHIN, accuracy_of, noise, share_at, token_bytes

EQUAL = 0.01  # of the bytes: as near as whole pages let a control's window come, as a rule
GROWTH = 0.0002  # of f16's bytes that a token more of window takes, about, until two windows are known

# ---- the control --------------------------------------------------------------------------------------


def control_of(bench, section, spec, tasks="main"):
    """leankv with significance off, and a window with which it has the bytes of `spec`, or nearly: the nearest of four
    at most."""
    wanted, window, found = bench.rows.tasks(section, spec, tasks)["fraction"], int(keys_of(spec).get("window", 64)), {}
    while len(found) < 4 and window not in found:
        found[window] = bench.rows.tasks(section, without_significance(spec, window), tasks)["fraction"]
        if abs(found[window] - wanted) <= EQUAL * wanted:
            break
        known = list(found.items())[-2:]
        slope = (known[1][1] - known[0][1]) / (known[1][0] - known[0][0]) if len(known) > 1 else GROWTH
        if slope <= 0:
            break
        window = min(4096, max(1, round(window + (wanted - found[window]) / slope)))
    return without_significance(spec, min(found, key=lambda w: abs(found[w] - wanted)))


def calibrated_and_control(bench, section, tasks="main"):
    """[the model's own profile, its control]; the second is left out where it is the same."""
    return list(dict.fromkeys([bench.calibrated, control_of(bench, section, bench.calibrated, tasks)]))


def say_control(section, rows, spec, control, accuracy=lambda row: row["accuracy"]):
    """What the spec is beyond its control: a sentence, and whether that is anything."""
    gap = accuracy(rows[spec]) - accuracy(rows[control])
    section.say(f"Its control, with significance off, is `{control}`: {percent(rows[control]['fraction'])} % of f16's bytes "
                f"against {percent(rows[spec]['fraction'])}, and {points(gap)} points from it to LeanKV.",
                "" if gap > 0 else "So here attention brings no answers that a window does not.")


# ---- Figure 9: calibration --------------------------------------------------------------------------


class Sweep:
    """What `pleat calibrate` finds on samples that no other table uses, with the paper's window: the curve, the best point
    of it and that one's control.  It is not what "calibrated" means: that is the model's own profile.

    The loss that it tolerates is half a point or, where the samples cannot show that, one answer of a task.
    """

    def __init__(self, bench):
        ah, al = (",".join(f"{x:g}" for x in xs) for xs in (bench.ah, bench.al))
        program = bench.lab.hash_of(bench.pleat)[:12]
        kept = f"{bench.store}/profile-{program}-{bench.n_calibration}-{len(bench.ah)}.json"
        tolerance = max(WITHIN, 1 / len(TASKS) / bench.n_calibration + 1e-6)
        self.record = bench.lab.measure(
            "calibration", "calibrate", "-m", bench.model, "--tasks", bench.sets["calibration"], "--half", "all", "--ah", ah,
            "--al", al, "--tolerance", f"{tolerance:.6f}", "--format", "json", "-q", output=kept)
        profile = self.record["result"]
        self.f16, self.curve, self.tolerance = profile["f16"], profile["curve"], profile["tolerance"]
        self.chosen = profile["kv"]
        self.best = next(p for p in self.curve if p["kv"] == profile["best"])
        self.control = next((p for p in profile["controls"] if p["kv"] == profile["control"]), None)

    def most_accurate(self):
        """The paper's rule: the best accuracy over ah with al = 0, then over al; of equals the smallest."""
        def best(points_):
            return max(points_, key=lambda p: (round(p["accuracy"], 6), -p["fraction"]))
        ah = best([p for p in self.curve if p["al"] == 0])["ah"]
        return best([p for p in self.curve if p["ah"] == ah])


def sweep_rows(sweep):
    f16 = sweep.f16["accuracy"]
    yield ("f16", "", "", percent(f16), "", percent(sweep.f16["fraction"]), "")
    for p in [*sweep.curve, *([sweep.control] if sweep.control else [])]:
        mark = "**best of the sweep**" if p is sweep.best else "its control" if p is sweep.control else ""
        yield ("off" if p is sweep.control else f"{p['ah']:g}", f"{p['al']:g}", keys_of(p["kv"]).get("window", 64),
               percent(p["accuracy"]), points(p["accuracy"] - f16), percent(p["fraction"]), mark)


def say_sweep(s, sweep):
    f16, rule = sweep.f16["accuracy"], sweep.most_accurate()
    off = [p for p in sweep.curve if p["al"] == 0 and p["ah"] <= 5 and p["accuracy"] < f16 - 2 * WITHIN]
    s.say(f"Best: `{sweep.best['kv']}`; the paper's rule would give ah={rule['ah']:g} al={rule['al']:g}.",
          f"By accuracy it is {points(sweep.best['accuracy'] - sweep.control['accuracy'])} points from its control; "
          f"calibration takes {'it' if sweep.chosen == sweep.best['kv'] else 'the control'}." if sweep.control else "",
          agrees(not off, "every ah up to 5 is as accurate as f16 (here: within a point)",
                 f"the worst is {points(min(p['accuracy'] for p in off) - f16)} points off" if off else None))
    costly = [p for p in sweep.curve if p["al"] > 0]
    if costly:
        s.say(f"With ah = {costly[0]['ah']:g}, " + listing(f"al = {p['al']:g} is {points(p['accuracy'] - f16)}"
                                                          for p in costly) +
              " points from f16 (paper: al = 0.1 costs at least 5 % on the larger models).")


def fig9(bench):
    s = Section("fig9", "Figure 9: calibration of ah and al", printed.SAYS["fig9"])
    sweep = bench.sweep()
    s.used(sweep.record)
    s.add(table(("ah", "al", "window", "accuracy, %", "against f16", "bytes, % of f16", ""), sweep_rows(sweep)))
    s.add(f"{bench.n_calibration} samples a task, none of which is in another table. Best are the fewest bytes "
          f"within {percent(sweep.tolerance)} points of f16 (half a point, or one answer of a task if that is more); "
          "the paper takes the most accurate. Its control has significance off, and a window that makes the bytes equal. "
          f"The other tables have the model's own profile, `{bench.calibrated}`, which was found with more samples.")
    s.add("The paper's choices: " + "; ".join(f"{m} ah={ah:g} al={al:g}" for m, ah, al in printed.CALIBRATED) + ".")
    say_sweep(s, sweep)
    return s


# ---- Figure 10 and the tables -----------------------------------------------------------------------


def fig10_specs(bench, s):
    """(specs, those of LeanKV by thresholds, {each of them: its control}, the equal budgets of the calibrated one's bytes)."""
    chosen = bench.calibrated
    lean = list(dict.fromkeys([*(f"leankv:ah={ah:g},al=0" for ah in bench.ah_shown), chosen]))
    controls = {spec: control_of(bench, s, spec) for spec in lean}
    same_bytes = topk_of_bytes(bench, s, chosen)
    specs = ["f16", *UNIFORM, *lean, *controls.values(), chosen + ",step=code", chosen + ",threshold=position",
             *(f"topk:keep={keep}%,format=k8v4" for keep in bench.keeps), same_bytes]
    return list(dict.fromkeys(specs)), lean, controls, same_bytes


def fig10(bench):
    s = Section("fig10", "Figure 10: accuracy against memory", printed.SAYS["fig10"])
    chosen = bench.calibrated
    specs, lean, controls, same_bytes = fig10_specs(bench, s)
    rows = {spec: bench.rows.tasks(s, spec) for spec in specs}
    lines = []
    names = list(rows["f16"]["tasks"])
    for spec in sorted(specs, key=lambda x: -rows[x]["fraction"]):
        row, levels = rows[spec], bench.rows.levels(s, spec)
        note = ("calibrated" if spec == chosen else "bytes as calibrated" if spec == same_bytes else
                control_note([k for k, control in controls.items() if control == spec], chosen))
        lines.append((f"`{spec}`", percent(row["accuracy"]), points(row["accuracy"] - rows["f16"]["accuracy"]),
                      percent(accuracy_of(row, [n for n in names if n in RETRIEVAL])),
                      percent(accuracy_of(row, [n for n in names if n in GENERATION])), percent(row["fraction"]),
                      percent(share_at(spec, 128, levels)), "yes" if is_best(spec, rows) else "", note))
    s.add(table(("KV", "accuracy, %", "against f16", "retrieval", "long generation", "bytes, % of f16", "d = 128",
                 "nothing smaller is as accurate", ""), lines))
    s.add("Everything is counted: pages with their unused slots, tables, lane records. Column d = 128 has the same "
          "tokens at that head dimension, without slack. Of the paper's rivals H2O and SnapKV stand in eviction.md "
          "and KIVI in kvcomp.md; Quest is not built. Pruning with equal budgets is `topk`. A control has significance off, "
          "and the bytes of the row that it belongs to. " + noise([rows["f16"]]))
    say_memory(s, rows, chosen, same_bytes, lean)
    say_controls(s, rows, controls)
    return s


def control_note(of, chosen):
    return "control of " + listing("calibrated" if k == chosen else f"ah={keys_of(k)['ah']}" for k in of) if of else ""


def say_controls(s, rows, controls):
    gaps = [rows[spec]["accuracy"] - rows[control]["accuracy"] for spec, control in controls.items()]
    s.say(f"Beyond their controls the rows {listing(f'`{spec}`' for spec in controls)} gain "
          f"{listing(points(g) for g in gaps)} points.",
          "So attention brings no answers here that a window of as many bytes does not." if max(gaps) <= 0 else "")


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
    lean, *controls = calibrated_and_control(bench, s)
    others = ["k4v4", "k4v2", "topk:keep=50%,format=f16", topk_of_bytes(bench, s, lean)]
    specs = ["f16", lean, *controls, *others]
    rows = {spec: bench.rows.tasks(s, spec) for spec in specs}
    names = list(rows["f16"]["tasks"])
    s.add("Here:\n\n" + table(("accuracy (memory, %)", *(f"`{x}`" for x in specs)),
                              [(n, *(cell(rows[x], n) for x in specs)) for n in names] +
                              [("**mean**", *(f"{percent(rows[x]['accuracy'])} ({percent(rows[x]['fraction'], 0)})"
                                              for x in specs))]))
    s.add(noise(list(rows.values())))
    loss, low, high = paper_summary()
    ours = rows[lean]
    shares = [t["fraction"] for t in ours["tasks"].values()]
    delta = ours["accuracy"] - rows["f16"]["accuracy"]
    s.say(f"The paper's LeanKV cells average {loss:+.1f} points at {low} to {high} % of FP16's memory. Here it is "
          f"{points(delta)} points at {percent(min(shares))} to {percent(max(shares))} %, "
          f"{percent(ours['fraction'])} % over all samples.",
          agrees(max(shares) > 1.15 * min(shares), "memory follows the task: some need noticeably more than others"),
          agrees(all(ours["accuracy"] >= rows[x]["accuracy"] for x in others),
                 "LeanKV is at least as accurate as every rival in the table",
                 listing(f"`{x}` is better" for x in others if rows[x]["accuracy"] > ours["accuracy"])))
    for control in controls:
        say_control(s, rows, lean, control)
    return s


def table2(bench):
    s = Section("table2", "Table 2: long prompts", None)
    lines = [(model, method, *row[1:], row[0]) for model, methods in printed.TABLE_2.items()
             for method, row in methods.items()]
    s.add("Paper, LongBench:\n\n" + table(("model", "method", *printed.TABLE_2_TASKS, "memory, %"), lines))
    lean, *controls = calibrated_and_control(bench, s, "long")
    pruning = "topk:keep=25%,format=f16"
    specs = ["f16", lean, *controls, "k4v2", pruning]
    rows = {spec: bench.rows.tasks(s, spec, "long") for spec in specs}
    names = list(rows["f16"]["tasks"])
    s.add("Here, prompts of about 1800 and 3400 tokens:\n\n" +
          table(("KV", *names, "**mean**", "memory, %"),
                [(f"`{x}`", *(percent(rows[x]["tasks"][n]["accuracy"]) for n in names), percent(rows[x]["accuracy"]),
                  percent(rows[x]["fraction"])) for x in specs]))
    s.add(noise(list(rows.values())))
    deltas = [mean(a - b for a, b in zip(m["LeanKV"][1:], m["FP16"][1:])) for m in printed.TABLE_2.values()]
    ours = rows[lean]
    s.say(f"The paper's LeanKV averages {listing(f'{d:+.1f}' for d in deltas)} points against FP16; here "
          f"{points(ours['accuracy'] - rows['f16']['accuracy'])} points at {percent(ours['fraction'])} %.",
          agrees(ours["accuracy"] >= rows[pruning]["accuracy"],
                 "it is at least as accurate as pruning to a quarter with equal budgets"),
          f"The latter has {percent(rows[pruning]['accuracy'])} % at {percent(rows[pruning]['fraction'])} % of the "
          "bytes.")
    for control in controls:
        say_control(s, rows, lean, control)
    return s


def table3(bench):
    s = Section("table3", "Table 3: long generations", None)
    s.add("Paper, QwQ-32B:\n\n" + table(
        ("accuracy (memory, %)", *printed.TABLE_3_METHODS),
        [(n, *(f"{printed.accuracy(c)}" + (f" ({printed.memory(c)})" if printed.memory(c) else "") for c in row))
         for n, row in printed.TABLE_3.items()]))
    lean, *controls = calibrated_and_control(bench, s)
    pruning = "topk:keep=50%,format=f16"
    others = ["k4v4", "k4v2", pruning]
    specs = ["f16", lean, *controls, *others]
    rows = {spec: bench.rows.tasks(s, spec) for spec in specs}
    names = [n for n in rows["f16"]["tasks"] if n in GENERATION]
    means = {x: accuracy_of(rows[x], names) for x in specs}
    s.add("Here:\n\n" + table(("accuracy (memory, %)", *(f"`{x}`" for x in specs)),
                              [(n, *(cell(rows[x], n) for x in specs)) for n in names] +
                              [("**mean**", *(percent(means[x]) for x in specs))]))
    s.say(f"LeanKV against f16: {points(means[lean] - means['f16'])} points; uniform k4v2 "
          f"{points(means['k4v2'] - means['f16'])}, half of the tokens pruned "
          f"{points(means[pruning] - means['f16'])}.",
          agrees(all(means[lean] >= means[x] for x in others), "LeanKV is at least as accurate as its rivals",
                 listing(f"`{x}` is better" for x in others if means[x] > means[lean])),
          agrees(min(means[x] for x in others) < means[lean] - 0.05,
                 "long generations tell the methods apart (here: by 5 points and more)"))
    for control in controls:
        say_control(s, rows, lean, control, lambda row: accuracy_of(row, names))
    return s
