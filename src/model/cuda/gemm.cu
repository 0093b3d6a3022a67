/* SPDX-License-Identifier: MIT
 *
 * gemm.cu: see gemm.h.
 *
 * cuBLASLt's functions and its few constants are spelt out here, so that building needs no header of it.  To it a
 * matrix's columns stand one behind the other: y [n][rows] is rows x n, and W, whose rows lie one behind the other, is
 * transposed.
 */
#include "model/cuda/gemm.h"

#include <dlfcn.h>

extern "C" {
#include "core/memory.h"
}
#include "hw/cuda/cuda.cuh"

/* cublasLt.h, cublas_api.h and library_types.h of CUDA 13. */
enum { TYPE_F32 = 0, TYPE_F16 = 2, COMPUTE_F32 = 68, OP_T = 1, DESC_OP_A = 3, LAYOUT_BATCH = 5, LAYOUT_STEP = 6 };
enum { PREFER_WORK_BYTES = 1, PREFER_ALIGNMENT_A = 5, PREFER_ALIGNMENT_D = 8 };
enum { CONFIG_TILE = 1, CONFIG_SPLITS = 2, TILE_128_32 = 16, TILE_128_64 = 18, TILE_128_128 = 20 };

typedef struct algorithm {
    uint64_t data[8];
} algorithm;

typedef struct found_algorithm {
    algorithm algo;
    size_t work_bytes;
    int state; /* 0: good */
    float n_waves;
    int reserved[4];
} found_algorithm;

typedef struct library {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*desc_create)(void **desc, int compute, int scale_type);
    int (*desc_destroy)(void *desc);
    int (*desc_set)(void *desc, int attribute, const void *value, size_t bytes);
    int (*layout_create)(void **layout, int type, uint64_t rows, uint64_t cols, int64_t stride);
    int (*layout_destroy)(void *layout);
    int (*layout_set)(void *layout, int attribute, const void *value, size_t bytes);
    int (*prefer_create)(void **preference);
    int (*prefer_destroy)(void *preference);
    int (*prefer_set)(void *preference, int attribute, const void *value, size_t bytes);
    int (*find)(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int n_wanted,
                found_algorithm *found, int *n_found);
    int (*get_config)(const algorithm *algo, int attribute, void *value, size_t bytes, size_t *n_written);
    int (*mul)(void *handle, void *desc, const void *alpha, const void *a, void *layout_a, const void *b,
               void *layout_b, const void *beta, const void *c, void *layout_c, void *d, void *layout_d,
               const algorithm *algo, void *work, size_t work_bytes, cudaStream_t stream);
} library;

/* ---- the library --------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t at; /* in library */
} functions[] = {
    {"cublasLtCreate", offsetof(library, create)},
    {"cublasLtDestroy", offsetof(library, destroy)},
    {"cublasLtMatmulDescCreate", offsetof(library, desc_create)},
    {"cublasLtMatmulDescDestroy", offsetof(library, desc_destroy)},
    {"cublasLtMatmulDescSetAttribute", offsetof(library, desc_set)},
    {"cublasLtMatrixLayoutCreate", offsetof(library, layout_create)},
    {"cublasLtMatrixLayoutDestroy", offsetof(library, layout_destroy)},
    {"cublasLtMatrixLayoutSetAttribute", offsetof(library, layout_set)},
    {"cublasLtMatmulPreferenceCreate", offsetof(library, prefer_create)},
    {"cublasLtMatmulPreferenceDestroy", offsetof(library, prefer_destroy)},
    {"cublasLtMatmulPreferenceSetAttribute", offsetof(library, prefer_set)},
    {"cublasLtMatmulAlgoGetHeuristic", offsetof(library, find)},
    {"cublasLtMatmulAlgoConfigGetAttribute", offsetof(library, get_config)},
    {"cublasLtMatmul", offsetof(library, mul)},
};

/* Once loaded it stays: to load it takes a quarter of a second. */
static bool load(library *lib) {
    void *file = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!file) return false;
    for (const auto &function : functions) {
        void *p = dlsym(file, function.name);
        if (!p) {
            dlclose(file);
            return false;
        }
        *(void **)(void *)((uint8_t *)lib + function.at) = p;
    }
    return true;
}

/* NULL where there is none. */
static const library *library_here(void) {
    static library lib;
    static const bool is_here = load(&lib); /* by one thread, while others wait */
    return is_here ? &lib : NULL;
}

extern "C" bool pleat__device_gemm_exists(void) { return library_here() != NULL; }

/* ---- ways of multiplying ------------------------------------------------------------------------------- */

/* What decides how products are made. */
typedef struct shape {
    uint32_t rows, cols, x_stride, y_stride, rows_class, n_parts; /* cols: of a part */
    bool is_f16, adds;
} shape;

