/* SPDX-License-Identifier: MIT
 *
 * store.c: a program that stores payloads, and one that reads them back in another process, by pleat/codec.h alone:
 *
 *     store write FOLDER SPEC HEAD_DIM SEED     codebooks, and payload-N and values-N of each block
 *     store read FOLDER SPEC HEAD_DIM OUT       OUT/values-N from FOLDER/codebooks and each FOLDER/payload-N
 *
 * Values are what the payload decodes to: keys by token, then values, as 32-bit floats.  files.sh compares them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "pleat/codec.h"

#define N_BLOCKS 4u         /* that are written */
#define N_TRAINED 2u        /* the first, of which codebooks are made */
#define MAX_CODEBOOKS 1023u /* bytes; those of any codec are fewer */

typedef struct store {
    const char *folder;
    pleat_codec *codec;
    size_t n;                     /* numbers of a block's keys, and of its values */
    float *k, *v;                 /* [N_BLOCKS][n] */
    float *decoded;               /* [2 * n] keys, then values */
    uint8_t *payload, *codebooks; /* of their caps */
} store;

static void die(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void must(pleat_status status, const char *what) {
    if (status != PLEAT_OK) die(what, pleat_status_str(status));
}

static void *take(size_t n_bytes) {
    void *p = calloc(n_bytes, 1);
    if (!p) die("memory", "none");
    return p;
}

/* ---- files ------------------------------------------------------------------------------------------------ */

/* FOLDER/NAME or FOLDER/NAME-I; the next call's path takes its place. */
static const char *path_of(const char *folder, const char *name, int i) {
    static char path[4096];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n < 0 || (size_t)n + 16 > sizeof path) die(folder, "too long");
    if (i >= 0) snprintf(path + n, sizeof path - (size_t)n, "-%d", i);
    return path;
}

static void write_file(const char *path, const void *bytes, size_t n_bytes) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, n_bytes, file) != n_bytes || fclose(file) != 0) die(path, strerror(errno));
}

/* Up to cap bytes, and one more: a file that is larger than anything it may be is seen to be. */
static size_t read_file(const char *path, void *bytes, size_t cap) {
    FILE *file = fopen(path, "rb");
    if (!file) die(path, strerror(errno));
    const size_t n_bytes = fread(bytes, 1, cap + 1, file);
    if (ferror(file)) die(path, strerror(errno));
    fclose(file);
    return n_bytes;
}

/* ---- both ------------------------------------------------------------------------------------------------- */

static store store_new(const char *folder, const char *text, const char *head_dim) {
    pleat_spec spec;
    pleat_error err;
    store s = {.folder = folder};
    const uint32_t d = (uint32_t)strtoul(head_dim, NULL, 10);
    if (pleat_spec_parse(text, &spec, &err) != PLEAT_OK) die(text, err.text);
    if (pleat_codec_create(&spec, d, NULL, &s.codec, &err) != PLEAT_OK) die(text, err.text);
    s.n = (size_t)pleat_codec_block_tokens(s.codec) * d;
    s.k = take(2 * N_BLOCKS * s.n * sizeof *s.k);
    s.v = s.k + N_BLOCKS * s.n;
    s.decoded = take(2 * s.n * sizeof *s.decoded);
    s.payload = take(pleat_codec_payload_cap(s.codec) + 1);
    s.codebooks = take(MAX_CODEBOOKS + 1);
    return s;
}

static void store_free(store *s) {
    pleat_codec_destroy(&s->codec);
    free(s->k);
    free(s->decoded);
    free(s->payload);
    free(s->codebooks);
}

/* The payload of block i becomes values in `folder`. */
static void decode_to(store *s, int i, uint64_t n_bytes, const char *folder) {
    const pleat_status status = pleat_codec_decode(s->codec, s->payload, n_bytes, s->decoded, s->decoded + s->n);
    must(status, path_of(s->folder, "payload", i));
    write_file(path_of(folder, "values", i), s->decoded, 2 * s->n * sizeof *s->decoded);
}

/* ---- write ------------------------------------------------------------------------------------------------ */

/* About normal, with some that lie far out and channels of their own means: what keys look like. */
static void fill(float *x, size_t n, uint32_t d, pleat__rng *rng) {
    for (size_t i = 0; i < n; i++) {
        float sum = -3;
        for (uint32_t j = 0; j < 6; j++) sum += pleat__rng_f32(rng);
        x[i] = sum + (float)(i % d % 5) + (pleat__rng_below(rng, 100) == 0 ? 20 * sum : 0);
    }
}

static void write_all(store *s, uint32_t d, uint64_t seed) {
    uint64_t n_bytes;
    pleat__rng rng = {seed};
    fill(s->k, N_BLOCKS * s->n, d, &rng);
    fill(s->v, N_BLOCKS * s->n, d, &rng);
    must(pleat_codec_train(s->codec, s->k, s->v, N_TRAINED), "train");
    must(pleat_codec_get_codebooks(s->codec, s->codebooks, MAX_CODEBOOKS, &n_bytes), "codebooks");
    write_file(path_of(s->folder, "codebooks", -1), s->codebooks, n_bytes);
    for (uint32_t i = 0; i < N_BLOCKS; i++) {
        must(pleat_codec_encode(s->codec, s->k + i * s->n, s->v + i * s->n, s->payload,
                                pleat_codec_payload_cap(s->codec), &n_bytes),
             "encode");
        write_file(path_of(s->folder, "payload", (int)i), s->payload, n_bytes);
        decode_to(s, (int)i, n_bytes, s->folder);
    }
}

/* ---- read ------------------------------------------------------------------------------------------------- */

static void read_all(store *s, const char *out) {
    pleat_error err;
    const char *path = path_of(s->folder, "codebooks", -1);
    const size_t n = read_file(path, s->codebooks, MAX_CODEBOOKS);
    if (pleat_codec_set_codebooks(s->codec, s->codebooks, n, &err) != PLEAT_OK) die(path, err.text);
    for (uint32_t i = 0; i < N_BLOCKS; i++) {
        path = path_of(s->folder, "payload", (int)i);
        decode_to(s, (int)i, read_file(path, s->payload, pleat_codec_payload_cap(s->codec)), out);
    }
}

int main(int argc, char **argv) {
    const int writes = argc == 6 && strcmp(argv[1], "write") == 0;
    if (!writes && (argc != 6 || strcmp(argv[1], "read") != 0)) {
        fprintf(stderr, "usage: %s write FOLDER SPEC HEAD_DIM SEED | read FOLDER SPEC HEAD_DIM OUT\n", argv[0]);
        return 2;
    }
    store s = store_new(argv[2], argv[3], argv[4]);
    if (writes) {
        write_all(&s, (uint32_t)strtoul(argv[4], NULL, 10), strtoull(argv[5], NULL, 10));
    } else {
        read_all(&s, argv[5]);
    }
    store_free(&s);
    return 0;
}
