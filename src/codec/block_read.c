/* SPDX-License-Identifier: MIT
 *
 * block_read.c: from a payload to codes, and to values.
 *
 * Sizes from a payload are checked when it is opened; from then on nothing in it can lead a decoder outside.
 */
#include "codec/internal.h"
#include "core/compiler.h"
#include "core/half.h"
#include "hw/cpu.h"

void pleat__codec_dsp_init(pleat__codec_dsp *dsp, uint32_t cpu_flags) {
    dsp->stream = pleat__stream_decode_of(cpu_flags);
    dsp->runs = pleat__stream_decode_runs_of(cpu_flags);
    dsp->raw = pleat__raw_decode_ref;
    dsp->pack = pleat__pack_decode_ref;
#if PLEAT_X86
    if (!(cpu_flags & PLEAT_CPU_AVX2)) return;
    dsp->raw = pleat__raw_decode_avx2;
    dsp->pack = pleat__pack_decode_avx2;
    if (!(cpu_flags & PLEAT_CPU_AVX512)) return;
    dsp->raw = pleat__raw_decode_avx512;
    if (!(cpu_flags & PLEAT_CPU_VBMI2)) return;
    dsp->pack = pleat__pack_decode_vbmi2;
#elif PLEAT_ARM
    if (!(cpu_flags & PLEAT_CPU_NEON)) return;
    dsp->raw = pleat__raw_decode_neon;
    dsp->pack = pleat__pack_decode_neon;
#endif
}

/* ---- open ------------------------------------------------------------------------------------------- */

/* Can a matrix of this format be so? */
static bool is_matrix(const pleat__block_format *f, const pleat__codebook *codebook, uint32_t n_levels, bool on_grids,
                      uint32_t word) {
    const size_t raw_bytes = pleat__raw_bytes(pleat__code_bits(n_levels), pleat__block_vectors(f));
    if (!on_grids && !(word & PLEAT__MATRIX_WIDE)) return false;
    if (pleat__matrix_coder(word) == PLEAT__CODER_RAW) return pleat__matrix_section_bytes(word) == raw_bytes;
    if (pleat__matrix_coder(word) != (uint32_t)f->coder || pleat__matrix_section_bytes(word) >= raw_bytes) return false;
    return f->coder != PLEAT__CODER_HUFFMAN || (codebook && codebook->n_levels == n_levels);
}

static void section_init(pleat__section *s, const pleat__block_format *f, bool is_values, const uint8_t *bytes,
                         uint32_t word) {
    s->coder = (pleat__block_coder)pleat__matrix_coder(word);
    s->is_values = is_values;
    s->n_levels = is_values ? f->v_levels : f->k_levels;
    s->n_columns = is_values ? f->tokens : f->head_dim;
    s->bytes = bytes;
    s->n_bytes = pleat__matrix_section_bytes(word);
    if (s->coder == PLEAT__CODER_HUFFMAN) pleat__stream_init(&s->stream, bytes, s->n_bytes, pleat__block_vectors(f));
}

/* Units where they stand if they are WIDE, else as f16 in `scratch`, which may be NULL.  Returns their bytes. */
static uint32_t open_units(uint32_t word, const uint8_t *units, uint32_t n, uint8_t *scratch, const uint8_t **mins,
                           const uint8_t **steps) {
    if (word & PLEAT__MATRIX_WIDE) {
        *mins = units;
        *steps = units + (size_t)2 * n;
    } else {
        uint8_t *behind = scratch ? scratch + (size_t)4 * ((n + 1) / 2) : NULL;
        *mins = scratch;
        *steps = behind;
        if (scratch) pleat__units_expand(units, n, scratch, behind);
    }
    return (uint32_t)pleat__matrix_unit_bytes(word, n);
}

pleat_status pleat__block_open(const pleat__block_format *f, const pleat__block_codebooks *codebooks,
                               const uint8_t *payload, size_t n_bytes, uint8_t *units, pleat__block_reader *reader) {
    if (n_bytes < PLEAT__BLOCK_HEADER_BYTES) return PLEAT_E_FORMAT;
    const uint32_t k_word = pleat__load_u32(payload + 4), v_word = pleat__load_u32(payload + 8);
    const size_t fixed = pleat__block_fixed_bytes(f, k_word, v_word);
    const size_t k_bytes = pleat__matrix_section_bytes(k_word), v_bytes = pleat__matrix_section_bytes(v_word);
    if (!is_matrix(f, codebooks ? &codebooks->k : NULL, f->k_levels, f->k_on_grids, k_word) ||
        !is_matrix(f, codebooks ? &codebooks->v : NULL, f->v_levels, f->v_on_grids, v_word) ||
        n_bytes != fixed + k_bytes + v_bytes)
        return PLEAT_E_FORMAT;
    const uint32_t k_units = pleat__block_k_units(f), v_units = pleat__block_v_units(f);
    uint8_t *v_scratch = units ? units + (size_t)4 * (k_units + 1) : NULL;
    const uint8_t *at = payload + PLEAT__BLOCK_HEADER_BYTES;
    at += reader->k_unit_bytes = open_units(k_word, at, k_units, units, &reader->k_mins, &reader->k_steps);
    at += reader->v_unit_bytes = open_units(v_word, at, v_units, v_scratch, &reader->v_mins, &reader->v_steps);
    reader->order = f->coder == PLEAT__CODER_PACK ? at : NULL;
    section_init(&reader->k, f, false, payload + fixed, k_word);
    section_init(&reader->v, f, true, payload + fixed + k_bytes, v_word);
    return PLEAT_OK;
}

/* ---- decode ----------------------------------------------------------------------------------------- */

