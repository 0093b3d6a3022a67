/* SPDX-License-Identifier: MIT
 *
 * decode.c: the formats of codebooks and payloads, taught: each part as docs/FORMAT.md tells it, one bit at a time,
 * with no thought of speed.  Section numbers are the document's.
 *
 * Sizes are at most those of the format: T * d <= 256 * 512 codes.
 */
#include "decode.h"

#include <math.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define MAX_CODES (256u * 512u)

enum { RAW, HUFFMAN, PACK };

/* A section and its matrix. */
typedef struct section {
    const uint8_t *bytes;
    size_t n_bytes;
    unsigned rows, columns, levels;
    int is_values;
    uint8_t *codes; /* [rows * columns] in the order of vectors */
} section;

static unsigned u16_at(const uint8_t *p) { return p[0] | (unsigned)p[1] << 8; }
static unsigned u32_at(const uint8_t *p) { return p[0] | p[1] << 8 | p[2] << 16 | (unsigned)p[3] << 24; }

static float f16_at(const uint8_t *p) {
    const unsigned h = p[0] | p[1] << 8, exponent = h >> 10 & 31, fraction = h & 1023;
    const float sign = h >> 15 ? -1.0f : 1.0f;
    if (exponent == 31) return fraction ? NAN : sign * INFINITY;
    return sign *
           (exponent == 0 ? ldexpf((float)fraction, -24) : ldexpf(1024.0f + (float)fraction, (int)exponent - 25));
}

/* Bits that the number x takes. */
static unsigned bits_of(unsigned x) { return x < 2 ? x : 1 + bits_of(x / 2); }

/* Number i of those of k bits that begin at p (section 8). */
static unsigned number_at(const uint8_t *p, size_t i, unsigned k) {
    unsigned x = 0;
    for (unsigned bit = 0; bit < k; bit++) x |= (unsigned)(p[(i * k + bit) / 8] >> (i * k + bit) % 8 & 1) << bit;
    return x;
}

/* Section 4: where the code of a row and a column stands. */
static uint8_t *code_at(const section *s, unsigned r, unsigned c) {
    return s->codes + (r / 16 * (s->columns / 4) + c / 4) * 64 + 4 * (r % 16) + c % 4;
}

static uint8_t below(unsigned code, unsigned levels) { return (uint8_t)(code < levels ? code : levels - 1); }

/* ---- section 5 --------------------------------------------------------------------------------------- */

static const char *decode_raw(section *s) {
    const unsigned w = bits_of(s->levels - 1), n = s->rows * s->columns / 64;
    if (s->n_bytes != (size_t)8 * w * n) return "a RAW section of another size";
    for (unsigned vector = 0; vector < n; vector++) {
        for (unsigned i = 0; i < 64; i++) {
            unsigned code = 0;
            for (unsigned p = 0; p < w; p++)
                code |= (unsigned)(s->bytes[(vector * w + p) * 8 + i / 8] >> i % 8 & 1) << p;
            s->codes[vector * 64 + i] = below(code, s->levels);
        }
    }
    return NULL;
}

/* ---- sections 6 and 7 ---------------------------------------------------------------------------------- */

typedef struct codebook {
    int is_pairs;
    unsigned longest;
    unsigned n_symbols;
    unsigned symbol[256], length[256], word[256]; /* in the order of words; the word's first bit is its highest */
} codebook;

static void read_codebook(codebook *b, const uint8_t *bytes) {
    const unsigned levels = bytes[1] + 1u;
    b->is_pairs = bytes[0] == 0;
    b->longest = 0;
    b->n_symbols = b->is_pairs ? levels * levels : levels;
    unsigned n = 0, word = 0;
    for (unsigned length = 1; length <= 9; length++) {
        word <<= 1;
        for (unsigned i = 0; i < b->n_symbols; i++) {
            if (bytes[2 + i] != length) continue;
            b->symbol[n] = b->is_pairs ? i % levels + 16 * (i / levels) : i;
            b->length[n] = b->longest = length;
            b->word[n++] = word++;
        }
    }
}

/* Bits of a lane that are not used yet, oldest first. */
typedef struct window {
    uint8_t bit[32]; /* behind the n: zeros */
    unsigned n;
} window;

/* Which word the window, with zeros behind it, begins with. */
static unsigned word_in(const window *w, const codebook *b) {
    for (unsigned i = 0; i < b->n_symbols; i++) {
        unsigned start = 0;
        for (unsigned bit = 0; bit < b->length[i]; bit++) start = 2 * start + w->bit[bit];
        if (start == b->word[i]) return i;
    }
    return 0; /* of no complete codebook */
}

static void take(window *w, uint8_t byte) {
    for (unsigned i = 0; i < 8; i++) w->bit[w->n++] = byte >> i & 1;
}

static void drop(window *w, unsigned n) {
    memmove(w->bit, w->bit + n, sizeof w->bit - n);
    memset(w->bit + sizeof w->bit - n, 0, n);
    w->n -= n;
}

