/* SPDX-License-Identifier: MIT
 *
 * device.c: what `pleat bench` does not time on a GPU: attention of prompts, and the pieces of a leankv step.
 *
 *     bench_device [prompt|step]
 *
 *     prompt   causal attention of one sequence, and the same with the attention received, in the GPU's best way
 *              (wgmma on Hopper) and by mma.sync.  TFLOP/s: 4*d operations a visible pair of query and key, and head
 *     step     32 sequences, 32 layers, lanes of 1000 high and 3000 low tokens: begin, append and attend of all
 *              layers, and end, a CUDA graph each, launched in this order as the steps of a generation.  Then
 *              prompts, placed in an empty cache: a layer's keys and values classed, quantised and stored
 *
 * Both with 32 query heads, 8 KV heads, d 128; the GPU is device 0.
 *
 * Times are medians (least .. most) of 9 rounds after 2 that warm up, by the device's clock: events in the stream.
 * Work is queued well before it is waited for, so that launches cost nothing once the device lags behind.  A round of
 * `prompt` attends to 32768 tokens, cut into prompts of the length asked for, each with its own memory; layers of a
 * placed prompt go round 65536: what is read comes from memory.  Power lowers the clock of a GPU that multiplies for
 * long: each case of `prompt` begins after 0.3 s of rest.
 *
 * Without a GPU, or in a build without CUDA, one line that says why, and exit code 0.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "attn/cuda/prompt.h"
#include "bench.h"
#include "core/error.h"
#include "core/half.h"
#include "core/rng.h"
#include "hw/cpu.h"
#include "pleat/device_cache.h"

#define Q_HEADS 32u
#define KV_HEADS 8u
#define HEAD_DIM 128u
#define Q_WIDTH (Q_HEADS * HEAD_DIM)
#define KV_WIDTH (KV_HEADS * HEAD_DIM)
#define N_LAYERS 32u
#define N_LANES (N_LAYERS * KV_HEADS) /* of a sequence */
#define N_SEQS 32u
#define N_HIGH 1000u
#define N_LOW 3000u
#define N_ATTENDED 32768u /* tokens of a round, and */
#define N_PLACED 65536u   /* those whose keys and values are in memory: multiples of all prompts' lengths */

#define N_WARM 2u
#define N_ROUNDS 9u

static const uint32_t attended[] = {2048, 8192, N_ATTENDED}, placed[] = {8192, N_PLACED};
static const char *const specs[] = {"leankv:ah=1.5,al=0.6,window=64", "leankv:ah=1.5,al=0,window=64"};

enum { PIECE_BEGIN, PIECE_APPEND, PIECE_ATTEND, PIECE_END, N_PIECES };
enum { N_MARKS = (N_WARM + N_ROUNDS) * N_PIECES + 1 };

/* Tokens are normal variates, the same ones every 2^21 elements. */
typedef struct rig {
    pleat__device_stream stream;
    pleat__device_event marks[N_MARKS];
    void *q, *out;         /* f16 [N_ATTENDED][Q_WIDTH]; of steps out is f32 [N_SEQS][Q_WIDTH] */
    void *k, *v;           /* f16 [N_PLACED][KV_WIDTH] */
    void *lse2, *received; /* f32 [N_ATTENDED][Q_HEADS], [KV_HEADS][N_PLACED] */
    void *workspace;
    pleat_spec spec;
    pleat_device_cache *cache; /* of the measurement under way, as spec */
    pleat__device_graph graphs[N_PIECES];
} rig;

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* n f16 variates with a deviation of about 1: a block of them, again and again. */
static pleat_status make_tokens(const rig *r, uint64_t n, uint64_t seed, void **p, pleat_error *err) {
    enum { BLOCK = 1 << 21 };
    static uint16_t block[BLOCK];
    pleat__rng rng = {seed};
    for (uint32_t i = 0; i < BLOCK; i++) {
        const float u = pleat__rng_f32(&rng) + pleat__rng_f32(&rng) + pleat__rng_f32(&rng);
        block[i] = pleat__f32_to_f16(2 * u - 3);
    }
    PLEAT_TRY(pleat__device_alloc(n * sizeof *block, p, err));
    for (uint64_t at = 0; at < n; at += BLOCK)
        PLEAT_TRY(pleat__device_copy((uint16_t *)*p + at, block, sizeof block, r->stream, err));
    return pleat__device_wait(r->stream, err);
}

