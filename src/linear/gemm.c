/* SPDX-License-Identifier: MIT
 *
 * gemm.c: see gemm.h.
 *
 * Debian's oneDNN is built on OpenMP and would start a team of its own for each of our workers, and cut the sums by
 * its size.  It asks omp_get_max_threads(), which is a setting of the calling thread, so we set that to 1 around the
 * call and put it back, for the thread may belong to a program that uses OpenMP itself.  The two functions are looked
 * up in the OpenMP library that oneDNN brought along, whichever that is, so that nothing here links a second one.
 */
#include "linear/gemm.h"

#include <stdio.h>

#if PLEAT_HAVE_ONEDNN

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>

static int (*openmp_get_max_threads)(void);
static void (*openmp_set_num_threads)(int);

static void find_openmp(void) {
    void *get = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    void *set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (!get || !set) return;
    *(void **)&openmp_get_max_threads = get;
    *(void **)&openmp_set_num_threads = set;
}

bool pleat__gemm_is_there(void) { return true; }

void pleat__gemm_describe(char *text, size_t cap) {
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, cap, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
}

bool pleat__gemm(const float *x, uint32_t m, const float *w, uint32_t n, uint32_t k, float *y, size_t y_stride,
                 bool add) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_openmp);
    const int n_threads = openmp_set_num_threads ? openmp_get_max_threads() : 1;
    if (n_threads != 1) openmp_set_num_threads(1);
    const dnnl_status_t status =
        dnnl_sgemm('N', 'T', m, n, k, 1.0f, x, k, w, k, add ? 1.0f : 0.0f, y, (dnnl_dim_t)y_stride);
    if (n_threads != 1) openmp_set_num_threads(n_threads);
    return status == dnnl_success;
}

#else

bool pleat__gemm_is_there(void) { return false; }

void pleat__gemm_describe(char *text, size_t cap) { snprintf(text, cap, "own kernels (built without oneDNN)"); }

bool pleat__gemm(const float *x, uint32_t m, const float *w, uint32_t n, uint32_t k, float *y, size_t y_stride,
                 bool add) {
    (void)x, (void)m, (void)w, (void)n, (void)k, (void)y, (void)y_stride, (void)add;
    return false;
}

#endif
