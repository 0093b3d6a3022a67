/* SPDX-License-Identifier: MIT
 *
 * pages.h: pool.h, table.h and plan.h on a GPU: the circular list of free pages, reference counts and all rows of all
 * sequences in device memory, and the kernels that change them.  Integers only.
 *
 *     plan      each lane counts the pages that it takes and those that it returns
 *     scan      exclusive prefix sums over the lanes, in the order of the batch: offsets from start and from end
 *     commit    each lane copies ids between the ring and its row
 *
 * in one launch; which ids a lane gets depends on the order of lanes alone, and they are those that page/plan.h and
 * page/pool.h give for the same input.  A plan that does not fit changes nothing, counts in pool->n_refused and leaves
 * pool->refused set, which the step's later kernels test.  LeanKV, section 5.3.
 *
 *     prompt       reserve ... settle      a row's pages taken at once, then parted between its sides
 *     generation   take, append ... trim   or step, append ...: trim and take in one launch
 *     end          close
 *
 * Rules
 *  1. Calls only launch kernels: no allocation, no wait, no memory of the host.  All can be recorded in a graph, which
 *     then sees what the batch (seq_idxs) and the counts are when it runs.
 *  2. Work on one set of pages belongs to one stream at a time.
 *  3. Pool, counts and rows obey pool.h's and table.h's equations between calls; pages.cuh has what kernels of others
 *     may do to n_slots and hole.
 *  4. A row has room for what is wanted: the caller sees to it.  Were there none, the plan would count as one that does
 *     not fit; nothing is ever written outside a row.
 */
#ifndef PLEAT_PAGE_CUDA_PAGES_H
#define PLEAT_PAGE_CUDA_PAGES_H

#include "core/types.h"
#include "hw/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* pool.h's counters, in device memory. */
typedef struct pleat__device_pool {
    uint32_t n_pages;
    uint32_t start;
    uint32_t n_free;
    uint32_t n_peak;
    uint64_t n_shares;
    uint64_t n_refused; /* plans that did not fit, since the pool was made */
    uint32_t refused;   /* 1: the last plan (take, step, reserve) did not fit */
    uint32_t n_faults;  /* rows that settle found with more slots than reserved pages hold: 0, unless a caller errs */
} pleat__device_pool;

/* Handed to kernels by value; every pointer is device memory.  Rows and cells as core/device_view.h has them. */
typedef struct pleat__device_pages {
    pleat__device_pool *pool;
    uint32_t *ring;       /* [n_pages] */
    uint32_t *shares;     /* [n_pages] references beyond the first */
    uint32_t *ids;        /* [n_rows][row_len] */
    uint32_t *n_pages[2]; /* [side][n_rows] */
    uint32_t *n_slots[2]; /* [side][n_rows] */
    uint32_t *hole;       /* [n_rows] 1 + the dead slot of the high side that the next token takes; 0: none */
    uint32_t *dead;       /* [n_rows] dead slots of the high side that no token takes */
    uint32_t *drops;      /* [n_pages] scratch of trim where pages are shared; zeros between calls */
    uint64_t *sync;       /* [PLEAT__DEVICE_SYNC_WORDS] how blocks of one launch find each other */
    uint32_t n_rows, row_len;
    uint32_t page_tokens[2];
    uint32_t rows_per_seq; /* n_layers * n_kv_heads */
    const uint32_t
        *seq_idxs; /* [n_seqs] the batch: lanes are its rows, sequence by sequence; none stands in it twice */
    uint32_t n_seqs;
} pleat__device_pages;

/* Words of pages.sync; the last one is the next launch's tag. */
#define PLEAT__DEVICE_SYNC_WORDS 520u
#define PLEAT__DEVICE_SYNC_TAG (PLEAT__DEVICE_SYNC_WORDS - 1)

/* What every lane of the batch wants: plan.h's pleat__want. */
typedef struct pleat__device_want {
    uint32_t n_new[2]; /* slots, [side] */
    bool fill_hole;    /* a lane with a hole needs one high slot less */
    /* Not NULL: [seq_idx] in device memory, as before the step; lanes of sequences with fewer than low_from tokens want no
     * low slots, and those that one more does not make a multiple of low_every.  So low slots are asked for only where
     * tokens leave the window: low_from = window. */
    const uint32_t *n_tokens;
    uint32_t low_from, low_every; /* low_every 0: as 1 */
} pleat__device_want;

/* ---- memory -------------------------------------------------------------------------------------- */

/* Device memory for n_pages pages and all rows of seqs_cap sequences, in bytes. */
uint64_t pleat__device_pages_bytes(uint32_t n_pages, uint32_t seqs_cap, uint32_t rows_per_seq, uint32_t row_len);

/* Point p's arrays into `block` of so many bytes, aligned to 256, and set its numbers but page_tokens and the batch,
 * which are the caller's to set, before or after. */
