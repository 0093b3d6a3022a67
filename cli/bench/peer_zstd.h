/* SPDX-License-Identifier: MIT
 *
 * peer_zstd.h: zstd's entropy coders, as rivals to measure codecs against: its Huffman coder and FSE.
 *
 *     init (tables from all codes) ──> encode ──> decode (any number) ──> release
 *
 * One byte a code, in chunks of 128 KiB, the most that zstd codes at once.  Huffman's tables are made once and not
 * counted; FSE's stand in front of each chunk, as there is no other way in.  Where the build found no static library of a
 * known version, `literals` is ZSTD_compress2() told to seek no matches, which leaves its Huffman coder and a frame
 * around it; without zstd there are no peers.
 */
#ifndef PLEAT_CLI_PEER_ZSTD_H
#define PLEAT_CLI_PEER_ZSTD_H

#include <stddef.h>
#include <stdint.h>

typedef enum peer_coder {
    PEER_HUFFMAN_X1, /* a symbol a lookup */
    PEER_HUFFMAN_X2, /* up to two */
    PEER_LITERALS,
    PEER_FSE,
    PEER_CODERS
} peer_coder;

/* Most codes of a chunk. */
#define PEER_CHUNK ((size_t)128 << 10)

/* "huffman-x1", ... */
const char *peer_name(peer_coder coder);

/* Whether this build has it. */
int peer_has(peer_coder coder);

/* "zstd 1.5.4 (Huffman, FSE)", "zstd 1.5.4 (literals)" or "no zstd". */
const char *peer_describe(void);

typedef struct peer {
    peer_coder coder;
    size_t n_codes, n_chunks;
    uint8_t *bytes; /* chunk i at i * cap */
    size_t cap;
    size_t *n_bytes; /* [n_chunks] */
    void *state;     /* tables */
} peer;

/* Tables for these n codes, at least one, and room for what they are coded to.  0: no such coder here, or it failed. */
int peer_init(peer *p, peer_coder coder, const uint8_t *codes, size_t n);
void peer_release(peer *p);

/* The codes of init.  0 if zstd fails. */
int peer_encode(peer *p, const uint8_t *codes);

/* Decode chunk after chunk to `out` [PEER_CHUNK], each over the one before; check: compare them with these codes, or
 * NULL.  0 if zstd fails or they differ. */
int peer_decode(peer *p, uint8_t *out, const uint8_t *check);

/* Bytes of all chunks. */
size_t peer_bytes(const peer *p);

#endif
