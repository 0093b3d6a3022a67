# SPDX-License-Identifier: MIT
"""The paper's figures of speed, on a CPU: Figures 9 to 11, and fixed widths beside Huffman's codes."""
from kvcomp import printed
from lab import lab
from lab.page import Section, agrees, listing, number, table

WAYS = ("tree decode", "tree x4 decode", "block decode", "tree fused", "tree x4 fused", "block fused", "block first", "f16")
THREADS = (1, 2)
TOKENS = 8192  # of bench_codec
SPECS = ("kvcomp:k=0.2,v=0.15", "kvcomp:k=0.05,v=0.15,kunit=block")
SHAPE = ("--heads", 32, "--kv-heads", 8, "--head-dim", 128)
CODES = 2 * 8 * 128  # of a token in a layer, keys and values


def read_ways(text):
    """{spec: {way: {ms, mb, difference}}} of what bench_codec prints."""
    found, spec = {}, None
    for line in text.splitlines():
        if "query heads" in line:
            spec = line.rpartition(": ")[0]
            found[spec] = {}
        for way in WAYS:
            words = line[15:].split()
            if spec and line.startswith(f"{way} ") and len(words) >= 6:
                found[spec][way] = {"ms": float(words[0]), "mb": float(words[5])}
    if not found or any(set(rows) != set(WAYS) for rows in found.values()):
        raise ValueError("ways are missing")
    return found


def ways(bench, s, n_threads, specs):
    found = {}
    for spec in specs:
        record = bench.lab.measure("ways", "-t", n_threads, "-r", 7, spec, program=bench.codec_program, parse=read_ways)
        s.used({**record, "command": record["command"].replace(bench.codec_program, "build/bench/bench_codec")
                .replace(spec, "SPEC")})
        found.update(record["result"])
    return found


def both_scales(k, v, unit="channel"):
    return f"kvcomp:k={k:g},v={v:g}" + (",kunit=block" if unit == "block" else "")


def fig9(bench):
    s = Section("fig9", "Figure 9: attention fused with decoding against decoding first", printed.SAYS["fig9"])
    specs = [both_scales(k, v, unit) for unit, k, v in bench.speed_scales]
    fused_wins, faster = [], []
    for n in THREADS:
        found = ways(bench, s, n, specs)
        lines = []
        for spec, rows in found.items():
            ms = {way: rows[way]["ms"] for way in WAYS}
            bits = 8e6 * rows["block fused"]["mb"] / (CODES * TOKENS)
            fused_wins += [ms["block first"] / ms["block fused"]]
            faster += [ms["f16"] / ms["block fused"]]
            lines.append((f"`{spec}`", number(bits), *(number(ms[w], 2) for w in
                                                      ("tree fused", "tree x4 fused", "block first", "block fused", "f16")),
                          number(ms["block first"] / ms["block fused"], 1), number(ms["tree fused"] / ms["block fused"], 0),
                          number(ms["f16"] / ms["block fused"]),
                          number(2 * CODES * TOKENS / ms["block fused"] * 1e-6, 1)))
        s.add(f"{n} thread{'s' if n > 1 else ''}, ms a layer:\n\n" +
              table(("KV", "bits a number", "paper's tree, fused", "four rows in turn", "decode first", "fused", "f16",
                     "first / fused", "tree / fused", "f16 / fused", "fused, GB/s of f16"), lines))
    s.add(f"32 query heads, 8 KV heads, d = 128, {TOKENS} tokens of random numbers that look like keys and values. "
          "Times are of keys and values together, softmax and all. \"Decode first\" takes all blocks to f32 in "
          "memory, then attention over that. \"GB/s of f16\" counts the bytes that f16 would have had to be read, "
          "in that time.")
    tree = [rows["tree fused"]["ms"] / rows["block fused"]["ms"] for n in THREADS
            for rows in ways(bench, s, n, specs).values()]
    s.say(f"Fused takes 1/{min(fused_wins):.1f} to 1/{max(fused_wins):.1f} of the time of decoding first. Of the "
          f"paper's own way, a bit at a time on the same core, it takes 1/{min(tree):.0f} to 1/{max(tree):.0f}. It "
          f"is {min(faster):.2f} to {max(faster):.2f} times as fast as f16 without any decoding.",
          agrees(min(fused_wins) > 1, "the fused kernel is faster in all scenarios"),
          agrees(is_rising(bench, s, specs), "larger scales are faster (here: the largest than the smallest, by channel)"))
    return s


def is_rising(bench, s, specs):
    some = [spec for spec in specs if "kunit" not in spec]
    ms = {n: ways(bench, s, n, specs) for n in THREADS}
    return all(found[some[-1]]["block fused"]["ms"] < found[some[0]]["block fused"]["ms"] for found in ms.values())


# ---- Figures 10 and 11 ------------------------------------------------------------------------------


def attention(bench, s, n_threads):
    """{(spec, tokens): row}; all specs take turns in one run."""
    words = [w for spec in ("f16", *bench.timed) for w in ("--kv", spec)]
    record = bench.lab.measure("attn", "bench", "attn", *words, "--ctx", ",".join(map(str, bench.long)), *SHAPE, "-t",
                               n_threads, "-r", bench.reps, "--format", "json", "-q")
    s.used(record)
    return {(r["params"]["kv"], r["params"]["ctx"]): r for r in record["result"]["rows"]}


