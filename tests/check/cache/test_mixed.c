/* SPDX-License-Identifier: MIT
 *
 * test_mixed.c: caches some of whose layers have a sliding window, beside two caches that have the layers of one kind
 * each: the full ones under the same spec, and the windows under the spec's high format.
 *
 *     layers of the mixed cache    0: 33   1: all   2: 64   3: all   4: 1
 *     of the full one                      0               1
 *     of the rings' one            0               1               2
 *
 * All three are given the same tokens in the same steps; forks, images, compression and cancelled steps come between.
 * Layer by layer outputs and what lanes hold are equal to the bit, and pages, tokens and needs add up.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cache_rig.h"

enum { LAYERS = 5, HEADS = 2, GROUP = 2, D = 32, CAP = 260, SEQS = 3, ROW = HEADS * GROUP * D, KV_ROW = HEADS * D };
enum { MIXED, FULL, RINGS, N_CACHES };

static const uint32_t windows[LAYERS] = {33, 0, 64, 0, 1}, ring_windows[] = {33, 64, 1};
static const uint32_t layers_of[N_CACHES][LAYERS] = {{0, 1, 2, 3, 4}, {1, 3}, {0, 2, 4}};
static const uint32_t n_layers_of[N_CACHES] = {LAYERS, 2, 3};

static const struct {
    const char *spec, *rings;
    uint32_t page_tokens;
} kinds[] = {
    {"f32", "f32", 16},
    {"k8v4", "k8v4", 32},
    {"h3v2", "h3v2", 32},
    {"leankv:ah=1.5,al=0.6,window=16", "k8v4", 32},
    {"leankv:ah=0.9,al=0.5,window=5,high=f16,low=k8v8", "f16", 16},
    {"leankv:ah=3,al=0,window=3,low=k2v2,step=code", "k8v4", 16},
    {"leankv:ah=1,al=1,window=20", "k8v4", 16},
    {"topk:keep=30%,window=12,format=k8v4", "k8v4", 16},
    {"h2o:budget=60,window=16,sinks=2", "k8v4", 16},
    {"h2o:budget=30%,window=8,format=f16,reclaim=copy", "f16", 32},
    {"h2o:budget=50,window=8,reclaim=block+kvcrush:share=50%", "k8v4", 16},
    {"snapkv:budget=40,window=8,reclaim=copy+kvcrush:share=30%,anchor=alternate,unit=page", "k8v4", 16},
    {"pyramidkv:budget=64,window=8,format=k8v8,reclaim=block", "k8v8", 16},
    {"h2o:budget=50,window=8+merge", "k8v4", 16},
    {"adakv:budget=50,window=12,reclaim=none", "k8v4", 32},
    {"streaming:budget=37,sinks=3", "k8v4", 16},
    {"novel:budget=40,window=8,sinks=2", "k8v4", 16},
    {"expected:budget=40,window=8,sinks=2", "k8v4", 16},
    {"dropkv:budget=40,window=8,sinks=2", "k8v4", 16},
    {"kvzip:budget=40,window=8,sinks=2", "k8v4", 16},
    {"novel:budget=30%,window=4,format=f16,reclaim=copy", "f16", 32},
    {"recent:budget=20%,reclaim=copy", "k8v4", 16},
    {"random:budget=40,window=4+kvcrush:anchor=random", "k8v4", 16},
    {"kvcomp:k=0.1,v=0.2,block=32,buffer=40", "f16", 16},
    {"kvcomp:k=0.1,v=0.2,block=32,sinks=21,buffer=20,high=k8v8", "k8v8", 16},
    {"kvcomp:k=0.3,v=0.2,block=64,buffer=30+pack", "f16", 32},
    {"kivi:bits=4", "f16", 16},
};

typedef struct trio {
    pleat_cache *caches[N_CACHES];
    pleat_seq seqs[SEQS][N_CACHES];
    uint32_t salts[SEQS]; /* of a sequence's tokens: forks have their parent's so far, and go on alike */
    uint32_t n_tokens[SEQS];
    uint64_t n_forks, n_images, n_compressed, n_cancelled, n_replayed;
} trio;

