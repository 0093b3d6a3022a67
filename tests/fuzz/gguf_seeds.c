/* SPDX-License-Identifier: MIT
 *
 * gguf_seeds.c: writes the seeds of corpus/gguf: `gguf_seeds tests/fuzz/corpus/gguf`.
 *
 * tiny-NAME.gguf are whole models that load and run: one layer or two, width 32, 2 query heads on 1 KV head of 16, a
 * vocabulary of 4 special tokens, the 256 bytes and 4 merges, or one of SentencePiece, weights from a fixed generator.
 * Types whose blocks have 256 weights are those of ffn_down, where NAME ends in one.
 * tokenizer-KIND.gguf are metadata alone: a tokenizer of each kind, and of one with several expressions.
 * The others are below a few hundred bytes: one thing each that a reader meets or has to refuse.
 * A seed is written by appending to `file`; what a field holds is said by the call that appends it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 }; /* metadata types */
enum {                                                                        /* tensor types */
       T_F32 = 0,
       T_F16 = 1,
       T_Q4_0 = 2,
       T_Q4_1 = 3,
       T_Q5_0 = 6,
       T_Q5_1 = 7,
       T_Q8_0 = 8,
       T_Q2_K = 10,
       T_Q3_K = 11,
       T_Q4_K = 12,
       T_Q5_K = 13,
       T_Q6_K = 14,
       T_IQ4_NL = 20,
       T_IQ4_XS = 23,
       T_BF16 = 30,
       T_MXFP4 = 39
};

#define N_EMBD 32u
#define N_FF 64u
#define HEAD_DIM 16u
#define N_VOCAB 264u

static unsigned char file[1 << 20];
static size_t n_file;
static uint64_t weight_state = 1;
static const char *folder;

/* ---- fields -------------------------------------------------------------------------------------- */

static void put(const void *bytes, size_t n) {
    if (n > sizeof file - n_file) exit(1);
    memcpy(file + n_file, bytes, n);
    n_file += n;
}
static void put_u8(unsigned v) { put(&(uint8_t){(uint8_t)v}, 1); }
static void put_u16(unsigned v) { put(&(uint16_t){(uint16_t)v}, 2); }
static void put_u32(uint32_t v) { put(&v, 4); }
static void put_u64(uint64_t v) { put(&v, 8); }
static void put_f32(float v) { put(&v, 4); }
static void put_text(const char *s) {
    put_u64(strlen(s));
    put(s, strlen(s));
}
static void pad(size_t align) {
    while (n_file % align) put_u8(0);
}

static void begin(uint32_t version, uint64_t n_tensors, uint64_t n_metadata) {
    n_file = 0;
    put("GGUF", 4);
    put_u32(version);
    put_u64(n_tensors);
    put_u64(n_metadata);
}

static void key(const char *name, uint32_t type) {
    put_text(name);
    put_u32(type);
}
static void key_u32(const char *name, uint32_t v) {
    key(name, U32);
    put_u32(v);
}
static void key_f32(const char *name, float v) {
    key(name, F32);
    put_f32(v);
}
static void key_text(const char *name, const char *v) {
    key(name, STRING);
    put_text(v);
}
static void key_array(const char *name, uint32_t type, uint64_t n) {
    key(name, ARRAY);
    put_u32(type);
    put_u64(n);
}

static void key_of(const char *arch, const char *name, uint32_t v) {
    char full[96];
    snprintf(full, sizeof full, "%s.%s", arch, name);
    key_u32(full, v);
}
static void key_f32_of(const char *arch, const char *name, float v) {
    char full[96];
    snprintf(full, sizeof full, "%s.%s", arch, name);
    key_f32(full, v);
}

static void tensor(const char *name, uint32_t cols, uint32_t rows, uint32_t type, uint64_t offset) {
    put_text(name);
    put_u32(rows ? 2 : 1);
    put_u64(cols);
    if (rows) put_u64(rows);
    put_u32(type);
    put_u64(offset);
}

