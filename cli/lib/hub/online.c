/* SPDX-License-Identifier: MIT
 *
 * online.c: see online.h.
 */
#include "online.h"

#include <stdio.h>

#include "cli/lib/common.h"
#include "hub.h"

#if PLEAT_CURL

#include <stdlib.h>
#include <string.h>

#include "curl/fetch.h"
#include "listing.h"

enum { ANSWER_BYTES_MAX = 32 << 20, PAGES_MAX = 64, TOKEN_CAP = 512, STALL_S = 10, STALL_MAX_S = 3600 };

typedef struct online {
    const hub_question *q;
    http_session *session;
    char *endpoint; /* without a slash at its end */
    char token[TOKEN_CAP];
    char *why; /* hub_why of the caller */
    int is_unreachable;
} online;

/* ---- what the environment says ------------------------------------------------------------------- */

static int find_endpoint(online *o) {
    const char *text = getenv("HF_ENDPOINT");
    if (!text || !text[0]) text = "https://huggingface.co";
    size_t n = strlen(text);
    while (n && text[n - 1] == '/') n--;
    o->endpoint = cli_copy(text, n);
    const int is_url = !strncmp(text, "https://", 8) || !strncmp(text, "http://", 7);
    const char *user_end = strchr(text, '@'); /* the URL stands in messages: it must not hold a password */
    if (is_url && !user_end) return CLI_OK;
    if (user_end)
        cli_error("HF_ENDPOINT: a user's name stands in it, which is not supported: https://NAME");
    else
        cli_error("HF_ENDPOINT: '%s' is no URL of a server: https://NAME", text);
    return CLI_FAILED;
}

/* The file in which the hub's tools keep a token; the caller frees it.  NULL: there can be none. */
static char *token_path(void) {
    const char *value;
    if ((value = getenv("HF_TOKEN_PATH")) && value[0]) return hub_text("%s", value);
    if ((value = getenv("HF_HOME")) && value[0]) return hub_text("%s/token", value);
    if ((value = getenv("XDG_CACHE_HOME")) && value[0]) return hub_text("%s/huggingface/token", value);
    if ((value = getenv("HOME")) && value[0]) return hub_text("%s/.cache/huggingface/token", value);
    return NULL;
}

static void find_token(online *o) {
    char text[TOKEN_CAP] = "";
    const char *value = getenv("HF_TOKEN");
    if (value && value[0]) {
        snprintf(text, sizeof text, "%s", value);
    } else {
        char *path = token_path();
        FILE *file = path ? fopen(path, "rb") : NULL;
        text[file ? fread(text, 1, sizeof text - 1, file) : 0] = 0;
        if (file) fclose(file);
        free(path);
    }
    const char *begin = text + strspn(text, " \t\r\n");
    size_t n = strlen(begin);
    while (n && strchr(" \t\r\n", begin[n - 1])) n--;
    snprintf(o->token, sizeof o->token, "%.*s", (int)n, begin);
    for (size_t i = 0; i < n; i++)
        if (begin[i] < '!' || begin[i] > '~') o->token[0] = 0; /* it would not stay one header */
}

static uint32_t find_stall_s(void) {
    const char *text = getenv("HF_HUB_DOWNLOAD_TIMEOUT");
    const long v = text ? strtol(text, NULL, 10) : 0;
    return v < 1 ? STALL_S : v > STALL_MAX_S ? STALL_MAX_S : (uint32_t)v;
}

/* ---- the hub's answers --------------------------------------------------------------------------- */

/* A body in memory. */
typedef struct body {
    char *text;
    size_t n;
} body;

static int take_text(void *self, const void *bytes, size_t n) {
    body *b = self;
    if (n > ANSWER_BYTES_MAX - b->n) return 0;
    char *grown = realloc(b->text, b->n + n);
    if (!grown) return 0;
    memcpy(grown + b->n, bytes, n);
    b->text = grown;
    b->n += n;
    return 1;
}

/* A refusal that will not pass. */
static int refuse(const online *o, http_fate fate, const http_answer *a) {
    const char *repo = o->q->name->repo, *said = a->message[0] ? a->message : http_why(o->session);
    if (fate == HTTP_STOPPED)
        cli_error("%s: the hub's answer has more than %d MiB", repo, ANSWER_BYTES_MAX >> 20);
    else if (fate == HTTP_STATUS && (a->status == 401 || a->status == 403))
        cli_error("%s: there is no such model, or %s: %s (status %ld)", repo,
                  o->token[0] ? "your token may not read it" : "it wants a token, in HF_TOKEN", said, a->status);
    else if (fate == HTTP_STATUS && a->status == 404)
        cli_error("%s: %s has no such model (status 404)", repo, o->endpoint);
    else
        cli_error("%s: %s: %s", repo, o->endpoint, said);
    return CLI_FAILED;
}

