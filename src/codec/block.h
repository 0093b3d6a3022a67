/* SPDX-License-Identifier: MIT
 *
 * block.h: a block of one lane's tokens as a payload of bytes.  docs/FORMAT.md is its law.
 *
 *     f32 k, v ── quantise ──> codes and units ── count ──> codebooks (entropy/codebook.h)
 *                                    └── encode ──> payload ── open ──> reader ── decode ──> codes, slice by slice
 *
 *     payload   sum u32 | K matrix u32 | V matrix u32 | K units | V units | order u8[T]? | K section | V section
 *               sum: XXH32 of all bytes behind it, seeded with the sum of the codebooks as bytes (codebooks.c), which
 *               tells payloads of other codebooks and formats apart
 *               matrix: section's bytes << 3 | units are WIDE << 2 | coder
 *               units: u16 each, COMPACT: step's f16 bits 14..6 | z of 7 bits (min = z * step/2);  WIDE, where some
 *               unit of the matrix is not on a grid (quant/bounded.h): mins f16 | steps f16
 *               order: only if the format's coder is PACK: token of the lane's block that stands at each place;
 *               units of values stand in the order of places too
 *
 * All integers are little endian.  Nothing is aligned.  A section holds one code matrix as vectors of 64 codes:
 *
 *     keys      rows = places of tokens, columns = dimensions          T x d
 *     values    rows = dimensions, columns = places of tokens          d x T
 *     vector    v = (row / 16) * (columns / 4) + column / 4      byte 4 * (row % 16) + column % 4
 *
 * which is what a dot product along the columns reads: 16 rows by 4 columns.  A slice is 16 rows: columns / 4 vectors.
 *
 *     RAW       each vector as w bit planes of 8 bytes, plane p holding bit p of code i at bit i; w = bits for
 *               levels - 1
 *     HUFFMAN   one stream (entropy/stream.h) with the layer's codebook
 *     PACK      fixed widths after reordering the tokens (PackKV): see pack.c
 *
 * A section is stored RAW where its coder comes out no shorter (correction e).  Payloads are at most
 * pleat__block_bound() bytes, which is less than the block's f16 bytes, 4 * T * d.  Caches whose buffer is smaller look
 * whether it is enough.
 */
#ifndef PLEAT_CODEC_BLOCK_H
#define PLEAT_CODEC_BLOCK_H

#include "core/kv_view.h"
#include "core/memory.h"
#include "entropy/stream.h"

typedef enum pleat__block_coder { PLEAT__CODER_RAW, PLEAT__CODER_HUFFMAN, PLEAT__CODER_PACK } pleat__block_coder;

/* Most tokens of a block: the place of each is a byte of the payload's order. */
#define PLEAT__BLOCK_TOKENS_MAX 256u

/* How blocks of a cache are made. */
typedef struct pleat__block_format {
    uint32_t head_dim;           /* d: a multiple of 16, 16..512 */
    uint32_t tokens;             /* T: 16, 32, 64, 128 or 256 */
    bool by_channel;             /* keys: a unit is a channel, else the block */
    uint32_t v_group;            /* values: dimensions of a unit; divides d, a multiple of 16 */
    float k_rel, v_rel;          /* relative step sizes */
    uint32_t k_levels, v_levels; /* levels of codes; of those on grids, where units are tried so first */
    bool k_on_grids, v_on_grids; /* units are tried on grids first */
    bool is_rd;                  /* payloads are rd.h's: steps and codebooks are the lane's */
    pleat__block_coder coder;    /* what sections are tried with */
} pleat__block_format;

/* The format of a spec's blocks: kvcomp or kivi, else PLEAT_E_ARG, as for a head_dim that is no multiple of 16 in
 * 16..512. */
pleat_status pleat__block_format_of(const pleat_spec *spec, uint32_t head_dim, pleat__block_format *format);

/* How many blocks of block_tokens become of n_warm tokens that are in none: so many that behind the sinks the spec's
 * buffer is left at most, or a part of a block. */
static inline uint32_t pleat__blocks_due(const pleat_spec *spec, uint32_t n_warm, uint32_t block_tokens) {
    const uint32_t n = n_warm - pleat__min_u32(n_warm, spec->sinks);
    if (n <= spec->buffer) return 0;
    return pleat__min_u32(pleat__div_up_u32(n - spec->buffer, block_tokens), n / block_tokens);
}

/* Give a format its steps: rels, levels and, if units may be, whether they are tried on grids: where that takes 3 to
 * PLEAT__GRID_LEVELS. */
#define PLEAT__GRID_LEVELS 64u
void pleat__block_set_steps(pleat__block_format *format, float k_rel, float v_rel, bool may_be_on_grids);

