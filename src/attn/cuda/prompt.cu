/* SPDX-License-Identifier: MIT
 *
 * prompt.cu: checks a prompt, plans the splits of pass 2, and launches both passes.  See prompt.h.
 *
 * Splits: a block of pass 2 owns 128 keys of a KV head and walks all later queries, so the first keys' blocks walk
 * longest.  Where there are many blocks that does not matter, as the longest start first.  Where there are few, the
 * queries are cut in spans, so that about TARGET_UNITS units of work come about and none is much longer than the rest.
 * The plan depends on sizes alone, never on the GPU: sums have one order.
 */
#include "attn/cuda/prompt_wgmma.cuh"

#define LOG2_E 1.44269504088896341f
#define TARGET_UNITS 2048u
#define SPAN_STEP 256u /* queries: a multiple of all blocks of queries and keys */
#define MAX_SPLITS 32u
#define PAIRS_FROM 16384u /* keys: power limits such a prompt, and pairs of blocks take less for their copies */
#define L2_BYTES ((uint64_t)40 << 20) /* A100's; an H200 has 50 MB */

static uint32_t every_of(const pleat__device_prompt_attn *p) { return p->every > 1 ? p->every : 1; }

/* Queries of a span: n_keys/128 * n_heads blocks times n_splits units.  A prompt's last queries are too few to cut. */
static void plan_splits(const pleat__device_prompt_attn *p, uint32_t *n_splits, uint32_t *span) {
    if (p->first_query > 0) {
        *n_splits = 1;
        *span = p->max_tokens;
        return;
    }
    const uint64_t blocks = (uint64_t)((p->n_tokens + 127) / 128) * p->n_kv_heads;
    uint64_t splits = (TARGET_UNITS + blocks - 1) / (blocks ? blocks : 1);
    if (splits > MAX_SPLITS) splits = MAX_SPLITS;
    const uint64_t n_queries = (p->max_tokens + every_of(p) - 1) / every_of(p);
    const uint64_t even = (n_queries + splits - 1) / splits;
    *span = (uint32_t)((even + SPAN_STEP - 1) / SPAN_STEP * SPAN_STEP);
    *n_splits = (uint32_t)((n_queries + *span - 1) / *span);
}

extern "C" uint64_t pleat__device_prompt_attn_workspace(const pleat__device_prompt_attn *p) {
    if (!p->received || p->max_tokens == 0) return 0;
    uint32_t n_splits, span;
    plan_splits(p, &n_splits, &span);
    return n_splits == 1 ? 0 : (uint64_t)n_splits * p->n_kv_heads * p->n_tokens * sizeof(float);
}

/* K and V are what pass 1 reads again and again, q what pass 2 does. */
static void plan_turns(const pleat__device_prompt_attn *p, uint32_t turn_heads[2]) {
    const uint64_t row_bytes = (uint64_t)p->head_dim * 2, kv_bytes = (p->n_past + p->max_tokens) * row_bytes;
    const bool fits[2] = {2 * p->n_kv_heads * kv_bytes <= L2_BYTES,
                          p->n_kv_heads * p->n_group * p->max_tokens * row_bytes <= L2_BYTES};
    turn_heads[0] = (fits[0] ? p->n_kv_heads : 1) * p->n_group;
    turn_heads[1] = fits[1] ? p->n_kv_heads : 1;
}

static bool is_aligned(const void *p) { return p && (uintptr_t)p % 16 == 0; }

