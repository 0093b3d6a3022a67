/* SPDX-License-Identifier: MIT
 *
 * blocks.c: the walk over groups of blocks: scratch, opening, prefetching, decoding slice by slice.  See blocks_walk.h.
 */
#include "attn/blocks_rd.h"
#include "core/memory.h"

#define STREAMS PLEAT__STREAMS
#define ROWS 16u /* of a slice */
#define LINE 64u
#define TOUCH_BYTES 4096u

static void carve(pleat__blocks_walk *w, const pleat__block_format *f, uint32_t n_group, pleat__arena *a) {
    const uint64_t row = pleat__blocks_row(f), d = f->head_dim;
    w->heads = pleat__div_up_u32(n_group, PLEAT__BLOCKS_HEADS) * PLEAT__BLOCKS_HEADS;
    w->n_units = f->head_dim / f->v_group;
    const uint64_t n = w->heads, units = w->n_units, longer = d > f->tokens ? d : f->tokens;
    for (uint32_t i = 0; i < 2; i++)
        w->code_buffers[i] = pleat__arena_take(a, STREAMS * ROWS * longer + ROWS * PLEAT__BLOCKS_COLUMNS, 1);
    for (uint32_t i = 0; f->coder == PLEAT__CODER_PACK && i < 2; i++)
        w->pack_buffers[i] = pleat__arena_take(a, STREAMS, sizeof(pleat__pack_slice));
    w->weights = pleat__arena_take(a, n * row, sizeof(float));
    w->rescale = pleat__arena_take(a, n, sizeof(float));
    w->share = pleat__arena_take(a, n, sizeof(float));
    w->queries = pleat__arena_take(a, n * pleat__blocks_padded((uint32_t)d), sizeof(float));
    w->query_scale = pleat__arena_take(a, n, sizeof(float));
    w->query_sum = pleat__arena_take(a, n, sizeof(float));
    w->key_factors = pleat__arena_take(a, STREAMS * n * (pleat__blocks_padded((uint32_t)d) + 16), sizeof(float));
    w->value_factors = pleat__arena_take(a, units * pleat__blocks_factors(f, w->heads), sizeof(float));
    w->key_scale = pleat__arena_take(a, STREAMS * n, sizeof(float));
    w->key_bias = pleat__arena_take(a, STREAMS * n, sizeof(float));
    w->value_scale = pleat__arena_take(a, units * STREAMS * n, sizeof(float));
    w->value_bias = pleat__arena_take(a, units * n, sizeof(float));
    w->value_steps = pleat__arena_take(a, units * row, sizeof(float));
    w->value_middles = pleat__arena_take(a, units * row, sizeof(float));
    w->floats = pleat__arena_take(a, ROWS * longer, sizeof(float));
    w->copies = pleat__arena_take(a, STREAMS * pleat__block_copy_bytes(f), 1);
    if (f->is_rd) w->rd = pleat__arena_take(a, pleat__blocks_rd_floats(n_group, (uint32_t)d), sizeof *w->rd);
    if (f->is_rd) w->sums = pleat__arena_take(a, pleat__attn_acc_bytes(n_group, (uint32_t)d), 1);
}

uint64_t pleat__attn_blocks_scratch_bytes(const pleat__block_format *format, uint32_t n_group) {
    pleat__blocks_walk w;
    pleat__arena arena = {0};
    carve(&w, format, n_group, &arena);
    return (arena.used_bytes + PLEAT__ALIGN - 1) / PLEAT__ALIGN * PLEAT__ALIGN;
}

/* ---- prefetching ----------------------------------------------------------------------------------------------- */

/* Asks for bytes [at, to) of a run, some lines at every step of the group before the one that needs them; and for a line
 * of each 4 KiB of the group behind it.  Where the host's pages are small, the first request in each of them has to wait
 * for its address, and those behind it wait too.  Cycles for 64 codes from memory, one thread, EPYC of family 25,
 * 2026-11-29: kvcomp 52.4 for 54.0 with AVX2 and 31.0 for 32.3 with AVX-512.  Packs 33.5 for 35.6, and 29.8 for 31.7. */
