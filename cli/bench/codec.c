/* SPDX-License-Identifier: MIT
 *
 * codec.c: `pleat bench codec`: what the codecs of kvcomp and kivi cost and save, by themselves
 * (include/pleat/codec.h), beside zstd's entropy coders on the same codes.
 *
 *     data ── train on the first tokens ──> every block: quantise | code | encode | decode | load      one codec
 *                                           all keys' codes, all values' codes: decode                 each peer
 *
 * Rules
 *  1. Specs and peers run turn and turn about in one run, on one thread; figures are medians.
 *  2. Keys have an offset and a scale for each channel, as keys of models have; values are normal variates.
 *  3. Payloads come from memory or L3: 2 MiB of codes of each matrix by default.  Codes are decoded to buffers that stay
 *     in L2, both the codecs' (64 KiB and less at d = 128) and the peers' (128 KiB): what uses them reads them there.
 *  4. A peer gets what is best for it: its own table for the keys and for the values, made of just these codes, the
 *     largest chunks that it takes, and of two Huffman decoders for each matrix the faster one.
 *  5. Bytes are those of payloads, with all that is in them, and of codebooks.  Nothing is timed that was not checked:
 *     codes come back, and every value is within the bound.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/device/device.h"
#include "cli/bench/lib/exact.h"
#include "cli/lib/common.h"
#include "cli/lib/measure.h"
#include "cli/lib/output.h"
#include "cli/lib/progress.h"
#include "peer_zstd.h"

/* ---- options ----------------------------------------------------------------------------------- */

static const char *const block_specs[] = {"kvcomp", "kvcomp+pack", "kivi", NULL};
#define on_the_cpu "on the CPU one head's tokens are coded, and nothing else"

#define AT(field) .offset = offsetof(codec_options, field)
/* clang-format off */
static const option_row rows[] = {
    CPU_MASK_ROW(codec_options),
    DEVICE_ROW(codec_options),
    {GROUP_CACHE, "kv", NULL, "SPEC", "kvcomp or kivi (--device cuda: kvcomp); repeat to compare (default: several)",
     KIND_SPECS, AT(kv), .words = block_specs},
    {GROUP_SHAPE, "ctx", NULL, "N,..", "tokens of one KV head; whole blocks of them count (default 16384; --device cuda: 8192)",
     KIND_NUMBERS, AT(ctx), 256, 1048576},
    {GROUP_SHAPE, "batch", NULL, "N,..", "--device cuda: sequences, of 8 KV heads each (default 32)",
     KIND_NUMBERS, AT(batch), 1, 4096, .needs = "device=cuda", .because = on_the_cpu},
    {GROUP_SHAPE, "gqa", NULL, "N,..", "--device cuda: query heads for each KV head (default 1,4)",
     KIND_NUMBERS, AT(gqa), 1, 8, .needs = "device=cuda", .because = on_the_cpu},
    {GROUP_SHAPE, "head-dim", NULL, "N,..", "head dimension (default 64,128; --device cuda: 128)",
     KIND_NUMBERS, AT(head_dim), 16, 512, .multiple = 16},
    REPS_ROW(codec_options),
    COMMON_ROWS(codec_options),
};
/* clang-format on */

static void set_defaults(void *opts) {
    codec_options *o = opts;
    o->reps = DEFAULT_REPS;
}

/* ---- the benchmark ----------------------------------------------------------------------------- */

enum { DEFAULT_TOKENS = 16384, TRAIN_TOKENS = 2048 };
enum { QUANTISE, CODE, ENCODE, DECODE, LOAD, N_TIMINGS };
enum { KEYS, VALUES, N_MATRICES };

static const char *const timing_names[N_TIMINGS] = {"quantise", "code", "encode", "decode", "load"};

typedef struct data {
    uint32_t n_tokens, head_dim;
    float *x[N_MATRICES]; /* [n_tokens][head_dim] */
} data;

