# SPDX-License-Identifier: MIT
"""The sections: what is kept of each measurement, and the figures' tables and sentences made of it."""
import json
import os

from lab import lab, page
from lab.fill import fill

RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")
MARK = "<!-- On a GPU: written by bench/papers/gpu/run.py, from here to the end -->"
FORMATS = ("f16", "k8v8", "k8v4", "k4v4", "k4v2")
LANES = (256, 1024, 8192, 32768)
SHAPE = "--heads 32"
RECLAIMS = ("none", "block", "copy", "reuse")
KVS = " ".join(f"--kv {kv}" for kv in FORMATS)

# Name of what is kept: arguments of `pleat`.
COMMANDS = {
    "contexts": f"bench attn --device cuda {KVS} --batch 32 --ctx 1024,4096,8192,16384 {SHAPE}",
    "peers": f"bench attn --device cuda --kv f16 --kv k8v4 --batch 1 --ctx 8192,131072 {SHAPE}",
    "large": f"bench attn --device cuda --kv f16 --batch 64 --ctx 16384 {SHAPE}",
    "spread": f"bench attn --device cuda {KVS} --kv leankv:ah=3,al=0.05 --batch 32 --ctx 8192 {SHAPE} --spread 8",
    "small": f"bench attn --device cuda {KVS} --head-dim 64 --batch 32 --ctx 8192 {SHAPE}",
    **{f"pages-{n}": f"bench pages --device cuda --lanes {n}" for n in LANES},
    "codec": "bench codec --device cuda --batch 32 --ctx 2048,4096,8192,16384 --kv kvcomp:k=0.25,v=0.25",
    "scales": "bench codec --device cuda --batch 32 --ctx 8192 --gqa 1 --kv kvcomp:k=0.05,v=0.05 --kv kvcomp:k=0.13,v=0.15 "
              "--kv kvcomp:k=0.25,v=0.25 --kv kvcomp:k=0.3,v=0.3",
    "reclaims": "bench serve --shape llama3-8b --weights f16 --device cuda --free-splits -c 2048 --max-running 192 "
                "--pool-bytes 1GiB --prefix-tokens 0 --rate inf --synthetic sharegpt:prompt=200,output=900,shape=0.3 "
                "--requests 48 --kv f16 " + " ".join(f"--kv streaming:budget=128,format=f16,reclaim={r}" for r in RECLAIMS),
}


# ---- results ----------------------------------------------------------------------------------------


def path_of(name):
    return os.path.join(RESULTS, f"{name}.json")


def has_rows(result):
    """Whether `result` is what the command prints, and not empty."""
    rows = result.get("rows") if isinstance(result, dict) else None
    return isinstance(rows, list) and bool(rows) and all(isinstance(r, dict) and "params" in r for r in rows)


class Kept:
    """What is kept; KeyError, naming the command, for what is not."""

    def __init__(self):
        self.records = {}

    def record(self, name):
        if name not in self.records:
            try:
                with open(path_of(name), encoding="utf-8") as f:
                    self.records[name] = json.load(f)
            except OSError as error:
                raise KeyError(f"no result \"{name}\"") from error
            except ValueError as error:
                raise ValueError(f"{path_of(name)} is damaged: {error}") from error
            if not has_rows(self.records[name].get("result") if isinstance(self.records[name], dict) else None):
                raise ValueError(f"{path_of(name)} is damaged: no rows")
        return self.records[name]

    def rows(self, name, **params):
        return [r for r in self.record(name)["result"]["rows"]
                if all(r["params"].get(key) == value for key, value in params.items())]

    def row(self, name, **params):
        found = self.rows(name, **params)
        if len(found) != 1:
            raise KeyError(f"{name}: {len(found)} rows of {params}")
        return found[0]

    def us(self, name, **params):
        return self.row(name, **params)["us"]["median"]


def section(kept, make, says, names):
    s = page.Section(make.__name__, TITLES[make], says)
    s.used(*({**kept.record(name), "machine": ""} for name in names))
    return s


# ---- LeanKV -----------------------------------------------------------------------------------------