static pleat_cache_options options_of(size_t kind, uint32_t which, pleat_workers *workers) {
    const cache_shape shape = {.n_layers = n_layers_of[which],
                               .n_kv_heads = HEADS,
                               .head_dim = D,
                               .group = GROUP,
                               .page_tokens = kinds[kind].page_tokens,
                               .max_seqs = SEQS,
                               .max_tokens = CAP,
                               .step_tokens = SEQS * CAP,
                               .workers = workers};
    pleat_cache_options opt = cache_options_of(which == RINGS ? kinds[kind].rings : kinds[kind].spec, &shape);
    static const pleat_rope *ropes[LAYERS]; /* of the full layers, 1 and 3 of the mixed cache */
    if (which == FULL) opt.ropes = ropes;
    for (uint32_t layer = 0; layer < n_layers_of[FULL]; layer++) ropes[layer] = cache_rope(2 * layer + 1, D);
    if (which != FULL) opt.windows = which == MIXED ? windows : ring_windows;
    return opt;
}

/* ---- steps ------------------------------------------------------------------------------------------- */

static void make_row(uint32_t salt, uint32_t layer, uint32_t position, float *q, float *k, float *v) {
    pleat__rng rng = rng_of_token(salt, layer, position);
    const bool attracts = position % 8 == 3;
    for (uint32_t i = 0; i < ROW; i++) q[i] = rng_within(&rng, 2) + (i % 3 == 0 ? 1.0f : -0.5f);
    for (uint32_t i = 0; i < KV_ROW; i++) k[i] = rng_within(&rng, 2) + (attracts ? (i % 3 == 0 ? 0.7f : -0.35f) : 0);
    for (uint32_t i = 0; i < KV_ROW; i++) v[i] = rng_within(&rng, 1);
}

/* Tokens of some sequences in one step. */
typedef struct share {
    uint32_t seq, n, flags;
} share;

/* Begin in one cache; how many pages that takes. */
static uint64_t begin(trio *t, uint32_t which, const share *shares, uint32_t n_shares) {
    pleat_cache_item items[SEQS];
    uint64_t n_needed = 0;
    for (uint32_t i = 0; i < n_shares; i++) {
        items[i] = (pleat_cache_item){t->seqs[shares[i].seq][which], shares[i].n, shares[i].flags};
        n_needed += pleat_cache_pages_needed(t->caches[which], &items[i]);
    }
    CHECK_STATUS(pleat_cache_begin(t->caches[which], items, n_shares), PLEAT_OK);
    return n_needed;
}

/* The outputs of one cache's layers, each where the mixed cache's stand. */
static void attend(trio *t, uint32_t which, const share *shares, uint32_t n_shares, uint32_t n_rows, float *out) {
    static float q[SEQS * CAP * ROW], k[SEQS * CAP * KV_ROW], v[SEQS * CAP * KV_ROW];
    for (uint32_t i = 0; i < n_layers_of[which]; i++) {
        const uint32_t layer = layers_of[which][i];
        uint32_t row = 0;
        for (uint32_t s = 0; s < n_shares; s++)
            for (uint32_t n = 0; n < shares[s].n; n++, row++)
                make_row(t->salts[shares[s].seq], layer, t->n_tokens[shares[s].seq] + n, q + (size_t)row * ROW,
                         k + (size_t)row * KV_ROW, v + (size_t)row * KV_ROW);
        float *to = out + (size_t)layer * n_rows * ROW;
        CHECK_STATUS(pleat_cache_attend(t->caches[which], i, q, k, v, to), PLEAT_OK);
    }
}

static void step(trio *t, const share *shares, uint32_t n_shares, bool is_cancelled) {
    static float out[2][LAYERS * SEQS * CAP * ROW];
    uint64_t n_needed[N_CACHES];
    uint32_t n_rows = 0;
    for (uint32_t i = 0; i < n_shares; i++) n_rows += shares[i].n;
    for (uint32_t which = 0; which < N_CACHES; which++) {
        n_needed[which] = begin(t, which, shares, n_shares);
        attend(t, which, shares, n_shares, n_rows, out[which != MIXED]);
        CHECK_STATUS(is_cancelled ? pleat_cache_cancel(t->caches[which]) : pleat_cache_end(t->caches[which]), PLEAT_OK);
    }
    CHECK_EQ_U64(n_needed[MIXED], n_needed[FULL] + n_needed[RINGS]);
    CHECK_EQ_MEM(out[0], out[1], (size_t)LAYERS * n_rows * ROW * sizeof(float));
    for (uint32_t i = 0; i < n_shares && !is_cancelled; i++) t->n_tokens[shares[i].seq] += shares[i].n;
}

