/* SPDX-License-Identifier: MIT
 *
 * test_search.c: beam search over made-up models: a token's logits are a hash of what stands before it.
 *
 * Two oracles: all texts there are, written down and sorted, for searches as wide as that; and for narrow ones the same
 * search done the slow way, with whole texts and a sort of all continuations.  The model under the search watches its
 * slots: whom it forks, closes and steps, and that none is left open.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cli/run/search.h"

enum { MAX_VOCAB = 48, MAX_NEW = 16, MAX_TEXTS = 4096 };

/* ---- the made-up model --------------------------------------------------------------------------------- */

typedef struct world {
    uint64_t seed;
    uint32_t n_vocab;
    uint32_t n_ends;   /* the lowest tokens end a text */
    uint32_t n_levels; /* logits are multiples of 1 / n_levels: few of them make ties */
    bool has_gaps;     /* some logits are -inf */
    float *logits;     /* [SEARCH_MAX][n_vocab] */
    uint32_t n_tokens[SEARCH_MAX];
    pleat_token tokens[SEARCH_MAX][MAX_NEW];
    bool is_open[SEARCH_MAX];
    uint32_t n_calls, fail_at; /* call that fails, from 1; 0: none */
    uint32_t n_steps, interrupt_at;
    uint32_t n_forks;
} world;

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15u;
    return x ^ (x >> 29);
}

static void write_logits(const world *w, const pleat_token *tokens, uint32_t n, float *out) {
    uint64_t h = mix(w->seed + 1);
    for (uint32_t i = 0; i < n; i++) h = mix(h * 131 + (uint64_t)tokens[i] + 1);
    for (uint32_t t = 0; t < w->n_vocab; t++) {
        const uint64_t r = mix(h + 7919 * t);
        out[t] = (float)(r % (4 * w->n_levels)) / (float)w->n_levels;
        if (w->has_gaps && t != w->n_vocab - 1 && r % 5 == 0) out[t] = -INFINITY;
    }
}

static float *row(world *w, uint32_t slot) { return w->logits + (size_t)slot * w->n_vocab; }

static pleat_status may_fail(world *w) { return ++w->n_calls == w->fail_at ? PLEAT_AGAIN : PLEAT_OK; }

static int is_end(void *self, pleat_token token) { return (uint32_t)token < ((world *)self)->n_ends; }

static int is_interrupted(void *self) {
    const world *w = self;
    return w->interrupt_at && w->n_steps >= w->interrupt_at;
}

static pleat_status do_fork(void *self, uint32_t from, uint32_t to) {
    world *w = self;
    CHECK(w->is_open[from] && !w->is_open[to]);
    const pleat_status status = may_fail(w);
    if (status != PLEAT_OK) return status;
    memcpy(w->tokens[to], w->tokens[from], sizeof w->tokens[to]);
    w->n_tokens[to] = w->n_tokens[from];
    w->is_open[to] = true;
    w->n_forks++;
    return PLEAT_OK;
}

static pleat_status do_close(void *self, uint32_t slot) {
    world *w = self;
    CHECK(w->is_open[slot]);
    w->is_open[slot] = false;
    return may_fail(w);
}

static pleat_status do_step(void *self, const uint32_t *slots, const pleat_token *tokens, uint32_t n) {
    world *w = self;
    bool is_in[SEARCH_MAX] = {false};
    const pleat_status status = may_fail(w);
    if (status != PLEAT_OK) return status;
    for (uint32_t i = 0; i < n; i++) {
        CHECK(w->is_open[slots[i]] && !is_in[slots[i]]);
        is_in[slots[i]] = true;
        w->tokens[slots[i]][w->n_tokens[slots[i]]++] = tokens[i];
        write_logits(w, w->tokens[slots[i]], w->n_tokens[slots[i]], row(w, slots[i]));
    }
    for (uint32_t s = 0; s < SEARCH_MAX; s++) CHECK(is_in[s] == w->is_open[s]); /* nothing is kept without need */
    w->n_steps++;
    return PLEAT_OK;
}

static world world_of(uint64_t seed, uint32_t n_vocab, uint32_t n_ends) {
    world w = {.seed = seed, .n_vocab = n_vocab, .n_ends = n_ends, .n_levels = 1000, .is_open = {true}};
    w.logits = calloc((size_t)SEARCH_MAX * n_vocab, sizeof *w.logits);
    write_logits(&w, NULL, 0, w.logits);
    return w;
}

