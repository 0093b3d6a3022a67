/* SPDX-License-Identifier: MIT
 *
 * calibrate.c: `pleat calibrate`: which thresholds leankv should have for a model.  LeanKV, section 7.2.
 *
 *     f16 -----> each --ah with al=0 -----> the best ah with each --al -----> the best of all points
 *
 *     goal accuracy   the best is the most accurate (the paper's rule); among equals that with the fewest bytes
 *     goal bytes      the best is that with the fewest bytes among those within --tolerance of f16's accuracy; if there
 *                     is none, the most accurate
 *
 * Bytes are the fraction of `pleat eval`.
 *
 * The profile is written after every point.  Run again with the same model, tasks, text, samples and formats, the
 * command goes on where it was: points that the profile has are not measured again, also those of other --ah and --al,
 * which take part in the choice.  A profile of anything else is left alone.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "commands.h"
#include "common.h"
#include "eval.h"
#include "output.h"
#include "profile.h"

enum { DEFAULT_TEXT_WINDOWS = 8 };

typedef struct calibration {
    options *o;
    evaluation e; /* model and tasks */
    output out;
    char *path; /* of the profile */
    pleat_spec base;
    float_list ah, al;
    profile p;
    uint32_t n_measured; /* in this run */
} calibration;

/* ---- points ------------------------------------------------------------------------------------ */

static void text_of(const calibration *c, float ah, float al, char out[PLEAT_SPEC_TEXT_CAP]) {
    pleat_spec spec = c->base;
    spec.ah = ah;
    spec.al = al;
    (void)pleat_spec_print(&spec, out, PLEAT_SPEC_TEXT_CAP);
}

static profile_point *find_point(calibration *c, const char *kv) {
    for (uint32_t i = 0; i < c->p.n_points; i++)
        if (strcmp(c->p.curve[i].kv, kv) == 0) return &c->p.curve[i];
    return NULL;
}

/* Evaluate the spec that `kv` names. */
static int measure(calibration *c, const char *kv, profile_point *out) {
    eval_row row = {.kv = kv};
    uint64_t bytes, bytes_f16;
    (void)pleat_spec_parse(kv, &row.spec, NULL);
    int code = eval_tasks(c->o, &c->e.l, &c->e.set, &row);
    if (code == CLI_OK && c->o->text) code = eval_text(c->o, &c->e.l, c->o->text, &row, 1);
    if (code != CLI_OK) return code;
    eval_bytes(&c->e, &row, &bytes, &bytes_f16);
    snprintf(out->kv, sizeof out->kv, "%s", kv);
    out->accuracy = eval_accuracy(&c->e, &row);
    out->perplexity = eval_perplexity(&row);
    out->fraction = eval_quotient((double)bytes, (double)bytes_f16);
    out->seconds = row.seconds;
    c->n_measured++;
    return CLI_OK;
}

static void say(const calibration *c, const profile_point *p, const char *kv, int is_new) {
    if (c->o->quiet) return;
    fprintf(stderr, "%-32s accuracy %.4f", kv, p->accuracy);
    if (isfinite(p->perplexity)) fprintf(stderr, ", perplexity %.3f", p->perplexity);
    fprintf(stderr, ", %.1f %% of f16's bytes", 100 * p->fraction);
    if (is_new)
        fprintf(stderr, ", %.1f s\n", p->seconds);
    else
        fprintf(stderr, " (measured already)\n");
}

/* See that the curve has the point of ah and al, and the file too. */
static int add_point(calibration *c, float ah, float al) {
    char kv[PLEAT_SPEC_TEXT_CAP];
    text_of(c, ah, al, kv);
    const profile_point *known = find_point(c, kv);
    if (known) {
        say(c, known, kv, 0);
        return CLI_OK;
    }
    if (c->p.n_points == PROFILE_POINTS_CAP) {
        cli_error("profile %s has %d points already, which is all it can have", c->path, PROFILE_POINTS_CAP);
        return CLI_FAILED;
    }
    profile_point *point = &c->p.curve[c->p.n_points];
    int code = measure(c, kv, point);
    if (code != CLI_OK) return code;
    c->p.n_points++;
    say(c, point, kv, 1);
    return profile_write(&c->p, c->path);
}

