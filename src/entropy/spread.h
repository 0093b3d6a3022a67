/* SPDX-License-Identifier: MIT
 *
 * spread.h: the table by which kernels without an instruction for it hand a stream's next bytes to stream lanes.
 */
#ifndef PLEAT_ENTROPY_SPREAD_H
#define PLEAT_ENTROPY_SPREAD_H

#include <stdint.h>

/* Of a mask of eight lanes: byte j says which of the next bytes lane j takes, 0x80 where it takes none.  As a shuffle's
 * indices: 0x80 makes zero, on x86 and on Arm. */
extern const uint64_t pleat__spread[256];

#endif
