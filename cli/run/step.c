/* SPDX-License-Identifier: MIT
 *
 * step.c: a step of the engine on sequences of `pleat run`.
 */
#include "cli/lib/common.h"
#include "run.h"

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
