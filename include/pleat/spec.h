/* SPDX-License-Identifier: MIT
 *
 * spec.h: the KV spec: one short text names every way to keep a cache.
 *
 *     spec   = stage *( "+" stage )
 *     stage  = name [ ":" key "=" value *( "," key "=" value ) ]
 *
 *     f32  f16                               uncompressed pages
 *     k8v8 k8v4 k8v2 k4v8 k4v4 k4v2 k2v8 k2v4 k2v2
 *                                            every token's key at X and value at Y bits, per-token
 *                                            asymmetric: x' = scale*code + min, scale and min in f16
 *     h4v4 h4v3 h4v2 h3v4 h3v3 h3v2 h2v4 h2v3 h2v2
 *                                            the same at 4, 3 and 2 bits by another quantiser: vectors are rotated, so that
 *                                            their elements are close to normal, and rounded to Lloyd-Max levels; a norm
 *                                            in f16 a token and side: x' = norm*level[code].  kvcomp and kivi have none
 *                                            for their buffer.  tq4 and tq3 are read as h4v4 and h3v3, which TurboQuant
 *                                            is in llama.cpp's family
 *     leankv:ah=3,al=0,window=64,high=k8v4,low=k4v2,threshold=length,step=paper,every=1
 *                                            each KV head keeps important tokens in the high format, middling ones
 *                                            in the low one and drops the rest; all keys may be left out
 *     leankv:profile=FILE                    the same with what `pleat calibrate` found for a model; no other key
 *                                            beside it.  FILE may hold any byte but ',' and '+'
 *     topk:keep=50%,window=64,format=k8v4    every KV head keeps the same share of its tokens, those with the
 *                                            highest scores: the equal budgets that leankv is compared with
 *     random recent streaming h2o snapkv pyramidkv adakv  :budget=25%,window=64,sinks=4,format=k8v4,reclaim=reuse
 *                                            eviction: every KV head keeps `budget` tokens at most, the first `sinks`
 *                                            and the newest `window` among them, and drops the others: when a
 *                                            prompt has been read, and from then on where it evicts in generation
 *     novel:budget=25%,window=32,sinks=4,format=k8v4,reclaim=reuse,mean=prompt,near=0
 *                                            eviction by how unlike keys are, whatever is asked; takes merge, but neither
 *                                            kvcrush nor itself
 *     expected:budget=25%,window=32,sinks=4,format=k8v4,reclaim=reuse
 *                                            eviction by what the queries so far let expect; likewise
 *     dropkv:budget=25%,window=64,sinks=4,format=k8v4,reclaim=reuse
 *                                            eviction by what the newest queries would miss; takes novel alone
 *     kvzip:budget=25%,window=32,sinks=4,format=k8v4,reclaim=reuse
 *                                            eviction by what a second reading of the prompt looks at; takes nothing
 *     leverage:budget=25%,window=32,sinks=4,format=k8v4,reclaim=reuse,near=0,fall=0%
 *                                            eviction by how far keys stand out; takes nothing
 *     ...+kvcrush:share=25%,anchor=mean,unit=token
 *                                            behind the others: a share of what the budget leaves beside sinks and
 *                                            window goes to representatives of the tokens that would be dropped
 *     ...+novel:share=50%,mean=prompt,near=0 behind the others in place of kvcrush: a share of what the budget leaves goes
 *                                            to the tokens whose keys are least like the others'
 *     ...+merge                              behind all of these in place of both: what is dropped goes into the nearest
 *                                            token that stays
 *     kvcomp:k=0.2,v=0.15,kunit=channel,block=64,sinks=4,buffer=128,high=f16
 *                                            cold tokens in blocks, with a bounded error, entropy-coded
 *     kvcomp:...+pack                        the same with fixed widths inside a block instead of the entropy coder
 *     kvcomp:...+auto                        the entropy coder where it is nearly as fast (AVX-512 VBMI2), fixed widths
 *                                            elsewhere: what is parsed, and so what is printed, is with or without
 *                                            +pack, and of one kind is what it caches
 *     kivi:bits=2,sinks=4,buffer=128,high=f16
 *                                            cold tokens in blocks of 32 at 2 or 4 bits
 *     rd:k=0.15,v=1.1,fine=0,sinks=4,buffer=94,high=k8v8
 *                                            cold tokens in blocks of 64, whose steps and codebooks are the model's
 *     auto:bytes=20%,from=1024               rd with the steps that a budget of the whole cache allows, and the budget kept
 *
 * leankv.  There are N tokens so far, and s is the mean attention that a token has received from later ones (largest
 * over the query heads that share the KV head).  A token that has left the window is kept high if s >= ah/N, low if
 * s >= al/N, and dropped otherwise.  ah = al keeps two levels: high or dropped; al = 0 drops none.  (LeanKV, sections 4
 * and 7.2.)  The defaults are what the paper chose for three of its five models.
 * s is 1 at most, so ah = 1000000, the greatest, switches significance off below a million tokens.  Then what is older
 * than the window is low (al = 0), by its position alone.  That is leankv's control: attention brings what a spec has
 * beyond it at equal bytes.
 *     threshold   length: N as above; position: the token's own position in place of N, for the tokens of a prompt
 *     step        paper: Algorithm 1; code: the order of its authors' code (src/policy/leankv.h has both)
 *     every       1: as in the paper.  2, 4, 8, with step=paper: attention is counted only of tokens that make the sequence's
 *                 length a multiple of it, of prompts with al=0; in generation tokens are classed then;
 *                 src/policy/leankv.h says how
 *
 * Eviction.  src/policy/ has a file for each policy: what it ranks tokens by, and when.
 *     random      a hash of lane and position                                   in prompts and generation
 *     recent      position (no sinks, no window)                                in prompts and generation
 *     streaming   position (no window; StreamingLLM)                            in prompts and generation
 *     h2o         attention received so far, summed over queries and heads      in prompts and generation
 *     snapkv      attention from the last `window` queries, pooled over 5       at the end of prompts
 *     pyramidkv   as snapkv, with budgets that fall from layer to layer         at the end of prompts
 *     adakv       as snapkv, with a layer's budget shared by its heads          at the end of prompts
 *     novel       how unlike the key, before RoPE, is to the lane's mean        in prompts and generation
 *     expected    attention that the mean query is expected to give, times |v|  at the end of prompts
 *     dropkv      how far what the last `window` queries find moves without it  at the end of prompts
 *     kvzip       the most attention from one query of a replay (cache.h)       when a replay ends
 *     leverage    how far the key, before RoPE, stands out of the lane's        at the end of prompts
 *     mean        novel, +novel: prompt: the mean of the sequence's tokens so far; model: of the model, from its statistics
 *                 (stats.h), without which a cache refuses it.  Then a token's score depends on that token alone, and on
 *                 its neighbours
 *     near        novel, +novel, leverage: a score is the mean over so many neighbours on each side and itself, 0 to 16.
 *                 Novel's window is twice as long at least
 *     fall        leverage: by how much of the budget the first layer's lanes have more than the mean, and the last one's
 *                 less; in between budgets fall evenly, as pyramidkv's do by 95%.  0 to 95%
 *     budget      tokens of a lane (512), a share of the prompt (25%), or bytes of a sequence with all that belongs to
 *                 it (64KiB, 8MiB, 1GiB): as many whole pages a lane as these leave.  Never below sinks + window: a
 *                 share gives that many at least, tokens and bytes are refused.  A prompt is held whole while it is
 *                 read, in parts of more than one token where the policy looks at its last queries; where a part of it
 *                 ends for others to go on from (serving.h), lanes fall to the budget there.  What ends with prompts
 *                 grows with what is generated; and reclaim=none and block hold dead slots beside it, which budgets in
 *                 bytes do not count
 *     reclaim     what becomes of the slots of dropped tokens (src/reclaim/): reuse: later tokens take them; copy: what
 *                 stays is copied to fresh pages; block: a page is returned when all its slots are dead; none: they stay
 *
 * kvcrush.  Tokens are told apart by which query heads attend to them (src/policy/kvcrush.h).
 *     share       of the budget beside sinks and window, 0 to 100%
 *     anchor      what tokens are ordered by their distance to: mean, random, alternate; kmeans: clusters instead
 *     unit        token, or page: whole pages of tokens are kept or dropped, by policy and representatives alike
 *
 * +novel.  When a prompt has been read, a share of the budget beside sinks and window is chosen by novel's score, the rest
 * by the policy.  What was chosen so stays until a prompt ends again, and the policy decides about the others.
 *     share       of the budget beside sinks and window, 0 to 100%
 *
 * merge.  Of the tokens of a lane that stay, but for sinks and the newest, one takes the value of a dropped one in, by
 * attention received, and is attended to as both (src/cache/keep/merge.h).  It takes 2 bytes more a token.
 *
 * kvcomp, kivi, rd.  A lane keeps its first `sinks` tokens and its newest in pages of the high format.  At the end of a
 * prompt and in generation, when the newest are more than `buffer`, whole blocks of the oldest of them are compressed, as
 * few as bring them down to it.  kvcomp without keys, alone or before +pack, is what is recommended:
 * kvcomp:k=0.1,v=0.2,buffer=94,high=k8v8.
 *     k, v        step of the codes, relative to the range of the values that share one: 1/255 to 1.  Every value is
 *                 within half a step of what the buffer held.  v's values are one token's; k's by kunit:
 *     kunit       channel: one dimension of a block's tokens; block: all of them
 *     block       tokens of a block: 16, 32, 64, 128 or 256
 *     sinks       first tokens, which are in no block: 0..2^24.  0: blocks begin with a lane's first token
 *     buffer      other tokens that may stay outside blocks, at least 1: 1..2^24
 *     high        the format of both, none of the h formats.  A cache refuses one whose pages are smaller than the blocks
 *                 made of them can be
 *     rd          k: step of keys' codes, in units of what a query makes of it: an error of a logit of about k/sqrt(12)
 *                 for each of a head's dimensions, 0.001 to 10.  v: step of values' codes, relative to the root mean
 *                 square of the token's value, 0.01 to 10.  fine: blocks that begin within the first `fine` tokens
 *                 behind the sinks have steps of half the size, 0..2^24.  A cache needs the model's statistics (stats.h)
 *     auto        is rd with sinks=4, buffer=91 and high=k8v8.  bytes: what a sequence may hold of f16's bytes with all
 *                 that belongs to it, above 0 up to 100%; from: the length from which on it never holds more, at the end
 *                 of any step but those that read a part of a prompt: 1..2^24.  k and v are the finest whose blocks are
 *                 expected to fit, and a block that would not is coded more coarsely.  A cache refuses what cannot be kept
 *     bits        kivi: 2 or 4.  Keys share a step by dimension and 32 tokens, values by token and 32 dimensions
 *
 * Sliding windows.  A model may have layers whose queries see the newest tokens alone.  Under any spec these tokens are kept
 * in the high format (format=, or what a uniform spec names), and no others.  Policies, budgets and blocks are for the
 * other layers, the full ones, of which there has to be one.  A budget in tokens or per cent is one of
 * the full layers' lanes; one in bytes has the windows' bytes in it.
 *
 * Numbers are decimal, with '.' in every locale; an exponent may follow, without a plus: 1e-7.  keep and share are
 * fractions or, with % behind, hundredths; a budget's share has its %.  The canonical text has ah and al, keep, budget,
 * share, k and v or bits, and other keys where they differ from the defaults, which are those above.  Names are lower
 * case.  The text is parsed here and nowhere else; every command's --kv is one.
 */
