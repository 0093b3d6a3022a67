/* SPDX-License-Identifier: MIT
 *
 * text.c: the functions of pleat/model.h about text and tokens, over the model's tokenizer.
 */
#include <string.h>

#include "core/error.h"
#include "core/utf8.h"
#include "model/internal.h"
#include "tokenizer/tokenizer.h"

pleat_status pleat_model_tokenize(const pleat_model *model, const char *text, size_t n_bytes, uint32_t flags,
                                  pleat_token *ids, uint32_t cap, uint32_t *n_tokens, pleat_error *err) {
    PLEAT_FAIL_IF(!model || (!text && n_bytes > 0) || (!ids && cap > 0) || !n_tokens, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "model, text, ids and n_tokens may not be NULL");
    PLEAT_FAIL_IF(flags & ~(PLEAT_TOKENIZE_ADD_BOS | PLEAT_TOKENIZE_SPECIAL | PLEAT_TOKENIZE_ADD_EOS), err, PLEAT_E_ARG,
                  PLEAT_NOWHERE, "unknown flags 0x%x", flags);
    return pleat__tokenizer_run(model->tokenizer, n_bytes ? text : "", n_bytes, flags, ids, cap, n_tokens, err);
}

static bool is_id(const pleat_model *model, pleat_token id) {
    return model && id >= 0 && (uint32_t)id < model->tokenizer->vocab.n_tokens;
}

const char *pleat_model_token_text(const pleat_model *model, pleat_token id, size_t *n_bytes) {
    if (!is_id(model, id) || !n_bytes) return NULL;
    const pleat__str s = pleat__vocab_text(&model->tokenizer->vocab, id);
    *n_bytes = s.n_bytes;
    return s.p;
}

int pleat_model_token_is_special(const pleat_model *model, pleat_token id) {
    if (!is_id(model, id)) return 0;
    const uint8_t kind = model->tokenizer->vocab.kinds[id];
    return kind == PLEAT__TOKEN_CONTROL || kind == PLEAT__TOKEN_UNKNOWN;
}

int pleat_model_token_is_end(const pleat_model *model, pleat_token id) {
    return is_id(model, id) && pleat__tokenizer_is_end(model->tokenizer, id);
}

/* ---- tokens to text ---------------------------------------------------------------------------------------------- */

pleat_status pleat_detokenizer_init(pleat_detokenizer *detokenizer, const pleat_model *model, uint32_t flags) {
    if (!detokenizer || !model || (flags & ~(PLEAT_DETOKENIZE_SPECIAL | PLEAT_DETOKENIZE_MIDDLE))) return PLEAT_E_ARG;
    *detokenizer = (pleat_detokenizer){
        .model = model,
        .flags = flags,
        .skip_space = model->tokenizer->add_space && !(flags & PLEAT_DETOKENIZE_MIDDLE),
    };
    return PLEAT_OK;
}

/* Text that is counted and, as long as it fits, written. */
typedef struct writer {
    char *text; /* [cap] */
    size_t cap;
    size_t used;
} writer;

static void put(writer *w, const char *p, size_t n) {
    if (w->used <= w->cap && n <= w->cap - w->used) memcpy(w->text + w->used, p, n);
    w->used += n;
}

/* The held bytes and those of s, as far as they are whole characters; what is left is held. */
static void put_bytes(pleat_detokenizer *d, pleat__str s, writer *w) {
    for (uint64_t at = 0; at < s.n_bytes; at++) {
        d->held[d->n_held++] = s.p[at];
        while (d->n_held > 0) { /* a byte that cannot go on a held head ends it, and is looked at as a head itself */
            const int len = pleat__utf8_look(d->held, d->n_held);
            if (len == 0) break;
            const uint32_t n = (uint32_t)(len > 0 ? len : -len);
            put(w, len > 0 ? d->held : "\xEF\xBF\xBD", len > 0 ? n : 3);
            d->n_held -= n;
            memmove(d->held, d->held + n, d->n_held);
        }
    }
}

/* What the token is as text, and what it does to the space behind it. */
static pleat__str token_shown(pleat_detokenizer *d, pleat_token id) {
    const pleat__tokenizer *t = d->model->tokenizer;
    const uint8_t kind = t->vocab.kinds[id];
    const bool is_special = kind == PLEAT__TOKEN_CONTROL || kind == PLEAT__TOKEN_UNKNOWN;
    pleat__str s = pleat__vocab_text(&t->vocab, id);
    if (is_special || kind == PLEAT__TOKEN_USER) {
        d->skip_space = t->add_space;
        return is_special && !(d->flags & PLEAT_DETOKENIZE_SPECIAL) ? PLEAT__STR("") : s;
    }
    if (d->skip_space && s.n_bytes > 0 && s.p[0] == ' ') s = (pleat__str){s.p + 1, s.n_bytes - 1};
    d->skip_space = 0;
    return s;
}

pleat_status pleat_detokenizer_put(pleat_detokenizer *detokenizer, pleat_token id, char *text, size_t cap,
                                   size_t *n_bytes) {
    if (!detokenizer || !is_id(detokenizer->model, id) || (!text && cap > 0) || !n_bytes) return PLEAT_E_ARG;
    pleat_detokenizer d = *detokenizer;
    writer w = {.text = text, .cap = cap};
    put_bytes(&d, token_shown(&d, id), &w);
    *n_bytes = w.used;
    if (w.used > cap) return PLEAT_E_LIMIT;
    *detokenizer = d;
    return PLEAT_OK;
}

pleat_status pleat_detokenizer_end(pleat_detokenizer *detokenizer, char *text, size_t cap, size_t *n_bytes) {
    if (!detokenizer || !detokenizer->model || (!text && cap > 0) || !n_bytes) return PLEAT_E_ARG;
    *n_bytes = detokenizer->n_held ? 3 : 0;
    if (*n_bytes > cap) return PLEAT_E_LIMIT;
    if (*n_bytes > 0) memcpy(text, "\xEF\xBF\xBD", 3);
    return pleat_detokenizer_init(detokenizer, detokenizer->model, detokenizer->flags);
}
