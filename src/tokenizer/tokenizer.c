/* SPDX-License-Identifier: MIT
 *
 * tokenizer.c: see tokenizer.h.
 *
 * Special tokens are found from left to right, the longest at each place.  User-defined ones are part of the language
 * and always found, control ones only with PLEAT_TOKENIZE_SPECIAL.  What lies between two of them is cut into words by
 * itself: the expression does not look across a special token.
 */
#include "tokenizer/tokenizer.h"

#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/utf8.h"

/* Token counts and offsets into a word fit into 32 bits. */
#define MAX_TEXT_BYTES PLEAT__MAX_WORD_BYTES

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* A merge is "left right" in GPT-2's spelling, which has no spaces.  `buf` holds the longest. */
static pleat_status add_merge(pleat__tokenizer *t, pleat__str merge, uint32_t rank, uint64_t where, char *buf,
                              pleat_error *err) {
    char shown[64];
    pleat__str_show(merge, shown, sizeof shown);
    const char *space = memchr(merge.p, ' ', merge.n_bytes);
    PLEAT_FAIL_IF(!space, err, PLEAT_E_FORMAT, where, "merge %u, '%s', is no pair", rank, shown);
    const uint64_t n_left = (uint64_t)(space - merge.p);
    pleat__str left = {buf, 0}, right = {NULL, 0};
    bool ok = pleat__vocab_unspell((pleat__str){merge.p, n_left}, buf, &left.n_bytes);
    right.p = buf + left.n_bytes;
    ok = ok &&
         pleat__vocab_unspell((pleat__str){space + 1, merge.n_bytes - n_left - 1}, buf + left.n_bytes, &right.n_bytes);
    PLEAT_FAIL_IF(!ok, err, PLEAT_E_FORMAT, where, "merge %u, '%s', is not in GPT-2's spelling of bytes", rank, shown);

    const pleat__str nothing = PLEAT__STR("");
    const pleat_token left_id = pleat__vocab_find(&t->vocab, left, nothing);
    const pleat_token right_id = pleat__vocab_find(&t->vocab, right, nothing);
    const pleat_token joined = pleat__vocab_find(&t->vocab, left, right);
    PLEAT_FAIL_IF(left_id < 0 || right_id < 0 || joined < 0, err, PLEAT_E_FORMAT, where,
                  "merge %u, '%s': a part or the whole is no token", rank, shown);
    PLEAT_FAIL_IF(!pleat__bpe_add(&t->bpe, left_id, right_id, rank, joined), err, PLEAT_E_FORMAT, where,
                  "merge %u, '%s', stands twice", rank, shown);
    return PLEAT_OK;
}

static pleat_status read_merges(pleat__tokenizer *t, const pleat_gguf *gguf, pleat_error *err) {
    const pleat__gguf_value *v = NULL;
    PLEAT_TRY(pleat__gguf_need_strings(gguf, "tokenizer.ggml.merges", &v, err));
    PLEAT_FAIL_IF(v->n_items > PLEAT__MAX_VOCAB, err, PLEAT_E_UNSUPPORTED, v->offset, "%llu merges, %u are allowed",
                  (unsigned long long)v->n_items, PLEAT__MAX_VOCAB);
    const uint32_t n = (uint32_t)v->n_items;
    uint64_t longest = 1, offset = v->offset;
    for (uint32_t i = 0; i < n; i++) {
        const pleat__str s = pleat__gguf_next_string(gguf, &offset);
        if (s.n_bytes > longest) longest = s.n_bytes;
    }
    char *buf = pleat__alloc(&t->al, longest, 1);
    pleat_status st = buf ? pleat__bpe_init(&t->bpe, n, &t->al) : PLEAT_E_MEMORY;
    if (st != PLEAT_OK) pleat__error_set(err, st, PLEAT_NOWHERE, "no memory for %u merges", n);
    offset = v->offset;
    for (uint32_t i = 0; i < n && st == PLEAT_OK; i++) {
        const uint64_t where = offset;
        st = add_merge(t, pleat__gguf_next_string(gguf, &offset), i, where, buf, err);
    }
    pleat__free(&t->al, buf, longest, 1);
    return st;
}