static pleat_status run_search(world *w, uint32_t n_beams, uint32_t n_best, uint32_t max_new, search_result *out) {
    const search_options opt = {n_beams, n_best, max_new, w->n_vocab};
    const search_model model = {w, w->logits, is_end, is_interrupted, do_fork, do_close, do_step};
    const pleat_status status = search_run(&opt, &model, out);
    for (uint32_t s = 0; s < SEARCH_MAX; s++) CHECK(!w->is_open[s]);
    CHECK(w->n_steps == 0 || w->n_steps < max_new); /* the last tokens are not stored */
    return status;
}

/* ---- oracles ----------------------------------------------------------------------------------------------- */

typedef struct text {
    double logprob, score;
    uint32_t n_tokens, rank; /* rank: order among equals */
    pleat_token tokens[MAX_NEW];
    bool stopped;
} text;

typedef struct text_list {
    uint32_t n;
    text texts[MAX_TEXTS];
} text_list;

static void add(text_list *list, const text *t, uint32_t n_scored, bool stopped) {
    if (!CHECK(list->n < MAX_TEXTS)) return;
    text *to = &list->texts[list->n];
    *to = *t;
    to->score = n_scored ? t->logprob / n_scored : 0;
    to->stopped = stopped;
    to->rank = list->n++;
}

static int by_score(const void *a, const void *b) {
    const text *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->rank < y->rank ? -1 : 1;
}

static int by_logprob(const void *a, const void *b) {
    const text *x = a, *y = b;
    if (x->logprob != y->logprob) return x->logprob > y->logprob ? -1 : 1;
    return x->rank < y->rank ? -1 : 1;
}

static text extended(const text *t, pleat_token token, double logprob) {
    text longer = *t;
    longer.tokens[longer.n_tokens++] = token;
    longer.logprob += logprob;
    return longer;
}

/* Every text that there is. */
static void write_down(const world *w, const text *t, uint32_t max_new, text_list *out) {
    float logits[MAX_VOCAB];
    if (t->n_tokens == max_new) {
        add(out, t, max_new, false);
        return;
    }
    write_logits(w, t->tokens, t->n_tokens, logits);
    const double log_sum = search_log_sum(logits, w->n_vocab);
    for (uint32_t token = 0; token < w->n_vocab; token++) {
        const double logprob = (double)logits[token] - log_sum;
        text longer = extended(t, (pleat_token)token, logprob);
        if (!(logprob > -INFINITY)) continue;
        if (token >= w->n_ends) {
            write_down(w, &longer, max_new, out);
        } else {
            longer.n_tokens--;
            add(out, &longer, longer.n_tokens + 1, true);
        }
    }
}

/* All continuations of the beams, sorted. */
static void continue_all(const world *w, const text_list *beams, text_list *out) {
    float logits[MAX_VOCAB];
    out->n = 0;
    for (uint32_t b = 0; b < beams->n; b++) {
        const text *t = &beams->texts[b];
        write_logits(w, t->tokens, t->n_tokens, logits);
        const double log_sum = search_log_sum(logits, w->n_vocab);
        for (uint32_t token = 0; token < w->n_vocab; token++) {
            if (!(logits[token] > -INFINITY)) continue;
            const text longer = extended(t, (pleat_token)token, (double)logits[token] - log_sum);
            add(out, &longer, 0, false);
        }
    }
    qsort(out->texts, out->n, sizeof *out->texts, by_logprob);
}

/* The search as search.h has it, without slots or trees. */
static void search_slowly(const world *w, uint32_t n_beams, uint32_t n_best, uint32_t max_new, text_list *done) {
    static text_list beams, all;
    beams.n = 1;
    beams.texts[0] = (text){0};
    done->n = 0;
    for (uint32_t length = 0; length < max_new; length++) {
        continue_all(w, &beams, &all);
        beams.n = 0;
        for (uint32_t i = 0; i < all.n && i < 2 * n_beams; i++) {
            text t = all.texts[i];
            if ((uint32_t)t.tokens[length] >= w->n_ends) {
                if (beams.n < n_beams) add(&beams, &t, 0, false);
            } else if (i < n_beams) {
                t.n_tokens--;
                add(done, &t, length + 1, true);
            }
        }
        if (beams.n == 0 || done->n >= n_beams) break;
        text_list *best = done;
        qsort(best->texts, best->n, sizeof *best->texts, by_score);
        for (uint32_t i = 0; i < best->n; i++) best->texts[i].rank = i;
        if (best->n >= n_best && best->texts[n_best - 1].score >= beams.texts[0].logprob / max_new) break;
        for (uint32_t b = 0; length + 1 == max_new && b < beams.n; b++) add(done, &beams.texts[b], max_new, false);
    }
    qsort(done->texts, done->n, sizeof *done->texts, by_score);
}

