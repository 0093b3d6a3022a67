/* SPDX-License-Identifier: MIT
 *
 * rd_write.c: a block of tokens as a payload of the codec rd: codes, escapes, streams.  See rd.h.
 */
#include <math.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codec/internal.h"
#include "codec/rd_internal.h"

#define T PLEAT__RD_TOKENS
#define PAIRED 4u /* columns of keys, or tokens of values, that make a pair are so far from each other */

/* What a block is written with: carved from encode's scratch. */
typedef struct work {
    float *rows;      /* [T][d] residuals of keys by column, or values */
    int8_t *codes;    /* [T][d] of these, within -127..127 */
    uint8_t *vectors; /* [T * d] codes in the order of vectors */
    uint8_t *packed;  /* [T * d] those that the stream holds, behind each other */
    uint8_t *lanes;   /* of the stream's encoder */
    pleat__stream_run *runs;
    uint8_t *classes;   /* [d / 8] of the matrix's groups */
    uint8_t *escapes;   /* [PLEAT__RD_MOST_ESCAPES of d] entries */
    uint32_t n_escapes; /* that there would be */
    bool clamps;        /* codes beyond reach are the outermost ones, and nothing escapes */
    uint32_t level;     /* of steps: SAME_LEVEL, the lane's; quarters of an octave */
    bool is_silent;     /* all codes are 0, in a class that stores nothing */
} work;

static void carve(uint32_t d, work *w, pleat__arena *arena) {
    const uint64_t n = (uint64_t)T * d;
    w->rows = pleat__arena_take(arena, n, sizeof *w->rows);
    w->codes = pleat__arena_take(arena, n, 1);
    w->vectors = pleat__arena_take(arena, n, 1);
    w->packed = pleat__arena_take(arena, n, 1);
    w->lanes = pleat__arena_take(arena, pleat__stream_runs_scratch(T * d / 64), 1);
    w->runs = pleat__arena_take(arena, (uint64_t)T / 16 * (d / PLEAT__RD_K_COLUMNS) + d / 16, sizeof *w->runs);
    w->classes = pleat__arena_take(arena, d / PLEAT__RD_K_COLUMNS, 1);
    w->escapes = pleat__arena_take(arena, pleat__rd_most_escapes(d), PLEAT__RD_ESCAPE_BYTES);
}

size_t pleat__rd_bound(uint32_t d) {
    return PLEAT__RD_HEADER_BYTES + pleat__rd_exponents_bytes(PLEAT__RD_MOST_WIDTH) + 2 * pleat__rd_matrix_bound(d);
}

size_t pleat__rd_scratch_bytes(uint32_t head_dim) {
    work w;
    pleat__arena arena = {0};
    carve(head_dim, &w, &arena);
    return arena.used_bytes;
}

/* Like KVComp's quantiser: what f16 cannot hold is clamped, NaN is 0. */
static float clamped(float x) {
    if (!(x == x)) return 0;
    return x > PLEAT__F16_MAX ? PLEAT__F16_MAX : x < -PLEAT__F16_MAX ? -PLEAT__F16_MAX : x;
}

/* ---- steps of values ------------------------------------------------------------------------------------- */

/* The exponent whose step is nearest to x, in quarters of an octave. */
static uint8_t exponent_of(float x) {
    int octave;
    const float m = frexpf(x, &octave); /* 2^-1 <= m < 1 */
    const int quarter = (m >= 0x1.172b84p-1f) + (m >= 0x1.4bfdaep-1f) + (m >= 0x1.8ace54p-1f) + (m >= 0x1.d5818ep-1f);
    const int e = 4 * (octave - 1) + quarter + 4 * 24, most = PLEAT__RD_EXPONENTS - 1;
    if (!(x > 0) || e < PLEAT__RD_LEAST_EXPONENT) return PLEAT__RD_LEAST_EXPONENT;
    return (uint8_t)(e < most ? e : most);
}

static float rms_of(const float *v, uint32_t d) {
    double sum = 0;
    for (uint32_t i = 0; i < d; i++) sum += (double)(clamped(v[i]) * clamped(v[i]));
    return (float)sqrt(sum / d);
}

/* ---- codes ----------------------------------------------------------------------------------------------- */

