/* SPDX-License-Identifier: MIT
 *
 * profile_json.c: profiles as JSON; docs/CLI.md describes it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common.h"
#include "output.h"
#include "profile.h"
#include "whole_file.h"

static const char *const goal_names[] = {"bytes", "accuracy"}; /* in the order of calibration_goal */

void profile_copy_name(char out[PROFILE_NAME_CAP], const char *text) {
    json_t *valid = json_text(text);
    snprintf(out, PROFILE_NAME_CAP, "%s", valid ? json_string_value(valid) : "");
    json_decref(valid);
}

const profile_point *profile_find(const profile_points *points, const char *kv) {
    for (uint32_t i = 0; i < points->n; i++)
        if (strcmp(points->at[i].kv, kv) == 0) return &points->at[i];
    return NULL;
}

/* ---- writing ----------------------------------------------------------------------------------- */

/* A float as it was typed: 0.02, not 0.0199999996. */
static json_t *short_number(float v) {
    char text[32];
    snprintf(text, sizeof text, "%.7g", (double)v);
    return json_real(strtod(text, NULL));
}

static json_t *figures_json(const profile_point *p) {
    return json_pack("{s:o, s:o, s:o, s:o}", "accuracy", json_number(p->accuracy), "perplexity",
                     json_number(p->perplexity), "fraction", json_number(p->fraction), "seconds",
                     json_number(p->seconds));
}

/* {"ah", "al"} of a spec's text. */
static json_t *thresholds_json(const char *kv) {
    pleat_spec spec = {0};
    (void)pleat_spec_parse(kv, &spec, NULL);
    return json_pack("{s:o, s:o}", "ah", short_number(spec.ah), "al", short_number(spec.al));
}

static json_t *point_json(const profile_point *p) {
    json_t *point = json_pack("{s:s}", "kv", p->kv), *thresholds = thresholds_json(p->kv), *figures = figures_json(p);
    if (point) {
        json_object_update(point, thresholds);
        json_object_update(point, figures);
    }
    json_decref(thresholds);
    json_decref(figures);
    return point;
}

static json_t *points_json(const profile_points *points) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < points->n; i++) json_array_append_new(list, point_json(&points->at[i]));
    return list;
}

static json_t *settings_json(const profile_settings *s) {
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:s}", "tasks_bytes", (json_int_t)s->tasks_bytes,
                     "text_bytes", (json_int_t)s->text_bytes, "samples", (json_int_t)s->samples, "text_windows",
                     (json_int_t)s->text_windows, "ctx_window", (json_int_t)s->ctx_window, "batch_size",
                     (json_int_t)s->batch_size, "activations", (int)s->activations, "half", half_names[s->half]);
}

/* null where all samples choose. */
static json_t *shown_json(const profile *p) {
    if (p->settings.half == HALF_ALL) return json_null();
    return json_pack("{s:s, s:o, s:o}", "half", half_names[half_other(p->settings.half)], "f16",
                     p->has_shown_f16 ? figures_json(&p->shown_f16) : json_null(), "points", points_json(&p->shown));
}

json_t *profile_json(const profile *p) {
    return json_pack("{s:i, s:{s:s, s:s}, s:s, s:o, s:s, s:s, s:s, s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:b}",
                     "pleat_profile", PROFILE_VERSION, "model", "name", p->model, "fingerprint", p->fingerprint, "kv",
                     p->kv, "chosen", thresholds_json(p->kv), "best", p->best, "control", p->control, "goal",
                     goal_names[p->goal], "tolerance", short_number((float)p->tolerance), "tasks", p->settings.tasks,
                     "text", p->settings.text, "settings", settings_json(&p->settings), "f16",
                     p->has_f16 ? figures_json(&p->f16) : json_null(), "curve", points_json(&p->curve), "controls",
                     points_json(&p->controls), "shown", shown_json(p), "complete", p->is_complete);
}

int profile_write(const profile *p, const char *path) {
    whole_file out;
    json_t *root = profile_json(p);
    int code = whole_file_open(&out, path);
    if (code == CLI_OK && (!root || json_dumpf(root, out.file, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) != 0)) {
        cli_error("cannot write %s as JSON", path);
        whole_file_abandon(&out);
        code = CLI_FAILED;
    } else if (code == CLI_OK) {
        fputc('\n', out.file);
        code = whole_file_close(&out);
    }
    json_decref(root);
    return code;
}

