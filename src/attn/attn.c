/* SPDX-License-Identifier: MIT
 *
 * attn.c: what surrounds the kernels of a decode step: queries made ready, accumulators, their merge; and
 * which variant runs on which CPU.  See attn.h.
 */
#include <math.h>
#include <string.h>

#include "attn/attn.h"
#include "attn/blocks.h"
#include "attn/decode.h"
#include "attn/prompt.h"
#include "core/half.h"
#include "core/memory.h"
#include "hw/cpu.h"

#define LOG2_E 1.44269504088896340736f

/* Largest |256*hi + lo|: 127 and 127, but sums over d of its products with 8-bit codes fit 32 bits: that is 16 bits to
 * d = 256, 15 at 512. */
static int32_t query_top(uint32_t head_dim) {
    const int32_t fits = INT32_MAX / (255 * (int32_t)head_dim);
    return fits < 32639 ? fits : 32639;
}

static void lay_out_query(pleat__attn_query *q, pleat__arena *arena) {
    const uint64_t n = (uint64_t)q->n_group * q->head_dim;
    q->f32 = pleat__arena_take(arena, n, sizeof *q->f32);
    q->both = pleat__arena_take(arena, n, sizeof *q->both);
    q->hi = pleat__arena_take(arena, n, sizeof *q->hi);
    q->lo = pleat__arena_take(arena, n, sizeof *q->lo);
    q->step = pleat__arena_take(arena, q->n_group, sizeof *q->step);
    q->sum = pleat__arena_take(arena, q->n_group, sizeof *q->sum);
}

uint64_t pleat__attn_query_bytes(uint32_t n_group, uint32_t head_dim) {
    pleat__attn_query query = {.n_group = n_group, .head_dim = head_dim};
    pleat__arena arena = {0};
    lay_out_query(&query, &arena);
    return arena.used_bytes;
}

/* Round x, |x| < 2^22, to the nearest integer, ties to even. */
static inline int32_t round_to_int(float x) { return (int32_t)(pleat__f32_bits(x + 0x1.8p23f) - 0x4B400000u); }

/* The largest magnitude.  As integers, so that compilers use vectors; finite floats order likewise. */
static float largest(const float *x, uint32_t n) {
    int32_t top = 0;
    for (uint32_t i = 0; i < n; i++) {
        const int32_t bits = (int32_t)(pleat__f32_bits(x[i]) & 0x7FFFFFFFu);
        top = bits > top ? bits : top;
    }
    return pleat__bits_f32((uint32_t)top);
}

/* Cut one head's scaled query into limbs, in loops that compilers turn into vector instructions: it is done once for
 * each range of a lane. */
static void make_limbs(pleat__attn_query *query, uint32_t head) {
    const uint32_t d = query->head_dim;
    const float *x = query->f32 + (size_t)head * d;
    int8_t *hi = query->hi + (size_t)head * d, *lo = query->lo + (size_t)head * d;
    int16_t *both = query->both + (size_t)head * d;
    const float top = largest(x, d), steps = (float)query_top(d);
    /* a top below 2^-111 is as good as zero */
    const float inverse = top > 0 && steps / top <= 0x1p126f ? steps / top : 0;
    int32_t codes[PLEAT__MAX_HEAD_DIM], sum = 0;
    for (uint32_t i = 0; i < d; i++) {
        codes[i] = inverse > 0 ? round_to_int(x[i] * inverse) : 0;
        sum += codes[i];
    }
    for (uint32_t i = 0; i < d; i++) {
        const int32_t high = (codes[i] + 128) >> 8;
        hi[i] = (int8_t)high;
        lo[i] = (int8_t)(codes[i] - 256 * high);
    }
    for (uint32_t i = 0; i < d; i += 4) {
        both[i] = (int16_t)codes[i];
        both[i + 1] = (int16_t)codes[i + 2];
        both[i + 2] = (int16_t)codes[i + 1];
        both[i + 3] = (int16_t)codes[i + 3];
    }
    query->step[head] = inverse > 0 ? top / steps : 0;
    query->sum[head] = query->step[head] * (float)sum;
}

void pleat__attn_query_init_floats(pleat__attn_query *query, void *memory, const float *q, uint32_t n_group,
                                   uint32_t head_dim, float scale) {
    *query = (pleat__attn_query){.n_group = n_group, .head_dim = head_dim};
    pleat__arena arena = {.base = memory, .cap_bytes = pleat__attn_query_bytes(n_group, head_dim)};
    lay_out_query(query, &arena);
    const float factor = scale * LOG2_E;
    for (uint32_t i = 0; i < n_group * head_dim; i++) query->f32[i] = q[i] * factor;
}