/* A key less the turned mean, by column. */
static void residual_of(const pleat__rd_lane *lane, uint32_t block, uint32_t place, const float *k, float *out) {
    float key[PLEAT__MAX_HEAD_DIM];
    for (uint32_t i = 0; i < lane->head_dim; i++) key[i] = clamped(k[i]);
    pleat__rd_add_mean(lane, block, place, -1, key, 1);
    if (lane->k_basis.to) {
        float components[PLEAT__MAX_HEAD_DIM];
        pleat__rd_turn(lane->k_basis.to, lane->head_dim, key, components);
        memcpy(key, components, lane->head_dim * sizeof *key);
    }
    for (uint32_t i = 0; i < lane->head_dim; i++) out[i] = key[lane->order[i]];
}

/* A value, or its components. */
static void value_of(const pleat__rd_lane *lane, const float *v, float *out) {
    float value[PLEAT__MAX_HEAD_DIM];
    for (uint32_t i = 0; i < lane->head_dim; i++) value[i] = clamped(v[i]);
    if (lane->v_basis.to)
        pleat__rd_turn(lane->v_basis.to, lane->head_dim, value, out);
    else
        memcpy(out, value, lane->head_dim * sizeof *out);
}

static int8_t code_of(float x, float step) {
    const float code = rintf(x / step);
    return (int8_t)(code > 127 ? 127 : code < -127 ? -127 : code);
}

static void put_escape(work *w, uint32_t d, uint32_t place) {
    uint8_t *at = w->escapes + (size_t)w->n_escapes * PLEAT__RD_ESCAPE_BYTES;
    if (w->n_escapes++ >= pleat__rd_most_escapes(d)) return; /* too many: the steps will grow */
    const uint16_t half = pleat__f32_to_f16(clamped(w->rows[place])), p = (uint16_t)place;
    memcpy(at, &p, sizeof p);
    memcpy(at + 2, &half, sizeof half);
}

/* A code's number in a class of this reach, or the escape's. */
static uint8_t number_of(const work *w, int32_t reach, int32_t code) {
    const int32_t most = reach < 0 ? 0 : reach;
    if (code >= -most && code <= most) return (uint8_t)(code + most);
    if (w->clamps) return (uint8_t)(code < 0 ? 0 : 2 * most);
    return (uint8_t)(2 * reach + 1);
}

/* The byte of the code at a place in its class, or an escape's.  Where the reach is -1 nothing is stored.  `other` is the
 * place that it may be paired with: a pair without a word escapes, or is two zeros where nothing may. */
static uint8_t put_code(work *w, uint32_t d, const pleat__codebook *book, uint32_t place, uint32_t other) {
    const int32_t reach = pleat__rd_reach(book);
    uint8_t number = number_of(w, reach, w->codes[place]);
    if (reach >= 0 && book->kind == PLEAT__CODEBOOK_PAIRS) {
        const uint32_t with = number_of(w, reach, w->codes[other]);
        const uint32_t symbol = place < other ? number | with << 4 : with | (uint32_t)number << 4;
        if (book->bits[symbol] == 0) number = (uint8_t)(w->clamps ? reach : 2 * reach + 1);
    }
    if (number == (uint8_t)(2 * reach + 1)) put_escape(w, d, place);
    return number;
}

/* Byte of the place in vectors of 16 rows by 4 columns. */
static size_t byte_of(uint32_t row, uint32_t column, uint32_t n_columns) {
    return ((size_t)(row / 16) * (n_columns / 4) + column / 4) * 64 + row % 16 * 4 + column % 4;
}

/* Instead of what codes are: nothing at all, where the books have a class for it; else zeros in the least of them. */
static bool silence(const pleat__codebook *books, uint32_t d, uint32_t n_groups, work *w) {
    uint32_t class = 0;
    while (class + 1 < PLEAT__RD_CLASSES && books[class].n_levels > 0) class ++;
    memset(w->codes, 0, (size_t)T * d);
    memset(w->classes, (int)class, n_groups);
    return true;
}

/* Quantise rows of keys, choose classes and put codes in their places; true: the classes are the block's own. */
static bool code_keys(const pleat__rd_lane *lane, uint32_t level, work *w) {
    const uint32_t d = lane->head_dim;
    float steps[PLEAT__MAX_HEAD_DIM];
    for (uint32_t i = 0; i < d; i++) steps[i] = pleat__rd_step_at(lane->k_steps, i, level);
    for (uint32_t t = 0; t < T; t++)
        for (uint32_t i = 0; i < d; i++) w->codes[t * d + i] = code_of(w->rows[t * d + i], steps[i]);
    const bool is_own = w->is_silent ? silence(lane->books->k, d, pleat__rd_k_class_bytes(d), w)
                                     : pleat__rd_choose_classes(lane->books->k, w->codes, d, PLEAT__RD_K_COLUMNS,
                                                                lane->k_class, w->classes);
    w->n_escapes = 0;
    for (uint32_t t = 0; t < T; t++)
        for (uint32_t i = 0; i < d; i++) {
            const pleat__codebook *book = &lane->books->k[w->classes[i / PLEAT__RD_K_COLUMNS]];
            w->vectors[byte_of(t, i, d)] = put_code(w, d, book, t * d + i, t * d + (i ^ PAIRED));
        }
    return is_own;
}

