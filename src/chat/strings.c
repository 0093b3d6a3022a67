/* SPDX-License-Identifier: MIT
 *
 * strings.c: the parts of Python's string methods that filters use, too.  See methods.h.
 */
#include "chat/methods.h"
#include "core/bytes.h"

/* Whether the character cp is one that strip() takes away. */
static bool is_stripped(uint32_t cp, const pleat__value *chars) {
    if (!chars) return pleat__char_is_space(cp);
    for (uint32_t i = 0, len; i < chars->n; i += len) {
        if (pleat__char_at(chars->s, chars->n, i, &len) == cp) return true;
    }
    return false;
}

pleat__value pleat__str_strip(pleat__value s, const pleat__value *chars, pleat__side side) {
    uint32_t from = 0, to = s.n, len;
    while ((side & PLEAT__LEFT) && from < to && is_stripped(pleat__char_at(s.s, to, from, &len), chars)) from += len;
    while ((side & PLEAT__RIGHT) && to > from) {
        uint32_t start = to - 1;
        while (start > from && (s.s[start] & 0xC0) == 0x80) start--;
        if (!is_stripped(pleat__char_at(s.s, to, start, &len), chars)) break;
        to = start;
    }
    pleat__value out = pleat__value_str(s.s + from, to - from);
    out.sub = s.sub;
    return out;
}

/* Safe HTML stays so: what it is given is escaped. */
static pleat_status escaped_for(pleat__vm *vm, pleat__value s, pleat__value part, pleat__value *out) {
    *out = part;
    if (!s.sub || part.sub) return PLEAT_OK;
    pleat__builder b = {0};
    PLEAT_TRY(pleat__put_escaped(vm, &b, part.s, part.n));
    *out = pleat__built(&b);
    return PLEAT_OK;
}

pleat_status pleat__str_replace(pleat__vm *vm, pleat__value s, pleat__value old, pleat__value new, int64_t most,
                                pleat__value *out) {
    pleat__builder b = {0};
    uint32_t at = 0;
    PLEAT_TRY(escaped_for(vm, s, new, &new));
    PLEAT_TRY(pleat__vm_charge(vm, s.n / 16));
    while (most != 0 && at <= s.n) {
        uint32_t to = s.n;
        if (old.n == 0) {
            if (at > 0) PLEAT_TRY(pleat__vm_charge(vm, 1));
            to = at;
        } else {
            const char *found = s.n - at >= old.n ? memmem(s.s + at, s.n - at, old.s, old.n) : NULL;
            if (!found) break;
            to = (uint32_t)(found - s.s);
        }
        PLEAT_TRY(pleat__put(vm, &b, s.s + at, to - at));
        PLEAT_TRY(pleat__put(vm, &b, new.s, new.n));
        at = to + old.n;
        most -= most > 0;
        if (old.n > 0) continue;
        if (at == s.n) break; /* an empty text is found between all characters and at both ends */
        const uint32_t len = pleat__char_bytes(s.s[at]);
        PLEAT_TRY(pleat__put(vm, &b, s.s + at, len));
        at += len;
    }
    if (at < s.n) PLEAT_TRY(pleat__put(vm, &b, s.s + at, s.n - at));
    *out = pleat__built(&b);
    out->sub = s.sub;
    return PLEAT_OK;
}

/* Whether the character at s[at..at + len) ends a word: a cased one stands before it, and none behind it. */
static bool ends_word(pleat__value s, uint32_t at, uint32_t len) {
    uint32_t before = at, n;
    if (at == 0) return false;
    do {
        before--;
    } while (before > 0 && (s.s[before] & 0xC0) == 0x80);
    const bool is_last = at + len == s.n || !pleat__char_is_cased(pleat__char_at(s.s, s.n, at + len, &n));
    return is_last && pleat__char_is_cased(pleat__char_at(s.s, s.n, before, &n));
}

static pleat_status put_case(pleat__vm *vm, pleat__builder *b, pleat__value s, uint32_t from, uint32_t to,
                             pleat__case c) {
    for (uint32_t i = from, len; i < to; i += len) {
        uint32_t cased[3];
        const uint32_t cp = pleat__char_at(s.s, s.n, i, &len), n = pleat__char_case(cp, c, cased);
        if (cp == 0x3A3 && c == PLEAT__CASE_LOWER && ends_word(s, i, len)) cased[0] = 0x3C2; /* a last sigma */
        for (uint32_t k = 0; k < n; k++) PLEAT_TRY(pleat__put_char(vm, b, cased[k]));
    }
    return pleat__vm_charge(vm, (to - from) / 16);
}

