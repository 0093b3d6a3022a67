/* SPDX-License-Identifier: MIT
 *
 * version.h: Pleat's version, at compile time and at run time.
 */
#ifndef PLEAT_VERSION_H
#define PLEAT_VERSION_H

#include "pleat/common.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLEAT_VERSION_MAJOR 0
#define PLEAT_VERSION_MINOR 2
#define PLEAT_VERSION_PATCH 0
#define PLEAT_VERSION_STRING "0.2.0"

/* The version of the library in use, e.g. "0.2.0".  Static storage. */
PLEAT_API const char *pleat_version(void);

/* What this build holds and what it found on this machine, in one line, e.g. "GEMM: oneDNN 2.6.3; cpu: avx2 avx512
 * avx512_vnni; cuda: not in this build".  CPU features that pleat_cpu_mask() removed are left out.  Static storage,
 * written anew by each call: not thread-safe. */
PLEAT_API const char *pleat_build_info(void);

#ifdef __cplusplus
}
#endif
#endif