void pleat__attn_query_init(pleat__attn_query *query, void *memory, const float *q, uint32_t n_group, uint32_t head_dim,
                            float scale) {
    pleat__attn_query_init_floats(query, memory, q, n_group, head_dim, scale);
    for (uint32_t head = 0; head < n_group; head++) make_limbs(query, head);
}

static void lay_out_acc(pleat__attn_acc *acc, pleat__arena *arena, uint32_t n_group, uint32_t head_dim) {
    acc->m = pleat__arena_take(arena, n_group, sizeof *acc->m);
    acc->l = pleat__arena_take(arena, n_group, sizeof *acc->l);
    acc->o = pleat__arena_take(arena, (uint64_t)n_group * head_dim, sizeof *acc->o);
}

uint64_t pleat__attn_acc_bytes(uint32_t n_group, uint32_t head_dim) {
    pleat__attn_acc acc;
    pleat__arena arena = {0};
    lay_out_acc(&acc, &arena, n_group, head_dim);
    return arena.used_bytes;
}

void pleat__attn_acc_view(pleat__attn_acc *acc, void *memory, uint32_t n_group, uint32_t head_dim) {
    pleat__arena arena = {.base = memory, .cap_bytes = pleat__attn_acc_bytes(n_group, head_dim)};
    lay_out_acc(acc, &arena, n_group, head_dim);
}

void pleat__attn_acc_init(pleat__attn_acc *acc, void *memory, uint32_t n_group, uint32_t head_dim) {
    pleat__attn_acc_view(acc, memory, n_group, head_dim);
    for (uint32_t g = 0; g < n_group; g++) {
        acc->m[g] = -INFINITY;
        acc->l[g] = 0;
    }
    memset(acc->o, 0, (size_t)n_group * head_dim * sizeof *acc->o);
}

static void prefetch_bytes(const void *p, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i += 64) __builtin_prefetch((const uint8_t *)p + i, 0, 2);
}

void pleat__attn_decode_prefetch(const pleat__kv_run *run, uint32_t slot, uint32_t slot_to) {
    const pleat__page_layout *l = run->layout;
    pleat__decode_touch(run, slot, pleat__min_u32(slot_to, slot + PLEAT__DECODE_TOUCH_SLOTS));
    pleat__tile_cursor c;
    pleat__tile_cursor_init(&c, run, slot);
    for (uint32_t left = pleat__decode_group_tiles(l); left > 0 && c.page; left--, pleat__tile_cursor_next(&c)) {
        prefetch_bytes(pleat__k_tile(l, c.page, c.tile), l->k_tile_bytes);
        prefetch_bytes(pleat__v_tile(l, c.page, c.tile), l->v_tile_bytes);
        if (!pleat__format_is_quantised(l->format)) continue;
        prefetch_bytes(pleat__k_meta(l, c.page, c.tile), 1);
        prefetch_bytes(pleat__v_meta(l, c.page, c.tile), 1);
    }
}

uint32_t pleat__attn_ranges(uint64_t n_bytes, uint32_t n_slots) {
    enum { RANGE_BYTES = 262144, RANGE_SLOTS = 512, MAX_RANGES = 32 };
    const uint64_t by_bytes = (n_bytes + RANGE_BYTES - 1) / RANGE_BYTES;
    const uint32_t by_slots = pleat__min_u32(n_slots / RANGE_SLOTS, MAX_RANGES);
    return pleat__max_u32(1, by_bytes < by_slots ? (uint32_t)by_bytes : by_slots);
}

void pleat__attn_merge(pleat__attn_acc *acc, const pleat__attn_acc *other, uint32_t n_group, uint32_t head_dim) {
    for (uint32_t g = 0; g < n_group; g++) {
        if (other->m[g] == -INFINITY) continue;
        const float m = acc->m[g] > other->m[g] ? acc->m[g] : other->m[g];
        const float mine = exp2f(acc->m[g] - m), theirs = exp2f(other->m[g] - m);
        acc->m[g] = m;
        acc->l[g] = acc->l[g] * mine + other->l[g] * theirs;
        float *o = acc->o + (size_t)g * head_dim;
        const float *p = other->o + (size_t)g * head_dim;
        for (uint32_t i = 0; i < head_dim; i++) o[i] = o[i] * mine + p[i] * theirs;
    }
}

