/* SPDX-License-Identifier: MIT
 *
 * completion_specs.c: see completion_specs.h.
 *
 *     h2o:budget=512+kvcrush:share=25%,an
 *     |-first          |-last          |-item: from the last of : , + on
 *
 * All three functions cut what has been typed like this, and offer the item's rest.
 */
#include "completion_specs.h"

#include <stdint.h>

#include "cli/lib/options.h"

typedef struct spec_words {
    const char *name, *words; /* words with spaces between */
} spec_words;

#define PLAIN_FORMATS "f32 f16 k8v8 k8v4 k8v2 k4v8 k4v4 k4v2 k2v8 k2v4 k2v2"
#define FORMATS PLAIN_FORMATS " h4v4 h4v3 h4v2 h3v4 h3v3 h3v2 h2v4 h2v3 h2v2"
#define RANKING_KEYS "budget= window= sinks= format= reclaim="

/* Keys by name, with a + where it stands behind another. */
static const spec_words keys[] = {
    {"leankv", "ah= al= window= high= low= threshold= step= every= profile="},
    {"topk", "keep= window= format="},
    {"random", RANKING_KEYS},
    {"recent", "budget= format= reclaim="},
    {"streaming", "budget= sinks= format= reclaim="},
    {"h2o", RANKING_KEYS},
    {"snapkv", RANKING_KEYS},
    {"pyramidkv", RANKING_KEYS},
    {"adakv", RANKING_KEYS},
    {"novel", RANKING_KEYS " mean= near="},
    {"expected", RANKING_KEYS},
    {"dropkv", RANKING_KEYS},
    {"kvzip", RANKING_KEYS},
    {"leverage", RANKING_KEYS " near= fall="},
    {"+kvcrush", "share= anchor= unit="},
    {"+novel", "share= mean= near="},
    {"kvcomp", "k= v= kunit= block= sinks= buffer= high="},
    {"kivi", "bits= sinks= buffer= high="},
    {"rd", "k= v= fine= sinks= buffer= high="},
    {"auto", "bytes= from="},
};

static const spec_words values[] = {
    {"high", PLAIN_FORMATS},       {"low", FORMATS},
    {"format", FORMATS},           {"threshold", "length position"},
    {"step", "paper code"},        {"reclaim", "reuse copy block none"},
    {"mean", "prompt model"},      {"anchor", "mean random alternate kmeans"},
    {"unit", "token page"},        {"kunit", "channel block"},
    {"block", "16 32 64 128 256"}, {"bits", "2 4"},
    {"every", "1 2 4 8"},
};

/* What may stand behind a first name, by that name. */
static const spec_words behind[] = {
    {"random", "kvcrush merge novel"},
    {"recent", "kvcrush merge novel"},
    {"streaming", "kvcrush merge novel"},
    {"h2o", "kvcrush merge novel"},
    {"snapkv", "kvcrush merge novel"},
    {"pyramidkv", "kvcrush merge novel"},
    {"adakv", "kvcrush merge novel"},
    {"novel", "merge"},
    {"expected", "merge"},
    {"dropkv", "novel"},
    {"kvcomp", "pack"},
};

#define N_OF(list) (sizeof(list) / sizeof(list)[0])

/* What stands before, between and after the name and the words of each row. */
static void put_rows(FILE *f, const spec_words *rows, size_t n, const char *before, const char *between,
                     const char *after) {
    for (size_t i = 0; i < n; i++) fprintf(f, "%s%s%s%s%s", before, rows[i].name, between, rows[i].words, after);
}

static void put_names(FILE *f) {
    for (uint32_t i = 0; option_spec_names[i]; i++) fprintf(f, "%s%s", i ? " " : "", option_spec_names[i]);
}

