/* SPDX-License-Identifier: MIT
 *
 * error.h: filling a caller's pleat_error, and the two macros that keep error paths short.
 */
#ifndef PLEAT_CORE_ERROR_H
#define PLEAT_CORE_ERROR_H

#include "core/types.h"

/* Fill *err (may be NULL) and return `code`.  Text that is too long is cut. */
pleat_status pleat__error_set(pleat_error *err, pleat_status code, uint64_t where, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Return from the function with the status of `expr` unless it is PLEAT_OK. */
#define PLEAT_TRY(expr)                                  \
    do {                                                 \
        const pleat_status try_status_ = (expr);         \
        if (try_status_ != PLEAT_OK) return try_status_; \
    } while (0)

/* Return `code` from the function, saying why, if `cond` holds. */
#define PLEAT_FAIL_IF(cond, err, code, where, ...)                              \
    do {                                                                        \
        if (cond) return pleat__error_set((err), (code), (where), __VA_ARGS__); \
    } while (0)

#endif
