/* SPDX-License-Identifier: MIT
 *
 * serving.c: making a serving, and requests that come and go.
 *
 * A request is one allocation: its record and its tokens, room for those to come included.  Its id tells its place:
 *
 *     id = serial * (max_requests + 1) + cell in the scheduler           serial counts requests, from 1
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/checked.h"
#include "core/error.h"
#include "engine/serving_internal.h"

#define MOST_REQUESTS (1u << 24)
#define MOST_PREFIX_TOKENS (1u << 24) /* no sequence is longer */
#define MOST_ROOTS 4096u              /* salts; prefixes of requests with others are not shared */
#define SALT_CAP 4096u
#define PREFIX_TOKENS 512u

/* Prices before anything was observed: swapping looks cheap. */
static const pleat__serving_cost first_guess = {
    .fixed_ns = 1e6, .prompt_ns = 1e6, .token_ns = 1e6, .byte_ns = 0.1, .swap_ns = 0.2};

/* ---- options --------------------------------------------------------------------------------------------------------- */

void pleat_serving_options_default(pleat_serving_options *opt) {
    if (!opt) return;
    *opt = (pleat_serving_options){.size_bytes = sizeof *opt,
                                   .max_requests = 65536,
                                   .prefix_tokens = PREFIX_TOKENS,
                                   .low_watermark = 0.9,
                                   .high_watermark = 1,
                                   .preemption = PLEAT_PREEMPT_CHEAPER,
                                   .swap_bytes = (uint64_t)1 << 30};
}

void pleat_request_default(pleat_request *request) {
    if (!request) return;
    *request = (pleat_request){.size_bytes = sizeof *request};
    pleat_sampler_options_default(&request->sampling);
}

#define REQUIRE(cond, ...) PLEAT_FAIL_IF(!(cond), err, PLEAT_E_ARG, PLEAT_NOWHERE, "serving: " __VA_ARGS__)

static pleat_status check_tenants(const pleat_serving_options *o, pleat_error *err) {
    double sum = 0;
    REQUIRE(!o->tenants || o->n_tenants >= 1, "an empty list of tenants");
    for (uint32_t i = 0; o->tenants && i < o->n_tenants; i++) {
        const pleat_tenant *t = &o->tenants[i];
        REQUIRE(t->name, "tenant %u has no name", i);
        REQUIRE(t->quota >= 0 && t->quota <= 1, "tenant '%s': a quota of %g is not in 0..1", t->name, t->quota);
        REQUIRE(t->weight >= 1, "tenant '%s': a weight of 0", t->name);
        for (uint32_t j = 0; j < i; j++)
            REQUIRE(strcmp(t->name, o->tenants[j].name) != 0, "tenant '%s' stands twice", t->name);
        sum += t->quota;
    }
    REQUIRE(sum <= 1 + 1e-9, "the tenants' quotas add up to %g, more than 1", sum);
    return PLEAT_OK;
}

static pleat_status check_options(const pleat_serving_options *o, const pleat__backend_shape *b, pleat_error *err) {
    REQUIRE(o->max_requests >= 1 && o->max_requests <= MOST_REQUESTS, "max_requests %u is outside 1..%u",
            o->max_requests, MOST_REQUESTS);
    REQUIRE(o->prefix_tokens <= MOST_PREFIX_TOKENS, "prefix_tokens %u is more than %u", o->prefix_tokens,
            MOST_PREFIX_TOKENS);
    REQUIRE(o->max_prefixes <= b->max_seqs - b->max_items,
            "max_prefixes %u is more than the engine's max_seqs %u less its max_items %u", o->max_prefixes, b->max_seqs,
            b->max_items);
    REQUIRE(b->step_tokens >= b->max_items && b->step_tokens - b->max_items + 1 >= b->chunk_tokens,
            "the engine's step_tokens %u have no room for a chunk of %u beside the tokens of %u other requests",
            b->step_tokens, b->chunk_tokens, b->max_items - 1);
    REQUIRE(o->low_watermark > 0 && o->low_watermark <= o->high_watermark && o->high_watermark <= 1,
            "watermarks %g and %g are not 0 < low <= high <= 1", o->low_watermark, o->high_watermark);
    REQUIRE(o->preemption >= PLEAT_PREEMPT_CHEAPER && o->preemption <= PLEAT_PREEMPT_RECOMPUTE, "unknown preemption");
    return check_tenants(o, err);
}

