/* SPDX-License-Identifier: MIT
 *
 * chat.h: `pleat run --chat` without a prompt: a conversation, one message at a time.
 *
 *     chat.c           reads messages, answers them, says what became of them
 *     chat_commands.c  what begins with a slash
 *     chat_turn.c      one answer, on the cache that is kept between turns
 *     chat/            what they stand on, each by itself: conversation.h what was said, held.h what the cache holds of
 *                      it, input.h lines from a terminal or a pipe
 *
 * Rules
 *  1. stdout carries the answers, a newline behind each, and nothing else; all else is on stderr.
 *  2. Nothing that was said is lost by a turn that fails: a message that gets no answer is dropped, the rest stays.
 *  3. The cache holds every token that was shown, the last one too.
 */
#ifndef PLEAT_CLI_CHAT_H
#define PLEAT_CLI_CHAT_H

#include "chat/conversation.h"
#include "chat/held.h"
#include "run.h"

/* What became of one turn. */
typedef struct chat_turn {
    uint32_t number;      /* user's messages up to it */
    uint32_t n_prompt;    /* tokens of the conversation up to its answer */
    uint32_t n_kept;      /* of these, those that the cache held already */
    uint32_t n_generated; /* of the answer */
    double read_s, generation_s;
    const char *finish; /* "stop", "length", "interrupted" or "failed" */
} chat_turn;

typedef struct chat {
    run *r; /* seqs[0] is the conversation, v 0: closed; seqs[1 + i] is held.marks[i] */
    conversation talk;
    held_tokens held;
    uint32_t max_marks; /* at most HELD_MARKS; 0: going back is not cheap */
    pleat_sampler *sampler;
    chat_turn *turns; /* [n_turns] that were answered here and still stand */
    uint32_t n_turns, turns_cap;
    int is_over;    /* /exit was said */
    int has_failed; /* a turn or a command did */
} chat;

/* ---- chat_turn.c ------------------------------------------------------------------------------- */

/* Answer the last message, which is a user's.  CLI_OK: an assistant's message and a turn have been added.  CLI_FAILED
 * after a message, or CLI_INTERRUPTED: there was no answer, and none was added. */
int chat_answer(chat *c);

/* Let go of all that the cache holds. */
void chat_forget(chat *c);

/* What the cache holds of the conversation; zeros where that is nothing.  `back`: bytes beside it, to go back to. */
pleat_cache_usage chat_usage(const chat *c, uint64_t *back);

/* Turns that the conversation has no more are forgotten, and the cache goes back to where the first of them began, or to a
 * mark before.  CLI_OK, or CLI_FAILED after a message. */
int chat_trim_turns(chat *c);

/* ---- chat_commands.c --------------------------------------------------------------------------- */

/* Do what the line says, which begins with a slash.  CLI_OK, CLI_FAILED after a message, or CLI_INTERRUPTED. */
int chat_command(chat *c, const char *line);

/* Read a conversation from `path` in place of the present one, which is empty.  CLI_OK, or CLI_FAILED after a message. */
int chat_load(chat *c, const char *path);

/* The bytes of a message or a system text are such that a conversation can hold them.  CLI_OK, or CLI_FAILED after a
 * message about `what`. */
int chat_check_text(const char *what, const char *text, size_t n);

/* Say in one dim line what the last turn took; nothing on what is no terminal. */
void chat_say_turn(const chat *c);

/* ---- chat.c ------------------------------------------------------------------------------------ */

/* All of it: `pleat run --chat` where there is no prompt. */
int chat_main(run_options *o);

#endif