static void any_step(trio *t) {
    share shares[SEQS];
    uint32_t n_shares = 0;
    for (uint32_t s = 0; s < SEQS; s++) {
        const uint32_t left = CAP - t->n_tokens[s];
        if (left == 0 || check_below(3) == 0) continue;
        const uint32_t n = check_below(3) ? 1 : (uint32_t)check_between(1, left < 80 ? left : 80);
        shares[n_shares++] = (share){s, n, (1u << check_below(4)) & 7u};
    }
    if (n_shares > 0) step(t, shares, n_shares, false);
}

/* A single token that is given up; a chunk would take tokens from rings. */
static void cancelled_step(trio *t) {
    const share one = {(uint32_t)check_below(SEQS), 1, 0};
    if (t->n_tokens[one.seq] == CAP) return;
    step(t, &one, 1, true);
    t->n_cancelled++;
}

/* Rings alone know of no replay: it has left none of its tokens in those of the mixed cache. */
static void replay_one(trio *t, const pleat_spec *spec) {
    static float out[2][LAYERS * CAP * ROW];
    const share one = {(uint32_t)check_below(SEQS), (uint32_t)check_between(2, 80),
                       PLEAT_ITEM_REPLAY | (uint32_t)check_below(2) * PLEAT_ITEM_MORE};
    const uint32_t n = t->n_tokens[one.seq];
    if (spec->policy != PLEAT_POLICY_KVZIP || n == 0 || n + one.n > CAP) return;
    memset(out, 0, sizeof out);
    for (uint32_t which = MIXED; which <= FULL; which++) {
        (void)begin(t, which, &one, 1);
        attend(t, which, &one, 1, one.n, out[which]);
        CHECK_STATUS(pleat_cache_end(t->caches[which]), PLEAT_OK);
        CHECK_EQ_U64(pleat_cache_length(t->caches[which], t->seqs[one.seq][which]), n);
    }
    for (uint32_t i = 0; i < n_layers_of[FULL]; i++) {
        const size_t at = (size_t)layers_of[FULL][i] * one.n * ROW;
        CHECK_EQ_MEM(out[MIXED] + at, out[FULL] + at, (size_t)one.n * ROW * sizeof(float));
    }
    t->n_replayed++;
}

/* ---- sequences --------------------------------------------------------------------------------------- */

static void fork_one(trio *t) {
    const uint32_t from = (uint32_t)check_below(SEQS), to = (from + 1) % SEQS;
    for (uint32_t which = 0; which < N_CACHES; which++) {
        CHECK_STATUS(pleat_cache_close(t->caches[which], t->seqs[to][which]), PLEAT_OK);
        CHECK_STATUS(pleat_cache_fork(t->caches[which], t->seqs[from][which], CAP, &t->seqs[to][which]), PLEAT_OK);
        CHECK_EQ_U64(pleat_cache_pages_shared(t->caches[which], t->seqs[from][which], t->seqs[to][which]),
                     pleat_cache_pages_held(t->caches[which], t->seqs[from][which]));
    }
    t->salts[to] = t->salts[from];
    t->n_tokens[to] = t->n_tokens[from];
    t->n_forks++;
}

/* To the host's memory and back, on a relative or on none. */
static void swap_one(trio *t) {
    const uint32_t seq = (uint32_t)check_below(SEQS), base = (seq + 2) % SEQS;
    const bool on_base = check_below(2) == 0;
    uint64_t n_pages[N_CACHES];
    for (uint32_t which = 0; which < N_CACHES; which++) {
        pleat_cache *c = t->caches[which];
        const pleat_seq on = on_base ? t->seqs[base][which] : (pleat_seq){0};
        const uint64_t n_bytes = pleat_cache_image_bytes(c, t->seqs[seq][which], on);
        uint8_t *image = malloc(n_bytes);
        CHECK_STATUS(pleat_cache_save(c, t->seqs[seq][which], on, image, n_bytes), PLEAT_OK);
        CHECK_STATUS(pleat_cache_close(c, t->seqs[seq][which]), PLEAT_OK);
        n_pages[which] = pleat_cache_image_pages(c, image, n_bytes);
        image[n_bytes / 2] ^= 1;
        CHECK_STATUS(pleat_cache_restore(c, image, n_bytes, on, &t->seqs[seq][which]), PLEAT_E_FORMAT);
        image[n_bytes / 2] ^= 1;
        CHECK_STATUS(pleat_cache_restore(c, image, n_bytes, on, &t->seqs[seq][which]), PLEAT_OK);
        free(image);
    }
    CHECK_EQ_U64(n_pages[MIXED], n_pages[FULL] + n_pages[RINGS]);
    t->n_images++;
}

