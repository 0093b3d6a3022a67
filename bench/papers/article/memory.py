# SPDX-License-Identifier: MIT
"""Tables of bytes: they follow from shapes; `pleat plan` has to agree."""
from article import models, printed
from article.section import Section, gib, ratio
from lab import page

TOKENS = 4096


def all_gib(row):
    """Of a row of `pleat plan`: whole pages, the pool and the tables."""
    return gib((row["bytes"]["kv"] + row["bytes"]["tables"]) / models.GIB)


def table_models(bench):
    s = Section("models", "KV cache of known models",
                "Its table has 4.0 GB for Llama 3 8B at batch 32 and 4096 tokens, 10.0 for 70B, 20.0 for 70B at "
                "batch 64. Its worked example right above has 80 for the last.")
    rows, factors = [], set()
    for label, name, batch, weights, said in printed.MODELS:
        is_guess = models.MODELS[name].hidden is None
        record, planned = (None, None) if is_guess else bench.plan(name, TOKENS, batch, "f16")
        s.used(record)
        right, weighs = models.kv_gib(name, TOKENS, batch), models.weights_gb(name, weights)
        factors.add(round(right / said, 1))
        share = right * models.GIB / 1e9 / weighs
        rows.append((label, batch, f"{weights}", "-" if is_guess else f"{weighs:.1f}", gib(said), f"**{gib(right)}**",
                     "-" if is_guess else all_gib(planned["f16"]), ratio(right / said), f"{100 * said / weights:.0f}",
                     f"**{page.percent(share, 0)}**"))
    s.add(page.table(("model", "batch", "weights, GB: article", "from the shape", "KV, GiB: article", "right",
                      "with pages and tables", "factor", "KV / weights, %: article", "right"), rows))
    s.say(f"Every size is too small by {' to '.join(ratio(f) for f in sorted(factors))}: as if keys and values, and "
          "the two bytes of f16, had been left out. The worked example (2 * 80 * 8 * 128 * 4096 * 64 * 2 bytes = "
          f"{gib(models.kv_gib('llama3-70b', TOKENS, 64))} GiB) is right. Shares compare bytes with bytes; the article "
          "sets GiB against GB.")
    s.formula("2 * layers * KV heads * head_dim * tokens * batch * 2 bytes. Weights are 2 bytes a parameter, "
              "counted from the model's shape (bench/papers/article/models.py). Pages and tables are Pleat's, which "
              "hold whole pages; the last row's shape is the article's estimate")
    return s


def table_batches(bench):
    m = "llama3-70b"
    weighs = models.weights_gb(m)
    one = models.kv_bytes(m, TOKENS)
    s = Section("batches", "KV cache against batch size",
                "Figure, Llama 3 70B, 4096 tokens: 0.31 GB at batch 1 to 80 GB at 256, \"more than half the weights\".")
    rows = [(batch, gib(said), f"**{gib(one * batch / models.GIB)}**", page.percent(one * batch / 1e9 / weighs, 0))
            for batch, said in printed.BATCHES.items()]
    s.add(page.table(("batch", "GiB: article", "right", "of the weights, %"), rows))
    record, planned = bench.plan(m, TOKENS, 1, "f16")
    s.used(record)
    s.say(f"Also 4 times too small. The cache passes the weights ({weighs:.1f} GB) at batch "
          f"{int(weighs * 1e9 // one) + 1}, and those that a step reads, without the embedding, at "
          f"{planned['f16']['batch_kv_passes_weights']}; not beyond 256.")
    s.formula("the same, for one batch size after the other")
    return s


