/* SPDX-License-Identifier: MIT
 *
 * real_logits.c: real_logits MODEL TEXT N: the logits of the first N tokens of a text on an f32 cache, for
 * real_logits.py.  To stdout: n_tokens and n_vocab as u32, the tokens as i32, then the logits as f32, [n_tokens][n_vocab].
 */
#include <stdio.h>
#include <stdlib.h>

#include "pleat/pleat.h"

enum { CHUNK = 64, TEXT_CAP = 1 << 20, TOKENS_CAP = 1 << 19 };

static pleat_error err;

static void must(pleat_status status) {
    if (status == PLEAT_OK) return;
    fprintf(stderr, "real_logits: %s\n", err.text[0] ? err.text : pleat_status_str(status));
    exit(1);
}

static void put(const void *values, size_t n) {
    if (fwrite(values, 4, n, stdout) != n) exit(1);
}

static uint32_t tokens_of(const pleat_model *model, const char *path, uint32_t n_most, pleat_token *ids) {
    static char text[TEXT_CAP];
    uint32_t n = 0;
    FILE *f = fopen(path, "rb");
    const size_t n_bytes = f ? fread(text, 1, sizeof text, f) : 0;
    if (f) (void)fclose(f);
    must(pleat_model_tokenize(model, text, n_bytes, PLEAT_TOKENIZE_ADD_BOS, ids, TOKENS_CAP, &n, &err));
    return n < n_most ? n : n_most;
}

int main(int argc, char **argv) {
    static pleat_token ids[TOKENS_CAP];
    pleat_model *model = NULL;
    pleat_model_info info;
    pleat_engine_options opt;
    pleat_engine *engine = NULL;
    pleat_seq seq;
    if (argc != 4) return 2;
    must(pleat_model_load(argv[1], NULL, &model, &err));
    pleat_model_get_info(model, &info);
    const uint32_t head[2] = {tokens_of(model, argv[2], (uint32_t)strtoul(argv[3], NULL, 10), ids), info.n_vocab};
    pleat_engine_options_default(&opt);
    must(pleat_spec_parse("f32", &opt.spec, &err));
    opt.max_tokens = head[0];
    must(pleat_engine_create(model, &opt, &engine, &err));
    must(pleat_engine_open(engine, opt.max_tokens, &seq));
    float *logits = malloc((size_t)CHUNK * info.n_vocab * sizeof *logits);
    if (!logits) return 1;
    put(head, 2);
    put(ids, head[0]);
    for (uint32_t at = 0; at < head[0]; at += CHUNK) {
        const uint32_t n = head[0] - at < CHUNK ? head[0] - at : CHUNK;
        const pleat_engine_item item = {seq, ids + at, n, n, logits, 0};
        must(pleat_engine_step(engine, &item, 1, &err));
        put(logits, (size_t)n * info.n_vocab);
    }
    free(logits);
    pleat_engine_destroy(&engine);
    pleat_model_destroy(&model);
    return 0;
}
