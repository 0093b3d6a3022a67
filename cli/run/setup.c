/* SPDX-License-Identifier: MIT
 *
 * setup.c: what one answer and a conversation begin with: the spec, the context, the sampler, the model's chat form.
 */
#include <stdlib.h>

#include "cli/lib/common.h"
#include "run.h"

int run_take_spec(run_options *o) {
    static const char *const default_specs[] = {"k8v4", NULL};
    spec_list *kv = &o->load.kv;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    if (!o->cache_type_k && !o->cache_type_v) {
        options_default_specs(kv, default_specs);
        return CLI_OK;
    }
    const char *k = o->cache_type_k ? o->cache_type_k : "f16", *v = o->cache_type_v ? o->cache_type_v : "f16";
    if (pleat_spec_from_cache_types(k, v, &kv->spec[0], &err) != PLEAT_OK) {
        cli_error("--cache-type-k '%s', --cache-type-v '%s': %s", k, v, err.text);
        return CLI_USAGE;
    }
    pleat_spec_print(&kv->spec[0], kv->text[0], PLEAT_SPEC_TEXT_CAP);
    kv->n = 1;
    return CLI_OK;
}

int run_fit_ctx(run *r) {
    const uint32_t n_train = r->l.info.n_ctx, wanted = r->o->ctx_size;
    r->n_ctx = wanted ? wanted : n_train;
    if (wanted <= n_train) return CLI_OK;
    cli_error("--ctx-size %u: the model's context is %u tokens", wanted, n_train);
    return CLI_FAILED;
}

pleat_sampler_options run_sampling(const run_options *o) {
    pleat_sampler_options sampling;
    pleat_sampler_options_default(&sampling);
    sampling.temperature = o->temp;
    sampling.top_k = o->top_k;
    sampling.top_p = o->top_p;
    sampling.min_p = o->min_p;
    sampling.seed = o->seed;
    return sampling;
}

pleat_cache_traits run_traits(const pleat_cache_options *cache) {
    pleat_cache_traits traits = {.size_bytes = sizeof traits, .unshared_tokens = UINT32_MAX};
    (void)pleat_cache_traits_for(cache, &traits, NULL); /* the engine will say what is wrong with the options */
    return traits;
}

/* ---- the model's chat form --------------------------------------------------------------------- */

int run_form_tokens(const loaded *l, const char *text, size_t n, int is_begun, pleat_token **ids, uint32_t *n_ids) {
    const uint32_t flags = PLEAT_TOKENIZE_SPECIAL | (is_begun ? 0 : PLEAT_TOKENIZE_ADD_BOS);
    return load_tokens(l, "the prompt", text, n, flags, ids, n_ids);
}
