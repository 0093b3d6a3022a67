/* SPDX-License-Identifier: MIT
 *
 * serving.c: making a serving, and its end.
 */
#include <string.h>

#include "core/error.h"
#include "serving/internal.h"

#define MAX_REQUESTS (1u << 24)
#define MAX_PREFIX_TOKENS (1u << 24) /* no sequence is longer */
#define MAX_ROOTS 4096u              /* salts; prefixes of requests with others are not shared */
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
    request->repetition_penalty = 1;
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
    REQUIRE(o->max_requests >= 1 && o->max_requests <= MAX_REQUESTS, "max_requests %u is outside 1..%u",
            o->max_requests, MAX_REQUESTS);
    REQUIRE(o->prefix_tokens <= MAX_PREFIX_TOKENS, "prefix_tokens %u is more than %u", o->prefix_tokens,
            MAX_PREFIX_TOKENS);
    REQUIRE(o->max_prefixes <= b->max_seqs - b->max_items,
            "max_prefixes %u is more than the engine's max_seqs %u less its max_items %u", o->max_prefixes, b->max_seqs,
            b->max_items);
    REQUIRE(b->step_tokens >= b->max_items && b->step_tokens - b->max_items + 1 >= b->chunk_tokens,
            "the engine's step_tokens %u have no room for a chunk of %u beside the tokens of %u other requests",
            b->step_tokens, b->chunk_tokens, b->max_items - 1);
    REQUIRE(o->low_watermark > 0 && o->low_watermark <= o->high_watermark && o->high_watermark <= 1,
            "watermarks %g and %g are not 0 < low <= high <= 1", o->low_watermark, o->high_watermark);
    REQUIRE(o->preemption >= PLEAT_PREEMPT_CHEAPER && o->preemption <= PLEAT_PREEMPT_RECOMPUTE, "unknown preemption");
    REQUIRE(!o->store || b->model, "a simulation stores nothing");
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
    s->tenants.n_bytes = 0;
    for (uint32_t i = 0; i < o->n_tenants; i++) s->tenants.n_bytes += strlen(o->tenants[i].name) + 1;
    s->tenants.text = pleat__alloc(&s->al, 1, s->tenants.n_bytes);
    if (!s->tenants.text) return PLEAT_E_MEMORY;
    char *to = s->tenants.text;
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
    s->by_place = pleat__arena_take(arena, (uint64_t)s->opt.max_requests + 1, sizeof *s->by_place);
    s->inbox.places = pleat__arena_take(arena, (uint64_t)s->opt.max_requests + 1, sizeof *s->inbox.places);
    s->inbox.cancels = pleat__arena_take(arena, s->opt.max_requests, sizeof *s->inbox.cancels);
    s->running = pleat__arena_take(arena, n, sizeof *s->running);
    s->prefixes.kept = pleat__arena_take(arena, (uint64_t)s->opt.max_prefixes + 1, sizeof *s->prefixes.kept);
    s->prefixes.path = pleat__arena_take(arena, 2 * (uint64_t)b->max_tokens, sizeof *s->prefixes.path);
    const uint64_t n_chunks = s->opt.store ? b->max_tokens / 2 + 1 : 0;
    s->tier.steps = pleat__arena_take(arena, n_chunks, sizeof *s->tier.steps);
    s->tier.parts = pleat__arena_take(arena, n_chunks, sizeof *s->tier.parts);
    s->step.items = pleat__arena_take(arena, n, sizeof *s->step.items);
    s->step.requests = pleat__arena_take(arena, n, sizeof *s->step.requests);
    s->step.statuses = pleat__arena_take(arena, n, sizeof *s->step.statuses);
    s->step.likeliest = pleat__arena_take(arena, n, sizeof *s->step.likeliest);
    s->step.events = pleat__arena_take(arena, 8 * (uint64_t)n, sizeof *s->step.events);
    s->step.moved = pleat__arena_take(arena, b->model ? b->n_vocab : 0, sizeof *s->step.moved);
    s->step.logits = pleat__arena_take(arena, (uint64_t)n * (b->model ? b->n_vocab : 0), sizeof *s->step.logits);
}

