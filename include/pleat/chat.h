/* SPDX-License-Identifier: MIT
 *
 * chat.h: chat templates: a conversation as the text that a model was trained on.
 *
 * A model's file brings its template along, a program in Jinja2.  Pleat runs the subset of that language that chat
 * templates use.  Results are those of Python's jinja2 in the sandbox that HuggingFace's transformers sets up, with
 * trim_blocks, lstrip_blocks, break and continue, `generation` blocks, raise_exception, strftime_now, and tojson as it
 * is defined there.  What is not supported is refused when the template is compiled, by name and line: inheritance, imports,
 * autoescape, and the filters batch, filesizeformat, groupby, pprint, random, slice, striptags, truncate, urlencode,
 * urlize, wordwrap and xmlattr.
 *
 * Templates come from strangers.  They reach nothing but what they are handed; steps, memory, depth and length are
 * bounded.  What users write reaches the text as it is: somebody who writes <|im_end|> into a message ends the turn
 * there, if the text is tokenized with PLEAT_TOKENIZE_SPECIAL, which templates need.  A program that serves strangers has
 * to look for special tokens in what they send.
 */
#ifndef PLEAT_CHAT_H
#define PLEAT_CHAT_H

#include "pleat/common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One message of a conversation; UTF-8. */
typedef struct pleat_chat_message {
    const char *role; /* "system", "user" or "assistant" */
    const char *content;
} pleat_chat_message;

/* What one rendering may take.  Beyond it there is PLEAT_E_LIMIT. */
typedef struct pleat_chat_options {
    size_t size_bytes;
    uint64_t max_steps;        /* parts evaluated, items visited, 64 bytes looked at; default 2^26, some seconds */
    uint64_t max_memory_bytes; /* default 512 MiB; freed at the end */
    uint32_t max_output_bytes; /* 1 to 2^30; default 64 MiB */
    uint32_t max_depth;        /* parts inside parts, macros in macros; 1 to 1000, default 1000: 1 MiB of stack */
    int64_t now; /* seconds since 1970 for strftime_now, in the local time zone; default -1: the clock's */
} pleat_chat_options;

PLEAT_API void pleat_chat_options_default(pleat_chat_options *opt);

typedef struct pleat_chat_template pleat_chat_template;

/* Compile a template, n_bytes of UTF-8, which need not outlive the call.  PLEAT_E_SYNTAX for what jinja2 refuses, too,
 * PLEAT_E_UNSUPPORTED for what only Pleat does, PLEAT_E_LIMIT for nesting beyond 100 levels and for more than 16 MiB;
 * err->text begins with "line N: ".  The template is immutable and may be used from any thread. */
PLEAT_API pleat_status pleat_chat_template_compile(const char *text, size_t n_bytes, const pleat_allocator *allocator,
                                                   pleat_chat_template **out, pleat_error *err);

/* Render a conversation.
 *   json    n_json bytes: an object whose members are the template's variables.  `messages` is a list of objects with
 *           role and content, and what else the template knows, as tool_calls; usual are `tools`, `documents`,
 *           `add_generation_prompt`, `bos_token`, `eos_token`, and some that a template defines, as enable_thinking.
 *           As in transformers, tools and documents are none and add_generation_prompt is false where they are left
 *           out, and a message's `reasoning_content` may also be called `thinking` or `reasoning`.
 *   opt     NULL: the defaults
 *   text    [cap] gets the text and a NUL; *n_bytes is set to its length without the NUL, even when cap is too small
 *           (PLEAT_E_LIMIT with nothing written); cap may be 0 with text NULL
 * PLEAT_E_SYNTAX for damaged JSON, err->where the offset in it; PLEAT_E_ARG where the template refuses the conversation or
 * runs into a mistake, as a value that is not there, with "line N: " and the reason in err->text. PLEAT_E_UNSUPPORTED
 * where it meets a thing that cannot be seen before, as an integer beyond 64 bits.  Memory is taken from the template's
 * allocator and returned before the call ends; from several threads that has to be thread-safe. */
PLEAT_API pleat_status pleat_chat_template_render(const pleat_chat_template *chat_template, const char *json,
                                                  size_t n_json, const pleat_chat_options *opt, char *text, size_t cap,
                                                  size_t *n_bytes, pleat_error *err);

PLEAT_API void pleat_chat_template_destroy(pleat_chat_template **chat_template);

#ifdef __cplusplus
}
#endif
#endif