static void compress_one(trio *t, const pleat_spec *spec) {
    const uint32_t seq = (uint32_t)check_below(SEQS);
    const float more = (float)t->n_compressed / 4, al = spec->al > 0 ? spec->al + more : 0;
    pleat_cache_traits traits = {.size_bytes = sizeof traits};
    CHECK_STATUS(pleat_cache_get_traits(t->caches[MIXED], &traits), PLEAT_OK);
    const pleat_status wanted = traits.can_compress ? PLEAT_OK : PLEAT_E_UNSUPPORTED;
    for (uint32_t which = MIXED; which <= FULL; which++)
        CHECK_STATUS(pleat_cache_compress(t->caches[which], t->seqs[seq][which], spec->ah + more, al), wanted);
    t->n_compressed += traits.can_compress;
}

/* ---- what they hold ---------------------------------------------------------------------------------- */

static void check_lane(const trio *t, uint32_t seq, uint32_t which, uint32_t i, uint32_t head) {
    static pleat_cache_token tokens[2][CAP];
    static float k[2][CAP * D], v[2][CAP * D];
    const uint32_t n = t->n_tokens[seq], layer = layers_of[which][i];
    const pleat_cache *mixed = t->caches[MIXED], *pure = t->caches[which];
    CHECK_STATUS(pleat_cache_tokens(mixed, t->seqs[seq][MIXED], layer, head, 0, n, tokens[0]), PLEAT_OK);
    CHECK_STATUS(pleat_cache_tokens(pure, t->seqs[seq][which], i, head, 0, n, tokens[1]), PLEAT_OK);
    CHECK_EQ_MEM(tokens[0], tokens[1], n * sizeof *tokens[0]);
    const pleat_status status = pleat_cache_export(pure, t->seqs[seq][which], i, head, 0, n, k[1], v[1]);
    CHECK_STATUS(pleat_cache_export(mixed, t->seqs[seq][MIXED], layer, head, 0, n, k[0], v[0]), status);
    if (status != PLEAT_OK) return; /* low tokens that nobody can tell apart */
    CHECK_EQ_MEM(k[0], k[1], (size_t)n * D * sizeof(float));
    CHECK_EQ_MEM(v[0], v[1], (size_t)n * D * sizeof(float));
}

static void check_sums(const trio *t, uint32_t seq) {
    const pleat_cache_usage m = cache_usage(t->caches[MIXED], t->seqs[seq][MIXED]);
    const pleat_cache_usage f = cache_usage(t->caches[FULL], t->seqs[seq][FULL]);
    const pleat_cache_usage r = cache_usage(t->caches[RINGS], t->seqs[seq][RINGS]);
    pleat_cache_sides s[N_CACHES];
    for (uint32_t which = 0; which < N_CACHES; which++)
        CHECK_STATUS(pleat_cache_get_sides(t->caches[which], t->seqs[seq][which], &s[which]), PLEAT_OK);
    CHECK_EQ_U64(m.pages_used, f.pages_used + r.pages_used);
    CHECK_EQ_U64(m.pages_own, f.pages_own + r.pages_own);
    CHECK_EQ_U64(m.tokens_high, f.tokens_high + r.tokens_high);
    CHECK_EQ_U64(m.tokens_low, f.tokens_low + r.tokens_low);
    CHECK_EQ_U64(m.tokens_dropped, f.tokens_dropped + r.tokens_dropped);
    CHECK_EQ_U64(m.slots, f.slots + r.slots);
    CHECK_EQ_U64(m.bytes_f16, f.bytes_f16 + r.bytes_f16);
    CHECK_EQ_U64(m.tokens_moved, f.tokens_moved + r.tokens_moved);
    CHECK_EQ_U64(s[MIXED].high_pages, s[FULL].high_pages + s[RINGS].high_pages);
    CHECK_EQ_U64(s[MIXED].low_pages, s[FULL].low_pages + s[RINGS].low_pages);
}