/* ---- create ---------------------------------------------------------------------------------------------------------- */

static pleat_status no_memory(pleat_error *err) {
    return pleat__error_set(err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "serving: out of memory");
}

/* Pages for tenants' quotas: whole numbers that lose none.  shares: [n_tenants + 1], the last one is lent. */
static pleat_status split_pages(const pleat_serving_options *o, uint64_t n_pages, double *shares, uint64_t *pages) {
    double rest = 1;
    for (uint32_t i = 0; i < o->n_tenants; i++) rest -= shares[i] = o->tenants[i].quota;
    shares[o->n_tenants] = rest > 1e-9 ? rest : 0;
    return pleat__sched_split(n_pages, shares, o->n_tenants + 1, pages);
}

static pleat_status create_sched(pleat_serving *s, const pleat_serving_options *o) {
    const pleat__backend_shape *b = &s->backend.shape;
    const uint32_t n = o->n_tenants;
    double *shares = pleat__alloc(&s->al, n + 1, sizeof *shares);
    uint64_t *pages = pleat__alloc(&s->al, n + 1, sizeof *pages);
    pleat__sched_tenant *tenants = pleat__alloc(&s->al, n, sizeof *tenants);
    pleat_status status = shares && pages && tenants ? split_pages(o, b->n_pages, shares, pages) : PLEAT_E_MEMORY;
    if (status == PLEAT_OK) {
        for (uint32_t i = 0; i < n; i++)
            tenants[i] = (pleat__sched_tenant){.quota_pages = pages[i], .weight = o->tenants[i].weight};
        const uint64_t low = (uint64_t)(o->low_watermark * (double)b->n_pages);
        const uint64_t high = (uint64_t)(o->high_watermark * (double)b->n_pages);
        const pleat__sched_options opt = {.max_requests = o->max_requests,
                                          .max_running = s->max_running,
                                          .step_tokens = b->step_tokens,
                                          .n_pages = b->n_pages,
                                          .low_pages = low > 0 ? low : 1,
                                          .high_pages = high > 0 ? high : 1,
                                          .n_tenants = n,
                                          .tenants = tenants};
        status = pleat__sched_create(&opt, &s->al, &s->sched);
    }
    pleat__free(&s->al, tenants, n, sizeof *tenants);
    pleat__free(&s->al, pages, n + 1, sizeof *pages);
    pleat__free(&s->al, shares, n + 1, sizeof *shares);
    return status;
}

static pleat_status copy_names(pleat_serving *s, const pleat_serving_options *o) {
    s->names_bytes = 0;
    for (uint32_t i = 0; i < o->n_tenants; i++) s->names_bytes += strlen(o->tenants[i].name) + 1;
    s->names = pleat__alloc(&s->al, 1, s->names_bytes);
    if (!s->names) return PLEAT_E_MEMORY;
    char *to = s->names;
    for (uint32_t i = 0; i < o->n_tenants; i++) {
        const size_t n = strlen(o->tenants[i].name) + 1;
        memcpy(to, o->tenants[i].name, n);
        to += n;
    }
    return PLEAT_OK;
}

