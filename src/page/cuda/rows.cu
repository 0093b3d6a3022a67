/* SPDX-License-Identifier: MIT
 *
 * rows.cu: pages.h's launchers for the rows of one sequence: memory, reserve and settle of a prompt, close, fork,
 * share; and what sequences hold.
 *
 * These are rare and move many pages, so a block has a row and copies its cells side by side; a last kernel of one
 * block changes the counts and the pool, which the blocks before read:
 *
 *     rows kernel      <<<n_rows>>>   reads pool and counts, writes cells, ring, shares
 *     finish kernel    <<<1>>>        writes counts and pool
 *
 * All are launched before any is asked how it went: a half of this would leave pages with two owners.
 *
 * Where a row's pages go in the ring depends on what the rows before it give: each block adds that up itself, from the
 * counts, which is cheaper than to meet.  Pages of one sequence are distinct (a forked page's second reference is
 * another sequence's), so no two blocks have to do with one page.
 */
#include "hw/cuda/cuda.cuh"
#include "hw/cuda/warp.cuh"
#include "page/cuda/pages.cuh"

enum { THREADS = 256, N_WARPS = THREADS / 32 };

/* Rows first .. first + n - 1 of `pages`. */
typedef struct rows {
    pleat__device_pages pages;
    uint32_t first, n;
} rows;

/* Sum over the block, known to all its threads. */
static __device__ uint32_t block_sum(uint32_t x) {
    __shared__ uint32_t of_warp[N_WARPS];
    x = __reduce_add_sync(PLEAT__ALL_THREADS, x);
    __syncthreads(); /* the last sum has been read */
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    uint32_t sum = 0;
    for (int i = 0; i < N_WARPS; i++) sum += of_warp[i];
    return sum;
}

/* Exclusive prefix over the block of a flag, and how many raise it. */
static __device__ uint32_t block_rank(bool flag, uint32_t *n) {
    __shared__ uint32_t of_warp[N_WARPS];
    const uint32_t bits = __ballot_sync(PLEAT__ALL_THREADS, flag), warp = threadIdx.x / 32;
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[warp] = __popc(bits);
    __syncthreads();
    uint32_t before = __popc(bits & ((1u << (threadIdx.x % 32)) - 1)), sum = 0;
    for (uint32_t i = 0; i < N_WARPS; i++) {
        before += i < warp ? of_warp[i] : 0;
        sum += of_warp[i];
    }
    *n = sum;
    return before;
}

/* Cell of the ring `offset` after start; offset <= n_pages. */
static __device__ inline uint32_t *ring_cell(const pleat__device_pages *p, uint32_t offset) {
    const uint32_t n_pages = p->pool->n_pages;
    const uint64_t cell = (uint64_t)p->pool->start + offset;
    return p->ring + (cell < n_pages ? cell : cell - n_pages);
}

/* ---- reserve ------------------------------------------------------------------------------------------------ */

static __device__ inline bool fits(const rows *r, uint32_t n_each) {
    return (uint64_t)r->n * n_each <= r->pages.pool->n_free;
}

static __global__ void __launch_bounds__(THREADS) reserve_rows(const __grid_constant__ rows r, uint32_t n_each) {
    if (!fits(&r, n_each)) return;
    const uint32_t row = r.first + blockIdx.x;
    for (uint32_t i = threadIdx.x; i < n_each; i += THREADS)
        *pleat__device_cell(&r.pages, row, 0, i) = *ring_cell(&r.pages, blockIdx.x * n_each + i);
    if (threadIdx.x == 0) r.pages.n_pages[0][row] = n_each;
}

static __global__ void reserve_finish(const __grid_constant__ rows r, uint32_t n_each) {
    pleat__device_pool *pool = r.pages.pool;
    pool->refused = !fits(&r, n_each);
    pool->n_refused += pool->refused;
    if (pool->refused) return;
    const uint32_t n_taken = r.n * n_each, n_used = pool->n_pages - pool->n_free + n_taken;
    pool->start = (uint32_t)(ring_cell(&r.pages, n_taken) - r.pages.ring);
    pool->n_free -= n_taken;
    if (pool->n_peak < n_used) pool->n_peak = n_used;
}

/* ---- settle ------------------------------------------------------------------------------------------------- */