static bool code_values(const pleat__rd_lane *lane, const uint8_t *exponents, work *w) {
    const uint32_t d = lane->head_dim;
    for (uint32_t t = 0; t < T; t++) {
        const float step = pleat__rd_step(exponents[t]);
        for (uint32_t i = 0; i < d; i++) w->codes[t * d + i] = code_of(w->rows[t * d + i], step);
    }
    const bool is_own = w->is_silent ? silence(lane->books->v, d, pleat__rd_v_class_bytes(d), w)
                                     : pleat__rd_choose_classes(lane->books->v, w->codes, d, PLEAT__RD_V_DIMS,
                                                                lane->v_class, w->classes);
    w->n_escapes = 0;
    for (uint32_t t = 0; t < T; t++)
        for (uint32_t i = 0; i < d; i++) {
            const pleat__codebook *book = &lane->books->v[w->classes[i / PLEAT__RD_V_DIMS]];
            w->vectors[byte_of(i, t, T)] = put_code(w, d, book, t * d + i, (t ^ PAIRED) * d + i);
        }
    return is_own;
}

/* ---- streams --------------------------------------------------------------------------------------------- */

/* Add n_vectors vectors to the stream, unless their class stores nothing. */
static uint32_t add_run(work *w, uint32_t n_runs, const pleat__codebook *book, uint32_t n_vectors, const uint8_t *from,
                        size_t *n_packed) {
    if (book->n_levels == 0) return n_runs;
    memcpy(w->packed + *n_packed, from, (size_t)64 * n_vectors);
    *n_packed += (size_t)64 * n_vectors;
    w->runs[n_runs] = (pleat__stream_run){book, n_vectors};
    return n_runs + 1;
}

static size_t write_keys(const pleat__rd_lane *lane, work *w, uint8_t *out) {
    const uint32_t n_vectors = PLEAT__RD_K_COLUMNS / 4, n_groups = pleat__rd_k_class_bytes(lane->head_dim);
    uint32_t n_runs = 0;
    size_t n_packed = 0;
    const uint8_t *from = w->vectors;
    for (uint32_t slice = 0; slice < T / 16; slice++)
        for (uint32_t g = 0; g < n_groups; g++, from += (size_t)64 * n_vectors)
            n_runs = add_run(w, n_runs, &lane->books->k[w->classes[g]], n_vectors, from, &n_packed);
    return pleat__stream_encode_runs(w->runs, n_runs, w->packed, w->lanes, out);
}

static size_t write_values(const pleat__rd_lane *lane, work *w, uint8_t *out) {
    uint32_t n_runs = 0;
    size_t n_packed = 0;
    for (uint32_t slice = 0; slice < lane->head_dim / 16; slice++)
        n_runs = add_run(w, n_runs, &lane->books->v[w->classes[slice]], T / 4, w->vectors + (size_t)slice * T * 16,
                         &n_packed);
    return pleat__stream_encode_runs(w->runs, n_runs, w->packed, w->lanes, out);
}

/* ---- the payload ----------------------------------------------------------------------------------------- */

_Static_assert(160 + PLEAT__RD_TOKENS * PLEAT__MAX_HEAD_DIM <= UINT16_MAX, "a stream's bytes fit into two");

static void put_u32(uint8_t *at, uint32_t x) { memcpy(at, &x, sizeof x); }
static void put_u16(uint8_t *at, uint32_t x) { memcpy(at, &(uint16_t){(uint16_t)x}, sizeof(uint16_t)); }

/* Does a matrix take more than its part of a payload? */
static bool is_too_long(const work *w, uint32_t d, size_t n_bytes) {
    return w->n_escapes > pleat__rd_most_escapes(d) ||
           n_bytes + w->n_escapes * (size_t)PLEAT__RD_ESCAPE_BYTES > pleat__rd_matrix_bound(d);
}

