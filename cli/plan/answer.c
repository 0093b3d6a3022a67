/* SPDX-License-Identifier: MIT
 *
 * answer.c: what the figures of `pleat plan` come to, in words: see figures.h.
 *
 * Two things can make a KV spec worth it: sequences fit that would not, or a step reads less.  Neither helps where the
 * prompts are the work, where the sequences are short or the weights so much larger that the KV hardly counts, or where
 * whole pages of few tokens hold more than f16 would.  What accuracy it costs is for `pleat eval` to say.
 */
#include <stdio.h>

#include "figures.h"

/* A step that reads less by a smaller share than this is no reason. */
#define WORTH_A_STEP 0.10
#define SHORT_TOKENS 512u
#define SMALL_PARAMS 3000000000u
#define FEW_GENERATED 10

enum { COUNT_CAP = 40 };

/* "1 sequence", "2 sequences": in buf. */
static const char *sequences(uint64_t n, char buf[COUNT_CAP]) {
    snprintf(buf, COUNT_CAP, "%llu sequence%s", (unsigned long long)n, n == 1 ? "" : "s");
    return buf;
}

static double step_bytes(const plan_row *r) { return (double)r->weights_read + (double)r->kv_read; }

/* f16, or what the specs are measured by. */
static int answer_plain(const plan_question *q, const plan_row *r, char *out) {
    const double part = 100 * (double)r->kv_read / step_bytes(r);
    char count[COUNT_CAP];
    if (!q->device_bytes)
        snprintf(out, PLAN_ANSWER_CAP, "Uncompressed: the KV is %.1f %% of what a step reads.", part);
    else if (r->fits)
        snprintf(out, PLAN_ANSWER_CAP, "Uncompressed, it fits: the KV is %.1f %% of what a step reads.", part);
    else
        snprintf(out, PLAN_ANSWER_CAP,
                 "Uncompressed, it does not fit: %s of %u tokens %s, or %llu tokens in each of %u.",
                 sequences(r->max_seqs, count), q->n_tokens, r->max_seqs == 1 ? "does" : "do",
                 (unsigned long long)r->most_tokens, q->n_seqs);
    return -1;
}

/* Why the KV does not count for much. */
static const char *why_small(const plan_question *q, char *buf, size_t cap) {
    char count[COUNT_CAP];
    const char *verb = q->n_seqs == 1 ? "is" : "are";
    sequences(q->n_seqs, count);
    if (q->n_tokens < SHORT_TOKENS)
        snprintf(buf, cap, "sequences of %u tokens are short", q->n_tokens);
    else if (q->shape.n_params && q->shape.n_params < SMALL_PARAMS)
        snprintf(buf, cap, "the model is small and %s %s few", count, verb);
    else
        snprintf(buf, cap, "%s of %u tokens %s far below the weights", count, q->n_tokens, verb);
    return buf;
}

/* Whether f16 would fit, where a device was given: a half sentence. */
static const char *f16_too(const plan_question *q) { return q->device_bytes ? ", and f16 fits too" : ""; }

/* How many more sequences fit, where a device was given: a half sentence. */
static const char *more_fit(const plan_question *q, const plan_row *r, const plan_row *f16, char *buf, size_t cap) {
    char count[COUNT_CAP];
    if (!q->device_bytes) return "";
    snprintf(buf, cap, ", and %s fit%s in place of %llu", sequences(r->max_seqs, count), r->max_seqs == 1 ? "s" : "",
             (unsigned long long)f16->max_seqs);
    return buf;
}

static int answer_step(const plan_question *q, const plan_row *r, const plan_row *f16, char *out) {
    const double saved = 1 - step_bytes(r) / step_bytes(f16), share = (double)f16->kv_read / step_bytes(f16);
    char why[96], more[96];
    if (share < WORTH_A_STEP)
        snprintf(out, PLAN_ANSWER_CAP, "Not worth it: %s: f16's KV is %.1f %% of what a step reads%s.",
                 why_small(q, why, sizeof why), 100 * share, f16_too(q));
    else if (!(saved >= WORTH_A_STEP))
        snprintf(out, PLAN_ANSWER_CAP, "Hardly worth it: a step reads %.1f %% less than with f16%s.", 100 * saved,
                 f16_too(q));
    else
        snprintf(out, PLAN_ANSWER_CAP, "Worth it: a step reads %.1f %% less than with f16%s.", 100 * saved,
                 more_fit(q, r, f16, more, sizeof more));
    return share >= WORTH_A_STEP && saved >= WORTH_A_STEP;
}

/* The answer that the device's size gives alone; 0 if it gives none. */
static int answer_device(const plan_question *q, const plan_row *r, const plan_row *f16, char *out, int *is_worth) {
    if (!q->device_bytes || (f16->fits && r->fits)) return 0;
    const unsigned long long n = r->max_seqs, n_f16 = f16->max_seqs;
    char count[COUNT_CAP];
    *is_worth = r->fits;
    if (q->weights.bytes > q->device_bytes)
        snprintf(out, PLAN_ANSWER_CAP, "No help: the weights alone are larger than the device.");
    else if (r->fits)
        snprintf(out, PLAN_ANSWER_CAP, "Worth it: it fits, and f16 does not: %s of %u tokens, %llu in f16.",
                 sequences(n, count), q->n_tokens, n_f16);
    else
        snprintf(out, PLAN_ANSWER_CAP, "Not enough: of %s of %u tokens %llu fit, %llu in f16.",
                 sequences(q->n_seqs, count), q->n_tokens, n, n_f16);
    return 1;
}

int plan_answer(const plan_question *q, const pleat_spec *spec, const plan_row *r, const plan_row *f16,
                char out[PLAN_ANSWER_CAP]) {
    int is_worth = 0;
    if (!q->weights.bytes) {
        snprintf(out, PLAN_ANSWER_CAP, "Cannot be said: the weights are not known; give --weights.");
        return -1;
    }
    if (pleat_spec_is_exact(spec) && spec->high.k_bits >= 16) return answer_plain(q, r, out);
    if (r->kv + r->tables >= f16->kv + f16->tables) {
        snprintf(out, PLAN_ANSWER_CAP, "Not worth it: it holds no less than f16.");
        return 0;
    }
    if (answer_device(q, r, f16, out, &is_worth)) return is_worth;
    if (q->n_generated >= 0 && q->n_generated <= FEW_GENERATED) {
        snprintf(out, PLAN_ANSWER_CAP, "Not worth it: with %d tokens to generate, reading the prompts is the work%s.",
                 q->n_generated, f16_too(q));
        return 0;
    }
    return answer_step(q, r, f16, out);
}
