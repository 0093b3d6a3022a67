/* SPDX-License-Identifier: MIT
 *
 * manage.c: kept prefixes in the hands of who runs the serving.
 *
 *     pin         a lock like a running request's: it and those above it stay
 *     drop        it and those below it, if nobody has a lock on any
 *     compress    higher thresholds for it.  Those below it are dropped, since they share the pages that it had
 *
 * A pinned prefix is no request's, so what is left for these is less: submit refuses what cannot fit beside pinned ones,
 * and one that was here before fails where it would wait for ever (step.c).
 */
#include <string.h>

#include "core/error.h"
#include "serving/internal.h"

/* The kept prefix of this id, or none. */
static pleat__kept_id kept_of(const pleat_serving *s, uint64_t id) {
    const pleat__kept_id at = {(uint32_t)(id % ((uint64_t)s->opt.max_prefixes + 1))};
    const bool is_it = at.v > 0 && s->prefixes.kept[at.v].seq.v && s->prefixes.kept[at.v].id == id;
    return is_it ? at : (pleat__kept_id){0};
}

/* Does the prefix go on from `above`, or is it that? */
static bool goes_on_from(const pleat_serving *s, pleat__kept_id id, pleat__kept_id above) {
    while (id.v && id.v != above.v) id = s->prefixes.kept[id.v].parent;
    return id.v == above.v;
}

/* ---- looking ---------------------------------------------------------------------------------------------------------- */

static uint32_t count_users(const pleat_serving *s, pleat__kept_id id) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_running; i++) n += goes_on_from(s, PLEAT__RUNNING(s->running[i])->base, id);
    return n;
}

/* Its path without marks into the scratch of paths: its tokens. */
static uint32_t read_tokens(const pleat_serving *s, const pleat__kept *k) {
    const pleat__prefixes *p = &s->prefixes;
    const uint32_t n_path = pleat__radix_info(p->tree, k->entry).n_tokens;
    uint32_t n = 0;
    (void)pleat__radix_path(p->tree, k->entry, p->path);
    for (uint32_t i = 0; i < n_path; i++)
        if (p->path[i] >= 0) p->path[n++] = p->path[i];
    return n;
}

static void describe(const pleat_serving *s, pleat__kept_id id, pleat_kept_prefix *out) {
    const pleat__kept *k = &s->prefixes.kept[id.v];
    const size_t n_spec = strlen(s->backend.shape.key) + 1;
    uint32_t n_key;
    const uint32_t root = pleat__radix_path(s->prefixes.tree, k->entry, s->prefixes.path);
    const char *key = pleat__radix_key(s->prefixes.tree, root, &n_key);
    *out = (pleat_kept_prefix){.id = k->id,
                               .parent = s->prefixes.kept[k->parent.v].id,
                               .n_tokens = k->n_tokens,
                               .n_users = count_users(s, id),
                               .n_children = k->n_children,
                               .n_hits = k->n_hits,
                               .n_pages = k->added_pages,
                               .is_pinned = k->is_pinned,
                               .ah = k->ah,
                               .al = k->al,
                               .salt = key + n_spec,
                               .n_salt = n_key - (uint32_t)n_spec};
}

uint32_t pleat_serving_prefixes(const pleat_serving *s, pleat_kept_prefix *out, uint32_t n) {
    uint32_t n_kept = 0;
    if (!s || !s->prefixes.tree) return 0;
    for (uint32_t i = 1; i <= s->opt.max_prefixes; i++) {
        if (!s->prefixes.kept[i].seq.v) continue;
        if (n_kept < n) describe(s, (pleat__kept_id){i}, &out[n_kept]);
        n_kept++;
    }
    return n_kept;
}

pleat_status pleat_serving_prefix_tokens(const pleat_serving *s, uint64_t id, pleat_token *out, uint32_t cap,
                                         uint32_t *n) {
    const pleat__kept_id at = s ? kept_of(s, id) : (pleat__kept_id){0};
    if (!at.v) return PLEAT_E_ARG;
    *n = read_tokens(s, &s->prefixes.kept[at.v]);
    if (*n > cap) return PLEAT_E_LIMIT;
    memcpy(out, s->prefixes.path, *n * sizeof *out);
    return PLEAT_OK;
}

