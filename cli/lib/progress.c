/* SPDX-License-Identifier: MIT
 *
 * progress.c: see progress.h.
 *
 *     reading the prompt [=========>          ] 1536/3400  2 s left
 *
 * Labels are ASCII: a byte is a column.
 */
#include "progress.h"

#include <stdio.h>
#include <string.h>

#include "measure.h"
#include "terminal.h"

static const double draw_every_s = 0.1;
static const double look_after_s = 0.2; /* enough work to foretell the rest from */
static const double short_work_s = 1.0; /* work that is expected to take less draws nothing */

static struct {
    const char *label;      /* NULL: no line, or none wanted */
    uint64_t total, before; /* units; those that were done before it began */
    double start_s, drawn_s;
    int is_drawn;
} line;

static struct {
    uint32_t part, n_parts;
    double start_s; /* of part 0, or of the first that was named */
    uint32_t first;
} whole;

void progress_part(uint32_t part, uint32_t n_parts) {
    if (whole.n_parts != n_parts || part < whole.part) {
        whole.start_s = measure_now_s();
        whole.first = part;
    }
    whole.part = part;
    whole.n_parts = n_parts;
}

/* ", 2 of 5 (3:20 left in all)", or "": no less than this part has left, though parts before took less. */
static void say_whole(char *out, size_t cap, uint64_t done, double part_left_s) {
    out[0] = 0;
    if (whole.n_parts < 2) return;
    const double parts = (double)(whole.part - whole.first) + (double)done / (double)line.total;
    const double spent_s = measure_now_s() - whole.start_s;
    const double whole_left_s = spent_s / parts * ((double)(whole.n_parts - whole.first) - parts);
    const double left_s = whole_left_s > part_left_s ? whole_left_s : part_left_s;
    const unsigned long left = left_s > 0 ? (unsigned long)left_s : 0;
    snprintf(out, cap, ", %u of %u (%lu:%02lu left in all)", whole.part + 1, whole.n_parts, left / 60, left % 60);
}

void progress_begin(const char *label, uint64_t total, int show) {
    memset(&line, 0, sizeof line);
    if (!show || !total || !terminal_can_redraw(stderr)) return;
    line.label = label;
    line.total = total;
    line.start_s = measure_now_s();
}

void progress_resume(uint64_t done) { line.before = done < line.total ? done : 0; }

/* A line that is longer than the terminal cannot be drawn over: the bar goes first, then the label's end. */
static void draw(uint64_t done, double left_s) {
    enum { WIDTH = 24 };
    char bar[] = " [                        ]", all[80], left[160];
    const uint64_t filled = done >= line.total ? WIDTH : done * WIDTH / line.total;
    for (uint64_t i = 0; i < WIDTH; i++) bar[2 + i] = i < filled ? '=' : i == filled ? '>' : ' ';
    say_whole(all, sizeof all, done, left_s);
    snprintf(left, sizeof left, " %llu/%llu  %.0f s left%s", (unsigned long long)done, (unsigned long long)line.total,
             left_s, all);
    const uint32_t columns = terminal_columns(stderr) - 1;
    size_t n_label = strlen(line.label);
    if (n_label + strlen(bar) + strlen(left) > columns) bar[0] = 0;
    while (n_label && n_label + strlen(bar) + strlen(left) > columns) n_label--;
    fprintf(stderr, "\r%.*s%s%s\033[K", (int)n_label, line.label, bar, left);
    fflush(stderr);
    line.is_drawn = 1;
}

void progress_update(uint64_t done) {
    if (!line.label || done <= line.before) return;
    const double now_s = measure_now_s(), spent_s = now_s - line.start_s;
    const double left_s = done >= line.total ? 0 : spent_s * (double)(line.total - done) / (double)(done - line.before);
    if (spent_s < look_after_s || (whole.n_parts < 2 && spent_s + left_s < short_work_s) ||
        now_s - line.drawn_s < draw_every_s)
        return;
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