void pleat__attn_add_sinks(pleat__attn_acc *acc, const float *sinks2, uint32_t n_group, uint32_t head_dim) {
    for (uint32_t g = 0; g < n_group; g++) {
        const float m = acc->m[g] > sinks2[g] ? acc->m[g] : sinks2[g], rescale = exp2f(acc->m[g] - m);
        float *o = acc->o + (size_t)g * head_dim;
        acc->m[g] = m;
        acc->l[g] = acc->l[g] * rescale + exp2f(sinks2[g] - m);
        for (uint32_t i = 0; i < head_dim; i++) o[i] *= rescale;
    }
}

void pleat__attn_finish(const pleat__attn_acc *acc, uint32_t n_group, uint32_t head_dim, float *out, float *lse2) {
    for (uint32_t g = 0; g < n_group; g++) {
        const float inverse = acc->l[g] > 0 ? 1.0f / acc->l[g] : 0.0f;
        for (uint32_t i = 0; i < head_dim; i++)
            out[(size_t)g * head_dim + i] = acc->o[(size_t)g * head_dim + i] * inverse;
        if (lse2) lse2[g] = acc->m[g] + log2f(acc->l[g]);
    }
}

/* The best that the CPU has of this build's architecture, in place of the scalar ones. */
#if PLEAT_X86
static void init_for_cpu(pleat__attn_dsp *dsp, uint32_t cpu_flags) {
    if (!(cpu_flags & PLEAT_CPU_AVX2)) return;
    dsp->decode = pleat__attn_decode_avx2;
    dsp->decode_received = pleat__attn_decode_received_avx2;
    dsp->prompt = pleat__attn_prompt_avx2;
    dsp->prompt_received = pleat__attn_prompt_received_avx2;
    dsp->blocks = pleat__attn_blocks_avx2;
    if (cpu_flags & PLEAT_CPU_AVX_VNNI) {
        dsp->decode = pleat__attn_decode_avxvnni;
        dsp->blocks = pleat__attn_blocks_avxvnni;
    }
    if (!(cpu_flags & PLEAT_CPU_AVX512)) return;
    dsp->decode = cpu_flags & PLEAT_CPU_AVX_VNNI ? pleat__attn_decode_avx512_avxvnni : pleat__attn_decode_avx512;
    dsp->decode_received = pleat__attn_decode_received_avx512;
    dsp->prompt = pleat__attn_prompt_avx512;
    dsp->prompt_received = pleat__attn_prompt_received_avx512;
    if (!(cpu_flags & PLEAT_CPU_VNNI)) return;
    dsp->decode = pleat__attn_decode_vnni;
    dsp->blocks = cpu_flags & PLEAT_CPU_AMX_INT8 ? pleat__attn_blocks_amx
                  : cpu_flags & PLEAT_CPU_VBMI2  ? pleat__attn_blocks_vbmi2
                                                 : pleat__attn_blocks_vnni;
}
#elif PLEAT_ARM
static void init_for_cpu(pleat__attn_dsp *dsp, uint32_t cpu_flags) {
    if (!(cpu_flags & PLEAT_CPU_NEON)) return;
    dsp->decode = pleat__attn_decode_neon;
    dsp->blocks = pleat__attn_blocks_neon;
    dsp->decode_received = pleat__attn_decode_received_neon;
    dsp->prompt = pleat__attn_prompt_neon;
    dsp->prompt_received = pleat__attn_prompt_received_neon;
    if (!(cpu_flags & PLEAT_CPU_DOTPROD)) return;
    dsp->decode = pleat__attn_decode_dotprod;
}
#else
static void init_for_cpu(pleat__attn_dsp *dsp, uint32_t cpu_flags) {
    (void)dsp;
    (void)cpu_flags;
}
#endif

void pleat__attn_dsp_init(pleat__attn_dsp *dsp, uint32_t cpu_flags) {
    dsp->decode = pleat__attn_decode_ref;
    dsp->blocks = pleat__attn_blocks_ref;
    dsp->decode_received = pleat__attn_decode_received_ref;
    dsp->prompt = pleat__attn_prompt_ref;
    dsp->prompt_received = pleat__attn_prompt_received_ref;
    init_for_cpu(dsp, cpu_flags);
}