static void stack(const char *name, uint32_t cols, uint32_t rows, uint32_t slices, uint32_t type, uint64_t offset) {
    if (!slices) {
        tensor(name, cols, rows, type, offset);
        return;
    }
    put_text(name);
    put_u32(3);
    put_u64(cols);
    put_u64(rows);
    put_u64(slices);
    put_u32(type);
    put_u64(offset);
}

static void save(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(file, 1, n_file, f) != n_file || fclose(f) != 0) {
        perror(path);
        exit(1);
    }
}

/* ---- whole models ---------------------------------------------------------------------------------- */

/* UTF-8 of the character that stands for a byte in a byte-level vocabulary. */
static void byte_text(unsigned byte, char out[4]) {
    static unsigned shifted[256];
    if (!shifted[0]) {
        unsigned next = 256;
        for (unsigned b = 0; b < 256; b++) {
            int shown = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
            shifted[b] = shown ? b : next++;
        }
    }
    unsigned c = shifted[byte];
    int n = 0;
    if (c < 128) {
        out[n++] = (char)c;
    } else {
        out[n++] = (char)(0xC0 | c >> 6);
        out[n++] = (char)(0x80 | (c & 63));
    }
    out[n] = 0;
}

static void put_vocabulary(void) {
    static const char *const special[4] = {"<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>"};
    static const char *const merged[4] = {"th", "the", "in", "\xC4\xA0the"};
    char text[4];
    key_array("tokenizer.ggml.tokens", STRING, N_VOCAB);
    for (int i = 0; i < 4; i++) put_text(special[i]);
    for (unsigned b = 0; b < 256; b++) {
        byte_text(b, text);
        put_text(text);
    }
    for (int i = 0; i < 4; i++) put_text(merged[i]);
    key_array("tokenizer.ggml.token_type", I32, N_VOCAB);
    for (uint32_t i = 0; i < N_VOCAB; i++) put_u32(i < 4 ? 3 : 1);
    key_array("tokenizer.ggml.merges", STRING, 4);
    put_text("t h");
    put_text("th e");
    put_text("i n");
    put_text("\xC4\xA0 the");
}

static void put_bytes_tokenizer(void) {
    key_text("tokenizer.ggml.model", "gpt2");
    key_text("tokenizer.ggml.pre", "qwen2");
    put_vocabulary();
    key_u32("tokenizer.ggml.bos_token_id", 0);
    key_u32("tokenizer.ggml.eos_token_id", 3);
    key("tokenizer.ggml.add_bos_token", BOOL);
    put_u8(1);
    key_text("tokenizer.chat_template", "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
                                        "{% endfor %}<|im_start|>assistant\n");
}
#define N_BYTES_KEYS 9u

#define N_SHAPE_KEYS 11u
static void put_shape(const char *arch, uint32_t n_layers, uint32_t n_ff, uint32_t n_vocab) {
    key_text("general.architecture", arch);
    key_of(arch, "context_length", 64);
    key_of(arch, "embedding_length", N_EMBD);
    key_of(arch, "block_count", n_layers);
    key_of(arch, "feed_forward_length", n_ff);
    key_of(arch, "vocab_size", n_vocab);
    key_of(arch, "attention.head_count", 2);
    key_of(arch, "attention.head_count_kv", 1);
    key_of(arch, "rope.dimension_count", HEAD_DIM);
    key_f32_of(arch, "rope.freq_base", 10000);
    key_f32_of(arch, "attention.layer_norm_rms_epsilon", 1e-5f);
}

/* What a block holds, and where in it its scale is; n_scales 2: that of minima behind it.  Others are done by hand. */
typedef struct block_type {
    uint32_t type, weights, bytes, d_at, n_scales;
} block_type;

static const block_type block_types[] = {
    {T_F32, 1, 4, 0, 0},        {T_F16, 1, 2, 0, 0},        {T_BF16, 1, 2, 0, 0},       {T_Q8_0, 32, 34, 0, 1},
    {T_Q4_0, 32, 18, 0, 1},     {T_Q4_1, 32, 20, 0, 2},     {T_Q5_0, 32, 22, 0, 1},     {T_Q5_1, 32, 24, 0, 2},
    {T_Q2_K, 256, 84, 80, 2},   {T_Q3_K, 256, 110, 108, 1}, {T_Q4_K, 256, 144, 0, 2},   {T_Q5_K, 256, 176, 0, 2},
    {T_Q6_K, 256, 210, 208, 1}, {T_IQ4_NL, 32, 18, 0, 1},   {T_IQ4_XS, 256, 136, 0, 1}, {T_MXFP4, 32, 17, 0, 0},
};

