/* SPDX-License-Identifier: MIT
 *
 * tasks.h: samples with exact answers, read from a file of one JSON object a line:
 *
 *     {"id": "kv_recall-400-00", "task": "kv_recall", "turns": [{"prompt": "...", "answer": "4215"}, ...]}
 *
 * Prompts spell out their special tokens and are in chat form; each later turn's prompt starts with the end of the
 * answer before it.  Texts become tokens here, once, for all the specs that are compared.
 */
#ifndef PLEAT_CLI_TASKS_H
#define PLEAT_CLI_TASKS_H

#include "cli/lib/half.h"
#include "cli/lib/load.h"

typedef struct turn {
    pleat_token *prompt; /* [n_prompt]; the first turn's starts with bos */
    pleat_token *answer; /* [n_answer] */
    uint32_t n_prompt, n_answer;
    uint32_t index; /* among the turns of all samples */
    uint64_t first; /* of its answer's tokens among those of all turns, each with a token more: the end */
} turn;

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
    char *names[TASKS_CAP];     /* in order of first appearance */
    uint32_t n_of[TASKS_CAP];   /* samples of each */
    uint32_t n_seen[TASKS_CAP]; /* samples of each that the file has, up to as many as were wanted of it */
    uint32_t n_tasks;
    uint32_t max_tokens; /* of the longest sample */
    uint32_t n_turns;    /* of all samples */
    uint64_t n_answers;  /* tokens of all their answers, each with a token more */
    pleat_token end;     /* <|im_end|>, which must follow an answer; -1: any end token may */
} task_set;

/* Read `path`: a half of the first `per_task` samples of each task (0: of all).  CLI_OK, or CLI_FAILED after a message
 * that names the line, or a task of which the half has none; tasks_release() is due in either case. */
int tasks_load(task_set *set, const loaded *l, const char *path, uint32_t per_task, sample_half half);
void tasks_release(task_set *set);

#endif
