/* SPDX-License-Identifier: MIT
 *
 * keys.c: see keys.h.
 */
#include "keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"

static int is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* ---- a line ------------------------------------------------------------------------------------------------------------ */

/* The next word of text [*n]: its beginning, and *n_word; NULL: there is none.  Both go behind it. */
static const char *next_word(const char **text, size_t *n, size_t *n_word) {
    while (*n > 0 && is_blank(**text)) (*text)++, (*n)--;
    const char *word = *text;
    *n_word = 0;
    while (*n > 0 && !is_blank(**text)) (*text)++, (*n)--, (*n_word)++;
    return *n_word > 0 ? word : NULL;
}

/* The tenant's index; TENANTS_MAX where there is no room. */
static uint32_t find_tenant(api_keys *keys, const char *name) {
    uint32_t i = 0;
    while (i < keys->n_tenants && strcmp(keys->tenants[i].name, name) != 0) i++;
    if (i == TENANTS_MAX || i < keys->n_tenants) return i;
    snprintf(keys->tenants[i].name, TENANT_CAP, "%s", name);
    keys->n_tenants++;
    return i;
}

/* A whole number in low..high.  0: it is none. */
static int read_number(const char *text, long long low, long long high, long long *out) {
    char *end;
    *out = strtoll(text, &end, 10);
    return (text[0] == '-' || (text[0] >= '0' && text[0] <= '9')) && !*end && *out >= low && *out <= high;
}

static int read_share(const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    return text[0] >= '0' && text[0] <= '9' && !*end && *out >= 0 && *out <= 1;
}

typedef struct line {
    key_terms terms;
    char tenant[TENANT_CAP];
    double quota; /* -1: not said */
    long long weight;
} line;

/* NAME=VALUE.  0: it is none of those that there are. */
static int read_term(line *l, const char *name, const char *value) {
    long long number = 0;
    if (strcmp(name, "tenant") == 0) {
        snprintf(l->tenant, sizeof l->tenant, "%s", value);
        return value[0] && strlen(value) < TENANT_CAP;
    }
    if (strcmp(name, "quota") == 0) return read_share(value, &l->quota);
    if (strcmp(name, "weight") == 0) return read_number(value, 1, 1000000, &l->weight);
    if (strcmp(name, "priority") == 0) {
        l->terms.has_priority = read_number(value, INT32_MIN, INT32_MAX, &number);
        l->terms.priority = (int32_t)number;
        return l->terms.has_priority;
    }
    if (strcmp(name, "admin") == 0) {
        l->terms.is_admin = strcmp(value, "on") == 0;
        return l->terms.is_admin || strcmp(value, "off") == 0;
    }
    if (strcmp(name, "time-limit-ms") != 0 || !read_number(value, 1, 86400000, &number)) return 0;
    l->terms.time_limit_ms = (uint64_t)number;
    return 1;
}

/* What stands behind a key.  0, or -1 with words. */
static int read_terms(const char *text, size_t n, line *l, char *why, size_t cap) {
    size_t n_word;
    *l = (line){.quota = -1};
    for (const char *word; (word = next_word(&text, &n, &n_word));) {
        char term[128];
        snprintf(term, sizeof term, "%.*s", (int)n_word, word);
        char *equals = strchr(term, '=');
        if (equals) *equals = '\0';
        if (n_word < sizeof term && equals && read_term(l, term, equals + 1)) continue;
        snprintf(
            why, cap,
            "behind a key stand tenant=NAME, quota=0..1, weight=1..1000000, priority=N, time-limit-ms=1..86400000, "
            "admin=on, each in its range; not %.*s",
            n_word < 40 ? (int)n_word : 40, word);
        return -1;
    }
    return 0;
}

/* Note what a line says of its tenant. */
static int join_tenant(api_keys *keys, line *l, char *why, size_t cap) {
    l->terms.tenant = find_tenant(keys, l->tenant);
    if (l->terms.tenant == TENANTS_MAX) return snprintf(why, cap, "there are at most %d tenants", TENANTS_MAX), -1;
    key_tenant *t = &keys->tenants[l->terms.tenant];
    const int is_other_quota = l->quota >= 0 && t->quota > 0 && !(t->quota == l->quota);
    if (is_other_quota || (l->weight && t->weight && t->weight != l->weight))
        return snprintf(why, cap, "tenant '%s' has another quota or weight above", t->name), -1;
    if (l->quota >= 0) t->quota = l->quota;
    if (l->weight) t->weight = (uint32_t)l->weight;
    return 0;
}

/* ---- the file ------------------------------------------------------------------------------------------------------------ */

static int read_line(api_keys *keys, const char *text, size_t n, char *why, size_t cap) {
    line l;
    size_t n_key;
    const char *key = next_word(&text, &n, &n_key);
    if (!key || key[0] == '#') return 0;
    if (n_key >= KEY_MAX || keys->n == KEYS_MAX)
        return snprintf(why, cap, "a key has at most %d bytes, and there are at most %d", KEY_MAX - 1, KEYS_MAX), -1;
    if (read_terms(text, n, &l, why, cap) != 0 || join_tenant(keys, &l, why, cap) != 0) return -1;
    memcpy(keys->keys[keys->n], key, n_key);
    keys->terms[keys->n++] = l.terms;
    return 0;
}

size_t keys_read(const char *text, size_t n_bytes, api_keys *out, char *why, size_t cap) {
    *out = (api_keys){.keys = cli_alloc(KEYS_MAX, KEY_MAX),
                      .terms = cli_alloc(KEYS_MAX, sizeof *out->terms),
                      .tenants = cli_alloc(TENANTS_MAX, sizeof *out->tenants),
                      .n_tenants = 1};
    size_t number = 0;
    for (size_t at = 0; at < n_bytes;) {
        const char *end = memchr(text + at, '\n', n_bytes - at);
        const size_t n = end ? (size_t)(end - text) - at : n_bytes - at;
        number++;
        if (read_line(out, text + at, n, why, cap) != 0) return number;
        at += n + 1;
    }
    if (out->n == 0) snprintf(why, cap, "there is no key in it");
    return out->n > 0 ? 0 : SIZE_MAX;
}

void keys_release(api_keys *keys) {
    if (keys->keys) memset(keys->keys, 0, (size_t)KEYS_MAX * KEY_MAX);
    free(keys->keys);
    free(keys->terms);
    free(keys->tenants);
    *keys = (api_keys){0};
}

const key_terms *keys_find(const api_keys *keys, const char *key) {
    char padded[KEY_MAX] = {0};
    uint32_t found = 0; /* its number from 1 on */
    const size_t n = strlen(key);
    if (n == 0 || n >= KEY_MAX) return NULL;
    memcpy(padded, key, n);
    for (uint32_t i = 0; i < keys->n; i++) {
        volatile unsigned differs = 0;
        for (size_t j = 0; j < KEY_MAX; j++) differs |= (unsigned char)(padded[j] ^ keys->keys[i][j]);
        const uint32_t is_it = (uint32_t)(differs == 0);
        found = found * (1 - is_it) + (i + 1) * is_it;
    }
    return found ? &keys->terms[found - 1] : NULL;
}
