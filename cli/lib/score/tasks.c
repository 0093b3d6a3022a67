/* SPDX-License-Identifier: MIT
 *
 * tasks.c: see tasks.h.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"
#include "tasks_internal.h"

/* Index of the task's name, added if new; TASKS_CAP when there are too many. */
static uint32_t task_index(task_set *set, const char *name) {
    uint32_t i = 0;
    while (i < set->n_tasks && strcmp(set->names[i], name) != 0) i++;
    if (i == set->n_tasks && i < TASKS_CAP) set->names[set->n_tasks++] = cli_copy(name, strlen(name));
    return i;
}

static sample *add_sample(task_set *set) {
    if (set->n_samples == set->cap) {
        const uint32_t cap = set->cap ? set->cap * 2 : 256;
        sample *grown = cli_alloc(cap, sizeof *grown);
        if (set->n_samples) memcpy(grown, set->samples, set->n_samples * sizeof *grown);
        free(set->samples);
        set->samples = grown;
        set->cap = cap;
    }
    return &set->samples[set->n_samples++];
}

static int read_turns(const place *at, const loaded *l, json_t *turns, int is_unseen, sample *s) {
    if (!json_is_array(turns) || json_array_size(turns) == 0) {
        cli_error("%s, line %u: \"turns\" is not a list of turns", at->path, at->line);
        return 0;
    }
    s->n_turns = (uint32_t)json_array_size(turns);
    s->turns = cli_alloc(s->n_turns, sizeof *s->turns);
    for (uint32_t i = 0; i < s->n_turns; i++)
        if (!tasks_read_turn(at, l, json_array_get(turns, i), i, is_unseen, &s->turns[i])) return 0;
    return 1;
}

/* Read the line's turns, of either form. */
static int read_content(const place *at, const loaded *l, json_t *object, int is_unseen, sample *s) {
    static const char *const keys[] = {"id", "task", "turns", NULL};
    if (!json_object_get(object, "document"))
        return tasks_has_keys(at, object, keys, 3, "the line") &&
               read_turns(at, l, json_object_get(object, "turns"), is_unseen, s);
    s->n_turns = 1;
    s->turns = cli_alloc(1, sizeof *s->turns);
    return tasks_read_document(at, l, object, is_unseen, &s->turns[0]);
}

/* Count the sample's tokens.  What is too long for the model's context is left out if any model may be asked it, and a
 * mistake if it was written for this one. */
static int check_length(const place *at, const loaded *l, sample *s, int is_unseen, int *is_out) {
    uint64_t n_tokens = 0;
    for (uint32_t i = 0; i < s->n_turns; i++) n_tokens += (uint64_t)s->turns[i].n_prompt + s->turns[i].n_answer;
    const int is_long = n_tokens > l->info.n_ctx;
    *is_out = (is_long && s->turns[0].n_texts) || (is_unseen && s->turns[0].n_document == 0);
    s->n_tokens = (uint32_t)n_tokens;
    if (!is_long || *is_out) return 1;
    cli_error("%s, line %u: %s needs %llu tokens, the model's context is %u", at->path, at->line, s->id,
              (unsigned long long)n_tokens, l->info.n_ctx);
    return 0;
}

/* Whether no line before has this id; a repeated one counts an answer twice. */
static int is_new_id(json_t *ids, const place *at, const char *id) {
    const json_t *line = json_object_get(ids, id);
    if (line) {
        cli_error("%s, line %u: the id '%s' is line %lld's", at->path, at->line, id,
                  (long long)json_integer_value(line));
        return 0;
    }
    return json_object_set_new(ids, id, json_integer(at->line)) == 0;
}

static void release_sample(sample *s) {
    for (uint32_t j = 0; s->turns && j < s->n_turns; j++) tasks_release_turn(&s->turns[j]);
    free(s->turns);
    free(s->id);
    memset(s, 0, sizeof *s);
}

static int read_sample(task_set *set, json_t *ids, const place *at, const loaded *l, json_t *object,
                       const tasks_wanted *w) {
    int is_out;
    if (!json_is_object(object) || !json_object_get(object, "id") || !json_object_get(object, "task"))
        return tasks_has_keys(at, object, (const char *const[]){"id", "task", "turns", NULL}, 3, "the line");
    if (!tasks_is_text(at, object, "id") || !tasks_is_text(at, object, "task")) return 0;
    const char *id = json_string_value(json_object_get(object, "id"));
    if (!is_new_id(ids, at, id)) return 0;
    const uint32_t task = task_index(set, json_string_value(json_object_get(object, "task")));
    if (task == TASKS_CAP) {
        cli_error("%s, line %u: more than %d tasks", at->path, at->line, TASKS_CAP);
        return 0;
    }
    if (w->per_task && set->n_seen[task] == w->per_task) return 1;
    if (!half_has_sample(w->half, set->n_seen[task]++, id)) return 1;
    sample *s = add_sample(set);
    s->id = cli_copy(id, strlen(id));
    s->task = task;
    if (!read_content(at, l, object, w->is_unseen, s) || !check_length(at, l, s, w->is_unseen, &is_out)) return 0;
    if (is_out) {
        release_sample(s);
        set->n_samples--;
        set->n_left_out[task]++;
        set->n_out++;
        return 1;
    }
    set->n_of[task]++;
    if (s->n_tokens > set->max_tokens) set->max_tokens = s->n_tokens;
    return 1;
}