static void check_same(const search_result *found, const text_list *want, uint32_t n_best) {
    CHECK_EQ_U64(found->n, want->n < n_best ? want->n : n_best);
    for (uint32_t i = 0; i < found->n && i < want->n; i++) {
        const search_text *a = &found->texts[i];
        const text *b = &want->texts[i];
        CHECK_NEAR(a->score, b->score, 0);
        CHECK_NEAR(a->logprob, b->logprob, 0);
        CHECK_EQ_STR(a->finish, b->stopped ? "stop" : "length");
        if (CHECK_EQ_U64(a->n_tokens, b->n_tokens)) CHECK_EQ_MEM(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens);
    }
}

/* ---- tests ----------------------------------------------------------------------------------------------------- */

/* As many beams as there are texts: nothing is ever left out, so the best are found. */
static void test_wide_finds_the_best(void) {
    static const uint32_t shapes[][2] = {{2, 6}, {3, 3}, {4, 3}, {8, 2}, {40, 1}, {1, 5}}; /* vocabulary, length */
    static text_list all;
    search_result found;
    const uint64_t n_rounds = check_rounds(3000, 300);
    uint32_t n_stops = 0, n_lengths = 0;
    for (uint64_t i = 0; i < n_rounds && check_failures() == 0; i++) {
        const uint32_t *shape = shapes[i % CHECK_COUNT(shapes)];
        const uint32_t n_ends = shape[0] > 1 ? (uint32_t)check_below(shape[0] > 4 ? 3 : 2) : 0;
        const uint32_t n_best = (uint32_t)check_between(1, SEARCH_MAX);
        world w = world_of(check_u64(), shape[0], n_ends);
        w.has_gaps = i % 3 == 0;
        write_logits(&w, NULL, 0, w.logits);
        all.n = 0;
        write_down(&w, &(text){0}, shape[1], &all);
        qsort(all.texts, all.n, sizeof *all.texts, by_score);
        check_context("vocabulary %u, length %u, %u ends, %u of %u texts", shape[0], shape[1], n_ends, n_best, all.n);
        CHECK_STATUS(run_search(&w, SEARCH_MAX, n_best, shape[1], &found), PLEAT_OK);
        CHECK_EQ_U64(found.n, all.n < n_best ? all.n : n_best);
        for (uint32_t k = 0; k < found.n; k++) { /* the order of equals is not the oracle's */
            CHECK_NEAR(found.texts[k].score, all.texts[k].score, 0);
            n_stops += !strcmp(found.texts[k].finish, "stop");
            n_lengths += !strcmp(found.texts[k].finish, "length");
        }
        search_release(&found);
        free(w.logits);
    }
    CHECK(n_stops > 100 && n_lengths > 100);
}

/* Ties, gaps, several ends: to the bit what the slow search finds, and the same again. */
static void test_narrow_is_the_slow_search(void) {
    static text_list want;
    search_result found;
    const uint64_t n_rounds = check_rounds(3000, 200);
    uint64_t n_forks = 0, n_early = 0;
    for (uint64_t i = 0; i < n_rounds && check_failures() == 0; i++) {
        const uint32_t n_vocab = (uint32_t)check_between(2, MAX_VOCAB), max_new = (uint32_t)check_between(0, MAX_NEW);
        const uint32_t n_beams = (uint32_t)check_between(1, 12), n_best = (uint32_t)check_between(1, n_beams);
        world w = world_of(check_u64(), n_vocab, (uint32_t)check_below(n_vocab < 4 ? n_vocab : 4));
        w.n_levels = i % 2 ? 1000 : 1;
        w.has_gaps = i % 3 == 0;
        write_logits(&w, NULL, 0, w.logits);
        check_context("vocabulary %u, %u ends, %u beams, %u best, %u tokens", n_vocab, w.n_ends, n_beams, n_best,
                      max_new);
        CHECK_STATUS(run_search(&w, n_beams, n_best, max_new, &found), PLEAT_OK);
        search_slowly(&w, n_beams, n_best, max_new, &want);
        if (max_new == 0) add(&want, &(text){0}, 0, false);
        check_same(&found, &want, n_best);
        n_forks += w.n_forks;
        n_early += max_new > 0 && w.n_steps + 1 < max_new;
        search_release(&found);
        free(w.logits);
    }
    CHECK(n_forks > 1000 && n_early > 20);
}