def median_of(rows, spec, n):
    row = rows.get((spec, n))
    if row is None:
        raise lab.Failed(f"`pleat bench attn` has no row of {spec} at {n} tokens")
    return row["ms"]["median"]


def fig10(bench):
    s = Section("fig10", "Figure 10: fused attention against f16 over contexts", printed.SAYS["fig10"])
    speed = {}
    for t in THREADS:
        rows = attention(bench, s, t)
        lines = []
        for spec in ("f16", *bench.timed):
            ms = [median_of(rows, spec, n) for n in bench.long]
            speed[t, spec] = [median_of(rows, "f16", n) / m for n, m in zip(bench.long, ms)]
            lines.append((f"`{spec}`", *(number(m, 3) for m in ms), *(number(x) for x in speed[t, spec]),
                          *(number(2 * CODES * n / m * 1e-6, 1) for n, m in ((bench.long[-1], ms[-1]),))))
        s.add(f"{t} thread{'s' if t > 1 else ''}:\n\n" +
              table(("KV", *(f"{n} tokens, ms" for n in bench.long), *(f"x f16, {n}" for n in bench.long),
                     f"GB/s of f16, {bench.long[-1]}"), lines))
    s.add("One layer, 32 query heads, 8 KV heads, d = 128, random keys and values (which code worse than a "
          "model's), the f16 buffer included. Row f16 is Pleat's own attention over pages, which multiplies and "
          "decodes nothing.")
    main = bench.timed[0]
    s.say(*(f"With {t} thread{'s' if t > 1 else ''} `{main}` is {listing(f'{x:.2f}' for x in speed[t, main])} times as fast as f16 at "
            f"{listing(map(str, bench.long))} tokens." for t in THREADS),
          agrees(all(speed[t, main][-1] > 1 for t in THREADS), "at long contexts fused attention beats f16"),
          agrees(all(speed[t, main][0] < 1 for t in THREADS), "at short ones f16 is faster"))
    return s


def fig11(bench):
    s = Section("fig11", "Figure 11: what decoding costs beyond f16's attention", printed.SAYS["fig11"])
    lines, won = [], []
    for t in THREADS:
        rows = attention(bench, s, t)
        for n in bench.long:
            own, f16 = median_of(rows, bench.timed[0], n), median_of(rows, "f16", n)
            gb = 2 * CODES * n * 1e-6
            won.append(own < f16)
            lines.append((t, n, number(gb / f16, 1), number(gb / own, 1),
                          number(gb / (own - f16), 1) if own > f16 else "none added"))
    s.add(table(("threads", "tokens", "f16, GB/s", f"`{bench.timed[0]}`, GB/s of f16", "equivalent decompression, GB/s"), lines))
    s.add("Bytes that f16 has, over the time of either, and over the difference of both where decoding adds something.")
    s.say(f"In {sum(won)} of {len(won)} cases attention over compressed tokens takes less time than over f16, so that decompression adds "
          "none.")
    return s


# ---- fixed widths -----------------------------------------------------------------------------------


def table_pack(bench):
    s = Section("pack", "Fixed widths (`+pack`) beside Huffman's codes", "")
    specs = [x for spec in SPECS for x in (spec, spec + "+pack")] + ["kivi:bits=2", "kivi:bits=4"]
    words = [w for spec in specs for w in ("--kv", spec)]
    record = bench.lab.measure("codec", "bench", "codec", *words, "--head-dim", 128, "-r", bench.reps, "--format", "json", "-q")
    s.used(record)
    own = {r["kv"]: r for (_, n), r in bench.sizes.rows(s, specs).items() if n == bench.contexts[-1]}
    lines, ratio, cost = [], [], {}
    for row in record["result"]["rows"]:
        spec, speed = row["params"]["kv"], row["gcodes_per_s"]
        model = own[spec]
        bits = [8 * model["bytes"][f"{m}_codes"] / model["values"] for m in "kv"]
        ratio.append(row.get("decode_to_huffman"))
        cost[spec] = sum(bits) / 2 + 4 * model["bytes"]["order"] / model["values"], speed["decode"]["median"]
        lines.append((f"`{spec}`", *(number(b) for b in bits), number(8 * model["bytes"]["order"] / model["values"] / 2),
                      *(number(speed[what]["median"], 2) for what in ("quantise", "code", "decode", "load")), number(ratio[-1], 1)))
    s.add(table(("KV", "bits of a key's code", "of a value's", "order", "quantise, G codes/s", "code", "decode", "to f32",
                 "decode / zstd's Huffman"), lines))
    s.add("Bits of the model's own keys and values; speeds of one core on random ones, d = 128, medians. Fixed "
          "widths follow PackKV, by the paper's authors: tokens of a block are put into another order so that a "
          "channel's 16 neighbours need few bits.")
    for spec in SPECS:
        (coded, fast), (packed, pack_speed) = cost[spec], cost[spec + "+pack"]
        s.say(f"`{spec}`: fixed widths take {packed - coded:+.2f} bits a number against Huffman's codes and decode at "
              f"{pack_speed / fast:.2f} of their speed.")
    s.say("Neighbours of a channel share its offset, which a step for the whole block leaves in the codes and a "
          "codebook cannot see: there fixed widths can be shorter.")
    return s
