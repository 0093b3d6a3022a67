/* SPDX-License-Identifier: MIT
 *
 * test_rd_cache.c: caches of the compressor rd: blocks depend on their tokens alone, hold what the steps allow, and are
 * attended to as they are exported; what a cache refuses.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "stats_rig.h"

#include "cache/keep/blocks.h"
#include "codec/rd.h"
#include "stats/stats.h"

#define MAX_TOKENS 420u
#define SPEC "rd:k=0.1,v=0.8,buffer=40"

static const cache_shape shape = {.n_layers = 2,
                                  .n_kv_heads = 2,
                                  .head_dim = 32,
                                  .group = 2,
                                  .max_seqs = 3,
                                  .max_tokens = MAX_TOKENS,
                                  .step_tokens = MAX_TOKENS};

/* A lane's block as bytes, of at most 8192; 0: there is none. */
static size_t block_bytes(pleat_cache *cache, pleat_seq seq, uint32_t lane, uint32_t block, uint8_t *out) {
    static uint8_t copy[16384];
    size_t n;
    const pleat__block_run run = pleat__cache_block_run(cache, pleat__cache_seq(cache, seq), lane);
    if (block >= run.n_blocks) return 0;
    const uint8_t *payload = pleat__block_fetch(&run, block, copy, &n);
    memcpy(out, payload, n);
    return n;
}

static uint64_t hash_of(const pleat_cache *cache, pleat_seq seq, uint32_t lane, uint32_t block) {
    uint64_t hash = 0;
    CHECK_STATUS(pleat_cache_block_hash(cache, seq, lane / 2, lane % 2, block, &hash), PLEAT_OK);
    return hash;
}

/* The first block with a token that the two have not in common, and blocks of two lanes or places, are told apart. */
static void check_apart(pleat_cache *const *caches, const pleat_seq *seqs, uint32_t n_prefix) {
    const uint32_t block = (n_prefix - 4) / PLEAT__RD_TOKENS;
    if (block < pleat_cache_n_blocks(caches[0], seqs[0]) && block < pleat_cache_n_blocks(caches[1], seqs[1]))
        CHECK(hash_of(caches[0], seqs[0], 0, block) != hash_of(caches[1], seqs[1], 0, block));
    CHECK(hash_of(caches[0], seqs[0], 0, 0) != hash_of(caches[0], seqs[0], 1, 0));
    if (pleat_cache_n_blocks(caches[0], seqs[0]) > 1)
        CHECK(hash_of(caches[0], seqs[0], 0, 0) != hash_of(caches[0], seqs[0], 0, 1));
}

/* Blocks of a prefix that two sequences have are the same bytes, and have their hash.  Returns how many there are. */
static uint64_t compare_blocks(pleat_cache *const *caches, const pleat_seq *seqs, uint32_t n_prefix) {
    static uint8_t a[8192], b[8192];
    uint64_t n_blocks = 0;
    for (uint32_t lane = 0; lane < 4; lane++)
        for (uint32_t block = 0; 4 + (block + 1) * PLEAT__RD_TOKENS <= n_prefix; block++) {
            const size_t n_a = block_bytes(caches[0], seqs[0], lane, block, a);
            const size_t n_b = block_bytes(caches[1], seqs[1], lane, block, b);
            if (!CHECK_EQ_U64(n_a, n_b) || n_a == 0) continue;
            CHECK_EQ_MEM(a, b, n_a);
            for (uint32_t i = 0; i < 2; i++)
                CHECK_EQ_U64(hash_of(caches[i], seqs[i], lane, block), XXH3_64bits(a, n_a));
            n_blocks++;
        }
    return n_blocks;
}