static pleat_status take_memory(pleat_serving *s) {
    pleat__arena arena = {0};
    carve(s, &arena);
    s->block_bytes = arena.used_bytes;
    if (arena.overflow || !(s->block = pleat__alloc_zero(&s->al, 1, s->block_bytes))) return PLEAT_E_MEMORY;
    arena = (pleat__arena){.base = s->block, .cap_bytes = s->block_bytes};
    carve(s, &arena);
    for (uint32_t i = s->opt.max_prefixes; i > 0; i--) {
        s->prefixes.kept[i].n_users = s->prefixes.free_head;
        s->prefixes.free_head = i;
    }
    return PLEAT_OK;
}

static uint32_t longest_token(const pleat__backend_shape *b) {
    size_t most = 0, n;
    for (uint32_t i = 0; i < b->n_vocab; i++)
        if (pleat_model_token_text(b->model, (pleat_token)i, &n) && n > most) most = n;
    return (uint32_t)most;
}

static pleat_status create_parts(pleat_serving *s, const pleat_serving_options *o) {
    PLEAT_TRY(take_memory(s));
    PLEAT_TRY(pleat__tier_init(s));
    PLEAT_TRY(pleat__places_init(s));
    PLEAT_TRY(copy_names(s, o));
    PLEAT_TRY(create_sched(s, o));
    if (s->opt.prefix_tokens > 0)
        PLEAT_TRY(pleat__radix_create(s->opt.max_prefixes + s->max_running, MAX_ROOTS, &s->al, &s->prefixes.tree));
    uint32_t root;
    PLEAT_TRY(pleat__serving_root(s, NULL, &root)); /* whatever salts come, requests without one share */
    if (!s->backend.shape.model) return PLEAT_OK;
    s->max_token_bytes = longest_token(&s->backend.shape);
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
    s->prefixes.version = 1;
    s->next_deadline_ns = UINT64_MAX;
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
    PLEAT_TRY(end_create(s, pleat__backend_on_engine(engine, &s->al, &s->backend, err), opt, out, err));
    if (s->backend.expect && s->opt.swap_bytes > 0 && s->opt.preemption != PLEAT_PREEMPT_RECOMPUTE)
        s->backend.expect(s->backend.ctx, s->opt.swap_bytes);
    return PLEAT_OK;
}

pleat_status pleat_serving_create_simulated(const pleat_simulation *simulation, const pleat_serving_options *opt,
                                            pleat_serving **out, pleat_error *err) {
    pleat_serving *s;
    REQUIRE(out, "no place for the result");
    PLEAT_TRY(begin_create(opt, &s, err));
    PLEAT_TRY(end_create(s, pleat__backend_simulated(simulation, &s->al, &s->backend, err), opt, out, err));
    s->cost = (pleat__serving_cost){.fixed_ns = simulation->fixed_ns,
                                    .chunk_ns = simulation->chunk_ns,
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
    pleat__serving_free_finished(s);
    for (uint32_t i = 1; s->requests && i <= s->opt.max_requests; i++)
        if (s->requests[i]) pleat__serving_release(s, s->requests[i]);
    for (uint32_t i = 1; s->prefixes.kept && i <= s->opt.max_prefixes; i++) {
        pleat_events_forget(s->opt.events, &s->prefixes.kept[i].told);
        if (s->prefixes.kept[i].seq.v) s->backend.close(s->backend.ctx, s->prefixes.kept[i].seq);
    }
    pleat_sampler_destroy(&s->greedy);
    pleat__places_release(s);
    pleat__json_tokens_release(&s->json_tokens, &s->al);
    pleat__free(&s->al, s->step.prompt_logits, (uint64_t)s->backend.shape.step_tokens * s->backend.shape.n_vocab,
                sizeof(float));
    pleat__pins_release(s);
    pleat__radix_destroy(&s->prefixes.tree);
    pleat__sched_destroy(&s->sched);
    if (s->has_backend) s->backend.destroy(s->backend.ctx);
    const pleat_allocator al = s->al;
    pleat__free(&al, s->tenants.text, 1, s->tenants.n_bytes);
    pleat__free(&al, s->block, 1, s->block_bytes);
    pleat__free(&al, s, 1, sizeof *s);
    *serving = NULL;
}

uint32_t pleat__serving_tenant(const pleat_serving *s, const char *name) {
    const char *at = s->tenants.text;
    uint32_t i = 0;
    if (!name) return 0;
    for (; i < s->opt.n_tenants && strcmp(at, name) != 0; i++) at += strlen(at) + 1;
    return i;
}
