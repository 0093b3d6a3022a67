/* SPDX-License-Identifier: MIT
 *
 * device_image.c: a sequence of a device cache as bytes in the host's memory (cache/image_form.h), and back.
 *
 *     pool ── bring ──> stage ── copy ──> image       piece by piece: kernels, copies and the hash (image_hash.h) have
 *     pool <── put ──── stage <── copy ── image       a stream each.  All pieces are sent at once: the host need not be
 *                         └── sums, stir ──> hash     there in time
 *
 * The last pieces are small, since what follows a copy is waited for behind the last one alone.  Who comes back has its first
 * pieces copied to stages while pages are still asked for, and positions are checked while the others come.
 *
 * Who leaves may be closed when its pages are in stages: copies go on beside the next steps.
 *
 * The bytes are those that the CPU's cache writes of the same tokens: so images go from one device to the other.  With
 * levels, images are taken whose thresholds are the spec's and whose sealed pages have no dead slots:
 * thresholds rise and tokens die on the CPU alone.  Pages are open here, as they belong to nobody else.
 */
#include <string.h>

#include "cache/cuda/device_cache.h"
#include "core/error.h"

#define REQUIRE(cond, ...) PLEAT_FAIL_IF(!(cond), err, PLEAT_E_ARG, PLEAT_NOWHERE, __VA_ARGS__)
#define STAGE_BYTES (16u << 20)
#define STAGES_OF_POOL 32u /* no larger than such a part of the pool */
#define LAST_PIECES 4u     /* that what a stage would hold at the end is cut into */
#define EARLY_PIECES 2u    /* that come while pages are asked for: what is sent to the device for that waits for them */
#define PAD_BYTES 256u     /* behind pages: words are read whole */
#define COPY_ALIGN 64u     /* of pages in an image: else copies are a tenth slower */

/* Blocks have no images here. */
static pleat_status check_has_images(const pleat_device_cache *c, pleat_error *err) {
    PLEAT_FAIL_IF(c->lanes.policy.has_blocks, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "device cache: sequences with blocks have no images on a GPU");
    return PLEAT_OK;
}

static pleat_status damaged(pleat_error *err) {
    return pleat__error_set(err, PLEAT_E_FORMAT, PLEAT_NOWHERE,
                            "device cache: no image of such a cache, or a damaged one");
}

/* ---- counts -------------------------------------------------------------------------------------- */

static uint32_t pages_of_side(const pleat_device_cache *c, uint32_t row, int side) {
    return pleat__div_up_u32(c->image.n_slots[side][row], c->lanes.layouts[side].tokens);
}

/* Pages before each row, from the counts. */
static void count_pages(pleat_device_cache *c) {
    uint32_t *before = c->image.before;
    before[0] = 0;
    for (uint32_t row = 0; row < c->rows_per_seq; row++)
        before[row + 1] = before[row] + pages_of_side(c, row, 0) + pages_of_side(c, row, 1);
}

/* The sequence's counts and its length, to the host.  Waits. */
static pleat_status bring_counts(pleat_device_cache *c, uint32_t seq_idx, pleat__device_stream stream,
                                 uint32_t *n_tokens, pleat_error *err) {
    const uint32_t first = pleat__device_first_row(c, seq_idx);
    const uint64_t bytes = c->rows_per_seq * sizeof(uint32_t);
    const pleat__device_pages *pages = &c->lanes.pages;
    for (int side = 0; side < 2; side++)
        PLEAT_TRY(pleat__device_copy(c->image.n_slots[side], pages->n_slots[side] + first, bytes, stream, err));
    PLEAT_TRY(pleat__device_copy(c->image.hole, pages->hole + first, bytes, stream, err));
    PLEAT_TRY(pleat__device_copy(c->image.dead, pages->dead + first, bytes, stream, err));
    PLEAT_TRY(pleat_device_cache_length(c, seq_idx, n_tokens, stream.v, err));
    count_pages(c);
    return PLEAT_OK;
}

static bool parts_of(const pleat_device_cache *c, uint64_t n_pages, uint32_t n_classed, pleat__image_parts *p) {
    const uint64_t kind_bytes = pleat__device_novelty_image_bytes(c, n_classed);
    return pleat__image_parts_of(&c->image_form, kind_bytes, n_pages, n_pages, p);
}

/* Tokens that have been classed, in a sequence of n_tokens whose last prompt ended with n_prompt: those that had left the
 * window then, or in the last counted step. */
