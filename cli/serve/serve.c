/* SPDX-License-Identifier: MIT
 *
 * serve.c: `pleat serve` from its options to a server that is ready to run.
 */
#include "serve.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/lib/common.h"
#include "cli/lib/machine/free_memory.h"
#include "cli/lib/output.h"
#include "cli/lib/utf8.h"

#if !PLEAT_LIBEVENT
int server_run(server *s) {
    (void)s;
    cli_error("this build has no libevent (the build option PLEAT_LIBEVENT), so it serves nothing over a network");
    return CLI_FAILED;
}

const char *server_describe(void) { return "no libevent"; }
#endif

/* ---- what clients see of the model -------------------------------------------------------------------------------------- */

static int name_model(server *s) {
    const char *path = s->o->alias ? s->o->alias : s->o->load.model;
    const char *slash = s->o->alias ? NULL : strrchr(path, '/');
    snprintf(s->name, sizeof s->name, "%s", slash ? slash + 1 : path);
    const size_t n = strlen(s->name);
    if (!s->o->alias && n > 5 && strcmp(s->name + n - 5, ".gguf") == 0) s->name[n - 5] = 0;
    if (s->name[0] && utf8_first_invalid(s->name, strlen(s->name)) == strlen(s->name)) return CLI_OK;
    cli_error("the model's name for clients is no text in UTF-8: give --alias");
    return CLI_FAILED;
}

static int read_keys(server *s) {
    char *text;
    size_t n;
    if (!s->o->key_file) return CLI_OK;
    if (cli_read_file(CONTENT_CONFIG, s->o->key_file, &text, &n) != CLI_OK) return CLI_FAILED;
    char why[256] = "";
    const size_t line = keys_read(text, n, &s->keys, why, sizeof why);
    memset(text, 0, n);
    free(text);
    if (line == 0) return CLI_OK;
    if (line == SIZE_MAX)
        cli_error("--api-key-file %s: %s", s->o->key_file, why);
    else
        cli_error("--api-key-file %s, line %zu: %s", s->o->key_file, line, why);
    return CLI_FAILED;
}

static int open_tls(server *s) {
    char why[1024];
    if (!s->o->tls_cert && !s->o->tls_key) return CLI_OK;
    if (!s->o->tls_cert || !s->o->tls_key) {
        cli_error("--tls-cert and --tls-key stand together or not at all");
        return CLI_USAGE;
    }
    s->tls = tls_open(s->o->tls_cert, s->o->tls_key, why, sizeof why);
    if (s->tls) return CLI_OK;
    cli_error("%s", why);
    return CLI_FAILED;
}

static int open_events(server *s) {
    const server_options *o = s->o;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_events_options opt;
    if (!o->events) return CLI_OK;
    pleat_events_options_default(&opt);
    opt.endpoint = o->events;
    opt.replay_endpoint = o->events_replay;
    opt.topic = o->events_topic;
    opt.block_tokens = o->events_block;
    const pleat_status status = pleat_events_open(&opt, &s->events, &err);
    return status == PLEAT_OK ? CLI_OK : cli_fail("--events", status, &err);
}

/* ---- engine and serving ---------------------------------------------------------------------------------------------------- */

/* Of the machine that holds the pool. */
static uint64_t free_bytes(const server *s) {
    pleat_device_info info;
    if (!s->l->n_devices) return free_memory_bytes();
    return pleat_device_get_info(s->l->device, &info, NULL) == PLEAT_OK ? info.free_bytes : 0;
}

static uint64_t default_pool(const server *s, const pleat_engine_options *engine) {
    char needs[BYTES_CAP], has[BYTES_CAP];
    const uint64_t one = load_pool_bytes(s->l, engine, 1), all = load_pool_bytes(s->l, engine, s->o->parallel);
    const uint64_t n_free = free_bytes(s) / s->n_served, half = n_free / 2;
    const uint64_t wanted = all < half ? all : half;
    if (one > n_free && !s->o->common.quiet)
        cli_note("a text of %u tokens takes %s, and %s of memory are free; -c or --pool-bytes makes the pool smaller",
                 engine->max_tokens, print_bytes(needs, one), print_bytes(has, n_free));
    return wanted > one ? wanted : one;
}

