# SPDX-License-Identifier: MIT
"""Tables that build/bench/bench_allocators measures: waste, allocators, block sizes."""
from article import models, printed
from article.section import Section
from lab import lab, page

HEADROOM = 0.2  # of the second run: what growing allocators need to work at all
SHOWN = ("max", "known", "double", "double-best", "step16", "step16-best", "paged1", "paged16", "paged128")
WORDS = {"max": "contiguous, longest length", "known": "contiguous, final length (an oracle)",
         "double": "growing, doubled, first fit", "double-best": "growing, doubled, best fit",
         "step16": "growing by 16, first fit", "step16-best": "growing by 16, best fit"}


def words_of(name):
    return WORDS.get(name, f"paged, {name[5:]}")


def run(bench, *args):
    """(record, {workload: {allocator: row}}, {workload: its means})."""
    record = bench.lab.measure("allocators", "--requests", bench.n_requests, "--pool", bench.pool_tokens,
                               "--format", "json", *args, program=bench.allocators)
    if not all(r["steps"] for w in record["result"]["workloads"] for r in w["rows"]):
        raise lab.Failed("too few requests to fill the pool")
    loads = {w["name"]: w for w in record["result"]["workloads"]}
    return record, {n: {r["name"]: r for r in w["rows"]} for n, w in loads.items()}, loads


def table_waste(bench):
    record, rows_of, loads = run(bench)
    s = Section("waste", "Waste of contiguous allocation",
                "\"Measured\": chat uses 20 % of its memory, instructions 19, code 29, summaries 68; a weighted "
                "average of 32 %, 68 % wasted.")
    s.used(record)
    rows, used = [], []
    for label, name, mean, longest, said in printed.WASTE:
        row, load = rows_of[name]["max"], loads[name]
        used.append(row["utilisation"])
        rows.append((label, f"{mean} / {longest}", said, f"{load['prompt'] + load['output']:.0f}",
                     f"{load['live']:.0f}",
                     f"**{page.percent(row['utilisation'])}**", f"**{page.percent(1 - row['utilisation'])}**",
                     f"{row['running']:.1f}", f"{rows_of[name]['paged16']['running']:.1f}",
                     f"{rows_of[name]['paged16']['running'] / row['running']:.1f}x"))
    s.add(page.table(("workload", "mean / longest", "used, %: article", "mean length drawn", "mean of a running one",
                      "used, %: replayed", "wasted", "at once", "at once, paged by 16", "gain"), rows))
    plain = sum(w[4] for w in printed.WASTE) / len(printed.WASTE)
    s.say("The article's column is mean length over longest, not a measurement. While it runs a request is shorter "
          f"than in the end, but those with long answers run longer: replayed, chats use {page.percent(used[0])} % and "
          f"summaries, whose answers are short, {page.percent(used[3])}. No weights are given for its average; the "
          f"plain mean of its rows is {plain:.0f} %, of ours {page.percent(page.mean(used), 0)} %.")
    s.formula(f"{bench.n_requests:,} requests a workload with its mean and longest length (log-normal), a pool of "
              f"{bench.pool_tokens:,} tokens, {models.kv_gib('llama3-70b', bench.pool_tokens):.0f} GiB of Llama 3 "
              "70B. How they split into prompt and output is ours: bench/allocators/allocators.c. Shares are live "
              "tokens over held tokens, over the steps in which requests wait")
    return s