static int read_line(task_set *set, json_t *ids, const place *at, const loaded *l, const char *line, size_t n,
                     const tasks_wanted *w) {
    json_error_t err;
    json_t *object = json_loadb(line, n, JSON_REJECT_DUPLICATES, &err);
    if (!object) {
        cli_error("%s, line %u, column %d: %s", at->path, at->line, err.column, err.text);
        return 0;
    }
    const int ok = read_sample(set, ids, at, l, object, w);
    json_decref(object);
    return ok;
}

static int is_blank(const char *line, size_t n) {
    while (n > 0 && isspace((unsigned char)line[n - 1])) n--;
    return n == 0;
}

/* <|im_end|>'s id, or -1 when the model has none. */
static pleat_token find_end(const loaded *l) {
    static const char text[] = "<|im_end|>";
    pleat_token id = -1;
    uint32_t n = 0;
    const pleat_status status =
        pleat_model_tokenize(l->model, text, sizeof text - 1, PLEAT_TOKENIZE_SPECIAL, &id, 1, &n, NULL);
    return status == PLEAT_OK && n == 1 && pleat_model_token_is_special(l->model, id) ? id : -1;
}

void tasks_number(task_set *set) {
    set->n_turns = set->n_open = 0;
    set->n_answers = 0;
    for (uint32_t i = 0; i < set->n_samples; i++)
        for (uint32_t j = 0; j < set->samples[i].n_turns; j++) {
            turn *t = &set->samples[i].turns[j];
            t->index = set->n_turns++;
            t->first = set->n_answers;
            set->n_open += t->n_texts > 0;
            set->n_answers += t->n_answer + 1ull;
        }
}

/* ---- what is left out, and what a half lacks ------------------------------------------------------- */

/* Say which samples are left out, and forget the tasks that have no other. */
static void drop_left_out(task_set *set, const char *path, const tasks_wanted *w) {
    uint32_t to[TASKS_CAP], n = 0;
    for (uint32_t t = 0; t < set->n_tasks; t++) {
        const uint32_t n_out = set->n_left_out[t];
        if (n_out && !w->is_quiet)
            cli_note("%s: %u sample%s of %s %s left out: %s", path, n_out, n_out == 1 ? "" : "s", set->names[t],
                     n_out == 1 ? "is" : "are",
                     w->is_unseen ? "no document stands in front of a question, or it is longer than the context"
                                  : "longer than the model's context");
        to[t] = n;
        if (n_out && set->n_of[t] == 0) {
            free(set->names[t]);
            continue;
        }
        set->names[n] = set->names[t];
        set->n_of[n] = set->n_of[t];
        set->n_seen[n] = set->n_seen[t];
        set->n_left_out[n++] = n_out;
    }
    set->n_tasks = n;
    for (uint32_t i = 0; i < set->n_samples; i++) set->samples[i].task = to[set->samples[i].task];
}

/* No task without a sample: its accuracy would be none, and the mean over tasks, too. */
static int has_all_tasks(const task_set *set, const char *path, sample_half half) {
    if (set->n_tasks == 0) cli_error("%s: no samples%s", path, set->n_out ? " but those that are left out" : "");
    for (uint32_t t = 0; t < set->n_tasks; t++) {
        if (set->n_of[t] > 0) continue;
        cli_error("%s: the %s half of task '%s' has no sample: of %u there is none %s%s%s", path, half_names[half],
                  set->names[t], set->n_seen[t], half_is_by_place(half) ? "at an " : "that ",
                  half_is_by_place(half) ? half_names[half]
                  : half == HALF_SHOW    ? "shows"
                                         : "chooses",
                  half_is_by_place(half) ? " place" : "");
        return 0;
    }
    return set->n_tasks > 0;
}

int tasks_load(task_set *set, const loaded *l, const char *path, const tasks_wanted *w) {
    place at = {path, 0};
    char *text;
    size_t n_bytes;
    memset(set, 0, sizeof *set);
    if (cli_read_file(CONTENT_TASKS, path, &text, &n_bytes) != CLI_OK) return CLI_FAILED;
    set->end = find_end(l);
    json_t *ids = json_object(); /* each with its line */
    int ok = 1;
    for (size_t start = 0; start < n_bytes && ok;) {
        const char *newline = memchr(text + start, '\n', n_bytes - start);
        const size_t n = newline ? (size_t)(newline - (text + start)) : n_bytes - start;
        at.line++;
        if (!is_blank(text + start, n)) ok = read_line(set, ids, &at, l, text + start, n, w);
        start += n + 1;
    }
    json_decref(ids);
    free(text);
    if (ok) drop_left_out(set, path, w);
    ok = ok && has_all_tasks(set, path, w->half);
    if (ok) tasks_number(set);
    return ok ? CLI_OK : CLI_FAILED;
}

void tasks_release(task_set *set) {
    for (uint32_t i = 0; i < set->n_samples; i++) release_sample(&set->samples[i]);
    for (uint32_t i = 0; i < set->n_tasks; i++) free(set->names[i]);
    free(set->samples);
    memset(set, 0, sizeof *set);
}