/* How a row's reserved pages part.  n_reserved = 0: its reserve was refused. */
typedef struct parting {
    uint32_t n_reserved;
    uint32_t n[2]; /* pages, [side]; within n_reserved in any case */
    bool is_fault; /* only so */
} parting;

static __device__ inline parting part_row(const pleat__device_pages *p, uint32_t row) {
    parting t = {p->n_pages[0][row], {0, 0}, false};
    uint32_t left = t.n_reserved;
    for (int side = 0; side < 2; side++) {
        const uint32_t n_slots = p->n_slots[side][row], tokens = p->page_tokens[side];
        const uint32_t n = n_slots / tokens + (n_slots % tokens != 0);
        t.n[side] = n < left ? n : left;
        t.is_fault |= n > left && t.n_reserved > 0;
        left -= t.n[side];
    }
    return t;
}

static __device__ inline uint32_t n_recycled(const parting *t) { return t->n_reserved - t->n[0] - t->n[1]; }

/* Pages that rows 0 .. n - 1 of r recycle. */
static __device__ uint32_t sum_recycled(const rows *r, uint32_t n) {
    uint32_t sum = 0;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        const parting t = part_row(&r->pages, r->first + i);
        sum += n_recycled(&t);
    }
    return block_sum(sum);
}

/* Move n cells of a row to the right, the last first: the places may overlap. */
static __device__ void move_right(uint32_t *from, uint32_t *to, uint32_t n) {
    for (uint32_t left = n; left > 0;) {
        const uint32_t n_here = left < THREADS ? left : THREADS, i = left - n_here + threadIdx.x;
        const uint32_t id = threadIdx.x < n_here ? from[i] : 0;
        __syncthreads();
        if (threadIdx.x < n_here) to[i] = id;
        left -= n_here;
        __syncthreads();
    }
}

static __global__ void __launch_bounds__(THREADS) settle_rows(const __grid_constant__ rows r) {
    const pleat__device_pages *p = &r.pages;
    const uint32_t row = r.first + blockIdx.x;
    const uint32_t offset = p->pool->n_free + sum_recycled(&r, blockIdx.x);
    const parting t = part_row(p, row);
    uint32_t *cells = pleat__device_cell(p, row, 0, 0);
    const uint32_t n_high_was = t.n_reserved - t.n[1], n = n_recycled(&t);
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) *ring_cell(p, offset + i) = cells[n_high_was - 1 - i];
    if (t.n_reserved != p->row_len) move_right(cells + n_high_was, cells + p->row_len - t.n[1], t.n[1]);
}

static __global__ void __launch_bounds__(THREADS) settle_finish(const __grid_constant__ rows r) {
    const pleat__device_pages *p = &r.pages;
    const uint32_t n_freed = sum_recycled(&r, r.n);
    uint32_t n_faults = 0;
    for (uint32_t i = threadIdx.x; i < r.n; i += THREADS) {
        const uint32_t row = r.first + i;
        const parting t = part_row(p, row);
        n_faults += t.is_fault;
        for (int side = 0; side < 2; side++) {
            const uint32_t room = t.n[side] * p->page_tokens[side];
            p->n_pages[side][row] = t.n[side];
            if (p->n_slots[side][row] > room) p->n_slots[side][row] = room;
        }
    }
    n_faults = block_sum(n_faults); /* and all have summed up the counts */
    if (threadIdx.x != 0) return;
    p->pool->n_free += n_freed;
    p->pool->n_faults += n_faults;
}

/* ---- close -------------------------------------------------------------------------------------------------- */

/* A row's references in the order in which they are dropped: its id number i. */
static __device__ inline uint32_t dropped_id(const pleat__device_pages *p, uint32_t row, uint32_t n_high,
                                             uint32_t n_low, uint32_t i) {
    return i < n_high ? *pleat__device_cell(p, row, 0, n_high - 1 - i)
                      : *pleat__device_cell(p, row, 1, n_low - 1 - (i - n_high));
}

/* Pages that each row frees, kept in its hole, which nobody needs any more. */
static __global__ void __launch_bounds__(THREADS) close_count(const __grid_constant__ rows r) {
    const pleat__device_pages *p = &r.pages;
    const uint32_t row = r.first + blockIdx.x, n_high = p->n_pages[0][row], n_low = p->n_pages[1][row];
    uint32_t n = n_high + n_low;
    if (p->pool->n_shares > 0) {
        uint32_t n_mine = 0;
        for (uint32_t i = threadIdx.x; i < n; i += THREADS)
            n_mine += p->shares[dropped_id(p, row, n_high, n_low, i)] == 0;
        n = block_sum(n_mine);
    }
    if (threadIdx.x == 0) p->hole[row] = n;
}

