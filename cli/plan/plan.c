/* SPDX-License-Identifier: MIT
 *
 * plan.c: `pleat plan`: what each KV spec would take and read, before anything runs.
 *
 *     -m GGUF | --arch NAME | --config FILE ──> shape, weights ──┐
 *     --text ──> samples.c ──────────────────────────────────────┤
 *     --ctx, --batch, --kv, what the device is ──────────────────┴──> figures.c ──> rows, answer.c ──> words
 *
 * Nothing is guessed, and nothing but --text is measured: a figure that wants a number which was not given is null, and
 * the option that gives it is named.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"
#include "cli/lib/hub/hub.h"
#include "cli/lib/shape/archs.h"
#include "cli/lib/shape/hf_config.h"
#include "cli/lib/shape/weight_types.h"
#include "print.h"
#include "samples.h"

/* ---- options ----------------------------------------------------------------------------------- */

#define AT(field) .offset = offsetof(plan_options, field)
/* clang-format off */
static const option_row rows[] = {
    {GROUP_MACHINE, "model", "m", "FILE", "GGUF model", KIND_INPUT, AT(model), .excludes = "arch config",
     .because = "give one model"},
    HUB_ROWS("model arch config"),
    CPU_MASK_ROW(plan_options),
    {GROUP_MACHINE, "arch", NULL, "NAME", "a known model in place of a file; list: which there are",
     KIND_TEXT, AT(arch), .words = arch_names, .excludes = "config", .because = "give one model"},
    {GROUP_MACHINE, "config", NULL, "FILE", "a HuggingFace config.json in place of a model (-: stdin)", KIND_INPUT, AT(config)},
    {GROUP_MACHINE, "weights", NULL, "WHAT", "f16, q8_0, q4_k, ... or bytes, as 4.9GB (default: the file's, or as published)",
     KIND_TEXT, AT(weights), .words = weight_type_names},
    {GROUP_MACHINE, "device-bytes", NULL, "BYTES", "memory for weights and caches, as 80GiB (default: not said)",
     KIND_BYTES, AT(device_bytes), 1, 0x1p62},
    {GROUP_MACHINE, "bandwidth", NULL, "BYTES", "that memory's, bytes/s, as 2TB (default: not said)",
     KIND_BYTES, AT(bandwidth), 1, 0x1p62},
    {GROUP_MACHINE, "swap-bandwidth", NULL, "BYTES", "that of the way to the host, bytes/s (default: not said)",
     KIND_BYTES, AT(swap_bandwidth), 1, 0x1p62},
    {GROUP_MACHINE, "prefill", NULL, "X", "speed of reading a prompt, tokens/s (default: not said)",
     KIND_F32, AT(prefill), 1e-3, 1e9},
    {GROUP_CACHE, "kv", NULL, "SPEC", "how the cache is kept; repeat to compare (default \"f16 k8v8 k8v4 k4v4 k4v2\")",
     KIND_SPECS, AT(kv), .words = option_spec_names},
    {GROUP_CACHE, "fraction", NULL, "X", "part of f16's bytes that leankv, topk or kvcomp holds, as eval measured it",
     KIND_F32, AT(fraction), 1e-6, 1e3, .excludes = "text", .because = "both say what the text decides"},
    {GROUP_CACHE, "text", NULL, "FILE", "text to measure on the model what leankv, topk or kvcomp holds of it",
     KIND_INPUT, AT(text), .needs = "model", .because = "it is the model that is run on it"},
    {GROUP_SHAPE, "ctx", NULL, "N", "tokens stored in each sequence (default: the model's context)",
     KIND_U32, AT(ctx), 1, 16777216},
    {GROUP_SHAPE, "ctx-size", "c", "N", "tokens that a sequence is opened for (default: --ctx)",
     KIND_U32, AT(ctx_size), 1, 16777216},
    {GROUP_SHAPE, "batch", NULL, "N", "sequences at once (default 1)", KIND_U32, AT(n_seqs), 1, 65536},
    {GROUP_SHAPE, "shared", NULL, "N", "first tokens of all sequences that a kept prefix holds once (default 0)",
     KIND_U32, AT(n_shared), 0, 16777215},
    {GROUP_SHAPE, "n-predict", "n", "N", "of --ctx tokens, those that a request generates (default: not said)",
     KIND_I32, AT(n_predict), 0, 16777216},
    COMMON_ROWS(plan_options),
};
/* clang-format on */

static const option_demand demands[] = {
    {"model arch config", "no model: give -m FILE.gguf, --arch NAME (`--arch list` shows them) or --config FILE"},
};

static void set_defaults(void *opts) {
    plan_options *o = opts;
    o->n_seqs = 1;
    o->n_predict = -1;
}

/* ---- the model --------------------------------------------------------------------------------- */

