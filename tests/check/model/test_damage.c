/* SPDX-License-Identifier: MIT
 *
 * test_damage.c: weights that are not finite (model/damage.c), against the numbers that their bits stand for.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "core/half.h"
#include "gguf/gguf.h"
#include "linear/linear.h"
#include "model/internal.h"

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* What is looked at of a type: the float that each run of `stride` bytes, which are `weights` weights, begins with. */
static const struct type {
    const char *name;
    uint32_t type, weights, stride, float_bytes;
} types[] = {
    {"F32", PLEAT__GGML_F32, 1, 4, 4},
    {"F16", PLEAT__GGML_F16, 1, 2, 2},
    {"BF16", PLEAT__GGML_BF16, 1, 2, 2},
    {"Q8_0", PLEAT__GGML_Q8_0, PLEAT__WEIGHT_BLOCK, PLEAT__Q8_0_BYTES, 2},
    {"Q4_0", PLEAT__GGML_Q4_0, PLEAT__WEIGHT_BLOCK, PLEAT__Q4_0_BYTES, 2},
};

/* Files of at most N tensors, without anything else. */
enum { N = 5, RUNS = 37 };
typedef struct file {
    pleat__gguf_tensor tensors[N];
    pleat_gguf gguf;
    pleat_model model;
    check_buf data;
} file;

/* Each tensor has RUNS runs of its type; codes are all ones, floats 1. */
static void make(file *f, const struct type *const *of, uint32_t n) {
    uint64_t n_bytes = 0;
    *f = (file){.gguf.info.n_tensors = n};
    for (uint32_t i = 0; i < n; i++) {
        pleat__gguf_tensor *t = &f->tensors[i];
        *t = (pleat__gguf_tensor){.type = of[i]->type,
                                  .n_elements = (uint64_t)RUNS * of[i]->weights,
                                  .n_bytes = (uint64_t)RUNS * of[i]->stride,
                                  .offset = n_bytes};
        snprintf(t->name, sizeof t->name, "tensor.%u", i);
        n_bytes += t->n_bytes;
    }
    f->data = check_buf_new(n_bytes, 2);
    memset(f->data.p, 0xFF, n_bytes);
    f->gguf.bytes = f->data.p;
    f->gguf.tensors = f->tensors;
    f->model.gguf = &f->gguf;
}

static void put(file *f, uint32_t tensor, const struct type *type, uint32_t run, uint32_t bits) {
    uint8_t *at = (uint8_t *)f->data.p + f->tensors[tensor].offset + (size_t)run * type->stride;
    const uint16_t half = (uint16_t)bits;
    memcpy(at, type->float_bytes == 4 ? (const void *)&bits : &half, type->float_bytes);
}

static uint32_t bits_of_one(const struct type *type) {
    return type->type == PLEAT__GGML_F32 ? 0x3F800000 : type->type == PLEAT__GGML_BF16 ? 0x3F80 : 0x3C00;
}

static void heal(file *f, uint32_t tensor, const struct type *type) {
    for (uint32_t run = 0; run < RUNS; run++) put(f, tensor, type, run, bits_of_one(type));
}

static bool is_finite(const struct type *type, uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    if (type->type == PLEAT__GGML_BF16) x = pleat__bf16_to_f32((uint16_t)bits);
    if (type->float_bytes == 2 && type->type != PLEAT__GGML_BF16) x = pleat__f16_to_f32((uint16_t)bits);
    return isfinite(x);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* Every 16-bit float; of those of 32 bits every upper half, and what is nearest to infinity. */
static void test_every_float(void) {
    for (size_t k = 0; k < CHECK_COUNT(types) && check_failures() == 0; k++) {
        const struct type *type = &types[k];
        file f;
        make(&f, &type, 1);
        heal(&f, 0, type);
        CHECK(pleat__model_damaged_tensor(&f.model, NULL) == NULL);
        for (uint32_t i = 0; i < 65536 + 4 && check_failures() == 0; i++) {
            static const uint32_t edges[] = {0x7F7FFFFF, 0xFF7FFFFF, 0x7F800001, 0xFFBFFFFF};
            const uint32_t upper = type->float_bytes == 4 ? i << 16 | (uint32_t)check_below(65536) : i;
            const uint32_t bits = i < 65536 ? upper : edges[i - 65536], run = (uint32_t)check_below(RUNS);
            if (type->float_bytes == 2 && i >= 65536) break;
            check_context("%s, bits %x in run %u", type->name, bits, run);
            put(&f, 0, type, run, bits);
            CHECK((pleat__model_damaged_tensor(&f.model, NULL) == NULL) == is_finite(type, bits));
            put(&f, 0, type, run, bits_of_one(type));
        }
        CHECK(check_buf_is_intact(&f.data));
        check_buf_free(&f.data);
    }
}

/* The first in the file's order, whoever finds which first. */
static void test_first_of_several(void) {
    const struct type *of[N];
    pleat_workers *workers = NULL;
    if (!CHECK_STATUS(pleat_workers_create(3, NULL, &workers), PLEAT_OK)) return;
    for (uint64_t round = check_rounds(2000, 200); round > 0 && check_failures() == 0; round--) {
        file f;
        for (uint32_t i = 0; i < N; i++) of[i] = &types[check_below(CHECK_COUNT(types))];
        make(&f, of, N);
        uint32_t first = N;
        for (uint32_t i = N; i-- > 0;) {
            heal(&f, i, of[i]);
            if (check_below(3) > 0) continue;
            put(&f, i, of[i], (uint32_t)check_below(RUNS), of[i]->float_bytes == 4 ? 0x7F800000 : 0x7FFF);
            first = i;
        }
        const char *name = pleat__model_damaged_tensor(&f.model, check_below(2) ? workers : NULL);
        CHECK(name == (first < N ? f.tensors[first].name : NULL));
        check_buf_free(&f.data);
    }
    pleat_workers_destroy(&workers);
}

static const check_test tests[] = {
    {"every_float", test_every_float},
    {"first_of_several", test_first_of_several},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
