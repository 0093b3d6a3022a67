/* SPDX-License-Identifier: MIT
 *
 * prompt_cache.c: see prompt_cache.h.
 */
#include "prompt_cache.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/lib/common.h"

void prompt_cache_note(prompt_cache *p, uint32_t first, uint32_t n_tokens, uint32_t flags) {
    if (n_tokens < 2) return;
    if (p->n_steps == p->cap) {
        p->cap = 2 * p->cap + 16;
        pleat_image_step *grown = cli_alloc(p->cap, sizeof *grown);
        if (p->n_steps) memcpy(grown, p->steps, p->n_steps * sizeof *grown);
        free(p->steps);
        p->steps = grown;
    }
    p->steps[p->n_steps++] = (pleat_image_step){first, n_tokens, flags};
}

void prompt_cache_release(prompt_cache *p) {
    free(p->steps);
    *p = (prompt_cache){0};
}

/* ---- taking -------------------------------------------------------------------------------------- */

/* Tokens of the file that the prompt begins with. */
static uint32_t count_common(const run *r, const pleat_image_head *h) {
    uint32_t n = 0;
    while (n < h->n_tokens && n < r->n_prompt && h->tokens[n] == r->prompt[n]) n++;
    return n;
}

static int is_of_use(const run *r, const image_file *f, const pleat_image_head *wanted) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    const uint32_t n = f->head.n_tokens, n_common = count_common(r, &f->head);
    if (pleat_image_compare(&f->head, wanted, &err) != PLEAT_OK)
        cli_note("%s does not serve, and is written anew: %s", f->path, err.text);
    else if (n_common < n && n_common < r->n_prompt)
        cli_note("%s does not serve, and is written anew: token %u of the prompt is another", f->path, n_common + 1);
    else if (n >= r->n_prompt)
        cli_note("%s does not serve, and is written anew: it holds %u tokens, and the prompt has %u", f->path, n,
                 r->n_prompt);
    else
        return 1;
    return 0;
}

/* A file that is there and cannot be taken: one that is damaged is written anew, one of another kind is left alone. */
static int refuse(const char *path, pleat_status status, const pleat_error *err) {
    if (status == PLEAT_E_FORMAT && err->where > 0) {
        cli_note("%s does not serve, and is written anew: %s", path, err->text);
        return CLI_OK;
    }
    cli_error("--prompt-cache %s: %s; nothing was read or written: name another file", path, err->text);
    return CLI_FAILED;
}

static int restore(run *r, const image_file *f, prompt_cache *p) {
    const pleat_seq no_base = {0};
    const pleat_status status = pleat_engine_restore_for(r->engine, f->body, f->head.body_bytes, no_base,
                                                         r->n_prompt + r->max_new, &r->seqs[0]);
    if (status == PLEAT_E_FORMAT) {
        cli_note("%s does not serve, and is written anew: its sums hold, but the cache cannot restore its body",
                 f->path);
        return CLI_OK;
    }
    if (status != PLEAT_OK) return cli_fail(f->path, status, NULL);
    for (uint32_t i = 0; i < f->head.n_steps; i++)
        prompt_cache_note(p, f->head.steps[i].first, f->head.steps[i].n_tokens, f->head.steps[i].flags);
    r->n_fed = r->n_taken = f->head.n_tokens;
    return CLI_OK;
}

int prompt_cache_take(run *r, prompt_cache *p) {
    const char *path = r->o->prompt_cache;
    pleat_image_head wanted;
    pleat_error err;
    image_file f;
    if (access(path, F_OK) != 0) return CLI_OK;
    if (image_file_wanted(r->engine, r->o->load.kv.text[0], &wanted) != CLI_OK) return CLI_FAILED;
    const pleat_status status = image_file_open(&f, path, &err);
    if (status != PLEAT_OK) return refuse(path, status, &err);
    const int code = is_of_use(r, &f, &wanted) ? restore(r, &f, p) : CLI_OK;
    image_file_close(&f);
    return code;
}

/* ---- writing ------------------------------------------------------------------------------------- */

int prompt_cache_write(const run *r, const prompt_cache *p) {
    pleat_image_head head;
    if (image_file_wanted(r->engine, r->o->load.kv.text[0], &head) != CLI_OK) return CLI_FAILED;
    head.tokens = r->prompt;
    head.n_tokens = r->n_prompt - 1;
    head.steps = p->steps;
    head.n_steps = p->n_steps;
    return image_file_write(r->o->prompt_cache, r->engine, r->seqs[0], &head);
}
