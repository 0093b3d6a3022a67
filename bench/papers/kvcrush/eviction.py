# SPDX-License-Identifier: MIT
"""Every policy in one table: at equal tokens and, apart from that, at equal bytes."""
import math

from kvcrush.crush import INNER
from lab.page import Section, listing, number, percent, table
from lab.samples import (OFF, REFERENCE, TASKS, delta_text, evicting, is_clear, profile_path, with_error,
                         without_significance)

POLICIES = ("recent", "streaming", "random", "h2o", "snapkv", "pyramidkv", "adakv", "topk")
CALIBRATED, CONTROL = "leankv, calibrated: all tokens", "its control: significance off"
# What a first guess goes by: fractions of f16's bytes when next to nothing and when everything is kept.
ALL_KEPT = {"k8v4": 0.44, "f16": 1.04}
COLUMNS = ("KV", *TASKS, "**mean**", "perplexity", "KL", "same first", "bytes, % of f16", "bytes, text")


def add_rows(bench, s, specs, n_blocks):
    """The table of [(name, spec)]; {name: row}."""
    text = bench.rows.text(s, [spec for _, spec in specs])
    lines, rows = [], {}
    for name, spec in specs:
        row = rows[name] = bench.rows.row(s, spec, n_blocks)
        t = text.get(spec, {})
        lines.append((name, *(percent(row["tasks"][k]["accuracy"], 0) for k in TASKS), with_error(row),
                      number(t.get("perplexity")), number(t.get("kld_mean"), 4), percent(t.get("same_top1")),
                      percent(row["fraction"]), percent(t.get("fraction"))))
    s.add(table(COLUMNS, lines))
    return rows


def listed(rows):
    """The three most accurate of the rows and the least, with their accuracies."""
    order = [f"{k} ({percent(rows[k]['accuracy'])})" for k in sorted(rows, key=lambda k: -rows[k]["accuracy"])]
    return f"{listing(order[:3])}, the least {order[-1]}"


def apart(bench, s, pair, n_blocks):
    """How far the second spec is from the first, in words."""
    delta = bench.rows.difference(s, [pair], n_blocks)
    clear = "more than" if is_clear(delta) else "within"
    return f"{delta_text(delta)} points", f", {clear} two standard errors." if n_blocks > 1 else "."


# ---- equal tokens -----------------------------------------------------------------------------------


def leankv_two_levels(bench, s, target):
    """LeanKV that keeps a token whole or drops it (ah = al), with as many bytes of f16 as `target`, so as many tokens."""
    def spec_of(x):
        return f"leankv:ah={math.exp(x):.3g},al={math.exp(x):.3g},high=f16,low=f16"
    return bench.rows.search(s, spec_of, (math.log(0.5), 0.95), (math.log(30), 0.1), target)[0]


def tokens(bench, share):
    s = Section(f"tokens{share:g}", f"{share:g} % of the tokens", "")
    n = bench.n_blocks
    specs = [("f16, all", REFERENCE)]
    for policy in POLICIES:
        specs.append((policy, evicting(policy, share)))
        if policy in INNER:
            specs.append((f"{policy}+kvcrush", evicting(policy, share, crush="+kvcrush")))
    held = bench.rows.on_block(s, evicting("topk", share), 0)["fraction"]
    specs.append(("leankv, ah = al", leankv_two_levels(bench, s, held)))
    two_level = specs[-1][1]
    profile = f"leankv:profile={profile_path(bench.model)}"
    specs += [(CALIBRATED, profile), (CONTROL, without_significance(bench.calibrated))]
    rows = add_rows(bench, s, specs, n)
    s.add(f"{4 * n} samples a task; {bench.windows} windows of eval/prose.txt. Specs: `POLICY:budget={share:g}%,"
          f"format=f16` (topk: keep), `+kvcrush` with a share of 25 %, `{two_level}`, which has topk's bytes, and "
          f"`{profile}`, which drops none and stores most of them at 4 and 2 bits; its control `{specs[-1][1]}`.")
    evicts = {k: v for k, v in rows.items() if k not in ("f16, all", CALIBRATED, CONTROL)}
    best = max(evicts, key=lambda k: rows[k]["accuracy"])
    by, clear = apart(bench, s, (evicting("random", share), dict(specs)[best]), n)
    s.say(f"The most accurate are {listed(evicts)}. The best, "
          f"{best}, is {by} from random{clear} All tokens in few bits (calibrated leankv, "
          f"{percent(rows[CALIBRATED]['fraction'])} % of f16's bytes) give {percent(rows[CALIBRATED]['accuracy'])} %, and "
          f"by position alone (its control, {percent(rows[CONTROL]['fraction'])} %) {percent(rows[CONTROL]['accuracy'])} %.")
    return s


