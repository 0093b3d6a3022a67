/* SPDX-License-Identifier: MIT
 *
 * completion.c: scripts that complete commands, options, the words of enumerations, and files where one is wanted.
 *
 * All three are plain lists made from the rows: nothing asks the command while somebody types.
 */
#include <string.h>

#include "cli/lib/common.h"
#include "completion_specs.h"
#include "help.h"

static const char *const shells[] = {"bash", "zsh", "fish", NULL};

static int is_file(const option_row *row) {
    return row->kind == KIND_INPUT || row->kind == KIND_CONFIG || row->kind == KIND_OUTPUT || row->kind == KIND_OPERAND;
}

static const option_row *operand_of(const command *c) {
    for (uint32_t i = 0; i < c->n_rows; i++)
        if (c->rows[i].kind == KIND_OPERAND) return &c->rows[i];
    return NULL;
}

static void put_words(FILE *f, const char *const *words) {
    for (uint32_t i = 0; words[i]; i++) fprintf(f, "%s%s", i ? " " : "", words[i]);
}

/* The text between single quotes of a shell, with a backslash before each of `special`. */
static void put_quoted(FILE *f, const char *text, const char *special, const char *quote) {
    for (; *text; text++) {
        if (*text == '\'') {
            fputs(quote, f);
            continue;
        }
        if (strchr(special, *text)) fputc('\\', f);
        fputc(*text, f);
    }
}

/* The first words of names, each once; or the second words of those that begin with `group`. */
static void put_names(FILE *f, const command_list *list, const char *group) {
    const char *between = "", *last = "";
    size_t n_last = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        const char *name = list->v[i]->name, *space = strchr(name, ' ');
        const size_t n = strcspn(name, " "), n_group = strlen(group);
        if (n_group && (n != n_group || strncmp(name, group, n) != 0)) continue;
        if (!n_group && n == n_last && !strncmp(name, last, n)) continue; /* those of one word stand together */
        fprintf(f, "%s%.*s", between, n_group ? (int)strlen(space + 1) : (int)n, n_group ? space + 1 : name);
        between = " ";
        last = name;
        n_last = n;
    }
}

/* Call `fn` for each first word that several commands have. */
static void for_groups(FILE *f, const command_list *list, void (*fn)(FILE *, const command_list *, const char *)) {
    char group[64] = "";
    for (uint32_t i = 0; i < list->n; i++) {
        const char *name = list->v[i]->name;
        const size_t n = strcspn(name, " ");
        if (!name[n] || (strlen(group) == n && !strncmp(group, name, n))) continue;
        snprintf(group, sizeof group, "%.*s", (int)n, name);
        fn(f, list, group);
    }
}

/* ---- bash ------------------------------------------------------------------------------------ */

static const char bash_words[] = "mapfile -t COMPREPLY < <(compgen -W";

/* Offers the words; none where there are none to tell. */
static void bash_offer(FILE *f, const char *const *words) {
    fprintf(f, "%s '", bash_words);
    for (uint32_t i = 0; words && words[i]; i++) fprintf(f, "%s%s", i ? " " : "", words[i]);
    fputs("' -- \"$current\")", f);
}

static void bash_option(FILE *f, const command *c, const option_row *row) {
    if (row->kind == KIND_OPERAND || !row->arg) return;
    fprintf(f, "        '%s --%s'", c->name, row->name);
    if (row->alias) fprintf(f, " | '%s -%s'", c->name, row->alias);
    fputs(")\n            ", f);
    if (is_file(row))
        fputs("mapfile -t COMPREPLY < <(compgen -f -- \"$current\")", f);
    else if (row->kind == KIND_SPECS)
        fputs("_pleat_spec", f);
    else
        bash_offer(f, row->words);
    fputs("\n            return\n            ;;\n", f);
}

static void bash_command(FILE *f, const command *c) {
    fprintf(f, "        '%s')\n            options='", c->name);
    for (uint32_t i = 0; i < c->n_rows; i++) {
        if (c->rows[i].kind == KIND_OPERAND) continue;
        fprintf(f, " --%s", c->rows[i].name);
        if (c->rows[i].alias) fprintf(f, " -%s", c->rows[i].alias);
    }
    fprintf(f, "'%s\n            ;;\n", operand_of(c) ? " files=1" : "");
}

