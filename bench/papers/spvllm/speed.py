# SPDX-License-Identifier: MIT
"""The paper's figures of speed: Fig 4 to 6, preemptions; other pools, and a machine whose memory is the limit."""
from lab.page import Section, agrees, listing, number, percent, table
from spvllm import printed, runs
from spvllm.memory import met, rows_of

LONG_READ = 256  # prompt tokens of a step: the time of about a dozen steps without


def fig4(bench):
    s = Section("fig4", "Figures 4 and 5: throughput", printed.SAYS["throughput"])
    timed = bench.runs.served(s, bench.kvs, bench.pool)
    full = timed[runs.FULL]
    rows = [(budget or "-", name, number(r["request_throughput"]), f"{r['output_throughput']:.0f}",
             f"{r['total_token_throughput']:.0f}", number(r["request_throughput"] / full["request_throughput"]),
             number(r["mean_concurrency"], 1), percent(r["pool_used_mean"], 0), f"{r['steps']:.0f}")
            for name, budget, r in ((n, b, timed[kv]) for n, b, kv in rows_of(bench))]
    s.add(f"A pool of {bench.pool} MiB; medians of {bench.rounds} rounds, not divided by what is in use:\n\n" +
          table(("budget", "strategy", "requests/s", "generated tokens/s", "tokens/s, prompts too", "to no sparsification",
                 "at once, mean", "pool in use, mean, %", "steps"), rows))
    least = bench.budgets[0]
    speed = {how: timed[runs.spec_of(least, how)]["request_throughput"] for how in runs.HOWS}
    gain = speed["reuse"] / full["request_throughput"]
    s.say(met(gain >= 2.2, f"with budget {least} reuse serves 2.2 times the requests of no sparsification",
              f"{gain:.2f}; paper {printed.THROUGHPUT}"),
          met(max(speed, key=speed.get) == "reuse", "reuse is first of the four",
              ", ".join(f"{how} {v:.2f}" for how, v in speed.items())),
          *why(bench, timed, gain))
    return s


def why(bench, timed, gain):
    """Sentences on what the gain is made of."""
    least, most = bench.budgets[0], bench.budgets[-1]
    full, reuse = timed[runs.FULL], timed[runs.spec_of(least, "reuse")]
    bound = runs.most_gain(bench.runs.requests, least)
    yield (f"While it generates, a request of this trace holds {bound:.2f} times the tokens that a budget of {least} "
           "leaves it. So many more can run in the same memory, whatever the strategy. "
           f"{reuse['mean_concurrency'] / full['mean_concurrency']:.2f} times as many did, which took "
           f"{full['steps'] / reuse['steps']:.2f} times fewer steps.")
    if gain < bound:
        yield ("On two cores that brings less in time: a step is bound by reading the weights up to about four requests, by "
               "arithmetic beyond.")
    if most > least and timed[runs.spec_of(most, "reuse")]["preempted_recompute"] < full["preempted_recompute"]:
        share = timed[runs.spec_of(most, "reuse")]["request_throughput"] / full["request_throughput"]
        yield (f"Part of the gain does not come from fewer tokens. With budget {most}, which few requests reach, it "
               f"is {share:.2f}: nothing is computed again, since what a request can hold at most is known when it "
               "is admitted.")


def fig6(bench):
    s = Section("fig6", "Figure 6: latency at p99", printed.SAYS["latency"])
    timed = bench.runs.served(s, bench.kvs, bench.pool)
    keys = ("p99_ttft_ms", "p99_tpot_ms", "p99_itl_ms", "median_itl_ms")
    rows = [(budget or "-", name, *(number(timed[kv][k], 0 if k == keys[0] else 1) for k in keys))
            for name, budget, kv in rows_of(bench)]
    s.add(f"A pool of {bench.pool} MiB, all requests there from the start; ms:\n\n" +
          table(("budget", "strategy", "to the first token, p99", "per output token, p99", "between tokens, p99",
                 "between tokens, median"), rows))
    s.say(*judge_latency(bench, s, timed))
    return s