typedef struct ahead {
    const pleat__block_run *run;
    uint64_t at, to;      /* from the first page's first byte */
    uint64_t page;        /* where the page of `at` begins, likewise ... */
    const uint8_t *bytes; /* ... and its bytes */
    uint32_t lines;       /* of a step */
    uint64_t behind_to;   /* where the group behind it ends */
} ahead;

static void ahead_turn(ahead *a, uint64_t page_idx) {
    a->page = page_idx * a->run->page_bytes;
    a->bytes = a->run->base + a->run->ids[(int64_t)page_idx * a->run->step].v * a->run->page_bytes;
}

/* Where block `block` begins. */
static uint64_t begin_of(const pleat__block_run *run, uint32_t block) {
    return block ? (uint64_t)run->ends[block - 1] * PLEAT__BLOCK_ALIGN : 0;
}

/* Blocks [from, to) in n steps; the group behind them ends with block `last` at most. */
static void ahead_set(ahead *a, const pleat__block_run *run, uint32_t from, uint32_t to, uint32_t last, uint32_t n) {
    a->run = run;
    a->behind_to = begin_of(run, pleat__min_u32(to + STREAMS, last));
    a->at = begin_of(run, from) / LINE * LINE;
    a->to = from < to ? (begin_of(run, to) + LINE - 1) / LINE * LINE : a->at; /* whole lines */
    a->lines = (uint32_t)((a->to - a->at) / LINE / n) + 1;
    if (a->at < a->to) ahead_turn(a, a->at / run->page_bytes);
}

static void ahead_step(ahead *a) {
    const uint64_t to = a->to - a->at < (uint64_t)a->lines * LINE ? a->to : a->at + (uint64_t)a->lines * LINE;
    while (a->at < to) {
        const uint64_t page_bytes = a->run->page_bytes;
        if (a->at - a->page >= page_bytes) ahead_turn(a, a->page / page_bytes + 1);
        const uint64_t end = a->page + page_bytes < to ? a->page + page_bytes : to;
        const uint8_t *p = a->bytes + (a->at - a->page), *stop = a->bytes + (end - a->page);
        for (; p < stop; p += LINE) __builtin_prefetch(p, 0, 2);
        a->at = end;
    }
}

static void ahead_touch(const ahead *a) {
    const uint64_t page_bytes = a->run->page_bytes;
    for (uint64_t at = a->to; at < a->behind_to; at += TOUCH_BYTES) {
        const pleat__page_id id = a->run->ids[(int64_t)(at / page_bytes) * a->run->step];
        __builtin_prefetch(a->run->base + id.v * page_bytes + at % page_bytes, 0, 2);
    }
}

/* ---- groups ---------------------------------------------------------------------------------------------------- */

/* Open blocks [from, to), those that can be opened. */
static bool open_group(pleat__blocks_walk *w, const pleat__block_run *run, uint32_t from, uint32_t to) {
    const size_t bytes = pleat__block_copy_bytes(run->format);
    w->n_blocks = 0;
    for (uint32_t block = from; block < to; block++) {
        uint8_t *copy = w->copies + w->n_blocks * bytes;
        w->blocks[w->n_blocks] = block;
        if (pleat__block_run_open(run, block, copy, &w->readers[w->n_blocks]) == PLEAT_OK) w->n_blocks++;
    }
    w->n_tokens = w->n_blocks * run->format->tokens;
    return w->n_blocks == to - from;
}