/* Get a text, with patience unless the cache has an answer, too.  The caller frees b->text. */
static int get_text(online *o, const char *url, body *b, http_answer *a) {
    for (uint32_t tries = 1;; tries++) {
        *b = (body){0};
        const http_sink sink = {NULL, take_text, b};
        const http_fate fate = http_get(o->session, url, 0, NULL, &sink, a);
        if (fate == HTTP_DONE) return CLI_OK;
        free(b->text);
        b->text = NULL;
        if (fate == HTTP_INTERRUPTED) return CLI_INTERRUPTED;
        if (!http_may_pass(fate, a)) return refuse(o, fate, a);
        if (o->q->has_cached || tries == HTTP_TRIES) {
            snprintf(o->why, HUB_WHY_CAP, "%s: %s", o->endpoint, http_why(o->session));
            o->is_unreachable = 1;
            return CLI_FAILED;
        }
        if (!o->q->is_quiet) cli_note("%s: %s; trying again", o->endpoint, http_why(o->session));
        if (http_wait(tries, a) != CLI_OK) return CLI_INTERRUPTED;
    }
}

static int bad_answer(const online *o, const char *why) {
    cli_error("%s: %s", o->q->name->repo, why);
    return CLI_FAILED;
}

static int get_commit(online *o, char commit[41]) {
    char *url = hub_text("%s/api/models/%s/revision/main", o->endpoint, o->q->name->repo);
    hub_why why = "";
    http_answer answer;
    body b;
    int code = get_text(o, url, &b, &answer);
    if (code == CLI_OK && !hub_commit_parse(b.text, b.n, commit, why)) code = bad_answer(o, why);
    free(b.text);
    free(url);
    return code;
}

/* All pages of the list.  Where the rest is says the hub; it is of the hub itself. */
static int get_listing(online *o, const char *commit, hub_listing *list) {
    char *url = hub_text("%s/api/models/%s/tree/%s?recursive=true", o->endpoint, o->q->name->repo, commit);
    const size_t n_endpoint = strlen(o->endpoint);
    int code = CLI_OK;
    for (uint32_t page = 0; url && code == CLI_OK; page++) {
        hub_why why = "it lists its files without end";
        http_answer answer;
        body b;
        code = get_text(o, url, &b, &answer);
        if (code == CLI_OK && (page == PAGES_MAX || !hub_listing_parse(b.text, b.n, list, why)))
            code = bad_answer(o, why);
        if (code == CLI_OK && answer.next[0] &&
            (strncmp(answer.next, o->endpoint, n_endpoint) != 0 || answer.next[n_endpoint] != '/'))
            code = bad_answer(o, "the rest of its list of files is elsewhere");
        free(b.text);
        free(url);
        url = code == CLI_OK && answer.next[0] ? hub_text("%s", answer.next) : NULL;
    }
    free(url);
    return code;
}

/* ---- the file ------------------------------------------------------------------------------------ */

static int get_file(const online *o, const char *commit, const hub_file *file) {
    const hub_folder *f = o->q->folder;
    if (!file->sha256[0]) return bad_answer(o, "the hub lists no SHA-256 for it, so it cannot be checked");
    char *escaped = http_escape(o->session, file->path);
    char *url = hub_text("%s/%s/resolve/%s/%s", o->endpoint, o->q->name->repo, commit, escaped);
    char *blob = hub_text("%s/blobs/%s", f->repo, file->sha256), *lock = hub_text("%s/%s.lock", f->locks, file->sha256);
    const fetch_job job = {.session = o->session,
                           .url = url,
                           .name = file->path,
                           .blob = blob,
                           .lock = lock,
                           .size_bytes = file->size_bytes,
                           .sha256 = file->sha256,
                           .is_quiet = o->q->is_quiet};
    int code = hub_folder_make_for(blob);
    if (code == CLI_OK) code = hub_folder_make_for(lock);
    if (code == CLI_OK) code = fetch_blob(&job);
    if (code == CLI_OK) code = hub_folder_name(f, commit, file);
    free(escaped);
    free(url);
    free(blob);
    free(lock);
    return code;
}

static int take(online *o, char **path) {
    hub_listing list = {0};
    hub_why why;
    char commit[41];
    int code = get_commit(o, commit);
    if (code == CLI_OK) code = get_listing(o, commit, &list);
    const hub_file *file = code == CLI_OK ? hub_pick(&list, o->q->name, o->q->file, why) : NULL;
    if (code == CLI_OK && !file) code = bad_answer(o, why);
    if (code == CLI_OK) code = get_file(o, commit, file);
    if (code == CLI_OK) *path = hub_folder_path(o->q->folder, commit, file->path);
    hub_listing_release(&list);
    return code;
}

int hub_online_take(const hub_question *q, char **path, hub_why why) {
    online o = {.q = q, .why = why};
    *path = NULL;
    int code = find_endpoint(&o);
    find_token(&o);
    if (code == CLI_OK) o.session = http_open(o.endpoint, o.token[0] ? o.token : NULL, find_stall_s());
    if (code == CLI_OK && !o.session) code = bad_answer(&o, "libcurl does not start");
    if (code == CLI_OK) code = take(&o, path);
    http_close(o.session);
    free(o.endpoint);
    return o.is_unreachable ? CLI_OK : code;
}

const char *hub_describe(void) { return http_describe(); }

#else

int hub_online_take(const hub_question *q, char **path, hub_why why) {
    (void)q;
    *path = NULL;
    snprintf(why, HUB_WHY_CAP, "this build has no libcurl (the build option PLEAT_CURL), so it downloads nothing");
    return CLI_OK;
}

const char *hub_describe(void) { return "no libcurl"; }

#endif