static uint32_t classed_of(const pleat_device_cache *c, uint32_t n_tokens, uint32_t n_prompt) {
    const uint32_t window = c->lanes.policy.window, every = c->lanes.policy.every;
    const uint32_t n_looked = pleat__max_u32(n_prompt, n_tokens - n_tokens % every);
    return pleat__device_cache_has_policy(c) && n_looked > window ? n_looked - window : 0;
}

/* Are as many tokens classed as an image says?  Where not every step is counted, a later prompt whose last part is one
 * token leaves some to the next counted step, or, when they have become more than `every`, to the step before it. */
static bool classed_is_sound(const pleat_device_cache *c, const pleat__image_header *head) {
    const uint32_t window = c->lanes.policy.window, every = c->lanes.policy.every;
    const uint64_t n_classed = (uint64_t)head->n_classed + window; /* and the window's */
    return head->n_classed == classed_of(c, head->n_tokens, head->n_prompt) ||
           (every > 1 && n_classed <= head->n_tokens && head->n_tokens - n_classed <= every);
}

/* ---- pieces -------------------------------------------------------------------------------------- */

static pleat_status take_stage(pleat_device_cache *c, pleat_error *err) {
    pleat__device_image_work *w = &c->image;
    const uint64_t page_bytes = c->image_form.page_bytes;
    if (!w->seen) w->seen = pleat__alloc(&c->al, c->opt.max_tokens, 1);
    PLEAT_FAIL_IF(!w->seen, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "device cache: out of memory");
    if (w->stage) return PLEAT_OK;
    const uint64_t part = c->memory_bytes[0] / STAGES_OF_POOL, wanted = part < STAGE_BYTES ? part : STAGE_BYTES;
    w->stage_bytes = wanted > page_bytes ? wanted / page_bytes * page_bytes : page_bytes;
    const uint64_t n_sums = (w->stage_bytes / PLEAT__HASH_BLOCK + 1) * PLEAT__HASH_SUMS;
    const uint64_t pages_bytes = (w->stage_bytes + 2 * PAD_BYTES - 1) / PAD_BYTES * PAD_BYTES;
    const uint64_t each_bytes = PLEAT__HASH_BLOCK + pages_bytes + n_sums * sizeof(uint64_t);
    const uint64_t all_bytes = PLEAT__IMAGE_STAGES * each_bytes;
    PLEAT_TRY(pleat__device_alloc(all_bytes + PLEAT__HASH_SUMS * sizeof *w->state, &w->stage, err));
    w->state = (uint64_t *)(void *)((uint8_t *)w->stage + all_bytes);
    for (uint32_t i = 0; i < PLEAT__IMAGE_STAGES; i++) {
        w->stages[i].pages = (uint8_t *)w->stage + i * each_bytes + PLEAT__HASH_BLOCK;
        w->stages[i].sums = (uint64_t *)(void *)(w->stages[i].pages + pages_bytes);
    }
    return PLEAT_OK;
}

static uint32_t pages_at_a_time(const pleat_device_cache *c) {
    return (uint32_t)(c->image.stage_bytes / c->image_form.page_bytes);
}

static pleat__device_stage *stage_of(pleat_device_cache *c, uint32_t i) {
    return &c->image.stages[i % PLEAT__IMAGE_STAGES];
}

/* Pages of the last pieces, which are behind n_whole others. */
static uint32_t pages_of_last(const pleat_device_cache *c, uint32_t n_pages, uint32_t *n_whole) {
    const uint32_t n_most = pages_at_a_time(c);
    *n_whole = n_pages > 0 ? (n_pages - 1) / n_most : 0;
    return pleat__div_up_u32(n_pages - *n_whole * n_most, LAST_PIECES);
}

static uint32_t count_pieces(const pleat_device_cache *c, uint32_t n_pages) {
    uint32_t n_whole;
    const uint32_t n_last = pages_of_last(c, n_pages, &n_whole);
    return n_pages > 0 ? n_whole + pleat__div_up_u32(n_pages - n_whole * pages_at_a_time(c), n_last) : 0;
}

