/* SPDX-License-Identifier: MIT
 *
 * decode.h: the variants of decode attention, and the walk over tiles that they share.
 *
 * A range of slots is taken in groups of up to four tiles (64 tokens), across pages.  For each group and each block of
 * 4, 2 or 1 query heads the vector variants do
 *
 *     keys      logit2 [head][tile][16]           integers: query limbs times codes, then scale and minimum
 *     adjust    where the model bounds its logits: cap.h; where tokens have masses: mass.h
 *     softmax   against the group's own maximum, so that nothing waits for the running one
 *     values    o[head][:] = o*2^(m - m') + 2^(group max - m') * sum of weight * v'
 *
 * Weights that meet integer codes are fixed point, with one step for a head and group:
 *     weight*scale ~= step*p      step = max(weight*scale) / PLEAT__WEIGHT_TOP     p in 0..PLEAT__WEIGHT_TOP
 * Values are taken around the middle of their code, c = 2^(bits-1).  The sum of p*(code - c) is exact.  The sum of
 * weight*(minimum + c*scale) needs no codes; it is kept in f32 and added once, at the end of the range.  So the
 * rounding of p meets small numbers and nothing cancels.
 *
 * While a group is read, the next one is prefetched, line by line, through the page ids; and a line of each 4 KiB some
 * groups before, of many pages at once.
 */
#ifndef PLEAT_ATTN_DECODE_H
#define PLEAT_ATTN_DECODE_H

#include "attn/attn.h"
#include "attn/mass.h"
#include "core/compiler.h"
#include "quant/levels.h"

void pleat__attn_decode_ref(const pleat__attn_query *query, const pleat__kv_run *run, uint32_t slot_from,
                            uint32_t slot_to, pleat__attn_acc *acc, float *logits, size_t logits_stride);
/* Needs PLEAT_CPU_AVX2. */
void pleat__attn_decode_avx2(const pleat__attn_query *query, const pleat__kv_run *run, uint32_t slot_from,
                             uint32_t slot_to, pleat__attn_acc *acc, float *logits, size_t logits_stride);
/* Needs PLEAT_CPU_AVX_VNNI; float formats go to the AVX2 variant. */
void pleat__attn_decode_avxvnni(const pleat__attn_query *query, const pleat__kv_run *run, uint32_t slot_from,
                                uint32_t slot_to, pleat__attn_acc *acc, float *logits, size_t logits_stride);
/* Needs PLEAT_CPU_AVX512; quantised formats go to the AVX2 variant. */
void pleat__attn_decode_avx512(const pleat__attn_query *query, const pleat__kv_run *run, uint32_t slot_from,
                               uint32_t slot_to, pleat__attn_acc *acc, float *logits, size_t logits_stride);
/* Needs PLEAT_CPU_AVX512 and PLEAT_CPU_AVX_VNNI; quantised formats go to the AVX-VNNI variant. */
void pleat__attn_decode_avx512_avxvnni(const pleat__attn_query *query, const pleat__kv_run *run, uint32_t slot_from,
                                       uint32_t slot_to, pleat__attn_acc *acc, float *logits, size_t logits_stride);
/* Needs PLEAT_CPU_VNNI. */
void pleat__attn_decode_vnni(const pleat__attn_query *query, const pleat__kv_run *run, uint32_t slot_from,
                             uint32_t slot_to, pleat__attn_acc *acc, float *logits, size_t logits_stride);
/* Needs PLEAT_CPU_NEON. */
void pleat__attn_decode_neon(const pleat__attn_query *query, const pleat__kv_run *run, uint32_t slot_from,
                             uint32_t slot_to, pleat__attn_acc *acc, float *logits, size_t logits_stride);
/* Needs PLEAT_CPU_DOTPROD. */
void pleat__attn_decode_dotprod(const pleat__attn_query *query, const pleat__kv_run *run, uint32_t slot_from,
                                uint32_t slot_to, pleat__attn_acc *acc, float *logits, size_t logits_stride);

