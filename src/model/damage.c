/* SPDX-License-Identifier: MIT
 *
 * damage.c: weights that are NaN or infinite.  One of them may pass unseen, or make every result NaN; so all are looked
 * at, a tensor a unit: floats one by one, of quantised blocks the scale and the minimum.  Codes cannot be anything but finite.
 *
 * Why not while matrices are packed: embeddings, vectors and matrices of floats are not, so that a pass by itself would
 * stay, and packing by strips knows no tensors.  It costs little beside packing: of the 93.6 million instructions of an
 * engine's creation on the reference model in Q8_0 (28M weights) 2.3 million are these, 2.5 %.  In f16, where nothing
 * is packed, it is 1.1 instructions a weight, and the file's first reading.  (gcc 12 -O3, SSE2, callgrind, 2026-11-23:
 * `pleat run -p x -n 1 -t 1`.)
 */
#include <stdatomic.h>
#include <string.h>

#include "gguf/gguf.h"
#include "linear/linear.h"
#include "model/internal.h"

/* Whether one of n u16, a stride of bytes apart, has all the bits of `exponent`: f16's, or bf16's. */
static bool has_exponent(const uint8_t *p, uint64_t n, size_t stride, uint16_t exponent) {
    uint16_t is_bad = 0; /* as wide as the halves: 8 to an SSE2 register */
    for (uint64_t i = 0; i < n; i++, p += stride) {
        uint16_t half;
        memcpy(&half, p, sizeof half);
        is_bad |= (half & exponent) == exponent ? 0xFFFF : 0;
    }
    return is_bad != 0;
}

/* Whether one of n powers of two, a stride of bytes apart, is so large that the largest code passes f32. */
static bool has_large_power(const uint8_t *p, uint64_t n, size_t stride) {
    enum { FIRST_TOO_LARGE = 253 }; /* 2^125 * 12 */
    uint8_t largest = 0;
    for (uint64_t i = 0; i < n; i++, p += stride) largest = *p > largest ? *p : largest;
    return largest >= FIRST_TOO_LARGE;
}

static bool is_damaged(const uint8_t *p, uint32_t ggml, uint64_t n) {
    enum { F16_EXPONENT = 0x7C00, F32_EXPONENT = 0x7F80 }; /* of an f32 in its upper half, which is a bf16 */
    pleat__weight_type type;
    if (!pleat__weight_type_of(ggml, &type)) return false;
    const pleat__weight_format *f = &pleat__weight_formats[type];
    const uint64_t n_blocks = n / f->block;
    if (type == PLEAT__W_F32) return has_exponent(p + 2, n, 4, F32_EXPONENT);
    if (type == PLEAT__W_BF16) return has_exponent(p, n, 2, F32_EXPONENT);
    if (f->is_power) return has_large_power(p, n_blocks, f->bytes);
    return has_exponent(p + f->d_at, n_blocks, f->bytes, F16_EXPONENT) ||
           (f->has_min && has_exponent(p + f->d_at + 2, n_blocks, f->bytes, F16_EXPONENT));
}

typedef struct search {
    const pleat_gguf *gguf;
    _Atomic uint64_t first; /* the first damaged tensor so far; n_tensors: none */
} search;

static void search_unit(void *ctx, uint32_t unit, uint32_t worker) {
    search *s = ctx;
    const pleat__gguf_tensor *t = &s->gguf->tensors[unit];
    uint64_t first = s->first;
    (void)worker;
    if (unit >= first || !is_damaged(s->gguf->bytes + t->offset, t->type, t->n_elements)) return;
    while (unit < first && !atomic_compare_exchange_weak(&s->first, &first, unit)) continue;
}

const char *pleat__model_damaged_tensor(const pleat_model *model, pleat_workers *workers) {
    const uint64_t n = model->gguf->info.n_tensors;
    search s = {.gguf = model->gguf, .first = n};
    pleat_workers_run(workers, (uint32_t)n, search_unit, &s);
    return s.first < n ? s.gguf->tensors[s.first].name : NULL;
}
