/* SPDX-License-Identifier: MIT
 *
 * test_blocks_cache.c: caches whose cold tokens are in compressed blocks (kvcomp, kivi), as a whole.
 *
 * The oracle knows every key and value as the buffer's pages hold it, counts by itself which tokens are due, and computes
 * in double precision.  What comes back of a token is within half a step of what went in, of the first `sinks` it is what
 * went in, and attention is that over what comes back.  What goes in are numbers that the buffer's format holds exactly; others are in rounds_twice.
 * Sharing, images and random lives are in test_share.c, payloads in test_block.c.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cache/keep/blocks.h"
#include "cache_rig.h"
#include "core/half.h"

enum { LAYERS = 2, HEADS = 2, GROUP = 3, D = 32, CAP = 700, STEP = 200, ROW = HEADS * GROUP * D, KV_ROW = HEADS * D };

static const struct block_spec {
    const char *text;
    uint32_t block, buffer, group; /* group: dimensions of a value's unit */
    double k_rel, v_rel;
    bool by_channel;
    uint32_t sinks;
} block_specs[] = {
    {"kvcomp:k=0.25,v=0.15,block=64,buffer=128,sinks=0", 64, 128, D, 0.25, 0.15, true, 0},
    {"kvcomp:k=0.05,v=0.15,kunit=block,block=32,sinks=40,buffer=40", 32, 40, D, 0.05, 0.15, false, 40},
    {"kvcomp:k=0.02,v=0.01,kunit=block,block=16,buffer=1", 16, 1, D, 0.02, 0.01, false, 4},
    {"kvcomp:k=0.3,v=0.2,block=128,buffer=30,sinks=17", 128, 30, D, 0.3, 0.2, true, 17},
    {"kvcomp:k=1,v=1,block=16,buffer=16,sinks=16", 16, 16, D, 1, 1, true, 16},
    {"kvcomp:k=0.25,v=0.15,block=64,buffer=64+pack", 64, 64, D, 0.25, 0.15, true, 4},
    {"kivi:bits=2,buffer=64", 32, 64, 32, 1.0 / 3, 1.0 / 3, true, 4},
    {"kivi:bits=4,sinks=1", 32, 128, 32, 1.0 / 15, 1.0 / 15, true, 1},
    {"kvcomp:k=0.13,v=0.25,buffer=94,high=k8v8", 64, 94, D, 0.13, 0.25, true, 4},
    {"kvcomp:k=0.05,v=0.15,kunit=block,block=16,sinks=100,buffer=20,high=k8v8", 16, 20, D, 0.05, 0.15, false, 100},
    {"kvcomp:k=0.25,v=0.15,block=32,sinks=1000,buffer=64,high=k8v8+pack", 32, 64, D, 0.25, 0.15, true, 1000},
    {"kvcomp:k=0.3,v=0.3,block=64,sinks=15,buffer=70,high=k8v4", 64, 70, D, 0.3, 0.3, true, 15},
    {"kivi:bits=2,sinks=0,buffer=64,high=k8v8", 32, 64, 32, 1.0 / 3, 1.0 / 3, true, 0},
    {"kivi:bits=4,sinks=31,buffer=33,high=f32", 32, 33, 32, 1.0 / 15, 1.0 / 15, true, 31},
};

typedef struct rig {
    const struct block_spec *spec;
    pleat_cache *cache;
    pleat_seq seq;
    uint32_t n_tokens, n_cold; /* n_cold: in blocks, behind the sinks, as the oracle counts */
    pleat_format high;         /* the buffer's */
    bool is_rough;             /* values go in that the buffer rounds */
    double tolerance;          /* of attention: kernels round weights where values are codes */
    double lse_tolerance;
    float *q, *k, *v;       /* [LAYERS][CAP][ROW or KV_ROW]; k and v as the buffer's pages hold them */
    float *k_back, *v_back; /* [CAP][D] of one lane, as exported */
    float *out, *lse;
} rig;

/* ---- what goes in ---------------------------------------------------------------------------------------- */

/* Round a head's values x[D] to what pages of so many bits hold exactly: halves, or all codes of a step that is a power
 * of two, from `min` on, the least and the greatest among them.  Where all are equal they may stay. */
