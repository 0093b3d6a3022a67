/* SPDX-License-Identifier: MIT
 *
 * rd_read.c: payloads of the codec rd, opened and decoded.  See rd.h.
 */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codec/internal.h"
#include "codec/rd_internal.h"

#define T PLEAT__RD_TOKENS

/* Bytes of own classes before a payload's streams. */
static uint32_t k_head(const uint8_t *payload, uint32_t d) {
    return payload[PLEAT__RD_AT_OWN] & PLEAT__RD_OWN_KEYS ? pleat__rd_k_class_bytes(d) : 0;
}
static uint32_t v_head(const uint8_t *payload, uint32_t d) {
    return payload[PLEAT__RD_AT_OWN] & PLEAT__RD_OWN_VALUES ? pleat__rd_v_class_bytes(d) : 0;
}

static uint32_t count_escapes(const uint8_t *payload) {
    return (uint32_t)pleat__load_u16(payload + PLEAT__RD_AT_K_ESCAPES) +
           pleat__load_u16(payload + PLEAT__RD_AT_V_ESCAPES);
}

pleat__block_about pleat__rd_look(const uint8_t *payload) {
    return (pleat__block_about){
        .has_own_keys = payload[PLEAT__RD_AT_OWN] & PLEAT__RD_OWN_KEYS,
        .has_own_values = payload[PLEAT__RD_AT_OWN] & PLEAT__RD_OWN_VALUES,
        .coarser = (int32_t)pleat__rd_level_of(payload) - (int32_t)PLEAT__RD_SAME_LEVEL,
        .n_escapes = count_escapes(payload),
    };
}

uint64_t pleat__rd_said_bytes(const uint8_t *payload, uint32_t d) {
    return (uint64_t)PLEAT__RD_HEADER_BYTES + pleat__rd_exponents_bytes(payload[PLEAT__RD_AT_WIDTH]) +
           k_head(payload, d) + v_head(payload, d) + pleat__load_u16(payload + PLEAT__RD_AT_K_BYTES) +
           pleat__load_u16(payload + PLEAT__RD_AT_V_BYTES) + count_escapes(payload) * PLEAT__RD_ESCAPE_BYTES;
}

/* ---- opening --------------------------------------------------------------------------------------------- */

/* Minus fifteen of a step of five significant bits: n/16 of its power of two, and that is 8 or 16 times more. */
static uint16_t min_of(uint16_t step) {
    const uint32_t n = PLEAT__RD_REACH * (16 + (step >> 6 & 15u)), is_more = n >= 256;
    return (uint16_t)(0x8000 + (step & 0x7C00) + ((3 + is_more) << 10) + (n << (3 - is_more)) - 0x400);
}

/* Keys' steps and minimums at a level, as f16. */
static void level_steps(const pleat__rd_lane *lane, uint32_t level, uint8_t *mins, uint8_t *steps) {
    uint16_t step[PLEAT__MAX_HEAD_DIM], min[PLEAT__MAX_HEAD_DIM];
    memcpy(step, lane->k_steps, lane->head_dim * sizeof *step);
    for (uint32_t i = 0; i < lane->head_dim; i++) {
        step[i] = pleat__rd_half_at(step[i], level);
        min[i] = min_of(step[i]);
    }
    memcpy(steps, step, lane->head_dim * sizeof *step);
    memcpy(mins, min, lane->head_dim * sizeof *min);
}

/* Exponents of a payload whose width is PLEAT__RD_MOST_WIDTH at most. */
static void unpack_exponents(const uint8_t *payload, uint16_t *restrict exponents) {
    const uint32_t width = payload[PLEAT__RD_AT_WIDTH], mask = (1u << width) - 1;
    uint8_t packed[T + 8] = {0}; /* so that eight bytes can be taken from where any eight numbers begin */
    memcpy(packed, payload + PLEAT__RD_HEADER_BYTES, pleat__rd_exponents_bytes(width));
    for (uint32_t t = 0; t < T; t += 8) {
        const uint64_t eight = pleat__load_u64(packed + t / 8 * width);
        for (uint32_t i = 0; i < 8; i++)
            exponents[t + i] = (uint16_t)(payload[PLEAT__RD_AT_LEAST] + ((uint32_t)(eight >> i * width) & mask));
    }
}

/* Steps and minimums as f16, straight from exponents: the mantissas of {16, 19, 23, 27}/16 and of fifteen of it.  They are
 * {0, 0xC0, 0x1C0, 0x2C0} and {0, 0xF4, 0x1E4, 0x2D4}, as sums that vectors of 16-bit numbers can do. */
