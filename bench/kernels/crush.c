/* SPDX-License-Identifier: MIT
 *
 * crush.c: what kvcrush costs at the end of a prompt, for one layer, beside k-means on the same fingerprints.
 *
 *     bench_crush [-n TOKENS] [-l LANES] [-g GROUP] [-b BUDGET] [-s SHARE] [-p PAGE_TOKENS] [-r REPEATS]
 *
 * By default 4096 tokens, 4 lanes of 2 query heads, a middle of 1024 tokens, a share of 25 %, pages of 32 tokens and 15
 * repeats.  Scores are log-normal, ranks their sums over the group.
 *
 *     ms       median of the stage: pleat__crush_layer() with the choice of the important tokens in it
 *     plain    the same without a share
 *     added    what the share takes beside it
 *     x        how many times as much k-means adds
 *
 * Then come the bit operations alone, for each variant.
 */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "core/memory.h"
#include "core/rng.h"
#include "hw/cpu.h"
#include "policy/fingerprint.h"
#include "policy/kvcrush.h"

enum { MAX_LANES = 256, MAX_REPEATS = 101 };

typedef struct options {
    uint32_t n_tokens, n_lanes, n_group, middle, percent, page_tokens, n_repeats;
} options;

/* A layer whose lanes hold positions 0.. in their order. */
typedef struct rig {
    options o;
    pleat__page_layout layout;
    uint32_t slots_cap, sinks, window;
    pleat__page_id *ids; /* [lane][pages] */
    pleat__kv_view lanes[MAX_LANES];
    float *ranks[MAX_LANES];
    uint8_t *verdicts[MAX_LANES];
    uint32_t middle[MAX_LANES];
} rig;

static float score(pleat__rng *rng) {
    float sum = -6;
    for (int i = 0; i < 12; i++) sum += pleat__rng_f32(rng); /* about normal, deviation 1 */
    return expf(1.5f * sum);
}

/* Scores of a lane: a part of each token's is common to all lanes. */
static void fill_lane(rig *r, uint32_t lane, const float *common, pleat__rng *rng) {
    const options *o = &r->o;
    for (uint32_t p = 0; p < o->n_tokens; p++) {
        uint8_t *page = pleat__kv_page(&r->lanes[lane].high, p / o->page_tokens);
        const bool spared = p < r->sinks || p + r->window >= o->n_tokens;
        float sum = 0;
        for (uint32_t g = 0; g < o->n_group; g++) {
            const float x = common[p] * score(rng);
            pleat__head_scores(&r->layout, page, g)[p % o->page_tokens] = x;
            sum += x;
        }
        pleat__positions(&r->layout, page)[p % o->page_tokens] = (int32_t)p;
        r->ranks[lane][p] = spared ? -1 : sum;
    }
}

static void make_rig(const options *o, rig *r) {
    const uint32_t n_pages = pleat__div_up_u32(o->n_tokens, o->page_tokens), t = o->page_tokens;
    *r = (rig){.o = *o, .slots_cap = n_pages * t, .sinks = 4, .window = 64};
    r->layout = (pleat__page_layout){.tokens = t, .tracked = true, .n_scores = o->n_group, .score_off = t * 4};
    const uint64_t page_bytes = (t * 4 * (o->n_group + 1) + 16384 + 63) / 64 * 64; /* codes stand between */
    uint8_t *pool = reserve(page_bytes * n_pages * o->n_lanes);
    float *common = reserve((uint64_t)o->n_tokens * sizeof *common);
    r->ids = reserve((uint64_t)n_pages * o->n_lanes * sizeof *r->ids);
    pleat__rng rng = {.state = 1};
    for (uint32_t p = 0; p < o->n_tokens; p++) common[p] = score(&rng);
    for (uint32_t lane = 0; lane < o->n_lanes; lane++) {
        pleat__page_id *ids = r->ids + (size_t)lane * n_pages;
        for (uint32_t i = 0; i < n_pages; i++) ids[i].v = i * o->n_lanes + lane;
        r->lanes[lane].high = (pleat__kv_run){.layout = &r->layout,
                                              .base = pool,
                                              .page_bytes = page_bytes,
                                              .ids = ids,
                                              .step = 1,
                                              .n_slots = o->n_tokens};
        r->ranks[lane] = reserve(r->slots_cap * sizeof(float));
        r->verdicts[lane] = reserve(r->slots_cap);
        r->middle[lane] = o->middle;
        fill_lane(r, lane, common, &rng);
    }
    free(common);
}