void completion_specs_bash(FILE *f) {
    fputs("# _pleat_spec: COMPREPLY for a KV spec, of which `current` has been typed\n"
          "_pleat_spec() {\n"
          "    local first=${current%%[:+]*} last=${current##*+} item name word offers='' left=''\n"
          "    name=${last%%:*}\n"
          "    [[ $current != *+* ]] || name=+$name\n"
          "    item=${last##*[:,]}\n"
          "    compopt +o filenames 2> /dev/null\n"
          "    if [[ $last == *:* && $item == profile=* ]]; then\n"
          "        item=${item#*=}\n"
          "        mapfile -t COMPREPLY < <(compgen -P \"${current%\"$item\"}\" -f -- \"$item\")\n"
          "        return\n"
          "    elif [[ $last == *:* && $item == *=* ]]; then\n"
          "        case ${item%%=*} in\n",
          f);
    put_rows(f, values, N_OF(values), "            ", ") offers='", "' ;;\n");
    fputs("        esac\n"
          "        item=${item#*=}\n"
          "    elif [[ $last == *:* ]]; then\n"
          "        compopt -o nospace 2> /dev/null\n"
          "        case $name in\n",
          f);
    put_rows(f, keys, N_OF(keys), "            ", ") left='", "' ;;\n");
    fputs("        esac\n"
          "        for word in $left; do [[ ,${last#*:} == *,$word* ]] || offers+=\" $word\"; done\n"
          "    elif [[ $current == *+* ]]; then\n"
          "        case $first in\n",
          f);
    put_rows(f, behind, N_OF(behind), "            ", ") offers='", "' ;;\n");
    fputs("        esac\n"
          "    else\n"
          "        offers='",
          f);
    put_names(f);
    fputs("'\n"
          "    fi\n"
          "    mapfile -t COMPREPLY < <(compgen -P \"${current%\"$item\"}\" -W \"$offers\" -- \"$item\")\n"
          "}\n\n",
          f);
}

void completion_specs_zsh(FILE *f) {
    fputs("_pleat_spec() {\n"
          "    local first=${PREFIX%%[:+]*} last=${PREFIX##*+} item name words=''\n"
          "    name=${last%%:*}\n"
          "    [[ $PREFIX != *+* ]] || name=+$name\n"
          "    item=${last##*[:,]}\n"
          "    compset -P '*[:,+]'\n"
          "    if [[ $last == *:* && $item == profile=* ]]; then\n"
          "        compset -P '*='\n"
          "        _files\n"
          "        return\n"
          "    elif [[ $last == *:* && $item == *=* ]]; then\n"
          "        compset -P '*='\n"
          "        case ${item%%=*} in\n",
          f);
    put_rows(f, values, N_OF(values), "            ", ") words='", "' ;;\n");
    fputs("        esac\n"
          "    elif [[ $last == *:* ]]; then\n"
          "        case $name in\n",
          f);
    put_rows(f, keys, N_OF(keys), "            ", ") words='", "' ;;\n");
    fputs("        esac\n"
          "        compadd -S '' -- ${=words}\n"
          "        return\n"
          "    elif [[ -n $IPREFIX && $IPREFIX == *+ ]]; then\n"
          "        case $first in\n",
          f);
    put_rows(f, behind, N_OF(behind), "            ", ") words='", "' ;;\n");
    fputs("        esac\n"
          "    else\n"
          "        words='",
          f);
    put_names(f);
    fputs("'\n"
          "    fi\n"
          "    compadd -- ${=words}\n"
          "}\n\n",
          f);
}

void completion_specs_fish(FILE *f) {
    fputs("# __pleat_spec: KV specs that go on from what has been typed\n"
          "function __pleat_spec\n"
          "    set -l typed (string replace -r -- '^-[^=]*=' '' (commandline -ct))\n"
          "    set -l first (string replace -r -- '[:+].*' '' $typed)\n"
          "    set -l last (string replace -r -- '.*\\+' '' $typed)\n"
          "    set -l item (string replace -r -- '.*[:,]' '' $last)\n"
          "    set -l name (string replace -r -- ':.*' '' $last)\n"
          "    string match -q -- '*+*' $typed; and set name +$name\n"
          "    set -l words\n"
          "    if string match -q -- '*:*' $last; and string match -q -- '*=*' $item\n"
          "        switch (string replace -r -- '=.*' '' $item)\n",
          f);
    put_rows(f, values, N_OF(values), "            case ", "\n                set words ", "\n");
    fputs("        end\n"
          "        set item (string replace -r -- '.*=' '' $item)\n"
          "    else if string match -q -- '*:*' $last\n"
          "        switch $name\n",
          f);
    put_rows(f, keys, N_OF(keys), "            case ", "\n                set words ", "\n");
    fputs("        end\n"
          "    else if string match -q -- '*+*' $typed\n"
          "        switch $first\n",
          f);
    put_rows(f, behind, N_OF(behind), "            case ", "\n                set words ", "\n");
    fputs("        end\n"
          "    else\n"
          "        set words ",
          f);
    put_names(f);
    fputs("\n    end\n"
          "    set -l n_head (math (string length -- \"$typed\") - (string length -- \"$item\"))\n"
          "    for word in $words\n"
          "        echo (string sub -l $n_head -- \"$typed\")$word\n"
          "    end\n"
          "end\n\n",
          f);
}
