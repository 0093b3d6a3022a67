/* SPDX-License-Identifier: MIT
 *
 * options_check.c: which options go together: what rows need and exclude, and what a command demands.
 */
#include <string.h>

#include "common.h"
#include "options_internal.h"

/* Bytes of a row's value that tell it from its default: of a list its number. */
static size_t value_bytes(option_kind kind) {
    switch (kind) {
        case KIND_TEXT:
        case KIND_INPUT:
        case KIND_CONFIG:
        case KIND_OUTPUT:
        case KIND_OPERAND: return sizeof(const char *);
        case KIND_U64:
        case KIND_BYTES: return sizeof(uint64_t);
        default: return sizeof(uint32_t);
    }
}
_Static_assert(offsetof(spec_list, n) == 0 && offsetof(number_list, n) == 0 && offsetof(float_list, n) == 0,
               "a list begins with its number");

static int is_given(const option_parse *p, uint32_t row) {
    const option_row *r = &p->c->rows[row];
    return memcmp(p->opts + r->offset, p->defaults + r->offset, value_bytes(r->kind)) != 0;
}

static void take_back(option_parse *p, uint32_t row) {
    const option_row *r = &p->c->rows[row];
    memcpy(p->opts + r->offset, p->defaults + r->offset, value_bytes(r->kind));
}

/* The next of the names with spaces between; its row, or n_rows after the last.  *word is the text behind '=', or
 * NULL. */
static uint32_t next_name(const option_parse *p, const char **names, const char **word) {
    const char *at = *names + strspn(*names, " ");
    const size_t n = strcspn(at, " "), n_name = strcspn(at, " =");
    *names = at + n;
    *word = n_name < n ? at + n_name + 1 : NULL;
    uint32_t row = 0;
    while (row < p->c->n_rows &&
           (strlen(p->c->rows[row].name) != n_name || strncmp(p->c->rows[row].name, at, n_name) != 0))
        row++;
    return row;
}

/* ": " and the reason, or nothing. */
static const char *colon(const option_row *row) { return row->because ? ": " : ""; }
static const char *reason(const option_row *row) { return row->because ? row->because : ""; }

static int check_excludes(option_parse *p, uint32_t row) {
    const option_row *r = &p->c->rows[row];
    const char *names = r->excludes, *word;
    while (names && is_given(p, row)) {
        const uint32_t other = next_name(p, &names, &word);
        if (other == p->c->n_rows) return CLI_OK;
        if (!is_given(p, other)) continue;
        if (p->source[row] != p->source[other]) { /* the command line wins */
            take_back(p, p->source[row] < p->source[other] ? row : other);
            continue;
        }
        cli_error("%s and %s exclude each other%s%s", p->flag[row], p->flag[other], colon(r), reason(r));
        return CLI_USAGE;
    }
    return CLI_OK;
}

/* Whether an option is given that stands for the row's. */
static int has_substitute(const option_parse *p, uint32_t row) {
    for (uint32_t i = 0; i < p->c->n_rows; i++) {
        const char *name = p->c->rows[i].stands_for;
        if (name && !strcmp(name, p->c->rows[row].name) && is_given(p, i)) return 1;
    }
    return 0;
}

/* Whether the option is given, or has the word that is meant. */
static int is_met(const option_parse *p, uint32_t row, const char *word) {
    const option_row *r = &p->c->rows[row];
    if (!word) return is_given(p, row) || has_substitute(p, row);
    uint32_t value;
    memcpy(&value, p->opts + r->offset, sizeof value);
    const size_t n = strlen(r->words[value]);
    return strncmp(r->words[value], word, n) == 0 && (word[n] == 0 || word[n] == ' ');
}

static int check_needs(const option_parse *p, uint32_t row) {
    const option_row *r = &p->c->rows[row];
    const char *names = r->needs, *word;
    while (names && is_given(p, row)) {
        const uint32_t other = next_name(p, &names, &word);
        if (other == p->c->n_rows) return CLI_OK;
        if (is_met(p, other, word)) continue;
        cli_error("%s needs --%s%s%.*s%s%s", p->flag[row], p->c->rows[other].name, word ? " " : "",
                  word ? (int)strcspn(word, " ") : 0, word ? word : "", colon(r), reason(r));
        return CLI_USAGE;
    }
    return CLI_OK;
}

static int check_demand(const option_parse *p, const option_demand *demand) {
    const char *names = demand->any_of, *word;
    for (;;) {
        const uint32_t row = next_name(p, &names, &word);
        if (row == p->c->n_rows) break;
        if (is_met(p, row, NULL)) return CLI_OK;
    }
    cli_error("%s", demand->otherwise);
    return CLI_USAGE;
}

/* Where one spec alone may stand. */
static int check_specs(const option_parse *p, uint32_t row) {
    const option_row *r = &p->c->rows[row];
    if (r->kind != KIND_SPECS || !(r->max > 0)) return CLI_OK;
    uint32_t n;
    memcpy(&n, p->opts + r->offset, sizeof n);
    if (n <= (uint32_t)r->max) return CLI_OK;
    cli_error("%s may stand once here; `pleat eval` compares several", p->flag[row]);
    return CLI_USAGE;
}

int options_check(option_parse *p) {
    int code = CLI_OK;
    for (uint32_t i = 0; i < p->c->n_rows && code == CLI_OK; i++) code = check_excludes(p, i);
    for (uint32_t i = 0; i < p->c->n_rows && code == CLI_OK; i++) code = check_specs(p, i);
    for (uint32_t i = 0; i < p->c->n_rows && code == CLI_OK; i++) code = check_needs(p, i);
    for (uint32_t i = 0; i < p->c->n_demands && code == CLI_OK; i++) code = check_demand(p, &p->c->demands[i]);
    return code;
}
