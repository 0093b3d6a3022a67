/* SPDX-License-Identifier: MIT
 *
 * search.c: see search.h.
 *
 * Texts are paths in a tree of tokens that grows with every step:
 *
 *     nodes     prompt <-- The <-- sea <-- was        a beam is a leaf that runs
 *                                  ^------ is         a finished text remembers its leaf
 */
#include "search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT UINT32_MAX /* in place of a node: no token yet */

typedef struct node {
    uint32_t parent;
    pleat_token token;
} node;

typedef struct beam {
    uint32_t slot;
    uint32_t leaf;
    double logprob;
} beam;

/* One token more for beams[beam]. */
typedef struct continuation {
    uint32_t beam;
    pleat_token token;
    double logprob; /* of the whole text */
} continuation;

typedef struct finished {
    search_text text; /* without its tokens */
    uint32_t leaf;
} finished;

typedef struct search {
    const search_options *opt;
    const search_model *model;
    uint32_t n_tokens; /* of each running text */
    uint32_t n_beams;  /* running; likeliest first */
    beam beams[SEARCH_MAX];
    uint32_t n_likeliest;
    continuation likeliest[2 * SEARCH_MAX]; /* likeliest first */
    uint32_t n_ended;                       /* end tokens so far */
    uint32_t n_best;
    finished best[SEARCH_MAX]; /* best first */
    uint8_t is_open[SEARCH_MAX];
    node *nodes;
    uint32_t n_nodes, cap_nodes;
} search;

double search_log_sum(const float *logits, uint32_t n) {
    float most = -INFINITY;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        if (logits[i] > most) most = logits[i];
    for (uint32_t i = 0; i < n; i++) sum += exp((double)logits[i] - (double)most);
    return (double)most + log(sum);
}

/* ---- continuations ----------------------------------------------------------------------------- */

/* Behind its equals, so that who came first stays in front.  One that is impossible never gets in. */
static void offer(search *s, continuation c) {
    const uint32_t cap = 2 * s->opt->n_beams;
    uint32_t at = s->n_likeliest < cap ? s->n_likeliest : cap - 1;
    if (!(c.logprob > (s->n_likeliest < cap ? -INFINITY : s->likeliest[at].logprob))) return;
    for (; at > 0 && c.logprob > s->likeliest[at - 1].logprob; at--) s->likeliest[at] = s->likeliest[at - 1];
    s->likeliest[at] = c;
    if (s->n_likeliest < cap) s->n_likeliest++;
}

static pleat_status find_likeliest(search *s) {
    const uint32_t n_vocab = s->opt->n_vocab;
    s->n_likeliest = 0;
    for (uint32_t b = 0; b < s->n_beams; b++) {
        const float *logits = s->model->logits + (size_t)s->beams[b].slot * n_vocab;
        const double log_sum = search_log_sum(logits, n_vocab);
        if (!isfinite(log_sum)) return PLEAT_E_ARG;
        for (uint32_t t = 0; t < n_vocab; t++)
            offer(s, (continuation){b, (pleat_token)t, s->beams[b].logprob + ((double)logits[t] - log_sum)});
    }
    return PLEAT_OK;
}

/* Keep a text if it is among the best; n_scored counts its end token. */
static void finish(search *s, uint32_t leaf, double logprob, uint32_t n_scored, const char *why) {
    const double score = n_scored ? logprob / n_scored : 0;
    const uint32_t cap = s->opt->n_best;
    uint32_t at = s->n_best < cap ? s->n_best : cap - 1;
    if (s->n_best == cap && !(score > s->best[at].text.score)) return;
    for (; at > 0 && score > s->best[at - 1].text.score; at--) s->best[at] = s->best[at - 1];
    s->best[at] = (finished){{logprob, score, why, s->n_tokens, NULL}, leaf};
    if (s->n_best < cap) s->n_best++;
}

/* Finish those of the likeliest that end; move those that run on to the front. */
static void part_ended(search *s) {
    uint32_t n_others = 0;
    for (uint32_t i = 0; i < s->n_likeliest; i++) {
        const continuation c = s->likeliest[i];
        if (!s->model->is_end(s->model->self, c.token)) {
            if (n_others < s->opt->n_beams) s->likeliest[n_others++] = c;
        } else if (i < s->opt->n_beams) {
            s->n_ended++;
            finish(s, s->beams[c.beam].leaf, c.logprob, s->n_tokens + 1, "stop");
        }
    }
    s->n_likeliest = n_others;
}

/* Whether no running text can change the outcome. */
static int is_decided(const search *s) {
    if (s->n_likeliest == 0 || s->n_ended >= s->opt->n_beams) return 1;
    return s->n_best == s->opt->n_best &&
           s->best[s->n_best - 1].text.score >= s->likeliest[0].logprob / s->opt->max_new;
}

/* ---- slots ------------------------------------------------------------------------------------- */

static pleat_status close_slot(search *s, uint32_t slot) {
    s->is_open[slot] = 0;
    return s->model->close(s->model->self, slot);
}

static pleat_status fork_slot(search *s, uint32_t from, uint32_t *to) {
    for (*to = 0; s->is_open[*to]; ++*to) {} /* as many slots as beams: one is free */
    const pleat_status status = s->model->fork(s->model->self, from, *to);
    s->is_open[*to] = status == PLEAT_OK;
    return status;
}