static void carve(pleat_serving *s, pleat__arena *arena) {
    const pleat__backend_shape *b = &s->backend.shape;
    const uint32_t n = s->max_running;
    s->requests = pleat__arena_take(arena, (uint64_t)s->opt.max_requests + 1, sizeof *s->requests);
    s->running = pleat__arena_take(arena, n, sizeof *s->running);
    s->kept = pleat__arena_take(arena, (uint64_t)s->opt.max_prefixes + 1, sizeof *s->kept);
    s->path = pleat__arena_take(arena, 2 * (uint64_t)b->max_tokens, sizeof *s->path);
    s->items = pleat__arena_take(arena, n, sizeof *s->items);
    s->in_step = pleat__arena_take(arena, n, sizeof *s->in_step);
    s->statuses = pleat__arena_take(arena, n, sizeof *s->statuses);
    s->events = pleat__arena_take(arena, 2 * (uint64_t)n, sizeof *s->events);
    s->logits = pleat__arena_take(arena, (uint64_t)n * (b->model ? b->n_vocab : 0), sizeof *s->logits);
}

static pleat_status take_memory(pleat_serving *s) {
    pleat__arena arena = {0};
    carve(s, &arena);
    s->block_bytes = arena.used_bytes;
    if (arena.overflow || !(s->block = pleat__alloc_zero(&s->al, 1, s->block_bytes))) return PLEAT_E_MEMORY;
    arena = (pleat__arena){.base = s->block, .cap_bytes = s->block_bytes};
    carve(s, &arena);
    for (uint32_t i = s->opt.max_prefixes; i > 0; i--) {
        s->kept[i].n_users = s->kept_free;
        s->kept_free = i;
    }
    return PLEAT_OK;
}

static pleat_status create_parts(pleat_serving *s, const pleat_serving_options *o) {
    PLEAT_TRY(take_memory(s));
    PLEAT_TRY(copy_names(s, o));
    PLEAT_TRY(create_sched(s, o));
    if (s->opt.prefix_tokens > 0)
        PLEAT_TRY(pleat__radix_create(s->opt.max_prefixes + s->max_running, MOST_ROOTS, &s->al, &s->tree));
    if (!s->backend.shape.model) return PLEAT_OK;
    pleat_sampler_options greedy;
    pleat_sampler_options_default(&greedy);
    return pleat_sampler_create(&greedy, s->backend.shape.n_vocab, &s->al, &s->greedy, NULL);
}

/* Make a serving on s->backend. */
static pleat_status create(pleat_serving *s, const pleat_serving_options *opt, pleat_error *err) {
    const pleat__backend_shape *b = &s->backend.shape;
    static const pleat_tenant everybody = {.name = "", .quota = 1, .weight = 1};
    pleat_serving_options o = *opt;
    PLEAT_TRY(check_options(&o, b, err));
    if (!o.tenants) o.n_tenants = 1;
    if (!o.tenants) o.tenants = &everybody;
    if (o.max_prefixes == 0) o.max_prefixes = b->max_seqs - b->max_items;
    o.prefix_tokens = (o.prefix_tokens + b->chunk_tokens - 1) / b->chunk_tokens * b->chunk_tokens;
    if (o.max_prefixes == 0) o.prefix_tokens = 0; /* nothing is sealed for nobody */
    s->max_running = b->max_items;
    s->opt = o;
    s->opt.tenants = NULL;
    s->opt.allocator = &s->al;
    s->cost = first_guess;
    s->promises_version = 1;
    const pleat_status status = create_parts(s, &o);
    return status == PLEAT_E_MEMORY ? no_memory(err) : status;
}

/* An empty serving with the options' allocator; backends are made with it. */
static pleat_status begin_create(const pleat_serving_options *opt, pleat_serving **out, pleat_error *err) {
    REQUIRE(opt && opt->size_bytes == sizeof *opt, "options are not from pleat_serving_options_default()");
    const pleat_allocator al = pleat__allocator_or_default(opt->allocator);
    pleat_serving *s = pleat__alloc_zero(&al, 1, sizeof *s);
    if (!s) return no_memory(err);
    s->al = al;
    *out = s;
    return PLEAT_OK;
}

