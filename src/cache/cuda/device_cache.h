/* SPDX-License-Identifier: MIT
 *
 * device_cache.h: the host's side of a device cache.
 *
 *     device_create.c    options to sizes, layouts and memory: pages, tables, workspace, an allocation each
 *     device_cache.c     prompts and steps: which launchers in which order
 *     device_compress.c  cold tokens in blocks
 *     device_fill.c      sequences of made-up tokens
 *     device_novelty.c   novel's tables, and its sums of keys
 *     device_image.c     a sequence as bytes in the host's memory, and back
 *     device_inspect.c   what it holds, brought to the host
 *
 * The host knows which sequences are open and whether a step or prompt is under way, and nothing else of what is in the
 * cache: lengths, slots and pages are on the device alone.  Of steps that a graph makes it knows nothing at all.
 */
#ifndef PLEAT_CACHE_CUDA_DEVICE_CACHE_H
#define PLEAT_CACHE_CUDA_DEVICE_CACHE_H

#include "attn/cuda/blocks.h"
#include "attn/cuda/decode.h"
#include "attn/cuda/prompt.h"
#include "attn/cuda/wide.h"
#include "cache/cuda/image_hash.h"
#include "cache/cuda/lanes.h"
#include "cache/image_form.h"
#include "core/memory.h"
#include "pleat/device_cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the host knows of a sequence.  EMPTY -- prompt_begin --> PROMPT -- prompt_end --> OPEN -- close --> EMPTY;
 * OPEN -- chunk_begin --> PROMPT; fork, fill,
 * set_batch, and begin where the batch has a sequence that was closed, lead from EMPTY to OPEN at once, close from PROMPT
 * to EMPTY. */
typedef enum pleat__seq_state { PLEAT__SEQ_EMPTY, PLEAT__SEQ_PROMPT, PLEAT__SEQ_OPEN } pleat__seq_state;

/* A place in device memory that a piece of an image passes on its way. */
typedef struct pleat__device_stage {
    uint8_t *pages; /* behind room for the start of a block that the piece before it ends with */
    uint64_t *sums; /* of the piece's blocks */
    pleat__device_event there, copied, hashed; /* kernels, copies, and the hash are done with it */
} pleat__device_stage;

/* Pieces in stages at once. */
#define PLEAT__IMAGE_STAGES 8u

/* A sequence's pages on their way: to an image, or from it. */
typedef struct pleat__device_transfer {
    uint32_t seq_idx, n_tokens, n_pages, n_pieces;
    bool brings;
    uint8_t *image, *pages; /* which are in it; not written where it is restored */
    uint64_t hashed_at;     /* where pages stand in what is hashed */
    pleat__image_hasher hash;
} pleat__device_transfer;

/* What a layer's slots received is added to their scores in a stream of its own, beside what follows attention. */
typedef struct pleat__device_aside {
    pleat__device_stream stream;
    pleat__device_event attended, received; /* a layer's attention is done; and what it gave is added */
    bool is_ahead;                          /* nothing of the step has waited for that yet */
} pleat__device_aside;

/* What saving and restoring works with.  Memory of the host is such as the device copies to and from. */
typedef struct pleat__device_image_work {
    uint32_t *n_slots[2], *hole, *dead; /* [rows_per_seq] of the host: a sequence's counts */
    uint32_t *before;                   /* [rows_per_seq + 1] of the host: pages of the rows before */
    uint32_t *sealed;                   /* [2][rows_per_seq] of the host, behind before: sealed pages of an image */
    uint32_t *device_before;            /* a copy of before and sealed in device memory */
    pleat__device_stream copies, kernels, hashes;
    pleat__device_stage stages[PLEAT__IMAGE_STAGES];
    pleat__device_transfer leaving; /* image NULL: none is */
    void *stage;                    /* memory of stages and state; NULL: not needed yet */
    uint64_t *state;                /* [8] of the hash under way, in device memory */
    uint64_t *host_state;           /* [8] of the host */
    uint64_t stage_bytes;           /* of a stage's pages: whole ones of images */
    uint8_t *seen;                  /* [max_tokens] of the host: positions of a lane */
} pleat__device_image_work;

