/* SPDX-License-Identifier: MIT
 *
 * prompt_cache.h: a prompt that is read once: --prompt-cache FILE.
 *
 *     FILE is not there          read the prompt but its last token, write FILE, read the last token
 *     it holds the prompt        take it, read the last token
 *     it holds its beginning     take it, read the rest as a later turn, write FILE, read the last token
 *     it holds something else    say so, and do as if it was not there
 *
 * The last token stays out, since its logits are wanted and an image has none.  It is read by itself in every case: so a
 * prompt that was taken goes on as it did when it was read, bit for bit.
 */
#ifndef PLEAT_CLI_RUN_PROMPT_CACHE_H
#define PLEAT_CLI_RUN_PROMPT_CACHE_H

#include "cli/lib/image/image_file.h"
#include "run.h"

/* How the cache's tokens came there: steps of two tokens or more. */
typedef struct prompt_cache {
    pleat_image_step *steps; /* [n_steps], on the heap */
    uint32_t n_steps, cap;
} prompt_cache;

/* Take what FILE holds of the prompt: r->seqs[0] is open then, and r->n_fed of its tokens are there; none where FILE does
 * not serve.  CLI_OK, or CLI_FAILED after a message. */
int prompt_cache_take(run *r, prompt_cache *p);

/* The prompt's tokens from `first` on were read in one step. */
void prompt_cache_note(prompt_cache *p, uint32_t first, uint32_t n_tokens, uint32_t flags);

/* Write FILE: all but the prompt's last token has been read.  CLI_OK, or CLI_FAILED after a message. */
int prompt_cache_write(const run *r, const prompt_cache *p);

void prompt_cache_release(prompt_cache *p);

#endif