/* ---- reading ----------------------------------------------------------------------------------- */

static int is_number_or_null(const json_t *v) { return json_is_number(v) || json_is_null(v); }
static double number_of(const json_t *v) { return json_is_number(v) ? json_number_value(v) : NAN; }

static int read_figures(json_t *json, profile_point *out) {
    json_t *accuracy, *perplexity, *fraction, *seconds;
    if (json_unpack(json, "{s:o, s:o, s:o, s:o}", "accuracy", &accuracy, "perplexity", &perplexity, "fraction",
                    &fraction, "seconds", &seconds) != 0 ||
        !is_number_or_null(accuracy) || !is_number_or_null(perplexity) || !is_number_or_null(fraction) ||
        !is_number_or_null(seconds))
        return 0;
    out->accuracy = number_of(accuracy);
    out->perplexity = number_of(perplexity);
    out->fraction = number_of(fraction);
    out->seconds = number_of(seconds);
    return 1;
}

/* Read a leankv spec that names no profile, into its canonical text. */
static int read_kv(const char *text, char out[PLEAT_SPEC_TEXT_CAP]) {
    pleat_spec spec;
    return text && pleat_spec_parse(text, &spec, NULL) == PLEAT_OK && spec.policy == PLEAT_POLICY_LEANKV &&
           !spec.profile[0] && pleat_spec_print(&spec, out, PLEAT_SPEC_TEXT_CAP) == PLEAT_OK;
}

/* Whether "ah" and "al" of `json` are those of the spec, as far as they are there: people read the one, programs the
 * other. */
static int has_thresholds_of(json_t *json, const char *kv) {
    static const char *const names[] = {"ah", "al"};
    json_t *expected = thresholds_json(kv);
    int is_same = 1;
    for (int i = 0; i < 2; i++) {
        const json_t *v = json_object_get(json, names[i]);
        const double want = json_number_value(json_object_get(expected, names[i]));
        is_same &= !v || (json_is_number(v) && fabs(json_number_value(v) - want) <= 1e-6 * want);
    }
    json_decref(expected);
    return is_same;
}

static int read_points(json_t *json, profile_points *out) {
    json_t *point;
    size_t i;
    if (!json_is_array(json) || json_array_size(json) > PROFILE_POINTS_CAP) return 0;
    json_array_foreach(json, i, point) {
        profile_point *p = &out->at[i];
        if (!read_figures(point, p) || !read_kv(json_string_value(json_object_get(point, "kv")), p->kv) ||
            !has_thresholds_of(point, p->kv))
            return 0;
        out->n++;
    }
    return 1;
}

/* f16's figures: an object, or null where there are none yet. */
static int read_f16(json_t *json, int *has, profile_point *out) {
    *has = json_is_object(json);
    return json_is_null(json) || read_figures(json, out);
}

/* "" or one of the points, of which it is the best or the control. */
static int read_name(json_t *root, const char *key, const profile_points *points, char out[PLEAT_SPEC_TEXT_CAP]) {
    const char *kv = json_string_value(json_object_get(root, key));
    if (!kv) return 0;
    return !kv[0] || (read_kv(kv, out) && profile_find(points, out));
}

/* The part at fault of what version 1 has not, or NULL. */
static const char *read_halves(json_t *root, profile *out) {
    const char *half = json_string_value(json_object_get(json_object_get(root, "settings"), "half"));
    json_t *shown = json_object_get(root, "shown");
    uint32_t i = 0;
    while (half && half_names[i] && strcmp(half, half_names[i]) != 0) i++;
    if (!half || !half_names[i]) return "\"half\"";
    out->settings.half = (sample_half)i;
    if (!read_points(json_object_get(root, "controls"), &out->controls)) return "\"controls\"";
    if (!read_name(root, "best", &out->curve, out->best)) return "\"best\"";
    if (!read_name(root, "control", &out->controls, out->control)) return "\"control\"";
    if (out->settings.half == HALF_ALL) return json_is_null(shown) ? NULL : "\"shown\"";
    if (!read_f16(json_object_get(shown, "f16"), &out->has_shown_f16, &out->shown_f16) ||
        !read_points(json_object_get(shown, "points"), &out->shown))
        return "\"shown\"";
    return NULL;
}

