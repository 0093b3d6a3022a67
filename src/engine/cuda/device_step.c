/* SPDX-License-Identifier: MIT
 *
 * device_step.c: a step of an engine on a GPU.
 *
 *     check ── prompts, one by one ── single tokens, as one batch ── items that follow, as chunks or token by token
 *              AGAIN: those before      AGAIN: the prompts are
 *              are closed again         closed again
 *
 * The last prompt goes with the single tokens in one pass where it can (forward.h): requests that generate wait less for it.
 *
 * A step begins only where the most that it can need is free.  So the device refuses none, unless that is wrong.
 *
 * A batch is launched kernel by kernel until its size has been seen RECORD_AT times, and runs as a graph from then on:
 * recording takes as long as ten steps.  The host waits for it once: its end tells what is held.
 */
#include <string.h>

#include "core/error.h"
#include "engine/cuda/engine_device.h"

/* Tokens of an item that follows, from which on it is read as a chunk: a pass takes as long as a few single tokens.  Such
 * a chunk sees itself exactly, where single tokens see each other as stored.  Where bits are fixed all of two are, as
 * they would be in a prompt. */
#define LEAST_CHUNK 8u
#define LEAST_FIXED_CHUNK 2u

/* Steps of a size before it is recorded.  Requests come and go: some sizes are seen a few times only. */
#define RECORD_AT 16u

typedef enum item_kind { PROMPT, SINGLE, FOLLOWS } item_kind;

static item_kind kind_of(const pleat_engine *e, const pleat_engine_item *item) {
    if (item->n_tokens == 1) return SINGLE;
    return pleat__engine_place(e, item->seq)->n_tokens == 0 ? PROMPT : FOLLOWS;
}

/* A step under way. */
typedef struct step {
    pleat_engine *e;
    const pleat_engine_item *items;
    uint32_t n_items;
    pleat_token *likeliest; /* [n_items] or NULL */
    pleat_error *err;
} step;

/* ---- checks ------------------------------------------------------------------------------------------ */

static pleat_status check_item(const step *s, uint32_t i) {
    const pleat_engine_item *item = &s->items[i];
    pleat__place *place = pleat__engine_place(s->e, item->seq);
    const bool is_twice = place && place->last_step == s->e->device->n_steps;
    if (place) place->last_step = s->e->device->n_steps;
    PLEAT_FAIL_IF(!place || is_twice, s->err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "step: item %u is of an unknown sequence, or of one that stands twice", i);
    PLEAT_FAIL_IF(item->flags & ~(PLEAT_ITEM_MORE | PLEAT_ITEM_SEAL | PLEAT_ITEM_SEAL_ALL), s->err, PLEAT_E_ARG,
                  PLEAT_NOWHERE, "step: item %u has unknown flags", i);
    PLEAT_FAIL_IF(place->is_spoiled, s->err, PLEAT_E_STATE, PLEAT_NOWHERE,
                  "step: a step on the sequence of item %u failed before: it can only be closed", i);
    const uint64_t n = (uint64_t)place->n_tokens + item->n_tokens;
    PLEAT_FAIL_IF(n > place->max_tokens, s->err, PLEAT_E_LIMIT, PLEAT_NOWHERE,
                  "step: item %u would hold %llu tokens, more than the %u that it was opened for", i,
                  (unsigned long long)n, place->max_tokens);
    return PLEAT_OK;
}

/* Do the step's pages fit, as many as it can need at most? */
static pleat_status check_pages(const step *s) {
    const pleat_engine *e = s->e;
    const pleat__engine_device *d = e->device;
    uint64_t wanted = 0;
    for (uint32_t i = 0; i < s->n_items; i++) {
        const pleat_seq seq = s->items[i].seq;
        const uint64_t n = pleat__engine_pages_for(e, pleat__engine_place(e, seq), s->items[i].n_tokens);
        PLEAT_FAIL_IF(n + pleat__engine_device_pages_held(e, seq) > d->n_pages, s->err, PLEAT_E_LIMIT, PLEAT_NOWHERE,
                      "step: a sequence would need more than the %llu pages of the pool",
                      (unsigned long long)d->n_pages);
        wanted += n;
    }
    PLEAT_FAIL_IF(d->n_used + wanted > d->n_pages, s->err, PLEAT_AGAIN, PLEAT_NOWHERE,
                  "step: too few free pages: %llu of %llu are in use, and %llu may be needed",
                  (unsigned long long)d->n_used, (unsigned long long)d->n_pages, (unsigned long long)wanted);
    return PLEAT_OK;
}