/* An optional token id; -1 if the file names none. */
static pleat_status read_id(const pleat__tokenizer *t, const pleat_gguf *gguf, const char *key, pleat_token *out,
                            pleat_error *err) {
    const pleat__gguf_value *v = pleat__gguf_find(gguf, key);
    int64_t id = -1;
    if (v) {
        const bool ok = !v->is_array && pleat__gguf_i64(gguf, v, 0, &id) && id >= 0 && id < t->vocab.n_tokens;
        PLEAT_FAIL_IF(!ok, err, PLEAT_E_FORMAT, v->offset, "metadata key '%s' is no token id below %u", key,
                      t->vocab.n_tokens);
    }
    *out = (pleat_token)id;
    return PLEAT_OK;
}

static pleat_status read_special_ids(pleat__tokenizer *t, const pleat_gguf *gguf, pleat_error *err) {
    static const char key[] = "tokenizer.ggml.add_bos_token";
    PLEAT_TRY(read_id(t, gguf, "tokenizer.ggml.bos_token_id", &t->bos, err));
    PLEAT_TRY(read_id(t, gguf, "tokenizer.ggml.eos_token_id", &t->eos, err));
    const pleat__gguf_value *v = pleat__gguf_find(gguf, key);
    PLEAT_FAIL_IF(v && (v->is_array || !pleat__gguf_bool(gguf, v, 0, &t->add_bos)), err, PLEAT_E_FORMAT, v->offset,
                  "metadata key '%s' is no boolean", key);
    if (t->bos < 0) t->add_bos = false;
    return PLEAT_OK;
}

static pleat_status load(pleat__tokenizer *t, const pleat_gguf *gguf, pleat_error *err) {
    pleat__str name = {0};
    pleat__pretokenizer_traits traits = {0};
    char shown[64];
    PLEAT_TRY(pleat__gguf_need_string(gguf, "tokenizer.ggml.model", &name, err));
    PLEAT_FAIL_IF(!pleat__str_eq(name, PLEAT__STR("gpt2")), err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "tokenizer '%s' (tokenizer.ggml.model) is not supported; the one that is: gpt2",
                  pleat__str_show(name, shown, sizeof shown));
    PLEAT_TRY(pleat__gguf_need_string(gguf, "tokenizer.ggml.pre", &name, err));
    PLEAT_TRY(pleat__pretokenizer_create(name, &t->al, &t->pre, &traits, err));
    PLEAT_TRY(pleat__vocab_init(&t->vocab, gguf, &t->al, err));
    PLEAT_TRY(read_merges(t, gguf, err));
    t->ignore_merges = traits.ignore_merges;
    t->add_bos = traits.add_bos;
    return read_special_ids(t, gguf, err);
}

pleat_status pleat__tokenizer_create(const pleat_gguf *gguf, const pleat_allocator *al, pleat__tokenizer **out,
                                     pleat_error *err) {
    pleat__tokenizer *t = pleat__alloc_zero(al, 1, sizeof *t);
    PLEAT_FAIL_IF(!t, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "no memory for the tokenizer");
    t->al = *al;
    const pleat_status st = load(t, gguf, err);
    if (st != PLEAT_OK) {
        pleat__tokenizer_destroy(t);
        return st;
    }
    *out = t;
    return PLEAT_OK;
}

void pleat__tokenizer_destroy(pleat__tokenizer *tokenizer) {
    if (!tokenizer) return;
    const pleat_allocator al = tokenizer->al;
    pleat__pretokenizer_destroy(tokenizer->pre);
    pleat__bpe_release(&tokenizer->bpe);
    pleat__vocab_release(&tokenizer->vocab);
    pleat__free(&al, tokenizer, 1, sizeof *tokenizer);
}

/* ---- text to tokens ---------------------------------------------------------------------------------------------- */

/* One call of pleat__tokenizer_run(). */
typedef struct run {
    const pleat__tokenizer *t;
    const char *text;
    pleat_token *ids; /* [cap] */
    uint32_t cap;
    uint32_t n; /* tokens so far, those beyond cap included */
    pleat__bpe_scratch scratch;
    pleat__words words;
    pleat_error *err;
} run;

