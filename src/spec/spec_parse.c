/* SPDX-License-Identifier: MIT
 *
 * spec_parse.c: text to KV spec.  The grammar is in pleat/spec.h, the words in spec.c's table.
 *
 *     leankv:ah=3,profile=FILE
 *     |      | |  '- a key; its value runs to the next ',' or '+', any other byte is part of it
 *     |      | '- its value
 *     |      '- a key
 *     '- the stage's name, to ':' or '+', behind which the next stage's begins
 *
 * Positions count bytes of the whole text from 0.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "pleat/common.h"
#include "spec/spec.h"

/* A piece of the text. */
typedef struct word {
    const char *text;
    size_t n;
    size_t at; /* its offset in the whole text */
} word;

/* A stage whose keys are being read. */
typedef struct reader {
    const pleat__spec_stage *stage;
    pleat_spec spec;
    bool is_given[PLEAT__SPEC_KEYS_CAP];
    size_t key_at[PLEAT__SPEC_KEYS_CAP]; /* of those given */
    size_t value_at[PLEAT__SPEC_KEYS_CAP];
    pleat_error *err;
} reader;

#define SYNTAX(err, where, ...) pleat__error_set((err), PLEAT_E_SYNTAX, (where), __VA_ARGS__)

static word word_until(const char *text, size_t at, const char *stops) {
    return (word){.text = text + at, .n = strcspn(text + at, stops), .at = at};
}

static bool word_is(word w, const char *name) { return strlen(name) == w.n && memcmp(w.text, name, w.n) == 0; }

static bool word_ends_with(word w, const char *end) {
    const size_t n = strlen(end);
    return n <= w.n && memcmp(w.text + w.n - n, end, n) == 0;
}

/* How much of a word an error message shows. */
static int shown(word w) { return w.n > 40 ? 40 : (int)w.n; }

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* The digits of a decimal number without its point: at most 18 of them count, later ones only move the point. */
typedef struct digits {
    uint64_t value;
    int32_t exponent; /* the number is value * 10^exponent */
    size_t n;         /* digits seen */
} digits;

static size_t read_digits(const char *text, size_t n, size_t at, bool is_fraction, digits *d) {
    for (; at < n && text[at] >= '0' && text[at] <= '9'; at++, d->n++) {
        const bool counts = d->value < 100000000000000000u;
        if (counts) d->value = 10 * d->value + (uint64_t)(text[at] - '0');
        d->exponent += (counts ? 0 : 1) - (is_fraction ? 1 : 0);
    }
    return at;
}

/* strtod() follows the locale, in which a host program may have another decimal point: it gets a text without any. */
bool pleat__spec_number(const char *text, size_t n, int32_t shift, double *out) {
    const bool is_negative = n > 0 && text[0] == '-';
    digits d = {.exponent = shift}, e = {0};
    char plain[40];
    size_t at = read_digits(text, n, is_negative ? 1 : 0, false, &d);
    if (at < n && text[at] == '.') at = read_digits(text, n, at + 1, true, &d);
    if (d.n == 0) return false;
    if (at < n && (text[at] == 'e' || text[at] == 'E')) {
        const bool is_small = at + 1 < n && text[at + 1] == '-';
        at = read_digits(text, n, at + (is_small ? 2 : 1), false, &e);
        if (e.n == 0) return false;
        const int32_t power = e.value > 9999 || e.exponent > 0 ? 9999 : (int32_t)e.value;
        d.exponent += is_small ? -power : power;
    }
    if (at != n) return false;
    snprintf(plain, sizeof plain, "%s%" PRIu64 "e%" PRId32, is_negative ? "-" : "", d.value, d.exponent);
    *out = strtod(plain, NULL);
    return true;
}

/* Read a number, share or count into *v as the field will have it. */
static bool read_number(const pleat__spec_key *key, word w, double *v) {
    const bool is_percent = key->type == PLEAT__KEY_SHARE && w.n > 0 && w.text[w.n - 1] == '%';
    if (key->type == PLEAT__KEY_COUNT && strspn(w.text, "0123456789") < w.n) return false;
    if (!pleat__spec_number(w.text, w.n - (is_percent ? 1 : 0), is_percent ? -2 : 0, v)) return false;
    if (key->type != PLEAT__KEY_COUNT) *v = (double)(float)*v + 0.0; /* -0 is 0 */
    return pleat__spec_number_is_valid(key, *v);
}

