/* SPDX-License-Identifier: MIT
 *
 * generate.c: a model that continues a text, its keys and values kept as a spec says.
 *
 *     generate MODEL.gguf KV-SPEC PROMPT
 *
 * Reads the prompt in chunks, then appends the likeliest token 40 times or until the model ends its text.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pleat/pleat.h>

enum { GENERATED = 40, MAX_PROMPT = 4096 };

static pleat_error err; /* says what is wrong where a status alone does not */

static void must(pleat_status status) {
    if (status == PLEAT_OK) return;
    fprintf(stderr, "generate: %s\n", err.text[0] ? err.text : pleat_status_str(status));
    exit(1);
}

/* Append n tokens to the sequence, at most chunk_tokens a step; logits are those after the last. */
static void append(pleat_engine *engine, pleat_seq seq, const pleat_token *tokens, uint32_t n, float *logits) {
    pleat_engine_options options;
    pleat_engine_get_options(engine, &options);
    for (; n > options.chunk_tokens; tokens += options.chunk_tokens, n -= options.chunk_tokens) {
        const pleat_engine_item part = {seq, tokens, options.chunk_tokens, .flags = PLEAT_ITEM_MORE};
        must(pleat_engine_step(engine, &part, 1, &err));
    }
    const pleat_engine_item last = {seq, tokens, n, .n_logits = 1, .logits = logits};
    must(pleat_engine_step(engine, &last, 1, &err));
}

/* Continue the prompt that the logits follow, and print what comes. */
static void generate(const pleat_model *model, pleat_engine *engine, pleat_seq seq, float *logits, uint32_t n_vocab) {
    pleat_sampler *sampler = NULL;
    pleat_sampler_options sampling;
    pleat_token token;
    pleat_sampler_options_default(&sampling); /* temperature 0: the likeliest token */
    must(pleat_sampler_create(&sampling, n_vocab, NULL, &sampler, &err));
    for (int i = 0; i < GENERATED; i++) {
        must(pleat_sampler_sample(sampler, logits, &token));
        if (pleat_model_token_is_end(model, token)) break;
        size_t n_bytes;
        const char *bytes = pleat_model_token_text(model, token, &n_bytes);
        fwrite(bytes, 1, n_bytes, stdout);
        append(engine, seq, &token, 1, logits);
    }
    pleat_sampler_destroy(&sampler);
}

int main(int argc, char **argv) {
    static pleat_token prompt[MAX_PROMPT];
    uint32_t n_prompt;
    pleat_model *model = NULL;
    pleat_model_info info;
    pleat_engine *engine = NULL;
    pleat_engine_options options;
    pleat_seq seq;
    pleat_cache_usage usage;
    if (argc != 4) {
        fprintf(stderr, "usage: generate MODEL.gguf KV-SPEC PROMPT\n");
        return 2;
    }
    must(pleat_model_load(argv[1], NULL, &model, &err));
    pleat_model_get_info(model, &info);
    must(pleat_model_tokenize(model, argv[3], strlen(argv[3]), PLEAT_TOKENIZE_ADD_BOS, prompt, MAX_PROMPT, &n_prompt,
                              &err));
    float *logits = malloc(info.n_vocab * sizeof *logits);
    must(logits ? PLEAT_OK : PLEAT_E_MEMORY);

    pleat_engine_options_default(&options);
    must(pleat_spec_parse(argv[2], &options.spec, &err));
    must(pleat_workers_create(0, NULL, &options.workers)); /* 0: a thread for each core */
    must(pleat_engine_create(model, &options, &engine, &err));
    must(pleat_engine_open(engine, n_prompt + GENERATED, &seq));
    append(engine, seq, prompt, n_prompt, logits);
    generate(model, engine, seq, logits, info.n_vocab);
    must(pleat_engine_get_usage(engine, seq, &usage));
    printf("\n[%s: %u tokens in %llu bytes, %.1f %% of f16's]\n", argv[2], pleat_engine_length(engine, seq),
           (unsigned long long)usage.bytes, 100.0 * (double)usage.bytes / (double)usage.bytes_f16);
    pleat_engine_destroy(&engine);
    pleat_workers_destroy(&options.workers);
    pleat_model_destroy(&model);
    free(logits);
    return 0;
}
