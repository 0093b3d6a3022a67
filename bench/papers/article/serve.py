# SPDX-License-Identifier: MIT
"""Tables of a whole server, from `pleat bench serve` on the reference model: watermarks, prefixes, tenants, end to end."""
from article import printed
from article.section import Section, ratio
from lab import page
from lab.samples import calibrated_spec, without_significance

CHAT = ("--synthetic", "chat", "--rate", "inf", "-c", 2048, "--page-tokens", 16)


def serve(bench, *args):
    """The record of one `pleat bench serve`."""
    return bench.lab.measure("serve", "bench", "serve", "-m", bench.model, *args, "--format", "json", "-q")


def row_of(record, i=0):
    return record["result"]["rows"][i]


def ms(v):
    return page.number(v, 0)


def table_watermarks(bench):
    said = printed.WATERMARKS
    s = Section("watermarks", "Watermarks",
                "Admission up to 70 to 98 % of the memory: 42 to 63 requests, 580 to 790 tokens/s. Preemptions are "
                "0 to 25 a minute, p99 120 to 1200 ms; 80 to 90 % is best. Its code calls the mark below which "
                "requests are admitted \"high\" and the one above which they are preempted \"low\".")
    rows, preempted = [], {}
    for mark, (batch, speed, often, late) in said.items():
        record = serve(bench, *CHAT, "--requests", bench.n_served, "--pool-bytes", "16MiB", "--kv", "f16", "--watermarks",
                       f"{mark / 100:.2f},1")
        r = row_of(record)
        s.used(record)
        preempted[mark] = r["preempted_swap"] + r["preempted_recompute"]
        rows.append((f"{mark} %", batch, page.number(r["mean_concurrency"], 1), speed, f"{r['output_throughput']:.0f}", often,
                     preempted[mark], late, ms(r["p99_itl_ms"])))
    s.add(page.table(("low mark", "requests: article", "here, mean", "tokens/s: article", "here", "preemptions a minute: "
                      "article", "preemptions here, in all", "p99 ms: article", "here, between tokens"), rows))
    marks = sorted(preempted)
    s.say(page.agrees(preempted[marks[-1]] > preempted[marks[0]], "more are preempted the higher the mark",
                      f"{preempted[marks[0]]} at {marks[0]} % and {preempted[marks[-1]]} at {marks[-1]} %"),
          "A swapped request here costs a copy in memory, not a bus; so preemption costs little, and what a mark decides is "
          "how many run at once.")
    return s


def table_prefixes(bench):
    s = Section("prefixes", "Prefix caching",
                "A system prompt of 2000 tokens shared by 64 requests saves 64 times its prefill and stores it once.")
    rows, computed = [], {}
    lean = calibrated_spec(bench.model)
    for spec in dict.fromkeys(("f16", "k8v4", lean, without_significance(lean))):
        for grid in (0, 512):
            record = serve(bench, "--synthetic", "shared-prefix", "--requests", bench.n_shared, "--rate", "inf", "-c", 4096, "--page-tokens", 16,
                           "--pool-bytes", "640MiB", "--kv", spec, "--prefix-tokens", grid)
            r = row_of(record)
            s.used(record)
            computed[spec, grid] = r["prompt_tokens_computed"]
            rows.append((spec, "yes" if grid else "no", f"{r['prompt_tokens_computed']:,}",
                         page.number(100 * r["pool_used_max"], 1), f"{r['output_throughput']:.0f}", ms(r["mean_ttft_ms"])))
    s.add(page.table(("cache", "prefixes kept", "prompt tokens computed", "pool in use at most, %", "tokens/s",
                      "mean time to first token, ms"), rows))
    kept, lost = computed["f16", 512], computed["f16", 0]
    s.say(f"Of {lost:,} prompt tokens {kept:,} are computed: the prefix once, and each request's own.",
          "With a policy each sequence copies what is not sealed: its low side's last page. The leankv rows are the model's "
          "own profile and its control, which looks at no attention (ah=1000000).")
    return s


def table_tenants(bench):
    s = Section("tenants", "Tenants",
                "Static fractions of the blocks, rounded down: tenant_a 0.6, tenant_b 0.3, shared 0.1; nobody can use "
                "the shared blocks in its code.")
    record = serve(bench, *CHAT, "--requests", bench.n_served, "--pool-bytes", "16MiB", "--kv", "f16", "--tenants",
                   "a:60%,b:30%")
    r = row_of(record)
    s.used(record)
    total = r["pages_total"]
    s.add(page.table(("pages", "of 16 MiB"), [("in all", f"{total:,}"), ("the article's int() per tenant",
                                                                        f"{int(total * 0.6) + int(total * 0.3) + int(total * 0.1):,}"),
                                             ("here, quotas and what can be borrowed", f"{total:,}"),
                                             ("left over at the end", r["pages_left"])]))
    s.say("Whole numbers lose no page here: what rounding leaves goes to the largest remainders (src/sched/sched.h). What no "
          "quota holds can be borrowed, and is taken back first.")
    return s


KINDS = {"Paged FP16": ("f16", 0), "Paged INT8": ("k8v8", 0), "Paged INT8 + prefix cache": ("k8v8", 512),
         "Paged INT4 + prefix cache": ("k4v4", 512)}


def table_serving(bench):
    s = Section("serving", "End to end",
                "Llama 3 70B on 4 A100. Contiguous serves 24 requests at once and 420 tokens/s, paged f16 58 and "
                "780, INT8 96 and 1050. With a prefix cache it is 1180, and INT4 with it serves 140 and 1420.")
    rows, found = [], {}
    for name, most, speed, *_ in printed.SERVING:
        if name not in KINDS:
            rows.append((name, most, "-", speed, "-", "-", "-"))
            continue
        spec, grid = KINDS[name]
        record = serve(bench, *CHAT, "--requests", bench.n_served, "--pool-bytes", "16MiB", "--kv", spec, "--prefix-tokens",
                       grid)
        r = found[name] = row_of(record)
        s.used(record)
        rows.append((name, most, page.number(r["mean_concurrency"], 1), speed, f"{r['output_throughput']:.0f}",
                     ms(r["median_itl_ms"]), ms(r["p99_itl_ms"])))
    s.add(page.table(("", "requests: article, most", "here, mean", "tokens/s: article", "here", "p50 ms between tokens here",
                      "p99"), rows))
    more = found["Paged INT8"]["mean_concurrency"] / found["Paged FP16"]["mean_concurrency"]
    faster = found["Paged INT4 + prefix cache"]["output_throughput"] / found["Paged FP16"]["output_throughput"]
    s.say(f"INT8 serves {ratio(more, 2)} as many at once in the same memory (the article: {ratio(96 / 58, 2)}). From "
          f"paged f16 to INT4 with prefixes the tokens/s are {ratio(faster, 2)} (the article: "
          f"{ratio(1420 / 780, 2)}).",
          "A model of 28 million parameters on two cores is bound by arithmetic from four requests on, so more of them at once "
          "bring less than on a card whose memory is the limit. Contiguous buffers are under Allocators.")
    return s


def serve_tables():
    """Functions bench -> Section, in the article's order."""
    return table_watermarks, table_tenants, table_prefixes, table_serving
