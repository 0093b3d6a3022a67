/* SPDX-License-Identifier: MIT
 *
 * address.h: a list of servers: redis://[[USER]:PASSWORD@]HOST:PORT[,HOST:PORT]...  A host of IPv6 stands in brackets.  One password
 * is that of all; in it and in the user %XX is a byte, and @ , : / % stand as that.
 */
#ifndef PLEAT_STORE_SERVERS_ADDRESS_H
#define PLEAT_STORE_SERVERS_ADDRESS_H

#include "core/types.h"

enum { PLEAT__SERVERS_MAX = 16, PLEAT__SERVER_HOST_CAP = 254, PLEAT__SERVER_WORD_CAP = 257 };

typedef struct pleat__server_address {
    char host[PLEAT__SERVER_HOST_CAP]; /* without brackets */
    uint16_t port;                     /* >= 1 */
} pleat__server_address;

typedef struct pleat__server_login {
    char user[PLEAT__SERVER_WORD_CAP];     /* "": the default one */
    char password[PLEAT__SERVER_WORD_CAP]; /* "": none is asked for */
} pleat__server_login;

/* The addresses in a text, and the login; returns how many, 1..PLEAT__SERVERS_MAX, or 0: it is no such list. */
uint32_t pleat__server_addresses(const char *text, pleat__server_address out[PLEAT__SERVERS_MAX],
                                 pleat__server_login *login);

#endif
