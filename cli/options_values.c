/* SPDX-License-Identifier: MIT
 *
 * options_values.c: what the text of an option means: numbers, bytes, words, lists and specs.  See options_table.h.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "options_table.h"

/* ---- numbers ----------------------------------------------------------------------------------- */

static int bad_number(const char *flag, const char *text, const option_row *row) {
    const char *kind = row->kind == KIND_F32 || row->kind == KIND_FLOATS ? "number" : "whole number";
    cli_error("%s: '%s' is not a %s between %.10g and %.10g", flag, text, kind, row->min, row->max);
    return CLI_USAGE;
}

/* Decimal, or hexadecimal after 0x (a mask). */
static int parse_integer(const char *text, double min, double max, int64_t *out) {
    char *end;
    const int base = text[0] == '0' && (text[1] == 'x' || text[1] == 'X') ? 16 : 10;
    errno = 0;
    const long long v = strtoll(text, &end, base);
    if (errno || end == text || *end || isspace((unsigned char)text[0]) || (double)v < min || (double)v > max) return 0;
    *out = v;
    return 1;
}

static int set_u64(const char *flag, const char *text, uint64_t *out) {
    char *end;
    errno = 0;
    const unsigned long long v = strtoull(text, &end, 10);
    if (errno || end == text || *end || !isdigit((unsigned char)text[0])) {
        cli_error("%s: '%s' is not a whole number between 0 and %llu", flag, text, (unsigned long long)UINT64_MAX);
        return CLI_USAGE;
    }
    *out = v;
    return CLI_OK;
}

static int set_mask(const char *flag, const char *text, const option_row *row, uint32_t *out) {
    int64_t v;
    if (!parse_integer(text, 0, UINT32_MAX, &v) || (v & ~(int64_t)row->max)) {
        cli_error("%s: '%s' is not %s: %s", flag, text, row->arg, row->help);
        return CLI_USAGE;
    }
    *out = (uint32_t)v;
    return CLI_OK;
}

/* See options_bytes(); `min` is 0 or 1. */
static int parse_bytes(const char *text, double min, uint64_t *out) {
    static const char units[] = "kMGT";
    char *end;
    double v = strtod(text, &end);
    if (end == text || !isdigit((unsigned char)text[0])) return 0;
    const char *unit = *end ? strchr(units, *end == 'K' ? 'k' : *end) : NULL;
    if (unit) {
        const double base = end[1] == 'i' ? 1024 : 1000;
        for (const char *u = units; u <= unit; u++) v *= base;
        end += end[1] == 'i' ? 2 : 1;
    }
    if (*end == 'B') end++;
    if (*end || !(v <= 0x1p62 && (v >= 1 || v == min))) return 0;
    *out = (uint64_t)v;
    return 1;
}

int options_bytes(const char *text, uint64_t *out) { return parse_bytes(text, 1, out); }

static int set_bytes(const char *flag, const char *text, const option_row *row, uint64_t *out) {
    if (parse_bytes(text, row->min, out)) return CLI_OK;
    cli_error("%s: '%s' is no number of bytes between %.0f and 2^62, as 80000000000, 80GB or 80GiB", flag, text,
              row->min);
    return CLI_USAGE;
}

static int set_f32(const char *flag, const char *text, const option_row *row, float *out) {
    char *end;
    const double v = strtod(text, &end);
    if (end == text || *end || isspace((unsigned char)text[0]) || !(v >= row->min && v <= row->max))
        return bad_number(flag, text, row);
    *out = (float)v;
    return CLI_OK;
}

static int add_spec(const char *flag, const char *text, spec_list *list) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    if (list->n == SPECS_CAP) {
        cli_error("%s '%s': at most %d specs can be compared", flag, text, SPECS_CAP);
        return CLI_USAGE;
    }
    if (pleat_spec_parse(text, &list->spec[list->n], &err) != PLEAT_OK) {
        cli_error("%s: %s", flag, err.text); /* it names the word and its position */
        return CLI_USAGE;
    }
    pleat_spec_print(&list->spec[list->n], list->text[list->n], PLEAT_SPEC_TEXT_CAP);
    list->n++;
    return CLI_OK;
}

/* One spec or several with spaces between: a spec itself may hold commas. */
static int add_specs(const char *flag, const char *text, spec_list *list) {
    int code = CLI_OK;
    if (!strchr(text, ' ')) return add_spec(flag, text, list);
    char *copy = cli_copy(text, strlen(text)), *save = NULL;
    for (char *word = strtok_r(copy, " ", &save); word && code == CLI_OK; word = strtok_r(NULL, " ", &save))
        code = add_spec(flag, word, list);
    free(copy);
    return code;
}