def table_small(bench):
    s = Section("small", "When not to optimise",
                "Llama 3 8B at batch 32 with 512 tokens: 0.5 GB, \"negligible\". Llama 3.2 1B at batch 64 with 4096 "
                "tokens: 4.3 GB beside about 2 GB of weights, \"still manageable\".")
    rows, words = [], []
    for label, name, batch, tokens, said, _ in printed.SMALL:
        s.used(bench.plan(name, tokens, batch, "f16")[0])
        right = models.kv_gib(name, tokens, batch)
        share = right * models.GIB / 1e9 / models.weights_gb(name)
        rows.append((label, batch, tokens, gib(said), f"**{gib(right)}**", ratio(right / said),
                     f"{models.weights_gb(name):.1f}", page.percent(share, 0)))
        words.append(f"{page.percent(share, 0)} % of the weights for {label}")
    s.add(page.table(("model", "batch", "tokens", "KV, GiB: article", "right", "factor", "weights, GB",
                      "KV / weights, %"), rows))
    s.say(f"Both are too small, and the second is no example of a small cache. KV is {page.listing(words)}. That a "
          "short context needs no pages still holds; that a small model has a small cache does not.")
    s.formula("the same; the 1B model has 16 layers, 8 KV heads of 64")
    return s


def table_precisions(bench):
    m, batch = "llama3-70b", 64
    extra = ("k8v4", "k4v2")
    said = printed.PRECISIONS + [("-", None, "-", kv) for kv in extra]
    record, planned = bench.plan(m, TOKENS, batch, *(kv for _, _, _, kv in said if kv))
    s = Section("precisions", "Bytes by precision",
                "Llama 3 70B, batch 64, 4096 tokens: FP16 80 GB, INT8 40 (2x), INT4 20 (4x), INT4 with FP16 outliers "
                "24, INT2 10 (8x).")
    s.used(record)
    full, rows = models.kv_gib(m, TOKENS, batch), []
    for label, element, size, kv in said:
        row = [label, size, ratio(2 / element) if element else "-"]
        if kv:
            right = models.kv_gib(m, TOKENS, batch, kv)
            row += [f"`{kv}`", models.lane_bytes(kv, 128), f"**{gib(right)}**", ratio(full / right, 2),
                    all_gib(planned[kv])]
        rows.append(row + ["-"] * (8 - len(row)))
    s.add(page.table(("article", "GiB", "saves", "Pleat", "bytes a token and lane", "GiB", "saves",
                      "with pages and tables"), rows))
    s.say("The article counts codes alone. A scale and a minimum of 2 bytes each, for the keys and for the values of "
          "each token, are 8 bytes a lane beside 512 of f16: little at 8 bits, a ninth at 2. Its \"per-channel\" "
          "sample takes its maximum over the channels of a token, so it is per token, as here. What precision costs in "
          "quality is measured in docs/papers/leankv.md (Figure 7); the article's losses have no source.")
    s.formula("layers * KV heads * tokens * batch * (head_dim * (key bits + value bits) / 8 + 8)")
    return s


def beam_blocks(n_beams, n_tokens, n_different, block):
    """Blocks of beams that share what comes before their last n_different tokens: whole blocks alone can be shared."""
    tables = [[("shared", i) if (i + 1) * block <= n_tokens - n_different else (beam, i)
               for i in range(-(-n_tokens // block))] for beam in range(n_beams)]
    return len(set(sum(tables, [])))


def table_beams(bench):
    w, n, last = printed.BEAMS, printed.BEAM_TOKENS, printed.BEAM_DIFFERENT
    s = Section("beams", "Copy-on-write of beams",
                f"{w} beams over {n} tokens, of which the last {last} differ, in blocks of {printed.BEAM_BLOCK}: 4x "
                f"without sharing, approximately {printed.BEAM_COST}x with copy-on-write.")
    rows = []
    for block in (1, 8, 16, 32, 64, 128):
        one, shared = -(-n // block), beam_blocks(w, n, last, block)
        rows.append((block, one, w * one, shared, f"**{shared / one:.3f}x**"))
    s.add(page.table(("block", "one sequence", "copied", "shared", "of one sequence"), rows))
    found = beam_blocks(w, n, last, printed.BEAM_BLOCK)
    one = n // printed.BEAM_BLOCK
    own = (w - 1) * -(-last // printed.BEAM_BLOCK)
    s.say(f"By the article's own formula it is {one} + {w - 1} * {own // (w - 1)} = {one + own} blocks, "
          f"{(one + own) / one:.3f}x, and counting blocks gives {found}. Its formula is exact where the sequence ends "
          "with a block, as here; else a beam may own one block more.")
    s.formula("tables of block ids, a block shared if all its tokens are; distinct ids counted")
    return s


LIST = (table_models, table_batches, table_small, table_precisions, table_beams)