static inline uint32_t pleat__block_k_units(const pleat__block_format *f) { return f->by_channel ? f->head_dim : 1; }
static inline uint32_t pleat__block_v_units(const pleat__block_format *f) {
    return f->tokens * (f->head_dim / f->v_group);
}
/* Vectors of the keys' matrix and of the values': the same. */
static inline uint32_t pleat__block_vectors(const pleat__block_format *f) { return f->tokens * f->head_dim / 64; }

/* Most bytes of a payload. */
size_t pleat__block_bound(const pleat__block_format *format);

/* ---- making payloads ----------------------------------------------------------------------------- */

/* A block's codes and units.  Codes are in the order of vectors. */
typedef struct pleat__block_codes {
    uint8_t *k, *v;                                /* [T * d] */
    uint16_t *k_mins, *k_steps, *v_mins, *v_steps; /* f16 */
    bool k_wide, v_wide;                           /* their units are stored WIDE: not all are on grids */
    uint8_t *order;                                /* [T] the token at each place: 0, 1, ... unless the coder is PACK */
    uint8_t *rows;                                 /* [2 * T * d] scratch of quantise and encode */
    uint16_t *units;                               /* [2 * units of V] scratch of quantise */
} pleat__block_codes;

void pleat__block_codes_carve(const pleat__block_format *format, pleat__block_codes *codes, pleat__arena *arena);

/* Quantise T tokens; k and v are rows of d floats, `stride` apart. */
void pleat__block_quantise(const pleat__block_format *format, const float *k, const float *v, size_t stride,
                           pleat__block_codes *codes);

/* Codebooks of one layer. */
typedef struct pleat__block_codebooks {
    pleat__codebook k, v;
    uint32_t sum; /* the end of k and v as bytes, and the seed of their payloads' sums */
} pleat__block_codebooks;

/* For these counts. */
void pleat__block_codebooks_build(const pleat__block_format *format, const pleat__code_counts *k_counts,
                                  const pleat__code_counts *v_counts, pleat__block_codebooks *codebooks);

/* A format and its codebooks as bytes: docs/FORMAT.md, section 9.  `codebooks` may be NULL unless the coder is
 * HUFFMAN.  write() takes room for the cap, and returns the bytes. */
size_t pleat__block_codebooks_cap(const pleat__block_format *format);
size_t pleat__block_codebooks_write(const pleat__block_format *format, const pleat__block_codebooks *codebooks,
                                    uint8_t *out);
/* From bytes from anywhere.  PLEAT_E_FORMAT, with the offset and what is wrong there: they are no codebooks, or those
 * of another format; *codebooks is as it was. */
pleat_status pleat__block_codebooks_read(const pleat__block_format *format, const uint8_t *bytes, size_t n_bytes,
                                         pleat__block_codebooks *codebooks, pleat_error *err);

/* Write the payload to out [pleat__block_bound()]; returns its bytes.  `codebooks` may be NULL unless the coder is
 * HUFFMAN.  The same bytes always. */
size_t pleat__block_encode(const pleat__block_format *format, const pleat__block_codebooks *codebooks,
                           const pleat__block_codes *codes, uint8_t *out);

/* ---- reading payloads ----------------------------------------------------------------------------- */

/* One matrix being decoded, slice after slice from its first. */
typedef struct pleat__section {
    pleat__stream stream; /* HUFFMAN */
    pleat__block_coder coder;
    bool is_values;
    uint32_t n_levels;
    uint32_t n_columns;
    const uint8_t *bytes;   /* RAW, PACK: what comes next; NULL: found damaged */
    size_t n_bytes;         /* bytes that are left */
    const uint8_t *classes; /* rd: of groups, where they are the block's own; NULL: the lane's */
} pleat__section;

typedef struct pleat__block_reader {
    const uint8_t *k_mins, *k_steps, *v_mins, *v_steps; /* f16, not aligned */
    uint32_t k_unit_bytes, v_unit_bytes;                /* bytes of a unit as it is stored */
    const uint8_t *order;                               /* [T]; NULL: tokens in their own order */
    const uint8_t *escapes;                             /* rd: keys', then values' */
    uint32_t n_k_escapes, n_v_escapes;
    uint8_t k_steps_id; /* rd: blocks of a lane that have the same have the same k_mins and k_steps; 0: unlike any */
    pleat__section k, v;
} pleat__block_reader;

/* Bytes that COMPACT units are made f16 in. */
static inline size_t pleat__block_units_bytes(const pleat__block_format *f) {
    const uint32_t n = pleat__block_k_units(f) + 1 + pleat__block_v_units(f); /* they are expanded two at a time */
    return 4 * (size_t)n;
}

/* Look at a payload.  PLEAT_E_FORMAT if its parts do not fit n_bytes exactly; if a coder is neither RAW nor the
 * format's, or has no codebook for its levels.  Also if a section is of no size that its coder makes, or if units are
 * COMPACT that the format has WIDE alone.  The payload must have PLEAT__STREAM_PAD readable bytes behind it when it is
 * decoded, and must stay, as `units` must: pleat__block_units_bytes() of scratch for units; NULL: the reader has none
 * that are COMPACT. */