#ifndef PLEAT_SPEC_H
#define PLEAT_SPEC_H

#include "pleat/common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How one token's key and value are stored.  Either both 32, both 16, or each of 8, 4, 2; rotated: each of 4, 3, 2. */
typedef struct pleat_format {
    uint8_t k_bits;
    uint8_t v_bits;
    uint8_t
        rotated; /* 1: rotated and rounded to Lloyd-Max levels, with a norm: the h formats; 0: by minimum and range */
} pleat_format;

/* What decides which tokens are kept, and how well. */
typedef enum pleat_policy {
    PLEAT_POLICY_NONE,   /* every token in the high format */
    PLEAT_POLICY_LEANKV, /* thresholds on significance, per lane */
    PLEAT_POLICY_TOPK,   /* an equal share for every lane */
    PLEAT_POLICY_RANDOM, /* eviction by a budget: pleat_policy_evicts() */
    PLEAT_POLICY_RECENT,
    PLEAT_POLICY_STREAMING,
    PLEAT_POLICY_H2O,
    PLEAT_POLICY_SNAPKV,
    PLEAT_POLICY_PYRAMIDKV,
    PLEAT_POLICY_ADAKV,
    PLEAT_POLICY_NOVEL,
    PLEAT_POLICY_EXPECTED,
    PLEAT_POLICY_DROPKV,
    PLEAT_POLICY_KVZIP,
    PLEAT_POLICY_LEVERAGE,
} pleat_policy;

