/* SPDX-License-Identifier: MIT
 *
 * step.c: a step of the engine on sequences of `pleat run`, and Ctrl-C between two of them.
 */
#include <signal.h>
#include <string.h>

#include "cli/lib/common.h"
#include "run.h"

static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    is_interrupted = 1;
}

int run_is_interrupted(void) { return is_interrupted; }

void run_catch_interrupt(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    action.sa_flags = (int)(SA_RESETHAND | SA_RESTART); /* a write that is interrupted would lose text */
    sigaction(SIGINT, &action, NULL);
}

pleat_status run_step(run *r, const run_share *shares, uint32_t n_shares, uint32_t flags) {
    pleat_engine_item items[SEARCH_MAX];
    const int wanted = !(flags & PLEAT_ITEM_MORE);
    for (uint32_t i = 0; i < n_shares; i++) {
        float *logits = r->logits + (size_t)shares[i].seq * r->l.info.n_vocab;
        items[i] = (pleat_engine_item){r->seqs[shares[i].seq], shares[i].tokens,       shares[i].n_tokens,
                                       wanted ? 1 : 0,         wanted ? logits : NULL, flags};
    }
    r->err = (pleat_error){0, PLEAT_NOWHERE, ""};
    return pleat_engine_step(r->engine, items, n_shares, &r->err);
}

int run_step_code(const run *r, pleat_status status) {
    return status == PLEAT_OK ? CLI_OK : cli_fail("a step failed", status, &r->err);
}
