/* SPDX-License-Identifier: MIT
 *
 * test_device_cache.c: prompts and steps of device caches against the CPU's functions on the same bytes.
 *
 * Each call of a step is followed on the host's copy as cache/step.c and keep/compact.c have it.  Scores are made up,
 * so that every branch of the policy is taken; counts at the end say that it was.
 */
#include "device_cache_rig.h"

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static pleat__kv_run run_of(const rig *r, const image *m, uint32_t row, int side) {
    return (pleat__kv_run){.layout = &r->cache->lanes.layouts[side],
                           .base = m->pages,
                           .page_bytes = r->cache->lanes.page_bytes,
                           .ids = (const pleat__page_id *)(const void *)cell_of(r, m, row, side, 0),
                           .step = side ? -1 : 1,
                           .n_slots = m->n_slots[side][row]};
}

/* grow_seq() of cache/step.c, and which slots the tokens take. */
static void expect_growth(rig *r, const uint32_t *batch, uint32_t n_seqs) {
    for (uint32_t i = 0; i < n_seqs; i++) {
        r->want.n_tokens[batch[i]]++;
        for (uint32_t row = batch[i] * LANES; row < (batch[i] + 1) * LANES; row++) {
            uint32_t *hole = &r->want.hole[row], *n_slots = &r->want.n_slots[0][row];
            r->want.new_slot[row] = *hole ? (*hole - 1) | PLEAT__NEW_SLOT_IS_HOLE : (*n_slots)++;
            r->n_holes += *hole != 0;
            *hole = 0;
        }
    }
}

/* Keys and values of the step, and queries, as a product makes them: f32, side by side.  Without biases, norms and turns
 * they are stored as they are. */
static void append_heads(rig *r, uint32_t layer, uint32_t n_seqs) {
    const uint32_t n_q = HEADS * GROUP * r->d, n_kv = HEADS * r->d, width = n_q + 2 * n_kv;
    float *rows = must_alloc((uint64_t)n_seqs * width * sizeof *rows);
    uint16_t *q = must_alloc((uint64_t)n_seqs * n_q * sizeof *q);
    for (uint32_t i = 0; i < n_seqs; i++) {
        float *row = rows + (uint64_t)i * width;
        for (uint32_t x = 0; x < n_q; x++) row[x] = (float)check_uniform(-4, 4);
        for (uint32_t x = 0; x < n_kv; x++) row[n_q + x] = pleat__f16_to_f32(r->k[(uint64_t)i * n_kv + x]);
        for (uint32_t x = 0; x < n_kv; x++) row[n_q + n_kv + x] = pleat__f16_to_f32(r->v[(uint64_t)i * n_kv + x]);
    }
    void *device_rows = device_alloc((uint64_t)n_seqs * width * sizeof *rows);
    copy(device_rows, rows, (uint64_t)n_seqs * width * sizeof *rows);
    const pleat_device_cache_heads heads = {.qkv = device_rows};
    CHECK_STATUS(pleat_device_cache_append_heads(r->cache, layer, &heads, r->device_q, NULL, NULL), PLEAT_OK);
    copy(q, r->device_q, (uint64_t)n_seqs * n_q * sizeof *q);
    for (uint32_t i = 0; i < n_seqs; i++)
        for (uint32_t x = 0; x < n_q; x++)
            CHECK_EQ_U64(q[(uint64_t)i * n_q + x], pleat__f32_to_f16(rows[(uint64_t)i * width + x]));
    pleat__device_free(device_rows);
    free(rows);
    free(q);
}

static void append_layer(rig *r, uint32_t layer, const uint32_t *batch, uint32_t n_seqs) {
    make_rows(r, n_seqs);
    if (pleat_device_cache_takes_heads(r->cache) && check_below(2))
        append_heads(r, layer, n_seqs);
    else
        CHECK_STATUS(pleat_device_cache_append(r->cache, layer, r->device_k, r->device_v, NULL, NULL), PLEAT_OK);
    for (uint32_t i = 0; i < n_seqs; i++) {
        for (uint32_t head = 0; head < HEADS; head++) {
            const uint32_t row = row_of(batch[i], layer, head), slot = r->want.new_slot[row];
            put_token(r, row, 0, slot & ~PLEAT__NEW_SLOT_IS_HOLE, i, head, 0, r->want.n_tokens[batch[i]] - 1,
                      (slot & PLEAT__NEW_SLOT_IS_HOLE) != 0);
        }
    }
}

