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
 * command goes on where it was.  Points that the profile has are not measured again.  Those of other --ah and --al are
 * none the less taken over, and take part in the choice.  A profile of anything else is left alone.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/lib/common.h"
#include "cli/lib/interrupt.h"
#include "cli/lib/output.h"
#include "cli/lib/profile.h"
#include "cli/lib/progress.h"
#include "cli/lib/score/score.h"

enum { DEFAULT_TEXT_WINDOWS = 8 };

/* ---- options --------------------------------------------------------------------------------- */

typedef struct calibrate_options {
    score_options score;
    float_list ah, al; /* n 0: the command's own */
    float tolerance;   /* accuracy that may be lost */
    calibration_goal goal;
} calibrate_options;
_Static_assert(offsetof(calibrate_options, score) == 0, "common_options come first");

static const char *const goals[] = {"bytes", "accuracy", NULL};
_Static_assert(sizeof(calibration_goal) == sizeof(uint32_t), "KIND_WORD writes a uint32_t");

#define GROUP_SEEK "What to seek"
/* clang-format off */
static const option_row rows[] = {
    LOAD_ROWS(calibrate_options, score.load),
    CPU_MASK_ROW(score_options),
    {GROUP_CACHE, "kv", NULL, "SPEC", "the leankv spec whose ah and al are sought (default leankv)",
     KIND_SPECS, .offset = offsetof(calibrate_options, score.load.kv), .max = 1, .words = option_spec_names},
    SCORE_ROWS(calibrate_options, score),
    TEXT_WINDOWS_ROW(calibrate_options, score, "the first N windows of the text (default 8)"),
    {GROUP_SEEK, "ah", NULL, "X,..", "thresholds of the high format to try, with al=0 (default 0,1,2,3,5,10,20,30)",
     KIND_FLOATS, .offset = offsetof(calibrate_options, ah), 0, 1e6},
    {GROUP_SEEK, "al", NULL, "X,..", "those of the low one, with the ah found (default 0,0.02,0.04,0.06,0.08,0.1)",
     KIND_FLOATS, .offset = offsetof(calibrate_options, al), 0, 1e6},
    {GROUP_SEEK, "goal", NULL, "GOAL", "bytes: the fewest within --tolerance; accuracy: the best (default bytes)",
     KIND_WORD, .offset = offsetof(calibrate_options, goal), .words = goals},
    {GROUP_SEEK, "tolerance", NULL, "X", "accuracy that may be lost against f16, of 1 (default 0.005)",
     KIND_F32, .offset = offsetof(calibrate_options, tolerance), 0, 1},
    FORMAT_ROW(score_options),
    OUTPUT_ROW(score_options, "the profile (default: the model's path with .leankv.json for .gguf)"),
    QUIET_ROWS(score_options),
};
/* clang-format on */

static const option_demand demands[] = {
    NO_MODEL,
    {"tasks", "nothing to measure accuracy with: give --tasks FILE, as eval/tasks.jsonl"},
};

static void set_defaults(void *opts) {
    calibrate_options *o = opts;
    score_defaults(&o->score);
    o->score.text_windows = DEFAULT_TEXT_WINDOWS;
    o->tolerance = 0.005f;
    o->score.load.ignores_shipped = 1; /* what is sought does not depend on what was found */
}

/* ---- the work so far ------------------------------------------------------------------------- */

typedef struct calibration {
    calibrate_options *own;
    score_options *o; /* own's */
    evaluation e;     /* model and tasks */
    output out;
    char *path; /* of the profile */
    pleat_spec base;
    float_list ah, al;
    profile p;
    uint32_t n_measured;      /* in this run */
    uint32_t n_seen, n_parts; /* points before this one, f16 among them; all of them */
} calibration;

