/* SPDX-License-Identifier: MIT
 *
 * spec.c: the table of the KV spec's stages and keys, whether a spec is valid, and llama.cpp's aliases.
 */
#include "spec/spec.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "quant/layout.h"

_Static_assert(sizeof(pleat_threshold) == 4 && sizeof(pleat_step_order) == 4 && sizeof(pleat_reclaim) == 4 &&
                   sizeof(pleat_anchor) == 4 && sizeof(pleat_crush_unit) == 4 && sizeof(pleat_k_unit) == 4 &&
                   sizeof(pleat_key_mean) == 4,
               "KEY_WORD fields are read as uint32_t");

#define AT(field) offsetof(pleat_spec, field)
#define NUMBER(lo, hi, what) .type = PLEAT__KEY_NUMBER, .min = (lo), .max = (hi), .allowed = (what)
#define A_FORMAT .type = PLEAT__KEY_FORMAT, .allowed = "a format: " PLEAT__FORMAT_NAMES
#define A_PLAIN_FORMAT .type = PLEAT__KEY_FORMAT, .is_plain = true, .allowed = "a format: " PLEAT__PLAIN_FORMAT_NAMES

/* clang-format off */
#define TOKENS(name, field) {(name), .offset = AT(field), .type = PLEAT__KEY_COUNT, .min = 1, .max = 16777216, \
                             .allowed = "a whole number from 1 to 16777216"}
#define A_WINDOW TOKENS("window", window)
#define A_FORMAT_OF_ALL {"format", .offset = AT(high), A_FORMAT}
#define PLAIN(name_of, k_bits, v_bits) {.name = (name_of), .defaults = {.high = {(k_bits), (v_bits), 0}}}
#define ROTATED(name_of, k_bits, v_bits) {.name = (name_of), .defaults = {.high = {(k_bits), (v_bits), 1}}}

/* Eviction. */
#define A_BUDGET {"budget", .offset = AT(budget), .type = PLEAT__KEY_BUDGET, .is_printed = true, \
                  .allowed = "tokens (1 to 16777216), a share (above 0% up to 100%) or bytes (1B to 1048576GiB)"}
#define TOKENS_OR_NONE(name, field) {(name), .offset = AT(field), .type = PLEAT__KEY_COUNT, .min = 0, .max = 16777216, \
                                     .allowed = "a whole number from 0 to 16777216"}
#define A_SINKS TOKENS_OR_NONE("sinks", sinks)
#define A_RECLAIM {"reclaim", .offset = AT(reclaim), .type = PLEAT__KEY_WORD, \
                   .words = {"reuse", "copy", "block", "none"}, .allowed = "reuse, copy, block or none"}
#define EVICTING(which, n_window, n_sinks) \
    {.policy = (which), .budget = {0.25, PLEAT_BUDGET_SHARE}, .window = (n_window), .sinks = (n_sinks), .high = {8, 4}}
#define BEHIND_ANY \
    .behind = {&pleat__spec_behind_stages[0], &pleat__spec_behind_stages[2], &pleat__spec_behind_stages[3]}
#define A_MEAN {"mean", .offset = AT(mean), .type = PLEAT__KEY_WORD, .words = {"prompt", "model"}, \
                .allowed = "prompt or model"}
#define A_NEAR {"near", .offset = AT(near), .type = PLEAT__KEY_COUNT, .min = 0, .max = 16, \
                .allowed = "a whole number from 0 to 16"}
#define A_FALL {"fall", .offset = AT(fall), .type = PLEAT__KEY_SHARE, .min = 0, .max = 0.95f, \
                .allowed = "a share from 0 to 0.95, as 60% or 0.6"}
#define A_PART {"share", .offset = AT(share), .type = PLEAT__KEY_SHARE, .min = 0, .max = 1, .is_printed = true, \
                             .allowed = "a share from 0 to 1, as 25% or 0.25"}
#define RANKING(name, which) \
    {(name), EVICTING(which, 64, 4), 5, {A_BUDGET, A_WINDOW, A_SINKS, A_FORMAT_OF_ALL, A_RECLAIM}, BEHIND_ANY}

/* Compressors of cold tokens.  docs/MODELS.md has what the first tokens in blocks cost real models. */
#define A_STEP(name, field) {(name), .offset = AT(field), \
                             NUMBER(1.0f / 255, 1, "a number from 1/255 (0.0039216) to 1"), .is_printed = true}