static void emit(run *r, pleat_token id) {
    if (r->n < r->cap) r->ids[r->n] = id;
    r->n++;
}

static pleat_status emit_word(run *r, pleat__str word) {
    const pleat__tokenizer *t = r->t;
    if (t->ignore_merges) {
        const pleat_token whole = pleat__vocab_find(&t->vocab, word, PLEAT__STR(""));
        if (whole >= 0) {
            emit(r, whole);
            return PLEAT_OK;
        }
    }
    const uint32_t n_bytes = (uint32_t)word.n_bytes;
    const pleat_status st = pleat__bpe_scratch_reserve(&r->scratch, n_bytes);
    PLEAT_FAIL_IF(st != PLEAT_OK, r->err, st, PLEAT_NOWHERE, "no memory for a word of %u bytes", n_bytes);
    for (uint32_t i = 0; i < n_bytes; i++) r->scratch.ids[i] = t->vocab.bytes[(uint8_t)word.p[i]];
    const uint32_t n = pleat__bpe_merge(&t->bpe, &r->scratch, n_bytes);
    for (uint32_t i = 0; i < n; i++) emit(r, r->scratch.ids[i]);
    return PLEAT_OK;
}

/* The words of text[start..end), which holds no special token. */
static pleat_status emit_plain(run *r, uint64_t start, uint64_t end) {
    while (start < end) {
        uint64_t next = end;
        PLEAT_TRY(pleat__words_next(&r->words, r->text, end, start, &next, r->err));
        PLEAT_TRY(emit_word(r, (pleat__str){r->text + start, next - start}));
        start = next;
    }
    return PLEAT_OK;
}

static pleat_status emit_text(run *r, uint64_t n_bytes, bool with_control) {
    uint64_t plain = 0; /* text[plain..at) is not yet emitted */
    for (uint64_t at = 0; at < n_bytes;) {
        const pleat__special *s = pleat__vocab_special_at(&r->t->vocab, r->text + at, n_bytes - at, with_control);
        if (!s) {
            at++;
            continue;
        }
        PLEAT_TRY(emit_plain(r, plain, at));
        emit(r, s->id);
        at += s->n_bytes;
        plain = at;
    }
    return emit_plain(r, plain, n_bytes);
}

pleat_status pleat__tokenizer_run(const pleat__tokenizer *t, const char *text, uint64_t n_bytes, uint32_t flags,
                                  pleat_token *ids, uint32_t cap, uint32_t *n_tokens, pleat_error *err) {
    PLEAT_FAIL_IF(n_bytes > MAX_TEXT_BYTES, err, PLEAT_E_LIMIT, PLEAT_NOWHERE, "a text of %llu bytes, %u are allowed",
                  (unsigned long long)n_bytes, MAX_TEXT_BYTES);
    const uint64_t valid = pleat__utf8_prefix(text, n_bytes);
    PLEAT_FAIL_IF(valid < n_bytes, err, PLEAT_E_SYNTAX, valid, "the text is not UTF-8 at byte %llu",
                  (unsigned long long)valid);

    run r = {.t = t, .text = text, .ids = ids, .cap = cap, .scratch = {.al = &t->al}, .err = err};
    pleat_status st = pleat__words_init(&r.words, t->pre, n_bytes);
    PLEAT_FAIL_IF(st != PLEAT_OK, err, st, PLEAT_NOWHERE, "no memory to cut the text into words");
    if ((flags & PLEAT_TOKENIZE_ADD_BOS) && t->add_bos) emit(&r, t->bos);
    st = emit_text(&r, n_bytes, (flags & PLEAT_TOKENIZE_SPECIAL) != 0);
    pleat__bpe_scratch_release(&r.scratch);
    pleat__words_release(&r.words);
    if (st != PLEAT_OK) return st;
    *n_tokens = r.n;
    PLEAT_FAIL_IF(r.n > cap, err, PLEAT_E_LIMIT, PLEAT_NOWHERE, "the text has %u tokens, room is for %u", r.n, cap);
    return PLEAT_OK;
}
