/* SPDX-License-Identifier: MIT
 *
 * test_kernels.c: tables of kernels with AVX2 and with NEON have no entry that is scalar code.  What both lack is not in
 * question: runs of streams (NULL), and quantised rows to f32, of which an embedding reads one.
 */
#include "attn/attn.h"
#include "attn/blocks_walk.h"
#include "check.h"
#include "codec/block.h"
#include "hw/cpu.h"
#include "linear/linear.h"
#include "model/ops.h"
#include "quant/quant.h"

#define IS_VECTOR(ours, scalar, entry) CHECK((ours).entry && (ours).entry != (scalar).entry)

/* PLEAT_CPU_AVX2 or PLEAT_CPU_NEON, whichever this CPU, with its mask, has; 0: neither. */
static uint32_t base(void) { return pleat_cpu_flags() & (PLEAT_CPU_AVX2 | PLEAT_CPU_NEON); }

static void test_attention(void) {
    pleat__attn_dsp ours, scalar;
    if (!base()) return check_skip("no vectors");
    pleat__attn_dsp_init(&ours, base());
    pleat__attn_dsp_init(&scalar, 0);
    IS_VECTOR(ours, scalar, decode);
    IS_VECTOR(ours, scalar, blocks);
    IS_VECTOR(ours, scalar, decode_received);
    IS_VECTOR(ours, scalar, prompt);
    IS_VECTOR(ours, scalar, prompt_received);
}

static void test_blocks(void) {
#if PLEAT_X86
    const pleat__blocks_steps ours = pleat__blocks_steps_avx2;
#elif PLEAT_ARM
    const pleat__blocks_steps ours = pleat__blocks_steps_neon;
#endif
#if PLEAT_X86 || PLEAT_ARM
    const pleat__blocks_steps scalar = pleat__blocks_steps_ref;
    IS_VECTOR(ours, scalar, begin);
    IS_VECTOR(ours, scalar, keys_begin);
    IS_VECTOR(ours, scalar, keys);
    IS_VECTOR(ours, scalar, cap);
    IS_VECTOR(ours, scalar, softmax);
    IS_VECTOR(ours, scalar, values_begin);
    IS_VECTOR(ours, scalar, values);
    IS_VECTOR(ours, scalar, mean);
#else
    check_skip("no vectors");
#endif
}

static void test_codecs(void) {
    pleat__codec_dsp ours, scalar;
    if (!base()) return check_skip("no vectors");
    pleat__codec_dsp_init(&ours, base());
    pleat__codec_dsp_init(&scalar, 0);
    IS_VECTOR(ours, scalar, stream);
    IS_VECTOR(ours, scalar, raw);
    IS_VECTOR(ours, scalar, pack);
}

static void test_pages(void) {
    pleat__quant_dsp ours, scalar;
    if (!base()) return check_skip("no vectors");
    pleat__quant_dsp_init(&ours, base());
    pleat__quant_dsp_init(&scalar, 0);
    IS_VECTOR(ours, scalar, store);
    IS_VECTOR(ours, scalar, replace);
    IS_VECTOR(ours, scalar, load_k);
    IS_VECTOR(ours, scalar, load_v);
}

static void test_products(void) {
    if (!base()) return check_skip("no vectors");
    for (uint32_t n_limbs = 1; n_limbs <= 2; n_limbs++) {
        pleat__linear_dsp ours, scalar;
        pleat__linear_dsp_init(&ours, base(), n_limbs);
        pleat__linear_dsp_init(&scalar, 0, n_limbs);
        IS_VECTOR(ours, scalar, code);
        for (uint32_t type = 0; type < PLEAT__N_WEIGHT_TYPES; type++) {
            check_context("type %u, %u limbs", type, n_limbs);
            IS_VECTOR(ours, scalar, mul[type]);
            if (!pleat__is_quantised((pleat__weight_type)type)) IS_VECTOR(ours, scalar, load[type]);
        }
    }
}

static void test_model(void) {
    pleat__ops_dsp ours, scalar;
    if (!base()) return check_skip("no vectors");
    pleat__ops_dsp_init(&ours, base());
    pleat__ops_dsp_init(&scalar, 0);
    IS_VECTOR(ours, scalar, rmsnorm);
    IS_VECTOR(ours, scalar, swiglu);
    IS_VECTOR(ours, scalar, geglu);
    IS_VECTOR(ours, scalar, swiglu_clipped);
    IS_VECTOR(ours, scalar, rope);
    IS_VECTOR(ours, scalar, rope_halves);
}

static const check_test tests[] = {
    {"attention", test_attention}, {"blocks", test_blocks},     {"codecs", test_codecs},
    {"pages", test_pages},         {"products", test_products}, {"model", test_model},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
