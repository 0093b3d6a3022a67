/* SPDX-License-Identifier: MIT
 *
 * test_device_scored.c: lanes that keep a budget of tokens by scores on a GPU (h2o, snapkv, pyramidkv, adakv, novel), beside the
 * CPU's cache: the same tokens stay in the same slots with the same bytes, and their scores are near.
 *
 * Scores have other last bits there, so of two tokens whose scores are all but the same either may stay.  Where a lane
 * holds other tokens, these have to be such, they are counted, and the GPU goes on from the CPU's image.
 */
#include <stdio.h>
#include <string.h>

#include "cache/image_form.h"
#include "cache/layouts.h"
#include "cache_pair.h"

#define SCORE_OFF 5e-3f /* of a score; q and k meet as f16 and f32 */

/* What is compared, and how often lanes differed. */
typedef struct contest {
    pair p;
    pleat_spec spec;
    pleat__page_layout layout;
    uint64_t n_lanes, n_ties;
} contest;

/* A lane in an image. */
typedef struct lane_view {
    pleat__lane counts;
    const uint8_t *pages;
    uint64_t page_bytes;
} lane_view;

static lane_view lane_of(const image *m, uint32_t lane) {
    pleat__image_header head;
    pleat__image_parts parts;
    memcpy(&head, m->data, sizeof head);
    const pleat__image_form form = {head.n_lanes, head.page_bytes, head.kind};
    CHECK(pleat__image_parts_of(&form, 0, head.n_pages, head.n_stored, &parts));
    const uint64_t kind_bytes = m->n_bytes - parts.n_bytes; /* novel's sums */
    lane_view v = {.pages = m->data + parts.pages_at + kind_bytes, .page_bytes = head.page_bytes};
    for (uint32_t i = 0; i <= lane; i++) {
        v.pages += ((uint64_t)v.counts.n_pages[0] + v.counts.n_pages[1]) * head.page_bytes;
        memcpy(&v.counts, m->data + parts.lanes_at + i * sizeof v.counts, sizeof v.counts);
    }
    return v;
}

static int32_t position_at(const contest *c, const lane_view *v, uint32_t slot) {
    int32_t position;
    const uint8_t *page = v->pages + slot / c->layout.tokens * v->page_bytes;
    memcpy(&position, page + c->layout.pos_off + slot % c->layout.tokens * sizeof position, sizeof position);
    return position;
}

static float score_at(const contest *c, const lane_view *v, uint32_t slot) {
    float score;
    const uint8_t *page = v->pages + slot / c->layout.tokens * v->page_bytes;
    memcpy(&score, page + c->layout.score_off + slot % c->layout.tokens * sizeof score, sizeof score);
    return score;
}

/* Everything in a lane's pages but the scores. */
static bool bytes_are_alike(const contest *c, const lane_view *a, const lane_view *b) {
    const uint32_t score_end = c->layout.score_off + c->layout.tokens * (uint32_t)sizeof(float);
    bool alike = true;
    for (uint32_t i = 0; i < a->counts.n_pages[0] && alike; i++) {
        const uint8_t *x = a->pages + i * a->page_bytes, *y = b->pages + i * b->page_bytes;
        alike = CHECK_EQ_MEM(x, y, c->layout.score_off) &&
                CHECK_EQ_MEM(x + score_end, y + score_end, a->page_bytes - score_end);
    }
    return alike;
}

static bool scores_are_near(const contest *c, const lane_view *cpu, const lane_view *gpu) {
    bool near = true;
    for (uint32_t slot = 0; slot < cpu->counts.n_slots[0] && near; slot++)
        if (position_at(c, cpu, slot) >= 0) {
            const float want = score_at(c, cpu, slot);
            near = CHECK_NEAR(score_at(c, gpu, slot), want, SCORE_OFF * want + 1e-6f);
        }
    return near;
}

/* Do the lanes hold the same tokens in the same slots? */
static bool hold_the_same(const contest *c, const lane_view *cpu, const lane_view *gpu) {
    if (memcmp(&cpu->counts, &gpu->counts, sizeof cpu->counts) != 0) return false;
    for (uint32_t slot = 0; slot < cpu->counts.n_slots[0]; slot++)
        if (position_at(c, cpu, slot) != position_at(c, gpu, slot)) return false;
    return true;
}