#define A_BUFFER A_SINKS, TOKENS("buffer", buffer), {"high", .offset = AT(high), A_PLAIN_FORMAT}

/* kvcomp alone is what docs/ACCURACY.md recommends; beside keys the others keep the defaults of the row. */
#define KVCOMP(...) \
    {.compressor = PLEAT_COMPRESSOR_KVCOMP, .kunit = PLEAT_K_UNIT_CHANNEL, .block = 64, .sinks = 4, __VA_ARGS__}
static const pleat_spec bare_kvcomp = KVCOMP(.k = 0.1f, .v = 0.2f, .buffer = 94, .high = {8, 8});

const pleat__spec_stage pleat__spec_stages[PLEAT__N_SPEC_STAGES] = {
    PLAIN("f32", 32, 32), PLAIN("f16", 16, 16),
    PLAIN("k8v8", 8, 8), PLAIN("k8v4", 8, 4), PLAIN("k8v2", 8, 2),
    PLAIN("k4v8", 4, 8), PLAIN("k4v4", 4, 4), PLAIN("k4v2", 4, 2),
    PLAIN("k2v8", 2, 8), PLAIN("k2v4", 2, 4), PLAIN("k2v2", 2, 2),
    ROTATED("h4v4", 4, 4), ROTATED("h4v3", 4, 3), ROTATED("h4v2", 4, 2),
    ROTATED("h3v4", 3, 4), ROTATED("h3v3", 3, 3), ROTATED("h3v2", 3, 2),
    ROTATED("h2v4", 2, 4), ROTATED("h2v3", 2, 3), ROTATED("h2v2", 2, 2),
    {"leankv",
     {.policy = PLEAT_POLICY_LEANKV, .ah = 3, .al = 0, .window = 64, .high = {8, 4}, .low = {4, 2},
      .threshold = PLEAT_THRESHOLD_LENGTH, .step = PLEAT_STEP_PAPER, .every = 1},
     9,
     {{"ah", .offset = AT(ah), NUMBER(0, 1e6, "a number from 0 to 1000000"), .is_printed = true},
      {"al", .offset = AT(al), NUMBER(0, 1e6, "a number from 0 to 1000000"), .is_printed = true},
      A_WINDOW,
      {"high", .offset = AT(high), A_FORMAT},
      {"low", .offset = AT(low), A_FORMAT},
      {"threshold", .offset = AT(threshold), .type = PLEAT__KEY_WORD, .words = {"length", "position"},
       .allowed = "length or position"},
      {"step", .offset = AT(step), .type = PLEAT__KEY_WORD, .words = {"paper", "code"}, .allowed = "paper or code"},
      {"every", .offset = AT(every), .type = PLEAT__KEY_COUNT, .min = 1, .max = 8, .is_power = true,
       .allowed = "1, 2, 4 or 8"},
      {"profile", .offset = AT(profile), .type = PLEAT__KEY_PATH, .is_alone = true,
       .allowed = "a path of 1 to 199 bytes without ',' and '+'"}},
     .behind = {NULL}},
    {"topk",
     {.policy = PLEAT_POLICY_TOPK, .keep = 0.5f, .window = 64, .high = {8, 4}},
     3,
     {{"keep", .offset = AT(keep), .type = PLEAT__KEY_SHARE, .min = FLT_TRUE_MIN, .max = 1, .is_printed = true,
       .allowed = "a share above 0 and up to 1, as 50% or 0.5"},
      A_WINDOW, A_FORMAT_OF_ALL},
     .behind = {NULL}},
    RANKING("random", PLEAT_POLICY_RANDOM),
    {"recent", EVICTING(PLEAT_POLICY_RECENT, 1, 0), 3, {A_BUDGET, A_FORMAT_OF_ALL, A_RECLAIM}, BEHIND_ANY},
    {"streaming", EVICTING(PLEAT_POLICY_STREAMING, 1, 4), 4, {A_BUDGET, A_SINKS, A_FORMAT_OF_ALL, A_RECLAIM}, BEHIND_ANY},
    RANKING("h2o", PLEAT_POLICY_H2O),
    RANKING("snapkv", PLEAT_POLICY_SNAPKV),
    RANKING("pyramidkv", PLEAT_POLICY_PYRAMIDKV),
    RANKING("adakv", PLEAT_POLICY_ADAKV),
    {"novel", EVICTING(PLEAT_POLICY_NOVEL, 32, 4), 7,
     {A_BUDGET, A_WINDOW, A_SINKS, A_FORMAT_OF_ALL, A_RECLAIM, A_MEAN, A_NEAR},
     .behind = {&pleat__spec_behind_stages[2]}},
    {"expected", EVICTING(PLEAT_POLICY_EXPECTED, 32, 4), 5, {A_BUDGET, A_WINDOW, A_SINKS, A_FORMAT_OF_ALL, A_RECLAIM},
     .behind = {&pleat__spec_behind_stages[2]}},
    {"dropkv", EVICTING(PLEAT_POLICY_DROPKV, 64, 4), 5, {A_BUDGET, A_WINDOW, A_SINKS, A_FORMAT_OF_ALL, A_RECLAIM},
     .behind = {&pleat__spec_behind_stages[3]}},
    {"kvzip", EVICTING(PLEAT_POLICY_KVZIP, 32, 4), 5, {A_BUDGET, A_WINDOW, A_SINKS, A_FORMAT_OF_ALL, A_RECLAIM},
     .behind = {NULL}},
    {"leverage", EVICTING(PLEAT_POLICY_LEVERAGE, 32, 4), 7,
     {A_BUDGET, A_WINDOW, A_SINKS, A_FORMAT_OF_ALL, A_RECLAIM, A_NEAR, A_FALL},
     .behind = {NULL}},
    {"kvcomp",
     KVCOMP(.k = 0.2f, .v = 0.15f, .buffer = 128, .high = {16, 16}),
     7,
     {A_STEP("k", k),
      A_STEP("v", v),
      {"kunit", .offset = AT(kunit), .type = PLEAT__KEY_WORD, .words = {"channel", "block"},
       .allowed = "channel or block"},
      {"block", .offset = AT(block), .type = PLEAT__KEY_COUNT, .min = 16, .max = 256, .is_power = true,
       .allowed = "16, 32, 64, 128 or 256"},
      A_BUFFER},
     .behind = {&pleat__spec_behind_stages[1]}, .bare = &bare_kvcomp},
    {"kivi",
     {.compressor = PLEAT_COMPRESSOR_KIVI, .high = {16, 16}, .block = 32, .sinks = 4, .buffer = 128, .bits = 2},
     4,
     {{"bits", .offset = AT(bits), .type = PLEAT__KEY_COUNT, .min = 2, .max = 4, .is_power = true, .is_printed = true,
       .allowed = "2 or 4"},
      A_BUFFER},
     .behind = {NULL}},
    {"rd",
     {.compressor = PLEAT_COMPRESSOR_RD, .high = {8, 8}, .block = 64, .sinks = 4, .k = 0.15f, .v = 1.1f, .buffer = 94},
     6,
     {{"k", .offset = AT(k), NUMBER(0.001f, 10, "a number from 0.001 to 10"), .is_printed = true},
      {"v", .offset = AT(v), NUMBER(0.01f, 10, "a number from 0.01 to 10"), .is_printed = true},
      TOKENS_OR_NONE("fine", fine),
      A_BUFFER},
     .behind = {NULL}},
    {"auto",
     {.compressor = PLEAT_COMPRESSOR_AUTO, .high = {8, 8}, .block = 64, .sinks = 4, .buffer = 91, .bytes = 0.2f,
      .from = 1024},
     2,
     {{"bytes", .offset = AT(bytes), .type = PLEAT__KEY_SHARE, .min = FLT_TRUE_MIN, .max = 1, .is_printed = true,
       .allowed = "a share of f16's bytes above 0 and up to 1, as 20% or 0.2"},
      TOKENS("from", from)},
     .behind = {NULL}},
};

