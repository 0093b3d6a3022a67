/* SPDX-License-Identifier: MIT
 *
 * serve.c: `pleat serve` from its options to a server that is ready to run.
 */
#include "serve.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/lib/common.h"
#include "cli/lib/measure.h"
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
    const size_t line = keys_read(text, n, &s->keys);
    memset(text, 0, n);
    free(text);
    if (line == 0) return CLI_OK;
    if (line == SIZE_MAX)
        cli_error("--api-key-file %s: there is no key in it", s->o->key_file);
    else
        cli_error("--api-key-file %s, line %zu: a key has at most %d bytes, and there are at most %d", s->o->key_file,
                  line, KEY_MAX - 1, KEYS_MAX);
    return CLI_FAILED;
}

/* ---- engine and serving ---------------------------------------------------------------------------------------------------- */

static uint64_t default_pool(const server *s, const pleat_engine_options *engine) {
    const uint64_t one = load_pool_bytes(s->l, engine, 1), all = load_pool_bytes(s->l, engine, s->o->parallel);
    const uint64_t half = measure_free_bytes() / 2;
    const uint64_t wanted = all < half ? all : half;
    return wanted > one ? wanted : one;
}

static int make_serving(server *s) {
    const server_options *o = s->o;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_serving_options opt;
    uint32_t prefix_tokens;
    pleat_engine_options engine = load_engine_options(&o->load, s->l, o->load.kv.spec[0], 0, s->n_ctx, 0);
    int code = service_prefix_tokens(&o->service, engine.chunk_tokens, engine.max_tokens, &prefix_tokens);
    if (code != CLI_OK) return code;
    service_set_engine(&o->service, o->parallel, &engine);
    if (!engine.pool_bytes) engine.pool_bytes = default_pool(s, &engine);
    code = load_engine_with(s->l, &engine, &s->engine);
    if (code != CLI_OK) return code;
    pleat_engine_get_options(s->engine, &engine);
    s->n_ctx = engine.max_tokens < s->n_ctx ? engine.max_tokens : s->n_ctx;
    service_set_serving(&o->service, prefix_tokens, &opt);
    opt.max_requests = o->parallel + o->queue;
    const pleat_status status = pleat_serving_create(s->engine, &opt, &s->serving, &err);
    return status == PLEAT_OK ? CLI_OK : cli_fail("cannot serve", status, &err);
}

static int fit_context(server *s) {
    const uint32_t n_train = s->l->info.n_ctx, wanted = s->o->ctx_size;
    s->n_ctx = wanted ? wanted : n_train;
    if (wanted <= n_train) return CLI_OK;
    cli_error("--ctx-size %u: the model's context is %u tokens", wanted, n_train);
    return CLI_FAILED;
}

static void note_chat_form(const server *s) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    if (s->o->common.quiet || pleat_model_chat_check(s->l->model, NULL, &err) == PLEAT_OK) return;
    cli_note("/v1/chat/completions will refuse: %s", err.text);
}

static void release(server *s) {
    pleat_serving_destroy(&s->serving);
    pleat_engine_destroy(&s->engine);
    keys_release(&s->keys);
    free(s->jobs);
}

int serve_main_command(void *opts) {
    server_options *o = opts;
    static const char *const default_specs[] = {"k8v4", NULL};
    loaded l;
    server s = {.o = o, .l = &l, .start_s = time(NULL)};
    int code = service_check(&o->service);
    options_default_specs(&o->load.kv, default_specs);
    if (code == CLI_OK) code = read_keys(&s);
    if (code == CLI_OK) code = load_model(&o->load, &o->common, &l);
    if (code != CLI_OK) {
        release(&s);
        return code;
    }
    memcpy(s.kv, o->load.kv.text[0], sizeof s.kv);
    s.n_jobs_max = o->parallel + o->queue;
    s.jobs = cli_alloc(s.n_jobs_max, sizeof *s.jobs);
    code = name_model(&s);
    if (code == CLI_OK) code = fit_context(&s);
    if (code == CLI_OK) code = make_serving(&s);
    if (code == CLI_OK) note_chat_form(&s);
    if (code == CLI_OK) code = server_run(&s);
    release(&s);
    load_release(&l);
    return code;
}