static pleat__device_piece piece_of(pleat_device_cache *c, const pleat__device_transfer *t, uint32_t i) {
    uint32_t n_whole;
    const uint32_t n_last = pages_of_last(c, t->n_pages, &n_whole), n_most = i < n_whole ? pages_at_a_time(c) : n_last;
    const uint32_t first = i < n_whole ? i * n_most : n_whole * pages_at_a_time(c) + (i - n_whole) * n_last;
    return (pleat__device_piece){.seq_idx = t->seq_idx,
                                 .first = first,
                                 .n = pleat__min_u32(t->n_pages - first, n_most),
                                 .before = c->image.device_before,
                                 .sealed =
                                     c->lanes.policy.is_leankv ? c->image.device_before + c->rows_per_seq + 1 : NULL,
                                 .n_tokens = t->n_tokens,
                                 .pages = stage_of(c, i)->pages,
                                 .page_bytes = c->image_form.page_bytes};
}

/* The blocks of what is hashed that end in the piece.  The first may begin before it: those bytes stand before its pages. */
static pleat__device_sums sums_of(pleat_device_cache *c, const pleat__device_transfer *t,
                                  const pleat__device_piece *piece, uint32_t i) {
    const uint64_t at = t->hashed_at + piece->first * piece->page_bytes, end = at + piece->n * piece->page_bytes;
    uint64_t last = end / PLEAT__HASH_BLOCK;
    if (last > t->hash.n_blocks) last = t->hash.n_blocks;
    pleat__device_sums sums = {.pages = piece->pages - PLEAT__HASH_BLOCK, .sums = stage_of(c, i)->sums};
    sums.at = PLEAT__HASH_BLOCK - at % PLEAT__HASH_BLOCK;
    sums.n = last - at / PLEAT__HASH_BLOCK;
    pleat__image_hash_key(sums.key);
    return sums;
}

/* The piece is there: its blocks are summed, and what is left of it begins the next one's first. */
static pleat_status sum_piece(pleat_device_cache *c, const pleat__device_transfer *t, uint32_t i,
                              const pleat__device_sums *sums, pleat_error *err) {
    const pleat__device_piece piece = piece_of(c, t, i);
    const uint64_t n_bytes = piece.n * piece.page_bytes, end = t->hashed_at + piece.first * piece.page_bytes + n_bytes;
    const uint64_t n_left = end % PLEAT__HASH_BLOCK;
    PLEAT_TRY(pleat__device_lanes_sum(sums, c->image.kernels, err));
    if (i + 1 < t->n_pieces && n_left > 0)
        PLEAT_TRY(pleat__device_copy(stage_of(c, i + 1)->pages - n_left, piece.pages + n_bytes - n_left, n_left,
                                     c->image.kernels, err));
    return pleat__device_event_record(stage_of(c, i)->there, c->image.kernels, err);
}

static pleat_status hash_piece(pleat_device_cache *c, uint32_t i, const pleat__device_sums *sums, pleat_error *err) {
    const pleat__device_image_work *w = &c->image;
    pleat__device_chain chain = {.sums = sums->sums, .n = sums->n, .state = w->state};
    pleat__image_hash_stir_key(chain.key);
    PLEAT_TRY(pleat__device_stream_follow(w->hashes, stage_of(c, i)->there, err));
    PLEAT_TRY(pleat__device_lanes_stir(&chain, w->hashes, err));
    return pleat__device_event_record(stage_of(c, i)->hashed, w->hashes, err);
}

/* The stage is free when the piece before it there is done. */
static pleat_status bring_piece(pleat_device_cache *c, const pleat__device_transfer *t, uint32_t i, pleat_error *err) {
    const pleat__device_image_work *w = &c->image;
    const pleat__device_stage *stage = stage_of(c, i);
    const pleat__device_piece piece = piece_of(c, t, i);
    const pleat__device_sums sums = sums_of(c, t, &piece, i);
    if (i >= PLEAT__IMAGE_STAGES) {
        PLEAT_TRY(pleat__device_stream_follow(w->kernels, stage->copied, err));
        PLEAT_TRY(pleat__device_stream_follow(w->kernels, stage->hashed, err));
    }
    PLEAT_TRY(pleat__device_lanes_bring(&c->lanes, &piece, w->kernels, err));
    PLEAT_TRY(sum_piece(c, t, i, &sums, err));
    PLEAT_TRY(pleat__device_stream_follow(w->copies, stage->there, err));
    PLEAT_TRY(pleat__device_copy(t->pages + piece.first * piece.page_bytes, piece.pages, piece.n * piece.page_bytes,
                                 w->copies, err));
    PLEAT_TRY(pleat__device_event_record(stage->copied, w->copies, err));
    return hash_piece(c, i, &sums, err);
}

