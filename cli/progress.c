/* SPDX-License-Identifier: MIT
 *
 * progress.c: see progress.h.
 *
 *     reading the prompt [=========>          ] 1536/3400  2 s left
 */
#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common.h"

static const double draw_every_s = 0.1;
static const double look_after_s = 0.2; /* enough work to foretell the rest from */
static const double short_work_s = 1.0; /* work that is expected to take less draws nothing */

static struct {
    const char *label; /* NULL: no line, or none wanted */
    uint64_t total;
    double start_s, drawn_s;
    int is_drawn;
} line;

void progress_begin(const char *label, uint64_t total, int show) {
    memset(&line, 0, sizeof line);
    if (!show || !total || !isatty(STDERR_FILENO)) return;
    line.label = label;
    line.total = total;
    line.start_s = cli_seconds();
}

static void draw(uint64_t done, double left_s) {
    enum { WIDTH = 24 };
    char bar[WIDTH + 1];
    const uint64_t filled = done >= line.total ? WIDTH : done * WIDTH / line.total;
    for (uint64_t i = 0; i < WIDTH; i++) bar[i] = i < filled ? '=' : i == filled ? '>' : ' ';
    bar[WIDTH] = 0;
    fprintf(stderr, "\r%s [%s] %llu/%llu  %.0f s left\033[K", line.label, bar, (unsigned long long)done,
            (unsigned long long)line.total, left_s);
    fflush(stderr);
    line.is_drawn = 1;
}

void progress_update(uint64_t done) {
    if (!line.label || !done) return;
    const double now_s = cli_seconds(), spent_s = now_s - line.start_s;
    const double left_s = done >= line.total ? 0 : spent_s * (double)(line.total - done) / (double)done;
    if (spent_s < look_after_s || spent_s + left_s < short_work_s || now_s - line.drawn_s < draw_every_s) return;
    line.drawn_s = now_s;
    draw(done, left_s);
}

void progress_clear(void) {
    if (!line.is_drawn) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    line.is_drawn = 0;
}

void progress_end(void) {
    progress_clear();
    line.label = NULL;
}