static int read_settings(json_t *root, profile_settings *s) {
    const char *tasks, *text;
    json_int_t tasks_bytes, text_bytes, samples, text_windows, ctx_window, batch_size;
    int activations = 16; /* profiles of before had no others */
    if (json_unpack(root, "{s:s, s:s, s:{s:I, s:I, s:I, s:I, s:I, s:I, s?i}}", "tasks", &tasks, "text", &text,
                    "settings", "tasks_bytes", &tasks_bytes, "text_bytes", &text_bytes, "samples", &samples,
                    "text_windows", &text_windows, "ctx_window", &ctx_window, "batch_size", &batch_size, "activations",
                    &activations) != 0 ||
        (activations != 8 && activations != 16))
        return 0;
    profile_copy_name(s->tasks, tasks);
    profile_copy_name(s->text, text);
    s->tasks_bytes = (uint64_t)tasks_bytes;
    s->text_bytes = (uint64_t)text_bytes;
    s->samples = (uint32_t)samples;
    s->text_windows = (uint32_t)text_windows;
    s->ctx_window = (uint32_t)ctx_window;
    s->batch_size = (uint32_t)batch_size;
    s->activations = (uint32_t)activations;
    return 1;
}

static int read_model(json_t *root, profile *out) {
    const char *name, *fingerprint, *goal;
    json_error_t err;
    if (json_unpack_ex(root, &err, 0, "{s:{s:s, s:s}, s:s, s:F, s:b}", "model", "name", &name, "fingerprint",
                       &fingerprint, "goal", &goal, "tolerance", &out->tolerance, "complete", &out->is_complete) != 0 ||
        strlen(fingerprint) + 1 != PLEAT_FINGERPRINT_CAP)
        return 0;
    profile_copy_name(out->model, name);
    memcpy(out->fingerprint, fingerprint, PLEAT_FINGERPRINT_CAP);
    out->goal = strcmp(goal, goal_names[GOAL_ACCURACY]) == 0 ? GOAL_ACCURACY : GOAL_BYTES;
    return 1;
}

/* The part at fault, or NULL.  *out is zero. */
static const char *read_root(json_t *root, int version, profile *out) {
    if (!read_model(root, out)) return "\"model\", \"goal\", \"tolerance\" or \"complete\"";
    if (!read_kv(json_string_value(json_object_get(root, "kv")), out->kv)) return "\"kv\"";
    if (!has_thresholds_of(json_object_get(root, "chosen"), out->kv)) return "\"chosen\", which is not its \"kv\",";
    if (!read_settings(root, &out->settings)) return "\"tasks\", \"text\" or \"settings\"";
    if (!read_f16(json_object_get(root, "f16"), &out->has_f16, &out->f16)) return "\"f16\"";
    if (!read_points(json_object_get(root, "curve"), &out->curve)) return "\"curve\"";
    return version == 1 ? NULL : read_halves(root, out);
}

/* 0 where there is none. */
static int version_of(json_t *root) {
    json_t *version = json_object_get(root, "pleat_profile");
    const json_int_t v = json_is_integer(version) ? json_integer_value(version) : 0;
    return v > 0 && v <= INT32_MAX ? (int)v : 0;
}

/* Whether the text of the profile at `path` could be read; a message says what is wrong with it if not. */
static int read_text(const char *path, const char *text, size_t n, profile *out) {
    json_error_t err;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &err);
    const int version = version_of(root), is_known = version >= 1 && version <= PROFILE_VERSION;
    const char *fault = is_known ? read_root(root, version, out) : NULL;
    if (!root)
        cli_error("%s is no profile: line %d, column %d: %s", path, err.line, err.column, err.text);
    else if (!version)
        cli_error("%s is no profile: it has no \"pleat_profile\"", path);
    else if (!is_known)
        cli_error("profile %s is of version %d; this build reads versions 1 to %d", path, version, PROFILE_VERSION);
    else if (fault)
        cli_error("profile %s is damaged: its %s cannot be read", path, fault);
    json_decref(root);
    return is_known && !fault;
}

int profile_read(const char *path, profile *out) {
    char *text;
    size_t n;
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        cli_error("profile %s is no regular file", path);
        return CLI_FAILED;
    }
    if (cli_read_file(CONTENT_PROFILE, path, &text, &n) != CLI_OK) return CLI_FAILED;
    memset(out, 0, sizeof *out);
    const int ok = read_text(path, text, n, out);
    free(text);
    return ok ? CLI_OK : CLI_FAILED;
}
