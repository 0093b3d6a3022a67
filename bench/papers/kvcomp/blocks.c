/* SPDX-License-Identifier: MIT
 *
 * blocks.c: what blocks of a model's own keys and values become: bytes of each kind, codes, errors.  Prints JSON.
 *
 *     kvcomp_blocks MODEL TEXT CONTEXTS WINDOWS SPEC...
 *
 * The first WINDOWS pieces of TEXT, of as many tokens as the longest of CONTEXTS (1024,2048; multiples of 256), are read
 * with an f16 cache; a shorter context is the beginning of each.  What it holds then is compressed as a cache would at
 * the prompt's end: codebooks of each layer from all blocks of its KV heads.  A row for each SPEC (kvcomp or kivi) and
 * context, summed over windows, layers and heads:
 *
 *     values       numbers in the keys, and as many in the values
 *     blocks, codebooks  payloads; bytes of codebooks as held for decoding, one for keys and one for values a layer and window
 *     bytes        of payloads by kind (pleat_codec_parts)
 *     k, v         error    rms of what comes back less what went in, over rms of what went in; mean over layers
 *                  worst    largest error of a value over the largest magnitude in its layer
 *                  entropy  of codes, bits each, mean over layers and windows
 *                  codes    [layer][code] how often
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pleat/pleat.h"

enum { CHUNK = 512, LEVELS = 256, MAX_CONTEXTS = 8, KEYS = 0, VALUES = 1 };

/* Keys or values of a window. */
typedef struct matrix {
    float *x;          /* [layer][KV head][longest context][head_dim] */
    float *one, *back; /* the beginnings of a layer's lanes, one behind the other; a block decoded */
} matrix;

/* Of keys or values, for one spec and context. */
typedef struct tally {
    uint64_t *codes;                        /* [layer][LEVELS] */
    double *error, *size, *worst, *largest; /* [layer] sums of squares; magnitudes */
    double entropy;                         /* summed over layers and windows */
} tally;

typedef struct row {
    const char *text;
    pleat_codec *codec;
    uint32_t block_tokens, context;
    uint64_t n_values, n_blocks, codebook_bytes;
    pleat_codec_parts parts;
    tally t[2];
} row;

typedef struct study {
    pleat_model *model;
    pleat_model_info info;
    pleat_engine *engine;
    pleat_token *tokens;
    uint32_t n_tokens, n_windows, longest;
    uint32_t contexts[MAX_CONTEXTS], n_contexts;
    matrix m[2];
    uint8_t *payload, *codes;
    uint64_t payload_cap;
    row *rows;
    uint32_t n_rows;
} study;

static void die(const char *what, pleat_status status, const char *why) {
    fprintf(stderr, "kvcomp_blocks: %s: %s%s%s\n", what, pleat_status_str(status), why && *why ? ": " : "",
            why ? why : "");
    exit(1);
}

static void must(pleat_status status, const char *what) {
    if (status != PLEAT_OK) die(what, status, NULL);
}

static void *zeros(size_t n, size_t size) {
    void *p = calloc(n, size);
    if (!p) die("memory", PLEAT_E_MEMORY, NULL);
    return p;
}

/* ---- input ------------------------------------------------------------------------------------- */

/* The text's first tokens, as many as are wanted. */
static void read_text(study *s, const char *path, uint32_t n_wanted) {
    const size_t cap = (size_t)n_wanted * 16; /* bytes that have so many tokens, if they are words */
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    FILE *f = fopen(path, "rb");
    if (!f) die(path, PLEAT_E_IO, NULL);
    char *text = zeros(cap, 1);
    size_t n = fread(text, 1, cap, f);
    fclose(f);
    while (n == cap && n && ((unsigned char)text[n - 1] & 0x80)) n--; /* not inside a character */
    s->tokens = zeros(n + 1, sizeof *s->tokens);
    const pleat_status status = pleat_model_tokenize(s->model, text, n, 0, s->tokens, (uint32_t)n, &s->n_tokens, &err);
    if (status != PLEAT_OK) die(path, status, err.text);
    if (s->n_tokens < n_wanted) die(path, PLEAT_E_LIMIT, "too short for so many windows");
    free(text);
}

