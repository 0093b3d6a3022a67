/* SPDX-License-Identifier: MIT
 *
 * cuda_probe.cu: does this nvcc compile for the architectures that are asked for, and is it of CUDA 13 or later?
 */
#include <cuda_runtime.h>

#if CUDART_VERSION < 13000
#error "CUDA 13 or later is needed"
#endif

static __global__ void probe(int *p) { *p = 1; }

void cuda_probe(int *p) { probe<<<1, 1>>>(p); }