/* Random prefixes, each with two continuations, in other chunks, other company and a cache of other pages. */
static void check_equal_bytes(const char *spec, uint64_t n_rounds) {
    cache_shape other = shape;
    other.page_tokens = 16;
    uint64_t n_blocks = 0;
    pleat_cache *caches[2] = {cache_of(spec, &shape), cache_of(spec, &other)};
    for (uint64_t round = 0; round < n_rounds; round++) {
        uint64_t ids[2][MAX_TOKENS];
        pleat_seq seqs[2];
        const uint32_t n_prefix = (uint32_t)check_between(70, 300);
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t n = n_prefix + (uint32_t)check_between(45, 110);
            for (uint32_t t = 0; t < n; t++) ids[i][t] = i && t < n_prefix ? ids[0][t] : check_u64() >> 24;
            seqs[i] = cache_seq(caches[i], MAX_TOKENS);
            stats_feed(caches[i], &shape, seqs[i], ids[i], n, 150);
        }
        check_context("round %llu, a prefix of %u", (unsigned long long)round, n_prefix);
        n_blocks += compare_blocks(caches, seqs, n_prefix);
        check_apart(caches, seqs, n_prefix);
        for (uint32_t i = 0; i < 2; i++) CHECK_STATUS(pleat_cache_close(caches[i], seqs[i]), PLEAT_OK);
    }
    CHECK(n_blocks > 4 * n_rounds);
    for (uint32_t i = 0; i < 2; i++) pleat_cache_destroy(&caches[i]);
}
static void test_equal_bytes(void) {
    check_equal_bytes(SPEC, check_rounds(1000, 24));
    check_equal_bytes(SPEC ",fine=100", check_rounds(100, 6));
}

/* Exported numbers are near those that went in; reading attends to just them. */
static void test_reading(void) {
    enum { N = 300 };
    static float k[N * 32], v[N * 32];
    uint64_t ids[N];
    pleat_cache *cache = cache_of(SPEC, &shape);
    const pleat_seq seq = cache_seq(cache, MAX_TOKENS);
    for (uint32_t t = 0; t < N; t++) ids[t] = check_u64() >> 24;
    stats_feed(cache, &shape, seq, ids, N, 150);
    pleat_cache_usage u = cache_usage(cache, seq);
    CHECK(u.tokens_low > 0 && u.tokens_low + u.tokens_high == 4ull * N && u.tokens_dropped == 0);
    CHECK(pleat_cache_is_valid(cache));
    for (uint32_t layer = 0; layer < 2; layer++)
        for (uint32_t head = 0; head < 2; head++) {
            double k_error = 0, v_error = 0, k_size = 0, v_size = 0;
            CHECK_STATUS(pleat_cache_export(cache, seq, layer, head, 0, N, k, v), PLEAT_OK);
            for (uint32_t t = 0; t < N; t++) {
                float k_in[32], v_in[32];
                stats_token(ids[t], layer, head, t, 32, k_in, v_in);
                for (uint32_t i = 0; i < 32; i++) {
                    k_error += pow((double)k_in[i] - (double)k[t * 32 + i], 2);
                    v_error += pow((double)v_in[i] - (double)v[t * 32 + i], 2);
                    k_size += pow((double)k_in[i], 2);
                    v_size += pow((double)v_in[i], 2);
                }
            }
            check_context("layer %u, head %u", layer, head);
            CHECK(k_error < 0.4 * k_size && v_error < 0.08 * v_size);
            CHECK(k_error > 1e-6 * k_size); /* it is compressed */
            float q[4 * 32], out[4 * 32];
            check_fill_normal(q, 4 * 32);
            CHECK_STATUS(pleat_cache_read(cache, layer, &seq, 1, q, out, NULL), PLEAT_OK);
            for (uint32_t g = 0; g < 2; g++) {
                const float *q_head = q + (head * 2 + g) * 32, *got = out + (head * 2 + g) * 32;
                double logits[N], most = -INFINITY, sum = 0, want[32] = {0}, error = 0, size = 0;
                for (uint32_t t = 0; t < N; t++) {
                    logits[t] = 0;
                    for (uint32_t i = 0; i < 32; i++) logits[t] += (double)q_head[i] * (double)k[t * 32 + i] / sqrt(32);
                    most = fmax(most, logits[t]);
                }
                for (uint32_t t = 0; t < N; t++) sum += exp(logits[t] - most);
                for (uint32_t t = 0; t < N; t++)
                    for (uint32_t i = 0; i < 32; i++) want[i] += exp(logits[t] - most) / sum * (double)v[t * 32 + i];
                for (uint32_t i = 0; i < 32; i++) {
                    error += pow(want[i] - (double)got[i], 2);
                    size += want[i] * want[i];
                }
                CHECK(sqrt(error) <= 2e-3 * sqrt(size));
            }
        }
    pleat_cache_destroy(&cache);
}

