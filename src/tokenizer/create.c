/* SPDX-License-Identifier: MIT
 *
 * create.c: a file's metadata becomes a tokenizer; see tokenizer.h.
 */
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "tokenizer/tokenizer.h"

/* ---- merges ------------------------------------------------------------------------------------------------------ */

static pleat_status merge_error(pleat__str merge, uint32_t rank, uint64_t where, const char *what, pleat_error *err) {
    char shown[64];
    return pleat__error_set(err, PLEAT_E_FORMAT, where, "merge %u, '%s'%s", rank,
                            pleat__str_show(merge, shown, sizeof shown), what);
}

/* A merge is "left right"; no spelling of a token has a space.  `buf` holds the longest. */
static pleat_status add_merge(pleat__tokenizer *t, pleat__str merge, uint32_t rank, uint64_t where, char *buf,
                              pleat_error *err) {
    const pleat__spelling spelling = t->vocab.spelling;
    const char *space = memchr(merge.p, ' ', merge.n_bytes);
    if (!space) return merge_error(merge, rank, where, ", is no pair", err);
    const pleat__str a = {merge.p, (uint64_t)(space - merge.p)};
    const pleat__str b = {space + 1, merge.n_bytes - a.n_bytes - 1};
    pleat__str left = {buf, 0}, right = {NULL, 0};
    bool ok = pleat__vocab_unspell(spelling, a, buf, &left.n_bytes);
    right.p = buf + left.n_bytes;
    ok = ok && pleat__vocab_unspell(spelling, b, buf + left.n_bytes, &right.n_bytes);
    if (!ok) return merge_error(merge, rank, where, ", is not spelled as tokens are", err);

    const pleat__str nothing = PLEAT__STR("");
    const pleat_token left_id = pleat__vocab_find(&t->vocab, left, nothing);
    const pleat_token right_id = pleat__vocab_find(&t->vocab, right, nothing);
    const pleat_token joined = pleat__vocab_find(&t->vocab, left, right);
    if (left_id < 0 || right_id < 0 || joined < 0)
        return merge_error(merge, rank, where, ": a part or the whole is no token", err);
    switch (pleat__bpe_add(&t->bpe, left_id, right_id, (pleat__join){rank, joined})) {
        case PLEAT_OK: return PLEAT_OK;
        case PLEAT_E_FORMAT: return merge_error(merge, rank, where, ", stands twice", err);
        default: return merge_error(merge, rank, where, ", has the hash of too many others", err);
    }
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
    t->join = pleat__bpe_join;
    t->join_self = &t->bpe;
    return st;
}

/* ---- special tokens ---------------------------------------------------------------------------------------------- */

/* An optional token id; *id stays where the file names none. */
static pleat_status read_id(const pleat__tokenizer *t, const pleat_gguf *gguf, const char *key, pleat_token *id,
                            pleat_error *err) {
    const pleat__gguf_value *v = pleat__gguf_find(gguf, key);
    int64_t x = *id;
    if (v) {
        const bool ok = !v->is_array && pleat__gguf_i64(gguf, v, 0, &x) && x >= 0 && x < t->vocab.n_tokens;
        PLEAT_FAIL_IF(!ok, err, PLEAT_E_FORMAT, v->offset, "metadata key '%s' is no token id below %u", key,
                      t->vocab.n_tokens);
    }
    *id = (pleat_token)x;
    return PLEAT_OK;
}

/* An optional boolean; *out stays where the file has none. */
static pleat_status read_bool(const pleat_gguf *gguf, const char *key, bool *out, pleat_error *err) {
    const pleat__gguf_value *v = pleat__gguf_find(gguf, key);
    PLEAT_FAIL_IF(v && (v->is_array || !pleat__gguf_bool(gguf, v, 0, out)), err, PLEAT_E_FORMAT, v->offset,
                  "metadata key '%s' is no boolean", key);
    return PLEAT_OK;
}