static pleat_status rig_init(rig *r, pleat_error *err) {
    const uint64_t n = N_ATTENDED, n_kv = N_PLACED;
    PLEAT_TRY(pleat__device_use(0, err));
    PLEAT_TRY(pleat__device_stream_create(&r->stream, err));
    for (size_t i = 0; i < N_MARKS; i++) PLEAT_TRY(pleat__device_event_create(&r->marks[i], err));
    PLEAT_TRY(make_tokens(r, n * Q_WIDTH, 1, &r->q, err));
    PLEAT_TRY(make_tokens(r, n_kv * KV_WIDTH, 2, &r->k, err));
    PLEAT_TRY(make_tokens(r, n_kv * KV_WIDTH, 3, &r->v, err));
    PLEAT_TRY(pleat__device_alloc(n * Q_WIDTH * sizeof(uint16_t), &r->out, err));
    PLEAT_TRY(pleat__device_alloc(n * Q_HEADS * sizeof(float), &r->lse2, err));
    PLEAT_TRY(pleat__device_alloc(n_kv * KV_HEADS * sizeof(float), &r->received, err));
    return pleat__device_alloc(PLEAT__PROMPT_WORKSPACE_MAX, &r->workspace, err);
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

static pleat_status mark(const rig *r, size_t i, pleat_error *err) {
    return pleat__device_event_record(r->marks[i], r->stream, err);
}

/* Of each round that counts, an n_parts-th of the time from its mark `first` to the next mark.  Waits. */
static pleat_status read_marks(const rig *r, uint32_t first, uint32_t marks_a_round, uint32_t n_parts,
                               double us[N_ROUNDS], pleat_error *err) {
    for (uint32_t i = 0; i < N_ROUNDS; i++) {
        const size_t at = (size_t)(N_WARM + i) * marks_a_round + first;
        float ms;
        PLEAT_TRY(pleat__device_event_elapsed(r->marks[at], r->marks[at + 1], &ms, err));
        us[i] = 1e3 * (double)ms / n_parts;
    }
    return PLEAT_OK;
}

/* In units of unit_us microseconds; returns the median in microseconds. */
static double print_times(double us[N_ROUNDS], double unit_us, const char *unit) {
    const double m = measure_median(us, N_ROUNDS);
    printf("%9.3f %s (%.3f .. %.3f)", m / unit_us, unit, us[0] / unit_us, us[N_ROUNDS - 1] / unit_us);
    return m;
}

/* Of f16 rows, a token's. */
static void *row_of(void *rows, uint32_t width, uint64_t token) { return (uint16_t *)rows + token * width; }

/* ---- attention of prompts ---------------------------------------------------------------------------------------- */

/* Of n tokens from `first` on. */
static pleat_status attend_prompt(const rig *r, uint32_t first, uint32_t n, pleat__device_prompt_kernel kernel,
                                  bool gives, pleat_error *err) {
    const pleat__device_prompt_attn p = {.q = row_of(r->q, Q_WIDTH, first),
                                         .k = row_of(r->k, KV_WIDTH, first),
                                         .v = row_of(r->v, KV_WIDTH, first),
                                         .q_stride = Q_WIDTH,
                                         .kv_stride = KV_WIDTH,
                                         .n_seqs = 1,
                                         .n_tokens = n,
                                         .max_tokens = n,
                                         .n_kv_heads = KV_HEADS,
                                         .n_group = Q_HEADS / KV_HEADS,
                                         .head_dim = HEAD_DIM,
                                         .scale = 1 / sqrtf(HEAD_DIM),
                                         .out = row_of(r->out, Q_WIDTH, first),
                                         .out_stride = Q_WIDTH,
                                         .lse2 = r->lse2,
                                         .received = gives ? r->received : NULL,
                                         .workspace = r->workspace,
                                         .kernel = kernel};
#if PLEAT_CUDA
    return pleat__device_prompt_attn_run(&p, r->stream, err);
#else
    return (void)p, pleat__device_use(0, err); /* says that there is no CUDA */
#endif
}

static pleat_status time_prompts(const rig *r, uint32_t n, pleat__device_prompt_kernel kernel, bool gives,
                                 double us[N_ROUNDS], pleat_error *err) {
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    for (uint32_t round = 0; round < N_WARM + N_ROUNDS; round++) {
        PLEAT_TRY(mark(r, round, err));
        for (uint32_t first = 0; first < N_ATTENDED; first += n)
            PLEAT_TRY(attend_prompt(r, first, n, kernel, gives, err));
    }
    PLEAT_TRY(mark(r, N_WARM + N_ROUNDS, err));
    return read_marks(r, 0, 1, N_ATTENDED / n, us, err);
}

static pleat_status bench_prompts(const rig *r, pleat_error *err) {
    printf("\nprompt: %u query heads, %u KV heads, d %u\n", Q_HEADS, KV_HEADS, HEAD_DIM);
    for (int kernel = PLEAT__PROMPT_BEST; kernel <= PLEAT__PROMPT_MMA; kernel++) {
        for (size_t i = 0; i < sizeof attended / sizeof attended[0]; i++) {
            const uint32_t n = attended[i];
            double attend[N_ROUNDS], both[N_ROUNDS];
            PLEAT_TRY(time_prompts(r, n, (pleat__device_prompt_kernel)kernel, false, attend, err));
            PLEAT_TRY(time_prompts(r, n, (pleat__device_prompt_kernel)kernel, true, both, err));
            printf("%-8s %6u tokens", kernel == PLEAT__PROMPT_MMA ? "mma.sync" : "best", n);
            const double us = print_times(attend, 1e3, "ms");
            printf(" %4.0f TFLOP/s  with received", 2e-6 * Q_HEADS * HEAD_DIM * n * (n + 1.0) / us);
            const double both_us = print_times(both, 1e3, "ms");
            printf(" +%.0f %%\n", 100 * (both_us / us - 1));
        }
    }
    return PLEAT_OK;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* A cache of its own, in place of the last measurement's. */
static pleat_status cache_init(rig *r, const char *spec, uint32_t n_seqs, uint32_t n_tokens, pleat_error *err) {
    pleat_device_cache_options opt;
    for (int p = 0; p < N_PIECES; p++) pleat__device_graph_destroy(&r->graphs[p]);
    pleat_device_cache_destroy(&r->cache);
    pleat_device_cache_options_default(&opt);
    PLEAT_TRY(pleat_spec_parse(spec, &r->spec, err));
    opt.spec = r->spec;
    opt.n_layers = N_LAYERS;
    opt.n_kv_heads = KV_HEADS;
    opt.n_q_heads = Q_HEADS;
    opt.head_dim = HEAD_DIM;
    opt.max_seqs = n_seqs;
    opt.max_tokens = n_tokens;
    return pleat_device_cache_create(&opt, &r->cache, err);
}

static pleat_status fill(rig *r, pleat_error *err) {
    uint32_t n_high[N_LANES], n_low[N_LANES], seq_idxs[N_SEQS];
    for (uint32_t i = 0; i < N_LANES; i++) n_high[i] = N_HIGH, n_low[i] = N_LOW;
    for (uint32_t i = 0; i < N_SEQS; i++) {
        seq_idxs[i] = i;
        PLEAT_TRY(pleat_device_cache_fill(r->cache, i, n_high, n_low, i + 1, r->stream.v, err));
    }
    PLEAT_TRY(pleat_device_cache_set_batch(r->cache, seq_idxs, N_SEQS, r->stream.v, err));
    return pleat_device_cache_wait(r->cache, r->stream.v, err);
}

static pleat_status put_piece(const rig *r, int p, pleat_error *err) {
    void *stream = r->stream.v;
    if (p == PIECE_BEGIN) return pleat_device_cache_begin(r->cache, stream, err);
    if (p == PIECE_END) return pleat_device_cache_end(r->cache, stream, err);
    for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
        if (p == PIECE_APPEND)
            PLEAT_TRY(pleat_device_cache_append(r->cache, layer, r->k, r->v, stream, err));
        else
            PLEAT_TRY(pleat_device_cache_attend(r->cache, layer, r->q, r->out, NULL, stream, err));
    }
    return PLEAT_OK;
}

static pleat_status run_steps(rig *r, pleat_error *err) {
    for (int p = 0; p < N_PIECES; p++) {
        PLEAT_TRY(pleat__device_graph_begin(r->stream, err));
        PLEAT_TRY(put_piece(r, p, err));
        PLEAT_TRY(pleat__device_graph_end(r->stream, &r->graphs[p], err));
    }
    for (uint32_t i = 0; i < (N_WARM + N_ROUNDS) * N_PIECES; i++) {
        PLEAT_TRY(mark(r, i, err));
        PLEAT_TRY(pleat__device_graph_launch(r->graphs[i % N_PIECES], r->stream, err));
    }
    PLEAT_TRY(mark(r, N_MARKS - 1, err));
    return pleat_device_cache_wait(r->cache, r->stream.v, err); /* PLEAT_AGAIN: a step had no pages, and was none */
}

static pleat_status time_steps(rig *r, const char *spec, pleat_error *err) {
    static const char *const names[N_PIECES] = {"begin", "append", "attend", "end"};
    double us[N_PIECES], t[N_ROUNDS];
    PLEAT_TRY(cache_init(r, spec, N_SEQS, N_HIGH + N_LOW + N_WARM + N_ROUNDS, err));
    PLEAT_TRY(fill(r, err));
    PLEAT_TRY(run_steps(r, err));
    printf("\nstep: %s, %u sequences, %u layers, %u query heads, %u KV heads, d %u, %u high and %u low tokens a lane\n",
           spec, N_SEQS, N_LAYERS, Q_HEADS, KV_HEADS, HEAD_DIM, N_HIGH, N_LOW);
    for (int p = 0; p < N_PIECES; p++) {
        const bool once = p == PIECE_BEGIN || p == PIECE_END;
        PLEAT_TRY(read_marks(r, (uint32_t)p, N_PIECES, once ? 1 : N_LAYERS, t, err));
        printf("%-16s", names[p]);
        us[p] = print_times(t, 1, once ? "us" : "us a layer");
        printf("\n");
    }
    const double rest = us[PIECE_BEGIN] + N_LAYERS * us[PIECE_APPEND] + us[PIECE_END];
    printf("%-16s%9.3f us, %.1f %% of attention\n", "all but attend", rest, 100 * rest / (N_LAYERS * us[PIECE_ATTEND]));
    return PLEAT_OK;
}

/* Attention received that stands about the thresholds: about half of the tokens become high. */
static pleat_status make_received(const rig *r, float ah, uint32_t n, pleat_error *err) {
    static float sums[KV_HEADS * N_PLACED];
    pleat__rng rng = {4};
    for (uint32_t i = 0; i < KV_HEADS * n; i++)
        sums[i] = 2 * ah * pleat__rng_f32(&rng) * (float)(n - 1 - i % n) / (float)n;
    PLEAT_TRY(pleat__device_copy(r->received, sums, (uint64_t)KV_HEADS * n * sizeof *sums, r->stream, err));
    return pleat__device_wait(r->stream, err);
}

/* Between marks 2*round and 2*round + 1: all but prompt_begin(), which waits. */
static pleat_status place_prompt(rig *r, uint32_t n, uint32_t round, pleat_error *err) {
    void *stream = r->stream.v;
    PLEAT_TRY(pleat_device_cache_prompt_begin(r->cache, 0, n, stream, err));
    PLEAT_TRY(mark(r, 2 * round, err));
    for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
        const uint64_t first = (uint64_t)layer * n % N_PLACED;
        PLEAT_TRY(pleat_device_cache_prompt(r->cache, layer, row_of(r->k, KV_WIDTH, first),
                                            row_of(r->v, KV_WIDTH, first), r->received, stream, err));
    }
    PLEAT_TRY(pleat_device_cache_prompt_end(r->cache, stream, err));
    PLEAT_TRY(mark(r, 2 * round + 1, err));
    return pleat_device_cache_close(r->cache, 0, stream, err);
}