static const block_type *block_of(uint32_t type) {
    const block_type *b = block_types;
    while (b->type != type) b++;
    return b;
}

static uint64_t type_bytes(uint32_t type, uint64_t n) { return n / block_of(type)->weights * block_of(type)->bytes; }

/* Knuth's MMIX generator, kept here: another would write other seeds than the corpus has. */
static unsigned next_byte(void) {
    weight_state = weight_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(weight_state >> 56);
}

/* Weights of about 0.1: f16 0x2E66 and bf16 0x3DCD are 0.1. */
static void put_floats(uint32_t type, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        unsigned sign = (next_byte() & 1) << 15;
        if (type == T_F32) put_f32(sign ? -0.1f : 0.1f);
        if (type == T_F16) put_u16(0x2E66u ^ sign);
        if (type == T_BF16) put_u16(0x3DCDu ^ sign);
    }
}

/* The scale 0x1400 is 2^-10. */
static void put_plain_blocks(uint32_t type, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        (void)next_byte(); /* the corpus had one here */
        put_u16(type == T_Q8_0 ? 0x1400u : 0x2000u);
        for (uint32_t b = 0; b < (type == T_Q8_0 ? 32 : 16); b++) put_u8(next_byte());
    }
}

/* Codes and sub-scales at random; scales of 2^-10, or 2^-14 where sub-scales multiply them.  MXFP4's is one byte. */
static void put_blocks(const block_type *t, uint64_t n) {
    const uint16_t d = t->weights == 256 ? 0x0400 : 0x1400;
    for (uint64_t i = 0; i < n; i++) {
        unsigned char *block = file + n_file;
        for (uint32_t b = 0; b < t->bytes; b++) put_u8(next_byte());
        for (uint32_t k = 0; k < t->n_scales; k++) memcpy(block + t->d_at + 2 * k, &d, sizeof d);
        if (t->type == T_MXFP4) block[0] = 124;
    }
}

static void put_weights(uint32_t type, uint64_t n) {
    const block_type *t = block_of(type);
    if (t->weights == 1)
        put_floats(type, n);
    else if (type == T_Q8_0 || type == T_Q4_0)
        put_plain_blocks(type, n / 32);
    else
        put_blocks(t, n / t->weights);
}

typedef struct plan {
    const char *name;
    uint32_t cols, rows, slices; /* rows 0: a vector, F32; slices 0: no experts' */
    int is_f32;                  /* whatever the types are */
} plan;