static void expand_exponents(const uint16_t *exponents, uint8_t *restrict mins, uint8_t *restrict steps) {
    uint16_t step[T], min[T];
    for (uint32_t t = 0; t < T; t++) {
        const uint16_t e = exponents[t], quarter = e & 3u, octave = (uint16_t)((e >> 2) - (24 - 15));
        const uint16_t is_some = (quarter | quarter >> 1) & 1u;
        step[t] = (uint16_t)((octave << 10) + (quarter << 8) - (is_some << 6));
        min[t] = (uint16_t)(0x8F80 + (octave << 10) + (quarter << 8) - (quarter << 4) + (is_some << 2)); /* -15/2^15 */
    }
    memcpy(steps, step, sizeof step);
    memcpy(mins, min, sizeof min);
}

static bool exponents_are_sound(const uint16_t *exponents) {
    uint8_t n_wrong = 0; /* T at most */
    for (uint32_t t = 0; t < T; t++)
        n_wrong += (exponents[t] < PLEAT__RD_LEAST_EXPONENT) + (exponents[t] >= PLEAT__RD_EXPONENTS);
    return n_wrong == 0;
}

static bool escapes_are_sound(const pleat__rd_lane *lane, const uint8_t *at, uint32_t n) {
    uint32_t n_wrong = 0; /* counted, so that no branch is taken for each */
    for (uint32_t i = 0; i < n; i++, at += PLEAT__RD_ESCAPE_BYTES) {
        const uint32_t place = pleat__load_u16(at), value = pleat__load_u16(at + 2);
        n_wrong += (place >= T * lane->head_dim) + ((value & 0x7C00) == 0x7C00);
    }
    return n_wrong == 0;
}

static bool classes_are_sound(const uint8_t *classes, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (classes[i] >= PLEAT__RD_CLASSES) return false;
    return true;
}

/* Vectors of n groups that a stream holds, n_each of a group. */
static uint32_t count_vectors(const pleat__codebook *books, const uint8_t *classes, uint32_t n, uint32_t n_each) {
    uint32_t n_vectors = 0;
    for (uint32_t i = 0; i < n; i++) n_vectors += books[classes[i]].n_levels > 0 ? n_each : 0;
    return n_vectors;
}

static void section_init(pleat__section *s, const uint8_t *classes, const uint8_t *bytes, size_t n_bytes,
                         uint32_t n_vectors) {
    *s = (pleat__section){.coder = PLEAT__CODER_HUFFMAN,
                          .n_levels = PLEAT__RD_LEVELS,
                          .bytes = bytes,
                          .n_bytes = n_bytes,
                          .classes = classes};
    pleat__stream_init(&s->stream, bytes, n_bytes, n_vectors);
}