/* What a matrix takes in a payload. */
typedef struct matrix {
    size_t n_classes; /* bytes of its own classes; 0: the lane's */
    size_t n_stream;
} matrix;

/* Keys' classes and stream at `at`.  Steps grow until they fit with the escapes; at last codes are clamped. */
static matrix put_keys(const pleat__rd_lane *lane, uint32_t block, const float *k, size_t stride, work *w,
                       uint32_t *level, uint8_t *at) {
    const uint32_t d = lane->head_dim;
    for (uint32_t t = 0; t < T; t++) residual_of(lane, block, t, k + t * stride, w->rows + (size_t)t * d);
    *level = w->level;
    for (w->clamps = false;;
         w->clamps = *level == PLEAT__RD_MOST_LEVEL, *level = pleat__min_u32(*level + 4, PLEAT__RD_MOST_LEVEL)) {
        matrix m = {.n_classes = code_keys(lane, *level, w) ? pleat__rd_k_class_bytes(d) : 0};
        if (w->n_escapes <= pleat__rd_most_escapes(d)) m.n_stream = write_keys(lane, w, at + m.n_classes);
        if (is_too_long(w, d, m.n_classes + m.n_stream)) continue;
        memcpy(at, w->classes, m.n_classes);
        return m;
    }
}

/* Likewise: exponents grow by an octave. */
static matrix put_values(const pleat__rd_lane *lane, const float *v, size_t stride, work *w, uint8_t *exponents,
                         uint8_t *at) {
    const uint32_t d = lane->head_dim, most = PLEAT__RD_EXPONENTS - 1;
    for (uint32_t t = 0; t < T; t++) {
        const uint32_t e = exponent_of(lane->v * rms_of(v + t * stride, d)) + w->level;
        exponents[t] = (uint8_t)pleat__min_u32(
            pleat__max_u32(e, PLEAT__RD_LEAST_EXPONENT + PLEAT__RD_SAME_LEVEL) - PLEAT__RD_SAME_LEVEL, most);
        value_of(lane, v + t * stride, w->rows + (size_t)t * d);
    }
    for (uint32_t turn = 0;; turn++) {
        w->clamps = turn > most / 4;
        matrix m = {.n_classes = code_values(lane, exponents, w) ? pleat__rd_v_class_bytes(d) : 0};
        if (w->n_escapes <= pleat__rd_most_escapes(d)) m.n_stream = write_values(lane, w, at + m.n_classes);
        if (!is_too_long(w, d, m.n_classes + m.n_stream)) {
            memcpy(at, w->classes, m.n_classes);
            return m;
        }
        for (uint32_t t = 0; t < T; t++) exponents[t] = (uint8_t)pleat__min_u32(exponents[t] + 4u, most);
    }
}

static uint8_t *put_escapes(const work *w, uint8_t *at) {
    const size_t n = (size_t)w->n_escapes * PLEAT__RD_ESCAPE_BYTES;
    memcpy(at, w->escapes, n);
    return at + n;
}

/* Exponents less the least of them, in as few bits as they take; returns these.  A block that stores nothing has no need
 * of them. */
static uint32_t put_exponents(const work *w, const uint8_t *exponents, uint8_t *out) {
    uint8_t least = exponents[0], most = exponents[0], *at = out + PLEAT__RD_HEADER_BYTES;
    for (uint32_t t = 1; t < T && !w->is_silent; t++) {
        least = exponents[t] < least ? exponents[t] : least;
        most = exponents[t] > most ? exponents[t] : most;
    }
    uint32_t width = 0;
    while ((most - least) >> width > 0) width++;
    for (uint32_t t = 0; t < T && width > 0; t += 8, at += width) {
        uint64_t eight = 0;
        for (uint32_t i = 0; i < 8; i++) eight |= (uint64_t)(exponents[t + i] - least) << i * width;
        for (uint32_t i = 0; i < width; i++) at[i] = (uint8_t)(eight >> 8 * i);
    }
    out[PLEAT__RD_AT_LEAST] = least;
    out[PLEAT__RD_AT_WIDTH] = (uint8_t)width;
    return width;
}

/* Keys' escapes stand behind both streams, so they are kept until values' have been written.  So is what comes before the
 * streams: how many bytes exponents take is known last. */
