/* SPDX-License-Identifier: MIT
 *
 * servers.h: a shelf that is servers which speak Redis's protocol: what one machine has computed, others find.
 *
 *     pleat:DIGITS            the image's head; DIGITS are its key's
 *     pleat:DIGITS:SUM:i      piece i of its body; SUM are the digits of the head's own sum
 *
 * With n servers, s being the first byte of the key, the head is on server s % n and piece i on (s + i) % n.  A piece is found
 * through its head alone, which is written last.  So a body is whole, or a piece of it is missing: a server may drop what it
 * likes whenever it likes, and keys go by themselves ttl_s after they were written or last read (GETEX, Redis 6.2).
 *
 * Pieces are asked for ahead of those that are read, IN_FLIGHT of them; so all servers send at once.
 */
#ifndef PLEAT_STORE_SERVERS_SERVERS_H
#define PLEAT_STORE_SERVERS_SERVERS_H

#include "store/internal.h"
#include "store/servers/server.h"

/* Connections of one thread's. */
typedef struct pleat__server_group {
    pleat__server server[PLEAT__SERVERS_MAX];
    uint32_t n;
    bool is_down[PLEAT__SERVERS_MAX]; /* as it was last counted; guarded by the store's lock */
    char buffer[PLEAT__SERVER_BUFFER_BYTES];
} pleat__server_group;

typedef struct pleat__servers {
    pleat_store *store;
    uint32_t ttl_s;
    pleat__server_login login;
    pthread_mutex_t read_lock; /* guards `readers` */
    bool has_lock;
    pleat__server_group readers, writers;
} pleat__servers;

/* The shelf of o->servers. */
pleat_status pleat__servers_open(pleat_store *store, const pleat_store_options *o, pleat__shelf *out, pleat_error *err);

#endif
