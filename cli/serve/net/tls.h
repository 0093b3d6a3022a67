/* SPDX-License-Identifier: MIT
 *
 * tls.h: HTTPS: a certificate and its key, and accepted sockets behind them, by OpenSSL and libevent's bufferevents.
 *
 * TLS 1.2 and newer, without renegotiation.  A build without OpenSSL or libevent_openssl refuses in tls_open().
 *
 * What a handshake may take is the connection's time for a head (NET_HEAD_S).
 */
#ifndef PLEAT_CLI_SERVE_TLS_H
#define PLEAT_CLI_SERVE_TLS_H

#include <stddef.h>

struct event_base;
struct bufferevent;

typedef struct tls tls;

/* Read a certificate, with those that lead to its root behind it, and its key, both PEM.  NULL with words in why, cap
 * bytes, that name the file: it cannot be read, holds no such thing, wants a pass phrase, or the key is another's. */
tls *tls_open(const char *cert_file, const char *key_file, char *why, size_t cap);
void tls_close(tls **t);

/* A bufferevent on an accepted socket, which it closes when it is freed.  NULL: no memory; the socket stays open. */
struct bufferevent *tls_accept(tls *t, struct event_base *base, int fd);

/* Tell the client that nothing follows. */
void tls_end(struct bufferevent *bev);

#endif
