/* SPDX-License-Identifier: MIT
 *
 * pretokenize.c: see pretokenize.h.
 *
 * The expressions come from the models' tokenizer.json.  Every character is matched by one of their alternatives, so
 * words follow each other without gaps and the expression is compiled anchored.  PCRE2's own memory comes from the
 * object's allocator, but for the JIT's machine code, which has to be mapped executable; where that is refused
 * (hardened kernels) or the JIT is missing, PCRE2's interpreter gives the same words, slower.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/pretokenize.h"

#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"

#define WORDS_WITH_DIGITS(digits)                                                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct {
    const char *name;
    const char *pattern;
    pleat__pretokenizer_traits traits;
} kinds[] = {
    {"qwen2", WORDS_WITH_DIGITS("\\p{N}"), {.add_bos = false, .ignore_merges = false}},
    {"llama-bpe", WORDS_WITH_DIGITS("\\p{N}{1,3}"), {.add_bos = true, .ignore_merges = true}},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

struct pleat__pretokenizer {
    pleat_allocator al;
    pcre2_general_context *memory;
    pcre2_code *code;
    uint32_t match_limit; /* 0: by the text's size */
};

/* ---- PCRE2's memory ---------------------------------------------------------------------------------------------- */

/* pcre2 frees without a size: it stands in front of the block. */
#define PREFIX_BYTES 16u

static void *pcre_alloc(size_t n, void *al) {
    if (n > SIZE_MAX / 2) return NULL;
    uint8_t *p = pleat__alloc(al, n + PREFIX_BYTES, 1);
    if (!p) return NULL;
    const uint64_t total = n + PREFIX_BYTES;
    memcpy(p, &total, sizeof total);
    return p + PREFIX_BYTES;
}

static void pcre_free(void *p, void *al) {
    if (!p) return;
    uint64_t total;
    memcpy(&total, (uint8_t *)p - PREFIX_BYTES, sizeof total);
    pleat__free(al, (uint8_t *)p - PREFIX_BYTES, total, 1);
}

/* ---- the expression ---------------------------------------------------------------------------------------------- */

static pleat_status compile(pleat__pretokenizer *pre, const char *pattern, pleat_error *err) {
    int code;
    PCRE2_SIZE where;
    pre->memory = pcre2_general_context_create(pcre_alloc, pcre_free, &pre->al);
    pcre2_compile_context *context = pre->memory ? pcre2_compile_context_create(pre->memory) : NULL;
    PLEAT_FAIL_IF(!context, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "no memory for the pre-tokenizer");
    pre->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &code,
                              &where, context);
    pcre2_compile_context_free(context);
    if (!pre->code) {
        PLEAT_FAIL_IF(code == PCRE2_ERROR_HEAP_FAILED, err, PLEAT_E_MEMORY, PLEAT_NOWHERE,
                      "no memory for the pre-tokenizer");
        return pleat__error_set(err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                                "this PCRE2 does not compile the pre-tokenizer's expression: error %d at %zu", code,
                                (size_t)where);
    }
    (void)pcre2_jit_compile(pre->code, PCRE2_JIT_COMPLETE); /* without it the interpreter serves */
    return PLEAT_OK;
}

static pleat_status find_kind(pleat__str name, size_t *out, pleat_error *err) {
    for (size_t i = 0; i < N_KINDS; i++) {
        *out = i;
        if (pleat__str_eq(name, (pleat__str){kinds[i].name, strlen(kinds[i].name)})) return PLEAT_OK;
    }
    char shown[64], list[64] = "";
    for (size_t i = 0; i < N_KINDS; i++) {
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", kinds[i].name);
    }
    return pleat__error_set(err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                            "pre-tokenizer '%s' (tokenizer.ggml.pre) is not supported; those that are: %s",
                            pleat__str_show(name, shown, sizeof shown), list);
}

pleat_status pleat__pretokenizer_create(pleat__str name, const pleat_allocator *al, pleat__pretokenizer **out,
                                        pleat__pretokenizer_traits *traits, pleat_error *err) {
    size_t kind = 0;
    PLEAT_TRY(find_kind(name, &kind, err));
    pleat__pretokenizer *pre = pleat__alloc_zero(al, 1, sizeof *pre);
    PLEAT_FAIL_IF(!pre, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "no memory for the pre-tokenizer");
    pre->al = *al;
    const pleat_status st = compile(pre, kinds[kind].pattern, err);
    if (st != PLEAT_OK) {
        pleat__pretokenizer_destroy(pre);
        return st;
    }
    *traits = kinds[kind].traits;
    *out = pre;
    return PLEAT_OK;
}

void pleat__pretokenizer_destroy(pleat__pretokenizer *pre) {
    if (!pre) return;
    const pleat_allocator al = pre->al;
    pcre2_code_free(pre->code);
    pcre2_general_context_free(pre->memory);
    pleat__free(&al, pre, 1, sizeof *pre);
}

void pleat__pretokenizer_set_limit(pleat__pretokenizer *pre, uint32_t match_limit) { pre->match_limit = match_limit; }

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* Steps of backtracking for one word: the expressions give up each character of a run at most once in each of their few
 * alternatives, so 16 for each byte is several times what they need. */
static uint32_t limit_for(const pleat__pretokenizer *pre, uint64_t n_bytes) {
    if (pre->match_limit > 0) return pre->match_limit;
    const uint64_t limit = 10000 + 16 * n_bytes;
    return limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX;
}

pleat_status pleat__words_init(pleat__words *words, const pleat__pretokenizer *pre, uint64_t n_bytes) {
    *words = (pleat__words){.pre = pre};
    words->match_data = pcre2_match_data_create(1, pre->memory);
    words->match_context = pcre2_match_context_create(pre->memory);
    if (!words->match_data || !words->match_context) {
        pleat__words_release(words);
        return PLEAT_E_MEMORY;
    }
    pcre2_set_match_limit(words->match_context, limit_for(pre, n_bytes));
    return PLEAT_OK;
}

void pleat__words_release(pleat__words *words) {
    pcre2_match_context_free(words->match_context);
    pcre2_match_data_free(words->match_data);
    *words = (pleat__words){0};
}

pleat_status pleat__words_next(pleat__words *words, const char *text, uint64_t n_bytes, uint64_t at, uint64_t *end,
                               pleat_error *err) {
    const int n = pcre2_match(words->pre->code, (PCRE2_SPTR)text, n_bytes, at, PCRE2_NO_UTF_CHECK, words->match_data,
                              words->match_context);
    if (n <= 0) {
        PLEAT_FAIL_IF(n == PCRE2_ERROR_NOMEMORY, err, PLEAT_E_MEMORY, at, "no memory to cut the text into words");
        PLEAT_FAIL_IF(n == PCRE2_ERROR_MATCHLIMIT || n == PCRE2_ERROR_DEPTHLIMIT || n == PCRE2_ERROR_HEAPLIMIT ||
                          n == PCRE2_ERROR_JIT_STACKLIMIT,
                      err, PLEAT_E_LIMIT, at, "cutting the text into words passed PCRE2's limits (error %d)", n);
        return pleat__error_set(err, PLEAT_E_SYNTAX, at, "the pre-tokenizer does not match the text (PCRE2 error %d)",
                                n);
    }
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(words->match_data);
    PLEAT_FAIL_IF(span[0] != at || span[1] <= at, err, PLEAT_E_SYNTAX, at, "the pre-tokenizer left a gap in the text");
    *end = span[1];
    return PLEAT_OK;
}