static pleat_status read_special_ids(pleat__tokenizer *t, const pleat_gguf *gguf, pleat_error *err) {
    PLEAT_TRY(read_id(t, gguf, "tokenizer.ggml.bos_token_id", &t->bos, err));
    PLEAT_TRY(read_id(t, gguf, "tokenizer.ggml.eos_token_id", &t->eos, err));
    PLEAT_TRY(read_id(t, gguf, "tokenizer.ggml.eot_token_id", &t->eot, err));
    PLEAT_TRY(read_id(t, gguf, "tokenizer.ggml.eom_token_id", &t->eom, err));
    PLEAT_TRY(read_bool(gguf, "tokenizer.ggml.add_bos_token", &t->add_bos, err));
    PLEAT_TRY(read_bool(gguf, "tokenizer.ggml.add_eos_token", &t->add_eos, err));
    if (t->bos < 0) t->add_bos = false;
    if (t->eos < 0) t->add_eos = false;
    return PLEAT_OK;
}

static bool is_phi3(const pleat_gguf *gguf) {
    pleat__str name;
    if (!pleat__gguf_string(gguf, "general.name", &name)) return false;
    for (uint64_t i = 0; i + 4 <= name.n_bytes; i++) {
        const char *p = name.p + i;
        if ((p[0] | 0x20) != 'p' || (p[1] | 0x20) != 'h' || (p[2] | 0x20) != 'i') continue;
        if (p[3] == '3' || (p[3] == '-' && i + 5 <= name.n_bytes && p[4] == '3')) return true;
    }
    return false;
}

/* No GGUF says which tokens swallow whitespace; Phi-3's, but for three of its base model's, do (its tokenizer.json,
 * "rstrip"). */
static void mark_eaters(pleat__tokenizer *t) {
    static const char *const others[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (uint32_t i = 0; i < t->specials.n; i++) t->specials.list[i].eats_space = true;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        pleat__special *s = pleat__specials_find(&t->specials, (pleat__str){others[i], strlen(others[i])});
        if (s) s->eats_space = false;
    }
}

/* ---- kinds ------------------------------------------------------------------------------------------------------- */

static pleat_status load_vocab(pleat__tokenizer *t, const pleat_gguf *gguf, pleat__spelling spelling,
                               pleat_error *err) {
    PLEAT_TRY(pleat__vocab_init(&t->vocab, gguf, spelling, &t->al, err));
    PLEAT_TRY(pleat__specials_init(&t->specials, &t->vocab, &t->al, err));
    t->by_characters = spelling == PLEAT__SPELLING_SPACES;
    if (!t->by_characters) return PLEAT_OK;
    const pleat_status st = pleat__seams_init(&t->seams, &t->vocab, &t->al);
    PLEAT_FAIL_IF(st != PLEAT_OK, err, st, PLEAT_NOWHERE, "no memory for the vocabulary's pairs of characters");
    return PLEAT_OK;
}

/* `gpt2` and `gemma4`, whose pre-tokenizer has its name. */
static pleat_status load_bpe(pleat__tokenizer *t, const pleat_gguf *gguf, bool is_gemma4, pleat_error *err) {
    pleat__str name = PLEAT__STR("gemma4");
    if (!is_gemma4) PLEAT_TRY(pleat__gguf_need_string(gguf, "tokenizer.ggml.pre", &name, err));
    PLEAT_TRY(pleat__pretokenizer_create(name, &t->al, &t->pre, &t->traits, err));
    PLEAT_FAIL_IF(t->traits.no_newline_merge != is_gemma4, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "tokenizer 'gpt2' with the pre-tokenizer 'gemma4' is not supported");
    PLEAT_TRY(load_vocab(t, gguf, is_gemma4 ? PLEAT__SPELLING_SPACES : PLEAT__SPELLING_GPT2, err));
    PLEAT_TRY(read_merges(t, gguf, err));
    t->add_bos = t->traits.add_bos;
    PLEAT_TRY(read_special_ids(t, gguf, err));
    if (is_gemma4) t->add_bos = t->bos >= 0; /* early files say no, and the model needs it */
    return PLEAT_OK;
}