static void read_contexts(study *s, const char *text) {
    for (char *end; *text; text = *end ? end + 1 : end) {
        const unsigned long n = strtoul(text, &end, 10);
        if (end == text || !n || n % 256 || n > s->info.n_ctx || s->n_contexts == MAX_CONTEXTS)
            die(text, PLEAT_E_ARG, "contexts are multiples of 256 within the model's");
        s->contexts[s->n_contexts++] = (uint32_t)n;
        if (n > s->longest) s->longest = (uint32_t)n;
    }
}

static void make_engine(study *s) {
    pleat_engine_options opt;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_engine_options_default(&opt);
    opt.max_tokens = s->longest;
    opt.chunk_tokens = CHUNK;
    must(pleat_spec_parse("f16", &opt.spec, NULL), "f16");
    const pleat_status status = pleat_engine_create(s->model, &opt, &s->engine, &err);
    if (status != PLEAT_OK) die("engine", status, err.text);
}

static uint32_t n_lanes(const study *s) { return s->info.n_layers * s->info.n_kv_heads; }

static void add_row(study *s, const char *text, uint32_t context) {
    row *r = &s->rows[s->n_rows++];
    pleat_spec spec;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_status status = pleat_spec_parse(text, &spec, &err);
    if (status == PLEAT_OK) status = pleat_codec_create(&spec, s->info.head_dim, NULL, &r->codec, &err);
    if (status != PLEAT_OK) die(text, status, err.text);
    r->text = text;
    r->context = context;
    r->block_tokens = pleat_codec_block_tokens(r->codec);
    for (int i = 0; i < 2; i++) {
        tally *t = &r->t[i];
        t->codes = zeros((size_t)s->info.n_layers * LEVELS, sizeof *t->codes);
        t->error = zeros(4 * s->info.n_layers, sizeof *t->error);
        t->size = t->error + s->info.n_layers;
        t->worst = t->size + s->info.n_layers;
        t->largest = t->worst + s->info.n_layers;
    }
    const uint64_t cap = pleat_codec_payload_cap(r->codec);
    if (cap > s->payload_cap) s->payload_cap = cap;
}

/* ---- one window -------------------------------------------------------------------------------- */

static void read_window(study *s, const pleat_token *tokens) {
    pleat_seq seq;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    must(pleat_engine_open(s->engine, s->longest, &seq), "opening");
    for (uint32_t done = 0, now; done < s->longest; done += now) {
        now = s->longest - done < CHUNK ? s->longest - done : CHUNK;
        const pleat_engine_item item = {.seq = seq,
                                        .tokens = tokens + done,
                                        .n_tokens = now,
                                        .flags = done + now < s->longest ? PLEAT_ITEM_MORE : 0};
        const pleat_status status = pleat_engine_step(s->engine, &item, 1, &err);
        if (status != PLEAT_OK) die("a step", status, err.text);
    }
    for (uint32_t lane = 0; lane < n_lanes(s); lane++) {
        const size_t at = (size_t)lane * s->longest * s->info.head_dim;
        must(pleat_cache_export(pleat_engine_cache(s->engine), seq, lane / s->info.n_kv_heads,
                                lane % s->info.n_kv_heads, 0, s->longest, s->m[KEYS].x + at, s->m[VALUES].x + at),
             "reading a lane");
    }
    must(pleat_engine_close(s->engine, seq), "closing");
}

/* The first `context` tokens of each of the layer's lanes, to `one`. */
static void gather(study *s, uint32_t layer, uint32_t context) {
    const size_t d = s->info.head_dim;
    for (int i = 0; i < 2; i++)
        for (uint32_t head = 0; head < s->info.n_kv_heads; head++)
            memcpy(s->m[i].one + head * context * d,
                   s->m[i].x + ((size_t)layer * s->info.n_kv_heads + head) * s->longest * d,
                   context * d * sizeof(float));
}

