/* SPDX-License-Identifier: MIT
 *
 * tasks.c: see tasks.h.
 */
#include "tasks.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"

/* Where in which file a message points. */
typedef struct place {
    const char *path;
    unsigned line;
} place;

/* Which samples of each task. */
typedef struct wanted {
    uint32_t per_task; /* the first of them; 0: all */
    sample_half half;
} wanted;

/* The object has exactly the keys named; a misspelled one would be left out silently. */
static int has_keys(const place *at, json_t *object, const char *const *keys, uint32_t n_keys, const char *what) {
    const char *key;
    json_t *value;
    if (!json_is_object(object)) {
        cli_error("%s, line %u: %s is not an object", at->path, at->line, what);
        return 0;
    }
    for (uint32_t i = 0; i < n_keys; i++)
        if (!json_object_get(object, keys[i])) {
            cli_error("%s, line %u: %s has no \"%s\"", at->path, at->line, what, keys[i]);
            return 0;
        }
    json_object_foreach(object, key, value) {
        const char *nearest = keys[cli_nearest(key, keys, n_keys)];
        if (strcmp(key, nearest) != 0) {
            char hint[HINT_CAP];
            cli_error("%s, line %u: %s has an unknown \"%s\"%s", at->path, at->line, what, key,
                      cli_hint(hint, " known", key, nearest));
            return 0;
        }
    }
    return 1;
}

static int is_text(const place *at, json_t *object, const char *key) {
    if (json_is_string(json_object_get(object, key))) return 1;
    cli_error("%s, line %u: \"%s\" is not a text", at->path, at->line, key);
    return 0;
}

static int to_tokens(const place *at, const loaded *l, json_t *text, uint32_t flags, pleat_token **ids, uint32_t *n) {
    char what[160];
    snprintf(what, sizeof what, "%s, line %u", at->path, at->line);
    if (load_tokens(l, what, json_string_value(text), json_string_length(text), flags, ids, n) != CLI_OK) return 0;
    if (*n == 0) cli_error("%s: an empty text", what);
    return *n > 0;
}

static int read_turn(const place *at, const loaded *l, json_t *object, uint32_t index, turn *t) {
    static const char *const keys[] = {"prompt", "answer"};
    const uint32_t flags = PLEAT_TOKENIZE_SPECIAL | (index == 0 ? PLEAT_TOKENIZE_ADD_BOS : 0);
    return has_keys(at, object, keys, 2, "a turn") && is_text(at, object, "prompt") && is_text(at, object, "answer") &&
           to_tokens(at, l, json_object_get(object, "prompt"), flags, &t->prompt, &t->n_prompt) &&
           to_tokens(at, l, json_object_get(object, "answer"), 0, &t->answer, &t->n_answer);
}

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

static int read_turns(const place *at, const loaded *l, json_t *turns, sample *s) {
    uint64_t n_tokens = 0;
    if (!json_is_array(turns) || json_array_size(turns) == 0) {
        cli_error("%s, line %u: \"turns\" is not a list of turns", at->path, at->line);
        return 0;
    }
    s->n_turns = (uint32_t)json_array_size(turns);
    s->turns = cli_alloc(s->n_turns, sizeof *s->turns);
    for (uint32_t i = 0; i < s->n_turns; i++) {
        if (!read_turn(at, l, json_array_get(turns, i), i, &s->turns[i])) return 0;
        n_tokens += (uint64_t)s->turns[i].n_prompt + s->turns[i].n_answer;
    }
    if (n_tokens > l->info.n_ctx) {
        cli_error("%s, line %u: %s needs %llu tokens, the model's context is %u", at->path, at->line, s->id,
                  (unsigned long long)n_tokens, l->info.n_ctx);
        return 0;
    }
    s->n_tokens = (uint32_t)n_tokens;
    return 1;
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

static int read_sample(task_set *set, json_t *ids, const place *at, const loaded *l, json_t *object, const wanted *w) {
    static const char *const keys[] = {"id", "task", "turns"};
    if (!has_keys(at, object, keys, 3, "the line") || !is_text(at, object, "id") || !is_text(at, object, "task"))
        return 0;
    const char *id = json_string_value(json_object_get(object, "id"));
    if (!is_new_id(ids, at, id)) return 0;
    const uint32_t task = task_index(set, json_string_value(json_object_get(object, "task")));
    if (task == TASKS_CAP) {
        cli_error("%s, line %u: more than %d tasks", at->path, at->line, TASKS_CAP);
        return 0;
    }
    if (w->per_task && set->n_seen[task] == w->per_task) return 1;
    if (!half_has(w->half, set->n_seen[task]++)) return 1;
    sample *s = add_sample(set);
    s->id = cli_copy(id, strlen(id));
    s->task = task;
    set->n_of[task]++;
    if (!read_turns(at, l, json_object_get(object, "turns"), s)) return 0;
    if (s->n_tokens > set->max_tokens) set->max_tokens = s->n_tokens;
    return 1;
}

static int read_line(task_set *set, json_t *ids, const place *at, const loaded *l, const char *line, size_t n,
                     const wanted *w) {
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

/* Say of each turn where it stands among all of them. */
static void number_turns(task_set *set) {
    for (uint32_t i = 0; i < set->n_samples; i++)
        for (uint32_t j = 0; j < set->samples[i].n_turns; j++) {
            turn *t = &set->samples[i].turns[j];
            t->index = set->n_turns++;
            t->first = set->n_answers;
            set->n_answers += t->n_answer + 1ull;
        }
}

/* No task without a sample: its accuracy would be none, and the mean over tasks, too. */
static int has_all_tasks(const task_set *set, const char *path, sample_half half) {
    if (set->n_tasks == 0) cli_error("%s: no samples", path);
    for (uint32_t t = 0; t < set->n_tasks; t++) {
        if (set->n_of[t] > 0) continue;
        cli_error("%s: the %s half of task '%s' has no sample: of %u there is none at an %s place", path,
                  half_names[half], set->names[t], set->n_seen[t], half_names[half]);
        return 0;
    }
    return set->n_tasks > 0;
}

int tasks_load(task_set *set, const loaded *l, const char *path, uint32_t per_task, sample_half half) {
    const wanted w = {per_task, half};
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
        if (!is_blank(text + start, n)) ok = read_line(set, ids, &at, l, text + start, n, &w);
        start += n + 1;
    }
    json_decref(ids);
    free(text);
    ok = ok && has_all_tasks(set, path, half);
    if (ok) number_turns(set);
    return ok ? CLI_OK : CLI_FAILED;
}

void tasks_release(task_set *set) {
    for (uint32_t i = 0; i < set->n_samples; i++) {
        sample *s = &set->samples[i];
        for (uint32_t j = 0; s->turns && j < s->n_turns; j++) {
            free(s->turns[j].prompt);
            free(s->turns[j].answer);
        }
        free(s->turns);
        free(s->id);
    }
    for (uint32_t i = 0; i < set->n_tasks; i++) free(set->names[i]);
    free(set->samples);
    memset(set, 0, sizeof *set);
}
