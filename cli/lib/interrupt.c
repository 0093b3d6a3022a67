/* SPDX-License-Identifier: MIT
 *
 * interrupt.c: see interrupt.h.
 */
#include "interrupt.h"

#include <signal.h>
#include <string.h>

#include "common.h"

static volatile sig_atomic_t has_come;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    has_come = 1;
}

int interrupt_came(void) { return has_come; }

int interrupt_code(void) { return has_come ? CLI_INTERRUPTED : CLI_OK; }

void interrupt_release(void) { signal(SIGINT, SIG_DFL); }

void interrupt_catch(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    action.sa_flags = (int)(SA_RESETHAND | SA_RESTART); /* a write that is interrupted would lose text */
    sigaction(SIGINT, &action, NULL);
}
