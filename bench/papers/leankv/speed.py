# SPDX-License-Identifier: MIT
"""The paper's figures of speed: Fig 11-14, on a CPU."""
import statistics

from lab.page import Section, agrees, number, percent, table
from leankv import printed
from leankv.accuracy import UNIFORM, formats, token_bytes
from leankv.control import calibrated_and_control

LLAMA_LANES = 256  # of one sequence of Llama3-8B: 32 layers of 8 KV heads
MIB = 1 << 20
FIXED_BYTES = 64 * MIB  # of KV cache in Figure 14
FIXED_TOKENS = 2000  # of each sequence there
TURNS = 5

# ---- Figure 11 --------------------------------------------------------------------------------------


def by_how(record):
    return {(r["params"]["op"], r["params"]["how"]): r for r in record["result"]["rows"]}


def fig11(bench):
    s = Section("fig11", "Figure 11: pages for all lanes in parallel against one by one", printed.SAYS["fig11"])
    lines, faster, slower = [], [], []
    for lanes in bench.lanes:
        record = bench.lab.measure("pages", "bench", "pages", "--lanes", lanes, "-r", 15, "--format", "json", "-q")
        s.used(record)
        rows = by_how(record)
        plan, loop, mutex = (rows["take", how]["ms"]["median"] for how in ("plan", "loop", "mutex"))
        back = {how: rows["return", how]["ms"]["median"] for how in ("step", "loop", "mutex")}
        faster.append(mutex / plan)
        slower += [plan / loop, back["step"] / back["loop"]]
        lines.append((rows["take", "plan"]["params"]["lanes"], number(1e3 * plan, 1), number(1e3 * loop, 1),
                      number(1e3 * mutex, 1), number(mutex / plan, 1), *(number(1e3 * back[h], 1) for h in back),
                      number(back["mutex"] / back["step"], 1)))
    s.add(table(("lanes", "take: plan + commit, us", "plain loop", "locked list", "x locked list", "return: close, us",
                 "plain loop", "locked list", "x locked list"), lines))
    s.add(f"One page for each lane, then all back; medians of 15. A sequence of Llama3-8B has {LLAMA_LANES} lanes. "
          "The plain loop keeps a stack of free ids. The locked list is the same, with several threads that each "
          "take a mutex for every lane. Closing also forgets the sequences, which the other two do not.")
    s.say(f"Planned at once, pages for all lanes take 1/{max(faster):.1f} to 1/{min(faster):.1f} of the locked list's "
          "time.",
          agrees(max(slower) < 1, "planning for all lanes together is faster than one by one",
                 "a plain loop on one thread, which takes or returns a page for one lane after the other, needs "
                 f"1/{max(slower):.1f} to 1/{min(slower):.1f} of its time"),
          agrees(max(faster) >= 1000, "the gain reaches three orders of magnitude"))
    return s


# ---- Figure 12 --------------------------------------------------------------------------------------


def managed(row):
    m = row["memory_management"]
    return (m["pages"] or 0) + (m["compaction"] or 0)


def fig12(bench):
    s = Section("fig12", "Figure 12: share of a step spent on memory management", printed.SAYS["fig12"])
    specs = calibrated_and_control(bench, s)
    kvs = [word for k in ("f16", *specs) for word in ("--kv", k)]
    lines, worst = [], {"prompt": 0.0, "generation": 0.0}
    for batch in bench.batches:
        for phase, shape in (("prompt", ("-p", 1024, "-n", 0)), ("generation", ("-p", 0, "-n", 64, "-d", 1024))):
            record = bench.lab.measure("run", "bench", "run", "-m", bench.model, *shape, "-np", batch, "-r", 3,
                                       *kvs, "--format", "json", "-q")
            s.used(record)
            for row in record["result"]["rows"]:
                m = row["memory_management"]
                is_ours = row["params"]["kv"] == specs[0]
                worst[phase] = max(worst[phase], managed(row) if is_ours else 0)
                lines.append((phase, batch, f"`{row['params']['kv']}`", percent(m["pages"], 3),
                              percent(m["compaction"], 3), percent(managed(row), 2), percent(1 - managed(row), 1),
                              f"{row['tokens_per_s']:.0f}"))
    s.add(table(("step", "batch", "KV", "pages, %", "policy and moves, %", "**both**, %", "the rest, %", "tokens/s"),
                lines))
    s.add("Prompts of 1024 tokens; 64 steps of generation after 1024 tokens. Pages: plan, prefix sum, commit, return. "
          "Policy and moves: classing tokens, victims, moving and requantising. The rest is the model, attention and "
          "scores among it. The last row of each step is the calibrated one's control.")
    s.say(f"At most {percent(worst['prompt'], 2)} % of a prompt step and {percent(worst['generation'], 2)} % of a "
          "generation step (paper: 0.2 % and 0.9 %).",
          agrees(worst["prompt"] < 0.01 and worst["generation"] < 0.03,
                 "the share is small (here: below 1 % and 3 %)"))
    return s


# ---- Figure 13 --------------------------------------------------------------------------------------