def less(timed, kv, key):
    return 1 - timed[kv][key] / timed[runs.FULL][key]


def judge_latency(bench, s, timed):
    kv = runs.spec_of(bench.budgets[0], "reuse")
    itl, tpot, ttft = (less(timed, kv, f"p99_{k}_ms") for k in ("itl", "tpot", "ttft"))
    yield met(itl >= 0.4, f"with budget {bench.budgets[0]} reuse has 40 % less between tokens at p99",
              f"{percent(itl)} %; paper {percent(printed.ITL)}")
    others = {b: less(timed, runs.spec_of(b, "reuse"), "p99_itl_ms") for b in bench.budgets[1:]}
    if others:
        yield "With " + listing(f"{b} it is {percent(v)} % less" for b, v in others.items()) + "."
    yield f"Per output token it is {percent(tpot)} % less (paper: {percent(printed.TPOT)})."
    yield agrees(abs(ttft) < 0.1, "time to the first token hardly differs",
                 f"it is {percent(ttft)} % less, since requests wait less where more run at once")
    if itl < 0.4:
        with_it, without = (beside_prompts(bench.runs.counted(s, k, bench.pool)) for k in (kv, runs.FULL))
        yield ("One token in a hundred waits for a step that also reads a chunk of somebody's prompt, of up to 512 "
               "tokens. That takes as long with a budget as without. The same prompts are read in fewer steps then, "
               f"so more tokens wait for one: {percent(with_it, 2)} % of the intervals have one with {LONG_READ} "
               f"prompt tokens or more, and {percent(without, 2)} % without sparsification, what is computed again "
               "included.")


def beside_prompts(run):
    """Share of the intervals between tokens whose step reads much of prompts too."""
    ends = [i for steps in run["tokens"] for i in steps[1:]]
    return sum(run["steps"][i][1] >= LONG_READ for i in ends) / max(1, len(ends))


def table_preemptions(bench):
    s = Section("preemptions", "Preemptions", printed.SAYS["preemptions"])
    timed = bench.runs.served(s, bench.kvs, bench.pool)
    swapped = bench.runs.served(s, bench.swap_kvs, bench.pool, "swap")
    n = len(bench.runs.requests)
    rows = [(budget or "-", name, f"{timed[kv]['preempted_recompute']:.0f}",
             percent(timed[kv]["preempted_recompute"] / n, 0), f"{timed[kv]['replayed_tokens']:.0f}")
            for name, budget, kv in rows_of(bench)]
    s.add("Computed again:\n\n" + table(("budget", "strategy", "preemptions", "for 100 requests", "tokens computed again"),
                                        rows))
    rows = [(f"`{kv}`", f"{r['preempted_swap']:.0f}", number(r["request_throughput"]),
             number(timed[kv]["request_throughput"]), number(r["p99_itl_ms"], 1), number(timed[kv]["p99_itl_ms"], 1))
            for kv, r in swapped.items()]
    s.add("Swapped to the host's memory instead:\n\n" +
          table(("KV", "preemptions", "requests/s", "recomputed", "between tokens, p99 ms", "recomputed"), rows))
    for how in ("reuse", "copy"):
        v = [timed[runs.spec_of(b, how)]["preempted_recompute"] for b in bench.budgets]
        s.say(met(max(v) == 0, f"no preemption with {how}", listing(f"{x:.0f}" for x in v)))
    s.say("What a request with a budget holds at most is known when it is admitted, copies' destinations included, "
          "and is kept for it. With none and block it may hold all of its tokens in the end, as without "
          "sparsification.")
    return s


def names_of(budget):
    return ["no sparsification", *(f"{budget}, {how}" for how in runs.HOWS)]