/* Numbers with commas between: whole ones into a number_list, others into a float_list. */
static int set_list(const char *flag, const char *text, const option_row *row, void *out) {
    number_list *numbers = row->kind == KIND_NUMBERS ? out : NULL;
    float_list *floats = row->kind == KIND_FLOATS ? out : NULL;
    const char *at = text;
    uint32_t n = 0;
    for (int is_last = 0; !is_last; n++) {
        char word[32];
        int64_t v;
        const size_t length = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), at);
        if (n == NUMBERS_CAP) {
            cli_error("%s '%s': more than %d numbers", flag, text, NUMBERS_CAP);
            return CLI_USAGE;
        }
        if (floats && set_f32(flag, word, row, &floats->v[n]) != CLI_OK) return CLI_USAGE;
        if (numbers && !parse_integer(word, row->min, row->max, &v)) return bad_number(flag, word, row);
        if (numbers) numbers->v[n] = (uint32_t)v;
        is_last = !at[length];
        at += length + 1;
    }
    *(numbers ? &numbers->n : &floats->n) = n;
    return CLI_OK;
}

/* One of the words (NULL behind the last) of an enum that counts them from 0. */
static int set_word(const char *flag, const char *text, const char *const *words, void *out) {
    char list[64] = "";
    uint32_t n = 0;
    for (; words[n]; n++) snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", n ? ", " : "", words[n]);
    const uint32_t nearest = cli_nearest(text, words, n);
    if (strcmp(words[nearest], text) != 0) {
        char hint[HINT_CAP];
        cli_error("%s: '%s' is none of %s%s", flag, text, list, cli_hint(hint, "", text, words[nearest]));
        return CLI_USAGE;
    }
    memcpy(out, &nearest, sizeof nearest);
    return CLI_OK;
}
static const char *const formats[] = {"terminal", "json", "csv", "md", NULL};
static const char *const goals[] = {"bytes", "accuracy", NULL};
static const char *const preemptions[] = {"cheaper", "swap", "recompute", NULL};
static const char *const devices[] = {"cpu", "cuda", NULL};
_Static_assert(sizeof(out_format) == 4 && sizeof(calibration_goal) == 4 && sizeof(pleat_preemption) == 4 &&
                   sizeof(bench_device_kind) == 4,
               "set_word() writes a uint32_t");

int option_set(options *o, const option_row *row, const char *flag, const char *text) {
    void *at = (char *)o + row->offset;
    int64_t v;
    switch (row->kind) {
        case KIND_SWITCH: *(int *)at = 1; return CLI_OK;
        case KIND_TEXT: *(const char **)at = text; return CLI_OK;
        case KIND_U32:
            if (!parse_integer(text, row->min, row->max, &v)) return bad_number(flag, text, row);
            *(uint32_t *)at = (uint32_t)v;
            return CLI_OK;
        case KIND_I32:
            if (!parse_integer(text, row->min, row->max, &v)) return bad_number(flag, text, row);
            *(int32_t *)at = (int32_t)v;
            return CLI_OK;
        case KIND_MASK: return set_mask(flag, text, row, at);
        case KIND_U64: return set_u64(flag, text, at);
        case KIND_F32: return set_f32(flag, text, row, at);
        case KIND_SPECS: return add_specs(flag, text, at);
        case KIND_NUMBERS:
        case KIND_FLOATS: return set_list(flag, text, row, at);
        case KIND_FORMAT: return set_word(flag, text, formats, at);
        case KIND_GOAL: return set_word(flag, text, goals, at);
        case KIND_BYTES: return set_bytes(flag, text, row, at);
        case KIND_PREEMPT: return set_word(flag, text, preemptions, at);
        case KIND_DEVICE: return set_word(flag, text, devices, at);
    }
    return CLI_USAGE;
}

/* ---- the specs of a command -------------------------------------------------------------------- */

int options_one_spec(options *o, const char *fallback) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    const int has_types = o->cache_type_k || o->cache_type_v;
    if (o->kv.n > 1 || (o->kv.n && has_types)) {
        cli_error(has_types ? "--kv and --cache-type-k/--cache-type-v exclude each other; --kv alone is enough"
                            : "--kv may stand once here; `pleat eval` compares several");
        return CLI_USAGE;
    }
    if (!has_types) {
        if (!o->kv.n) add_spec("--kv", fallback, &o->kv);
        return CLI_OK;
    }
    const char *k = o->cache_type_k ? o->cache_type_k : "f16", *v = o->cache_type_v ? o->cache_type_v : "f16";
    if (pleat_spec_from_cache_types(k, v, &o->kv.spec[0], &err) != PLEAT_OK) {
        cli_error("--cache-type-k '%s', --cache-type-v '%s': %s", k, v, err.text);
        return CLI_USAGE;
    }
    pleat_spec_print(&o->kv.spec[0], o->kv.text[0], PLEAT_SPEC_TEXT_CAP);
    o->kv.n = 1;
    return CLI_OK;
}

void options_default_specs(options *o, const char *const *texts) {
    if (o->kv.n) return;
    for (; *texts; texts++) add_spec("--kv", *texts, &o->kv);
}

int options_check_head_dims(const options *o) {
    for (uint32_t i = 0; i < o->head_dim.n; i++)
        if (o->head_dim.v[i] % 16 != 0) {
            cli_error("--head-dim %u must be a multiple of 16 from 16 to 512", o->head_dim.v[i]);
            return CLI_USAGE;
        }
    return CLI_OK;
}
