/* SPDX-License-Identifier: MIT
 *
 * rd.h: blocks of the compressor `rd`: step sizes and codebooks that a model has, not a request.
 *
 * What a value may be off by follows from what it does (reverse water-filling: all errors that reach a logit are alike):
 *
 *     keys      r = k - R(t) mean           the lane's mean key before RoPE, turned to the token's position
 *               code = round(r_c / step_c)  step_c = k / sqrt(e_c + 0.001 mean e), e_c = E[q_c^2] / d; at least sigma_c/6
 *     values    code = round(v_c / step_t)  step_t = v * rms of the token's value, to a quarter of an octave
 *
 * Where statistics have a basis, components of r and of v in it stand in the place of channels: step_j = k, since an error
 * of any component costs a logit as much.  Queries are turned before attention, and sums of values behind it.
 *
 * Codes are coded by static codebooks, one for each class of spread.  Keys' channels stand in the order of their spread,
 * in columns; eight columns have one class, and so have sixteen dimensions of values.  So a block's bytes depend on its
 * tokens and their positions alone: equal tokens give equal bytes.  Where other classes suit a block's codes much better,
 * because its text is unlike the statistics, it has classes of its own.
 *
 *     column i of keys: channel order[i]        code + reach, 0 .. 2*reach; 2*reach + 1 is an escape
 *
 * A code beyond its class's reach is an escape: the code says reach + 1, and the value itself stands behind the streams.
 * Both codes of a pair that has no word in its class's codebook are escapes.
 *
 *     payload   sum u32 | K bytes u16 | V bytes u16 | shift i8 | own u8 | K escapes u16 | V escapes u16 | least u8 |
 *               width u8 | exponents less the least of them, width bits each | K classes? | K stream | V classes? |
 *               V stream | escapes: place u16, value f16
 *               own: 1: keys' classes are the block's, 2: values' are; else the lane's (rd_classes.c); 4 * quarters
 *               place: token * d + column of keys or dimension of values
 *               shift: keys' steps are 2^(shift + quarters/4) times the lane's, to five significant bits
 *               exponent e: step_t = {16, 19, 23, 27}[e % 4] / 16 * 2^(e/4 - 24)
 *
 * A reader sees such a payload as any other block: steps by channel and by token, minimums of -15 steps, codes around
 * 15.  What it does beside that: means in logits, escapes, columns in their order (attn/blocks.c, rd_read.c).
 *
 * docs/RD.md has the source, the figures and what did not work.
 */
#ifndef PLEAT_CODEC_RD_H
#define PLEAT_CODEC_RD_H

#include "codec/block.h"
#include "pleat/cache.h"

#define PLEAT__RD_TOKENS 64u  /* of a block */
#define PLEAT__RD_CLASSES 20u /* of quarter bits of entropy */
#define PLEAT__RD_REACH 15u   /* codes of the widest class are -15..15 */
#define PLEAT__RD_LEVELS (2 * PLEAT__RD_REACH + 1)
#define PLEAT__RD_K_COLUMNS 8u /* of one class */
#define PLEAT__RD_V_DIMS 16u   /* likewise */
#define PLEAT__RD_EXPONENTS 145u

/* Directions in which keys or values are coded, in place of channels.  Matrices are [d][d], and turn a vector by
 * pleat__rd_turn(): `to` to components, `from` components back, and `query` (of keys) a query, so that products with
 * components are those with keys.  to NULL: channels. */
typedef struct pleat__rd_basis {
    const float *to, *from, *query;
    const float *spread; /* [d] deviations of components; the largest first */
} pleat__rd_basis;

/* What is known of a lane, by channel: [head_dim] each. */
typedef struct pleat__rd_source {
    const float *mean;    /* of keys before RoPE */
    const float *energy;  /* E[q_c^2] / d, after RoPE */
    const float *spread;  /* deviation of keys after RoPE from the turned mean */
    const float *v_rms;   /* root mean square of v_c / rms(v) */
    pleat__rd_basis k, v; /* of keys' components an error costs a logit 1 */
} pleat__rd_source;

/* A class's codebook; decoding gives codes around PLEAT__RD_REACH.  n_levels 0: nothing is stored, and every code but 0 is
 * an escape. */
typedef struct pleat__rd_books {
    pleat__codebook k[PLEAT__RD_CLASSES], v[PLEAT__RD_CLASSES];
    uint32_t sum; /* of all codebooks as bytes */
} pleat__rd_books;