/* From the image to its stage. */
static pleat_status fetch_piece(pleat_device_cache *c, const pleat__device_transfer *t, uint32_t i, pleat_error *err) {
    const pleat__device_image_work *w = &c->image;
    const pleat__device_piece piece = piece_of(c, t, i);
    PLEAT_TRY(pleat__device_copy(piece.pages, t->pages + piece.first * piece.page_bytes, piece.n * piece.page_bytes,
                                 w->copies, err));
    return pleat__device_event_record(stage_of(c, i)->copied, w->copies, err);
}

/* The first pieces have been fetched. */
static pleat_status put_piece(pleat_device_cache *c, const pleat__device_transfer *t, uint32_t i, pleat_error *err) {
    const pleat__device_image_work *w = &c->image;
    const pleat__device_stage *stage = stage_of(c, i);
    const pleat__device_piece piece = piece_of(c, t, i);
    const pleat__device_sums sums = sums_of(c, t, &piece, i);
    if (i >= PLEAT__IMAGE_STAGES) {
        PLEAT_TRY(pleat__device_stream_follow(w->copies, stage->there, err));
        PLEAT_TRY(pleat__device_stream_follow(w->kernels, stage->hashed, err));
    }
    if (i >= EARLY_PIECES) PLEAT_TRY(fetch_piece(c, t, i, err));
    PLEAT_TRY(pleat__device_stream_follow(w->kernels, stage->copied, err));
    PLEAT_TRY(pleat__device_lanes_put(&c->lanes, &piece, w->kernels, err));
    PLEAT_TRY(sum_piece(c, t, i, &sums, err));
    return hash_piece(c, i, &sums, err);
}

/* Something failed: nobody writes to an image, or reads one, behind this. */
static void stand_still(const pleat_device_cache *c) {
    (void)pleat__device_wait(c->image.kernels, NULL);
    (void)pleat__device_wait(c->image.copies, NULL);
    (void)pleat__device_wait(c->image.hashes, NULL);
}

/* What is hashed before pages: by the host, but for the last bytes, which the first piece's first block begins with. */
static pleat_status send_start(pleat_device_cache *c, pleat__device_transfer *t, pleat_error *err) {
    const pleat__device_image_work *w = &c->image;
    const uint64_t n_left = t->hashed_at % PLEAT__HASH_BLOCK;
    pleat__image_hash_bytes(&t->hash, t->hashed_at / PLEAT__HASH_BLOCK);
    memcpy(w->host_state, t->hash.sums, sizeof t->hash.sums);
    PLEAT_TRY(pleat__device_copy(w->state, w->host_state, sizeof t->hash.sums, w->hashes, err));
    if (n_left == 0) return PLEAT_OK;
    return pleat__device_copy(stage_of(c, 0)->pages - n_left, t->pages - n_left, n_left, w->kernels, err);
}

/* All pieces are on their way. */
static pleat_status send_pages(pleat_device_cache *c, pleat__device_transfer *t, pleat_error *err) {
    pleat_status status = send_start(c, t, err);
    for (uint32_t i = 0; status == PLEAT_OK && i < t->n_pieces; i++)
        status = (t->brings ? bring_piece : put_piece)(c, t, i, err);
    if (status != PLEAT_OK) stand_still(c);
    return status;
}

/* They have come, and this is the image's hash. */
static pleat_status end_pages(pleat_device_cache *c, pleat__device_transfer *t, uint64_t *hash, pleat_error *err) {
    const pleat__device_image_work *w = &c->image;
    pleat_status status = pleat__device_copy(w->host_state, w->state, sizeof t->hash.sums, w->hashes, err);
    if (status == PLEAT_OK) status = pleat__device_wait(w->hashes, err);
    if (status == PLEAT_OK) status = pleat__device_wait(w->copies, err);
    if (status != PLEAT_OK) {
        stand_still(c);
        return status;
    }
    memcpy(t->hash.sums, w->host_state, sizeof t->hash.sums);
    t->hash.next = t->hash.n_blocks;
    *hash = pleat__image_hash_end(&t->hash);
    return PLEAT_OK;
}

/* Where rows' pages stand, for the kernels: is there when the stream has been waited for. */
static pleat_status send_before(const pleat_device_cache *c, pleat__device_stream stream, pleat_error *err) {
    return pleat__device_copy(c->image.device_before, c->image.before, (3ull * c->rows_per_seq + 1) * sizeof(uint32_t),
                              stream, err);
}

