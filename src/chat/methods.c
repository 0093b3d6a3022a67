/* SPDX-License-Identifier: MIT
 *
 * methods.c: methods by name.  What they do to strings stands in strings.c.
 */
#include "chat/methods.h"

#include "chat/format.h"
#include "chat/list.h"
#include "core/bytes.h"

typedef pleat_status (*method_fn)(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out);

static pleat_status want_str(pleat__vm *vm, const char *who, pleat__value v) {
    if (v.kind == PLEAT__V_STR) return PLEAT_OK;
    if (v.kind == PLEAT__V_UNDEFINED && v.s) return pleat__undefined_fail(vm, v);
    return pleat__vm_fail(vm, PLEAT_E_ARG, "%s wants a str, not a %s", who, pleat__value_type(v));
}

static pleat_status want_int(pleat__vm *vm, const char *who, pleat__value v, int64_t missing, int64_t *out) {
    *out = missing;
    if (pleat__is_missing(v)) return PLEAT_OK;
    if (v.kind == PLEAT__V_UNDEFINED) return pleat__undefined_fail(vm, v);
    if (!pleat__value_is_int(v)) return pleat__vm_fail(vm, PLEAT_E_ARG, "%s wants a whole number", who);
    *out = pleat__value_to_int(v);
    return PLEAT_OK;
}

/* Whether an optional argument is there and not None. */
static bool is_there(pleat__value v) { return !pleat__is_missing(v) && v.kind != PLEAT__V_NONE; }

/* ---- strings ------------------------------------------------------------------------------------------------------- */

static pleat_status strip(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__side side,
                          pleat__value *out) {
    pleat__value chars[1];
    PLEAT_TRY(pleat__bind(vm, args, "strip()", 0, "chars", chars));
    if (is_there(chars[0])) PLEAT_TRY(want_str(vm, "strip()", chars[0]));
    PLEAT_TRY(pleat__vm_charge(vm, (1 + self.n / 64) * (uint64_t)(is_there(chars[0]) ? chars[0].n : 1)));
    *out = pleat__str_strip(self, is_there(chars[0]) ? &chars[0] : NULL, side);
    return PLEAT_OK;
}

static pleat_status str_strip(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    return strip(vm, self, args, PLEAT__BOTH, out);
}
static pleat_status str_lstrip(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    return strip(vm, self, args, PLEAT__LEFT, out);
}
static pleat_status str_rstrip(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    return strip(vm, self, args, PLEAT__RIGHT, out);
}

/* startswith() or endswith(): one text, or a tuple of which one has to fit. */
static pleat_status affix(pleat__vm *vm, pleat__value self, const pleat__args *args, bool at_end, pleat__value *out) {
    pleat__value v[1];
    PLEAT_TRY(pleat__bind(vm, args, at_end ? "endswith()" : "startswith()", 1, "prefix", v));
    const bool is_tuple = v[0].kind == PLEAT__V_TUPLE;
    const uint32_t n = is_tuple ? v[0].list->n : 1;
    bool fits = false;
    for (uint32_t i = 0; i < n && !fits; i++) {
        const pleat__value part = is_tuple ? v[0].list->items[i] : v[0];
        PLEAT_TRY(want_str(vm, at_end ? "endswith()" : "startswith()", part));
        PLEAT_TRY(pleat__vm_charge(vm, 1 + part.n / 64));
        fits =
            part.n <= self.n && (part.n == 0 || memcmp(self.s + (at_end ? self.n - part.n : 0), part.s, part.n) == 0);
    }
    *out = pleat__value_bool(fits);
    return PLEAT_OK;
}

static pleat_status str_startswith(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    return affix(vm, self, args, false, out);
}
static pleat_status str_endswith(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    return affix(vm, self, args, true, out);
}

static pleat_status remove_affix(pleat__vm *vm, pleat__value self, const pleat__args *args, bool at_end,
                                 pleat__value *out) {
    pleat__value fits, v[1];
    PLEAT_TRY(pleat__bind(vm, args, "removeprefix()", 1, "prefix", v));
    PLEAT_TRY(want_str(vm, "removeprefix()", v[0]));
    PLEAT_TRY(affix(vm, self, args, at_end, &fits));
    *out = self;
    if (fits.b) *out = pleat__value_str(self.s + (at_end ? 0 : v[0].n), self.n - v[0].n);
    out->sub = self.sub;
    return PLEAT_OK;
}

