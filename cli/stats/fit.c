/* SPDX-License-Identifier: MIT
 *
 * fit.c: see fit.h.
 */
#include "fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"
#include "cli/lib/progress.h"
#include "cli/lib/score/score.h"

enum { BATCH = 7, TRIES = 4 };
#define PROBE 1.6f
#define MOST 1.4142135623730951 /* of a layer's scale beside the usual one, and of that beside it */
#define NEAR_ENOUGH 0.05        /* of the divergence that is wanted */

/* One row of what is tried: scales, and what came of them. */
typedef struct trial {
    pleat_stats_scale *scales; /* [n_layers] */
    double kld, fraction;
} trial;

typedef struct fit {
    const fit_options *o;
    const loaded *l;
    const pleat_stats *stats;
    score_options score;
    uint32_t n_layers;
    uint32_t n_known; /* of these, with statistics */
    uint32_t n_calls, n_made;
} fit;

static int is_known(const fit *f, uint32_t layer) { return pleat_stats_get_scale(f->stats, layer).k > 0; }

static trial new_trial(const fit *f) {
    trial t = {.scales = cli_alloc(f->n_layers, sizeof *t.scales)};
    for (uint32_t i = 0; i < f->n_layers; i++) t.scales[i] = (pleat_stats_scale){1, 1};
    return t;
}

/* Predict the text with f16 and with each of n <= BATCH trials. */
static int measure(fit *f, trial *trials, uint32_t n) {
    score_row rows[BATCH + 1] = {{.kv = "f16"}};
    pleat_stats *scaled[BATCH] = {NULL};
    int code = CLI_OK;
    (void)pleat_spec_parse("f16", &rows[0].spec, NULL);
    for (uint32_t i = 0; i < n && code == CLI_OK; i++) {
        const pleat_status status = pleat_stats_rescale(f->stats, trials[i].scales, NULL, &scaled[i]);
        if (status != PLEAT_OK) code = cli_fail("cannot scale the statistics", status, NULL);
        rows[1 + i] = (score_row){.kv = "rd", .stats = scaled[i]};
        (void)pleat_spec_parse("rd", &rows[1 + i].spec, NULL);
    }
    progress_part(f->n_made++, f->n_calls);
    if (code == CLI_OK) code = score_text(&f->score, f->l, f->o->text, rows, 1 + n);
    for (uint32_t i = 0; i < n; i++) {
        trials[i].kld = score_quotient(rows[1 + i].kld_sum, (double)rows[1 + i].n_scored);
        trials[i].fraction = score_quotient((double)rows[1 + i].bytes, (double)rows[1 + i].bytes_f16);
        pleat_stats_destroy(&scaled[i]);
    }
    return code;
}

/* ---- what each layer's steps cost ---------------------------------------------------------------------------- */

static float *side_of(pleat_stats_scale *scale, uint32_t side) { return side == 0 ? &scale->k : &scale->v; }

/* Of one side of one layer. */
typedef struct slope {
    double cost;  /* a of fit.h */
    double saved; /* of f16's bytes, by a step e times as large */
} slope;

static slope slope_of(const trial *probe, const trial *base) {
    return (slope){(probe->kld - base->kld) / ((double)(PROBE * PROBE) - 1),
                   (base->fraction - probe->fraction) / log((double)PROBE)};
}

/* slopes[2 * layer + side], of all layers of a side together, shared out evenly; zeros where nothing is known of the
 * layer. */
static int measure_sides(fit *f, const trial *base, slope *slopes) {
    trial sides[2] = {new_trial(f), new_trial(f)};
    for (uint32_t i = 0; i < 2 * f->n_layers; i++) *side_of(&sides[i % 2].scales[i / 2], i % 2) = PROBE;
    const int code = measure(f, sides, 2);
    for (uint32_t i = 0; i < 2 * f->n_layers; i++) {
        const slope all = slope_of(&sides[i % 2], base);
        slopes[i] = is_known(f, i / 2) ? (slope){all.cost / f->n_known, all.saved / f->n_known} : (slope){0, 0};
    }
    free(sides[0].scales);
    free(sides[1].scales);
    return code;
}

/* The same, of each layer by itself. */
static int measure_layers(fit *f, const trial *base, slope *slopes) {
    trial batch[BATCH];
    uint32_t place[BATCH], n = 0;
    int code = CLI_OK;
    for (uint32_t at = 0; at < 2 * f->n_layers && code == CLI_OK; at++) {
        if (is_known(f, at / 2)) {
            batch[n] = new_trial(f);
            *side_of(&batch[n].scales[at / 2], at % 2) = PROBE;
            place[n++] = at;
        }
        if (n < BATCH && at + 1 < 2 * f->n_layers) continue;
        if (n > 0) code = measure(f, batch, n);
        for (uint32_t i = 0; i < n; i++) {
            slopes[place[i]] = slope_of(&batch[i], base);
            free(batch[i].scales);
        }
        n = 0;
    }
    return code;
}

/* ---- the scales that follow ------------------------------------------------------------------------------------ */