/* Whether the policy keeps a lane within a budget by dropping tokens: 1 or 0. */
PLEAT_API int pleat_policy_evicts(pleat_policy policy);

/* How a token is kept.  LOW: in the low format, or in a block. */
typedef enum pleat_level { PLEAT_LEVEL_DROPPED, PLEAT_LEVEL_LOW, PLEAT_LEVEL_HIGH } pleat_level;

typedef enum pleat_threshold { PLEAT_THRESHOLD_LENGTH, PLEAT_THRESHOLD_POSITION } pleat_threshold;
typedef enum pleat_step_order { PLEAT_STEP_PAPER, PLEAT_STEP_CODE } pleat_step_order;

typedef enum pleat_reclaim {
    PLEAT_RECLAIM_REUSE,
    PLEAT_RECLAIM_COPY,
    PLEAT_RECLAIM_BLOCK,
    PLEAT_RECLAIM_NONE
} pleat_reclaim;
typedef enum pleat_anchor {
    PLEAT_ANCHOR_MEAN,
    PLEAT_ANCHOR_RANDOM,
    PLEAT_ANCHOR_ALTERNATE,
    PLEAT_ANCHOR_KMEANS
} pleat_anchor;
typedef enum pleat_key_mean { PLEAT_KEY_MEAN_PROMPT, PLEAT_KEY_MEAN_MODEL } pleat_key_mean;
typedef enum pleat_crush_unit { PLEAT_CRUSH_TOKEN, PLEAT_CRUSH_PAGE } pleat_crush_unit;