/* One matrix of every block of the group. */
typedef struct matrices {
    pleat__section *sections[STREAMS];
    uint8_t *out[2][STREAMS]; /* of even slices, and of odd ones */
    const pleat__codebook *codebook;
    uint32_t n, n_vectors;               /* of a slice */
    pleat__pack_numbers_fn pack_numbers; /* where packs are multiplied: all are packs; or NULL */
    pleat__pack_slice *packs[2];         /* likewise, of even slices, and of odd ones */
    /* All are, and are multiplied where they stand.  Not where a query's factors serve for all blocks: those for codes. */
    bool are_planes;
} matrices;

static void matrices_init(matrices *m, pleat__blocks_walk *w, const pleat__codebook *codebook, bool keys,
                          const pleat__blocks_steps *steps) {
    m->pack_numbers = steps->pack_numbers;
    m->are_planes = steps->takes_planes && !w->format->is_rd && (w->format->by_channel || !keys);
    m->packs[0] = w->pack_buffers[0];
    m->packs[1] = w->pack_buffers[1];
    m->codebook = codebook;
    m->n = w->n_blocks;
    m->n_vectors = (keys ? w->format->head_dim : w->format->tokens) / 4;
    for (uint32_t b = 0; b < m->n; b++) {
        m->sections[b] = keys ? &w->readers[b].k : &w->readers[b].v;
        if (m->sections[b]->coder != PLEAT__CODER_PACK) m->pack_numbers = NULL;
        m->are_planes = m->are_planes && pleat__section_is_planes(m->sections[b]);
        for (uint32_t i = 0; i < 2; i++) m->out[i][b] = w->code_buffers[i] + (size_t)b * m->n_vectors * 64;
    }
}

static bool are_done(const matrices *m) {
    bool all = true;
    for (uint32_t b = 0; b < m->n; b++) all = pleat__section_is_done(m->sections[b]) && all;
    return all;
}

/* The next slice of every block: where its packs or planes are, or its codes. */
static void next_slice(pleat__blocks_walk *w, const pleat__codec_dsp *codec, uint32_t slice, const matrices *m) {
    for (uint32_t b = 0; m->pack_numbers && b < m->n; b++)
        pleat__pack_next(m->sections[b], m->pack_numbers, &m->packs[slice % 2][b]);
    for (uint32_t b = 0; m->are_planes && b < m->n; b++)
        w->plane_buffers[slice % 2][b] = pleat__section_next_planes(m->sections[b], m->n_vectors);
    if (!m->pack_numbers && !m->are_planes)
        pleat__sections_decode(codec, m->codebook, m->sections, m->n, m->n_vectors, m->out[slice % 2]);
}

static void next_keys(pleat__blocks_walk *w, const pleat__codec_dsp *codec, const pleat__block_run *run, uint32_t slice,
                      const matrices *m) {
    if (run->rd)
        pleat__rd_decode_keys(codec, run->rd, m->sections, m->n, m->out[slice % 2]);
    else
        next_slice(w, codec, slice, m);
}

static void next_values(pleat__blocks_walk *w, const pleat__codec_dsp *codec, const pleat__block_run *run,
                        uint32_t slice, const matrices *m) {
    if (run->rd)
        pleat__rd_decode_values(codec, run->rd, slice, m->sections, m->n, m->out[slice % 2]);
    else
        next_slice(w, codec, slice, m);
}

/* A slice is multiplied when the next has been decoded: codes are in the cache by then.  Tiles of AMX wait for codes that
 * have just been written, since no store is forwarded to them. */
static void turn_to(pleat__blocks_walk *w, uint32_t slice, const matrices *m) {
    w->codes = w->code_buffers[slice % 2];
    w->packs = m->pack_numbers ? m->packs[slice % 2] : NULL;
    w->planes = m->are_planes ? w->plane_buffers[slice % 2] : NULL;
}

static void multiply_keys(const pleat__blocks_steps *steps, pleat__blocks_walk *w, uint32_t slice, const matrices *m) {
    turn_to(w, slice, m);
    steps->keys(w, slice);
}

