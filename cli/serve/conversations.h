/* SPDX-License-Identifier: MIT
 *
 * conversations.h: chats that are gone on with by the id of their last answer.
 *
 * What is kept of a chat is its messages as text, with the answer behind them; tokens are made of them again, and prefixes
 * found by these (tier.c of the library).  So a conversation whose prefix has gone is computed, and says the same.
 *
 *     kept    in memory, the newest ones; and where the server has a store there too, under its limit, for later processes and
 *             for other servers of that store
 *     found   in memory at once; else the store's thread looks, and the event loop goes on
 *
 * In a store a conversation is an image (pleat/image.h) of no model: its salt is whose it is, its tokens are the bytes of the
 * id, its body is the text.  So it is checked, evicted and survives as images do, and nobody finds it who has another salt.
 */
#ifndef PLEAT_CLI_SERVE_CONVERSATIONS_H
#define PLEAT_CLI_SERVE_CONVERSATIONS_H

#include "pleat/pleat.h"

enum {
    CONVERSATIONS_MAX = 4096,           /* in memory */
    CONVERSATIONS_BYTES_MAX = 64 << 20, /* of their texts, and of all drafts */
    CONVERSATION_ID_MIN = 2,
    CONVERSATION_ID_MAX = 64
};

typedef struct conversations conversations;

/* store: outlives it; NULL: they are in memory alone. */
conversations *conversations_create(pleat_store *store);

/* No search is under way.  NULL is fine. */
void conversations_destroy(conversations **c);

/* The messages that an answer comes to.  A request of a few bytes may go on from many, so drafts are counted. */
typedef struct conversation_draft {
    char *text; /* [n] a list with an element at least, as JSON; NULL: nothing */
    size_t n;
} conversation_draft;

/* Take the text, which is freed where it cannot be.  0: there are too many bytes of drafts. */
int conversations_draft(conversations *c, char *text, size_t n, conversation_draft *out);

/* It is kept, or will not be. */
void conversations_forget(conversations *c, conversation_draft *draft);

/* Keep the draft with a message [n] behind it under an id that nobody else has.  cost_ns: what computing it costs. */
void conversations_keep(conversations *c, const char *salt, const char *id, const conversation_draft *draft,
                        const char *message, size_t n, double cost_ns);

/* How many are in memory. */
uint32_t conversations_count(const conversations *c);

/* A search; the first member of a record of its own. */
typedef struct conversation_search {
    struct conversation_search *next;
    pleat_store_fetch *fetch;
    void (*found)(struct conversation_search *search, const char *text, size_t n); /* NULL: it is not there */
} conversation_search;

typedef enum conversation_state {
    CONVERSATION_HERE,   /* *text [*n], until the next call */
    CONVERSATION_SOUGHT, /* `found` will say; the search is the conversations' until then */
    CONVERSATION_ABSENT,
    CONVERSATION_BUSY /* the store answers nothing now, or has too much to do */
} conversation_state;

conversation_state conversations_find(conversations *c, const char *salt, const char *id, conversation_search *search,
                                      const char **text, size_t *n);

/* Forget a search that is under way. */
void conversations_leave(conversations *c, conversation_search *search);

/* Readable when a search may have begun or ended; -1: there is no store. */
int conversations_fd(const conversations *c);

/* Tell those whose search is over.  1: others wait still, and are to be looked at again soon, since a disk that hangs says
 * nothing. */
int conversations_look(conversations *c);

#endif
