/* SPDX-License-Identifier: MIT
 *
 * serve.c: `pleat bench serve`: one trace of requests served under one KV spec after another, from a pool of the
 * same bytes: how many requests run at once, how fast tokens come, who waits and who is preempted.
 *
 *     requests   --trace FILE, or made up: --synthetic NAME
 *     served     by an engine on the model in real time, or by the scheduler alone in simulated time (--simulate)
 *
 * Requests that are wrong, or that could never run, are told with their line and counted; the others go on.
 */
#include <math.h>
#include <stdlib.h>

#include "cli/lib/common.h"
#include "cli/lib/interrupt.h"
#include "cli/lib/measure.h"
#include "cli/lib/progress.h"
#include "cli/lib/shape/archs.h"
#include "cli/lib/whole_file.h"
#include "serve.h"
#include "synthetic.h"

enum { SIMULATED_VOCAB = 32768 };

typedef struct bench {
    serve_setup setup;
    trace t;
    token_source tokens;
    pleat_token *text;     /* that made-up prompts are taken from; NULL: random tokens */
    serve_result *results; /* [kv.n] */
    output out;
} bench;

/* ---- options ----------------------------------------------------------------------------------- */

static int usage_error(const char *text) {
    cli_error("%s", text);
    return CLI_USAGE;
}

static int has_thresholds(const serve_options *o) {
    for (uint32_t i = 0; i < o->load.kv.n; i++)
        if (o->load.kv.spec[i].policy == PLEAT_POLICY_LEANKV) return 1;
    return 0;
}

/* What no row can say. */
static int check_options(const serve_options *o) {
    const float *price = o->prices.v, chunk = o->prices.n > 5 ? price[5] : 0;
    if (service_check(&o->service) != CLI_OK) return CLI_USAGE;
    if (o->prices.n && !(price[0] + price[1] + price[2] + price[3] + chunk > 0))
        return usage_error("--prices: all are 0, so that time would stand still");
    if (o->steady && o->rate > 0 && isfinite(o->rate))
        return usage_error("--steady lets requests come all at once: --rate is inf");
    if (o->fractions.n && o->fractions.n != o->load.kv.n) return usage_error("--fractions: one for each --kv");
    if ((o->ah_most > 0 || o->al_most > 0) && !has_thresholds(o))
        return usage_error("--ah-most and --al-most raise leankv's thresholds, and no --kv is leankv");
    return CLI_OK;
}

/* What would do nothing.  After the model, when profiles have been read. */
static int check_thresholds(const serve_options *o) {
    for (uint32_t i = 0; i < o->load.kv.n && (o->ah_most > 0 || o->al_most > 0); i++) {
        const pleat_spec *spec = &o->load.kv.spec[i];
        if (spec->policy != PLEAT_POLICY_LEANKV) {
            if (!o->common.quiet) cli_note("--ah-most and --al-most do nothing to %s", o->load.kv.text[i]);
            continue;
        }
        const float ah = o->ah_most > 0 ? o->ah_most : spec->ah, al = o->al_most > 0 ? o->al_most : spec->al;
        if (ah < spec->ah || al < spec->al || al > ah) {
            cli_error("--kv %s has ah=%g and al=%g: --ah-most and --al-most raise them, al up to ah at most",
                      o->load.kv.text[i], (double)spec->ah, (double)spec->al);
            return CLI_USAGE;
        }
    }
    return CLI_OK;
}

/* ---- the model, or what is known of one -------------------------------------------------------- */

static int find_arch(serve_setup *setup) {
    const serve_options *o = setup->o;
    const arch *found = archs_find(o->arch);
    if (!found) {
        char hint[HINT_CAP];
        cli_error("--arch '%s': not known%s; `pleat plan --arch list` shows all", o->arch,
                  cli_hint(hint, "", o->arch, archs_nearest(o->arch)));
        return CLI_USAGE;
    }
    if (found->why_not) {
        cli_error("--arch %s: %s", o->arch, found->why_not);
        return CLI_USAGE;
    }
    for (uint32_t i = 0; i < o->load.kv.n; i++)
        if (o->load.kv.spec[i].profile[0]) {
            cli_error("--kv: a profile belongs to a model: -m");
            return CLI_USAGE;
        }
    setup->n_layers = found->shape.n_layers;
    setup->n_kv_heads = found->shape.n_kv_heads;
    setup->n_q_heads = found->shape.n_q_heads;
    setup->head_dim = found->shape.head_dim;
    setup->window = found->shape.window;
    setup->n_windowed = found->shape.n_windowed;
    setup->max_tokens = found->shape.n_ctx;
    return CLI_OK;
}