static pleat_status close_unwanted(search *s) {
    uint8_t is_wanted[SEARCH_MAX] = {0};
    pleat_status status = PLEAT_OK;
    for (uint32_t i = 0; i < s->n_likeliest; i++) is_wanted[s->likeliest[i].beam] = 1;
    for (uint32_t b = 0; b < s->n_beams && status == PLEAT_OK; b++)
        if (!is_wanted[b]) status = close_slot(s, s->beams[b].slot);
    return status;
}

static pleat_status close_all(search *s) {
    pleat_status first = PLEAT_OK;
    for (uint32_t slot = 0; slot < s->opt->n_beams; slot++) {
        const pleat_status status = s->is_open[slot] ? close_slot(s, slot) : PLEAT_OK;
        if (first == PLEAT_OK) first = status;
    }
    return first;
}

/* ---- steps ------------------------------------------------------------------------------------- */

static pleat_status add_node(search *s, uint32_t parent, pleat_token token, uint32_t *out) {
    if (s->n_nodes == s->cap_nodes) {
        const uint32_t cap = s->cap_nodes ? 2 * s->cap_nodes : 1024;
        node *grown = cap > s->cap_nodes && cap < PROMPT ? realloc(s->nodes, cap * sizeof *grown) : NULL;
        if (!grown) return PLEAT_E_MEMORY;
        s->nodes = grown;
        s->cap_nodes = cap;
    }
    *out = s->n_nodes++;
    s->nodes[*out] = (node){parent, token};
    return PLEAT_OK;
}

/* The continuations become the beams.  Slots stay those of the beams before. */
static pleat_status grow(search *s) {
    beam next[SEARCH_MAX];
    for (uint32_t i = 0; i < s->n_likeliest; i++) {
        const continuation c = s->likeliest[i];
        next[i] = (beam){s->beams[c.beam].slot, 0, c.logprob};
        const pleat_status status = add_node(s, s->beams[c.beam].leaf, c.token, &next[i].leaf);
        if (status != PLEAT_OK) return status;
    }
    memcpy(s->beams, next, s->n_likeliest * sizeof *next);
    s->n_beams = s->n_likeliest;
    s->n_tokens++;
    return PLEAT_OK;
}

/* Give each beam a slot of its own, and store the newest tokens. */
static pleat_status store(search *s) {
    uint32_t slots[SEARCH_MAX];
    pleat_token tokens[SEARCH_MAX];
    uint8_t is_taken[SEARCH_MAX] = {0};
    for (uint32_t i = 0; i < s->n_beams; i++) {
        const uint32_t from = s->beams[i].slot;
        const pleat_status status = is_taken[from] ? fork_slot(s, from, &s->beams[i].slot) : PLEAT_OK;
        if (status != PLEAT_OK) return status;
        slots[i] = s->beams[i].slot;
        tokens[i] = s->nodes[s->beams[i].leaf].token;
        is_taken[slots[i]] = 1;
    }
    return s->model->step(s->model->self, slots, tokens, s->n_beams);
}

static void finish_all(search *s, const char *why) {
    for (uint32_t b = 0; b < s->n_beams; b++) finish(s, s->beams[b].leaf, s->beams[b].logprob, s->n_tokens, why);
}

static pleat_status search_all(search *s) {
    for (;;) {
        const int is_interrupted = s->model->is_interrupted(s->model->self);
        if (is_interrupted || s->n_tokens == s->opt->max_new) {
            finish_all(s, is_interrupted ? "interrupted" : "length");
            return PLEAT_OK;
        }
        pleat_status status = find_likeliest(s);
        if (status != PLEAT_OK) return status;
        part_ended(s);
        if (is_decided(s)) return PLEAT_OK;
        status = close_unwanted(s);
        if (status == PLEAT_OK) status = grow(s);
        if (status == PLEAT_OK && s->n_tokens < s->opt->max_new) status = store(s); /* nothing reads the last ones */
        if (status != PLEAT_OK) return status;
    }
}

/* The best texts with their tokens, read from leaf to root. */
static pleat_status write_texts(const search *s, search_result *out) {
    for (; out->n < s->n_best; out->n++) {
        search_text *text = &out->texts[out->n];
        *text = s->best[out->n].text;
        text->tokens = malloc((text->n_tokens + 1) * sizeof *text->tokens);
        if (!text->tokens) return PLEAT_E_MEMORY;
        uint32_t leaf = s->best[out->n].leaf;
        for (uint32_t i = text->n_tokens; i-- > 0; leaf = s->nodes[leaf].parent) text->tokens[i] = s->nodes[leaf].token;
    }
    return PLEAT_OK;
}

pleat_status search_run(const search_options *opt, const search_model *model, search_result *out) {
    search s = {.opt = opt, .model = model, .n_beams = 1, .beams = {{0, PROMPT, 0}}, .is_open = {1}};
    out->n = 0;
    pleat_status status = search_all(&s);
    const pleat_status closed = close_all(&s);
    if (status == PLEAT_OK) status = closed;
    if (status == PLEAT_OK) status = write_texts(&s, out);
    free(s.nodes);
    return status;
}

void search_release(search_result *result) {
    for (uint32_t i = 0; i < result->n; i++) free(result->texts[i].tokens);
    result->n = 0;
}