static void to_held(float *x, uint32_t bits, float min, float range) {
    const float step = range / (float)(1u << (bits & 15)), top = (float)((1u << (bits & 15)) - 1);
    const uint32_t least = (uint32_t)check_below(D);
    bool equal = true;
    for (uint32_t i = 0; i < D; i++) equal = equal && x[i] == x[0];
    for (uint32_t i = 0; i < D && bits >= 16; i++) x[i] = pleat__f16_to_f32(pleat__f32_to_f16(x[i]));
    if (bits >= 16 || equal) return;
    for (uint32_t i = 0; i < D; i++) x[i] = min + step * fminf(fmaxf(rintf((x[i] - min) / step), 0), top);
    x[least] = min;
    x[(least + 1) % D] = min + step * top;
}

/* Keys have channels of their own sizes and offsets, as a model's have; some tokens are constant. */
static void fill_token(rig *r, uint32_t layer, uint32_t position) {
    float *k = r->k + ((size_t)layer * CAP + position) * KV_ROW, *v = r->v + ((size_t)layer * CAP + position) * KV_ROW;
    for (uint32_t i = 0; i < KV_ROW; i++) {
        const float size = i % 7 == 0 ? 4.0f : 1.0f, offset = i % 11 == 0 ? -8.0f : 0.0f;
        k[i] = offset + size * check_normal();
        v[i] = position % 37 == 5 ? 3.25f : check_normal();
    }
    for (uint32_t head = 0; head < HEADS && !r->is_rough; head++) {
        to_held(k + head * D, r->high.k_bits, -20, 32);
        to_held(v + head * D, r->high.v_bits, -4, 8);
    }
    for (uint32_t i = 0; i < ROW; i++) r->q[((size_t)layer * CAP + position) * ROW + i] = check_normal();
}

/* Do this CPU's kernels take queries and weights as 16-bit numbers (attn/blocks.h)? */
static bool rounds_to_16_bits(void) { return pleat_cpu_flags() & (PLEAT_CPU_AVX2 | PLEAT_CPU_NEON); }

/* A logit's magnitude reaches some 60 here.  With 24 bits 60 * 2^-24 = 3.6e-6, and the largest distance of 8 seeds was
 * 2.5e-6; with 16 bits 60 * 2^-16 = 9.2e-4, and it was 2.5e-4. */
static void set_tolerance(rig *r) {
    const bool is_coded = r->high.k_bits <= 8, is_16_bits = rounds_to_16_bits();
    r->tolerance = is_16_bits ? 1e-3 : is_coded ? 3e-4 : 5e-6;
    r->lse_tolerance = is_coded ? 5e-3 : is_16_bits ? 1e-3 : 1e-5;
}

static rig rig_new(const struct block_spec *spec, uint32_t page_tokens, pleat_workers *workers) {
    rig r = {.spec = spec};
    pleat_spec parsed;
    CHECK_STATUS(pleat_spec_parse(spec->text, &parsed, NULL), PLEAT_OK);
    r.high = parsed.high;
    set_tolerance(&r);
    const cache_shape shape = {.n_layers = LAYERS,
                               .n_kv_heads = HEADS,
                               .head_dim = D,
                               .group = GROUP,
                               .page_tokens = page_tokens,
                               .max_seqs = 3,
                               .max_tokens = CAP,
                               .step_tokens = STEP,
                               .workers = workers};
    r.cache = cache_of(spec->text, &shape);
    if (!r.cache) return r;
    r.seq = cache_seq(r.cache, CAP);
    r.q = calloc((size_t)LAYERS * CAP * ROW, sizeof *r.q);
    r.k = calloc((size_t)LAYERS * CAP * KV_ROW, sizeof *r.k);
    r.v = calloc((size_t)LAYERS * CAP * KV_ROW, sizeof *r.v);
    r.k_back = calloc((size_t)CAP * D, sizeof *r.k_back);
    r.v_back = calloc((size_t)CAP * D, sizeof *r.v_back);
    r.out = calloc((size_t)STEP * ROW, sizeof *r.out);
    r.lse = calloc(HEADS * GROUP, sizeof *r.lse);
    return r;
}

