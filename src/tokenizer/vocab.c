/* SPDX-License-Identifier: MIT
 *
 * vocab.c: see vocab.h.
 *
 * GPT-2's spelling (its encoder.py, bytes_to_unicode): bytes that print are their own character, '!'..'~',
 * U+00A1..U+00AC, U+00AE..U+00FF; the other 68, in order, are U+0100..U+0143.
 */
#include "tokenizer/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/utf8.h"

/* ---- GPT-2's spelling -------------------------------------------------------------------------------------------- */

static bool is_its_own_spelling(uint32_t byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

/* The byte that a character stands for, or -1. */
static int unspell(uint32_t cp) {
    if (cp < 256) return is_its_own_spelling(cp) ? (int)cp : -1;
    if (cp < 0x100 + 33) return (int)(cp - 0x100);                  /* 0..32 */
    if (cp < 0x100 + 33 + 34) return (int)(cp - 0x100 - 33 + 0x7F); /* 127..160 */
    return cp == 0x100 + 33 + 34 ? 0xAD : -1;
}

bool pleat__vocab_unspell(pleat__str s, char *out, uint64_t *n_out) {
    uint64_t n = 0;
    for (uint64_t at = 0; at < s.n_bytes;) {
        uint32_t cp;
        const uint32_t len = pleat__utf8_decode(s.p + at, s.n_bytes - at, &cp);
        const int byte = len == 0 ? -1 : unspell(cp);
        if (byte < 0) return false;
        out[n++] = (char)byte;
        at += len;
    }
    *n_out = n;
    return true;
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

/* The slot that holds the token spelled a b, or the free one where it would go. */
static uint64_t find_slot(const pleat__vocab *vocab, pleat__str a, pleat__str b) {
    uint64_t slot = hash(a, b) & vocab->table_mask;
    for (; vocab->table[slot] != 0; slot = (slot + 1) & vocab->table_mask) {
        const pleat__str t = pleat__vocab_text(vocab, (pleat_token)(vocab->table[slot] - 1));
        if (t.n_bytes == a.n_bytes + b.n_bytes && memcmp(t.p, a.p, a.n_bytes) == 0 &&
            memcmp(t.p + a.n_bytes, b.p, b.n_bytes) == 0) {
            break;
        }
    }
    return slot;
}

pleat_token pleat__vocab_find(const pleat__vocab *vocab, pleat__str a, pleat__str b) {
    return (pleat_token)vocab->table[find_slot(vocab, a, b)] - 1;
}

const pleat__special *pleat__vocab_special_at(const pleat__vocab *vocab, const char *text, uint64_t n_bytes,
                                              bool with_control) {
    const uint8_t first = (uint8_t)text[0];
    for (uint32_t i = vocab->special_first[first]; i < vocab->special_first[first + 1]; i++) {
        const pleat__special *s = &vocab->specials[i];
        if (s->is_control && !with_control) continue;
        if (s->n_bytes <= n_bytes && memcmp(s->p, text, s->n_bytes) == 0) return s;
    }
    return NULL;
}

pleat_token pleat__vocab_find_special(const pleat__vocab *vocab, pleat__str name) {
    for (uint32_t i = 0; i < vocab->n_specials; i++) {
        const pleat__special *s = &vocab->specials[i];
        if (pleat__str_eq((pleat__str){s->p, s->n_bytes}, name)) return s->id;
    }
    return -1;
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* Kinds of all tokens; without the key all are normal. */
static pleat_status read_kinds(pleat__vocab *vocab, const pleat_gguf *gguf, pleat_error *err) {
    static const char key[] = "tokenizer.ggml.token_type";
    const pleat__gguf_value *v = pleat__gguf_find(gguf, key);
    memset(vocab->kinds, PLEAT__TOKEN_NORMAL, vocab->n_tokens);
    if (!v) return PLEAT_OK;
    PLEAT_FAIL_IF(!v->is_array || v->n_items != vocab->n_tokens, err, PLEAT_E_FORMAT, v->offset,
                  "metadata key '%s' is no array of %u numbers", key, vocab->n_tokens);
    for (uint32_t i = 0; i < vocab->n_tokens; i++) {
        int64_t kind;
        PLEAT_FAIL_IF(!pleat__gguf_i64(gguf, v, i, &kind), err, PLEAT_E_FORMAT, v->offset,
                      "metadata key '%s' is no array of integers", key);
        PLEAT_FAIL_IF(kind < PLEAT__TOKEN_NORMAL || kind > PLEAT__TOKEN_UNUSED, err, PLEAT_E_UNSUPPORTED, v->offset,
                      "token %u is of kind %lld; 1 (normal) to 5 (unused) are allowed with tokenizer gpt2", i,
                      (long long)kind);
        vocab->kinds[i] = (uint8_t)kind;
        vocab->n_specials += kind == PLEAT__TOKEN_CONTROL || kind == PLEAT__TOKEN_USER;
    }
    return PLEAT_OK;
}

/* Texts of all tokens, and the table of the normal ones. */
static pleat_status read_texts(pleat__vocab *vocab, const pleat_gguf *gguf, const pleat__gguf_value *tokens,
                               pleat_error *err) {
    uint64_t offset = tokens->offset;
    vocab->starts[0] = 0;
    for (uint32_t i = 0; i < vocab->n_tokens; i++) {
        const uint64_t where = offset;
        const pleat__str s = pleat__gguf_next_string(gguf, &offset);
        char *text = vocab->text + vocab->starts[i];
        uint64_t n = s.n_bytes;
        char shown[64];
        PLEAT_FAIL_IF(n == 0, err, PLEAT_E_FORMAT, where, "token %u is empty", i);
        if (vocab->kinds[i] != PLEAT__TOKEN_NORMAL) {
            memcpy(text, s.p, n);
        } else if (!pleat__vocab_unspell(s, text, &n)) {
            return pleat__error_set(err, PLEAT_E_FORMAT, where, "token %u, '%s', is not in GPT-2's spelling of bytes",
                                    i, pleat__str_show(s, shown, sizeof shown));
        }
        vocab->starts[i + 1] = vocab->starts[i] + n;
        if (vocab->kinds[i] != PLEAT__TOKEN_NORMAL) continue;
        const uint64_t slot = find_slot(vocab, (pleat__str){text, n}, PLEAT__STR(""));
        PLEAT_FAIL_IF(vocab->table[slot] != 0, err, PLEAT_E_FORMAT, where, "tokens %u and %u are both '%s'",
                      vocab->table[slot] - 1, i, pleat__str_show(s, shown, sizeof shown));
        vocab->table[slot] = i + 1;
    }
    return PLEAT_OK;
}

static pleat_status find_bytes(pleat__vocab *vocab, const pleat__gguf_value *tokens, pleat_error *err) {
    for (unsigned b = 0; b < 256; b++) {
        const char byte = (char)b;
        vocab->bytes[b] = pleat__vocab_find(vocab, (pleat__str){&byte, 1}, PLEAT__STR(""));
        const bool is_utf8 = b != 0xC0 && b != 0xC1 && b < 0xF5;
        PLEAT_FAIL_IF(vocab->bytes[b] < 0 && is_utf8, err, PLEAT_E_FORMAT, tokens->offset,
                      "byte 0x%02X has no token of its own", b);
    }
    return PLEAT_OK;
}

static int compare_specials(const void *a, const void *b) {
    const pleat__special *x = a, *y = b;
    if (x->p[0] != y->p[0]) return (uint8_t)x->p[0] < (uint8_t)y->p[0] ? -1 : 1;
    if (x->n_bytes != y->n_bytes) return x->n_bytes > y->n_bytes ? -1 : 1;
    return memcmp(x->p, y->p, x->n_bytes);
}

static pleat_status sort_specials(pleat__vocab *vocab, const pleat__gguf_value *tokens, pleat_error *err) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < vocab->n_tokens; i++) {
        if (vocab->kinds[i] != PLEAT__TOKEN_CONTROL && vocab->kinds[i] != PLEAT__TOKEN_USER) continue;
        const pleat__str s = pleat__vocab_text(vocab, (pleat_token)i);
        vocab->specials[n++] =
            (pleat__special){s.p, s.n_bytes, (pleat_token)i, vocab->kinds[i] == PLEAT__TOKEN_CONTROL};
    }
    if (n > 1) qsort(vocab->specials, n, sizeof *vocab->specials, compare_specials);
    for (uint32_t i = 1; i < n; i++) {
        const pleat__special *x = &vocab->specials[i - 1], *y = &vocab->specials[i];
        char shown[64];
        PLEAT_FAIL_IF(compare_specials(x, y) == 0, err, PLEAT_E_FORMAT, tokens->offset,
                      "tokens %d and %d are both '%s'", x->id, y->id,
                      pleat__str_show((pleat__str){x->p, x->n_bytes}, shown, sizeof shown));
    }
    for (uint32_t b = 0, i = 0; b <= 256; b++) {
        vocab->special_first[b] = i;
        while (i < n && (uint8_t)vocab->specials[i].p[0] == b) i++;
    }
    return PLEAT_OK;
}

static void carve(pleat__arena *a, pleat__vocab *vocab, uint64_t n_text) {
    vocab->text = pleat__arena_take(a, n_text, 1);
    vocab->starts = pleat__arena_take(a, (uint64_t)vocab->n_tokens + 1, sizeof *vocab->starts);
    vocab->kinds = pleat__arena_take(a, vocab->n_tokens, 1);
    vocab->table = pleat__arena_take(a, vocab->table_mask + 1, sizeof *vocab->table);
    vocab->specials = pleat__arena_take(a, vocab->n_tokens, sizeof *vocab->specials);
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

pleat_status pleat__vocab_init(pleat__vocab *vocab, const pleat_gguf *gguf, const pleat_allocator *al,
                               pleat_error *err) {
    const pleat__gguf_value *tokens = NULL;
    *vocab = (pleat__vocab){.al = *al};
    PLEAT_TRY(pleat__gguf_need_strings(gguf, "tokenizer.ggml.tokens", &tokens, err));
    PLEAT_FAIL_IF(tokens->n_items < 1 || tokens->n_items > PLEAT__MAX_VOCAB, err, PLEAT_E_UNSUPPORTED, tokens->offset,
                  "%llu tokens, 1 to %u are allowed", (unsigned long long)tokens->n_items, PLEAT__MAX_VOCAB);
    vocab->n_tokens = (uint32_t)tokens->n_items;
    pleat_status st = take_memory(vocab, gguf, tokens, err);
    if (st == PLEAT_OK) st = read_kinds(vocab, gguf, err);
    if (st == PLEAT_OK) st = read_texts(vocab, gguf, tokens, err);
    if (st == PLEAT_OK) st = find_bytes(vocab, tokens, err);
    if (st == PLEAT_OK) st = sort_specials(vocab, tokens, err);
    if (st != PLEAT_OK) pleat__vocab_release(vocab);
    return st;
}

void pleat__vocab_release(pleat__vocab *vocab) {
    pleat__free(&vocab->al, vocab->block, 1, vocab->block_bytes);
    vocab->block = NULL;
}