static void carve(rig *r, const pleat_spec *spec, pleat__evict_scratch *scratch, pleat__arena *arena) {
    scratch->ranks = r->ranks;
    scratch->by_position = pleat__arena_take(arena, r->o.n_tokens + 8, sizeof(float));
    scratch->floats = pleat__arena_take(arena, r->slots_cap, sizeof(float));
    scratch->crush = pleat__crush_carve(spec, r->o.n_lanes, r->o.n_group, r->slots_cap, r->o.n_tokens, arena);
}

/* Median milliseconds of the stage. */
static double time_stage(rig *r, float share, pleat_anchor anchor, pleat_crush_unit unit, uint32_t n_repeats) {
    const pleat_spec spec = {.crush = 1, .share = share, .anchor = anchor, .unit = unit};
    pleat__evict_scratch scratch = {0};
    pleat__arena arena = {0};
    carve(r, &spec, &scratch, &arena);
    arena = (pleat__arena){.base = reserve(arena.used_bytes), .cap_bytes = arena.used_bytes};
    carve(r, &spec, &scratch, &arena);
    const pleat__evict_layer layer = {.spec = &spec,
                                      .n_layers = 1,
                                      .n_lanes = r->o.n_lanes,
                                      .n_tokens = r->o.n_tokens,
                                      .page_tokens = r->o.page_tokens,
                                      .lanes = r->lanes};
    double times[MAX_REPEATS];
    for (uint32_t i = 0; i < n_repeats; i++) {
        for (uint32_t lane = 0; lane < r->o.n_lanes; lane++) memset(r->verdicts[lane], 0, r->slots_cap);
        const double start = measure_now_s();
        pleat__crush_layer(&layer, &scratch, r->middle, r->verdicts);
        times[i] = 1e3 * (measure_now_s() - start);
    }
    free(arena.base);
    return measure_median(times, n_repeats);
}

static void print_stage(rig *r) {
    static const char *const anchors[] = {"mean", "random", "alternate", "kmeans"}, *const units[] = {"token", "page"};
    const float share = (float)(r->o.percent / 100.0);
    printf("unit   anchor         ms    added      x\n");
    for (int unit = 0; unit < 2; unit++) {
        const uint32_t few = (r->o.n_repeats + 4) / 5; /* it takes long */
        const double slow = time_stage(r, share, PLEAT_ANCHOR_KMEANS, (pleat_crush_unit)unit, few);
        const double plain = time_stage(r, 0, PLEAT_ANCHOR_MEAN, (pleat_crush_unit)unit, r->o.n_repeats);
        printf("%-6s %-10s %7.3f\n", units[unit], "plain", plain);
        for (int anchor = 0; anchor < 4; anchor++) {
            const double ms = anchor == PLEAT_ANCHOR_KMEANS
                                  ? slow
                                  : time_stage(r, share, (pleat_anchor)anchor, (pleat_crush_unit)unit, r->o.n_repeats);
            printf("%-6s %-10s %7.3f  %7.3f %6.1f\n", units[unit], anchors[anchor], ms, ms - plain,
                   (slow - plain) / (ms - plain));
        }
    }
}

