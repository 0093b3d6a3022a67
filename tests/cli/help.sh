#!/bin/bash
# SPDX-License-Identifier: MIT
#
# help.sh: help, man pages and completion say every option of every command; shells and readers of man pages take them.
. "$(dirname "$0")/harness.bash"

pages=$scratch/man
mkdir "$pages"
try help --man-to "$pages"
check "man pages are written" exits 0
for shell in bash zsh fish; do
    try completion $shell
    check "completion $shell" exits 0
    check "completion $shell prints" prints "made by .pleat completion $shell."
    cp "$scratch/out" "$scratch/pleat.$shell"
done

# commands: those that `pleat help` lists, but for help and completion themselves
try help
mapfile -t commands < <(sed -n 's/^  \([a-z][a-z ]*[a-z]\)  .*/\1/p' "$scratch/out" | grep -vxE 'help|completion')
check "there are fourteen commands" test ${#commands[@]} = 14
check "help lists itself" prints "^  help "
check "help lists completion" prints "^  completion "

# rows COMMAND: the options of its help, a line "LONG SHORT ARG" each, with - for what there is not
rows() {
    # shellcheck disable=SC2086
    "$PLEAT" help $1 | sed -nE 's/^  ((-[a-z]+), )?--([a-z-]+)( ([A-Z][^ ]*))? .*/\3 \2- \5-/p'
}
# whether docs/CLI.md has the option, long or short
in_document() { grep -qE -- "--$1([^a-z-]|\$)" "$ROOT/docs/CLI.md" || { [ "$2" != - ] && grep -qE -- "(^|[ \`(])$2([^a-z]|\$)" "$ROOT/docs/CLI.md"; }; }
of_bash() { grep -A1 -F "        '$1')" "$scratch/pleat.bash" | grep -F "options=" | grep -qE -- " $2( |')"; }
of_zsh() { sed -n "/^        '$1')/,/;;/p" "$scratch/pleat.zsh" | grep -qE -- "^ *'?[^[]*$2[^a-z-]"; }
of_fish() { grep -qE -- "__pleat_in $1' -l $2 " "$scratch/pleat.fish"; }
in_page() { grep -qF -- "\\fB$2\\fR" "$1"; }
n_rows=0
for command in "${commands[@]}"; do
    page=$pages/pleat-${command// /-}.1
    check "$command has a man page" test -s "$page"
    check "$command's page names it" grep -q "^\\\\fBpleat $command" "$page"
    check "pleat.1 names $command" grep -qF "\\fBpleat $command\\fR" "$pages/pleat.1"
    while read -r long short arg; do
        n_rows=$((n_rows + 1))
        roff=--$long
        roff=${roff//-/\\-}
        check "$command --$long is in its man page" in_page "$page" "$roff"
        check "$command --$long is in docs/CLI.md" in_document "$long" "${short%-}"
        check "$command --$long is completed by bash" of_bash "$command" "--$long"
        check "$command --$long is completed by zsh" of_zsh "$command" "--$long"
        check "$command --$long is completed by fish" of_fish "$command" "$long"
        if [ "$short" != - ]; then
            short=${short%-}
            check "$command $short is in its man page" in_page "$page" "${short/-/\\-}"
            check "$command $short is completed by bash" of_bash "$command" "$short"
        fi
        [ "$arg" = - ] || check "$command --$long has a value in bash" grep -q "'$command --$long'" "$scratch/pleat.bash"
        [[ $command-$long = *-help || $command-$long = serve-config ]] || # which stand on the command line alone
            check "$command --$long has its twin in the page" grep -qF "PLEAT_$(tr a-z- A-Z_ <<<"$long")" "$page"
    done < <(rows "$command")
    # what an option needs or excludes is an option, too, and a value one of its words
    while read -r other word; do
        row=$(grep -n -E "^(\\\\fB.*, )?\\\\fB$(sed 's/\\/\\\\/g' <<<"$other")\\\\fR" "$page")
        check "$command has $other, which another option names" test -n "$row"
        [ -z "$word" ] || check "$other has the value $word" grep -qF "\\fB$word\\fR" "$page"
    done < <(sed -nE '/^(Needs|Excludes) /s/^[A-Za-z]+ (.*)\.$/\1/p' "$page" | tr ',' '\n' |
        sed -E 's/^ *\\fB([^ ]*)( [a-z]+)?\\fR$/\1\2/' | sort -u)
done
check "rows were found" test "$n_rows" -ge 120

# one page by itself is the same page
for command in run "bench serve"; do
    # shellcheck disable=SC2086
    try help --man $command
    check "help --man $command" cmp -s "$scratch/out" "$pages/pleat-${command// /-}.1"
done
try help --man
check "help --man" cmp -s "$scratch/out" "$pages/pleat.1"
fails 2 "no such command; the nearest is 'pleat run'" help --man rnu
fails 2 "needs a folder" help --man-to
fails 1 "cannot write /no/dir/pleat.1" help --man-to /no/dir
fails 2 "completion: 'bsh' is none of bash, zsh, fish; the nearest is 'bash'" completion bsh
fails 2 "completion: name a shell" completion
for args in "help help" "help --help" "help completion" "completion --help"; do
    # shellcheck disable=SC2086
    try $args
    check "pleat $args" prints "^usage: pleat (help|completion) "
done

# what --kv takes: on one screen, every name that there is, and nothing that is refused
try help kv
kv=$stdout
check "help kv" exits 0
check "it fits 80 columns" test "$(wc -L <"$scratch/out")" -le 80
check "and a screen" test "$(wc -l <"$scratch/out")" -le 30
sed -nE 's/^  ([a-z][a-z0-9=%:+,.]*)( .*)?$/\1/p' "$scratch/out" | grep -vx pleat >"$scratch/specs"
check "it has examples of specs" test "$(wc -l <"$scratch/specs")" -ge 10
while read -r spec; do fails 2 "no model: give -m FILE" run -p x --kv "${spec/FILE/x}"; done <"$scratch/specs"
for name in $(fails_with=$("$PLEAT" run -m x -p x --kv nothing 2>&1); sed 's/.*allowed: //; s/,//g' <<<"$fails_with"); do
    [[ $name == k[842]v[842] || $name == h[432]v[432] ]] || check "help kv names $name" grep -qw "$name" <<<"$kv"
done
try help specs
check "help specs is the same" same "$stdout" "$kv"
try help kv leankv
check "and so is it with a name behind" same "$stdout" "$kv"

# the names of known models, which are offered, are those that there are
try plan --arch list --format csv
sed -n '2,$s/,.*//p' "$scratch/out" | sort >"$scratch/archs"
grep -A1 "'plan --arch'" "$scratch/pleat.bash" | sed -n "s/.*compgen -W '\([^']*\)'.*/\1/p" | tr ' ' '\n' | grep -vx list |
    sort >"$scratch/offered"
check "--arch offers the known models" cmp -s "$scratch/archs" "$scratch/offered"

# readers of man pages find nothing to warn of
reads_page() { [ -z "$("$@" 2>&1 >/dev/null)" ]; }
for tool in groff mandoc man; do
    if ! command -v $tool >/dev/null; then
        skip "man pages by $tool: it is not installed"
        continue
    fi
    for page in "$pages"/*.1; do
        case $tool in
            groff) check "groff reads ${page##*/}" reads_page groff -man -ww -Tascii "$page" ;;
            mandoc) check "mandoc reads ${page##*/}" test -z "$(mandoc -T lint -W warning "$page")" ;;
            man) check "man reads ${page##*/}" reads_page man --warnings -l "$page" ;;
        esac
    done