const pleat__spec_stage pleat__spec_behind_stages[PLEAT__N_SPEC_BEHIND] = {
    {"kvcrush",
     {.share = 0.25f, .anchor = PLEAT_ANCHOR_MEAN, .unit = PLEAT_CRUSH_TOKEN},
     3,
     {A_PART,
      {"anchor", .offset = AT(anchor), .type = PLEAT__KEY_WORD, .words = {"mean", "random", "alternate", "kmeans"},
       .allowed = "mean, random, alternate or kmeans"},
      {"unit", .offset = AT(unit), .type = PLEAT__KEY_WORD, .words = {"token", "page"}, .allowed = "token or page"}},
     .flag = AT(crush), .firsts = PLEAT__EVICTION_NAMES, .example = "h2o+kvcrush"},
    {.name = "pack", .flag = AT(pack), .firsts = "kvcomp", .example = "kvcomp+pack", .choice = "auto"},
    {.name = "merge", .flag = AT(merge), .firsts = PLEAT__EVICTION_NAMES ", novel, expected", .example = "snapkv+merge"},
    {"novel", {.share = 0.5f}, 3, {A_PART, A_MEAN, A_NEAR},
     .flag = AT(novel), .firsts = PLEAT__EVICTION_NAMES ", dropkv", .example = "snapkv+novel"}};

