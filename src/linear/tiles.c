/* SPDX-License-Identifier: MIT
 *
 * tiles.c: see tiles.h.
 */
#include "linear/tiles.h"

#include <string.h>

#include "core/half.h"
#include "linear/format.h"

#define SLICE PLEAT__WEIGHT_BLOCK
#define HALF_TILE (PLEAT__TILE_ROWS / 2)

/* Codes of a group for each format, and planes of scales behind them. */
static const struct {
    const char *name;
    uint16_t codes_bytes;
    uint16_t n_planes;
} formats[PLEAT__N_TILE_FORMATS] = {
    [PLEAT__TILE_F16] = {"F16", 4096, 0},         [PLEAT__TILE_Q8] = {"Q8", 2048, 1},
    [PLEAT__TILE_Q4] = {"Q4", 1024, 1},           [PLEAT__TILE_Q4_MIN] = {"Q4_MIN", 1024, 2},
    [PLEAT__TILE_Q8_HALF] = {"Q8_HALF", 2048, 2},
};

const char *pleat__tile_format_name(pleat__tile_format format) { return formats[format].name; }

pleat__tile_format pleat__tile_format_of(pleat__weight_type type) {
    switch (type) {
        case PLEAT__W_Q8_0:
        case PLEAT__W_Q5_0:
        case PLEAT__W_IQ4_NL:
        case PLEAT__W_IQ4_XS: return PLEAT__TILE_Q8;
        case PLEAT__W_Q4_0: return PLEAT__TILE_Q4;
        case PLEAT__W_Q4_1:
        case PLEAT__W_Q4_K: return PLEAT__TILE_Q4_MIN;
        case PLEAT__W_Q3_K:
        case PLEAT__W_Q6_K: return PLEAT__TILE_Q8_HALF;
        default: return PLEAT__TILE_F16;
    }
}

uint32_t pleat__tile_group_bytes(pleat__tile_format format) {
    return formats[format].codes_bytes + formats[format].n_planes * PLEAT__TILE_SCALES_BYTES;
}

pleat__tiles pleat__tiles_of(const pleat__tile_source *source) {
    pleat__tiles t = {.format = pleat__tile_format_of(source->parts[0].type), .cols = source->parts[0].cols};
    for (uint32_t i = 0; i < source->n_parts; i++) {
        t.rows += source->parts[i].rows;
        if (pleat__tile_format_of(source->parts[i].type) != t.format) t.format = PLEAT__TILE_F16;
    }
    t.n_tiles = source->in_pairs ? pleat__div_up_u32(source->parts[0].rows, HALF_TILE)
                                 : pleat__div_up_u32(t.rows, PLEAT__TILE_ROWS);
    t.n_groups = pleat__div_up_u32(t.cols, PLEAT__GROUP_COLS);
    return t;
}

uint64_t pleat__tiles_bytes(const pleat__tiles *t) {
    return (uint64_t)t->n_tiles * t->n_groups * pleat__tile_group_bytes(t->format);
}

/* ---- a slice of a row ---------------------------------------------------------------------------- */

/* Where a slice of a row goes. */
typedef struct place {
    uint8_t *group;  /* all formats but F16 */
    uint32_t slice;  /* of the group */
    uint32_t g, r;   /* row g + 8 r of the tile */
    uint8_t *in_row; /* F16 */
} place;

static void put_half(uint8_t *at, float x) {
    const uint16_t half = pleat__f32_to_f16(x);
    memcpy(at, &half, sizeof half);
}

static void put_scale(const place *p, pleat__tile_format format, uint32_t plane, float x) {
    uint8_t *scales = p->group + formats[format].codes_bytes + plane * PLEAT__TILE_SCALES_BYTES;
    put_half(scales + 16 * p->g + 4 * p->slice + 2 * p->r, x);
}

static uint8_t *lane_at(const place *p, uint32_t block, uint32_t q) {
    return p->group + (size_t)block * 512 + (size_t)16 * (4 * p->g + q);
}

static void put_bytes(const place *p, const uint8_t *codes) {
    for (uint32_t q = 0; q < 4; q++) memcpy(lane_at(p, p->slice, q) + 8 * p->r, codes + 8 * q, 8);
}

static void put_nibbles(const place *p, const uint8_t *codes) {
    for (uint32_t q = 0; q < 4; q++) {
        uint32_t word = 0;
        for (uint32_t i = 0; i < 4; i++)
            word |= (uint32_t)codes[8 * q + 2 * i] << 4 * i | (uint32_t)codes[8 * q + 2 * i + 1] << 4 * (i + 4);
        memcpy(lane_at(p, p->slice / 2, q) + 8 * (p->slice % 2) + 4 * p->r, &word, sizeof word);
    }
}

/* ---- from the file's blocks ------------------------------------------------------------------------ */