uint64_t pleat_serving_find_prefix(pleat_serving *s, const char *salt, const pleat_token *tokens, uint32_t n) {
    if (!s || (salt && strlen(salt) >= PLEAT__SALT_CAP)) return 0;
    const uint32_t root = pleat__serving_find_root(s, salt);
    if (root == PLEAT__NO_ROOT) return 0;
    const pleat__prefix entry = pleat__radix_find_kept(s->prefixes.tree, root, tokens, n);
    return entry.v ? s->prefixes.kept[pleat__radix_info(s->prefixes.tree, entry).value].id : 0;
}

/* ---- pins ------------------------------------------------------------------------------------------------------------- */

pleat_status pleat_serving_pin_prefix(pleat_serving *s, uint64_t id, int is_pinned) {
    const pleat__kept_id at = s ? kept_of(s, id) : (pleat__kept_id){0};
    if (!at.v) return PLEAT_E_ARG;
    pleat__kept *k = &s->prefixes.kept[at.v];
    if (k->is_pinned == (is_pinned != 0)) return PLEAT_OK;
    if (is_pinned) {
        PLEAT_TRY(pleat__pins_add(s, at));
        pleat__serving_use(s, at);
    } else {
        pleat__pins_remove(s, at);
        pleat__serving_unuse(s, at);
    }
    k->is_pinned = is_pinned != 0;
    return PLEAT_OK;
}

/* ---- dropping, compressing ---------------------------------------------------------------------------------------------- */

/* Remove those below a prefix, the last ones first; nobody has a lock on any. */
static void drop_below(pleat_serving *s, pleat__kept_id id) {
    pleat__kept *kept = s->prefixes.kept;
    for (uint32_t i = 1; kept[id.v].n_children > 0; i = i % s->opt.max_prefixes + 1)
        if (i != id.v && kept[i].seq.v && kept[i].n_children == 0 && goes_on_from(s, (pleat__kept_id){i}, id))
            pleat__serving_remove_kept(s, (pleat__kept_id){i});
}

pleat_status pleat_serving_drop_prefix(pleat_serving *s, uint64_t id) {
    const pleat__kept_id at = s ? kept_of(s, id) : (pleat__kept_id){0};
    if (!at.v) return PLEAT_E_ARG;
    if (s->prefixes.kept[at.v].n_users > 0) return PLEAT_E_STATE;
    drop_below(s, at);
    pleat__serving_remove_kept(s, at);
    return PLEAT_OK;
}

/* Are there pages to compress it with, when others go?  Its copies are those of whoever goes on from it, or fewer. */
static bool has_room(const pleat_serving *s, pleat__kept_id id) {
    const pleat__backend *b = &s->backend;
    const uint64_t need = 2 + b->pages_needed(b->ctx, s->prefixes.kept[id.v].seq, 1, PLEAT_ITEM_MORE);
    const uint64_t n_others = s->prefixes.evictable_pages - pleat__serving_lock_pages(s, id);
    return pleat__serving_free_pages(s) + n_others >= need;
}

/* Its lock keeps it from being evicted while others go for the two pages that compression works with. */
static pleat_status compress(pleat_serving *s, pleat__kept_id id, float ah, float al) {
    const pleat__backend *b = &s->backend;
    const pleat_seq seq = s->prefixes.kept[id.v].seq;
    pleat__serving_use(s, id);
    pleat_status status = b->compress(b->ctx, seq, ah, al);
    while (status == PLEAT_AGAIN && pleat__serving_evict(s)) status = b->compress(b->ctx, seq, ah, al);
    pleat__serving_unuse(s, id);
    return status;
}

pleat_status pleat_serving_compress_prefix(pleat_serving *s, uint64_t id, float ah, float al) {
    const pleat__kept_id at = s ? kept_of(s, id) : (pleat__kept_id){0};
    if (s && !s->backend.shape.can_compress) return PLEAT_E_UNSUPPORTED;
    if (!at.v) return PLEAT_E_ARG;
    pleat__kept *k = &s->prefixes.kept[at.v];
    if (!(ah >= k->ah && al >= k->al && al <= ah && (ah > k->ah || al > k->al))) return PLEAT_E_ARG;
    if (k->n_users > (k->is_pinned ? 1u : 0u)) return PLEAT_E_STATE;
    if (!has_room(s, at)) return PLEAT_AGAIN;
    pleat__serving_lose_images(s, at);
    drop_below(s, at);
    PLEAT_TRY(compress(s, at, ah, al));
    k->ah = ah;
    k->al = al;
    k->is_compressed = true;
    pleat__serving_count_kept(s, at);
    pleat__pins_counted(s, at);
    return PLEAT_OK;
}