static pleat_status str_removeprefix(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    return remove_affix(vm, self, args, false, out);
}
static pleat_status str_removesuffix(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    return remove_affix(vm, self, args, true, out);
}

static pleat_status str_lower(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    PLEAT_TRY(pleat__bind(vm, args, "lower()", 0, "", NULL));
    return pleat__str_case(vm, self, PLEAT__CASE_LOWER, out);
}
static pleat_status str_upper(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    PLEAT_TRY(pleat__bind(vm, args, "upper()", 0, "", NULL));
    return pleat__str_case(vm, self, PLEAT__CASE_UPPER, out);
}
static pleat_status str_capitalize(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    PLEAT_TRY(pleat__bind(vm, args, "capitalize()", 0, "", NULL));
    return pleat__str_capitalize(vm, self, out);
}

/* A capital at the beginning of each run of letters. */
static pleat_status str_title(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    pleat__builder b = {0};
    bool was_cased = false;
    PLEAT_TRY(pleat__bind(vm, args, "title()", 0, "", NULL));
    for (uint32_t i = 0, len; i < self.n; i += len) {
        uint32_t cased[3];
        const uint32_t cp = pleat__char_at(self.s, self.n, i, &len);
        const uint32_t n = pleat__char_case(cp, was_cased ? PLEAT__CASE_LOWER : PLEAT__CASE_TITLE, cased);
        for (uint32_t k = 0; k < n; k++) PLEAT_TRY(pleat__put_char(vm, &b, cased[k]));
        was_cased = pleat__char_is_cased(cp);
    }
    *out = pleat__built(&b);
    return pleat__vm_charge(vm, self.n / 16);
}

static pleat_status str_replace(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    pleat__value v[3];
    int64_t most;
    PLEAT_TRY(pleat__bind(vm, args, "replace()", 2, "old new count", v));
    PLEAT_TRY(want_str(vm, "replace()", v[0]));
    PLEAT_TRY(want_str(vm, "replace()", v[1]));
    PLEAT_TRY(want_int(vm, "replace()", v[2], -1, &most));
    return pleat__str_replace(vm, self, v[0], v[1], most, out);
}

static pleat_status str_join(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    pleat__value v[1];
    pleat__list *items;
    PLEAT_TRY(pleat__bind(vm, args, "join()", 1, "iterable", v));
    PLEAT_TRY(pleat__value_items(vm, v[0], &items));
    return pleat__str_join(vm, self, items, false, out);
}

static pleat_status add_piece(pleat__vm *vm, pleat__list *list, const char *s, uint64_t n) {
    PLEAT_TRY(pleat__vm_charge(vm, 1));
    return pleat__list_add(vm, list, pleat__value_str(s, n));
}

/* split() without a separator: at blanks, none of which stays. */
static pleat_status split_blanks(pleat__vm *vm, pleat__value s, int64_t most, bool from_right, pleat__list *list) {
    pleat__value rest = pleat__str_strip(s, NULL, PLEAT__BOTH);
    if (from_right && most >= 0)
        return pleat__vm_fail(vm, PLEAT_E_UNSUPPORTED, "rsplit() at blanks with a limit is not supported");
    while (rest.n > 0) {
        uint32_t end = 0, len;
        while (end < rest.n && !pleat__char_is_space(pleat__char_at(rest.s, rest.n, end, &len))) end += len;
        if (most == 0) end = rest.n;
        PLEAT_TRY(add_piece(vm, list, rest.s, end));
        rest = pleat__str_strip(pleat__value_str(rest.s + end, rest.n - end), NULL, PLEAT__LEFT);
        if (most > 0) most--;
    }
    return pleat__vm_charge(vm, s.n / 16);
}

static pleat_status split_left(pleat__vm *vm, pleat__value s, pleat__value sep, int64_t most, pleat__list *list) {
    const char *at = s.s, *end = s.s + s.n, *found;
    while (most != 0 && end > at && (found = memmem(at, (size_t)(end - at), sep.s, sep.n))) {
        PLEAT_TRY(add_piece(vm, list, at, (uint64_t)(found - at)));
        at = found + sep.n;
        if (most > 0) most--;
    }
    return add_piece(vm, list, at, (uint64_t)(end - at));
}