static void compare(tally *t, uint32_t layer, const float *x, const float *back, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const double v = (double)x[i], off = fabs((double)back[i] - v);
        t->error[layer] += off * off;
        t->size[layer] += v * v;
        if (!isnan(t->worst[layer]) && !(off <= t->worst[layer])) t->worst[layer] = off;
        if (fabs(v) > t->largest[layer]) t->largest[layer] = fabs(v);
    }
}

static void add_parts(pleat_codec_parts *sum, const pleat_codec_parts *parts) {
    sum->header_bytes += parts->header_bytes;
    sum->k_unit_bytes += parts->k_unit_bytes;
    sum->v_unit_bytes += parts->v_unit_bytes;
    sum->order_bytes += parts->order_bytes;
    sum->k_code_bytes += parts->k_code_bytes;
    sum->v_code_bytes += parts->v_code_bytes;
}

static void compress_block(study *s, row *r, uint32_t layer, const float *k, const float *v) {
    const size_t n = (size_t)r->block_tokens * s->info.head_dim;
    const float *const x[2] = {k, v};
    pleat_codec_parts parts;
    uint64_t n_bytes;
    must(pleat_codec_quantise(r->codec, k, v, s->codes), "quantising");
    for (size_t i = 0; i < 2 * n; i++) r->t[i / n].codes[layer * LEVELS + s->codes[i]]++;
    must(pleat_codec_encode(r->codec, k, v, s->payload, s->payload_cap, &n_bytes), "encoding");
    must(pleat_codec_get_parts(r->codec, s->payload, n_bytes, &parts), "a payload's parts");
    add_parts(&r->parts, &parts);
    must(pleat_codec_decode(r->codec, s->payload, n_bytes, s->m[KEYS].back, s->m[VALUES].back), "decoding");
    for (int i = 0; i < 2; i++) compare(&r->t[i], layer, x[i], s->m[i].back, n);
    r->n_blocks++;
    r->n_values += n;
}

static void compress_layer(study *s, row *r, uint32_t layer) {
    const uint32_t n_blocks = s->info.n_kv_heads * (r->context / r->block_tokens);
    const size_t n = (size_t)r->block_tokens * s->info.head_dim;
    double bits[2];
    gather(s, layer, r->context);
    must(pleat_codec_train(r->codec, s->m[KEYS].one, s->m[VALUES].one, n_blocks), "making codebooks");
    pleat_codec_entropy(r->codec, &bits[KEYS], &bits[VALUES]);
    for (int i = 0; i < 2; i++) r->t[i].entropy += bits[i];
    r->codebook_bytes += pleat_codec_codebook_bytes(r->codec);
    for (uint32_t i = 0; i < n_blocks; i++)
        compress_block(s, r, layer, s->m[KEYS].one + i * n, s->m[VALUES].one + i * n);
}

/* ---- output ------------------------------------------------------------------------------------ */

static void print_tally(const study *s, const char *name, const tally *t) {
    double error = 0, worst = 0;
    for (uint32_t i = 0; i < s->info.n_layers; i++) {
        error += sqrt(t->error[i] / t->size[i]) / s->info.n_layers;
        if (t->worst[i] / t->largest[i] > worst) worst = t->worst[i] / t->largest[i];
    }
    printf(",\n  \"%s\": {\"error\": %.6f, \"worst\": %.6f, \"entropy\": %.4f, \"codes\": [", name, error, worst,
           t->entropy / s->info.n_layers / s->n_windows);
    for (uint32_t layer = 0; layer < s->info.n_layers; layer++) {
        uint32_t n = LEVELS;
        while (n > 1 && !t->codes[layer * LEVELS + n - 1]) n--;
        printf("%s[", layer ? ", " : "");
        for (uint32_t i = 0; i < n; i++)
            printf("%s%llu", i ? ", " : "", (unsigned long long)t->codes[layer * LEVELS + i]);
        printf("]");
    }
    printf("]}");
}

