/* SPDX-License-Identifier: MIT
 *
 * pick.c: see pick.h.
 */
#include "pick.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PART_CAP = 96, SHOWN_MAX = 24 };

static void say(hub_why why, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(hub_why why, const char *fmt, ...) {
    const size_t n = strlen(why);
    va_list args;
    va_start(args, fmt);
    vsnprintf(why + n, HUB_WHY_CAP - n, fmt, args);
    va_end(args);
}

/* ---- names ------------------------------------------------------------------------------------- */

/* The n bytes at `text` as a user's or a repository's name.  "--" parts the two in the cache folder's names. */
static int is_name(const char *text, size_t n) {
    if (n == 0 || n > PART_CAP || text[0] == '-' || text[0] == '.') return 0;
    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        if (!isalnum((unsigned char)c) && c != '-' && c != '_' && c != '.') return 0;
        if (i && text[i - 1] == c && (c == '-' || c == '.')) return 0;
    }
    return 1;
}

int hub_name_parse(const char *text, hub_name *out, hub_why why) {
    const char *slash = strchr(text, '/'), *colon = strchr(text, ':');
    const char *end = colon ? colon : text + strlen(text);
    *out = (hub_name){.repo = ""};
    why[0] = 0;
    if (!slash || slash > end || !is_name(text, (size_t)(slash - text)) ||
        !is_name(slash + 1, (size_t)(end - slash - 1))) {
        say(why, "it is no name of a repository: USER/REPO or USER/REPO:QUANT, of letters, digits, '-', '_' and '.'");
        return 0;
    }
    if (colon && (!is_name(colon + 1, strlen(colon + 1)) || strlen(colon + 1) >= HUB_QUANT_CAP)) {
        say(why, "'%.40s' is no type of weights, as Q4_K_M", colon + 1);
        return 0;
    }
    memcpy(out->repo, text, (size_t)(end - text));
    if (colon) snprintf(out->quant, sizeof out->quant, "%s", colon + 1);
    return 1;
}

int hub_is_path(const char *path) {
    if (!path[0] || strlen(path) >= HUB_PATH_CAP) return 0;
    uint32_t depth = 0;
    for (const char *part = path; depth <= HUB_DEPTH_MAX; part++, depth++) {
        const size_t n = strcspn(part, "/");
        if (n == 0 || n > 255 || !strncmp(part, ".", n) || (n == 2 && !strncmp(part, "..", n))) return 0;
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)part[i] < ' ' || part[i] == 127 || part[i] == '\\') return 0;
        part += n;
        if (!*part) return 1;
    }
    return 0;
}

int hub_is_gguf(const char *path) {
    const size_t n = strlen(path);
    return n > 5 && !strcasecmp(path + n - 5, ".gguf");
}

int hub_is_hex(const char *text, uint32_t n) { return strlen(text) == n && strspn(text, "0123456789abcdef") == n; }

/* ---- lists ------------------------------------------------------------------------------------- */

int hub_listing_add(hub_listing *list, const hub_file *file) {
    if (list->n == HUB_FILES_MAX) return 0;
    if (list->n == list->cap) {
        const uint32_t cap = list->cap ? 2 * list->cap : 16;
        hub_file *grown = realloc(list->at, cap * sizeof *grown);
        if (!grown) return 0;
        list->at = grown;
        list->cap = cap;
    }
    list->at[list->n++] = *file;
    return 1;
}

void hub_listing_release(hub_listing *list) {
    free(list->at);
    *list = (hub_listing){0};
}

/* ---- which one --------------------------------------------------------------------------------- */

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "-00002-of-00003.gguf" at the end of a path: 2, and 3 through *n_parts; else 1 of 1. */
static uint32_t part_of(const char *path, uint32_t *n_parts) {
    enum { TAIL = sizeof "-00001-of-00001.gguf" - 1 };
    const size_t n = strlen(path);
    const char *tail = path + n - TAIL;
    *n_parts = 1;
    if (n <= TAIL || tail[0] != '-' || strncasecmp(tail + 6, "-of-", 4) != 0) return 1;
    for (int i = 1; i < 15; i += i == 5 ? 5 : 1)
        if (!isdigit((unsigned char)tail[i])) return 1;
    *n_parts = (uint32_t)strtoul(tail + 10, NULL, 10);
    return (uint32_t)strtoul(tail + 1, NULL, 10);
}

