/* SPDX-License-Identifier: MIT
 *
 * log.c: see log.h.
 */
#include "log.h"

/* A path is printable ASCII (http.c), and a method letters. */
static void print_quoted(FILE *f, const char *text) {
    fputc('"', f);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', f);
        fputc(*text, f);
    }
    fputc('"', f);
}

static void print_json(FILE *f, const char *at, const connection_done *d) {
    fprintf(f, "{\"time\": \"%s\", \"id\": %llu, \"method\": ", at, (unsigned long long)d->id);
    print_quoted(f, d->method);
    fputs(", \"path\": ", f);
    print_quoted(f, d->path);
    fprintf(f, ", \"status\": %d, \"ms\": %.3f, \"left\": %s}\n", d->status, 1e3 * d->seconds,
            d->has_left ? "true" : "false");
}

void request_log(FILE *f, log_format format, time_t now, const connection_done *d) {
    char at[32];
    struct tm tm;
    if (format == LOG_NONE) return;
    strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    if (format == LOG_JSON)
        print_json(f, at, d);
    else
        fprintf(f, "%s %llu %s %s %d %.3f ms%s\n", at, (unsigned long long)d->id, d->method[0] ? d->method : "-",
                d->path[0] ? d->path : "-", d->status, 1e3 * d->seconds, d->has_left ? ", left" : "");
    fflush(f);
}
