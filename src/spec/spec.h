/* SPDX-License-Identifier: MIT
 *
 * spec.h: the table behind the KV spec: one row for each stage, one for each key of a stage.
 *
 *     spec.c          the table; whether a spec is valid; llama.cpp's aliases
 *     spec_parse.c    text to spec
 *     spec_print.c    spec to canonical text
 *
 * A stage's text sets fields of a pleat_spec that starts as the row's defaults, or as its `bare` where the name has no
 * keys.  kvcrush, merge, pack and +novel stand behind others and have no row among them; theirs sets the fields that are
 * their own.  A
 * spec is valid if it is the defaults with its stages' keys set to values that they allow.  So every valid spec has a
 * text, and the same one only as an equal spec.  A new policy is a stage with its keys; nothing else here changes.
 */
#ifndef PLEAT_SPEC_SPEC_H
#define PLEAT_SPEC_SPEC_H

#include <string.h>

#include "core/types.h"
#include "pleat/spec.h"

typedef enum pleat__key_type {
    PLEAT__KEY_NUMBER, /* float */
    PLEAT__KEY_SHARE,  /* float; written as a fraction or, with % behind, in hundredths */
    PLEAT__KEY_COUNT,  /* uint32_t */
    PLEAT__KEY_FORMAT, /* pleat_format */
    PLEAT__KEY_WORD,   /* an enum, 0 .. n_words - 1 */
    PLEAT__KEY_PATH,   /* char [PLEAT_PROFILE_CAP]; "" is for a key that is not given */
    PLEAT__KEY_BUDGET, /* pleat_budget; written as a number of tokens, a percentage, or bytes with their unit */
} pleat__key_type;

#define PLEAT__KEY_WORDS_CAP 4

typedef struct pleat__spec_key {
    const char *name;
    pleat__key_type type;
    size_t offset;                           /* of the field in pleat_spec */
    double min, max;                         /* of numbers, shares and counts, both included */
    bool is_power;                           /* of counts: powers of two alone */
    const char *words[PLEAT__KEY_WORDS_CAP]; /* of KEY_WORD; NULL behind the last */
    const char *allowed;                     /* what a value must be, for messages */
    bool is_printed;                         /* in the canonical text even where it is the default */
    bool is_alone;                           /* no other key stands beside it */
    bool is_plain;                           /* of KEY_FORMAT: none that is rotated */
} pleat__spec_key;

#define PLEAT__SPEC_KEYS_CAP 9
#define PLEAT__SPEC_BEHIND_CAP 3

typedef struct pleat__spec_stage {
    const char *name;
    pleat_spec defaults;
    uint32_t n_keys;
    pleat__spec_key keys[PLEAT__SPEC_KEYS_CAP];
    const struct pleat__spec_stage
        *behind[PLEAT__SPEC_BEHIND_CAP]; /* what may stand behind it, one of them; NULLs last */
    size_t flag;                         /* of one that stands behind others: the uint32_t that is then 1 */
    const char *firsts, *example; /* for messages: names of stages that it may stand behind, and a text with one */
    const char *choice;           /* of one that stands behind others: a word for it or for nothing, as the CPU wants */
    const pleat_spec *bare;       /* what the name without keys stands for; NULL: the defaults */
} pleat__spec_stage;

/* Uniform formats first, the plain and then the rotated, then policies and compressors. */
#define PLEAT__N_SPEC_PLAIN_FORMATS 11u
#define PLEAT__N_SPEC_FORMATS 20u
#define PLEAT__N_SPEC_STAGES 38u
extern const pleat__spec_stage pleat__spec_stages[PLEAT__N_SPEC_STAGES];

/* Those behind others: the flag and the keys' fields alone are theirs.  One of them stands behind a stage at most. */
#define PLEAT__N_SPEC_BEHIND 4u
extern const pleat__spec_stage pleat__spec_behind_stages[PLEAT__N_SPEC_BEHIND];
#define PLEAT__PLAIN_FORMAT_NAMES "f32, f16, k8v8, k8v4, k8v2, k4v8, k4v4, k4v2, k2v8, k2v4, k2v2"
#define PLEAT__FORMAT_NAMES "f32, f16, k8v8 to k2v2, h4v4 to h2v2"
#define PLEAT__EVICTION_NAMES "random, recent, streaming, h2o, snapkv, pyramidkv, adakv"
#define PLEAT__STAGE_NAMES                                       \
    PLEAT__FORMAT_NAMES ", leankv, topk, " PLEAT__EVICTION_NAMES \
                        ", novel, expected, dropkv, kvzip, leverage, kvcomp, kivi, rd, auto"