def fig11(kept):
    names = [f"pages-{n}" for n in LANES]
    s = section(kept, fig11,
                "L40, 1024 tokens, several batch sizes. It is up to three orders of magnitude faster than with "
                "several threads on the CPU.", names)
    rows, ratios = [], []
    for n, name in zip(LANES, names):
        us = {(op, how): kept.us(name, op=op, how=how, taking="1/16") for op, how in
              (("pages", "launched"), ("pages", "graph"), ("CUB", "launched"), ("CUB", "graph"), ("CPU loop", "copies"))}
        ratios.append(us["CPU loop", "copies"] / us["pages", "graph"])
        rows.append([n, *(page.number(v, 1) for v in us.values()), page.number(ratios[-1], 1)])
    s.add(page.table(["lanes", "plan to commit, launched, us", "in a graph", "CUB's scan and a scatter, launched",
                      "in a graph", "CPU loop and copies", "x CPU loop (graph)"], rows))
    s.add("Every 16th lane returns a page and takes one. CUB's scan takes pages alone. The CPU loop copies the lanes' counts "
          "down, does the same in a plain loop, and copies what has changed up.")
    s.say(page.agrees(min(ratios) > 1, "one launch for all lanes is faster than going through the CPU"),
          page.agrees(max(ratios) > 500, "the gain reaches three orders of magnitude",
                      f"it is {page.number(min(ratios), 1)} to {page.number(max(ratios), 1)} times, against a plain loop "
                      "on one thread rather than threads that lock a list"))
    return s


def fig12(kept):
    s = section(kept, fig12,
                "Memory management: under 0.9 % of a generation step, the model's own work in it.", ["spread"])
    rows, shares = [], []
    for kv in (*FORMATS, "leankv:ah=3,al=0.05"):
        step = kept.us("spread", kv=kv, how="step", spread=1)
        attend = kept.us("spread", kv=kv, how="graph", spread=1)
        plan = kept.row("spread", kv=kv, how="graph", spread=1)["plan_us"]["median"]
        n_layers = kept.row("spread", kv=kv, how="step", spread=1)["params"]["layers"]
        shares.append((step - attend) / step)
        rows.append([f"`{kv}`", n_layers, page.number(step, 1), page.number(attend, 1), page.number(plan, 1),
                     page.percent(shares[-1])])
    s.add(page.table(["KV", "layers", "a layer's share of a step, us", "of that attention", "planning attention, once a step, us",
                      "pages, append, scores, policy, %"], rows))
    s.add("A whole step of generation in a CUDA graph, without a model: 32 sequences of 8192 tokens, 8 KV heads, "
          "head dimension 128. The share is of the cache's own work, and few layers carry what is done once a step.")
    s.say("The paper's share cannot be read off without the model's work in the step. What is not attention is "
          f"{page.percent(min(shares))} to {page.percent(max(shares))} % of the cache's own time.")
    return s


def fig13(kept):
    s = section(kept, fig13,
                "L40: K8V8 reaches 1.7 times FP16's speed, of 2 that its bytes would allow; longer sequences gain more.",
                ["contexts", "small", "spread"])
    contexts = sorted({r["params"]["ctx"] for r in kept.rows("contexts")})
    rows = []
    for kv in FORMATS:
        of = {c: kept.row("contexts", kv=kv, how="graph", ctx=c) for c in contexts}
        last = of[contexts[-1]]
        allowed = kept.row("contexts", kv="f16", how="graph", ctx=contexts[-1])["bytes"] / last["bytes"]
        small = kept.row("small", kv=kv, how="graph")
        rows.append([kv, page.number(allowed), *(f"{of[c]['speed_to_first']:.2f} ({of[c]['us']['median']:.1f})" for c in contexts),
                     page.number(last["fraction_of_peak"]), page.number(small["speed_to_first"])])
    s.add(page.table(["KV", "bytes allow", *(f"{c} tokens: x f16 (us)" for c in contexts), "share of the copy bandwidth, last",
                      "d 64, 8192 tokens"], rows))
    spread = [[f"`{kv}`", *(page.number(kept.us("spread", kv=kv, how=how, spread=n), 1) for n, how in
                            ((1, "launched"), (8, "launched"), (8, "block a lane"))),
               page.number(kept.row("spread", kv=kv, how="launched", spread=8)["time_to_equal"]),
               page.number(kept.row("spread", kv=kv, how="launched", spread=8)["speed_to_block_a_lane"])]
              for kv in (*FORMATS, "leankv:ah=3,al=0.05")]
    s.add("32 sequences, 32 query heads, 8 KV heads, head dimension 128, calls in a CUDA graph. The second table "
          "has lanes whose lengths are spread 8:1, at as many tokens: cut into equal shares, or with a thread block "
          "a lane as in the paper's kernel, launched.")
    s.add(page.table(["KV", "equally long, us", "spread 8:1, us", "a block a lane, us", "x equally long", "x a block a lane"],
                     spread))
    k8v8 = [kept.row("contexts", kv="k8v8", how="graph", ctx=c)["speed_to_first"] for c in contexts]
    k4v2 = [kept.row("contexts", kv="k4v2", how="graph", ctx=c)["speed_to_first"] for c in contexts]
    s.say(f"k8v8 reaches {page.number(min(k8v8))} to {page.number(max(k8v8))} times f16's speed (paper: 1.7 of 2).",
          page.agrees(k4v2[-1] > k4v2[0], "longer sequences gain more"))
    return s