/* Keys or values of one spec in all blocks. */
typedef struct code_matrix {
    uint8_t *codes; /* [n_values] */
    peer peers[PEER_CODERS];
    double *s[PEER_CODERS]; /* [reps]; NULL: no such peer */
    double entropy;         /* bits a code */
} code_matrix;

typedef struct contender {
    const data *data;
    const pleat_spec *spec;
    const char *name;
    pleat_codec *codec;
    uint32_t block_tokens, n_blocks;
    size_t block_values, n_values; /* of one matrix: in a block, in all of them */
    uint8_t *codes;                /* [n_blocks][2 * block_values] */
    uint8_t *payloads;             /* payload i at `at`[i] */
    uint64_t *at, *n_bytes;        /* [n_blocks] */
    uint8_t *payload;              /* one, to be thrown away */
    uint8_t *out[PLEAT_CODEC_AT_ONCE];
    float *back[N_MATRICES]; /* a block */
    uint8_t *chunk;          /* peers' */
    code_matrix m[N_MATRICES];
    double *s[N_TIMINGS]; /* [reps] seconds */
    pleat_codec_parts parts;
    double worst; /* error, in halves of the exact step */
} contender;

typedef struct bench {
    codec_options *o;
    output out;
    uint32_t reps;
    data data;
    contender contenders[SPECS_CAP];
    table t;
    json_t *rows;
    char label[96];
    uint64_t n_done;
} bench;

/* n zeroed bytes, aligned to 64. */
static void *aligned_bytes(size_t n) {
    n = (n + 63) / 64 * 64;
    void *p = aligned_alloc(64, n);
    if (!p) {
        cli_error("no memory for %zu bytes", n);
        exit(CLI_FAILED);
    }
    return memset(p, 0, n);
}

/* ---- data -------------------------------------------------------------------------------------- */

static void data_init(data *d, uint32_t n_tokens, uint32_t head_dim) {
    measure_rng rng = {11};
    const size_t n = (size_t)n_tokens * head_dim;
    *d = (data){.n_tokens = n_tokens, .head_dim = head_dim};
    for (int i = 0; i < N_MATRICES; i++) {
        d->x[i] = cli_alloc(n, sizeof(float));
        measure_rng_normal(&rng, d->x[i], n);
    }
    float *shape = cli_alloc(2 * (size_t)head_dim, sizeof *shape);
    measure_rng_normal(&rng, shape, 2 * (size_t)head_dim);
    for (size_t i = 0; i < n; i++) {
        const float offset = 2 * shape[i % head_dim], scale = expf(0.5f * shape[head_dim + i % head_dim]);
        d->x[KEYS][i] = offset + scale * d->x[KEYS][i];
    }
    free(shape);
}

static void data_release(data *d) {
    for (int i = 0; i < N_MATRICES; i++) free(d->x[i]);
    memset(d, 0, sizeof *d);
}

/* ---- passes over all blocks -------------------------------------------------------------------- */

static const float *block_of(const contender *c, int matrix, uint32_t block) {
    return c->data->x[matrix] + (size_t)block * c->block_values;
}

static uint8_t *codes_of(const contender *c, uint32_t block) { return c->codes + 2 * c->block_values * block; }

static pleat_status quantise_all(contender *c) {
    pleat_status status = PLEAT_OK;
    for (uint32_t i = 0; i < c->n_blocks && status == PLEAT_OK; i++)
        status = pleat_codec_quantise(c->codec, block_of(c, KEYS, i), block_of(c, VALUES, i), codes_of(c, i));
    return status;
}

static pleat_status code_all(contender *c) {
    pleat_status status = PLEAT_OK;
    uint64_t n_bytes;
    for (uint32_t i = 0; i < c->n_blocks && status == PLEAT_OK; i++)
        status =
            pleat_codec_encode_codes(c->codec, codes_of(c, i), c->payload, pleat_codec_payload_cap(c->codec), &n_bytes);
    return status;
}

