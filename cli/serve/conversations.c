/* SPDX-License-Identifier: MIT
 *
 * conversations.c: see conversations.h.
 */
#include "conversations.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cli/lib/common.h"

/* What cannot be computed again is always worth reading. */
#define COMPUTE_NS 1e18

/* One in memory: salt, id and text, each with a NUL, in one block. */
typedef struct kept {
    char *salt; /* NULL: this place is free */
    const char *id, *text;
    size_t n;
} kept;

struct conversations {
    pleat_store *store;
    int fd;
    conversation_search *first; /* under way */
    kept ring[CONVERSATIONS_MAX];
    uint64_t n_ever;  /* kept so far: the last one is at (n_ever - 1) % MAX */
    uint32_t n_kept;  /* in memory: the last n_kept of these */
    uint64_t n_bytes; /* of their texts */
    uint64_t n_draft_bytes;
};

conversations *conversations_create(pleat_store *store) {
    conversations *c = cli_alloc(1, sizeof *c);
    c->store = store;
    c->fd = store ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1;
    return c;
}

static kept *oldest(conversations *c) { return &c->ring[(c->n_ever - c->n_kept) % CONVERSATIONS_MAX]; }

static void drop_oldest(conversations *c) {
    kept *k = oldest(c);
    c->n_bytes -= k->n;
    c->n_kept--;
    free(k->salt);
    *k = (kept){0};
}

void conversations_destroy(conversations **all) {
    conversations *c = *all;
    if (!c) return;
    while (c->n_kept > 0) drop_oldest(c);
    if (c->fd >= 0) (void)close(c->fd);
    free(c);
    *all = NULL;
}

uint32_t conversations_count(const conversations *c) { return c->n_kept; }
int conversations_fd(const conversations *c) { return c->fd; }

/* ---- in the store ------------------------------------------------------------------------------------------------------ */

/* An image's head, and what it points into. */
typedef struct record {
    pleat_image_head head;
    pleat_token id[CONVERSATION_ID_MAX];
    pleat_image_step step;
} record;

static void make_record(const char *salt, const char *id, record *out) {
    static const char spec[] = "conversation"; /* is none */
    const uint32_t n = (uint32_t)strlen(id);
    pleat_image_head *h = &out->head;
    pleat_image_head_default(h);
    memset(h->model, '0', sizeof h->model - 1); /* of none */
    for (uint32_t i = 0; i < n; i++) out->id[i] = (unsigned char)id[i];
    out->step = (pleat_image_step){0, n, 0};
    h->spec = spec;
    h->n_spec = sizeof spec - 1;
    h->salt = salt;
    h->n_salt = (uint32_t)strlen(salt);
    h->n_layers = h->n_q_heads = h->n_kv_heads = h->head_dim = h->page_tokens = 1;
    h->tokens = out->id;
    h->n_tokens = n;
    h->steps = &out->step;
    h->n_steps = 1;
}

static pleat_status fill(void *text, void *body, uint64_t body_bytes) {
    memcpy(body, text, body_bytes);
    return PLEAT_OK;
}

static void store(conversations *c, const kept *k, double cost_ns) {
    record r;
    make_record(k->salt, k->id, &r);
    r.head.body_bytes = k->n;
    (void)pleat_store_put(c->store, &r.head, cost_ns, fill,
                          (void *)(uintptr_t)k->text); /* what is left out is counted */
}

static void tell(void *fd) {
    const uint64_t one = 1;
    while (write(*(const int *)fd, &one, sizeof one) < 0 && errno == EINTR) {}
}

