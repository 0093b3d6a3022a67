/* SPDX-License-Identifier: MIT
 *
 * report.c: see report.h.
 */
#include "report.h"

#include <string.h>
#include <sys/stat.h>

#include "cli/lib/common.h"
#include "cli/lib/whole_file.h"
#include "page.h"

/* ---- the file ---------------------------------------------------------------------------------- */

/* The text is read once for the rows and once for the report. */
static int is_text_rereadable(const score_options *o) {
    struct stat info;
    if (!o->text || (strcmp(o->text, "-") != 0 && (stat(o->text, &info) != 0 || S_ISREG(info.st_mode)))) return 1;
    cli_error("--report reads the text twice: --text %s must be a regular file", o->text);
    return 0;
}

int report_check(const score_options *o, const char *path) {
    if (!is_text_rereadable(o)) return CLI_USAGE;
    return whole_file_check(path);
}

/* ---- the report -------------------------------------------------------------------------------- */

report_data *report_begin(evaluation *e, const char *path) {
    report_data *d = report_data_create(e);
    d->path = path;
    for (uint32_t i = 0; i < e->o->load.kv.n; i++)
        if (e->rows[i].spec.policy != PLEAT_POLICY_NONE) e->rows[i].watch = report_watch_kept(d, i);
    return d;
}

void report_unwatch(evaluation *e) {
    for (uint32_t i = 0; i < e->o->load.kv.n; i++) e->rows[i].watch.request_ended = NULL;
}

int report_finish(report_data *d, evaluation *e) {
    whole_file out;
    int code = report_gather(d, e);
    if (code == CLI_OK) code = whole_file_open(&out, d->path);
    if (code != CLI_OK) return code;
    report_write_page(out.file, e, d);
    return whole_file_close(&out);
}

void report_release(report_data **report) { report_data_destroy(report); }
