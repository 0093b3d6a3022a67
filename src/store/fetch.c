/* SPDX-License-Identifier: MIT
 *
 * fetch.c: what is wanted, looked for and read by a thread of the store's beside whoever computes.
 *
 *     begin ──> QUEUED ──the reader──> READING ──the reader──> OVER
 *                 │ end                   │ end                  │ end
 *                 v                       v                      v
 *                gone                  is_left: gone when       gone
 *                                      the reader has done
 *
 * A disk may answer nothing for ever, and then its reader stands still.  So who waits looks at the time himself: a fetch
 * is late when the reader has got nowhere for timeout_ns, and from then on nobody begins one until it does.
 */
#include <string.h>

#include "core/clock.h"
#include "store/internal.h"

enum { MAX_FETCHES = 256 };
#define LOOK_NS 1e6 /* of a read, whatever its length */

typedef enum fetch_state { QUEUED, READING, OVER } fetch_state;

struct pleat_store_fetch {
    pleat_store *store;
    pleat_store_fetch *next; /* in the queue */
    uint64_t block_bytes;
    pleat_store_wish wish;   /* its head and parts are copies, behind this in the block */
    pleat_image_head head;   /* the wish's */
    pleat_store_part *parts; /* the wish's */
    uint8_t *body;           /* the reader's until it is over */
    pleat_store_found found;
    pleat_image_head found_head; /* the wish's, up to the end of the part that was found */
    uint64_t begun_ns;
    fetch_state state; /* guarded by the store's lock, as is what follows */
    bool is_late;      /* it has been given up */
    bool is_counted;   /* what it missed is in the stats: by the reader, or by who gave it up */
    bool is_left;      /* nobody has it any more */
};

void pleat_store_wish_default(pleat_store_wish *wish) {
    if (wish) *wish = (pleat_store_wish){.size_bytes = sizeof *wish, .max_bytes = UINT64_MAX};
}

/* Forget a fetch that stands nowhere; the lock is held, or nobody else is there. */
static void release(pleat_store *s, pleat_store_fetch *f) {
    s->n_fetches--;
    s->fetched_bytes -= f->found.body_bytes;
    pleat__free(&s->al, f->body, 1, f->found.body_bytes);
    pleat__free(&s->al, f, 1, f->block_bytes);
}

/* ---- the reader ------------------------------------------------------------------------------------------ */

/* The next fetch, when there is one; NULL: there will be none. */
static pleat_store_fetch *take(pleat_store *s) {
    (void)pthread_mutex_lock(&s->lock);
    while (!s->wanted && !s->is_stopping) (void)pthread_cond_wait(&s->wants, &s->lock);
    pleat_store_fetch *f = s->wanted;
    if (f) {
        s->wanted = f->next;
        if (!s->wanted) s->last_wanted = &s->wanted;
        f->state = READING;
        s->reads_since_ns = pleat__clock_ns();
    }
    (void)pthread_mutex_unlock(&s->lock);
    return f;
}

static void finish(pleat_store *s, pleat_store_fetch *f) {
    (void)pthread_mutex_lock(&s->lock);
    f->state = OVER;
    s->reads_since_ns = 0;
    if (f->is_left)
        release(s, f);
    else if (f->wish.wake)
        f->wish.wake(f->wish.ctx);
    (void)pthread_mutex_unlock(&s->lock);
}

/* The disk has answered.  False: nobody wants the rest. */
static bool goes_on(void *ctx) {
    pleat_store_fetch *f = ctx;
    (void)pthread_mutex_lock(&f->store->lock);
    f->store->reads_since_ns = pleat__clock_ns();
    const bool is_wanted = !f->is_late && !f->is_left;
    (void)pthread_mutex_unlock(&f->store->lock);
    return is_wanted;
}

/* It has come to nothing: once for each fetch, whoever sees it first. */
static void count_miss(pleat_store *s, pleat_store_fetch *f, int miss) {
    (void)pthread_mutex_lock(&s->lock);
    s->stats.misses[miss] += !f->is_counted;
    f->is_counted = true;
    (void)pthread_mutex_unlock(&s->lock);
}