static const char *decode_huffman(section *s, const uint8_t *codebook_bytes) {
    codebook b;
    window windows[32];
    memset(windows, 0, sizeof windows);
    read_codebook(&b, codebook_bytes);
    const unsigned n = s->rows * s->columns / 64, n_steps = b.is_pairs ? n : 2 * n;
    size_t next = 0;
    for (unsigned step = 0; step < n_steps; step++) {
        for (unsigned j = 0; j < 32; j++) {
            window *w = &windows[j];
            while (w->n < (step == n_steps - 1 ? b.length[word_in(w, &b)] : b.longest)) {
                take(w, next < s->n_bytes ? s->bytes[next] : 0);
                next++;
            }
        }
        for (unsigned j = 0; j < 32; j++) {
            const unsigned i = word_in(&windows[j], &b);
            uint8_t *code = s->codes + (b.is_pairs ? 2 : 1) * (step / 2) * 64 + 2 * j + step % 2;
            code[0] = (uint8_t)(b.is_pairs ? b.symbol[i] % 16 : b.symbol[i]);
            if (b.is_pairs) code[64] = (uint8_t)(b.symbol[i] / 16);
            drop(&windows[j], b.length[i]);
        }
    }
    return next < s->n_bytes || next > s->n_bytes + 32 ? "a stream of another length" : NULL;
}

/* Moves *bytes behind a codebook of so many levels. */
static const char *check_codebook(const uint8_t **bytes, const uint8_t *end, unsigned levels) {
    static const unsigned most_levels[] = {8, 32, 256}, longest[] = {7, 8, 9};
    const uint8_t *b = *bytes;
    if (end - b < 2 || b[0] > 2 || b[1] + 1u != levels || levels > most_levels[b[0]])
        return "a codebook of another kind";
    const unsigned n_symbols = b[0] == 0 ? levels * levels : levels;
    if ((size_t)(end - b) < 2 + n_symbols) return "a codebook that is cut";
    unsigned sum = 0; /* of 2^-length, in 512ths */
    for (unsigned i = 0; i < n_symbols; i++) {
        if (b[2 + i] < 1 || b[2 + i] > longest[b[0]]) return "a word of another length";
        sum += 512u >> b[2 + i];
    }
    *bytes += 2 + n_symbols;
    return sum == 512 ? NULL : "words that are no codebook";
}

/* ---- section 8 ----------------------------------------------------------------------------------------- */

static const char *decode_pack(section *s) {
    const unsigned w = bits_of(s->levels - 1), b = bits_of(w), P = s->columns;
    const uint8_t *at = s->bytes, *end = s->bytes + s->n_bytes;
    for (unsigned slice = 0; slice < s->rows; slice += 16) {
        const uint8_t *widths = at, *minimums = at + P * b / 8;
        if ((size_t)(end - at) < P * b / 8 + P * w / 8) return "a slice that is cut";
        at = minimums + P * w / 8;
        for (unsigned p = 0; p < P; p++) {
            const unsigned width = number_at(widths, p, b), minimum = number_at(minimums, p, w);
            if (width > w || (size_t)(end - at) < 2 * width) return "a pack that is too wide";
            for (unsigned i = 0; i < 16; i++) {
                const unsigned row = slice + (s->is_values ? p % 16 : i), column = s->is_values ? p / 16 * 16 + i : p;
                *code_at(s, row, column) = below(minimum + number_at(at, i, width), s->levels);
            }
            at += 2 * width;
        }
    }
    return at == end ? NULL : "bytes behind the last slice";
}

/* ---- sections 2 and 3 ----------------------------------------------------------------------------------- */

/* A header's word of a matrix. */
typedef struct word {
    unsigned coder, is_wide, n_bytes;
} word;

static word word_at(const uint8_t *p) { return (word){p[0] & 3, p[0] >> 2 & 1, u32_at(p) / 8}; }

/* Minimum and step of unit i of n. */
static void read_unit(const uint8_t *units, int is_wide, size_t i, size_t n, float *minimum, float *step) {
    if (is_wide) {
        *minimum = f16_at(units + 2 * i);
        *step = f16_at(units + 2 * n + 2 * i);
        return;
    }
    const unsigned unit = units[2 * i] | units[2 * i + 1] << 8, h = unit >> 7 << 6;
    const int z = unit & 64 ? (int)(unit & 127) - 128 : (int)(unit & 127);
    const uint8_t f16[2] = {h & 255, (uint8_t)(h >> 8)};
    *step = f16_at(f16);
    *minimum = (float)z * *step / 2;
}

static const char *decode_section(section *s, unsigned coder, const teach_format *f, const uint8_t *codebook_bytes) {
    const size_t raw_bytes = (size_t)s->rows * s->columns / 8 * bits_of(s->levels - 1);
    if (coder == RAW) return decode_raw(s);
    if (coder != f->coder || s->n_bytes >= raw_bytes) return "a coder that does not belong here";
    return coder == HUFFMAN ? decode_huffman(s, codebook_bytes) : decode_pack(s);
}

