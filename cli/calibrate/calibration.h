/* SPDX-License-Identifier: MIT
 *
 * calibration.h: which thresholds leankv should have for a model, and whether they bring more than its window does.
 * LeanKV, section 7.2, with a control.
 *
 *     one half    f16 -> each --ah with al=0 -> the best ah with each --al -> the best of all points -> its control
 *     the other   f16, the best and its control, to be shown: nothing is chosen by them
 *
 *     goal accuracy   the best is the most accurate (the paper's rule); among equals that with the fewest bytes
 *     goal bytes      the best is that with the fewest bytes among those within --tolerance of f16's accuracy; if there
 *                     is none, the most accurate
 *
 * The control is leankv with significance switched off (profile.h): tokens older than the window are low, whatever
 * attention they received.  Its window is such that it holds the best point's bytes.  The best is chosen if it is
 * better than that:
 *
 *     the one keeps to the goal's tolerance and the other does not; or
 *     it answers more, by more than half an answer; or
 *     it answers as many, and its perplexity is lower by a thousandth of it, where there is a text
 *
 * If not, the control is chosen: then significance brings nothing.  An ah of 0 keeps every token high, uses no
 * significance, and has no control.
 *
 *     calibrate.c   the command, and what is to be known before the work
 *     points.c      specs are measured, each once
 *     choice.c      the best point, its control, and which of them is chosen
 *     print.c       the table and the summary
 *
 * Bytes are the fraction of `pleat eval`.  The profile is written after every point.  Run again with the same model,
 * tasks, text, samples, half and formats, the command goes on where it was.  Points that the profile has are not measured
 * again.  Those of other --ah and --al are none the less taken over, and take part in the choice.  A profile of anything
 * else is left alone.
 */
#ifndef PLEAT_CLI_CALIBRATION_H
#define PLEAT_CLI_CALIBRATION_H

#include "cli/lib/profile.h"
#include "cli/lib/score/score.h"

typedef struct calibrate_options {
    score_options score;
    float_list ah, al; /* n 0: the command's own */
    float tolerance;   /* accuracy that may be lost */
    calibration_goal goal;
} calibrate_options;

/* Which samples a point is measured on. */
typedef enum calibration_part { PART_CHOOSES, PART_SHOWS, N_PARTS } calibration_part;

typedef struct calibration {
    calibrate_options *own;
    score_options *o;       /* own's */
    evaluation e;           /* the model; its set is one of `sets`, whose samples it does not own */
    task_set sets[N_PARTS]; /* the second is empty with --half all */
    output out;
    char *path; /* of the profile */
    pleat_spec base;
    float_list ah, al;
    profile p;
    uint32_t n_seen, n_parts; /* points before this one, f16 among them; all of them, about */
} calibration;

/* ---- points.c -------------------------------------------------------------------------------- */

/* The canonical text of base with these. */
void points_text(const calibration *c, float ah, float al, uint32_t window, char out[PLEAT_SPEC_TEXT_CAP]);

/* See that the profile has f16's figures on a half, or the list the point of `kv`, and the file too.  *out is the point.
 * CLI_OK, or a code after a message. */
int points_add_f16(calibration *c, calibration_part part);
int points_add(calibration *c, calibration_part part, profile_points *list, const char *kv, const profile_point **out);

/* ---- choice.c -------------------------------------------------------------------------------- */

/* The best point; of those with al = 0 only, if so wanted.  NULL if there is none. */
const profile_point *choice_best(const calibration *c, int with_al);

/* Whether the point's accuracy is within the tolerance of f16's. */
int choice_is_near_f16(const calibration *c, const profile_point *p);

/* Whether the best point is better than its control, and why; "" in *why if not. */
int choice_beats(const calibration *c, const profile_point *best, const profile_point *control, const char **why);

/* Find the best of all points, measure its control, and set best, control and kv.  CLI_OK, or a code after a message. */
int choice_make(calibration *c);

/* ---- print.c --------------------------------------------------------------------------------- */

/* The table or the profile to c->out, the summary to stderr. */
void print_report(calibration *c);

#endif