pleat_status pleat__rd_open(const pleat__rd_lane *lane, const uint8_t *payload, size_t n_bytes, uint8_t *units,
                            pleat__block_reader *r) {
    if (n_bytes < PLEAT__RD_HEADER_BYTES || pleat__rd_said_bytes(payload, lane->head_dim) != n_bytes ||
        payload[PLEAT__RD_AT_WIDTH] > PLEAT__RD_MOST_WIDTH)
        return PLEAT_E_FORMAT;
    const size_t k_bytes = pleat__load_u16(payload + PLEAT__RD_AT_K_BYTES),
                 v_bytes = pleat__load_u16(payload + PLEAT__RD_AT_V_BYTES);
    const uint32_t d = lane->head_dim, level = pleat__rd_level_of(payload), n_k = k_head(payload, d),
                   n_v = v_head(payload, d);
    const uint8_t *k_classes =
        payload + PLEAT__RD_HEADER_BYTES + pleat__rd_exponents_bytes(payload[PLEAT__RD_AT_WIDTH]);
    uint16_t exponents[T];
    unpack_exponents(payload, exponents);
    const uint8_t *k_stream = k_classes + n_k, *v_classes = k_stream + k_bytes, *v_stream = v_classes + n_v;
    *r = (pleat__block_reader){.k_mins = lane->k_mins,
                               .k_steps = lane->k_steps,
                               .escapes = v_stream + v_bytes,
                               .n_k_escapes = pleat__load_u16(payload + PLEAT__RD_AT_K_ESCAPES),
                               .n_v_escapes = pleat__load_u16(payload + PLEAT__RD_AT_V_ESCAPES)};
    if (level > PLEAT__RD_MOST_LEVEL ||
        payload[PLEAT__RD_AT_OWN] > (PLEAT__RD_QUARTERS | PLEAT__RD_OWN_KEYS | PLEAT__RD_OWN_VALUES) ||
        !exponents_are_sound(exponents) || !classes_are_sound(k_classes, n_k) || !classes_are_sound(v_classes, n_v) ||
        !escapes_are_sound(lane, r->escapes, r->n_k_escapes + r->n_v_escapes))
        return PLEAT_E_FORMAT;
    if (units) {
        uint8_t *v_units = units + 4 * ((size_t)d + 1);
        r->k_steps_id = (uint8_t)(level + 1);
        if (level != PLEAT__RD_SAME_LEVEL) {
            level_steps(lane, level, units, units + 2 * (size_t)d);
            r->k_mins = units, r->k_steps = units + 2 * (size_t)d;
        }
        expand_exponents(exponents, v_units, v_units + 2 * T);
        r->v_mins = v_units;
        r->v_steps = v_units + 2 * T;
    }
    const uint32_t k_vectors =
        n_k ? count_vectors(lane->books->k, k_classes, n_k, PLEAT__RD_K_COLUMNS / 4) : lane->k_vectors;
    section_init(&r->k, n_k ? k_classes : NULL, k_stream, k_bytes, k_vectors * (T / 16));
    section_init(&r->v, n_v ? v_classes : NULL, v_stream, v_bytes,
                 n_v ? count_vectors(lane->books->v, v_classes, n_v, T / 4) : lane->v_vectors);
    return PLEAT_OK;
}

bool pleat__rd_is_intact(const pleat__rd_lane *lane, const uint8_t *payload, size_t n_bytes) {
    return n_bytes >= PLEAT__RD_HEADER_BYTES && pleat__load_u32(payload) == XXH32(payload + 4, n_bytes - 4, lane->seed);
}

/* ---- decoding -------------------------------------------------------------------------------------------- */

static void centre(pleat__codebook *book) {
    if (book->n_levels > 0) pleat__codebook_rebase(book, (uint8_t)((int32_t)PLEAT__RD_REACH - pleat__rd_reach(book)));
}

void pleat__rd_books_centre(pleat__rd_books *books) {
    for (uint32_t i = 0; i < PLEAT__RD_CLASSES; i++) {
        centre(&books->k[i]);
        centre(&books->v[i]);
    }
}

/* The next vectors of n streams: runs that all have codes. */
static void decode_stored(const pleat__codec_dsp *dsp, const pleat__stream_run *runs, uint32_t n_runs,
                          pleat__section *const *sections, uint32_t n, uint8_t *const *out) {
    pleat__stream *streams[PLEAT__STREAMS] = {NULL};
    uint8_t *at[PLEAT__STREAMS] = {NULL};
    for (uint32_t i = 0; i < n; i++) {
        streams[i] = &sections[i]->stream;
        at[i] = out[i];
    }
    if (dsp->runs) {
        dsp->runs(runs, n_runs, streams, n, at);
        return;
    }
    for (uint32_t r = 0; r < n_runs; r++) {
        dsp->stream(runs[r].codebook, streams, n, runs[r].n_vectors, at);
        for (uint32_t i = 0; i < n; i++) at[i] += (size_t)64 * runs[r].n_vectors;
    }
}

/* The next vectors of n sections; where a run's class stores nothing all codes are 0. */
static void decode(const pleat__codec_dsp *dsp, const pleat__stream_run *runs, uint32_t n_runs,
                   pleat__section *const *sections, uint32_t n, uint8_t *const *out) {
    uint8_t *at[PLEAT__STREAMS] = {NULL};
    for (uint32_t i = 0; i < n; i++) at[i] = out[i];
    for (uint32_t from = 0, to; from < n_runs; from = to) {
        const bool is_stored = runs[from].codebook->n_levels > 0;
        size_t n_bytes = 0;
        for (to = from; to < n_runs && (runs[to].codebook->n_levels > 0) == is_stored; to++)
            n_bytes += (size_t)64 * runs[to].n_vectors;
        if (is_stored) decode_stored(dsp, runs + from, to - from, sections, n, at);
        for (uint32_t i = 0; i < n; i++) {
            if (!is_stored) memset(at[i], PLEAT__RD_REACH, n_bytes);
            at[i] += n_bytes;
        }
    }
}

