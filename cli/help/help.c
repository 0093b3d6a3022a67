/* SPDX-License-Identifier: MIT
 *
 * help.c: see help.h.
 */
#include "help.h"

#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"

enum { NAMES_CAP = 64 };

/* Bytes of the first word of a command's name. */
static size_t first_word(const char *name) { return strcspn(name, " "); }

/* Whether the name begins with the word, and has more. */
static int is_of_group(const char *name, const char *word) {
    const size_t n = strlen(word);
    return !strncmp(name, word, n) && name[n] == ' ';
}

int help_is_group(const command_list *list, const char *word) {
    for (uint32_t i = 0; i < list->n; i++)
        if (is_of_group(list->v[i]->name, word)) return 1;
    return 0;
}

const char *help_of_group(const char *word) {
    return !strcmp(word, "bench") ? "measure this machine" : "files that `run --prompt-cache` writes";
}

/* ---- texts ----------------------------------------------------------------------------------- */

static void put_line(const char *name, const char *help, FILE *f) { fprintf(f, "  %-14s %s\n", name, help); }

/* One line for each command of the group; "": of them all. */
static void put_commands(const command_list *list, const char *group, FILE *f) {
    for (uint32_t i = 0; i < list->n; i++)
        if (!group[0] || is_of_group(list->v[i]->name, group)) put_line(list->v[i]->name, list->v[i]->help, f);
}

void help_all(const command_list *list, FILE *f) {
    fprintf(f, "pleat %s: a KV-cache engine for language models\n\nusage: pleat COMMAND [OPTIONS]\n\n",
            pleat_version());
    put_commands(list, "", f);
    put_line("help", HELP_TEXT, f);
    put_line("completion", COMPLETION_TEXT, f);
    put_line("--version", VERSION_TEXT, f);
    fprintf(f, "\nexit codes: 0 ok, 1 failed, 2 wrong usage, 130 interrupted\n");
}

/* The second words of a group's names, with `between` in front of all but the first. */
static void put_second_words(const command_list *list, const char *word, const char *between, const char *last,
                             FILE *f) {
    uint32_t n = 0, n_put = 0;
    for (uint32_t i = 0; i < list->n; i++) n += is_of_group(list->v[i]->name, word) != 0;
    for (uint32_t i = 0; i < list->n; i++) {
        if (!is_of_group(list->v[i]->name, word)) continue;
        fprintf(f, "%s%s", !n_put ? "" : n_put + 1 == n ? last : between, list->v[i]->name + strlen(word) + 1);
        n_put++;
    }
}

void help_group(const command_list *list, const char *word, FILE *f) {
    const char *first = NULL;
    for (uint32_t i = 0; i < list->n && !first; i++)
        if (is_of_group(list->v[i]->name, word)) first = list->v[i]->name;
    fprintf(f, "pleat %s: %s\n\nusage: pleat %s ", word, help_of_group(word), word);
    put_second_words(list, word, "|", "|", f);
    fprintf(f, " [OPTIONS]\n\n");
    put_commands(list, word, f);
    fprintf(f, "\nThe options of one: pleat help %s\n", first);
}

int help_itself(const char *word, FILE *f) {
    if (!strcmp(word, "help"))
        fprintf(f, "pleat help: %s\n\nusage: pleat help %s\n", HELP_TEXT, HELP_USAGE);
    else if (!strcmp(word, "completion"))
        fprintf(f, "pleat completion: %s\n\nusage: pleat completion %s\n\nIn bash: . <(pleat completion bash)\n",
                COMPLETION_TEXT, COMPLETION_USAGE);
    else
        return 0;
    return 1;
}

void help_command(const command *c, FILE *f) {
    int n = fprintf(f, "pleat %s: ", c->name);
    options_put_words(f, c->help, n > 0 ? (uint32_t)n : 0, 0);
    n = fprintf(f, "\n\nusage: pleat %s ", c->name) - 2;
    options_put_words(f, c->usage, n > 0 ? (uint32_t)n : 0, 7);
    fputc('\n', f);
    options_help(c, f);
}

/* ---- which command --------------------------------------------------------------------------- */

/* Number of words of `name` that argv[first..] spells out; 0 if it does not. */
static int match(const char *name, int argc, char **argv, int first) {
    const size_t n = first_word(name);
    if (first >= argc || strlen(argv[first]) != n || strncmp(argv[first], name, n) != 0) return 0;
    if (!name[n]) return 1;
    return first + 1 < argc && !strcmp(argv[first + 1], name + n + 1) ? 2 : 0;
}

const command *help_find(const command_list *list, int argc, char **argv, int first, int *n_words) {
    for (uint32_t i = 0; i < list->n; i++)
        if ((*n_words = match(list->v[i]->name, argc, argv, first)) > 0) return list->v[i];
    return NULL;
}

static int needs_second_word(const command_list *list, const char *word, int position) {
    char *words = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&words, &n);
    if (f) {
        put_second_words(list, word, ", ", " or ", f);
        fclose(f);
    }
    cli_error("argument %d, '%s': needs a second word: %s", position, word, f ? words : "see `pleat help`");
    free(words);
    return CLI_USAGE;
}

/* What others call a command of their own, and is none here. */
static const char *const elsewhere[][2] = {
    {"chat", "'pleat run --chat' holds a conversation"},
    {"generate", "'pleat run' generates text"},
    {"perplexity", "'pleat eval --text FILE' measures it"},
    {"pull", "'pleat run -hf USER/REPO' downloads a model, once"},
    {"download", "'pleat run -hf USER/REPO' downloads a model, once"},
    {"convert", "models are GGUF files, which llama.cpp's convert_hf_to_gguf.py makes"},
    {"quantize", "llama.cpp's llama-quantize makes models smaller, and --kv the cache"},
};

static const char *is_elsewhere(const char *word) {
    for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++)
        if (!strcmp(elsewhere[i][0], word)) return elsewhere[i][1];
    return NULL;
}

int help_unknown(const command_list *list, int argc, char **argv, int first) {
    static const char *const others[] = {"help", "completion", "--version"};
    const char *names[NAMES_CAP];
    char words[128];
    uint32_t n = 0;
    for (; n < list->n && n < NAMES_CAP - 3; n++) names[n] = list->v[n]->name;
    for (uint32_t i = 0; i < 3; i++) names[n++] = others[i];
    const int two = help_is_group(list, argv[first]);
    if (two && (first + 1 == argc || argv[first + 1][0] == '-')) return needs_second_word(list, argv[first], first);
    snprintf(words, sizeof words, "%s%s%s", argv[first], two ? " " : "", two ? argv[first + 1] : "");
    const char *hint = is_elsewhere(words);
    if (hint) {
        cli_error("argument %d, '%s': no such command; %s (`pleat help` lists all)", first, words, hint);
        return CLI_USAGE;
    }
    const char *nearest = names[cli_nearest(words, names, n)];
    const char *space = strchr(nearest, ' ');
    if (cli_is_near(two ? argv[first + 1] : words, two && space ? space + 1 : nearest)) {
        cli_error("argument %d, '%s': no such command; the nearest is 'pleat %s' (`pleat help` lists all)", first,
                  words, nearest);
        return CLI_USAGE;
    }
    cli_error("argument %d, '%s': no such command; there are:", first, words);
    put_commands(list, two ? argv[first] : "", stderr);
    return CLI_USAGE;
}