const pleat__budget_suffix pleat__budget_suffixes[PLEAT__N_BUDGET_SUFFIXES] = {
    {"%", PLEAT_BUDGET_SHARE, -2, 1},       {"GiB", PLEAT_BUDGET_BYTES, 0, 0x1p30},
    {"MiB", PLEAT_BUDGET_BYTES, 0, 0x1p20}, {"KiB", PLEAT_BUDGET_BYTES, 0, 0x1p10},
    {"B", PLEAT_BUDGET_BYTES, 0, 1},        {"", PLEAT_BUDGET_TOKENS, 0, 1}};
/* clang-format on */

_Static_assert(PLEAT_PROFILE_CAP == 200, "the longest path stands in the table's text");

/* Pairs of which the first may not exceed the second, in stages that have both. */
static const char *const limits[][2] = {{"al", "ah"}, {"low", "high"}};

const pleat__spec_stage *pleat__spec_format_stage(pleat_format format) {
    for (uint32_t i = 0; i < PLEAT__N_SPEC_FORMATS; i++) {
        const pleat_format row = pleat__spec_stages[i].defaults.high;
        if (row.k_bits == format.k_bits && row.v_bits == format.v_bits && row.rotated == format.rotated)
            return &pleat__spec_stages[i];
    }
    return NULL;
}

const pleat__spec_stage *pleat__spec_stage_of(const pleat_spec *spec) {
    if (spec->policy == PLEAT_POLICY_NONE && spec->compressor == PLEAT_COMPRESSOR_NONE)
        return pleat__spec_format_stage(spec->high);
    for (uint32_t i = PLEAT__N_SPEC_FORMATS; i < PLEAT__N_SPEC_STAGES; i++) {
        const pleat_spec *row = &pleat__spec_stages[i].defaults;
        if (row->policy == spec->policy && row->compressor == spec->compressor) return &pleat__spec_stages[i];
    }
    return NULL;
}

int pleat_spec_takes_stats(const pleat_spec *spec) {
    return spec->compressor == PLEAT_COMPRESSOR_RD || spec->compressor == PLEAT_COMPRESSOR_AUTO ||
           spec->mean == PLEAT_KEY_MEAN_MODEL;
}

int pleat_policy_evicts(pleat_policy policy) {
    for (uint32_t i = PLEAT__N_SPEC_FORMATS; i < PLEAT__N_SPEC_STAGES; i++) {
        const pleat_spec *row = &pleat__spec_stages[i].defaults;
        if (row->policy == policy && row->budget.value > 0) return 1;
    }
    return 0;
}

int pleat_spec_is_exact(const pleat_spec *spec) {
    return spec && spec->policy == PLEAT_POLICY_NONE && spec->compressor == PLEAT_COMPRESSOR_NONE;
}

pleat_spec pleat_spec_of_windows(const pleat_spec *spec) { return (pleat_spec){.high = spec->high}; }

const pleat__spec_stage *pleat__spec_behind(const pleat__spec_stage *stage, const pleat_spec *spec) {
    for (uint32_t i = 0; i < PLEAT__SPEC_BEHIND_CAP && stage->behind[i]; i++)
        if (pleat__field_u32((const char *)spec + stage->behind[i]->flag)) return stage->behind[i];
    return NULL;
}

/* ---- one field --------------------------------------------------------------------------------------------------- */

static bool budgets_equal(pleat_budget a, pleat_budget b) { return a.value == b.value && a.unit == b.unit; }

