/* SPDX-License-Identifier: MIT
 *
 * blocks_walk.h: the walk over groups of blocks that the variants of blocks.h share: blocks.c opens and decodes, a
 * variant's steps multiply.
 *
 *     begin, for each group (keys_begin, keys(slice) ..., cap, softmax, values_begin, values(slice) ...), end
 */
#ifndef PLEAT_ATTN_BLOCKS_WALK_H
#define PLEAT_ATTN_BLOCKS_WALK_H

#include "attn/blocks.h"
#include "codec/pack.h"
#include "core/half.h"

/* Heads that kernels take together. */
#define PLEAT__BLOCKS_HEADS 4u

/* call, with the constant `heads`, which is n: 1..PLEAT__BLOCKS_HEADS, which more count as. */
#define PLEAT__FOR_HEADS(n, call)            \
    switch (n) {                             \
        case 1: PLEAT__WITH_HEADS(1, call);  \
        case 2: PLEAT__WITH_HEADS(2, call);  \
        case 3: PLEAT__WITH_HEADS(3, call);  \
        default: PLEAT__WITH_HEADS(4, call); \
    }

/* The same for all of a walk's, with `head` = 0, PLEAT__BLOCKS_HEADS, ... too, from which on they are. */
#define PLEAT__FOR_FOUR_HEADS(w, call)                                                               \
    for (uint32_t head = 0, n_left = (w)->query->n_group; n_left > 0; head += PLEAT__BLOCKS_HEADS) { \
        PLEAT__FOR_HEADS(n_left, call)                                                               \
        n_left -= pleat__min_u32(n_left, PLEAT__BLOCKS_HEADS);                                       \
    }
#define PLEAT__WITH_HEADS(n, call) \
    {                              \
        enum { heads = (n) };      \
        call;                      \
    }                              \
    break

/* Columns of a matrix that kernels take together: memory of factors is padded to as many. */
#define PLEAT__BLOCKS_COLUMNS 64u

static inline uint32_t pleat__blocks_padded(uint32_t columns) {
    return (columns + PLEAT__BLOCKS_COLUMNS - 1) / PLEAT__BLOCKS_COLUMNS * PLEAT__BLOCKS_COLUMNS;
}

/* Tokens of a group stand behind each other: token i of its block b is b*T + i.  Rows of tokens are 4*T long. */
typedef struct pleat__blocks_walk {
    const pleat__attn_query *query;
    const pleat__block_format *format;
    pleat__attn_acc *acc;

    uint32_t n_blocks; /* of the group, that opened: 1..PLEAT__STREAMS */
    uint32_t n_tokens; /* n_blocks * T */
    uint32_t n_units;  /* of a value: v_group dimensions each */
    pleat__block_reader readers[PLEAT__STREAMS];

    /* A slice's codes, the next block's behind a block's.  PLEAT__BLOCKS_COLUMNS * 16 bytes more can be read. */
    uint8_t *codes;
    uint8_t *code_buffers[2]; /* of even slices, and of odd ones */
    /* [n_blocks] of the slice, in the place of codes, if the variant multiplies packs and all blocks have them; or NULL. */
    const pleat__pack_slice *packs;
    pleat__pack_slice *pack_buffers[2]; /* [PLEAT__STREAMS] likewise; NULL unless the format's coder is PACK */
    /* [n_blocks] likewise, if the variant multiplies planes of two bits: [columns / 4][2][8] of the slice; or NULL. */
    const uint8_t *const *planes;
    const uint8_t *plane_buffers[2][PLEAT__STREAMS]; /* of even slices, and of odd ones */
    float *weights;     /* [heads][4*T] logit2, from softmax on the weights against the group's maximum */
    float *rescale;     /* [heads] 2^(m - m') for what acc->o holds */
    float *share;       /* [heads] 2^(group's maximum - m') for the group's sums */
    float *queries;     /* [heads][padded d] the variant's */
    float *query_scale; /* [heads] the variant's, of the whole call */
    float *query_sum;   /* [heads] likewise */
    void *key_factors; /* [PLEAT__STREAMS][heads][padded d] floats' memory, and a vector for each head: the variant's */
    void *value_factors;             /* [n_units][heads][row] likewise, and a vector for each head */
    float *key_scale;                /* [PLEAT__STREAMS][heads] the variant's, and so on */
    float *key_bias;                 /* [PLEAT__STREAMS][heads] */
    float *value_scale;              /* [n_units][PLEAT__STREAMS][heads] */
    float *value_bias;               /* [n_units][heads] */
    float *value_steps;              /* [n_units][4*T] a unit's; zeros from n_tokens to the next multiple of 64 */
    float *value_middles;            /* [n_units][4*T] likewise */
    float *floats;                   /* [16][d or T, whichever is more] */
    uint8_t *copies;                 /* [PLEAT__STREAMS] payloads that cross pages */
    float *rd;                       /* pleat__blocks_rd_begin()'s */
    void *sums;                      /* of rd: an acc's memory */
    uint32_t blocks[PLEAT__STREAMS]; /* which of the lane's they are */
    uint8_t folded[PLEAT__STREAMS];  /* k_steps_id of the steps that the query's factors there are made with; 0: none */
    uint32_t heads;                  /* the group's, rounded up to PLEAT__BLOCKS_HEADS */
} pleat__blocks_walk;

