/* SPDX-License-Identifier: MIT
 *
 * tokenizer.c: text to tokens; see tokenizer.h.
 *
 * Special tokens are found from left to right, the longest at each place.  User-defined ones are part of the language
 * and always found, control and unknown ones only with PLEAT_TOKENIZE_SPECIAL.  What lies between two of them is cut
 * into words by itself: expressions do not look across a special token.
 */
#include "tokenizer/tokenizer.h"

#include <string.h>

#include "core/bytes.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/utf8.h"

/* Token counts and offsets into a word, with a space in front of it, fit into 32 bits. */
#define MAX_TEXT_BYTES (PLEAT__MAX_WORD_BYTES - 1)

/* One call of pleat__tokenizer_run(). */
typedef struct run {
    const pleat__tokenizer *t;
    const char *text;
    uint64_t n_bytes;
    pleat_token *ids; /* [cap] */
    uint32_t cap;
    uint32_t n; /* tokens so far, those beyond cap included */
    pleat__bpe_scratch scratch;
    pleat__words words;
    char *changed; /* [n_bytes + 1] text with another spelling of spaces; NULL: none was needed yet */
    pleat_error *err;
} run;

static void emit(run *r, pleat_token id) {
    if (r->n < r->cap) r->ids[r->n] = id;
    r->n++;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* The word's symbols go to the scratch: its bytes or its characters.  Returns how many. */
static uint32_t split(run *r, pleat__str word) {
    const pleat__tokenizer *t = r->t;
    uint32_t n = 0;
    for (uint32_t at = 0; at < word.n_bytes; n++) {
        uint32_t cp, len = 1;
        if (t->by_characters) len = pleat__utf8_decode(word.p + at, word.n_bytes - at, &cp);
        r->scratch.ids[n] = t->by_characters
                                ? pleat__vocab_find(&t->vocab, (pleat__str){word.p + at, len}, PLEAT__STR(""))
                                : t->vocab.bytes[(uint8_t)word.p[at]];
        r->scratch.starts[n] = at;
        at += len;
    }
    return n;
}

/* The symbols that are left; the bytes of those that are no token. */
static void emit_symbols(run *r, pleat__str word, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (r->scratch.ids[i] >= 0) {
            emit(r, r->scratch.ids[i]);
            continue;
        }
        const uint64_t end = i + 1 < n ? r->scratch.starts[i + 1] : word.n_bytes;
        for (uint64_t at = r->scratch.starts[i]; at < end; at++) {
            const pleat_token byte = r->t->vocab.bytes[(uint8_t)word.p[at]];
            if (byte >= 0) emit(r, byte);
        }
    }
}

static pleat_status emit_merged(run *r, pleat__str word) {
    const uint32_t n_bytes = (uint32_t)word.n_bytes;
    const pleat_status st = pleat__bpe_scratch_reserve(&r->scratch, n_bytes);
    PLEAT_FAIL_IF(st != PLEAT_OK, r->err, st, PLEAT_NOWHERE, "no memory for a word of %u bytes", n_bytes);
    const uint32_t n = split(r, word);
    emit_symbols(r, word, pleat__bpe_merge(r->t->join, r->t->join_self, &r->scratch, n, word));
    return PLEAT_OK;
}

static bool is_newlines(pleat__str s) {
    uint64_t n = 0;
    while (n < s.n_bytes && s.p[n] == '\n') n++;
    return n == s.n_bytes;
}

