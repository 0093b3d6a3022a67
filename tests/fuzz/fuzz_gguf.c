/* SPDX-License-Identifier: MIT
 *
 * fuzz_gguf.c: any bytes as a GGUF file; what opens is walked through, its tokenizer and its model are used if it has
 * them.
 *
 * Nothing may crash, hang, leak or allocate far beyond the file: LIMIT_FACTOR bounds what an object may
 * hold.  Weights may be anything at all, so logits may be NaN; only memory has to be safe.
 */
#include "fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/utf8.h"
#include "model/internal.h"
#include "pleat/engine.h"
#include "tokenizer/tokenizer.h"

/* A file of n bytes may make the reader and the tokenizer take LIMIT_BASE + LIMIT_FACTOR * n bytes. */
#define LIMIT_BASE (4u << 20)
#define LIMIT_FACTOR 64u

typedef struct limited {
    uint64_t live;
    uint64_t limit;
} limited;

static void *limited_alloc(void *ctx, size_t bytes, size_t align) {
    limited *l = ctx;
    EXPECT(bytes <= l->limit - l->live);
    void *p;
    if (posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : align, bytes) != 0) return NULL;
    l->live += bytes;
    return p;
}

static void limited_free(void *ctx, void *p, size_t bytes) {
    limited *l = ctx;
    EXPECT(l->live >= bytes);
    l->live -= bytes;
    free(p);
}

static void expect_error(pleat_status status, const pleat_error *err) {
    EXPECT(status < 0);
    EXPECT(err->code == status);
    EXPECT(err->text[0] && memchr(err->text, 0, sizeof err->text));
}

/* ---- the file ------------------------------------------------------------------------------------ */

static void walk_metadata(const pleat_gguf *gguf, uint64_t n) {
    char key[64], value[64];
    uint64_t number;
    for (uint64_t i = 0; i < n; i++) {
        EXPECT(pleat_gguf_metadata(gguf, i, key, sizeof key, value, sizeof value) == PLEAT_OK);
        EXPECT(memchr(key, 0, sizeof key) && memchr(value, 0, sizeof value));
        (void)pleat_gguf_get_u64(gguf, key, &number);
        EXPECT(pleat_gguf_metadata(gguf, i, key, 1, value, 1) == PLEAT_OK);
    }
    EXPECT(pleat_gguf_metadata(gguf, n, key, sizeof key, value, sizeof value) == PLEAT_E_ARG);
}

static void walk_tensors(const pleat_gguf *gguf, const pleat_gguf_info *info) {
    pleat_gguf_tensor tensor;
    uint64_t elements = 0;
    for (uint64_t i = 0; i < info->n_tensors; i++) {
        EXPECT(pleat_gguf_get_tensor(gguf, i, &tensor) == PLEAT_OK);
        EXPECT(tensor.n_dims >= 1 && tensor.n_dims <= 4);
        EXPECT(tensor.n_bytes <= info->file_bytes);
        EXPECT(tensor.type_name[0]);
        EXPECT(strlen(tensor.name) <= info->file_bytes);
        elements += tensor.dims[0] * tensor.dims[1] * tensor.dims[2] * tensor.dims[3];
    }
    EXPECT(elements == info->n_params);
    EXPECT(pleat_gguf_get_tensor(gguf, info->n_tensors, &tensor) == PLEAT_E_ARG);
}

/* ---- its tokenizer ---------------------------------------------------------------------------------- */

/* Tokens of a text, as text again: in pieces of UTF-8, and as long as the tokens' bytes allow. */
static void try_round_trip(const pleat__tokenizer *t, uint32_t tokenize_flags, uint32_t detokenize_flags) {
    static const char text[] =
        "The pass key is 25881.\n\n<|im_end|></s> \xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82 don't  stop\xE2"
        "\x96\x81the <td>\t\r\n \xE4\xB8\x80";
    const pleat_model model = {.tokenizer = (pleat__tokenizer *)t};
    pleat_token ids[4 * sizeof text];
    pleat_detokenizer d;
    uint32_t n = 0;
    size_t n_bytes = 0;
    EXPECT(pleat__tokenizer_run(t, text, sizeof text - 1, tokenize_flags, ids, 4 * sizeof text, &n, NULL) == PLEAT_OK);
    EXPECT(pleat_detokenizer_init(&d, &model, detokenize_flags) == PLEAT_OK);
    for (uint32_t i = 0; i < n; i++) {
        EXPECT(ids[i] >= 0 && (uint32_t)ids[i] < t->vocab.n_tokens);
        const size_t cap = PLEAT_DETOKENIZER_CAP(pleat__vocab_text(&t->vocab, ids[i]).n_bytes);
        char *piece = malloc(cap);
        EXPECT(piece && pleat_detokenizer_put(&d, ids[i], piece, cap, &n_bytes) == PLEAT_OK);
        EXPECT(pleat__utf8_prefix(piece, n_bytes) == n_bytes);
        free(piece);
    }
    char rest[PLEAT_DETOKENIZER_CAP(0)];
    EXPECT(pleat_detokenizer_end(&d, rest, sizeof rest, &n_bytes) == PLEAT_OK && n_bytes <= 3);
}