static __device__ uint32_t sum_freed(const rows *r, uint32_t n) {
    uint32_t sum = 0;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) sum += r->pages.hole[r->first + i];
    return block_sum(sum);
}

static __global__ void __launch_bounds__(THREADS) close_rows(const __grid_constant__ rows r) {
    const pleat__device_pages *p = &r.pages;
    const uint32_t row = r.first + blockIdx.x, n_high = p->n_pages[0][row], n_low = p->n_pages[1][row];
    const bool any_shared = p->pool->n_shares > 0;
    uint32_t offset = p->pool->n_free + sum_freed(&r, blockIdx.x);
    for (uint32_t first = 0; first < n_high + n_low; first += THREADS) {
        const uint32_t i = first + threadIdx.x;
        const bool drops = i < n_high + n_low;
        const uint32_t id = drops ? dropped_id(p, row, n_high, n_low, i) : 0;
        const bool frees = drops && !(any_shared && p->shares[id] > 0);
        uint32_t n;
        const uint32_t rank = block_rank(frees, &n);
        if (frees) *ring_cell(p, offset + rank) = id;
        if (drops && !frees) p->shares[id]--;
        offset += n;
    }
}

static __global__ void __launch_bounds__(THREADS) close_finish(const __grid_constant__ rows r) {
    const pleat__device_pages *p = &r.pages;
    const uint32_t n_freed = sum_freed(&r, r.n);
    uint32_t n_dropped = 0;
    for (uint32_t i = threadIdx.x; i < r.n; i += THREADS) {
        const uint32_t row = r.first + i;
        for (int side = 0; side < 2; side++) {
            n_dropped += p->n_pages[side][row];
            p->n_pages[side][row] = p->n_slots[side][row] = 0;
        }
        p->hole[row] = p->dead[row] = 0;
    }
    n_dropped = block_sum(n_dropped);
    if (threadIdx.x != 0) return;
    p->pool->n_free += n_freed;
    p->pool->n_shares -= n_dropped - n_freed;
}

/* ---- fork --------------------------------------------------------------------------------------------------- */

/* first: of the sequence that is forked; `to`: of the new one. */
static __global__ void __launch_bounds__(THREADS) fork_rows(const __grid_constant__ rows r, uint32_t to) {
    const pleat__device_pages *p = &r.pages;
    const uint32_t row = r.first + blockIdx.x, new_row = to + blockIdx.x;
    for (int side = 0; side < 2; side++) {
        for (uint32_t i = threadIdx.x; i < p->n_pages[side][row]; i += THREADS) {
            const uint32_t id = *pleat__device_cell(p, row, side, i);
            *pleat__device_cell(p, new_row, side, i) = id;
            p->shares[id]++;
        }
        if (threadIdx.x == 0) p->n_pages[side][new_row] = p->n_pages[side][row];
        if (threadIdx.x == 0) p->n_slots[side][new_row] = p->n_slots[side][row];
    }
    if (threadIdx.x == 0) p->hole[new_row] = p->hole[row];
    if (threadIdx.x == 0) p->dead[new_row] = p->dead[row];
}

static __global__ void __launch_bounds__(THREADS) fork_finish(const __grid_constant__ rows r) {
    uint32_t n = 0;
    for (uint32_t i = threadIdx.x; i < r.n; i += THREADS)
        n += r.pages.n_pages[0][r.first + i] + r.pages.n_pages[1][r.first + i];
    n = block_sum(n);
    if (threadIdx.x == 0) r.pages.pool->n_shares += n;
}

/* ---- share -------------------------------------------------------------------------------------------------- */