def fig13(bench):
    s = Section("fig13", "Figure 13: speed of decode attention over f16", printed.SAYS["fig13"])
    specs = ["f16", *(k for k in UNIFORM if k in ("k8v8", "k8v4", "k4v4", "k4v2"))]
    kvs = [word for k in specs for word in ("--kv", k)]
    contexts = ",".join(map(str, bench.contexts))
    for dim, shape in ((128, ()), (64, ("--heads", 8, "--kv-heads", 4, "--head-dim", 64))):
        record = bench.lab.measure("attn", "bench", "attn", *kvs, "--ctx", contexts, *shape, "-r", bench.reps,
                                   "--format", "json", "-q")
        s.used(record)
        rows = {(r["params"]["kv"], r["params"]["ctx"]): r for r in record["result"]["rows"]}
        add_attention(s, bench, specs, rows, dim)
    return s


def add_attention(s, bench, specs, rows, dim):
    params = next(iter(rows.values()))["params"]
    lines = []
    for k in specs:
        bound = 4 * dim / token_bytes(formats(k)[0], dim, False)
        lines.append((k, number(bound, 2), *(number(rows[k, n]["speed_to_first"], 2) for n in bench.contexts),
                      number(rows[k, bench.contexts[-1]]["fraction_of_peak"], 2)))
    s.add(f"{params['heads']} query heads, {params['kv_heads']} KV heads, head dimension {dim}, {params['threads']} "
          "threads; times f16's speed:\n\n" + table(("KV", "bytes allow", *(f"{n} tokens" for n in bench.contexts),
                                      "share of the read bandwidth, last"), lines))
    last = bench.contexts[-1]
    eight = [rows["k8v8", n]["speed_to_first"] for n in bench.contexts]
    order = [rows[k, last]["speed_to_first"] for k in specs]
    s.say(f"Head dimension {dim}: k8v8 reaches {min(eight):.2f} to {max(eight):.2f} times f16's speed (paper: 1.7 "
          "of 2).",
          agrees(all(a <= b for a, b in zip(order, order[1:])),
                 "fewer bytes are faster throughout at the longest context"),
          agrees(rows["k4v2", last]["speed_to_first"] >= rows["k4v2", bench.contexts[0]]["speed_to_first"],
                 "k4v2 gains more on the longest sequence than on the shortest"))


# ---- Figure 14 --------------------------------------------------------------------------------------


def held_by(bench, s, specs):
    """{spec: bytes of one sequence of FIXED_TOKENS tokens of text}."""
    args = [word for k in specs for word in ("--kv", k)]
    windows = min(4, bench.windows)
    record = bench.lab.measure("text", "eval", "-m", bench.model, "--text", bench.text, "--text-windows", windows,
                               "--ctx-window", FIXED_TOKENS, *args, "--format", "json", "-q")
    s.used(record)
    return {k: row["bytes"] / windows for k, row in zip(specs, record["result"]["rows"])}


def fig14(bench):
    s = Section("fig14", "Figure 14: throughput and batch at a fixed KV memory", printed.SAYS["fig14"])
    lean, *controls = calibrated_and_control(bench, s)
    specs = ["f16", "k8v4", "k4v2", lean, *controls]
    held = held_by(bench, s, specs)
    batch = {k: max(1, int(FIXED_BYTES // held[k])) for k in specs}
    turns = {k: [] for k in specs}
    for turn in range(TURNS):  # batches differ, so no one run can have them all: they take turns instead
        for k in specs:
            record = bench.lab.measure("run", "bench", "run", "-m", bench.model, "-p", 0, "-n", 100, "-d",
                                       FIXED_TOKENS - 100, "-np", batch[k], "-r", 1, "--kv", k, "--format", "json",
                                       "-q", turn=turn)
            s.used(record)
            turns[k].append(record["result"]["rows"][0])
    speed = {k: statistics.median(row["tokens_per_s"] for row in turns[k]) for k in specs}
    lines = [(f"`{k}`", number(held[k] / MIB, 2), batch[k],
              f"{speed[k]:.0f} ({min(r['tokens_per_s'] for r in turns[k]):.0f} to "
              f"{max(r['tokens_per_s'] for r in turns[k]):.0f})", number(speed[k] / speed["f16"], 2),
              number(turns[k][0]["bytes_per_sequence"] / MIB, 2)) for k in specs]
    s.add(table(("KV", "MiB a sequence, text", "batch in 64 MiB", "tokens/s, all sequences", "x f16",
                 "MiB a sequence, as timed"), lines))
    s.add(f"Sequences of {FIXED_TOKENS} tokens. The batch follows from what they hold of eval/prose.txt. Generation "
          "is timed on the last 100 tokens of random ones, of which LeanKV keeps another share than of text. "
          f"Medians of {TURNS} runs, turn and turn about.")
    s.say(f"`{lean}` fits {batch[lean] / batch['f16']:.1f} times f16's batch and generates "
          f"{speed[lean] / speed['f16']:.2f} times as fast (paper: up to 5.9 and 1.9 to 5.4 times).",
          agrees(speed[lean] > max(speed[k] for k in ("f16", "k8v4")),
                 "LeanKV has more throughput than f16 and k8v4 do"),
          agrees(speed[lean] >= 1.9 * speed["f16"], "throughput grows by 1.9 times and more"))
    return s
