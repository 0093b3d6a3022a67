# SPDX-License-Identifier: MIT
"""What representatives cost: Figures 2 and 3."""
import os
import statistics

from kvcrush import printed
from kvcrush.crush import HALF, MIDDLE, anchor_spec
from lab.page import Section, agrees, number, percent, table
from lab.samples import REFERENCE, delta_text, evicting, is_clear, with_error

PROMPT = 4096
STEPS = 64


def read_stage(text):
    """{(unit, anchor): {ms, added, times}} of what bench_crush prints."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 3 and words[0] in ("token", "page"):
            ms, added, times = (float(w) for w in (*words[2:], "nan", "nan")[:3])
            found[" ".join(words[:2])] = {"ms": ms, "added": added, "times": times}
    if len(found) != 10:
        raise ValueError(f"{len(found)} rows of a stage, not 10")
    return found


def stage(bench, s):
    """The median over turns of each figure of bench_crush."""
    program = os.path.join(os.path.dirname(bench.pleat), "bench", "bench_crush")
    turns = []
    for turn in range(bench.n_turns):
        record = bench.lab.measure("stage", "-n", PROMPT, "-b", PROMPT * MIDDLE // 100, "-s", 25, program=program,
                                   turn=turn, parse=read_stage)
        s.used({**record, "command": record["command"].replace(program, "build/bench/bench_crush")})
        turns.append(record["result"])
    return {key: {what: statistics.median(t[key][what] for t in turns) for what in row} for key, row in turns[0].items()}


def timed(bench, s, *shape):
    """{spec: [row of each turn]} of `pleat bench run`, all specs in each turn."""
    specs = (REFERENCE, evicting("h2o", MIDDLE), anchor_spec("mean", MIDDLE), anchor_spec("kmeans", MIDDLE))
    kvs = [word for spec in specs for word in ("--kv", spec)]
    found = {spec: [] for spec in specs}
    for turn in range(bench.n_turns):
        record = bench.lab.measure("run", "bench", "run", "-m", bench.model, *shape, "-r", 1, *kvs, "--format", "json",
                                   "-q", turn=turn)
        s.used(record)
        for spec, row in zip(specs, record["result"]["rows"]):
            found[spec].append(row)
    return found


def ms_of(row):
    """(a prompt or STEPS tokens, of that the policy and moves) in milliseconds."""
    ms = 1e3 * row["params"]["n"] / row["tokens_per_s"]
    return ms, ms * (row["memory_management"]["compaction"] or 0)


def middle(rows, part):
    return statistics.median(ms_of(row)[part] for row in rows)


def fig2(bench):
    s = Section("fig2", "Figure 2: latency of a prompt and of a step", printed.SAYS["fig2"])
    layers = stage(bench, s)
    prompt = timed(bench, s, "-p", PROMPT, "-n", 0)
    step = timed(bench, s, "-p", 0, "-n", STEPS, "-d", PROMPT - STEPS)
    plain, crushed = evicting("h2o", MIDDLE), anchor_spec("mean", MIDDLE)
    lines = []
    for spec in (REFERENCE, plain, crushed):
        ms, policy = (middle(prompt[spec], part) for part in (0, 1))
        lines.append((f"`{spec}`", number(ms, 0), number(policy, 2), percent(policy / ms, 2),
                      number(middle(step[spec], 0) / STEPS, 2), percent(prompt[spec][0]["fraction"])))
    s.add(table(("KV", f"prompt of {PROMPT}, ms", "policy and moves, ms", "% of the prompt",
                 f"step at {PROMPT} tokens, ms", "bytes, % of f16"), lines))
    s.add(f"Medians of {bench.n_turns} turns, all rows in each. Policy and moves: ranks, fingerprints, representatives "
          "and what moves to free pages, once a prompt. A step is one token of one sequence, weights and all.")
    added = layers["token mean"]["added"] * bench.n_layers
    base = middle(prompt[plain], 0)
    extra = middle(prompt[crushed], 1) - middle(prompt[plain], 1)
    s.add(f"The stage alone (`build/bench/bench_crush`) takes {layers['token mean']['added']:.3f} ms a layer beyond "
          f"the choice of important tokens. For {bench.n_layers} layers that is {added:.2f} ms, "
          f"{percent(added / base, 2)} % of that prompt. By pages it takes {layers['page mean']['added']:.3f} ms a "
          "layer.")
    s.say(f"With representatives a prompt of {PROMPT} tokens spends {extra:.2f} ms more on policy and moves, "
          f"{percent(extra / base, 2)} % of it (paper: about 0.2 %).",
          agrees(extra / base < 0.005 and added / base < 0.005, "KVCrush costs less than 0.5 % of a prompt"),
          f"A whole prompt takes {middle(prompt[crushed], 0) / base:.3f} times h2o's time, which also counts a score "
          "for each query head in place of their sum, and the machine's noise.")
    return s


def fig3(bench):
    s = Section("fig3", "Figure 3: k-means against representatives by one anchor", printed.SAYS["fig3"])
    n = bench.n_blocks
    layers, prompt = stage(bench, s), timed(bench, s, "-p", PROMPT, "-n", 0)
    whole, base = (middle(prompt[evicting("h2o", MIDDLE)], part) for part in (0, 1))
    lines, deltas = [], {}
    for name, anchor in (("h2o", None), ("kvcrush", "mean"), ("kmeans", "kmeans")):
        judged, run = (anchor_spec(anchor, b) if anchor else evicting("h2o", b) for b in (HALF, MIDDLE))
        deltas[name] = bench.rows.difference(s, [(evicting("h2o", HALF), judged)], n)
        ms, policy = (middle(prompt[run], part) for part in (0, 1))
        lines.append((name, with_error(bench.rows.row(s, judged, n)), delta_text(deltas[name]) if anchor else "",
                      number(layers[f"token {anchor}"]["added"] if anchor else None, 3), number(policy, 2),
                      percent((policy - base) / whole, 2), number(ms, 0)))
    s.add(table(("", "accuracy, %", "against h2o", "stage, ms a layer", "policy and moves, ms a prompt",
                 "added, % of the prompt", "prompt, ms"), lines))
    times = layers["token mean"]["times"]
    s.add(f"{4 * n} samples a task at {HALF} % of the tokens for accuracy; a prompt of {PROMPT} tokens at {MIDDLE} % "
          "for times. K-means is Lloyd's on the same fingerprints (bits), not on keys and values. It is in C, where "
          "the paper's is not described.")
    s.say(f"K-means takes {times:.1f} times as long as ordering by one anchor (median of {bench.n_turns} turns).",
          agrees(times >= 50, "representatives by one anchor are 50 times cheaper and more"),
          "In accuracy " + ("neither differs from h2o by more than two standard errors."
                            if not any(is_clear(deltas[k]) for k in ("kvcrush", "kmeans"))
                            else " and ".join(f"{k} is {delta_text(deltas[k])} points from h2o"
                                              for k in ("kvcrush", "kmeans")) + "."))
    return s
