/* SPDX-License-Identifier: MIT
 *
 * peer_zstd.c: see peer_zstd.h.  PLEAT_ZSTD is what the build found: 0 nothing, 1 zstd, 2 its parts as well.
 */
#include "peer_zstd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"

#if PLEAT_ZSTD
#include <zstd.h>
#endif
#if PLEAT_ZSTD == 2
#include "peer_zstd_parts.h"
#endif

const char *peer_name(peer_coder coder) {
    static const char *const names[PEER_CODERS] = {"huffman-x1", "huffman-x2", "literals", "fse"};
    return names[coder];
}

static size_t chunk_codes(const peer *p, size_t chunk) {
    const size_t left = p->n_codes - chunk * PEER_CHUNK;
    return left < PEER_CHUNK ? left : PEER_CHUNK;
}

size_t peer_bytes(const peer *p) {
    size_t sum = 0;
    for (size_t i = 0; i < p->n_chunks; i++) sum += p->n_bytes[i];
    return sum;
}

/* ---- what differs by what the build found ------------------------------------------------------ */

#if PLEAT_ZSTD
const char *peer_describe(void) {
    static char text[64];
    snprintf(text, sizeof text, "zstd %s (%s)", ZSTD_versionString(), PLEAT_ZSTD == 2 ? "Huffman, FSE" : "literals");
    return text;
}

/* A shared library may be another than the header's. */
static int is_version(void) { return ZSTD_versionNumber() == ZSTD_VERSION_NUMBER; }
#endif

#if PLEAT_ZSTD == 2

typedef struct tables {
    size_t huffman[HUF_CTABLE_WORDS];
    uint32_t huffman_decode[HUF_DTABLE_WORDS];
    unsigned fse[FSE_CTABLE_WORDS];
    uint8_t fse_header[512];
    size_t fse_header_bytes;
    unsigned max_symbol;
    int flags;
    uint64_t work[FSE_WORK_WORDS / 2];
} tables;

int peer_has(peer_coder coder) { return coder != PEER_LITERALS && is_version(); }

/* How often each code occurs, and once more: a table of one symbol is none. */
static void count_codes(const uint8_t *codes, size_t n, unsigned count[256], unsigned *max_symbol) {
    memset(count, 0, 256 * sizeof *count);
    *max_symbol = 1;
    for (size_t i = 0; i < n; i++) {
        count[codes[i]]++;
        if (codes[i] > *max_symbol) *max_symbol = codes[i];
    }
    for (unsigned s = 0; s <= *max_symbol; s++) count[s]++;
}

static int make_huffman(tables *t, const unsigned *count, peer_coder coder) {
    uint8_t header[256];
    const size_t bits = HUF_buildCTable_wksp(t->huffman, count, t->max_symbol, HUF_TABLELOG_DEFAULT, t->work,
                                             HUF_WORK_WORDS * sizeof(uint32_t));
    if (HUF_isError(bits)) return 0;
    const size_t n = HUF_writeCTable_wksp(header, sizeof header, t->huffman, t->max_symbol, (unsigned)bits, t->work,
                                          HUF_WORK_WORDS * sizeof(uint32_t));
    if (HUF_isError(n)) return 0;
    t->huffman_decode[0] = HUF_DTABLE_LOG * 0x01000001u; /* what it may grow to */
    const size_t read = (coder == PEER_HUFFMAN_X1 ? HUF_readDTableX1_wksp : HUF_readDTableX2_wksp)(
        t->huffman_decode, header, n, t->work, HUF_WORK_WORDS * sizeof(uint32_t), t->flags);
    return !HUF_isError(read);
}

static int make_fse(tables *t, const unsigned *count, size_t total) {
    short normal[256];
    const unsigned log = FSE_optimalTableLog(FSE_TABLELOG_DEFAULT, total, t->max_symbol);
    const size_t made = FSE_normalizeCount(normal, log, count, total, t->max_symbol, 0);
    if (FSE_isError(made) || made == 0) return 0;
    t->fse_header_bytes = FSE_writeNCount(t->fse_header, sizeof t->fse_header, normal, t->max_symbol, log);
    return !FSE_isError(t->fse_header_bytes) &&
           !FSE_isError(FSE_buildCTable_wksp(t->fse, normal, t->max_symbol, log, t->work, sizeof t->work));
}

static int make_state(peer *p, const uint8_t *codes) {
    tables *t = cli_alloc(1, sizeof *t);
    unsigned count[256];
    p->state = t;
    count_codes(codes, p->n_codes, count, &t->max_symbol);
#if defined(__x86_64__)
    t->flags = __builtin_cpu_supports("bmi2") ? HUF_FLAG_BMI2 : 0;
#endif
    p->cap = sizeof t->fse_header + 2 * PEER_CHUNK;
    if (p->coder == PEER_FSE) return make_fse(t, count, p->n_codes + t->max_symbol + 1);
    return make_huffman(t, count, p->coder);
}

static void free_state(peer *p) { free(p->state); }