/* A pool that was asked for: will a text of the whole context ever fit?  A shorter one may. */
static void note_small_pool(const server *s, const served *one, const pleat_engine_options *engine) {
    char has[BYTES_CAP], needs[BYTES_CAP];
    const uint64_t n_bytes = load_pool_bytes(s->l, engine, 1);
    if (engine->pool_bytes >= n_bytes) return;
    cli_note("%s: %s are too few for a text of %u tokens, which takes %s; what cannot fit is refused", one->kv,
             print_bytes(has, engine->pool_bytes), engine->max_tokens, print_bytes(needs, n_bytes));
}

/* Those of the keys; NULL: there are no keys.  The caller frees them, and their names are the keys'. */
static pleat_tenant *make_tenants(const api_keys *keys) {
    if (!keys->keys) return NULL;
    pleat_tenant *tenants = cli_alloc(keys->n_tenants, sizeof *tenants);
    for (uint32_t i = 0; i < keys->n_tenants; i++) {
        const key_tenant *t = &keys->tenants[i];
        tenants[i] = (pleat_tenant){.name = t->name, .quota = t->quota, .weight = t->weight ? t->weight : 1};
    }
    return tenants;
}

static int make_engine(server *s, served *one, uint32_t *prefix_tokens) {
    const server_options *o = s->o;
    pleat_cache_traits traits = {.size_bytes = sizeof traits};
    pleat_engine_options engine = load_engine_options(&o->load, s->l, o->load.kv.spec[one - s->served], 0, s->n_ctx, 0);
    int code = service_prefix_tokens(&o->service, engine.chunk_tokens, engine.max_tokens, prefix_tokens);
    if (code != CLI_OK) return code;
    service_set_engine(&o->service, o->parallel, &engine);
    engine.pool_bytes = engine.pool_bytes ? engine.pool_bytes / s->n_served : default_pool(s, &engine);
    if (!o->common.quiet) note_small_pool(s, one, &engine);
    code = load_engine_with(s->l, &engine, &one->engine);
    if (code != CLI_OK) return code;
    pleat_engine_get_options(one->engine, &engine);
    s->n_ctx = engine.max_tokens < s->n_ctx ? engine.max_tokens : s->n_ctx;
    (void)pleat_engine_get_traits(one->engine, &traits);
    one->page_bytes = traits.page_bytes;
    one->chunk_tokens = engine.chunk_tokens;
    return CLI_OK;
}

/* Does a text of a few tokens fit, of whichever tenant?  A request that never runs says so. */
static int check_pool(const server *s, const served *one, const pleat_tenant *tenants, uint32_t n_tenants) {
    static const pleat_token few[3];
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_status status = PLEAT_E_LIMIT;
    pleat_request q;
    pleat_request_id id;
    pleat_request_default(&q);
    q.prompt = few;
    q.n_prompt = s->n_ctx > 3 ? 3 : 1;
    q.n_predict = 1;
    if (s->n_ctx < 2) return CLI_OK; /* nothing is ever generated */
    for (uint32_t i = 0; status == PLEAT_E_LIMIT && (i == 0 || i < n_tenants); i++) {
        q.tenant = tenants ? tenants[i].name : NULL;
        status = pleat_serving_submit(one->serving, &q, &id, &err);
    }
    if (status != PLEAT_OK) return cli_fail("--pool-bytes is too small for any request", status, &err);
    (void)pleat_serving_cancel(one->serving, id);
    return CLI_OK;
}

static int make_serving(server *s, served *one, const pleat_tenant *tenants) {
    const server_options *o = s->o;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_serving_options opt;
    uint32_t prefix_tokens;
    const int code = make_engine(s, one, &prefix_tokens);
    if (code != CLI_OK) return code;
    one->prefix_tokens = prefix_tokens;
    service_set_serving(&o->service, prefix_tokens, &opt);
    opt.max_requests = o->parallel + o->queue;
    opt.swap_bytes /= s->n_served;
    opt.store = s->store;
    opt.events = one == s->served ? s->events : NULL;
    opt.tenants = tenants;
    opt.n_tenants = tenants ? s->keys.n_tenants : 0;
    const pleat_status status = pleat_serving_create(one->engine, &opt, &one->serving, &err);
    return status == PLEAT_OK ? check_pool(s, one, tenants, opt.n_tenants) : cli_fail("cannot serve", status, &err);
}