static pleat_status end_create(pleat_serving *s, pleat_status status, const pleat_serving_options *opt,
                               pleat_serving **out, pleat_error *err) {
    s->has_backend = status == PLEAT_OK;
    if (status == PLEAT_OK) status = create(s, opt, err);
    if (status == PLEAT_OK)
        *out = s;
    else
        pleat_serving_destroy(&s);
    return status;
}

pleat_status pleat_serving_create(pleat_engine *engine, const pleat_serving_options *opt, pleat_serving **out,
                                  pleat_error *err) {
    pleat_serving *s;
    REQUIRE(out, "no place for the result");
    PLEAT_TRY(begin_create(opt, &s, err));
    return end_create(s, pleat__backend_on_engine(engine, &s->al, &s->backend, err), opt, out, err);
}

pleat_status pleat_serving_create_simulated(const pleat_simulation *simulation, const pleat_serving_options *opt,
                                            pleat_serving **out, pleat_error *err) {
    pleat_serving *s;
    REQUIRE(out, "no place for the result");
    PLEAT_TRY(begin_create(opt, &s, err));
    PLEAT_TRY(end_create(s, pleat__backend_simulated(simulation, &s->al, &s->backend, err), opt, out, err));
    s->cost = (pleat__serving_cost){.fixed_ns = simulation->fixed_ns,
                                    .prompt_ns = simulation->prompt_ns,
                                    .token_ns = simulation->token_ns,
                                    .byte_ns = simulation->byte_ns,
                                    .swap_ns = 1e9 / simulation->swap_bytes_per_s};
    return PLEAT_OK;
}

pleat_status pleat__serving_create_on(const pleat__backend *backend, const pleat_serving_options *opt,
                                      pleat_serving **out, pleat_error *err) {
    pleat_serving *s;
    const pleat_status status = begin_create(opt, &s, err);
    if (status != PLEAT_OK) backend->destroy(backend->ctx);
    PLEAT_TRY(status);
    s->backend = *backend;
    return end_create(s, PLEAT_OK, opt, out, err);
}

void pleat_serving_destroy(pleat_serving **serving) {
    if (!serving || !*serving) return;
    pleat_serving *s = *serving;
    for (uint32_t i = 1; s->requests && i <= s->opt.max_requests; i++)
        if (s->requests[i]) pleat__serving_release(s, s->requests[i]);
    for (uint32_t i = 1; s->kept && i <= s->opt.max_prefixes; i++)
        if (s->kept[i].seq.v) s->backend.close(s->backend.ctx, s->kept[i].seq);
    pleat_sampler_destroy(&s->greedy);
    pleat__radix_destroy(&s->tree);
    pleat__sched_destroy(&s->sched);
    if (s->has_backend) s->backend.destroy(s->backend.ctx);
    const pleat_allocator al = s->al;
    pleat__free(&al, s->names, 1, s->names_bytes);
    pleat__free(&al, s->block, 1, s->block_bytes);
    pleat__free(&al, s, 1, sizeof *s);
    *serving = NULL;
}

/* ---- requests -------------------------------------------------------------------------------------------------------- */

uint32_t pleat__serving_tenant(const pleat_serving *s, const char *name) {
    const char *at = s->names;
    uint32_t i = 0;
    if (!name) return 0;
    for (; i < s->opt.n_tenants && strcmp(at, name) != 0; i++) at += strlen(at) + 1;
    return i;
}

#undef REQUIRE
#define REQUIRE(cond, ...) PLEAT_FAIL_IF(!(cond), err, PLEAT_E_ARG, PLEAT_NOWHERE, "request: " __VA_ARGS__)

static pleat_status check_tokens(const pleat__backend_shape *b, const pleat_request *q, pleat_error *err) {
    REQUIRE(q->prompt && q->n_prompt >= 1, "no prompt");
    REQUIRE(q->n_predict >= 1, "n_predict is 0");
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
    REQUIRE(q->ah_most >= 0 && q->al_most >= 0 && isfinite(q->ah_most) && isfinite(q->al_most),
            "ah_most %g or al_most %g is negative or no number", (double)q->ah_most, (double)q->al_most);
    REQUIRE(!q->salt || strlen(q->salt) < SALT_CAP, "a salt of %u bytes or more", SALT_CAP);
    pleat_sampler *sampler = NULL; /* to have its options checked; its own is made when it starts */
    PLEAT_TRY(pleat_sampler_create(&q->sampling, 1, &s->al, &sampler, err));
    pleat_sampler_destroy(&sampler);
    return PLEAT_OK;
}