/* Payloads begin at multiples of 16. */
static pleat_status encode_all(contender *c) {
    pleat_status status = PLEAT_OK;
    uint64_t at = 0;
    for (uint32_t i = 0; i < c->n_blocks && status == PLEAT_OK; i++) {
        c->at[i] = at;
        status = pleat_codec_encode(c->codec, block_of(c, KEYS, i), block_of(c, VALUES, i), c->payloads + at,
                                    pleat_codec_payload_cap(c->codec), &c->n_bytes[i]);
        at += (c->n_bytes[i] + 15) / 16 * 16;
    }
    return status;
}

/* The next n payloads from `block`. */
static pleat_status decode_some(contender *c, uint32_t block, uint32_t n) {
    const void *payloads[PLEAT_CODEC_AT_ONCE];
    for (uint32_t i = 0; i < n; i++) payloads[i] = c->payloads + c->at[block + i];
    return pleat_codec_decode_codes(c->codec, payloads, c->n_bytes + block, n, c->out);
}

static uint32_t at_once(const contender *c, uint32_t block) {
    return c->n_blocks - block < PLEAT_CODEC_AT_ONCE ? c->n_blocks - block : PLEAT_CODEC_AT_ONCE;
}

static pleat_status decode_all(contender *c) {
    pleat_status status = PLEAT_OK;
    for (uint32_t i = 0; i < c->n_blocks && status == PLEAT_OK; i += PLEAT_CODEC_AT_ONCE)
        status = decode_some(c, i, at_once(c, i));
    return status;
}

static pleat_status load_block(contender *c, uint32_t block) {
    return pleat_codec_decode(c->codec, c->payloads + c->at[block], c->n_bytes[block], c->back[KEYS], c->back[VALUES]);
}

static pleat_status load_all(contender *c) {
    pleat_status status = PLEAT_OK;
    for (uint32_t i = 0; i < c->n_blocks && status == PLEAT_OK; i++) status = load_block(c, i);
    return status;
}

static pleat_status (*const passes[N_TIMINGS])(contender *) = {quantise_all, code_all, encode_all, decode_all,
                                                               load_all};

/* ---- checks ------------------------------------------------------------------------------------ */

/* Values of a block that share a step. */
typedef struct unit {
    uint32_t rows, columns;
    double rel;
} unit;

static unit unit_of(const contender *c, int matrix) {
    const pleat_spec *s = c->spec;
    const uint32_t d = c->data->head_dim;
    if (s->compressor == PLEAT_COMPRESSOR_KIVI) {
        const double rel = 1.0 / ((1u << s->bits) - 1);
        return matrix == KEYS ? (unit){c->block_tokens, 1, rel} : (unit){1, d % 32 ? 16 : 32, rel};
    }
    if (matrix == VALUES) return (unit){1, d, s->v};
    return (unit){c->block_tokens, s->kunit == PLEAT_K_UNIT_CHANNEL ? 1 : d, s->k};
}

/* Largest error of a unit in halves of its exact step; INFINITY if it passes the bound.  The step may be as much larger as
 * rounding minimum and step to f16 outwards makes it; arithmetic is in f32. */
static double unit_error(const float *x, const float *y, uint32_t d, unit u) {
    double min = x[0], max = x[0], error = 0;
    for (uint32_t r = 0; r < u.rows; r++)
        for (uint32_t i = 0; i < u.columns; i++) {
            const double v = x[(size_t)r * d + i], diff = fabs(v - (double)y[(size_t)r * d + i]);
            if (v < min) min = v;
            if (v > max) max = v;
            exact_keep_worst(&error, diff);
        }
    const double half = u.rel * (max - min) / 2;
    const double bound =
        (half + u.rel * (fabs(min) * 0x1p-11 + 0x1p-25)) * (1 + 0x1p-10) + 0x1p-25 + (fabs(min) + fabs(max)) * 0x1p-22;
    if (!(error <= bound)) return INFINITY;
    return half > 0 ? error / half : 0;
}