/* Whether it is a model, or the first part of one. */
static int is_model(const hub_file *file) {
    uint32_t n_parts;
    const char *base = base_name(file->path);
    return hub_is_gguf(base) && !strcasestr(base, "mmproj") && !strcasestr(base, "imatrix") &&
           part_of(base, &n_parts) == 1;
}

static int is_of(char c, const char *also) { return isalnum((unsigned char)c) || (c && strchr(also, c)); }

/* Whether the path has the word: what stands before it may be an underscore, what stands behind may not. */
static int has_word(const char *path, const char *word) {
    for (const char *at = path; (at = strcasestr(at, word)) != NULL; at++)
        if ((at == path || !is_of(at[-1], "")) && !is_of(at[strlen(word)], "_")) return 1;
    return 0;
}

/* The models with the word (NULL: all) at the end of the text: ": A, B, ..". */
static void list_models(hub_why why, const hub_listing *list, const char *word) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        if (!is_model(&list->at[i]) || (word && !has_word(list->at[i].path, word))) continue;
        if (n++ < SHOWN_MAX) say(why, "%s%.100s", n == 1 ? ": " : ", ", list->at[i].path);
    }
    if (n > SHOWN_MAX) say(why, " and %u more", n - SHOWN_MAX);
}

/* The only model with the word, NULL: the only model.  *n: how many there are. */
static const hub_file *only(const hub_listing *list, const char *word, uint32_t *n) {
    const hub_file *found = NULL;
    *n = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        if (!is_model(&list->at[i]) || (word && !has_word(list->at[i].path, word))) continue;
        found = &list->at[i];
        ++*n;
    }
    return *n == 1 ? found : NULL;
}

static const hub_file *by_quant(const hub_listing *list, const char *quant, hub_why why) {
    uint32_t n;
    const hub_file *found = only(list, quant, &n);
    if (n > 1) say(why, "%u files are of %s, so name one with --hf-file", n, quant);
    if (n == 0) say(why, "no file is of %s; there are", quant);
    if (n != 1) list_models(why, list, n ? quant : NULL);
    return found;
}

static const hub_file *by_default(const hub_listing *list, hub_why why) {
    static const char *const defaults[] = {"Q4_K_M", "Q8_0"};
    uint32_t n;
    for (uint32_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
        (void)only(list, defaults[i], &n);
        if (n) return by_quant(list, defaults[i], why);
    }
    const hub_file *found = only(list, NULL, &n);
    if (n > 1) {
        say(why, "name one, as USER/REPO:QUANT or with --hf-file; there are");
        list_models(why, list, NULL);
    }
    return found;
}

static const hub_file *by_path(const hub_listing *list, const char *path, hub_why why) {
    for (uint32_t i = 0; i < list->n; i++)
        if (!strcmp(list->at[i].path, path)) return &list->at[i];
    say(why, "there is no file '%.200s' in it; there are", path);
    list_models(why, list, NULL);
    return NULL;
}

const hub_file *hub_pick(const hub_listing *list, const hub_name *name, const char *path, hub_why why) {
    uint32_t n, n_parts;
    why[0] = 0;
    (void)only(list, NULL, &n);
    if (n == 0) {
        say(why, "there is no GGUF model in it");
        return NULL;
    }
    const hub_file *found = path             ? by_path(list, path, why)
                            : name->quant[0] ? by_quant(list, name->quant, why)
                                             : by_default(list, why);
    if (found && (part_of(found->path, &n_parts), n_parts > 1)) {
        say(why,
            "%.200s is one of %u parts, and models in parts are not supported; llama-gguf-split --merge joins them",
            found->path, n_parts);
        return NULL;
    }
    return found;
}
