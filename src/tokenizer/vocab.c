/* SPDX-License-Identifier: MIT
 *
 * vocab.c: see vocab.h.
 *
 * GPT-2's spelling (its encoder.py, bytes_to_unicode): bytes that print are their own character, '!'..'~',
 * U+00A1..U+00AC, U+00AE..U+00FF; the other 68, in order, are U+0100..U+0143.
 */
#include "tokenizer/vocab.h"

#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/utf8.h"

/* ---- spelling ---------------------------------------------------------------------------------------------------- */

static bool is_its_own_spelling(uint32_t byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

/* The byte that a character of GPT-2's spelling stands for, or -1. */
static int unspell(uint32_t cp) {
    if (cp < 256) return is_its_own_spelling(cp) ? (int)cp : -1;
    if (cp < 0x100 + 33) return (int)(cp - 0x100);                  /* 0..32 */
    if (cp < 0x100 + 33 + 34) return (int)(cp - 0x100 - 33 + 0x7F); /* 127..160 */
    return cp == 0x100 + 33 + 34 ? 0xAD : -1;
}

bool pleat__vocab_unspell(pleat__spelling spelling, pleat__str s, char *out, uint64_t *n_out) {
    uint64_t n = 0;
    for (uint64_t at = 0; at < s.n_bytes;) {
        uint32_t cp;
        const uint32_t len = pleat__utf8_decode(s.p + at, s.n_bytes - at, &cp);
        if (len == 0) return false;
        if (spelling == PLEAT__SPELLING_GPT2) {
            const int byte = unspell(cp);
            if (byte < 0) return false;
            out[n++] = (char)byte;
        } else if (cp == 0x2581) {
            out[n++] = ' ';
        } else {
            if (cp == ' ') return false;
            memcpy(out + n, s.p + at, len);
            n += len;
        }
        at += len;
    }
    *n_out = n;
    return true;
}

static int hex_digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; }