/* FF stands for the model's n_ff. */
#define FF UINT32_MAX
static const plan llama_layer[] = {
    {"attn_norm.weight", N_EMBD, 0, 0, 0},         {"ffn_norm.weight", N_EMBD, 0, 0, 0},
    {"attn_q.weight", N_EMBD, 2 * HEAD_DIM, 0, 0}, {"attn_k.weight", N_EMBD, HEAD_DIM, 0, 0},
    {"attn_v.weight", N_EMBD, HEAD_DIM, 0, 0},     {"attn_output.weight", 2 * HEAD_DIM, N_EMBD, 0, 0},
    {"ffn_gate.weight", N_EMBD, FF, 0, 0},         {"ffn_up.weight", N_EMBD, FF, 0, 0},
    {"ffn_down.weight", FF, N_EMBD, 0, 0},
};
/* ... and in gemma3 */
static const plan gemma_more[] = {
    {"attn_q_norm.weight", HEAD_DIM, 0, 0, 0},
    {"attn_k_norm.weight", HEAD_DIM, 0, 0, 0},
    {"post_attention_norm.weight", N_EMBD, 0, 0, 0},
    {"post_ffw_norm.weight", N_EMBD, 0, 0, 0},
};
#define N_EXPERTS 2u
static const plan gpt_oss_layer[] = {
    {"attn_norm.weight", N_EMBD, 0, 0, 0},
    {"post_attention_norm.weight", N_EMBD, 0, 0, 0},
    {"attn_q.weight", N_EMBD, 2 * HEAD_DIM, 0, 0},
    {"attn_q.bias", 2 * HEAD_DIM, 0, 0, 0},
    {"attn_k.weight", N_EMBD, HEAD_DIM, 0, 0},
    {"attn_k.bias", HEAD_DIM, 0, 0, 0},
    {"attn_v.weight", N_EMBD, HEAD_DIM, 0, 0},
    {"attn_v.bias", HEAD_DIM, 0, 0, 0},
    {"attn_output.weight", 2 * HEAD_DIM, N_EMBD, 0, 0},
    {"attn_output.bias", N_EMBD, 0, 0, 0},
    {"attn_sinks.weight", 2, 0, 0, 0},
    {"ffn_gate_inp.weight", N_EMBD, N_EXPERTS, 0, 1},
    {"ffn_gate_inp.bias", N_EXPERTS, 0, 0, 0},
    {"ffn_gate_exps.weight", N_EMBD, FF, N_EXPERTS, 0},
    {"ffn_gate_exps.bias", FF, N_EXPERTS, 0, 1},
    {"ffn_up_exps.weight", N_EMBD, FF, N_EXPERTS, 0},
    {"ffn_up_exps.bias", FF, N_EXPERTS, 0, 1},
    {"ffn_down_exps.weight", FF, N_EMBD, N_EXPERTS, 0},
    {"ffn_down_exps.bias", N_EMBD, N_EXPERTS, 0, 1},
};

#define TENSORS_MAX 64
typedef struct model_plan {
    uint32_t n_ff, n_tensors, n_layers;
    char names[TENSORS_MAX][64];
    plan tensors[TENSORS_MAX];
    uint32_t types[TENSORS_MAX];
} model_plan;

static void plan_tensor(model_plan *m, plan p, const char *name) {
    if (m->n_tensors == TENSORS_MAX) exit(1);
    if (p.cols == FF) p.cols = m->n_ff;
    if (p.rows == FF) p.rows = m->n_ff;
    snprintf(m->names[m->n_tensors], sizeof m->names[0], "%s", name);
    m->tensors[m->n_tensors++] = p;
}

static void plan_layer(model_plan *m, const plan *plans, size_t n) {
    char name[64];
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "blk.%u.%s", m->n_layers, plans[i].name);
        plan_tensor(m, plans[i], name);
    }
}
#define PLAN_LAYER(m, plans) plan_layer(m, plans, sizeof plans / sizeof plans[0])

static void plan_begin(model_plan *m, uint32_t n_ff, uint32_t n_vocab) {
    memset(m, 0, sizeof *m);
    m->n_ff = n_ff;
    plan_tensor(m, (plan){"", N_EMBD, n_vocab, 0, 0}, "token_embd.weight");
    plan_tensor(m, (plan){"", N_EMBD, 0, 0, 0}, "output_norm.weight");
}

/* types[i % n_types] is the type of the i-th matrix; `wide` that of those with 256 columns. */
static void plan_types(model_plan *m, const uint32_t *types, size_t n_types, uint32_t wide) {
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        const plan *p = &m->tensors[i];
        m->types[i] = !p->rows || p->is_f32 ? T_F32 : p->cols % 256 == 0 ? wide : types[i % n_types];
    }
}

static uint64_t elements_of(const plan *p) {
    return (uint64_t)p->cols * (p->rows ? p->rows : 1) * (p->slices ? p->slices : 1);
}

/* Behind the metadata. */
static void save_tensors_of(const model_plan *m, const char *name) {
    uint64_t offset = 0;
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        const plan *p = &m->tensors[i];
        stack(m->names[i], p->cols, p->rows, p->slices, m->types[i], offset);
        offset = (offset + type_bytes(m->types[i], elements_of(p)) + 31) / 32 * 32;
    }
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        pad(32);
        put_weights(m->types[i], elements_of(&m->tensors[i]));
    }
    pad(32);
    save(name);
}

