/* SPDX-License-Identifier: MIT
 *
 * special.c: see special.h.
 */
#include "tokenizer/special.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"

static bool is_special(uint8_t kind) {
    return kind == PLEAT__TOKEN_CONTROL || kind == PLEAT__TOKEN_USER || kind == PLEAT__TOKEN_UNKNOWN;
}

/* By bytes, the shorter first where one begins with the other. */
static int compare(const void *a, const void *b) {
    const pleat__special *x = a, *y = b;
    const uint64_t n = x->n_bytes < y->n_bytes ? x->n_bytes : y->n_bytes;
    const int order = memcmp(x->p, y->p, n);
    return order ? order : (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes);
}

static pleat_status check_and_index(pleat__specials *specials, pleat_error *err) {
    for (uint32_t i = 0; i < specials->n; i++) {
        const pleat__special *s = &specials->list[i];
        PLEAT_FAIL_IF(s->n_bytes > PLEAT__MAX_SPECIAL_BYTES, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                      "special token %d has %llu bytes, %u are allowed", s->id, (unsigned long long)s->n_bytes,
                      PLEAT__MAX_SPECIAL_BYTES);
    }
    for (uint32_t i = 1; i < specials->n; i++) {
        const pleat__special *x = &specials->list[i - 1], *y = &specials->list[i];
        char shown[64];
        PLEAT_FAIL_IF(compare(x, y) == 0, err, PLEAT_E_FORMAT, PLEAT_NOWHERE, "tokens %d and %d are both '%s'",
                      x->id < y->id ? x->id : y->id, x->id < y->id ? y->id : x->id,
                      pleat__str_show((pleat__str){x->p, x->n_bytes}, shown, sizeof shown));
    }
    for (uint32_t b = 0, i = 0; b <= 256; b++) {
        specials->first[b] = i;
        while (i < specials->n && (uint8_t)specials->list[i].p[0] == b) i++;
    }
    return PLEAT_OK;
}

pleat_status pleat__specials_init(pleat__specials *specials, const pleat__vocab *vocab, const pleat_allocator *al,
                                  pleat_error *err) {
    uint32_t n = 0;
    *specials = (pleat__specials){.al = *al};
    for (uint32_t i = 0; i < vocab->n_tokens; i++) {
        n += is_special(vocab->kinds[i]) && vocab->starts[i] < vocab->starts[i + 1];
    }
    if (n == 0) return PLEAT_OK;
    specials->list = pleat__alloc(al, n, sizeof *specials->list);
    PLEAT_FAIL_IF(!specials->list, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "no memory for %u special tokens", n);
    specials->n = n;
    n = 0;
    for (uint32_t i = 0; i < vocab->n_tokens; i++) {
        const pleat__str s = pleat__vocab_text(vocab, (pleat_token)i);
        if (!is_special(vocab->kinds[i]) || s.n_bytes == 0) continue;
        specials->list[n++] = (pleat__special){
            .p = s.p, .n_bytes = s.n_bytes, .id = (pleat_token)i, .is_user = vocab->kinds[i] == PLEAT__TOKEN_USER};
    }
    qsort(specials->list, n, sizeof *specials->list, compare);
    const pleat_status st = check_and_index(specials, err);
    if (st != PLEAT_OK) pleat__specials_release(specials);
    return st;
}

void pleat__specials_release(pleat__specials *specials) {
    pleat__free(&specials->al, specials->list, specials->n, sizeof *specials->list);
    *specials = (pleat__specials){.al = specials->al};
}

/* The byte at `depth`; -1 behind the end, which sorts first. */
static int byte_at(const pleat__special *s, uint64_t depth) {
    return depth < s->n_bytes ? (int)(uint8_t)s->p[depth] : -1;
}

/* The first of list[low..high) whose byte at `depth` is at least `byte`. */
static uint32_t lower_bound(const pleat__special *list, uint32_t low, uint32_t high, uint64_t depth, int byte) {
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        if (byte_at(&list[mid], depth) < byte)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

const pleat__special *pleat__specials_at(const pleat__specials *specials, const char *text, uint64_t n_bytes,
                                         bool with_control) {
    const pleat__special *list = specials->list, *longest = NULL;
    uint32_t low = specials->first[(uint8_t)text[0]], high = specials->first[(uint8_t)text[0] + 1];
    for (uint64_t depth = 1; low < high; depth++) { /* list[low..high) begin with text[0..depth) */
        if (list[low].n_bytes == depth) {
            if (list[low].is_user || with_control) longest = &list[low];
            low++;
        }
        if (depth == n_bytes) break;
        const int byte = (uint8_t)text[depth];
        low = lower_bound(list, low, high, depth, byte);
        high = lower_bound(list, low, high, depth, byte + 1);
    }
    return longest;
}

pleat__special *pleat__specials_find(const pleat__specials *specials, pleat__str name) {
    const pleat__special key = {.p = name.p, .n_bytes = name.n_bytes};
    if (specials->n == 0) return NULL;
    return bsearch(&key, specials->list, specials->n, sizeof *specials->list, compare);
}