static void rig_free(rig *r) {
    free(r->q);
    free(r->k);
    free(r->v);
    free(r->k_back);
    free(r->v_back);
    free(r->out);
    free(r->lse);
    pleat_cache_destroy(&r->cache);
}

/* Whole blocks of the oldest behind the sinks go as long as more than the buffer are left and there is a block of them. */
static void count_cold(rig *r) {
    const uint32_t from = r->spec->sinks;
    while (r->n_tokens > from + r->n_cold + r->spec->buffer && r->n_tokens >= from + r->n_cold + r->spec->block)
        r->n_cold += r->spec->block;
}

static bool is_cold(const rig *r, uint32_t position) {
    return position >= r->spec->sinks && position < r->spec->sinks + r->n_cold;
}

/* ---- attention in double precision ------------------------------------------------------------------------- */

/* What one query head gets, and what each sum would be were all its terms positive. */
typedef struct expected {
    double out[D], size[D], lse;
} expected;

/* One query head of layer and position over the first n tokens, the first n_stored of which are as exported. */
static void attend(const rig *r, uint32_t layer, uint32_t q_head, uint32_t position, uint32_t n, uint32_t n_stored,
                   expected *out) {
    static double weight[CAP];
    const float *q = r->q + ((size_t)layer * CAP + position) * ROW + q_head * D;
    double most = -INFINITY, total = 0;
    *out = (expected){0};
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t j = 0; j < n; j++) {
            const size_t at = ((size_t)layer * CAP + j) * KV_ROW + q_head / GROUP * D;
            const float *k = j < n_stored ? r->k_back + (size_t)j * D : r->k + at;
            const float *v = j < n_stored ? r->v_back + (size_t)j * D : r->v + at;
            double dot = 0;
            for (int i = 0; pass == 0 && i < D; i++) dot += (double)q[i] * k[i];
            if (pass == 0) weight[j] = cache_logit(dot / sqrt(D));
            if (pass == 0) most = fmax(most, weight[j]);
            if (pass == 0) continue;
            const double w = exp(weight[j] - most);
            total += w;
            for (int i = 0; i < D; i++) out->out[i] += w * v[i];
            for (int i = 0; i < D; i++) out->size[i] += w * fabs((double)v[i]);
        }
    for (int i = 0; i < D; i++) out->out[i] /= total;
    for (int i = 0; i < D; i++) out->size[i] /= total;
    out->lse = most + log(total);
}

static double distance(const expected *want, const float *got) {
    double diff = 0, norm = 0;
    for (int i = 0; i < D; i++) {
        diff += (got[i] - want->out[i]) * (got[i] - want->out[i]);
        norm += want->size[i] * want->size[i];
    }
    return sqrt(diff / norm);
}

/* A step of n tokens; its output over what was stored before it. */
static void step(rig *r, uint32_t n, uint32_t flags) {
    expected want;
    CHECK_STATUS(pleat_cache_begin(r->cache, &(pleat_cache_item){r->seq, n, flags}, 1), PLEAT_OK);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (uint32_t t = 0; t < n; t++) fill_token(r, layer, r->n_tokens + t);
        const size_t at = (size_t)layer * CAP + r->n_tokens;
        const pleat_status status =
            pleat_cache_attend(r->cache, layer, r->q + at * ROW, r->k + at * KV_ROW, r->v + at * KV_ROW, r->out);
        if (!CHECK_STATUS(status, PLEAT_OK)) return;
        if (layer != (r->n_tokens + n) % LAYERS) continue;
        CHECK_STATUS(pleat_cache_cancel(r->cache), PLEAT_OK); /* to look at what there was; then the same again */
        const uint32_t t = (uint32_t)check_below(n), head = (uint32_t)check_below(HEADS * GROUP);
        CHECK_STATUS(pleat_cache_export(r->cache, r->seq, layer, head / GROUP, 0, r->n_tokens, r->k_back, r->v_back),
                     PLEAT_OK);
        attend(r, layer, head, r->n_tokens + t, r->n_tokens + t + 1, r->n_tokens, &want);
        CHECK_NEAR(distance(&want, r->out + (size_t)t * ROW + head * D), 0, r->tolerance);
        CHECK_STATUS(pleat_cache_begin(r->cache, &(pleat_cache_item){r->seq, n, flags}, 1), PLEAT_OK);
        for (uint32_t l = 0; l <= layer; l++) {
            const size_t from = (size_t)l * CAP + r->n_tokens;
            CHECK_STATUS(pleat_cache_store(r->cache, l, r->k + from * KV_ROW, r->v + from * KV_ROW), PLEAT_OK);
        }
    }
    CHECK_STATUS(pleat_cache_end(r->cache), PLEAT_OK);
    r->n_tokens += n;
    if (!(flags & PLEAT_ITEM_MORE)) count_cold(r);
}

