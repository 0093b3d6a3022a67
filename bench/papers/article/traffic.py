# SPDX-License-Identifier: MIT
"""Tables of bytes moved and of work: a step of generation, swapping, what a cache saves."""
from article import models, printed
from article.section import Section, ratio
from lab import page

MODEL, TOKENS = "llama3-70b", 2048
A100_BYTES_S, A100_FLOPS = 2e12, 312e12  # NVIDIA's data sheet for the 80 GB card: 2.0 TB/s, 312 TFLOP/s of dense f16
LINK_BYTES_S = 25e9                      # the article's figure for PCIe 4.0 x16, one way
CARDS = 4                                # the article's server


def table_no_cache(bench):
    n = TOKENS * 2
    rows = [("keys and values computed for", f"{n * (n + 1) // 2:,} tokens", f"{n:,}",
             ratio((n + 1) / 2, 0)),
            ("scores of attention, a head and layer", f"{n * (n + 1) * (n + 2) // 6:,}", f"{n * (n + 1) // 2:,}",
             ratio((n + 2) / 3, 0))]
    s = Section("no_cache", "Work with and without a cache",
                f"{n} tokens: projections and attention both fall from O(n^2) to O(n); about {printed.NO_CACHE_S} s "
                f"against {printed.CACHE_S} s, 15x.")
    s.add(page.table(("one token after the other", "without", "with", "factor"), rows))
    s.say("Projections fall from n(n+1)/2 to n. Attention does not become linear: without a cache step t computes "
          "t(t+1)/2 scores again, so the sum is cubic, and with one it is still quadratic. The seconds are estimates "
          "without a model or a machine, and nothing leads from these factors to 15.")
    s.formula("sums over t = 1..n of t and t(t+1)/2 without, of 1 and t with")
    return s


def judge_decode(weights, kv):
    """Sentences about batch 256, whose KV is given in GB as the weights are."""
    computing = 2 * models.params(models.MODELS[MODEL]) * 256 / A100_FLOPS
    reading = (weights + kv) * 1e9 / A100_BYTES_S
    return ("The sizes are right here, unlike those above, but GiB of KV are added to GB of weights. In one unit KV "
            f"is {page.percent(kv / (weights + kv))} % at batch 256.",
            f"No A100 holds {weights + kv:.0f} GB: four would, and read in a quarter of the time.",
            f"The {printed.COMPUTE_MS} ms are not possible: 2 operations for each parameter and request at "
            f"{A100_FLOPS / 1e12:.0f} TFLOP/s are at least {1e3 * computing:.0f} ms on the card whose reading takes "
            f"{1e3 * reading:.0f}, so it idles at most {page.percent(1 - computing / reading, 0)} % of the time.")


def table_decode(bench):
    weights = models.weights_gb(MODEL)
    s = Section("decode", "Bytes read in a step of generation",
                "Llama 3 70B, 2048 tokens: 140 GB of weights and 0.6 (batch 1) to 160 GB of KV (256, 53 % of the "
                "step). It takes 70 to 150 ms on an A100; at batch 256 computing takes 20 ms, \"the GPU is idle 87 "
                "% of the time\".")
    rows = []
    for batch, (said, ms) in printed.DECODE.items():
        kv = models.kv_bytes(MODEL, TOKENS, batch) / 1e9
        total = weights + kv
        rows.append((batch, said, f"{kv / 1.073741824:.1f}", f"**{kv:.1f}**", f"**{total:.1f}**",
                     f"{100 * said / (140 + said):.1f}", f"**{page.percent(kv / total)}**", ms,
                     f"{total * 1e9 / A100_BYTES_S * 1e3:.0f}", f"{total * 1e9 / A100_BYTES_S * 1e3 / CARDS:.1f}"))
    s.add(page.table(("batch", "KV, GiB: article", "GiB", "KV, GB", "with weights", "KV, %: article", "KV, %",
                      "ms: article", "at 2 TB/s", "at four cards' 8 TB/s"), rows))
    s.say(*judge_decode(weights, models.kv_bytes(MODEL, TOKENS, 256) / 1e9))
    s.formula("KV = batch * 2048 tokens * 327,680 bytes; time = (weights + KV) / bandwidth, both ways a lower bound")
    return s


def step_gain(weights_gb, kv_gb, fraction):
    """How much faster a step gets when its KV shrinks to a fraction and reading is all that takes time."""
    return (weights_gb + kv_gb) / (weights_gb + kv_gb * fraction) - 1


