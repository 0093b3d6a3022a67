/* SPDX-License-Identifier: MIT
 *
 * peer_zstd_parts.h: the entropy coders inside of zstd, which its static library has and <zstd.h> does not declare.
 *
 * These prototypes are those of zstd 1.5.4 to 1.5.6 and of no other version for sure: the build compiles and links
 * cmake/zstd_probe.c before it believes them.
 */
#ifndef PLEAT_CLI_PEER_ZSTD_PARTS_H
#define PLEAT_CLI_PEER_ZSTD_PARTS_H

#include <stddef.h>
#include <stdint.h>

/* Words of memory that are enough, longest words, and a flag. */
#define HUF_TABLELOG_DEFAULT 11
#define HUF_CTABLE_WORDS (255 + 2) /* size_t */
#define HUF_WORK_WORDS 2048        /* uint32_t: no function wants more */
#define HUF_DTABLE_LOG 12
#define HUF_DTABLE_WORDS (1 + (1 << HUF_DTABLE_LOG))
#define HUF_FLAG_BMI2 1
#define FSE_TABLELOG_DEFAULT 11
#define FSE_CTABLE_WORDS (1 + (1 << 11) + 2 * 256)
#define FSE_WORK_WORDS 16384

unsigned HUF_isError(size_t code);
size_t HUF_buildCTable_wksp(size_t *table, const unsigned *count, uint32_t max_symbol, uint32_t max_bits, void *work,
                            size_t work_bytes);
size_t HUF_writeCTable_wksp(void *dst, size_t cap, const size_t *table, unsigned max_symbol, unsigned bits, void *work,
                            size_t work_bytes);
size_t HUF_compress4X_usingCTable(void *dst, size_t cap, const void *src, size_t n, const size_t *table, int flags);
size_t HUF_readDTableX1_wksp(uint32_t *table, const void *src, size_t n, void *work, size_t work_bytes, int flags);
size_t HUF_readDTableX2_wksp(uint32_t *table, const void *src, size_t n, void *work, size_t work_bytes, int flags);
size_t HUF_decompress4X_usingDTable(void *dst, size_t n_out, const void *src, size_t n, const uint32_t *table,
                                    int flags);

unsigned FSE_isError(size_t code);
unsigned FSE_optimalTableLog(unsigned most, size_t n, unsigned max_symbol);
size_t FSE_normalizeCount(short *normal, unsigned log, const unsigned *count, size_t n, unsigned max_symbol,
                          unsigned low_prob);
size_t FSE_writeNCount(void *dst, size_t cap, const short *normal, unsigned max_symbol, unsigned log);
size_t FSE_buildCTable_wksp(unsigned *table, const short *normal, unsigned max_symbol, unsigned log, void *work,
                            size_t work_bytes);
size_t FSE_compress_usingCTable(void *dst, size_t cap, const void *src, size_t n, const unsigned *table);
size_t FSE_decompress_wksp_bmi2(void *dst, size_t cap, const void *src, size_t n, unsigned max_log, void *work,
                                size_t work_bytes, int bmi2);

#endif
