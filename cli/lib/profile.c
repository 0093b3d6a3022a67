/* SPDX-License-Identifier: MIT
 *
 * profile.c: see profile.h.
 */
#include "profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common.h"
#include "output.h"
#include "whole_file.h"

static const char *const goal_names[] = {"bytes", "accuracy"}; /* in the order of calibration_goal */

void profile_copy_name(char out[PROFILE_NAME_CAP], const char *text) {
    json_t *valid = json_text(text);
    snprintf(out, PROFILE_NAME_CAP, "%s", valid ? json_string_value(valid) : "");
    json_decref(valid);
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

json_t *profile_json(const profile *p) {
    const profile_settings *s = &p->settings;
    json_t *curve = json_array();
    for (uint32_t i = 0; i < p->n_points; i++) json_array_append_new(curve, point_json(&p->curve[i]));
    return json_pack(
        "{s:i, s:{s:s, s:s}, s:s, s:o, s:s, s:o, s:s, s:s, s:{s:I, s:I, s:I, s:I, s:I, s:I}, s:o, s:o, s:b}",
        "pleat_profile", PROFILE_VERSION, "model", "name", p->model, "fingerprint", p->fingerprint, "kv", p->kv,
        "chosen", thresholds_json(p->kv), "goal", goal_names[p->goal], "tolerance", short_number((float)p->tolerance),
        "tasks", s->tasks, "text", s->text, "settings", "tasks_bytes", (json_int_t)s->tasks_bytes, "text_bytes",
        (json_int_t)s->text_bytes, "samples", (json_int_t)s->samples, "text_windows", (json_int_t)s->text_windows,
        "ctx_window", (json_int_t)s->ctx_window, "batch_size", (json_int_t)s->batch_size, "f16",
        p->has_f16 ? figures_json(&p->f16) : json_null(), "curve", curve, "complete", p->is_complete);
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

static int read_curve(json_t *json, profile *out) {
    json_t *point;
    size_t i;
    if (!json_is_array(json) || json_array_size(json) > PROFILE_POINTS_CAP) return 0;
    json_array_foreach(json, i, point) {
        if (!read_figures(point, &out->curve[i]) ||
            !read_kv(json_string_value(json_object_get(point, "kv")), out->curve[i].kv) ||
            !has_thresholds_of(point, out->curve[i].kv))
            return 0;
        out->n_points++;
    }
    return 1;
}

static int read_settings(json_t *root, profile_settings *s) {
    const char *tasks, *text;
    json_int_t tasks_bytes, text_bytes, samples, text_windows, ctx_window, batch_size;
    if (json_unpack(root, "{s:s, s:s, s:{s:I, s:I, s:I, s:I, s:I, s:I}}", "tasks", &tasks, "text", &text, "settings",
                    "tasks_bytes", &tasks_bytes, "text_bytes", &text_bytes, "samples", &samples, "text_windows",
                    &text_windows, "ctx_window", &ctx_window, "batch_size", &batch_size) != 0)
        return 0;
    profile_copy_name(s->tasks, tasks);
    profile_copy_name(s->text, text);
    s->tasks_bytes = (uint64_t)tasks_bytes;
    s->text_bytes = (uint64_t)text_bytes;
    s->samples = (uint32_t)samples;
    s->text_windows = (uint32_t)text_windows;
    s->ctx_window = (uint32_t)ctx_window;
    s->batch_size = (uint32_t)batch_size;
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

/* The part at fault, or NULL. */
static const char *read_root(json_t *root, profile *out) {
    json_t *f16 = json_object_get(root, "f16");
    if (!read_model(root, out)) return "\"model\", \"goal\", \"tolerance\" or \"complete\"";
    if (!read_kv(json_string_value(json_object_get(root, "kv")), out->kv)) return "\"kv\"";
    if (!has_thresholds_of(json_object_get(root, "chosen"), out->kv)) return "\"chosen\", which is not its \"kv\",";
    if (!read_settings(root, &out->settings)) return "\"tasks\", \"text\" or \"settings\"";
    out->has_f16 = json_is_object(f16);
    if (!json_is_null(f16) && !read_figures(f16, &out->f16)) return "\"f16\"";
    if (!read_curve(json_object_get(root, "curve"), out)) return "\"curve\"";
    return NULL;
}

int profile_read(const char *path, profile *out) {
    char *text;
    size_t n;
    json_error_t err;
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        cli_error("profile %s is no regular file", path);
        return CLI_FAILED;
    }
    if (cli_read_file(CONTENT_PROFILE, path, &text, &n) != CLI_OK) return CLI_FAILED;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &err);
    json_t *version = json_object_get(root, "pleat_profile");
    memset(out, 0, sizeof *out);
    const char *fault = NULL;
    if (!root)
        cli_error("%s is no profile: line %d, column %d: %s", path, err.line, err.column, err.text);
    else if (!json_is_integer(version))
        cli_error("%s is no profile: it has no \"pleat_profile\"", path);
    else if (json_integer_value(version) != PROFILE_VERSION)
        cli_error("profile %s is of version %lld; this build reads version %d", path,
                  (long long)json_integer_value(version), PROFILE_VERSION);
    else if ((fault = read_root(root, out)) != NULL)
        cli_error("profile %s is damaged: its %s cannot be read", path, fault);
    const int ok = root && json_is_integer(version) && json_integer_value(version) == PROFILE_VERSION && !fault;
    json_decref(root);
    free(text);
    return ok ? CLI_OK : CLI_FAILED;
}

/* ---- use --------------------------------------------------------------------------------------- */

int profile_is_of(const profile *p, const char *path, const pleat_model *model, const char *model_name) {
    char fingerprint[PLEAT_FINGERPRINT_CAP];
    if (pleat_model_fingerprint(model, fingerprint) != PLEAT_OK) return 0;
    if (strcmp(fingerprint, p->fingerprint) == 0) return 1;
    cli_error("profile %s was made for the model '%s' (fingerprint %s); this one is '%s' (%s); "
              "`pleat calibrate` makes one for it",
              path, p->model, p->fingerprint, model_name, fingerprint);
    return 0;
}

int profile_resolve(const pleat_model *model, const char *model_name, pleat_spec *spec) {
    if (!spec->profile[0]) return CLI_OK;
    const char *path = spec->profile;
    profile *p = cli_alloc(1, sizeof *p);
    int code = profile_read(path, p);
    if (code == CLI_OK && !profile_is_of(p, path, model, model_name)) code = CLI_FAILED;
    if (code == CLI_OK && !p->is_complete) {
        cli_error("profile %s is not complete: its calibration was interrupted; run the same `pleat calibrate` again",
                  path);
        code = CLI_FAILED;
    }
    if (code == CLI_OK) (void)pleat_spec_parse(p->kv, spec, NULL); /* profile_read() has parsed it */
    free(p);
    return code;
}

char *profile_path_beside(const char *model_path) {
    static const char ending[] = ".leankv.json";
    size_t n = strlen(model_path);
    if (n > 5 && strcmp(model_path + n - 5, ".gguf") == 0) n -= 5;
    char *path = cli_alloc(n + sizeof ending, 1);
    memcpy(path, model_path, n);
    memcpy(path + n, ending, sizeof ending);
    return path;
}

/* Why a profile that was read is not the model's, or NULL. */
static const char *why_not_of(const profile *p, const pleat_model *model) {
    char fingerprint[PLEAT_FINGERPRINT_CAP];
    if (pleat_model_fingerprint(model, fingerprint) != PLEAT_OK || strcmp(fingerprint, p->fingerprint) != 0)
        return "was made for another model";
    return p->is_complete ? NULL : "is not complete";
}

int profile_take_shipped(const char *path, const pleat_model *model, int is_quiet, pleat_spec *spec, int *code) {
    struct stat info;
    char defaults[PLEAT_SPEC_TEXT_CAP];
    if (stat(path, &info) != 0) return 0;
    profile *p = cli_alloc(1, sizeof *p);
    *code = profile_read(path, p);
    const char *fault = *code == CLI_OK ? why_not_of(p, model) : NULL;
    (void)pleat_spec_print(spec, defaults, sizeof defaults);
    if (fault && !is_quiet)
        cli_note("--kv leankv is %s: the profile %s %s", defaults, path, fault);
    else if (*code == CLI_OK && !fault && !is_quiet)
        cli_note("--kv leankv is %s here, from the model's profile %s; %s are the defaults", p->kv, path, defaults);
    const int is_taken = *code == CLI_OK && !fault;
    if (is_taken) (void)pleat_spec_parse(p->kv, spec, NULL); /* profile_read() has parsed it */
    free(p);
    return is_taken;
}
