/* SPDX-License-Identifier: MIT
 *
 * types.h: start here.  The vocabulary of the source, its ids and its fixed sizes.
 *
 * A *sequence* is one request's tokens.  A *lane* is one (sequence, layer, KV head): the unit that a policy acts on and
 * that one row of a block table describes.  A *format* says how a token's key and value are stored.  A *page* is a
 * fixed number of bytes of the pool.  It gets a format when it is taken, and then holds that format's number of
 * *slots*, one token each, in *tiles* of 16.  (A page of the operating system is always called an OS page.) A
 * sequence's *block table* says which pages hold its tokens: one row a lane.  (The word is vLLM's, whose block is our
 * page.  Our *block* is consecutive tokens of a lane, compressed together; codec/block.h.)
 *
 *     cache ─┬─ pool: pages, circular free list, reference counts
 *            └─ sequence ── block table: one row a lane ── page ids ── pages ── tiles ── slots
 *
 * Tokens of a lane stand on its *high side* (row filled from the left) or *low side* (from the right).  A cache of one
 * format uses the high side only.
 *
 * A *step* runs the model over new tokens: a *chunk* of a prompt (prefill), or one token a sequence (decode).
 * *Attention received* is the sum of the weights that later queries gave a token; it is the token's *score*, from which
 * a *policy* decides what stays, high or low.  A page that no slot needs is *returned* to the pool.  docs/GLOSSARY.md
 * has every word.
 *
 * Names: pleat_x is public API, pleat__x is shared between folders of src/, a name without a prefix is local to its
 * file.  The unit or kind stands last: _bytes, _tokens, _pages, _ns; n_x counts x, x_idx indexes, x_cap is a capacity,
 * max_x a limit.
 */
#ifndef PLEAT_CORE_TYPES_H
#define PLEAT_CORE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pleat/common.h"
#include "pleat/spec.h"

/* Index of a page in its pool. */
typedef struct pleat__page_id {
    uint32_t v;
} pleat__page_id;

/* Tokens in a tile: the kernels' step.  One 512-bit register of f32 logits. */
#define PLEAT__TILE 16u

/* Alignment of pages, tiles and workspaces: one cache line, one 512-bit register. */
#define PLEAT__ALIGN 64u

/* The largest f16.  Values beyond are clamped when they are stored. */
#define PLEAT__F16_MAX 65504.0f

/* Most query heads that share one KV head. */
#define PLEAT__MAX_GROUP 64u

/* Largest head_dim: sizes the kernels' stack buffers. */
#define PLEAT__MAX_HEAD_DIM 512u

static inline uint32_t pleat__min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint32_t pleat__max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* a / b rounded up; b > 0 and a + b does not wrap. */
static inline uint32_t pleat__div_up_u32(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

#endif
