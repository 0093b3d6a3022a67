/* SPDX-License-Identifier: MIT
 *
 * address.h: a list of servers: redis://HOST:PORT[,HOST:PORT]...  A host of IPv6 stands in brackets.
 */
#ifndef PLEAT_STORE_SERVERS_ADDRESS_H
#define PLEAT_STORE_SERVERS_ADDRESS_H

#include "core/types.h"

enum { PLEAT__SERVERS_MAX = 16, PLEAT__SERVER_HOST_CAP = 254 };

typedef struct pleat__server_address {
    char host[PLEAT__SERVER_HOST_CAP]; /* without brackets */
    uint16_t port;                     /* >= 1 */
} pleat__server_address;

/* The addresses in a text; returns how many, 1..PLEAT__SERVERS_MAX, or 0: it is no such list. */
uint32_t pleat__server_addresses(const char *text, pleat__server_address out[PLEAT__SERVERS_MAX]);

#endif