/* first: of the sequence that is shared; `to`: of the new one. */
static __global__ void __launch_bounds__(THREADS) share_rows(const __grid_constant__ rows r, uint32_t to) {
    const pleat__device_pages *p = &r.pages;
    const uint32_t row = r.first + blockIdx.x, new_row = to + blockIdx.x;
    const uint32_t n_slots = p->n_slots[0][row], n_full = n_slots / p->page_tokens[0];
    const bool has_last = n_slots % p->page_tokens[0] != 0;
    const uint32_t last = has_last ? *pleat__device_cell(p, new_row, 0, 0) : 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n_full; i += THREADS) {
        const uint32_t id = *pleat__device_cell(p, row, 0, i);
        *pleat__device_cell(p, new_row, 0, i) = id;
        p->shares[id]++;
    }
    if (threadIdx.x != 0) return;
    if (has_last) *pleat__device_cell(p, new_row, 0, n_full) = last;
    p->n_pages[0][new_row] = n_full + has_last;
    p->n_slots[0][new_row] = n_slots;
}

static __global__ void __launch_bounds__(THREADS) share_finish(const __grid_constant__ rows r) {
    uint32_t n = 0;
    for (uint32_t i = threadIdx.x; i < r.n; i += THREADS) n += r.pages.n_slots[0][r.first + i] / r.pages.page_tokens[0];
    n = block_sum(n);
    if (threadIdx.x == 0) r.pages.pool->n_shares += n;
}

/* ---- loads -------------------------------------------------------------------------------------------------- */

static __device__ inline uint32_t pages_for(uint32_t n_slots, uint32_t tokens) {
    return n_slots / tokens + (n_slots % tokens != 0);
}

/* Pages that the row is short of, as take counts them. */
static __device__ uint32_t short_of(const pleat__device_pages *p, const pleat__device_want *want, uint32_t row) {
    const uint32_t seq_idx = row / p->rows_per_seq;
    uint32_t n_new[2] = {want->n_new[0], want->n_new[1]}, n = 0;
    if (want->fill_hole && n_new[0] > 0) n_new[0] -= p->hole[row] != 0;
    if (!pleat__device_wants_low(want, seq_idx)) n_new[1] = 0;
    for (int side = 0; side < 2; side++) {
        const uint32_t n_wanted = pages_for(p->n_slots[side][row] + n_new[side], p->page_tokens[side]);
        n += n_wanted > p->n_pages[side][row] ? n_wanted - p->n_pages[side][row] : 0;
    }
    return n;
}

static __global__ void __launch_bounds__(THREADS)
    sum_loads(const __grid_constant__ pleat__device_pages p, const __grid_constant__ pleat__device_want want,
              pleat__device_load *loads) {
    pleat__device_load of = {};
    for (uint32_t i = threadIdx.x; i < p.rows_per_seq; i += THREADS) {
        const uint32_t row = blockIdx.x * p.rows_per_seq + i;
        for (int side = 0; side < 2; side++) {
            of.n_pages[side] += p.n_pages[side][row];
            of.n_slots[side] += p.n_slots[side][row];
        }
        of.n_dead += p.dead[row] + (p.hole[row] != 0);
        of.n_take += short_of(&p, &want, row);
    }
    const pleat__device_load sum = {{block_sum(of.n_pages[0]), block_sum(of.n_pages[1])},
                                    {block_sum(of.n_slots[0]), block_sum(of.n_slots[1])},
                                    block_sum(of.n_dead),
                                    block_sum(of.n_take)};
    if (threadIdx.x == 0) loads[blockIdx.x] = sum;
}

/* ---- memory ------------------------------------------------------------------------------------------------- */

/* The next array of n words of `bytes` each, or only its end where base is 0. */
static void *carve(uint64_t base, uint64_t *used_bytes, uint64_t n, uint64_t bytes) {
    const uint64_t at = *used_bytes;
    *used_bytes += (n * bytes + 255) / 256 * 256;
    return (void *)(uintptr_t)(base + at);
}