/* 1: alike; 0: not, but by a tie, it may be; -1: a failure. */
static int compare_lane(contest *c, const image *cpu_image, const image *gpu_image, uint32_t lane) {
    const lane_view cpu = lane_of(cpu_image, lane), gpu = lane_of(gpu_image, lane);
    c->n_lanes++;
    if (hold_the_same(c, &cpu, &gpu)) return bytes_are_alike(c, &cpu, &gpu) && scores_are_near(c, &cpu, &gpu) ? 1 : -1;
    c->n_ties++;
    return CHECK_EQ_U64(pleat__lane_live_high(&gpu.counts), pleat__lane_live_high(&cpu.counts)) ? 0 : -1;
}

static bool compare(contest *c, uint32_t seq) {
    image cpu = image_of_cpu(&c->p, seq), gpu = image_of_gpu(&c->p, seq);
    bool is_good = true, tied = false;
    for (uint32_t lane = 0; lane < N_LAYERS * c->p.s.n_kv_heads && is_good; lane++) {
        const int how = compare_lane(c, &cpu, &gpu, lane);
        is_good = how >= 0;
        tied |= how == 0;
    }
    free(cpu.data), free(gpu.data);
    return is_good && (!tied || take_image(&c->p, seq));
}

static bool step_and_compare(contest *c, const uint32_t *seqs, uint32_t n) {
    bool is_good = true;
    step(&c->p, seqs, n);
    for (uint32_t i = 0; i < n && is_good; i++) is_good = compare(c, seqs[i]);
    return is_good && CHECK_STATUS(pleat_device_cache_check(c->p.gpu, NULL, NULL), PLEAT_OK);
}

static bool prompt_and_compare(contest *c, uint32_t seq, uint32_t n) {
    read_some(&c->p, seq, n);
    return compare(c, seq);
}

/* Prompts above, at and below the budget, and within the window; steps in changing company; a fork; the CPU's image. */
static bool run(contest *c) {
    static const uint32_t all[] = {2, 0, 1}, two[] = {0, 2};
    const uint32_t n_more = (uint32_t)check_cases(8, 1);
    bool is_good = prompt_and_compare(c, 0, 310) && prompt_and_compare(c, 1, 7) && prompt_and_compare(c, 2, 61);
    for (uint32_t i = 0; i < 2 * n_more && is_good; i++)
        is_good = i % 3 ? step_and_compare(c, all, 3) : step_and_compare(c, two, 2);
    if (!is_good) return false;
    fork_both(&c->p, 0, 2);
    is_good = compare(c, 2) && take_image(&c->p, 0) && compare(c, 0);
    for (uint32_t i = 0; i < n_more && is_good; i++) is_good = step_and_compare(c, all, 3);
    return is_good;
}

