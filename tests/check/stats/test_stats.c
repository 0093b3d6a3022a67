/* SPDX-License-Identifier: MIT
 *
 * test_stats.c: what a collector finds of keys that are known, and statistics as files.
 */
#include "stats_rig.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "stats/basis.h"
#include "stats/stats.h"

static const cache_shape shape = {.n_layers = 4, .n_kv_heads = 2, .head_dim = 32, .group = 3};

static void test_found(void) {
    pleat_stats *s = stats_of_texts(&shape, 30, NULL); /* 6000 tokens */
    CHECK_EQ_STR(pleat_stats_model(s), STATS_MODEL);
    for (uint32_t layer = 0; layer < shape.n_layers; layer++)
        for (uint32_t head = 0; head < shape.n_kv_heads; head++) {
            const pleat__rd_source f = pleat__stats_source(s, layer, head);
            const pleat_rope *rope = cache_rope(layer, shape.head_dim);
            for (uint32_t i = 0; i < shape.head_dim; i++) {
                const uint32_t other = !rope || i >= rope->n_dims ? i
                                       : rope->is_halves          ? (i + rope->n_dims / 2) % rope->n_dims
                                                                  : i ^ 1;
                const double up = rope && i < rope->n_dims ? (double)rope->magnitude : 1;
                const double own = (double)stats_spread(i) * 1.7 / sqrt(3),
                             pair = (double)stats_spread(other) * 1.7 / sqrt(3);
                check_context("layer %u, head %u, dimension %u", layer, head, i);
                CHECK_NEAR(f.mean[i], stats_mean(layer, head, i), 0.1);
                /* turning mixes a pair's deviations, slow pairs hardly */
                CHECK(f.spread[i] >= up * fmin(own, pair) * 0.93 && f.spread[i] <= up * fmax(own, pair) * 1.07);
                CHECK_NEAR(f.energy[i], 1 / 3.0 / shape.head_dim, 0.1 / shape.head_dim);
                CHECK_NEAR(f.v_rms[i], 1, 0.1);
            }
        }
    pleat_stats_destroy(&s);
}

/* ---- bases ----------------------------------------------------------------------------------------------- */

/* A covariance of d dimensions: sums of products of `n` vectors. */
static void fill_covariance(uint32_t d, uint32_t n, double *out) {
    memset(out, 0, (size_t)d * d * sizeof *out);
    for (uint32_t v = 0; v < n; v++) {
        double x[64];
        for (uint32_t i = 0; i < d; i++) x[i] = (double)check_normal() * exp2((i * 7 + v) % 5) + (v % 3 == 0);
        for (uint32_t i = 0; i < d; i++)
            for (uint32_t j = 0; j < d; j++) out[i * d + j] += x[i] * x[j] / n;
    }
}

/* x^T a y of two rows. */
static double between(const double *a, uint32_t d, const float *x, const float *y) {
    double sum = 0;
    for (uint32_t i = 0; i < d; i++)
        for (uint32_t j = 0; j < d; j++) sum += (double)x[i] * a[i * d + j] * (double)y[j];
    return sum;
}

/* Components are not correlated, the widest come first, and an error of any costs a logit as much: K^T K is the energy of
 * queries.  Values' bases are orthonormal.  What undoes them does. */
static void test_bases(void) {
    enum { D = 48 };
    static double queries[D * D], residuals[D * D], scratch[4 * D * D + D];
    static float to[D * D], rows[D * D], from[D * D], query[D * D], spread[D];
    for (uint32_t round = 0; round < 6; round++) {
        const uint32_t d = 16 + 16 * (round % 3);
        fill_covariance(d, 4 * d, queries);
        fill_covariance(d, 3 * d, residuals);
        if (round < 3)
            pleat__basis_of_keys(queries, residuals, d, scratch, to, spread);
        else
            pleat__basis_of_values(residuals, d, scratch, to, spread);
        CHECK(pleat__basis_undo(to, d, scratch, from, query));
        for (uint32_t i = 0; i < d * d; i++) rows[i] = to[i % d * d + i / d];
        double most = 0;
        for (uint32_t i = 0; i < d; i++) most = fmax(most, queries[i * d + i]);
        for (uint32_t i = 0; i < d; i++)
            for (uint32_t j = 0; j < d; j++) {
                double energy = 0, unity = 0, same = 0;
                for (uint32_t k = 0; k < d; k++) {
                    energy += (double)rows[k * d + i] * (double)rows[k * d + j];
                    unity += (double)rows[i * d + k] * (double)from[j * d + k];
                    same += (double)rows[i * d + k] * (double)rows[j * d + k];
                }
                check_context("round %u, %u and %u of %u", round, i, j, d);
                CHECK_NEAR(unity, i == j, 1e-4);
                CHECK(query[i * d + j] == from[j * d + i]);
                if (round < 3) CHECK_NEAR(energy, queries[i * d + j], 2e-3 * most);
                if (round >= 3) CHECK_NEAR(same, i == j, 2e-3);
                const double both = (double)spread[i] * (double)spread[j];
                CHECK_NEAR(between(residuals, d, rows + i * d, rows + j * d), i == j ? both : 0,
                           4e-3 * (double)spread[0] * (double)spread[0]);
                CHECK(j == 0 || spread[j] <= spread[j - 1]);
            }
    }
    memset(to, 0, sizeof to);
    CHECK(!pleat__basis_undo(to, 16, scratch, from, NULL));
}

