/* SPDX-License-Identifier: MIT
 *
 * submit.c: requests come, or are cancelled.
 *
 * A request is one allocation: its record and its tokens, room for those to come included; and one more where it wants
 * anything of its answer but tokens (answer.h).
 *
 *     create ──> places_take ──> enter_queue          by the driver in one call, or in two with the inbox between
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/error.h"
#include "serving/internal.h"

#define REQUIRE(cond, ...) PLEAT_FAIL_IF(!(cond), err, PLEAT_E_ARG, PLEAT_NOWHERE, "request: " __VA_ARGS__)

static pleat_status no_memory(pleat_error *err) {
    return pleat__error_set(err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "serving: out of memory");
}

/* ---- checks ---------------------------------------------------------------------------------------------------------- */

/* Before any token is looked at: a length that no sequence has may be that of no array either. */
static pleat_status check_lengths(const pleat__backend_shape *b, const pleat_request *q, pleat_error *err) {
    REQUIRE(q->prompt && q->n_prompt >= 1, "no prompt");
    REQUIRE(q->n_predict >= 1, "n_predict is 0");
    PLEAT_FAIL_IF((uint64_t)q->n_prompt + q->n_predict > b->max_tokens, err, PLEAT_E_LIMIT, PLEAT_NOWHERE,
                  "request: a prompt of %u tokens and %u to generate are more than the %u of a sequence", q->n_prompt,
                  q->n_predict, b->max_tokens);
    return PLEAT_OK;
}

static pleat_status check_tokens(const pleat__backend_shape *b, const pleat_request *q, pleat_error *err) {
    for (uint32_t i = 0; i < q->n_prompt; i++)
        REQUIRE(q->prompt[i] >= 0 && (!b->model || (uint32_t)q->prompt[i] < b->n_vocab),
                "token %u of the prompt is %d, which the model has not", i, q->prompt[i]);
    return PLEAT_OK;
}

static pleat_status check_breakpoints(const pleat_request *q, pleat_error *err) {
    REQUIRE(q->breakpoint <= q->n_prompt, "a breakpoint at %u behind the prompt of %u tokens", q->breakpoint,
            q->n_prompt);
    REQUIRE(q->n_breakpoints == 0 || q->breakpoints, "no breakpoints, but a number of them");
    for (uint32_t i = 0; i < q->n_breakpoints; i++) {
        REQUIRE(q->breakpoints[i] >= 1 && q->breakpoints[i] <= q->n_prompt,
                "a breakpoint at %u, not in the prompt of %u tokens", q->breakpoints[i], q->n_prompt);
        REQUIRE(i == 0 || q->breakpoints[i] > q->breakpoints[i - 1], "breakpoints %u and %u are not ascending",
                q->breakpoints[i > 0 ? i - 1 : 0], q->breakpoints[i]);
    }
    return PLEAT_OK;
}

static pleat_status check_rest(const pleat_serving *s, const pleat_request *q, pleat_error *err) {
    REQUIRE(q->max_ah >= 0 && q->max_al >= 0 && isfinite(q->max_ah) && isfinite(q->max_al),
            "max_ah %g or max_al %g is negative or no number", (double)q->max_ah, (double)q->max_al);
    REQUIRE(!q->salt || strlen(q->salt) < PLEAT__SALT_CAP, "a salt of %u bytes or more", PLEAT__SALT_CAP);
    pleat_sampler *sampler = NULL; /* to have its options checked; its own is made when it starts */
    PLEAT_TRY(pleat_sampler_create(&q->sampling, 1, &s->al, &sampler, err));
    pleat_sampler_destroy(&sampler);
    return pleat__answer_check(q, s->backend.shape.model, s->backend.shape.n_vocab, err);
}

