/* SPDX-License-Identifier: MIT
 *
 * interrupt.c: see interrupt.h.
 */
#include "interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "common.h"

static volatile sig_atomic_t has_come;
static int bell[2] = {-1, -1}; /* a pipe that has a byte once Ctrl-C has come, which wakes a wait on any thread */

static void on_interrupt(int signal_number) {
    (void)signal_number;
    const int before = errno;
    has_come = 1;
    if (bell[1] >= 0) (void)!write(bell[1], "", 1);
    errno = before;
}

int interrupt_came(void) { return has_come; }

int interrupt_code(void) { return has_come ? CLI_INTERRUPTED : CLI_OK; }

void interrupt_release(void) { signal(SIGINT, SIG_DFL); }

/* SA_RESTART: a write that is interrupted would lose text. */
static void catch_with(int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    action.sa_flags = SA_RESTART | flags;
    sigaction(SIGINT, &action, NULL);
}

void interrupt_catch(void) { catch_with((int)SA_RESETHAND); }

void interrupt_catch_each(void) {
    if (bell[0] < 0 && pipe2(bell, O_NONBLOCK | O_CLOEXEC) != 0) bell[0] = bell[1] = -1;
    catch_with(0);
}

void interrupt_forget(void) {
    char bytes[16];
    has_come = 0;
    while (bell[0] >= 0 && read(bell[0], bytes, sizeof bytes) > 0) {}
}

int interrupt_wait(int fd) {
    struct pollfd wanted[] = {{.fd = fd, .events = POLLIN}, {.fd = bell[0], .events = POLLIN}}; /* -1 is left out */
    while (!has_come && poll(wanted, 2, -1) < 0 &&
           errno == EINTR) { /* another signal, as of a new size of the window */
    }
    return !has_come;
}