struct pleat_device_cache {
    pleat_allocator al;
    pleat_device_cache_options opt;
    uint32_t n_group;
    uint32_t rows_per_seq; /* n_layers * n_kv_heads */
    uint32_t n_pages;
    float scale;
    bool two_sided;
    bool is_wide;      /* wide.cu's and wide.h's kernels do what the others cannot */
    bool stores_wide;  /* wide.cu's store chunks and steps: where is_wide, and rotated tokens */
    uint32_t *windows; /* [n_layers] as opt.windows, or NULL */
    uint32_t *device_windows;

    pleat__device_lanes lanes; /* as kernels are handed it; the batch is lanes.pages.seq_idxs */
    pleat__device_view view;   /* the lanes as attention is handed them */

    pleat__device_attn_plan plans[3]; /* [pleat_device_schedule]; the last only where steps go by it */
    pleat_device_schedule schedule;   /* of the last plan */
    uint64_t logits_stride;           /* 0: steps are not counted */
    void *attn_workspaces[3];         /* of each plan: apart, so that a stale one is not read as the other's */
    float *logits;                    /* [max_seqs][n_q_heads][logits_stride] */
    float *lse2;                      /* [max_seqs][n_q_heads], for callers who want none */
    pleat__device_aside aside;        /* where steps are counted */
    uint16_t *rotated_q;              /* [max_seqs][n_q_heads][head_dim] of a step, where formats are rotated */
    float *prompt_lse2;               /* [min(max_tokens, PLEAT_DEVICE_PROMPT_TOKENS)][n_q_heads] of a prompt's layer */
    void *prompt_workspace;           /* PLEAT__PROMPT_WORKSPACE_MAX */
    void *wide_workspace;             /* pleat__device_wide_bytes(), where is_wide; nothing else of attention's then */
    float *block_other; /* [max_seqs][n_q_heads][head_dim] attention over what is in no block, where there are blocks */
    float *block_parts; /* attention over parts of lanes' blocks (attn/cuda/blocks.h) */
    uint16_t *chunk_rows[2]; /* [max_tokens + PLEAT__WIDE_KEYS][n_kv_heads][head_dim] keys, values of one layer; uniform
                              * formats */
    uint32_t *seq_idxs;      /* [max_seqs] the batch, in device memory */

    float *turns;      /* [PLEAT__DEVICE_TURNS_MOST] tables of novel's, in device memory */
    uint8_t *turns_of; /* [n_layers] in device memory: lanes.novelty.turns_of */

    uint32_t *budgets;            /* [max_seqs] of the host, as lanes.budgets */
    pleat__device_counters *told; /* memory of the host, which the device writes when a step ends: so are loads */
    pleat__device_load *loads;    /* [max_seqs] where lanes have a policy */

    pleat__image_form image_form;
    pleat__device_image_work image;

    void *memory[3]; /* pages, tables, workspace */
    uint64_t memory_bytes[3];

    uint8_t *seq_states; /* [max_seqs] pleat__seq_state */
    uint32_t *batch;     /* [max_seqs] what `seq_idxs` holds */
    uint8_t *placed;     /* [n_layers] of the prompt under way */
    uint8_t *marks;      /* [max_seqs] scratch */
    uint32_t *n_each;    /* [n_layers] scratch: pages of a row */
    void *block;         /* the memory of seq_states, batch, placed, marks, n_each and budgets */
    uint64_t block_bytes;
    bool in_prompt, in_step;
    bool is_planned;  /* attention, for this batch */
    bool has_stored;  /* a token of this batch behind that plan */
    bool keeps_ahead; /* rows may hold pages beyond their slots outside of steps */
    uint32_t prompt_seq, prompt_tokens;
    uint32_t prompt_past;    /* of a chunk under way: tokens before it; else 0 */
    uint64_t n_refused_seen; /* of pool->n_refused + step->n_full */
};

#define PLEAT__DEVICE_ALIGN 256u

/* A part of an arena whose parts are aligned as the device has it: `take` of a whole number of units. */
static inline void *pleat__device_carve(pleat__arena *arena, uint64_t count, uint64_t bytes) {
    return pleat__arena_take(arena,
                             (count * bytes + PLEAT__DEVICE_ALIGN - 1) / PLEAT__DEVICE_ALIGN * PLEAT__DEVICE_ALIGN, 1);
}