static int add_f16(calibration *c) {
    if (!c->p.has_f16) {
        const int code = measure(c, "f16", &c->p.f16);
        if (code != CLI_OK) return code;
        c->p.has_f16 = 1;
        say(c, &c->p.f16, "f16", 1);
        return profile_write(&c->p, c->path);
    }
    say(c, &c->p.f16, "f16", 0);
    return CLI_OK;
}

/* ---- the choice -------------------------------------------------------------------------------- */

/* Half of what one answer changes in the mean accuracy over tasks, in the task with most turns. */
static double half_an_answer(const calibration *c) {
    const task_set *set = &c->e.set;
    uint32_t n_turns[TASKS_CAP] = {0}, most = 1;
    for (uint32_t i = 0; i < set->n_samples; i++) {
        uint32_t *n = &n_turns[set->samples[i].task];
        *n += set->samples[i].n_turns;
        if (*n > most) most = *n;
    }
    return 0.5 / ((double)set->n_tasks * most);
}

static int is_near_f16(const calibration *c, const profile_point *p) {
    return p->accuracy >= c->p.f16.accuracy - c->p.tolerance - 1e-9;
}

/* Whether a serves the goal better than b. */
static int is_better(const calibration *c, const profile_point *a, const profile_point *b) {
    if (!b) return 1;
    if (c->p.goal == GOAL_BYTES) {
        const int near_a = is_near_f16(c, a), near_b = is_near_f16(c, b);
        if (near_a != near_b) return near_a;
        if (near_a && a->fraction != b->fraction) return a->fraction < b->fraction;
    }
    if (fabs(a->accuracy - b->accuracy) > half_an_answer(c)) return a->accuracy > b->accuracy;
    return a->fraction < b->fraction;
}

/* The best point; of those with al = 0 only, if so wanted.  NULL if there is none. */
static const profile_point *best(const calibration *c, int with_al) {
    const profile_point *chosen = NULL;
    for (uint32_t i = 0; i < c->p.n_points; i++) {
        pleat_spec spec;
        (void)pleat_spec_parse(c->p.curve[i].kv, &spec, NULL);
        if ((with_al || spec.al == 0) && is_better(c, &c->p.curve[i], chosen)) chosen = &c->p.curve[i];
    }
    return chosen;
}

static void choose(calibration *c) {
    const profile_point *chosen = best(c, 1);
    if (chosen) memcpy(c->p.kv, chosen->kv, sizeof c->p.kv);
}

static int sweep(calibration *c) {
    pleat_spec spec;
    int code = add_f16(c);
    for (uint32_t i = 0; i < c->ah.n && code == CLI_OK; i++) code = add_point(c, c->ah.v[i], 0);
    if (code != CLI_OK) return code;
    (void)pleat_spec_parse(best(c, 0)->kv, &spec, NULL);
    for (uint32_t i = 0; i < c->al.n && code == CLI_OK; i++) {
        if (c->al.v[i] <= spec.ah)
            code = add_point(c, spec.ah, c->al.v[i]);
        else if (!c->o->quiet)
            cli_note("al=%g is left out: it is above ah=%g, the best", (double)c->al.v[i], (double)spec.ah);
    }
    if (code != CLI_OK) return code;
    choose(c);
    c->p.is_complete = 1;
    return profile_write(&c->p, c->path);
}

/* ---- before ------------------------------------------------------------------------------------ */

/* The size of a file and its name without folders. */
static int describe_file(const char *path, char name[PROFILE_NAME_CAP], uint64_t *bytes) {
    struct stat st;
    const char *slash = strrchr(path, '/');
    if (stat(path, &st) != 0) {
        cli_error("cannot read %s: %s", path, strerror(errno));
        return CLI_FAILED;
    }
    profile_copy_name(name, slash ? slash + 1 : path);
    *bytes = (uint64_t)st.st_size;
    return CLI_OK;
}