static void bash_group(FILE *f, const command_list *list, const char *group) {
    fprintf(f, "    if [[ $command == %s ]]; then\n        if ((at == first + 1)); then\n            %s '", group,
            bash_words);
    put_names(f, list, group);
    fputs("' -- \"$current\")\n            return\n        fi\n"
          "        command+=\" ${words[first + 1]}\"\n    fi\n",
          f);
}

/* bash cuts words at the marks of COMP_WORDBREAKS, : and = among them, and replaces what stands behind the last one.  So
 * words are put together again as they stand in the line, and from what is offered that is taken which stays. */
static void bash_words_as_typed(FILE *f) {
    fputs("# bash completion for pleat, made by `pleat completion bash`\n\n"
          "# _pleat_join: into `words` what COMP_WORDS has, but parted at spaces alone\n"
          "_pleat_join() {\n"
          "    local rest=$COMP_LINE gap i\n"
          "    for ((i = 0; i <= COMP_CWORD; i++)); do\n"
          "        gap=${rest%%[![:space:]]*}\n"
          "        rest=${rest#\"$gap\"}\n"
          "        if ((i == 0)) || [[ -n $gap ]]; then words+=(''); fi\n"
          "        words[${#words[@]} - 1]+=${COMP_WORDS[i]}\n"
          "        rest=${rest#\"${COMP_WORDS[i]}\"}\n"
          "    done\n}\n\n"
          "# _pleat: offers for the word in front of the cursor, without what bash leaves as it is\n"
          "_pleat() {\n"
          "    local words=() at current previous kept='' marks=${COMP_WORDBREAKS//[^:=]/}\n"
          "    COMPREPLY=()\n"
          "    _pleat_join\n"
          "    at=$((${#words[@]} - 1)) current=${words[-1]} previous=${words[-2]}\n"
          "    if [[ $current == -*=* ]]; then\n"
          "        kept=${current%%=*}= previous=${current%%=*} current=${current#*=}\n"
          "    fi\n"
          "    _pleat_offer\n"
          "    COMPREPLY=(\"${COMPREPLY[@]/#/$kept}\")\n"
          "    if [[ -n $marks ]]; then\n"
          "        kept+=$current\n"
          "        COMPREPLY=(\"${COMPREPLY[@]#\"${kept%\"${kept##*[$marks]}\"}\"}\")\n"
          "    fi\n}\n\n",
          f);
}

/* Words in front of a command's name, and the name itself. */
static void bash_head(FILE *f, const command_list *list) {
    bash_words_as_typed(f);
    completion_specs_bash(f);
    fputs("_pleat_offer() {\n"
          "    local first=1 command names options='' files=''\n"
          "    while ((first < at)) && [[ ${words[first]} == help || ${words[first]} == --man ]]; do\n"
          "        first=$((first + 1))\n    done\n    command=${words[first]}\n"
          "    if ((at == first)); then\n        names='",
          f);
    put_names(f, list, "");
    fprintf(f,
            "'\n        if ((first == 1)); then names+=' help completion --version'; else names+=' --man kv'; fi\n"
            "        %s \"$names\" -- \"$current\")\n        return\n    fi\n",
            bash_words);
    fputs("    if [[ $command == completion ]]; then\n        ", f);
    bash_offer(f, shells);
    fputs("\n        return\n    fi\n", f);
    for_groups(f, list, bash_group);
    fputs("    if ((first > 1)); then return; fi\n", f);
}

static void put_bash(FILE *f, const command_list *list) {
    bash_head(f, list);
    fputs("    case \"$command $previous\" in\n", f);
    for (uint32_t i = 0; i < list->n; i++)
        for (uint32_t k = 0; k < list->v[i]->n_rows; k++) bash_option(f, list->v[i], &list->v[i]->rows[k]);
    fputs("    esac\n    case \"$command\" in\n", f);
    for (uint32_t i = 0; i < list->n; i++) bash_command(f, list->v[i]);
    fprintf(f,
            "    esac\n    if [[ -n $files && $current != -* ]]; then\n"
            "        mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n    else\n"
            "        %s \"$options\" -- \"$current\")\n    fi\n}\ncomplete -o filenames -F _pleat pleat\n",
            bash_words);
}