/* Are there ever pages for it? */
static pleat_status check_size(pleat_serving *s, const pleat_request *q, const pleat__request *r, uint32_t tenant,
                               pleat_error *err) {
    const pleat__backend_shape *b = &s->backend.shape;
    const uint64_t n_tokens = (uint64_t)q->n_prompt + q->n_predict;
    uint64_t n_shared;
    const uint64_t n_left = b->n_pages - pleat__pins_pages(s, r, &n_shared); /* pinned prefixes stay beside it */
    if (q->wants_prompt_logprobs) n_shared = 0;
    const uint64_t need = pleat__less(pleat__backend_pages_for(b, &r->extent, 0), n_shared);
    const uint64_t most = pleat__sched_max_pages(s->sched, tenant);
    const uint64_t max = most < n_left ? most : n_left;
    const double mib = (double)b->page_bytes / (1 << 20);
    const char *name = q->tenant ? q->tenant : s->tenants.text;
    PLEAT_FAIL_IF(need > max, err, PLEAT_E_LIMIT, PLEAT_NOWHERE,
                  "request: %llu tokens may need %.4g MiB (%llu pages); %s%s%s has %.4g MiB (%llu)",
                  (unsigned long long)n_tokens, (double)need * mib, (unsigned long long)need,
                  name[0] ? "tenant '" : "the pool", name, name[0] ? "'" : "", (double)max * mib,
                  (unsigned long long)max);
    return PLEAT_OK;
}

/* ---- a record --------------------------------------------------------------------------------------------------------- */

/* breakpoint among breakpoints, each once. */
static void merge_breakpoints(const pleat_request *q, pleat__request *r) {
    bool is_due = q->breakpoint > 0;
    for (uint32_t i = 0; i < q->n_breakpoints; i++) {
        if (is_due && q->breakpoint < q->breakpoints[i]) r->breakpoints[r->n_breakpoints++] = q->breakpoint;
        is_due &= q->breakpoint > q->breakpoints[i];
        r->breakpoints[r->n_breakpoints++] = q->breakpoints[i];
    }
    if (is_due) r->breakpoints[r->n_breakpoints++] = q->breakpoint;
}

static pleat__request *new_request(const pleat_serving *s, const pleat_request *q, uint32_t tenant) {
    const uint64_t n_tokens = (uint64_t)q->n_prompt + q->n_predict;
    const uint64_t n_breakpoints = (uint64_t)q->n_breakpoints + 1;
    const size_t n_salt = q->salt ? strlen(q->salt) + 1 : 0;
    const uint64_t n_bytes =
        sizeof(pleat__request) + n_tokens * sizeof(pleat_token) + n_breakpoints * sizeof(uint32_t) + n_salt;
    pleat__request *r = pleat__alloc(&s->al, 1, n_bytes);
    if (!r) return NULL;
    *r = (pleat__request){.user = q->user,
                          .n_prompt = q->n_prompt,
                          .n_predict = q->n_predict,
                          .tenant = tenant,
                          .priority = q->priority,
                          .ignores_end = q->ignores_end != 0,
                          .wants_progress = q->wants_progress != 0,
                          .max_ah = q->max_ah,
                          .max_al = q->max_al,
                          .sampling = q->sampling,
                          .time_limit_ns = q->time_limit_ns,
                          .deadline_ns = UINT64_MAX,
                          .chosen = -1,
                          .stats = {.n_prompt = q->n_prompt},
                          .block_bytes = n_bytes};
    memcpy(r->tokens, q->prompt, q->n_prompt * sizeof *r->tokens);
    r->breakpoints = (uint32_t *)(r->tokens + n_tokens);
    if (n_salt) r->salt = memcpy(r->breakpoints + n_breakpoints, q->salt, n_salt);
    merge_breakpoints(q, r);
    r->extent = (pleat__backend_extent){.n_prompt = q->n_prompt,
                                        .n_tokens = q->n_prompt + q->n_predict,
                                        .n_read = pleat__serving_read_slots(s, r),
                                        .budget = s->backend.budget(s->backend.ctx, q->n_prompt)};
    return r;
}

/* ---- coming and going --------------------------------------------------------------------------------------------------- */

