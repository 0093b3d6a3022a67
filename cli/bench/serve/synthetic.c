/* SPDX-License-Identifier: MIT
 *
 * synthetic.c: see synthetic.h.
 */
#include "synthetic.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"
#include "cli/lib/measure.h"
#include "cli/lib/options.h"

/* What a preset fixes and KEY=VALUE changes. */
enum { PROMPT, OUTPUT, SHAPE, PREFIX, PREFIXES, SHARE, PRIORITIES, N_KEYS };
static const char *const keys[N_KEYS] = {"prompt", "output", "shape", "prefix", "prefixes", "share", "priorities"};
static const double least[N_KEYS] = {1, 1, 0, 0, 1, 0, 1};
static const double most[N_KEYS] = {TRACE_TOKENS_MAX, TRACE_TOKENS_MAX, 3, TRACE_TOKENS_MAX, 1e6, 1, 1e6};

typedef struct preset {
    const char *name;
    uint32_t n_requests;
    uint32_t n_ctx; /* that the lengths are made for */
    double v[N_KEYS];
} preset;

/*   chat           ShareGPT's conversations as vLLM's bench samples them (mean 225 in, 209 out), most of them behind one
 *                  system prompt of 96 tokens, which counts as input: 148 + 0.8 * 96
 *   sharegpt-vllm  the same lengths, 225 in and 209 out, and nothing shared: each factor of the mean is log-normal, its
 *                  logarithm of standard deviation 1, so that the median is 0.61 of the mean and one in a hundred 6.2
 *                  times as long
 *   sharegpt       all of ShareGPT: 161 in, 338 out (Kwon et al. 2023, figure 11)
 *   alpaca         19 in, 58 out (the same)
 *   longdoc        questions about long texts, each asked once
 *   shared-prefix  many short questions behind one long prefix
 *   fixed          every request alike */
static const preset presets[] = {
    /*                              prompt output shape prefix prefixes share priorities */
    {"chat", 128, 2048, {148, 209, 1.0, 96, 1, 0.8, 1}},
    {"sharegpt", 128, 2048, {161, 338, 1.0, 0, 1, 0, 1}},
    {"sharegpt-vllm", 128, 2048, {225, 209, 1.0, 0, 1, 0, 1}},
    {"alpaca", 256, 512, {19, 58, 0.8, 0, 1, 0, 1}},
    {"longdoc", 32, 4096, {2500, 150, 0.3, 0, 1, 0, 1}},
    {"shared-prefix", 64, 4096, {40, 64, 0.3, 2000, 1, 1, 1}},
    {"fixed", 64, 1024, {512, 128, 0, 0, 1, 0, 1}},
};
enum { N_PRESETS = sizeof presets / sizeof presets[0] };

/* ---- the text ---------------------------------------------------------------------------------- */

static int find_preset(const char *name, preset *out) {
    const char *names[N_PRESETS];
    for (int i = 0; i < N_PRESETS; i++) names[i] = presets[i].name;
    const uint32_t nearest = cli_nearest(name, names, N_PRESETS);
    *out = presets[nearest];
    if (!strcmp(names[nearest], name)) return 1;
    char hint[HINT_CAP];
    cli_error("--synthetic: '%s' is none of chat, sharegpt, sharegpt-vllm, alpaca, longdoc, shared-prefix, fixed%s",
              name, cli_hint(hint, "", name, names[nearest]));
    return 0;
}

/* Of "KEY=VALUE" the key's number, and VALUE; NULL where there is no such key or no value, which is reported. */
static const char *find_key(const char *word, uint32_t *number) {
    const char *equals = strchr(word, '=');
    char *key = cli_copy(word, equals ? (size_t)(equals - word) : strlen(word));
    const uint32_t k = cli_nearest(key, keys, N_KEYS);
    const int is_known = !strcmp(key, keys[k]);
    char hint[HINT_CAP];
    if (!strcmp(key, "requests") || !strcmp(key, "seed"))
        cli_error("--synthetic: '%s': that is an option of its own, --%s", word, key);
    else if (!is_known)
        cli_error("--synthetic: '%s': unknown key%s; there are prompt, output, shape, prefix, prefixes, share and "
                  "priorities",
                  word, cli_hint(hint, "", key, keys[k]));
    else if (!equals)
        cli_error("--synthetic: '%s' is no KEY=VALUE", word);
    free(key);
    *number = k;
    return is_known && equals ? equals + 1 : NULL;
}

/* One "KEY=VALUE".  *given gets the key's bit. */
static int set_key(const char *word, preset *p, uint32_t *given) {
    uint32_t k;
    char *end;
    const char *value = find_key(word, &k);
    if (!value) return 0;
    double v = options_decimal(value, &end);
    if (*end == '%' && k == SHARE) {
        v /= 100;
        end++;
    }
    const int is_number = (isdigit((unsigned char)value[0]) || value[0] == '.') && !*end;
    const int is_whole = k == SHAPE || k == SHARE || v == floor(v);
    if (!is_number || !is_whole || !(v >= least[k] && v <= most[k])) {
        cli_error("--synthetic: '%s': %s is a %snumber between %.10g and %.10g", word, keys[k],
                  k == SHAPE || k == SHARE ? "" : "whole ", least[k], most[k]);
        return 0;
    }
    if (*given & 1u << k) {
        cli_error("--synthetic: '%s': %s stands there twice", word, keys[k]);
        return 0;
    }
    p->v[k] = v;
    *given |= 1u << k;
    return 1;
}