static pleat_status split_right(pleat__vm *vm, pleat__value s, pleat__value sep, int64_t most, pleat__list *list) {
    uint32_t end = s.n, at = s.n;
    while (most != 0 && at > 0) {
        at--;
        PLEAT_TRY(pleat__vm_charge(vm, sep.n / 64));
        if (at + sep.n > end || memcmp(s.s + at, sep.s, sep.n) != 0) continue;
        PLEAT_TRY(add_piece(vm, list, s.s + at + sep.n, end - at - sep.n));
        end = at;
        most -= most > 0;
    }
    PLEAT_TRY(add_piece(vm, list, s.s, end));
    for (uint32_t i = 0, k = list->n - 1; i < k; i++, k--) {
        const pleat__value swap = list->items[i];
        list->items[i] = list->items[k];
        list->items[k] = swap;
    }
    return PLEAT_OK;
}

/* Pieces of safe HTML are safe, too. */
static void mark_pieces(pleat__list *list, pleat__value self) {
    for (uint32_t i = 0; i < list->n; i++) list->items[i].sub = self.sub;
}

static pleat_status split(pleat__vm *vm, pleat__value self, const pleat__args *args, bool from_right,
                          pleat__value *out) {
    pleat__value v[2];
    int64_t most;
    PLEAT_TRY(pleat__bind(vm, args, "split()", 0, "sep maxsplit", v));
    PLEAT_TRY(want_int(vm, "split()", v[1], -1, &most));
    PLEAT_TRY(pleat__vm_charge(vm, self.n / 16));
    PLEAT_TRY(pleat__list_new(vm, PLEAT__V_LIST, 0, out));
    if (!is_there(v[0])) {
        PLEAT_TRY(split_blanks(vm, self, most, from_right, out->list));
    } else {
        PLEAT_TRY(want_str(vm, "split()", v[0]));
        if (v[0].n == 0) return pleat__vm_fail(vm, PLEAT_E_ARG, "split() at an empty text");
        if (from_right && most >= 0)
            PLEAT_TRY(split_right(vm, self, v[0], most, out->list));
        else
            PLEAT_TRY(split_left(vm, self, v[0], from_right ? -1 : most, out->list));
    }
    mark_pieces(out->list, self);
    return PLEAT_OK;
}

static pleat_status str_split(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    return split(vm, self, args, false, out);
}
static pleat_status str_rsplit(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    return split(vm, self, args, true, out);
}

static pleat_status str_splitlines(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    pleat__value v[1];
    PLEAT_TRY(pleat__bind(vm, args, "splitlines()", 0, "keepends", v));
    return pleat__str_lines(vm, self, !pleat__is_missing(v[0]) && pleat__value_truth(v[0]), out);
}

/* (before, separator, behind) */
static pleat_status partition(pleat__vm *vm, pleat__value self, const pleat__args *args, bool from_right,
                              pleat__value *out) {
    pleat__value sep[1], parts;
    PLEAT_TRY(pleat__bind(vm, args, "partition()", 1, "sep", sep));
    PLEAT_TRY(want_str(vm, "partition()", sep[0]));
    if (sep[0].n == 0) return pleat__vm_fail(vm, PLEAT_E_ARG, "partition() at an empty text");
    PLEAT_TRY(pleat__vm_charge(vm, self.n / 16));
    PLEAT_TRY(pleat__list_new(vm, PLEAT__V_LIST, 3, &parts));
    PLEAT_TRY((from_right ? split_right : split_left)(vm, self, sep[0], 1, parts.list));
    const bool found = parts.list->n == 2;
    const pleat__value none = pleat__value_text("");
    const pleat__value three[3] = {found || !from_right ? parts.list->items[0] : none, found ? sep[0] : none,
                                   found        ? parts.list->items[1]
                                   : from_right ? self
                                                : none};
    PLEAT_TRY(pleat__list_new(vm, PLEAT__V_TUPLE, 3, out));
    for (int i = 0; i < 3; i++) PLEAT_TRY(pleat__list_add(vm, out->list, three[i]));
    return PLEAT_OK;
}