/* ---- zsh ------------------------------------------------------------------------------------- */

static const char zsh_special[] = "[]:\\";
static const char zsh_quote[] = "'\\''";

static void zsh_option(FILE *f, const option_row *row) {
    fputs(" \\\n                ", f);
    if (row->kind == KIND_OPERAND) {
        fprintf(f, "'1:%s:_files'", row->arg);
        return;
    }
    const char *star = row->kind == KIND_SPECS && row->max != 1 ? "*" : "";
    if (row->alias && !star[0])
        fprintf(f, "'(-%s --%s)'{-%s,--%s}'[", row->alias, row->name, row->alias, row->name);
    else
        fprintf(f, "'%s--%s[", star, row->name);
    put_quoted(f, row->help, zsh_special, zsh_quote);
    fputc(']', f);
    if (row->arg) {
        fputc(':', f);
        put_quoted(f, row->arg, zsh_special, zsh_quote);
        fputc(':', f);
    }
    if (is_file(row)) fputs("_files", f);
    if (row->kind == KIND_SPECS) fputs("_pleat_spec", f);
    if (row->arg && row->words && !is_file(row) && row->kind != KIND_SPECS) {
        fputc('(', f);
        put_words(f, row->words);
        fputc(')', f);
    }
    fputc('\'', f);
}

static void zsh_describe(FILE *f, const char *name, const char *help) {
    fprintf(f, "        '%s:", name);
    put_quoted(f, help, "\\", zsh_quote);
    fputs("'\n", f);
}

static void zsh_group_name(FILE *f, const command_list *list, const char *group) {
    (void)list;
    zsh_describe(f, group, help_of_group(group));
}

static void zsh_group(FILE *f, const command_list *list, const char *group) {
    fprintf(f, "    if [[ $command == %s ]]; then\n        if (( CURRENT == 3 )); then\n            compadd -- ",
            group);
    put_names(f, list, group);
    fprintf(f, "\n            return\n        fi\n        command=\"%s $words[3]\" skip=2\n    fi\n", group);
}

static void put_zsh(FILE *f, const command_list *list) {
    fputs("#compdef pleat\n# zsh completion for pleat, made by `pleat completion zsh`\n\n", f);
    completion_specs_zsh(f);
    fputs("_pleat() {\n"
          "    local command=$words[2]\n    local -a names\n    integer skip=1\n    names=(\n",
          f);
    for (uint32_t i = 0; i < list->n; i++)
        if (!strchr(list->v[i]->name, ' ')) zsh_describe(f, list->v[i]->name, list->v[i]->help);
    for_groups(f, list, zsh_group_name);
    zsh_describe(f, "help", HELP_TEXT);
    zsh_describe(f, "completion", COMPLETION_TEXT);
    zsh_describe(f, "--version", VERSION_TEXT);
    fputs("    )\n    if (( CURRENT == 2 )); then\n        _describe command names\n        return\n    fi\n"
          "    if [[ $command == help ]]; then\n        compadd -- --man kv ",
          f);
    put_names(f, list, "");
    fputs("\n        return\n    fi\n    if [[ $command == completion ]]; then\n        compadd -- ", f);
    put_words(f, shells);
    fputs("\n        return\n    fi\n", f);
    for_groups(f, list, zsh_group);
    fputs("    shift $skip words\n    (( CURRENT -= skip ))\n    case $command in\n", f);
    for (uint32_t i = 0; i < list->n; i++) {
        fprintf(f, "        '%s')\n            _arguments", list->v[i]->name);
        for (uint32_t k = 0; k < list->v[i]->n_rows; k++) zsh_option(f, &list->v[i]->rows[k]);
        fputs("\n            ;;\n", f);
    }
    fputs("    esac\n}\n\n_pleat \"$@\"\n", f);
}