pleat_status pleat__block_open(const pleat__block_format *format, const pleat__block_codebooks *codebooks,
                               const uint8_t *payload, size_t n_bytes, uint8_t *units, pleat__block_reader *reader);

/* Does the sum hold?  If not the payload is damaged, or of other codebooks or another format.  For payloads from
 * outside; what a cache wrote it trusts. */
bool pleat__block_is_intact(const pleat__block_format *format, const pleat__block_codebooks *codebooks,
                            const uint8_t *payload, size_t n_bytes);

/* Decoders for these CPU flags. */
typedef struct pleat__codec_dsp {
    pleat__stream_decode_fn stream;
    pleat__stream_decode_runs_fn runs;                                                    /* may be NULL */
    void (*raw)(const uint8_t *bytes, uint32_t n_bits, uint32_t n_vectors, uint8_t *out); /* n_bits 1..8 */
    void (*pack)(pleat__section *section, uint32_t n_vectors, uint8_t *out);
} pleat__codec_dsp;
void pleat__codec_dsp_init(pleat__codec_dsp *dsp, uint32_t cpu_flags);

/* Decode the next n_vectors, whole slices, of n sections (1..PLEAT__STREAMS) of one format and one codebook, to out[i]
 * (aligned to 64).  Codes are below the levels, whatever the bytes.  No more vectors than there are. */
void pleat__sections_decode(const pleat__codec_dsp *dsp, const pleat__codebook *codebook,
                            pleat__section *const *sections, uint32_t n, uint32_t n_vectors, uint8_t *const *out);

/* RAW codes of two bits, all four levels: what multiplies planes need not decode them.  The next n_vectors, [][2][8]; the
 * section is moved behind them. */
static inline bool pleat__section_is_planes(const pleat__section *section) {
    return section->coder == PLEAT__CODER_RAW && section->n_levels == 4;
}
const uint8_t *pleat__section_next_planes(pleat__section *section, uint32_t n_vectors);

/* After all slices: the section ended where its bytes do. */
bool pleat__section_is_done(const pleat__section *section);

/* A whole block as f32 tiles, as pleat__quant_load_fn gives them: keys [T/16][d][16 tokens], values
 * [T/16][16 tokens][d]; tokens in their places' order.  Either may be NULL.  `codes` is T*d bytes of scratch, aligned
 * to 64.  PLEAT_E_FORMAT: the order is no permutation, or a section does not end where its bytes do. */
pleat_status pleat__block_load(const pleat__codec_dsp *dsp, const pleat__block_format *format,
                               const pleat__block_codebooks *codebooks, pleat__block_reader *reader, uint8_t *codes,
                               float *k, float *v);

/* ---- blocks in pages ------------------------------------------------------------------------------- */

/* What a payload says of itself that was made by an encoder; all 0 but for rd's. */
typedef struct pleat__block_about {
    bool has_own_keys, has_own_values; /* classes of its own, in the place of the lane's */
    int32_t coarser;                   /* keys' steps are 2^(coarser/4) times the lane's */
    uint32_t n_escapes;
} pleat__block_about;
pleat__block_about pleat__block_look(const pleat__block_format *format, const uint8_t *payload);

/* Payloads stand one behind the other in pages, from multiples of this many bytes on, across page ends. */
#define PLEAT__BLOCK_ALIGN 16u

/* A lane's blocks. */
typedef struct pleat__block_run {
    const pleat__block_format *format;
    const pleat__block_codebooks *codebooks;
    const struct pleat__rd_lane *rd; /* NULL unless the format is rd's */
    const uint8_t *base;             /* the pool's first byte; with page_bytes, ids and step: core/kv_view.h */
    uint64_t page_bytes;
    const pleat__page_id *ids;
    int32_t step;
    const uint32_t *ends; /* [n_blocks] where each block ends, in PLEAT__BLOCK_ALIGN from the first page's first byte */
    uint32_t n_blocks;
} pleat__block_run;

/* Bytes for a block's units, and for the block where it crosses pages. */
static inline size_t pleat__block_copy_bytes(const pleat__block_format *format) {
    return pleat__block_units_bytes(format) + pleat__block_bound(format) + PLEAT__BLOCK_ALIGN + PLEAT__STREAM_PAD;
}

/* A block's payload: where it stands if it and its pad are inside one page, else copied into `copy`.  `copy` is of
 * pleat__block_copy_bytes(); the first pleat__block_units_bytes() of that stay free for pleat__block_open().  *n_bytes
 * is the payload's (from its header, never more than there is). */
const uint8_t *pleat__block_fetch(const pleat__block_run *run, uint32_t block, uint8_t *copy, size_t *n_bytes);

/* Open it, with its units in `copy` too. */
pleat_status pleat__block_run_open(const pleat__block_run *run, uint32_t block, uint8_t *copy,
                                   pleat__block_reader *reader);

#endif