/* Of the tokens [from, to) of layer 0 and head 0, how far keys and values are from those that went in, squared. */
static double error_of(pleat_cache *cache, pleat_seq seq, const uint64_t *ids, uint32_t from, uint32_t to) {
    static float k[MAX_TOKENS * 32], v[MAX_TOKENS * 32];
    double error = 0;
    CHECK_STATUS(pleat_cache_export(cache, seq, 0, 0, from, to - from, k, v), PLEAT_OK);
    for (uint32_t t = from; t < to; t++) {
        float k_in[32], v_in[32];
        stats_token(ids[t], 0, 0, t, 32, k_in, v_in);
        for (uint32_t i = 0; i < 32; i++) {
            error += pow((double)k_in[i] - (double)k[(t - from) * 32 + i], 2);
            error += pow((double)v_in[i] - (double)v[(t - from) * 32 + i], 2);
        }
    }
    return error;
}

/* Blocks that begin within the first `fine` tokens are as those of half the steps, and the others as without it. */
static void test_fine(void) {
    enum { N = 300, FINE = 65, FINE_END = 4 + 2 * PLEAT__RD_TOKENS, BLOCKS_END = 4 + 4 * PLEAT__RD_TOKENS };
    static const char *const specs[3] = {"rd:k=0.2,v=1.6,buffer=40,fine=65", "rd:k=0.2,v=1.6,buffer=40",
                                         "rd:k=0.1,v=0.8,buffer=40"};
    uint64_t ids[N];
    double early[3], late[3];
    for (uint32_t t = 0; t < N; t++) ids[t] = check_u64() >> 24;
    for (uint32_t i = 0; i < 3; i++) {
        pleat_cache *cache = cache_of(specs[i], &shape);
        const pleat_seq seq = cache_seq(cache, MAX_TOKENS);
        pleat_cache_drift drift;
        stats_feed(cache, &shape, seq, ids, N, 150);
        CHECK_EQ_U64(pleat_cache_n_blocks(cache, seq), 4);
        CHECK_STATUS(pleat_cache_get_drift(cache, seq, &drift), PLEAT_OK);
        CHECK_EQ_U64(drift.n_finer, i == 0 ? 2 * 4 : 0); /* in four lanes */
        early[i] = error_of(cache, seq, ids, 4, FINE_END);
        late[i] = error_of(cache, seq, ids, FINE_END, BLOCKS_END);
        pleat_cache_destroy(&cache);
    }
    CHECK(early[0] < 0.4 * early[1] && early[0] < 1.1 * early[2] && early[0] > 0.9 * early[2]);
    CHECK(late[0] > 0.95 * late[1] && late[0] < 1.05 * late[1]);
}

/* A step of many tokens behind blocks sees them as they are exported: in one step or token by token. */
static void test_later_turns(void) {
    static float out[2][2 * 20 * 4 * 32];
    uint64_t ids[MAX_TOKENS];
    pleat_cache *cache = cache_of(SPEC, &shape);
    const pleat_seq seq = cache_seq(cache, MAX_TOKENS);
    pleat_seq twin;
    for (uint32_t t = 0; t < MAX_TOKENS; t++) ids[t] = check_u64() >> 24;
    stats_feed(cache, &shape, seq, ids, 300, 150);
    CHECK_STATUS(pleat_cache_fork(cache, seq, MAX_TOKENS, &twin), PLEAT_OK);
    stats_step(cache, &shape, seq, ids + 300, 20, 0, out[0]);
    for (uint32_t t = 0; t < 20; t++) {
        float one[2 * 4 * 32];
        stats_step(cache, &shape, twin, ids + 300 + t, 1, 0, one);
        for (uint32_t layer = 0; layer < 2; layer++)
            memcpy(out[1] + (layer * 20 + t) * 128, one + layer * 128, 128 * sizeof *one);
    }
    for (uint32_t layer = 0; layer < 2; layer++)
        CHECK_NEAR_ALL(out[1] + layer * 20 * 128, out[0] + layer * 20 * 128, 20 * 128, 0.02f, 0.02f);
    pleat_cache_destroy(&cache);
}

