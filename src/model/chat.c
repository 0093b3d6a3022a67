/* SPDX-License-Identifier: MIT
 *
 * chat.c: conversations by the model's own chat template, and ChatML for models that bring none along.
 *
 *     <|im_start|>user\n ... <|im_end|>\n      for each message, and then, for the answer,
 *     <|im_start|>assistant\n
 */
#include "chat/chat.h"

#include <string.h>

#include "core/error.h"
#include "model/internal.h"
#include "tokenizer/tokenizer.h"

static const char chatml[] =
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

#define N_VARIABLES_MAX 4u

static bool knows_chatml(const pleat_model *m) {
    return pleat__specials_find(&m->tokenizer->specials, PLEAT__STR("<|im_start|>")) &&
           pleat__specials_find(&m->tokenizer->specials, PLEAT__STR("<|im_end|>"));
}

pleat_status pleat__model_load_chat(pleat_model *model, pleat_error *err) {
    pleat__str text;
    model->has_own_chat = pleat__gguf_string(model->gguf, "tokenizer.chat_template", &text) && text.n_bytes > 0;
    if (!model->has_own_chat) text = PLEAT__STR(chatml);
    if (!model->has_own_chat && !knows_chatml(model)) {
        (void)pleat__error_set(&model->no_chat, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                               "the file has no chat template, and its vocabulary lacks ChatML's tokens");
        return PLEAT_OK;
    }
    const pleat_status status =
        pleat_chat_template_compile(text.p, text.n_bytes, &model->al, &model->chat, &model->no_chat);
    PLEAT_FAIL_IF(status == PLEAT_E_MEMORY, err, status, PLEAT_NOWHERE, "no memory for the chat template");
    return PLEAT_OK;
}

pleat_status pleat_model_chat_check(const pleat_model *model, int *is_own, pleat_error *err) {
    PLEAT_FAIL_IF(!model, err, PLEAT_E_ARG, PLEAT_NOWHERE, "no model");
    if (is_own) *is_own = model->has_own_chat;
    if (model->chat) return PLEAT_OK;
    const char *what = model->has_own_chat ? "chat template: " : "";
    return pleat__error_set(err, model->no_chat.code, model->no_chat.where, "%s%s", what, model->no_chat.text);
}

const char *pleat_model_chat_template(const pleat_model *model, size_t *n_bytes) {
    pleat__str text;
    if (!model || !n_bytes || !model->has_own_chat) return NULL;
    if (!pleat__gguf_string(model->gguf, "tokenizer.chat_template", &text)) return NULL;
    *n_bytes = text.n_bytes;
    return text.p;
}

/* ---- the file's special tokens ------------------------------------------------------------------------------------- */

static uint32_t add_token(const pleat_model *m, const char *name, uint64_t id, pleat__chat_variable *v) {
    if (id >= m->tokenizer->vocab.n_tokens) return 0;
    size_t n_bytes = 0;
    const char *text = pleat_model_token_text(m, (pleat_token)id, &n_bytes);
    *v = (pleat__chat_variable){name, text, n_bytes};
    return 1;
}

/* bos_token and the like as templates know them; returns how many there are. */
static uint32_t special_tokens(const pleat_model *m, pleat__chat_variable v[N_VARIABLES_MAX]) {
    uint64_t id;
    uint32_t n = 0;
    if (m->info.bos >= 0) n += add_token(m, "bos_token", (uint64_t)m->info.bos, &v[n]);
    if (m->info.eos >= 0) n += add_token(m, "eos_token", (uint64_t)m->info.eos, &v[n]);
    if (pleat_gguf_get_u64(m->gguf, "tokenizer.ggml.unknown_token_id", &id) == PLEAT_OK) {
        n += add_token(m, "unk_token", id, &v[n]);
    }
    if (pleat_gguf_get_u64(m->gguf, "tokenizer.ggml.padding_token_id", &id) == PLEAT_OK) {
        n += add_token(m, "pad_token", id, &v[n]);
    }
    return n;
}

/* ---- the public functions ------------------------------------------------------------------------------------------ */

static bool is_role(const char *role) {
    return strcmp(role, "system") == 0 || strcmp(role, "user") == 0 || strcmp(role, "assistant") == 0;
}

pleat_status pleat_model_chat(const pleat_model *model, const pleat_chat_message *messages, uint32_t n_messages,
                              char *text, size_t cap, size_t *n_bytes, pleat_error *err) {
    PLEAT_FAIL_IF(!model || !messages || n_messages == 0 || (!text && cap > 0) || !n_bytes, err, PLEAT_E_ARG,
                  PLEAT_NOWHERE, "no model, no messages or no place for the text");
    for (uint32_t i = 0; i < n_messages; i++) {
        PLEAT_FAIL_IF(!messages[i].role || !messages[i].content || !is_role(messages[i].role), err, PLEAT_E_ARG,
                      PLEAT_NOWHERE, "message %u: its role is none of system, user, assistant, or it has no text", i);
    }
    PLEAT_TRY(pleat_model_chat_check(model, NULL, err));
    pleat__chat_variable variables[N_VARIABLES_MAX];
    pleat__chat_input input = {.messages = messages, .n_messages = n_messages, .variables = variables};
    input.n_variables = special_tokens(model, variables);
    if (model->info.add_bos && model->info.bos >= 0) {
        input.drop = pleat_model_token_text(model, model->info.bos, &input.n_drop);
    }
    return pleat__chat_render(model->chat, &input, NULL, text, cap, n_bytes, err);
}

pleat_status pleat_model_chat_json(const pleat_model *model, const char *json, size_t n_json,
                                   const pleat_chat_options *opt, char *text, size_t cap, size_t *n_bytes,
                                   pleat_error *err) {
    PLEAT_FAIL_IF(!model || !json || (!text && cap > 0) || !n_bytes, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "no model, no context or no place for the text");
    PLEAT_TRY(pleat_model_chat_check(model, NULL, err));
    pleat__chat_variable variables[N_VARIABLES_MAX];
    pleat__chat_input input = {.json = json, .n_json = n_json, .variables = variables};
    input.n_variables = special_tokens(model, variables);
    return pleat__chat_render(model->chat, &input, opt, text, cap, n_bytes, err);
}