static void check_matrix(contender *c, int matrix, uint32_t block) {
    const unit u = unit_of(c, matrix);
    const uint32_t d = c->data->head_dim;
    for (uint32_t row = 0; row < c->block_tokens; row += u.rows)
        for (uint32_t column = 0; column < d; column += u.columns) {
            const size_t at = (size_t)row * d + column;
            exact_keep_worst(&c->worst, unit_error(block_of(c, matrix, block) + at, c->back[matrix] + at, d, u));
        }
}

static int fault(const contender *c, const char *what) {
    cli_error("--kv %s, head dimension %u: %s", c->name, c->data->head_dim, what);
    return CLI_FAILED;
}

/* Codes and values come back from every payload; adds up its parts. */
static int check(contender *c) {
    pleat_status status = PLEAT_OK;
    for (uint32_t i = 0; i < c->n_blocks && status == PLEAT_OK; i++) {
        const uint32_t lane = i % PLEAT_CODEC_AT_ONCE;
        pleat_codec_parts p;
        if (lane == 0) status = decode_some(c, i, at_once(c, i));
        if (status == PLEAT_OK && memcmp(c->out[lane], codes_of(c, i), 2 * c->block_values) != 0)
            return fault(c, "decoding gave other codes");
        if (status == PLEAT_OK) status = load_block(c, i);
        if (status == PLEAT_OK) status = pleat_codec_get_parts(c->codec, c->payloads + c->at[i], c->n_bytes[i], &p);
        if (status != PLEAT_OK) break;
        for (int m = 0; m < N_MATRICES; m++) check_matrix(c, m, i);
        c->parts.header_bytes += p.header_bytes;
        c->parts.k_unit_bytes += p.k_unit_bytes;
        c->parts.v_unit_bytes += p.v_unit_bytes;
        c->parts.order_bytes += p.order_bytes;
        c->parts.k_code_bytes += p.k_code_bytes;
        c->parts.v_code_bytes += p.v_code_bytes;
    }
    if (status != PLEAT_OK) return cli_fail(c->name, status, NULL);
    return isfinite(c->worst) ? CLI_OK : fault(c, "a value is off by more than the error bound");
}

/* ---- making contenders ------------------------------------------------------------------------- */

static int make_codec(contender *c, const data *d, const pleat_spec *spec, const char *name) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    *c = (contender){.data = d, .spec = spec, .name = name};
    pleat_status status = pleat_codec_create(spec, d->head_dim, NULL, &c->codec, &err);
    if (status != PLEAT_OK) return cli_fail(name, status, &err);
    c->block_tokens = pleat_codec_block_tokens(c->codec);
    c->n_blocks = d->n_tokens / c->block_tokens;
    c->block_values = (size_t)c->block_tokens * d->head_dim;
    c->n_values = c->block_values * c->n_blocks;
    const uint32_t n_train = TRAIN_TOKENS / c->block_tokens;
    status = pleat_codec_train(c->codec, d->x[KEYS], d->x[VALUES], n_train < c->n_blocks ? n_train : c->n_blocks);
    return status == PLEAT_OK ? CLI_OK : cli_fail(name, status, NULL);
}

static void make_memory(contender *c, uint32_t reps) {
    const uint64_t cap = pleat_codec_payload_cap(c->codec);
    c->codes = aligned_bytes(2 * c->n_values);
    c->payloads = aligned_bytes((cap + 16) * c->n_blocks + PLEAT_CODEC_PAD);
    c->payload = aligned_bytes(cap + PLEAT_CODEC_PAD);
    c->at = cli_alloc(c->n_blocks, sizeof *c->at);
    c->n_bytes = cli_alloc(c->n_blocks, sizeof *c->n_bytes);
    c->chunk = aligned_bytes(PEER_CHUNK);
    for (uint32_t i = 0; i < PLEAT_CODEC_AT_ONCE; i++) c->out[i] = aligned_bytes(2 * c->block_values);
    for (int i = 0; i < N_MATRICES; i++) c->back[i] = aligned_bytes(c->block_values * sizeof(float));
    for (int i = 0; i < N_TIMINGS; i++) c->s[i] = cli_alloc(reps, sizeof(double));
}

