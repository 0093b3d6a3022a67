/* SPDX-License-Identifier: MIT
 *
 * text.c: the functions of pleat/model.h about text and tokens, over the model's tokenizer.
 */
#include <string.h>

#include "core/error.h"
#include "model/internal.h"
#include "tokenizer/tokenizer.h"

pleat_status pleat_model_tokenize(const pleat_model *model, const char *text, size_t n_bytes, uint32_t flags,
                                  pleat_token *ids, uint32_t cap, uint32_t *n_tokens, pleat_error *err) {
    PLEAT_FAIL_IF(!model || (!text && n_bytes > 0) || (!ids && cap > 0) || !n_tokens, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "model, text, ids and n_tokens may not be NULL");
    PLEAT_FAIL_IF(flags & ~(PLEAT_TOKENIZE_ADD_BOS | PLEAT_TOKENIZE_SPECIAL), err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "unknown flags 0x%x", flags);
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
    return is_id(model, id) && model->tokenizer->vocab.kinds[id] == PLEAT__TOKEN_CONTROL;
}

int pleat_model_token_is_end(const pleat_model *model, pleat_token id) {
    static const char *const names[] = {"<|eos|>", "<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|end_of_text|>"};
    if (!is_id(model, id)) return 0;
    if (id == model->tokenizer->eos) return 1;
    const uint8_t kind = model->tokenizer->vocab.kinds[id];
    if (kind != PLEAT__TOKEN_CONTROL && kind != PLEAT__TOKEN_USER) return 0;
    const pleat__str text = pleat__vocab_text(&model->tokenizer->vocab, id);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (pleat__str_eq(text, (pleat__str){names[i], strlen(names[i])})) return 1;
    }
    return 0;
}
