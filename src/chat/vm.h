/* SPDX-License-Identifier: MIT
 *
 * vm.h: what one compilation or one rendering works with: its memory, its limits, and how it says what went wrong.
 *
 * Nothing is freed one by one: memory is taken from chunks, and all chunks are returned at the end.  So whatever a
 * template does is bounded by `max_bytes`, and pointers stay good until then.  A string that was made last may grow
 * where it stands, so text that one expression builds up does not take the square of its length.  Text that a loop
 * gathers in a variable does, and ends at the bound.
 *
 *     chunk ── chunk ── chunk        at ──> the next free byte of the newest chunk
 *
 * Three counts bound a template from a stranger: bytes taken, steps (a node evaluated, an item visited, 64 bytes
 * looked at), and depth (nodes inside nodes, macros inside macros, lists inside lists).  Each ends with PLEAT_E_LIMIT.
 */
#ifndef PLEAT_CHAT_VM_H
#define PLEAT_CHAT_VM_H

#include "core/error.h"
#include "core/types.h"

typedef struct pleat__vm_chunk pleat__vm_chunk;

typedef struct pleat__vm {
    pleat_allocator al;
    pleat__vm_chunk *chunks; /* the newest first; NULL: none yet */
    uint8_t *at, *end;       /* free bytes of the newest chunk */
    uint64_t used_bytes, max_bytes;
    uint64_t steps, max_steps;
    uint32_t depth, max_depth;
    uint32_t line;    /* of the template, from 1; 0: no place in it is meant */
    int64_t now;      /* seconds since 1970 for strftime_now(); negative: the clock's */
    pleat_error *err; /* may be NULL */
} pleat__vm;

/* Bytes aligned to 16, not cleared; n_bytes may be 0. */
pleat_status pleat__vm_take(pleat__vm *vm, uint64_t n_bytes, void **out);

/* Bytes without alignment, for text. */
pleat_status pleat__vm_take_text(pleat__vm *vm, uint64_t n_bytes, char **out);

/* Whether `more` bytes could be put right behind p[0..n), the newest text; they are taken then. */
bool pleat__vm_extend(pleat__vm *vm, const char *p, uint64_t n, uint64_t more);

/* Count `n` steps. */
pleat_status pleat__vm_charge(pleat__vm *vm, uint64_t n);

/* One deeper; pleat__vm_leave() has to follow where this is PLEAT_OK. */
pleat_status pleat__vm_enter(pleat__vm *vm);
static inline void pleat__vm_leave(pleat__vm *vm) { vm->depth--; }

/* Fill the error, "line N: " in front, and return `code`. */
pleat_status pleat__vm_fail(pleat__vm *vm, pleat_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Return all memory.  The limits and the error stay. */
void pleat__vm_release(pleat__vm *vm);

#endif