/* The matrix's codes one block behind the other, and what the peers make of them. */
static int make_matrix(contender *c, int matrix, uint32_t reps) {
    code_matrix *m = &c->m[matrix];
    m->codes = aligned_bytes(c->n_values);
    for (uint32_t i = 0; i < c->n_blocks; i++)
        memcpy(m->codes + i * c->block_values, codes_of(c, i) + (size_t)matrix * c->block_values, c->block_values);
    for (peer_coder coder = 0; coder < PEER_CODERS; coder++) {
        if (!peer_has(coder)) continue;
        m->s[coder] = cli_alloc(reps, sizeof(double));
        if (!peer_init(&m->peers[coder], coder, m->codes, c->n_values) || !peer_encode(&m->peers[coder], m->codes) ||
            !peer_decode(&m->peers[coder], c->chunk, m->codes)) {
            cli_error("--kv %s: zstd's %s failed", c->name, peer_name(coder));
            return CLI_FAILED;
        }
    }
    return CLI_OK;
}

static int make_contender(contender *c, const data *d, const pleat_spec *spec, const char *name, uint32_t reps) {
    int code = make_codec(c, d, spec, name);
    if (code != CLI_OK) return code;
    make_memory(c, reps);
    pleat_status status = quantise_all(c);
    if (status == PLEAT_OK) status = encode_all(c);
    if (status != PLEAT_OK) return cli_fail(name, status, NULL);
    code = check(c);
    for (int i = 0; i < N_MATRICES && code == CLI_OK; i++) code = make_matrix(c, i, reps);
    pleat_codec_entropy(c->codec, &c->m[KEYS].entropy, &c->m[VALUES].entropy);
    return code;
}

static void release_contender(contender *c) {
    pleat_codec_destroy(&c->codec);
    for (int i = 0; i < N_MATRICES; i++) {
        for (peer_coder coder = 0; coder < PEER_CODERS; coder++) {
            peer_release(&c->m[i].peers[coder]);
            free(c->m[i].s[coder]);
        }
        free(c->m[i].codes);
        free(c->back[i]);
    }
    for (uint32_t i = 0; i < PLEAT_CODEC_AT_ONCE; i++) free(c->out[i]);
    for (int i = 0; i < N_TIMINGS; i++) free(c->s[i]);
    free(c->codes);
    free(c->payloads);
    free(c->payload);
    free(c->at);
    free(c->n_bytes);
    free(c->chunk);
    memset(c, 0, sizeof *c);
}

/* ---- time -------------------------------------------------------------------------------------- */

static int time_codec(contender *c, int rep) {
    for (int i = 0; i < N_TIMINGS; i++) {
        const double start_s = measure_now_s();
        const pleat_status status = passes[i](c);
        if (rep >= 0) c->s[i][rep] = measure_now_s() - start_s;
        if (status != PLEAT_OK) return cli_fail(c->name, status, NULL);
    }
    return CLI_OK;
}

static void time_peers(contender *c, int rep) {
    for (int i = 0; i < N_MATRICES; i++)
        for (peer_coder coder = 0; coder < PEER_CODERS; coder++) {
            if (!c->m[i].s[coder]) continue;
            const double start_s = measure_now_s();
            peer_decode(&c->m[i].peers[coder], c->chunk, NULL);
            if (rep >= 0) c->m[i].s[coder][rep] = measure_now_s() - start_s;
        }
}

/* rep -1 warms up and is not kept. */
static int time_all(bench *b) {
    int code = CLI_OK;
    for (int rep = -1; rep < (int)b->reps && code == CLI_OK; rep++)
        for (uint32_t i = 0; i < b->o->kv.n && code == CLI_OK; i++) {
            code = time_codec(&b->contenders[i], rep);
            time_peers(&b->contenders[i], rep);
            progress_update(++b->n_done);
        }
    return code;
}