static pleat_status emit_word(run *r, pleat__str word) {
    const pleat__tokenizer *t = r->t;
    if (t->traits.ignore_merges || (t->traits.no_newline_merge && is_newlines(word))) {
        const pleat_token whole = pleat__vocab_find(&t->vocab, word, PLEAT__STR(""));
        if (whole >= 0) {
            emit(r, whole);
            return PLEAT_OK;
        }
    }
    if (!t->by_characters) return emit_merged(r, word);
    for (uint64_t at = 0, end; at < word.n_bytes; at = end) {
        end = pleat__seams_next(&t->seams, word.p, word.n_bytes, at);
        PLEAT_TRY(emit_merged(r, (pleat__str){word.p + at, end - at}));
    }
    return PLEAT_OK;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* How SentencePiece reads a text: U+2581 is a space, and there may be one in front. */
static pleat_status respell(run *r, pleat__str *text, bool add_space) {
    static const char mark[] = "\xE2\x96\x81";
    if (!add_space && !memmem(text->p, text->n_bytes, mark, 3)) return PLEAT_OK;
    if (!r->changed) r->changed = pleat__alloc(&r->t->al, r->n_bytes + 1, 1);
    PLEAT_FAIL_IF(!r->changed, r->err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "no memory for a text of %llu bytes",
                  (unsigned long long)r->n_bytes);
    uint64_t n = 0;
    if (add_space) r->changed[n++] = ' ';
    for (uint64_t at = 0; at < text->n_bytes;) {
        const char *next = memmem(text->p + at, text->n_bytes - at, mark, 3);
        const uint64_t end = next ? (uint64_t)(next - text->p) : text->n_bytes;
        memcpy(r->changed + n, text->p + at, end - at);
        n += end - at;
        if (next) r->changed[n++] = ' ';
        at = end + (next ? 3 : 0);
    }
    *text = (pleat__str){r->changed, n};
    return PLEAT_OK;
}

/* text[start..end), which holds no special token, and begins the text or stands behind one. */
static pleat_status emit_plain(run *r, uint64_t start, uint64_t end) {
    pleat__str text = {r->text + start, end - start};
    if (text.n_bytes == 0) return PLEAT_OK;
    if (r->t->by_characters) PLEAT_TRY(respell(r, &text, r->t->add_space));
    if (!r->t->pre) return emit_word(r, text);
    pleat__words_begin(&r->words, text.p, text.n_bytes);
    for (uint64_t at = 0, next; at < text.n_bytes; at = next) {
        PLEAT_TRY(pleat__words_next(&r->words, &next, r->err));
        PLEAT_TRY(emit_word(r, (pleat__str){text.p + at, next - at}));
    }
    return PLEAT_OK;
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static pleat_status emit_text(run *r, bool with_control) {
    uint64_t plain = 0; /* text[plain..at) is not yet emitted */
    for (uint64_t at = 0; at < r->n_bytes && r->t->specials.n > 0;) {
        const pleat__special *s = pleat__specials_at(&r->t->specials, r->text + at, r->n_bytes - at, with_control);
        if (!s) {
            at++;
            continue;
        }
        PLEAT_TRY(emit_plain(r, plain, at));
        emit(r, s->id);
        at += s->n_bytes;
        while (s->eats_space && at < r->n_bytes && is_space(r->text[at])) at++;
        plain = at;
    }
    return emit_plain(r, plain, r->n_bytes);
}

static pleat_status emit_all(run *r, uint32_t flags) {
    const pleat__tokenizer *t = r->t;
    if (t->pre) {
        const pleat_status st = pleat__words_init(&r->words, t->pre, r->n_bytes);
        PLEAT_FAIL_IF(st != PLEAT_OK, r->err, st, PLEAT_NOWHERE, "no memory to cut the text into words");
    }
    if ((flags & PLEAT_TOKENIZE_ADD_BOS) && t->add_bos) emit(r, t->bos);
    PLEAT_TRY(emit_text(r, (flags & PLEAT_TOKENIZE_SPECIAL) != 0));
    if ((flags & PLEAT_TOKENIZE_ADD_EOS) && t->add_eos) emit(r, t->eos);
    return PLEAT_OK;
}

pleat_status pleat__tokenizer_run(const pleat__tokenizer *t, const char *text, uint64_t n_bytes, uint32_t flags,
                                  pleat_token *ids, uint32_t cap, uint32_t *n_tokens, pleat_error *err) {
    PLEAT_FAIL_IF(n_bytes > MAX_TEXT_BYTES, err, PLEAT_E_LIMIT, PLEAT_NOWHERE, "a text of %llu bytes, %u are allowed",
                  (unsigned long long)n_bytes, MAX_TEXT_BYTES);
    const uint64_t valid = pleat__utf8_prefix(text, n_bytes);
    PLEAT_FAIL_IF(valid < n_bytes, err, PLEAT_E_SYNTAX, valid, "the text is not UTF-8");

    run r = {.t = t, .text = text, .n_bytes = n_bytes, .ids = ids, .cap = cap, .scratch = {.al = &t->al}, .err = err};
    const pleat_status st = emit_all(&r, flags);
    pleat__bpe_scratch_release(&r.scratch);
    pleat__words_release(&r.words);
    pleat__free(&t->al, r.changed, n_bytes + 1, 1);
    if (st != PLEAT_OK) return st;
    *n_tokens = r.n;
    PLEAT_FAIL_IF(r.n > cap, err, PLEAT_E_LIMIT, PLEAT_NOWHERE, "the text has %u tokens, room is for %u", r.n, cap);
    return PLEAT_OK;
}