static void save_llama(const char *name, uint32_t n_ff, const uint32_t *types, size_t n_types, uint32_t wide) {
    static model_plan m;
    plan_begin(&m, n_ff, N_VOCAB);
    PLAN_LAYER(&m, llama_layer);
    plan_types(&m, types, n_types, wide);
    begin(3, m.n_tensors, N_SHAPE_KEYS + N_BYTES_KEYS);
    put_shape("llama", 1, n_ff, N_VOCAB);
    put_bytes_tokenizer();
    save_tensors_of(&m, name);
}

/* ---- tokenizers -------------------------------------------------------------------------------------- */

/* Tokens spelled with U+2581: <unk>, <s>, </s>, the bytes, and then `more`, of which the last two are user-defined. */
static void put_spaced_tokens(const char *const *more, uint32_t n_more) {
    static const char *const special[3] = {"<unk>", "<s>", "</s>"};
    char name[8];
    key_array("tokenizer.ggml.tokens", STRING, 259 + n_more);
    for (int i = 0; i < 3; i++) put_text(special[i]);
    for (unsigned b = 0; b < 256; b++) {
        snprintf(name, sizeof name, "<0x%02X>", b);
        put_text(name);
    }
    for (uint32_t i = 0; i < n_more; i++) put_text(more[i]);
    key_array("tokenizer.ggml.token_type", I32, 259 + n_more);
    for (uint32_t i = 0; i < 259 + n_more; i++)
        put_u32(i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : i < 257 + n_more ? 1 : 4);
}

static const char *const more[] = {"\xE2\x96\x81", "e", "t", "h", "th", "\xE2\x96\x81th", "\n", "\n\n", "<td>", "  "};
enum { N_MORE = sizeof more / sizeof more[0] };

#define N_PIECE_KEYS 5u
static void put_piece_tokenizer(unsigned adds_space) {
    key_text("tokenizer.ggml.model", "llama");
    key("tokenizer.ggml.add_space_prefix", BOOL), put_u8(adds_space);
    put_spaced_tokens(more, N_MORE);
    key_array("tokenizer.ggml.scores", F32, 259 + N_MORE);
    for (int i = 0; i < 259 + N_MORE; i++) put_f32(i < 259 ? 0 : (float)-(i % 7));
}

/* Gemma 3: SentencePiece, a layer with a window of 4 and one without. */
static void save_gemma3(void) {
    static model_plan m;
    plan_begin(&m, 256, 259 + N_MORE);
    for (m.n_layers = 0; m.n_layers < 2; m.n_layers++) {
        PLAN_LAYER(&m, llama_layer);
        PLAN_LAYER(&m, gemma_more);
    }
    plan_types(&m, (const uint32_t[]){T_Q4_0, T_Q5_0}, 2, T_Q6_K);
    begin(3, m.n_tensors, N_SHAPE_KEYS + 2 + N_PIECE_KEYS);
    put_shape("gemma3", m.n_layers, 256, 259 + N_MORE);
    key_u32("gemma3.attention.sliding_window", 4);
    key_u32("gemma3.attention.sliding_window_pattern", 2);
    put_piece_tokenizer(0);
    save_tensors_of(&m, "tiny-gemma3");
}

/* GPT-OSS: sinks, two experts of which one is used, in MXFP4, with biases; yarn. */
static void save_gpt_oss(void) {
    static model_plan m;
    plan_begin(&m, 32, N_VOCAB);
    for (m.n_layers = 0; m.n_layers < 2; m.n_layers++) PLAN_LAYER(&m, gpt_oss_layer);
    plan_types(&m, (const uint32_t[]){T_MXFP4}, 1, T_F32);
    begin(3, m.n_tensors, N_SHAPE_KEYS + 7 + N_BYTES_KEYS);
    put_shape("gpt-oss", m.n_layers, 32, N_VOCAB);
    key_u32("gpt-oss.expert_count", N_EXPERTS);
    key_u32("gpt-oss.expert_used_count", 1);
    key_u32("gpt-oss.expert_feed_forward_length", 32);
    key_u32("gpt-oss.attention.sliding_window", 4);
    key_text("gpt-oss.rope.scaling.type", "yarn");
    key_f32("gpt-oss.rope.scaling.factor", 4);
    key_u32("gpt-oss.rope.scaling.original_context_length", 16);
    put_bytes_tokenizer();
    save_tensors_of(&m, "tiny-gpt-oss");
}

