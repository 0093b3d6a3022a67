/* SPDX-License-Identifier: MIT
 *
 * zstd_probe.c: does it link?  With PROBE_PARTS what cli/bench/peer_zstd_parts.h declares, else <zstd.h> alone.
 */
#include <zstd.h>

#ifdef PROBE_PARTS
#if ZSTD_VERSION_NUMBER < 10504 || ZSTD_VERSION_NUMBER > 10506
#error "peer_zstd_parts.h was not compared with this version of zstd"
#endif
#include "cli/bench/peer_zstd_parts.h"

static void *const parts[] = {
    (void *)HUF_isError,
    (void *)HUF_buildCTable_wksp,
    (void *)HUF_writeCTable_wksp,
    (void *)HUF_compress4X_usingCTable,
    (void *)HUF_readDTableX1_wksp,
    (void *)HUF_readDTableX2_wksp,
    (void *)HUF_decompress4X_usingDTable,
    (void *)FSE_isError,
    (void *)FSE_optimalTableLog,
    (void *)FSE_normalizeCount,
    (void *)FSE_writeNCount,
    (void *)FSE_buildCTable_wksp,
    (void *)FSE_compress_usingCTable,
    (void *)FSE_decompress_wksp_bmi2,
};
#else
static void *const parts[] = {(void *)ZSTD_compress2, (void *)ZSTD_decompressDCtx};
#endif

int main(int argc, char **argv) {
    (void)argv;
    return ZSTD_versionNumber() != ZSTD_VERSION_NUMBER || !parts[argc % (int)(sizeof parts / sizeof parts[0])];
}
