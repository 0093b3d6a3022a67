/* SPDX-License-Identifier: MIT
 *
 * spec_print.c: KV spec to canonical text: each stage's name, its chief keys, and others that differ from the defaults,
 * in the order of the table.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "spec/spec.h"

typedef struct printer {
    char text[PLEAT_SPEC_TEXT_CAP];
    size_t n;
} printer;

/* The longest key and value are far below the cap: formats, words and numbers of up to 17 digits, or one path alone. */
static void put(printer *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(printer *p, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(p->text + p->n, sizeof p->text - p->n, fmt, args);
    va_end(args);
    p->n += (size_t)n;
}

#define NUMBER_CAP 32

/* Write v*10^shift, v >= 0, with n_digits significant ones, as 0.02, 1200 or 1.5e-07.  The point is '.' in every
 * locale. */
static void number_of_digits(double v, int shift, int n_digits, char out[NUMBER_CAP]) {
    char scientific[NUMBER_CAP], digit[NUMBER_CAP];
    snprintf(scientific, sizeof scientific, "%.*e", n_digits - 1, v);
    const char *e = strchr(scientific, 'e');
    int n = 0, exponent = 0;
    for (const char *s = scientific; s < e; s++)
        if (*s >= '0' && *s <= '9') digit[n++] = *s;
    for (const char *s = e + 2; *s; s++) exponent = 10 * exponent + (*s - '0');
    if (e[1] == '-') exponent = -exponent;
    if (v > 0) exponent += shift;
    const bool is_plain = exponent >= -5 && exponent <= 8;
    const int first = is_plain ? exponent : 0; /* the power of ten that the first digit stands for */
    size_t at = 0;
    for (int power = first > 0 ? first : 0; power >= 0 || power > first - n; power--) {
        const int i = first - power;
        if (power == -1) out[at++] = '.';
        out[at++] = i >= 0 && i < n ? digit[i] : '0';
    }
    out[at] = 0;
    if (!is_plain) snprintf(out + at, NUMBER_CAP - at, "e%d", exponent);
}

/* The shortest text that reads back as the same float or double. */
static void put_number(printer *p, double v, bool is_float, bool is_percent) {
    const int shift = is_percent ? 2 : 0;
    char text[NUMBER_CAP];
    double back = -1;
    for (int n = 1; n <= 17 && (is_float ? (float)back != (float)v : back != v); n++) {
        number_of_digits(v, shift, n, text);
        (void)pleat__spec_number(text, strlen(text), -shift, &back);
    }
    put(p, "%s%s", text, is_percent ? "%" : "");
}

/* Tokens as a number, bytes in the largest unit that divides them. */
static void put_budget(printer *p, pleat_budget budget) {
    const pleat__budget_suffix *suffix = pleat__budget_suffixes;
    if (budget.unit == PLEAT_BUDGET_SHARE) {
        put_number(p, budget.value, false, true);
        return;
    }
    while (suffix->unit != budget.unit || (uint64_t)budget.value % (uint64_t)suffix->factor != 0) suffix++;
    put(p, "%" PRIu64 "%s", (uint64_t)budget.value / (uint64_t)suffix->factor, suffix->text);
}

static void put_value(printer *p, const pleat_spec *spec, const pleat__spec_key *key) {
    const void *field = pleat__spec_field_const(spec, key);
    const bool is_share = key->type == PLEAT__KEY_SHARE;
    switch (key->type) {
        case PLEAT__KEY_NUMBER:
        case PLEAT__KEY_SHARE: put_number(p, (double)pleat__field_float(field), true, is_share); return;
        case PLEAT__KEY_COUNT: put(p, "%u", pleat__field_u32(field)); return;
        case PLEAT__KEY_WORD: put(p, "%s", key->words[pleat__field_u32(field)]); return;
        case PLEAT__KEY_FORMAT: put(p, "%s", pleat__spec_format_stage(pleat__field_format(field))->name); return;
        case PLEAT__KEY_PATH: put(p, "%s", (const char *)field); return;
        case PLEAT__KEY_BUDGET: put_budget(p, pleat__field_budget(field)); return;
    }
}

static void put_stage(printer *p, const pleat_spec *spec, const pleat__spec_stage *stage) {
    const pleat__spec_key *alone = pleat__spec_alone(stage, spec);
    char separator = ':';
    put(p, "%s", stage->name);
    for (uint32_t i = 0; i < stage->n_keys; i++) {
        const pleat__spec_key *key = &stage->keys[i];
        const bool is_default = pleat__spec_field_equal(spec, &stage->defaults, key);
        if (alone ? alone != key : is_default && !key->is_printed) continue;
        put(p, "%c%s=", separator, key->name);
        put_value(p, spec, key);
        separator = ',';
    }
}

pleat_status pleat_spec_print(const pleat_spec *spec, char *buf, size_t cap) {
    if (!spec || !buf || cap < PLEAT_SPEC_TEXT_CAP || pleat__spec_check(spec, NULL) != PLEAT_OK) return PLEAT_E_ARG;
    const pleat__spec_stage *stage = pleat__spec_stage_of(spec);
    const pleat__spec_stage *behind = pleat__spec_behind(stage, spec);
    printer p = {.n = 0};
    put_stage(&p, spec, stage);
    if (behind) {
        put(&p, "+");
        put_stage(&p, spec, behind);
    }
    memcpy(buf, p.text, p.n + 1);
    return PLEAT_OK;
}