/* A head that no query asks for, or hardly, has a basis, too: models have such heads. */
static void test_no_queries(void) {
    enum { D = 16 };
    double queries[D * D], residuals[D * D], scratch[4 * D * D + D];
    float to[D * D], from[D * D], spread[D];
    for (uint32_t round = 0; round < 4; round++) {
        fill_covariance(D, 3 * D, queries);
        fill_covariance(D, 3 * D, residuals);
        for (uint32_t i = 0; i < D * D; i++) {
            queries[i] *= round % 2 ? 1e-12 : 0;
            residuals[i] *= round < 2;
        }
        pleat__basis_of_keys(queries, residuals, D, scratch, to, spread);
        check_context("round %u", round);
        CHECK(pleat__basis_undo(to, D, scratch, from, NULL));
        for (uint32_t i = 0; i < D; i++)
            for (uint32_t j = 0; j < D; j++) {
                double unity = 0;
                for (uint32_t k = 0; k < D; k++) unity += (double)to[i * D + k] * (double)from[k * D + j];
                CHECK_NEAR(unity, i == j, 1e-4);
            }
    }
}

/* The mean of R m R^T over turns by 0, step, 2 step, ... of n windows, one after the other. */
static void turned_mean(const double *m, uint32_t d, const pleat__rd_turns *t, const pleat_rope *rope, uint32_t step,
                        uint32_t n, double *out) {
    static double turn[64 * 64], half[64 * 64];
    memset(out, 0, (size_t)d * d * sizeof *out);
    for (uint32_t w = 0; w < n; w++) {
        memset(turn, 0, sizeof turn);
        for (uint32_t i = 0; i < d; i++) turn[i * d + i] = 1;
        for (uint32_t i = 0; i < t->n_pairs; i++) {
            const uint32_t x = t->first * i, y = x + t->other;
            const double angle = rope->frequencies[i] * w * step;
            turn[x * d + x] = turn[y * d + y] = cos(angle);
            turn[y * d + x] = sin(angle);
            turn[x * d + y] = -sin(angle);
        }
        memset(half, 0, sizeof half);
        for (uint32_t i = 0; i < d; i++)
            for (uint32_t k = 0; k < d; k++)
                for (uint32_t j = 0; j < d; j++) half[i * d + j] += turn[i * d + k] * m[k * d + j];
        for (uint32_t i = 0; i < d; i++)
            for (uint32_t j = 0; j < d; j++)
                for (uint32_t k = 0; k < d; k++) out[i * d + j] += half[i * d + k] * turn[j * d + k] / n;
    }
}