void pleat__attn_decode_received_ref(const pleat__kv_run *run, uint32_t slot_from, uint32_t slot_to,
                                     const float *logits, size_t logits_stride, const float *lse2, uint32_t n_group);
void pleat__attn_decode_received_avx2(const pleat__kv_run *run, uint32_t slot_from, uint32_t slot_to,
                                      const float *logits, size_t logits_stride, const float *lse2, uint32_t n_group);
void pleat__attn_decode_received_avx512(const pleat__kv_run *run, uint32_t slot_from, uint32_t slot_to,
                                        const float *logits, size_t logits_stride, const float *lse2, uint32_t n_group);
void pleat__attn_decode_received_neon(const pleat__kv_run *run, uint32_t slot_from, uint32_t slot_to,
                                      const float *logits, size_t logits_stride, const float *lse2, uint32_t n_group);

/* Tiles in a group.  64 tokens of 15-bit weights and 8-bit codes stay far below 2^31.  With eight a token takes 2 to 3
 * of 44 cycles less in cache, since integer sums are turned to f32 and o is read once a group.  From memory eight
 * gained nothing for k4v4 and k4v2, and lost a tenth for k8v8 (EPYC of family 25, 2026-11-23). */
#define PLEAT__DECODE_TILES 4u
#define PLEAT__DECODE_HEADS 4u

/* Weights are signed 16-bit numbers, or 256*hi + lo with hi in 0..127 and lo in -128..127. */
#define PLEAT__WEIGHT_TOP 32639

/* Most bytes of a group of more than one tile: four tiles of k8v8 at d = 128.  Where memory takes 240 ns to answer,
 * some 48 lines have to be on their way all the time, so the kernels ask for L2, in as many streams as tiles.  Granite
 * Rapids Xeon, one thread, pages in order, 2026-11, against 9216 and 18432 bytes and L1: f16 55 to 48 ns a token and
 * lane, k8v8 31 to 28.5, k4v2 16.5 to 15.2. */
#define PLEAT__DECODE_GROUP_BYTES 16640u

/* What a kernel is made for: the bits of keys or values, 2 to 32, or 10 and those of a rotated format, whose codes stand
 * for the whole numbers of quant/levels.h: 12, 13, 14.  Their rows in tables of kernels follow the others'. */
#define PLEAT__DECODE_ROWS 9u
static inline uint32_t pleat__decode_row(uint32_t bits, uint8_t rotated) {
    return rotated ? 4 + bits : (uint32_t)__builtin_ctz(bits);
}
INLINE bool pleat__has_levels(uint32_t width) { return width > 8 && width < 16; }

/* Bits of a plane: of three bits the third stands apart. */
INLINE uint32_t pleat__plane_bits(uint32_t width) { return pleat__has_levels(width) ? (width == 14 ? 4 : 2) : width; }

/* Where a tile of `width` bits at `tile` has the third bits of 64 bytes at `at`. */
INLINE const uint8_t *pleat__third_bits(const uint8_t *tile, uint32_t head_dim, size_t at) {
    return tile + 4 * (size_t)head_dim + at / 2;
}

/* A walk over the tiles of a run. */
typedef struct pleat__tile_cursor {
    const pleat__kv_run *run;
    uint8_t *page;
    uint32_t page_idx;
    uint32_t tile; /* in its page */
    uint32_t slot; /* of the tile's first token, in the run */
} pleat__tile_cursor;

/* What moves a sum of weights times codes to codes around their middle, of that sum of the weights.  Unsigned inside: a
 * page whose scales are no numbers, as of a forged image, gives sums of any size. */
static inline int32_t pleat__minus_middle(uint32_t bits, int32_t sum) {
    return (int32_t)(0u - ((uint32_t)sum << (bits - 1)));
}

static inline void pleat__tile_cursor_init(pleat__tile_cursor *c, const pleat__kv_run *run, uint32_t slot) {
    const uint32_t tokens = run->layout->tokens;
    c->run = run;
    c->page_idx = slot / tokens;
    c->tile = slot % tokens / PLEAT__TILE;
    c->slot = slot;
    c->page = slot < run->n_slots ? pleat__kv_page(run, c->page_idx) : NULL;
}