const uint8_t *pleat__section_next_planes(pleat__section *s, uint32_t n_vectors) {
    const uint8_t *planes = s->bytes;
    const size_t n_bytes = pleat__raw_bytes(pleat__code_bits(s->n_levels), n_vectors);
    s->bytes += n_bytes;
    s->n_bytes -= n_bytes;
    return planes;
}

static void decode_raw(const pleat__codec_dsp *dsp, pleat__section *s, uint32_t n_vectors, uint8_t *out) {
    const uint32_t n_bits = pleat__code_bits(s->n_levels);
    dsp->raw(pleat__section_next_planes(s, n_vectors), n_bits, n_vectors, out);
    if (s->n_levels == 1u << n_bits) return;
    const uint8_t top = (uint8_t)(s->n_levels - 1);
    for (uint32_t i = 0; i < n_vectors * 64; i++) out[i] = out[i] < top ? out[i] : top;
}

void pleat__sections_decode(const pleat__codec_dsp *dsp, const pleat__codebook *codebook,
                            pleat__section *const *sections, uint32_t n, uint32_t n_vectors, uint8_t *const *out) {
    pleat__stream *streams[PLEAT__STREAMS];
    uint8_t *stream_out[PLEAT__STREAMS];
    uint32_t n_streams = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (sections[i]->coder == PLEAT__CODER_HUFFMAN) {
            streams[n_streams] = &sections[i]->stream;
            stream_out[n_streams++] = out[i];
        } else if (sections[i]->coder == PLEAT__CODER_PACK) {
            dsp->pack(sections[i], n_vectors, out[i]);
        } else {
            decode_raw(dsp, sections[i], n_vectors, out[i]);
        }
    }
    if (n_streams > 0) dsp->stream(codebook, streams, n_streams, n_vectors, stream_out);
}

bool pleat__section_is_done(const pleat__section *s) {
    return s->coder == PLEAT__CODER_HUFFMAN ? pleat__stream_is_done(&s->stream) : s->bytes && s->n_bytes == 0;
}

/* ---- values ------------------------------------------------------------------------------------------ */

static void load_f16(const uint8_t *at, uint32_t n, float *out) {
    for (uint32_t i = 0; i < n; i++) out[i] = pleat__f16_to_f32(pleat__load_u16(at + 2 * i));
}

/* Byte `column` of each row of a vector as a value. */
INLINE void load_column(const uint8_t *restrict vector, uint32_t column, float min, float step, float *restrict out) {
    AS_LOOP
    for (size_t row = 0; row < 16; row++)
        out[row] = min + step * (float)(int32_t)(pleat__load_u32(vector + 4 * row) >> (8 * column) & 0xFF);
}

static void load_keys(const pleat__block_format *f, const pleat__block_reader *reader, const uint8_t *codes, float *k) {
    float min[PLEAT__MAX_HEAD_DIM], step[PLEAT__MAX_HEAD_DIM];
    const uint32_t n_units = pleat__block_k_units(f), last = n_units - 1;
    load_f16(reader->k_mins, n_units, min);
    load_f16(reader->k_steps, n_units, step);
    for (uint32_t row = 0; row < f->tokens; row += 16) {
        for (uint32_t dim = 0; dim < f->head_dim; dim++, k += 16) {
            const uint32_t unit = pleat__min_u32(dim, last);
            load_column(codes + (size_t)dim / 4 * 64, dim % 4, min[unit], step[unit], k);
        }
        codes += (size_t)16 * f->head_dim;
    }
}

static void load_values(const pleat__block_format *f, const pleat__block_reader *reader, const uint8_t *codes,
                        float *v) {
    const uint32_t n_groups = f->head_dim / f->v_group;
    for (uint32_t place = 0; place < f->tokens; place++) {
        float min[PLEAT__MAX_HEAD_DIM / 16], step[PLEAT__MAX_HEAD_DIM / 16];
        load_f16(reader->v_mins + (size_t)2 * place * n_groups, n_groups, min);
        load_f16(reader->v_steps + (size_t)2 * place * n_groups, n_groups, step);
        for (uint32_t dim = 0; dim < f->head_dim; dim += 16, v += 16) {
            const size_t vector = (size_t)(dim / 16) * (f->tokens / 4) + place / 4;
            load_column(codes + vector * 64, place % 4, min[dim / f->v_group], step[dim / f->v_group], v);
        }
    }
}

/* Is every token at one place? */
static bool is_order(const uint8_t *order, uint32_t n_tokens) {
    bool seen[PLEAT__BLOCK_TOKENS_MAX] = {false};
    for (uint32_t i = 0; i < n_tokens; i++) {
        if (order[i] >= n_tokens || seen[order[i]]) return false;
        seen[order[i]] = true;
    }
    return true;
}

pleat_status pleat__block_load(const pleat__codec_dsp *dsp, const pleat__block_format *f,
                               const pleat__block_codebooks *codebooks, pleat__block_reader *reader, uint8_t *codes,
                               float *k, float *v) {
    pleat__section *sections[2] = {&reader->k, &reader->v};
    if (reader->order && !is_order(reader->order, f->tokens)) return PLEAT_E_FORMAT;
    for (uint32_t i = 0; i < 2; i++) {
        if (!(i == 0 ? k : v)) continue;
        const pleat__codebook *codebook = !codebooks ? NULL : i == 0 ? &codebooks->k : &codebooks->v;
        pleat__sections_decode(dsp, codebook, &sections[i], 1, pleat__block_vectors(f), &codes);
        if (!pleat__section_is_done(sections[i])) return PLEAT_E_FORMAT;
        if (i == 0)
            load_keys(f, reader, codes, k);
        else
            load_values(f, reader, codes, v);
    }
    return PLEAT_OK;
}
