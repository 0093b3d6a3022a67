/* SPDX-License-Identifier: MIT
 *
 * version.c: the library's version.  pleat_build_info() is in model/build_info.c, which sees what the build holds.
 */
#include "pleat/version.h"

const char *pleat_version(void) { return PLEAT_VERSION_STRING; }