static void try_any_tokenizer(const pleat_gguf *gguf, const pleat_allocator *al) {
    pleat__tokenizer *t = NULL;
    pleat_error err;
    const pleat_status status = pleat__tokenizer_create(gguf, al, &t, &err);
    if (status != PLEAT_OK) {
        expect_error(status, &err);
        EXPECT(t == NULL);
        return;
    }
    try_round_trip(t, 0, 0);
    try_round_trip(t, PLEAT_TOKENIZE_SPECIAL | PLEAT_TOKENIZE_ADD_BOS | PLEAT_TOKENIZE_ADD_EOS,
                   PLEAT_DETOKENIZE_SPECIAL | PLEAT_DETOKENIZE_MIDDLE);
    for (uint32_t i = 0; i < t->vocab.n_tokens; i++) (void)pleat__tokenizer_is_end(t, (pleat_token)i);
    pleat__tokenizer_destroy(t);
}

/* 1 if the bytes are a GGUF file. */
static int try_file(const uint8_t *data, size_t size, const pleat_allocator *al) {
    pleat_gguf *gguf = NULL;
    pleat_error err;
    pleat_gguf_info info;
    pleat_status status = pleat_gguf_open_memory(data, size, al, &gguf, &err);
    if (status != PLEAT_OK) {
        expect_error(status, &err);
        EXPECT(gguf == NULL);
        return 0;
    }
    pleat_gguf_get_info(gguf, &info);
    EXPECT(info.file_bytes == size);
    walk_metadata(gguf, info.n_metadata);
    walk_tensors(gguf, &info);
    try_any_tokenizer(gguf, al);
    pleat_gguf_close(&gguf);
    EXPECT(gguf == NULL);
    return 1;
}

/* ---- the model in it ------------------------------------------------------------------------------- */

static void try_tokenizer(const pleat_model *model, const pleat_model_info *info) {
    static const char text[] = "The pass key is 25881.\n<|im_end|> \xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82 don't  stop";
    pleat_token ids[2 * sizeof text];
    uint32_t n = 0;
    size_t n_bytes;
    pleat_status status =
        pleat_model_tokenize(model, text, sizeof text - 1, PLEAT_TOKENIZE_ADD_BOS | PLEAT_TOKENIZE_SPECIAL, ids,
                             sizeof ids / sizeof ids[0], &n, NULL);
    EXPECT(status != PLEAT_OK || n <= sizeof ids / sizeof ids[0]);
    for (uint32_t i = 0; status == PLEAT_OK && i < n; i++) EXPECT(ids[i] >= 0 && (uint32_t)ids[i] < info->n_vocab);
    for (uint32_t id = 0; id < info->n_vocab; id++)
        EXPECT(pleat_model_token_text(model, (pleat_token)id, &n_bytes) != NULL);
    EXPECT(pleat_model_token_text(model, (pleat_token)info->n_vocab, &n_bytes) == NULL);
    EXPECT(pleat_model_token_text(model, -1, &n_bytes) == NULL);
}

static void try_steps(const pleat_model *model, const pleat_model_info *info) {
    pleat_engine_options opt;
    pleat_engine *engine = NULL;
    pleat_error err;
    pleat_seq seq;
    const pleat_token prompt[3] = {0, (pleat_token)(info->n_vocab - 1), (pleat_token)(info->n_vocab / 2)};
    float *logits = malloc(info->n_vocab * sizeof *logits);
    pleat_engine_options_default(&opt);
    opt.max_tokens = info->n_ctx < 8 ? info->n_ctx : 8;
    EXPECT(logits && pleat_spec_parse("k8v4", &opt.spec, NULL) == PLEAT_OK);
    pleat_status status = pleat_engine_create(model, &opt, &engine, &err);
    if (status != PLEAT_OK) {
        expect_error(status, &err);
        goto done;
    }
    if (opt.max_tokens < 4 || pleat_engine_open(engine, opt.max_tokens, &seq) != PLEAT_OK) goto done;
    pleat_engine_item item = {seq, prompt, 3, 1, logits, 0};
    if (pleat_engine_step(engine, &item, 1, &err) != PLEAT_OK) goto done;
    item.n_tokens = 1;
    (void)pleat_engine_step(engine, &item, 1, &err);
    EXPECT(pleat_engine_is_valid(engine));
done:
    pleat_engine_destroy(&engine);
    free(logits);
}

static void try_model(const uint8_t *data, size_t size, const pleat_allocator *al) {
    pleat_model *model = NULL;
    pleat_error err;
    pleat_model_info info;
    char path[32];
    int fd = memfd_create("gguf", MFD_CLOEXEC);
    EXPECT(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    pleat_status status = pleat_model_load(path, al, &model, &err);
    close(fd);
    if (status != PLEAT_OK) {
        expect_error(status, &err);
        EXPECT(model == NULL);
        return;
    }
    pleat_model_get_info(model, &info);
    try_tokenizer(model, &info);
    try_steps(model, &info);
    pleat_model_destroy(&model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    limited l = {0, LIMIT_BASE + LIMIT_FACTOR * (uint64_t)size};
    const pleat_allocator al = {limited_alloc, limited_free, &l};
    if (try_file(data, size, &al)) {
        EXPECT(l.live == 0);
        try_model(data, size, &al);
    }
    EXPECT(l.live == 0);
    return 0;
}