void pleat__device_pages_carve(pleat__device_pages *p, void *block, uint32_t n_pages, uint32_t seqs_cap,
                               uint32_t rows_per_seq, uint32_t row_len);

/* All pages are free, ids ascending; all rows are empty. */
pleat_status pleat__device_pages_init(const pleat__device_pages *p, uint32_t n_pages, pleat__device_stream stream,
                                      pleat_error *err);

/* ---- generation: all lanes of the batch ------------------------------------------------------------ */

/* Plan and commit: append the pages that each lane needs to hold what it wants, high ones before low ones, lanes in
 * the batch's order.  n_slots and hole stay as they are. */
pleat_status pleat__device_take(const pleat__device_pages *p, const pleat__device_want *want,
                                pleat__device_stream stream, pleat_error *err);

/* Return every page past ceil(n_slots / page_tokens) of a side: pleat__table_trim() sequence by sequence. */
pleat_status pleat__device_trim(const pleat__device_pages *p, pleat__device_stream stream, pleat_error *err);

/* trim, then take, in one launch: the ids are those of the two calls. */
pleat_status pleat__device_step(const pleat__device_pages *p, const pleat__device_want *want,
                                pleat__device_stream stream, pleat_error *err);

/* ---- prompts: rows first_row .. first_row + n_rows - 1, of one sequence or one of its layers ------------ */

/* Take n_each pages for each of these rows, which are empty: high pages 0..n_each-1.  n_each <= row_len.  A prompt of N
 * tokens takes ceil(N / page_tokens[0]), and one more where there is a low side, which is enough for whatever settle is
 * told. */
pleat_status pleat__device_reserve(const pleat__device_pages *p, uint32_t first_row, uint32_t n_rows, uint32_t n_each,
                                   pleat__device_stream stream, pleat_error *err);

/* n_slots of these rows say what they are to hold, and their reserved pages, all high so far, part:
 *
 *     reserved       | p0 p1 p2 p3 p4 p5 p6 p7 |               high keeps the first ceil(high slots / tokens),
 *     row        | p0 p1 p2 ->           <- p6 p7 |            low gets the last ones, in their order: its page i is p7-i,
 *                                                              p5 p4 p3 go back, row by row, the last page first
 *
 * Codes are written after this, to where pleat__device_slot_at() tells.  Rows whose reserve was refused stay empty and
 * lose their slots. */
pleat_status pleat__device_settle(const pleat__device_pages *p, uint32_t first_row, uint32_t n_rows,
                                  pleat__device_stream stream, pleat_error *err);

/* ---- sequences --------------------------------------------------------------------------------------- */

/* Drop all pages of a sequence, row by row, high side first, the last page first; its rows are empty.  For an empty one
 * nothing happens. */
pleat_status pleat__device_close(const pleat__device_pages *p, uint32_t seq_idx, pleat__device_stream stream,
                                 pleat_error *err);

/* Rows of `to`, which is empty, hold what those of `from` hold.  Each of these pages has one reference more and is
 * read-only from now on. */
pleat_status pleat__device_fork(const pleat__device_pages *p, uint32_t from, uint32_t to, pleat__device_stream stream,
                                pleat_error *err);

/* Rows of `to` hold what those of `from` hold, all of the high side.  Full pages are shared, as by fork.  Where rows end
 * inside a page, each of `to` has reserved one before; that becomes its last, and its bytes are the caller's to copy.
 * Else they are empty. */
pleat_status pleat__device_share(const pleat__device_pages *p, uint32_t from, uint32_t to, pleat__device_stream stream,
                                 pleat_error *err);

/* What a sequence holds, summed over its rows. */
typedef struct pleat__device_load {
    uint32_t n_pages[2], n_slots[2]; /* [side] */
    uint32_t n_dead;                 /* holes counted */
    uint32_t n_take;                 /* pages that take() would append for `want` */
} pleat__device_load;

/* Of sequences 0..n_seqs-1, whatever the batch is: into memory that the device can write, pinned memory of the host
 * too. */
pleat_status pleat__device_loads(const pleat__device_pages *p, const pleat__device_want *want, uint32_t n_seqs,
                                 pleat__device_load *loads, pleat__device_stream stream, pleat_error *err);

/* ---- tests -------------------------------------------------------------------------------------------- */

/* Bring everything to the host and recompute the equations of pool.h and table.h, at rest (n_slots as pages have room
 * for: no page ahead) or not.  Waits.  *valid is 0 or 1.  PLEAT_E_MEMORY, PLEAT_E_DEVICE. */
pleat_status pleat__device_pages_check(const pleat__device_pages *p, bool at_rest, pleat__device_stream stream,
                                       bool *valid, pleat_error *err);

#ifdef __cplusplus
}
#endif
#endif
