/* SPDX-License-Identifier: MIT
 *
 * score_answers.c: which token of an answer is right, which turns are, and what was answered.
 *
 *     answer's own tokens, then <|im_end|>      right
 *     else                                      wrong from the first token that differs; what follows is not noted
 */
#include <stdlib.h>

#include "cli/lib/whole_file.h"
#include "score.h"

/* Whether `token` may follow the answer's token number `at` - 1; `at` == n_answer: the end is due. */
static int is_right(const loaded *l, const task_set *set, const turn *t, uint32_t at, pleat_token token) {
    if (at < t->n_answer) return token == t->answer[at];
    return set->end >= 0 ? token == set->end : pleat_model_token_is_end(l->model, token);
}

int score_take_token(score_row *row, const loaded *l, const task_set *set, const turn *t, uint32_t at,
                     pleat_token token) {
    score_answers *a = &row->answers;
    const int ok = is_right(l, set, t, at, token);
    if (a->tokens && !a->is_wrong[t->index]) {
        a->tokens[t->first + at] = token;
        a->n_tokens[t->index] = at + 1;
        a->is_wrong[t->index] = !ok;
    }
    return ok;
}

void score_take_turn(score_row *row, const sample *s, int is_wrong) {
    row->score[s->task].total++;
    row->score[s->task].correct += !is_wrong;
}

void score_note_answers(score_row *row, const task_set *set) {
    row->answers.tokens = cli_alloc(set->n_answers, sizeof *row->answers.tokens);
    row->answers.n_tokens = cli_alloc(set->n_turns, sizeof *row->answers.n_tokens);
    row->answers.is_wrong = cli_alloc(set->n_turns, sizeof *row->answers.is_wrong);
}

void score_forget_answers(score_row *row) {
    free(row->answers.tokens);
    free(row->answers.n_tokens);
    free(row->answers.is_wrong);
    row->answers = (score_answers){0};
}

/* ---- as a file --------------------------------------------------------------------------------- */

/* The tokens' text; what is no UTF-8 becomes U+FFFD. */
static json_t *text_json(const loaded *l, const pleat_token *tokens, uint32_t n) {
    char *text = NULL;
    size_t n_text = 0;
    FILE *f = open_memstream(&text, &n_text);
    for (uint32_t i = 0; f && i < n; i++) {
        size_t n_bytes = 0;
        const char *bytes = pleat_model_token_text(l->model, tokens[i], &n_bytes);
        if (bytes) fwrite(bytes, 1, n_bytes, f);
    }
    json_t *value = f && fclose(f) == 0 ? json_text(text) : NULL;
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