def table_pools(bench):
    s = Section("pools", "Other pools", "")
    rows, least = [], bench.budgets[0]
    kvs = [runs.FULL] + [runs.spec_of(least, how) for how in runs.HOWS]
    for pool in bench.pools:
        timed = bench.runs.served(s, bench.kvs if pool == bench.pool else kvs, pool)
        full = timed[runs.FULL]
        rows += [(pool, name, number(timed[kv]["request_throughput"]),
                  number(timed[kv]["request_throughput"] / full["request_throughput"]),
                  number(timed[kv]["mean_concurrency"], 1), f"{timed[kv]['preempted_recompute']:.0f}",
                  number(timed[kv]["p99_itl_ms"], 1)) for name, kv in zip(names_of(least), kvs)]
    s.add(table(("pool, MiB", "budget, strategy", "requests/s", "to no sparsification", "at once, mean", "preemptions",
                 "between tokens, p99 ms"), rows))
    s.say("The more requests the pool has room for anyway, the less is gained: the cores are busy then.")
    return s


def table_formats(bench):
    s = Section("formats", "With quantised pages", "")
    timed = bench.runs.served(s, bench.format_kvs, bench.pool)
    full = timed[runs.FULL]["request_throughput"]
    s.add(table(("KV", "requests/s", "to f16", "at once, mean", "preemptions", "between tokens, p99 ms"),
                [(f"`{kv}`", number(r["request_throughput"]), number(r["request_throughput"] / full),
                  number(r["mean_concurrency"], 1), f"{r['preempted_recompute']:.0f}", number(r["p99_itl_ms"], 1))
                 for kv, r in timed.items()]))
    return s


def table_priced(bench):
    s = Section("priced", "The same steps on a card whose memory is the limit", "")
    least = bench.budgets[0]
    kvs = [runs.FULL] + [runs.spec_of(least, how) for how in runs.HOWS]
    rows, found = [], {}
    for pool in bench.pools:
        for kv in kvs:
            found[pool, kv] = runs.priced(bench.runs.counted(s, kv, pool))
        full = found[pool, runs.FULL]
        rows += [(pool, name, number(r["request_throughput"], 3),
                  number(r["request_throughput"] / full["request_throughput"]), r["steps"],
                  number(r["mean_concurrency"], 1),
                  *(f"{r[k]:.0f}" for k in ("p99_ttft_ms", "p99_tpot_ms", "p99_itl_ms")))
                 for name, r in zip(names_of(least), (found[pool, kv] for kv in kvs))]
    pool_tokens = bench.pool * runs.MIB / runs.TOKEN_BYTES
    s.add("Who runs in which step does not depend on how long steps take, since all requests are there from the "
          "start. So the steps are counted one by one (bench/papers/spvllm/steps.c), and each counts for the least "
          "time that it takes with OPT-6.7B in f16 on the paper's T4. That is the longer of two times: of reading "
          f"{runs.WEIGHTS_BYTES / 1e9:.1f} GB of weights and all pages in use ({runs.KV_TOKEN_BYTES:,} bytes a "
          f"token) at 320 GB/s, and of computing at 65 TFLOP/s. A pool of {bench.pool} MiB here has "
          f"{pool_tokens:.0f} tokens, there {pool_tokens * runs.KV_TOKEN_BYTES / 1e9:.2f} GB: it fits beside the "
          "weights. `--simulate` itself cannot be told about budgets: a simulated request keeps one share of its "
          "pages, whatever its length.\n\n" +
          table(("pool, MiB", "budget, strategy", "requests/s", "to no sparsification", "steps", "at once, mean",
                 "to the first token, p99 ms", "per output token", "between tokens"), rows))
    reuse, full = found[bench.pool, kvs[1]], found[bench.pool, runs.FULL]
    gain = reuse["request_throughput"] / full["request_throughput"]
    itl = 1 - reuse["p99_itl_ms"] / full["p99_itl_ms"]
    s.say(f"Where a step of generation takes what reading the weights does, reuse serves {gain:.2f} times the "
          f"requests at {bench.pool} MiB. It takes {full['steps'] / reuse['steps']:.2f} times fewer steps, and p99 "
          f"between tokens is {percent(abs(itl))} % {'lower' if itl > 0 else 'higher'}.")
    return s