/* Of a request within the context.  Seals at breakpoints pin the tokens of a window each (cache.h). */
static pleat__backend_extent extent_of(const pleat_serving *s, const pleat_request *q) {
    const uint64_t n_breaks = s->opt.prefix_tokens > 0 ? (uint64_t)q->n_breakpoints + (q->breakpoint > 0) : 0;
    const uint64_t n_pinned = n_breaks * s->backend.shape.window;
    return (pleat__backend_extent){.n_prompt = q->n_prompt,
                                   .n_tokens = q->n_prompt + q->n_predict,
                                   .budget = s->backend.budget(s->backend.ctx, q->n_prompt),
                                   .n_pinned = n_pinned < q->n_prompt ? (uint32_t)n_pinned : q->n_prompt};
}

/* Can it ever run? */
static pleat_status check_size(const pleat_serving *s, const pleat_request *q, uint32_t tenant, pleat_error *err) {
    const pleat__backend_shape *b = &s->backend.shape;
    const uint64_t n_tokens = (uint64_t)q->n_prompt + q->n_predict;
    PLEAT_FAIL_IF(n_tokens > b->max_tokens, err, PLEAT_E_LIMIT, PLEAT_NOWHERE,
                  "request: a prompt of %u tokens and %u to generate are more than the %u of a sequence", q->n_prompt,
                  q->n_predict, b->max_tokens);
    const pleat__backend_extent extent = extent_of(s, q);
    const uint64_t need = pleat__backend_pages_for(b, &extent, 0);
    const uint64_t most = pleat__sched_most_pages(s->sched, tenant);
    const double mib = (double)b->page_bytes / (1 << 20);
    const char *name = q->tenant ? q->tenant : s->names;
    PLEAT_FAIL_IF(need > most, err, PLEAT_E_LIMIT, PLEAT_NOWHERE,
                  "request: %llu tokens may need %.4g MiB (%llu pages); %s%s%s has %.4g MiB (%llu)",
                  (unsigned long long)n_tokens, (double)need * mib, (unsigned long long)need,
                  name[0] ? "tenant '" : "the pool", name, name[0] ? "'" : "", (double)most * mib,
                  (unsigned long long)most);
    const uint32_t n_now = pleat__sched_n_waiting(s->sched) + pleat__sched_n_running(s->sched);
    PLEAT_FAIL_IF(n_now >= s->opt.max_requests, err, PLEAT_E_LIMIT, PLEAT_NOWHERE,
                  "request: %u requests are waiting or running, as many as there may be", n_now);
    return PLEAT_OK;
}

/* The tree's root for this salt: the spec's text, a NUL, the salt. */
static pleat_status find_root(pleat_serving *s, const char *salt, uint32_t *root) {
    char key[PLEAT_SPEC_TEXT_CAP + SALT_CAP];
    const size_t n_key = strlen(s->backend.shape.key) + 1, n_salt = salt ? strlen(salt) : 0;
    *root = PLEAT__NO_ROOT;
    if (!s->tree) return PLEAT_OK;
    memcpy(key, s->backend.shape.key, n_key);
    if (n_salt > 0) memcpy(key + n_key, salt, n_salt);
    const pleat_status status = pleat__radix_root(s->tree, key, (uint32_t)(n_key + n_salt), root);
    if (status == PLEAT_E_LIMIT) *root = PLEAT__NO_ROOT;
    return status == PLEAT_E_LIMIT ? PLEAT_OK : status;
}