/* One for each --kv, which have equal parts of the bytes. */
static int make_servings(server *s) {
    pleat_tenant *tenants = make_tenants(&s->keys);
    const spec_list *kv = &s->o->load.kv;
    int code = CLI_OK;
    s->served = cli_alloc(kv->n, sizeof *s->served);
    s->n_served = kv->n;
    for (uint32_t i = 0; i < kv->n && code == CLI_OK; i++) {
        s->served[i].kv = kv->text[i];
        code = make_serving(s, &s->served[i], tenants);
    }
    free(tenants);
    return code;
}

static int fit_context(server *s) {
    const uint32_t n_train = s->l->info.n_ctx, wanted = s->o->ctx_size;
    s->n_ctx = wanted ? wanted : n_train;
    if (wanted <= n_train) return CLI_OK;
    cli_error("--ctx-size %u: the model's context is %u tokens", wanted, n_train);
    return CLI_FAILED;
}

/* How the model writes tool calls. */
static void find_calls(server *s) {
    size_t n = 0;
    const char *text = pleat_model_chat_template(s->l->model, &n);
    s->calls = calls_form_of(text, n);
    const char *marker = calls_marker(s->calls);
    for (uint32_t id = 0; id < s->l->info.n_vocab && marker[0] && !s->marks_are_special; id++) {
        text = pleat_model_token_text(s->l->model, (pleat_token)id, &n);
        s->marks_are_special = text && n == strlen(marker) && memcmp(text, marker, n) == 0 &&
                               pleat_model_token_is_special(s->l->model, (pleat_token)id);
    }
}

static void note_chat_form(const server *s) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    if (s->o->common.quiet || pleat_model_chat_check(s->l->model, NULL, &err) == PLEAT_OK) return;
    cli_note("/v1/chat/completions will refuse: %s", err.text);
}

static void release(server *s) {
    for (uint32_t i = 0; i < s->n_served; i++) {
        pleat_serving_destroy(&s->served[i].serving);
        pleat_engine_destroy(&s->served[i].engine);
    }
    conversations_destroy(&s->conversations);
    pleat_store_close(&s->store);
    pleat_events_close(&s->events);
    free(s->served);
    keys_release(&s->keys);
    tls_close(&s->tls);
    free(s->jobs);
    places_release(&s->places);
    free(s->metrics.tenants);
}

int serve_main_command(void *opts) {
    server_options *o = opts;
    static const char *const default_specs[] = {"k8v4", NULL};
    loaded l;
    server s = {.o = o, .l = &l, .start_s = time(NULL)};
    int code = service_check(&o->service);
    options_default_specs(&o->load.kv, default_specs);
    load_for_serving(&o->load);
    if (code == CLI_OK) code = read_keys(&s);
    if (code == CLI_OK) code = open_tls(&s);
    if (code == CLI_OK) code = load_model(&o->load, &o->common, &l);
    if (code != CLI_OK) {
        release(&s);
        return code;
    }
    s.n_jobs_max = o->parallel + o->queue;
    s.metrics.tenants = cli_alloc(s.keys.n_tenants + 1, sizeof *s.metrics.tenants);
    s.jobs = cli_alloc(s.n_jobs_max, sizeof *s.jobs);
    places_init(&s.places, s.n_jobs_max);
    s.n_calls = (uint64_t)s.start_s << 15; /* ids of calls differ from those of an earlier run */
    code = name_model(&s);
    if (code == CLI_OK) code = fit_context(&s);
    if (code == CLI_OK) code = store_open(&o->store, o->common.quiet, &s.store);
    if (code == CLI_OK) s.conversations = conversations_create(s.store);
    if (code == CLI_OK) code = open_events(&s);
    if (code == CLI_OK) code = make_servings(&s);
    if (code == CLI_OK) find_calls(&s);
    if (code == CLI_OK) note_chat_form(&s);
    if (code == CLI_OK) code = server_run(&s);
    release(&s);
    load_release(&l);
    return code;
}
