/* SPDX-License-Identifier: MIT
 *
 * points.c: specs are measured, each once.  See calibration.h.
 */
#include <math.h>

#include "calibration.h"
#include "cli/lib/common.h"
#include "cli/lib/progress.h"

void points_text(const calibration *c, float ah, float al, uint32_t window, char out[PLEAT_SPEC_TEXT_CAP]) {
    pleat_spec spec = c->base;
    spec.ah = ah;
    spec.al = al;
    spec.window = window;
    (void)pleat_spec_print(&spec, out, PLEAT_SPEC_TEXT_CAP);
}

static sample_half half_of(const calibration *c, calibration_part part) {
    return part == PART_CHOOSES ? c->p.settings.half : half_other(c->p.settings.half);
}

/* Evaluate the spec that `kv` names. */
static int measure(calibration *c, calibration_part part, const char *kv, profile_point *out) {
    score_row row = {.kv = kv};
    uint64_t bytes, bytes_f16;
    (void)pleat_spec_parse(kv, &row.spec, NULL);
    progress_part(c->n_seen, c->n_parts);
    c->e.set = c->sets[part];
    c->o->half = half_of(c, part);
    int code = score_tasks(c->o, &c->e.l, &c->e.set, &row);
    if (code == CLI_OK && c->o->text) code = score_text(c->o, &c->e.l, c->o->text, &row, 1);
    if (code != CLI_OK) {
        score_release_row(&row);
        return code;
    }
    score_bytes(&c->e, &row, &bytes, &bytes_f16);
    snprintf(out->kv, sizeof out->kv, "%s", kv);
    out->accuracy = score_accuracy(&c->e, &row);
    out->perplexity = score_perplexity(&row);
    out->fraction = score_quotient((double)bytes, (double)bytes_f16);
    out->seconds = row.seconds;
    score_release_row(&row);
    return CLI_OK;
}

static void say(const calibration *c, calibration_part part, const profile_point *p, const char *kv, int is_new) {
    const sample_half half = half_of(c, part);
    if (c->o->common.quiet) return;
    fprintf(stderr, "%-32s accuracy %.4f", kv, p->accuracy);
    if (isfinite(p->perplexity)) fprintf(stderr, ", perplexity %.3f", p->perplexity);
    fprintf(stderr, ", %.1f %% of f16's bytes", 100 * p->fraction);
    if (is_new)
        fprintf(stderr, ", %.1f s", p->seconds);
    else
        fprintf(stderr, " (measured already)");
    fprintf(stderr, half == HALF_ALL ? "\n" : ", %s samples\n", half_names[half]);
}

int points_add(calibration *c, calibration_part part, profile_points *list, const char *kv, const profile_point **out) {
    *out = profile_find(list, kv);
    if (*out) {
        say(c, part, *out, kv, 0);
        return CLI_OK;
    }
    if (list->n == PROFILE_POINTS_CAP) {
        cli_error("profile %s has %d points already, which is all it can have", c->path, PROFILE_POINTS_CAP);
        return CLI_FAILED;
    }
    profile_point *point = &list->at[list->n];
    const int code = measure(c, part, kv, point);
    if (code != CLI_OK) return code;
    list->n++;
    *out = point;
    say(c, part, point, kv, 1);
    return profile_write(&c->p, c->path);
}

int points_add_f16(calibration *c, calibration_part part) {
    int *has = part == PART_CHOOSES ? &c->p.has_f16 : &c->p.has_shown_f16;
    profile_point *f16 = part == PART_CHOOSES ? &c->p.f16 : &c->p.shown_f16;
    const int is_new = !*has, code = is_new ? measure(c, part, "f16", f16) : CLI_OK;
    if (code != CLI_OK) return code;
    *has = 1;
    say(c, part, f16, "f16", is_new);
    return is_new ? profile_write(&c->p, c->path) : CLI_OK;
}