static pleat_status check_step(const step *s) {
    uint64_t n_tokens = 0;
    s->e->device->n_steps++;
    for (uint32_t i = 0; i < s->n_items; i++) {
        PLEAT_TRY(check_item(s, i));
        n_tokens += s->items[i].n_tokens;
    }
    PLEAT_FAIL_IF(n_tokens > s->e->opt.step_tokens, s->err, PLEAT_E_LIMIT, PLEAT_NOWHERE,
                  "step: %llu new tokens, more than the %u of a step", (unsigned long long)n_tokens,
                  s->e->opt.step_tokens);
    return check_pages(s);
}

/* ---- results ----------------------------------------------------------------------------------------- */

static bool are_finite(const float *logits, uint64_t n) {
    uint32_t n_bad = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        n_bad |= (bits & 0x7F800000u) == 0x7F800000u;
    }
    return n_bad == 0;
}

/* PLEAT_E_RANGE unless what item i made is finite. */
static pleat_status judge(const step *s, uint32_t i, const float *logits, uint32_t n_logits, uint32_t greedy) {
    const bool is_good = greedy != UINT32_MAX && are_finite(logits, (uint64_t)n_logits * s->e->info.n_vocab);
    if (s->likeliest) s->likeliest[i] = is_good ? (pleat_token)greedy : 0;
    if (is_good) return PLEAT_OK;
    return pleat__error_set(s->err, PLEAT_E_RANGE, PLEAT_NOWHERE,
                            "step: the forward pass of item %u failed: logits are NaN or infinite", i);
}

/* ---- prompts ----------------------------------------------------------------------------------------- */

/* A prompt, or more tokens of a sequence of a uniform format. */
static pleat_status run_prompt(const step *s, uint32_t i) {
    const pleat_engine_item *item = &s->items[i];
    pleat__engine_device *d = s->e->device;
    pleat__place *place = pleat__engine_place(s->e, item->seq);
    d->is_counted = false;
    d->n_batch = 0; /* the cache's batch may be this sequence from here on, whether all goes well or not */
    const pleat_status status = pleat__device_forward_prompt(
        d->forward, d->cache, pleat__place_idx(s->e, place), place->n_tokens, item->tokens, item->n_tokens,
        item->n_logits, s->likeliest != NULL, item->logits, d->stream, s->err);
    if (status != PLEAT_OK && status != PLEAT_AGAIN && status != PLEAT_E_LIMIT) place->is_spoiled = true;
    PLEAT_TRY(status);
    place->n_tokens += item->n_tokens;
    const uint32_t greedy = s->likeliest ? pleat__device_forward_greedy(d->forward)[0] : 0;
    return judge(s, i, item->logits, item->n_logits, greedy);
}

/* Prompts of items before `end` are as they were: empty. */
static void undo_prompts(const step *s, const bool *is_prompt, uint32_t end) {
    pleat__engine_device *d = s->e->device;
    d->is_counted = false;
    for (uint32_t i = 0; i < end; i++) {
        if (!is_prompt[i]) continue;
        pleat__place *place = pleat__engine_place(s->e, s->items[i].seq);
        (void)pleat_device_cache_close(d->cache, pleat__place_idx(s->e, place), d->stream.v, NULL);
        place->n_tokens = 0;
    }
}

/* ---- batches ----------------------------------------------------------------------------------------- */