static pleat__device_transfer transfer_of(const pleat_device_cache *c, uint32_t seq_idx, uint32_t n_tokens,
                                          uint8_t *image, const pleat__image_parts *p) {
    pleat__device_transfer t = {.seq_idx = seq_idx, .n_tokens = n_tokens, .image = image, .pages = image + p->pages_at};
    t.n_pages = c->image.before[c->rows_per_seq];
    t.n_pieces = count_pieces(c, t.n_pages);
    t.hashed_at = p->pages_at - sizeof(uint64_t); /* the hash itself stands before */
    pleat__image_hash_begin(&t.hash, image + sizeof(uint64_t), p->n_bytes - sizeof(uint64_t));
    return t;
}

pleat_status pleat_device_cache_expect_images(pleat_device_cache *c, pleat_error *err) {
    REQUIRE(c, "device cache: none given");
    PLEAT_TRY(pleat__device_use(c->opt.device, err));
    return take_stage(c, err);
}

uint64_t pleat_device_cache_image_shift(const pleat_device_cache *c, uint64_t n_bytes) {
    pleat__image_parts p;
    if (!c || !pleat__image_parts_of(&c->image_form, 0, 0, 0, &p) || n_bytes <= p.pages_at) return 0;
    const uint64_t n_pages = (n_bytes - p.pages_at) / (c->image_form.page_bytes + 1); /* and a flag each */
    return COPY_ALIGN - 1 - (n_bytes - n_pages * c->image_form.page_bytes - 1) % COPY_ALIGN;
}

/* ---- save ---------------------------------------------------------------------------------------- */

pleat_status pleat_device_cache_image_bytes(pleat_device_cache *c, uint32_t seq_idx, uint64_t *n_bytes, void *stream,
                                            pleat_error *err) {
    uint32_t n_tokens;
    pleat__image_parts p;
    REQUIRE(c && n_bytes && seq_idx < c->opt.max_seqs, "device cache: no such sequence, or no place for the answer");
    PLEAT_TRY(check_has_images(c, err));
    PLEAT_TRY(pleat__device_use(c->opt.device, err));
    PLEAT_TRY(bring_counts(c, seq_idx, pleat__device_stream_of(stream), &n_tokens, err));
    const uint32_t n_classed = classed_of(c, n_tokens, n_tokens); /* or none, where none are */
    *n_bytes = n_tokens > 0 && parts_of(c, c->image.before[c->rows_per_seq], n_classed, &p) ? p.n_bytes : 0;
    return PLEAT_OK;
}

static void write_head(const pleat_device_cache *c, const pleat_device_cache_image *of, const pleat__image_parts *p,
                       uint8_t *out) {
    const uint64_t n_pages = c->image.before[c->rows_per_seq];
    pleat__image_header head = pleat__image_header_of(&c->image_form);
    head.n_bytes = p->n_bytes;
    head.max_tokens = of->max_tokens;
    head.n_tokens = of->n_tokens;
    head.n_classed = classed_of(c, of->n_tokens, of->n_prompt);
    head.n_prompt = of->n_prompt;
    head.n_pages = head.n_stored = n_pages;
    head.ah = c->opt.spec.ah;
    head.al = c->opt.spec.al;
    memcpy(out, &head, sizeof head);
    for (uint32_t row = 0; row < c->rows_per_seq; row++) {
        const pleat__lane lane = {.n_pages = {pages_of_side(c, row, 0), pages_of_side(c, row, 1)},
                                  .n_slots = {c->image.n_slots[0][row], c->image.n_slots[1][row]},
                                  .n_dead = c->image.dead[row],
                                  .hole = c->image.hole[row]};
        memcpy(out + p->lanes_at + row * sizeof lane, &lane, sizeof lane);
    }
    memset(out + p->flags_at, 1, n_pages);
}