/* Bases serve the mean over the windows that positions come to; as many as 2^24 positions have take no longer. */
static void test_windows(void) {
    enum { D = 32 };
    static double kk[D * D], qq[D * D], none[D * D], mean[D * D], scratch[8 * D * D];
    static float to[D * D], rows[D * D], v_to[D * D], fields[4][D], spread[D], v_spread[D];
    double frequencies[D / 2];
    const pleat__stats_lane lane = {.mean = fields[0],
                                    .energy = fields[1],
                                    .spread = fields[2],
                                    .v_rms = fields[3],
                                    .k_to = to,
                                    .v_to = v_to,
                                    .k_spread = spread,
                                    .v_spread = v_spread};
    const uint32_t counts[] = {1, 2, 5, 37, 16777216 / 64};
    CHECK(pleat__moments_scratch(D) <= CHECK_COUNT(scratch));
    for (uint32_t round = 0; round < 2 * CHECK_COUNT(counts); round++) {
        const uint32_t n_pairs = round % 2 ? D / 2 : 10, n = counts[round / 2];
        const pleat_rope rope = {
            .n_dims = 2 * n_pairs, .is_halves = round % 2, .magnitude = 1, .frequencies = frequencies};
        const pleat__rd_turns turns = {
            .n_pairs = n_pairs, .first = round % 2 ? 1 : 2, .other = round % 2 ? n_pairs : 1};
        for (uint32_t i = 0; i < n_pairs; i++) frequencies[i] = i == 3 ? 0 : pow(1e4, -(double)i / n_pairs);
        fill_covariance(D, 3 * D, kk);
        fill_covariance(D, 3 * D, qq);
        pleat__moments m = {1, 1, qq, kk, none, none, none}; /* the mean is 0, so kk is of residuals */
        pleat__moments_finish(&m, &turns, &rope, (pleat__windows){64, n}, D, scratch, &lane);
        check_context("%u windows, round %u", n, round);
        for (uint32_t i = 0; i < D; i++) CHECK(isfinite(fields[2][i]) && isfinite(spread[i]));
        if (n > 100) continue;
        turned_mean(kk, D, &turns, &rope, 64, n, mean);
        for (uint32_t i = 0; i < D; i++)
            CHECK_NEAR((double)fields[2][i] * (double)fields[2][i], mean[i * D + i], 1e-5 * mean[i * D + i]);
        for (uint32_t i = 0; i < D * D; i++) rows[i] = to[i % D * D + i / D];
        for (uint32_t i = 0; i < D; i++)
            for (uint32_t j = 0; j < D; j++)
                CHECK_NEAR(between(mean, D, rows + i * D, rows + j * D),
                           i == j ? (double)spread[i] * (double)spread[i] : 0,
                           4e-3 * (double)spread[0] * (double)spread[0]);
    }
}

static void put_sum(uint8_t *bytes, uint64_t n) {
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(bytes, n - 16));
    memcpy(bytes + n - 16, &sum, 16);
}

/* A file whose sum holds and whose bases are none is refused. */
static void test_no_basis(void) {
    pleat_stats *s = stats_new(&shape), *again = NULL;
    pleat_error err = {0};
    const uint64_t n = pleat_stats_bytes(s), d = shape.head_dim, at = 72 + 4 + 8 + shape.n_kv_heads * 4 * d * 4;
    uint8_t *bytes = malloc(n);
    CHECK_STATUS(pleat_stats_write(s, bytes, n), PLEAT_OK);
    CHECK(bytes[8] == 4);
    memset(bytes + at + 2 * d, 0, 2 * d); /* its second row */
    put_sum(bytes, n);
    CHECK_STATUS(pleat_stats_read(bytes, n, NULL, &again, &err), PLEAT_E_FORMAT);
    CHECK(strstr(err.text, "basis") && !again);
    free(bytes);
    pleat_stats_destroy(&s);
}

/* How far bases serve is in the file; files of version 3 do not say. */
static void test_positions(void) {
    pleat_stats *s = stats_new(&shape), *again = NULL;
    const uint64_t n = pleat_stats_bytes(s);
    const uint32_t said = pleat_stats_n_positions(s), none = 0;
    uint8_t *bytes = malloc(n);
    CHECK(said >= 200 && pleat_stats_n_positions(NULL) == 0);
    CHECK_STATUS(pleat_stats_write(s, bytes, n), PLEAT_OK);
    CHECK_STATUS(pleat_stats_read(bytes, n, NULL, &again, NULL), PLEAT_OK);
    CHECK_EQ_U64(pleat_stats_n_positions(again), said);
    pleat_stats_destroy(&again);
    for (uint32_t round = 0; round < 3; round++) {
        bytes[8] = round < 2 ? 3 : 4;
        memcpy(bytes + 36, round < 1 ? &said : &none, 4);
        put_sum(bytes, n);
        check_context("round %u", round);
        CHECK_STATUS(pleat_stats_read(bytes, n, NULL, &again, NULL), round == 1 ? PLEAT_OK : PLEAT_E_FORMAT);
        if (round != 1) continue;
        CHECK_EQ_U64(pleat_stats_n_positions(again), 0);
        CHECK_EQ_STR(pleat_stats_fingerprint(again), pleat_stats_fingerprint(s));
        pleat_stats_destroy(&again);
    }
    free(bytes);
    pleat_stats_destroy(&s);
}

