/* SPDX-License-Identifier: MIT
 *
 * fingerprint.c: 128 bits that stand for a model: a hash of its shape, its constants, and of each tensor its name, type,
 * dimensions and both ends.
 *
 * Both ends are enough to tell models apart that were trained or quantised differently, and reading them takes
 * milliseconds where all bytes of a large model would take seconds.  Numbers are hashed as 8 bytes, the low one first.
 */
#define XXH_INLINE_ALL /* nothing to link */
#include <xxhash.h>

#include <math.h>
#include <string.h>

#include "core/bytes.h"
#include "core/half.h"
#include "gguf/gguf.h"
#include "model/internal.h"

#define END_BYTES (64u * 1024)

static void hash_u64(XXH3_state_t *state, uint64_t v) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(v >> 8 * i);
    (void)XXH3_128bits_update(state, bytes, sizeof bytes);
}

/* What the plain Llama leaves as it is, each 0 there; hashed only where something is not, so that a plain model's
 * fingerprint is that of older versions. */
static void hash_extras(XXH3_state_t *state, const pleat_model *m) {
    const pleat__rope *rope = &m->ropes[0], *other = &m->ropes[m->n_ropes - 1];
    const uint32_t one = pleat__f32_bits(1.0f);
    const float plain_scale = 1 / sqrtf((float)m->info.head_dim);
    const bool is_some = m->info.n_windowed != 0 && m->info.n_windowed != m->info.n_layers;
    const uint64_t extras[] = {pleat__f32_bits(rope->factor) ^ one,
                               pleat__f32_bits(rope->magnitude) ^ one,
                               rope->is_yarn,
                               rope->is_yarn ? pleat__f32_bits(rope->beta_fast) : 0,
                               rope->is_yarn ? pleat__f32_bits(rope->beta_slow) : 0,
                               rope->is_yarn || rope->long_factors ? rope->n_ctx_orig ^ m->info.n_ctx : 0,
                               m->n_ropes - 1,
                               pleat__f32_bits(other->base) ^ pleat__f32_bits(rope->base),
                               is_some ? m->info.n_windowed : 0,
                               pleat__f32_bits(m->embedding_scale) ^ one,
                               pleat__f32_bits(m->residual_scale) ^ one,
                               pleat__f32_bits(m->logit_scale) ^ one,
                               (uint64_t)pleat__f32_bits(m->info.attn_logit_cap) << 32 | pleat__f32_bits(m->logit_cap),
                               pleat__f32_bits(m->info.softmax_scale) ^ pleat__f32_bits(plain_scale),
                               m->n_experts,
                               m->n_experts_used,
                               m->n_ff_expert,
                               m->n_ff_shared,
                               m->sums_experts_to_1};
    uint64_t any = 0;
    for (size_t i = 0; i < sizeof extras / sizeof extras[0]; i++) any |= extras[i];
    for (size_t i = 0; any && i < sizeof extras / sizeof extras[0]; i++) hash_u64(state, extras[i]);
    for (uint32_t i = 0; is_some && i < m->info.n_layers; i++) hash_u64(state, m->layers[i].window);
}

static void hash_shape(XXH3_state_t *state, const pleat_model *m) {
    const pleat_model_info *info = &m->info;
    const uint64_t shape[] = {info->n_layers,   info->n_embd,   info->n_ff,  info->n_vocab,     info->n_q_heads,
                              info->n_kv_heads, info->head_dim, info->n_ctx, m->ropes[0].n_dims};
    (void)XXH3_128bits_update(state, info->architecture, strlen(info->architecture) + 1);
    for (size_t i = 0; i < sizeof shape / sizeof shape[0]; i++) hash_u64(state, shape[i]);
    hash_u64(state, pleat__f32_bits(m->rms_eps));
    hash_u64(state, pleat__f32_bits(m->ropes[0].base));
    if (info->window > 0) hash_u64(state, info->window);
    hash_extras(state, m);
}

static void hash_tensor(XXH3_state_t *state, const pleat__gguf_tensor *t, const uint8_t *bytes) {
    (void)XXH3_128bits_update(state, t->name, strlen(t->name) + 1);
    hash_u64(state, t->type);
    for (int i = 0; i < 4; i++) hash_u64(state, t->dims[i]);
    if (t->n_bytes <= 2 * END_BYTES) {
        (void)XXH3_128bits_update(state, bytes, t->n_bytes);
        return;
    }
    (void)XXH3_128bits_update(state, bytes, END_BYTES);
    (void)XXH3_128bits_update(state, bytes + t->n_bytes - END_BYTES, END_BYTES);
}

pleat_status pleat_model_fingerprint(const pleat_model *m, char out[PLEAT_FINGERPRINT_CAP]) {
    if (!m || !out) return PLEAT_E_ARG;
    const pleat_gguf *g = m->gguf;
    XXH3_state_t state;
    XXH128_canonical_t digest;
    (void)XXH3_128bits_reset(&state);
    hash_shape(&state, m);
    hash_u64(&state, g->info.n_tensors);
    for (uint64_t i = 0; i < g->info.n_tensors; i++)
        hash_tensor(&state, g->by_name[i], g->bytes + g->by_name[i]->offset);
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(&state));
    pleat__put_hex(digest.digest, sizeof digest.digest, out);
    return PLEAT_OK;
}