/* Codes of a class: -reach..reach; -1 where nothing is stored. */
static inline int32_t pleat__rd_reach(const pleat__codebook *book) { return (int32_t)book->n_levels / 2 - 1; }

/* Of a codebook of pairs: symbols of two codes 0, and of two escapes.  Pairs without a word are coded as two escapes. */
static inline uint32_t pleat__rd_two_zeros(const pleat__codebook *book) { return (book->n_levels / 2 - 1u) * 17; }
static inline uint32_t pleat__rd_two_escapes(const pleat__codebook *book) { return (book->n_levels - 1u) * 17; }

/* Has it words for both?  Then all pairs can be coded, and nothing at all as well. */
static inline bool pleat__rd_pairs_are_sound(const pleat__codebook *book) {
    return book->bits[pleat__rd_two_zeros(book)] != 0 && book->bits[pleat__rd_two_escapes(book)] != 0;
}

/* Once all codebooks are there: decoding with them gives codes around the widest one's middle. */
void pleat__rd_books_centre(pleat__rd_books *books);

/* The deviation, in steps, of a normal variable whose codes have the class's entropy. */
double pleat__rd_spread_of(uint32_t class);

/* How positions of blocks turn pairs of dimensions.  Shared by the lanes of layers with one rope.  A block's middle is
 * its position 31.5: places as far before as behind it turn by the same angle, to either side. */
#define PLEAT__RD_HALF (PLEAT__RD_TOKENS / 2)
typedef struct pleat__rd_turns {
    uint32_t n_pairs;      /* 0: nothing turns */
    uint32_t first, other; /* pairs are (first*i, first*i + other) */
    float *near;           /* [n_pairs][2][32] cosines and sines of 0.5, 1.5, ... positions from a block's middle */
    float *far;            /* [n_blocks][2][n_pairs] of blocks' middles */
} pleat__rd_turns;

void pleat__rd_turns_carve(const pleat_rope *rope, uint32_t n_blocks, pleat__rd_turns *turns, pleat__arena *arena);
/* Block b begins at position first_position + 64 b. */
void pleat__rd_turns_init(const pleat_rope *rope, uint32_t first_position, uint32_t n_blocks, pleat__rd_turns *turns);

/* Columns with one class behind each other: what a stream's decoder does in one go. */
typedef struct pleat__rd_columns {
    uint16_t n_vectors; /* of a slice; even */
    uint8_t class;
} pleat__rd_columns;

typedef struct pleat__rd_lane {
    const pleat__rd_books *books;
    const pleat__rd_turns *turns;
    pleat__rd_basis k_basis, v_basis;
    uint32_t head_dim;
    uint32_t n_columns;         /* of columns[] */
    uint32_t k_vectors;         /* of a slice of keys that its stream holds */
    uint32_t v_vectors;         /* of a block of values, likewise */
    float v;                    /* step of values, in units of the token's rms */
    uint32_t seed;              /* of payloads' sums: of all that decides what a payload means */
    uint16_t *order;            /* [head_dim] channel of each column */
    uint8_t *k_mins, *k_steps;  /* f16 [head_dim] by column */
    pleat__rd_columns *columns; /* [head_dim / 8] */
    uint8_t *k_class;           /* [head_dim / 8] the same by groups of columns */
    uint8_t *v_class;           /* [head_dim / 16] */
    int8_t *k_reach, *v_reach;  /* [head_dim / 8] and [head_dim / 16] of the classes of these columns and dimensions */
    /* The mean key, where it pays to take it away; 0 elsewhere.  By pair, then of what does not turn, by channel. */
    uint32_t n_means;
    uint16_t *mean_pair; /* [n_pairs] which pair; n_means of them */
    float *mean_x, *mean_y;
    float *flat; /* [head_dim] */
} pleat__rd_lane;

void pleat__rd_lane_carve(uint32_t head_dim, pleat__rd_lane *lane, pleat__arena *arena);

/* Choose steps, columns, classes and means.  k and v are the spec's steps, times the layer's factors. */
void pleat__rd_lane_init(pleat__rd_lane *lane, const pleat__rd_source *source, const pleat__rd_books *books,
                         const pleat__rd_turns *turns, const pleat_rope *rope, uint32_t head_dim, float k, float v);

/* The format that the rest of a reader goes by. */
pleat__block_format pleat__rd_format(uint32_t head_dim);

/* Most bytes of a payload. */
size_t pleat__rd_bound(uint32_t head_dim);

/* ---- writing --------------------------------------------------------------------------------------- */

/* Codes of one token without their classes' bounds, for counting: of a key by column, of a value by dimension; clamped to
 * -127..127. */