static void save_models(void) {
    static const struct {
        const char *name;
        uint32_t type, wide;
    } pairs[] = {
        {"tiny-q4_1-q2_k", T_Q4_1, T_Q2_K}, {"tiny-q5_0-q3_k", T_Q5_0, T_Q3_K},
        {"tiny-q5_1-q4_k", T_Q5_1, T_Q4_K}, {"tiny-iq4_nl-q5_k", T_IQ4_NL, T_Q5_K},
        {"tiny-q4_0-q6_k", T_Q4_0, T_Q6_K}, {"tiny-mxfp4-iq4_xs", T_MXFP4, T_IQ4_XS},
    };
    save_llama("tiny-q8_0", N_FF, (const uint32_t[]){T_Q8_0}, 1, T_F32);
    save_llama("tiny-q4_0", N_FF, (const uint32_t[]){T_Q4_0}, 1, T_F32);
    save_llama("tiny-mixed", N_FF, (const uint32_t[]){T_F16, T_F32, T_BF16, T_Q4_0, T_Q8_0}, 5, T_F32);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        save_llama(pairs[i].name, 256, &pairs[i].type, 1, pairs[i].wide);
    save_gemma3();
    save_gpt_oss();
}

static void save_tokenizers(void) {
    begin(3, 0, N_PIECE_KEYS);
    put_piece_tokenizer(1);
    save("tokenizer-llama");
    begin(3, 0, 5);
    key_text("tokenizer.ggml.model", "gemma4");
    key_u32("tokenizer.ggml.bos_token_id", 1);
    put_spaced_tokens(more, N_MORE);
    key_array("tokenizer.ggml.merges", STRING, 3);
    put_text("t h"), put_text("\xE2\x96\x81 th"), put_text("\n \n");
    save("tokenizer-gemma4");
    begin(3, 0, 5);
    key_text("tokenizer.ggml.model", "gpt2");
    key_text("tokenizer.ggml.pre", "deepseek-llm");
    put_vocabulary();
    save("tokenizer-cuts");
}

/* ---- single things ----------------------------------------------------------------------------------- */

static void save_each_type(void) {
    begin(3, 0, 14);
    key("u8", U8), put_u8(255);
    key("i8", I8), put_u8(0x80);
    key("u16", U16), put_u16(65535);
    key("i16", I16), put_u16(0x8000);
    key_u32("u32", UINT32_MAX);
    key("i32", I32), put_u32(0x80000000u);
    key_f32("f32", -1.5f);
    key("bool", BOOL), put_u8(1);
    key_text("string", "caf\xC3\xA9");
    key("u64", U64), put_u64(UINT64_MAX);
    key("i64", I64), put_u64(1ull << 63);
    key("f64", F64), put(&(double){1e300}, 8);
    key_array("array", U16, 3), put_u16(1), put_u16(2), put_u16(3);
    key_array("empty", STRING, 0);
    save("each-type");
    begin(3, 0, 1);
    key_array("nested", ARRAY, 2), put_u32(U8), put_u64(1), put_u8(7), put_u32(STRING), put_u64(1), put_text("x");
    save("array-nested");
}

/* One tensor "t" [32][2] F32 with `bytes` of data behind it, then one field changed by the caller's arguments. */
static void save_tensor(const char *name, uint32_t n_dims, uint64_t dim0, uint64_t dim1, uint32_t type, uint64_t offset,
                        size_t bytes) {
    begin(3, 1, 0);
    put_text("t");
    put_u32(n_dims);
    for (uint32_t i = 0; i < n_dims && i < 8; i++) put_u64(i == 0 ? dim0 : i == 1 ? dim1 : 1);
    put_u32(type);
    put_u64(offset);
    pad(32);
    for (size_t i = 0; i < bytes; i++) put_u8((unsigned)i);
    save(name);
}

