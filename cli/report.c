/* SPDX-License-Identifier: MIT
 *
 * report.c: see report.h.
 */
#include "report.h"

#include <string.h>
#include <sys/stat.h>

#include "common.h"
#include "report_page.h"
#include "whole_file.h"

/* ---- the file ---------------------------------------------------------------------------------- */

/* Whether both paths name one file, be it there already or not. */
static int is_same_file(const char *a, const char *b) {
    struct stat sa, sb;
    if (!strcmp(a, b)) return 1;
    return stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

/* The text is read once for the rows and once for the report. */
static int is_text_rereadable(const options *o) {
    struct stat info;
    if (!o->text || (strcmp(o->text, "-") != 0 && (stat(o->text, &info) != 0 || S_ISREG(info.st_mode)))) return 1;
    cli_error("--report reads the text twice: --text %s must be a regular file", o->text);
    return 0;
}

/* A file of the command's own that --report names too, or NULL.  Profiles have not been read yet. */
static const char *other_use(const options *o) {
    const char *const others[] = {o->model, o->tasks, o->text, o->output};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i] && is_same_file(o->report, others[i])) return others[i];
    for (uint32_t i = 0; i < o->kv.n; i++)
        if (o->kv.spec[i].profile[0] && is_same_file(o->report, o->kv.spec[i].profile)) return o->kv.spec[i].profile;
    return NULL;
}

int report_check(const options *o) {
    if (other_use(o)) {
        cli_error("--report: cannot write %s: it is the same file as %s", o->report, other_use(o));
        return CLI_FAILED;
    }
    if (!is_text_rereadable(o)) return CLI_USAGE;
    return whole_file_check(o->report);
}

/* ---- the report -------------------------------------------------------------------------------- */

report_data *report_begin(evaluation *e) {
    report_data *d = report_data_create(e);
    for (uint32_t i = 0; i < e->o->kv.n; i++)
        if (e->rows[i].spec.policy != PLEAT_POLICY_NONE) e->rows[i].watch = report_watch_kept(d, i);
    return d;
}

void report_unwatch(evaluation *e) {
    for (uint32_t i = 0; i < e->o->kv.n; i++) e->rows[i].watch.request_ended = NULL;
}

int report_finish(report_data *d, evaluation *e) {
    whole_file out;
    int code = report_gather(d, e);
    if (code == CLI_OK) code = whole_file_open(&out, e->o->report);
    if (code != CLI_OK) return code;
    report_write_page(out.file, e, d);
    return whole_file_close(&out);
}

void report_release(report_data **report) { report_data_destroy(report); }