/* The row of a spec: by its policy and compressor, or by its format where it has neither; NULL if there is no such
 * row. */
const pleat__spec_stage *pleat__spec_stage_of(const pleat_spec *spec);

/* What stands behind a spec's first stage, or NULL. */
const pleat__spec_stage *pleat__spec_behind(const pleat__spec_stage *stage, const pleat_spec *spec);

/* The row of a format, or NULL. */
const pleat__spec_stage *pleat__spec_format_stage(pleat_format format);

/* Where a key's value is in a spec. */
static inline void *pleat__spec_field(pleat_spec *spec, const pleat__spec_key *key) {
    return (char *)spec + key->offset;
}
static inline const void *pleat__spec_field_const(const pleat_spec *spec, const pleat__spec_key *key) {
    return (const char *)spec + key->offset;
}

/* The value of such a field. */
static inline float pleat__field_float(const void *field) {
    float v;
    memcpy(&v, field, sizeof v);
    return v;
}
static inline uint32_t pleat__field_u32(const void *field) {
    uint32_t v;
    memcpy(&v, field, sizeof v);
    return v;
}
static inline pleat_format pleat__field_format(const void *field) {
    pleat_format v;
    memcpy(&v, field, sizeof v);
    return v;
}
static inline pleat_budget pleat__field_budget(const void *field) {
    pleat_budget v;
    memcpy(&v, field, sizeof v);
    return v;
}

/* Whether a number, share or count may be `v`. */
bool pleat__spec_number_is_valid(const pleat__spec_key *key, double v);

/* Set the fields of a stage's keys to those of `from`, and its flag if it stands behind others. */
void pleat__spec_take_keys(pleat_spec *to, const pleat__spec_stage *stage, const pleat_spec *from);

/* Units of a budget: its text ends with the suffix, and value = number * 10^shift * factor.  Later ones of bytes are
 * smaller; the last has no suffix. */
typedef struct pleat__budget_suffix {
    const char *text;
    pleat_budget_unit unit;
    int32_t shift;
    double factor;
} pleat__budget_suffix;
#define PLEAT__N_BUDGET_SUFFIXES 6u
extern const pleat__budget_suffix pleat__budget_suffixes[PLEAT__N_BUDGET_SUFFIXES];

bool pleat__budget_is_valid(pleat_budget budget);

/* Whether the field of a key is the same in both. */
bool pleat__spec_field_equal(const pleat_spec *a, const pleat_spec *b, const pleat__spec_key *key);

/* The key that stands alone in this spec, as profile does; NULL if none is set. */
const pleat__spec_key *pleat__spec_alone(const pleat__spec_stage *stage, const pleat_spec *spec);

/* Two keys of a stage that do not go together.  Of al and ah, and of low and high, the one may not exceed the other; a
 * budget in tokens is above sinks and window; every and step. */
typedef struct pleat__spec_excess {
    const pleat__spec_key *key, *limit; /* where it stands: at the key, or at the limit if the key was not given */
    char text[100];                     /* what is wrong, with names and values */
} pleat__spec_excess;

/* Whether some key exceeds another's value; fills *out if so.  The spec's keys are valid by themselves. */
bool pleat__spec_exceeds(const pleat__spec_stage *stage, const pleat_spec *spec, pleat__spec_excess *out);

/* PLEAT_E_ARG, saying why, for a spec that no text can name.  A profile that has not been read is no fault here. */
pleat_status pleat__spec_check(const pleat_spec *spec, pleat_error *err);

/* A spec of auto becomes the rd that it has chosen. */
void pleat__spec_fix_steps(pleat_spec *spec, float k, float v);

/* Read text[0..n) as a decimal number times 10^shift: digits with an optional '-' in front, '.' among them, and
 * e[-]digits behind; the same in every locale, and the nearest double of up to 18 digits.  False if it is none. */
bool pleat__spec_number(const char *text, size_t n, int32_t shift, double *out);

#endif
