/* SPDX-License-Identifier: MIT
 *
 * keys.c: see keys.h.
 */
#include "model/keys.h"

#include <math.h>
#include <stdio.h>

#include "core/error.h"

const pleat__gguf_value *pleat__keys_find(pleat__keys *k, const char *suffix) {
    snprintf(k->key, sizeof k->key, "%s.%s", k->arch, suffix);
    return pleat__gguf_find(k->gguf, k->key);
}

pleat_status pleat__keys_u32(pleat__keys *k, const char *suffix, uint32_t max, uint32_t *out) {
    const pleat__gguf_value *v = pleat__keys_find(k, suffix);
    PLEAT_FAIL_IF(!v && *out == 0, k->err, PLEAT_E_FORMAT, PLEAT_NOWHERE, "metadata key '%s' is missing", k->key);
    if (!v) return PLEAT_OK;
    int64_t first = 0;
    for (uint64_t i = 0; i < v->n_items; i++) {
        int64_t x;
        PLEAT_FAIL_IF(!pleat__gguf_i64(k->gguf, v, i, &x), k->err, PLEAT_E_FORMAT, v->offset,
                      "metadata key '%s' is no integer that fits into 63 bits", k->key);
        if (i == 0) first = x;
        PLEAT_FAIL_IF(x != first, k->err, PLEAT_E_UNSUPPORTED, v->offset, "metadata key '%s' differs between layers",
                      k->key);
    }
    PLEAT_FAIL_IF(first < 1, k->err, PLEAT_E_FORMAT, v->offset, "metadata key '%s' is %lld", k->key, (long long)first);
    PLEAT_FAIL_IF(first > max, k->err, PLEAT_E_UNSUPPORTED, v->offset,
                  "metadata key '%s' is %lld, at most %u is supported", k->key, (long long)first, max);
    *out = (uint32_t)first;
    return PLEAT_OK;
}

pleat_status pleat__keys_f32(pleat__keys *k, const char *suffix, float *out) {
    const pleat__gguf_value *v = pleat__keys_find(k, suffix);
    PLEAT_FAIL_IF(!v && *out == 0, k->err, PLEAT_E_FORMAT, PLEAT_NOWHERE, "metadata key '%s' is missing", k->key);
    if (!v) return PLEAT_OK;
    double x = 0;
    const bool ok = !v->is_array && pleat__gguf_f64(k->gguf, v, 0, &x);
    PLEAT_FAIL_IF(!ok || !isfinite((float)x) || !((float)x > 0), k->err, PLEAT_E_FORMAT, v->offset,
                  "metadata key '%s' is no finite number above 0", k->key);
    *out = (float)x;
    return PLEAT_OK;
}

pleat_status pleat__keys_factor(pleat__keys *k, const char *suffix, float *out) {
    double x = 0;
    if (!pleat__keys_any(k, suffix, &x) || x == 0) return PLEAT_OK;
    return pleat__keys_f32(k, suffix, out);
}

bool pleat__keys_any(pleat__keys *k, const char *suffix, double *out) {
    const pleat__gguf_value *v = pleat__keys_find(k, suffix);
    int64_t n;
    bool truth;
    if (!v) return false;
    *out = NAN; /* an array, a text */
    if (v->is_array) return true;
    if (pleat__gguf_f64(k->gguf, v, 0, out)) return true;
    if (pleat__gguf_i64(k->gguf, v, 0, &n)) *out = (double)n;
    if (pleat__gguf_bool(k->gguf, v, 0, &truth)) *out = truth;
    return true;
}