/* ---- what is held -------------------------------------------------------------------------------------------- */

/* Half a step of the unit that value i of a token is in, from the values themselves. */
static double half_step(const rig *r, const float *x, uint32_t position, uint32_t i, bool is_key) {
    const uint32_t T = r->spec->block, first = position - (position - r->spec->sinks) % T;
    double low = INFINITY, high = -INFINITY;
    for (uint32_t t = 0; t < T; t++)
        for (uint32_t j = 0; j < D; j++) {
            const bool same = is_key ? !r->spec->by_channel || j == i
                                     : first + t == position && j / r->spec->group == i / r->spec->group;
            const float value = x[(size_t)(first + t) * KV_ROW + j];
            if (!same) continue;
            low = fmin(low, value);
            high = fmax(high, value);
        }
    return (is_key ? r->spec->k_rel : r->spec->v_rel) * (high - low) / 2;
}

/* f16 rounds a step up by at most 2^-10 of it, and f32 arithmetic a value by less than 2^-22. */
static void check_value(const rig *r, const float *x, float got, uint32_t position, uint32_t i, bool is_key) {
    const double value = x[(size_t)position * KV_ROW + i];
    if (!is_cold(r, position)) {
        CHECK_NEAR(got, value, 0);
        return;
    }
    const double half = half_step(r, x, position, i, is_key);
    CHECK_NEAR(got, value, half * (1 + 0x1p-10) + 0x1p-24 + (fabs(value) + half) * 0x1p-22);
}

static void check_values(rig *r) {
    for (uint32_t lane = 0; lane < LAYERS * HEADS; lane++) {
        const uint32_t layer = lane / HEADS, head = lane % HEADS;
        const size_t at = (size_t)layer * CAP * KV_ROW + head * D;
        pleat_cache_token kept[CAP];
        CHECK_STATUS(pleat_cache_tokens(r->cache, r->seq, layer, head, 0, r->n_tokens, kept), PLEAT_OK);
        CHECK_STATUS(pleat_cache_export(r->cache, r->seq, layer, head, 0, r->n_tokens, r->k_back, r->v_back), PLEAT_OK);
        for (uint32_t j = 0; j < r->n_tokens; j++) {
            CHECK(kept[j].level == (is_cold(r, j) ? PLEAT_LEVEL_LOW : PLEAT_LEVEL_HIGH));
            const uint32_t i = (uint32_t)check_below(D);
            check_value(r, r->k + at, r->k_back[(size_t)j * D + i], j, i, true);
            check_value(r, r->v + at, r->v_back[(size_t)j * D + i], j, i, false);
        }
    }
}

/* Reading attends to what is exported, over all splits. */
static void check_read(rig *r) {
    expected want;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        const float *q = r->q + ((size_t)layer * CAP + r->n_tokens - 1) * ROW;
        CHECK_STATUS(pleat_cache_read(r->cache, layer, &r->seq, 1, q, r->out, r->lse), PLEAT_OK);
        for (uint32_t head = 0; head < HEADS * GROUP; head++) {
            CHECK_STATUS(
                pleat_cache_export(r->cache, r->seq, layer, head / GROUP, 0, r->n_tokens, r->k_back, r->v_back),
                PLEAT_OK);
            attend(r, layer, head, r->n_tokens - 1, r->n_tokens, r->n_tokens, &want);
            CHECK_NEAR(distance(&want, r->out + head * D), 0, r->tolerance);
            CHECK_NEAR(r->lse[head], want.lse, r->lse_tolerance);
        }
    }
}