bool pleat__budget_is_valid(pleat_budget budget) {
    static const double most[] = {
        [PLEAT_BUDGET_TOKENS] = 16777216, [PLEAT_BUDGET_SHARE] = 1, [PLEAT_BUDGET_BYTES] = 0x1p50};
    if ((uint32_t)budget.unit > PLEAT_BUDGET_BYTES) return false;
    if (!(budget.value > 0 && budget.value <= most[budget.unit])) return false;
    return budget.unit == PLEAT_BUDGET_SHARE || budget.value == (double)(uint64_t)budget.value;
}

bool pleat__spec_field_equal(const pleat_spec *a, const pleat_spec *b, const pleat__spec_key *key) {
    const void *x = pleat__spec_field_const(a, key), *y = pleat__spec_field_const(b, key);
    switch (key->type) {
        case PLEAT__KEY_NUMBER:
        case PLEAT__KEY_SHARE: return pleat__field_float(x) == pleat__field_float(y);
        case PLEAT__KEY_COUNT:
        case PLEAT__KEY_WORD: return pleat__field_u32(x) == pleat__field_u32(y);
        case PLEAT__KEY_FORMAT: return memcmp(x, y, sizeof(pleat_format)) == 0;
        case PLEAT__KEY_PATH: return strcmp(x, y) == 0;
        case PLEAT__KEY_BUDGET:
            return budgets_equal(pleat__field_budget(x), pleat__field_budget(y)); /* it has padding */
    }
    return false;
}

bool pleat__spec_number_is_valid(const pleat__spec_key *key, double v) {
    if (!(v >= key->min && v <= key->max)) return false;
    return !key->is_power || ((uint32_t)v & ((uint32_t)v - 1)) == 0;
}

static bool field_is_valid(const pleat_spec *spec, const pleat__spec_key *key) {
    const void *field = pleat__spec_field_const(spec, key);
    uint32_t n_words = 0;
    switch (key->type) {
        case PLEAT__KEY_NUMBER:
        case PLEAT__KEY_SHARE: return pleat__spec_number_is_valid(key, (double)pleat__field_float(field));
        case PLEAT__KEY_COUNT: return pleat__spec_number_is_valid(key, pleat__field_u32(field));
        case PLEAT__KEY_FORMAT:
            return pleat__spec_format_stage(pleat__field_format(field)) &&
                   !(key->is_plain && pleat__field_format(field).rotated);
        case PLEAT__KEY_WORD:
            while (n_words < PLEAT__KEY_WORDS_CAP && key->words[n_words]) n_words++;
            return pleat__field_u32(field) < n_words;
        case PLEAT__KEY_PATH: return !strpbrk(field, ",+");
        case PLEAT__KEY_BUDGET: return pleat__budget_is_valid(pleat__field_budget(field));
    }
    return false;
}

/* ---- a whole spec ------------------------------------------------------------------------------------------------ */

static const pleat__spec_key *find_key(const pleat__spec_stage *stage, const char *name) {
    for (uint32_t i = 0; i < stage->n_keys; i++)
        if (strcmp(stage->keys[i].name, name) == 0) return &stage->keys[i];
    return NULL;
}

/* A format's bits for each element of a key and a value. */
static uint32_t format_bits(pleat_format f) { return (uint32_t)f.k_bits + f.v_bits; }

static bool exceeds(const pleat__spec_key *key, const pleat__spec_key *limit, const pleat_spec *spec,
                    pleat__spec_excess *out) {
    const void *field = pleat__spec_field_const(spec, key), *top = pleat__spec_field_const(spec, limit);
    if (key->type == PLEAT__KEY_FORMAT) {
        const pleat_format f = pleat__field_format(field), t = pleat__field_format(top);
        snprintf(out->text, sizeof out->text, "%s=%s takes more bits than %s=%s", key->name,
                 pleat__spec_format_stage(f)->name, limit->name, pleat__spec_format_stage(t)->name);
        return format_bits(f) > format_bits(t);
    }
    const float v = pleat__field_float(field), t = pleat__field_float(top);
    snprintf(out->text, sizeof out->text, "%s=%g is above %s=%g", key->name, (double)v, limit->name, (double)t);
    return v > t;
}

