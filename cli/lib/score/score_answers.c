/* SPDX-License-Identifier: MIT
 *
 * score_answers.c: which token of an answer is right, which turns are, and what was answered.
 *
 *     a turn with its answer    its own tokens, then <|im_end|>: right
 *                               else: wrong from the first token that differs; what follows is not noted
 *     an open turn              each of its texts is right that stands in what was said, as a word: neither behind nor in
 *                               front of a letter or digit
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"
#include "cli/lib/whole_file.h"
#include "score.h"

/* Whether `token` may follow the answer's token number `at` - 1; `at` == n_answer: the end is due. */
static int is_right(const loaded *l, const task_set *set, const turn *t, uint32_t at, pleat_token token) {
    if (t->n_texts) return 1;
    if (at < t->n_answer) return token == t->answer[at];
    return set->end >= 0 ? token == set->end : pleat_model_token_is_end(l->model, token);
}

int score_take_token(score_row *row, const loaded *l, const task_set *set, const turn *t, uint32_t at,
                     pleat_token token) {
    score_answers *a = &row->answers;
    const int ok = is_right(l, set, t, at, token);
    if (!a->is_wrong[t->index]) {
        a->tokens[t->first + at] = token;
        a->n_tokens[t->index] = at + 1;
        a->is_wrong[t->index] = !ok;
    }
    return ok;
}

int score_turn_is_over(const loaded *l, const turn *t, uint32_t at, pleat_token token) {
    if (!t->n_texts) return at == t->n_answer;
    return at + 1 >= t->n_answer || pleat_model_token_is_end(l->model, token);
}

/* The tokens' text, a NUL in it as a space; the caller frees it. */
static char *text_of(const loaded *l, const pleat_token *tokens, uint32_t n) {
    size_t n_text = 0;
    for (uint32_t i = 0; i < n; i++) {
        size_t n_bytes = 0;
        if (pleat_model_token_text(l->model, tokens[i], &n_bytes)) n_text += n_bytes;
    }
    char *text = cli_alloc(n_text + 1, 1), *end = text;
    for (uint32_t i = 0; i < n; i++) {
        size_t n_bytes = 0;
        const char *bytes = pleat_model_token_text(l->model, tokens[i], &n_bytes);
        if (bytes) memcpy(end, bytes, n_bytes);
        if (bytes) end += n_bytes;
    }
    for (char *c = text; c < end; c++)
        if (!*c) *c = ' ';
    return text;
}

static int holds_word(const char *text, const char *word) {
    const size_t n = strlen(word);
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        if ((at == text || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[n])) return 1;
    return 0;
}

/* How many of an open turn's texts stand in what was said. */
static uint32_t count_texts(const score_row *row, const loaded *l, const turn *t) {
    char *said = text_of(l, row->answers.tokens + t->first, row->answers.n_tokens[t->index]);
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_texts; i++) n += holds_word(said, t->texts[i]) ? 1 : 0;
    free(said);
    return n;
}

void score_take_turn(score_row *row, const loaded *l, const sample *s, const turn *t) {
    score_answers *a = &row->answers;
    const uint32_t n_asked = turn_n_asked(t), n_right = t->n_texts ? count_texts(row, l, t) : !a->is_wrong[t->index];
    a->n_right[t->index] = n_right;
    a->is_wrong[t->index] = n_right < n_asked;
    row->score[s->task].total += n_asked;
    row->score[s->task].correct += n_right;
}

void score_begin_row(score_row *row, const task_set *set) {
    row->answers.tokens = cli_alloc(set->n_answers, sizeof *row->answers.tokens);
    row->answers.n_tokens = cli_alloc(set->n_turns, sizeof *row->answers.n_tokens);
    row->answers.n_right = cli_alloc(set->n_turns, sizeof *row->answers.n_right);
    row->answers.is_wrong = cli_alloc(set->n_turns, sizeof *row->answers.is_wrong);
}

void score_release_row(score_row *row) {
    free(row->answers.tokens);
    free(row->answers.n_tokens);
    free(row->answers.n_right);
    free(row->answers.is_wrong);
    row->answers = (score_answers){0};
}

/* ---- as a file --------------------------------------------------------------------------------- */

/* The tokens' text; what is no UTF-8 becomes U+FFFD. */
static json_t *text_json(const loaded *l, const pleat_token *tokens, uint32_t n) {
    char *text = text_of(l, tokens, n);
    json_t *value = json_text(text);
    free(text);
    return value;
}

static json_t *answer_json(const evaluation *e, const score_row *row, const sample *s, uint32_t turn_idx) {
    const turn *t = &s->turns[turn_idx];
    const pleat_token *given = row->answers.tokens + t->first;
    const uint32_t n = row->answers.n_tokens[t->index];
    json_t *tokens = json_array();
    for (uint32_t i = 0; i < n; i++) json_array_append_new(tokens, json_integer(given[i]));
    return json_pack("{s:s, s:o, s:i, s:b, s:o, s:o}", "kv", row->kv, "id", json_text(s->id), "turn", (int)turn_idx + 1,
                     "right", !row->answers.is_wrong[t->index], "answer", text_json(&e->l, given, n), "tokens", tokens);
}

static void write_row(const evaluation *e, const score_row *row, FILE *f) {
    for (uint32_t i = 0; i < e->set.n_samples; i++)
        for (uint32_t j = 0; j < e->set.samples[i].n_turns; j++) {
            json_t *object = answer_json(e, row, &e->set.samples[i], j);
            json_dumpf(object, f, JSON_COMPACT);
            fputc('\n', f);
            json_decref(object);
        }
}

int score_write_answers(const evaluation *e, const char *path) {
    whole_file w;
    if (whole_file_open(&w, path) != CLI_OK) return CLI_FAILED;
    for (uint32_t i = 0; i < e->o->load.kv.n; i++) write_row(e, &e->rows[i], w.file);
    return whole_file_close(&w);
}
