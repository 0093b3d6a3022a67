/* SPDX-License-Identifier: MIT
 *
 * seam.c: see seam.h.
 */
#include "tokenizer/seam.h"

#include "core/memory.h"
#include "core/utf8.h"

#define N_WORDS ((1u << PLEAT__SEAM_BITS) / 64)

static uint32_t bit_of(uint32_t left, uint32_t right) {
    return (uint32_t)((((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u) >> (64 - PLEAT__SEAM_BITS));
}

static void enter(uint64_t *bits, pleat__str token) {
    uint32_t before = 0;
    for (uint64_t at = 0; at < token.n_bytes;) {
        uint32_t cp;
        const uint32_t len = pleat__utf8_decode(token.p + at, token.n_bytes - at, &cp);
        if (len == 0) return; /* no text has these bytes */
        const uint32_t bit = bit_of(before, cp);
        if (at > 0) bits[bit / 64] |= (uint64_t)1 << bit % 64;
        before = cp;
        at += len;
    }
}

pleat_status pleat__seams_init(pleat__seams *seams, const pleat__vocab *vocab, const pleat_allocator *al) {
    *seams = (pleat__seams){.al = *al, .bits = pleat__alloc_zero(al, N_WORDS, sizeof *seams->bits)};
    if (!seams->bits) return PLEAT_E_MEMORY;
    for (uint32_t i = 0; i < vocab->n_tokens; i++) {
        if (vocab->kinds[i] == PLEAT__TOKEN_NORMAL) enter(seams->bits, pleat__vocab_text(vocab, (pleat_token)i));
    }
    return PLEAT_OK;
}

void pleat__seams_release(pleat__seams *seams) {
    pleat__free(&seams->al, seams->bits, N_WORDS, sizeof *seams->bits);
    seams->bits = NULL;
}

uint64_t pleat__seams_next(const pleat__seams *seams, const char *text, uint64_t n_bytes, uint64_t at) {
    uint32_t before = 0, cp = 0;
    at += pleat__utf8_decode(text + at, n_bytes - at, &before);
    while (at < n_bytes) {
        const uint32_t len = pleat__utf8_decode(text + at, n_bytes - at, &cp);
        const uint32_t bit = bit_of(before, cp);
        if (!(seams->bits[bit / 64] >> bit % 64 & 1)) break;
        before = cp;
        at += len;
    }
    return at;
}