/* To the next tile, which need not exist: page is NULL then. */
static inline void pleat__tile_cursor_next(pleat__tile_cursor *c) {
    c->slot += PLEAT__TILE;
    if (++c->tile < c->run->layout->tokens / PLEAT__TILE) return;
    c->tile = 0;
    c->page_idx++;
    c->page = c->slot < c->run->n_slots ? pleat__kv_page(c->run, c->page_idx) : NULL;
}

/* Up to four consecutive tiles.  Entries past n_tiles are not set. */
typedef struct pleat__tile_group {
    uint32_t n_tiles;
    uint32_t slot;                      /* of the first token, in the run */
    uint32_t any_live;                  /* not 0 if some slot counts */
    uint32_t live[PLEAT__DECODE_TILES]; /* bit s: slot s of the tile counts */
    const uint8_t *k[PLEAT__DECODE_TILES];
    const uint8_t *v[PLEAT__DECODE_TILES];
    const uint16_t *k_meta[PLEAT__DECODE_TILES];
    const uint16_t *v_meta[PLEAT__DECODE_TILES];
    const uint16_t *mass[PLEAT__DECODE_TILES];   /* NULL: none has any */
    const uint8_t *k_ahead[PLEAT__DECODE_TILES]; /* what to prefetch; the tile itself when there is nothing */
    const uint8_t *v_ahead[PLEAT__DECODE_TILES];
} pleat__tile_group;

/* Slots of the tile at `c` that count: before slot_to, and alive. */
static inline uint32_t pleat__tile_live(const pleat__tile_cursor *c, uint32_t slot_to) {
    const uint32_t n = pleat__min_u32(slot_to - c->slot, PLEAT__TILE);
    uint32_t live = (1u << n) - 1;
    if (c->run->layout->tracked) {
        const int32_t *position = pleat__positions(c->run->layout, c->page) + (size_t)c->tile * PLEAT__TILE;
        uint32_t dead = 0;
        for (uint32_t s = 0; s < PLEAT__TILE; s++) dead |= (uint32_t)(position[s] < 0) << s;
        live &= ~dead;
    }
    return live;
}

/* Take a group of up to `most` tiles at `c` and move both cursors behind it; `ahead` is where prefetching is, which goes
 * on to what is read after the range. */
static inline void pleat__tile_group_take(pleat__tile_group *g, pleat__tile_cursor *c, pleat__tile_cursor *ahead,
                                          uint32_t slot_to, uint32_t most) {
    const pleat__page_layout *l = c->run->layout;
    g->slot = c->slot;
    g->any_live = 0;
    for (g->n_tiles = 0; g->n_tiles < most && c->slot < slot_to; g->n_tiles++) {
        const uint32_t t = g->n_tiles;
        g->k[t] = pleat__k_tile(l, c->page, c->tile);
        g->v[t] = pleat__v_tile(l, c->page, c->tile);
        g->k_meta[t] = pleat__k_meta(l, c->page, c->tile);
        g->v_meta[t] = pleat__v_meta(l, c->page, c->tile);
        g->mass[t] = pleat__mass_tile(l, c->page, c->tile);
        g->live[t] = pleat__tile_live(c, slot_to);
        g->any_live |= g->live[t];
        g->k_ahead[t] = g->k[t];
        g->v_ahead[t] = g->v[t];
        if (ahead->slot >= slot_to && ahead->run == c->run && c->run->then)
            pleat__tile_cursor_init(ahead, c->run->then, c->run->then_slot);
        if (ahead->page && (ahead->slot < slot_to || ahead->run != c->run)) {
            g->k_ahead[t] = pleat__k_tile(l, ahead->page, ahead->tile);
            g->v_ahead[t] = pleat__v_tile(l, ahead->page, ahead->tile);
            if (pleat__format_is_quantised(l->format)) {
                __builtin_prefetch(pleat__k_meta(l, ahead->page, ahead->tile));
                __builtin_prefetch(pleat__v_meta(l, ahead->page, ahead->tile));
            }
            pleat__tile_cursor_next(ahead);
        }
        pleat__tile_cursor_next(c);
    }
}

