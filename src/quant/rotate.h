/* SPDX-License-Identifier: MIT
 *
 * rotate.h: the rotation of the rotated formats, and back.
 *
 *     y = W S x     S: fixed signs, a hash of the dimension's index; W: Walsh-Hadamard, orthonormal
 *
 * It makes the elements of any vector close to normal, so that one set of levels serves all (levels.h).  Being
 * orthogonal it changes no product of a query and a key; what attention returns is rotated as the values are, and is
 * turned back once a head.  Where d is no power of two, W is that of the first P dimensions and then that of the last
 * P, P the largest power of two in d: orthogonal too, and every element meets every other.
 *
 * Sums and differences in a fixed order, and one product by 2^-k or its root: the same bits on every CPU.
 */
#ifndef PLEAT_QUANT_ROTATE_H
#define PLEAT_QUANT_ROTATE_H

#include <stdint.h>

#if defined(__CUDACC__)
#define PLEAT__ROTATION_DEVICE __host__ __device__
#else
#define PLEAT__ROTATION_DEVICE
#endif

/* Whether dimension i changes its sign: the top bit of a multiplicative hash. */
static PLEAT__ROTATION_DEVICE inline uint32_t pleat__rotation_flips(uint32_t i) {
    uint32_t x = (i + 1) * 0x9E3779B1u;
    x ^= x >> 15;
    x *= 0x85EBCA77u;
    return x >> 31;
}

/* Rotate n vectors of d elements, one behind the other: d is a multiple of 16 up to PLEAT__MAX_HEAD_DIM.  `to` may be
 * `from`. */
void pleat__rotate(const float *from, uint32_t n, uint32_t d, float *to);

/* The inverse; and of a tile of keys [d][PLEAT__TILE] in place. */
void pleat__rotate_back(const float *from, uint32_t n, uint32_t d, float *to);
void pleat__rotate_tile_back(float *k, uint32_t d);

#endif
