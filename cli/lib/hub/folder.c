/* SPDX-License-Identifier: MIT
 *
 * folder.c: see folder.h.
 */
#include "folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/lib/common.h"

char *hub_text(const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, fmt, args);
    char *text = cli_alloc((size_t)n + 1, 1);
    vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(args);
    return text;
}

/* ---- where it is ------------------------------------------------------------------------------- */

/* A variable's value; NULL if it is not set, or empty. */
static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

static char *find_root(void) {
    const char *value;
    if ((value = variable("HF_HUB_CACHE")) || (value = variable("HUGGINGFACE_HUB_CACHE"))) return hub_text("%s", value);
    if ((value = variable("HF_HOME"))) return hub_text("%s/hub", value);
    if ((value = variable("XDG_CACHE_HOME"))) return hub_text("%s/huggingface/hub", value);
    if ((value = variable("HOME"))) return hub_text("%s/.cache/huggingface/hub", value);
    return NULL;
}

int hub_folder_find(const char *repo, hub_folder *f) {
    const char *slash = strchr(repo, '/');
    *f = (hub_folder){.root = find_root()};
    if (!f->root) {
        cli_error("-hf: no cache folder: set HF_HUB_CACHE, or HOME");
        return CLI_FAILED;
    }
    f->repo = hub_text("%s/models--%.*s--%s", f->root, (int)(slash - repo), repo, slash + 1);
    f->locks = hub_text("%s/.locks/models--%.*s--%s", f->root, (int)(slash - repo), repo, slash + 1);
    return CLI_OK;
}

void hub_folder_release(hub_folder *f) {
    free(f->root);
    free(f->repo);
    free(f->locks);
    *f = (hub_folder){0};
}

char *hub_folder_path(const hub_folder *f, const char *commit, const char *path) {
    return hub_text("%s/snapshots/%s/%s", f->repo, commit, path);
}

/* ---- what is in it ----------------------------------------------------------------------------- */

static int read_ref(const hub_folder *f, char commit[41]) {
    char *path = hub_text("%s/refs/main", f->repo);
    FILE *file = fopen(path, "rb");
    const size_t n = file ? fread(commit, 1, 40, file) : 0;
    commit[n] = 0;
    if (file) fclose(file);
    free(path);
    return hub_is_hex(commit, 40);
}

/* Add what lies in `folder`, whose path inside of the repository is `inside`, "" or with a slash at its end. */
static void list_below(const char *folder, const char *inside, uint32_t depth, hub_listing *list) {
    const struct dirent *entry;
    DIR *dir = opendir(folder);
    while (dir && (entry = readdir(dir)) != NULL) {
        struct stat info;
        hub_file file = {.path = ""};
        if (entry->d_name[0] == '.') continue;
        char *path = hub_text("%s/%s", folder, entry->d_name), *name = hub_text("%s%s", inside, entry->d_name);
        const int is_there = stat(path, &info) == 0 && hub_is_path(name);
        if (is_there && S_ISDIR(info.st_mode) && depth < HUB_DEPTH_MAX) {
            char *below = hub_text("%s/", name);
            list_below(path, below, depth + 1, list);
            free(below);
        } else if (is_there && S_ISREG(info.st_mode) && hub_is_gguf(name)) {
            memcpy(file.path, name, strlen(name) + 1);
            file.size_bytes = (uint64_t)info.st_size;
            (void)hub_listing_add(list, &file); /* more than HUB_FILES_MAX: the first ones */
        }
        free(path);
        free(name);
    }
    if (dir) closedir(dir);
}

int hub_folder_list(const hub_folder *f, char commit[41], hub_listing *list) {
    if (!read_ref(f, commit)) return 0;
    char *folder = hub_text("%s/snapshots/%s", f->repo, commit);
    list_below(folder, "", 0, list);
    free(folder);
    return list->n > 0;
}

/* ---- what is put there ------------------------------------------------------------------------- */

static int cannot(const char *verb, const char *path) {
    cli_error("cannot %s %s: %s", verb, path, strerror(errno));
    return CLI_FAILED;
}

int hub_folder_make_for(const char *path) {
    char *copy = cli_copy(path, strlen(path));
    int code = CLI_OK;
    for (char *at = strchr(copy + 1, '/'); at && code == CLI_OK; at = strchr(at + 1, '/')) {
        *at = 0;
        if (mkdir(copy, 0777) != 0 && errno != EEXIST) code = cannot("make the folder", copy);
        *at = '/';
    }
    free(copy);
    return code;
}

/* A link at `path` that leads to `target`, whatever is there now. */
static int put_link(const char *target, const char *path) {
    char *beside = hub_text("%s.%ld.tmp", path, (long)getpid());
    int code = hub_folder_make_for(path);
    if (code == CLI_OK && (symlink(target, beside) != 0 || rename(beside, path) != 0)) {
        code = cannot("make the link", path);
        unlink(beside);
    }
    free(beside);
    return code;
}

static int put_ref(const hub_folder *f, const char *commit) {
    char *path = hub_text("%s/refs/main", f->repo), *beside = hub_text("%s.%ld.tmp", path, (long)getpid());
    int code = hub_folder_make_for(path);
    FILE *file = code == CLI_OK ? fopen(beside, "wb") : NULL;
    const int is_written = file && fputs(commit, file) >= 0;
    const int is_closed = file && fclose(file) == 0;
    if (code == CLI_OK && (!is_written || !is_closed || rename(beside, path) != 0)) {
        code = cannot("write", path);
        unlink(beside);
    }
    free(path);
    free(beside);
    return code;
}

int hub_folder_name(const hub_folder *f, const char *commit, const hub_file *file) {
    char up[3 * HUB_DEPTH_MAX + 1] = "";
    uint32_t depth = 0;
    for (const char *at = strchr(file->path, '/'); at && depth < HUB_DEPTH_MAX; at = strchr(at + 1, '/'), depth++)
        memcpy(up + 3 * depth, "../", 4);
    char *target = hub_text("%s../../blobs/%s", up, file->sha256), *path = hub_folder_path(f, commit, file->path);
    int code = put_link(target, path);
    if (code == CLI_OK) code = put_ref(f, commit);
    free(target);
    free(path);
    return code;
}