/* Most tiles of a group. */
static inline uint32_t pleat__decode_group_tiles(const pleat__page_layout *l) {
    const uint32_t tiles = PLEAT__DECODE_GROUP_BYTES / (l->k_tile_bytes + l->v_tile_bytes);
    return pleat__min_u32(PLEAT__DECODE_TILES, pleat__max_u32(1, tiles));
}

/* Further blocks of heads read the same lines: nothing is left to prefetch. */
static inline void pleat__tile_group_stop_prefetch(pleat__tile_group *g) {
    for (uint32_t t = 0; t < g->n_tiles; t++) {
        g->k_ahead[t] = g->k[t];
        g->v_ahead[t] = g->v[t];
    }
}

/* How far ahead of the reading to prefetch, in slots: one group.  With 16640 bytes, two groups of k4v4 and k4v2 and
 * three of k2v2, these took longer on an EPYC of family 25.  In ns a token and lane, 2026-11-23: one thread of AVX-512
 * 13.9, 12.6 and 13.0, now 13.0, 12.5 and 12.2.  Two threads of AVX2 19.3, 17.9 and 18.4, now 17.8, 17.1 and 16.5. */
static inline uint32_t pleat__decode_ahead_slots(const pleat__page_layout *l) {
    return PLEAT__TILE * pleat__decode_group_tiles(l);
}

/* Bound the logits of a group and a block of heads, where the query asks for it, and add masses, where there are. */
INLINE void pleat__decode_adjust(const pleat__attn_query *query, uint32_t heads, const pleat__tile_group *g,
                                 float (*logits)[PLEAT__DECODE_TILES][PLEAT__TILE], pleat__attn_cap_fn cap) {
    for (uint32_t h = 0; query->cap2 > 0 && h < heads; h++)
        cap(logits[h][0], (size_t)g->n_tiles * PLEAT__TILE, query->cap2);
    if (!g->mass[0]) return;
    for (uint32_t h = 0; h < heads; h++)
        for (uint32_t t = 0; t < g->n_tiles; t++) pleat__mass_add(g->mass[t], logits[h][t]);
}

/* Write -infinity as the logits of a group in which nothing counts. */
static inline void pleat__decode_skip_group(const pleat__tile_group *g, uint32_t n_group, float *logits,
                                            size_t stride) {
    if (!logits) return;
    for (uint32_t h = 0; h < n_group; h++) {
        for (uint32_t i = 0; i < g->n_tiles * PLEAT__TILE; i++) logits[h * stride + g->slot + i] = -__builtin_inff();
    }
}

/* A line of each 4 KiB of the pages of so many slots is asked for at once, while so many are still to be read.  Where the
 * host's pages are small the first request in each has to wait for its address, a memory's latency if the host's tables
 * are not in cache, and the core stands still, though it is a prefetch.  At once, first lines of all pages before the
 * second ones, six addresses are found at a time.  EPYC of family 25, two threads, 2026-11-29, `bench attn`: 0.95 of the
 * time of a page at a time with k8v4, k4v4 and k4v2, 0.97 with k8v8, 0.98 with f16. */
#define PLEAT__DECODE_TOUCH_SLOTS 1024u
#define PLEAT__DECODE_TOUCH_AHEAD_SLOTS 256u
#define PLEAT__DECODE_TOUCH_BYTES 4096u

/* Touch the pages of slots [slot, to). */
static inline void pleat__decode_touch(const pleat__kv_run *run, uint32_t slot, uint32_t to) {
    const pleat__page_layout *l = run->layout;
    const uint32_t end = pleat__div_up_u32(to, l->tokens), last = l->used_bytes - 1;
    for (uint32_t i = 0; i < last + PLEAT__DECODE_TOUCH_BYTES; i += PLEAT__DECODE_TOUCH_BYTES) {
        for (uint32_t p = slot / l->tokens; p < end; p++)
            __builtin_prefetch(pleat__kv_page(run, p) + pleat__min_u32(i, last), 0, 2);
    }
}