static pleat_status str_partition(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    return partition(vm, self, args, false, out);
}
static pleat_status str_rpartition(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    return partition(vm, self, args, true, out);
}

/* Where `sub` begins, in code points, or -1. */
static pleat_status find(pleat__vm *vm, pleat__value self, const pleat__args *args, bool from_right, int64_t *out) {
    pleat__value v[1], piece;
    PLEAT_TRY(pleat__bind(vm, args, "find()", 1, "sub", v));
    PLEAT_TRY(want_str(vm, "find()", v[0]));
    PLEAT_TRY(pleat__vm_charge(vm, self.n / 16));
    *out = -1;
    if (v[0].n == 0) {
        *out = from_right ? pleat__text_length(self.s, self.n) : 0;
        return PLEAT_OK;
    }
    PLEAT_TRY(pleat__list_new(vm, PLEAT__V_LIST, 2, &piece));
    PLEAT_TRY((from_right ? split_right : split_left)(vm, self, v[0], 1, piece.list));
    if (piece.list->n == 2) *out = pleat__text_length(self.s, piece.list->items[0].n);
    return PLEAT_OK;
}

static pleat_status str_find(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    int64_t at;
    PLEAT_TRY(find(vm, self, args, false, &at));
    *out = pleat__value_int(at);
    return PLEAT_OK;
}
static pleat_status str_rfind(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    int64_t at;
    PLEAT_TRY(find(vm, self, args, true, &at));
    *out = pleat__value_int(at);
    return PLEAT_OK;
}
static pleat_status str_index(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    PLEAT_TRY(str_find(vm, self, args, out));
    return out->i < 0 ? pleat__vm_fail(vm, PLEAT_E_ARG, "index(): not found") : PLEAT_OK;
}

static pleat_status str_count(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    pleat__value v[1], pieces;
    PLEAT_TRY(pleat__bind(vm, args, "count()", 1, "sub", v));
    PLEAT_TRY(want_str(vm, "count()", v[0]));
    PLEAT_TRY(pleat__vm_charge(vm, self.n / 16));
    *out = pleat__value_int((int64_t)pleat__text_length(self.s, self.n) + 1);
    if (v[0].n == 0) return PLEAT_OK;
    PLEAT_TRY(pleat__list_new(vm, PLEAT__V_LIST, 0, &pieces));
    PLEAT_TRY(split_left(vm, self, v[0], -1, pieces.list));
    *out = pleat__value_int((int64_t)pieces.list->n - 1);
    return PLEAT_OK;
}

static pleat_status pad(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__side side,
                        pleat__value *out) {
    pleat__value v[2];
    int64_t width;
    uint32_t len = 0, fill = ' ';
    PLEAT_TRY(pleat__bind(vm, args, "center()", 1, "width fillchar", v));
    PLEAT_TRY(want_int(vm, "center()", v[0], 0, &width));
    if (!pleat__is_missing(v[1])) {
        PLEAT_TRY(want_str(vm, "center()", v[1]));
        fill = v[1].n ? pleat__char_at(v[1].s, v[1].n, 0, &len) : 0;
        if (v[1].n == 0 || len != v[1].n) return pleat__vm_fail(vm, PLEAT_E_ARG, "center() fills with one character");
    }
    return pleat__str_center(vm, self, width, fill, side, out);
}

static pleat_status str_center(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    return pad(vm, self, args, PLEAT__BOTH, out);
}
static pleat_status str_ljust(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    return pad(vm, self, args, PLEAT__RIGHT, out);
}
static pleat_status str_rjust(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    return pad(vm, self, args, PLEAT__LEFT, out);
}

static pleat_status str_format(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    return pleat__format_braces(vm, self, args, out);
}