/* The model of --shape, in the place of a file. */
static int make_model(serve_setup *setup) {
    serve_options *o = setup->o;
    model_shape sizes;
    int code = made_find_shape(o->shape, &sizes);
    if (code == CLI_OK) code = load_find_device(&o->load, &setup->l.n_devices, &setup->l.device);
    if (code == CLI_OK)
        code = made_build(&sizes, &weight_types[o->weights], o->load.kv.n, o->common.quiet, &setup->made);
    o->load.model = setup->made.name;
    o->load.image = setup->made.bytes;
    o->load.image_bytes = setup->made.n_bytes;
    o->load.ignores_shipped = 1;
    return code;
}

static int load_shape(serve_setup *setup) {
    if (setup->o->arch) return find_arch(setup);
    int code = setup->o->shape ? make_model(setup) : CLI_OK;
    if (code == CLI_OK) code = load_model(&setup->o->load, &setup->o->common, &setup->l);
    setup->n_layers = setup->l.info.n_layers;
    setup->n_kv_heads = setup->l.info.n_kv_heads;
    setup->n_q_heads = setup->l.info.n_q_heads;
    setup->head_dim = setup->l.info.head_dim;
    setup->window = setup->l.info.window;
    setup->n_windowed = setup->l.info.n_windowed;
    setup->max_tokens = setup->l.info.n_ctx;
    return code;
}

static int limit_context(serve_setup *setup) {
    const uint32_t asked = setup->o->ctx_size;
    if (asked > setup->max_tokens) {
        cli_error("--ctx-size %u: the model's context is %u", asked, setup->max_tokens);
        return CLI_FAILED;
    }
    if (asked) setup->max_tokens = asked;
    return CLI_OK;
}

/* What requests are served with, but for tenants and their number, which are not known yet. */
static int set_serving(serve_setup *setup) {
    const service_options *service = &setup->o->service;
    const int code =
        service_prefix_tokens(service, setup->o->load.chunk_tokens, setup->max_tokens, &setup->prefix_tokens);
    service_set_serving(service, setup->prefix_tokens, &setup->serving);
    return code;
}

/* ---- the trace --------------------------------------------------------------------------------- */

static int make_source(bench *b) {
    const serve_options *o = b->setup.o;
    const int has_model = b->setup.l.model != NULL;
    b->tokens = (token_source){.l = has_model ? &b->setup.l : NULL,
                               .n_vocab = has_model ? b->setup.l.info.n_vocab : SIMULATED_VOCAB,
                               .seed = o->seed};
    if (!o->text) return CLI_OK;
    char *text;
    size_t n_bytes;
    int code = cli_read_file(CONTENT_TEXT, o->text, &text, &n_bytes);
    if (code != CLI_OK) return code;
    code = load_tokens(&b->setup.l, o->text, text, n_bytes, 0, &b->text, &b->tokens.n_text);
    free(text);
    if (code == CLI_OK && !b->tokens.n_text) {
        cli_error("--text %s: empty", o->text);
        code = CLI_FAILED;
    }
    b->tokens.text = b->text;
    return code;
}

static int make_trace(bench *b) {
    const serve_options *o = b->setup.o;
    const tenant_list *tenants = &b->setup.tenants;
    const loaded *l = b->setup.l.model ? &b->setup.l : NULL;
    int code = o->trace ? trace_load(&b->t, o->trace, l, tenants, o->requests)
                        : synthetic_make(&b->t, o->synthetic, o->requests, b->setup.max_tokens, tenants->n, o->seed);
    if (code != CLI_OK) return code;
    if (o->rate > 0 || o->steady) trace_arrivals(&b->t, o->steady ? INFINITY : (double)o->rate, o->seed);
    if (!b->t.n) {
        cli_error("no request to serve");
        code = CLI_FAILED;
    }
    b->setup.max_requests = b->t.n;
    return code;
}

/* ---- all --------------------------------------------------------------------------------------- */

/* Files that cannot be written are refused before the work and not after it. */
static int check_files(const serve_options *o) {
    const char *const written[] = {o->svg, o->series, o->write_trace};
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++) {
        if (written[i] && whole_file_check(written[i]) != CLI_OK) return CLI_FAILED;
    }
    return CLI_OK;
}

