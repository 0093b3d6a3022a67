/* SPDX-License-Identifier: MIT
 *
 * head.c: heads of images: copied, and compared with what is wanted.
 */
#include <string.h>

#include "store/internal.h"

void pleat__store_copy_head(pleat__arena *arena, const pleat_image_head *h, pleat_image_head *out) {
    pleat_token *tokens = pleat__arena_take(arena, h->n_tokens, sizeof *tokens);
    pleat_image_step *steps = pleat__arena_take(arena, (uint64_t)h->n_steps + 1, sizeof *steps);
    char *spec = pleat__arena_take(arena, h->n_spec, 1), *salt = pleat__arena_take(arena, (uint64_t)h->n_salt + 1, 1);
    if (!out) return;
    *out = *h;
    out->tokens = memcpy(tokens, h->tokens, h->n_tokens * sizeof *tokens);
    if (h->n_steps) memcpy(steps, h->steps, h->n_steps * sizeof *steps);
    out->steps = steps;
    out->spec = memcpy(spec, h->spec, h->n_spec);
    if (h->n_salt) memcpy(salt, h->salt, h->n_salt);
    out->salt = salt;
}

bool pleat__store_head_is(const pleat_image_head *h, const pleat_image_head *wanted) {
    return pleat_image_compare(h, wanted, NULL) == PLEAT_OK && h->n_tokens == wanted->n_tokens &&
           h->n_steps == wanted->n_steps && h->body_bytes == wanted->body_bytes &&
           memcmp(h->tokens, wanted->tokens, h->n_tokens * sizeof *h->tokens) == 0 &&
           (h->n_steps == 0 || memcmp(h->steps, wanted->steps, h->n_steps * sizeof *h->steps) == 0);
}
