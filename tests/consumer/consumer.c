/* SPDX-License-Identifier: MIT
 *
 * consumer.c: a program of somebody else's, built against an installed Pleat: all public headers, and a call
 * into spec, cache and version.  One token goes in and the attention to it alone comes back as its value.
 */
#include <pleat/pleat.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static int attend_once(pleat_cache *cache) {
    float q[16], k[16], v[16], out[16];
    pleat_seq seq;
    for (int i = 0; i < 16; i++) {
        q[i] = k[i] = 1;
        v[i] = (float)i;
    }
    if (pleat_cache_open(cache, 32, &seq) != PLEAT_OK) return 0;
    const pleat_cache_item item = {seq, 1, 0};
    if (pleat_cache_begin(cache, &item, 1) != PLEAT_OK) return 0;
    if (pleat_cache_attend(cache, 0, q, k, v, out) != PLEAT_OK) return 0;
    if (pleat_cache_end(cache) != PLEAT_OK) return 0;
    for (int i = 0; i < 16; i++)
        if (!(fabsf(out[i] - (float)i) <= 1e-2f)) return 0;
    return 1;
}

int main(void) {
    pleat_cache_options opt;
    pleat_cache *cache = NULL;
    pleat_error err;
    pleat_cache_options_default(&opt);
    opt.n_layers = opt.n_kv_heads = opt.n_q_heads = 1;
    opt.head_dim = 16;
    opt.max_tokens = 32;
    if (pleat_spec_parse("k8v8", &opt.spec, &err) != PLEAT_OK || pleat_cache_create(&opt, &cache, &err) != PLEAT_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    int ok = attend_once(cache) && strcmp(pleat_version(), PLEAT_VERSION_STRING) == 0;
    pleat_cache_destroy(&cache);
    printf("pleat %s: %s\n", pleat_version(), ok ? "ok" : "failed");
    return ok ? 0 : 1;
}