/* A layer of which nothing is known, as those with windows, takes no memory but its scale's. */
static void test_unknown_layers(void) {
    uint8_t has_layer[18] = {[5] = 1, [11] = 1, [17] = 1};
    pleat_stats *few = NULL, *all = NULL, *rescaled = NULL;
    pleat__stats_shape own = {18, 1, 256, true, 1024, has_layer};
    CHECK_STATUS(pleat__stats_create(&own, NULL, &few), PLEAT_OK);
    CHECK(few->n_known == 3 && few->place[11] == 1 && few->place[17] == 2);
    memset(has_layer, 1, sizeof has_layer);
    CHECK_STATUS(pleat__stats_create(&own, NULL, &all), PLEAT_OK);
    CHECK(6 * few->block_bytes < all->block_bytes + 6 * 1024);
    pleat_stats_destroy(&few);
    pleat_stats_destroy(&all);

    pleat_stats *s = stats_new(&shape), *again = NULL;
    pleat_stats_scale scales[4] = {{2, 2}, {3, 3}, {4, 4}, {5, 5}};
    const uint64_t n = pleat_stats_bytes(s);
    const uint8_t third[] = {0, 0, 1, 0};
    own = (pleat__stats_shape){4, shape.n_kv_heads, shape.head_dim, true, 7, third};
    CHECK_STATUS(pleat__stats_create(&own, NULL, &few), PLEAT_OK);
    memcpy(few->model, STATS_MODEL, PLEAT_FINGERPRINT_CAP);
    few->books = s->books;
    for (uint32_t head = 0; head < shape.n_kv_heads; head++) {
        const pleat__stats_lane from = pleat__stats_lane_of(s, 2, head), to = pleat__stats_lane_of(few, 2, head);
        memcpy(to.mean, from.mean, PLEAT__STATS_FIELDS * shape.head_dim * sizeof(float));
        memcpy(to.k_to, from.k_to, pleat__stats_bases_stride(shape.head_dim) * sizeof(float));
    }
    CHECK_STATUS(pleat__stats_seal(few), PLEAT_OK);
    CHECK_STATUS(pleat_stats_rescale(few, scales, NULL, &rescaled), PLEAT_OK);
    const uint64_t n_few = pleat_stats_bytes(rescaled);
    uint8_t *bytes = malloc(n_few);
    CHECK(n_few < n / 2);
    CHECK_STATUS(pleat_stats_write(rescaled, bytes, n_few), PLEAT_OK);
    CHECK_STATUS(pleat_stats_read(bytes, n_few, NULL, &again, NULL), PLEAT_OK);
    CHECK_EQ_STR(pleat_stats_fingerprint(again), pleat_stats_fingerprint(rescaled));
    CHECK(pleat_stats_get_scale(again, 2).k == 4 && pleat_stats_get_scale(again, 1).k == 0);
    for (uint32_t head = 0; head < shape.n_kv_heads; head++)
        CHECK_EQ_MEM(pleat__stats_lane_of(again, 2, head).mean, pleat__stats_lane_of(s, 2, head).mean,
                     PLEAT__STATS_FIELDS * shape.head_dim * sizeof(float));
    free(bytes);
    pleat_stats_destroy(&s);
    pleat_stats_destroy(&few);
    pleat_stats_destroy(&again);
    pleat_stats_destroy(&rescaled);
}

/* A small file takes no memory for a large model: its layers have to be there. */
static void test_no_layers(void) {
    enum { N = 1288 };
    const uint32_t head[] = {3, PLEAT__RD_CLASSES, N, 0, 1024, 1024, 256, 0};
    uint8_t bytes[N];
    pleat_stats *s = NULL;
    pleat_error err;
    for (uint32_t known = 0; known <= 32; known += 16) {
        memset(bytes, 0, N);
        memcpy(bytes, "PLEATSTA", 8);
        memcpy(bytes + 8, head, sizeof head);
        memcpy(bytes + 40, STATS_MODEL, 32);
        memset(bytes + 72, 1, known);
        put_sum(bytes, N);
        check_alloc ca;
        check_alloc_init(&ca, 1, 0); /* nothing is asked for: it would fail */
        check_context("%u known", known);
        CHECK_STATUS(pleat_stats_read(bytes, N, &ca.a, &s, &err), PLEAT_E_FORMAT);
        CHECK(strstr(err.text, "of 1024 layers"));
    }
}

