/* SPDX-License-Identifier: MIT
 *
 * layer_kinds.c: see layer_kinds.h.
 */
#include "layer_kinds.h"

#include <stdio.h>

static layer_kind kind_of(const pleat_cache_options *opt, const pleat_spec *spec, uint32_t n_layers) {
    layer_kind k = {.n_layers = n_layers};
    (void)pleat_spec_print(spec, k.kept_as, sizeof k.kept_as); /* a spec that a cache takes has a text */
    k.token_bytes =
        pleat_cache_token_bytes(spec, opt->head_dim, opt->n_q_heads / opt->n_kv_heads) * opt->n_kv_heads * n_layers;
    return k;
}

uint32_t layer_kinds_of(const pleat_cache_options *opt, uint32_t n_tokens, uint64_t bytes, layer_kind out[2]) {
    pleat_cache_traits t = {.size_bytes = sizeof t};
    uint32_t n = 0;
    if (pleat_cache_traits_for(opt, &t, NULL) != PLEAT_OK) return 0;
    const uint32_t n_rings = t.n_ring_lanes / opt->n_kv_heads;
    if (n_rings < opt->n_layers) out[n++] = kind_of(opt, &opt->spec, opt->n_layers - n_rings);
    if (n_rings > 0) {
        const pleat_spec spec = pleat_spec_of_windows(&opt->spec);
        const uint32_t n_slots = n_tokens < t.ring_slots ? n_tokens : t.ring_slots;
        const uint64_t n_pages = (uint64_t)t.n_ring_lanes * ((n_slots + t.high_page_tokens - 1) / t.high_page_tokens);
        const uint64_t held = pleat_forecast_bytes(&(pleat_forecast){.traits = t}, n_pages);
        layer_kind k = kind_of(opt, &spec, n_rings);
        k.window = t.ring_slots;
        k.bytes = n == 0 || held > bytes ? bytes : held;
        bytes -= k.bytes;
        out[n++] = k;
    }
    if (out[0].window == 0) out[0].bytes = bytes;
    return n;
}

uint64_t layer_kinds_token_bytes(const layer_kind *kinds, uint32_t n_kinds) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < n_kinds; i++) n += kinds[i].token_bytes;
    return n;
}

const char *layer_kind_sees(const layer_kind *kind, char out[LAYER_KIND_SEES_CAP]) {
    if (kind->window)
        snprintf(out, LAYER_KIND_SEES_CAP, "the newest %u", kind->window);
    else
        snprintf(out, LAYER_KIND_SEES_CAP, "all tokens");
    return out;
}