/* Hashes are of blocks that there are, between steps; a copy of a sequence has its own's. */
static void test_hashes(void) {
    uint64_t ids[200], hash = 7;
    pleat_cache *cache = cache_of(SPEC, &shape), *flat = cache_of("f16", &shape);
    const pleat_seq seq = cache_seq(cache, MAX_TOKENS), other = cache_seq(flat, MAX_TOKENS);
    pleat_seq twin;
    for (uint32_t t = 0; t < 200; t++) ids[t] = check_u64() >> 24;
    CHECK_EQ_U64(pleat_cache_n_blocks(cache, seq), 0);
    CHECK_STATUS(pleat_cache_block_hash(cache, seq, 0, 0, 0, &hash), PLEAT_E_ARG);
    stats_step(cache, &shape, seq, ids, 200, 0, NULL);
    stats_step(flat, &shape, other, ids, 200, 0, NULL);
    CHECK_EQ_U64(pleat_cache_n_blocks(cache, seq), 3); /* 4 sinks, 3 of 64, 4 */
    CHECK_EQ_U64(pleat_cache_n_blocks(flat, other), 0);
    CHECK_EQ_U64(pleat_cache_n_blocks(cache, (pleat_seq){0}), 0);
    CHECK_STATUS(pleat_cache_block_hash(flat, other, 0, 0, 0, &hash), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_block_hash(cache, seq, 2, 0, 0, &hash), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_block_hash(cache, seq, 0, 2, 0, &hash), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_block_hash(cache, seq, 0, 0, 3, &hash), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_block_hash(cache, seq, 0, 0, 0, NULL), PLEAT_E_ARG);
    CHECK_EQ_U64(hash, 7);
    CHECK_STATUS(pleat_cache_fork(cache, seq, MAX_TOKENS, &twin), PLEAT_OK);
    for (uint32_t i = 0; i < 12; i++)
        CHECK_EQ_U64(hash_of(cache, twin, i / 3, i % 3), hash_of(cache, seq, i / 3, i % 3));
    const pleat_cache_item item = {seq, 1, 0};
    CHECK_STATUS(pleat_cache_begin(cache, &item, 1), PLEAT_OK);
    CHECK_STATUS(pleat_cache_block_hash(cache, seq, 0, 0, 0, &hash), PLEAT_E_STATE);
    CHECK_STATUS(pleat_cache_cancel(cache), PLEAT_OK);
    pleat_cache_destroy(&cache);
    pleat_cache_destroy(&flat);
}

/* Keys of thrice the spread that the statistics know, and values that are nothing: blocks say so, and their sums add up. */
static void test_drift(void) {
    static float q[200 * 128], k[200 * 64], v[200 * 64], out[200 * 128];
    uint64_t ids[200];
    pleat_cache *cache = cache_of(SPEC, &shape);
    const pleat_seq like = cache_seq(cache, MAX_TOKENS), unlike = cache_seq(cache, MAX_TOKENS);
    const pleat_cache_item item = {unlike, 200, 0};
    pleat_cache_drift a = {0}, b = {0}, both = {0};
    for (uint32_t t = 0; t < 200; t++) ids[t] = check_u64() >> 24;
    stats_step(cache, &shape, like, ids, 200, 0, NULL);
    CHECK_STATUS(pleat_cache_begin(cache, &item, 1), PLEAT_OK);
    CHECK_STATUS(pleat_cache_get_drift(cache, like, &a), PLEAT_E_STATE);
    for (uint32_t layer = 0; layer < 2; layer++) {
        const stats_part part = {unlike, ids, 200, 0};
        stats_rows(cache, &shape, &part, 1, layer, q, k, v);
        for (uint32_t i = 0; i < 200 * 64; i++) k[i] = 3 * k[i], v[i] = 0;
        CHECK_STATUS(pleat_cache_attend(cache, layer, q, k, v, out), PLEAT_OK);
    }
    CHECK_STATUS(pleat_cache_end(cache), PLEAT_OK);
    CHECK(pleat_cache_is_valid(cache));
    CHECK_STATUS(pleat_cache_get_drift(cache, like, &a), PLEAT_OK);
    CHECK_STATUS(pleat_cache_get_drift(cache, unlike, &b), PLEAT_OK);
    CHECK_STATUS(pleat_cache_get_drift(cache, (pleat_seq){0}, &both), PLEAT_OK);
    CHECK_EQ_U64(a.n_blocks, 12);
    CHECK_EQ_U64(b.n_blocks, 12);
    CHECK_EQ_U64(both.n_blocks, 24);
    CHECK_EQ_U64(both.bytes, a.bytes + b.bytes);
    CHECK_EQ_U64(both.n_escapes, a.n_escapes + b.n_escapes);
    CHECK(a.n_own_keys < 3 && b.n_own_keys == 12 && a.n_own_values < 3 && b.n_own_values == 12);
    CHECK_STATUS(pleat_cache_get_drift(cache, (pleat_seq){77}, &a), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_get_drift(cache, like, NULL), PLEAT_E_ARG);
    pleat_cache_destroy(&cache);
}

