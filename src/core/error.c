/* SPDX-License-Identifier: MIT
 *
 * error.c: statuses in words.
 */
#include "core/error.h"

#include <stdarg.h>
#include <stdio.h>

pleat_status pleat__error_set(pleat_error *err, pleat_status code, uint64_t where, const char *fmt, ...) {
    if (!err) return code;
    err->code = code;
    err->where = where;
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    return code;
}

const char *pleat_status_str(pleat_status status) {
    switch (status) {
        case PLEAT_OK: return "ok";
        case PLEAT_AGAIN: return "not enough free pages";
        case PLEAT_E_ARG: return "bad argument";
        case PLEAT_E_STATE: return "not allowed in this state";
        case PLEAT_E_MEMORY: return "out of memory";
        case PLEAT_E_IO: return "refused by the operating system";
        case PLEAT_E_FORMAT: return "damaged file";
        case PLEAT_E_UNSUPPORTED: return "unsupported";
        case PLEAT_E_SYNTAX: return "syntax error";
        case PLEAT_E_LIMIT: return "over the limit";
        case PLEAT_E_RANGE: return "a value is not finite, or too large";
        case PLEAT_E_DEVICE: return "no GPU, or it failed";
        default: return "unknown status";
    }
}