/* New scores for the live slots of one side: significances of `least`/N and more. */
static void score_side(rig *r, uint32_t row, int side, uint32_t n_tokens, double least) {
    const pleat__page_layout *l = &r->cache->lanes.layouts[side];
    for (uint32_t slot = 0; slot < r->want.n_slots[side][row] && l->tracked; slot++) {
        const slot_at at = slot_of(r, &r->want, row, side, slot);
        const int32_t position = pleat__positions(l, at.page)[at.slot];
        if (position < 0) continue;
        const double s = (least + check_uniform(0, 1) * r->spec.ah) / n_tokens;
        const bool is_none = least == 0 && check_below(8) == 0;                                /* ties */
        pleat__scores(l, at.page)[at.slot] = is_none ? 0 : (float)(s * (n_tokens - position)); /* of the newest too */
    }
}

/* The same for all lanes of the batch, here and there.  Some have victims to drop, some to demote, some none. */
static void score_lanes(rig *r, const uint32_t *batch, uint32_t n_seqs) {
    const double ah = r->spec.ah, al = r->spec.al;
    const double leasts[] = {0, 0.5 * al, al, 0.5 * (al + ah), 1.1 * ah};
    for (uint32_t i = 0; i < n_seqs * LANES; i++) {
        const uint32_t seq_idx = batch[i / LANES], row = seq_idx * LANES + i % LANES;
        for (int side = 0; side < 2; side++)
            score_side(r, row, side, r->want.n_tokens[seq_idx], leasts[check_below(CHECK_COUNT(leasts))]);
    }
    copy(r->cache->lanes.base, r->want.pages, r->cache->memory_bytes[0]);
}

/* put_low() and demote() of cache/keep/compact.c. */
static void demote(rig *r, uint32_t row, uint32_t slot, uint32_t low_slot) {
    const pleat__page_layout *high = &r->cache->lanes.layouts[0], *low = &r->cache->lanes.layouts[1];
    const bool is_append = low_slot == PLEAT__NO_SLOT;
    const slot_at from = slot_of(r, &r->want, row, 0, slot);
    const slot_at to = slot_of(r, &r->want, row, 1, is_append ? r->want.n_slots[1][row] : low_slot);
    float k[128], v[128];
    pleat__quant_load_token(high, from.page, from.slot, k, v);
    if (is_append)
        r->quant.store(low, to.page, to.slot, 1, k, v, r->d);
    else
        r->quant.replace(low, to.page, to.slot, k, v);
    if (low->tracked) {
        pleat__scores(low, to.page)[to.slot] = pleat__scores(high, from.page)[from.slot];
        pleat__positions(low, to.page)[to.slot] = pleat__positions(high, from.page)[from.slot];
    }
    r->want.n_slots[1][row] += is_append;
    r->n_demoted++;
    r->n_replaced += !is_append;
}

static void free_high(rig *r, uint32_t row, uint32_t slot) {
    const slot_at at = slot_of(r, &r->want, row, 0, slot);
    pleat__positions(&r->cache->lanes.layouts[0], at.page)[at.slot] = -1;
    if (slot + 1 == r->want.n_slots[0][row])
        r->want.n_slots[0][row]--;
    else
        r->want.hole[row] = slot + 1;
}

static void drop_low(rig *r, uint32_t row, uint32_t slot) {
    const uint32_t last = --r->want.n_slots[1][row];
    const slot_at to = slot_of(r, &r->want, row, 1, slot), from = slot_of(r, &r->want, row, 1, last);
    if (slot != last) pleat__quant_copy(&r->cache->lanes.layouts[1], to.page, to.slot, from.page, from.slot);
    r->n_low_dropped++;
}