static void check_all(const trio *t) {
    for (uint32_t seq = 0; seq < SEQS; seq++) {
        check_sums(t, seq);
        for (uint32_t which = FULL; which < N_CACHES; which++)
            for (uint32_t lane = 0; lane < n_layers_of[which] * HEADS; lane++)
                check_lane(t, seq, which, lane / HEADS, lane % HEADS);
    }
    for (uint32_t which = 0; which < N_CACHES; which++) CHECK(pleat_cache_is_valid(t->caches[which]));
}

/* ---- lives ------------------------------------------------------------------------------------------- */

static void live(size_t kind, pleat_workers *workers, uint32_t n_ops, trio *done) {
    const pleat_spec spec = options_of(kind, MIXED, NULL).spec;
    trio t = {.salts = {1, 2, 3}};
    check_context("%s", kinds[kind].spec);
    for (uint32_t which = 0; which < N_CACHES; which++) {
        const pleat_cache_options opt = options_of(kind, which, workers);
        if (!(t.caches[which] = cache_made(&opt))) return;
        for (uint32_t s = 0; s < SEQS; s++) t.seqs[s][which] = cache_seq(t.caches[which], CAP);
    }
    for (uint32_t op = 0; op < n_ops && check_failures() == 0; op++) {
        switch (check_below(16)) {
            case 0: fork_one(&t); break;
            case 1: swap_one(&t); break;
            case 2: compress_one(&t, &spec); break;
            case 3: cancelled_step(&t); break;
            case 4: replay_one(&t, &spec); break;
            default: any_step(&t);
        }
        if (check_below(4) == 0) check_all(&t);
    }
    check_all(&t);
    for (uint32_t which = 0; which < N_CACHES; which++) {
        for (uint32_t s = 0; s < SEQS; s++)
            CHECK_STATUS(pleat_cache_close(t.caches[which], t.seqs[s][which]), PLEAT_OK);
        cache_check_empty(t.caches[which]);
        pleat_cache_destroy(&t.caches[which]);
    }
    done->n_forks += t.n_forks;
    done->n_images += t.n_images;
    done->n_compressed += t.n_compressed;
    done->n_cancelled += t.n_cancelled;
    done->n_replayed += t.n_replayed;
}

static void test_layers_as_in_caches_of_their_own(void) {
    pleat_workers *workers = NULL;
    trio done = {.n_forks = 0};
    CHECK_STATUS(pleat_workers_create(3, NULL, &workers), PLEAT_OK);
    for (size_t i = 0; i < CHECK_COUNT(kinds) && check_failures() == 0; i++)
        for (uint64_t round = 0; round < check_rounds(4, 1); round++) live(i, round % 2 ? workers : NULL, 60, &done);
    pleat_workers_destroy(&workers);
    CHECK(done.n_forks > 0 && done.n_images > 0 && done.n_compressed > 0 && done.n_cancelled > 0);
    CHECK(done.n_replayed > 0);
}

/* ---- bytes ------------------------------------------------------------------------------------------- */

/* What follows begin, for a sequence of the mixed cache alone. */
static void finish_alone(pleat_cache *cache, pleat_seq seq, uint32_t n) {
    static float out[LAYERS * CAP * ROW];
    trio t = {.caches = {cache}, .seqs = {{seq}}, .n_tokens = {pleat_cache_length(cache, seq)}};
    const share one = {0, n, 0};
    attend(&t, MIXED, &one, 1, n, out);
    CHECK_STATUS(pleat_cache_end(cache), PLEAT_OK);
}

static void step_alone(pleat_cache *cache, pleat_seq seq, uint32_t n) {
    CHECK_STATUS(pleat_cache_begin(cache, &(pleat_cache_item){seq, n, 0}, 1), PLEAT_OK);
    finish_alone(cache, seq, n);
}

/* What bytes_for says is never passed, and is reached where every token is kept; tables and codebooks are those of as many
 * lanes and full layers as there are. */