typedef void (*pleat__add_group_fn)(const void *walk, pleat__tile_group *group);

/* The walk over groups of every `decode`: add(walk, group) for each in which some slot counts.  `add` is a constant at
 * each call, so it is inlined. */
INLINE void pleat__decode_groups(const pleat__kv_run *run, uint32_t slot_from, uint32_t slot_to, uint32_t n_group,
                                 float *logits, size_t logits_stride, pleat__add_group_fn add, const void *walk) {
    pleat__tile_cursor c, ahead;
    pleat__tile_cursor_init(&c, run, slot_from);
    pleat__tile_cursor_init(&ahead, run, slot_from + pleat__decode_ahead_slots(run->layout));
    pleat__tile_group g;
    const uint32_t most = pleat__decode_group_tiles(run->layout);
    uint32_t touched = slot_from;
    while (c.slot < slot_to) {
        if (touched < pleat__min_u32(slot_to, c.slot + PLEAT__DECODE_TOUCH_AHEAD_SLOTS)) {
            const uint32_t to = pleat__min_u32(slot_to, touched + PLEAT__DECODE_TOUCH_SLOTS);
            pleat__decode_touch(run, touched, to);
            touched = to;
        }
        pleat__tile_group_take(&g, &c, &ahead, slot_to, most);
        if (g.any_live)
            add(walk, &g);
        else
            pleat__decode_skip_group(&g, n_group, logits, logits_stride);
    }
}

/* Add each head's bias, the range's sum of weight * middle, to its o. */
static inline void pleat__decode_add_bias(pleat__attn_acc *acc, const float *bias, uint32_t n_group,
                                          uint32_t head_dim) {
    for (uint32_t h = 0; h < n_group; h++) {
        float *o = acc->o + (size_t)h * head_dim;
        for (uint32_t i = 0; i < head_dim; i++) o[i] += bias[h];
    }
}

/* How far ahead to prefetch scores: 16 of them take a few ns, and a miss 100.  Measured with 256 to 2048 slots on a Xeon
 * with AMX, 2026-11, bench/kernels/kernels.c -s: all alike; without, scoring takes three times as long for lanes in memory. */
#define PLEAT__SCORES_AHEAD_SLOTS 512u

/* score[i] += max over g of 2^(logits[g*stride + i] - lse2[g]) for i < n.  score is aligned to 64 bytes, and entries up
 * to the next multiple of 16 may be read and written back. */
typedef void (*pleat__add_received_fn)(float *score, uint32_t n, const float *logits, size_t stride, const float *lse2,
                                       uint32_t n_group);

/* The walk over pages of every `received`; `add` is a constant at each call, so it is inlined. */
INLINE void pleat__received_pages(const pleat__kv_run *run, uint32_t slot_from, uint32_t slot_to, const float *logits,
                                  size_t stride, const float *lse2, uint32_t n_group, pleat__add_received_fn add) {
    const uint32_t tokens = run->layout->tokens;
    for (uint32_t slot = slot_from, n; slot < slot_to; slot += n) {
        const uint32_t first = slot % tokens, ahead = slot + PLEAT__SCORES_AHEAD_SLOTS;
        n = pleat__min_u32(tokens - first, slot_to - slot);
        if (ahead < run->n_slots) {
            const float *line = pleat__scores(run->layout, pleat__kv_page(run, ahead / tokens));
            for (uint32_t i = 0; i < tokens; i += PLEAT__TILE) __builtin_prefetch(line + i, 1);
        }
        float *score = pleat__scores(run->layout, pleat__kv_page(run, slot / tokens)) + first;
        add(score, n, logits + slot, stride, lse2, n_group);
    }
}

/* Heads in the next block when `left` remain. */
static inline uint32_t pleat__decode_block_heads(uint32_t left) { return left >= 4 ? 4 : left >= 2 ? 2 : 1; }

#endif