/* ns a fingerprint, medians. */
static void print_variant(const char *name, uint32_t flags, const options *o, uint32_t n_words) {
    uint64_t *fingerprints = reserve((uint64_t)o->n_tokens * n_words * 8), *anchor = reserve(n_words * 8);
    uint32_t *distances = reserve((uint64_t)o->n_tokens * 4);
    double far[MAX_REPEATS], most[MAX_REPEATS];
    enum { ROUNDS = 20 };
    pleat__rng rng = {.state = 2};
    for (uint64_t i = 0; i < (uint64_t)o->n_tokens * n_words; i++) fingerprints[i] = pleat__rng_u64(&rng);
    pleat__fingerprint_dsp dsp;
    pleat__fingerprint_dsp_init(&dsp, flags);
    for (uint32_t i = 0; i < o->n_repeats; i++) {
        double start = measure_now_s();
        for (int k = 0; k < ROUNDS; k++) dsp.majority(fingerprints, o->n_tokens, n_words, anchor);
        most[i] = 1e9 / ROUNDS / o->n_tokens * (measure_now_s() - start);
        start = measure_now_s();
        for (int k = 0; k < ROUNDS; k++) dsp.distances(fingerprints, o->n_tokens, n_words, anchor, distances);
        far[i] = 1e9 / ROUNDS / o->n_tokens * (measure_now_s() - start);
    }
    printf("%-7s %5u  %9.3f  %9.3f\n", name, n_words, measure_median(far, o->n_repeats),
           measure_median(most, o->n_repeats));
    free(fingerprints);
    free(anchor);
    free(distances);
}

static void print_variants(const options *o) {
    static const struct {
        const char *name;
        uint32_t flags;
    } variants[] = {{"ref", 0}, {"avx2", PLEAT_CPU_AVX2}, {"avx512", PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512}};
    static const uint32_t words[] = {1, 4, 16};
    printf("\nbits    words  distances   majority   (ns a fingerprint)\n");
    for (int w = 0; w < 3; w++)
        for (int v = 0; v < 3; v++)
            if ((pleat_cpu_flags() & variants[v].flags) == variants[v].flags)
                print_variant(variants[v].name, variants[v].flags, o, words[w]);
}

static bool read_options(options *o, int argc, char **argv) {
    for (int c; (c = getopt(argc, argv, "n:l:g:b:s:p:r:")) != -1;) {
        char *end = NULL;
        errno = 0;
        const unsigned long v = optarg ? strtoul(optarg, &end, 10) : 0;
        if (c == '?' || errno || *end || *optarg == '-' || v > 1u << 20) return false;
        uint32_t *const to = c == 'n'   ? &o->n_tokens
                             : c == 'l' ? &o->n_lanes
                             : c == 'g' ? &o->n_group
                             : c == 'b' ? &o->middle
                             : c == 's' ? &o->percent
                             : c == 'p' ? &o->page_tokens
                                        : &o->n_repeats;
        *to = (uint32_t)v;
    }
    return optind == argc && o->n_tokens > 0 && o->n_lanes > 0 && o->n_lanes <= MAX_LANES && o->n_group > 0 &&
           o->n_group <= PLEAT__MAX_GROUP && o->percent <= 100 && o->page_tokens > 0 &&
           o->page_tokens % PLEAT__TILE == 0 && o->n_repeats > 0 && o->n_repeats <= MAX_REPEATS;
}

int main(int argc, char **argv) {
    options o = {4096, 4, 2, 1024, 25, 32, 15};
    const bool wants_help = argc == 2 && !strcmp(argv[1], "-h");
    if (wants_help || !read_options(&o, argc, argv)) {
        fprintf(wants_help ? stdout : stderr,
                "usage: bench_crush [-n TOKENS] [-l LANES] [-g GROUP, 1..64] [-b BUDGET] [-s SHARE, 0..100] "
                "[-p PAGE_TOKENS, a multiple of 16] [-r REPEATS, 1..101]\n");
        return wants_help ? 0 : 2;
    }
    static rig r;
    make_rig(&o, &r);
    printf("%u tokens, %u lanes of %u query heads, middle %u, share %u %%, pages of %u\n", o.n_tokens, o.n_lanes,
           o.n_group, o.middle, o.percent, o.page_tokens);
    print_stage(&r);
    print_variants(&o);
    return 0;
}