/* What an eviction policy may keep. */
typedef enum pleat_budget_unit { PLEAT_BUDGET_TOKENS, PLEAT_BUDGET_SHARE, PLEAT_BUDGET_BYTES } pleat_budget_unit;
typedef struct pleat_budget {
    double value; /* a whole number of tokens, 1..2^24, or bytes, 1..2^50, or a share, 0 < share <= 1 */
    pleat_budget_unit unit;
} pleat_budget;

/* What becomes of cold tokens. */
typedef enum pleat_compressor {
    PLEAT_COMPRESSOR_NONE,
    PLEAT_COMPRESSOR_KVCOMP,
    PLEAT_COMPRESSOR_KIVI,
    PLEAT_COMPRESSOR_RD,
    PLEAT_COMPRESSOR_AUTO
} pleat_compressor;
typedef enum pleat_k_unit { PLEAT_K_UNIT_CHANNEL, PLEAT_K_UNIT_BLOCK } pleat_k_unit;

#define PLEAT_PROFILE_CAP 200 /* bytes of a profile's path with its NUL */

/* A parsed spec.  Plain data: copy it, compare pleat_spec_print()'s text.  Fields that a policy or compressor does not
 * name are 0; beside a profile they hold their defaults. */
typedef struct pleat_spec {
    pleat_format high; /* format of the high side or the buffer; without a policy or compressor the only one */
    pleat_format low;  /* leankv: of the low side; takes no more bytes than high */
    pleat_policy policy;
    pleat_threshold threshold;       /* leankv */
    pleat_step_order step;           /* leankv */
    uint32_t every;                  /* leankv: 1, 2, 4, 8; above 1 with step=paper */
    uint32_t window;                 /* newest tokens that stay high; 1..2^24; recent, streaming: 1 */
    float ah, al;                    /* leankv: 0 <= al <= ah <= 1e6 */
    float keep;                      /* topk: share of the tokens, 0 < keep <= 1 */
    pleat_budget budget;             /* eviction */
    uint32_t sinks;                  /* eviction, kvcomp, kivi, rd, auto: first tokens that stay; 0..2^24 */
    pleat_reclaim reclaim;           /* eviction */
    pleat_key_mean mean;             /* novel, +novel */
    uint32_t near;                   /* novel, +novel, leverage: neighbours on each side, 0..16 */
    float fall;                      /* leverage: 0 <= fall <= 0.95 */
    uint32_t merge;                  /* 1: merge stands behind the policy, and kvcrush does not; 0: not */
    uint32_t novel;                  /* 1: novel stands behind the policy, and neither of the others does; 0: not */
    uint32_t crush;                  /* 1: kvcrush stands behind the policy; 0: not, and anchor and unit are 0 */
    float share;                     /* kvcrush, +novel: 0 <= share <= 1; 0 without */
    pleat_anchor anchor;             /* kvcrush */
    pleat_crush_unit unit;           /* kvcrush */
    pleat_compressor compressor;     /* NONE, or there is no policy */
    float k, v;                      /* kvcomp: 1/255..1; rd: 0.001..10 and 0.01..10 */
    pleat_k_unit kunit;              /* kvcomp */
    uint32_t block;                  /* kvcomp: 16, 32, 64, 128, 256; kivi: 32; rd, auto: 64 */
    uint32_t buffer;                 /* kvcomp, kivi, rd, auto: 1..2^24 */
    uint32_t fine;                   /* rd: tokens whose blocks have finer steps, 0..2^24 */
    uint32_t bits;                   /* kivi: 2, 4 */
    float bytes;                     /* auto: share of f16's bytes, 0 < bytes <= 1 */
    uint32_t from;                   /* auto: tokens from which on it holds, 1..2^24 */
    uint32_t pack;                   /* 1: `+pack` stands behind kvcomp */
    char profile[PLEAT_PROFILE_CAP]; /* leankv: where ah, al and the rest come from; "": from this spec.  Whoever parsed
                                      * the spec reads the profile and clears this; a cache refuses it unread */
} pleat_spec;

