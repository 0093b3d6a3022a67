/* SPDX-License-Identifier: MIT
 *
 * chat.c: templates as objects, and the context that they are run with.  See pleat/chat.h.
 */
#include "chat/chat.h"

#include "chat/eval.h"
#include "chat/json.h"
#include "core/memory.h"
#include "core/utf8.h"

#define COMPILE_DEPTH_MAX 100u                /* of tags and brackets; real templates have a dozen */
#define COMPILE_BYTES_MAX ((uint64_t)1 << 30) /* of a template of 16 MiB */
#define COMPILE_STEPS_MAX ((uint64_t)1 << 30)
#define DEPTH_MAX 1000u
#define MESSAGE_BYTES_MAX (1u << 30) /* a string's length has 32 bits */

struct pleat_chat_template {
    pleat__vm vm; /* holds the tree */
    pleat__node *body;
    pleat__node *hidden; /* the root scope's hidden names */
};

void pleat_chat_options_default(pleat_chat_options *opt) {
    if (!opt) return;
    *opt = (pleat_chat_options){.size_bytes = sizeof *opt,
                                .max_steps = (uint64_t)1 << 26,
                                .max_memory_bytes = (uint64_t)512 << 20,
                                .max_output_bytes = 64u << 20,
                                .max_depth = DEPTH_MAX,
                                .now = -1};
}

/* ---- compiling ----------------------------------------------------------------------------------------------------- */

pleat_status pleat_chat_template_compile(const char *text, size_t n_bytes, const pleat_allocator *allocator,
                                         pleat_chat_template **out, pleat_error *err) {
    PLEAT_FAIL_IF((!text && n_bytes > 0) || !out, err, PLEAT_E_ARG, PLEAT_NOWHERE, "no template, or no place for it");
    const pleat_allocator al = pleat__allocator_or_default(allocator);
    pleat_chat_template *made = pleat__alloc_zero(&al, 1, sizeof *made);
    PLEAT_FAIL_IF(!made, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "no memory for a chat template");
    made->vm = (pleat__vm){.al = al,
                           .max_bytes = COMPILE_BYTES_MAX,
                           .max_steps = COMPILE_STEPS_MAX,
                           .max_depth = COMPILE_DEPTH_MAX,
                           .err = err};
    pleat_status status = pleat__parse(&made->vm, text ? text : "", n_bytes, &made->body);
    if (status == PLEAT_OK) status = pleat__hide_names(&made->vm, made->body, &made->hidden);
    made->vm.err = NULL;
    if (status != PLEAT_OK) {
        pleat_chat_template_destroy(&made);
        return status;
    }
    *out = made;
    return PLEAT_OK;
}

void pleat_chat_template_destroy(pleat_chat_template **chat_template) {
    if (!chat_template || !*chat_template) return;
    const pleat_allocator al = (*chat_template)->vm.al;
    pleat__vm_release(&(*chat_template)->vm);
    pleat__free(&al, *chat_template, 1, sizeof **chat_template);
    *chat_template = NULL;
}

/* ---- the context --------------------------------------------------------------------------------------------------- */

static pleat_status set(pleat__vm *vm, pleat__value dict, const char *name, pleat__value value) {
    return pleat__dict_set(vm, dict.dict, pleat__value_text(name), value);
}

static pleat_status set_if_missing(pleat__vm *vm, pleat__value dict, const char *name, pleat__value value) {
    if (pleat__dict_get(dict.dict, name, strlen(name))) return PLEAT_OK;
    return set(vm, dict, name, value);
}

/* The names that a message's reasoning is known by; the first is what templates read, the second what gpt-oss reads. */
static const char *const reasoning_names[] = {"reasoning_content", "thinking", "reasoning"};

/* A message that has its reasoning under one of the names has it under the first and, behind the others in order, the
 * second: a new dict, whose members stand as transformers orders them. */
static pleat_status alias_reasoning(pleat__vm *vm, pleat__value *message) {
    const pleat__value *found = NULL;
    for (int i = 0; i < 3 && !found; i++) {
        found = pleat__dict_get(message->dict, reasoning_names[i], strlen(reasoning_names[i]));
        if (found && found->kind == PLEAT__V_NONE) found = NULL;
    }
    if (!found) return PLEAT_OK;
    const pleat__value reasoning = *found, old = *message;
    PLEAT_TRY(pleat__dict_new(vm, message));
    PLEAT_TRY(set(vm, *message, "thinking", reasoning));
    for (uint32_t i = 0; i < old.dict->n; i++) {
        PLEAT_TRY(pleat__dict_set(vm, message->dict, old.dict->pairs[i].key, old.dict->pairs[i].value));
    }
    return set(vm, *message, "reasoning_content", reasoning);
}

static pleat_status context_from_json(pleat__vm *vm, const pleat__chat_input *in, pleat__value *out) {
    PLEAT_TRY(pleat__json_read(vm, in->json, in->n_json, out));
    if (out->kind != PLEAT__V_DICT) return pleat__vm_fail(vm, PLEAT_E_SYNTAX, "JSON: the context is not an object");
    const pleat__value *messages = pleat__dict_get(out->dict, "messages", 8);
    for (uint32_t i = 0; messages && messages->kind == PLEAT__V_LIST && i < messages->list->n; i++) {
        if (messages->list->items[i].kind != PLEAT__V_DICT) continue;
        PLEAT_TRY(alias_reasoning(vm, &messages->list->items[i]));
    }
    return PLEAT_OK;
}

