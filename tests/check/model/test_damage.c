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
#include "model/internal.h"

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* What is looked at of a type: in each run of `stride` bytes, which are `weights` weights, the float at `at`; another
 * stands at `other`. */
static const struct type {
    const char *name;
    uint32_t type, weights, stride, float_bytes, at, other;
} types[] = {
    {"F32", PLEAT__GGML_F32, 1, 4, 4, 0, 0},
    {"F16", PLEAT__GGML_F16, 1, 2, 2, 0, 0},
    {"BF16", PLEAT__GGML_BF16, 1, 2, 2, 0, 0},
    {"Q8_0", PLEAT__GGML_Q8_0, 32, 34, 2, 0, 0},
    {"Q4_0", PLEAT__GGML_Q4_0, 32, 18, 2, 0, 0},
    {"Q4_1's scale", 3, 32, 20, 2, 0, 2},
    {"Q4_1's minimum", 3, 32, 20, 2, 2, 0},
    {"Q5_0", 6, 32, 22, 2, 0, 0},
    {"Q5_1's scale", 7, 32, 24, 2, 0, 2},
    {"Q5_1's minimum", 7, 32, 24, 2, 2, 0},
    {"Q2_K's scale", 10, 256, 84, 2, 80, 82},
    {"Q2_K's minimum", 10, 256, 84, 2, 82, 80},
    {"Q3_K", 11, 256, 110, 2, 108, 108},
    {"Q4_K's scale", 12, 256, 144, 2, 0, 2},
    {"Q4_K's minimum", 12, 256, 144, 2, 2, 0},
    {"Q5_K's scale", 13, 256, 176, 2, 0, 2},
    {"Q5_K's minimum", 13, 256, 176, 2, 2, 0},
    {"Q6_K", 14, 256, 210, 2, 208, 208},
    {"IQ4_NL", 20, 32, 18, 2, 0, 0},
    {"IQ4_XS", 23, 256, 136, 2, 0, 0},
    {"MXFP4", 39, 32, 17, 1, 0, 0},
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

static void put_at(file *f, uint32_t tensor, const struct type *type, uint32_t run, uint32_t at, uint32_t bits) {
    uint8_t *p = (uint8_t *)f->data.p + f->tensors[tensor].offset + (size_t)run * type->stride + at;
    memcpy(p, &bits, type->float_bytes); /* the lowest bytes */
}

static void put(file *f, uint32_t tensor, const struct type *type, uint32_t run, uint32_t bits) {
    put_at(f, tensor, type, run, type->at, bits);
}

static uint32_t bits_of_one(const struct type *type) {
    if (type->float_bytes == 1) return 127;
    return type->type == PLEAT__GGML_F32 ? 0x3F800000 : type->type == PLEAT__GGML_BF16 ? 0x3F80 : 0x3C00;
}

static void heal(file *f, uint32_t tensor, const struct type *type) {
    for (uint32_t run = 0; run < RUNS; run++) {
        put_at(f, tensor, type, run, type->other, bits_of_one(type));
        put(f, tensor, type, run, bits_of_one(type));
    }
}

/* MXFP4's largest number is 6. */
static bool is_finite(const struct type *type, uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    if (type->float_bytes == 1) return isfinite((float)ldexp(6, (int)bits - 127));
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
            if ((type->float_bytes == 2 && i >= 65536) || (type->float_bytes == 1 && i >= 256)) break;
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
            put(&f, i, of[i], (uint32_t)check_below(RUNS),
                of[i]->float_bytes == 4   ? 0x7F800000
                : of[i]->float_bytes == 1 ? 255
                                          : 0x7FFF);
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
