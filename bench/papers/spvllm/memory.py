# SPDX-License-Identifier: MIT
"""The paper's figures of memory: Fig 2, Fig 3, Table 1, and the same for other policies."""
from lab.page import Section, agrees, number, table
from spvllm import printed, runs

SPARKS = "▁▂▃▄▅▆▇█"
LONG_POOL = 64  # MiB: one sequence


def spark(values, top=100):
    """A character for each value of 0..top; the lowest for all that rounds to 0."""
    return "".join(SPARKS[min(7, round(v / top * 7))] for v in values)


def shrunk(values, n):
    """n of them, evenly spaced."""
    if len(values) <= n:
        return values
    return [values[round(i * (len(values) - 1) / (n - 1))] for i in range(n)]


def rows_of(bench):
    """[(name, budget, spec)]: without sparsification, and every strategy with every budget."""
    return [("no sparsification", None, runs.FULL)] + [(runs.NAMES[how], budget, runs.spec_of(budget, how))
                                                       for budget in bench.budgets for how in runs.HOWS]


def fig2(bench):
    s = Section("fig2", "Figure 2: fragmentation over the steps", printed.SAYS["steps"])
    found = {kv: bench.runs.counted(s, kv, LONG_POOL, bench.runs.one) for _, _, kv in rows_of(bench)}
    places = [i for i in range(0, (bench.n_long - 225) // 100, 2)]
    rows = []
    for name, budget, kv in rows_of(bench):
        medians = found[kv]["fragmentation"]["medians"]
        rows.append((budget or "-", name, spark(medians), *(medians[i] for i in places)))
    s.add(f"One request of 225 tokens in and {bench.n_long - 225} out. Median of 100 steps, in %; a character for each 100 "
          "steps, from 0 to 100 %:\n\n" + table(("budget", "strategy", "", *(f"from {100 * i}" for i in places)), rows))
    every = [bench.runs.counted(s, kv, bench.pool, None) for _, _, kv in rows_of(bench)]
    rows = [(budget or "-", name, len(run["steps"]), spark(shrunk(run["fragmentation"]["medians"], 24)),
             run["fragmentation"]["median"]) for (name, budget, _), run in zip(rows_of(bench), every)]
    s.add(f"The {len(bench.runs.requests)} requests in a pool of {bench.pool} MiB: of a running request, median of 100 "
          "steps along the run, and of all:\n\n" + table(("budget", "strategy", "steps", "", "median, %"), rows))
    judge_steps(s, bench, {kv: run["fragmentation"]["medians"] for kv, run in found.items()})
    return s


def judge_steps(s, bench, medians):
    least = bench.budgets[0]
    of = {how: medians[runs.spec_of(least, how)] for how in runs.HOWS}
    grown = {how: v[-1] - v[0] for how, v in of.items()}
    s.say(agrees(grown["none"] > 40, f"no-op grows without end (budget {least}: {of['none'][0]} to {of['none'][-1]} %)"),
          agrees(max(of["reuse"]) - min(of["reuse"]) <= 2, f"reuse is flat ({min(of['reuse'])} to {max(of['reuse'])} %)"),
          agrees(max(of["copy"]) <= max(medians[runs.FULL]) + 2, "copy is as without sparsification"),
          agrees(of["none"][-1] - of["block"][-1] >= 10,
                 "free-block stays well below no-op",
                 f"it has {of['block'][-1]} against {of['none'][-1]} % at the end. With h2o what is kept lies scattered, "
                 "and few pages lose all of their sixteen tokens"),
          "With reuse a lane holds a page that its open hole keeps: one in seventeen at 256 tokens of 16.")


def p99_of(bench, s):
    return {kv: bench.runs.counted(s, kv, bench.pool)["fragmentation"]["p99"] for _, _, kv in rows_of(bench)}


def fig3(bench):
    s = Section("fig3", "Figure 3: fragmentation at p99", printed.SAYS["p99"])
    p99 = p99_of(bench, s)
    rows = [(budget, p99[runs.FULL], *(p99[runs.spec_of(budget, how)] for how in runs.HOWS)) for budget in bench.budgets]
    s.add("Of one running request after one step, over all of both, in % (rounded down), not divided by anything:\n\n" +
          table(("budget", "no sparsification", *(runs.NAMES[h] for h in runs.HOWS)), rows))
    full, least = p99[runs.FULL], bench.budgets[0]
    reuse, block, none = (p99[runs.spec_of(least, how)] for how in ("reuse", "block", "none"))
    s.say(met(reuse - full <= 3, f"at budget {least} reuse is within 3 points of a paged cache without sparsification",
              f"{reuse - full:+d}"),
          met(block - reuse >= 15, "it is at least 15 points below free-block", f"{reuse - block:+d}; paper -21.2"),
          met(none - reuse >= 45, "it is at least 45 points below no-op", f"{reuse - none:+d}; paper -55.7"),
          agrees(all(a[i] >= b[i] for a, b in zip(rows, rows[1:]) for i in (4, 5)),
                 "free-block and no-op lose less with larger budgets"))
    s.add("What is left with reuse is what any paged cache has: a request's first tokens in pages of 16. Long "
          "requests weigh more, since they run for more steps.")
    return s


def met(condition, what, by):
    """A sentence about a requirement."""
    return f"{'Met' if condition else 'Not met'}: {what} ({by})."


def table_policies(bench):
    s = Section("policies", "Other policies", "")
    rows = []
    for policy in ("h2o", "streaming", "random"):
        found = [bench.runs.counted(s, runs.spec_of(256, how, policy), bench.pool) for how in runs.HOWS]
        rows += [(policy, what, *(value(r) for r in found)) for what, value in
                 (("p99, %", lambda r: r["fragmentation"]["p99"]), ("median, %", lambda r: r["fragmentation"]["median"]),
                  ("preempted", lambda r: r["preempted"]))]
    s.add(table(("budget 256", "", *(runs.NAMES[h] for h in runs.HOWS)), rows))
    block = {row[0]: row[4] for row in rows if row[1] == "p99, %"}
    s.say("What free-block can do depends on where a policy drops. With streaming the oldest go, page after page "
          f"({block['streaming']} %); h2o and random drop anywhere ({block['h2o']} and {block['random']} %). To "
          "reuse it makes no difference.")
    return s


def table1(bench):
    s = Section("table1", "Table 1: copying", printed.SAYS["copies"])
    rows, shares = [], []
    timed = bench.runs.served(s, bench.kvs, bench.pool)
    for budget, (said_n, said_ms) in zip(bench.budgets, printed.COPIES.values()):
        copy, reuse = (timed[runs.spec_of(budget, how)] for how in ("copy", "reuse"))
        run = bench.runs.counted(s, runs.spec_of(budget, "copy"), bench.pool)
        ms = copy["compaction_ms"] - reuse["compaction_ms"]  # without the search for victims, the same in both
        shares.append(ms / 1e3 / copy["duration"])
        rows.append((budget, said_n, said_ms, run["moving_steps"], f"{run['tokens_moved']:,}", f"{ms:.0f}",
                     number(1e3 * ms / run["moving_steps"], 0), number(100 * shares[-1], 1)))
    s.add(table(("budget", "copies: paper", "ms: paper", "steps that copy", "tokens copied, of all lanes", "ms in all",
                 "us a step that copies", "% of the run"), rows))
    s.say("Every eviction copies all that a lane keeps, as the paper's does: 256 tokens for one.",
          agrees(max(shares) < 0.02, "copying is next to nothing",
                 f"it is {100 * min(shares):.0f} to {100 * max(shares):.0f} % of the run on a CPU, whose memory and cores "
                 "the copies share with everything else"))
    return s