static size_t encode_at(const pleat__rd_lane *lane, uint32_t block, const float *k, const float *v, size_t stride,
                        work *w, uint8_t *out) {
    uint32_t level;
    uint8_t exponents[T], *const from = out + PLEAT__RD_HEADER_BYTES + pleat__rd_exponents_bytes(PLEAT__RD_MOST_WIDTH);
    const matrix keys = put_keys(lane, block, k, stride, w, &level, from);
    uint8_t *k_escapes = from + keys.n_classes + keys.n_stream, *behind = put_escapes(w, k_escapes);
    const uint32_t n_k = w->n_escapes;
    const matrix values = put_values(lane, v, stride, w, exponents, behind);
    const size_t escape_bytes = (size_t)(behind - k_escapes), v_bytes = values.n_classes + values.n_stream;
    memcpy(w->packed, k_escapes, escape_bytes);
    memmove(k_escapes, behind, v_bytes);
    memcpy(k_escapes + v_bytes, w->packed, escape_bytes);
    const size_t n_bytes = (size_t)(put_escapes(w, k_escapes + v_bytes + escape_bytes) - from);
    uint8_t *at = out + PLEAT__RD_HEADER_BYTES + pleat__rd_exponents_bytes(put_exponents(w, exponents, out));
    memmove(at, from, n_bytes);
    put_u16(out + PLEAT__RD_AT_K_BYTES, (uint32_t)keys.n_stream);
    put_u16(out + PLEAT__RD_AT_V_BYTES, (uint32_t)values.n_stream);
    out[PLEAT__RD_AT_SHIFT] = (uint8_t)(level / 4 - PLEAT__RD_SAME_LEVEL / 4);
    out[PLEAT__RD_AT_OWN] =
        (uint8_t)((keys.n_classes ? PLEAT__RD_OWN_KEYS : 0) | (values.n_classes ? PLEAT__RD_OWN_VALUES : 0) |
                  level % 4 * (PLEAT__RD_QUARTERS / 3));
    put_u16(out + PLEAT__RD_AT_K_ESCAPES, n_k);
    put_u16(out + PLEAT__RD_AT_V_ESCAPES, w->n_escapes);
    put_u32(out, XXH32(out + 4, (size_t)(at - out) + n_bytes - 4, lane->seed));
    return (size_t)(at - out) + n_bytes;
}

size_t pleat__rd_encode_within(const pleat__rd_lane *lane, uint32_t block, const float *k, const float *v,
                               size_t stride, uint32_t level, size_t room, void *scratch, uint8_t *out) {
    work w = {.level = level};
    pleat__arena arena = {.base = scratch, .cap_bytes = pleat__rd_scratch_bytes(lane->head_dim)};
    carve(lane->head_dim, &w, &arena);
    for (;; w.level++) {
        w.is_silent = w.level >= PLEAT__RD_LEVELS_USED;
        const size_t n = encode_at(lane, block, k, v, stride, &w, out);
        if (n <= room || w.is_silent) return n;
    }
}

size_t pleat__rd_encode(const pleat__rd_lane *lane, uint32_t block, const float *k, const float *v, size_t stride,
                        void *scratch, uint8_t *out) {
    return pleat__rd_encode_within(lane, block, k, v, stride, PLEAT__RD_SAME_LEVEL, SIZE_MAX, scratch, out);
}

size_t pleat__rd_least_bytes(const pleat__rd_books *books, uint32_t d) {
    bool k_is_silent = false, v_is_silent = false;
    for (uint32_t class = 0; class < PLEAT__RD_CLASSES; class ++) {
        k_is_silent |= books->k[class].n_levels == 0;
        v_is_silent |= books->v[class].n_levels == 0;
    }
    if (!k_is_silent || !v_is_silent) return 0;
    return PLEAT__RD_HEADER_BYTES + pleat__rd_k_class_bytes(d) + pleat__rd_v_class_bytes(d);
}

/* ---- counting -------------------------------------------------------------------------------------------- */

void pleat__rd_count_key(const pleat__rd_lane *lane, uint32_t block, uint32_t place, const float *k, int8_t *codes) {
    float row[PLEAT__MAX_HEAD_DIM];
    residual_of(lane, block, place, k, row);
    for (uint32_t i = 0; i < lane->head_dim; i++) codes[i] = code_of(row[i], pleat__rd_f16(lane->k_steps, i));
}

void pleat__rd_count_value(const pleat__rd_lane *lane, const float *v, int8_t *codes) {
    const float step = pleat__rd_step(exponent_of(lane->v * rms_of(v, lane->head_dim)));
    float row[PLEAT__MAX_HEAD_DIM];
    value_of(lane, v, row);
    for (uint32_t i = 0; i < lane->head_dim; i++) codes[i] = code_of(row[i], step);
}
