/* SPDX-License-Identifier: MIT
 *
 * options_value.c: what the text of an option means: numbers, bytes, words, lists and specs.  See options.h.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "borrowed.h"
#include "common.h"
#include "options_internal.h"

/* ---- numbers --------------------------------------------------------------------------------- */

static int bad_number(const char *flag, const char *text, const option_row *row) {
    const char *kind = row->kind == KIND_F32 || row->kind == KIND_FLOATS ? "number" : "whole number";
    cli_error("%s: '%s' is not a %s between %.10g and %.10g", flag, text, kind, row->min, row->max);
    return CLI_USAGE;
}

static int is_hexadecimal(const char *text) {
    text += strspn(text, "+-");
    return text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
}

double options_decimal(const char *text, char **end) {
    const double v = strtod(text, end);
    if (!is_hexadecimal(text + strspn(text, " \t\n\v\f\r"))) return v;
    *end = (char *)(uintptr_t)text;
    return 0;
}

static int parse_integer(const char *text, int base, double min, double max, int64_t *out) {
    char *end;
    errno = 0;
    const long long v = strtoll(text, &end, base);
    if (errno || end == text || *end || isspace((unsigned char)text[0]) || (double)v < min || (double)v > max) return 0;
    *out = v;
    return 1;
}

/* "--head-dim 72 must be ..." */
static int check_multiple(const char *flag, int64_t v, const option_row *row) {
    if (!row->multiple || v % row->multiple == 0) return CLI_OK;
    cli_error("%s %lld must be a multiple of %u from %.10g to %.10g", flag, (long long)v, row->multiple, row->min,
              row->max);
    return CLI_USAGE;
}

/* A uint32_t or an int32_t: their bits are the same. */
static int set_integer(const char *flag, const char *text, const option_row *row, void *out) {
    int64_t v;
    if (!parse_integer(text, 10, row->min, row->max, &v)) return bad_number(flag, text, row);
    if (check_multiple(flag, v, row) != CLI_OK) return CLI_USAGE;
    const uint32_t bits = (uint32_t)v;
    memcpy(out, &bits, sizeof bits);
    return CLI_OK;
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
    if (!parse_integer(text, is_hexadecimal(text) ? 16 : 10, 0, UINT32_MAX, &v) || (v & ~(int64_t)row->max)) {
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
    double v = options_decimal(text, &end);
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
    const double v = options_decimal(text, &end);
    if (end == text || *end || isspace((unsigned char)text[0]) || !(v >= row->min && v <= row->max))
        return bad_number(flag, text, row);
    *out = (float)v;
    return CLI_OK;
}

/* ---- specs ----------------------------------------------------------------------------------- */

const char *const option_spec_names[] = {
    "f32",    "f16",      "k8v8",      "k8v4",        "k4v4",      "k4v2",  "leankv", "topk",     "random",
    "recent", "h2o",      "streaming", "snapkv",      "pyramidkv", "adakv", "novel",  "expected", "dropkv",
    "kvzip",  "leverage", "kvcomp",    "kvcomp+pack", "kivi",      "rd",    "auto",   NULL};
const char *const option_plain_specs[] = {"f16", "k8v8", "k8v4", "k4v4", "k4v2", NULL};

/* Whether a comma stands where no spec has one: before any option. */
static int has_commas_between(const char *text) { return text[strcspn(text, ":,")] == ','; }

static int add_spec(const char *flag, const char *text, spec_list *list) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    if (list->n == SPECS_CAP) {
        cli_error("%s '%s': at most %u specs can be compared", flag, text, SPECS_CAP);
        return CLI_USAGE;
    }
    if (pleat_spec_parse(text, &list->spec[list->n], &err) != PLEAT_OK) {
        const char *here = borrowed_spec(text);
        if (here)
            cli_error("%s '%s': %s (`pleat help kv` explains the specs)", flag, text, here);
        else if (has_commas_between(text))
            cli_error("%s '%s': commas stand between options, as in leankv:ah=5,al=0, and blanks between specs", flag,
                      text);
        else
            cli_error("%s: %s", flag, err.text); /* it names the word and its position */
        return CLI_USAGE;
    }
    pleat_spec_print(&list->spec[list->n], list->text[list->n], PLEAT_SPEC_TEXT_CAP);
    list->is_bare[list->n] = !text[strcspn(text, ":+")];
    list->n++;
    return CLI_OK;
}

/* One spec or several with spaces between: a spec itself may hold commas.  How many a command takes is asked when the
 * command line has replaced what the environment brings (options_check.c). */
