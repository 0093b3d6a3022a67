/* SPDX-License-Identifier: MIT
 *
 * chat_rig.h: templates and contexts compiled and rendered in one go.
 */
#ifndef CHECK_CHAT_RIG_H
#define CHECK_CHAT_RIG_H

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "pleat/chat.h"

#define CHAT_CAP (4u << 20)
#define CHAT_NOW 1767323045 /* the second since 1970 that the references were made in, in UTC */

static inline pleat_chat_options chat_options(void) {
    pleat_chat_options opt;
    pleat_chat_options_default(&opt);
    opt.now = CHAT_NOW;
    return opt;
}

/* In text [CHAT_CAP]. */
static inline pleat_status chat_render(const char *source, size_t n_source, const char *json, char *text, size_t *n,
                                       pleat_error *err) {
    pleat_chat_template *made = NULL;
    const pleat_chat_options opt = chat_options();
    pleat_status status = pleat_chat_template_compile(source, n_source, NULL, &made, err);
    if (status == PLEAT_OK) {
        status = pleat_chat_template_render(made, json, strlen(json), &opt, text, CHAT_CAP, n, err);
    }
    pleat_chat_template_destroy(&made);
    return status;
}

/* Local time is UTC from here on. */
static inline void chat_use_utc(void) {
    setenv("TZ", "UTC", 1);
    tzset();
}

#endif