static int describe(calibration *c, profile *p) {
    const options *o = c->o;
    profile_settings *s = &p->settings;
    memset(p, 0, sizeof *p);
    profile_copy_name(p->model, c->e.l.info.name);
    (void)pleat_model_fingerprint(c->e.l.model, p->fingerprint);
    p->goal = o->goal;
    p->tolerance = (double)o->tolerance;
    text_of(c, c->ah.v[0], 0, p->kv);
    s->samples = o->samples;
    s->text_windows = o->text ? o->text_windows : 0;
    s->ctx_window = o->text ? o->ctx_window : 0;
    s->batch_size = o->chunk_tokens;
    const int code = describe_file(o->tasks, s->tasks, &s->tasks_bytes);
    return code == CLI_OK && o->text ? describe_file(o->text, s->text, &s->text_bytes) : code;
}

/* What was not the same when the profile `old` was measured; NULL if all was. */
static const char *difference(const calibration *c, const profile *old) {
    const profile_settings *a = &c->p.settings, *b = &old->settings;
    pleat_spec spec;
    char kv[PLEAT_SPEC_TEXT_CAP];
    (void)pleat_spec_parse(old->kv, &spec, NULL);
    text_of(c, spec.ah, spec.al, kv);
    if (strcmp(kv, old->kv) != 0) return "another --kv";
    if (strcmp(a->tasks, b->tasks) != 0 || a->tasks_bytes != b->tasks_bytes) return "other --tasks";
    if (strcmp(a->text, b->text) != 0 || a->text_bytes != b->text_bytes) return "another --text";
    if (a->samples != b->samples) return "another --samples";
    if (a->text_windows != b->text_windows) return "another --text-windows";
    if (a->ctx_window != b->ctx_window) return "another --ctx-window";
    if (a->batch_size != b->batch_size) return "another --batch-size";
    return NULL;
}

/* Take over the points of the profile that is there already, if there is one. */
static int resume(calibration *c) {
    struct stat st;
    if (stat(c->path, &st) != 0) return CLI_OK;
    profile *old = cli_alloc(1, sizeof *old);
    int code = profile_read(c->path, old);
    if (code == CLI_OK && !profile_is_of(old, c->path, &c->e.l)) code = CLI_FAILED;
    const char *what = code == CLI_OK ? difference(c, old) : NULL;
    if (what) {
        cli_error("profile %s was made with %s (%s)", c->path, what, old->kv);
        code = CLI_FAILED;
    }
    if (code != CLI_OK) {
        cli_error("%s stays as it is: remove it, or name another file with -o", c->path);
    } else {
        c->p.has_f16 = old->has_f16;
        c->p.f16 = old->f16;
        c->p.n_points = old->n_points;
        memcpy(c->p.curve, old->curve, sizeof old->curve);
        memcpy(c->p.kv, old->kv, sizeof old->kv);
        c->p.is_complete = old->is_complete; /* its choice holds until there is another */
        if (!c->o->quiet)
            cli_note("%s has points already (%u), which are not measured again", c->path, old->n_points + old->has_f16);
    }
    free(old);
    return code;
}

/* -o, or the model's path with another ending. */
static char *profile_path(const options *o) {
    static const char ending[] = ".leankv.json";
    if (o->output) return cli_copy(o->output, strlen(o->output));
    size_t n = strlen(o->model);
    if (n > 5 && strcmp(o->model + n - 5, ".gguf") == 0) n -= 5;
    char *path = cli_alloc(n + sizeof ending, 1);
    memcpy(path, o->model, n);
    memcpy(path + n, ending, sizeof ending);
    return path;
}

/* A path that no spec can name is no error, but worth to know before hours of work. */
static void note_path(const calibration *c) {
    char text[PLEAT_SPEC_TEXT_CAP];
    pleat_spec spec;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    const int n = snprintf(text, sizeof text, "leankv:profile=%s", c->path);
    const int is_named = n < (int)sizeof text && pleat_spec_parse(text, &spec, &err) == PLEAT_OK;
    if ((!is_named || strchr(c->path, ' ')) && !c->o->quiet)
        cli_note("--kv leankv:profile=FILE cannot name %s, which is too long or holds a ',', a '+' or a space",
                 c->path);
}