/* One side's sums over layers. */
static slope side_sum(const fit *f, const slope *slopes, uint32_t side, pleat_stats_scale *scales) {
    slope sum = {0, 0};
    for (uint32_t i = 0; i < f->n_layers; i++) {
        const double s = (double)*side_of(&scales[i], side);
        sum.cost += slopes[2 * i + side].cost * s * s;
        sum.saved += slopes[2 * i + side].saved;
    }
    return sum;
}

/* Layers of a side beside each other: each costs as much, as far as MOST goes to both sides of the usual. */
static void balance_layers(const fit *f, const slope *slopes, uint32_t side, pleat_stats_scale *scales) {
    const double mean = side_sum(f, slopes, side, scales).cost / f->n_known, least = mean / (MOST * MOST);
    double logs = 0;
    if (!(mean > 0)) return;
    for (uint32_t i = 0; i < f->n_layers; i++)
        if (is_known(f, i)) logs += log(fmax(slopes[2 * i + side].cost, least));
    const double usual = exp(logs / f->n_known);
    for (uint32_t i = 0; i < f->n_layers; i++) {
        if (!is_known(f, i)) continue;
        const double s = sqrt(usual / fmax(slopes[2 * i + side].cost, least));
        *side_of(&scales[i], side) = (float)fmin(fmax(s, 1 / MOST), MOST);
    }
}

static void multiply(const fit *f, double k, double v, pleat_stats_scale *scales) {
    const double max = (double)PLEAT_STATS_SCALE_MAX;
    for (uint32_t i = 0; i < f->n_layers; i++) {
        scales[i].k = (float)fmin(fmax((double)scales[i].k * k, 1 / max), max);
        scales[i].v = (float)fmin(fmax((double)scales[i].v * v, 1 / max), max);
    }
}

/* Both sides beside each other: what is lost is shared out as what is saved is. */
static void balance(const fit *f, const slope *slopes, pleat_stats_scale *scales) {
    double s[2];
    balance_layers(f, slopes, 0, scales);
    balance_layers(f, slopes, 1, scales);
    const slope k = side_sum(f, slopes, 0, scales), v = side_sum(f, slopes, 1, scales);
    if (!(k.cost > 0 && v.cost > 0 && k.saved > 0 && v.saved > 0)) return;
    s[0] = sqrt(f->o->kld * k.saved / (k.saved + v.saved) / k.cost);
    s[1] = sqrt(f->o->kld * v.saved / (k.saved + v.saved) / v.cost);
    multiply(f, s[0], s[1], scales);
}

/* All of them larger or smaller together until the divergence is what is wanted. */
static int approach(fit *f, trial *t) {
    int code = CLI_OK;
    for (uint32_t i = 0; i < TRIES && code == CLI_OK; i++) {
        code = measure(f, t, 1);
        if (code != CLI_OK || !(t->kld > 0) || fabs(t->kld / f->o->kld - 1) < NEAR_ENOUGH) break;
        if (i + 1 == TRIES) break;
        const double s = sqrt(f->o->kld / t->kld);
        multiply(f, s, s, t->scales);
    }
    return code;
}

static int fit_all(fit *f, pleat_stats **stats, fit_result *result) {
    slope *slopes = cli_alloc(2 * (size_t)f->n_layers, sizeof *slopes);
    trial base = new_trial(f), t = new_trial(f);
    memset(slopes, 0, 2 * (size_t)f->n_layers * sizeof *slopes);
    int code = measure(f, &base, 1);
    if (code == CLI_OK) code = f->o->by_layer ? measure_layers(f, &base, slopes) : measure_sides(f, &base, slopes);
    if (code == CLI_OK) balance(f, slopes, t.scales);
    if (code == CLI_OK) code = approach(f, &t);
    *result = (fit_result){base.kld, t.kld, base.fraction, t.fraction};
    pleat_stats *scaled = NULL;
    if (code == CLI_OK) {
        const pleat_status status = pleat_stats_rescale(*stats, t.scales, NULL, &scaled);
        if (status != PLEAT_OK) code = cli_fail("cannot scale the statistics", status, NULL);
    }
    if (code == CLI_OK) {
        pleat_stats_destroy(stats);
        *stats = scaled;
    }
    free(slopes);
    free(base.scales);
    free(t.scales);
    return code;
}

int fit_scales(const fit_options *o, const loaded *l, pleat_stats **stats, fit_result *result) {
    fit f = {.o = o, .l = l, .stats = *stats, .n_layers = pleat_stats_n_layers(*stats)};
    score_defaults(&f.score);
    f.score.common.quiet = o->quiet;
    f.score.load = *o->load;
    f.score.text_windows = o->n_windows;
    f.score.ctx_window = o->window_tokens;
    f.score.scored = o->n_scored;
    f.score.half = HALF_CHOOSE;
    for (uint32_t i = 0; i < f.n_layers; i++) f.n_known += is_known(&f, i) ? 1 : 0;
    f.n_calls = 1 + (o->by_layer ? (2 * f.n_known + BATCH - 1) / BATCH : 1) + TRIES / 2;
    const int code = fit_all(&f, stats, result);
    progress_part(0, 0);
    return code;
}