# ---- KVComp -----------------------------------------------------------------------------------------


def products(kept, name, **params):
    return [r for r in kept.rows(name, **params) if r["params"]["how"] == "fused"]


def fig9(kept):
    s = section(kept, fig9,
                "V100 and RTX 4090: the fused kernel beats decoding, dequantising and multiplying one after the "
                "other. It is faster for larger scales, whose codes are shorter. Over 400 GB/s for keys, 180 GB/s "
                "for values.", ["scales"])
    rows, by = [], {}
    for r in products(kept, "scales"):
        by.setdefault(r["params"]["kv"], {})[r["params"]["product"]] = r
    for kv, of in by.items():
        rows.append([f"`{kv}`"] + [cell for product in sorted(of) for cell in (
            page.number(of[product]["bits"]), page.number(of[product]["us"]["median"], 1),
            page.number(of[product]["gcodes_per_s"], 0), page.number(of[product]["speed_to_cublas"]))])
    which = sorted(next(iter(by.values())))
    s.add(page.table(["KV", *(f"{p}: {w}" for p in which for w in ("bits a code", "us", "G codes/s", "x cuBLAS f16"))], rows))
    times = [of[which[0]]["us"]["median"] for of in by.values()]
    s.say(page.agrees(times[-1] < times[0], "larger scales are faster"))
    return s


def fig10(kept):
    s = section(kept, fig10,
                "Against cuBLAS's matrix-vector product on f16, which decodes nothing, it is slower at short "
                "contexts and faster at long ones. Throughput grows with the context.", ["codec"])
    rows = []
    for r in products(kept, "codec"):
        p = r["params"]
        rows.append([f"`{p['kv']}`", p["product"], p["gqa"], p["ctx"], page.number(r["us"]["median"], 1),
                     page.number(r["gcodes_per_s"], 0), page.number(r["f16_gb_per_s"], 0), page.number(r["speed_to_cublas"])])
    s.add(page.table(["KV", "product", "query heads", "tokens", "us", "G codes/s", "GB/s of f16 replaced", "x cuBLAS f16"], rows))
    long = [r["speed_to_cublas"] for r in products(kept, "codec", gqa=1) if r["params"]["ctx"] >= 8192 and
            r["params"]["kv"].startswith("kvcomp:k=0.25,v=0.25")]
    s.say(page.agrees(bool(long) and min(long) > 1, "at 8192 tokens and more the fused products beat cuBLAS (k=0.25,v=0.25)"))
    return s


def fig11_kvcomp(kept):
    s = section(kept, fig11_kvcomp,
                "The time that decoding adds to cuBLAS's gives an equivalent throughput of decompression, which passes the "
                "product's own beyond 8192 tokens.", ["codec"])
    rows = []
    for r in products(kept, "codec", gqa=1):
        p = r["params"]
        cublas = r["us"]["median"] * r["speed_to_cublas"]
        beyond = r["us"]["median"] - cublas
        f16_bytes = r["f16_gb_per_s"] * r["us"]["median"] * 1e3
        rows.append([f"`{p['kv']}`", p["product"], p["ctx"], page.number(r["us"]["median"], 1), page.number(cublas, 1),
                     page.number(beyond, 1), "faster" if beyond <= 0 else page.number(f16_bytes / beyond / 1e6, 2)])
    s.add(page.table(["KV", "product", "tokens", "fused, us", "cuBLAS f16, us", "beyond, us", "f16 bytes over that, TB/s"], rows))
    return s


# ---- SpvLLM -----------------------------------------------------------------------------------------


def strategy_of(kv):
    """Of a row's spec; a spec as it is printed leaves the default out."""
    return "no sparsification" if kv == "f16" else kv.partition("reclaim=")[2] or "reuse"


