/* SPDX-License-Identifier: MIT
 *
 * status.h: how Pleat says that something went wrong.
 *
 * Every function that can fail returns a pleat_status and gives its results through pointers.  On an
 * error it writes no output and leaves its objects as they were.  Nothing in the library exits,
 * aborts or prints.
 */
#ifndef PLEAT_STATUS_H
#define PLEAT_STATUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PLEAT_API __attribute__((visibility("default")))
#else
#define PLEAT_API
#endif

/* 0 is success, positive is flow control, negative is an error.  Numbers never change meaning;
 * the gaps are for later codes. */
typedef int pleat_status;
enum {
    PLEAT_OK = 0,
    PLEAT_AGAIN = 1,           /* not enough free pages now: free some and call again */
    PLEAT_E_ARG = -1,          /* misuse: a bad argument; nothing changed */
    PLEAT_E_STATE = -2,        /* the call is not allowed in the object's state */
    PLEAT_E_MEMORY = -10,      /* the allocator returned NULL */
    PLEAT_E_IO = -11,          /* the operating system refused: file, mapping, thread */
    PLEAT_E_FORMAT = -20,      /* a file is damaged or not what it says it is */
    PLEAT_E_UNSUPPORTED = -21, /* well-formed, but something Pleat does not know */
    PLEAT_E_SYNTAX = -22,      /* a KV spec or a text could not be parsed; error.where says where */
    PLEAT_E_LIMIT = -30,       /* longer than the context, or more than the object was made for */
    PLEAT_E_RANGE = -31,       /* a value is NaN, infinite or too large to compute with */
    PLEAT_E_DEVICE = -40       /* no such GPU, a driver too old for it, or it failed */
};

/* What a loader or parser can say beyond the status.  Filled when the status is not PLEAT_OK.
 *   where   offset in bytes into the file or text at fault; PLEAT_NOWHERE if that has no meaning
 *   text    one line for a person, NUL-terminated, without a newline at its end */
#define PLEAT_NOWHERE UINT64_MAX
typedef struct pleat_error {
    pleat_status code;
    uint64_t where;
    char text[240];
} pleat_error;

/* A few words for a status, e.g. "out of memory"; "unknown status" for other numbers.  Static. */
PLEAT_API const char *pleat_status_str(pleat_status status);

#ifdef __cplusplus
}
#endif
#endif