/* G codes/s of n codes. */
static measure_spread speed_of(double *seconds, uint32_t reps, size_t n) {
    const measure_spread s = measure_spread_of(seconds, reps);
    const double g = (double)n * 1e-9;
    return (measure_spread){g / s.max, g / s.median, g / s.min};
}

static double median_of(const double *seconds, uint32_t reps) {
    double *copy = cli_alloc(reps, sizeof *copy);
    memcpy(copy, seconds, reps * sizeof *copy);
    const double median = measure_median(copy, reps);
    free(copy);
    return median;
}

/* What a kind of peer did with both matrices. */
typedef struct peer_figures {
    const char *name[N_MATRICES]; /* NULL: there is none */
    double bits[N_MATRICES];
    measure_spread speed; /* NAN where there is none */
} peer_figures;

/* The faster of coders [from, to] for each matrix. */
static peer_figures peer_of(const contender *c, peer_coder from, peer_coder to, uint32_t reps) {
    peer_figures f = {.speed = {NAN, NAN, NAN}};
    double *sum = cli_alloc(reps, sizeof *sum);
    for (int i = 0; i < N_MATRICES; i++) {
        const code_matrix *m = &c->m[i];
        int best = -1;
        for (int coder = from; coder <= (int)to; coder++)
            if (m->s[coder] && (best < 0 || median_of(m->s[coder], reps) < median_of(m->s[best], reps))) best = coder;
        f.bits[i] = NAN;
        if (best < 0) continue;
        f.name[i] = peer_name((peer_coder)best);
        f.bits[i] = 8.0 * (double)peer_bytes(&m->peers[best]) / (double)c->n_values;
        for (uint32_t rep = 0; rep < reps; rep++) sum[rep] += m->s[best][rep];
    }
    if (f.name[KEYS] && f.name[VALUES]) f.speed = speed_of(sum, reps, 2 * c->n_values);
    free(sum);
    return f;
}

/* ---- rows -------------------------------------------------------------------------------------- */

typedef struct figures {
    measure_spread speed[N_TIMINGS];
    peer_figures huffman, fse;
    double bits[N_MATRICES];
    uint64_t payload_bytes, codebook_bytes, f16_bytes;
    double ratio; /* f16's bytes over all of these */
} figures;

static figures figures_of(const contender *c, uint32_t reps) {
    figures f = {.huffman = peer_of(c, PEER_HUFFMAN_X1, PEER_LITERALS, reps),
                 .fse = peer_of(c, PEER_FSE, PEER_FSE, reps),
                 .bits = {8.0 * (double)c->parts.k_code_bytes / (double)c->n_values,
                          8.0 * (double)c->parts.v_code_bytes / (double)c->n_values},
                 .codebook_bytes = pleat_codec_codebook_bytes(c->codec),
                 .f16_bytes = 4 * (uint64_t)c->n_values};
    for (int i = 0; i < N_TIMINGS; i++) f.speed[i] = speed_of(c->s[i], reps, 2 * c->n_values);
    for (uint32_t i = 0; i < c->n_blocks; i++) f.payload_bytes += c->n_bytes[i];
    f.ratio = (double)f.f16_bytes / (double)(f.payload_bytes + f.codebook_bytes);
    return f;
}

static json_t *json_matrix(const contender *c, const figures *f, int i) {
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "bits", json_number(f->bits[i]), "entropy",
                     json_number(c->m[i].entropy), "bits_to_entropy", json_number(f->bits[i] / c->m[i].entropy),
                     "huffman_bits", json_number(f->huffman.bits[i]), "fse_bits", json_number(f->fse.bits[i]));
}

static json_t *json_peer(const peer_figures *p) {
    if (!p->name[KEYS]) return json_null();
    return json_pack("{s:s, s:s, s:o}", "keys", p->name[KEYS], "values", p->name[VALUES], "gcodes_per_s",
                     json_spread(p->speed));
}