done

# bash: what a user is offered behind some words, the last being what has been typed of the next one.  Words are cut at :
# and = as bash does; where the cut is, the offers begin.
# shellcheck source=/dev/null
. "$scratch/pleat.bash"
COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
cut_words() {
    local word rest n
    COMP_WORDS=()
    for word in "$@"; do
        rest=$word n=${#COMP_WORDS[@]}
        while [[ $rest =~ ^([^:=]*)([:=]+)(.*)$ && $COMP_WORDBREAKS == *:* ]]; do
            [ -z "${BASH_REMATCH[1]}" ] || COMP_WORDS+=("${BASH_REMATCH[1]}")
            COMP_WORDS+=("${BASH_REMATCH[2]}")
            rest=${BASH_REMATCH[3]}
        done
        if [ -n "$rest" ] || [ "$n" = ${#COMP_WORDS[@]} ]; then COMP_WORDS+=("$rest"); fi
    done
}
offers() {
    COMP_LINE="pleat ${*:2}"
    cut_words pleat "${@:2}"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    _pleat
    check "bash offers '$1' behind: pleat ${*:2}" test "${COMPREPLY[*]}" = "$1"
}
offers "run" r
offers "completion" co
offers "--version" --ver
offers "attn pages codec run serve" bench ""
offers "serve" bench s
offers "--kv --kv-heads" bench attn --kv
offers "" bench pages --kv
offers "leankv" run -m x --kv lea
offers "cpu cuda" bench attn --device ""
offers "json" plan --format j
offers "cheaper swap recompute" bench serve --preempt ""
offers "f32 f16 q8_0 q4_0" run -ctk ""
offers "gpt-oss-20b gpt-oss-120b" plan --arch gpt
offers "" run -n ""
offers "run" help r
offers "--man" help --m
offers "kv" help k
offers "eval" help --man e
offers "codec" help bench c
offers "" help run --
offers "bash" completion b
cd "$scratch" || exit 1
touch "a model.gguf" a.json
offers "a model.gguf" run -m "a "
offers "a model.gguf" inspect "a "
offers "a.json" plan --config a.
offers "--metadata" inspect --m x --meta
cd "$ROOT" || exit 1
offers "leankv leverage" run -m x --kv=le
offers "--kv" run --kv -m x --kv
offers "ah= al= window= high= low= threshold= step= every= profile=" run -m x --kv leankv:
offers "ah= al=" run -m x --kv leankv:a
offers "3,al=" run -m x --kv leankv:ah=3,a
offers "3,al=" bench serve --kv=leankv:ah=3,a
offers "" run -m x --kv leankv:ah=
offers "k8v8 k8v4 k8v2" eval --kv f16 --kv leankv:high=k8
offers "" run --kv k8v4:
offers "25%+kvcrush 25%+merge 25%+novel" run --kv h2o:budget=25%+
offers "h2o+kvcrush" run --kv h2o+kv
offers "kvcomp+pack" run --kv kvcomp+
offers "share=" run --kv h2o:budget=25%+kvcrush:sh
offers "share= mean= near=" run --kv h2o:budget=25%+novel:
offers "" run --kv leankv+
COMP_WORDBREAKS=$' \t\n"\'><;|&(' # as some set it
offers "leankv:ah=3,al=" run -m x --kv leankv:ah=3,a
offers "--kv=leankv:ah=3,al=" run -m x --kv=leankv:ah=3,a

# the keys are those that the library names, and the words those that it takes
mapfile -t spec_names < <(sed -nE "s/^ +offers='(f32 f16 .*kivi rd auto)'\$/\1/p" "$scratch/pleat.bash" | tr ' ' '\n')
check "names are completed" test ${#spec_names[@]} -ge 15
for name in "${spec_names[@]}" k2v2 h2o+kvcrush; do
    keys=$("$PLEAT" run -p x --kv "$name:" 2>&1 | sed -nE 's/.* has: (.*)$/\1/p')
    want=''
    for key in ${keys//,/}; do want+=" $name:$key="; done
    offers "${want# }" run --kv "$name:"
done
n_words=0
for key in leankv:threshold leankv:step topk:format h2o:reclaim h2o+kvcrush:anchor h2o+kvcrush:unit kvcomp:kunit \
    kvcomp:block kivi:bits; do
    COMP_LINE="pleat run --kv $key=" COMP_WORDS=(pleat run --kv "$key=") COMP_CWORD=3
    _pleat
    for spec in "${COMPREPLY[@]}"; do
        n_words=$((n_words + 1))
        fails 2 "no model: give -m FILE" run -p x --kv "$spec"
    done
done
check "words were offered" test $n_words = 43
COMP_WORDBREAKS+='=:'

# bash itself, at a terminal, with a command that shows its words
if command -v script >/dev/null; then
    cat >"$scratch/rc" <<RC
PS1='ready '
. $scratch/pleat.bash
pleat() { printf '<%s>' "\$@"; }
bind 'set enable-bracketed-paste off'
RC
    # typed KEYS: what the line has become when it is entered
    typed() { printf '%b\nexit\n' "$1" |
        script -qec "bash --noprofile --rcfile '$scratch/rc' -i" /dev/null | grep -o '<run>.*>' | tail -1; }
    is_typed() { test "$(typed "$2")" = "$1"; }
    check "bash completes a key" is_typed '<run><--kv><leankv:window=64>' 'pleat run --kv leankv:wi\t64'
    check "behind another" is_typed '<run><--kv><leankv:ah=3,high=k4v4>' 'pleat run --kv leankv:ah=3,hi\tk4v4'
    check "and its word" is_typed '<run><--kv><h2o:reclaim=block><-n>' 'pleat run --kv h2o:rec\tbl\t-n'
    check "behind --kv=" is_typed '<run><--kv=snapkv:sinks=4>' 'pleat run --kv=snapkv:si\t4'
    check "what may follow" is_typed '<run><--kv><h2o:budget=25%+kvcrush:share=1>' 'pleat run --kv h2o:budget=25%+kvcrush:sh\t1'
else
    skip "bash at a terminal: no script"
fi

# the other shells
if command -v zsh >/dev/null; then
    capture zsh -n "$scratch/pleat.zsh"
    check "zsh reads its script" test "$code$stderr" = 0
else
    skip "zsh's script: zsh is not installed"
fi
if command -v fish >/dev/null; then
    capture fish -n "$scratch/pleat.fish"
    check "fish reads its script" test "$code$stderr" = 0
    by_fish() { HOME=$scratch fish -c "source $scratch/pleat.fish; complete -C '$1'" | cut -f1 | paste -sd' '; }
    check "fish offers specs" test "$(by_fish 'pleat run --kv lea')" = leankv
    check "fish offers keys" test "$(by_fish 'pleat run --kv leankv:ah=3,wi')" = leankv:ah=3,window=
    check "and their words" test "$(by_fish 'pleat run --kv=h2o:reclaim=b')" = --kv=h2o:reclaim=block
    check "and what may follow" test "$(by_fish 'pleat eval --kv kvcomp:k=0.2+')" = kvcomp:k=0.2+pack
    check "fish offers the benches" test "$(by_fish 'pleat bench ')" = "attn codec pages run serve"
    check "fish offers a command's options" test "$(by_fish 'pleat bench attn --kv-')" = --kv-heads
    check "and no other's" test -z "$(by_fish 'pleat bench pages --kv')"
else
    skip "fish's script: fish is not installed"
fi
finish