static void save_tensors(void) {
    save_tensor("tensor", 2, 32, 2, T_F32, 0, 256);
    save_tensor("tensor-cut", 2, 32, 2, T_F32, 0, 255);
    save_tensor("tensor-no-dims", 0, 0, 0, T_F32, 0, 256);
    save_tensor("tensor-5-dims", 5, 32, 2, T_F32, 0, 256);
    save_tensor("tensor-zero-dim", 2, 32, 0, T_F32, 0, 256);
    save_tensor("tensor-product-overflows", 2, 1ull << 33, 1ull << 33, T_F32, 0, 256);
    save_tensor("tensor-bytes-overflow", 1, 1ull << 62, 1, T_F32, 0, 256);
    save_tensor("tensor-part-of-block", 2, 33, 1, T_Q8_0, 0, 256);
    save_tensor("tensor-unknown-type", 2, 32, 2, 99, 0, 256);
    save_tensor("tensor-offset-odd", 2, 32, 1, T_F32, 7, 256);
    save_tensor("tensor-offset-outside", 2, 32, 2, T_F32, 1u << 20, 256);
    save_tensor("tensor-offset-huge", 2, 32, 2, T_F32, UINT64_MAX - 31, 256);
    begin(3, 2, 0);
    tensor("a", 32, 0, T_F32, 0), tensor("b", 32, 0, T_F32, 64);
    pad(32), put(file, 192), save("tensors-overlap");
    begin(3, 2, 0);
    tensor("a", 32, 0, T_F32, 0), tensor("a", 32, 0, T_F32, 128);
    pad(32), put(file, 64), put(file, 96), put(file, 96), save("tensors-same-name");
}

static void save_counts(void) {
    begin(3, 0, 0), save("empty");
    begin(2, 0, 1), key_u32("general.alignment", 64), save("version-2");
    begin(1, 0, 0), save("version-1");
    begin(4, 0, 0), save("version-4");
    begin(0x03000000u, 0, 0), save("big-endian");
    begin(3, UINT64_MAX, 0), save("tensors-uncountable");
    begin(3, 1u << 20, 0), save("tensors-absent");
    begin(3, 0, UINT64_MAX), save("metadata-uncountable");
    begin(3, 0, 1), put_u64(UINT64_MAX), put("k", 1), save("key-endless");
    begin(3, 0, 1), key("k", STRING), put_u64(1ull << 63), put("v", 1), save("string-endless");
    begin(3, 0, 1), key_array("k", U64, 1ull << 61), put_u64(0), save("array-endless");
    begin(3, 0, 1), key_array("k", STRING, 1ull << 40), put_text("v"), save("array-of-strings-endless");
    begin(3, 0, 1), key_array("k", 77, 1), put_u8(0), save("array-unknown-type");
    begin(3, 0, 1), key("k", 77), put_u32(0), save("unknown-type");
    begin(3, 0, 1), key("k", BOOL), put_u8(2), save("bool-2");
    begin(3, 0, 1), key_text("", "v"), save("key-empty");
    begin(3, 0, 2), key_u32("k", 1), key_u32("k", 2), save("key-twice");
    begin(3, 0, 1), put_u64(3), put("a\0b", 3), put_u32(U8), put_u8(0), save("key-with-nul");
    begin(3, 0, 1), key_u32("general.alignment", 0), save("alignment-0");
    begin(3, 0, 1), key_u32("general.alignment", 24), save("alignment-24");
    begin(3, 0, 1), key_u32("general.alignment", 1u << 31), save("alignment-huge");
    begin(3, 0, 1), key_text("general.alignment", "32"), save("alignment-text");
    begin(3, 0, 1), key_text("general.architecture", "gpt9"), save("architecture-unknown");
    begin(3, 0, 1), key_text("general.architecture", "llama"), save("llama-bare");
    begin(3, 0, 1), key("k", ARRAY);
    for (int depth = 0; depth < 40; depth++) put_u32(ARRAY), put_u64(1);
    save("array-deep");
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: gguf_seeds FOLDER\n");
        return 2;
    }
    folder = argv[1];
    save_models();
    save_tokenizers();
    save_each_type();
    save_tensors();
    save_counts();
    return 0;
}