/* The token at each place. */
static const char *read_order(const uint8_t *order, unsigned T, unsigned *tokens) {
    uint8_t seen[256] = {0};
    for (unsigned p = 0; p < T; p++) {
        tokens[p] = order ? order[p] : p;
        if (tokens[p] >= T || seen[tokens[p]]++) return "an order that is none";
    }
    return NULL;
}

const char *teach_decode(const teach_format *f, const uint8_t *payload, size_t n_bytes, float *k, float *v) {
    static uint8_t k_codes[MAX_CODES], v_codes[MAX_CODES];
    const unsigned T = f->T, d = f->d, u_K = f->by_channel ? d : 1, u_V = T * (d / f->g);
    if (n_bytes < 12) return "too short";
    if (u32_at(payload) != XXH32(payload + 4, n_bytes - 4, f->sum)) return "a sum that does not hold";
    const word k_word = word_at(payload + 4), v_word = word_at(payload + 8);
    if ((k_word.is_wide | f->k_compact) == 0 || (v_word.is_wide | f->v_compact) == 0) return "units that are not there";
    const uint8_t *k_units = payload + 12, *v_units = k_units + (k_word.is_wide ? 4 : 2) * (size_t)u_K;
    const uint8_t *order = v_units + (v_word.is_wide ? 4 : 2) * (size_t)u_V;
    const size_t fixed = (size_t)(order - payload) + (f->coder == PACK ? T : 0);
    if (n_bytes != fixed + k_word.n_bytes + v_word.n_bytes) return "parts that do not add up";
    section K = {payload + fixed, k_word.n_bytes, T, d, f->k_levels, 0, k_codes};
    section V = {K.bytes + K.n_bytes, v_word.n_bytes, d, T, f->v_levels, 1, v_codes};

    unsigned tokens[256];
    const char *wrong = read_order(f->coder == PACK ? order : NULL, T, tokens);
    if (!wrong) wrong = decode_section(&K, k_word.coder, f, f->k_codebook);
    if (!wrong) wrong = decode_section(&V, v_word.coder, f, f->v_codebook);
    if (wrong) return wrong;
    for (unsigned p = 0; p < T; p++) {
        for (unsigned i = 0; i < d; i++) {
            float minimum, step;
            read_unit(k_units, k_word.is_wide, f->by_channel ? i : 0, u_K, &minimum, &step);
            k[tokens[p] * d + i] = minimum + step * *code_at(&K, p, i);
            read_unit(v_units, v_word.is_wide, p * (d / f->g) + i / f->g, u_V, &minimum, &step);
            v[tokens[p] * d + i] = minimum + step * *code_at(&V, i, p);
        }
    }
    return NULL;
}

/* ---- section 9 ------------------------------------------------------------------------------------------ */

/* Section 1: are these numbers of a format? */
static int is_format(const teach_format *f) {
    const int is_T = f->T == 16 || f->T == 32 || f->T == 64 || f->T == 128 || f->T == 256;
    const int is_d = f->d >= 16 && f->d <= 512 && f->d % 16 == 0;
    return is_T && is_d && f->g >= 16 && f->g % 16 == 0 && f->d % f->g == 0 && f->k_levels >= 2 && f->v_levels >= 2;
}

const char *teach_codebooks(teach_format *f, const uint8_t *bytes, size_t n_bytes) {
    if (n_bytes < 20) return "too short";
    const uint8_t *at = bytes + 16, *end = bytes + n_bytes - 4;
    if (memcmp(bytes, "PLCB", 4) != 0 || bytes[4] != 1) return "no codebooks of version 1";
    if (u32_at(end) != XXH32(bytes, n_bytes - 4, 0)) return "a sum that does not hold";
    if (bytes[5] > PACK || bytes[6] > 7 || bytes[7] != 0) return "another coder, or other units";
    memset(f, 0, sizeof *f);
    f->sum = u32_at(end);
    f->coder = bytes[5];
    f->by_channel = bytes[6] & 1;
    f->k_compact = bytes[6] >> 1 & 1;
    f->v_compact = bytes[6] >> 2 & 1;
    f->T = u16_at(bytes + 8);
    f->d = u16_at(bytes + 10);
    f->g = u16_at(bytes + 12);
    f->k_levels = bytes[14] + 1u;
    f->v_levels = bytes[15] + 1u;
    if (!is_format(f)) return "numbers of no format";
    const char *wrong = NULL;
    if (f->coder == HUFFMAN) {
        f->k_codebook = at;
        wrong = check_codebook(&at, end, f->k_levels);
        f->v_codebook = at;
        if (!wrong) wrong = check_codebook(&at, end, f->v_levels);
    }
    if (!wrong && at != end) wrong = "bytes behind the codebooks";
    return wrong;
}
