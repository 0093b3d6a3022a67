/* SPDX-License-Identifier: MIT
 *
 * score_text.c: how well each spec's cache predicts a text, and how far its predictions are from the first spec's.
 *
 *     text tokens  | window 0 | window 1 | ...             --ctx-window tokens each, bos in front of each
 *     a window     [ prompt, in chunks: first half | the rest: one token a step, each predicted before it is fed ]
 *
 * The rest is fed as single tokens so that it is stored and read as generation stores and reads.  Only it is scored.
 * --scored N makes it N tokens long.  What the text has behind its last whole window is left out.  --half choose and show
 * take a part of the text, even and odd some of the windows.
 *
 * All specs march together, an engine each: after every step their logits for the same positions lie side by side
 * and are compared, so none has to be kept.  Several windows are in flight at once; sums are taken in the order of
 * windows, so that they do not depend on the threads.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"
#include "cli/lib/interrupt.h"
#include "cli/lib/measure.h"
#include "cli/lib/progress.h"
#include "cli/lib/prompt/replay.h"
#include "score.h"

/* What one position adds to a row. */
typedef struct position_score {
    double nll, kld;
    int is_same_top1;
} position_score;

/* A cluster that is not over: so far. */
typedef struct running {
    uint32_t n;
    double kld, same_top1;
} running;

typedef struct contender {
    pleat_engine *engine;
    pleat_seq *seqs;        /* [width] */
    float *logits;          /* [width][n_vocab] */
    position_score *scores; /* [width] */
    running *blocks;        /* [width] the block under way */
    running *windows;       /* [width] */
    replay again;
} contender;

typedef struct march {
    const score_options *o;
    const loaded *l;
    score_row *rows;
    contender *contenders; /* [n_rows] */
    uint32_t n_rows;
    pleat_token *text; /* [n_text] without bos */
    uint32_t n_text;
    uint32_t window;          /* tokens in a window, bos included */
    uint32_t prompt;          /* of these, the first: they are not scored */
    uint32_t n_windows;       /* of the half that is read */
    uint32_t width;           /* most windows in flight */
    uint32_t n_now;           /* windows in flight */
    pleat_token *tokens;      /* [width][window] of those */
    uint32_t at;              /* position being predicted */
    float *odds;              /* [workers][n_vocab]: scratch of score_position() */
    pleat_engine_item *items; /* [width] */
    uint64_t n_done;          /* positions, over all rows */
} march;

static pleat_token *window_tokens(const march *m, uint32_t i) { return m->tokens + (size_t)i * m->window; }

static float *window_logits(const march *m, uint32_t row, uint32_t i) {
    return m->contenders[row].logits + (size_t)i * m->l->info.n_vocab;
}

/* ---- scores ------------------------------------------------------------------------------------ */

/* Log of the sum of exp(x[i]); odds[i] = exp(x[i] - max), *sum their sum, if odds is not NULL. */
static double log_sum_exp(const float *x, uint32_t n, float *odds, double *sum) {
    const float max = x[greedy_token(x, n)];
    double total = 0;
    for (uint32_t i = 0; i < n; i++) {
        const float e = expf(x[i] - max);
        if (odds) odds[i] = e;
        total += e;
    }
    if (sum) *sum = total;
    return log(total) + max;
}

/* Score window i's position m->at for every row against row 0. */
static void score_position(void *ctx, uint32_t i, uint32_t worker) {
    march *m = ctx;
    const uint32_t n_vocab = m->l->info.n_vocab;
    const pleat_token target = window_tokens(m, i)[m->at];
    float *odds = m->odds + (size_t)worker * n_vocab;
    const float *ref = window_logits(m, 0, i);
    double odds_sum;
    const double ref_lse = log_sum_exp(ref, n_vocab, odds, &odds_sum);
    const pleat_token ref_top = greedy_token(ref, n_vocab);
    m->contenders[0].scores[i] = (position_score){ref_lse - (double)ref[target], 0, 1};
    for (uint32_t r = 1; r < m->n_rows; r++) {
        const float *x = window_logits(m, r, i);
        const double lse = log_sum_exp(x, n_vocab, NULL, NULL);
        double gap = 0; /* sum of odds * (ref - x): p log(p/q) without the two normalisers */
        for (uint32_t k = 0; k < n_vocab; k++) gap += (double)odds[k] * ((double)ref[k] - (double)x[k]);
        const double kld = gap / odds_sum - ref_lse + lse;
        m->contenders[r].scores[i] =
            (position_score){lse - (double)x[target], kld, greedy_token(x, n_vocab) == ref_top};
    }
}