/* One code in forty is not 0, which would be worth words.  But `auto` needs a class that stores nothing: with statistics of
 * SmolLM2, whose values' narrow components have such tails, it was refused. */
static void test_silence(void) {
    pleat__pair_counts *counts = calloc(1, sizeof *counts);
    for (uint32_t class = 0; class < 2; class ++) {
        pleat__codebook book;
        counts->n[class][16][16] = 38000;
        counts->n[class][16][17] = counts->n[class][15][16] = 1000;
        pleat__rd_book_choose(counts, class, &book);
        check_context("class %u", class);
        CHECK((book.n_levels == 0) == (class == 0));
    }
    free(counts);
}

static void test_file(void) {
    pleat_stats *s = stats_new(&shape), *again = NULL;
    pleat_error err = {0};
    const uint64_t n = pleat_stats_bytes(s);
    uint8_t *bytes = malloc(n), *same = malloc(n);
    CHECK_STATUS(pleat_stats_write(s, bytes, n - 1), PLEAT_E_ARG);
    CHECK_STATUS(pleat_stats_write(s, bytes, n), PLEAT_OK);
    CHECK_STATUS(pleat_stats_read(bytes, n, NULL, &again, &err), PLEAT_OK);
    CHECK_EQ_STR(pleat_stats_fingerprint(s), pleat_stats_fingerprint(again));
    CHECK_STATUS(pleat_stats_write(again, same, n), PLEAT_OK);
    CHECK_EQ_MEM(same, bytes, n);
    pleat_stats_destroy(&again);
    for (uint64_t i = 0; i < n; i++) {
        if (i > 256 && check_below(8)) continue;
        bytes[i] ^= (uint8_t)(1u << check_below(8));
        const pleat_status status = pleat_stats_read(bytes, n, NULL, &again, &err);
        check_context("byte %llu", (unsigned long long)i);
        CHECK(status == PLEAT_E_FORMAT || (status == PLEAT_E_UNSUPPORTED && i >= 8 && i < 16));
        CHECK(err.text[0] != 0);
        memcpy(bytes, same, n);
    }
    for (uint64_t less = 1; less <= n; less += check_below(50) + 1)
        CHECK_STATUS(pleat_stats_read(bytes, n - less, NULL, &again, NULL), PLEAT_E_FORMAT);
    CHECK_STATUS(pleat_stats_load("/nothing/there.stats", NULL, &again, &err), PLEAT_E_IO);
    CHECK_STATUS(pleat_stats_load("tests", NULL, &again, &err), PLEAT_E_IO);
    CHECK_STATUS(pleat_stats_load("README.md", NULL, &again, &err), PLEAT_E_FORMAT);
    free(bytes);
    free(same);
    pleat_stats_destroy(&s);
}

/* Scales are in the file, and a cache's steps are those of a spec with that much larger ones. */
static void test_scales(void) {
    pleat_stats *s = stats_new(&shape), *scaled = NULL, *again = NULL;
    pleat_stats_scale scales[4];
    CHECK_EQ_U64(pleat_stats_n_layers(s), shape.n_layers);
    for (uint32_t i = 0; i < shape.n_layers; i++) scales[i] = (pleat_stats_scale){1 + (float)i, 0.5f};
    CHECK_STATUS(pleat_stats_rescale(s, scales, NULL, &scaled), PLEAT_OK);
    CHECK(strcmp(pleat_stats_fingerprint(s), pleat_stats_fingerprint(scaled)) != 0);
    const uint64_t n = pleat_stats_bytes(scaled);
    uint8_t *bytes = malloc(n);
    CHECK_STATUS(pleat_stats_write(scaled, bytes, n), PLEAT_OK);
    CHECK_STATUS(pleat_stats_read(bytes, n, NULL, &again, NULL), PLEAT_OK);
    CHECK_EQ_STR(pleat_stats_fingerprint(again), pleat_stats_fingerprint(scaled));
    for (uint32_t i = 0; i < shape.n_layers; i++) {
        const pleat_stats_scale was = pleat_stats_get_scale(s, i), is = pleat_stats_get_scale(again, i);
        CHECK(was.k == 1 && was.v == 1 && is.k == scales[i].k && is.v == scales[i].v);
    }
    CHECK(pleat_stats_get_scale(s, shape.n_layers).k == 0 && pleat_stats_get_scale(NULL, 0).v == 0);
    const float wrong[] = {NAN, 0, -1, 64.5f, 1 / 65.0f, INFINITY};
    for (size_t i = 0; i < CHECK_COUNT(wrong); i++) {
        scales[2] = (pleat_stats_scale){i % 2 ? wrong[i] : 1, i % 2 ? 1 : wrong[i]};
        CHECK_STATUS(pleat_stats_rescale(s, scales, NULL, &again), PLEAT_E_RANGE);
    }
    free(bytes);
    pleat_stats_destroy(&s);
    pleat_stats_destroy(&scaled);
    pleat_stats_destroy(&again);
}