/* The byte that "<0x0A>" names, or -1. */
static int named_byte(pleat__str s) {
    if (s.n_bytes != 6 || memcmp(s.p, "<0x", 3) != 0 || s.p[5] != '>') return -1;
    const int high = hex_digit(s.p[3]), low = hex_digit(s.p[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* ---- look-up ----------------------------------------------------------------------------------------------------- */

/* FNV-1a, 64 bits, over two pieces, its high half folded in. */
static uint64_t hash(pleat__str a, pleat__str b) {
    uint64_t h = 0xCBF29CE484222325u;
    for (uint64_t i = 0; i < a.n_bytes; i++) h = (h ^ (uint8_t)a.p[i]) * 0x100000001B3u;
    for (uint64_t i = 0; i < b.n_bytes; i++) h = (h ^ (uint8_t)b.p[i]) * 0x100000001B3u;
    return h ^ (h >> 32);
}

pleat__str pleat__vocab_text(const pleat__vocab *vocab, pleat_token id) {
    const uint64_t start = vocab->starts[id];
    return (pleat__str){vocab->text + start, vocab->starts[id + 1] - start};
}

/* The slot that holds the token whose bytes are a b, of hash h, or the free one where it would go; NULL: neither is
 * near enough. */
static uint64_t *find_slot(const pleat__vocab *vocab, pleat__str a, pleat__str b, uint64_t h) {
    for (uint64_t i = h; i < h + PLEAT__MAX_PROBES; i++) {
        uint64_t *slot = &vocab->table[i & vocab->table_mask];
        if (*slot == 0) return slot;
        if (*slot >> 32 != h >> 32) continue;
        const pleat__str t = pleat__vocab_text(vocab, (pleat_token)((uint32_t)*slot - 1));
        if (t.n_bytes == a.n_bytes + b.n_bytes && memcmp(t.p, a.p, a.n_bytes) == 0 &&
            memcmp(t.p + a.n_bytes, b.p, b.n_bytes) == 0)
            return slot;
    }
    return NULL;
}

pleat_token pleat__vocab_find(const pleat__vocab *vocab, pleat__str a, pleat__str b) {
    if (a.n_bytes + b.n_bytes > vocab->longest) return -1;
    const uint64_t *slot = find_slot(vocab, a, b, hash(a, b));
    return slot ? (pleat_token)(uint32_t)*slot - 1 : -1;
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* Kinds of all tokens; without the key all are normal. */
static pleat_status read_kinds(pleat__vocab *vocab, const pleat_gguf *gguf, pleat_error *err) {
    static const char key[] = "tokenizer.ggml.token_type";
    const pleat__gguf_value *v = pleat__gguf_find(gguf, key);
    const int64_t last = vocab->spelling == PLEAT__SPELLING_GPT2 ? PLEAT__TOKEN_UNUSED : PLEAT__TOKEN_BYTE;
    memset(vocab->kinds, PLEAT__TOKEN_NORMAL, vocab->n_tokens);
    if (!v) return PLEAT_OK;
    PLEAT_FAIL_IF(!v->is_array || v->n_items != vocab->n_tokens, err, PLEAT_E_FORMAT, v->offset,
                  "metadata key '%s' is no array of %u numbers", key, vocab->n_tokens);
    for (uint32_t i = 0; i < vocab->n_tokens; i++) {
        int64_t kind;
        PLEAT_FAIL_IF(!pleat__gguf_i64(gguf, v, i, &kind), err, PLEAT_E_FORMAT, v->offset,
                      "metadata key '%s' is no array of integers", key);
        PLEAT_FAIL_IF(kind < PLEAT__TOKEN_NORMAL || kind > last, err, PLEAT_E_UNSUPPORTED, v->offset,
                      "token %u is of kind %lld; 1 (normal) to %lld are allowed with this tokenizer", i,
                      (long long)kind, (long long)last);
        vocab->kinds[i] = (uint8_t)kind;
    }
    return PLEAT_OK;
}

/* Enter the normal token `id` into the table. */
static pleat_status enter(pleat__vocab *vocab, uint32_t id, uint64_t where, pleat_error *err) {
    const pleat__str s = pleat__vocab_text(vocab, (pleat_token)id);
    const uint64_t h = hash(s, PLEAT__STR(""));
    uint64_t *slot = find_slot(vocab, s, PLEAT__STR(""), h);
    char shown[64];
    PLEAT_FAIL_IF(!slot, err, PLEAT_E_FORMAT, where,
                  "token %u has the hash of %u others: no vocabulary has that by chance", id, PLEAT__MAX_PROBES);
    PLEAT_FAIL_IF(*slot != 0, err, PLEAT_E_FORMAT, where, "tokens %u and %u are both '%s'", (uint32_t)*slot - 1, id,
                  pleat__str_show(s, shown, sizeof shown));
    *slot = (h & ~(uint64_t)UINT32_MAX) | (id + 1);
    if (s.n_bytes > vocab->longest) vocab->longest = (uint32_t)s.n_bytes;
    return PLEAT_OK;
}

/* The token `id` as the file has it becomes the text behind those before it. */
static pleat_status read_text(pleat__vocab *vocab, uint32_t id, pleat__str s, uint64_t where, pleat_error *err) {
    char *text = vocab->text + vocab->starts[id];
    uint64_t n = s.n_bytes;
    bool is_text = false;
    if (vocab->kinds[id] == PLEAT__TOKEN_BYTE) {
        char shown[64];
        const int byte = named_byte(s);
        PLEAT_FAIL_IF(byte < 0, err, PLEAT_E_FORMAT, where, "token %u, '%s', is of kind 6 and names no byte", id,
                      pleat__str_show(s, shown, sizeof shown));
        if (vocab->bytes[byte] < 0) vocab->bytes[byte] = (pleat_token)id;
        text[0] = (char)byte;
        n = 1;
    } else {
        PLEAT_FAIL_IF(n > UINT32_MAX / 2, err, PLEAT_E_FORMAT, where, "token %u has %llu bytes", id,
                      (unsigned long long)n);
        is_text = vocab->kinds[id] == PLEAT__TOKEN_NORMAL && pleat__vocab_unspell(vocab->spelling, s, text, &n);
        if (!is_text && n > 0) memcpy(text, s.p, n);
    }
    vocab->starts[id + 1] = vocab->starts[id] + n;
    return is_text && n > 0 ? enter(vocab, id, where, err) : PLEAT_OK;
}

static pleat_status read_texts(pleat__vocab *vocab, const pleat_gguf *gguf, const pleat__gguf_value *tokens,
                               pleat_error *err) {
    uint64_t offset = tokens->offset;
    vocab->starts[0] = 0;
    for (uint32_t i = 0; i < vocab->n_tokens; i++) {
        const uint64_t where = offset;
        PLEAT_TRY(read_text(vocab, i, pleat__gguf_next_string(gguf, &offset), where, err));
    }
    return PLEAT_OK;
}

/* The tokens of single bytes, which GPT-2's spelling has among the normal ones.  Which bytes have to have one: some
 * models never saw all control characters, or no text beyond the planes in use. */
static pleat_status find_bytes(pleat__vocab *vocab, const pleat__gguf_value *tokens, pleat_error *err) {
    const bool is_gpt2 = vocab->spelling == PLEAT__SPELLING_GPT2;
    for (unsigned b = 0; b < 256; b++) {
        const char byte = (char)b;
        if (is_gpt2) vocab->bytes[b] = pleat__vocab_find(vocab, (pleat__str){&byte, 1}, PLEAT__STR(""));
        const bool is_needed = is_gpt2 ? b >= 0x20 && b < 0x7F : b != 0xC0 && b != 0xC1 && b < 0xF5;
        PLEAT_FAIL_IF(vocab->bytes[b] < 0 && is_needed, err, PLEAT_E_FORMAT, tokens->offset,
                      "byte 0x%02X has no token of its own", b);
    }
    PLEAT_FAIL_IF(pleat__vocab_find(vocab, PLEAT__STR(" "), PLEAT__STR("")) < 0, err, PLEAT_E_FORMAT, tokens->offset,
                  "a space has no token of its own");
    return PLEAT_OK;
}

static void carve(pleat__arena *a, pleat__vocab *vocab, uint64_t n_text) {
    vocab->text = pleat__arena_take(a, n_text, 1);
    vocab->starts = pleat__arena_take(a, (uint64_t)vocab->n_tokens + 1, sizeof *vocab->starts);
    vocab->kinds = pleat__arena_take(a, vocab->n_tokens, 1);
    vocab->table = pleat__arena_take(a, vocab->table_mask + 1, sizeof *vocab->table);
}

static pleat_status take_memory(pleat__vocab *vocab, const pleat_gguf *gguf, const pleat__gguf_value *tokens,
                                pleat_error *err) {
    uint64_t n_text = 0, offset = tokens->offset;
    for (uint32_t i = 0; i < vocab->n_tokens; i++) n_text += pleat__gguf_next_string(gguf, &offset).n_bytes;
    vocab->table_mask = 1;
    while (vocab->table_mask < 2 * (uint64_t)vocab->n_tokens) vocab->table_mask *= 2;
    vocab->table_mask--;

    pleat__arena arena = {0};
    carve(&arena, vocab, n_text);
    vocab->block_bytes = arena.used_bytes;
    vocab->block = arena.overflow ? NULL : pleat__alloc_zero(&vocab->al, 1, vocab->block_bytes);
    PLEAT_FAIL_IF(!vocab->block, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "no memory for a vocabulary of %u tokens",
                  vocab->n_tokens);
    arena = (pleat__arena){.base = vocab->block, .cap_bytes = vocab->block_bytes};
    carve(&arena, vocab, n_text);
    return PLEAT_OK;
}

pleat_status pleat__vocab_init(pleat__vocab *vocab, const pleat_gguf *gguf, pleat__spelling spelling,
                               const pleat_allocator *al, pleat_error *err) {
    const pleat__gguf_value *tokens = NULL;
    *vocab = (pleat__vocab){.al = *al, .spelling = spelling};
    memset(vocab->bytes, 0xFF, sizeof vocab->bytes);
    PLEAT_TRY(pleat__gguf_need_strings(gguf, "tokenizer.ggml.tokens", &tokens, err));
    PLEAT_FAIL_IF(tokens->n_items < 1 || tokens->n_items > PLEAT__MAX_VOCAB, err, PLEAT_E_UNSUPPORTED, tokens->offset,
                  "%llu tokens, 1 to %u are allowed", (unsigned long long)tokens->n_items, PLEAT__MAX_VOCAB);
    vocab->n_tokens = (uint32_t)tokens->n_items;
    pleat_status st = take_memory(vocab, gguf, tokens, err);
    if (st == PLEAT_OK) st = read_kinds(vocab, gguf, err);
    if (st == PLEAT_OK) st = read_texts(vocab, gguf, tokens, err);
    if (st == PLEAT_OK) st = find_bytes(vocab, tokens, err);
    if (st != PLEAT_OK) pleat__vocab_release(vocab);
    return st;
}

void pleat__vocab_release(pleat__vocab *vocab) {
    pleat__free(&vocab->al, vocab->block, 1, vocab->block_bytes);
    vocab->block = NULL;
}