typedef struct way {
    shape of;
    algorithm algo;
} way;

#define MAX_WAYS 128u /* more shapes than any model has; what comes then takes the place of the first */

struct pleat__device_gemm {
    pleat_allocator al;
    const library *lib;
    void *handle, *desc, *preference;
    way ways[MAX_WAYS];
    uint32_t n_ways;
};

/* CUDA has no name for what went wrong in the library. */
static pleat_status told(int code, const char *what, pleat_error *err) {
    return pleat__cuda_status(code == 0 ? cudaSuccess : cudaErrorUnknown, what, err);
}

#define TRY(expr, err) PLEAT_TRY(told((expr), "cuBLASLt", (err)))

static pleat_status start(pleat__device_gemm *g, pleat_error *err) {
    const size_t work_bytes = PLEAT__GEMM_WORK_BYTES;
    const uint32_t alignment = 16;
    const int transposed = OP_T;
    TRY(g->lib->create(&g->handle), err);
    TRY(g->lib->desc_create(&g->desc, COMPUTE_F32, TYPE_F32), err);
    TRY(g->lib->desc_set(g->desc, DESC_OP_A, &transposed, sizeof transposed), err);
    TRY(g->lib->prefer_create(&g->preference), err);
    TRY(g->lib->prefer_set(g->preference, PREFER_WORK_BYTES, &work_bytes, sizeof work_bytes), err);
    for (int of = PREFER_ALIGNMENT_A; of <= PREFER_ALIGNMENT_D; of++)
        TRY(g->lib->prefer_set(g->preference, of, &alignment, sizeof alignment), err);
    return PLEAT_OK;
}

extern "C" pleat_status pleat__device_gemm_create(const pleat_allocator *al, pleat__device_gemm **out,
                                                  pleat_error *err) {
    *out = NULL;
    if (!library_here()) return PLEAT_OK;
    pleat__device_gemm *g = (pleat__device_gemm *)pleat__alloc_zero(al, 1, sizeof *g);
    PLEAT_FAIL_IF(!g, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "cuBLASLt: out of memory");
    g->al = *al;
    g->lib = library_here();
    const pleat_status status = start(g, err);
    if (status != PLEAT_OK) pleat__device_gemm_destroy(&g);
    *out = g;
    return status;
}

extern "C" void pleat__device_gemm_destroy(pleat__device_gemm **gemm) {
    pleat__device_gemm *g = *gemm;
    if (!g) return;
    const pleat_allocator al = g->al;
    if (g->preference) (void)g->lib->prefer_destroy(g->preference);
    if (g->desc) (void)g->lib->desc_destroy(g->desc);
    if (g->handle) (void)g->lib->destroy(g->handle);
    pleat__free(&al, g, 1, sizeof *g);
    *gemm = NULL;
}

/* ---- products ------------------------------------------------------------------------------------------ */

/* How the three matrices lie. */
typedef struct layouts {
    void *w, *x, *y;
} layouts;

static void layouts_release(const library *lib, layouts *at) {
    if (at->w) (void)lib->layout_destroy(at->w);
    if (at->x) (void)lib->layout_destroy(at->x);
    if (at->y) (void)lib->layout_destroy(at->y);
}

/* Parts are products of one shape, so many elements behind each other. */
static int layout_of_parts(const library *lib, void *layout, int n_parts, int64_t step) {
    const int code = lib->layout_set(layout, LAYOUT_BATCH, &n_parts, sizeof n_parts);
    return code ? code : lib->layout_set(layout, LAYOUT_STEP, &step, sizeof step);
}

static int layouts_init(const library *lib, const shape *s, uint32_t n, layouts *at) {
    *at = layouts{};
    const uint32_t all_cols = s->cols * (s->n_parts ? s->n_parts : 1);
    const uint32_t w_stride = (all_cols + PLEAT__GROUP_COLS - 1) / PLEAT__GROUP_COLS * PLEAT__GROUP_COLS;
    int code = lib->layout_create(&at->w, TYPE_F16, s->cols, s->rows, w_stride);
    if (code == 0) code = lib->layout_create(&at->x, TYPE_F16, s->cols, n, s->x_stride);
    if (code == 0) code = lib->layout_create(&at->y, s->is_f16 ? TYPE_F16 : TYPE_F32, s->rows, n, s->y_stride);
    if (!s->n_parts || code) return code;
    code = layout_of_parts(lib, at->w, (int)s->n_parts, s->cols);
    if (code == 0) code = layout_of_parts(lib, at->x, (int)s->n_parts, s->cols);
    return code ? code : layout_of_parts(lib, at->y, (int)s->n_parts, (int64_t)n * s->rows);
}

