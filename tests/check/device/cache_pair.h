/* SPDX-License-Identifier: MIT
 *
 * cache_pair.h: a cache on a GPU beside the CPU's, which is handed the same keys, values and queries: what is stored is
 * the same to the bit, and attention is as near as its law says.
 */
#ifndef CHECK_CACHE_PAIR_H
#define CHECK_CACHE_PAIR_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/half.h"
#include "hw/device.h"
#include "pleat/cache.h"
#include "pleat/device_cache.h"

enum { N_LAYERS = 2, N_SEQS = 3, N_MOST = 400 };

typedef struct shape {
    uint32_t head_dim, n_kv_heads, n_group;
    uint32_t windows[N_LAYERS];
    float cap;
    const char *spec;
    uint32_t page_tokens; /* 0: as the caches choose */
    bool has_ropes;       /* layer by layer other ones */
} shape;

/* Both caches, and a step's rows on either side. */
typedef struct pair {
    shape s;
    pleat_cache *cpu;
    pleat_device_cache *gpu;
    pleat_seq seqs[N_SEQS];
    uint32_t lengths[N_SEQS];
    float *q, *k, *v, *out;                            /* [rows][heads][head_dim] */
    void *device_q, *device_k, *device_v, *device_out; /* f16; of a step's attention f32 */
    void *device_received;                             /* f32, where the spec counts it; else NULL */
    uint32_t
        n_prompts[N_SEQS]; /* tokens when the last prompt ended, which the GPU's cache is told and the CPU's knows */
    uint16_t *halves;
} pair;

static const pleat__device_stream default_stream = {NULL};

static inline void *device_alloc(uint64_t bytes) {
    void *p = NULL;
    CHECK_STATUS(pleat__device_alloc(bytes, &p, NULL), PLEAT_OK);
    return p;
}