/* ---- points ---------------------------------------------------------------------------------- */

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
    score_row row = {.kv = kv};
    uint64_t bytes, bytes_f16;
    (void)pleat_spec_parse(kv, &row.spec, NULL);
    progress_part(c->n_seen, c->n_parts);
    int code = score_tasks(c->o, &c->e.l, &c->e.set, &row);
    if (code == CLI_OK && c->o->text) code = score_text(c->o, &c->e.l, c->o->text, &row, 1);
    if (code != CLI_OK) return code;
    score_bytes(&c->e, &row, &bytes, &bytes_f16);
    snprintf(out->kv, sizeof out->kv, "%s", kv);
    out->accuracy = score_accuracy(&c->e, &row);
    out->perplexity = score_perplexity(&row);
    out->fraction = score_quotient((double)bytes, (double)bytes_f16);
    out->seconds = row.seconds;
    c->n_measured++;
    return CLI_OK;
}

static void say(const calibration *c, const profile_point *p, const char *kv, int is_new) {
    if (c->o->common.quiet) return;
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

/* ---- the choice ------------------------------------------------------------------------------ */

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
    c->n_parts = 1 + c->ah.n + c->al.n;
    int code = add_f16(c);
    for (uint32_t i = 0; i < c->ah.n && code == CLI_OK; i++) {
        c->n_seen = 1 + i;
        code = add_point(c, c->ah.v[i], 0);
    }
    if (code != CLI_OK) return code;
    (void)pleat_spec_parse(best(c, 0)->kv, &spec, NULL);
    for (uint32_t i = 0; i < c->al.n && code == CLI_OK; i++) {
        c->n_seen = 1 + c->ah.n + i;
        if (c->al.v[i] <= spec.ah)
            code = add_point(c, spec.ah, c->al.v[i]);
        else if (!c->o->common.quiet)
            cli_note("al=%g is left out: it is above ah=%g, the best", (double)c->al.v[i], (double)spec.ah);
    }
    if (code != CLI_OK) return code;
    choose(c);
    c->p.is_complete = 1;
    return profile_write(&c->p, c->path);
}

/* ---- before ---------------------------------------------------------------------------------- */

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
    const score_options *o = c->o;
    profile_settings *s = &p->settings;
    memset(p, 0, sizeof *p);
    profile_copy_name(p->model, c->e.l.info.name);
    (void)pleat_model_fingerprint(c->e.l.model, p->fingerprint);
    p->goal = c->own->goal;
    p->tolerance = (double)c->own->tolerance;
    text_of(c, c->ah.v[0], 0, p->kv);
    s->samples = o->samples;
    s->text_windows = o->text ? o->text_windows : 0;
    s->ctx_window = o->text ? o->ctx_window : 0;
    s->batch_size = o->load.chunk_tokens;
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
    if (code == CLI_OK && !profile_is_of(old, c->path, c->e.l.model, c->e.l.info.name)) code = CLI_FAILED;
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
        if (!c->o->common.quiet)
            cli_note("%s has points already (%u), which are not measured again", c->path, old->n_points + old->has_f16);
    }
    free(old);
    return code;
}

/* -o, or the model's path with another ending. */
static char *profile_path(const score_options *o) {
    if (o->common.output) return cli_copy(o->common.output, strlen(o->common.output));
    return profile_path_beside(o->load.model);
}

/* A path that no spec can name is no error, but worth to know before hours of work. */
static void note_path(const calibration *c) {
    char text[PLEAT_SPEC_TEXT_CAP];
    pleat_spec spec;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    const int n = snprintf(text, sizeof text, "leankv:profile=%s", c->path);
    const int is_named = n < (int)sizeof text && pleat_spec_parse(text, &spec, &err) == PLEAT_OK;
    if ((!is_named || strchr(c->path, ' ')) && !c->o->common.quiet)
        cli_note("--kv leankv:profile=FILE cannot name %s, which is too long or holds a ',', a '+' or a space",
                 c->path);
}

