/* SPDX-License-Identifier: MIT
 *
 * calibrate.c: `pleat calibrate`: its options, what it finds there, and the order of its work.  See calibration.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "calibration.h"
#include "cli/lib/common.h"
#include "cli/lib/interrupt.h"

enum { DEFAULT_TEXT_WINDOWS = 16 };

/* ---- options --------------------------------------------------------------------------------- */

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
    TEXT_WINDOWS_ROW(calibrate_options, score, "the first N windows of the text (default 16)"),
    HALF_ROW(calibrate_options, score,
             "choose, or another: that half of the samples and of the text chooses, the other shows the result; all: "
             "all choose (default choose)"),
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
    o->score.half = HALF_CHOOSE;
    o->score.load.ignores_shipped = 1; /* what is sought does not depend on what was found */
}

/* ---- the work ---------------------------------------------------------------------------------- */

static int add_point(calibration *c, float ah, float al) {
    char kv[PLEAT_SPEC_TEXT_CAP];
    const profile_point *point;
    points_text(c, ah, al, c->base.window, kv);
    return points_add(c, PART_CHOOSES, &c->p.curve, kv, &point);
}

/* f16, each ah, and each al with the best ah. */
static int sweep(calibration *c) {
    pleat_spec spec;
    int code = points_add_f16(c, PART_CHOOSES);
    for (uint32_t i = 0; i < c->ah.n && code == CLI_OK; i++) {
        c->n_seen = 1 + i;
        code = add_point(c, c->ah.v[i], 0);
    }
    if (code != CLI_OK) return code;
    (void)pleat_spec_parse(choice_best(c, 0)->kv, &spec, NULL);
    for (uint32_t i = 0; i < c->al.n && code == CLI_OK; i++) {
        c->n_seen = 1 + c->ah.n + i;
        if (c->al.v[i] <= spec.ah)
            code = add_point(c, spec.ah, c->al.v[i]);
        else if (!c->o->common.quiet)
            cli_note("al=%g is left out: it is above ah=%g, the best", (double)c->al.v[i], (double)spec.ah);
    }
    return code;
}

/* Measure f16, the best point and its control on the half that had no part in the choice. */
static int show(calibration *c) {
    const profile_point *point;
    if (c->p.settings.half == HALF_ALL) return CLI_OK;
    int code = points_add_f16(c, PART_SHOWS);
    c->n_seen++;
    if (code == CLI_OK) code = points_add(c, PART_SHOWS, &c->p.shown, c->p.best, &point);
    c->n_seen++;
    if (code == CLI_OK && c->p.control[0]) code = points_add(c, PART_SHOWS, &c->p.shown, c->p.control, &point);
    return code;
}

static int calibrate(calibration *c) {
    c->n_parts = 1 + c->ah.n + c->al.n + 1 + (c->p.settings.half == HALF_ALL ? 0 : 3);
    int code = sweep(c);
    c->n_seen = 1 + c->ah.n + c->al.n;
    if (code == CLI_OK) code = choice_make(c);
    c->n_seen++;
    if (code == CLI_OK) code = show(c);
    if (code != CLI_OK) return code;
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
    points_text(c, c->ah.v[0], 0, c->base.window, p->kv);
    s->samples = o->samples;
    s->text_windows = o->text ? o->text_windows : 0;
    s->ctx_window = o->text ? o->ctx_window : 0;
    s->batch_size = o->load.chunk_tokens;
    s->activations = load_activation_bits(&o->load);
    s->half = o->half;
    const int code = describe_file(o->tasks, s->tasks, &s->tasks_bytes);
    return code == CLI_OK && o->text ? describe_file(o->text, s->text, &s->text_bytes) : code;
}

/* What was not the same when the profile `old` was measured; NULL if all was. */
static const char *difference(const calibration *c, const profile *old) {
    const profile_settings *a = &c->p.settings, *b = &old->settings;
    const char *point = old->curve.n ? old->curve.at[0].kv : old->kv; /* a control's window is its own */
    pleat_spec spec;
    char kv[PLEAT_SPEC_TEXT_CAP];
    (void)pleat_spec_parse(point, &spec, NULL);
    points_text(c, spec.ah, spec.al, c->base.window, kv);
    if (strcmp(kv, point) != 0) return "another --kv";
    if (strcmp(a->tasks, b->tasks) != 0 || a->tasks_bytes != b->tasks_bytes) return "other --tasks";
    if (strcmp(a->text, b->text) != 0 || a->text_bytes != b->text_bytes) return "another --text";
    if (a->samples != b->samples) return "another --samples";
    if (a->text_windows != b->text_windows) return "another --text-windows";
    if (a->ctx_window != b->ctx_window) return "another --ctx-window";
    if (a->batch_size != b->batch_size) return "another --batch-size";
    if (a->activations != b->activations) return "other --activations";
    if (a->half != b->half) return "another --half";
    return NULL;
}