static void print_row(const study *s, const row *r) {
    const pleat_codec_parts *p = &r->parts;
    printf("{\"kv\": \"%s\", \"context\": %u, \"block\": %u, \"values\": %llu, \"blocks\": %llu, \"books\": %llu,\n",
           r->text, r->context, r->block_tokens, (unsigned long long)r->n_values, (unsigned long long)r->n_blocks,
           (unsigned long long)r->codebook_bytes);
    printf("  \"bytes\": {\"header\": %llu, \"k_units\": %llu, \"v_units\": %llu, \"order\": %llu, ",
           (unsigned long long)p->header_bytes, (unsigned long long)p->k_unit_bytes,
           (unsigned long long)p->v_unit_bytes, (unsigned long long)p->order_bytes);
    printf("\"k_codes\": %llu, \"v_codes\": %llu}", (unsigned long long)p->k_code_bytes,
           (unsigned long long)p->v_code_bytes);
    print_tally(s, "k", &r->t[KEYS]);
    print_tally(s, "v", &r->t[VALUES]);
    printf("}");
}

/* ---- all --------------------------------------------------------------------------------------- */

static void start(study *s, char **argv, int argc) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    const pleat_status status = pleat_model_load(argv[1], NULL, &s->model, &err);
    if (status != PLEAT_OK) die(argv[1], status, err.text);
    pleat_model_get_info(s->model, &s->info);
    read_contexts(s, argv[3]);
    s->n_windows = (uint32_t)strtoul(argv[4], NULL, 10);
    if (!s->n_windows || s->n_windows > 64) die(argv[4], PLEAT_E_ARG, "1 to 64 windows");
    read_text(s, argv[2], s->n_windows * s->longest);
    make_engine(s);
    s->rows = zeros((size_t)(argc - 5) * s->n_contexts, sizeof *s->rows);
    for (int i = 5; i < argc; i++)
        for (uint32_t c = 0; c < s->n_contexts; c++) add_row(s, argv[i], s->contexts[c]);
    const size_t lane = (size_t)s->longest * s->info.head_dim, block = 256 * (size_t)s->info.head_dim;
    for (int i = 0; i < 2; i++) {
        s->m[i].x = zeros(n_lanes(s) * lane, sizeof(float));
        s->m[i].one = zeros(s->info.n_kv_heads * lane, sizeof(float));
        s->m[i].back = zeros(block, sizeof(float));
    }
    s->payload = zeros(s->payload_cap + PLEAT_CODEC_PAD, 1);
    s->codes = zeros(2 * block, 1);
}

static void end(study *s) {
    for (uint32_t i = 0; i < s->n_rows; i++) {
        pleat_codec_destroy(&s->rows[i].codec);
        for (int m = 0; m < 2; m++) {
            free(s->rows[i].t[m].codes);
            free(s->rows[i].t[m].error);
        }
    }
    for (int i = 0; i < 2; i++) {
        free(s->m[i].x);
        free(s->m[i].one);
        free(s->m[i].back);
    }
    free(s->rows);
    free(s->payload);
    free(s->codes);
    free(s->tokens);
    pleat_engine_destroy(&s->engine);
    pleat_model_destroy(&s->model);
}

int main(int argc, char **argv) {
    study s = {0};
    if (argc < 6) {
        fprintf(stderr, "usage: kvcomp_blocks MODEL TEXT CONTEXTS WINDOWS SPEC...\n");
        return 2;
    }
    start(&s, argv, argc);
    for (uint32_t w = 0; w < s.n_windows; w++) {
        read_window(&s, s.tokens + (size_t)w * s.longest);
        for (uint32_t i = 0; i < s.n_rows; i++)
            for (uint32_t layer = 0; layer < s.info.n_layers; layer++) compress_layer(&s, &s.rows[i], layer);
    }
    printf("{\"windows\": %u, \"rows\": [\n", s.n_windows);
    for (uint32_t i = 0; i < s.n_rows; i++) {
        print_row(&s, &s.rows[i]);
        printf(i + 1 < s.n_rows ? ",\n" : "]}\n");
    }
    end(&s);
    return 0;
}
