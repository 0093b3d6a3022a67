/* SPDX-License-Identifier: MIT
 *
 * test_device_compress.c: a GPU's cache of kvcomp+pack beside the CPU's: the same blocks, byte for byte, after prompts
 * and steps, and attention as near as its law says.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cache/cuda/device_cache.h"
#include "cache_pair.h"
#include "codec/internal.h"

/* ---- blocks ------------------------------------------------------------------------------------------------ */

/* Hash of a block's payload on the device. */
static uint64_t hash_of(const pair *p, uint32_t row, uint32_t block) {
    const pleat__device_lanes *l = &p->gpu->lanes;
    const uint32_t page_units = l->pages.page_tokens[1];
    uint32_t ends[2] = {0, 0};
    uint8_t *payload = calloc(1, l->blocks.coder.cap_bytes + 16u);
    const uint32_t *at = l->blocks.ends + (uint64_t)row * l->blocks.ends_cap + block;
    copy(&ends[1], at, 4);
    if (block > 0) copy(&ends[0], at - 1, 4);
    for (uint32_t unit = ends[0]; unit < ends[1] && unit - ends[0] < l->blocks.coder.cap_bytes / 16; unit++) {
        uint32_t id;
        copy(&id, l->pages.ids + (uint64_t)(row + 1) * l->pages.row_len - 1 - unit / page_units, 4);
        copy(payload + 16u * (unit - ends[0]), l->base + id * l->page_bytes + 16u * (unit % page_units), 16);
    }
    const uint32_t k_word = pleat__load_u32(payload + 4), v_word = pleat__load_u32(payload + 8);
    const uint32_t k_units = l->blocks.coder.by_channel ? l->head_dim : 1;
    const size_t n_bytes = PLEAT__BLOCK_HEADER_BYTES + pleat__matrix_unit_bytes(k_word, k_units) +
                           pleat__matrix_unit_bytes(v_word, PLEAT__PACK_TOKENS) + PLEAT__PACK_TOKENS +
                           pleat__matrix_section_bytes(k_word) + pleat__matrix_section_bytes(v_word);
    const uint64_t hash = n_bytes <= l->blocks.coder.cap_bytes ? XXH3_64bits(payload, n_bytes) : 0;
    free(payload);
    return hash;
}

/* All of a sequence are the CPU's. */
static void compare_blocks(const pair *p, uint32_t seq) {
    const uint32_t want = pleat_cache_n_blocks(p->cpu, p->seqs[seq]);
    for (uint32_t layer = 0; layer < N_LAYERS; layer++)
        for (uint32_t head = 0; head < p->s.n_kv_heads; head++) {
            const uint32_t row = (seq * N_LAYERS + layer) * p->s.n_kv_heads + head;
            uint32_t n = UINT32_MAX, n_slots;
            copy(&n, p->gpu->lanes.blocks.n_blocks + row, 4);
            copy(&n_slots, p->gpu->lanes.pages.n_slots[0] + row, 4);
            if (!CHECK_EQ_U64(n, want)) return;
            CHECK_EQ_U64(n_slots + PLEAT__PACK_TOKENS * n, p->lengths[seq]);
            for (uint32_t block = 0; block < n; block++) {
                uint64_t hash = 1;
                CHECK_STATUS(pleat_cache_block_hash(p->cpu, p->seqs[seq], layer, head, block, &hash), PLEAT_OK);
                if (!CHECK_EQ_U64(hash_of(p, row, block), hash)) return;
            }
        }
}

/* ---- tests ------------------------------------------------------------------------------------------------- */

/* Tokens of a prompt that leaves sinks and buffer so full that the next token makes a block. */
static uint32_t full_length(const char *text) {
    pleat_spec spec;
    CHECK_STATUS(pleat_spec_parse(text, &spec, NULL), PLEAT_OK);
    return spec.sinks + pleat__max_u32(spec.buffer, PLEAT__PACK_TOKENS - 1) + PLEAT__PACK_TOKENS;
}

/* Prompts below the buffer and above it, in the smallest number of tokens that makes a block; then steps. */
static void check_shape(const shape *s, uint32_t n_steps) {
    const uint32_t seqs[N_SEQS] = {2, 0, 1}, full = full_length(s->spec);
    const uint32_t lengths[N_SEQS] = {1, (uint32_t)check_cases(163, full), (uint32_t)check_cases(240, full - 1)};
    pair p;
    if (!pair_init(&p, s)) return;
    for (uint32_t i = 0; i < N_SEQS; i++) {
        read_some(&p, i, lengths[i]);
        compare_blocks(&p, i);
    }
    for (uint32_t i = 0; i < n_steps; i++) {
        step(&p, seqs, i % 5 == 4 ? 2 : 3);
        if (i % 16 == 15 || i + 1 == n_steps)
            for (uint32_t k = 0; k < N_SEQS; k++) compare_blocks(&p, k);
    }
    CHECK_STATUS(pleat_device_cache_check(p.gpu, NULL, NULL), PLEAT_OK);
    pair_free(&p);
}

