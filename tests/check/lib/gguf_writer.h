/* SPDX-License-Identifier: MIT
 *
 * gguf_writer.h: makes GGUF files in memory, well-formed ones and, field by field, others.
 *
 * Bytes are appended in file order: gw_header(), then metadata, then tensors, then gw_data().  The buffer grows; what does
 * not fit into memory ends the program.  Not for the library.
 */
#ifndef CHECK_GGUF_WRITER_H
#define CHECK_GGUF_WRITER_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct gguf_writer {
    unsigned char *p;
    size_t n, cap;
    uint64_t n_tensors, n_metadata; /* counted as they are written, and entered into the header by gw_data() */
    uint64_t data_bytes;            /* of the tensors so far, aligned */
} gguf_writer;

enum { GW_U8, GW_I8, GW_U16, GW_I16, GW_U32, GW_I32, GW_F32, GW_BOOL, GW_STRING, GW_ARRAY, GW_U64, GW_I64, GW_F64 };

static inline void gw_bytes(gguf_writer *w, const void *p, size_t n) {
    if (w->n + n > w->cap) {
        w->cap = 2 * (w->n + n) + 64;
        w->p = realloc(w->p, w->cap);
        if (!w->p) abort();
    }
    if (n > 0) memcpy(w->p + w->n, p, n);
    w->n += n;
}

static inline void gw_u32(gguf_writer *w, uint32_t x) { gw_bytes(w, &x, sizeof x); }
static inline void gw_u64(gguf_writer *w, uint64_t x) { gw_bytes(w, &x, sizeof x); }

static inline void gw_str(gguf_writer *w, const char *s) {
    gw_u64(w, strlen(s));
    gw_bytes(w, s, strlen(s));
}

static inline void gw_header(gguf_writer *w, uint32_t version) {
    *w = (gguf_writer){0};
    gw_bytes(w, "GGUF", 4);
    gw_u32(w, version);
    gw_u64(w, 0);
    gw_u64(w, 0);
}

/* A key and its kind; the value follows by gw_bytes() and the like. */
static inline void gw_key(gguf_writer *w, const char *key, uint32_t kind) {
    gw_str(w, key);
    gw_u32(w, kind);
    w->n_metadata++;
}

static inline void gw_kv(gguf_writer *w, const char *key, uint32_t kind, const void *value, size_t n) {
    gw_key(w, key, kind);
    gw_bytes(w, value, n);
}

static inline void gw_kv_u32(gguf_writer *w, const char *key, uint32_t x) { gw_kv(w, key, GW_U32, &x, sizeof x); }
static inline void gw_kv_f32(gguf_writer *w, const char *key, float x) { gw_kv(w, key, GW_F32, &x, sizeof x); }
static inline void gw_kv_bool(gguf_writer *w, const char *key, uint8_t x) { gw_kv(w, key, GW_BOOL, &x, 1); }

static inline void gw_kv_str(gguf_writer *w, const char *key, const char *s) {
    gw_key(w, key, GW_STRING);
    gw_str(w, s);
}

/* The head of an array; its items follow. */
static inline void gw_kv_array(gguf_writer *w, const char *key, uint32_t item_kind, uint64_t n_items) {
    gw_key(w, key, GW_ARRAY);
    gw_u32(w, item_kind);
    gw_u64(w, n_items);
}

/* A tensor of `bytes` bytes of data, placed behind those before it at alignment 32. */
static inline void gw_tensor(gguf_writer *w, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *dims,
                             uint64_t bytes) {
    gw_str(w, name);
    gw_u32(w, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) gw_u64(w, dims[i]);
    gw_u32(w, type);
    gw_u64(w, w->data_bytes);
    w->data_bytes += (bytes + 31) / 32 * 32;
    w->n_tensors++;
}

/* Enter the counts, pad and append the data, zeros.  Ends the file. */
static inline void gw_data(gguf_writer *w) {
    static const unsigned char zeros[256];
    memcpy(w->p + 8, &w->n_tensors, 8);
    memcpy(w->p + 16, &w->n_metadata, 8);
    gw_bytes(w, zeros, (32 - w->n % 32) % 32);
    for (uint64_t left = w->data_bytes; left > 0;) {
        const size_t n = left < sizeof zeros ? (size_t)left : sizeof zeros;
        gw_bytes(w, zeros, n);
        left -= n;
    }
}

static inline void gw_free(gguf_writer *w) {
    free(w->p);
    *w = (gguf_writer){0};
}

/* ---- a tokenizer ------------------------------------------------------------------------------- */

/* GPT-2's spelling of a byte, from its rule: printable bytes are themselves, the others are numbered from U+0100. */
static inline size_t gw_spell_byte(unsigned byte, char *out) {
    unsigned cp = 0x100;
    for (unsigned b = 0; b <= byte; b++) {
        const int prints = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        if (b == byte && prints) cp = byte;
        if (b < byte && !prints) cp++;
    }
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    out[0] = (char)(0xC0 | cp >> 6);
    out[1] = (char)(0x80 | (cp & 0x3F));
    return 2;
}

/* tokenizer.ggml.*: tokens 0..255 are the bytes, then come `more`, [n_more] spelled texts of which the last n_special are
 * control tokens; merges are spelled "left right". */
static inline void gw_tokenizer(gguf_writer *w, const char *pre, const char *const *more, unsigned n_more,
                                unsigned n_special, const char *const *merges, unsigned n_merges) {
    gw_kv_str(w, "tokenizer.ggml.model", "gpt2");
    gw_kv_str(w, "tokenizer.ggml.pre", pre);
    gw_kv_array(w, "tokenizer.ggml.tokens", GW_STRING, 256 + n_more);
    for (unsigned b = 0; b < 256; b++) {
        char text[3];
        text[gw_spell_byte(b, text)] = '\0';
        gw_str(w, text);
    }
    for (unsigned i = 0; i < n_more; i++) gw_str(w, more[i]);
    gw_kv_array(w, "tokenizer.ggml.token_type", GW_I32, 256 + n_more);
    for (unsigned i = 0; i < 256 + n_more; i++) gw_u32(w, i < 256 + n_more - n_special ? 1 : 3);
    gw_kv_array(w, "tokenizer.ggml.merges", GW_STRING, n_merges);
    for (unsigned i = 0; i < n_merges; i++) gw_str(w, merges[i]);
}

#endif