pleat_status pleat_device_cache_save_begin(pleat_device_cache *c, uint32_t seq_idx, uint32_t max_tokens,
                                           uint32_t n_prompt, void *image, uint64_t cap_bytes, void *stream,
                                           pleat_error *err) {
    const pleat__device_stream s = pleat__device_stream_of(stream);
    pleat_device_cache_image of = {.max_tokens = max_tokens, .n_prompt = n_prompt};
    pleat__image_parts p;
    uint8_t *out = image;
    REQUIRE(c && image && seq_idx < c->opt.max_seqs, "device cache: no such sequence, or no place for its image");
    PLEAT_TRY(check_has_images(c, err));
    PLEAT_FAIL_IF(c->in_step || c->in_prompt, err, PLEAT_E_STATE, PLEAT_NOWHERE,
                  "device cache: a step or a prompt is under way");
    PLEAT_TRY(pleat__device_use(c->opt.device, err));
    PLEAT_TRY(pleat_device_cache_save_end(c, NULL, err));
    PLEAT_TRY(take_stage(c, err));
    PLEAT_TRY(bring_counts(c, seq_idx, s, &of.n_tokens, err));
    REQUIRE(of.n_tokens > 0 && of.n_tokens <= max_tokens && n_prompt <= of.n_tokens,
            "device cache: an image of %u tokens, %u of them of prompts, for %u", of.n_tokens, n_prompt, max_tokens);
    const uint32_t n_classed = classed_of(c, of.n_tokens, n_prompt);
    REQUIRE(parts_of(c, c->image.before[c->rows_per_seq], n_classed, &p) && p.n_bytes <= cap_bytes,
            "device cache: the image is larger than its place");
    write_head(c, &of, &p, out);
    PLEAT_TRY(pleat__device_novelty_write_image(c, seq_idx, n_classed, out + p.kind_at, s, err));
    PLEAT_TRY(send_before(c, s, err));
    PLEAT_TRY(pleat__device_wait(s, err));
    c->image.leaving = transfer_of(c, seq_idx, of.n_tokens, out, &p);
    c->image.leaving.brings = true;
    pleat_status status = send_pages(c, &c->image.leaving, err);
    if (status == PLEAT_OK) status = pleat__device_event_wait(stage_of(c, c->image.leaving.n_pieces - 1)->there, err);
    if (status == PLEAT_OK) return PLEAT_OK;
    stand_still(c);
    c->image.leaving.image = NULL;
    return status;
}

pleat_status pleat_device_cache_save_end(pleat_device_cache *c, const void *image, pleat_error *err) {
    REQUIRE(c, "device cache: none given");
    pleat__device_transfer *t = &c->image.leaving;
    if (!t->image || (image && image != t->image)) return PLEAT_OK;
    PLEAT_TRY(pleat__device_use(c->opt.device, err));
    uint64_t sum = 0;
    const pleat_status status = end_pages(c, t, &sum, err);
    memcpy(t->image, &sum, sizeof sum);
    t->image = NULL;
    return status;
}

pleat_status pleat_device_cache_save(pleat_device_cache *c, uint32_t seq_idx, uint32_t max_tokens, uint32_t n_prompt,
                                     void *image, uint64_t cap_bytes, void *stream, pleat_error *err) {
    PLEAT_TRY(pleat_device_cache_save_begin(c, seq_idx, max_tokens, n_prompt, image, cap_bytes, stream, err));
    return pleat_device_cache_save_end(c, image, err);
}

/* ---- restore ------------------------------------------------------------------------------------- */

/* Can a row of a sequence of n_tokens be so? */
static bool row_is_sound(const pleat_device_cache *c, uint32_t row, uint32_t n_tokens, const pleat__lane *l) {
    const uint32_t window = pleat__device_window(c, row / c->opt.n_kv_heads);
    const uint64_t n_pages = (uint64_t)l->n_pages[0] + l->n_pages[1];
    const bool evicts = pleat__device_cache_evicts(c), may_die = evicts && !pleat__device_cache_is_packed(c);
    bool is_sound =
        l->n_dead <= (may_die ? l->n_slots[0] : 0) && l->hole <= l->n_slots[0] && n_pages <= c->lanes.pages.row_len;
    for (int side = 0; side < 2; side++) {
        const uint32_t tokens = c->lanes.layouts[side].tokens;
        is_sound &= l->n_pages[side] == pleat__div_up_u32(l->n_slots[side], tokens) &&
                    (uint64_t)l->n_sealed[side] * tokens <= (evicts ? 0 : l->n_slots[side]);
    }
    if (pleat__device_cache_has_policy(c))
        return is_sound && (c->two_sided || l->n_slots[1] == 0) &&
               (uint64_t)l->n_slots[0] + l->n_slots[1] <= pleat__device_cache_most_slots(c, n_tokens, n_tokens);
    const uint32_t hole = window && n_tokens >= window ? n_tokens % window + 1 : 0;
    return is_sound && l->n_slots[0] == (window && window < n_tokens ? window : n_tokens) && l->n_slots[1] == 0 &&
           l->hole == hole;
}

