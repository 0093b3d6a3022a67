/* SPDX-License-Identifier: MIT
 *
 * decode_ref.c: decode attention and the attention received, written to be read.
 *
 * Tile by tile: dequantise keys, take logits, raise the running maximum if need be, dequantise values, add.  No query
 * limbs and no fixed-point weights, so it is nearer to the exact result than the vector variants.
 */
#include <math.h>

#include "attn/decode.h"
#include "core/half.h"
#include "quant/variants.h"

/* logit2 of the tile's 16 slots; k is [d][16]. */
static void logits_of_tile(const float *q, const float *k, uint32_t head_dim, float cap2, const uint16_t *mass,
                           uint32_t live, float *out) {
    double sum[PLEAT__TILE] = {0};
    for (uint32_t i = 0; i < head_dim; i++) {
        for (uint32_t s = 0; s < PLEAT__TILE; s++) sum[s] += (double)(q[i] * k[i * PLEAT__TILE + s]);
    }
    for (uint32_t s = 0; s < PLEAT__TILE; s++) out[s] = (float)sum[s];
    if (cap2 > 0) pleat__attn_cap_ref(out, PLEAT__TILE, cap2);
    pleat__mass_add(mass, out);
    for (uint32_t s = 0; s < PLEAT__TILE; s++) out[s] = live >> s & 1 ? out[s] : -INFINITY;
}

/* Online softmax: one tile's logits and values [16][d] into head `g` of acc. */
static void add_tile(pleat__attn_acc *acc, uint32_t g, uint32_t head_dim, const float *logit, const float *v) {
    float m = acc->m[g];
    for (uint32_t s = 0; s < PLEAT__TILE; s++) m = logit[s] > m ? logit[s] : m;
    if (m == -INFINITY) return;
    float *o = acc->o + (size_t)g * head_dim;
    const float rescale = exp2f(acc->m[g] - m);
    acc->m[g] = m;
    acc->l[g] *= rescale;
    for (uint32_t i = 0; i < head_dim; i++) o[i] *= rescale;
    for (uint32_t s = 0; s < PLEAT__TILE; s++) {
        const float weight = exp2f(logit[s] - m);
        acc->l[g] += weight;
        for (uint32_t i = 0; i < head_dim; i++) o[i] += weight * v[s * head_dim + i];
    }
}

void pleat__attn_decode_ref(const pleat__attn_query *query, const pleat__kv_run *run, uint32_t slot_from,
                            uint32_t slot_to, pleat__attn_acc *acc, float *logits, size_t logits_stride) {
    float tile[PLEAT__TILE * PLEAT__MAX_HEAD_DIM] __attribute__((aligned(PLEAT__ALIGN)));
    float logit[PLEAT__MAX_GROUP][PLEAT__TILE];
    const uint32_t d = query->head_dim;
    pleat__tile_cursor c;
    pleat__tile_cursor_init(&c, run, slot_from);
    for (; c.slot < slot_to; pleat__tile_cursor_next(&c)) {
        const uint32_t live = pleat__tile_live(&c, slot_to);
        const uint16_t *mass = pleat__mass_tile(run->layout, c.page, c.tile);
        pleat__quant_load_k_ref(run->layout, c.page, c.tile, tile);
        for (uint32_t g = 0; g < query->n_group; g++) {
            logits_of_tile(query->f32 + (size_t)g * d, tile, d, query->cap2, mass, live, logit[g]);
            if (logits) memcpy(logits + g * logits_stride + c.slot, logit[g], sizeof logit[g]);
        }
        pleat__quant_load_v_ref(run->layout, c.page, c.tile, tile);
        for (uint32_t g = 0; g < query->n_group; g++) add_tile(acc, g, d, logit[g], tile);
    }
}

static void add_received(float *score, uint32_t n, const float *logits, size_t stride, const float *lse2,
                         uint32_t n_group) {
    for (uint32_t i = 0; i < n; i++) {
        float most = -INFINITY; /* of logit2 - lse2, over the group */
        for (uint32_t g = 0; g < n_group; g++) {
            const float x = logits[g * stride + i] - lse2[g];
            most = x > most ? x : most;
        }
        score[i] += exp2f(most);
    }
}

void pleat__attn_decode_received_ref(const pleat__kv_run *run, uint32_t slot_from, uint32_t slot_to,
                                     const float *logits, size_t logits_stride, const float *lse2, uint32_t n_group) {
    pleat__received_pages(run, slot_from, slot_to, logits, logits_stride, lse2, n_group, add_received);
}