static json_t *json_bytes(const contender *c, const figures *f) {
    const pleat_codec_parts *p = &c->parts;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "payloads", (json_int_t)f->payload_bytes,
                     "headers", (json_int_t)p->header_bytes, "k_units", (json_int_t)p->k_unit_bytes, "v_units",
                     (json_int_t)p->v_unit_bytes, "order", (json_int_t)p->order_bytes, "k_codes",
                     (json_int_t)p->k_code_bytes, "v_codes", (json_int_t)p->v_code_bytes, "books",
                     (json_int_t)f->codebook_bytes, "f16", (json_int_t)f->f16_bytes);
}

static json_t *json_row(const bench *b, const contender *c, const figures *f) {
    json_t *speeds = json_object();
    for (int i = 0; i < N_TIMINGS; i++) json_object_set_new(speeds, timing_names[i], json_spread(f->speed[i]));
    json_t *params = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:s}", "kv", c->name, "head_dim", (int)c->data->head_dim,
                               "tokens", (int)(c->n_blocks * c->block_tokens), "block_tokens", (int)c->block_tokens,
                               "threads", 1, "reps", (int)b->reps, "peers", peer_describe());
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "what", "codec", "params", params,
                     "gcodes_per_s", speeds, "huffman", json_peer(&f->huffman), "fse", json_peer(&f->fse),
                     "decode_to_huffman", json_number(f->speed[DECODE].median / f->huffman.speed.median),
                     "decode_to_fse", json_number(f->speed[DECODE].median / f->fse.speed.median), "keys",
                     json_matrix(c, f, KEYS), "values", json_matrix(c, f, VALUES), "bytes", json_bytes(c, f), "ratio",
                     json_number(f->ratio), "error_to_bound", json_number(c->worst));
}

static void add_row(bench *b, const contender *c) {
    const figures f = figures_of(c, b->reps);
    json_array_append_new(b->rows, json_row(b, c, &f));
    table_put(&b->t, "%s", c->name);
    table_put(&b->t, "%u", c->data->head_dim);
    table_put(&b->t, "%u", c->n_blocks * c->block_tokens);
    table_put_number(&b->t, 2, f.speed[QUANTISE].median);
    table_put_number(&b->t, 2, f.speed[CODE].median);
    table_put_number(&b->t, 2, f.speed[DECODE].min);
    table_put_number(&b->t, 2, f.speed[DECODE].median);
    table_put_number(&b->t, 2, f.speed[DECODE].max);
    table_put_number(&b->t, 2, f.speed[LOAD].median);
    table_put_number(&b->t, 2, f.huffman.speed.median);
    table_put_number(&b->t, 2, f.fse.speed.median);
    table_put_number(&b->t, 2, f.speed[DECODE].median / f.huffman.speed.median);
    for (int i = 0; i < N_MATRICES; i++) {
        table_put_number(&b->t, 3, f.bits[i]);
        table_put_number(&b->t, 3, f.bits[i] / c->m[i].entropy);
    }
    table_put(&b->t, "%llu", (unsigned long long)(f.payload_bytes + f.codebook_bytes));
    table_put(&b->t, "%llu", (unsigned long long)f.codebook_bytes);
    table_put_number(&b->t, 2, f.ratio);
    table_put_number(&b->t, 3, c->worst);
}

/* ---- the command ------------------------------------------------------------------------------- */

static int run_shape(bench *b, uint32_t head_dim, uint32_t n_tokens) {
    const codec_options *o = b->o;
    int code = CLI_OK;
    snprintf(b->label, sizeof b->label, "%u tokens, head dimension %u", n_tokens, head_dim);
    data_init(&b->data, n_tokens, head_dim);
    for (uint32_t i = 0; i < o->kv.n && code == CLI_OK; i++)
        code = make_contender(&b->contenders[i], &b->data, &o->kv.spec[i], o->kv.text[i], b->reps);
    if (code == CLI_OK) code = time_all(b);
    for (uint32_t i = 0; i < o->kv.n; i++) {
        if (code == CLI_OK) add_row(b, &b->contenders[i]);
        release_contender(&b->contenders[i]);
    }
    data_release(&b->data);
    return code;
}