/* ---- fish ------------------------------------------------------------------------------------ */

static const char fish_quote[] = "\\'";

static void fish_option(FILE *f, const command *c, const option_row *row) {
    fprintf(f, "complete -c pleat -n '__pleat_in %s'", c->name);
    if (row->kind == KIND_OPERAND) {
        fprintf(f, " -F\n");
        return;
    }
    fprintf(f, " -l %s", row->name);
    if (row->alias) fprintf(f, " -%s %s", row->alias[1] ? "o" : "s", row->alias);
    if (is_file(row))
        fputs(" -r -F", f);
    else if (row->arg)
        fputs(" -x", f);
    if (row->kind == KIND_SPECS) fputs(" -a '(__pleat_spec)'", f);
    if (row->arg && row->words && !is_file(row) && row->kind != KIND_SPECS) {
        fputs(" -a '", f);
        put_words(f, row->words);
        fputc('\'', f);
    }
    fputs(" -d '", f);
    put_quoted(f, row->help, "\\", fish_quote);
    fputs("'\n", f);
}

static void fish_name(FILE *f, const char *name, const char *help) {
    fprintf(f, "complete -c pleat -n '__pleat_in' -a %s -d '", name);
    put_quoted(f, help, "\\", fish_quote);
    fputs("'\n", f);
}

static void fish_group(FILE *f, const command_list *list, const char *group) {
    fish_name(f, group, help_of_group(group));
    fprintf(f, "complete -c pleat -n '__pleat_in %s' -a '", group);
    put_names(f, list, group);
    fputs("'\n", f);
}

static void fish_group_word(FILE *f, const command_list *list, const char *group) {
    (void)list;
    fprintf(f, " %s", group);
}

static void put_fish(FILE *f, const command_list *list) {
    fputs("# fish completion for pleat, made by `pleat completion fish`\n\n"
          "# __pleat_in WORD...: are these the words of the command so far, options aside?\n"
          "function __pleat_in\n    set -l words (commandline -opc)[2..-1]\n    set -l names\n"
          "    for word in $words\n        string match -q -- '-*' $word; and break\n        set -a names $word\n"
          "        contains -- $words[1]",
          f);
    for_groups(f, list, fish_group_word);
    fputs("; and test (count $names) -lt 2; and continue\n        break\n    end\n"
          "    test \"$names\" = \"$argv\"\nend\n\n",
          f);
    completion_specs_fish(f);
    fputs("complete -c pleat -f\n", f);
    for (uint32_t i = 0; i < list->n; i++)
        if (!strchr(list->v[i]->name, ' ')) fish_name(f, list->v[i]->name, list->v[i]->help);
    for_groups(f, list, fish_group);
    fish_name(f, "help", HELP_TEXT);
    fish_name(f, "completion", COMPLETION_TEXT);
    fprintf(f, "complete -c pleat -n '__pleat_in' -l version -d '%s'\n", VERSION_TEXT);
    fputs("complete -c pleat -n '__pleat_in help' -l man -a '", f);
    put_names(f, list, "");
    fputs("'\ncomplete -c pleat -n '__pleat_in completion' -a '", f);
    put_words(f, shells);
    fputs("'\n", f);
    for (uint32_t i = 0; i < list->n; i++)
        for (uint32_t k = 0; k < list->v[i]->n_rows; k++) fish_option(f, list->v[i], &list->v[i]->rows[k]);
}

int help_completion(const command_list *list, const char *shell, FILE *f) {
    if (!strcmp(shell, "bash"))
        put_bash(f, list);
    else if (!strcmp(shell, "zsh"))
        put_zsh(f, list);
    else if (!strcmp(shell, "fish"))
        put_fish(f, list);
    else {
        char hint[HINT_CAP];
        cli_error("completion: '%s' is none of bash, zsh, fish%s", shell,
                  cli_hint(hint, "", shell, shells[cli_nearest(shell, shells, 3)]));
        return CLI_USAGE;
    }
    return CLI_OK;
}
