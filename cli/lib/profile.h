/* SPDX-License-Identifier: MIT
 *
 * profile.h: the file that `pleat calibrate` writes and `--kv leankv:profile=FILE` reads: what was measured for a model,
 * how, and which spec came out of it.  docs/CLI.md describes its JSON.
 *
 * A profile is written after every point, beside its file under another name and then moved over it, so that the file is
 * always whole.  Until all points are measured it is not complete, and no command but calibrate takes it.
 */
#ifndef PLEAT_CLI_PROFILE_H
#define PLEAT_CLI_PROFILE_H

#include <jansson.h>

#include "pleat/pleat.h"

enum { PROFILE_VERSION = 1, PROFILE_POINTS_CAP = 256, PROFILE_NAME_CAP = 256 };

/* What the best of a sweep is. */
typedef enum calibration_goal { GOAL_BYTES, GOAL_ACCURACY } calibration_goal;

/* What one spec came to. */
typedef struct profile_point {
    char kv[PLEAT_SPEC_TEXT_CAP]; /* canonical */
    double accuracy, perplexity;  /* NAN: not measured */
    double fraction;              /* bytes held over f16's */
    double seconds;
} profile_point;

/* What the points were measured on: those of equal settings, and no others, can be compared. */
typedef struct profile_settings {
    char tasks[PROFILE_NAME_CAP], text[PROFILE_NAME_CAP]; /* files' names without their folders; "": none */
    uint64_t tasks_bytes, text_bytes;                     /* their sizes */
    uint32_t samples, text_windows, ctx_window, batch_size;
} profile_settings;

typedef struct profile {
    char model[PROFILE_NAME_CAP]; /* its name, for messages */
    char fingerprint[PLEAT_FINGERPRINT_CAP];
    profile_settings settings;
    calibration_goal goal;
    double tolerance;
    char kv[PLEAT_SPEC_TEXT_CAP]; /* the chosen spec; the best so far, or the first, until it is complete */
    int has_f16;
    profile_point f16;
    uint32_t n_points;
    profile_point curve[PROFILE_POINTS_CAP];
    int is_complete;
} profile;

/* Read and check a profile.  CLI_OK, or CLI_FAILED after a message that names the file and what is wrong with it. */
int profile_read(const char *path, profile *out);

/* CLI_OK, or CLI_FAILED after a message; what was at `path` is then as it was. */
int profile_write(const profile *p, const char *path);

/* The file's content. */
json_t *profile_json(const profile *p);

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
