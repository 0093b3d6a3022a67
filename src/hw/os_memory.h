/* SPDX-License-Identifier: MIT
 *
 * os_memory.h: what the operating system can be told about memory.
 */
#ifndef PLEAT_HW_OS_MEMORY_H
#define PLEAT_HW_OS_MEMORY_H

#include "core/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Ask for huge OS pages behind [p, p + bytes).  Pages of a pool are visited in no order, and with small OS pages
 * address translation would cost more than the reading.  A hint: nothing is lost if it is not taken. */
void pleat__os_advise_huge(void *p, uint64_t bytes);

/* [p, p + bytes) of a file that is mapped for reading alone needs no memory for now; what is read of it again comes
 * from the file.  A hint, of whole OS pages.  Never of other memory, whose contents would be lost. */
void pleat__os_release_mapped(const void *p, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