/* Runs of a slice of keys: groups of columns with one class behind each other are one. */
static uint32_t runs_of_keys(const pleat__rd_lane *lane, const uint8_t *classes, pleat__stream_run *runs) {
    const uint32_t n_vectors = PLEAT__RD_K_COLUMNS / 4, n = pleat__rd_k_class_bytes(lane->head_dim);
    uint32_t n_runs = 0;
    for (uint32_t g = 0; g < n; g++) {
        if (g > 0 && classes[g] == classes[g - 1])
            runs[n_runs - 1].n_vectors += n_vectors;
        else
            runs[n_runs++] = (pleat__stream_run){&lane->books->k[classes[g]], n_vectors};
    }
    return n_runs;
}

/* Those of some sections that have the classes of the lane, and where their codes go. */
typedef struct alike {
    pleat__section *sections[PLEAT__STREAMS];
    uint8_t *out[PLEAT__STREAMS];
    uint32_t n;
} alike;

static void add_alike(alike *a, pleat__section *section, uint8_t *out) {
    a->sections[a->n] = section;
    a->out[a->n++] = out;
}

/* Blocks that have the lane's classes are decoded together, the others one by one. */
void pleat__rd_decode_keys(const pleat__codec_dsp *dsp, const pleat__rd_lane *lane, pleat__section *const *sections,
                           uint32_t n, uint8_t *const *out) {
    pleat__stream_run runs[PLEAT__MAX_HEAD_DIM / PLEAT__RD_K_COLUMNS];
    alike a = {.n = 0};
    for (uint32_t i = 0; i < n; i++) {
        if (!sections[i]->classes) {
            add_alike(&a, sections[i], out[i]);
            continue;
        }
        const uint32_t n_runs = runs_of_keys(lane, sections[i]->classes, runs);
        decode(dsp, runs, n_runs, &sections[i], 1, &out[i]);
    }
    if (a.n > 0) decode(dsp, runs, runs_of_keys(lane, lane->k_class, runs), a.sections, a.n, a.out);
}

void pleat__rd_decode_values(const pleat__codec_dsp *dsp, const pleat__rd_lane *lane, uint32_t slice,
                             pleat__section *const *sections, uint32_t n, uint8_t *const *out) {
    alike a = {.n = 0};
    for (uint32_t i = 0; i < n; i++) {
        if (!sections[i]->classes) {
            add_alike(&a, sections[i], out[i]);
            continue;
        }
        const pleat__stream_run run = {&lane->books->v[sections[i]->classes[slice]], T / 4};
        decode(dsp, &run, 1, &sections[i], 1, &out[i]);
    }
    const pleat__stream_run run = {&lane->books->v[lane->v_class[slice]], T / 4};
    if (a.n > 0) decode(dsp, &run, 1, a.sections, a.n, a.out);
}

/* ---- escapes --------------------------------------------------------------------------------------------- */

pleat__rd_escape pleat__rd_k_escape(const pleat__rd_lane *lane, const pleat__block_reader *r, uint32_t idx) {
    const uint8_t *at = r->escapes + (size_t)idx * PLEAT__RD_ESCAPE_BYTES;
    const uint32_t place = pleat__load_u16(at), column = place % lane->head_dim;
    const int32_t reach = r->k.classes ? pleat__rd_reach(&lane->books->k[r->k.classes[column / PLEAT__RD_K_COLUMNS]])
                                       : lane->k_reach[column / PLEAT__RD_K_COLUMNS];
    return (pleat__rd_escape){place / lane->head_dim, column,
                              pleat__f16_at(at + 2) - (float)(reach + 1) * pleat__rd_f16(r->k_steps, column)};
}

pleat__rd_escape pleat__rd_v_escape(const pleat__rd_lane *lane, const pleat__block_reader *r, uint32_t idx) {
    const uint8_t *at = r->escapes + (size_t)(r->n_k_escapes + idx) * PLEAT__RD_ESCAPE_BYTES;
    const uint32_t place = pleat__load_u16(at), dim = place % lane->head_dim, token = place / lane->head_dim;
    const int32_t reach = r->v.classes ? pleat__rd_reach(&lane->books->v[r->v.classes[dim / PLEAT__RD_V_DIMS]])
                                       : lane->v_reach[dim / PLEAT__RD_V_DIMS];
    return (pleat__rd_escape){token, dim,
                              pleat__f16_at(at + 2) - (float)(reach + 1) * pleat__rd_f16(r->v_steps, token)};
}