static int check_usage(calibration *c) {
    score_options *o = c->o;
    static const char *const default_specs[] = {"leankv", NULL};
    static const float default_ah[] = {0, 1, 2, 3, 5, 10, 20, 30}, default_al[] = {0, 0.02f, 0.04f, 0.06f, 0.08f, 0.1f};
    options_default_specs(&o->load.kv, default_specs);
    if (o->load.kv.spec[0].policy != PLEAT_POLICY_LEANKV) {
        cli_error("--kv '%s': only leankv has thresholds to calibrate", o->load.kv.text[0]);
        return CLI_USAGE;
    }
    if (o->common.output && !strcmp(o->common.output, "-")) {
        cli_error("-o -: the profile is read again and needs a file; the table goes to stdout");
        return CLI_USAGE;
    }
    c->ah = c->own->ah;
    c->al = c->own->al;
    while (!c->own->ah.n && c->ah.n < sizeof default_ah / sizeof default_ah[0])
        c->ah.v[c->ah.n] = default_ah[c->ah.n], c->ah.n++;
    while (!c->own->al.n && c->al.n < sizeof default_al / sizeof default_al[0])
        c->al.v[c->al.n] = default_al[c->al.n], c->al.n++;
    return CLI_OK;
}

static int prepare(calibration *c) {
    score_options *o = c->o;
    int code = check_usage(c);
    if (code != CLI_OK) return code;
    c->path = profile_path(o);
    o->common.output = NULL; /* the table goes to stdout */
    if (!o->common.n_outputs) options_add_output(&o->common, "output", c->path);
    code = output_check_names(&o->common);
    if (code == CLI_OK) code = load_model(&o->load, &o->common, &c->e.l);
    c->base = o->load.kv.spec[0]; /* without the profile's name, if it had one */
    if (code == CLI_OK) code = describe(c, &c->p);
    if (code == CLI_OK) code = resume(c);
    if (code == CLI_OK) code = tasks_load(&c->e.set, &c->e.l, o->tasks, o->samples);
    if (code == CLI_OK) code = output_open(&c->out, &o->common);
    if (code != CLI_OK) return code;
    note_path(c);
    return profile_write(&c->p, c->path); /* that it can be is known before the work */
}

/* ---- after ----------------------------------------------------------------------------------- */

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
    if (c->o->common.format == FORMAT_JSON)
        output_json(&c->out, profile_json(&c->p));
    else
        write_table(c);
    if (c->o->common.quiet) return;
    fflush(c->out.file);
    if (c->p.goal == GOAL_BYTES && !is_near_f16(c, chosen))
        cli_note("no point is within %g of f16's accuracy: the most accurate was chosen", c->p.tolerance);
    fprintf(stderr, "\nchosen     %s\nprofile    %s, for --kv leankv:profile=%s\n", c->p.kv, c->path, c->path);
}

/* Ctrl-C: what is kept, and how to go on. */
static void say_interrupted(const calibration *c) {
    const uint32_t n = c->p.n_points + (c->p.has_f16 ? 1 : 0);
    if (n)
        cli_error("interrupted: %s keeps the %u point%s measured so far; the same command goes on from there", c->path,
                  n, n == 1 ? "" : "s");
    else
        cli_error("interrupted before the first point was measured; the same command begins again");
}

static int run(void *opts) {
    calibration *c = cli_alloc(1, sizeof *c);
    c->own = opts;
    c->o = &c->own->score;
    c->e.o = c->o;
    int code = prepare(c);
    interrupt_catch();
    if (code == CLI_OK) code = sweep(c);
    if (code == CLI_INTERRUPTED) say_interrupted(c);
    if (code == CLI_OK) report(c);
    const int closed = output_close(&c->out);
    tasks_release(&c->e.set);
    load_release(&c->e.l);
    free(c->path);
    free(c);
    return code == CLI_OK ? closed : code;
}

const command calibrate_command = {
    .name = "calibrate",
    .help = "find leankv's thresholds for a model, and write a profile",
    .usage = "-m MODEL --tasks FILE [--text FILE] [--kv leankv:...] [--ah X,..] [--al X,..] [-o PROFILE]",
    .about = "Measures leankv with each threshold for tokens in the high format, then with each for tokens in the low "
             "one, and writes the best to a profile that --kv leankv:profile=FILE reads.  Started again, it goes on "
             "where it was.",
    ROWS_OF(rows),
    DEMANDS_OF(demands),
    .options_bytes = sizeof(calibrate_options),
    .set_defaults = set_defaults,
    .run = run,
};