static void multiply_values(const pleat__blocks_steps *steps, pleat__blocks_walk *w, uint32_t slice,
                            const matrices *m) {
    turn_to(w, slice, m);
    if (slice == 0) steps->values_begin(w); /* two slices have been decoded: softmax is done by then */
    steps->values(w, slice);
}

static bool add_group(const pleat__blocks_steps *steps, pleat__blocks_walk *w, const pleat__codec_dsp *codec,
                      const pleat__block_run *run, ahead *next) {
    const pleat__block_format *f = w->format;
    matrices k, v;
    matrices_init(&k, w, run->codebooks ? &run->codebooks->k : NULL, true, steps);
    matrices_init(&v, w, run->codebooks ? &run->codebooks->v : NULL, false, steps);
    turn_to(w, 0, &k);
    steps->keys_begin(w);
    const uint32_t k_slices = f->tokens / ROWS, v_slices = f->head_dim / ROWS;
    for (uint32_t slice = 0; slice < k_slices; slice++) {
        ahead_step(next);
        next_keys(w, codec, run, slice, &k);
        ahead_step(next);
        if (slice > 0) multiply_keys(steps, w, slice - 1, &k);
    }
    multiply_keys(steps, w, k_slices - 1, &k);
    if (run->rd) pleat__blocks_rd_keys(w, run->rd, steps->mean);
    for (uint32_t h = 0; w->query->cap2 > 0 && h < w->query->n_group; h++)
        steps->cap(w->weights + (size_t)h * pleat__blocks_row(f), w->n_tokens, w->query->cap2);
    ahead_touch(next);
    steps->softmax(w);
    for (uint32_t slice = 0; slice < v_slices; slice++) {
        ahead_step(next);
        next_values(w, codec, run, slice, &v);
        ahead_step(next);
        if (slice > 0) multiply_values(steps, w, slice - 1, &v);
    }
    multiply_values(steps, w, v_slices - 1, &v);
    if (run->rd) pleat__blocks_rd_values(w, run->rd);
    return are_done(&k) && are_done(&v);
}

bool pleat__blocks_walk_run(const pleat__blocks_steps *steps, const pleat__attn_query *query,
                            const pleat__codec_dsp *codec, const pleat__block_run *run, uint32_t block_from,
                            uint32_t block_to, pleat__attn_acc *acc, void *scratch) {
    if (block_from >= block_to) return true;
    const pleat__block_format *f = run->format;
    pleat__blocks_walk w = {.query = query, .format = f, .acc = acc};
    pleat__arena arena = {.base = scratch, .cap_bytes = pleat__attn_blocks_scratch_bytes(f, query->n_group)};
    carve(&w, f, query->n_group, &arena);
    pleat__attn_query ordered = *query;
    pleat__attn_acc components; /* where values are coded in a basis: what is summed are their components */
    if (run->rd) {
        ordered.f32 = pleat__blocks_rd_begin(run->rd, query, w.rd);
        w.query = &ordered;
    }
    if (run->rd && run->rd->v_basis.to) {
        pleat__attn_acc_init(&components, w.sums, query->n_group, f->head_dim);
        w.acc = &components;
    }
    steps->begin(&w);
    ahead next = {0};
    ahead_set(&next, run, block_from, pleat__min_u32(block_from + STREAMS, block_to), block_to, 1);
    ahead_step(&next);
    bool sound = true;
    for (uint32_t from = block_from, to; from < block_to; from = to) {
        to = pleat__min_u32(from + STREAMS, block_to);
        ahead_set(&next, run, to, pleat__min_u32(to + STREAMS, block_to), block_to,
                  2 * (f->tokens + f->head_dim) / ROWS);
        sound = open_group(&w, run, from, to) && sound;
        if (w.n_blocks > 0) sound = add_group(steps, &w, codec, run, &next) && sound;
    }
    steps->end(&w);
    if (w.acc != acc) pleat__blocks_rd_end(&w, run->rd, acc);
    return sound;
}
