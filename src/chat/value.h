/* SPDX-License-Identifier: MIT
 *
 * value.h: what a template computes with: Python's values, as far as templates can see them.
 *
 * A value is 16 bytes and is copied freely.  What it points to belongs to the vm and does not change once it has been
 * made, for the sandbox that templates are written for forbids that.  Two things do change: a namespace's dict and
 * the place that an iterator has come to.
 *
 *     undefined  none  bool  int  float  string        in the value itself; a string points to its bytes, UTF-8
 *     list  tuple  iterator  view                      pleat__list
 *     dict  namespace                                  pleat__dict, in the order of insertion
 *     range  method  macro  loop  function             see below
 *
 * Integers have 64 bits, where Python's have no end: what would not fit is an error.  Strings are counted in code
 * points, as Python counts them.
 */
#ifndef PLEAT_CHAT_VALUE_H
#define PLEAT_CHAT_VALUE_H

#include <string.h>

#include "chat/vm.h"

typedef enum pleat__kind {
    PLEAT__V_UNDEFINED, /* s[n]: the name or the whole reason, see pleat__lack */
    PLEAT__V_NONE,
    PLEAT__V_BOOL,
    PLEAT__V_INT,
    PLEAT__V_FLOAT,
    PLEAT__V_STR,
    PLEAT__V_LIST,
    PLEAT__V_TUPLE,
    PLEAT__V_ITER, /* what filters such as map return: can be walked once, and has no length */
    PLEAT__V_VIEW, /* a dict's keys(), values() or items() */
    PLEAT__V_DICT,
    PLEAT__V_NAMESPACE,
    PLEAT__V_RANGE,
    PLEAT__V_METHOD,
    PLEAT__V_MACRO,
    PLEAT__V_LOOP,
    PLEAT__V_FUNCTION,
    PLEAT__N_KINDS
} pleat__kind;

/* Why a value is undefined: what its user is told who does more with it than test it. */
typedef enum pleat__lack {
    PLEAT__LACK_NAME,  /* no variable s */
    PLEAT__LACK_ITEM,  /* no attribute or item s */
    PLEAT__LACK_SAID,  /* s says it */
    PLEAT__LACK_UNSAFE /* s may not be called in templates */
} pleat__lack;

typedef enum pleat__view { PLEAT__VIEW_KEYS, PLEAT__VIEW_VALUES, PLEAT__VIEW_ITEMS } pleat__view;

typedef enum pleat__function {
    PLEAT__F_RANGE,
    PLEAT__F_DICT,
    PLEAT__F_NAMESPACE,
    PLEAT__F_RAISE,
    PLEAT__F_STRFTIME,
    PLEAT__F_LOOP_CYCLE,
    PLEAT__F_LOOP_CHANGED,
    PLEAT__N_FUNCTIONS
} pleat__function;

typedef struct pleat__value pleat__value;
typedef struct pleat__list pleat__list;
typedef struct pleat__dict pleat__dict;
typedef struct pleat__range pleat__range;
typedef struct pleat__method pleat__method;
typedef struct pleat__macro pleat__macro; /* eval.h */
typedef struct pleat__loop pleat__loop;   /* eval.h */

struct pleat__value {
    uint8_t kind; /* pleat__kind */
    uint8_t
        sub; /* of an undefined: pleat__lack; of a view: pleat__view; of a function: which; of an iterator: 1 if walking it fails; of a string: 1 if it
                     counts as safe HTML (the filters `safe` and `escape`) */
    uint32_t n; /* bytes of s */
    union {
        bool b;
        int64_t i;
        double f;
        const char *s; /* [n], not NUL-terminated */
        pleat__list *list;
        pleat__dict *dict;
        pleat__range *range;
        pleat__method *method;
        pleat__macro *macro;
        pleat__loop *loop;
    };
};

struct pleat__list {
    uint32_t n, cap;
    uint32_t at;         /* of an iterator: the next item */
    pleat__value *items; /* [cap], the first n in use */
};

typedef struct pleat__pair {
    pleat__value key, value;
    uint64_t hash;
} pleat__pair;

struct pleat__dict {
    uint32_t n, cap;
    pleat__pair *pairs; /* [cap] */
    uint32_t *index;    /* [index_cap] place in pairs plus 1, by hash, 0 where free; NULL while there are few */
    uint32_t index_cap; /* a power of two */
};