static void test_one_beam_is_greedy(void) {
    search_result found;
    for (uint32_t i = 0; i < 300; i++) {
        world w = world_of(check_u64(), 30, 2);
        float logits[MAX_VOCAB];
        pleat_token tokens[MAX_NEW];
        uint32_t n = 0;
        bool ended = false;
        for (; n < MAX_NEW; n++) {
            write_logits(&w, tokens, n, logits);
            tokens[n] = 0;
            for (uint32_t t = 1; t < w.n_vocab; t++)
                if (logits[t] > logits[tokens[n]]) tokens[n] = (pleat_token)t;
            ended = is_end(&w, tokens[n]);
            if (ended) break;
        }
        CHECK_STATUS(run_search(&w, 1, 1, MAX_NEW, &found), PLEAT_OK);
        CHECK_EQ_STR(found.texts[0].finish, ended ? "stop" : "length");
        if (CHECK_EQ_U64(found.texts[0].n_tokens, n)) CHECK_EQ_MEM(found.texts[0].tokens, tokens, n * sizeof *tokens);
        CHECK_EQ_U64(w.n_forks, 0);
        search_release(&found);
        free(w.logits);
    }
}

/* Whatever call fails, its status comes back and no slot stays open. */
static void test_failures_close_all(void) {
    search_result found;
    uint32_t n_failed = 0;
    for (uint32_t nth = 1;; nth++) {
        world w = world_of(7, 20, 1);
        w.fail_at = nth;
        const pleat_status status = run_search(&w, 5, 2, 8, &found);
        CHECK_STATUS(status, w.n_calls < nth ? PLEAT_OK : PLEAT_AGAIN);
        CHECK_EQ_U64(found.n, status == PLEAT_OK ? 2 : 0);
        search_release(&found);
        free(w.logits);
        if (w.n_calls < nth) break;
        n_failed++;
    }
    CHECK(n_failed > 15);
}

static void test_bad_logits(void) {
    search_result found;
    for (int kind = 0; kind < 3; kind++) {
        world w = world_of(3, 10, 1);
        for (uint32_t t = 0; t < w.n_vocab && kind == 2; t++) w.logits[t] = -INFINITY;
        if (kind < 2) w.logits[4] = kind ? INFINITY : NAN;
        CHECK_STATUS(run_search(&w, 3, 1, 5, &found), PLEAT_E_ARG);
        CHECK_EQ_U64(found.n, 0);
        free(w.logits);
    }
}

static void test_interrupt_keeps_what_there_is(void) {
    search_result found;
    world w = world_of(11, 20, 0);
    w.interrupt_at = 3;
    CHECK_STATUS(run_search(&w, 4, 4, 8, &found), PLEAT_OK);
    CHECK_EQ_U64(found.n, 4);
    for (uint32_t i = 0; i < found.n; i++) {
        CHECK_EQ_U64(found.texts[i].n_tokens, 3);
        CHECK_EQ_STR(found.texts[i].finish, "interrupted");
        CHECK_NEAR(found.texts[i].score, found.texts[i].logprob / 3, 0);
    }
    search_release(&found);
    free(w.logits);
}

static void test_log_sum(void) {
    float x[100];
    for (uint32_t i = 0; i < 1000; i++) {
        const uint32_t n = (uint32_t)check_between(1, 100);
        long double sum = 0;
        check_fill(x, n, i % CHECK_N_FILLS, 80);
        for (uint32_t k = 0; k < n; k++) sum += expl((long double)x[k]);
        CHECK_NEAR(search_log_sum(x, n), (double)logl(sum), 1e-12 * fabs((double)logl(sum)) + 1e-12);
    }
    const float far[] = {-1e30f, 3e38f, -INFINITY};
    CHECK_NEAR(search_log_sum(far, 3), (double)far[1], 0);
}

static const check_test tests[] = {
    {"wide_finds_the_best", test_wide_finds_the_best},
    {"narrow_is_the_slow_search", test_narrow_is_the_slow_search},
    {"one_beam_is_greedy", test_one_beam_is_greedy},
    {"failures_close_all", test_failures_close_all},
    {"bad_logits", test_bad_logits},
    {"interrupt_keeps_what_there_is", test_interrupt_keeps_what_there_is},
    {"log_sum", test_log_sum},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
