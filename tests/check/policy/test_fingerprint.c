/* SPDX-License-Identifier: MIT
 *
 * test_fingerprint.c: what representatives are made from: prints, each variant against the reference and the reference
 * against prints that can be counted by hand, and their k-means against a naive one.
 */
#include "fingerprint_rig.h"
#include "policy/fingerprint.h"
#include "policy/kmeans.h"

/* ---- prints ------------------------------------------------------------------------------------------ */

/* n copies of one random word where `kind` is 0, else words with a random share of bits. */
static void fill_prints(uint64_t *prints, size_t n, unsigned kind) {
    const uint64_t word = check_u64();
    for (size_t i = 0; i < n; i++) {
        const uint64_t a = check_u64(), b = check_u64();
        prints[i] = kind == 0 ? word : kind == 1 ? a : kind == 2 ? a & b : kind == 3 ? a | b : i % 2 ? word : ~word;
    }
}

static void test_variants(void) {
    for (uint64_t round = check_rounds(600, 100); round-- > 0;) {
        const uint32_t n_words = (uint32_t)(check_below(2) ? 1 : check_between(1, 19));
        static const uint32_t from[] = {1, 120, 254, 508, 250},
                              to[] = {40, 255, 257, 512, 800}; /* bytes count to 255 */
        const uint64_t size = check_below(CHECK_COUNT(from));
        const uint32_t n = (uint32_t)check_between(from[size], to[size]);
        check_buf prints = check_buf_new((size_t)n * n_words * 8, 8), anchor = check_buf_new(n_words * 8, 8);
        fill_prints(prints.p, (size_t)n * n_words, (unsigned)check_below(5));
        fill_prints(anchor.p, n_words, 1);
        uint32_t want[800];
        uint64_t want_bits[19];
        pleat__fingerprint_distances_ref(prints.p, n, n_words, anchor.p, want);
        pleat__fingerprint_majority_ref(prints.p, n, n_words, want_bits);
        for (uint32_t i = 1; i < n_variants; i++) {
            check_context("n %u, words %u, flags %x", n, n_words, variants[i]);
            pleat__fingerprint_dsp dsp;
            pleat__fingerprint_dsp_init(&dsp, variants[i]);
            check_buf got = check_buf_new(n * 4, 4), bits = check_buf_new(n_words * 8, 8);
            dsp.distances(prints.p, n, n_words, anchor.p, got.p);
            dsp.majority(prints.p, n, n_words, bits.p);
            CHECK_EQ_MEM(got.p, want, n * 4);
            CHECK_EQ_MEM(bits.p, want_bits, n_words * 8);
            dsp.distances(prints.p, 0, n_words, anchor.p, got.p);
            CHECK(check_buf_is_intact(&got) && check_buf_is_intact(&bits));
            check_buf_free(&got);
            check_buf_free(&bits);
        }
        check_buf_free(&prints);
        check_buf_free(&anchor);
    }
}

/* What the reference itself says, of prints that can be counted by hand. */
static void test_reference(void) {
    const uint64_t prints[] = {0x5, 1, 0x4, 3, 0x8000000000000001, 0}; /* three of two words */
    const uint64_t anchor[] = {0x1, 1};
    uint32_t distances[3];
    uint64_t majority[2];
    pleat__fingerprint_distances_ref(prints, 3, 2, anchor, distances);
    CHECK(distances[0] == 1 && distances[1] == 3 && distances[2] == 2);
    pleat__fingerprint_majority_ref(prints, 3, 2, majority);
    CHECK(majority[0] == 0x5 && majority[1] == 1);
    pleat__fingerprint_majority_ref(prints, 2, 2, majority); /* ties to 1 */
    CHECK(majority[0] == 0x5 && majority[1] == 3);
}

/* ---- k-means ------------------------------------------------------------------------------------------ */

static void test_kmeans(void) {
    for (uint64_t round = check_rounds(400, 40); round-- > 0;) {
        const uint32_t n = (uint32_t)check_between(1, 60),
                       k = (uint32_t)check_between(1, check_below(2) ? n : n / 4 + 1);
        const uint32_t n_bits = (uint32_t)(check_below(2) ? check_between(1, 8) : check_between(1, 150));
        const uint32_t n_words = (n_bits + 63) / 64;
        uint64_t prints[60 * 3];
        fill_prints(prints, (size_t)n * n_words, (unsigned)check_below(4));
        for (uint32_t i = 0; i < n && n_bits % 64; i++)
            prints[i * n_words + n_words - 1] &= ((uint64_t)1 << n_bits % 64) - 1;
        pleat__arena count = {0};
        pleat__kmeans km;
        pleat__kmeans_carve(&km, n, n_bits, (uint64_t)n * n_bits, &count);
        check_buf memory = check_buf_new(count.used_bytes, 64);
        pleat__arena arena = {.base = memory.p, .cap_bytes = count.used_bytes};
        pleat__kmeans_carve(&km, n, n_bits, (uint64_t)n * n_bits, &arena);
        uint32_t got[60], want[60];
        pleat__kmeans_run(&km, prints, n, n_bits, k, got);
        naive_run(&naive, prints, n, n_bits, k, want);
        check_context("n %u, bits %u, k %u", n, n_bits, k);
        CHECK_EQ_MEM(got, want, k * sizeof *got);
        CHECK(check_buf_is_intact(&memory));
        check_buf_free(&memory);
    }
}

static const check_test tests[] = {{"variants", test_variants}, {"reference", test_reference}, {"kmeans", test_kmeans}};

int main(int argc, char **argv) {
    find_variants();
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
