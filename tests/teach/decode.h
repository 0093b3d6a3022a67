/* SPDX-License-Identifier: MIT
 *
 * decode.h: codebooks as bytes and a payload to numbers, by docs/FORMAT.md alone.  Nothing of the library is used: its
 * tests compare the two.  program.c makes a program of it.
 */
#ifndef TEACH_DECODE_H
#define TEACH_DECODE_H

#include <stddef.h>
#include <stdint.h>

/* What a reader has to know (section 1). */
typedef struct teach_format {
    unsigned T, d, g;
    int by_channel;
    unsigned k_levels, v_levels;
    int k_compact, v_compact;               /* units may be COMPACT */
    unsigned coder;                         /* 0 RAW, 1 HUFFMAN, 2 PACK */
    const uint8_t *k_codebook, *v_codebook; /* as bytes (section 6); HUFFMAN */
    unsigned sum;                           /* of section 9 */
} teach_format;

/* Section 9: what its bytes say.  Codebooks are not copied.  Returns NULL, or what is wrong with the bytes. */
const char *teach_codebooks(teach_format *f, const uint8_t *bytes, size_t n_bytes);

/* A payload's keys and values by token, [T][d].  Returns NULL, or what is wrong with the payload. */
const char *teach_decode(const teach_format *f, const uint8_t *payload, size_t n_bytes, float *k, float *v);

#endif