/* The cache's batch is next[n]. */
static pleat_status set_batch(const step *s, uint32_t n) {
    pleat__engine_device *d = s->e->device;
    if (d->n_batch == n && !memcmp(d->batch, d->next, n * sizeof *d->next)) return PLEAT_OK;
    d->n_batch = 0;
    PLEAT_TRY(pleat_device_cache_set_batch(d->cache, d->next, n, d->stream.v, s->err));
    memcpy(d->batch, d->next, n * sizeof *d->next);
    d->n_batch = n;
    return PLEAT_OK;
}

static pleat_status record(const step *s, uint32_t n) {
    pleat__engine_device *d = s->e->device;
    PLEAT_TRY(pleat__device_graph_begin(d->stream, s->err));
    const pleat_status status = pleat__device_forward_step(d->forward, d->cache, n, d->stream, s->err);
    const pleat_status ended = pleat__device_graph_end(d->stream, &d->graphs[n], status == PLEAT_OK ? s->err : NULL);
    if (status != PLEAT_OK) pleat__device_graph_destroy(&d->graphs[n]); /* it is of a part of the step */
    return status == PLEAT_OK ? ended : status;
}

/* Nobody knows how far next[n] have come. */
static void spoil(const step *s, uint32_t n) {
    pleat__engine_device *d = s->e->device;
    for (uint32_t row = 0; row < n; row++) d->places[d->next[row]].is_spoiled = true;
}

/* The batch's kernels, on their way. */
static pleat_status launch(const step *s, uint32_t n) {
    pleat__engine_device *d = s->e->device;
    if (!d->graphs[n].v && d->n_launched[n] == RECORD_AT) {
        const pleat_status status = record(s, n);
        if (status != PLEAT_OK && status != PLEAT_E_MEMORY) return status;
        if (status != PLEAT_OK) d->n_launched[n] = 0; /* no memory for it: kernel by kernel, until it is tried again */
    }
    if (!d->graphs[n].v) {
        d->n_launched[n]++;
        const pleat_status status = pleat__device_forward_step(d->forward, d->cache, n, d->stream, s->err);
        if (status != PLEAT_OK) spoil(s, n);
        return status;
    }
    return pleat__device_graph_launch(d->graphs[n], d->stream, s->err);
}

/* One token of each of next[n], whose tokens and positions are set.  PLEAT_AGAIN: nothing has changed. */
static pleat_status run_batch(const step *s, uint32_t n) {
    pleat__engine_device *d = s->e->device;
    PLEAT_TRY(set_batch(s, n));
    d->is_counted = false;
    PLEAT_TRY(launch(s, n));
    const pleat_status status = pleat__engine_device_count_end(s->e, s->err);
    if (status != PLEAT_OK && status != PLEAT_AGAIN) spoil(s, n);
    PLEAT_TRY(status);
    for (uint32_t row = 0; row < n; row++) d->places[d->next[row]].n_tokens++;
    return PLEAT_OK;
}

static void set_row(const step *s, uint32_t row, const pleat_engine_item *item, uint32_t token) {
    pleat__engine_device *d = s->e->device;
    const pleat__place *place = pleat__engine_place(s->e, item->seq);
    d->next[row] = pleat__place_idx(s->e, place);
    pleat__device_forward_tokens(d->forward)[row] = item->tokens[token];
    pleat__device_forward_positions(d->forward)[row] = place->n_tokens;
}

/* Logits of a row of the last batch, there once the stream has been waited for. */
static pleat_status fetch(const step *s, uint32_t row, float *to) {
    pleat__engine_device *d = s->e->device;
    return pleat__device_copy(to, pleat__device_forward_logits(d->forward, row), s->e->info.n_vocab * sizeof *to,
                              d->stream, s->err);
}

/* The rows of the step's single tokens; how many there are. */
static uint32_t set_rows(const step *s) {
    pleat__engine_device *d = s->e->device;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_items; i++) {
        if (s->items[i].n_tokens != 1) continue;
        d->in_batch[n] = i;
        set_row(s, n++, &s->items[i], 0);
    }
    return n;
}

