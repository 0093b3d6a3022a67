/* SPDX-License-Identifier: MIT
 *
 * contiguous.c: each request in one piece of an address space, whose free runs ("holes") stand in an array
 * by address and are merged when a piece between them comes back.
 *
 *     | piece | hole | piece | piece |  hole  |          first fit: the first hole that is large enough
 *                                                        best fit: the smallest such hole, of equals the first
 *
 * A piece grows into the hole behind it if that is large enough.  Else it moves: the new piece is taken while the old
 * one is still held, since its tokens have to be copied.
 */
#include <stdlib.h>
#include <string.h>

#include "allocators.h"

#define NOWHERE UINT32_MAX

/* ---- the address space ----------------------------------------------------------------------------------------- */

/* The first hole at or behind `at`. */
static uint32_t hole_from(const space *s, uint32_t at) {
    uint32_t low = 0, high = s->n_holes;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (s->holes[middle].start < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void hole_remove(space *s, uint32_t i) {
    s->n_holes--;
    memmove(s->holes + i, s->holes + i + 1, (s->n_holes - i) * sizeof *s->holes);
}

/* Take n tokens from the front of hole i. */
static uint32_t take_from(space *s, uint32_t i, uint32_t n) {
    const uint32_t start = s->holes[i].start;
    s->holes[i].start += n;
    s->holes[i].len -= n;
    s->n_free -= n;
    if (s->holes[i].len == 0) hole_remove(s, i);
    return start;
}

/* A piece of n tokens, or NOWHERE. */
static uint32_t take(space *s, uint32_t n, bool best_fit) {
    uint32_t found = NOWHERE;
    for (uint32_t i = 0; i < s->n_holes; i++) {
        if (s->holes[i].len < n || (found != NOWHERE && s->holes[i].len >= s->holes[found].len)) continue;
        found = i;
        if (!best_fit || s->holes[i].len == n) break;
    }
    return found == NOWHERE ? NOWHERE : take_from(s, found, n);
}

/* Take the n tokens from address `at`, if they are free. */
static bool take_at(space *s, uint32_t at, uint32_t n) {
    const uint32_t i = hole_from(s, at);
    if (i == s->n_holes || s->holes[i].start != at || s->holes[i].len < n) return false;
    take_from(s, i, n);
    return true;
}

static void give(space *s, uint32_t start, uint32_t n) {
    const uint32_t i = hole_from(s, start);
    const bool before = i > 0 && s->holes[i - 1].start + s->holes[i - 1].len == start;
    const bool behind = i < s->n_holes && start + n == s->holes[i].start;
    s->n_free += n;
    if (before) {
        s->holes[i - 1].len += n + (behind ? s->holes[i].len : 0);
        if (behind) hole_remove(s, i);
    } else if (behind) {
        s->holes[i].start = start;
        s->holes[i].len += n;
    } else {
        memmove(s->holes + i + 1, s->holes + i, (s->n_holes - i) * sizeof *s->holes);
        s->holes[i] = (hole){start, n};
        s->n_holes++;
    }
}

/* ---- the allocator --------------------------------------------------------------------------------------------- */

void contiguous_make(allocator *a) {
    a->start = need_memory(a->n_slots, sizeof *a->start);
    a->space.holes = need_memory((uint64_t)a->n_slots + 1, sizeof *a->space.holes);
    a->space.holes[0] = (hole){0, a->pool_tokens};
    a->space.n_holes = 1;
    a->space.n_free = a->pool_tokens;
}

void contiguous_free(allocator *a) {
    free(a->start);
    free(a->space.holes);
}

uint32_t contiguous_piece(const allocator *a, uint32_t n_tokens, uint32_t n_final) {
    uint32_t n = 1;
    switch (a->kind.how) {
        case KNOWN: return n_final;
        case DOUBLING:
            while (n < n_tokens) n *= 2;
            break;
        case STEPPING: n = pleat__div_up_u32(n_tokens, a->kind.block) * a->kind.block; break;
        default: n = a->max_tokens;
    }
    return pleat__min_u32(n, a->max_tokens);
}

bool contiguous_reserve(allocator *a, uint32_t slot, uint32_t n_tokens, uint32_t n_final) {
    const uint32_t old = a->capacity[slot], n = contiguous_piece(a, n_tokens, n_final);
    if (old == 0 || !take_at(&a->space, a->start[slot] + old, n - old)) {
        const uint32_t start = take(&a->space, n, a->kind.best_fit);
        if (start == NOWHERE) return false;
        if (old > 0) {
            give(&a->space, a->start[slot], old);
            a->moved += old; /* it was full */
        }
        a->start[slot] = start;
    }
    a->held += n - old;
    a->capacity[slot] = n;
    return true;
}

void contiguous_release(allocator *a, uint32_t slot) { give(&a->space, a->start[slot], a->capacity[slot]); }

uint32_t contiguous_largest(const allocator *a) {
    uint32_t largest = 0;
    for (uint32_t i = 0; i < a->space.n_holes; i++)
        if (a->space.holes[i].len > largest) largest = a->space.holes[i].len;
    return largest;
}

/* Marks n addresses from start; false if one is beyond the pool or marked. */
static bool mark(uint8_t *marks, uint32_t pool_tokens, uint32_t start, uint32_t n) {
    if (start > pool_tokens || n > pool_tokens - start || memchr(marks + start, 1, n)) return false;
    memset(marks + start, 1, n);
    return true;
}

bool contiguous_is_valid(const allocator *a) {
    const space *s = &a->space;
    uint8_t *marks = need_memory(a->pool_tokens, 1);
    uint64_t n_free = 0;
    bool ok = true;
    for (uint32_t i = 0; i < s->n_holes; i++) {
        n_free += s->holes[i].len;
        ok = ok && s->holes[i].len > 0 && mark(marks, a->pool_tokens, s->holes[i].start, s->holes[i].len);
        ok = ok && (i == 0 || s->holes[i - 1].start + s->holes[i - 1].len < s->holes[i].start);
    }
    for (uint32_t slot = 0; slot < a->n_slots; slot++)
        ok = ok && (a->capacity[slot] == 0 || mark(marks, a->pool_tokens, a->start[slot], a->capacity[slot]));
    ok = ok && n_free == s->n_free && !memchr(marks, 0, a->pool_tokens);
    free(marks);
    return ok;
}