def span(values, digits=0):
    low, high = (f"{100 * v:.{digits}f}" for v in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def article_rows(rows_of):
    rows = []
    for label, names, used, external, internal in printed.ALLOCATORS:
        found = [rows_of[w][n] for w in rows_of for n in names]
        digits = 0 if label.startswith("Contiguous") else 2
        rows.append((label, used, f"**{span([r['utilisation'] for r in found], digits)}**",
                     f"**{span([r['live'] for r in found], 0)}**", internal,
                     f"**{span([r['internal'] for r in found], digits)}**", external,
                     f"**{span([r['external'] for r in found], 0)}**", f"**{span([r['free'] for r in found], 0)}**"))
    return page.table(("allocator", "utilisation, %: article", "live / held", "live / pool", "internal: article",
                       "1 - live / held", "external: article", "1 - largest / free", "free / pool"), rows)


def detail_rows(rows_of, names, workload):
    rows = []
    for name in names:
        r = rows_of[workload][name]
        rows.append((words_of(name), f"**{r['running']:.1f}**", page.percent(r["utilisation"], 2),
                     page.percent(r["live"]),
                     page.percent(r["slack"]), page.percent(r["free"]), page.percent(r["external"]),
                     f"{r['failures']:.0f}", f"{r['failures_holes']:.0f}", f"{r['preempted']:.0f}", f"{r['moved']:.1f}",
                     f"{r['again']:.2f}", page.number(r["ns_allocation"], 0), page.number(r["ns_token"], 1)))
    return page.table(("allocator", "at once", "live / held, %", "live", "slack", "free", "external", "refused",
                       "in spite of room", "thrown out", "moved", "again", "ns an allocation", "ns a token"), rows)


def judge_pages(s, rows_of):
    chat = rows_of["chat"]
    at_once = {name: chat["paged16"]["running"] / chat[name]["running"] for name in ("max", "known")}
    for_holes = sum(rows_of[w]["max"]["failures_holes"] for w in rows_of)
    s.say(page.agrees(all(rows_of[w]["paged16"]["running"] > max(r["running"] for n, r in rows_of[w].items()
                                                                 if not n.startswith("paged")) for w in rows_of),
                      "pages serve most requests in every workload"),
          f"In chat they are {at_once['max']:.1f} times those of pieces of the longest length and "
          f"{at_once['known']:.1f} times those of an oracle that knows every length beforehand.",
          page.agrees(for_holes > 0, "pieces of the longest length fragment outside",
                      "they are all alike, and no request was refused in spite of room; holes appear where lengths "
                      "differ"),
          page.agrees(max(rows_of[w]["paged16"]["internal"] for w in rows_of) < 0.004, "blocks of 16 waste less than "
                                                                                       "0.4 %",
                      "the article divides 15 tokens by the longest context, but a request holds its own length, "
                      "and loses half a block on average"))


def judge_growing(s, bench, chat, roomy):
    def often(rows, name):
        return f"{rows[name]['preempted'] / bench.n_requests:.1f}"

    s.say(f"Growing pieces need room to move. With 1 % of headroom a chat is thrown out {often(chat, 'double')} "
          f"times (doubled) or {often(chat, 'step16')} times (by 16), most of it in spite of room. Each token is "
          f"then computed again {chat['double']['again']:.1f} or {chat['step16']['again']:.1f} times. With "
          f"{100 * HEADROOM:.0f} % it is thrown out {often(roomy, 'double')} and {often(roomy, 'step16')} times, and "
          f"by 16 each token generated still moves {roomy['step16']['moved']:.0f} others.",
          f"1 - largest / free says little by itself: it is {page.percent(chat['known']['external'], 0)} % for the "
          f"oracle, which has {page.percent(chat['known']['free'], 0)} % of its memory free.",
          f"Allocating takes at most {max(r['ns_token'] or 0 for r in chat.values()):.0f} ns a token in chat, copying "
          "aside; what one-token blocks cost is their tables (next).")


def table_allocators(bench):
    record, rows_of, _ = run(bench)
    wide, wide_rows, _ = run(bench, "--workload", "chat", "--headroom", HEADROOM)
    s = Section("allocators", "Allocators",
                "Contiguous at the longest length: 20 to 40 % utilised, external fragmentation high. Growing: 60 to 70 "
                "%. Paged by 16: 96 to 99 %, internal below 0.4 %. Paged by 1: about 100 %, \"high overhead\".")
    s.used(record, wide)
    s.add("Over the four workloads, in %:\n\n" + article_rows(rows_of))
    s.add("Chat, all allocators at equal memory; shares of the pool in %, `moved` and `again` in tokens copied and "
          "computed "
          "again for each token generated:\n\n" + detail_rows(rows_of, SHOWN, "chat"))
    s.add(f"The same where an admission leaves {100 * HEADROOM:.0f} % of the pool free instead of 1:\n\n"
          + detail_rows(wide_rows, ("double", "double-best", "step16", "step16-best", "paged16"), "chat"))
    judge_pages(s, rows_of)
    judge_growing(s, bench, rows_of["chat"], wide_rows["chat"])
    s.formula("the same replay. A piece that cannot grow where it stands moves. If there is no place the newest "
              "request is thrown out, to start again from its tokens when it is next admitted. Nanoseconds are "
              "without copying")
    return s


def at_once(rows_of, block):
    return page.mean(rows_of[w][f"paged{block}"]["running"] for w in rows_of)


def table_blocks(bench):
    record, rows_of, _ = run(bench)
    s = Section("blocks", "Block size",
                "Figure, Llama 3 70B, mixed workload. Internal fragmentation goes from 0 (block 1) over 1.8 (16) to "
                "9 % (128), page tables from 8 over 1 to 0.2 %. Together they are least at 8 to 16.")
    s.used(record)
    token = models.kv_bytes("llama3-70b", 1)
    pool = record["result"]["pool_tokens"]
    rows, totals = [], {}
    for block in (1, 2, 4, 8, 16, 32, 64, 128):
        found = [rows_of[w][f"paged{block}"] for w in rows_of]
        inside, tables = page.mean(r["internal"] for r in found), page.mean(r["table_share"] for r in found)
        ids = page.mean((1 - r["free"]) / block * 4 / token for r in found)
        totals[block] = inside + tables
        said = printed.BLOCKS.get(block, ("-", "-"))
        rows.append((block, said[0], f"**{page.percent(inside, 2)}**", span([r["internal"] for r in found], 2), said[1],
                     f"**{page.percent(tables, 3)}**", f"{100 * ids:.6f}", f"**{page.percent(inside + tables, 2)}**",
                     f"{at_once(rows_of, block) / at_once(rows_of, 1):.3f}"))
    s.add(page.table(("block", "internal, %: article", "mean", "over the workloads", "tables, %: article",
                      "Pleat's, a table a lane", "one id for all layers", "internal + Pleat's", "at once / block 1"),
                     rows))
    best = min(totals, key=totals.get)
    s.say("Half a block is lost for each request, so internal fragmentation depends on the lengths more than on "
          f"anything. Blocks of 128 lose {span([rows_of[w]['paged128']['internal'] for w in rows_of], 1)} %. The "
          f"article's 8 % for tables would be {0.08 * token / 1000:.0f} KB of table for each token of 70B. Where one "
          f"id of 4 bytes stands for a block of all layers, as in its own sample, it is {100 * 4 / token:.4f} % at "
          "block 1. Pleat's tables are larger, since every layer and KV head has its own and each is as long as the "
          "longest context: they are what one-token pages would cost. Internal and tables together are least at "
          f"{best} tokens, by the mean of the workloads. What is left is the kernel's side, which wants larger "
          "blocks (docs/KERNELS.md).")
    s.formula("the same replay, mean over the four workloads. Tables are the arrays of src/page for 640 lanes (80 "
              f"layers, 8 KV heads) over {pool:,} tokens of 512 bytes a lane. One id is 4 bytes a block in use over "
              f"{token:,} bytes a token")
    return s


LIST = (table_waste, table_allocators, table_blocks)