static void test_bytes(void) {
    for (size_t i = 0; i < CHECK_COUNT(kinds); i++) {
        const pleat_cache_options opt = options_of(i, MIXED, NULL), full = options_of(i, FULL, NULL);
        pleat_cache *cache = cache_made(&opt);
        const pleat_seq seq = cache_seq(cache, CAP);
        const int is_exact = pleat_spec_is_exact(&opt.spec);
        check_context("%s", kinds[i].spec);
        while (pleat_cache_length(cache, seq) < CAP) {
            step_alone(cache, seq, pleat_cache_length(cache, seq) ? 1 : 90);
            const uint64_t most = pleat_cache_bytes_for(&opt, pleat_cache_length(cache, seq), CAP);
            const uint64_t bytes = cache_usage(cache, seq).bytes;
            CHECK(is_exact ? bytes == most : bytes <= most);
        }
        CHECK(pleat_cache_bytes_kept(&opt, CAP, CAP) <= pleat_cache_bytes_for(&opt, CAP, CAP));
        CHECK(pleat_cache_bytes_for(&opt, CAP, CAP) > pleat_cache_bytes_for(&full, CAP, CAP));
        pleat_cache_destroy(&cache);
    }
}

/* Rings count in a budget of bytes: what they leave is the full layers'. */
static void test_byte_budgets(void) {
    static const char *const specs[] = {"h2o:budget=56KiB,window=8", "streaming:budget=40KiB",
                                        "recent:budget=60KiB,reclaim=copy"};
    for (size_t i = 0; i < CHECK_COUNT(specs); i++) {
        pleat_cache_options opt = options_of(0, MIXED, NULL);
        CHECK_STATUS(pleat_spec_parse(specs[i], &opt.spec, NULL), PLEAT_OK);
        pleat_cache *cache = cache_made(&opt);
        if (!cache) return;
        const pleat_seq seq = cache_seq(cache, CAP);
        check_context("%s", specs[i]);
        while (pleat_cache_length(cache, seq) < CAP) {
            step_alone(cache, seq, pleat_cache_length(cache, seq) ? 1 : 150);
            CHECK(cache_usage(cache, seq).bytes <= opt.spec.budget.value);
        }
        CHECK(pleat_cache_max_kept(cache, CAP) < CAP); /* so that there was something to drop */
        pleat_cache_destroy(&cache);
        opt.spec.budget.value = 20000; /* less than the rings and the tables */
        CHECK_STATUS(pleat_cache_create(&opt, &cache, NULL), PLEAT_E_ARG);
    }
}

/* ---- memory ------------------------------------------------------------------------------------------ */

/* A cache's first allocations, one of which fails: of the cache, a sequence, codebooks, a fork.  How many there were. */
static uint64_t fail_allocation(size_t kind, uint64_t nth) {
    enum { N_PROMPT = 90 };
    check_alloc ca;
    check_alloc_init(&ca, nth, 0);
    pleat_cache_options opt = options_of(kind, MIXED, NULL);
    pleat_cache *cache = NULL;
    pleat_seq seq = {0}, twin = {0};
    opt.allocator = &ca.a;
    pleat_status status = pleat_cache_create(&opt, &cache, NULL);
    if (status == PLEAT_OK) status = pleat_cache_open(cache, CAP, &seq);
    if (status == PLEAT_OK) status = pleat_cache_begin(cache, &(pleat_cache_item){seq, N_PROMPT, 0}, 1);
    if (status == PLEAT_OK) {
        finish_alone(cache, seq, N_PROMPT);
        status = pleat_cache_fork(cache, seq, CAP, &twin);
    }
    const uint64_t count = ca.count;
    CHECK_STATUS(status, nth <= count ? PLEAT_E_MEMORY : PLEAT_OK);
    ca.fail_at = 0;
    if (cache) CHECK(pleat_cache_is_valid(cache));
    pleat_cache_destroy(&cache);
    CHECK_EQ_U64(ca.live, 0);
    return count;
}

static void test_allocation_failure(void) {
    for (size_t i = 0; i < CHECK_COUNT(kinds); i++) {
        check_context("%s", kinds[i].spec);
        for (uint64_t nth = 1; check_failures() == 0 && fail_allocation(i, nth) >= nth; nth++) continue;
    }
}

static const check_test tests[] = {
    {"bytes", test_bytes},
    {"byte_budgets", test_byte_budgets},
    {"allocation_failure", test_allocation_failure},
    {"layers_as_in_caches_of_their_own", test_layers_as_in_caches_of_their_own},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