static size_t encode_chunk(peer *p, const uint8_t *codes, size_t n, uint8_t *out) {
    tables *t = p->state;
    if (p->coder != PEER_FSE) {
        const size_t made = HUF_compress4X_usingCTable(out, p->cap, codes, n, t->huffman, t->flags);
        return HUF_isError(made) ? 0 : made;
    }
    memcpy(out, t->fse_header, t->fse_header_bytes);
    const size_t made =
        FSE_compress_usingCTable(out + t->fse_header_bytes, p->cap - t->fse_header_bytes, codes, n, t->fse);
    return FSE_isError(made) || made == 0 ? 0 : t->fse_header_bytes + made;
}

static int decode_chunk(peer *p, const uint8_t *bytes, size_t n_bytes, uint8_t *out, size_t n) {
    tables *t = p->state;
    if (p->coder != PEER_FSE)
        return HUF_decompress4X_usingDTable(out, n, bytes, n_bytes, t->huffman_decode, t->flags) == n;
    return FSE_decompress_wksp_bmi2(out, n, bytes, n_bytes, FSE_TABLELOG_DEFAULT, t->work, sizeof t->work,
                                    t->flags != 0) == n;
}

#elif PLEAT_ZSTD == 1

/* ZSTD_c_literalCompressionMode, which <zstd.h> declares to static builds alone: 1 is Huffman always. */
#define LITERAL_COMPRESSION ZSTD_c_experimentalParam5

typedef struct contexts {
    ZSTD_CCtx *compress;
    ZSTD_DCtx *decompress;
} contexts;

int peer_has(peer_coder coder) { return coder == PEER_LITERALS && is_version(); }

static int make_state(peer *p, const uint8_t *codes) {
    static const int options[][2] = {{ZSTD_c_strategy, ZSTD_fast},  {ZSTD_c_minMatch, 7},   {ZSTD_c_hashLog, 6},
                                     {ZSTD_c_targetLength, 131072}, {ZSTD_c_windowLog, 17}, {LITERAL_COMPRESSION, 1}};
    contexts *c = cli_alloc(1, sizeof *c);
    (void)codes;
    p->state = c;
    c->compress = ZSTD_createCCtx();
    c->decompress = ZSTD_createDCtx();
    p->cap = ZSTD_compressBound(PEER_CHUNK);
    int ok = c->compress && c->decompress;
    for (size_t i = 0; i < sizeof options / sizeof options[0] && ok; i++)
        ok = !ZSTD_isError(ZSTD_CCtx_setParameter(c->compress, (ZSTD_cParameter)options[i][0], options[i][1]));
    return ok;
}

static void free_state(peer *p) {
    contexts *c = p->state;
    if (!c) return;
    ZSTD_freeCCtx(c->compress);
    ZSTD_freeDCtx(c->decompress);
    free(c);
}

static size_t encode_chunk(peer *p, const uint8_t *codes, size_t n, uint8_t *out) {
    const size_t made = ZSTD_compress2(((contexts *)p->state)->compress, out, p->cap, codes, n);
    return ZSTD_isError(made) ? 0 : made;
}

static int decode_chunk(peer *p, const uint8_t *bytes, size_t n_bytes, uint8_t *out, size_t n) {
    return ZSTD_decompressDCtx(((contexts *)p->state)->decompress, out, n, bytes, n_bytes) == n;
}

#else

int peer_has(peer_coder coder) {
    (void)coder;
    return 0;
}

const char *peer_describe(void) { return "no zstd"; }

static int make_state(peer *p, const uint8_t *codes) {
    (void)p;
    (void)codes;
    return 0;
}

static void free_state(peer *p) { (void)p; }

static size_t encode_chunk(peer *p, const uint8_t *codes, size_t n, uint8_t *out) {
    (void)p;
    (void)codes;
    (void)n;
    (void)out;
    return 0;
}

static int decode_chunk(peer *p, const uint8_t *bytes, size_t n_bytes, uint8_t *out, size_t n) {
    (void)p;
    (void)bytes;
    (void)n_bytes;
    (void)out;
    (void)n;
    return 0;
}

#endif

/* ---- chunk by chunk ---------------------------------------------------------------------------- */

int peer_init(peer *p, peer_coder coder, const uint8_t *codes, size_t n) {
    *p = (peer){.coder = coder, .n_codes = n, .n_chunks = (n + PEER_CHUNK - 1) / PEER_CHUNK};
    if (!peer_has(coder) || !make_state(p, codes)) return 0;
    p->n_bytes = cli_alloc(p->n_chunks, sizeof *p->n_bytes);
    p->bytes = cli_alloc(p->n_chunks, p->cap);
    return 1;
}

void peer_release(peer *p) {
    free_state(p);
    free(p->n_bytes);
    free(p->bytes);
    memset(p, 0, sizeof *p);
}

int peer_encode(peer *p, const uint8_t *codes) {
    for (size_t i = 0; i < p->n_chunks; i++) {
        p->n_bytes[i] = encode_chunk(p, codes + i * PEER_CHUNK, chunk_codes(p, i), p->bytes + i * p->cap);
        if (p->n_bytes[i] == 0) return 0;
    }
    return 1;
}

int peer_decode(peer *p, uint8_t *out, const uint8_t *check) {
    for (size_t i = 0; i < p->n_chunks; i++) {
        const size_t n = chunk_codes(p, i);
        if (!decode_chunk(p, p->bytes + i * p->cap, p->n_bytes[i], out, n)) return 0;
        if (check && memcmp(out, check + i * PEER_CHUNK, n) != 0) return 0;
    }
    return 1;
}