static pleat_status check(const pleat__device_prompt_attn *p, pleat_error *err) {
    PLEAT_FAIL_IF(p->head_dim != 64 && p->head_dim != 128, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "prompt attention on a GPU has head_dim 64 or 128");
    PLEAT_FAIL_IF(p->n_group < 1 || p->n_group > 8 || p->n_kv_heads < 1 || p->n_kv_heads > 1024, err, PLEAT_E_ARG,
                  PLEAT_NOWHERE, "prompt attention on a GPU has 1 to 1024 KV heads of 1 to 8 query heads");
    PLEAT_FAIL_IF(p->n_seqs < 1 || p->n_seqs > 65535 || (!p->starts && p->n_seqs != 1) || p->max_tokens < 1 ||
                      p->max_tokens > p->n_tokens || (!p->starts && p->max_tokens != p->n_tokens) ||
                      p->max_tokens > 1u << 20 || p->n_tokens > 1u << 30,
                  err, PLEAT_E_ARG, PLEAT_NOWHERE, "prompt attention: the prompts' sizes do not fit together");
    PLEAT_FAIL_IF(p->n_past > 0 && (p->n_seqs != 1 || p->starts || p->received || p->n_past > 1u << 24), err,
                  PLEAT_E_ARG, PLEAT_NOWHERE, "prompt attention: a chunk is one prompt, and receives nothing");
    PLEAT_FAIL_IF(!(p->scale > 0) || p->scale > 1e30f, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "prompt attention: scale must be positive");
    const uint32_t every = every_of(p);
    PLEAT_FAIL_IF(every > 128 || (every & (every - 1)) || (every > 1 && (p->n_seqs != 1 || p->starts)), err,
                  PLEAT_E_ARG, PLEAT_NOWHERE, "prompt attention: every %uth query of one prompt cannot be counted",
                  every);
    PLEAT_FAIL_IF(p->first_query > 0 && (p->starts || every > 1 || p->first_query >= p->n_tokens), err, PLEAT_E_ARG,
                  PLEAT_NOWHERE, "prompt attention: only one prompt's own last queries can be counted alone, each");
    const uint64_t width = (uint64_t)p->n_kv_heads * p->head_dim;
    PLEAT_FAIL_IF(p->q_stride < width * p->n_group || p->kv_stride < width || p->out_stride < width * p->n_group, err,
                  PLEAT_E_ARG, PLEAT_NOWHERE, "prompt attention: a stride is shorter than a token");
    PLEAT_FAIL_IF(p->q_stride % 8 || p->kv_stride % 8 || p->out_stride % 8 || !is_aligned(p->q) || !is_aligned(p->k) ||
                      !is_aligned(p->v) || !is_aligned(p->out) || !p->lse2 ||
                      (!p->workspace && pleat__device_prompt_attn_workspace(p)),
                  err, PLEAT_E_ARG, PLEAT_NOWHERE, "prompt attention: tensors must be aligned to 16 bytes");
    return PLEAT_OK;
}

/* Pass 2, whose queries may be some of the prompt's. */
static pleat_status receive(const pleat__prompt_args *of, prompt_maps *maps, bool by_wgmma, pleat__device_stream stream,
                            pleat_error *err) {
    pleat__prompt_args args = *of;
    const uint32_t n_skipped = args.every - 1;
    args.p.q += (uint64_t)n_skipped * args.p.q_stride;
    args.p.q_stride *= args.every;
    args.p.lse2 += (uint64_t)n_skipped * args.lse2_stride;
    args.lse2_stride *= args.every;
    if (args.every > 1 && args.p.n_tokens < args.every)
        return pleat__device_fill(args.p.received, 0, (uint64_t)args.p.n_kv_heads * args.p.n_tokens * sizeof(float),
                                  stream, err);
    if (!by_wgmma) return pleat__prompt_received_mma(&args, stream, err);
    if (args.every > 1) PLEAT_TRY(pleat__prompt_query_map(&args, maps, err));
    return pleat__prompt_received_wgmma(&args, maps, stream, err);
}

/* Both passes by wgmma, or by mma.sync. */
static pleat_status run(const pleat__prompt_args *args, bool by_wgmma, pleat__device_stream stream, pleat_error *err) {
    prompt_maps maps;
    if (by_wgmma) {
        PLEAT_TRY(pleat__prompt_maps(&args->p, &maps, err));
        PLEAT_TRY(pleat__prompt_attend_wgmma(args, &maps, stream, err));
    } else {
        PLEAT_TRY(pleat__prompt_attend_mma(args, stream, err));
    }
    if (!args->p.received) return PLEAT_OK;
    PLEAT_TRY(receive(args, &maps, by_wgmma && !args->p.sums_heads && args->p.first_query == 0, stream, err));
    return args->n_splits == 1 ? PLEAT_OK : pleat__prompt_add_up(args, stream, err);
}

extern "C" pleat_status pleat__device_prompt_attn_run(const pleat__device_prompt_attn *prompt,
                                                      pleat__device_stream stream, pleat_error *err) {
    if (prompt->n_tokens == 0) return PLEAT_OK;
    PLEAT_TRY(check(prompt, err));
    bool by_wgmma = false;
    if (prompt->kernel != PLEAT__PROMPT_MMA) PLEAT_TRY(pleat__prompt_has_wgmma(&by_wgmma, err));
    PLEAT_FAIL_IF(prompt->kernel >= PLEAT__PROMPT_WGMMA && !by_wgmma, err, PLEAT_E_DEVICE, PLEAT_NOWHERE,
                  "prompt attention: this GPU, or this build, has no wgmma");
    pleat__prompt_args args = {};
    args.p = *prompt;
    args.scale2 = prompt->scale * LOG2_E;
    args.partial = static_cast<float *>(prompt->workspace);
    args.every = every_of(prompt);
    args.lse2_stride = prompt->n_kv_heads * prompt->n_group;
    plan_splits(prompt, &args.n_splits, &args.span);
    plan_turns(prompt, args.turn_heads);
    args.in_pairs = prompt->kernel == PLEAT__PROMPT_PAIRS ||
                    (prompt->kernel == PLEAT__PROMPT_BEST && prompt->n_past + prompt->max_tokens >= PAIRS_FROM);
    return run(&args, by_wgmma, stream, err);
}