/* Living tokens of the high side in the lane that has most, from the counts. */
static uint32_t most_living(const pleat_device_cache *c) {
    uint32_t most = 0;
    for (uint32_t row = 0; row < c->rows_per_seq; row++)
        most = pleat__max_u32(most, c->image.n_slots[0][row] - c->image.dead[row] - (c->image.hole[row] != 0));
    return most;
}

/* Read the counts of an image of this cache, and how many pages its layers take: n_each. */
static bool read_counts(pleat_device_cache *c, const uint8_t *in, uint64_t n_bytes, pleat__image_header *head,
                        pleat__image_parts *p) {
    if (!pleat__image_read_header(&c->image_form, in, n_bytes, head) ||
        !parts_of(c, head->n_pages, head->n_classed, p) || p->n_bytes != n_bytes || head->n_stored != head->n_pages ||
        head->base != 0 || head->n_tokens == 0 || head->n_tokens > c->opt.max_tokens ||
        head->n_prompt > head->n_tokens || !classed_is_sound(c, head) ||
        !(head->ah == c->opt.spec.ah && head->al == c->opt.spec.al))
        return false;
    memset(c->n_each, 0, c->opt.n_layers * sizeof *c->n_each);
    for (uint32_t row = 0; row < c->rows_per_seq; row++) {
        pleat__lane lane;
        memcpy(&lane, in + p->lanes_at + row * sizeof lane, sizeof lane);
        if (!row_is_sound(c, row, head->n_tokens, &lane)) return false;
        uint32_t *n_each = &c->n_each[row / c->opt.n_kv_heads];
        *n_each = pleat__max_u32(*n_each, lane.n_pages[0] + lane.n_pages[1]);
        for (int side = 0; side < 2; side++) {
            c->image.n_slots[side][row] = lane.n_slots[side];
            c->image.sealed[side * c->rows_per_seq + row] = lane.n_sealed[side];
        }
        c->image.hole[row] = lane.hole;
        c->image.dead[row] = lane.n_dead;
    }
    count_pages(c);
    return c->image.before[c->rows_per_seq] == head->n_pages;
}

/* Do the pages of a row, the first at `pages`, hold each position once, those in the window all, and none in the hole
 * and as many other slots as are dead? */
static bool positions_are_sound(const pleat_device_cache *c, uint32_t row, const uint8_t *pages, uint32_t n_tokens,
                                uint32_t n_classed) {
    const uint32_t hole = c->image.hole[row];
    uint32_t n_dead = c->image.dead[row];
    uint8_t *seen = c->image.seen;
    memset(seen, 0, n_tokens);
    for (int side = 0; side < 2; side++) {
        const pleat__page_layout *layout = &c->lanes.layouts[side];
        for (uint32_t slot = 0; layout->tracked && slot < c->image.n_slots[side][row]; slot++) {
            const uint32_t at = slot % layout->tokens;
            int32_t position;
            memcpy(&position, pages + layout->pos_off + at * sizeof position, sizeof position);
            const bool is_hole = side == 0 && hole == slot + 1, is_dead = !is_hole && position == -1 && n_dead > 0;
            if (is_hole ? position != -1 : !is_dead && !pleat__position_is_new(position, n_tokens, seen)) return false;
            n_dead -= is_dead;
            if (at + 1 == layout->tokens || slot + 1 == c->image.n_slots[side][row]) pages += c->image_form.page_bytes;
        }
    }
    return n_dead == 0 && !memchr(seen + n_classed, 0, n_tokens - n_classed);
}

/* Do all pages say where tokens stand as pages of such a sequence can?  Uniform formats' say nothing of it. */
static bool pages_are_sound(const pleat_device_cache *c, const uint8_t *pages, const pleat__image_header *head) {
    if (!pleat__device_cache_has_policy(c)) return true;
    for (uint32_t row = 0; row < c->rows_per_seq; row++)
        if (!positions_are_sound(c, row, pages + c->image.before[row] * c->image_form.page_bytes, head->n_tokens,
                                 head->n_classed))
            return false;
    return true;
}

pleat_status pleat_device_cache_read_image(pleat_device_cache *c, const void *image, uint64_t n_bytes,
                                           pleat_device_cache_image *out, pleat_error *err) {
    pleat__image_header head;
    pleat__image_parts p;
    REQUIRE(c && out, "device cache: none given, or no place for the answer");
    PLEAT_TRY(check_has_images(c, err));
    if (!read_counts(c, image, n_bytes, &head, &p)) return damaged(err);
    *out =
        (pleat_device_cache_image){.max_tokens = head.max_tokens, .n_tokens = head.n_tokens, .n_prompt = head.n_prompt};
    for (uint32_t i = 0; i < c->opt.n_layers; i++) out->n_pages += (uint64_t)c->n_each[i] * c->opt.n_kv_heads;
    return PLEAT_OK;
}