def met(condition, what, by):
    return f"{'Met' if condition else 'Not met'}: {what} ({by})."


def reclaims(kept):
    s = section(kept, reclaims,
                "T4, 1000 requests: with a budget of 256 reuse serves 2.21 times the requests of no sparsification, with "
                "48.9 % less between tokens at p99.", ["reclaims"])
    of = {strategy_of(r["params"]["kv"]): r for r in kept.rows("reclaims")}
    noop, reuse = of["none"], of["reuse"]
    rows = [[name, page.number(r["output_throughput"], 0), page.number(r["output_throughput"] / noop["output_throughput"]),
             page.number(r["mean_concurrency"], 1), r["preempted_swap"] + r["preempted_recompute"],
             page.number(r["median_itl_ms"], 1), page.number(r["p99_itl_ms"], 1), page.percent(r["pool_used_mean"], 0)]
            for name, r in of.items()]
    s.add(page.table(["strategy", "output tokens/s", "x none", "at once, mean", "preempted", "between tokens, median, ms",
                      "p99, ms", "pool in use, mean, %"], rows))
    s.add("The model has Llama-3-8B's shape and random weights. `streaming` keeps 128 tokens a lane in f16, and the pool "
          "has room for 8192 tokens of f16. Requests of 200 tokens in and some 900 out hold an eighth of their tokens at "
          "their end, far from the paper's. Answers were not looked at.")
    lacks = [r for r in RECLAIMS if r not in of]
    if lacks:
        s.add(f"Not measured in this run: {page.listing(lacks)}. [GPU.md](../GPU.md), \"Many requests\", has them in steady pools.")
    ratio = reuse["output_throughput"] / noop["output_throughput"]
    less = 100 * (1 - reuse["p99_itl_ms"] / noop["p99_itl_ms"])
    n_preempted = reuse["preempted_swap"] + reuse["preempted_recompute"]
    s.say(met(ratio >= 2.2, "reuse is at least 2.2 times as fast as no-op", f"{ratio:.2f}"),
          met(less >= 40, "it has 40 % less between tokens at p99", f"{less:.0f} %"),
          met(n_preempted == 0, "it preempts nobody", str(n_preempted)))
    return s


# ---- pages ------------------------------------------------------------------------------------------

PAGES = {"leankv": (fig11, fig12, fig13), "kvcomp": (fig9, fig10, fig11_kvcomp), "spvllm": (reclaims,)}
TITLES = {fig11: "Figure 11 on a GPU: pages for all lanes in one launch",
          fig12: "Figure 12 on a GPU: share of a step spent on memory management",
          fig13: "Figure 13 on a GPU: speed of decode attention over f16",
          fig9: "Figure 9 on a GPU: fused products over scales",
          fig10: "Figure 10 on a GPU: fused products against cuBLAS over contexts",
          fig11_kvcomp: "Figure 11 on a GPU: what decoding costs beyond cuBLAS's product",
          reclaims: "Figures 4 and 6 on a GPU: the strategies in one pool"}


def made(kept, make):
    """Its section; where a result is missing, one that says so and how to get it."""
    try:
        return make(kept), None
    except KeyError as error:
        s = page.Section(make.__name__, TITLES[make], "")
        s.add(f"Not measured yet ({error.args[0]}): on a machine with a GPU, `python3 bench/papers/gpu/run.py --measure`.")
        return s, error.args[0]


def sections_of(paper):
    """The end of a paper's page, and what it lacks."""
    kept = Kept()
    parts, missing = [], []
    for make in PAGES[paper]:
        section_made, lacks = made(kept, make)
        parts.append(section_made.text())
        missing += [lacks] if lacks else []
    gpus = sorted({r["params"]["gpu"] for record in kept.records.values() for r in record["result"]["rows"]})
    peaks = "" if paper == "spvllm" else "; peaks are device-to-device copies in the same run, read and write counted"
    said = [f"Figures of one {', '.join(gpus)}{peaks}."]
    return fill("\n\n".join([MARK, "# On a GPU", *(said if gpus else []), *parts]) + "\n"), missing


def splice(path, paper):
    """Put the sections at the end of the page in place of those that are there; gives what they lack."""
    with open(path, encoding="utf-8") as f:
        text = f.read().split(MARK)[0].rstrip()
    end, missing = sections_of(paper)
    lab.write(path, text + "\n\n" + end)
    return missing