/* Sinks and window stay whatever happens.  What shares and bytes come to is told by a cache and a prompt. */
static bool starves(const pleat__spec_stage *stage, const pleat_spec *spec, pleat__spec_excess *out) {
    const uint32_t least = spec->sinks + spec->window;
    out->key = find_key(stage, "budget");
    out->limit = out->key;
    if (!out->key || spec->budget.unit != PLEAT_BUDGET_TOKENS || spec->budget.value >= least) return false;
    snprintf(out->text, sizeof out->text, "budget=%.0f is below sinks=%u + %s%u: at least %u", spec->budget.value,
             spec->sinks, find_key(stage, "window") ? "window=" : "", spec->window, least);
    return true;
}

/* What leaves the window has its neighbours, and theirs are still there when they come. */
static bool crowds(const pleat__spec_stage *stage, const pleat_spec *spec, pleat__spec_excess *out) {
    if (spec->policy != PLEAT_POLICY_NOVEL || 2 * spec->near <= spec->window) return false;
    out->key = find_key(stage, "near");
    out->limit = find_key(stage, "window");
    snprintf(out->text, sizeof out->text, "near=%u asks for a window of %u at least, not of %u", spec->near,
             2 * spec->near, spec->window);
    return true;
}

/* The order of victims is of steps that are all counted. */
static bool skips(const pleat__spec_stage *stage, const pleat_spec *spec, pleat__spec_excess *out) {
    out->key = find_key(stage, "every");
    out->limit = find_key(stage, "step");
    if (!out->key || spec->every < 2 || spec->step != PLEAT_STEP_CODE) return false;
    snprintf(out->text, sizeof out->text, "every=%u does not go with step=code", spec->every);
    return true;
}

bool pleat__spec_exceeds(const pleat__spec_stage *stage, const pleat_spec *spec, pleat__spec_excess *out) {
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        out->key = find_key(stage, limits[i][0]);
        out->limit = find_key(stage, limits[i][1]);
        if (out->key && out->limit && exceeds(out->key, out->limit, spec, out)) return true;
    }
    return skips(stage, spec, out) || starves(stage, spec, out) || crowds(stage, spec, out);
}

static bool fields_equal(const pleat_spec *a, const pleat_spec *b) {
    return memcmp(&a->high, &b->high, sizeof a->high) == 0 && memcmp(&a->low, &b->low, sizeof a->low) == 0 &&
           a->policy == b->policy && a->threshold == b->threshold && a->step == b->step && a->every == b->every &&
           a->window == b->window && a->ah == b->ah && a->al == b->al && a->keep == b->keep &&
           budgets_equal(a->budget, b->budget) && a->sinks == b->sinks && a->reclaim == b->reclaim &&
           a->mean == b->mean && a->near == b->near && a->fall == b->fall && a->merge == b->merge &&
           a->novel == b->novel && a->crush == b->crush && a->share == b->share && a->anchor == b->anchor &&
           a->unit == b->unit && a->compressor == b->compressor && a->k == b->k && a->v == b->v &&
           a->kunit == b->kunit && a->block == b->block && a->buffer == b->buffer && a->fine == b->fine &&
           a->bits == b->bits && a->bytes == b->bytes && a->from == b->from && a->pack == b->pack &&
           strcmp(a->profile, b->profile) == 0;
}

static size_t field_bytes(pleat__key_type type) {
    switch (type) {
        case PLEAT__KEY_PATH: return PLEAT_PROFILE_CAP;
        case PLEAT__KEY_FORMAT: return sizeof(pleat_format);
        case PLEAT__KEY_BUDGET: return sizeof(pleat_budget);
        default: return 4;
    }
}

static void take_key(pleat_spec *to, const pleat__spec_key *key, const pleat_spec *from) {
    memcpy(pleat__spec_field(to, key), pleat__spec_field_const(from, key), field_bytes(key->type));
}

void pleat__spec_take_keys(pleat_spec *to, const pleat__spec_stage *stage, const pleat_spec *from) {
    if (stage->firsts) memcpy((char *)to + stage->flag, &(uint32_t){1}, sizeof(uint32_t));
    for (uint32_t i = 0; i < stage->n_keys; i++) take_key(to, &stage->keys[i], from);
}

