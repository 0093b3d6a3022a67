/* SPDX-License-Identifier: MIT
 *
 * tls.c: see tls.h.
 */
#include "tls.h"

#include <stdio.h>

#if PLEAT_TLS

#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdlib.h>

#include "cli/lib/common.h"

struct tls {
    SSL_CTX *ctx;
};

/* OpenSSL would ask a terminal. */
static int no_pass_phrase(char *buffer, int n, int is_writing, void *arg) {
    (void)buffer, (void)n, (void)is_writing, (void)arg;
    return -1;
}

static tls *refuse(tls *t, char *why, size_t cap, const char *option, const char *file, const char *what) {
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    snprintf(why, cap, "%s %s: %s%s%s%s", option, file, what, reason ? " (OpenSSL: " : "", reason ? reason : "",
             reason ? ")" : "");
    ERR_clear_error();
    tls_close(&t);
    return NULL;
}

tls *tls_open(const char *cert_file, const char *key_file, char *why, size_t cap) {
    tls *t = cli_alloc(1, sizeof *t);
    ERR_clear_error();
    t->ctx = SSL_CTX_new(TLS_server_method());
    if (!t->ctx || SSL_CTX_set_min_proto_version(t->ctx, TLS1_2_VERSION) != 1)
        return refuse(t, why, cap, "--tls-cert", cert_file, "no TLS is to be had");
    SSL_CTX_set_options(t->ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(t->ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_default_passwd_cb(t->ctx, no_pass_phrase);
    if (SSL_CTX_use_certificate_chain_file(t->ctx, cert_file) != 1)
        return refuse(t, why, cap, "--tls-cert", cert_file, "there is no certificate in it");
    const int has_key = SSL_CTX_use_PrivateKey_file(t->ctx, key_file, SSL_FILETYPE_PEM) == 1;
    const int reason = ERR_GET_REASON(ERR_peek_last_error());
    if (!has_key && reason != X509_R_KEY_VALUES_MISMATCH && reason != X509_R_KEY_TYPE_MISMATCH)
        return refuse(t, why, cap, "--tls-key", key_file, "there is no key in it that needs no pass phrase");
    if (!has_key || SSL_CTX_check_private_key(t->ctx) != 1) {
        char what[512];
        snprintf(what, sizeof what, "this is not the key of the certificate in %.400s", cert_file);
        return refuse(t, why, cap, "--tls-key", key_file, what);
    }
    return t;
}

void tls_close(tls **t) {
    if (!*t) return;
    SSL_CTX_free((*t)->ctx);
    free(*t);
    *t = NULL;
}

struct bufferevent *tls_accept(tls *t, struct event_base *base, int fd) {
    SSL *ssl = SSL_new(t->ctx);
    if (!ssl) return NULL;
    struct bufferevent *bev =
        bufferevent_openssl_socket_new(base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    if (bev)
        bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    else
        SSL_free(ssl);
    return bev;
}

void tls_end(struct bufferevent *bev) {
    SSL *ssl = bufferevent_openssl_get_ssl(bev);
    if (ssl && SSL_is_init_finished(ssl)) (void)SSL_shutdown(ssl);
    ERR_clear_error();
}

#else

tls *tls_open(const char *cert_file, const char *key_file, char *why, size_t cap) {
    (void)key_file;
    snprintf(why, cap, "--tls-cert %s: this build has no TLS (libssl and libevent_openssl)", cert_file);
    return NULL;
}

void tls_close(tls **t) { *t = NULL; }

struct bufferevent *tls_accept(tls *t, struct event_base *base, int fd) {
    (void)t, (void)base, (void)fd;
    return NULL;
}

void tls_end(struct bufferevent *bev) { (void)bev; }

#endif