static pleat_status str_islower(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    PLEAT_TRY(pleat__bind(vm, args, "islower()", 0, "", NULL));
    *out = pleat__value_bool(pleat__str_is_case(self, PLEAT__CASE_LOWER));
    return PLEAT_OK;
}
static pleat_status str_isupper(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    PLEAT_TRY(pleat__bind(vm, args, "isupper()", 0, "", NULL));
    *out = pleat__value_bool(pleat__str_is_case(self, PLEAT__CASE_UPPER));
    return PLEAT_OK;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool is_either(char c) { return is_digit(c) || is_letter(c); }

/* All characters are of a kind, and there is one.  Beyond ASCII that would take tables that nothing else needs. */
static pleat_status all_are(pleat__vm *vm, pleat__value self, bool (*is)(char), pleat__value *out) {
    bool holds = self.n > 0;
    for (uint32_t i = 0; i < self.n; i++) {
        if ((uint8_t)self.s[i] >= 0x80)
            return pleat__vm_fail(vm, PLEAT_E_UNSUPPORTED, "isalpha() and its like beyond ASCII are not supported");
        holds = holds && is(self.s[i]);
    }
    *out = pleat__value_bool(holds);
    return pleat__vm_charge(vm, self.n / 64);
}

static pleat_status str_isdigit(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    (void)args;
    return all_are(vm, self, is_digit, out);
}
static pleat_status str_isalpha(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    (void)args;
    return all_are(vm, self, is_letter, out);
}
static pleat_status str_isalnum(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    (void)args;
    return all_are(vm, self, is_either, out);
}
static pleat_status str_isspace(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    (void)args;
    *out = pleat__value_bool(self.n > 0 && pleat__str_strip(self, NULL, PLEAT__BOTH).n == 0);
    return pleat__vm_charge(vm, self.n / 64);
}

/* ---- dicts, lists, tuples ------------------------------------------------------------------------------------------ */

pleat_status pleat__view_new(pleat__vm *vm, const pleat__dict *dict, pleat__view view, pleat__value *out) {
    if (view == PLEAT__VIEW_ITEMS) {
        pleat__list *pairs;
        PLEAT_TRY(pleat__list_of_pairs(vm, dict, &pairs));
        *out = (pleat__value){.kind = PLEAT__V_VIEW, .sub = PLEAT__VIEW_ITEMS, .list = pairs};
        return PLEAT_OK;
    }
    PLEAT_TRY(pleat__list_new(vm, PLEAT__V_VIEW, dict->n, out));
    out->sub = (uint8_t)view;
    for (uint32_t i = 0; i < dict->n; i++) {
        const pleat__pair *pair = &dict->pairs[i];
        PLEAT_TRY(pleat__list_add(vm, out->list, view == PLEAT__VIEW_KEYS ? pair->key : pair->value));
    }
    return pleat__vm_charge(vm, dict->n);
}

static pleat_status dict_items(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    PLEAT_TRY(pleat__bind(vm, args, "items()", 0, "", NULL));
    return pleat__view_new(vm, self.dict, PLEAT__VIEW_ITEMS, out);
}
static pleat_status dict_keys(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    PLEAT_TRY(pleat__bind(vm, args, "keys()", 0, "", NULL));
    return pleat__view_new(vm, self.dict, PLEAT__VIEW_KEYS, out);
}
static pleat_status dict_values(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    PLEAT_TRY(pleat__bind(vm, args, "values()", 0, "", NULL));
    return pleat__view_new(vm, self.dict, PLEAT__VIEW_VALUES, out);
}

static pleat_status dict_get(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    pleat__value v[2], *found;
    if (args->named->n > 0) return pleat__vm_fail(vm, PLEAT_E_ARG, "get() takes no keyword arguments");
    PLEAT_TRY(pleat__bind(vm, args, "get()", 1, "key default", v));
    PLEAT_TRY(pleat__dict_find(vm, self.dict, v[0], &found));
    *out = found ? *found : pleat__is_missing(v[1]) ? PLEAT__NONE : v[1];
    return PLEAT_OK;
}

static pleat_status dict_copy(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    (void)vm;
    (void)args;
    *out = self; /* nothing changes it */
    return PLEAT_OK;
}

static pleat_status list_count(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    pleat__value v[1];
    int64_t n = 0;
    PLEAT_TRY(pleat__bind(vm, args, "count()", 1, "value", v));
    for (uint32_t i = 0; i < self.list->n; i++) {
        bool same;
        PLEAT_TRY(pleat__vm_charge(vm, 1));
        PLEAT_TRY(pleat__value_equal(vm, self.list->items[i], v[0], &same));
        n += same;
    }
    *out = pleat__value_int(n);
    return PLEAT_OK;
}

static pleat_status list_index(pleat__vm *vm, pleat__value self, const pleat__args *args, pleat__value *out) {
    pleat__value v[1];
    PLEAT_TRY(pleat__bind(vm, args, "index()", 1, "value", v));
    for (uint32_t i = 0; i < self.list->n; i++) {
        bool same;
        PLEAT_TRY(pleat__vm_charge(vm, 1));
        PLEAT_TRY(pleat__value_equal(vm, self.list->items[i], v[0], &same));
        *out = pleat__value_int(i);
        if (same) return PLEAT_OK;
    }
    return pleat__vm_fail(vm, PLEAT_E_ARG, "index(): not found");
}

/* ---- by name ------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    pleat__kind kind; /* a list's methods are a tuple's, too */
    method_fn call;
} methods[] = {{"capitalize", PLEAT__V_STR, str_capitalize},
               {"center", PLEAT__V_STR, str_center},
               {"count", PLEAT__V_STR, str_count},
               {"endswith", PLEAT__V_STR, str_endswith},
               {"find", PLEAT__V_STR, str_find},
               {"format", PLEAT__V_STR, str_format},
               {"index", PLEAT__V_STR, str_index},
               {"isalnum", PLEAT__V_STR, str_isalnum},
               {"isalpha", PLEAT__V_STR, str_isalpha},
               {"isdecimal", PLEAT__V_STR, str_isdigit},
               {"isdigit", PLEAT__V_STR, str_isdigit},
               {"islower", PLEAT__V_STR, str_islower},
               {"isnumeric", PLEAT__V_STR, str_isdigit},
               {"isspace", PLEAT__V_STR, str_isspace},
               {"isupper", PLEAT__V_STR, str_isupper},
               {"join", PLEAT__V_STR, str_join},
               {"ljust", PLEAT__V_STR, str_ljust},
               {"lower", PLEAT__V_STR, str_lower},
               {"lstrip", PLEAT__V_STR, str_lstrip},
               {"partition", PLEAT__V_STR, str_partition},
               {"removeprefix", PLEAT__V_STR, str_removeprefix},
               {"replace", PLEAT__V_STR, str_replace},
               {"removesuffix", PLEAT__V_STR, str_removesuffix},
               {"rfind", PLEAT__V_STR, str_rfind},
               {"rjust", PLEAT__V_STR, str_rjust},
               {"rpartition", PLEAT__V_STR, str_rpartition},
               {"rsplit", PLEAT__V_STR, str_rsplit},
               {"rstrip", PLEAT__V_STR, str_rstrip},
               {"split", PLEAT__V_STR, str_split},
               {"startswith", PLEAT__V_STR, str_startswith},
               {"splitlines", PLEAT__V_STR, str_splitlines},
               {"strip", PLEAT__V_STR, str_strip},
               {"title", PLEAT__V_STR, str_title},
               {"upper", PLEAT__V_STR, str_upper},
               {"items", PLEAT__V_DICT, dict_items},
               {"keys", PLEAT__V_DICT, dict_keys},
               {"values", PLEAT__V_DICT, dict_values},
               {"get", PLEAT__V_DICT, dict_get},
               {"copy", PLEAT__V_DICT, dict_copy},
               {"copy", PLEAT__V_LIST, dict_copy},
               {"count", PLEAT__V_LIST, list_count},
               {"index", PLEAT__V_LIST, list_index}};

pleat_status pleat__call_method(pleat__vm *vm, const pleat__method *method, const pleat__args *args,
                                pleat__value *out) {
    const pleat__kind kind = method->self.kind == PLEAT__V_TUPLE ? PLEAT__V_LIST : method->self.kind;
    PLEAT_TRY(pleat__vm_charge(vm, 1));
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (methods[i].kind != kind || !pleat__is_text(method->name, methods[i].name)) continue;
        return methods[i].call(vm, method->self, args, out);
    }
    return pleat__vm_fail(vm, PLEAT_E_UNSUPPORTED, "the method %.*s() of a %s is not supported", (int)method->name.n,
                          method->name.s, pleat__value_type(method->self));
}
