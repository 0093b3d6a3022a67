/* SPDX-License-Identifier: MIT
 *
 * os_memory.h: what the operating system can be told about memory.
 */
#ifndef PLEAT_HW_OS_MEMORY_H
#define PLEAT_HW_OS_MEMORY_H

#include "core/types.h"

/* Ask for huge OS pages behind [p, p + bytes).  Pages of a pool are visited in no order, and with small OS pages
 * address translation would cost more than the reading.  A hint: nothing is lost if it is not taken. */
void pleat__os_advise_huge(void *p, uint64_t bytes);

#endif