static inline pleat__device_stream pleat__device_stream_of(void *stream) {
    const pleat__device_stream of = {stream};
    return of;
}

/* The layer's window; 0: none. */
static inline uint32_t pleat__device_window(const pleat_device_cache *c, uint32_t layer) {
    return c->windows ? c->windows[layer] : 0;
}

/* Row of the first lane of a sequence. */
static inline uint32_t pleat__device_first_row(const pleat_device_cache *c, uint32_t seq_idx) {
    return seq_idx * c->rows_per_seq;
}

/* What tokens receive in a prompt, and in a step, is their score. */
static inline bool pleat__device_cache_counts(const pleat_device_cache *c) {
    return c->lanes.policy.counts != PLEAT__DEVICE_COUNTS_NONE;
}
static inline bool pleat__device_cache_counts_steps(const pleat_device_cache *c) {
    return pleat__device_cache_counts(c) && c->lanes.policy.counts != PLEAT__DEVICE_COUNTS_WINDOW;
}

/* Lanes keep a budget of tokens: always, or of what a prompt brings. */
static inline bool pleat__device_cache_evicts(const pleat_device_cache *c) {
    return c->lanes.policy.ranks != PLEAT__DEVICE_RANKS_NONE;
}

/* Tokens are dropped or demoted, or become blocks: pages are no arithmetic. */
static inline bool pleat__device_cache_has_policy(const pleat_device_cache *c) {
    return c->lanes.policy.is_leankv || c->lanes.policy.has_blocks || pleat__device_cache_evicts(c);
}

/* Lanes with a budget hold no dead slots but a hole. */
static inline bool pleat__device_cache_is_packed(const pleat_device_cache *c) {
    const pleat_reclaim how = c->lanes.policy.reclaim;
    return pleat__device_cache_evicts(c) && (how == PLEAT_RECLAIM_REUSE || how == PLEAT_RECLAIM_COPY);
}

/* And as many others as their budget, at most. */
static inline bool pleat__device_cache_is_bounded(const pleat_device_cache *c) {
    return pleat__device_cache_is_packed(c) && c->lanes.policy.in_generation;
}

/* A fork shares full pages, which are never written again. */
static inline bool pleat__device_cache_shares(const pleat_device_cache *c) {
    return !c->windows && !pleat__device_cache_has_policy(c);
}

/* What a step takes: one high slot a lane, and low ones where tokens leave the window. */
static inline pleat__device_want pleat__device_cache_want(const pleat_device_cache *c) {
    const uint32_t every = c->lanes.policy.every, most_low = every > 1 ? 2 * every : 1;
    const pleat__device_want want = {{1, c->two_sided ? most_low : 0},
                                     pleat__device_cache_has_policy(c) || c->windows,
                                     c->lanes.n_tokens,
                                     c->lanes.policy.window,
                                     every};
    return want;
}

/* Slots of a lane that a fork has room for, of a sequence of n_tokens tokens with this budget.  Where tokens have two
 * levels, or a slot of a packed lane is dead, a hole is one besides. */
static inline uint32_t pleat__device_cache_most_slots(const pleat_device_cache *c, uint32_t n_tokens, uint32_t budget) {
    if (pleat__device_cache_is_bounded(c)) return n_tokens < budget + 1 ? n_tokens : budget + 1;
    return c->two_sided ? n_tokens + 1 : n_tokens;
}

/* From here on the sequence's lanes keep what the spec's budget comes to with a prompt of n_prompt tokens. */
pleat_status pleat__device_cache_set_budget(pleat_device_cache *cache, uint32_t seq_idx, uint32_t n_prompt,
                                            pleat__device_stream stream, pleat_error *err);

/* The same with n_tokens, unless they keep more already.  So no lane ever holds more than its budget. */
pleat_status pleat__device_cache_raise_budget(pleat_device_cache *cache, uint32_t seq_idx, uint32_t n_tokens,
                                              pleat__device_stream stream, pleat_error *err);

/* Every row of an empty sequence takes n_each pages, or PLEAT_AGAIN.  Waits. */
pleat_status pleat__device_cache_reserve(pleat_device_cache *cache, uint32_t seq_idx, uint64_t n_each,
                                         pleat__device_stream stream, pleat_error *err);