static inline void copy(void *to, const void *from, uint64_t bytes) {
    CHECK_STATUS(pleat__device_copy(to, from, bytes, default_stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_wait(default_stream, NULL), PLEAT_OK);
}

static inline uint64_t kv_width(const pair *p) { return (uint64_t)p->s.n_kv_heads * p->s.head_dim; }
static inline uint64_t q_width(const pair *p) { return kv_width(p) * p->s.n_group; }

/* A GPU's cache with these options and a spec is refused, in these words. */
static inline void check_refused(pleat_device_cache_options *opt, const char *spec, pleat_status status,
                                 const char *words) {
    pleat_device_cache *cache = NULL;
    pleat_error err = {0};
    check_context("%s", spec);
    CHECK_STATUS(pleat_spec_parse(spec, &opt->spec, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_create(opt, &cache, &err), status);
    check_context("%s: %s", spec, err.text);
    CHECK(strstr(err.text, words) != NULL);
    pleat_device_cache_destroy(&cache);
}

/* How the layers' keys were turned: all of a head by halves; half of it in neighbouring pairs. */
static inline void make_ropes(uint32_t head_dim, double *frequencies, pleat_rope ropes[N_LAYERS]) {
    for (uint32_t i = 0; i < head_dim / 2; i++) frequencies[i] = pow(10000, -2.0 * i / head_dim);
    ropes[0] = (pleat_rope){head_dim, 1, 1, frequencies};
    ropes[1] = (pleat_rope){head_dim / 2, 0, 1.25f, frequencies};
}

static inline bool pair_init(pair *p, const shape *s) {
    double frequencies[128];
    pleat_rope ropes[N_LAYERS];
    const pleat_rope *turned[N_LAYERS] = {&ropes[0], &ropes[1]};
    pleat_cache_options cpu;
    pleat_device_cache_options gpu;
    pleat_error err = {0};
    *p = (pair){.s = *s};
    pleat_cache_options_default(&cpu);
    pleat_device_cache_options_default(&gpu);
    CHECK_STATUS(pleat_spec_parse(s->spec, &cpu.spec, NULL), PLEAT_OK);
    gpu.spec = cpu.spec;
    gpu.n_layers = cpu.n_layers = N_LAYERS;
    gpu.n_kv_heads = cpu.n_kv_heads = s->n_kv_heads;
    gpu.n_q_heads = cpu.n_q_heads = s->n_kv_heads * s->n_group;
    gpu.head_dim = cpu.head_dim = s->head_dim;
    gpu.max_seqs = cpu.max_seqs = N_SEQS;
    gpu.max_tokens = cpu.max_tokens = cpu.step_tokens = N_MOST;
    gpu.page_tokens = cpu.page_tokens = s->page_tokens;
    gpu.windows = cpu.windows = p->s.windows;
    gpu.logit_cap = cpu.logit_cap = s->cap;
    make_ropes(s->head_dim, frequencies, ropes);
    gpu.ropes = cpu.ropes = s->has_ropes ? turned : NULL;
    const pleat_status status = pleat_device_cache_create(&gpu, &p->gpu, &err);
    check_context("%s, heads of %u: %s", s->spec, s->head_dim, err.text);
    if (!CHECK_STATUS(status, PLEAT_OK)) return false;
    if (!CHECK_STATUS(pleat_cache_create(&cpu, &p->cpu, &err), PLEAT_OK)) return false;
    for (uint32_t i = 0; i < N_SEQS; i++) CHECK_STATUS(pleat_cache_open(p->cpu, N_MOST, &p->seqs[i]), PLEAT_OK);
    const uint64_t n = N_MOST * q_width(p);
    p->q = malloc(n * 4), p->k = malloc(n * 4), p->v = malloc(n * 4), p->out = malloc(n * 4), p->halves = malloc(n * 2);
    p->device_q = device_alloc(n * 2), p->device_k = device_alloc(n * 2);
    p->device_v = device_alloc(n * 2), p->device_out = device_alloc(n * 4);
    if (pleat_device_cache_wants_received(&cpu.spec)) p->device_received = device_alloc(N_MOST * s->n_kv_heads * 4);
    return true;
}

static inline void pair_free(pair *p) {
    pleat_device_cache_usage u;
    for (uint32_t i = 0; i < N_SEQS; i++) CHECK_STATUS(pleat_device_cache_close(p->gpu, i, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_check(p->gpu, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_get_usage(p->gpu, &u, NULL, NULL), PLEAT_OK);
    CHECK_EQ_U64(u.pages_used, 0);
    pleat_device_cache_destroy(&p->gpu);
    pleat_cache_destroy(&p->cpu);
    free(p->q), free(p->k), free(p->v), free(p->out), free(p->halves);
    void *device[] = {p->device_q, p->device_k, p->device_v, p->device_out, p->device_received};
    for (size_t i = 0; i < CHECK_COUNT(device); i++) pleat__device_free(device[i]);
}

/* n numbers that f16 holds, on both sides. */
static inline void make_numbers(pair *p, float *here, void *there, uint64_t n, float size) {
    for (uint64_t i = 0; i < n; i++) {
        p->halves[i] = pleat__f32_to_f16(size * check_normal());
        here[i] = pleat__f16_to_f32(p->halves[i]);
    }
    copy(there, p->halves, n * 2);
}

static inline void make_rows(pair *p, uint32_t n) {
    make_numbers(p, p->q, p->device_q, n * q_width(p), 2);
    make_numbers(p, p->k, p->device_k, n * kv_width(p), 1);
    make_numbers(p, p->v, p->device_v, n * kv_width(p), 1);
}

/* out is the CPU's, got the GPU's. */
static inline void compare_out(const pair *p, const float *got, uint64_t n) {
    double off = 0, norm = 0;
    for (uint64_t i = 0; i < n; i++) {
        off += ((double)got[i] - (double)p->out[i]) * ((double)got[i] - (double)p->out[i]);
        norm += (double)p->out[i] * (double)p->out[i];
    }
    CHECK(norm > 0);
    CHECK_NEAR(sqrt(off), 0, 2e-3 * sqrt(norm));
}

/* Every lane of a sequence, as it is stored. */
static inline void compare_stored(const pair *p, uint32_t seq) {
    const uint32_t n = p->lengths[seq];
    const size_t bytes = (size_t)n * p->s.head_dim * sizeof(float);
    float *rows[4];
    for (int i = 0; i < 4; i++) rows[i] = malloc(bytes);
    for (uint32_t layer = 0; layer < N_LAYERS; layer++)
        for (uint32_t head = 0; head < p->s.n_kv_heads; head++) {
            CHECK_STATUS(pleat_cache_export(p->cpu, p->seqs[seq], layer, head, 0, n, rows[0], rows[1]), PLEAT_OK);
            CHECK_STATUS(pleat_device_cache_export(p->gpu, seq, layer, head, 0, n, rows[2], rows[3], NULL, NULL),
                         PLEAT_OK);
            CHECK_EQ_MEM(rows[2], rows[0], bytes);
            CHECK_EQ_MEM(rows[3], rows[1], bytes);
        }
    for (int i = 0; i < 4; i++) free(rows[i]);
}

/* A prompt, or more of a sequence, in all layers. */
static inline void read_some(pair *p, uint32_t seq, uint32_t n) {
    const uint32_t n_past = p->lengths[seq];
    const pleat_cache_item item = {.seq = p->seqs[seq], .n_tokens = n};
    const uint64_t n_out = n * q_width(p);
    float *got = malloc(n_out * sizeof *got);
    CHECK_STATUS(pleat_cache_begin(p->cpu, &item, 1), PLEAT_OK);
    CHECK_STATUS(n_past ? pleat_device_cache_chunk_begin(p->gpu, seq, n, NULL, NULL)
                        : pleat_device_cache_prompt_begin(p->gpu, seq, n, NULL, NULL),
                 PLEAT_OK);
    for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
        make_rows(p, n);
        CHECK_STATUS(pleat_cache_attend(p->cpu, layer, p->q, p->k, p->v, p->out), PLEAT_OK);
        CHECK_STATUS(n_past ? pleat_device_cache_chunk_attend(p->gpu, layer, p->device_q, p->device_k, p->device_v,
                                                              p->device_out, NULL, NULL)
                            : pleat_device_cache_prompt_attend(p->gpu, layer, p->device_q, p->device_k, p->device_v,
                                                               p->device_out, p->device_received, NULL, NULL),
                     PLEAT_OK);
        CHECK_STATUS(pleat_device_cache_prompt(p->gpu, layer, p->device_k, p->device_v, p->device_received, NULL, NULL),
                     PLEAT_OK);
        copy(p->halves, p->device_out, n_out * 2);
        for (uint64_t i = 0; i < n_out; i++) got[i] = pleat__f16_to_f32(p->halves[i]);
        compare_out(p, got, n_out);
    }
    CHECK_STATUS(pleat_cache_end(p->cpu), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_prompt_end(p->gpu, NULL, NULL), PLEAT_OK);
    p->lengths[seq] += n;
    p->n_prompts[seq] = p->lengths[seq];
    CHECK_STATUS(pleat_device_cache_check(p->gpu, NULL, NULL), PLEAT_OK);
    free(got);
}

/* A token of each of the sequences. */
static inline void step(pair *p, const uint32_t *seqs, uint32_t n) {
    pleat_cache_item items[N_SEQS];
    float *got = malloc(n * q_width(p) * sizeof *got);
    for (uint32_t i = 0; i < n; i++) items[i] = (pleat_cache_item){.seq = p->seqs[seqs[i]], .n_tokens = 1};
    CHECK_STATUS(pleat_cache_begin(p->cpu, items, n), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_set_batch(p->gpu, seqs, n, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_begin(p->gpu, NULL, NULL), PLEAT_OK);
    for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
        make_rows(p, n);
        CHECK_STATUS(pleat_cache_attend(p->cpu, layer, p->q, p->k, p->v, p->out), PLEAT_OK);
        CHECK_STATUS(pleat_device_cache_append(p->gpu, layer, p->device_k, p->device_v, NULL, NULL), PLEAT_OK);
        CHECK_STATUS(pleat_device_cache_attend(p->gpu, layer, p->device_q, p->device_out, NULL, NULL, NULL), PLEAT_OK);
        copy(got, p->device_out, n * q_width(p) * sizeof *got);
        compare_out(p, got, n * q_width(p));
    }
    CHECK_STATUS(pleat_cache_end(p->cpu), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_end(p->gpu, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_wait(p->gpu, NULL, NULL), PLEAT_OK);
    for (uint32_t i = 0; i < n; i++) {
        p->lengths[seqs[i]]++;
        if (p->n_prompts[seqs[i]] == 0) p->n_prompts[seqs[i]] = 1; /* a token that none came before is a prompt */
    }
    free(got);
}

/* ---- images ---------------------------------------------------------------------------------------- */

typedef struct image {
    uint8_t *data;
    uint64_t n_bytes;
} image;

static inline image image_of_cpu(const pair *p, uint32_t seq) {
    image m = {.n_bytes = pleat_cache_image_bytes(p->cpu, p->seqs[seq], (pleat_seq){0})};
    m.data = malloc(m.n_bytes);
    CHECK_STATUS(pleat_cache_save(p->cpu, p->seqs[seq], (pleat_seq){0}, m.data, m.n_bytes), PLEAT_OK);
    return m;
}

static inline image image_of_gpu(const pair *p, uint32_t seq) {
    image m = {NULL, 0};
    CHECK_STATUS(pleat_device_cache_image_bytes(p->gpu, seq, &m.n_bytes, NULL, NULL), PLEAT_OK);
    m.data = malloc(m.n_bytes);
    CHECK_STATUS(pleat_device_cache_save(p->gpu, seq, N_MOST, p->n_prompts[seq], m.data, m.n_bytes, NULL, NULL),
                 PLEAT_OK);
    return m;
}

/* The CPU's sequence goes on on the GPU, which refuses a damaged image of it. */
static inline bool take_image(pair *p, uint32_t seq) {
    image m = image_of_cpu(p, seq);
    CHECK_STATUS(pleat_device_cache_close(p->gpu, seq, NULL, NULL), PLEAT_OK);
    m.data[m.n_bytes - 1] ^= 1;
    CHECK_STATUS(pleat_device_cache_restore(p->gpu, seq, m.data, m.n_bytes, NULL, NULL), PLEAT_E_FORMAT);
    m.data[m.n_bytes - 1] ^= 1;
    const bool is_good = CHECK_STATUS(pleat_device_cache_restore(p->gpu, seq, m.data, m.n_bytes, NULL, NULL), PLEAT_OK);
    free(m.data);
    return is_good;
}

/* Both fork `from` in place of `to`. */
static inline void fork_both(pair *p, uint32_t from, uint32_t to) {
    CHECK_STATUS(pleat_device_cache_close(p->gpu, to, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_cache_close(p->cpu, p->seqs[to]), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_fork(p->gpu, from, to, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_cache_fork(p->cpu, p->seqs[from], N_MOST, &p->seqs[to]), PLEAT_OK);
    p->lengths[to] = p->lengths[from];
    p->n_prompts[to] = p->n_prompts[from];
}

#endif