/* Take over what `old` has measured, and its choice, which holds until there is another. */
static void take_over(profile *p, const profile *old) {
    p->has_f16 = old->has_f16;
    p->f16 = old->f16;
    p->has_shown_f16 = old->has_shown_f16;
    p->shown_f16 = old->shown_f16;
    p->curve = old->curve;
    p->controls = old->controls;
    p->shown = old->shown;
    p->is_complete = old->is_complete;
    memcpy(p->kv, old->kv, sizeof p->kv);
    memcpy(p->best, old->best, sizeof p->best);
    memcpy(p->control, old->control, sizeof p->control);
}

/* Go on from the profile that is there already, if there is one. */
static int resume(calibration *c) {
    struct stat st;
    if (stat(c->path, &st) != 0) return CLI_OK;
    profile *old = cli_alloc(1, sizeof *old);
    int code = profile_read(c->path, old);
    if (code == CLI_OK && !profile_is_of(old, c->path, c->e.l.model, c->e.l.info.name)) code = CLI_FAILED;
    const char *what = code == CLI_OK ? difference(c, old) : NULL;
    if (what) {
        cli_error("profile %s was made with %s (%s%s%s)", c->path, what, old->kv,
                  old->settings.half == HALF_ALL ? "" : ", --half ",
                  old->settings.half == HALF_ALL ? ", --half all" : half_names[old->settings.half]);
        code = CLI_FAILED;
    }
    if (code != CLI_OK) {
        cli_error("%s stays as it is: remove it, or name another file with -o", c->path);
    } else {
        take_over(&c->p, old);
        if (!c->o->common.quiet)
            cli_note("%s has points already (%u), which are not measured again", c->path,
                     old->curve.n + old->controls.n + old->shown.n + old->has_f16 + old->has_shown_f16);
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

static int load_sets(calibration *c) {
    const score_options *o = c->o;
    const tasks_wanted chooses = {o->samples, o->half, 0, o->common.quiet};
    const tasks_wanted shows = {o->samples, half_other(o->half), 0, o->common.quiet};
    int code = tasks_load(&c->sets[PART_CHOOSES], &c->e.l, o->tasks, &chooses);
    if (code != CLI_OK || o->half == HALF_ALL) return code;
    code = tasks_load(&c->sets[PART_SHOWS], &c->e.l, o->tasks, &shows);
    if (code != CLI_OK) cli_error("one half chooses, the other shows the result: give more samples, or --half all");
    return code;
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
    if (code == CLI_OK) code = load_sets(c);
    if (code == CLI_OK) code = output_open(&c->out, &o->common);
    if (code != CLI_OK) return code;
    note_path(c);
    return profile_write(&c->p, c->path); /* that it can be is known before the work */
}

/* Ctrl-C: what is kept, and how to go on. */
static void say_interrupted(const calibration *c) {
    const profile *p = &c->p;
    const uint32_t n = p->curve.n + p->controls.n + p->shown.n + (p->has_f16 ? 1 : 0) + (p->has_shown_f16 ? 1 : 0);
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
    if (code == CLI_OK) code = calibrate(c);
    if (code == CLI_INTERRUPTED) say_interrupted(c);
    if (code == CLI_OK) print_report(c);
    const int closed = output_close(&c->out);
    tasks_release(&c->sets[PART_CHOOSES]);
    tasks_release(&c->sets[PART_SHOWS]);
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
             "one, and the best beside its control, which has as many bytes and no significance.  The better of these "
             "goes to a profile that --kv leankv:profile=FILE reads.  One half of the samples chooses, the other "
             "shows the result.  Started again, it goes on where it was.",
    ROWS_OF(rows),
    DEMANDS_OF(demands),
    .options_bytes = sizeof(calibrate_options),
    .set_defaults = set_defaults,
    .run = run,
};