/* The first pieces are on their way, whatever becomes of the rest. */
static pleat_status fetch_first(pleat_device_cache *c, const pleat__device_transfer *t, pleat_error *err) {
    pleat_status status = PLEAT_OK;
    for (uint32_t i = 0; status == PLEAT_OK && i < pleat__min_u32(t->n_pieces, EARLY_PIECES); i++)
        status = fetch_piece(c, t, i, err);
    if (status != PLEAT_OK) stand_still(c);
    return status;
}

/* Rows that have reserved their pages get their counts.  Waits. */
static pleat_status send_counts(pleat_device_cache *c, uint32_t seq_idx, pleat__device_stream stream,
                                pleat_error *err) {
    const uint32_t first = pleat__device_first_row(c, seq_idx);
    const uint64_t bytes = c->rows_per_seq * sizeof(uint32_t);
    const pleat__device_pages *to = &c->lanes.pages;
    for (int side = 0; side < 2; side++)
        PLEAT_TRY(pleat__device_copy(to->n_slots[side] + first, c->image.n_slots[side], bytes, stream, err));
    PLEAT_TRY(pleat__device_settle(to, first, c->rows_per_seq, stream, err));
    PLEAT_TRY(pleat__device_copy(to->hole + first, c->image.hole, bytes, stream, err));
    PLEAT_TRY(pleat__device_copy(to->dead + first, c->image.dead, bytes, stream, err));
    return pleat__device_wait(stream, err);
}

pleat_status pleat_device_cache_restore(pleat_device_cache *c, uint32_t seq_idx, const void *image, uint64_t n_bytes,
                                        void *stream, pleat_error *err) {
    const pleat__device_stream s = pleat__device_stream_of(stream);
    const uint8_t *in = image;
    pleat__image_header head;
    pleat__image_parts p;
    REQUIRE(c && image && seq_idx < c->opt.max_seqs, "device cache: no such sequence, or no image");
    PLEAT_TRY(check_has_images(c, err));
    PLEAT_TRY(pleat__device_use(c->opt.device, err));
    PLEAT_TRY(pleat_device_cache_save_end(c, NULL, err));
    PLEAT_TRY(take_stage(c, err));
    if (!read_counts(c, in, n_bytes, &head, &p)) return damaged(err);
    for (uint64_t at = p.flags_at; at < p.pages_at; at++)
        if (in[at] == 0) return damaged(err);
    pleat__device_transfer t =
        transfer_of(c, seq_idx, head.n_tokens, (uint8_t *)(uintptr_t)in, &p); /* which it does not write */
    PLEAT_TRY(send_before(c, s, err));
    PLEAT_TRY(fetch_first(c, &t, err));
    pleat_status status = pleat__device_cache_reserve_layers(c, seq_idx, c->n_each, s, err);
    if (status != PLEAT_OK) {
        stand_still(c);
        return status;
    }
    c->seq_states[seq_idx] = PLEAT__SEQ_OPEN;
    status = send_counts(c, seq_idx, s, err);
    if (status == PLEAT_OK) status = send_pages(c, &t, err);
    const bool is_sound = status == PLEAT_OK && pages_are_sound(c, in + p.pages_at, &head);
    uint64_t hash = 0;
    if (status == PLEAT_OK) status = end_pages(c, &t, &hash, err);
    if (status == PLEAT_OK)
        status = pleat__device_novelty_read_image(c, seq_idx, head.n_classed, in + p.kind_at, s, err);
    const bool is_intact = status == PLEAT_OK && hash == head.hash && is_sound;
    if (status == PLEAT_OK) status = pleat__device_lanes_set_length(&c->lanes, seq_idx, head.n_tokens, s, err);
    if (status == PLEAT_OK) status = pleat__device_cache_set_budget(c, seq_idx, head.n_prompt, s, err);
    if (status == PLEAT_OK) status = pleat__device_cache_raise_budget(c, seq_idx, most_living(c), s, err);
    if (status == PLEAT_OK) status = pleat__device_wait(s, err);
    if (status == PLEAT_OK && !is_intact) status = damaged(err);
    if (status != PLEAT_OK) (void)pleat_device_cache_close(c, seq_idx, stream, NULL);
    return status;
}