/* Read a number of tokens, a share or bytes: what the word ends with says which. */
static bool read_budget(word w, pleat_budget *out) {
    const pleat__budget_suffix *suffix = pleat__budget_suffixes;
    while (!word_ends_with(w, suffix->text)) suffix++;
    const size_t n = w.n - strlen(suffix->text);
    if (suffix->unit == PLEAT_BUDGET_TOKENS && strspn(w.text, "0123456789") < n) return false;
    if (!pleat__spec_number(w.text, n, suffix->shift, &out->value)) return false;
    out->value *= suffix->factor;
    out->unit = suffix->unit;
    return pleat__budget_is_valid(*out);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* The list that a word was to be from, and its length. */
static size_t list_words(const pleat__spec_key *key, const char *names[PLEAT__N_SPEC_STAGES]) {
    size_t n = 0;
    if (key->type == PLEAT__KEY_FORMAT)
        for (; n < (key->is_plain ? PLEAT__N_SPEC_PLAIN_FORMATS : PLEAT__N_SPEC_FORMATS); n++)
            names[n] = pleat__spec_stages[n].name;
    else
        for (; n < PLEAT__KEY_WORDS_CAP && key->words[n]; n++) names[n] = key->words[n];
    return n;
}

#define MEANT_CAP 64
/* "; did you mean 'WORD'?", or `end` where no word is near. */
static const char *meant(char buf[MEANT_CAP], word w, const char *const *words, size_t n_words, const char *end) {
    const char *near = pleat_nearest_word(w.text, w.n, words, n_words);
    snprintf(buf, MEANT_CAP, near ? "; did you mean '%s'?" : "%s", near ? near : end);
    return buf;
}

/* Why a value that looks right is wrong, to stand behind the message; "" as a rule. */
static const char *hint_for(const pleat__spec_key *key, word w) {
    double v;
    if (key->type != PLEAT__KEY_BUDGET || w.n == 0) return "";
    if (pleat__spec_number(w.text, w.n, 0, &v)) return v > 0 && v < 1 ? "; a share is written with %" : "";
    return word_ends_with(w, "B") ? "; whole bytes, in B, KiB, MiB or GiB" : "";
}

static pleat_status bad_value(const reader *r, const pleat__spec_key *key, word w) {
    const char *names[PLEAT__N_SPEC_STAGES];
    char hint[MEANT_CAP];
    const size_t n = list_words(key, names);
    if (n > 0 && w.n > 0)
        return SYNTAX(r->err, w.at, "KV spec: %s '%.*s' at position %zu%s it must be %s", key->name, shown(w), w.text,
                      w.at, meant(hint, w, names, n, ":"), key->allowed);
    return SYNTAX(r->err, w.at, "KV spec: %s %s%.*s%s at position %zu: it must be %s%s", key->name,
                  w.n ? "'" : "has no value", shown(w), w.text, w.n ? "'" : "", w.at, key->allowed, hint_for(key, w));
}

static pleat_status read_word(reader *r, const pleat__spec_key *key, word w) {
    const char *names[PLEAT__N_SPEC_STAGES];
    const size_t n = list_words(key, names);
    void *field = pleat__spec_field(&r->spec, key);
    for (uint32_t i = 0; i < n; i++) {
        if (!word_is(w, names[i])) continue;
        if (key->type == PLEAT__KEY_FORMAT)
            memcpy(field, &pleat__spec_stages[i].defaults.high, sizeof(pleat_format));
        else
            memcpy(field, &i, sizeof i);
        return PLEAT_OK;
    }
    return bad_value(r, key, w);
}

static pleat_status read_value(reader *r, const pleat__spec_key *key, word w) {
    void *field = pleat__spec_field(&r->spec, key);
    pleat_budget budget;
    double v;
    switch (key->type) {
        case PLEAT__KEY_FORMAT:
        case PLEAT__KEY_WORD: return read_word(r, key, w);
        case PLEAT__KEY_PATH:
            if (w.n == 0 || w.n >= PLEAT_PROFILE_CAP) return bad_value(r, key, w);
            memcpy(field, w.text, w.n);
            return PLEAT_OK;
        case PLEAT__KEY_COUNT:
            if (!read_number(key, w, &v)) return bad_value(r, key, w);
            memcpy(field, &(uint32_t){(uint32_t)v}, sizeof(uint32_t));
            return PLEAT_OK;
        case PLEAT__KEY_NUMBER:
        case PLEAT__KEY_SHARE:
            if (!read_number(key, w, &v)) return bad_value(r, key, w);
            memcpy(field, &(float){(float)v}, sizeof(float));
            return PLEAT_OK;
        case PLEAT__KEY_BUDGET:
            if (!read_budget(w, &budget)) return bad_value(r, key, w);
            memcpy(field, &budget, sizeof budget);
            return PLEAT_OK;
    }
    return PLEAT_E_ARG;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static pleat_status unknown_key(const reader *r, word w) {
    const pleat__spec_stage *stage = r->stage;
    const char *names[PLEAT__SPEC_KEYS_CAP];
    char list[96], hint[MEANT_CAP];
    size_t n = 0;
    if (stage->n_keys == 0)
        return SYNTAX(r->err, w.at, "KV spec: '%.*s' at position %zu: %s takes no options", shown(w), w.text, w.at,
                      stage->name);
    for (uint32_t i = 0; i < stage->n_keys; i++) {
        names[i] = stage->keys[i].name;
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    if (w.n == 0)
        return SYNTAX(r->err, w.at, "KV spec: a key is missing at position %zu; %s has: %s", w.at, stage->name, list);
    return SYNTAX(r->err, w.at, "KV spec: unknown key '%.*s' at position %zu%s %s has: %s", shown(w), w.text, w.at,
                  meant(hint, w, names, stage->n_keys, ";"), stage->name, list);
}

/* Read the key at `at` and its value; *end is behind it. */
static pleat_status read_key(reader *r, const char *text, size_t at, size_t *end) {
    const word name = word_until(text, at, "=,+");
    const uint32_t n_keys = r->stage->n_keys;
    uint32_t i = 0;
    while (i < n_keys && !word_is(name, r->stage->keys[i].name)) i++;
    if (i == n_keys) return unknown_key(r, name);
    const pleat__spec_key *key = &r->stage->keys[i];
    if (text[at + name.n] != '=')
        return SYNTAX(r->err, at, "KV spec: '%s' at position %zu needs '=' and a value: %s", key->name, at,
                      key->allowed);
    if (r->is_given[i])
        return SYNTAX(r->err, at, "KV spec: '%s' at position %zu was given already, at position %zu", key->name, at,
                      r->key_at[i]);
    const word value = word_until(text, at + name.n + 1, ",+");
    PLEAT_TRY(read_value(r, key, value));
    r->is_given[i] = true;
    r->key_at[i] = at;
    r->value_at[i] = value.at;
    *end = value.at + value.n;
    return PLEAT_OK;
}

static pleat_status read_keys(reader *r, const char *text, size_t at, size_t *end) {
    do {
        PLEAT_TRY(read_key(r, text, at, end));
        at = *end + 1;
    } while (text[*end] == ',');
    return PLEAT_OK;
}

/* A key that stands alone has no company. */
static pleat_status check_alone(const reader *r) {
    const pleat__spec_stage *stage = r->stage;
    for (uint32_t i = 0; i < stage->n_keys; i++)
        for (uint32_t other = 0; r->is_given[i] && stage->keys[i].is_alone && other < stage->n_keys; other++)
            if (other != i && r->is_given[other])
                return SYNTAX(r->err, r->key_at[other],
                              "KV spec: '%s' at position %zu cannot stand beside '%s', which says all that %s needs",
                              stage->keys[other].name, r->key_at[other], stage->keys[i].name, stage->name);
    return PLEAT_OK;
}

/* What each key alone does not show. */
static pleat_status check_together(const reader *r) {
    pleat__spec_excess excess;
    PLEAT_TRY(check_alone(r));
    if (!pleat__spec_exceeds(r->stage, &r->spec, &excess)) return PLEAT_OK;
    const size_t key = (size_t)(excess.key - r->stage->keys), limit = (size_t)(excess.limit - r->stage->keys);
    const size_t at = r->value_at[r->is_given[key] ? key : limit];
    return SYNTAX(r->err, at, "KV spec: %s, at position %zu%s%s%s", excess.text, at, r->is_given[key] ? "" : "; ",
                  r->is_given[key] ? "" : excess.key->name, r->is_given[key] ? "" : " was left at its default");
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

/* The stage of that name that stands behind others, or NULL. */
static const pleat__spec_stage *find_behind(word w) {
    for (uint32_t i = 0; i < PLEAT__N_SPEC_BEHIND; i++)
        if (word_is(w, pleat__spec_behind_stages[i].name)) return &pleat__spec_behind_stages[i];
    return NULL;
}

/* Names that others have for a format: TurboQuant's of 4 and 3 bits, as llama.cpp's family has it. */
static const pleat__spec_stage *find_alias(word w) {
    if (word_is(w, "tq4")) return pleat__spec_format_stage((pleat_format){4, 4, 1});
    return word_is(w, "tq3") ? pleat__spec_format_stage((pleat_format){3, 3, 1}) : NULL;
}

static pleat_status find_stage(word w, const pleat__spec_stage **out, pleat_error *err) {
    const char *names[PLEAT__N_SPEC_STAGES];
    for (uint32_t i = 0; i < PLEAT__N_SPEC_STAGES; i++) {
        names[i] = pleat__spec_stages[i].name;
        *out = &pleat__spec_stages[i];
        if (word_is(w, names[i])) return PLEAT_OK;
    }
    *out = find_alias(w);
    if (*out) return PLEAT_OK;
    const pleat__spec_stage *behind = find_behind(w);
    if (w.n == 0)
        return SYNTAX(err, w.at, "KV spec: a name is missing at position %zu; allowed: %s", w.at, PLEAT__STAGE_NAMES);
    if (behind)
        return SYNTAX(err, w.at, "KV spec: '%s' at position %zu must stand behind %s%s, as in %s", behind->name, w.at,
                      strchr(behind->firsts, ',') ? "one of " : "", behind->firsts, behind->example);
    const char *near = pleat_nearest_word(w.text, w.n, names, PLEAT__N_SPEC_STAGES);
    /* The list is as long as a message may be. */
    return SYNTAX(err, w.at, "KV spec: unknown name '%.*s' at position %zu; %s%s%s", w.n > 16 ? 16 : (int)w.n, w.text,
                  w.at, near ? "did you mean '" : "allowed: ", near ? near : PLEAT__STAGE_NAMES, near ? "'?" : "");
}

/* What may stand behind a stage is the one of that name, or NULL. */
static const pleat__spec_stage *behind_of(const pleat__spec_stage *stage, word w) {
    for (uint32_t i = 0; i < PLEAT__SPEC_BEHIND_CAP && stage->behind[i]; i++)
        if (word_is(w, stage->behind[i]->name)) return stage->behind[i];
    return NULL;
}

/* The stage behind this one for which there is a word that chooses, or NULL. */
static const pleat__spec_stage *chosen_behind(const pleat__spec_stage *stage) {
    return stage->behind[0] && stage->behind[0]->choice ? stage->behind[0] : NULL;
}

/* "only a, b or c": what may stand behind a stage; the word that chooses stands for nothing else. */
static void list_behind(const pleat__spec_stage *stage, char *out, size_t cap) {
    const char *names[PLEAT__SPEC_BEHIND_CAP + 1];
    uint32_t n = 0;
    for (; n < PLEAT__SPEC_BEHIND_CAP && stage->behind[n]; n++) names[n] = stage->behind[n]->name;
    if (chosen_behind(stage)) names[n++] = chosen_behind(stage)->choice;
    size_t used = (size_t)snprintf(out, cap, n ? "only" : "nothing");
    for (uint32_t i = 0; i < n && used < cap; i++)
        used += (size_t)snprintf(out + used, cap - used, "%s%s", i == 0 ? " " : i + 1 < n ? ", " : " or ", names[i]);
}

static pleat_status bad_behind(const pleat__spec_stage *stage, word w, pleat_error *err) {
    const pleat__spec_stage *named = find_behind(w);
    const bool is_elsewhere = named && named != stage;
    char allowed[64];
    list_behind(stage, allowed, sizeof allowed);
    return SYNTAX(err, w.at, "KV spec: '%.*s' at position %zu: %s can follow %s%s%s%s%s%s", shown(w), w.text, w.at,
                  allowed, stage->firsts ? "+" : "", stage->name, is_elsewhere ? "; " : "",
                  is_elsewhere ? named->name : "", is_elsewhere ? " can follow " : "",
                  is_elsewhere ? named->firsts : "");
}

/* `auto` in place of pack: packs, but where the entropy coder is nearly as fast.  Attention over packs takes 0.6 of its
 * time with AVX2, and 0.96 with AVX-512 VBMI2, for more bytes.  (docs/PERF.md, 2026-11-23.) */
static bool packs_are_faster(void) { return !(pleat_cpu_flags() & PLEAT_CPU_VBMI2); }

/* Read the keys behind a stage's name, if any. */
static pleat_status read_stage(reader *r, const char *text, word name, size_t *end) {
    *end = name.at + name.n;
    if (text[*end] == ':') PLEAT_TRY(read_keys(r, text, *end + 1, end));
    return check_together(r);
}

pleat_status pleat_spec_parse(const char *text, pleat_spec *out, pleat_error *err) {
    PLEAT_FAIL_IF(!text || !out, err, PLEAT_E_ARG, PLEAT_NOWHERE, "KV spec: no text given");
    reader r = {.err = err};
    word name = word_until(text, 0, ":+");
    PLEAT_TRY(find_stage(name, &r.stage, err));
    r.spec = text[name.n] != ':' && r.stage->bare ? *r.stage->bare : r.stage->defaults;
    size_t end;
    PLEAT_TRY(read_stage(&r, text, name, &end));
    while (text[end] == '+') {
        name = word_until(text, end + 1, ":+");
        const pleat__spec_stage *choice = chosen_behind(r.stage), *behind = behind_of(r.stage, name);
        const bool is_auto = choice && word_is(name, choice->choice);
        if (!is_auto && !behind) return bad_behind(r.stage, name, err);
        r = (reader){.stage = is_auto ? choice : behind, .spec = r.spec, .err = err};
        if (!is_auto || packs_are_faster()) pleat__spec_take_keys(&r.spec, r.stage, &r.stage->defaults);
        PLEAT_TRY(read_stage(&r, text, name, &end));
    }
    *out = r.spec;
    return PLEAT_OK;
}