static uint64_t carve_all(pleat__device_pages *p, uint64_t base, uint32_t n_pages, uint32_t seqs_cap) {
    const uint64_t n_rows = (uint64_t)seqs_cap * p->rows_per_seq;
    uint64_t used_bytes = 0;
    p->n_rows = (uint32_t)n_rows;
    p->pool = (pleat__device_pool *)carve(base, &used_bytes, 1, sizeof *p->pool);
    p->sync = (uint64_t *)carve(base, &used_bytes, PLEAT__DEVICE_SYNC_WORDS, sizeof *p->sync);
    p->ring = (uint32_t *)carve(base, &used_bytes, n_pages, sizeof *p->ring);
    p->shares = (uint32_t *)carve(base, &used_bytes, n_pages, sizeof *p->shares);
    p->drops = (uint32_t *)carve(base, &used_bytes, n_pages, sizeof *p->drops);
    for (int side = 0; side < 2; side++) {
        p->n_pages[side] = (uint32_t *)carve(base, &used_bytes, n_rows, sizeof *p->hole);
        p->n_slots[side] = (uint32_t *)carve(base, &used_bytes, n_rows, sizeof *p->hole);
    }
    p->hole = (uint32_t *)carve(base, &used_bytes, n_rows, sizeof *p->hole);
    p->dead = (uint32_t *)carve(base, &used_bytes, n_rows, sizeof *p->dead);
    p->ids = (uint32_t *)carve(base, &used_bytes, n_rows * p->row_len, sizeof *p->ids);
    return used_bytes;
}

uint64_t pleat__device_pages_bytes(uint32_t n_pages, uint32_t seqs_cap, uint32_t rows_per_seq, uint32_t row_len) {
    pleat__device_pages p = {};
    p.rows_per_seq = rows_per_seq;
    p.row_len = row_len;
    return carve_all(&p, 0, n_pages, seqs_cap);
}

void pleat__device_pages_carve(pleat__device_pages *p, void *block, uint32_t n_pages, uint32_t seqs_cap,
                               uint32_t rows_per_seq, uint32_t row_len) {
    p->rows_per_seq = rows_per_seq;
    p->row_len = row_len;
    (void)carve_all(p, (uint64_t)(uintptr_t)block, n_pages, seqs_cap);
}

static __global__ void __launch_bounds__(THREADS)
    init_kernel(const __grid_constant__ pleat__device_pages p, uint32_t n_pages) {
    const uint32_t first = blockIdx.x * THREADS + threadIdx.x, stride = gridDim.x * THREADS;
    for (uint32_t i = first; i < n_pages; i += stride) {
        p.ring[i] = i;
        p.shares[i] = p.drops[i] = 0;
    }
    for (uint32_t i = first; i < p.n_rows; i += stride) {
        for (int side = 0; side < 2; side++) p.n_pages[side][i] = p.n_slots[side][i] = 0;
        p.hole[i] = p.dead[i] = 0;
    }
    for (uint32_t i = first; i < PLEAT__DEVICE_SYNC_WORDS; i += stride) p.sync[i] = i == PLEAT__DEVICE_SYNC_TAG;
    if (first == 0) *p.pool = pleat__device_pool{n_pages, 0, n_pages, 0, 0, 0, 0, 0};
}

pleat_status pleat__device_pages_init(const pleat__device_pages *p, uint32_t n_pages, pleat__device_stream stream,
                                      pleat_error *err) {
    PLEAT_FAIL_IF(n_pages == 0 || n_pages >> 31 || ((uint64_t)p->n_rows * p->row_len) >> 32, err, PLEAT_E_LIMIT,
                  PLEAT_NOWHERE, "page table on the GPU: %u pages, %u rows of %u cells", n_pages, p->n_rows,
                  p->row_len);
    init_kernel<<<256, THREADS, 0, pleat__cuda_stream(stream)>>>(*p, n_pages);
    return PLEAT_CUDA_LAUNCHED("making the page table", err);
}

/* ---- launchers ------------------------------------------------------------------------------------------------ */

/* Rows first .. first + n - 1, which exist and are not none. */
static pleat_status rows_of(const pleat__device_pages *p, uint32_t first, uint32_t n, rows *r, pleat_error *err) {
    PLEAT_FAIL_IF(n == 0 || first > p->n_rows || n > p->n_rows - first, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "page table on the GPU: rows %u to %u of %u", first, first + n, p->n_rows);
    PLEAT_FAIL_IF(p->page_tokens[0] == 0 || p->page_tokens[1] == 0, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "page table on the GPU: a page of no tokens");
    r->pages = *p;
    r->first = first;
    r->n = n;
    return PLEAT_OK;
}

static pleat_status rows_of_seq(const pleat__device_pages *p, uint32_t seq_idx, rows *r, pleat_error *err) {
    const uint64_t first = (uint64_t)seq_idx * p->rows_per_seq;
    return rows_of(p, first > p->n_rows ? p->n_rows : (uint32_t)first, p->rows_per_seq, r, err);
}

