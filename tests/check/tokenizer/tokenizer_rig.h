/* SPDX-License-Identifier: MIT
 *
 * tokenizer_rig.h: tokenizers of files that a test writes.
 */
#ifndef CHECK_TOKENIZER_RIG_H
#define CHECK_TOKENIZER_RIG_H

#include "check.h"
#include "core/memory.h"
#include "gguf_writer.h"
#include "tokenizer/tokenizer.h"

/* End the writer's file, make its tokenizer with `al` (NULL: the default), free the file. */
static inline pleat_status make_tokenizer(gguf_writer *w, const pleat_allocator *al, pleat__tokenizer **out,
                                          pleat_error *err) {
    const pleat_allocator used = pleat__allocator_or_default(al);
    pleat_gguf *g = NULL;
    gw_data(w);
    pleat_status st = pleat_gguf_open_memory(w->p, w->n, NULL, &g, err);
    if (st == PLEAT_OK) st = pleat__tokenizer_create(g, &used, out, err);
    pleat_gguf_close(&g);
    gw_free(w);
    return st;
}

#endif