static int take_arch(plan *p, const char *name) {
    const arch *a = archs_find(name);
    if (!a) {
        char hint[HINT_CAP];
        cli_error("--arch '%s': no such model is known%s (`pleat plan --arch list` shows all); a config.json also "
                  "serves: --config FILE",
                  name, cli_hint(hint, "", name, archs_nearest(name)));
        return CLI_USAGE;
    }
    if (a->why_not) {
        cli_error("--arch %s: not supported: it %s", name, a->why_not);
        return CLI_FAILED;
    }
    p->source = a->source;
    p->q.shape = a->shape;
    snprintf(p->q.shape.name, sizeof p->q.shape.name, "%s", name);
    shape_count_params(&p->q.shape);
    return CLI_OK;
}

static int take_config(plan *p, const char *path) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    char *text = NULL;
    size_t n = 0;
    p->source = path;
    if (cli_read_file(CONTENT_CONFIG, path, &text, &n) != CLI_OK) return CLI_FAILED;
    const pleat_status status = hf_config_parse(text, n, &p->q.shape, &err);
    free(text);
    return status == PLEAT_OK ? CLI_OK : cli_fail(path, status, &err);
}

/* *file: what the tensors weigh. */
static int take_gguf(plan *p, const char *path, plan_weights *file) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_gguf *gguf = NULL;
    gguf_weights w;
    p->source = path;
    pleat_status status = pleat_gguf_open(path, NULL, &gguf, &err);
    if (status == PLEAT_OK) status = gguf_shape_read(gguf, &p->q.shape, &w, &err);
    pleat_gguf_close(&gguf);
    if (status != PLEAT_OK) return cli_fail(path, status, &err);
    const uint32_t n_experts = p->q.shape.n_experts;
    *file = (plan_weights){.bytes = w.bytes,
                           .lookup = w.lookup,
                           .expert = n_experts ? w.experts / n_experts : 0,
                           .n_experts = n_experts,
                           .n_experts_used = p->q.shape.n_experts_used,
                           .what = "of the file"};
    return CLI_OK;
}

/* --weights: a format, or bytes; without it what is published, or the file's (bytes 0: there is none). */
static int take_weights(plan *p, const char *text, const plan_weights *file) {
    plan_question *q = &p->q;
    uint64_t bytes;
    if (!text) {
        q->weights = *file;
        if (!q->weights.bytes && q->shape.n_params) plan_weigh(&q->shape, "", &q->weights);
        return CLI_OK;
    }
    if (text[0] && plan_weigh(&q->shape, text, &q->weights)) {
        if (!q->shape.n_params) {
            cli_error("--weights %s: %s does not say how many parameters there are; give bytes", text, p->source);
            return CLI_FAILED;
        }
        if (file->bytes) plan_weigh_as(&q->shape, q->weights.bytes, file, &q->weights);
        snprintf(q->weights.what, sizeof q->weights.what, "%s", text);
        return CLI_OK;
    }
    if (!options_bytes(text, &bytes) || bytes == 0 || bytes >= PLAN_MAX) {
        cli_error("--weights: '%s' is none of " WEIGHT_TYPES_LISTED "nor bytes as 16000000000 or 15GiB", text);
        return CLI_USAGE;
    }
    plan_weigh_as(&q->shape, bytes, file, &q->weights);
    return CLI_OK;
}

static int take_model(plan *p) {
    const plan_options *o = p->o;
    plan_weights file = {.bytes = 0};
    const int code = o->arch     ? take_arch(p, o->arch)
                     : o->config ? take_config(p, o->config)
                                 : take_gguf(p, o->model, &file);
    return code == CLI_OK ? take_weights(p, o->weights, &file) : code;
}

/* ---- the question ------------------------------------------------------------------------------ */

static int check_specs(const plan *p) {
    const plan_options *o = p->o;
    int n_varying = 0;
    for (uint32_t i = 0; i < o->kv.n; i++) {
        const pleat_spec *spec = &o->kv.spec[i];
        n_varying += plan_wants_text(&p->q, spec);
        if (spec->policy == PLEAT_POLICY_KVZIP) {
            cli_error(
                "--kv '%s': kvzip drops tokens when a prompt has been read twice, which `pleat plan` does not count",
                o->kv.text[i]);
            return CLI_USAGE;
        }
        if (spec->profile[0]) {
            cli_error(
                "--kv '%s': what a profile saves depends on the text; give -m FILE and --text FILE to measure it, "
                "or --kv leankv and, as --fraction, what `pleat eval` measured",
                o->kv.text[i]);
            return CLI_USAGE;
        }
        if (p->q.shape.n_ctx && pleat_cache_least_tokens(spec) > p->q.shape.n_ctx) {
            cli_error("--kv '%s': its window or budget is longer than the model's context of %u tokens", o->kv.text[i],
                      p->q.shape.n_ctx);
            return CLI_FAILED;
        }
    }
    if (o->fraction == 0 || n_varying) return CLI_OK;
    cli_error(
        "--fraction is for specs whose bytes depend on the text, as leankv and kvcomp; those of others are known");
    return CLI_USAGE;
}