/* `llama`: SentencePiece.  Its ids of <s> and </s> are what files without the keys mean. */
static pleat_status load_scores(pleat__tokenizer *t, const pleat_gguf *gguf, pleat_error *err) {
    PLEAT_TRY(load_vocab(t, gguf, PLEAT__SPELLING_SPACES, err));
    PLEAT_TRY(pleat__scores_init(&t->scores, gguf, &t->vocab, &t->al, err));
    t->join = pleat__scores_join;
    t->join_self = &t->scores;
    if (t->vocab.n_tokens > 2 && t->vocab.kinds[1] == PLEAT__TOKEN_CONTROL) t->bos = 1;
    if (t->vocab.n_tokens > 2 && t->vocab.kinds[2] == PLEAT__TOKEN_CONTROL) t->eos = 2;
    t->add_bos = t->add_space = true;
    PLEAT_TRY(read_bool(gguf, "tokenizer.ggml.add_space_prefix", &t->add_space, err));
    if (is_phi3(gguf)) mark_eaters(t);
    return read_special_ids(t, gguf, err);
}

static pleat_status load(pleat__tokenizer *t, const pleat_gguf *gguf, pleat_error *err) {
    pleat__str name = {0};
    char shown[64];
    PLEAT_TRY(pleat__gguf_need_string(gguf, "tokenizer.ggml.model", &name, err));
    if (pleat__str_eq(name, PLEAT__STR("gpt2"))) return load_bpe(t, gguf, false, err);
    if (pleat__str_eq(name, PLEAT__STR("gemma4"))) return load_bpe(t, gguf, true, err);
    if (pleat__str_eq(name, PLEAT__STR("llama"))) return load_scores(t, gguf, err);
    return pleat__error_set(err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                            "tokenizer '%s' (tokenizer.ggml.model) is not supported; those that are: gpt2, llama, "
                            "gemma4",
                            pleat__str_show(name, shown, sizeof shown));
}

pleat_status pleat__tokenizer_create(const pleat_gguf *gguf, const pleat_allocator *al, pleat__tokenizer **out,
                                     pleat_error *err) {
    pleat__tokenizer *t = pleat__alloc_zero(al, 1, sizeof *t);
    PLEAT_FAIL_IF(!t, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "no memory for the tokenizer");
    t->al = *al;
    t->bos = t->eos = t->eot = t->eom = -1;
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
    pleat__scores_release(&tokenizer->scores);
    pleat__seams_release(&tokenizer->seams);
    pleat__specials_release(&tokenizer->specials);
    pleat__vocab_release(&tokenizer->vocab);
    pleat__free(&al, tokenizer, 1, sizeof *tokenizer);
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

bool pleat__tokenizer_is_end(const pleat__tokenizer *t, pleat_token id) {
    static const char *const names[] = {
        "<|eos|>",
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|endoftext|>",
        "<|EOT|>",
        "<|end_of_text|>",
        "<|return|>",
        "<|call|>",
        "<end_of_turn>",
        "<turn|>",
        "<|END_OF_TURN_TOKEN|>",
        ("<\xEF\xBD\x9C"
         "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"), /* one name: an escape would take the e */
    };
    if (id == t->eos || id == t->eot || id == t->eom) return true;
    const uint8_t kind = t->vocab.kinds[id];
    if (kind != PLEAT__TOKEN_CONTROL && kind != PLEAT__TOKEN_USER) return false;
    const pleat__str text = pleat__vocab_text(&t->vocab, id);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (pleat__str_eq(text, (pleat__str){names[i], strlen(names[i])})) return true;
    }
    /* Phi-3's turns end with it; gpt-oss ends a message with it and then goes on. */
    return pleat__str_eq(text, PLEAT__STR("<|end|>")) && !pleat__specials_find(&t->specials, PLEAT__STR("<|return|>"));
}