static bool is_same(const shape &a, const shape &b) {
    return a.rows == b.rows && a.cols == b.cols && a.x_stride == b.x_stride && a.y_stride == b.y_stride &&
           a.rows_class == b.rows_class && a.n_parts == b.n_parts && a.is_f16 == b.is_f16 && a.adds == b.adds;
}

#define MAX_FOUND 8
#define MANY_ROWS (132u * 128u) /* of W: tiles of 128 are as many as a Hopper has multiprocessors */

static int config_of(const library *lib, const algorithm *algo, int attribute) {
    int value = -1;
    size_t n = 0;
    return lib->get_config(algo, attribute, &value, sizeof value, &n) == 0 ? value : -1;
}

/* Which of those found, best first as the library thinks.  In a step, for a matrix of many rows, it is the first whose tiles
 * are 128 of them by all of x.  So gate_up of Llama-3-8B takes 63.1 us for 67.6 at 128 rows, 58.1 for 61.4 at 32 (H200,
 * 2026-11-29).  A rule and no measurement, so that bits stay what they are. */
static const algorithm *choose_way(const library *lib, const shape &s, const found_algorithm *found, int n_found) {
    const int tile = s.rows_class <= 32 ? TILE_128_32 : s.rows_class <= 64 ? TILE_128_64 : TILE_128_128;
    for (int i = 0; i < n_found && s.rows >= MANY_ROWS && s.rows_class <= PLEAT__GEMM_BATCH; i++)
        if (found[i].state == 0 && config_of(lib, &found[i].algo, CONFIG_TILE) == tile &&
            config_of(lib, &found[i].algo, CONFIG_SPLITS) <= 1)
            return &found[i].algo;
    return &found[0].algo;
}

/* The way for this shape, found when it is first met. */
static pleat_status way_of(pleat__device_gemm *g, const shape &s, const algorithm **out, pleat_error *err) {
    for (uint32_t i = 0; i < g->n_ways; i++)
        if (is_same(g->ways[i].of, s)) {
            *out = &g->ways[i].algo;
            return PLEAT_OK;
        }
    layouts at;
    found_algorithm found[MAX_FOUND] = {};
    int n_found = 0, code = layouts_init(g->lib, &s, s.rows_class, &at);
    if (code == 0)
        code = g->lib->find(g->handle, g->desc, at.w, at.x, at.y, at.y, g->preference, MAX_FOUND, found, &n_found);
    layouts_release(g->lib, &at);
    TRY(code == 0 && n_found == 0 ? 1 : code, err);
    if (g->n_ways == MAX_WAYS) g->n_ways = 0;
    way *w = &g->ways[g->n_ways++];
    w->of = s;
    w->algo = *choose_way(g->lib, s, found, n_found);
    *out = &w->algo;
    return PLEAT_OK;
}

extern "C" pleat_status pleat__device_gemm_run(pleat__device_gemm *g, const pleat__device_mul *m,
                                               const pleat__gemm_memory *memory, pleat__device_stream stream,
                                               pleat_error *err) {
    const uint32_t n_parts = memory->n_parts;
    const bool is_gate = m->end == PLEAT__MUL_GATE, adds = m->end == PLEAT__MUL_ADD && !n_parts;
    PLEAT_FAIL_IF(m->n == 0 || m->x_is_f32 || m->bias || m->cap > 0 || !memory->rows_class, err, PLEAT_E_ARG,
                  PLEAT_NOWHERE, "product by cuBLASLt: no rows, rows of f32, a bias, a bound or no class");
    const uint32_t rows = m->w.tiles.rows, y_stride = is_gate || n_parts ? rows : m->y_stride;
    const uint32_t cols = m->w.tiles.cols / (n_parts ? n_parts : 1);
    const shape s = {rows, cols, m->x_stride, y_stride, memory->rows_class, n_parts, is_gate, adds};
    const float alpha = is_gate || n_parts ? 1 : m->scale, beta = adds ? 1 : 0;
    void *y = is_gate ? (void *)memory->pairs : m->y;
    const algorithm *algo;
    layouts at;
    PLEAT_TRY(way_of(g, s, &algo, err));
    int code = layouts_init(g->lib, &s, m->n, &at);
    if (code == 0)
        code = g->lib->mul(g->handle, g->desc, &alpha, memory->plain, at.w, m->x, at.x, &beta, y, at.y, y, at.y, algo,
                           memory->work, PLEAT__GEMM_WORK_BYTES, pleat__cuda_stream(stream));
    layouts_release(g->lib, &at);
    TRY(code, err);
    if (!is_gate) return PLEAT_OK;
    return pleat__device_gate(memory->pairs, m->n, rows / 2, m->is_gelu, m->h, m->y_stride, stream, err);
}
