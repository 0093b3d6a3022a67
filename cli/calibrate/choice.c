/* SPDX-License-Identifier: MIT
 *
 * choice.c: the best point, its control, and which of them is chosen.  See calibration.h.
 */
#include <math.h>
#include <string.h>

#include "calibration.h"
#include "cli/lib/common.h"

enum { MAX_CONTROLS = 4 };                 /* measured for one best point: bytes grow by whole pages, not smoothly */
static const double EQUAL_BYTES = 0.01;    /* of the bytes: as near as a page of window allows, as a rule */
static const double LOWER_BY = 0.001;      /* of the perplexity: what counts as lower */
static const double ACCURACY_SLACK = 1e-9; /* for sums of floats */

/* ---- the best point -------------------------------------------------------------------------- */

/* Half of what one answer changes in the mean accuracy over tasks, in the task with most answers. */
static double half_an_answer(const calibration *c) {
    const task_set *set = &c->sets[PART_CHOOSES];
    uint32_t n_asked[TASKS_CAP] = {0}, most = 1;
    for (uint32_t i = 0; i < set->n_samples; i++) {
        uint32_t *n = &n_asked[set->samples[i].task];
        for (uint32_t j = 0; j < set->samples[i].n_turns; j++) *n += turn_n_asked(&set->samples[i].turns[j]);
        if (*n > most) most = *n;
    }
    return 0.5 / ((double)set->n_tasks * most);
}

int choice_is_near_f16(const calibration *c, const profile_point *p) {
    return p->accuracy >= c->p.f16.accuracy - c->p.tolerance - ACCURACY_SLACK;
}

/* Whether a serves the goal better than b. */
static int is_better(const calibration *c, const profile_point *a, const profile_point *b) {
    if (!b) return 1;
    if (c->p.goal == GOAL_BYTES) {
        const int near_a = choice_is_near_f16(c, a), near_b = choice_is_near_f16(c, b);
        if (near_a != near_b) return near_a;
        if (near_a && a->fraction != b->fraction) return a->fraction < b->fraction;
    }
    if (fabs(a->accuracy - b->accuracy) > half_an_answer(c)) return a->accuracy > b->accuracy;
    return a->fraction < b->fraction;
}

const profile_point *choice_best(const calibration *c, int with_al) {
    const profile_point *chosen = NULL;
    for (uint32_t i = 0; i < c->p.curve.n; i++) {
        pleat_spec spec;
        (void)pleat_spec_parse(c->p.curve.at[i].kv, &spec, NULL);
        if ((with_al || spec.al == 0) && is_better(c, &c->p.curve.at[i], chosen)) chosen = &c->p.curve.at[i];
    }
    return chosen;
}

/* ---- its control ----------------------------------------------------------------------------- */

/* About how much the fraction grows with each token of the window: in a sample that is longer, a token is stored high
 * that was low, with a score and a position. */
static double growth(const calibration *c, uint32_t window) {
    const task_set *set = &c->sets[PART_CHOOSES];
    const pleat_format high = c->base.high, low = c->base.low;
    const double bits = (double)(high.k_bits + high.v_bits) - (double)(low.k_bits + low.v_bits);
    const double a_token = bits / 32 + 8.0 / (4.0 * c->e.l.info.head_dim);
    double n_tokens = 0, n_longer = 0;
    for (uint32_t i = 0; i < set->n_samples; i++) {
        n_tokens += set->samples[i].n_tokens;
        n_longer += set->samples[i].n_tokens > window ? 1 : 0;
    }
    return a_token * n_longer / n_tokens;
}

/* The window to try after one that gave a control of `fraction` where `wanted` is due. */
static uint32_t next_window(const calibration *c, uint32_t window, double fraction, double wanted) {
    const double slope = growth(c, window), most = c->e.l.info.n_ctx;
    if (!(slope > 0)) return window;
    const double next = window + (wanted - fraction) / slope;
    return next < 1 ? 1 : next < most ? (uint32_t)lround(next) : (uint32_t)most;
}

/* Measure controls until one has the best point's bytes, or a few are there; the nearest becomes the control. */
static int find_control(calibration *c, const profile_point *best, const profile_point **control) {
    uint32_t window = c->base.window;
    *control = NULL;
    for (int i = 0; i < MAX_CONTROLS; i++) {
        const profile_point *point;
        char kv[PLEAT_SPEC_TEXT_CAP];
        points_text(c, PROFILE_OFF_AH, 0, window, kv);
        const int code = points_add(c, PART_CHOOSES, &c->p.controls, kv, &point);
        if (code != CLI_OK) return code;
        const double off = fabs(point->fraction - best->fraction);
        if (!*control || off < fabs((*control)->fraction - best->fraction)) *control = point;
        if (off <= EQUAL_BYTES * best->fraction) break;
        const uint32_t next = next_window(c, window, point->fraction, best->fraction);
        if (next == window) break;
        window = next;
    }
    return CLI_OK;
}

/* ---- which of them --------------------------------------------------------------------------- */

int choice_beats(const calibration *c, const profile_point *best, const profile_point *control, const char **why) {
    const double gain = best->accuracy - control->accuracy, half = half_an_answer(c);
    const int is_near = choice_is_near_f16(c, best), is_control_near = choice_is_near_f16(c, control);
    *why = "";
    if (is_near != is_control_near)
        *why = is_near ? "it alone is within the tolerance" : "";
    else if (gain > half)
        *why = "it answers more";
    else if (gain >= -half && best->perplexity < control->perplexity * (1 - LOWER_BY))
        *why = "it answers as many, and predicts the text better";
    return **why != 0;
}

int choice_make(calibration *c) {
    const profile_point *best = choice_best(c, 1), *control = NULL;
    const char *why;
    pleat_spec spec;
    (void)pleat_spec_parse(best->kv, &spec, NULL);
    const int code = spec.ah > 0 ? find_control(c, best, &control) : CLI_OK;
    if (code != CLI_OK) return code;
    const profile_point *chosen = control && !choice_beats(c, best, control, &why) ? control : best;
    memcpy(c->p.best, best->kv, sizeof c->p.best);
    memset(c->p.control, 0, sizeof c->p.control);
    if (control) memcpy(c->p.control, control->kv, sizeof c->p.control);
    memcpy(c->p.kv, chosen->kv, sizeof c->p.kv);
    return CLI_OK;
}
