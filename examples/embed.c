/* SPDX-License-Identifier: MIT
 *
 * embed.c: a compressed KV cache inside an engine of your own.
 *
 *     embed [KV-SPEC]        how keys and values are kept (include/pleat/spec.h); k8v4 where none is named
 *
 * Random queries, keys and values stand where your model's layers go.  A prompt passes the cache in one step, then one
 * token a step.  The last token's attention is compared with plain attention over the exact keys and values.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <pleat/cache.h>

enum { LAYERS = 4, Q_HEADS = 8, KV_HEADS = 2, HEAD_DIM = 64, PROMPT = 500, MAX_TOKENS = 600 };
enum { GROUP = Q_HEADS / KV_HEADS, Q_ROW = Q_HEADS * HEAD_DIM, KV_ROW = KV_HEADS * HEAD_DIM };

static float q[PROMPT * Q_ROW], out[PROMPT * Q_ROW];         /* a row for each new token of a step */
static float k[MAX_TOKENS * KV_ROW], v[MAX_TOKENS * KV_ROW]; /* the last layer's, to compare with */
static pleat_error err;                                      /* says what is wrong where a status alone does not */

static void must(pleat_status status) {
    if (status == PLEAT_OK) return;
    fprintf(stderr, "embed: %s\n", err.text[0] ? err.text : pleat_status_str(status));
    exit(1);
}

static void fill_randomly(float *x, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) x[i] = 2.0f * (float)rand() / (float)RAND_MAX - 1.0f;
}

/* Put n new tokens of a sequence through all layers. */
static void run_step(pleat_cache *cache, pleat_seq seq, uint32_t n) {
    const pleat_cache_item item = {.seq = seq, .n_tokens = n}; /* a step may hold items of many sequences */
    const uint32_t at = pleat_cache_length(cache, seq) * KV_ROW;
    must(pleat_cache_begin(cache, &item, 1)); /* takes the pages; PLEAT_AGAIN where too few are free now */
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        fill_randomly(q, n * Q_ROW);
        fill_randomly(k + at, n * KV_ROW);
        fill_randomly(v + at, n * KV_ROW);
        must(pleat_cache_attend(cache, layer, q, k + at, v + at, out)); /* stores k and v; out is the attention */
    }
    must(pleat_cache_end(cache));
}

/* How far the last token's output is from plain attention, relative to its size. */
static double error_of_last_token(void) {
    double weights[MAX_TOKENS], difference = 0, size = 0;
    for (uint32_t head = 0; head < Q_HEADS; head++) {
        const uint32_t at = head / GROUP * HEAD_DIM; /* of the KV head that this query head reads */
        double total = 0;
        for (uint32_t t = 0; t < MAX_TOKENS; t++) {
            double dot = 0;
            for (uint32_t i = 0; i < HEAD_DIM; i++) dot += q[head * HEAD_DIM + i] * k[t * KV_ROW + at + i];
            total += weights[t] = exp(dot / sqrt(HEAD_DIM));
        }
        for (uint32_t i = 0; i < HEAD_DIM; i++) {
            double exact = 0;
            for (uint32_t t = 0; t < MAX_TOKENS; t++) exact += weights[t] / total * v[t * KV_ROW + at + i];
            difference += pow(exact - out[head * HEAD_DIM + i], 2);
            size += pow(exact, 2);
        }
    }
    return sqrt(difference / size);
}

int main(int argc, char **argv) {
    pleat_cache *cache = NULL;
    pleat_cache_options options;
    pleat_cache_usage usage;
    pleat_seq seq;
    pleat_cache_options_default(&options);
    must(pleat_spec_parse(argc > 1 ? argv[1] : "k8v4", &options.spec, &err));
    options.n_layers = LAYERS;
    options.n_q_heads = Q_HEADS;
    options.n_kv_heads = KV_HEADS;
    options.head_dim = HEAD_DIM;
    options.max_tokens = MAX_TOKENS;
    must(pleat_cache_create(&options, &cache, &err)); /* takes all pages and workspace that steps need */
    must(pleat_cache_open(cache, MAX_TOKENS, &seq));
    run_step(cache, seq, PROMPT);
    while (pleat_cache_length(cache, seq) < MAX_TOKENS) run_step(cache, seq, 1);
    must(pleat_cache_get_usage(cache, seq, &usage));
    printf("%d tokens in %llu bytes, %.1f %% of f16's; attention is off by %.4f of its size\n", MAX_TOKENS,
           (unsigned long long)usage.bytes, 100.0 * (double)usage.bytes / (double)usage.bytes_f16,
           error_of_last_token());
    pleat_cache_destroy(&cache);
    return 0;
}