/* What the last batch's n rows have made, to their items. */
static pleat_status collect(const step *s, uint32_t n) {
    pleat__engine_device *d = s->e->device;
    pleat_status worst = PLEAT_OK;
    bool wants_any = false;
    for (uint32_t row = 0; row < n; row++) {
        const pleat_engine_item *item = &s->items[d->in_batch[row]];
        wants_any |= item->n_logits > 0;
        if (item->n_logits > 0) PLEAT_TRY(fetch(s, row, item->logits));
    }
    if (wants_any) PLEAT_TRY(pleat__device_wait(d->stream, s->err));
    for (uint32_t row = 0; row < n; row++) {
        const pleat_engine_item *item = &s->items[d->in_batch[row]];
        const pleat_status status =
            judge(s, d->in_batch[row], item->logits, item->n_logits, pleat__device_forward_greedy(d->forward)[row]);
        if (status != PLEAT_OK) worst = status;
    }
    return worst;
}

static pleat_status run_singles(const step *s) {
    const uint32_t n = set_rows(s);
    if (n == 0) return PLEAT_OK;
    PLEAT_TRY(run_batch(s, n));
    return collect(s, n);
}

/* The prompt that goes with the single tokens; n_items: none. */
static uint32_t find_mixed(const step *s, const bool *is_prompt) {
    const pleat__engine_device *d = s->e->device;
    uint32_t n = 0, found = s->n_items;
    for (uint32_t i = 0; i < s->n_items; i++) {
        n += s->items[i].n_tokens == 1;
        if (is_prompt[i]) found = i;
    }
    if (n == 0 || found == s->n_items || s->items[found].n_logits > 1 || d->windows ||
        s->e->opt.spec.compressor != PLEAT_COMPRESSOR_NONE)
        return s->n_items;
    return pleat__device_forward_mixes(d->forward, d->cache, n, s->items[found].n_tokens) ? found : s->n_items;
}

/* The single tokens and the prompt of item i.  PLEAT_AGAIN, PLEAT_E_LIMIT: the single tokens' sequences are as they were. */
static pleat_status run_mixed(const step *s, uint32_t i) {
    pleat__engine_device *d = s->e->device;
    const pleat_engine_item *item = &s->items[i];
    pleat__place *place = pleat__engine_place(s->e, item->seq);
    const uint32_t n = set_rows(s);
    PLEAT_TRY(set_batch(s, n));
    d->is_counted = false;
    const pleat_status status = pleat__device_forward_mixed(d->forward, d->cache, n, pleat__place_idx(s->e, place),
                                                            item->tokens, item->n_tokens, d->stream, s->err);
    if (status == PLEAT_OK) place->n_tokens += item->n_tokens;
    const pleat_status counted = status == PLEAT_OK ? pleat__engine_device_count_end(s->e, s->err) : status;
    if (counted != PLEAT_OK && counted != PLEAT_AGAIN && counted != PLEAT_E_LIMIT) {
        spoil(s, n);
        place->is_spoiled = true;
    }
    PLEAT_TRY(counted);
    for (uint32_t row = 0; row < n; row++) d->places[d->next[row]].n_tokens++;
    d->in_batch[n] = i;
    return collect(s, n + 1);
}

/* An item of a sequence that is not empty. */
static pleat_status run_follower(const step *s, uint32_t i) {
    const pleat_engine_item *item = &s->items[i];
    const uint32_t least = s->e->opt.fixed_splits ? LEAST_FIXED_CHUNK : LEAST_CHUNK;
    if (s->e->device->is_uniform && item->n_tokens >= least) return run_prompt(s, i);
    const pleat__engine_device *d = s->e->device;
    const pleat__place *place = pleat__engine_place(s->e, item->seq);
    const uint32_t first = item->n_tokens - item->n_logits;
    PLEAT_TRY(pleat_device_cache_turn(d->cache, pleat__place_idx(s->e, place), place->n_tokens + item->n_tokens,
                                      d->stream.v, s->err));
    for (uint32_t t = 0; t < item->n_tokens; t++) {
        set_row(s, 0, item, t);
        const pleat_status status = run_batch(s, 1);
        if (status == PLEAT_AGAIN && t > 0) pleat__engine_place(s->e, item->seq)->is_spoiled = true;
        if (status != PLEAT_OK) return status;
        if (t < first) continue;
        PLEAT_TRY(fetch(s, 0, item->logits + (uint64_t)(t - first) * s->e->info.n_vocab));
        PLEAT_TRY(pleat__device_wait(d->stream, s->err));
    }
    return judge(s, i, item->logits, item->n_logits, pleat__device_forward_greedy(s->e->device->forward)[0]);
}