static void test_shapes(void) {
    static const shape shapes[] = {
        {.head_dim = 128, .n_kv_heads = 2, .n_group = 4, .spec = "kvcomp:k=0.13,v=0.15+pack"},
        {.head_dim = 64, .n_kv_heads = 2, .n_group = 3, .spec = "kvcomp:k=0.1,v=0.2,high=f16+pack"},
        {.head_dim = 128, .n_kv_heads = 1, .n_group = 8, .spec = "kvcomp:k=0.25,v=0.5,buffer=1,sinks=0+pack"},
        {.head_dim = 64,
         .n_kv_heads = 1,
         .n_group = 1,
         .spec = "kvcomp:k=0.07,v=0.07,kunit=block,high=f16,buffer=64,sinks=15+pack",
         .page_tokens = 32},
        {.head_dim = 128, .n_kv_heads = 2, .n_group = 2, .spec = "kvcomp:k=1,v=1,buffer=128+pack", .page_tokens = 64}};
    CHECK_DEVICE();
    for (uint32_t i = 0; i < CHECK_COUNT(shapes); i++)
        check_shape(&shapes[i], (uint32_t)check_cases(check_rounds(150, 70), 3));
}

/* A place begins again with a step, and what was there does not show. */
static void test_again(void) {
    static const uint32_t seq = 1;
    pair p;
    CHECK_DEVICE();
    if (!pair_init(&p, &(shape){.head_dim = 64, .n_kv_heads = 2, .n_group = 2, .spec = "kvcomp:k=0.2,v=0.15+pack"}))
        return;
    for (uint32_t round = 0; round < 2; round++) {
        read_some(&p, seq, 200);
        step(&p, &seq, 1);
        CHECK_STATUS(pleat_device_cache_close(p.gpu, seq, NULL, NULL), PLEAT_OK);
        CHECK_STATUS(pleat_cache_close(p.cpu, p.seqs[seq]), PLEAT_OK);
        CHECK_STATUS(pleat_cache_open(p.cpu, N_MOST, &p.seqs[seq]), PLEAT_OK);
        p.lengths[seq] = 0;
    }
    for (uint32_t i = 0; i < check_cases(170, 3); i++) step(&p, &seq, 1);
    compare_blocks(&p, seq);
    pair_free(&p);
}

/* A fork goes on as the CPU's does, and what it is of too. */
static void test_fork(void) {
    static const uint32_t seqs[2] = {0, 1};
    const shape s = {.head_dim = 128, .n_kv_heads = 2, .n_group = 2, .spec = "kvcomp:k=0.1,v=0.2+pack"};
    pair p;
    CHECK_DEVICE();
    if (!pair_init(&p, &s)) return;
    read_some(&p, 0, (uint32_t)check_cases(201, full_length(s.spec)));
    CHECK_STATUS(pleat_cache_close(p.cpu, p.seqs[1]), PLEAT_OK);
    CHECK_STATUS(pleat_cache_fork(p.cpu, p.seqs[0], N_MOST, &p.seqs[1]), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_fork(p.gpu, 0, 1, NULL, NULL), PLEAT_OK);
    p.lengths[1] = p.lengths[0];
    for (uint32_t i = 0; i < check_cases(70, 2); i++) step(&p, seqs, 2);
    for (uint32_t i = 0; i < 2; i++) compare_blocks(&p, i);
    pair_free(&p);
}

/* What is not built is refused by name. */
static void test_refused(void) {
    pleat_device_cache_options opt;
    CHECK_DEVICE();
    pleat_device_cache_options_default(&opt);
    opt.n_layers = 1;
    opt.n_kv_heads = 2;
    opt.n_q_heads = 4;
    opt.head_dim = 64;
    opt.max_tokens = 256;
    check_refused(&opt, "kvcomp:k=0.13,v=0.15", PLEAT_E_UNSUPPORTED, "kvcomp+pack");
    check_refused(&opt, "kvcomp:k=0.05,v=0.15+pack", PLEAT_E_UNSUPPORTED, "0.07");
    check_refused(&opt, "kvcomp:k=0.13,v=0.15,sinks=16+pack", PLEAT_E_UNSUPPORTED, "sinks");
    check_refused(&opt, "kvcomp:k=0.13,v=0.15,block=32+pack", PLEAT_E_UNSUPPORTED, "64 tokens");
    opt.head_dim = 80;
    check_refused(&opt, "kvcomp:k=0.13,v=0.15+pack", PLEAT_E_UNSUPPORTED, "heads of 64 and 128");
    pair p;
    const uint32_t seq = 0;
    uint64_t n_bytes;
    float x[64];
    if (!pair_init(&p, &(shape){.head_dim = 64, .n_kv_heads = 2, .n_group = 2, .spec = "kvcomp:k=0.2,v=0.15+pack"}))
        return;
    read_some(&p, seq, 100);
    CHECK_STATUS(pleat_device_cache_image_bytes(p.gpu, seq, &n_bytes, NULL, NULL), PLEAT_E_UNSUPPORTED);
    CHECK_STATUS(pleat_device_cache_chunk_begin(p.gpu, seq, 2, NULL, NULL), PLEAT_E_UNSUPPORTED);
    CHECK_STATUS(pleat_device_cache_export(p.gpu, seq, 0, 0, 0, 1, x, x, NULL, NULL), PLEAT_E_UNSUPPORTED);
    pair_free(&p);
}

static const check_test tests[] = {
    {"shapes", test_shapes}, {"again", test_again}, {"fork", test_fork}, {"refused", test_refused}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