static int take_question(plan *p) {
    const plan_options *o = p->o;
    plan_question *q = &p->q;
    q->n_tokens = o->ctx ? o->ctx : q->shape.n_ctx;
    q->max_tokens = o->ctx_size ? o->ctx_size : q->n_tokens;
    q->n_seqs = o->n_seqs;
    q->n_shared = o->n_shared;
    q->device_bytes = o->device_bytes;
    q->bytes_per_s = o->bandwidth;
    q->swap_bytes_per_s = o->swap_bandwidth;
    q->prompt_tokens_per_s = (double)o->prefill;
    q->fraction = (double)o->fraction;
    q->n_generated = o->n_predict;
    if (q->n_tokens == 0 || q->n_tokens > 1u << 24) {
        cli_error("no context: give --ctx N, the tokens stored in each sequence, 1 to 16777216");
        return CLI_USAGE;
    }
    if (q->max_tokens < q->n_tokens) {
        cli_error("--ctx-size %u is shorter than --ctx %u", q->max_tokens, q->n_tokens);
        return CLI_USAGE;
    }
    if (q->n_generated > (int32_t)q->n_tokens) {
        cli_error("--n-predict %d are more tokens than --ctx %u", q->n_generated, q->n_tokens);
        return CLI_USAGE;
    }
    const uint32_t n_stored = q->n_generated > 0 ? (uint32_t)q->n_generated - 1 : 0; /* all but the last */
    if (q->n_shared > 0 && q->n_shared + 1 + n_stored > q->n_tokens) {
        cli_error("--shared %u leaves nothing of a prompt of --ctx %u tokens%s", q->n_shared, q->n_tokens,
                  n_stored ? " less --n-predict" : "");
        return CLI_USAGE;
    }
    if (q->shape.n_ctx && q->max_tokens > q->shape.n_ctx && !o->common.quiet)
        cli_note("%u tokens are more than the model's context of %u", q->max_tokens, q->shape.n_ctx);
    return CLI_OK;
}

static int fill_rows(plan *p) {
    const pleat_spec plain = {.high = {16, 16}};
    plan_row f16;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_status status = plan_fill(&p->q, &plain, NULL, &f16, &err);
    if (status != PLEAT_OK) return cli_fail(p->source, status, &err);
    for (uint32_t i = 0; i < p->o->kv.n; i++) {
        const pleat_spec *spec = &p->o->kv.spec[i];
        status = plan_fill(&p->q, spec, p->o->text ? &p->samples[i] : NULL, &p->rows[i], &err);
        if (status == PLEAT_E_UNSUPPORTED) cli_error("--kv '%s': %s", p->o->kv.text[i], err.text);
        if (status == PLEAT_E_UNSUPPORTED) return CLI_USAGE;
        if (status != PLEAT_OK) return cli_fail(p->o->kv.text[i], status, &err);
        p->is_worth[i] = plan_answer(&p->q, spec, &p->rows[i], &f16, p->answers[i]);
    }
    return CLI_OK;
}

/* ---- the command ------------------------------------------------------------------------------- */

static int run(void *opts) {
    static plan p; /* large, and there is one */
    plan_options *o = opts;
    if (o->arch && !strcmp(o->arch, "list")) return plan_print_archs(&o->common);
    options_default_specs(&o->kv, option_plain_specs);
    p.o = o;
    int code = take_model(&p);
    if (code == CLI_OK) code = take_question(&p);
    if (code == CLI_OK && o->text) code = plan_measure(o, &p.q, p.samples);
    if (code == CLI_OK) code = check_specs(&p);
    if (code == CLI_OK) code = fill_rows(&p);
    return code == CLI_OK ? plan_print(&p) : code;
}

const command plan_command = {
    .name = "plan",
    .help = "bytes, bandwidth and preemption of KV specs for a model, before it runs",
    .usage = "(-m MODEL | --arch NAME | --config FILE) [--ctx N] [--batch N] [--kv SPEC]... [--device-bytes B]",
    .about = "Reckons what KV specs would hold and read for a model and a load, whether they fit a device, what "
             "preemption would cost, and whether a spec is worth it.  Nothing is guessed, and what the text decides is "
             "measured on one, taken from --fraction, or refused.",
    ROWS_OF(rows),
    DEMANDS_OF(demands),
    .options_bytes = sizeof(plan_options),
    .set_defaults = set_defaults,
    .run = run,
};