/* Counts, and no page more than tokens and payloads fill. */
static void check_counts(const rig *r) {
    pleat_cache_usage u;
    const uint64_t n_lanes = LAYERS * HEADS;
    CHECK_STATUS(pleat_cache_get_usage(r->cache, r->seq, &u), PLEAT_OK);
    CHECK_EQ_U64(u.tokens_low, n_lanes * r->n_cold);
    CHECK_EQ_U64(u.tokens_high, n_lanes * (r->n_tokens - r->n_cold));
    CHECK_EQ_U64(u.tokens_dropped, 0);
    const pleat__sequence *seq = pleat__cache_seq(r->cache, r->seq);
    uint64_t n_pages = 0;
    for (uint32_t lane = 0; lane < n_lanes; lane++) {
        const pleat__block_run run = pleat__cache_block_run(r->cache, seq, lane);
        const uint64_t n_bytes = run.n_blocks ? (uint64_t)run.ends[run.n_blocks - 1] * PLEAT__BLOCK_ALIGN : 0;
        n_pages += pleat__div_up_u32(r->n_tokens - r->n_cold, r->cache->page_tokens[PLEAT__HIGH]);
        n_pages += (n_bytes + r->cache->page_bytes - 1) / r->cache->page_bytes;
    }
    CHECK_EQ_U64(u.pages_used, n_pages);
    CHECK(pleat_cache_is_valid(r->cache));
}

/* ---- tests ----------------------------------------------------------------------------------------------------- */

static void live(const struct block_spec *spec, uint32_t page_tokens, pleat_workers *workers) {
    check_context("%s, pages of %u", spec->text, page_tokens);
    rig r = rig_new(spec, page_tokens, workers);
    if (!r.q) return;
    while (r.n_tokens < CAP - 1 && check_failures() == 0) {
        const bool one = check_below(4) != 0;
        uint32_t n = one ? 1 : (uint32_t)check_between(2, STEP);
        if (n > CAP - r.n_tokens) n = CAP - r.n_tokens;
        const uint32_t n_again = one ? (uint32_t)check_below(30) : 1;
        for (uint32_t i = 0; i < n_again && r.n_tokens + n <= CAP; i++)
            step(&r, n, n > 1 && check_below(4) == 0 ? PLEAT_ITEM_MORE : 0);
        check_counts(&r);
        check_values(&r);
        if (r.n_tokens > 0 && check_below(2)) check_read(&r);
    }
    CHECK_STATUS(pleat_cache_close(r.cache, r.seq), PLEAT_OK);
    pleat_cache_usage u;
    CHECK_STATUS(pleat_cache_get_usage(r.cache, (pleat_seq){0}, &u), PLEAT_OK);
    CHECK_EQ_U64(u.pages_used, 0);
    rig_free(&r);
}

static void test_lives(void) {
    for (size_t i = 0; i < CHECK_COUNT(block_specs); i++) {
        pleat_workers *workers = NULL;
        if (i % 2) CHECK_STATUS(pleat_workers_create(3, NULL, &workers), PLEAT_OK);
        cache_logit_cap = i % 2 ? 1.5f : 0;
        const uint32_t longer = block_specs[i].block % 32 == 0 ? 32 : 0;
        live(&block_specs[i], i % 3 == 0 ? 16 : i % 3 == 1 ? longer : 0, workers);
        pleat_workers_destroy(&workers);
    }
    cache_logit_cap = 0;
}

