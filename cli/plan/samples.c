/* SPDX-License-Identifier: MIT
 *
 * samples.c: see samples.h.
 *
 * The model reads the text's first tokens as prompts, an eighth of them, a quarter, half and all, --ctx at most.  What
 * lanes then keep of a token is a sample; beyond the longest one it is taken to stay so.
 */
#include "samples.h"

#include <stdlib.h>

#include "cli/lib/common.h"
#include "cli/lib/load.h"
#include "cli/lib/sample.h"

typedef struct reading {
    const plan_question *q;
    load_options load;
    loaded l;
    pleat_token *tokens;
    uint32_t n_tokens;
} reading;

static int read_text(reading *r, const char *path) {
    char *text = NULL;
    size_t n_bytes = 0;
    if (cli_read_file(CONTENT_TEXT, path, &text, &n_bytes) != CLI_OK) return CLI_FAILED;
    const int code = load_tokens(&r->l, path, text, n_bytes, PLEAT_TOKENIZE_ADD_BOS, &r->tokens, &r->n_tokens);
    free(text);
    if (code != CLI_OK) return code;
    if (r->n_tokens > r->q->n_tokens) r->n_tokens = r->q->n_tokens;
    if (r->n_tokens > r->l.info.n_ctx) r->n_tokens = r->l.info.n_ctx;
    if (r->n_tokens > 0) return CLI_OK;
    cli_error("--text %s: it has no token", path);
    return CLI_FAILED;
}

/* Prompts shorter than what the spec always keeps say nothing of the others. */
static int check_length(const reading *r, uint32_t spec, const char *path) {
    const pleat_spec *s = &r->load.kv.spec[spec];
    const uint32_t least = s->sinks + s->window + s->buffer + s->block;
    if (r->n_tokens > least) return CLI_OK;
    cli_error("--text %s: %u tokens are too few to measure --kv '%s', which keeps %u as they are", path, r->n_tokens,
              r->load.kv.text[spec], least);
    return CLI_FAILED;
}

static int measure_spec(const reading *r, uint32_t spec, pleat_forecast *f) {
    const load_options *o = &r->load;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_engine *engine = NULL;
    const int code = load_engine(o, &r->l, o->kv.spec[spec], 1, r->n_tokens, 0, &engine);
    if (code != CLI_OK) return code;
    const pleat_status status = sample_prompts(engine, r->tokens, r->n_tokens, o->chunk_tokens, f, &err);
    pleat_engine_destroy(&engine);
    return status == PLEAT_OK ? CLI_OK : cli_fail(o->kv.text[spec], status, &err);
}

int plan_measure(plan_options *o, const plan_question *q, pleat_forecast *out) {
    static reading r; /* large, and there is one */
    r = (reading){.q = q, .load = {.model = o->model, .chunk_tokens = DEFAULT_CHUNK_TOKENS, .kv = o->kv}};
    int code = load_model(&r.load, &o->common, &r.l);
    if (code != CLI_OK) return code;
    o->kv = r.load.kv;
    code = read_text(&r, o->text);
    for (uint32_t i = 0; i < o->kv.n && code == CLI_OK; i++) {
        out[i] = (pleat_forecast){.n_samples = 0};
        if (!plan_wants_text(q, &o->kv.spec[i])) continue;
        pleat_error err = {0, PLEAT_NOWHERE, ""};
        const pleat_status status = plan_forecast(q, &o->kv.spec[i], q->n_tokens, &out[i], &err);
        code = status == PLEAT_OK ? check_length(&r, i, o->text) : CLI_OK; /* else it is refused by name later */
        if (status == PLEAT_OK && code == CLI_OK) code = measure_spec(&r, i, &out[i]);
    }
    free(r.tokens);
    load_release(&r.l);
    return code;
}