def tokens25(bench):
    return tokens(bench, 25)


def tokens12(bench):
    return tokens(bench, 12.5)


# ---- equal bytes ------------------------------------------------------------------------------------


def leankv_at(bench, s, target):
    def spec_of(x):
        return f"leankv:ah={math.exp(x):.3g},al=0"
    return bench.rows.search(s, spec_of, (math.log(0.7), 0.43), (math.log(40), 0.235), target)[0]


def control_at(bench, s, target):
    """leankv without significance: the newest tokens high, the others low."""
    def spec_of(x):
        return f"leankv:ah={OFF},al=0,window={round(x)}"
    return bench.rows.search(s, spec_of, (16, 0.235), (2400, 0.43), target)[0]


def budgets_at(bench, s, policies, form, target):
    """[(name, spec)]; the budget that one policy needs is the next one's first guess."""
    specs, hint, full = [], None, ALL_KEPT[form]
    for policy in policies:
        spec, hint = bench.rows.search(s, lambda x, policy=policy: evicting(policy, round(100 * x, 1), form),
                                       (0.02, 0.02 + 0.02 * full), (1.0, full), target, hint)
        specs.append((f"{policy}, {form}", spec))
    return specs


def bytes_at(bench, percent_of_f16):
    s = Section(f"bytes{percent_of_f16}", f"{percent_of_f16} % of f16's bytes", "")
    n, target = bench.n_few, percent_of_f16 / 100
    specs = [("f16, all", REFERENCE), *budgets_at(bench, s, POLICIES, "k8v4", target),
             *budgets_at(bench, s, ("h2o", "snapkv"), "f16", target)]
    specs += [("leankv", leankv_at(bench, s, target)), (CONTROL, control_at(bench, s, target))]
    rows = add_rows(bench, s, specs, n)
    s.add(f"{4 * n} samples a task; {bench.windows} windows of eval/prose.txt. The text's bytes may differ: its samples "
          "are longer, and policies that evict in prompts alone grow with what is generated. Budgets were searched "
          "until the bytes of the tasks agree:\n\n" + "\n".join(f"- {name} `{spec}`" for name, spec in specs[1:]))
    lean, rest = rows["leankv"], {k: r for k, r in rows.items() if k not in ("f16, all", "leankv", CONTROL)}
    best = max(rest, key=lambda k: rest[k]["accuracy"])
    by, clear = apart(bench, s, (dict(specs)[best], dict(specs)["leankv"]), n)
    from_control, clear_of_it = apart(bench, s, (dict(specs)[CONTROL], dict(specs)["leankv"]), n)
    off = max(abs(r["fraction"] - target) for k, r in rows.items() if k != "f16, all")
    s.say(f"The accuracy of leankv is {percent(lean['accuracy'])} %. Of those that evict the most accurate are "
          f"{listed(rest)}. Here leankv is {by} from the best that evicts, {best}{clear} It is {from_control} "
          f"from its control, which looks at no attention{clear_of_it} Bytes are within "
          f"{100 * off:.1f} points of {percent_of_f16} %.")
    return s


def bytes36(bench):
    return bytes_at(bench, 36)


def bytes25(bench):
    return bytes_at(bench, 25)