/* Add a position to the cluster under way, and the cluster to the figures if that was its last. */
static void run_on(running *c, const position_score *s, int is_last, clusters *kld, clusters *same_top1) {
    c->n++;
    c->kld += s->kld;
    c->same_top1 += s->is_same_top1;
    if (!is_last) return;
    clusters_add(kld, c->kld, c->n);
    clusters_add(same_top1, c->same_top1, c->n);
    *c = (running){0};
}

static void score_step(march *m) {
    const int is_last = m->at + 1 == m->window;
    const int ends_block = is_last || (m->at + 1 - m->prompt) % SCORE_BLOCK_TOKENS == 0;
    pleat_workers_run(m->l->workers, m->n_now, score_position, m);
    for (uint32_t r = 0; r < m->n_rows; r++)
        for (uint32_t i = 0; i < m->n_now; i++) {
            const contender *c = &m->contenders[r];
            const position_score *s = &c->scores[i];
            score_row *row = &m->rows[r];
            row->nll_sum += s->nll;
            row->kld_sum += s->kld;
            row->n_same_top1 += s->is_same_top1 ? 1 : 0;
            row->n_scored++;
            run_on(&c->blocks[i], s, ends_block, &row->kld.blocks, &row->same_top1.blocks);
            run_on(&c->windows[i], s, is_last, &row->kld.windows, &row->same_top1.windows);
        }
    m->n_done += m->n_now;
    progress_update(m->n_done);
}

/* ---- steps ------------------------------------------------------------------------------------- */

static int timed_step(march *m, uint32_t row, uint32_t n_items) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    if (interrupt_came()) return CLI_INTERRUPTED;
    const double start_s = measure_now_s();
    const pleat_status status = pleat_engine_step(m->contenders[row].engine, m->items, n_items, &err);
    m->rows[row].seconds += measure_now_s() - start_s;
    return status == PLEAT_OK ? CLI_OK : cli_fail(m->rows[row].kv, status, &err);
}

/* Read window i's prompt a second time where the spec asks for it. */
static int read_again(march *m, uint32_t row, uint32_t i) {
    const contender *c = &m->contenders[row];
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    const pleat_status status =
        replay_prompt(&c->again, c->engine, c->seqs[i], window_tokens(m, i), m->prompt, NULL, &err);
    return status == PLEAT_OK ? CLI_OK : cli_fail(m->rows[row].kv, status, &err);
}

/* Feed the prompt of window i; its last token's logits predict the first that is scored. */
static int feed_prompt(march *m, uint32_t row, uint32_t i) {
    const uint32_t chunk = m->o->load.chunk_tokens;
    for (uint32_t done = 0; done < m->prompt;) {
        const uint32_t left = m->prompt - done, n = left < chunk ? left : chunk;
        const int is_last = n == left;
        m->items[0] = (pleat_engine_item){m->contenders[row].seqs[i],
                                          window_tokens(m, i) + done,
                                          n,
                                          is_last ? 1 : 0,
                                          is_last ? window_logits(m, row, i) : NULL,
                                          is_last ? 0 : PLEAT_ITEM_MORE};
        const int code = timed_step(m, row, 1);
        if (code != CLI_OK) return code;
        done += n;
    }
    return read_again(m, row, i);
}

/* Feed token m->at of all windows. */
static int feed_one(march *m, uint32_t row) {
    for (uint32_t i = 0; i < m->n_now; i++)
        m->items[i] = (pleat_engine_item){
            m->contenders[row].seqs[i], window_tokens(m, i) + m->at, 1, 1, window_logits(m, row, i), 0};
    return timed_step(m, row, m->n_now);
}