pleat_status pleat__str_case(pleat__vm *vm, pleat__value s, pleat__case to, pleat__value *out) {
    pleat__builder b = {0};
    PLEAT_TRY(put_case(vm, &b, s, 0, s.n, to));
    *out = pleat__built(&b);
    out->sub = s.sub;
    return PLEAT_OK;
}

pleat_status pleat__str_capitalize(pleat__vm *vm, pleat__value s, pleat__value *out) {
    pleat__builder b = {0};
    const uint32_t first = s.n ? pleat__char_bytes(s.s[0]) : 0;
    PLEAT_TRY(put_case(vm, &b, s, 0, first, PLEAT__CASE_TITLE));
    PLEAT_TRY(put_case(vm, &b, s, first, s.n, PLEAT__CASE_LOWER));
    *out = pleat__built(&b);
    out->sub = s.sub;
    return PLEAT_OK;
}

pleat_status pleat__str_center(pleat__vm *vm, pleat__value s, int64_t width, uint32_t fill, pleat__side side,
                               pleat__value *out) {
    char utf8[4];
    const uint32_t fill_bytes = pleat__char_put(fill, utf8);
    const int64_t n = pleat__text_length(s.s, s.n), missing = width > n ? width - n : 0;
    int64_t left = side == PLEAT__LEFT ? missing : 0;
    if (side == PLEAT__BOTH) left = missing / 2 + (missing & width & 1); /* as Python rounds it */
    pleat__builder b = {0};
    PLEAT_TRY(pleat__put_repeated(vm, &b, utf8, fill_bytes, (uint64_t)left));
    PLEAT_TRY(pleat__put(vm, &b, s.s, s.n));
    PLEAT_TRY(pleat__put_repeated(vm, &b, utf8, fill_bytes, (uint64_t)(missing - left)));
    *out = pleat__built(&b);
    out->sub = s.sub;
    return PLEAT_OK;
}

pleat_status pleat__str_lines(pleat__vm *vm, pleat__value s, bool keep_ends, pleat__value *out) {
    PLEAT_TRY(pleat__list_new(vm, PLEAT__V_LIST, 0, out));
    PLEAT_TRY(pleat__vm_charge(vm, s.n / 16));
    uint32_t from = 0;
    for (uint32_t i = 0, len; i < s.n; i += len) {
        const uint32_t cp = pleat__char_at(s.s, s.n, i, &len);
        if (!pleat__char_is_line_end(cp)) continue;
        if (cp == '\r' && i + 1 < s.n && s.s[i + 1] == '\n') len = 2;
        pleat__value line = pleat__value_str(s.s + from, (keep_ends ? i + len : i) - from);
        line.sub = s.sub;
        PLEAT_TRY(pleat__list_add(vm, out->list, line));
        from = i + len;
    }
    return from < s.n ? pleat__list_add(vm, out->list, pleat__value_str(s.s + from, s.n - from)) : PLEAT_OK;
}

pleat_status pleat__str_join(pleat__vm *vm, pleat__value between, const pleat__list *items, bool any_kind,
                             pleat__value *out) {
    pleat__builder b = {0};
    for (uint32_t i = 0; i < items->n; i++) {
        PLEAT_TRY(pleat__vm_charge(vm, 1));
        if (i > 0) PLEAT_TRY(pleat__put(vm, &b, between.s, between.n));
        if (!any_kind && items->items[i].kind != PLEAT__V_STR) {
            return pleat__vm_fail(vm, PLEAT_E_ARG, "join() wants strings, and item %u is a %s", i,
                                  pleat__value_type(items->items[i]));
        }
        PLEAT_TRY(pleat__put_str(vm, &b, items->items[i]));
    }
    *out = pleat__built(&b);
    return PLEAT_OK;
}

bool pleat__str_is_case(pleat__value s, pleat__case which) {
    bool has = false;
    for (uint32_t i = 0, len; i < s.n; i += len) {
        uint32_t other[3];
        const uint32_t cp = pleat__char_at(s.s, s.n, i, &len);
        if (!pleat__char_is_cased(cp)) continue;
        if (pleat__char_case(cp, which, other) != 1 || other[0] != cp) return false;
        has = true;
    }
    return has;
}
