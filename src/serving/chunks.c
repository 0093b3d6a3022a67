/* SPDX-License-Identifier: MIT
 *
 * chunks.c: where a prompt's chunks end, and what a request's next item is.
 *
 * A chunk ends at every multiple of chunk_tokens, at every breakpoint and at the prompt's end.  Breakpoints are the
 * multiples of prefix_tokens and those that the request names.  There the cache seals what it holds (under eviction it
 * brings its lanes down to the budget), and the prefix so far may be kept:
 *
 *     0 ---- 512 ---- 1024 -- named 1300 -- 1536 ---- 2048 - end 2100        chunks of 256, prefix_tokens 512
 *             B        B          B           B         B                    B: breakpoint; chunks between are MORE
 *
 * Whoever continues a prefix has to have read it in the same chunks, since these are part of what the bits depend on.
 * Multiples are in place for everybody; a breakpoint elsewhere is not.  So the tree is handed not the tokens alone but
 * the path, with a mark behind each breakpoint that is no multiple of prefix_tokens:
 *
 *     path of the above: 1300 tokens, -1, 800 tokens
 *
 * The end is a breakpoint where the request names it: then the next turn of a conversation, which names 1300 and 2100,
 * begins from it.  Else nothing is kept there, since it would not be for nothing.  With levels the pages of the window
 * and both sides' last ones stand twice from then on, and what is sealed is not compressed any further; under eviction
 * all pages stand twice.
 *
 * So under eviction a prompt never stands in its pages whole, where dead slots leave them: a lane holds what stayed of
 * the part before a breakpoint, and the part up to the next.
 *
 * At a named breakpoint all full pages are sealed, those of the window too, since others are expected to begin there.  At
 * a multiple those of classed tokens alone are, since most are never used by anybody else.
 */
#include <string.h>

#include "serving/internal.h"

#define MARK (-1)

static uint32_t next_multiple(uint32_t n, uint32_t of) { return n - n % of + of; } /* beyond n; below 2^26 */

/* The first breakpoint beyond n that the request names; UINT32_MAX if there is none. */
static uint32_t next_named(const pleat__request *r, uint32_t n) {
    uint32_t low = 0, high = r->n_breakpoints;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (r->breakpoints[middle] > n)
            high = middle;
        else
            low = middle + 1;
    }
    return low < r->n_breakpoints ? r->breakpoints[low] : UINT32_MAX;
}

uint32_t pleat__serving_chunk_end(const pleat_serving *s, const pleat__request *r, uint32_t n) {
    const uint32_t at = pleat__min_u32(next_multiple(n, s->backend.shape.chunk_tokens), next_named(r, n));
    return pleat__min_u32(at, r->n_prompt);
}

uint32_t pleat__serving_next_breakpoint(const pleat_serving *s, const pleat__request *r, uint32_t n) {
    return pleat__min_u32(next_multiple(n, s->opt.prefix_tokens), next_named(r, n));
}

uint32_t pleat__serving_seal_flag(const pleat_serving *s, const pleat__request *r, uint32_t n) {
    if (s->opt.prefix_tokens == 0 || pleat__serving_next_breakpoint(s, r, n - 1) != n) return 0;
    return n % s->opt.prefix_tokens == 0 ? PLEAT_ITEM_SEAL : PLEAT_ITEM_SEAL_ALL;
}

pleat__portion pleat__serving_portion(const pleat_serving *s, const pleat__request *r, uint32_t n_stored) {
    if (n_stored >= r->n_prompt) return (pleat__portion){.n_tokens = 1, .generates = true};
    const uint32_t end = pleat__serving_chunk_end(s, r, n_stored);
    uint32_t flags = pleat__serving_seal_flag(s, r, end);
    if (flags == 0 && end < r->n_prompt) flags = PLEAT_ITEM_MORE;
    return (pleat__portion){.n_tokens = end - n_stored, .flags = flags};
}

/* What stays of n slots when a part of one or more tokens has ended behind `end` tokens, and a hole.  A part of one token
 * may drop one of a bounded lane, and none of others. */
static uint32_t slots_left(const pleat_serving *s, uint32_t n, uint32_t end, bool is_single) {
    const uint32_t budget = s->backend.budget(s->backend.ctx, end);
    if (is_single && !s->backend.shape.is_bounded) return n;
    return budget < n ? budget + 1 : n;
}

uint32_t pleat__serving_read_slots(const pleat_serving *s, const pleat__request *r) {
    if (!s->backend.shape.is_packed || s->opt.prefix_tokens == 0) return r->n_prompt;
    uint32_t most = 0, n = 0;
    for (uint32_t at = 0; at < r->n_prompt;) {
        const uint32_t end = pleat__min_u32(pleat__serving_next_breakpoint(s, r, at), r->n_prompt);
        n += end - at;
        most = pleat__max_u32(most, n);
        n = slots_left(s, n, end, end - at == 1);
        at = end;
    }
    return pleat__min_u32(most, r->n_prompt);
}

uint32_t pleat__serving_path(pleat_serving *s, const pleat__request *r, uint32_t n) {
    int32_t *path = s->prefixes.path;
    uint32_t at = 0;
    for (uint32_t from = 0; from < n;) {
        const uint32_t to = pleat__min_u32(next_named(r, from), n);
        memcpy(path + at, r->tokens + from, (to - from) * sizeof *path);
        at += to - from;
        if (next_named(r, to - 1) == to && to % s->opt.prefix_tokens != 0) path[at++] = MARK;
        from = to;
    }
    return at;
}

bool pleat__serving_begins(const pleat_serving *s, const pleat__request *r, const int32_t *path, uint32_t n) {
    uint32_t at = 0, mark = next_named(r, 0);
    for (uint32_t i = 0; i < n; i++) {
        const bool has_mark = at == mark && at % s->opt.prefix_tokens != 0;
        if (at == mark) mark = next_named(r, at);
        if (has_mark != (path[i] == MARK)) return false;
        if (has_mark) continue;
        if (at + 1 >= r->n_prompt || path[i] != r->tokens[at]) return false;
        at++;
    }
    return true;
}

/* ---- roots ---------------------------------------------------------------------------------------- */

/* Its name is the spec's text, a NUL, the salt. */
typedef struct root_key {
    char bytes[PLEAT_SPEC_TEXT_CAP + PLEAT__SALT_CAP];
    uint32_t n;
} root_key;

static void make_key(const pleat_serving *s, const char *salt, root_key *out) {
    const size_t n_spec = strlen(s->backend.shape.key) + 1, n_salt = salt ? strlen(salt) : 0;
    memcpy(out->bytes, s->backend.shape.key, n_spec);
    if (n_salt > 0) memcpy(out->bytes + n_spec, salt, n_salt);
    out->n = (uint32_t)(n_spec + n_salt);
}

uint32_t pleat__serving_find_root(const pleat_serving *s, const char *salt) {
    root_key key;
    make_key(s, salt, &key);
    return s->prefixes.tree ? pleat__radix_find_root(s->prefixes.tree, key.bytes, key.n) : PLEAT__NO_ROOT;
}

pleat_status pleat__serving_root(pleat_serving *s, const char *salt, uint32_t *root) {
    root_key key;
    *root = PLEAT__NO_ROOT;
    if (!s->prefixes.tree) return PLEAT_OK;
    make_key(s, salt, &key);
    const pleat_status status = pleat__radix_root(s->prefixes.tree, key.bytes, key.n, root);
    if (status == PLEAT_E_LIMIT) *root = PLEAT__NO_ROOT;
    return status == PLEAT_E_LIMIT ? PLEAT_OK : status;
}