static pleat_status time_placing(rig *r, const char *spec, uint32_t n, pleat_error *err) {
    double us[N_ROUNDS];
    PLEAT_TRY(cache_init(r, spec, 1, n, err));
    PLEAT_TRY(make_received(r, r->spec.ah, n, err));
    for (uint32_t i = 0; i < N_WARM + N_ROUNDS; i++) PLEAT_TRY(place_prompt(r, n, i, err));
    PLEAT_TRY(read_marks(r, 0, 2, N_LAYERS, us, err));
    printf("prompt of %-6u", n);
    (void)print_times(us, 1, "us a layer");
    printf("\n");
    return PLEAT_OK;
}

static pleat_status bench_steps(rig *r, pleat_error *err) {
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        PLEAT_TRY(time_steps(r, specs[i], err));
        for (size_t j = 0; j < sizeof placed / sizeof placed[0]; j++)
            PLEAT_TRY(time_placing(r, specs[i], placed[j], err));
    }
    return PLEAT_OK;
}

int main(int argc, char **argv) {
    const bool prompt = argc == 2 && !strcmp(argv[1], "prompt"), step = argc == 2 && !strcmp(argv[1], "step");
    if (argc > 2 || (argc == 2 && !prompt && !step)) {
        fprintf(stderr, "usage: bench_device [prompt|step]\n");
        return 2;
    }
    static rig r; /* its memory goes back with the process */
    pleat_device_info info;
    pleat_error err = {0};
    if (pleat_device_get_info(0, &info, &err) != PLEAT_OK) {
        printf("bench_device: skipped: %s\n", err.text);
        return 0;
    }
    printf("%s, %u multiprocessors\n", info.name, info.n_multiprocessors);
    pleat_status status = rig_init(&r, &err);
    if (status == PLEAT_OK && !step) status = bench_prompts(&r, &err);
    if (status == PLEAT_OK && !prompt) status = bench_steps(&r, &err);
    if (status != PLEAT_OK) fprintf(stderr, "bench_device: %s\n", err.text);
    return status == PLEAT_OK ? 0 : 1;
}
