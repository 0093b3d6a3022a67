/* SPDX-License-Identifier: MIT
 *
 * test_unturned.c: what an engine tells its cache of RoPE undoes RoPE, for every architecture that there is a tiny model
 * of (tests/golden).  A head is turned whole or in part, in both orders of pairs, with YaRN, longrope, and layers that
 * do not turn.
 *
 * A prompt is one token, again and again.  Attention over equal values gives that value whatever the weights are, so
 * every layer's input is the same at all positions, and so are its keys before RoPE.  Then no key is unlike the others:
 * all of novel's scores are 0.  Not so with gpt-oss, whose sinks take a share that falls with the position.
 */
#include <stdio.h>

#include "model_rig.h"

enum { N_TOKENS = 400, TOKEN = 7 };

static const char *const models[] = {"gemma2", "gemma3",     "granite", "llama",    "mistral", "mixtral", "phi3",
                                     "qwen2",  "phi3-short", "qwen3",   "qwen2moe", "smollm3", "qwen3moe"};

/* How far keys are from their mean, and how many were looked at. */
static float read_prompt(pleat_engine *engine, const pleat_model_info *info, uint32_t n, uint32_t *n_seen) {
    static pleat_token tokens[N_TOKENS];
    static pleat_cache_token kept[N_TOKENS];
    pleat_seq seq;
    pleat_error err = {0};
    float most = 0;
    for (uint32_t i = 0; i < n; i++) tokens[i] = TOKEN;
    CHECK_STATUS(pleat_engine_open(engine, n, &seq), PLEAT_OK);
    const pleat_engine_item item = {.seq = seq, .tokens = tokens, .n_tokens = n};
    CHECK_STATUS(pleat_engine_step(engine, &item, 1, &err), PLEAT_OK);
    for (uint32_t lane = 0; lane < info->n_layers * info->n_kv_heads; lane++) {
        const uint32_t layer = lane / info->n_kv_heads, head = lane % info->n_kv_heads;
        CHECK_STATUS(pleat_cache_tokens(pleat_engine_cache(engine), seq, layer, head, 0, n, kept), PLEAT_OK);
        for (uint32_t i = 0; i < n; i++) {
            most = kept[i].significance > most ? kept[i].significance : most;
            *n_seen += kept[i].significance > 0;
        }
    }
    return most;
}

static void test_equal_tokens_have_equal_keys(void) {
    for (size_t i = 0; i < CHECK_COUNT(models); i++) {
        char path[64];
        pleat_model_info info;
        uint32_t n_seen = 0;
        snprintf(path, sizeof path, "tests/golden/%s.gguf", models[i]);
        pleat_model *model = model_of(path);
        if (!model) continue;
        pleat_model_get_info(model, &info);
        uint32_t n = info.n_ctx < N_TOKENS ? info.n_ctx : N_TOKENS;
        if (info.window > 0 && info.window < n) n = info.window; /* so that every layer keeps what it sees */
        pleat_engine_options opt = engine_options_of("novel:budget=100%,window=1,sinks=0,format=f32");
        opt.max_tokens = n;
        opt.chunk_tokens = n;
        opt.step_tokens = n;
        pleat_engine *engine = engine_made(model, &opt);
        if (engine) {
            const float most = read_prompt(engine, &info, n, &n_seen);
            check_context("%s: %u tokens, %u scores up to %g", models[i], n, n_seen, (double)most);
            CHECK(most < 1e-5f);
            CHECK(n_seen == n * info.n_layers * info.n_kv_heads);
        }
        pleat_engine_destroy(&engine);
        pleat_model_destroy(&model);
    }
}

static const check_test tests[] = {{"equal_tokens_have_equal_keys", test_equal_tokens_have_equal_keys}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