def table_gain(bench):
    weights = models.weights_gb(MODEL)
    s = Section("gain", "What quantising the cache gives in a step",
                "Figure, Llama 3 70B: at batch 256 INT8 gives 26 % more tokens/s than FP16 and INT4 43 %, \"purely "
                "from reduced bandwidth\". Text: INT8 saves 80 GB, 27 % of the bytes.")
    rows = []
    for batch, (f16, int8, int4) in printed.THROUGHPUT.items():
        said = printed.DECODE[batch][0]
        kv = models.kv_bytes(MODEL, TOKENS, batch) / 1e9
        gain = [f"**{100 * step_gain(weights, kv, models.lane_bytes(f, 128) / 512):+.1f}**"
                for f in ("k8v8", "k8v4", "k4v4", "k4v2")]
        rows.append((batch, f"{100 * (int8 / f16 - 1):+.0f}", f"{100 * step_gain(140, said, 0.5):+.0f}",
                     f"{100 * (int4 / f16 - 1):+.0f}", f"{100 * step_gain(140, said, 0.25):+.0f}", *gain))
    s.add(page.table(("batch", "INT8, %: figure", "its bytes give", "INT4, %: figure", "its bytes give", "`k8v8`",
                      "`k8v4`",
                      "`k4v4`", "`k4v2`"), rows))
    s.say(f"By the article's own bytes INT8 gives 300/220 = {100 * step_gain(140, 160, 0.5):+.0f} % at batch 256 and "
          f"INT4 300/180 = {100 * step_gain(140, 160, 0.25):+.0f} %. Fewer bytes by 27 % are more tokens by 36 %, "
          "and the figure shows neither. Pleat's columns count scales and minima, and GB for both terms. All are "
          "bounds: they hold while reading is what takes the time.")
    s.formula("(weights + KV) / (weights + KV * fraction) - 1; fraction = 0.5 and 0.25, or a lane's bytes over 512")
    return s


def table_swap(bench):
    s = Section("swap", "Swap against recomputing",
                "Llama 3 70B, 25 GB/s: a prompt of 2048 tokens is 0.08 GB, 3.2 ms to swap and 210 to compute. Swap "
                "wins at every length. The text before says that recomputing is usually faster below 512 tokens.")
    specs = ("f16", "k8v4", "k4v2")
    rows, wins, peaks = [], [], []  # wins: how many times out and in fits into recomputing
    flops = 2 * models.params(models.MODELS[MODEL])
    for tokens, (said, said_ms, compute_ms) in printed.SWAP.items():
        s.used(bench.plan(MODEL, tokens, 1, *specs)[0])
        way = {kv: models.kv_bytes(MODEL, tokens, 1, kv) / LINK_BYTES_S * 1e3 for kv in specs}
        bound = flops * tokens / (CARDS * A100_FLOPS) * 1e3
        peaks.append(compute_ms / bound)
        wins.append(min(compute_ms, bound) / (2 * way["f16"]))
        rows.append((tokens, said, f"**{models.kv_gib(MODEL, tokens):.3f}**", said_ms, f"**{way['f16']:.1f}**",
                     f"{2 * way['f16']:.1f}", f"{2 * way['k8v4']:.1f}", f"{2 * way['k4v2']:.1f}", compute_ms,
                     f"{bound:.0f}", "swap" if wins[-1] > 1 else "recompute"))
    s.add(page.table(("tokens", "GiB: article", "right", "ms one way: article", "right", "out and in", "`k8v4`",
                      "`k4v2`",
                      "recompute, ms: article", "bound, 4 cards", "winner"), rows))
    said, said_ms, compute_ms = printed.SWAP[2048]
    s.say(f"Too small by {ratio(models.kv_gib(MODEL, 2048) / said)}: the KV heads were forgotten. 2048 tokens are "
          f"{models.kv_gib(MODEL, 2048):.3f} GiB, {models.kv_bytes(MODEL, 2048) / LINK_BYTES_S * 1e3:.1f} ms one way, "
          "and a swap goes both ways.",
          page.agrees(min(wins) > 1, "swapping wins at every length"),
          f"By {ratio(min(wins))} to {ratio(max(wins))}, though, where the table has "
          f"{ratio(compute_ms / said_ms, 0)} at 2048 tokens. The text is wrong about short prompts unless a copy has "
          "a fixed cost.",
          f"The article's times for recomputing are {min(peaks):.2f} to {max(peaks):.2f} of what four A100 would need "
          "at their peak. Quantised pages are cheaper to swap and no cheaper to compute.")
    s.formula("tokens * 327,680 bytes / 25 GB/s, both ways over one link (four cards have four, and swap in a "
              "quarter). The bound is 2 operations for each parameter and token at four times 312 TFLOP/s, without "
              "attention. The winner is by out and in, f16, against the smaller of the last two")
    return s


LIST = (table_no_cache, table_decode, table_gain, table_swap)
