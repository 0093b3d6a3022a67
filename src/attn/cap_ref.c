/* SPDX-License-Identifier: MIT
 *
 * cap_ref.c: see cap.h.
 */
#include <math.h>

#include "attn/cap.h"

void pleat__attn_cap_ref(float *x, size_t n, float cap2) {
    for (size_t i = 0; i < n; i++) x[i] = cap2 * tanhf(x[i] / cap2);
}
