/* SPDX-License-Identifier: MIT
 *
 * spec_rig.h: what is asked of every spec: that it prints and reads back, and that what is wrong is refused.
 */
#ifndef CHECK_SPEC_RIG_H
#define CHECK_SPEC_RIG_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "check.h"
#include "spec/spec.h"

/* ---- random parts of specs ---------------------------------------------------------------------------- */

static const char *const spec_names[] = {"f32",  "f16",  "k8v8", "k8v4", "k8v2", "k4v8", "k4v4",
                                         "k4v2", "k2v8", "k2v4", "k2v2", "h4v4", "h4v3", "h4v2",
                                         "h3v4", "h3v3", "h3v2", "h2v4", "h2v3", "h2v2"};

static pleat_format any_format(void) {
    pleat_spec s;
    (void)pleat_spec_parse(spec_names[check_below(CHECK_COUNT(spec_names))], &s, NULL);
    return s.high;
}

/* A number of any magnitude up to `most`. */
static float any_number(double most) {
    const double x = check_uniform(0, most) * pow(10, -(double)check_below(44));
    return check_below(4) ? (float)x : (float)(x - fmod(x, 0.01));
}

/* ---- valid ones --------------------------------------------------------------------------------------- */

static bool budget_is(const pleat_spec *s, double value, pleat_budget_unit unit) {
    return s->budget.value == value && s->budget.unit == unit;
}

/* A text and its canonical form. */
typedef struct text_pair {
    const char *text, *printed;
} text_pair;

static void check_canonical(const text_pair *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        pleat_spec spec;
        char text[PLEAT_SPEC_TEXT_CAP];
        check_context("%s", cases[i].text);
        if (!CHECK_STATUS(pleat_spec_parse(cases[i].text, &spec, NULL), PLEAT_OK)) continue;
        CHECK_STATUS(pleat_spec_print(&spec, text, sizeof text), PLEAT_OK);
        CHECK_EQ_STR(text, cases[i].printed);
    }
}

/* It prints, and reads back as the same to the last bit. */
static void check_round_trip(const pleat_spec *a) {
    pleat_spec b;
    char text[PLEAT_SPEC_TEXT_CAP], again[PLEAT_SPEC_TEXT_CAP];
    if (!CHECK_STATUS(pleat_spec_print(a, text, sizeof text), PLEAT_OK)) return;
    check_context("%s", text);
    if (!CHECK_STATUS(pleat_spec_parse(text, &b, NULL), PLEAT_OK)) return;
    CHECK(a->ah == b.ah && a->al == b.al && a->keep == b.keep && a->window == b.window && a->policy == b.policy);
    CHECK(a->high.k_bits == b.high.k_bits && a->high.v_bits == b.high.v_bits && a->low.k_bits == b.low.k_bits);
    CHECK(a->low.v_bits == b.low.v_bits && a->threshold == b.threshold && a->step == b.step);
    CHECK(budget_is(&b, a->budget.value, a->budget.unit) && a->sinks == b.sinks && a->reclaim == b.reclaim);
    CHECK(a->crush == b.crush && a->share == b.share && a->anchor == b.anchor && a->unit == b.unit);
    CHECK(a->compressor == b.compressor && a->k == b.k && a->v == b.v && a->kunit == b.kunit && a->block == b.block);
    CHECK(a->buffer == b.buffer && a->bits == b.bits && a->pack == b.pack && a->merge == b.merge);
    CHECK(a->novel == b.novel && a->mean == b.mean);
    CHECK(a->bytes == b.bytes && a->from == b.from);
    CHECK_STATUS(pleat_spec_print(&b, again, sizeof again), PLEAT_OK);
    CHECK_EQ_STR(again, text);
}

/* Any of these do. */
static void check_round_trips(pleat_spec (*any)(void)) {
    for (uint64_t i = check_rounds(10000, 1000); i-- > 0 && check_failures() == 0;) {
        const pleat_spec spec = any();
        check_round_trip(&spec);
    }
}

/* ---- others ------------------------------------------------------------------------------------------- */

typedef struct bad_text {
    const char *text;
    uint64_t where;
    const char *says;
} bad_text;

static void check_refused(const bad_text *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        pleat_error err = {0};
        pleat_spec spec = {.high = {1, 2}};
        check_context("'%s'", cases[i].text);
        CHECK_STATUS(pleat_spec_parse(cases[i].text, &spec, &err), PLEAT_E_SYNTAX);
        CHECK_EQ_U64(err.where, cases[i].where);
        if (!CHECK(strstr(err.text, cases[i].says) != NULL)) check_context("said: %s", err.text);
        CHECK(spec.high.k_bits == 1 && spec.high.v_bits == 2); /* untouched */
    }
}

/* `good` is valid; `bad`, which differs from it as `what` says, is neither printed nor accepted. */
static void check_unprintable(const pleat_spec *good, const pleat_spec *bad, const char *what) {
    char text[PLEAT_SPEC_TEXT_CAP] = "untouched";
    pleat_error err = {0};
    check_context("%s", what);
    CHECK_STATUS(pleat__spec_check(good, &err), PLEAT_OK);
    CHECK_STATUS(pleat_spec_print(bad, text, sizeof text), PLEAT_E_ARG);
    CHECK_EQ_STR(text, "untouched");
    CHECK_STATUS(pleat__spec_check(bad, &err), PLEAT_E_ARG);
    CHECK(err.text[0] && err.where == PLEAT_NOWHERE);
}

/* A valid spec with another value in one field. */
#define REFUSED(valid, field, value)                                        \
    do {                                                                    \
        pleat_spec bad_ = (valid);                                          \
        bad_.field = (value);                                               \
        check_unprintable(&(valid), &bad_, #valid "." #field " = " #value); \
    } while (0)

#endif
