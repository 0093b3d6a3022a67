/* SPDX-License-Identifier: MIT
 *
 * figures.h: the arithmetic of `pleat plan`: what a KV spec costs a model, before anything runs.
 *
 *     held       weights + prefix + sequences * (KV + tables)
 *                KV: whole pages, slack included, and the pool's cells for them; tables: page tables, records, codebooks
 *     read       in a step that generates one token in each sequence: weights, and every held token's bytes
 *     swapped    the held tokens' bytes of one sequence
 *
 * KV is a forecast's (pleat/forecast.h) of a sequence's life: a shared prefix if there is one, the rest of its prompt,
 * then single tokens.  So budgets, windows and sealed prefixes count as a cache counts them afterwards; tables are
 * pleat_cache_bytes_for()'s.  What depends on the text is forecast by samples of it, or by a fraction (bytes held over
 * what f16 would hold, as `run` and `eval` measure it), or refused: nothing is guessed.
 *
 * Weights read: all but the rows of an embedding that is no output matrix, and of experts those that a step can reach
 * at most: n_used for each sequence.  Activations and workspace are not counted.
 */
#ifndef PLEAT_CLI_PLAN_FIGURES_H
#define PLEAT_CLI_PLAN_FIGURES_H

#include "cli/lib/shape/gguf_shape.h"
#include "cli/lib/shape/layer_kinds.h"
#include "cli/lib/shape/shape.h"
#include "pleat/pleat.h"

/* No figure goes beyond: what JSON's integers hold.  Sums that would stand here. */
#define PLAN_MAX ((uint64_t)INT64_MAX)

typedef struct plan_weights {
    uint64_t bytes;  /* 0: not known */
    uint64_t lookup; /* bytes of an embedding read by rows, among them */
    uint64_t expert; /* bytes of one expert of every layer, among them */
    uint32_t n_experts, n_experts_used;
    char what[32]; /* of which type, or whose */
} plan_weights;

/* Weights of a shape whose parameters are counted.  type: a name of weight_types.h, or "" for what is published.  0 if
 * there is no such type. */
int plan_weigh(const model_shape *shape, const char *type, plan_weights *out);

/* Weights of `bytes` in all, shared out as `like` is, or if that is empty as the parameters are. */
void plan_weigh_as(const model_shape *shape, uint64_t bytes, const plan_weights *like, plan_weights *out);

typedef struct plan_question {
    model_shape shape;
    plan_weights weights;
    uint32_t n_tokens;   /* stored in each sequence */
    uint32_t max_tokens; /* tokens that a sequence is opened for; at least n_tokens */
    uint32_t n_shared;   /* of n_tokens, the first ones, which all sequences have from one kept prefix; 0: none */
    uint32_t n_seqs;
    uint64_t device_bytes, bytes_per_s, swap_bytes_per_s; /* 0: not said */
    double prompt_tokens_per_s;                           /* 0: not said */
    double fraction;                                      /* of specs that vary; 0: not said */
    int32_t n_generated;                                  /* by a request; -1: not said */
} plan_question;

/* How a row's bytes are known: of a format, by what the spec does, by samples of a text, by q->fraction. */
typedef enum plan_certainty { PLAN_EXACT, PLAN_FORECAST, PLAN_MEASURED, PLAN_BY_FRACTION } plan_certainty;

/* Figures that want something that was not said are 0, times NAN. */
typedef struct plan_row {
    plan_certainty certainty;
    layer_kind kinds[2]; /* [n_kinds] with seq_kv shared out among them */
    uint32_t n_kinds;
    uint64_t token_bytes;           /* one token in all layers, without slack and tables */
    uint64_t seq_kv, seq_tables;    /* of one sequence, less what it shares */
    uint64_t seq_most;              /* KV of one sequence in the largest step of its life, what it shares included */
    uint64_t prefix;                /* of the shared prefix, once, with its tables */
    uint64_t kv, tables, total;     /* of all, kv with the prefix, total with the weights */
    uint64_t f16_bytes;             /* f16 tokens of all sequences, bare */
    uint64_t max_seqs, most_tokens; /* what fits the device: sequences of n_tokens; tokens in each of n_seqs */
    int fits;                       /* the question's fit; 0 without device_bytes */
    uint64_t weights_read, kv_read; /* of a step */
    uint64_t crossing;              /* the fewest sequences whose KV is more to read than the weights */
    double step_ms, tokens_per_s;   /* bounds: no step is faster */
    uint64_t swap_bytes;
    double swap_ms; /* one way */
    double prompt_ms;
} plan_row;

/* What the spec does to sequences of n_tokens, before anything is measured.  The errors of pleat_forecast_for(). */
pleat_status plan_forecast(const plan_question *question, const pleat_spec *spec, uint32_t n_tokens,
                           pleat_forecast *out, pleat_error *err);

/* Whether what the spec keeps depends on the text, so that a text or a fraction has to say it. */
int plan_wants_text(const plan_question *question, const pleat_spec *spec);

/* samples: a forecast of the spec that has some; NULL: none.  PLEAT_E_ARG when no page holds such heads in such formats,
 * PLEAT_E_UNSUPPORTED when nothing says what the spec keeps, PLEAT_E_LIMIT when a figure passes PLAN_MAX; err says. */
pleat_status plan_fill(const plan_question *question, const pleat_spec *spec, const pleat_forecast *samples,
                       plan_row *out, pleat_error *err);

/* Whether the spec is worth it beside f16 (1, 0, or -1: cannot be said), in one or two sentences. */
#define PLAN_ANSWER_CAP 320
int plan_answer(const plan_question *question, const pleat_spec *spec, const plan_row *row, const plan_row *f16,
                char out[PLAN_ANSWER_CAP]);

#endif
