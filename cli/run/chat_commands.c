/* SPDX-License-Identifier: MIT
 *
 * chat_commands.c: what a conversation does where a line begins with a slash.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "chat.h"
#include "cli/lib/common.h"
#include "cli/lib/terminal.h"

typedef struct chat_row {
    const char *name; /* with its slash */
    const char *arg;  /* what stands behind it, [in brackets] where it may be left out; NULL: nothing */
    const char *help;
    int (*fn)(chat *c, const char *arg); /* arg: "" for none */
} chat_row;

static const chat_row rows[];
static const uint32_t n_rows;

static void note(const chat *c, const char *text) {
    if (!c->r->o->common.quiet) cli_note("%s", text);
}

/* ---- what was said ----------------------------------------------------------------------------- */

static int do_help(chat *c, const char *arg) {
    (void)c, (void)arg;
    for (uint32_t i = 0; i < n_rows; i++) {
        char head[32];
        snprintf(head, sizeof head, "%s %s", rows[i].name, rows[i].arg ? rows[i].arg : "");
        fprintf(stderr, "%-16s %s\n", head, rows[i].help);
    }
    fputs("A line that ends in a backslash goes on in the next.  //TEXT says /TEXT.\n"
          "Ctrl-C stops an answer, which stays as far as it came; twice at an empty line it leaves, as Ctrl-D does.\n",
          stderr);
    return CLI_OK;
}

static int do_clear(chat *c, const char *arg) {
    (void)arg;
    conversation_clear(&c->talk);
    chat_forget(c);
    return chat_trim_turns(c);
}

static int do_undo(chat *c, const char *arg) {
    (void)arg;
    if (!conversation_undo(&c->talk)) {
        cli_error("/undo: nothing has been said yet");
        return CLI_FAILED;
    }
    return chat_trim_turns(c);
}

static int do_regen(chat *c, const char *arg) {
    conversation *talk = &c->talk;
    (void)arg;
    char *old = NULL;
    if (talk->n && !conversation_is_asked(talk) && conversation_turns(talk)) {
        old = cli_copy(talk->messages[talk->n - 1].content, strlen(talk->messages[talk->n - 1].content));
        conversation_pop(talk);
    }
    int code = CLI_FAILED;
    if (conversation_is_asked(talk)) {
        if (!(c->r->o->temp > 0) && old) note(c, "without --temp the same tokens give the same answer");
        code = chat_answer(c);
    } else {
        cli_error("/regen: there is no message of yours to answer");
    }
    if (code != CLI_OK && old) conversation_add(talk, "assistant", old, strlen(old));
    if (code == CLI_OK) chat_say_turn(c);
    free(old);
    return code;
}

int chat_check_text(const char *what, const char *text, size_t n) {
    const size_t bad = utf8_first_invalid(text, n);
    const char *nul = memchr(text, 0, bad);
    if (nul)
        cli_error("%s holds a NUL byte at offset %zu, which the chat form cannot pass on", what, (size_t)(nul - text));
    else if (bad < n)
        cli_error("%s is not valid UTF-8: byte 0x%02x at offset %zu", what, (unsigned char)text[bad], bad);
    return nul || bad < n ? CLI_FAILED : CLI_OK;
}

static int do_system(chat *c, const char *arg) {
    const char *now = conversation_system(&c->talk);
    if (arg[0]) {
        conversation_set_system(&c->talk, strcmp(arg, "-") ? arg : NULL);
        return CLI_OK;
    }
    if (!now) now = "There is no system text.";
    char *escaped = cli_alloc(UTF8_ESCAPED_CAP(strlen(now)), 1);
    fprintf(stderr, "%s\n", utf8_escape(now, "\n\t", escaped));
    free(escaped);
    return CLI_OK;
}

/* ---- files ------------------------------------------------------------------------------------- */

/* Whether the command reads the file for something else than the conversation. */
static int is_read(const chat *c, const char *path) {
    const run_options *o = c->r->o;
    for (uint32_t i = 0; i < o->common.n_inputs; i++)
        if (o->common.inputs[i] != o->load_path && whole_file_is_same(path, o->common.inputs[i])) return 1;
    return 0;
}