static int open_windows(march *m, uint32_t row) {
    int code = CLI_OK;
    for (uint32_t i = 0; i < m->n_now && code == CLI_OK; i++) {
        contender *c = &m->contenders[row];
        const pleat_status status =
            pleat_engine_open(c->engine, replay_max_tokens(&c->again, m->l, m->window), &c->seqs[i]);
        code = status == PLEAT_OK ? feed_prompt(m, row, i) : cli_fail(m->rows[row].kv, status, NULL);
    }
    return code;
}

static int close_windows(march *m, uint32_t row) {
    const contender *c = &m->contenders[row];
    score_row *r = &m->rows[row];
    int code = CLI_OK;
    for (uint32_t i = 0; i < m->n_now && code == CLI_OK; i++)
        code = score_close(r, c->engine, &(score_request){r->kv, m->window, c->seqs[i]}, &r->bytes, &r->bytes_f16,
                           &r->of_short);
    return code;
}

/* Windows first..first + n_now of the half: fill m->tokens. */
static void fill_windows(march *m, uint32_t first) {
    const uint32_t n_bos = m->l->info.add_bos ? 1 : 0, n_own = m->window - n_bos;
    for (uint32_t i = 0; i < m->n_now; i++) {
        pleat_token *tokens = window_tokens(m, i);
        if (n_bos) tokens[0] = m->l->info.bos;
        const size_t place = half_place(m->o->half, first + i);
        memcpy(tokens + n_bos, m->text + place * n_own, n_own * sizeof *tokens);
    }
}

static int march_group(march *m, uint32_t first) {
    int code = CLI_OK;
    fill_windows(m, first);
    for (uint32_t r = 0; r < m->n_rows && code == CLI_OK; r++) code = open_windows(m, r);
    for (m->at = m->prompt; code == CLI_OK; m->at++) {
        score_step(m);
        if (m->at + 1 == m->window) break;
        for (uint32_t r = 0; r < m->n_rows && code == CLI_OK; r++) code = feed_one(m, r);
    }
    for (uint32_t r = 0; r < m->n_rows && code == CLI_OK; r++) code = close_windows(m, r);
    return code;
}

static int march_all(march *m) {
    int code = CLI_OK;
    score_row *whole = cli_alloc(m->n_rows, sizeof *whole); /* rows behind the last group that is over */
    for (uint32_t r = 0; r < m->n_rows; r++) m->rows[r].n_to_score = (uint64_t)m->n_windows * (m->window - m->prompt);
    progress_begin("text", (uint64_t)m->n_windows * (m->window - m->prompt), !m->o->common.quiet);
    for (uint32_t first = 0; first < m->n_windows && code == CLI_OK; first += m->n_now) {
        const uint32_t left = m->n_windows - first;
        m->n_now = left < m->width ? left : m->width;
        memcpy(whole, m->rows, m->n_rows * sizeof *whole);
        code = march_group(m, first);
    }
    progress_end();
    if (code == CLI_INTERRUPTED) memcpy(m->rows, whole, m->n_rows * sizeof *whole);
    free(whole);
    return code;
}

/* ---- set-up ------------------------------------------------------------------------------------ */