/* ---- values ---------------------------------------------------------------------------------------------- */

static int32_t code_at(const uint8_t *codes, uint32_t row, uint32_t column, uint32_t n_columns) {
    const size_t vector = (size_t)(row / 16) * (n_columns / 4) + column / 4;
    return (int32_t)codes[vector * 64 + row % 16 * 4 + column % 4] - (int32_t)PLEAT__RD_REACH;
}

/* Element `i` of token t, in tiles [T/16][d][16 tokens]. */
static float *key_at(float *k, uint32_t d, uint32_t t, uint32_t i) {
    return k + ((size_t)(t / 16) * d + i) * 16 + t % 16;
}

/* Token t's key less its mean, from what stands by column. */
static void put_key(const pleat__rd_lane *lane, uint32_t t, const float *row, float *k) {
    const uint32_t d = lane->head_dim;
    float components[PLEAT__MAX_HEAD_DIM], key[PLEAT__MAX_HEAD_DIM];
    for (uint32_t i = 0; i < d; i++) components[lane->order[i]] = row[i];
    if (lane->k_basis.to) pleat__rd_turn(lane->k_basis.from, d, components, key);
    for (uint32_t i = 0; i < d; i++) *key_at(k, d, t, i) = lane->k_basis.to ? key[i] : components[i];
}

static void load_keys(const pleat__rd_lane *lane, uint32_t block, const pleat__block_reader *r, const uint8_t *codes,
                      float *k) {
    const uint32_t d = lane->head_dim;
    for (uint32_t t = 0; t < T; t++)
        for (uint32_t i = 0; i < d; i++)
            *key_at(k, d, t, i) = pleat__rd_f16(r->k_steps, i) * (float)code_at(codes, t, i, d);
    for (uint32_t i = 0; i < r->n_k_escapes; i++) {
        const pleat__rd_escape e = pleat__rd_k_escape(lane, r, i);
        *key_at(k, d, e.token, e.column) += e.add;
    }
    for (uint32_t t = 0; t < T; t++) {
        float row[PLEAT__MAX_HEAD_DIM];
        for (uint32_t i = 0; i < d; i++) row[i] = *key_at(k, d, t, i);
        put_key(lane, t, row, k);
        pleat__rd_add_mean(lane, block, t, 1, key_at(k, d, t, 0), 16);
    }
}

static void load_values(const pleat__rd_lane *lane, const pleat__block_reader *r, const uint8_t *codes, float *v) {
    const uint32_t d = lane->head_dim;
    for (uint32_t t = 0; t < T; t++) {
        const float step = pleat__rd_f16(r->v_steps, t);
        for (uint32_t i = 0; i < d; i++) v[(size_t)t * d + i] = step * (float)code_at(codes, i, t, T);
    }
    for (uint32_t i = 0; i < r->n_v_escapes; i++) {
        const pleat__rd_escape e = pleat__rd_v_escape(lane, r, i);
        v[(size_t)e.token * d + e.column] += e.add;
    }
    for (uint32_t t = 0; lane->v_basis.to && t < T; t++) {
        float value[PLEAT__MAX_HEAD_DIM];
        pleat__rd_turn(lane->v_basis.from, d, v + (size_t)t * d, value);
        memcpy(v + (size_t)t * d, value, d * sizeof *value);
    }
}

pleat_status pleat__rd_load(const pleat__codec_dsp *dsp, const pleat__rd_lane *lane, uint32_t block,
                            pleat__block_reader *r, uint8_t *codes, float *k, float *v) {
    pleat__section *section = &r->k;
    const uint32_t d = lane->head_dim;
    for (uint32_t slice = 0; k && slice < T / 16; slice++) {
        uint8_t *out = codes + (size_t)slice * 16 * d;
        pleat__rd_decode_keys(dsp, lane, &section, 1, &out);
    }
    if (k && !pleat__stream_is_done(&r->k.stream)) return PLEAT_E_FORMAT;
    if (k) load_keys(lane, block, r, codes, k);
    section = &r->v;
    for (uint32_t slice = 0; v && slice < d / 16; slice++) {
        uint8_t *out = codes + (size_t)slice * 16 * T;
        pleat__rd_decode_values(dsp, lane, slice, &section, 1, &out);
    }
    if (v && !pleat__stream_is_done(&r->v.stream)) return PLEAT_E_FORMAT;
    if (v) load_values(lane, r, codes, v);
    return PLEAT_OK;
}