static int is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static int save(chat *c, const char *said, const char *path, int replaces) {
    if (c->talk.n == 0)
        cli_error("%s: nothing has been said yet", said);
    else if (!strcmp(path, "-"))
        cli_error("%s: name a file; stdout carries the answers", said);
    else if (is_read(c, path))
        cli_error("%s: %s is a file that the command reads", said, path);
    else if (is_folder(path))
        cli_error("%s: %s is a folder; name a file in it", said, path);
    else if (!replaces && access(path, F_OK) == 0)
        cli_error("%s: %s is there already; /save! %s replaces it", said, path, path);
    else {
        output out = {.format = FORMAT_JSON};
        if (whole_file_open(&out.whole, path) != CLI_OK) return CLI_FAILED;
        out.file = out.whole.file;
        output_json(&out, conversation_json(&c->talk));
        if (out.is_incomplete) {
            whole_file_abandon(&out.whole);
            return CLI_FAILED;
        }
        return whole_file_close(&out.whole);
    }
    return CLI_FAILED;
}

static int do_save(chat *c, const char *arg) { return save(c, "/save", arg, 0); }

static int do_save_over(chat *c, const char *arg) { return save(c, "/save!", arg, 1); }

int chat_load(chat *c, const char *path) {
    char *text, why[CONVERSATION_WHY_CAP];
    size_t n;
    conversation read = {0};
    if (cli_read_file(CONTENT_CONVERSATION, path, &text, &n) != CLI_OK) return CLI_FAILED;
    const int is_read = conversation_parse(&read, text, n, why);
    free(text);
    if (!is_read) {
        cli_error("%s holds no conversation: %s", path, why);
        return CLI_FAILED;
    }
    const char *system = conversation_system(&c->talk);
    if (system && !conversation_system(&read)) conversation_set_system(&read, system);
    conversation_release(&c->talk);
    c->talk = read;
    c->n_turns = 0;
    if (conversation_is_asked(&c->talk)) note(c, "the last message has no answer yet: /regen answers it");
    return CLI_OK;
}

static int do_load(chat *c, const char *arg) {
    if (conversation_turns(&c->talk)) {
        cli_error("/load: a conversation is under way; /save FILE keeps it, and /clear makes room");
        return CLI_FAILED;
    }
    struct stat info;
    if (!strcmp(arg, "-") || (stat(arg, &info) == 0 && !S_ISREG(info.st_mode))) { /* Ctrl-C would not end the wait */
        cli_error("/load: '%s' is no file", arg);
        return CLI_FAILED;
    }
    return chat_load(c, arg);
}

/* ---- figures ----------------------------------------------------------------------------------- */

/* NaN where nothing was timed. */
static double rate(double n, double seconds) { return n > 0 && seconds > 0 ? n / seconds : NAN; }

static double share(const pleat_cache_usage *u) {
    return u->bytes_f16 ? 100 * (double)u->bytes / (double)u->bytes_f16 : 0;
}

static void print_turns(const chat *c) {
    static const char *const titles[] = {"turn", "tokens", "read anew", "t/s", "generated", "t/s", "finished"};
    table t;
    table_init(&t, titles, sizeof titles / sizeof titles[0]);
    for (uint32_t i = 0; i < c->n_turns; i++) {
        const chat_turn *turn = &c->turns[i];
        table_put(&t, "%u", turn->number);
        table_put(&t, "%u", turn->n_prompt);
        table_put(&t, "%u", turn->n_prompt - turn->n_kept);
        table_put_number(&t, 0, rate(turn->n_prompt - turn->n_kept, turn->read_s));
        table_put(&t, "%u", turn->n_generated);
        table_put_number(&t, 0, rate(turn->n_generated, turn->generation_s));
        table_put(&t, "%s", turn->finish);
    }
    if (c->n_turns) table_print_aligned(&t, stderr, terminal_columns(stderr));
    table_release(&t);
}

static int do_stats(chat *c, const char *arg) {
    char held[BYTES_CAP], f16[BYTES_CAP], more[BYTES_CAP];
    uint64_t back;
    const pleat_cache_usage u = chat_usage(c, &back);
    (void)arg;
    print_turns(c);
    fprintf(stderr, "messages   %u\n", c->talk.n);
    fprintf(stderr, "context    %u of %u tokens\n", c->held.n, c->r->n_ctx);
    fprintf(stderr, "KV cache   %s: %s in %llu pages, %.1f %% of f16's %s", c->r->o->load.kv.text[0],
            print_bytes(held, u.bytes), (unsigned long long)u.pages_used, share(&u), print_bytes(f16, u.bytes_f16));
    if (back) fprintf(stderr, "; %s more to go back to", print_bytes(more, back));
    fputc('\n', stderr);
    return CLI_OK;
}