/* Read the text and cut it.  No window is longer than the model's context or the text. */
static int cut_text(march *m, const char *path) {
    char *text;
    size_t n_bytes;
    if (cli_read_file(CONTENT_TEXT, path, &text, &n_bytes) != CLI_OK) return CLI_FAILED;
    const size_t first = half_of_text(m->o->half, text, n_bytes, &n_bytes);
    const int code = load_tokens(m->l, path, text + first, n_bytes, 0, &m->text, &m->n_text);
    free(text);
    if (code != CLI_OK) return code;
    const uint32_t n_bos = m->l->info.add_bos ? 1 : 0;
    m->window = m->o->ctx_window;
    if (m->window > m->l->info.n_ctx) m->window = m->l->info.n_ctx;
    if (m->window > m->n_text + n_bos) m->window = m->n_text + n_bos;
    if (m->window < 4) {
        cli_error("%s: %u tokens are too few to score", path, m->n_text);
        return CLI_FAILED;
    }
    if (m->o->scored >= m->window) {
        cli_error("--scored %u: windows have %u tokens, and one at least is the prompt", m->o->scored, m->window);
        return CLI_FAILED;
    }
    m->prompt = m->o->scored ? m->window - m->o->scored : m->window / 2;
    m->n_windows = m->n_text / (m->window - n_bos);
    if (m->o->text_windows && m->n_windows > m->o->text_windows) m->n_windows = m->o->text_windows;
    const uint32_t n_all = m->n_windows;
    m->n_windows = half_count(m->o->half, n_all);
    if (m->n_windows == 0) {
        cli_error("%s: the odd half of %u window%s of %u tokens is empty", path, n_all, n_all == 1 ? "" : "s",
                  m->window);
        return CLI_FAILED;
    }
    m->width = m->n_windows < m->o->parallel ? m->n_windows : m->o->parallel;
    return CLI_OK;
}

/* Make the second reading ready where a row's spec asks for it, and see that there is room for it. */
static int prepare_again(march *m, uint32_t row) {
    replay *again = &m->contenders[row].again;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    const int code = replay_prepare(m->l, &m->rows[row].spec, m->o->load.chunk_tokens, again);
    if (code != CLI_OK) return code;
    const pleat_status status = replay_check(again, m->prompt, &err);
    return status == PLEAT_OK ? CLI_OK : cli_fail(m->rows[row].kv, status, &err);
}

static int make_contenders(march *m) {
    const uint32_t n_vocab = m->l->info.n_vocab, width = m->width;
    int code = CLI_OK;
    m->tokens = cli_alloc((size_t)width * m->window, sizeof *m->tokens);
    m->odds = cli_alloc((size_t)pleat_workers_count(m->l->workers) * n_vocab, sizeof *m->odds);
    m->items = cli_alloc(width, sizeof *m->items);
    for (uint32_t r = 0; r < m->n_rows && code == CLI_OK; r++) {
        contender *c = &m->contenders[r];
        c->seqs = cli_alloc(width, sizeof *c->seqs);
        c->logits = cli_alloc((size_t)width * n_vocab, sizeof *c->logits);
        c->scores = cli_alloc(width, sizeof *c->scores);
        c->blocks = cli_alloc(width, sizeof *c->blocks);
        c->windows = cli_alloc(width, sizeof *c->windows);
        code = prepare_again(m, r);
        pleat_engine_options opt = load_engine_options(&m->o->load, m->l, m->rows[r].spec, width,
                                                       replay_max_tokens(&c->again, m->l, m->window), 0);
        if (m->rows[r].stats) opt.stats = m->rows[r].stats;
        if (code == CLI_OK) code = load_engine_with(m->l, &opt, &c->engine);
    }
    return code;
}

static void release(march *m) {
    for (uint32_t r = 0; r < m->n_rows; r++) {
        free(m->contenders[r].seqs);
        free(m->contenders[r].logits);
        free(m->contenders[r].scores);
        free(m->contenders[r].blocks);
        free(m->contenders[r].windows);
        pleat_engine_destroy(&m->contenders[r].engine);
        replay_release(&m->contenders[r].again);
    }
    free(m->contenders);
    free(m->text);
    free(m->tokens);
    free(m->odds);
    free(m->items);
}

int score_text(const score_options *o, const loaded *l, const char *path, score_row *rows, uint32_t n_rows) {
    march m = {.o = o, .l = l, .rows = rows, .n_rows = n_rows};
    m.contenders = cli_alloc(n_rows, sizeof *m.contenders);
    int code = cut_text(&m, path);
    if (code == CLI_OK) code = make_contenders(&m);
    if (code == CLI_OK) code = march_all(&m);
    release(&m);
    return code;
}
