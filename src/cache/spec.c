/* SPDX-License-Identifier: MIT
 *
 * spec.c: the KV spec: parsing, printing, llama.cpp's aliases.  The grammar is in pleat/spec.h.
 *
 * `formats` is the whole vocabulary so far.
 */
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/nearest.h"
#include "quant/layout.h"

static const struct {
    const char *name;
    pleat_format format;
} formats[] = {
    {"f32", {32, 32}}, {"f16", {16, 16}}, {"k8v8", {8, 8}}, {"k8v4", {8, 4}}, {"k8v2", {8, 2}}, {"k4v8", {4, 8}},
    {"k4v4", {4, 4}},  {"k4v2", {4, 2}},  {"k2v8", {2, 8}}, {"k2v4", {2, 4}}, {"k2v2", {2, 2}},
};
#define N_FORMATS (sizeof formats / sizeof formats[0])
#define FORMAT_NAMES "f32, f16, k8v8, k8v4, k8v2, k4v8, k4v4, k4v2, k2v8, k2v4, k2v2"

/* A piece of the text. */
typedef struct word {
    const char *text;
    size_t n;
    size_t at; /* its offset in the whole text */
} word;

static word word_until(const char *text, size_t at, const char *stops) {
    return (word){.text = text + at, .n = strcspn(text + at, stops), .at = at};
}

static bool word_is(word w, const char *name) { return strlen(name) == w.n && memcmp(w.text, name, w.n) == 0; }

/* How much of a word an error message shows. */
static int shown(word w) { return w.n > 40 ? 40 : (int)w.n; }

static pleat_status unknown_stage(word w, pleat_error *err) {
    const char *names[N_FORMATS];
    for (size_t i = 0; i < N_FORMATS; i++) names[i] = formats[i].name;
    if (w.n == 0)
        return pleat__error_set(err, PLEAT_E_SYNTAX, w.at, "KV spec: a name is missing at position %zu; allowed: %s",
                                w.at, FORMAT_NAMES);
    return pleat__error_set(err, PLEAT_E_SYNTAX, w.at,
                            "KV spec: unknown name '%.*s' at position %zu; did you mean '%s'? allowed: %s", shown(w),
                            w.text, w.at, pleat__nearest_word(w.text, w.n, names, N_FORMATS), FORMAT_NAMES);
}

static pleat_status parse_format(word w, pleat_format *out, pleat_error *err) {
    for (size_t i = 0; i < N_FORMATS; i++) {
        if (!word_is(w, formats[i].name)) continue;
        *out = formats[i].format;
        return PLEAT_OK;
    }
    return unknown_stage(w, err);
}

pleat_status pleat_spec_parse(const char *text, pleat_spec *out, pleat_error *err) {
    PLEAT_FAIL_IF(!text || !out, err, PLEAT_E_ARG, PLEAT_NOWHERE, "KV spec: no text given");
    const word name = word_until(text, 0, ":+");
    pleat_format format;
    PLEAT_TRY(parse_format(name, &format, err));
    size_t at = name.n;
    if (text[at] == ':') {
        const word key = word_until(text, at + 1, "=,+");
        return pleat__error_set(err, PLEAT_E_SYNTAX, key.at, "KV spec: '%.*s' at position %zu: %.*s takes no options",
                                shown(key), key.text, key.at, shown(name), name.text);
    }
    if (text[at] == '+') {
        const word next = word_until(text, at + 1, ":+");
        return pleat__error_set(err, PLEAT_E_SYNTAX, next.at,
                                "KV spec: '%.*s' at position %zu: nothing can follow %.*s", shown(next), next.text,
                                next.at, shown(name), name.text);
    }
    *out = (pleat_spec){.high = format};
    return PLEAT_OK;
}

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

pleat_status pleat_spec_print(const pleat_spec *spec, char *buf, size_t cap) {
    if (!spec || !buf || cap < PLEAT_SPEC_TEXT_CAP) return PLEAT_E_ARG;
    for (size_t i = 0; i < N_FORMATS; i++) {
        if (formats[i].format.k_bits != spec->high.k_bits || formats[i].format.v_bits != spec->high.v_bits) continue;
        snprintf(buf, cap, "%s", formats[i].name);
        return PLEAT_OK;
    }
    return PLEAT_E_ARG;
}