/* A fork shares the pages that payloads fill, and those that sinks fill, and each goes its own way. */
static void fork_of(const struct block_spec *spec) {
    rig r = rig_new(spec, 16, NULL);
    if (!r.q) return;
    step(&r, STEP, PLEAT_ITEM_MORE);
    step(&r, STEP, PLEAT_ITEM_MORE);
    step(&r, STEP, 0);
    pleat_seq twin;
    CHECK_STATUS(pleat_cache_fork(r.cache, r.seq, CAP, &twin), PLEAT_OK);
    const pleat__sequence *seq = pleat__cache_seq(r.cache, r.seq);
    uint64_t n_full = 0;
    for (uint32_t lane = 0; lane < LAYERS * HEADS; lane++)
        n_full += seq->table.n_slots[PLEAT__LOW][lane] / r.cache->page_tokens[PLEAT__LOW] + spec->sinks / 16;
    for (uint32_t i = 0; i < 70; i++) step(&r, 1, 0);
    check_context("%s", spec->text);
    CHECK(n_full >= LAYERS * HEADS);
    const uint64_t n_shared = pleat_cache_pages_shared(r.cache, r.seq, twin); /* and f16 pages that are not due yet */
    CHECK(n_shared >= n_full && n_shared <= n_full + LAYERS * HEADS * (r.spec->buffer / 16));
    check_values(&r);
    CHECK_STATUS(pleat_cache_close(r.cache, r.seq), PLEAT_OK);
    CHECK(pleat_cache_is_valid(r.cache));
    r.seq = twin;
    r.n_tokens = 3 * STEP;
    r.n_cold = 0;
    count_cold(&r);
    check_counts(&r);
    check_values(&r);
    rig_free(&r);
}

static void test_fork_shares_payloads(void) {
    static const struct block_spec specs[] = {
        {"kvcomp:k=0.25,v=0.15,block=64,sinks=4", 64, 128, D, 0.25, 0.15, true, 4},
        {"kvcomp:k=0.25,v=0.15,block=64,sinks=40", 64, 128, D, 0.25, 0.15, true, 40},
    };
    fork_of(&block_specs[0]);
    for (size_t i = 0; i < CHECK_COUNT(specs); i++) fork_of(&specs[i]);
}

/* With values that the buffer rounds, a token's block is made of what the buffer held: within half a step of that. */
static void test_rounds_twice(void) {
    static const struct block_spec spec = {"kvcomp:k=0.13,v=0.25,buffer=94,high=k8v8", 64, 94, D, 0.13, 0.25, true, 4};
    static float k_buffer[LAYERS * HEADS][CAP * D], v_buffer[LAYERS * HEADS][CAP * D];
    rig r = rig_new(&spec, 0, NULL);
    if (!r.q) return;
    r.is_rough = true;
    for (uint32_t n = 0; n < 2; n++) { /* nothing is due yet, then all but 94 tokens in whole blocks */
        const pleat_cache_item item = {r.seq, n ? 1 : STEP, n ? 0 : PLEAT_ITEM_MORE};
        CHECK_STATUS(pleat_cache_begin(r.cache, &item, 1), PLEAT_OK);
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            for (uint32_t t = 0; t < item.n_tokens; t++) fill_token(&r, layer, r.n_tokens + t);
            const size_t at = ((size_t)layer * CAP + r.n_tokens) * KV_ROW;
            CHECK_STATUS(pleat_cache_store(r.cache, layer, r.k + at, r.v + at), PLEAT_OK);
        }
        CHECK_STATUS(pleat_cache_end(r.cache), PLEAT_OK);
        r.n_tokens += item.n_tokens;
        for (uint32_t lane = 0; lane < LAYERS * HEADS && n == 0; lane++)
            CHECK_STATUS(
                pleat_cache_export(r.cache, r.seq, lane / HEADS, lane % HEADS, 0, STEP, k_buffer[lane], v_buffer[lane]),
                PLEAT_OK);
    }
    count_cold(&r);
    CHECK_EQ_U64(r.n_cold, 128);
    for (uint32_t lane = 0; lane < LAYERS * HEADS; lane++) /* what the buffer held is what the oracle goes by */
        for (uint32_t t = 0; t < STEP; t++) {
            const size_t at = ((size_t)(lane / HEADS) * CAP + t) * KV_ROW + lane % HEADS * D;
            CHECK(memcmp(r.k + at, k_buffer[lane] + (size_t)t * D, D * sizeof *r.k) != 0);
            memcpy(r.k + at, k_buffer[lane] + (size_t)t * D, D * sizeof *r.k);
            memcpy(r.v + at, v_buffer[lane] + (size_t)t * D, D * sizeof *r.v);
        }
    r.n_tokens = STEP; /* the last one was not looked at before */
    check_values(&r);
    rig_free(&r);
}