pleat_status pleat__device_reserve(const pleat__device_pages *p, uint32_t first_row, uint32_t n_rows, uint32_t n_each,
                                   pleat__device_stream stream, pleat_error *err) {
    rows r;
    PLEAT_TRY(rows_of(p, first_row, n_rows, &r, err));
    PLEAT_FAIL_IF(n_each > p->row_len, err, PLEAT_E_ARG, PLEAT_NOWHERE, "reserving %u pages in a row of %u", n_each,
                  p->row_len);
    reserve_rows<<<n_rows, THREADS, 0, pleat__cuda_stream(stream)>>>(r, n_each);
    reserve_finish<<<1, 1, 0, pleat__cuda_stream(stream)>>>(r, n_each);
    return PLEAT_CUDA_LAUNCHED("reserving pages", err);
}

pleat_status pleat__device_settle(const pleat__device_pages *p, uint32_t first_row, uint32_t n_rows,
                                  pleat__device_stream stream, pleat_error *err) {
    rows r;
    PLEAT_TRY(rows_of(p, first_row, n_rows, &r, err));
    settle_rows<<<n_rows, THREADS, 0, pleat__cuda_stream(stream)>>>(r);
    settle_finish<<<1, THREADS, 0, pleat__cuda_stream(stream)>>>(r);
    return PLEAT_CUDA_LAUNCHED("parting a prompt's pages", err);
}

pleat_status pleat__device_close(const pleat__device_pages *p, uint32_t seq_idx, pleat__device_stream stream,
                                 pleat_error *err) {
    rows r;
    PLEAT_TRY(rows_of_seq(p, seq_idx, &r, err));
    close_count<<<r.n, THREADS, 0, pleat__cuda_stream(stream)>>>(r);
    close_rows<<<r.n, THREADS, 0, pleat__cuda_stream(stream)>>>(r);
    close_finish<<<1, THREADS, 0, pleat__cuda_stream(stream)>>>(r);
    return PLEAT_CUDA_LAUNCHED("closing a sequence", err);
}

pleat_status pleat__device_fork(const pleat__device_pages *p, uint32_t from, uint32_t to, pleat__device_stream stream,
                                pleat_error *err) {
    rows r = {}, r_to = {};
    PLEAT_TRY(rows_of_seq(p, from, &r, err));
    PLEAT_TRY(rows_of_seq(p, to, &r_to, err));
    PLEAT_FAIL_IF(from == to, err, PLEAT_E_ARG, PLEAT_NOWHERE, "forking sequence %u into itself", from);
    fork_rows<<<r.n, THREADS, 0, pleat__cuda_stream(stream)>>>(r, r_to.first);
    fork_finish<<<1, THREADS, 0, pleat__cuda_stream(stream)>>>(r);
    return PLEAT_CUDA_LAUNCHED("forking a sequence", err);
}

pleat_status pleat__device_share(const pleat__device_pages *p, uint32_t from, uint32_t to, pleat__device_stream stream,
                                 pleat_error *err) {
    rows r = {}, r_to = {};
    PLEAT_TRY(rows_of_seq(p, from, &r, err));
    PLEAT_TRY(rows_of_seq(p, to, &r_to, err));
    PLEAT_FAIL_IF(from == to, err, PLEAT_E_ARG, PLEAT_NOWHERE, "sharing sequence %u with itself", from);
    share_rows<<<r.n, THREADS, 0, pleat__cuda_stream(stream)>>>(r, r_to.first);
    share_finish<<<1, THREADS, 0, pleat__cuda_stream(stream)>>>(r);
    return PLEAT_CUDA_LAUNCHED("sharing a sequence's pages", err);
}

pleat_status pleat__device_loads(const pleat__device_pages *p, const pleat__device_want *want, uint32_t n_seqs,
                                 pleat__device_load *loads, pleat__device_stream stream, pleat_error *err) {
    PLEAT_FAIL_IF(n_seqs == 0 || (uint64_t)n_seqs * p->rows_per_seq > p->n_rows, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "page table on the GPU: no %u sequences", n_seqs);
    sum_loads<<<n_seqs, THREADS, 0, pleat__cuda_stream(stream)>>>(*p, *want, loads);
    return PLEAT_CUDA_LAUNCHED("counting what sequences hold", err);
}
