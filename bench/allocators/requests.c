/* SPDX-License-Identifier: MIT
 *
 * requests.c: requests with log-normal lengths and Poisson arrivals, the same for the same seed.
 */
#include <math.h>
#include <stdlib.h>

#include "allocators.h"
#include "core/rng.h"

/* A normal variable, by Box and Muller. */
static double normal(pleat__rng *rng) {
    const double u = 1 - pleat__rng_f64(rng), v = pleat__rng_f64(rng);
    return sqrt(-2 * log(u)) * cos(2 * acos(-1.0) * v);
}

/* A length: mean * scale * e^(shape * z - shape^2/2), whole, 1..most. */
static uint32_t length_of(double mean, double scale, double shape, double z, uint32_t most) {
    const double n = floor(mean * scale * exp(shape * z - 0.5 * shape * shape) + 0.5);
    return n < 1 ? 1 : n > most ? most : (uint32_t)n;
}

/* Lengths by one scale; z: [2n] normal variables.  The sum of all lengths. */
static double set_lengths(const workload *w, uint32_t n, double scale, const double *z, request *out) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t prompt = length_of(w->prompt, scale, w->shape, z[2 * i], w->max_tokens - 1);
        const uint32_t output = length_of(w->output, scale, w->shape, z[2 * i + 1], w->max_tokens - 1);
        out[i].prompt = pleat__min_u32(prompt, w->max_tokens - 1);
        out[i].output = pleat__min_u32(output, w->max_tokens - out[i].prompt);
        sum += (double)out[i].prompt + out[i].output;
    }
    return sum;
}

void requests_make(const workload *w, uint32_t n, double load, uint32_t pool_tokens, uint64_t seed, request *out) {
    pleat__rng rng = {seed};
    double *z = need_memory(2 * (uint64_t)n, sizeof *z);
    for (uint64_t i = 0; i < 2 * (uint64_t)n; i++) z[i] = normal(&rng);
    double low = 0, high = 64; /* a factor above that would want means beyond max_tokens */
    for (int i = 0; i < 60; i++) {
        const double middle = 0.5 * (low + high);
        if (set_lengths(w, n, middle, z, out) < (w->prompt + w->output) * n)
            low = middle;
        else
            high = middle;
    }
    set_lengths(w, n, high, z, out);
    free(z);

    double token_steps = 0, now = 0;
    for (uint32_t i = 0; i < n; i++) token_steps += request_token_steps(&out[i]);
    const double gap = token_steps / n / (load * pool_tokens); /* mean, in steps */
    for (uint32_t i = 0; i < n; i++) {
        out[i].arrival = now;
        now -= gap * log(1 - pleat__rng_f64(&rng));
    }
}