static int check_usage(calibration *c) {
    options *o = c->o;
    static const float default_ah[] = {0, 1, 2, 3, 5, 10, 20, 30}, default_al[] = {0, 0.02f, 0.04f, 0.06f, 0.08f, 0.1f};
    int code = options_one_spec(o, "leankv");
    if (code != CLI_OK) return code;
    if (o->kv.spec[0].policy != PLEAT_POLICY_LEANKV) {
        cli_error("--kv '%s': only leankv has thresholds to calibrate", o->kv.text[0]);
        return CLI_USAGE;
    }
    if (o->output && !strcmp(o->output, "-")) {
        cli_error("-o -: the profile is read again and needs a file; the table goes to stdout");
        return CLI_USAGE;
    }
    if (!o->tasks) {
        cli_error("nothing to measure accuracy with: give --tasks FILE, as eval/tasks.jsonl");
        return CLI_USAGE;
    }
    c->ah = o->ah;
    c->al = o->al;
    while (!o->ah.n && c->ah.n < sizeof default_ah / sizeof default_ah[0])
        c->ah.v[c->ah.n] = default_ah[c->ah.n], c->ah.n++;
    while (!o->al.n && c->al.n < sizeof default_al / sizeof default_al[0])
        c->al.v[c->al.n] = default_al[c->al.n], c->al.n++;
    if (!o->text_windows) o->text_windows = DEFAULT_TEXT_WINDOWS;
    return CLI_OK;
}

static int prepare(calibration *c) {
    options *o = c->o;
    int code = check_usage(c);
    if (code == CLI_OK) code = load_model(o, &c->e.l);
    if (code != CLI_OK) return code;
    c->base = o->kv.spec[0];
    c->path = profile_path(o);
    o->output = NULL; /* the table goes to stdout */
    code = describe(c, &c->p);
    if (code == CLI_OK) code = resume(c);
    if (code == CLI_OK) code = tasks_load(&c->e.set, &c->e.l, o->tasks, o->samples);
    if (code == CLI_OK) code = output_open(&c->out, o);
    if (code != CLI_OK) return code;
    note_path(c);
    return profile_write(&c->p, c->path); /* that it can be is known before the work */
}

/* ---- after ------------------------------------------------------------------------------------- */

static void put_point(table *t, const calibration *c, const profile_point *p, const char *kv) {
    table_put(t, "%s", kv);
    table_put_number(t, 4, p->accuracy);
    table_put_number(t, 4, p->accuracy - c->p.f16.accuracy);
    table_put_number(t, 3, p->perplexity);
    table_put_number(t, 4, p->fraction);
    table_put_number(t, 1, p->seconds);
    table_put(t, "%s", strcmp(kv, c->p.kv) == 0 ? "chosen" : "");
}

static void write_table(calibration *c) {
    static const char *const titles[] = {"kv", "accuracy", "against f16", "perplexity", "fraction", "seconds", ""};
    table t;
    table_init(&t, titles, sizeof titles / sizeof titles[0]);
    put_point(&t, c, &c->p.f16, "f16");
    for (uint32_t i = 0; i < c->p.n_points; i++) put_point(&t, c, &c->p.curve[i], c->p.curve[i].kv);
    table_write(&t, &c->out);
    table_release(&t);
}

static void report(calibration *c) {
    const profile_point *chosen = find_point(c, c->p.kv);
    if (c->o->format == FORMAT_JSON)
        output_json(&c->out, profile_json(&c->p));
    else
        write_table(c);
    if (c->o->quiet) return;
    fflush(c->out.file);
    if (c->p.goal == GOAL_BYTES && !is_near_f16(c, chosen))
        cli_note("no point is within %g of f16's accuracy: the most accurate was chosen", c->p.tolerance);
    fprintf(stderr, "\nchosen     %s\nprofile    %s, for --kv leankv:profile=%s\n", c->p.kv, c->path, c->path);
}

int command_calibrate(options *o) {
    calibration *c = cli_alloc(1, sizeof *c);
    c->o = o;
    c->e.o = o;
    int code = prepare(c);
    if (code == CLI_OK) code = sweep(c);
    if (code == CLI_OK) report(c);
    const int closed = output_close(&c->out);
    tasks_release(&c->e.set);
    load_release(&c->e.l);
    free(c->path);
    free(c);
    return code == CLI_OK ? closed : code;
}
