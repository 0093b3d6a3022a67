/* SPDX-License-Identifier: MIT
 *
 * pretokenize.c: see pretokenize.h.
 *
 * PCRE2's own memory comes from the object's allocator, but for the JIT's machine code, which has to be mapped
 * executable; where that is refused (hardened kernels) or the JIT is missing, PCRE2's interpreter gives the same words,
 * slower.
 *
 * Pieces nest: cuts[0].end >= cuts[1].end >= ..., and the last one's end is the word's.  Where a word ends, every cut
 * that ends there too moves on, the outermost first, each within the piece of the one around it.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/pretokenize.h"

#include <pcre2.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "tokenizer/expressions.h"

struct pleat__pretokenizer {
    pleat_allocator al;
    pcre2_general_context *memory;
    pcre2_code *cuts[PLEAT__MAX_CUTS]; /* [n_cuts] */
    uint32_t n_cuts;
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

/* ---- expressions ------------------------------------------------------------------------------------------------- */

static pleat_status compile(const char *pattern, pcre2_compile_context *context, pcre2_code **out, pleat_error *err) {
    int code;
    PCRE2_SIZE where;
    *out = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY,
                         &code, &where, context);
    if (!*out) {
        PLEAT_FAIL_IF(code == PCRE2_ERROR_HEAP_FAILED, err, PLEAT_E_MEMORY, PLEAT_NOWHERE,
                      "no memory for the pre-tokenizer");
        return pleat__error_set(err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                                "this PCRE2 does not compile the pre-tokenizer's expression: error %d at %zu", code,
                                (size_t)where);
    }
    (void)pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE); /* without it the interpreter serves */
    return PLEAT_OK;
}

static pleat_status compile_all(pleat__pretokenizer *pre, const pleat__expressions *row, pleat_error *err) {
    pleat_status st = PLEAT_OK;
    pre->memory = pcre2_general_context_create(pcre_alloc, pcre_free, &pre->al);
    pcre2_compile_context *context = pre->memory ? pcre2_compile_context_create(pre->memory) : NULL;
    PLEAT_FAIL_IF(!context, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "no memory for the pre-tokenizer");
    while (st == PLEAT_OK && pre->n_cuts < PLEAT__MAX_CUTS && row->cuts[pre->n_cuts]) {
        st = compile(row->cuts[pre->n_cuts], context, &pre->cuts[pre->n_cuts], err);
        if (st == PLEAT_OK) pre->n_cuts++;
    }
    pcre2_compile_context_free(context);
    return st;
}

/* Whether `names`, with a space behind each, holds the name. */
static bool holds(const char *names, pleat__str name) {
    for (const char *end; (end = strchr(names, ' ')) != NULL; names = end + 1) {
        if (pleat__str_eq(name, (pleat__str){names, (uint64_t)(end - names)})) return true;
    }
    return false;
}

pleat_status pleat__pretokenizer_create(pleat__str name, const pleat_allocator *al, pleat__pretokenizer **out,
                                        pleat__pretokenizer_traits *traits, pleat_error *err) {
    const pleat__expressions *row = pleat__expressions_table, *end = row + pleat__n_expressions;
    char shown[64];
    while (row < end && !holds(row->names, name)) row++;
    PLEAT_FAIL_IF(row == end, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "pre-tokenizer '%s' (tokenizer.ggml.pre) is not supported; a guess would change tokens silently",
                  pleat__str_show(name, shown, sizeof shown));
    pleat__pretokenizer *pre = pleat__alloc_zero(al, 1, sizeof *pre);
    PLEAT_FAIL_IF(!pre, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "no memory for the pre-tokenizer");
    pre->al = *al;
    const pleat_status st = compile_all(pre, row, err);
    if (st != PLEAT_OK) {
        pleat__pretokenizer_destroy(pre);
        return st;
    }
    *traits = row->traits;
    *out = pre;
    return PLEAT_OK;
}

void pleat__pretokenizer_destroy(pleat__pretokenizer *pre) {
    if (!pre) return;
    const pleat_allocator al = pre->al;
    for (uint32_t i = 0; i < pre->n_cuts; i++) pcre2_code_free(pre->cuts[i]);
    pcre2_general_context_free(pre->memory);
    pleat__free(&al, pre, 1, sizeof *pre);
}

void pleat__pretokenizer_set_limit(pleat__pretokenizer *pre, uint32_t match_limit) { pre->match_limit = match_limit; }

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* Steps of backtracking for one match: the expressions give up each character of a run at most once in each of their few
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

void pleat__words_begin(pleat__words *words, const char *text, uint64_t n_bytes) {
    words->text = text;
    words->n_bytes = n_bytes;
    words->at = 0;
    memset(words->cuts, 0, sizeof words->cuts);
}

static pleat_status match_error(int n, uint64_t at, pleat_error *err) {
    PLEAT_FAIL_IF(n == PCRE2_ERROR_NOMEMORY, err, PLEAT_E_MEMORY, at, "no memory to cut the text into words");
    return pleat__error_set(err, PLEAT_E_LIMIT, at, "cutting the text into words passed PCRE2's limits (error %d)", n);
}

/* The next piece of expression i, which begins at words->at, within [start, end). */
static pleat_status next_piece(pleat__words *words, uint32_t i, uint64_t start, uint64_t end, pleat_error *err) {
    pleat__cut *cut = &words->cuts[i];
    const uint64_t at = words->at, known = cut->match_end;
    *cut = (pleat__cut){.start = at, .end = known};
    if (known > at) return PLEAT_OK;
    const int n = pcre2_match(words->pre->cuts[i], (PCRE2_SPTR)words->text + start, end - start, at - start,
                              PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, words->match_data, words->match_context);
    if (n <= 0 && n != PCRE2_ERROR_NOMATCH) return match_error(n, at, err);
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(words->match_data);
    if (n <= 0) {
        cut->end = end;
    } else if (start + span[0] > at) {
        cut->end = start + span[0];
        cut->match_end = start + span[1];
    } else {
        cut->end = start + span[1];
    }
    return PLEAT_OK;
}

pleat_status pleat__words_next(pleat__words *words, uint64_t *end, pleat_error *err) {
    const uint32_t n = words->pre->n_cuts;
    uint32_t i = 0;
    while (i < n && words->cuts[i].end > words->at) i++;
    for (; i < n; i++) {
        const uint64_t outer_start = i ? words->cuts[i - 1].start : 0;
        const uint64_t outer_end = i ? words->cuts[i - 1].end : words->n_bytes;
        PLEAT_TRY(next_piece(words, i, outer_start, outer_end, err));
    }
    words->at = *end = words->cuts[n - 1].end;
    return PLEAT_OK;
}