static inline uint32_t pleat__blocks_row(const pleat__block_format *f) { return PLEAT__STREAMS * f->tokens; }

/* The unit of a slice of values, and its steps, middles and factors. */
static inline uint32_t pleat__blocks_unit_of(const pleat__blocks_walk *w, uint32_t slice) {
    return slice * 16 / w->format->v_group;
}
static inline float *pleat__blocks_value_steps(const pleat__blocks_walk *w, uint32_t unit) {
    return w->value_steps + (size_t)unit * pleat__blocks_row(w->format);
}
static inline float *pleat__blocks_value_middles(const pleat__blocks_walk *w, uint32_t unit) {
    return w->value_middles + (size_t)unit * pleat__blocks_row(w->format);
}
static inline size_t pleat__blocks_factors(const pleat__block_format *f, uint32_t heads) { /* of a unit, in floats */
    return (size_t)heads * (pleat__blocks_row(f) + 16);
}
static inline void *pleat__blocks_value_factors(const pleat__blocks_walk *w, uint32_t unit) {
    return (float *)w->value_factors + unit * pleat__blocks_factors(w->format, w->heads);
}

/* Have the steps that this block of the group has been folded into the query there?  Now they are. */
static inline bool pleat__blocks_was_folded(pleat__blocks_walk *w, uint32_t block) {
    const uint8_t was = w->folded[block], is = w->readers[block].k_steps_id;
    w->folded[block] = is;
    return is != 0 && was == is;
}

/* The middle of codes, from which they are counted. */
static inline float pleat__blocks_middle(uint32_t n_levels) { return 0.5f * (float)(n_levels - 1); }

/* Minimum or step i of those at p. */
static inline float pleat__blocks_unit(const uint8_t *p, size_t i) {
    return pleat__f16_to_f32((uint16_t)(p[2 * i] | p[2 * i + 1] << 8));
}

/* The turned mean key's logits, to be added to those of blocks of a lane (blocks_rd.h). */
typedef struct pleat__blocks_means {
    const struct pleat__rd_lane *lane;
    const uint32_t *blocks; /* [n_blocks] which of the lane's they are */
    uint32_t n_blocks, n_heads;
    const float *ab;   /* [n_heads][head_dim] A of each mean, then B of each */
    const float *flat; /* [n_heads] what does not turn */
    float *cosines;    /* scratch [2][n_means]: of a block's middle, by mean; then its sines */
    float *xy;         /* scratch [2 heads][2][n_means] */
    float *logits;     /* [n_heads][row], a block's 64 behind the block's before */
    uint32_t row;
} pleat__blocks_means;

typedef void (*pleat__blocks_mean_fn)(const pleat__blocks_means *means);
void pleat__blocks_mean_ref(const pleat__blocks_means *means);
void pleat__blocks_mean_avx2(const pleat__blocks_means *means);
void pleat__blocks_mean_avx512(const pleat__blocks_means *means);
void pleat__blocks_mean_neon(const pleat__blocks_means *means);

typedef struct pleat__blocks_steps {
    void (*begin)(pleat__blocks_walk *w);      /* once a call */
    void (*keys_begin)(pleat__blocks_walk *w); /* fold steps into the query */
    /* weights[][b*T + 16*slice ..] = logits, from codes: of each block [d/4] vectors */
    void (*keys)(pleat__blocks_walk *w, uint32_t slice);
    pleat__attn_cap_fn cap;
    void (*softmax)(pleat__blocks_walk *w);      /* logits to weights; m and l of acc; rescale, share */
    void (*values_begin)(pleat__blocks_walk *w); /* fold steps of all units into the weights */
    /* o[][16*slice ..] = o*rescale + share*sums, from codes: of each block [T/4] vectors */
    void (*values)(pleat__blocks_walk *w, uint32_t slice);
    void (*end)(pleat__blocks_walk *w);  /* once a call */
    pleat__blocks_mean_fn mean;          /* rd */
    pleat__pack_numbers_fn pack_numbers; /* of a variant that multiplies packs; NULL: codes alone */
    bool takes_planes;                   /* it multiplies planes of two bits too */
} pleat__blocks_steps;

/* Of the variants that they are named after, which is for tests. */
extern const pleat__blocks_steps pleat__blocks_steps_ref, pleat__blocks_steps_avx2, pleat__blocks_steps_neon;

bool pleat__blocks_walk_run(const pleat__blocks_steps *steps, const pleat__attn_query *query,
                            const pleat__codec_dsp *codec, const pleat__block_run *run, uint32_t block_from,
                            uint32_t block_to, pleat__attn_acc *acc, void *scratch);

#endif