static int parse(const char *text, preset *p, uint32_t *given) {
    char *copy = cli_copy(text, strlen(text)), *at = copy, *name = strsep(&at, ":");
    int ok = find_preset(name, p);
    for (char *word = strsep(&at, ","); word && ok; word = strsep(&at, ",")) ok = set_key(word, p, given);
    free(copy);
    return ok;
}

/* Shrink what the user did not give to the context. */
static void fit(preset *p, uint32_t given, uint32_t max_tokens) {
    static const int lengths[] = {PROMPT, OUTPUT, PREFIX};
    const double factor = (double)max_tokens / p->n_ctx;
    for (int i = 0; i < 3 && factor < 1; i++)
        if (!(given & 1u << lengths[i])) p->v[lengths[i]] = floor(p->v[lengths[i]] * factor);
}

/* Whether requests of the lengths wanted fit the context; presets do, until the user sets a length. */
static int check_lengths(const preset *p, uint32_t given, uint32_t max_tokens) {
    const int any_length = 1 << PROMPT | 1 << OUTPUT | 1 << PREFIX;
    const double prefix = p->v[SHARE] > 0 ? p->v[PREFIX] : 0;
    if (p->v[PREFIX] + 2 > max_tokens) {
        cli_error("--synthetic: prefix=%.0f leaves no room for a prompt in a context of %u tokens", p->v[PREFIX],
                  max_tokens);
        return 0;
    }
    if (!(given & any_length) || prefix + p->v[PROMPT] + p->v[OUTPUT] <= max_tokens) return 1;
    cli_error("--synthetic: prefix=%.0f, prompt=%.0f and output=%.0f are more than a context of %u tokens", prefix,
              p->v[PROMPT], p->v[OUTPUT], max_tokens);
    return 0;
}

/* ---- requests ---------------------------------------------------------------------------------- */

static double uniform(measure_rng *rng) { return measure_rng_next(rng) / 4294967296.0; }

static uint32_t pick(measure_rng *rng, uint32_t n) { return (uint32_t)(uniform(rng) * n); }

/* Factors of n lengths: log-normal, their mean just 1, so that short traces have the means wanted too (but for what
 * contexts cut off). */
static double *factors(measure_rng *rng, uint32_t n, double shape) {
    float *z = cli_alloc(n, sizeof *z);
    double *v = cli_alloc(n, sizeof *v), sum = 0;
    measure_rng_normal(rng, z, n);
    for (uint32_t i = 0; i < n; i++) sum += v[i] = exp(shape * (double)z[i]);
    for (uint32_t i = 0; i < n; i++) v[i] *= n / sum;
    free(z);
    return v;
}

/* A length in 1..top. */
static uint32_t length_of(double wanted, uint32_t top) {
    const double n = round(wanted);
    return n < 1 ? 1 : n > top ? top : (uint32_t)n;
}

static char *prefix_name(const preset *p, uint32_t i) {
    char name[64];
    const int n = snprintf(name, sizeof name, "%s-%u", p->name, i);
    return cli_copy(name, (size_t)n);
}

/* Tokens of its own and of its output, as wanted.  The same numbers are drawn for every request, whatever comes of them. */
static void add_request(trace *t, const preset *p, double own, double output, uint32_t max_tokens, uint32_t n_tenants,
                        measure_rng *rng) {
    const int is_shared = uniform(rng) < p->v[SHARE];
    const uint32_t prefix = pick(rng, (uint32_t)p->v[PREFIXES]), tenant = pick(rng, n_tenants ? n_tenants : 1);
    const int32_t priority = (int32_t)pick(rng, (uint32_t)p->v[PRIORITIES]);
    trace_request *r = trace_add(t);
    r->n_prefix = is_shared ? (uint32_t)p->v[PREFIX] : 0;
    r->n_prompt = r->n_prefix + length_of(own, max_tokens - 1 - r->n_prefix);
    r->n_output = length_of(output, max_tokens - r->n_prompt);
    r->prefix = r->n_prefix ? prefix_name(p, prefix) : NULL;
    r->tenant = tenant;
    r->priority = priority;
    r->line = t->n;
}

int synthetic_make(trace *t, const char *text, uint32_t n, uint32_t max_tokens, uint32_t n_tenants, uint64_t seed) {
    measure_rng rng = {seed};
    uint32_t given = 0;
    preset p;
    *t = (trace){0};
    if (!parse(text, &p, &given)) return CLI_USAGE;
    fit(&p, given, max_tokens);
    if (!check_lengths(&p, given, max_tokens)) return CLI_USAGE;
    if (!n) n = p.n_requests;
    double *own = factors(&rng, n, p.v[SHAPE]), *output = factors(&rng, n, p.v[SHAPE]);
    for (uint32_t i = 0; i < n; i++)
        add_request(t, &p, own[i] * p.v[PROMPT], output[i] * p.v[OUTPUT], max_tokens, n_tenants, &rng);
    free(own);
    free(output);
    return CLI_OK;
}