/* A block's factor on sub-scales, and on sub-minima. */
static void read_factors(const pleat__weight_format *f, const uint8_t *block, float *d, float *m) {
    uint16_t half;
    memcpy(&half, block + f->d_at, sizeof half);
    *d = pleat__f16_to_f32(half);
    *m = 0;
    if (!f->has_min) return;
    memcpy(&half, block + f->d_at + 2, sizeof half);
    *m = pleat__f16_to_f32(half) * (f->sub != PLEAT__SUB_NONE ? -1.0f : 1.0f);
}

static void put_coded(pleat__tile_format format, pleat__weight_type type, const uint8_t *block, uint32_t slice,
                      const place *p) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    pleat__weight_slice s;
    float d, m;
    read_factors(f, block, &d, &m);
    pleat__weight_slice_read(type, block, slice, &s);
    put_scale(p, format, 0, d * (float)s.scale[0]);
    if (format == PLEAT__TILE_Q4 || format == PLEAT__TILE_Q4_MIN) {
        if (format == PLEAT__TILE_Q4_MIN) put_scale(p, format, 1, m * (float)s.min[0]);
        put_nibbles(p, s.codes);
        return;
    }
    if (format == PLEAT__TILE_Q8_HALF) put_scale(p, format, 1, d * (float)s.scale[1]);
    for (uint32_t i = 0; i < SLICE; i++) {
        const int value = pleat__has_table(type) ? f->table[s.codes[i]] : s.codes[i] - (1 << f->zero_shift);
        s.codes[i] = (uint8_t)(value + 128);
    }
    put_bytes(p, s.codes);
}

static void put_halves(const pleat__matrix *w, const uint8_t *at, uint32_t slice, const place *p) {
    uint16_t halves[SLICE];
    float x[SLICE];
    if (w->type == PLEAT__W_F16) {
        memcpy(p->in_row, at, sizeof halves);
        return;
    }
    for (uint32_t i = 0; i < SLICE && w->type == PLEAT__W_BF16; i++) {
        memcpy(&halves[i], at + 2 * (size_t)i, sizeof halves[i]);
        x[i] = pleat__bf16_to_f32(halves[i]);
    }
    if (w->type == PLEAT__W_F32) memcpy(x, at, sizeof x);
    if (pleat__is_quantised(w->type)) pleat__weight_slice_load(w->type, at, slice, x);
    for (uint32_t i = 0; i < SLICE; i++) halves[i] = pleat__f32_to_f16(x[i]);
    memcpy(p->in_row, halves, sizeof halves);
}

/* Slice `slice` of a row to where it goes. */
static void put_slice(pleat__tile_format format, const pleat__matrix *w, uint32_t row, uint32_t slice, const place *p) {
    const pleat__weight_format *f = &pleat__weight_formats[w->type];
    const uint32_t slices = pleat__is_quantised(w->type) ? f->block / SLICE : 1; /* of a block */
    const uint64_t slice_bytes = pleat__is_quantised(w->type) ? f->bytes : (uint64_t)SLICE * f->bytes;
    const uint8_t *block = w->data + row * w->row_bytes + slice / slices * slice_bytes;
    if (format == PLEAT__TILE_F16)
        put_halves(w, block, slice % slices, p);
    else
        put_coded(format, w->type, block, slice % slices, p);
}

/* ---- tiles ------------------------------------------------------------------------------------------ */

/* The matrix that a row of a tile comes from, and its row there; NULL behind the last. */
static const pleat__matrix *find_row(const pleat__tile_source *source, uint32_t tile, uint32_t at, uint32_t *row) {
    if (source->in_pairs) {
        *row = tile * HALF_TILE + at % HALF_TILE;
        return *row < source->parts[0].rows ? &source->parts[at / HALF_TILE] : NULL;
    }
    *row = tile * PLEAT__TILE_ROWS + at;
    for (uint32_t i = 0; i < source->n_parts; i++) {
        if (*row < source->parts[i].rows) return &source->parts[i];
        *row -= source->parts[i].rows;
    }
    return NULL;
}

void pleat__tiles_pack(const pleat__tiles *t, const pleat__tile_source *source, uint32_t from, uint32_t to,
                       uint8_t *out) {
    const uint32_t group_bytes = pleat__tile_group_bytes(t->format);
    memset(out, 0, (uint64_t)(to - from) * t->n_groups * group_bytes);
    for (uint32_t tile = from; tile < to; tile++, out += (uint64_t)t->n_groups * group_bytes)
        for (uint32_t at = 0; at < PLEAT__TILE_ROWS; at++) {
            uint32_t row;
            const pleat__matrix *w = find_row(source, tile, at, &row);
            for (uint32_t slice = 0; w && slice < t->cols / SLICE; slice++) {
                const place p = {out + (uint64_t)(slice / PLEAT__TILE_SLICES) * group_bytes, slice % PLEAT__TILE_SLICES,
                                 at % HALF_TILE, at / HALF_TILE,
                                 out + ((uint64_t)at * t->n_groups * PLEAT__GROUP_COLS + slice * SLICE) * 2};
                put_slice(t->format, w, row, slice, &p);
            }
        }
}
