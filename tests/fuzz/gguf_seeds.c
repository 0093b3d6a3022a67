/* SPDX-License-Identifier: MIT
 *
 * gguf_seeds.c: writes the seeds of corpus/gguf: `gguf_seeds tests/fuzz/corpus/gguf`.
 *
 * tiny-TYPE.gguf are whole models that load and run: one layer, width 32, 2 query heads on 1 KV head of 16,
 * a vocabulary of 4 special tokens, the 256 bytes and 4 merges, weights from a fixed generator.
 * tokenizer-KIND.gguf are metadata alone: a tokenizer of each kind, and of one with several expressions.
 * The others are below a few hundred bytes: one thing each that a reader meets or has to refuse.
 * A seed is written by appending to `file`; what a field holds is said by the call that appends it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 }; /* metadata types */
enum { T_F32 = 0, T_F16 = 1, T_Q4_0 = 2, T_Q8_0 = 8, T_BF16 = 30 };           /* tensor types */

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

static void tensor(const char *name, uint32_t cols, uint32_t rows, uint32_t type, uint64_t offset) {
    put_text(name);
    put_u32(rows ? 2 : 1);
    put_u64(cols);
    if (rows) put_u64(rows);
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

static void put_model_metadata(void) {
    key_text("general.architecture", "llama");
    key_u32("llama.context_length", 64);
    key_u32("llama.embedding_length", N_EMBD);
    key_u32("llama.block_count", 1);
    key_u32("llama.feed_forward_length", N_FF);
    key_u32("llama.vocab_size", N_VOCAB);
    key_u32("llama.attention.head_count", 2);
    key_u32("llama.attention.head_count_kv", 1);
    key_u32("llama.rope.dimension_count", HEAD_DIM);
    key_f32("llama.rope.freq_base", 10000);
    key_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
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
#define N_MODEL_METADATA 20u

static uint64_t type_bytes(uint32_t type, uint64_t n) {
    switch (type) {
        case T_F32: return 4 * n;
        case T_Q8_0: return n / 32 * 34;
        case T_Q4_0: return n / 32 * 18;
        default: return 2 * n;
    }
}

/* Knuth's MMIX generator, kept here: another would write other seeds than the corpus has. */
static unsigned next_byte(void) {
    weight_state = weight_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(weight_state >> 56);
}

/* Weights of about 0.1: f16 0x2E66 and bf16 0x3DCD are 0.1, the scale 0x1400 is 2^-10. */
static void put_weights(uint32_t type, uint64_t n) {
    uint64_t block = type == T_Q8_0 ? 32 : type == T_Q4_0 ? 16 : 0;
    for (uint64_t i = 0; i < n; i += block ? 32 : 1) {
        unsigned sign = (next_byte() & 1) << 15;
        if (type == T_F32) put_f32(sign ? -0.1f : 0.1f);
        if (type == T_F16) put_u16(0x2E66u ^ sign);
        if (type == T_BF16) put_u16(0x3DCDu ^ sign);
        if (block) put_u16(type == T_Q8_0 ? 0x1400u : 0x2000u);
        for (uint64_t b = 0; b < block; b++) put_u8(next_byte());
    }
}

typedef struct plan {
    const char *name;
    uint32_t cols, rows; /* rows 0: a vector, F32 */
} plan;

static const plan plans[] = {
    {"token_embd.weight", N_EMBD, N_VOCAB},        {"output_norm.weight", N_EMBD, 0},
    {"blk.0.attn_norm.weight", N_EMBD, 0},         {"blk.0.ffn_norm.weight", N_EMBD, 0},
    {"blk.0.attn_q.weight", N_EMBD, 2 * HEAD_DIM}, {"blk.0.attn_k.weight", N_EMBD, HEAD_DIM},
    {"blk.0.attn_v.weight", N_EMBD, HEAD_DIM},     {"blk.0.attn_output.weight", 2 * HEAD_DIM, N_EMBD},
    {"blk.0.ffn_gate.weight", N_EMBD, N_FF},       {"blk.0.ffn_up.weight", N_EMBD, N_FF},
    {"blk.0.ffn_down.weight", N_FF, N_EMBD},
};
#define N_PLANS (sizeof plans / sizeof plans[0])

/* types[i % n_types] is the type of the i-th matrix. */
static void save_model(const char *name, const uint32_t *types, size_t n_types) {
    uint32_t type[N_PLANS];
    uint64_t n[N_PLANS], offset = 0;
    begin(3, N_PLANS, N_MODEL_METADATA);
    put_model_metadata();
    for (size_t i = 0; i < N_PLANS; i++) {
        type[i] = plans[i].rows ? types[i % n_types] : T_F32;
        n[i] = (uint64_t)plans[i].cols * (plans[i].rows ? plans[i].rows : 1);
        tensor(plans[i].name, plans[i].cols, plans[i].rows, type[i], offset);
        offset = (offset + type_bytes(type[i], n[i]) + 31) / 32 * 32;
    }
    for (size_t i = 0; i < N_PLANS; i++) {
        pad(32);
        put_weights(type[i], n[i]);
    }
    pad(32);
    save(name);
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

static void save_tokenizers(void) {
    static const char *const more[] = {"\xE2\x96\x81",   "e",  "t",    "h",    "th",
                                       "\xE2\x96\x81th", "\n", "\n\n", "<td>", "  "};
    enum { N_MORE = sizeof more / sizeof more[0] };
    begin(3, 0, 5);
    key_text("tokenizer.ggml.model", "llama");
    key("tokenizer.ggml.add_space_prefix", BOOL), put_u8(1);
    put_spaced_tokens(more, N_MORE);
    key_array("tokenizer.ggml.scores", F32, 259 + N_MORE);
    for (int i = 0; i < 259 + N_MORE; i++) put_f32(i < 259 ? 0 : (float)-(i % 7));
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
    save_model("tiny-q8_0", (const uint32_t[]){T_Q8_0}, 1);
    save_model("tiny-q4_0", (const uint32_t[]){T_Q4_0}, 1);
    save_model("tiny-mixed", (const uint32_t[]){T_F16, T_F32, T_BF16, T_Q4_0, T_Q8_0}, 5);
    save_tokenizers();
    save_each_type();
    save_tensors();
    save_counts();
    return 0;
}