void pleat__rd_count_key(const pleat__rd_lane *lane, uint32_t block, uint32_t place, const float *k, int8_t *codes);
void pleat__rd_count_value(const pleat__rd_lane *lane, const float *v, int8_t *codes);

/* Scratch of encode, bytes. */
size_t pleat__rd_scratch_bytes(uint32_t head_dim);

/* Write block `block` of the lane; out has pleat__block_bound() bytes.  Returns the payload's. */
size_t pleat__rd_encode(const pleat__rd_lane *lane, uint32_t block, const float *k, const float *v, size_t stride,
                        void *scratch, uint8_t *out);

/* The same in at most `room` bytes, where these are no fewer than pleat__rd_least_bytes().  Steps are the lane's at
 * PLEAT__RD_SAME_LEVEL, and grow by a quarter of an octave a level from `level` on until it fits; at last all codes are 0. */
#define PLEAT__RD_SAME_LEVEL 4u
#define PLEAT__RD_LEVELS_USED 29u /* six octaves more: beyond that there is hardly a code but 0 */
size_t pleat__rd_encode_within(const pleat__rd_lane *lane, uint32_t block, const float *k, const float *v,
                               size_t stride, uint32_t level, size_t room, void *scratch, uint8_t *out);

/* Bytes of a payload that stores nothing; 0: the books have no class for that, and there is no such bound. */
size_t pleat__rd_least_bytes(const pleat__rd_books *books, uint32_t head_dim);

/* ---- what a block takes ---------------------------------------------------------------------------------- */

/* Entropies of codes by their spread, between which others are interpolated. */
#define PLEAT__RD_RATES 97u
typedef struct pleat__rd_rates {
    double bits[PLEAT__RD_RATES]; /* of spreads 2^(i/8 - 6) steps */
} pleat__rd_rates;
void pleat__rd_rates_init(pleat__rd_rates *rates);

/* Bytes that a payload of the lane is expected to have with steps k and v, if codes are as normal variables are. */
double pleat__rd_expected_bytes(const pleat__rd_rates *rates, const pleat__rd_source *source, const pleat_rope *rope,
                                uint32_t head_dim, float k, float v);

/* ---- reading --------------------------------------------------------------------------------------- */

/* As pleat__block_open(). */
pleat_status pleat__rd_open(const pleat__rd_lane *lane, const uint8_t *payload, size_t n_bytes, uint8_t *units,
                            pleat__block_reader *reader);
bool pleat__rd_is_intact(const pleat__rd_lane *lane, const uint8_t *payload, size_t n_bytes);

/* Bytes that a payload says it has; its first PLEAT__RD_FIXED_BYTES are there. */
#define PLEAT__RD_FIXED_BYTES 16u
uint64_t pleat__rd_said_bytes(const uint8_t *payload, uint32_t head_dim);

/* As pleat__block_look(). */
pleat__block_about pleat__rd_look(const uint8_t *payload);

/* The next slice of keys of n blocks, or slice `slice` of values: codes around PLEAT__RD_REACH. */
void pleat__rd_decode_keys(const pleat__codec_dsp *dsp, const pleat__rd_lane *lane, pleat__section *const *sections,
                           uint32_t n, uint8_t *const *out);
void pleat__rd_decode_values(const pleat__codec_dsp *dsp, const pleat__rd_lane *lane, uint32_t slice,
                             pleat__section *const *sections, uint32_t n, uint8_t *const *out);

/* An escape: what has to be added to the value that its code says; of keys by column. */
typedef struct pleat__rd_escape {
    uint32_t token, column;
    float add;
} pleat__rd_escape;

/* out = sum over i of x_i times row i of the matrix. */
void pleat__rd_turn(const float *matrix, uint32_t head_dim, const float *x, float *out);
pleat__rd_escape pleat__rd_k_escape(const pleat__rd_lane *lane, const pleat__block_reader *reader, uint32_t idx);
pleat__rd_escape pleat__rd_v_escape(const pleat__rd_lane *lane, const pleat__block_reader *reader, uint32_t idx);

/* As pleat__block_load(). */
pleat_status pleat__rd_load(const pleat__codec_dsp *dsp, const pleat__rd_lane *lane, uint32_t block,
                            pleat__block_reader *reader, uint8_t *codes, float *k, float *v);

/* The mean key turned to place `place` of a block: added to k, or taken away; by channel. */
void pleat__rd_add_mean(const pleat__rd_lane *lane, uint32_t block, uint32_t place, float factor, float *k,
                        size_t stride);

#endif