void chat_say_turn(const chat *c) {
    if (c->r->o->common.quiet || !c->n_turns) return;
    const chat_turn *turn = &c->turns[c->n_turns - 1];
    const uint32_t left = c->r->n_ctx - c->held.n;
    char held[BYTES_CAP], speed[48] = "";
    uint64_t back;
    const pleat_cache_usage u = chat_usage(c, &back);
    const double tokens_per_s = rate(turn->n_generated, turn->generation_s);
    if (isfinite(tokens_per_s)) snprintf(speed, sizeof speed, ", %.0f tokens/s", tokens_per_s);
    if (isatty(STDOUT_FILENO) && isatty(STDERR_FILENO))
        fprintf(stderr, "%s%u tokens%s; cache: %s, %.0f %% of f16's%s\n", terminal_begin(stderr, STYLE_DIM),
                turn->n_generated, speed, print_bytes(held, u.bytes), share(&u), terminal_end(stderr));
    if (left == 0)
        cli_note("stopped: the context of %u tokens is full; /undo and /clear make room", c->r->n_ctx);
    else if (left < c->r->n_ctx / 8)
        cli_note("the context is nearly full: %u of %u tokens; /undo and /clear make room", c->held.n, c->r->n_ctx);
}

/* ---- the table --------------------------------------------------------------------------------- */

static int do_exit(chat *c, const char *arg) {
    (void)arg;
    c->is_over = 1;
    return CLI_OK;
}

static const chat_row rows[] = {
    {"/help", NULL, "this list", do_help},
    {"/stats", NULL, "tokens of each turn and how many were read anew, speeds, bytes of the cache", do_stats},
    {"/regen", NULL, "answer the last message again", do_regen},
    {"/undo", NULL, "drop the last message and its answer", do_undo},
    {"/clear", NULL, "forget what was said, but the system text, and empty the cache", do_clear},
    {"/system", "[TEXT]", "show the system text, or set it; -: none", do_system},
    {"/save", "FILE", "write the messages as JSON to a new file", do_save},
    {"/save!", "FILE", "the same over an old one", do_save_over},
    {"/load", "FILE", "go on with messages that were saved", do_load},
    {"/exit", NULL, "leave", do_exit},
};
static const uint32_t n_rows = sizeof rows / sizeof rows[0];

/* What other programs call them. */
static const char *const other_names[][2] = {{"/quit", "/exit"}, {"/bye", "/exit"}, {"/?", "/help"}};

static const char *own_name(const char *name) {
    for (uint32_t i = 0; i < sizeof other_names / sizeof other_names[0]; i++)
        if (!strcmp(other_names[i][0], name)) return other_names[i][1];
    return name;
}

static int unknown(const char *name) {
    const char *names[sizeof rows / sizeof rows[0]];
    char hint[HINT_CAP];
    for (uint32_t i = 0; i < n_rows; i++) names[i] = rows[i].name;
    cli_error("'%.40s': no such command%s; /help lists all, and //TEXT says /TEXT", name,
              cli_hint(hint, "", name, names[cli_nearest(name, names, n_rows)]));
    return CLI_FAILED;
}

/* Without spaces at its ends; a new text. */
static char *trimmed(const char *text) {
    while (isspace((unsigned char)*text)) text++;
    size_t n = strlen(text);
    while (n && isspace((unsigned char)text[n - 1])) n--;
    return cli_copy(text, n);
}

static int call(chat *c, const chat_row *row, const char *arg) {
    if (!row->arg && arg[0]) {
        cli_error("%s takes nothing behind it", row->name);
        return CLI_FAILED;
    }
    if (row->arg && row->arg[0] != '[' && !arg[0]) {
        cli_error("%s needs %s: %s", row->name, row->arg, row->help);
        return CLI_FAILED;
    }
    return row->fn(c, arg);
}

int chat_command(chat *c, const char *line) {
    const size_t n = strcspn(line, " \t\n");
    char *name = cli_copy(line, n), *arg = trimmed(line + n);
    uint32_t i = 0;
    while (i < n_rows && strcmp(rows[i].name, own_name(name)) != 0) i++;
    const int code = i < n_rows ? call(c, &rows[i], arg) : unknown(name);
    free(arg);
    free(name);
    return code;
}