/* As many as n_each says for its layer. */
pleat_status pleat__device_cache_reserve_layers(pleat_device_cache *cache, uint32_t seq_idx, const uint32_t *n_each,
                                                pleat__device_stream stream, pleat_error *err);

/* The pool's counters and the step's, after the stream's work is done.  Waits. */
pleat_status pleat__device_cache_counters(const pleat_device_cache *cache, pleat__device_stream stream,
                                          pleat__device_counters *out, pleat_error *err);

/* Counters, and what sequences hold, are told to the host: to be read once the stream has been waited for. */
pleat_status pleat__device_cache_tell(const pleat_device_cache *cache, bool has_loads, pleat__device_stream stream,
                                      pleat_error *err);

/* ---- blocks (device_compress.c) -------------------------------------------------------------------- */

/* Does the spec make blocks that a GPU has? */
bool pleat__device_spec_has_blocks(const pleat_spec *spec);
/* PLEAT_E_UNSUPPORTED: it does, and they are not for such heads, or no such blocks. */
pleat_status pleat__device_compress_check(const pleat_spec *spec, uint32_t head_dim, bool is_wide, pleat_error *err);

/* What follows from the options, once pages are laid out; memory.  Without blocks nothing. */
pleat_status pleat__device_compress_derive(pleat_device_cache *cache, pleat_error *err);
void pleat__device_compress_carve_tables(pleat_device_cache *cache, pleat__arena *arena);
void pleat__device_compress_carve_workspace(pleat_device_cache *cache, pleat__arena *arena);

/* Blocks of a lane after a prompt of so many tokens. */
uint32_t pleat__device_blocks_of(const pleat_device_cache *cache, uint32_t n_tokens);

/* Most pages of a lane of so many tokens, at rest. */
uint32_t pleat__device_compress_most_pages(const pleat_device_cache *cache, uint32_t n_tokens);
/* Rows of a sequence from to_row on have as many blocks as those from from_row on, which end where those do. */
pleat_status pleat__device_compress_copy(const pleat_device_cache *cache, uint32_t from_row, uint32_t to_row,
                                         pleat__device_stream stream, pleat_error *err);

/* Attention of the batch over blocks, merged with that over the high side, `other` and lse2, which becomes that of all.
 * out may be other. */
pleat_status pleat__device_compress_attend(const pleat_device_cache *cache, uint32_t layer, const uint16_t *q,
                                           const float *other, float *lse2, void *out, bool is_f16,
                                           pleat__device_stream stream, pleat_error *err);

/* ---- novel (device_novelty.c) ---------------------------------------------------------------------- */

/* Do the options have what it needs of them?  Other policies: they do. */
pleat_status pleat__device_novelty_check(const pleat_device_cache_options *opt, pleat_error *err);

/* What follows from the options; memory; tables are made and sent.  Waits.  For other policies nothing. */
void pleat__device_novelty_derive(pleat_device_cache *cache);
void pleat__device_novelty_carve_tables(pleat_device_cache *cache, pleat__arena *arena);
void pleat__device_novelty_carve_workspace(pleat_device_cache *cache, pleat__arena *arena);
pleat_status pleat__device_novelty_init(pleat_device_cache *cache, const pleat_device_cache_options *opt,
                                        pleat__device_stream stream, pleat_error *err);

/* The sequence `to` has the sums of `from`. */
pleat_status pleat__device_novelty_fork(const pleat_device_cache *cache, uint32_t from, uint32_t to,
                                        pleat__device_stream stream, pleat_error *err);

/* What of it an image's kind tells, as pleat__novelty_image_key(); and what stands in an image of n_classed. */
const char *pleat__device_novelty_image_key(const pleat_device_cache *cache);
uint64_t pleat__device_novelty_image_bytes(const pleat_device_cache *cache, uint32_t n_classed);
pleat_status pleat__device_novelty_write_image(const pleat_device_cache *cache, uint32_t seq_idx, uint32_t n_classed,
                                               uint8_t *out, pleat__device_stream stream, pleat_error *err);
/* PLEAT_E_FORMAT: those are no numbers. */
pleat_status pleat__device_novelty_read_image(const pleat_device_cache *cache, uint32_t seq_idx, uint32_t n_classed,
                                              const uint8_t *in, pleat__device_stream stream, pleat_error *err);

#ifdef __cplusplus
}
#endif
#endif
