/* SPDX-License-Identifier: MIT
 *
 * hub.c: see hub.h.
 */
#include "hub.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/lib/common.h"
#include "cli/lib/interrupt.h"
#include "online.h"

/* HF_HUB_OFFLINE, as the hub's own tools read it. */
static int is_offline(void) {
    static const char *const words[] = {"1", "on", "yes", "true"};
    const char *text = getenv("HF_HUB_OFFLINE");
    for (size_t i = 0; text && i < sizeof words / sizeof words[0]; i++)
        if (!strcasecmp(text, words[i])) return 1;
    return 0;
}

/* The path of what the folder has for the question, or NULL and why not. */
static char *find_cached(const hub_question *q, hub_why why) {
    hub_listing list = {0};
    char commit[41], *path = NULL;
    snprintf(why, HUB_WHY_CAP, "nothing of it is in %s", q->folder->root);
    const hub_file *file = hub_folder_list(q->folder, commit, &list) ? hub_pick(&list, q->name, q->file, why) : NULL;
    if (file) path = hub_folder_path(q->folder, commit, file->path);
    hub_listing_release(&list);
    return path;
}

/* The path of the model, from the hub or from the folder. */
static int find(hub_question *q, char **path) {
    hub_why why_offline = "HF_HUB_OFFLINE is set", why_not_cached;
    char *cached = find_cached(q, why_not_cached);
    int code = CLI_OK;
    q->has_cached = cached != NULL;
    *path = NULL;
    if (!is_offline()) code = hub_online_take(q, path, why_offline);
    if (code != CLI_OK || *path) {
        free(cached);
        return code;
    }
    *path = cached;
    if (!cached) {
        cli_error("%s: %s; and in the cache: %s", q->name->repo, why_offline, why_not_cached);
        return CLI_FAILED;
    }
    if (!q->is_quiet && !is_offline()) cli_note("%s; taking %s, which is in the cache", why_offline, cached);
    return CLI_OK;
}

static int is_model_row(const option_row *row) { return !strcmp(row->name, "model"); }

int hub_take(const command *c, void *opts) {
    common_options *common = opts;
    hub_name name;
    hub_folder folder;
    hub_why why;
    if (!common->hf_repo) return CLI_OK;
    if (!hub_name_parse(common->hf_repo, &name, why)) {
        cli_error("-hf '%s': %s", common->hf_repo, why);
        return CLI_USAGE;
    }
    hub_question q = {.name = &name, .file = common->hf_file, .folder = &folder, .is_quiet = common->quiet};
    interrupt_catch();
    int code = hub_folder_find(name.repo, &folder);
    if (code == CLI_OK) code = find(&q, &common->hf_path);
    hub_folder_release(&folder);
    interrupt_release();
    for (uint32_t i = 0; i < c->n_rows && code == CLI_OK; i++)
        if (is_model_row(&c->rows[i])) *(const char **)((char *)opts + c->rows[i].offset) = common->hf_path;
    if (code == CLI_OK) options_add_input(common, common->hf_path);
    return code;
}