static pleat_status context_from_messages(pleat__vm *vm, const pleat__chat_input *in, pleat__value *out) {
    pleat__value list;
    PLEAT_TRY(pleat__dict_new(vm, out));
    PLEAT_TRY(pleat__list_new(vm, PLEAT__V_LIST, in->n_messages, &list));
    for (uint32_t i = 0; i < in->n_messages; i++) {
        const pleat_chat_message *m = &in->messages[i];
        pleat__value message;
        if (strlen(m->content) > MESSAGE_BYTES_MAX || strlen(m->role) > MESSAGE_BYTES_MAX) {
            return pleat__vm_fail(vm, PLEAT_E_LIMIT, "message %u is longer than %u bytes", i, MESSAGE_BYTES_MAX);
        }
        if (pleat__utf8_prefix(m->content, strlen(m->content)) < strlen(m->content)) {
            return pleat__vm_fail(vm, PLEAT_E_SYNTAX, "message %u is not UTF-8", i);
        }
        PLEAT_TRY(pleat__dict_new(vm, &message));
        PLEAT_TRY(set(vm, message, "role", pleat__value_text(m->role)));
        PLEAT_TRY(set(vm, message, "content", pleat__value_text(m->content)));
        PLEAT_TRY(pleat__list_add(vm, list.list, message));
    }
    PLEAT_TRY(set(vm, *out, "messages", list));
    return set(vm, *out, "add_generation_prompt", pleat__value_bool(true));
}

static pleat_status make_context(pleat__vm *vm, const pleat__chat_input *in, pleat__value *out) {
    PLEAT_TRY(in->json ? context_from_json(vm, in, out) : context_from_messages(vm, in, out));
    PLEAT_TRY(set_if_missing(vm, *out, "tools", PLEAT__NONE));
    PLEAT_TRY(set_if_missing(vm, *out, "documents", PLEAT__NONE));
    PLEAT_TRY(set_if_missing(vm, *out, "add_generation_prompt", pleat__value_bool(false)));
    for (uint32_t i = 0; i < in->n_variables; i++) {
        const pleat__chat_variable *v = &in->variables[i];
        if (pleat__utf8_prefix(v->value, v->n_bytes) < v->n_bytes) continue;
        PLEAT_TRY(set_if_missing(vm, *out, v->name, pleat__value_str(v->value, v->n_bytes)));
    }
    return PLEAT_OK;
}

/* ---- rendering ----------------------------------------------------------------------------------------------------- */

static bool are_valid(const pleat_chat_options *opt) {
    return opt->size_bytes == sizeof *opt && opt->max_steps > 0 && opt->max_memory_bytes > 0 &&
           opt->max_output_bytes > 0 && opt->max_output_bytes <= 1u << 30 && opt->max_depth > 0 &&
           opt->max_depth <= DEPTH_MAX;
}

static pleat_status render(pleat__vm *vm, const pleat_chat_template *made, const pleat__chat_input *in,
                           uint32_t max_bytes, pleat__value *out) {
    pleat__value context;
    pleat__builder text = {.max = max_bytes};
    PLEAT_TRY(make_context(vm, in, &context));
    pleat__run run = {.vm = vm, .context = context.dict, .out = &text};
    PLEAT_TRY(pleat__render(&run, made->body, made->hidden));
    *out = pleat__built(&text);
    if (in->drop && in->n_drop > 0 && out->n >= in->n_drop && memcmp(out->s, in->drop, in->n_drop) == 0) {
        *out = pleat__value_str(out->s + in->n_drop, out->n - in->n_drop);
    }
    return PLEAT_OK;
}

pleat_status pleat__chat_render(const pleat_chat_template *chat_template, const pleat__chat_input *input,
                                const pleat_chat_options *opt, char *text, size_t cap, size_t *n_bytes,
                                pleat_error *err) {
    pleat_chat_options defaults;
    pleat_chat_options_default(&defaults);
    if (!opt) opt = &defaults;
    PLEAT_FAIL_IF(!are_valid(opt), err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "pleat_chat_options is not filled in, or out of range");
    pleat__vm vm = {.al = chat_template->vm.al,
                    .max_bytes = opt->max_memory_bytes,
                    .max_steps = opt->max_steps,
                    .max_depth = opt->max_depth,
                    .now = opt->now,
                    .err = err};
    pleat__value out;
    pleat_status status = render(&vm, chat_template, input, opt->max_output_bytes, &out);
    if (status == PLEAT_OK) {
        *n_bytes = out.n;
        if (out.n >= cap) {
            status = pleat__error_set(err, PLEAT_E_LIMIT, PLEAT_NOWHERE,
                                      "the conversation has %u bytes, room is for %zu", out.n, cap ? cap - 1 : 0);
        } else {
            if (out.n > 0) memcpy(text, out.s, out.n);
            text[out.n] = '\0';
        }
    }
    pleat__vm_release(&vm);
    return status;
}

pleat_status pleat_chat_template_render(const pleat_chat_template *chat_template, const char *json, size_t n_json,
                                        const pleat_chat_options *opt, char *text, size_t cap, size_t *n_bytes,
                                        pleat_error *err) {
    PLEAT_FAIL_IF(!chat_template || !json || (!text && cap > 0) || !n_bytes, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "no template, no context or no place for the text");
    const pleat__chat_input input = {.json = json, .n_json = n_json};
    return pleat__chat_render(chat_template, &input, opt, text, cap, n_bytes, err);
}