pleat_status pleat__request_create(pleat_serving *s, const pleat_request *q, pleat__request **out, pleat_error *err) {
    const uint32_t tenant = pleat__serving_tenant(s, q->tenant);
    REQUIRE(tenant < s->opt.n_tenants, "unknown tenant '%s'", q->tenant);
    PLEAT_TRY(check_lengths(&s->backend.shape, q, err));
    PLEAT_TRY(check_tokens(&s->backend.shape, q, err));
    PLEAT_TRY(check_breakpoints(q, err));
    PLEAT_TRY(check_rest(s, q, err));
    pleat__request *r = new_request(s, q, tenant);
    if (!r) return no_memory(err);
    pleat_status status = check_size(s, q, r, tenant, err);
    if (status == PLEAT_OK &&
        pleat__answer_create(q, s->backend.shape.model, s->max_token_bytes, &s->al, &r->answer) != PLEAT_OK)
        status = no_memory(err);
    if (status == PLEAT_OK)
        *out = r;
    else
        pleat__request_free(s, r);
    return status;
}

/* The tree's root, for those who share prefixes; and the first who looks at its prompt's logits brings their buffer, the
 * first who wants JSON the table of tokens for it. */
static pleat_status prepare(pleat_serving *s, pleat__request *r) {
    const pleat__backend_shape *b = &s->backend.shape;
    if (r->answer && r->answer->wants_json) {
        if (!s->json_tokens.order) PLEAT_TRY(pleat__json_tokens_init(&s->json_tokens, b->model, b->n_vocab, &s->al));
        r->answer->json_tokens = &s->json_tokens;
    }
    r->root = PLEAT__NO_ROOT;
    if (!r->answer || !r->answer->wants_prompt) return pleat__serving_root(s, r->salt, &r->root);
    if (s->step.prompt_logits) return PLEAT_OK;
    s->step.prompt_logits = pleat__alloc(&s->al, (uint64_t)b->step_tokens * b->n_vocab, sizeof(float));
    return s->step.prompt_logits ? PLEAT_OK : PLEAT_E_MEMORY;
}

pleat_status pleat__request_enter_queue(pleat_serving *s, pleat__request *r, bool must) {
    const pleat_status prepared = prepare(s, r);
    if (prepared != PLEAT_OK && !must) return prepared;
    if (prepared != PLEAT_OK) {
        r->has_no_memory = true;
        s->next_deadline_ns = 0;
    }
    const pleat_status status = pleat__sched_add(s->sched, r->tenant, r->priority, r->arrival, &r->sched);
    assert(status == PLEAT_OK); /* who has a place has room there */
    (void)status;
    s->requests[r->sched.v] = r;
    s->tier.stands_still = false;
    s->by_place[r->id.v % ((uint64_t)s->opt.max_requests + 1)] = r;
    if (r->time_limit_ns == 0) return PLEAT_OK;
    const uint64_t now = s->backend.clock_ns(s->backend.ctx);
    r->deadline_ns = r->time_limit_ns < UINT64_MAX - now ? now + r->time_limit_ns : UINT64_MAX;
    if (r->deadline_ns < s->next_deadline_ns) s->next_deadline_ns = r->deadline_ns;
    return PLEAT_OK;
}

pleat_status pleat_serving_submit(pleat_serving *s, const pleat_request *q, pleat_request_id *out, pleat_error *err) {
    REQUIRE(s && q && out && q->size_bytes == sizeof *q,
            "no serving, no place for the id, or a request that is not from "
            "pleat_request_default()");
    pleat__request *r;
    PLEAT_TRY(pleat__request_create(s, q, &r, err));
    pleat_status status = pleat__places_take(s, &r, 1, NULL);
    if (status != PLEAT_OK)
        (void)pleat__error_set(err, status, PLEAT_NOWHERE,
                               "request: %u requests are waiting or running, as many as there may be",
                               s->opt.max_requests);
    if (status == PLEAT_OK && pleat__request_enter_queue(s, r, false) != PLEAT_OK) {
        pleat__place_free(s, r);
        status = no_memory(err);
    }
    if (status == PLEAT_OK)
        *out = r->id;
    else
        pleat__request_free(s, r);
    return status;
}

pleat_status pleat_serving_cancel(pleat_serving *s, pleat_request_id id) {
    pleat__request *r = s ? pleat__serving_request(s, id) : NULL;
    if (!r) return PLEAT_E_ARG;
    pleat__serving_release(s, r);
    return PLEAT_OK;
}