/* ---- codebooks -------------------------------------------------------------------------------------------------- */

static const cache_shape small = {.n_layers = LAYERS,
                                  .n_kv_heads = HEADS,
                                  .head_dim = D,
                                  .group = GROUP,
                                  .max_seqs = 3,
                                  .max_tokens = CAP,
                                  .step_tokens = STEP};

/* The step's tokens, in all layers. */
static void store_all(pleat_cache *cache, uint32_t n) {
    static float kv[STEP * KV_ROW];
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        check_fill_normal(kv, (size_t)n * KV_ROW);
        CHECK_STATUS(pleat_cache_store(cache, layer, kv, kv), PLEAT_OK);
    }
}

static pleat_cache_usage usage_of(const pleat_cache *cache) {
    pleat_cache_usage u = {0};
    CHECK_STATUS(pleat_cache_get_usage(cache, (pleat_seq){0}, &u), PLEAT_OK);
    return u;
}

/* The step that makes the first blocks takes memory for codebooks; without any it does not begin. */
static void begin_without_memory(pleat_cache *cache, check_alloc *ca, pleat_seq seq) {
    const pleat_cache_item item = {seq, 100, 0};
    const pleat_cache_usage before = usage_of(cache);
    const uint64_t live = ca->live;
    ca->fail_at = ca->count + 1;
    CHECK_STATUS(pleat_cache_begin(cache, &item, 1), PLEAT_E_MEMORY);
    const pleat_cache_usage refused = usage_of(cache);
    CHECK_EQ_MEM(&refused, &before, sizeof before);
    CHECK_STATUS(pleat_cache_begin(cache, &item, 1), PLEAT_OK);
    CHECK_EQ_U64(ca->live, live + 1);
    CHECK_STATUS(pleat_cache_cancel(cache), PLEAT_OK);
    CHECK_EQ_U64(ca->live, live);
    CHECK_EQ_U64(usage_of(cache).bytes, before.bytes);
    CHECK(pleat_cache_is_valid(cache));
    CHECK_STATUS(pleat_cache_begin(cache, &item, 1), PLEAT_OK);
    store_all(cache, 100);
    CHECK_STATUS(pleat_cache_end(cache), PLEAT_OK);
    CHECK_EQ_U64(ca->live, live + 1);
    CHECK(usage_of(cache).tokens_low > 0);
}

/* A fork and a restored sequence take theirs when they are made, or are not made. */
static void copy_without_memory(pleat_cache *cache, check_alloc *ca, pleat_seq seq) {
    const uint64_t live = ca->live, n = pleat_cache_image_bytes(cache, seq, (pleat_seq){0});
    uint8_t *image = malloc(n);
    pleat_seq twin = {0};
    CHECK_STATUS(pleat_cache_save(cache, seq, (pleat_seq){0}, image, n), PLEAT_OK);
    for (int fork = 0; fork < 2; fork++) {
        ca->fail_at = ca->count + 2;
        for (int again = 0; again < 2; again++)
            CHECK_STATUS(fork ? pleat_cache_fork(cache, seq, CAP, &twin)
                              : pleat_cache_restore(cache, image, n, (pleat_seq){0}, &twin),
                         again ? PLEAT_OK : PLEAT_E_MEMORY);
        CHECK_EQ_U64(pleat_cache_n_open(cache), 2);
        CHECK_EQ_U64(ca->live, live + 2);
        CHECK(pleat_cache_is_valid(cache));
        CHECK_STATUS(pleat_cache_close(cache, twin), PLEAT_OK);
        CHECK_EQ_U64(ca->live, live);
    }
    free(image);
}