static void test_memory(void) {
    pleat_stats *s = stats_new(&shape), *again = NULL;
    const uint64_t n = pleat_stats_bytes(s);
    uint8_t *bytes = malloc(n);
    CHECK_STATUS(pleat_stats_write(s, bytes, n), PLEAT_OK);
    check_alloc ca;
    for (uint64_t nth = 1;; nth++) {
        check_alloc_init(&ca, nth, 0);
        const pleat_status status = pleat_stats_read(bytes, n, &ca.a, &again, NULL);
        if (status == PLEAT_OK) break;
        if (!CHECK_STATUS(status, PLEAT_E_MEMORY)) return;
        CHECK_EQ_U64(ca.live, 0);
    }
    pleat_stats_destroy(&again);
    CHECK_EQ_U64(ca.live, 0);
    free(bytes);
    pleat_stats_destroy(&s);
}

static void read_text(pleat_cache *cache, const cache_shape *own, uint32_t n) {
    uint64_t ids[200];
    for (uint32_t t = 0; t < n; t++) ids[t] = t;
    const pleat_seq seq = cache_seq(cache, 200);
    stats_step(cache, own, seq, ids, n, 0, NULL);
    CHECK_STATUS(pleat_cache_close(cache, seq), PLEAT_OK);
}

/* Calls out of turn. */
static void test_states(void) {
    CHECK_EQ_U64(pleat_collector_n_tokens(NULL), 0);
    pleat_collector *c = NULL;
    pleat_stats *s = NULL;
    CHECK_STATUS(pleat_collector_create(NULL, &c), PLEAT_OK);
    CHECK_STATUS(pleat_collector_count(c, 0), PLEAT_E_STATE);
    CHECK_STATUS(pleat_collector_finish(c, STATS_MODEL, &s), PLEAT_E_STATE);
    const char none[PLEAT_FINGERPRINT_CAP] = "short";
    CHECK_STATUS(pleat_collector_finish(c, none, &s), PLEAT_E_ARG);
    cache_shape own = shape;
    own.max_tokens = own.step_tokens = 200;
    pleat_cache_options opt = cache_options_of("f16", &own);
    opt.collector = c;
    pleat_cache *cache = cache_made(&opt), *other = NULL;
    CHECK_STATUS(pleat_collector_count(c, 0), PLEAT_E_STATE); /* nothing was seen */
    read_text(cache, &own, 4 + 63);
    CHECK_EQ_U64(pleat_collector_n_tokens(c), 63);
    CHECK_STATUS(pleat_collector_count(c, 0), PLEAT_E_STATE);
    read_text(cache, &own, 4 + 2);
    CHECK_EQ_U64(pleat_collector_n_tokens(c), 65);
    CHECK_STATUS(pleat_collector_count(c, 0), PLEAT_OK);
    CHECK_STATUS(pleat_collector_count(c, 0), PLEAT_E_STATE); /* a second time */
    opt.n_kv_heads = opt.n_q_heads = 1;
    CHECK_STATUS(pleat_cache_create(&opt, &other, NULL), PLEAT_E_ARG); /* of another shape */
    opt.ropes = NULL;
    CHECK_STATUS(pleat_cache_create(&opt, &other, NULL), PLEAT_E_ARG);
    pleat_cache_destroy(&cache);
    pleat_collector_destroy(&c);
}

static const check_test tests[] = {
    {"found", test_found},           {"bases", test_bases},         {"no_basis", test_no_basis},
    {"no_queries", test_no_queries}, {"no_layers", test_no_layers}, {"file", test_file},
    {"scales", test_scales},         {"memory", test_memory},       {"states", test_states},
    {"windows", test_windows},       {"positions", test_positions}, {"unknown_layers", test_unknown_layers},
    {"silence", test_silence}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