/* Room among the bodies that are held, for this one. */
static bool reserve(pleat_store *s, pleat_store_fetch *f, uint64_t n_bytes) {
    (void)pthread_mutex_lock(&s->lock);
    const bool has_room = n_bytes <= s->queue_bytes - s->fetched_bytes;
    if (has_room) {
        s->fetched_bytes += n_bytes;
        f->found.body_bytes = n_bytes;
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (!has_room) count_miss(s, f, PLEAT_STORE_BUSY);
    return has_room;
}

/* Reading would have taken too long, as the last reads went.  One slow read is not believed for good: the next is tried
 * when enough have been left out. */
static void hope(pleat_store *s) {
    (void)pthread_mutex_lock(&s->lock);
    if (s->speed < PLEAT__STORE_FIRST_SPEED) s->speed *= 1.1;
    (void)pthread_mutex_unlock(&s->lock);
}

/* There is a file of this part. */
static void read_part(pleat_store *s, pleat_store_fetch *f, const pleat_image_head *head, double compute_ns,
                      uint64_t n_bytes) {
    const double read_ns = LOOK_NS + (double)n_bytes * (1e9 / pleat_store_read_speed(s) + f->wish.byte_ns);
    const bool is_large = n_bytes > f->wish.max_bytes, is_slow = !is_large && !(read_ns < compute_ns);
    if (is_slow) hope(s);
    f->found.is_costly = is_large || is_slow;
    if (f->found.is_costly || !reserve(s, f, n_bytes)) return;
    f->body = pleat__alloc(&s->al, 1, n_bytes);
    int result;
    if (!f->body) return;
    const pleat_status status = pleat__store_read_while(s, head, f->body, n_bytes, goes_on, f, &result);
    if (status == PLEAT_AGAIN && result != PLEAT__READ_STOPPED) count_miss(s, f, result);
    if (status != PLEAT_OK) return;
    f->found.n_tokens = head->n_tokens;
    f->found.body = f->body;
    f->found_head = *head;
}

/* Heads of up to PLEAT__STORE_FIND_MAX parts from `first` on; returns how many. */
static uint32_t make_heads(const pleat_store_fetch *f, uint32_t first, pleat_image_head *heads) {
    uint32_t n = 0;
    for (; n < PLEAT__STORE_FIND_MAX && first + n < f->wish.n_parts; n++) {
        pleat_image_head *h = &heads[n];
        *h = f->head;
        h->n_steps = f->parts[first + n].n_steps;
        h->n_tokens = h->steps[h->n_steps - 1].first + h->steps[h->n_steps - 1].n_tokens;
    }
    return n;
}

static void look(pleat_store *s, pleat_store_fetch *f) {
    pleat_image_head heads[PLEAT__STORE_FIND_MAX];
    for (uint32_t i = 0, n; i < f->wish.n_parts; i += n) {
        uint64_t n_bytes = 0;
        uint32_t which;
        n = make_heads(f, i, heads);
        const int result = pleat__store_look(s, heads, n, &which, &n_bytes);
        if (result != PLEAT_STORE_ABSENT && result != PLEAT__READ) count_miss(s, f, result);
        if (!goes_on(f)) return;
        if (result == PLEAT__READ) read_part(s, f, &heads[which], f->parts[i + which].compute_ns, n_bytes);
        if (result != PLEAT_STORE_ABSENT) return;
    }
    count_miss(s, f, PLEAT_STORE_ABSENT);
}

void *pleat__store_fetch_all(void *arg) {
    pleat_store *s = arg;
    for (pleat_store_fetch *f; (f = take(s)) != NULL;) {
        look(s, f);
        finish(s, f);
    }
    return NULL;
}

/* ---- who wants it ---------------------------------------------------------------------------------------- */

static bool is_sound(const pleat_store_wish *w) {
    const pleat_image_head *h = w && w->size_bytes == sizeof *w ? w->head : NULL;
    if (!h || !w->parts || w->n_parts == 0 || !h->spec || !h->tokens || !h->steps || (h->n_salt && !h->salt))
        return false;
    for (uint32_t i = 0; i < w->n_parts; i++) {
        const uint32_t n = w->parts[i].n_steps;
        if (n == 0 || n > h->n_steps) return false;
        const pleat_image_step *last = &h->steps[n - 1];
        if (last->n_tokens > h->n_tokens || last->first > h->n_tokens - last->n_tokens) return false;
    }
    return true;
}

/* Bytes of a fetch, and where its parts stand; base NULL: only how many. */
static uint64_t carve(const pleat_store_wish *w, uint8_t *base, pleat_store_fetch **out) {
    pleat__arena arena = {.base = base, .cap_bytes = UINT64_MAX};
    pleat_store_fetch *f = pleat__arena_take(&arena, 1, sizeof *f);
    pleat_store_part *parts = pleat__arena_take(&arena, w->n_parts, sizeof *parts);
    if (base) *f = (pleat_store_fetch){.wish = *w, .parts = memcpy(parts, w->parts, w->n_parts * sizeof *parts)};
    pleat__store_copy_head(&arena, w->head, base ? &f->head : NULL);
    if (base) *out = f;
    return arena.overflow ? UINT64_MAX : arena.used_bytes;
}

/* Whether the reader has got nowhere for too long; the lock is held. */
static bool stands_still(const pleat_store *s, uint64_t since_ns, uint64_t now_ns) {
    return s->reads_since_ns > 0 && now_ns > s->reads_since_ns && now_ns > since_ns &&
           now_ns - s->reads_since_ns > s->timeout_ns && now_ns - since_ns > s->timeout_ns;
}

pleat_status pleat_store_fetch_begin(pleat_store *s, const pleat_store_wish *wish, pleat_store_fetch **out) {
    if (!s || !out || !is_sound(wish)) return PLEAT_E_ARG;
    const uint64_t block_bytes = carve(wish, NULL, NULL), now_ns = pleat__clock_ns();
    uint8_t *block = pleat__alloc(&s->al, 1, block_bytes);
    pleat_store_fetch *f = NULL;
    if (!block) return PLEAT_E_MEMORY;
    (void)carve(wish, block, &f);
    f->store = s;
    f->block_bytes = block_bytes;
    f->begun_ns = now_ns;
    (void)pthread_mutex_lock(&s->lock);
    const bool is_late = stands_still(s, 0, now_ns), is_full = s->n_fetches == MAX_FETCHES;
    if (is_late || is_full) {
        s->stats.misses[is_late ? PLEAT_STORE_TIMEOUT : PLEAT_STORE_BUSY]++;
        pleat__free(&s->al, block, 1, block_bytes);
        f = NULL;
    } else {
        s->n_fetches++;
        *s->last_wanted = f;
        s->last_wanted = &f->next;
        (void)pthread_cond_signal(&s->wants);
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (f) *out = f;
    return f ? PLEAT_OK : PLEAT_AGAIN;
}

pleat_status pleat_store_fetch_poll(pleat_store_fetch *f, pleat_store_found *out) {
    if (!f || !out) return PLEAT_E_ARG;
    pleat_store *s = f->store;
    const uint64_t now_ns = pleat__clock_ns(), taken_ns = now_ns - f->begun_ns;
    *out = (pleat_store_found){0};
    (void)pthread_mutex_lock(&s->lock);
    const bool is_over = f->state == OVER;
    const bool is_late = !is_over && !f->is_late &&
                         (stands_still(s, f->begun_ns, now_ns) ||
                          (taken_ns > s->timeout_ns && (double)taken_ns > f->parts[0].compute_ns));
    s->stats.misses[PLEAT_STORE_TIMEOUT] += is_late && !f->is_counted;
    f->is_counted |= is_late;
    f->is_late |= is_late;
    if (is_over && !f->is_late) *out = f->found;
    if (!out->body) out->body_bytes = 0;
    const bool is_settled = is_over || f->is_late;
    (void)pthread_mutex_unlock(&s->lock);
    return is_settled ? PLEAT_OK : PLEAT_AGAIN;
}

static void unlink_wanted(pleat_store *s, const pleat_store_fetch *f) {
    pleat_store_fetch **at = &s->wanted;
    while (*at != f) at = &(*at)->next;
    *at = f->next;
    if (!*at) s->last_wanted = at;
}

void pleat_store_fetch_refuse(pleat_store_fetch *f) {
    pleat_store_found found;
    if (pleat_store_fetch_poll(f, &found) != PLEAT_OK || !found.body) return;
    (void)pthread_mutex_lock(&f->store->lock);
    const bool is_first = !f->is_counted;
    f->is_counted = true;
    (void)pthread_mutex_unlock(&f->store->lock);
    if (is_first) pleat__store_refuse(f->store, &f->found_head, found.body_bytes);
}

void pleat_store_fetch_end(pleat_store_fetch **fetch) {
    if (!fetch || !*fetch) return;
    pleat_store_fetch *f = *fetch;
    pleat_store *s = f->store;
    (void)pthread_mutex_lock(&s->lock);
    if (f->state == QUEUED) unlink_wanted(s, f);
    if (f->state == READING)
        f->is_left = true;
    else
        release(s, f);
    (void)pthread_mutex_unlock(&s->lock);
    *fetch = NULL;
}