/* breakpoint among breakpoints, each once. */
static void merge_breaks(const pleat_request *q, pleat__served *r) {
    bool is_due = q->breakpoint > 0;
    for (uint32_t i = 0; i < q->n_breakpoints; i++) {
        if (is_due && q->breakpoint < q->breakpoints[i]) r->breaks[r->n_breaks++] = q->breakpoint;
        is_due &= q->breakpoint > q->breakpoints[i];
        r->breaks[r->n_breaks++] = q->breakpoints[i];
    }
    if (is_due) r->breaks[r->n_breaks++] = q->breakpoint;
}

static pleat__served *new_request(const pleat_serving *s, const pleat_request *q, uint32_t tenant, uint32_t root) {
    const uint64_t n_tokens = (uint64_t)q->n_prompt + q->n_predict;
    const uint64_t n_breaks = (uint64_t)q->n_breakpoints + 1;
    const uint64_t n_bytes = sizeof(pleat__served) + n_tokens * sizeof(pleat_token) + n_breaks * sizeof(uint32_t);
    pleat__served *r = pleat__alloc(&s->al, 1, n_bytes);
    if (!r) return NULL;
    *r = (pleat__served){.user = q->user,
                         .n_prompt = q->n_prompt,
                         .n_predict = q->n_predict,
                         .extent = extent_of(s, q),
                         .root = root,
                         .tenant = tenant,
                         .priority = q->priority,
                         .arrival = s->next_serial + 1,
                         .ignores_end = q->ignores_end != 0,
                         .ah_most = q->ah_most,
                         .al_most = q->al_most,
                         .sampling = q->sampling,
                         .stats = {.n_prompt = q->n_prompt},
                         .block_bytes = n_bytes};
    memcpy(r->tokens, q->prompt, q->n_prompt * sizeof *r->tokens);
    r->breaks = (uint32_t *)(r->tokens + n_tokens);
    merge_breaks(q, r);
    return r;
}

pleat_status pleat_serving_submit(pleat_serving *s, const pleat_request *q, pleat_request_id *out, pleat_error *err) {
    REQUIRE(s && q && out && q->size_bytes == sizeof *q,
            "no serving, no place for the id, or a request that is not from "
            "pleat_request_default()");
    const uint32_t tenant = pleat__serving_tenant(s, q->tenant);
    REQUIRE(tenant < s->opt.n_tenants, "unknown tenant '%s'", q->tenant);
    PLEAT_TRY(check_tokens(&s->backend.shape, q, err));
    PLEAT_TRY(check_breakpoints(q, err));
    PLEAT_TRY(check_rest(s, q, err));
    PLEAT_TRY(check_size(s, q, tenant, err));
    uint32_t root;
    if (find_root(s, q->salt, &root) != PLEAT_OK) return no_memory(err);
    pleat__served *r = new_request(s, q, tenant, root);
    if (!r) return no_memory(err);
    const pleat_status status = pleat__sched_add(s->sched, tenant, q->priority, r->arrival, &r->sched);
    assert(status == PLEAT_OK); /* there is room: check_size() */
    (void)status;
    r->id.v = ++s->next_serial * ((uint64_t)s->opt.max_requests + 1) + r->sched.v;
    s->requests[r->sched.v] = r;
    *out = r->id;
    return PLEAT_OK;
}

pleat_status pleat_serving_cancel(pleat_serving *s, pleat_request_id id) {
    if (!s) return PLEAT_E_ARG;
    pleat__served *r = s->requests[id.v % ((uint64_t)s->opt.max_requests + 1)];
    if (!r || r->id.v != id.v) return PLEAT_E_ARG;
    pleat__serving_release(s, r);
    return PLEAT_OK;
}

void pleat__serving_finish(pleat_serving *s, pleat__served *r, pleat_token token, pleat_finish finish,
                           pleat_status status) {
    s->events[s->n_events++] = (pleat_serving_event){
        .id = r->id, .user = r->user, .token = token, .finish = finish, .status = status, .stats = r->stats};
    pleat__serving_release(s, r);
}