static bool contest_init(contest *c, const shape *s) {
    *c = (contest){.n_lanes = 0};
    if (!pair_init(&c->p, s)) return false;
    pleat_device_cache_usage u;
    pleat__layouts l;
    CHECK_STATUS(pleat_spec_parse(s->spec, &c->spec, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_get_usage(c->p.gpu, &u, NULL, NULL), PLEAT_OK);
    const pleat__layouts_of of = {&c->spec, s->head_dim, s->n_group, false, 4096};
    if (!CHECK_STATUS(pleat__layouts_init(&l, &of, u.page_tokens[0]), PLEAT_OK)) return false;
    c->layout = l.side[0];
    return CHECK_EQ_U64(c->layout.n_scores, 1);
}

static const char *const reclaims[] = {"reuse", "copy", "block", "none"};
static const char *const formats[] = {"f16", "k8v4", "k4v2", "k8v8", "k4v4"};

/* The i-th way of a policy. */
static void contest_of(const char *policy, uint32_t i, const char *format, bool has_ropes, uint64_t counts[2]) {
    char text[128];
    snprintf(text, sizeof text, "%s,reclaim=%s,format=%s", policy, reclaims[i % CHECK_COUNT(reclaims)], format);
    const shape s = {i % 3 ? 64 : 128, 2, 1 + i % 8, {0, 0}, 0, text, i % 4 ? 16 * (i % 4) : 0, has_ropes};
    contest c;
    if (contest_init(&c, &s)) run(&c);
    counts[0] += c.n_lanes, counts[1] += c.n_ties;
    pair_free(&c.p);
}

static void ties_are_rare(const uint64_t counts[2]) {
    check_context("%llu ties of %llu lanes", (unsigned long long)counts[1], (unsigned long long)counts[0]);
    CHECK(counts[1] * 50 <= counts[0]);
}

/* A prompt's keys are looked at as they come there, and as pages hold them here: in f16 these are the same. */
static void novel_keys_stay(void) {
    CHECK_DEVICE();
    static const char *const policies[] = {"novel:budget=60,window=8,near=0", "novel:budget=30%,window=16,near=2",
                                           "novel:budget=64,window=32,sinks=2,near=16"};
    uint64_t counts[2] = {0, 0};
    const uint32_t n_specs = CHECK_COUNT(policies) * CHECK_COUNT(reclaims), each = (uint32_t)check_cases(1, 11);
    for (uint32_t i = 0; i < n_specs && check_failures() == 0; i += each)
        contest_of(policies[i / CHECK_COUNT(reclaims)], i, "f16", true, counts);
    ties_are_rare(counts);
}

static void the_cpus_tokens_stay(void) {
    CHECK_DEVICE();
    static const char *const policies[] = {"h2o:budget=60,window=8",        "snapkv:budget=60,window=16",
                                           "pyramidkv:budget=70,window=12", "h2o:budget=40%,window=3,sinks=2",
                                           "snapkv:budget=25%,window=32",   "pyramidkv:budget=50%,window=5,sinks=3",
                                           "adakv:budget=60,window=16",     "adakv:budget=30%,window=8,sinks=2"};
    uint64_t counts[2] = {0, 0};
    const uint32_t n_specs = CHECK_COUNT(policies) * CHECK_COUNT(reclaims), each = (uint32_t)check_cases(1, 7);
    for (uint32_t i = 0; i < n_specs && check_failures() == 0; i += each)
        contest_of(policies[i / CHECK_COUNT(reclaims)], i, formats[i % CHECK_COUNT(formats)], false, counts);
    ties_are_rare(counts);
}

/* More tokens than keep takes in a round, against what is counted on the host: a needle among a prompt's keys. */
static void what_the_prompts_end_asks_for_stays(void) {
    CHECK_DEVICE();
    enum { MANY = 5000, D = 64, NEEDLE = 1234 };
    pleat_device_cache_options opt;
    pleat_device_cache *c = NULL;
    pleat_device_cache_options_default(&opt);
    CHECK_STATUS(pleat_spec_parse("snapkv:budget=64,window=16,format=f16", &opt.spec, NULL), PLEAT_OK);
    opt.n_layers = 1, opt.n_kv_heads = 2, opt.n_q_heads = 2, opt.head_dim = D;
    opt.max_tokens = MANY + 8;
    if (!CHECK_STATUS(pleat_device_cache_create(&opt, &c, NULL), PLEAT_OK)) return;
    const uint64_t bytes = (uint64_t)MANY * 2 * D * 2;
    uint16_t *rows = malloc(bytes);
    for (uint64_t i = 0; i < bytes / 2; i++) rows[i] = pleat__f32_to_f16(0.1f * check_normal());
    for (uint32_t d = 0; d < 2 * D; d++) rows[(uint64_t)NEEDLE * 2 * D + d] = pleat__f32_to_f16(3);
    for (uint64_t i = (uint64_t)(MANY - 16) * 2 * D; i < bytes / 2; i++) rows[i] = pleat__f32_to_f16(1);
    void *device = device_alloc(bytes), *out = device_alloc(bytes), *received = device_alloc(MANY * 2 * 4);
    float k[5 * D], v[5 * D];
    copy(device, rows, bytes);
    CHECK_STATUS(pleat_device_cache_prompt_begin(c, 0, MANY, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_prompt_attend(c, 0, device, device, device, out, received, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_prompt(c, 0, device, device, received, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_prompt_end(c, NULL, NULL), PLEAT_OK);
    for (uint32_t head = 0; head < 2; head++) { /* the needle, and its neighbours by pooling */
        CHECK_STATUS(pleat_device_cache_export(c, 0, 0, head, NEEDLE - 2, 5, k, v, NULL, NULL), PLEAT_OK);
        CHECK_NEAR(k[2 * D], 3, 1e-3);
        for (uint32_t i = 0; i < 5; i++) CHECK(k[i * D] != 0);
    }
    CHECK_STATUS(pleat_device_cache_check(c, NULL, NULL), PLEAT_OK);
    pleat_device_cache_destroy(&c);
    pleat__device_free(device), pleat__device_free(out), pleat__device_free(received);
    free(rows);
}

static const check_test tests[] = {
    {"the cpu's tokens stay", the_cpus_tokens_stay},
    {"novel keys stay", novel_keys_stay},
    {"what the prompt's end asks for stays", what_the_prompts_end_asks_for_stays},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
