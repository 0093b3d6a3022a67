/* SPDX-License-Identifier: MIT
 *
 * tasks.h: samples with exact answers, read from a file of one JSON object a line, of either form:
 *
 *     {"id": "kv_recall-400-00", "task": "kv_recall", "turns": [{"prompt": "...", "answer": "4215"}, ...]}
 *     {"id": "fact-1k-00", "task": "fact-1k", "document": "...", "question": "What is the code of the silver library?",
 *      "begin": "The code of the silver library is", "answers": ["4215"]}
 *
 * Turns are one model's: prompts spell out their special tokens and are in chat form; each later turn's prompt starts with
 * the end of the answer before it.  A document is any model's: it and the question become a user's message in the model's
 * own chat form, or a plain text where the model has none.  `begin`, which may be left out, begins the answer.
 * Such a turn is open: the model goes on as it likes, and each of `answers` counts that stands in what it says.
 *
 *     prompt    [ document | question, begin ]    n_document of its tokens are the document, where the question is unseen
 *
 * Texts become tokens here, once, for all the specs that are compared.
 *
 *     tasks.c        the file: samples, tasks and halves
 *     tasks_turn.c   a turn of either form, as tokens
 */
#ifndef PLEAT_CLI_TASKS_H
#define PLEAT_CLI_TASKS_H

#include "cli/lib/half.h"
#include "cli/lib/load.h"

typedef struct turn {
    pleat_token *prompt; /* [n_prompt]; the first turn's starts with bos */
    pleat_token *answer; /* [n_answer]; NULL: the turn is open */
    char **texts;        /* [n_texts] what an open turn's answer has to hold */
    uint32_t n_prompt;
    uint32_t n_document; /* the prompt's first tokens, read before the question comes; 0: all come at once */
    uint32_t n_answer;   /* of an open turn, the most tokens that are generated */
    uint32_t n_texts;    /* 0: not open */
    uint32_t index;      /* among the turns of all samples */
    uint64_t first;      /* of its answer's tokens among those of all turns, each with a token more: the end */
} turn;

/* Answers that a turn asks for. */
static inline uint32_t turn_n_asked(const turn *t) { return t->n_texts ? t->n_texts : 1; }

typedef struct sample {
    char *id;
    uint32_t task; /* index into task_set.names */
    turn *turns;   /* [n_turns] */
    uint32_t n_turns;
    uint32_t n_tokens; /* of all turns: what its sequence must hold */
} sample;

#define TASKS_CAP 64
typedef struct task_set {
    sample *samples; /* [n_samples] */
    uint32_t n_samples, cap;
    char *names[TASKS_CAP];         /* in order of first appearance */
    uint32_t n_of[TASKS_CAP];       /* samples of each */
    uint32_t n_seen[TASKS_CAP];     /* samples of each that the file has, up to as many as were wanted of it */
    uint32_t n_left_out[TASKS_CAP]; /* of the half's samples of each: documents beyond the model's context, or prompts
                                     * without one */
    uint32_t n_tasks;
    uint32_t n_out;      /* samples left out, of all tasks */
    uint32_t max_tokens; /* of the longest sample */
    uint32_t n_turns;    /* of all samples */
    uint32_t n_open;     /* of these, open ones */
    uint64_t n_answers;  /* tokens of all their answers, each with a token more */
    pleat_token end;     /* <|im_end|>, which must follow an answer; -1: any end token may */
} task_set;

/* Which samples are wanted. */
typedef struct tasks_wanted {
    uint32_t per_task; /* the first of each task; 0: all */
    sample_half half;  /* of these */
    int is_unseen;     /* those with a document alone, which is read before the question comes */
    int is_quiet;      /* no notes of what is left out */
} tasks_wanted;

/* Read `path`.  CLI_OK, or CLI_FAILED after a message that names the line, or a task of which the half has none;
 * tasks_release() is due in either case. */
int tasks_load(task_set *set, const loaded *l, const char *path, const tasks_wanted *w);
void tasks_release(task_set *set);

/* Say of each turn where it stands among all of them. */
void tasks_number(task_set *set);

#endif