const pleat__spec_key *pleat__spec_alone(const pleat__spec_stage *stage, const pleat_spec *spec) {
    for (uint32_t i = 0; i < stage->n_keys; i++)
        if (stage->keys[i].is_alone && !pleat__spec_field_equal(spec, &stage->defaults, &stage->keys[i]))
            return &stage->keys[i];
    return NULL;
}

/* The defaults with the stages' keys set as in `spec`; if one stands alone, with that only. */
static pleat_spec restated(const pleat__spec_stage *stage, const pleat_spec *spec) {
    const pleat__spec_key *alone = pleat__spec_alone(stage, spec);
    const pleat__spec_stage *behind = pleat__spec_behind(stage, spec);
    pleat_spec out = stage->defaults;
    if (alone)
        take_key(&out, alone, spec);
    else
        pleat__spec_take_keys(&out, stage, spec);
    if (behind) pleat__spec_take_keys(&out, behind, spec);
    return out;
}

#define REQUIRE(cond, ...) PLEAT_FAIL_IF(!(cond), err, PLEAT_E_ARG, PLEAT_NOWHERE, __VA_ARGS__)

static pleat_status check_keys(const pleat__spec_stage *stage, const pleat_spec *spec, pleat_error *err) {
    for (uint32_t i = 0; i < stage->n_keys; i++)
        REQUIRE(field_is_valid(spec, &stage->keys[i]), "KV spec: %s must be %s", stage->keys[i].name,
                stage->keys[i].allowed);
    return PLEAT_OK;
}

pleat_status pleat__spec_check(const pleat_spec *spec, pleat_error *err) {
    const pleat__spec_stage *stage = pleat__spec_stage_of(spec);
    pleat__spec_excess excess;
    REQUIRE(stage, "KV spec: there is no policy %d with compressor %d, or no format of %u and %u bits",
            (int)spec->policy, (int)spec->compressor, spec->high.k_bits, spec->high.v_bits);
    REQUIRE(memchr(spec->profile, 0, sizeof spec->profile), "KV spec: the profile's path does not end");
    const pleat__spec_stage *behind = pleat__spec_behind(stage, spec);
    PLEAT_TRY(check_keys(stage, spec, err));
    if (behind) PLEAT_TRY(check_keys(behind, spec, err));
    REQUIRE(!pleat__spec_exceeds(stage, spec, &excess), "KV spec: %s", excess.text);
    const pleat_spec named = restated(stage, spec);
    REQUIRE(fields_equal(spec, &named), "KV spec: a field is set that does not go with %s%s", stage->name,
            spec->profile[0] ? ":profile=" : "");
    return PLEAT_OK;
}

#undef REQUIRE

/* ---- llama.cpp's names ------------------------------------------------------------------------------------------- */

/* Bits of a llama.cpp cache type; 0 if it is not one of ours. */
static uint8_t cache_type_bits(const char *type) {
    static const struct {
        const char *name;
        uint8_t bits;
    } types[] = {{"f32", 32}, {"f16", 16}, {"q8_0", 8}, {"q4_0", 4}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (type && strcmp(type, types[i].name) == 0) return types[i].bits;
    return 0;
}

pleat_status pleat_spec_from_cache_types(const char *ctk, const char *ctv, pleat_spec *out, pleat_error *err) {
    PLEAT_FAIL_IF(!out, err, PLEAT_E_ARG, PLEAT_NOWHERE, "cache types: no place for the result");
    const uint8_t k_bits = cache_type_bits(ctk), v_bits = cache_type_bits(ctv);
    PLEAT_FAIL_IF(!k_bits || !v_bits, err, PLEAT_E_SYNTAX, 0,
                  "cache type '%.40s' is unknown; allowed: f32, f16, q8_0, q4_0",
                  !k_bits ? (ctk ? ctk : "") : (ctv ? ctv : ""));
    const pleat_format format = {.k_bits = k_bits, .v_bits = v_bits};
    PLEAT_FAIL_IF(!pleat__format_is_valid(format), err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "cache types %s and %s cannot be mixed: both or neither must be f16 or f32", ctk, ctv);
    *out = (pleat_spec){.high = format};
    return PLEAT_OK;
}

void pleat__spec_fix_steps(pleat_spec *spec, float k, float v) {
    spec->compressor = PLEAT_COMPRESSOR_RD;
    spec->k = k;
    spec->v = v;
    spec->bytes = 0;
    spec->from = 0;
}