static int add_specs(const char *flag, const char *text, spec_list *list) {
    int code = CLI_OK;
    if (text[0] && text[strspn(text, " ")] == 0) {
        cli_error("%s: '%s' names no way to keep the cache", flag, text);
        return CLI_USAGE;
    }
    if (!strchr(text, ' ')) return add_spec(flag, text, list);
    char *copy = cli_copy(text, strlen(text)), *save = NULL;
    for (char *word = strtok_r(copy, " ", &save); word && code == CLI_OK; word = strtok_r(NULL, " ", &save))
        code = add_spec(flag, word, list);
    free(copy);
    return code;
}

void options_default_specs(spec_list *list, const char *const *texts) {
    if (list->n) return;
    for (; *texts; texts++) add_spec("--kv", *texts, list);
}

/* ---- lists and words ------------------------------------------------------------------------- */

static int check_count(const char *flag, const char *text, uint32_t n, const option_row *row) {
    if (n >= row->min_n && (!row->max_n || n <= row->max_n)) return CLI_OK;
    if (row->min_n == row->max_n)
        cli_error("%s: '%s' is not %u numbers, %s: %s", flag, text, row->min_n, row->arg, row->help);
    else
        cli_error("%s: '%s' is not %u to %u numbers: %s", flag, text, row->min_n, row->max_n, row->help);
    return CLI_USAGE;
}

/* The nth number of a list: a whole one into a number_list, another into a float_list. */
static int set_number(const char *flag, const char *word, const option_row *row, uint32_t n, void *out) {
    int64_t v;
    if (row->kind == KIND_FLOATS) return set_f32(flag, word, row, &((float_list *)out)->v[n]);
    if (!parse_integer(word, 10, row->min, row->max, &v)) return bad_number(flag, word, row);
    ((number_list *)out)->v[n] = (uint32_t)v;
    return check_multiple(flag, v, row);
}

/* Numbers with commas between. */
static int set_list(const char *flag, const char *text, const option_row *row, void *out) {
    const char *at = text;
    uint32_t n = 0;
    for (int is_last = 0; !is_last; n++) {
        char word[32];
        const size_t length = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), at);
        if (n == NUMBERS_CAP) {
            cli_error("%s '%s': more than %d numbers", flag, text, NUMBERS_CAP);
            return CLI_USAGE;
        }
        if (set_number(flag, word, row, n, out) != CLI_OK) return CLI_USAGE;
        is_last = !at[length];
        at += length + 1;
    }
    memcpy(out, &n, sizeof n); /* a list begins with its number */
    return check_count(flag, text, n, row);
}

/* One of the words (NULL behind the last) of an enum that counts them from 0. */
static int set_word(const char *flag, const char *text, const char *const *words, void *out) {
    char list[256] = "";
    uint32_t n = 0;
    for (; words[n]; n++) snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", n ? ", " : "", words[n]);
    const uint32_t nearest = cli_nearest(text, words, n);
    if (strcmp(words[nearest], text) != 0) {
        char hint[HINT_CAP];
        const char *here = borrowed_word(text, words);
        if (here)
            cli_error("%s: '%s' is none of %s; it is '%s' here", flag, text, list, here);
        else
            cli_error("%s: '%s' is none of %s%s", flag, text, list, cli_hint(hint, "", text, words[nearest]));
        return CLI_USAGE;
    }
    memcpy(out, &nearest, sizeof nearest);
    return CLI_OK;
}
_Static_assert(sizeof(out_format) == sizeof(uint32_t), "set_word() writes a uint32_t");

const char *const option_formats[] = {"terminal", "json", "csv", "md", NULL};

int option_set(void *opts, const option_row *row, const char *flag, const char *text) {
    void *at = (char *)opts + row->offset;
    switch (row->kind) {
        case KIND_SWITCH: *(int *)at = 1; return CLI_OK;
        case KIND_TEXT:
        case KIND_INPUT:
        case KIND_CONFIG:
        case KIND_OUTPUT:
        case KIND_OPERAND: *(const char **)at = text; return CLI_OK;
        case KIND_U32:
        case KIND_I32: return set_integer(flag, text, row, at);
        case KIND_MASK: return set_mask(flag, text, row, at);
        case KIND_U64: return set_u64(flag, text, at);
        case KIND_F32: return set_f32(flag, text, row, at);
        case KIND_SPECS: return add_specs(flag, text, at);
        case KIND_NUMBERS:
        case KIND_FLOATS: return set_list(flag, text, row, at);
        case KIND_WORD: return set_word(flag, text, row->words, at);
        case KIND_BYTES: return set_bytes(flag, text, row, at);
    }
    return CLI_USAGE;
}