/* ---- a step -------------------------------------------------------------------------------------------- */

static pleat_status run_step(const step *s, bool *is_prompt, bool *follows) {
    const uint32_t mixed = find_mixed(s, is_prompt);
    pleat_status worst = PLEAT_OK;
    for (uint32_t i = 0; i < s->n_items; i++) {
        if (!is_prompt[i] || i == mixed) continue;
        const pleat_status status = run_prompt(s, i);
        if (status == PLEAT_AGAIN || status == PLEAT_E_LIMIT) undo_prompts(s, is_prompt, i + 1);
        if (status != PLEAT_OK && status != PLEAT_E_RANGE) return status;
        if (status != PLEAT_OK) worst = status;
    }
    const pleat_status status = mixed < s->n_items ? run_mixed(s, mixed) : run_singles(s);
    if (status == PLEAT_AGAIN || (mixed < s->n_items && status == PLEAT_E_LIMIT))
        undo_prompts(s, is_prompt, s->n_items);
    if (status != PLEAT_OK && status != PLEAT_E_RANGE) return status;
    if (status != PLEAT_OK) worst = status;
    for (uint32_t i = 0; i < s->n_items; i++) {
        const pleat_status followed = follows[i] ? run_follower(s, i) : PLEAT_OK;
        if (followed != PLEAT_OK && followed != PLEAT_E_RANGE) return followed;
        if (followed != PLEAT_OK) worst = followed;
    }
    return worst;
}

/* As cache/step.h says when a prompt ends. */
static void note_prompt(const pleat_engine *e, const pleat_engine_item *item) {
    pleat__place *place = pleat__engine_place(e, item->seq);
    const uint32_t window = e->device->is_uniform ? 0 : e->opt.spec.window, n_before = place->n_tokens - item->n_tokens;
    const uint32_t n_classed = !e->device->is_uniform && n_before > window ? n_before - window : 0;
    const bool is_part = item->n_tokens > 1 || place->n_prompt == 0 || place->n_tokens > window + n_classed + 1;
    if (!(item->flags & PLEAT_ITEM_MORE) && is_part) place->n_prompt = place->n_tokens;
}

pleat_status pleat__engine_device_step(pleat_engine *e, const pleat_engine_item *items, uint32_t n_items,
                                       pleat_token *likeliest, pleat_error *err) {
    const step s = {e, items, n_items, likeliest, err};
    PLEAT_TRY(pleat__device_use(e->opt.first_device, err));
    PLEAT_TRY(check_step(&s));
    for (uint32_t i = 0; i < n_items; i++) {
        const item_kind kind = kind_of(e, &items[i]);
        e->device->is_prompt[i] = kind == PROMPT;
        e->device->follows[i] = kind == FOLLOWS;
    }
    const pleat_status status = run_step(&s, e->device->is_prompt, e->device->follows);
    const bool is_undone = status == PLEAT_AGAIN || status == PLEAT_E_LIMIT;
    for (uint32_t i = 0; status != PLEAT_OK && !is_undone && i < n_items; i++)
        pleat__engine_place(e, items[i].seq)->is_spoiled = true; /* some have gone on, and which is not told */
    for (uint32_t i = 0; status == PLEAT_OK && i < n_items; i++) note_prompt(e, &items[i]);
    const pleat_status counted =
        e->device->is_counted ? PLEAT_OK : pleat__engine_device_recount(e, status == PLEAT_OK ? err : NULL);
    return status == PLEAT_OK ? counted : status;
}
