/* SPDX-License-Identifier: MIT
 *
 * hash.c: see hash.h.
 */
#include "hash.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/lib/common.h"
#include "cli/lib/interrupt.h"
#include "cli/lib/progress.h"

enum { PIECE_BYTES = 1 << 20 };

static int hash_all(EVP_MD_CTX *md, int fd, const char *path, uint64_t n_bytes, unsigned char *piece) {
    for (uint64_t done = 0; done < n_bytes;) {
        const size_t wanted = n_bytes - done < PIECE_BYTES ? (size_t)(n_bytes - done) : PIECE_BYTES;
        const ssize_t n = pread(fd, piece, wanted, (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (interrupt_came()) return CLI_INTERRUPTED;
        if (n <= 0 || EVP_DigestUpdate(md, piece, (size_t)n) != 1) {
            cli_error("cannot read %s: %s", path, n < 0 ? strerror(errno) : "it became shorter");
            return CLI_FAILED;
        }
        done += (uint64_t)n;
        progress_update(done / 1000000);
    }
    return CLI_OK;
}

int hub_hash(int fd, const char *path, uint64_t n_bytes, int is_quiet, char hex[65]) {
    unsigned char digest[EVP_MAX_MD_SIZE] = {0};
    unsigned char *piece = cli_alloc(PIECE_BYTES, 1);
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    int code = CLI_OK;
    if (!md || EVP_DigestInit_ex(md, EVP_sha256(), NULL) != 1) {
        cli_error("cannot compute SHA-256");
        code = CLI_FAILED;
    }
    progress_begin("checking its SHA-256, MB", n_bytes / 1000000, !is_quiet);
    if (code == CLI_OK) code = hash_all(md, fd, path, n_bytes, piece);
    progress_end();
    if (code == CLI_OK) EVP_DigestFinal_ex(md, digest, NULL);
    for (int i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    EVP_MD_CTX_free(md);
    free(piece);
    return code;
}
