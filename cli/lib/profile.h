/* SPDX-License-Identifier: MIT
 *
 * profile.h: the file that `pleat calibrate` writes and `--kv leankv:profile=FILE` reads: what was measured for a model,
 * how, and which spec came out of it.  docs/CLI.md describes its JSON.
 *
 *     curve       points of other thresholds, on the half of the samples that chooses; the best of them by the goal
 *     controls    the same with significance switched off (ah=PROFILE_OFF_AH: no attention earns a token the high format)
 *                 and other windows; the control is the one whose bytes are the best point's
 *     kv          the best point where it is better than its control, else the control
 *     shown       f16, the best point and its control on the other half, which had no part in the choice
 *
 * Version 1 had neither halves nor controls: all of its samples chose, and were shown.  It is read as that.
 *
 *     profile.c         what commands take from a profile
 *     profile_json.c    its JSON, written and read
 *
 * A profile is written after every point, beside its file under another name and then moved over it, so that the file is
 * always whole.  Until all points are measured it is not complete, and no command but calibrate takes it.
 */
#ifndef PLEAT_CLI_PROFILE_H
#define PLEAT_CLI_PROFILE_H

#include <jansson.h>

#include "cli/lib/half.h"
#include "pleat/pleat.h"

enum { PROFILE_VERSION = 2, PROFILE_POINTS_CAP = 256, PROFILE_NAME_CAP = 256 };

/* The greatest ah.  Attention received is at most 1 on average, so below a million tokens none reaches ah / tokens. */
#define PROFILE_OFF_AH 1e6f

/* What the best of a sweep is. */
typedef enum calibration_goal { GOAL_BYTES, GOAL_ACCURACY } calibration_goal;

/* What one spec came to. */
typedef struct profile_point {
    char kv[PLEAT_SPEC_TEXT_CAP]; /* canonical */
    double accuracy, perplexity;  /* NAN: not measured */
    double fraction;              /* bytes held over f16's */
    double seconds;
} profile_point;

typedef struct profile_points {
    uint32_t n;
    profile_point at[PROFILE_POINTS_CAP];
} profile_points;

/* What the points were measured on: those of equal settings, and no others, can be compared. */
typedef struct profile_settings {
    char tasks[PROFILE_NAME_CAP], text[PROFILE_NAME_CAP]; /* files' names without their folders; "": none */
    uint64_t tasks_bytes, text_bytes;                     /* their sizes */
    uint32_t samples, text_windows, ctx_window, batch_size;
    uint32_t activations; /* bits of one: 16 or 8 */
    sample_half half;     /* that chooses; the other one is shown */
} profile_settings;

typedef struct profile {
    char model[PROFILE_NAME_CAP]; /* its name, for messages */
    char fingerprint[PLEAT_FINGERPRINT_CAP];
    profile_settings settings;
    calibration_goal goal;
    double tolerance;
    char kv[PLEAT_SPEC_TEXT_CAP];   /* the chosen spec; the best so far, or the first, until it is complete */
    char best[PLEAT_SPEC_TEXT_CAP]; /* of the curve, by the goal; "": not known yet */
    char control
        [PLEAT_SPEC_TEXT_CAP]; /* the best point's; "": not known yet, or it has none (ah=0 needs no attention) */
    int has_f16, has_shown_f16;
    profile_point f16, shown_f16;
    profile_points curve, controls, shown;
    int is_complete;
} profile;

/* Read and check a profile.  CLI_OK, or CLI_FAILED after a message that names the file and what is wrong with it. */
int profile_read(const char *path, profile *out);

/* CLI_OK, or CLI_FAILED after a message; what was at `path` is then as it was. */
int profile_write(const profile *p, const char *path);

/* The file's content. */
json_t *profile_json(const profile *p);

/* The point of that canonical spec, or NULL. */
const profile_point *profile_find(const profile_points *points, const char *kv);

/* Whether the profile is of the model that is loaded; a message says so if not. */
int profile_is_of(const profile *p, const char *path, const pleat_model *model, const char *model_name);

/* If the spec names a profile, replace it by the spec that the profile chose for the model.  CLI_OK, or CLI_FAILED after
 * a message: no such file, damaged, of another version, not complete, or made for another model. */
int profile_resolve(const pleat_model *model, const char *model_name, pleat_spec *spec);

/* Where a model's own profile stands: MODEL with .leankv.json for .gguf.  The caller frees it. */
char *profile_path_beside(const char *model_path);

/* Put what the profile at `path` chose in the spec's place, and say so; 1 if it did.  0 where there is none, or, with a
 * note, where it is not complete or of another model; also where it is damaged: *code is then CLI_FAILED after a
 * message.  Notes are left out if is_quiet. */
int profile_take_shipped(const char *path, const pleat_model *model, int is_quiet, pleat_spec *spec, int *code);

/* Copy text to a profile's field: cut to its length, and valid UTF-8. */
void profile_copy_name(char out[PROFILE_NAME_CAP], const char *text);

#endif