/* close_high() and compact_counted() of cache/keep/compact.c. */
static void expect_counted(rig *r, uint32_t row, uint32_t n_tokens, const pleat__kv_view *view) {
    const pleat__page_layout *high = &r->cache->lanes.layouts[0];
    pleat__leavers who;
    pleat__leankv_leavers(&r->spec, &r->scan, view, n_tokens, &who);
    for (uint32_t i = who.n_low; i-- > 0;) drop_low(r, row, who.low[i]);
    for (uint32_t i = who.n_high; i-- > 0;) {
        if (!who.is_dropped[i]) demote(r, row, who.high[i], PLEAT__NO_SLOT);
        const uint32_t last = --r->want.n_slots[0][row];
        const slot_at to = slot_of(r, &r->want, row, 0, who.high[i]), from = slot_of(r, &r->want, row, 0, last);
        if (who.high[i] != last) pleat__quant_copy(high, to.page, to.slot, from.page, from.slot);
        r->n_dropped += who.is_dropped[i];
    }
    r->n_kept += who.n_high == 0;
}

/* compact_step() of cache/keep/compact.c. */
static void expect_lane_end(rig *r, uint32_t seq_idx, uint32_t row) {
    const uint32_t n_tokens = r->want.n_tokens[seq_idx];
    const slot_at fresh = slot_of(r, &r->want, row, 0, r->want.new_slot[row] & ~PLEAT__NEW_SLOT_IS_HOLE);
    if (!pleat__step_is_counted(&r->spec, n_tokens)) return;
    pleat__scores(&r->cache->lanes.layouts[0], fresh.page)[fresh.slot] = 0;
    r->want.new_slot[row] = PLEAT__NO_NEW_SLOT;
    if (n_tokens <= r->spec.window) return;
    const pleat__kv_view view = {.high = run_of(r, &r->want, row, 0), .low = run_of(r, &r->want, row, 1)};
    if (r->spec.every > 1) {
        expect_counted(r, row, n_tokens, &view);
        return;
    }
    const pleat__policy_step step = pleat__leankv_step(&r->spec, &r->scan, &view, n_tokens);
    const bool left = step.left_slot != PLEAT__NO_SLOT && step.left_level != PLEAT_LEVEL_HIGH;
    const pleat_level level = left ? step.left_level : step.high_level;
    const uint32_t leaver = left ? step.left_slot : step.high_victim;
    const bool demotes = leaver != PLEAT__NO_SLOT && level == PLEAT_LEVEL_LOW;
    if (demotes) demote(r, row, leaver, step.low_victim);
    if (leaver != PLEAT__NO_SLOT) free_high(r, row, leaver);
    if (!demotes && step.low_victim != PLEAT__NO_SLOT) drop_low(r, row, step.low_victim);
    r->n_dropped += leaver != PLEAT__NO_SLOT && !demotes;
    r->n_kept += leaver == PLEAT__NO_SLOT;
}

static bool is_step_as_expected(rig *r, const char *what) {
    bring_image(r, &r->now);
    if (is_as_expected(r)) return true;
    check_context("%s", what);
    return CHECK(false);
}

