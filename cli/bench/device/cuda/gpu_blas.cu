/* SPDX-License-Identifier: MIT
 *
 * gpu_blas.cu: gpu.h's rival of the fused products: cuBLAS's batched f16 matrix products, from the library that is
 * found when the command runs.  Its few constants are spelt out here, so that building the command does not need it
 * either.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "gpu.cuh"

/* cublas_api.h and library_types.h of CUDA 13. */
enum { OP_N = 0, OP_T = 1, F16 = 2, COMPUTE_F32 = 68, ALGORITHM_DEFAULT = -1 };

typedef int create_fn(void **handle);
typedef int destroy_fn(void *handle);
typedef int set_stream_fn(void *handle, cudaStream_t stream);
typedef int gemm_fn(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int type_a,
                    int lda, long long stride_a, const void *b, int type_b, int ldb, long long stride_b,
                    const void *beta, void *c, int type_c, int ldc, long long stride_c, int n_batch, int compute,
                    int algorithm);

struct gpu_blas {
    void *library, *handle;
    destroy_fn *destroy;
    gemm_fn *gemm;
};

static pleat_status load(const gpu *g, gpu_blas *b, pleat_error *err) {
    b->library = dlopen("libcublas.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!b->library) return gpu_fail(PLEAT_E_UNSUPPORTED, err, "no cuBLAS: %s", dlerror());
    create_fn *create = (create_fn *)dlsym(b->library, "cublasCreate_v2");
    set_stream_fn *set_stream = (set_stream_fn *)dlsym(b->library, "cublasSetStream_v2");
    b->destroy = (destroy_fn *)dlsym(b->library, "cublasDestroy_v2");
    b->gemm = (gemm_fn *)dlsym(b->library, "cublasGemmStridedBatchedEx");
    if (!create || !set_stream || !b->destroy || !b->gemm)
        return gpu_fail(PLEAT_E_UNSUPPORTED, err, "no cuBLAS: libcublas.so.13 lacks a function");
    int code = create(&b->handle);
    if (code == 0) code = set_stream(b->handle, gpu_stream(g));
    return code == 0 ? PLEAT_OK : gpu_fail(PLEAT_E_DEVICE, err, "cuBLAS: it does not start (status %d)", code);
}

extern "C" pleat_status gpu_blas_open(const gpu *g, gpu_blas **out, pleat_error *err) {
    gpu_blas *b = (gpu_blas *)calloc(1, sizeof *b);
    if (!b) return gpu_fail(PLEAT_E_MEMORY, err, "no memory for cuBLAS");
    const pleat_status status = load(g, b, err);
    if (status != PLEAT_OK) gpu_blas_close(&b);
    *out = b;
    return status;
}

extern "C" void gpu_blas_close(gpu_blas **blas) {
    gpu_blas *b = *blas;
    if (!b) return;
    if (b->handle) b->destroy(b->handle);
    if (b->library) dlclose(b->library);
    free(b);
    *blas = NULL;
}

/* cuBLAS stores columns one behind the other: m is head_dim x n_tokens to it. */
extern "C" pleat_status gpu_blas_logits(gpu_blas *b, const gpu_product *p, pleat_error *err) {
    const float one = 1, zero = 0;
    const int n = (int)p->n_tokens, d = (int)p->head_dim, v = (int)p->n_vectors;
    const int code =
        b->gemm(b->handle, OP_T, OP_N, n, v, d, &one, p->m, F16, d, (long long)n * d, p->x, F16, d, (long long)d * v,
                &zero, p->out, F16, n, (long long)n * v, (int)p->n_lanes, COMPUTE_F32, ALGORITHM_DEFAULT);
    return code == 0 ? PLEAT_OK : gpu_fail(PLEAT_E_DEVICE, err, "cuBLAS: K q failed (status %d)", code);
}

extern "C" pleat_status gpu_blas_outputs(gpu_blas *b, const gpu_product *p, pleat_error *err) {
    const float one = 1, zero = 0;
    const int n = (int)p->n_tokens, d = (int)p->head_dim, v = (int)p->n_vectors;
    const int code =
        b->gemm(b->handle, OP_N, OP_N, d, v, n, &one, p->m, F16, d, (long long)n * d, p->x, F16, n, (long long)n * v,
                &zero, p->out, F16, d, (long long)d * v, (int)p->n_lanes, COMPUTE_F32, ALGORITHM_DEFAULT);
    return code == 0 ? PLEAT_OK : gpu_fail(PLEAT_E_DEVICE, err, "cuBLAS: p V failed (status %d)", code);
}
