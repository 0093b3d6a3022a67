/* SPDX-License-Identifier: MIT
 *
 * held.c: see held.h.
 */
#include "held.h"

#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"

held_way held_back(const held_tokens *h, uint32_t n) {
    held_way way = {n, 0, 1};
    for (uint32_t i = 0; i < h->n_marks; i++)
        if (h->marks[i] <= n) way.n_keep = h->marks[i];
    return way;
}

held_way held_plan(const held_tokens *h, const pleat_token *ids, uint32_t n) {
    uint32_t n_same = 0;
    while (n_same < n - 1 && n_same < h->n && h->ids[n_same] == ids[n_same]) n_same++;
    return n_same < h->n ? held_back(h, n_same) : (held_way){n_same, n_same, 0};
}

size_t held_spell(const held_tokens *h, const char *text, size_t n) {
    if (!h->text || h->n == 0 || h->n_text > n || memcmp(h->text, text, h->n_text) != 0) return SIZE_MAX;
    return h->n_text;
}

static void forget_text(held_tokens *h) {
    free(h->text);
    h->text = NULL;
    h->n_text = h->text_cap = 0;
}

void held_add(held_tokens *h, const pleat_token *ids, uint32_t n) {
    if (n > h->cap - h->n) {
        h->cap = 2 * (h->n + n);
        pleat_token *grown = cli_alloc(h->cap, sizeof *grown);
        if (h->n) memcpy(grown, h->ids, h->n * sizeof *grown);
        free(h->ids);
        h->ids = grown;
    }
    memcpy(h->ids + h->n, ids, n * sizeof *ids);
    h->n += n;
}

void held_set_text(held_tokens *h, const char *text, size_t n) {
    forget_text(h);
    h->text = cli_copy(text, n);
    h->n_text = n;
    h->text_cap = n + 1;
}

void held_add_text(held_tokens *h, const char *text, size_t n) {
    if (n > h->text_cap - h->n_text) {
        h->text_cap = 2 * (h->n_text + n);
        char *grown = cli_alloc(h->text_cap, 1);
        memcpy(grown, h->text, h->n_text);
        free(h->text);
        h->text = grown;
    }
    memcpy(h->text + h->n_text, text, n);
    h->n_text += n;
}

void held_cut(held_tokens *h, uint32_t n) {
    h->n = n;
    forget_text(h);
    while (h->n_marks && h->marks[h->n_marks - 1] > n) h->n_marks--;
}

void held_mark(held_tokens *h) { h->marks[h->n_marks++] = h->n; }

void held_drop_mark(held_tokens *h) { memmove(h->marks, h->marks + 1, --h->n_marks * sizeof *h->marks); }

void held_release(held_tokens *h) {
    free(h->ids);
    free(h->text);
    *h = (held_tokens){0};
}
