/* SPDX-License-Identifier: MIT
 *
 * json_tokens.c: see json_tokens.h.
 */
#include "serving/json_tokens.h"

#include <math.h>
#include <string.h>

#include "core/memory.h"

#define PLAIN (UINT32_C(1) << 31)

/* The text of a token that may stand in an object; NULL: it may not. */
static const char *text_of(const pleat__json_tokens *t, uint32_t id, size_t *n) {
    const pleat_token token = (pleat_token)id;
    if (pleat_model_token_is_special(t->model, token) || pleat_model_token_is_end(t->model, token)) return NULL;
    const char *text = pleat_model_token_text(t->model, token, n);
    return text && *n > 0 ? text : NULL;
}

/* May it stand anywhere in a string that is at no character's middle, and leave it there? */
static bool is_plain(const char *text, size_t n) {
    pleat__json json;
    pleat__json_begin(&json, NULL);
    json.paths[0].mode = PLEAT__JSON_STRING;
    for (size_t i = 0; i < n; i++)
        if (text[i] == '"' || text[i] == '\\') return false;
    return pleat__json_take(&json, text, n) && json.paths[0].mode == PLEAT__JSON_STRING;
}

pleat_status pleat__json_tokens_init(pleat__json_tokens *t, const pleat_model *model, uint32_t n_vocab,
                                     const pleat_allocator *al) {
    uint32_t *order = pleat__alloc(al, n_vocab, sizeof *order), at[257] = {0};
    if (!order) return PLEAT_E_MEMORY;
    size_t n;
    *t = (pleat__json_tokens){.model = model, .n_vocab = n_vocab, .order = order};
    for (uint32_t id = 0; id < n_vocab; id++) {
        const char *text = text_of(t, id, &n);
        at[text ? (uint8_t)text[0] : 256]++;
    }
    for (uint32_t b = 0, begin = 0; b < 257; begin += at[b++]) t->first[b] = begin;
    memcpy(at, t->first, sizeof at);
    for (uint32_t id = 0; id < n_vocab; id++) {
        const char *text = text_of(t, id, &n);
        order[at[text ? (uint8_t)text[0] : 256]++] = id | (text && is_plain(text, n) ? PLAIN : 0);
    }
    return PLEAT_OK;
}

void pleat__json_tokens_release(pleat__json_tokens *t, const pleat_allocator *al) {
    pleat__free(al, t->order, t->n_vocab, sizeof *t->order);
    t->order = NULL;
}

bool pleat__json_tokens_take(const pleat__json_tokens *t, pleat__json *json, pleat_token token) {
    size_t n = 0;
    const char *text = text_of(t, (uint32_t)token, &n);
    return text && pleat__json_take(json, text, n);
}

static bool fits(const pleat__json_tokens *t, const pleat__json *json, uint32_t id) {
    size_t n = 0;
    const char *text = pleat_model_token_text(t->model, (pleat_token)id, &n);
    pleat__json next;
    pleat__json_copy(&next, json);
    return pleat__json_take(&next, text, n);
}

void pleat__json_tokens_mask(const pleat__json_tokens *t, const pleat__json *json, float *logits) {
    const bool in_string = pleat__json_in_string(json);
    for (uint32_t b = 0; b < 257; b++) {
        const char byte = (char)b;
        pleat__json next;
        pleat__json_copy(&next, json);
        const bool may = b < 256 && pleat__json_take(&next, &byte, 1);
        const uint32_t end = b < 256 ? t->first[b + 1] : t->n_vocab;
        for (uint32_t i = t->first[b]; i < end; i++) {
            const uint32_t id = t->order[i] & ~PLAIN;
            if (!may || (!(in_string && t->order[i] & PLAIN) && !fits(t, json, id))) logits[id] = -INFINITY;
        }
    }
}
