/* SPDX-License-Identifier: MIT
 *
 * print.c: the table and the summary.  See calibration.h.
 */
#include <math.h>
#include <string.h>

#include "calibration.h"
#include "cli/lib/common.h"

/* ---- the table ------------------------------------------------------------------------------- */

static const char *mark_of(const profile *p, const char *kv) {
    if (strcmp(kv, p->kv) == 0) return "chosen";
    if (strcmp(kv, p->best) == 0) return "best, not chosen";
    return strcmp(kv, p->control) == 0 ? "its control" : "";
}

static void put_point(table *t, const profile *p, calibration_part part, const profile_point *point, const char *kv) {
    const profile_point *f16 = part == PART_CHOOSES ? &p->f16 : &p->shown_f16;
    const sample_half half = part == PART_CHOOSES ? p->settings.half : half_other(p->settings.half);
    table_put(t, "%s", kv);
    table_put_number(t, 4, point->accuracy);
    table_put_number(t, 4, point->accuracy - f16->accuracy);
    table_put_number(t, 3, point->perplexity);
    table_put_number(t, 4, point->fraction);
    table_put_number(t, 1, point->seconds);
    table_put(t, "%s", half_names[half]);
    table_put(t, "%s", mark_of(p, kv));
}

static void put_points(table *t, const profile *p, calibration_part part, const profile_points *points) {
    for (uint32_t i = 0; i < points->n; i++) put_point(t, p, part, &points->at[i], points->at[i].kv);
}

static void write_table(calibration *c) {
    static const char *const titles[] = {"kv",       "accuracy", "against f16", "perplexity",
                                         "fraction", "seconds",  "samples",     ""};
    const profile *p = &c->p;
    table t;
    table_init(&t, titles, sizeof titles / sizeof titles[0]);
    put_point(&t, p, PART_CHOOSES, &p->f16, "f16");
    put_points(&t, p, PART_CHOOSES, &p->curve);
    put_points(&t, p, PART_CHOOSES, &p->controls);
    if (p->has_shown_f16) put_point(&t, p, PART_SHOWS, &p->shown_f16, "f16");
    put_points(&t, p, PART_SHOWS, &p->shown);
    table_write(&t, &c->out);
    table_release(&t);
}

/* ---- the summary ----------------------------------------------------------------------------- */

static void say_figures(const char *what, const profile_point *p) {
    fprintf(stderr, "%-10s accuracy %.4f", what, p->accuracy);
    if (isfinite(p->perplexity)) fprintf(stderr, ", perplexity %.3f", p->perplexity);
    fprintf(stderr, ", %.1f %% of f16's bytes\n", 100 * p->fraction);
}

static void say_control(const calibration *c) {
    const profile_point *best = profile_find(&c->p.curve, c->p.best);
    const profile_point *control = profile_find(&c->p.controls, c->p.control);
    const char *why;
    if (!control) {
        fprintf(stderr, "no control: ah=0 keeps every token high, whatever attention it received\n");
        return;
    }
    fprintf(stderr, "control    %s: significance off\n", control->kv);
    if (choice_beats(c, best, control, &why))
        fprintf(stderr, "           %s is better than that: %s\n", best->kv, why);
    else
        fprintf(stderr, "           %s brings nothing that its window does not, so the control was chosen\n", best->kv);
    say_figures("  best", best);
    say_figures("  control", control);
}

static void say_shown(const calibration *c) {
    const profile *p = &c->p;
    if (p->settings.half == HALF_ALL) {
        fprintf(stderr, "shown      on no other samples: with --half all every sample chooses\n");
        return;
    }
    fprintf(stderr, "shown      on the %s samples, by which nothing was chosen\n",
            half_names[half_other(p->settings.half)]);
    say_figures("  f16", &p->shown_f16);
    say_figures("  best", profile_find(&p->shown, p->best));
    if (p->control[0]) say_figures("  control", profile_find(&p->shown, p->control));
}

void print_report(calibration *c) {
    if (c->o->common.format == FORMAT_JSON)
        output_json(&c->out, profile_json(&c->p));
    else
        write_table(c);
    if (c->o->common.quiet) return;
    fflush(c->out.file);
    if (c->p.goal == GOAL_BYTES && !choice_is_near_f16(c, profile_find(&c->p.curve, c->p.best)))
        cli_note("no point is within %g of f16's accuracy: the most accurate was taken", c->p.tolerance);
    fprintf(stderr, "\nchosen     %s\n", c->p.kv);
    say_control(c);
    say_shown(c);
    fprintf(stderr, "profile    %s, for --kv leankv:profile=%s\n", c->path, c->path);
}