struct pleat__range {
    int64_t start, stop, step;
    uint32_t n;
};

struct pleat__method {
    pleat__value self;
    pleat__value name; /* a string */
};

/* ---- making them ------------------------------------------------------------------------------------------------ */

#define PLEAT__NONE ((pleat__value){.kind = PLEAT__V_NONE})

static inline pleat__value pleat__value_bool(bool b) { return (pleat__value){.kind = PLEAT__V_BOOL, .b = b}; }
static inline pleat__value pleat__value_int(int64_t i) { return (pleat__value){.kind = PLEAT__V_INT, .i = i}; }
static inline pleat__value pleat__value_float(double f) { return (pleat__value){.kind = PLEAT__V_FLOAT, .f = f}; }

/* Bytes that stay where they are. */
static inline pleat__value pleat__value_str(const char *s, uint64_t n) {
    return (pleat__value){.kind = PLEAT__V_STR, .n = (uint32_t)n, .s = s};
}
static inline pleat__value pleat__value_text(const char *s) { return pleat__value_str(s, strlen(s)); }

static inline pleat__value pleat__undefined(pleat__lack lack, const char *s, uint32_t n) {
    return (pleat__value){.kind = PLEAT__V_UNDEFINED, .sub = (uint8_t)lack, .n = n, .s = s};
}

static inline bool pleat__is(pleat__value v, pleat__kind kind) { return v.kind == kind; }
static inline bool pleat__is_text(pleat__value v, const char *s) {
    return v.kind == PLEAT__V_STR && v.n == strlen(s) && memcmp(v.s, s, v.n) == 0;
}

/* An empty list, tuple, iterator or view with room for `cap`. */
pleat_status pleat__list_new(pleat__vm *vm, pleat__kind kind, uint32_t cap, pleat__value *out);
pleat_status pleat__list_add(pleat__vm *vm, pleat__list *list, pleat__value item);

pleat_status pleat__dict_new(pleat__vm *vm, pleat__value *out);
/* Set or replace.  A key that has no hash, as a list, is an error. */
pleat_status pleat__dict_set(pleat__vm *vm, pleat__dict *dict, pleat__value key, pleat__value value);
/* *out is NULL where the key is not there. */
pleat_status pleat__dict_find(pleat__vm *vm, const pleat__dict *dict, pleat__value key, pleat__value **out);
/* Like pleat__dict_find(), by a name; cannot fail. */
pleat__value *pleat__dict_get(const pleat__dict *dict, const char *name, size_t n);

/* ---- asking them ------------------------------------------------------------------------------------------------ */

/* As Python's messages call it: "str", "dict", ... */
const char *pleat__value_type(pleat__value v);

bool pleat__value_truth(pleat__value v);

/* Whether it can be a dict's key; a tuple only if its items can. */
bool pleat__value_is_hashable(pleat__value v);

/* A bool counts as an integer. */
static inline bool pleat__value_is_int(pleat__value v) { return v.kind == PLEAT__V_INT || v.kind == PLEAT__V_BOOL; }
static inline int64_t pleat__value_to_int(pleat__value v) { return v.kind == PLEAT__V_BOOL ? v.b : v.i; }
static inline bool pleat__value_is_number(pleat__value v) { return pleat__value_is_int(v) || v.kind == PLEAT__V_FLOAT; }
static inline double pleat__value_to_float(pleat__value v) {
    return v.kind == PLEAT__V_FLOAT ? v.f : (double)pleat__value_to_int(v);
}

/* An undefined value was used: say what was missing. */
pleat_status pleat__undefined_fail(pleat__vm *vm, pleat__value v);

/* ==; never fails for want of a common order, only at a limit. */
pleat_status pleat__value_equal(pleat__vm *vm, pleat__value a, pleat__value b, bool *out);

/* *out is negative, 0 or positive; values without a common order are an error. 2: unordered, where one is NaN. */
pleat_status pleat__value_compare(pleat__vm *vm, pleat__value a, pleat__value b, int *out);

/* Whether `for` can walk it, and its items: a list, or for others a new list.  An iterator is at its end afterwards. */
bool pleat__value_is_iterable(pleat__value v);
pleat_status pleat__value_items(pleat__vm *vm, pleat__value v, pleat__list **out);

/* len(); *has is false for what has none. */
pleat_status pleat__value_length(pleat__vm *vm, pleat__value v, uint32_t *out, bool *has);

#endif