static int prepare(bench *b, serve_options *o) {
    static const char *const default_specs[] = {"f16", NULL};
    options_default_specs(&o->load.kv, default_specs);
    load_for_serving(&o->load);
    b->setup.o = o;
    int code = check_options(o);
    if (code == CLI_OK) code = check_files(o);
    if (code == CLI_OK && o->tenants) code = tenants_parse(o->tenants, &b->setup.tenants);
    if (code == CLI_OK) code = load_shape(&b->setup);
    if (code == CLI_OK) code = check_thresholds(o);
    if (code == CLI_OK) code = limit_context(&b->setup);
    if (code == CLI_OK) code = set_serving(&b->setup);
    if (code == CLI_OK) code = store_open(&o->store, o->common.quiet, &b->setup.store);
    if (code == CLI_OK) code = make_source(b);
    if (code == CLI_OK) code = make_trace(b);
    if (code == CLI_OK) code = output_open(&b->out, &o->common);
    if (code != CLI_OK) return code;
    b->results = cli_alloc(o->load.kv.n, sizeof *b->results);
    return CLI_OK;
}

/* How fast simulated time went: talk, since it is not the same twice. */
static void note_speed(const bench *b, const serve_result *r, double seconds) {
    const serve_options *o = b->setup.o;
    const int is_long = r->duration_s > 86400;
    if (o->common.quiet || !o->simulate) return;
    cli_note("%u requests, %.6g simulated %s in %.2f s", r->n_completed, r->duration_s / (is_long ? 86400 : 1),
             is_long ? "days" : "seconds", seconds);
}

/* Ctrl-C: all figures are of whole replays. */
static void say_interrupted(const bench *b, uint32_t spec) {
    const serve_options *o = b->setup.o;
    cli_error("interrupted after %u of %u requests under %s: nothing is kept, since figures are of whole runs; "
              "--requests N serves fewer",
              b->results[spec].n_ended, b->t.n, o->load.kv.text[spec]);
}

static int serve_spec(bench *b, uint32_t spec) {
    serve_target target;
    serve_result *r = &b->results[spec];
    int code = serve_target_init(&target, &b->setup, spec);
    const double start_s = measure_now_s();
    if (code == CLI_OK) code = serve_replay(&b->setup, &b->t, &b->tokens, &target, b->setup.o->load.kv.text[spec], r);
    if (code == CLI_OK) note_speed(b, r, measure_now_s() - start_s);
    if (code == CLI_INTERRUPTED) say_interrupted(b, spec);
    serve_target_release(&target);
    return code;
}

/* A spec whose pages are too large for some requests serves the others only, and these may be cheaper. */
static void note_rejected(const bench *b) {
    const serve_options *o = b->setup.o;
    const serve_result *r = b->results;
    for (uint32_t spec = 1; spec < o->load.kv.n && !o->common.quiet; spec++)
        if (r[spec].n_rejected != r[0].n_rejected) {
            cli_note("%s rejected %u requests, %s %u: they did not serve the same requests, so their figures do not "
                     "compare; a larger --pool-bytes takes more of them",
                     o->load.kv.text[0], r[0].n_rejected, o->load.kv.text[spec], r[spec].n_rejected);
            return;
        }
}

static int serve_all(bench *b) {
    const serve_options *o = b->setup.o;
    uint64_t n_served = 0; /* tokens */
    int code = CLI_OK;
    interrupt_catch();
    for (uint32_t spec = 0; spec < o->load.kv.n && code == CLI_OK; spec++) {
        progress_part(spec, o->load.kv.n);
        code = serve_spec(b, spec);
        n_served += b->results[spec].output_tokens;
    }
    progress_part(0, 0);
    if (code == CLI_OK) note_rejected(b);
    if (code == CLI_OK && !n_served) {
        cli_error(o->seconds > 0 ? "no request had a token when --seconds were over: give more"
                                 : "no request was served");
        code = CLI_FAILED;
    }
    return code;
}

int serve_main(void *opts) {
    serve_options *o = opts;
    bench b = {.text = NULL};
    int code = prepare(&b, o);
    if (code == CLI_OK) code = serve_all(&b);
    whole_file_hold();
    if (code == CLI_OK) serve_write_rows(&b.setup, &b.t, b.results, &b.out);
    if (code == CLI_OK && o->write_trace) code = trace_write(&b.t, &b.setup.tenants, o->write_trace);
    if (code == CLI_OK && o->series) code = serve_write_series(&b.setup, b.results, o->series);
    if (code == CLI_OK && o->svg) code = serve_write_figure(&b.setup, b.results, o->svg);
    const int closed = output_close(&b.out);
    code = whole_file_commit(code == CLI_OK ? closed : code);
    pleat_store_close(&b.setup.store);
    free(b.results);
    free(b.text);
    trace_release(&b.t);
    tenants_release(&b.setup.tenants);
    load_release(&b.setup.l);
    made_release(&b.setup.made);
    return code;
}