static conversation_state seek(conversations *c, const char *salt, const char *id, conversation_search *search) {
    record r;
    pleat_store_wish wish;
    make_record(salt, id, &r);
    const pleat_store_part whole = {.n_steps = 1, .compute_ns = COMPUTE_NS};
    pleat_store_wish_default(&wish);
    wish.head = &r.head;
    wish.parts = &whole;
    wish.n_parts = 1;
    wish.wake = tell;
    wish.ctx = &c->fd;
    if (pleat_store_fetch_begin(c->store, &wish, &search->fetch) != PLEAT_OK) return CONVERSATION_BUSY;
    search->next = c->first;
    c->first = search;
    tell(&c->fd); /* somebody waits from now on */
    return CONVERSATION_SOUGHT;
}

static void unlink_search(conversations *c, const conversation_search *search) {
    conversation_search **at = &c->first;
    while (*at != search) at = &(*at)->next;
    *at = search->next;
}

void conversations_leave(conversations *c, conversation_search *search) {
    unlink_search(c, search);
    pleat_store_fetch_end(&search->fetch);
}

int conversations_look(conversations *c) {
    uint64_t n;
    pleat_store_found found;
    (void)!read(c->fd, &n, sizeof n);
    for (conversation_search *s = c->first, *next; s; s = next) {
        pleat_store_fetch *fetch = s->fetch;
        next = s->next;
        if (pleat_store_fetch_poll(fetch, &found) == PLEAT_AGAIN) continue;
        unlink_search(c, s);
        s->found(s, found.body, (size_t)found.body_bytes); /* the record may be gone */
        pleat_store_fetch_end(&fetch);
    }
    return c->first != NULL;
}

/* ---- in memory --------------------------------------------------------------------------------------------------------- */

int conversations_draft(conversations *c, char *text, size_t n, conversation_draft *out) {
    if (c->n_draft_bytes + n > CONVERSATIONS_BYTES_MAX) {
        free(text);
        return 0;
    }
    c->n_draft_bytes += n;
    *out = (conversation_draft){text, n};
    return 1;
}

void conversations_forget(conversations *c, conversation_draft *draft) {
    c->n_draft_bytes -= draft->n;
    free(draft->text);
    *draft = (conversation_draft){0};
}

void conversations_keep(conversations *c, const char *salt, const char *id, const conversation_draft *draft,
                        const char *message, size_t n_message, double cost_ns) {
    const size_t n_salt = strlen(salt) + 1, n_id = strlen(id) + 1, n = draft->n + 1 + n_message;
    if (n > CONVERSATIONS_BYTES_MAX) return;
    while (c->n_kept == CONVERSATIONS_MAX || (c->n_kept > 0 && c->n_bytes + n > CONVERSATIONS_BYTES_MAX))
        drop_oldest(c);
    char *block = cli_alloc(n_salt + n_id + n + 1, 1), *text = block + n_salt + n_id;
    memcpy(block, salt, n_salt);
    memcpy(block + n_salt, id, n_id);
    memcpy(text, draft->text, draft->n);
    text[draft->n - 1] = ','; /* where the list's ] was */
    memcpy(text + draft->n, message, n_message);
    text[n - 1] = ']';
    kept *k = &c->ring[c->n_ever++ % CONVERSATIONS_MAX];
    *k = (kept){.salt = block, .id = block + n_salt, .text = text, .n = n};
    c->n_kept++;
    c->n_bytes += n;
    if (c->store) store(c, k, cost_ns);
}

conversation_state conversations_find(conversations *c, const char *salt, const char *id, conversation_search *search,
                                      const char **text, size_t *n) {
    const size_t n_id = strlen(id);
    if (n_id < CONVERSATION_ID_MIN || n_id > CONVERSATION_ID_MAX) return CONVERSATION_ABSENT;
    for (uint64_t i = 1; i <= c->n_kept; i++) {
        const kept *k = &c->ring[(c->n_ever - i) % CONVERSATIONS_MAX];
        if (strcmp(k->id, id) != 0 || strcmp(k->salt, salt) != 0) continue;
        *text = k->text;
        *n = k->n;
        return CONVERSATION_HERE;
    }
    return c->store ? seek(c, salt, id, search) : CONVERSATION_ABSENT;
}