/* Statistics say nothing of layers with windows.  A window that no sequence fills keeps its tokens as they are, too. */
static void test_wide_window(void) {
    enum { N = 300 };
    static const uint32_t windows[] = {MAX_TOKENS, 0};
    static uint8_t bytes[8192];
    uint64_t ids[N];
    pleat_cache_token tokens[N];
    pleat_cache *cache = NULL;
    uint8_t *has_first = &cache_stats->has_layer[0];
    pleat_cache_options opt = cache_options_of(SPEC, &shape);
    opt.windows = windows;
    *has_first = 0;
    CHECK_STATUS(pleat_cache_create(&opt, &cache, NULL), PLEAT_OK);
    const pleat_seq seq = cache_seq(cache, MAX_TOKENS);
    for (uint32_t t = 0; t < N; t++) ids[t] = check_u64() >> 24;
    stats_feed(cache, &shape, seq, ids, N, 150);
    CHECK_EQ_U64(block_bytes(cache, seq, 2, 0, bytes) > 0, 1);
    CHECK_STATUS(pleat_cache_tokens(cache, seq, 0, 1, 0, N, tokens), PLEAT_OK);
    for (uint32_t t = 0; t < N; t++) CHECK(tokens[t].level == PLEAT_LEVEL_HIGH);
    CHECK(pleat_cache_is_valid(cache));
    pleat_cache_destroy(&cache);
    opt.windows = NULL;
    pleat_error err = {0};
    CHECK_STATUS(pleat_cache_create(&opt, &cache, &err), PLEAT_E_ARG);
    CHECK(strstr(err.text, "the statistics say nothing of layer 0") != NULL);
    *has_first = 1;
    static const uint32_t of_more[] = {MAX_TOKENS, 0, MAX_TOKENS};
    opt.windows = of_more;
    opt.n_layers = 3;
    CHECK_STATUS(pleat_cache_create(&opt, &cache, &err), PLEAT_E_ARG);
    CHECK(strstr(err.text, "the statistics are of 2 layers") != NULL);
}

static void test_refused(void) {
    const pleat_stats *own = cache_stats;
    pleat_error err = {0};
    pleat_cache *cache = NULL;
    cache_stats = NULL;
    pleat_cache_options opt = cache_options_of(SPEC, &shape);
    CHECK_STATUS(pleat_cache_create(&opt, &cache, &err), PLEAT_E_ARG);
    CHECK(strstr(err.text, "rd chooses its steps by statistics") != NULL);
    cache_stats = own;
    opt = cache_options_of(SPEC, &shape);
    opt.ropes = NULL;
    CHECK_STATUS(pleat_cache_create(&opt, &cache, &err), PLEAT_E_ARG);
    opt = cache_options_of(SPEC, &shape);
    opt.n_layers = 3;
    CHECK_STATUS(pleat_cache_create(&opt, &cache, &err), PLEAT_E_ARG);
    CHECK(strstr(err.text, "the statistics are of 2 layers") != NULL);
    opt = cache_options_of("rd:k=0.1,v=0.8,high=k4v4", &shape);
    CHECK_STATUS(pleat_cache_create(&opt, &cache, &err), PLEAT_E_ARG); /* blocks may be larger than such pages */
    opt = cache_options_of(SPEC, &shape);                              /* what is only planned needs no statistics */
    opt.stats = NULL;
    CHECK(pleat_cache_bytes_for(&opt, 300, MAX_TOKENS) > 0);
}

static const check_test tests[] = {{"equal_bytes", test_equal_bytes},
                                   {"hashes", test_hashes},
                                   {"drift", test_drift},
                                   {"reading", test_reading},
                                   {"later_turns", test_later_turns},
                                   {"refused", test_refused},
                                   {"wide_window", test_wide_window},
                                   {"fine", test_fine}};

int main(int argc, char **argv) { return stats_main(&shape, tests, CHECK_COUNT(tests), argc, argv); }