/* Whether caches of the spec ask statistics of the model (pleat/stats.h): 1 or 0. */
PLEAT_API int pleat_spec_takes_stats(const pleat_spec *spec);

#define PLEAT_SPEC_TEXT_CAP 320 /* bytes that hold any canonical spec with its NUL */

/* Parse `text` (NUL-terminated).  On PLEAT_E_SYNTAX err->where is the position (bytes from the start)
 * of the word at fault and err->text names it, the allowed words and the nearest of them.
 * err may be NULL. */
PLEAT_API pleat_status pleat_spec_parse(const char *text, pleat_spec *out, pleat_error *err);

/* The spec that llama.cpp's -ctk and -ctv name: f32, f16, q8_0 and q4_0.  A pair that mixes an
 * uncompressed and a compressed type is PLEAT_E_UNSUPPORTED: Pleat's pages hold both or neither. */
PLEAT_API pleat_status pleat_spec_from_cache_types(const char *ctk, const char *ctv, pleat_spec *out, pleat_error *err);

/* Write the canonical text of `spec`: parsing it gives an equal spec, and equal specs give equal
 * texts.  cap >= PLEAT_SPEC_TEXT_CAP, else PLEAT_E_ARG; also for a spec that no text can name. */
PLEAT_API pleat_status pleat_spec_print(const pleat_spec *spec, char *buf, size_t cap);

/* Whether what a sequence holds follows from its number of tokens alone: 1 or 0.  Where tokens are dropped, demoted or
 * compressed it is known only when they have been. */
PLEAT_API int pleat_spec_is_exact(const pleat_spec *spec);

/* The spec of layers with a sliding window beside full ones of `spec`: their newest tokens in its high format. */
PLEAT_API pleat_spec pleat_spec_of_windows(const pleat_spec *spec);

/* Bytes that one token takes in one lane, without page slack and tables: codes and scale and
 * minimum of key and value.  head_dim > 0.  f16 is 4*head_dim.  0 for an invalid format. */
PLEAT_API uint64_t pleat_format_token_bytes(pleat_format format, uint32_t head_dim);

#ifdef __cplusplus
}
#endif
#endif