static int check_options(codec_options *o) {
    static const char *const default_specs[] = {"kvcomp:k=0.25,v=0.15",
                                                "kvcomp:k=0.05,v=0.15,kunit=block",
                                                "kvcomp:k=0.25,v=0.15+pack",
                                                "kvcomp:k=0.05,v=0.15,kunit=block+pack",
                                                "kivi:bits=2",
                                                "kivi:bits=4",
                                                NULL};
    options_default_specs(&o->kv, default_specs);
    if (!o->head_dim.n) o->head_dim = (number_list){2, {64, 128}};
    if (!o->ctx.n) o->ctx = (number_list){1, {DEFAULT_TOKENS}};
    for (uint32_t i = 0; i < o->kv.n; i++)
        if (o->kv.spec[i].compressor != PLEAT_COMPRESSOR_KVCOMP && o->kv.spec[i].compressor != PLEAT_COMPRESSOR_KIVI) {
            cli_error("--kv %s: this measures kvcomp and kivi; `pleat bench attn` measures formats", o->kv.text[i]);
            return CLI_USAGE;
        }
    return CLI_OK;
}

/* What +auto means here, and why. */
static void tell_choice(void) {
    pleat_spec spec;
    if (pleat_spec_parse("kvcomp+auto", &spec, NULL) != PLEAT_OK) return;
    cli_note("kvcomp+auto is %s here: %s", spec.pack ? "kvcomp+pack" : "kvcomp with entropy coding",
             pleat_cpu_flags() & PLEAT_CPU_VBMI2
                 ? "with AVX-512 VBMI2 its words are decoded nearly as fast as packs, and are fewer bytes"
                 : "no AVX-512 VBMI2 may be used, and without it packs are decoded faster");
}

static int run_all(bench *b) {
    static const char *const titles[] = {"kv",         "d",
                                         "tokens",     "quantise G/s",
                                         "code G/s",   "decode G/s min",
                                         "decode G/s", "decode G/s max",
                                         "load G/s",   "Huffman G/s",
                                         "FSE G/s",    "x Huffman",
                                         "K bits",     "K x entropy",
                                         "V bits",     "V x entropy",
                                         "bytes",      "book bytes",
                                         "x f16",      "error/bound"};
    const codec_options *o = b->o;
    int code = CLI_OK;
    table_init(&b->t, titles, sizeof titles / sizeof titles[0]);
    b->rows = json_array();
    const uint32_t n_shapes = o->head_dim.n * o->ctx.n;
    progress_begin(b->label, (uint64_t)(b->reps + 1) * o->kv.n * n_shapes, !o->common.quiet);
    for (uint32_t i = 0; i < n_shapes && code == CLI_OK; i++) /* the context changes fastest */
        code = run_shape(b, o->head_dim.v[i / o->ctx.n], o->ctx.v[i % o->ctx.n]);
    progress_end();
    return code;
}

static int run(void *opts) {
    codec_options *o = opts;
    if (o->device == DEVICE_CUDA) return bench_device_codec(o);
    bench b = {.o = o};
    int code = check_options(o);
    b.reps = o->reps;
    if (code == CLI_OK) code = output_open(&b.out, &o->common);
    if (code != CLI_OK) return code;
    code = run_all(&b);
    if (code == CLI_OK && !o->common.quiet) tell_choice();
    return output_end_rows(&b.out, code, b.rows, NULL, &b.t);
}

const command bench_codec_command = {
    .name = "bench codec",
    .help = "speed and bytes of kvcomp's and kivi's codecs, beside zstd",
    .usage = "[--kv SPEC]... [--head-dim N,..] [--ctx N,..] [-r N] [--device cuda]",
    .about =
        "Times the codecs of kvcomp and kivi by themselves, on one thread, beside zstd's entropy coders on the same "
        "codes, and tells the bits that a code takes.",
    ROWS_OF(rows),
    .options_bytes = sizeof(codec_options),
    .set_defaults = set_defaults,
    .run = run,
};
