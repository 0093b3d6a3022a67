/* SPDX-License-Identifier: MIT
 *
 * amx.h: how AMX's tile registers are shaped, and what gcc has to be told of their instructions.
 */
#ifndef PLEAT_CORE_X86_AMX_H
#define PLEAT_CORE_X86_AMX_H

#include <stdint.h>

/* What LDTILECFG reads, palette 1: of a register that is used, its rows, at most 16, and their bytes, at most 64. */
typedef struct pleat__amx_config {
    uint8_t palette, start_row, zeros[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} pleat__amx_config;
_Static_assert(sizeof(pleat__amx_config) == 64, "LDTILECFG reads 64 bytes");

/* gcc 12 does not know what tile instructions read: stores before this come before them, stores after it after. */
#define PLEAT__AMX_READS(p) __asm__ volatile("" ::"r"(p) : "memory")

#endif