static void test_codebooks_come_with_blocks(void) {
    static const char *const specs[] = {"kvcomp:k=0.25,v=0.15,buffer=64,sinks=0",
                                        "kvcomp:k=0.13,v=0.25,buffer=64,high=k8v8"};
    for (size_t i = 0; i < CHECK_COUNT(specs); i++) {
        check_alloc ca;
        check_alloc_init(&ca, 0, 0);
        pleat_cache_options opt = cache_options_of(specs[i], &small);
        opt.allocator = &ca.a;
        pleat_cache *cache = cache_made(&opt);
        if (!cache) return;
        const pleat_seq seq = cache_seq(cache, CAP);
        const uint64_t count = ca.count;
        CHECK_STATUS(pleat_cache_begin(cache, &(pleat_cache_item){seq, 60, 0}, 1), PLEAT_OK);
        store_all(cache, 60);
        CHECK_STATUS(pleat_cache_end(cache), PLEAT_OK);
        CHECK_EQ_U64(ca.count, count);
        CHECK_EQ_U64(usage_of(cache).bytes, pleat_cache_bytes_for(&opt, 60, CAP));
        begin_without_memory(cache, &ca, seq);
        CHECK(usage_of(cache).bytes <= pleat_cache_bytes_for(&opt, 160, CAP));
        const uint32_t n = 64 + opt.spec.sinks, has_more_pages = n % cache->page_tokens[PLEAT__HIGH] == 0;
        CHECK_EQ_U64(pleat_cache_bytes_for(&opt, n + 1, CAP) - pleat_cache_bytes_for(&opt, n, CAP),
                     LAYERS * sizeof(pleat__block_codebooks) +
                         has_more_pages * LAYERS * HEADS * (cache->page_bytes + 8));
        copy_without_memory(cache, &ca, seq);
        pleat_cache_destroy(&cache);
        CHECK_EQ_U64(ca.live, 0);
    }
}

/* ---- options ---------------------------------------------------------------------------------------------------- */

/* What a cache refuses. */
static void test_options(void) {
    const cache_shape shape = {
        .n_layers = 1, .n_kv_heads = 1, .head_dim = D, .group = 1, .page_tokens = 48, .max_tokens = CAP};
    pleat_cache_options opt = cache_options_of("kvcomp:k=0.2,v=0.2,block=32", &shape);
    pleat_error err;
    pleat_cache *cache = NULL;
    CHECK_STATUS(pleat_cache_create(&opt, &cache, &err), PLEAT_E_ARG);
    CHECK(strstr(err.text, "page_tokens 48 does not divide"));
    static const char *const narrow[] = {"kvcomp:k=0.2,v=0.15,high=k2v2", "kvcomp:k=0.01,v=0.01,high=k4v4",
                                         "kvcomp:k=0.004,v=0.004,block=16,high=k8v8", "kivi:bits=2,high=k2v2"};
    static const char *const wide[] = {"kvcomp:k=0.2,v=0.15,high=k4v4", "kvcomp:k=0.02,v=0.02,block=16,high=k8v8",
                                       "kvcomp:k=0.004,v=0.004,block=16,high=f16", "kivi:bits=2,high=k4v4"};
    for (size_t i = 0; i < CHECK_COUNT(narrow); i++) {
        opt = cache_options_of(narrow[i], &shape);
        opt.page_tokens = 0;
        check_context("%s", narrow[i]);
        CHECK_STATUS(pleat_cache_create(&opt, &cache, &err), PLEAT_E_ARG);
        CHECK(strstr(err.text, "more than the") && strstr(err.text, "give the spec's high more bits"));
        opt = cache_options_of(wide[i], &shape);
        opt.page_tokens = 0;
        check_context("%s", wide[i]);
        CHECK_STATUS(pleat_cache_create(&opt, &cache, &err), PLEAT_OK);
        pleat_cache_destroy(&cache);
    }
    opt = cache_options_of("kvcomp:k=0.2,v=0.2,block=32", &shape);
    const uint32_t window = 64;
    opt.page_tokens = 0;
    opt.windows = &window;
    CHECK_STATUS(pleat_cache_create(&opt, &cache, &err), PLEAT_E_ARG);
    CHECK(strstr(err.text, "sliding window"));
}

static const check_test tests[] = {
    {"lives", test_lives},
    {"fork_shares_payloads", test_fork_shares_payloads},
    {"rounds_twice", test_rounds_twice},
    {"codebooks_come_with_blocks", test_codebooks_come_with_blocks},
    {"options", test_options},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