/* Attention in f16 is that in f32, rounded. */
static bool attends_alike(rig *r, uint32_t n_seqs) {
    const uint64_t n = (uint64_t)n_seqs * HEADS * GROUP * r->d;
    if (!pleat_device_cache_takes_heads(r->cache)) return true;
    float *out = must_alloc(n * sizeof *out);
    uint16_t *rounded = must_alloc(n * sizeof *rounded);
    CHECK_STATUS(pleat_device_cache_plan(r->cache, PLEAT_DEVICE_EQUAL_SHARES, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_attend(r->cache, 1, r->device_q, r->device_out, NULL, NULL, NULL), PLEAT_OK);
    copy(out, r->device_out, n * sizeof *out);
    CHECK_STATUS(pleat_device_cache_attend_f16(r->cache, 1, r->device_q, r->device_out, NULL, NULL), PLEAT_OK);
    copy(rounded, r->device_out, n * sizeof *rounded);
    uint64_t n_other = 0;
    for (uint64_t i = 0; i < n; i++) n_other += rounded[i] != pleat__f32_to_f16(out[i]);
    free(out);
    free(rounded);
    return CHECK_EQ_U64(n_other, 0);
}

/* A step of the batch, looked at after each call. */
static bool do_step(rig *r, const uint32_t *batch, uint32_t n_seqs) {
    CHECK_STATUS(pleat_device_cache_set_batch(r->cache, batch, n_seqs, NULL, NULL), PLEAT_OK);
    bring_image(r, &r->now);
    expect_now(r);
    CHECK_STATUS(pleat_device_cache_begin(r->cache, NULL, NULL), PLEAT_OK);
    expect_growth(r, batch, n_seqs);
    bring_image(r, &r->now); /* pages have been taken */
    memcpy(r->want.ids, r->now.ids, (uint64_t)r->n_rows * r->cache->lanes.pages.row_len * 4);
    if (!is_as_expected(r)) return false;
    pleat__device_new_token fresh[SEQS * LANES];
    copy(fresh, r->cache->lanes.fresh, n_seqs * LANES * sizeof *fresh);
    for (uint32_t i = 0; i < n_seqs * LANES; i++)
        CHECK_EQ_U64(fresh[i].slot, r->want.new_slot[batch[i / LANES] * LANES + i % LANES]);
    for (uint32_t layer = 0; layer < LAYERS; layer++) append_layer(r, layer, batch, n_seqs);
    if (!is_step_as_expected(r, "append")) return false;
    if (r->spec.policy == PLEAT_POLICY_LEANKV) score_lanes(r, batch, n_seqs);
    CHECK_STATUS(pleat_device_cache_end(r->cache, NULL, NULL), PLEAT_OK);
    for (uint32_t i = 0; i < n_seqs * LANES && r->spec.policy == PLEAT_POLICY_LEANKV; i++)
        expect_lane_end(r, batch[i / LANES], batch[i / LANES] * LANES + i % LANES);
    if (!is_step_as_expected(r, "end")) return false;
    CHECK_STATUS(pleat_device_cache_wait(r->cache, NULL, NULL), PLEAT_OK);
    if (!attends_alike(r, n_seqs)) return false;
    return CHECK_STATUS(pleat_device_cache_check(r->cache, NULL, NULL), PLEAT_OK);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static const struct shape {
    const char *text;
    uint32_t page_tokens;
} shapes[] = {
    {"f16", 16},
    {"k8v4", 32},
    {"k4v2", 48},
    {"h4v4", 32},
    {"h3v2", 48},
    {"h2v3", 16},
    {"leankv:ah=1.5,al=0.6,window=16", 32},
    {"leankv:ah=1.5,al=0.6,window=16,step=code", 0},
    {"leankv:ah=0.9,al=0.5,window=5,high=k8v8,low=k4v4", 16},
    {"leankv:ah=1.2,al=0.8,window=7,threshold=position,high=k8v8,low=k4v4", 48},
    {"leankv:ah=1.5,al=0.6,window=16,high=f16,low=k4v2", 32},
    {"leankv:ah=1,al=1,window=20", 16},
    {"leankv:ah=1.5,al=0.6,window=16,low=h3v2", 32},
    {"leankv:ah=1.2,al=0.5,window=9,high=k8v8,low=h2v2,step=code", 16},
    {"leankv:ah=3,al=0,window=3", 16},
    {"leankv:ah=1.2,al=0.5,window=1,step=code", 64},
    {"leankv:ah=0,al=0,window=1", 32},
    {"leankv:ah=1.5,al=0.6,window=16,every=8", 32},
    {"leankv:ah=1.5,al=0.6,window=16,low=h3v2,every=4", 16},
    {"leankv:ah=3,al=0,window=3,every=4", 0},
    {"leankv:ah=1,al=1,window=20,every=2", 16},
};

static void try_shape(const struct shape *s, uint32_t d) {
    rig r;
    pleat_device_cache_options opt = options_of(s->text, d);
    opt.page_tokens = s->page_tokens;
    check_context("%s, d %u", s->text, d);
    if (!rig_init(&r, &opt)) return;
    static const uint32_t lengths[SEQS - 1] = {1, 333, 50}; /* and place 3, which begins with its first step */
    bool goes_on = true;
    for (uint32_t seq_idx = 0; seq_idx < SEQS - 1 && goes_on; seq_idx++)
        goes_on = read_prompt(&r, seq_idx, lengths[seq_idx]);
    const uint32_t n_steps = (uint32_t)check_cases(check_rounds(60, 40), 2);
    const uint32_t many_lanes = r.cache->lanes.many_lanes;
    for (uint32_t step = 0; step < n_steps && goes_on; step++) {
        const uint32_t first = (uint32_t)check_below(SEQS), n = (uint32_t)check_between(1, SEQS);
        uint32_t batch[SEQS];
        for (uint32_t i = 0; i < n; i++) batch[i] = (first + 3 * i) % SEQS;
        check_context("%s, d %u, step %u", s->text, d, step);
        r.cache->lanes.many_lanes = step % 3 == 0 ? 1 : many_lanes; /* one warp a lane, or eight */
        goes_on = do_step(&r, batch, n);
    }
    if (r.spec.policy == PLEAT_POLICY_LEANKV && r.spec.ah > 0 && n_steps >= 40) {
        check_context("%s, d %u: demoted %llu (%llu for a victim), dropped %llu, low %llu, holes %llu, kept %llu",
                      s->text, d, (unsigned long long)r.n_demoted, (unsigned long long)r.n_replaced,
                      (unsigned long long)r.n_dropped, (unsigned long long)r.n_low_dropped,
                      (unsigned long long)r.n_holes, (unsigned long long)r.n_kept);
        CHECK((r.n_holes > 10) == (r.spec.every == 1));
        CHECK((r.n_demoted > 10) == (r.spec.al < r.spec.ah));
        CHECK((r.n_dropped > 0) == (r.spec.al > 0));
        CHECK(r.spec.al == 0 || r.spec.al == r.spec.ah || r.n_replaced + r.n_low_dropped > 0);
    }
    rig_free(&r);
}

static void test_bytes(void) {
    CHECK_DEVICE();
    enum { N = CHECK_COUNT(shapes) };
    for (uint32_t i = (uint32_t)check_cases(0, 2); i < check_cases(2 * N, N); i += (uint32_t)check_cases(1, 3))
        try_shape(&shapes[i % N], (i + i / N) % 2 ? 128 : 64);
}

/* A prompt of several rounds of class_tokens, and searches of several rounds. */
static void try_long(const char *text) {
    enum { N = 9001 };
    rig r;
    pleat_device_cache_options opt = options_of(text, 64);
    opt.max_tokens = N + 10;
    if (!rig_init(&r, &opt)) return;
    const uint32_t batch[] = {2}, many_lanes = r.cache->lanes.many_lanes;
    bool goes_on = read_prompt(&r, 2, N);
    for (uint32_t step = 0; step < check_cases(6, 2) && goes_on; step++) {
        check_context("step %u", step);
        r.cache->lanes.many_lanes = step % 2 ? 1 : many_lanes;
        goes_on = do_step(&r, batch, 1);
    }
    CHECK(r.n_kept < 6 * LANES);
    rig_free(&r);
}

static void test_long(void) {
    CHECK_DEVICE();
    try_long("leankv:ah=1.5,al=0.6,window=16");
    try_long("leankv:ah=1.5,al=0.6,window=16,every=2");
}

/* A sequence does not grow beyond max_tokens, and neither does what shares its step. */
static void test_limit(void) {
    CHECK_DEVICE();
    rig r;
    const pleat_device_cache_options opt = options_of("f16", 64);
    if (!rig_init(&r, &opt)) return;
    CHECK(read_prompt(&r, 0, CAP - 1) && read_prompt(&r, 1, 5));
    const uint32_t batch[] = {1, 0};
    CHECK(do_step(&r, batch, 2));
    bring_image(&r, &r.now);
    expect_now(&r);
    CHECK_STATUS(pleat_device_cache_begin(r.cache, NULL, NULL), PLEAT_OK);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        CHECK_STATUS(pleat_device_cache_append(r.cache, layer, r.device_k, r.device_v, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_end(r.cache, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_wait(r.cache, NULL, NULL), PLEAT_AGAIN);
    bring_image(&r, &r.now);
    CHECK(is_as_expected(&r));
    uint32_t n;
    CHECK_STATUS(pleat_device_cache_length(r.cache, 0, &n, NULL, NULL), PLEAT_OK);
    CHECK_EQ_U64(n, CAP);
    CHECK(do_step(&r, batch, 1));
    rig_free(&r);
}

static const check_test tests[] = {{"bytes", test_bytes}, {"long", test_long}, {"limit", test_limit}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
