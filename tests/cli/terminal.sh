#!/bin/bash
# SPDX-License-Identifier: MIT
# ctest-labels: slow
#
# terminal.sh: tables fit the terminal's width and lose no figure; styles stand on terminals alone, and heed NO_COLOR and
# TERM; what is piped is as it always was.
. "$(dirname "$0")/harness.bash"
needs python3
specs="f16 k8v4 leankv:ah=30,al=0.05,window=256 h2o:budget=25%+kvcrush:share=30%,anchor=alternate kvcomp:k=0.13,v=0.25 k4v2"

# shows NAME: the arguments of a command that prints tables, always the same
shows() {
    case $1 in
        inspect) echo inspect "$MODEL" --kv "'$specs'" --ctx 1,1024,4096,32768 ;;
        plan) echo plan --arch llama3-70b --ctx 8192 --batch 32 --kv "'$specs'" --fraction 0.3 --device-bytes 320GB --bandwidth 3TB --prefill 5000 ;;
        archs) echo plan --arch list ;;
        serve) echo bench serve --simulate --arch llama3-8b --prices 1000,1,1,0.001 --pool-bytes 4GiB --synthetic fixed \
            --requests 8 --kv "'$specs'" --fractions 1,0.41,0.45,0.3,0.3,0.22 -q ;;
    esac
}

# fits COLUMNS: tables in $scratch/out are no wider; sentences, which stand behind "SPEC: ", are a terminal's to fold
cat >"$scratch/fits.py" <<'PYTHON'
import re, sys, unicodedata
def width(text):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
path, full, columns = sys.argv[1], sys.argv[2], int(sys.argv[3])
lines, whole = open(path).read().split("\n"), open(full).read()
for line in lines:
    if width(line) > columns and not re.match(r"^\S+: |^Unknown", line):
        sys.exit("too wide: " + line)
    if line != line.rstrip():
        sys.exit("spaces at the end of: " + line)
def figures(text):
    return [word for word in text.split() if re.match(r"-?[0-9]", word) or word == "-"]
left = figures("\n".join(lines))
for figure in figures(whole):
    if figure not in left:
        sys.exit("lost: " + figure)
    left.remove(figure)
PYTHON
for name in inspect plan archs serve; do
    eval "capture '$PLEAT' $(shows $name)"
    check "$name" exits 0
    cp "$scratch/out" "$scratch/full"
    check "$name: without a terminal tables are as wide as they are" calc "$(wc -L <"$scratch/full") > 100"
    for columns in 60 80 100 200; do
        eval "COLUMNS=$columns capture '$PLEAT' $(shows $name)"
        check "$name fits $columns columns" python3 "$scratch/fits.py" "$scratch/out" "$scratch/full" $columns
    done
    eval "COLUMNS=1000 capture '$PLEAT' $(shows $name)"
    check "$name: with room enough it is not folded" cmp -s "$scratch/out" "$scratch/full"
    for wrong in "" 0 -5 wide 80x; do
        eval "COLUMNS=$wrong capture '$PLEAT' $(shows $name)"
        check "$name: COLUMNS='$wrong' says nothing" cmp -s "$scratch/out" "$scratch/full"
    done
    eval "COLUMNS=60 capture '$PLEAT' $(shows $name) -o '$scratch/file'"
    check "$name: a file has no columns" cmp -s "$scratch/file" "$scratch/full"
    for format in csv md json; do
        eval "capture '$PLEAT' $(shows $name) --format $format"
        cp "$scratch/out" "$scratch/full"
        eval "COLUMNS=60 capture '$PLEAT' $(shows $name) --format $format"
        check "$name --format $format is for programs" cmp -s "$scratch/out" "$scratch/full"
    done
done

# how they are folded
COLUMNS=60 try inspect "$MODEL" --kv f16 --kv leankv:ah=30,al=0.05,window=256 --ctx 1024,4096,32768
check "a spec is parted behind its marks" prints '^leankv:ah=30, '
check "and none of its figures is" prints 'window=256'
COLUMNS=90 try plan --arch llama3-8b --kv "f16 k8v4"
check "titles come first" prints '^ +.* +most +most$'
COLUMNS=60 try plan --arch llama3-8b --kv "f16 k8v4"
check "what is still too wide is turned" prints '^kv +f16 +k8v4$'
check "a title stands in front of its figures" prints '^bytes/token +131072 +[0-9]+$'
COLUMNS=60 try plan --arch list
check "a list is cut into several" calc "$(grep -c '^llama3-8b ' "$scratch/out") > 1"
COLUMNS=10 try plan --arch llama3-8b --kv f16
check "where there is no room lines are longer" prints '^token +131072$|^bytes/ +131072$'
check "names stay in front of what they stand for" prints '^model +llama3-8b$'

# what --help says of an option stands in a column of its own
for words in run serve "bench serve" plan; do
    # shellcheck disable=SC2086
    try $words --help
    cp "$scratch/out" "$scratch/full"
    check "$words --help: without a terminal a line an option" calc "$(wc -L <"$scratch/full") > 100"
    # shellcheck disable=SC2086
    COLUMNS=80 try $words --help
    check "$words --help fits 80 columns" calc "$(wc -L <"$scratch/out") <= 80"
    check "$words --help loses no word" same "$(tr -s ' \n' '\n' <"$scratch/full")" "$(tr -s ' \n' '\n' <"$scratch/out")"
done
check "and goes on below its beginning" prints '^ {31}[^ ]'

# wide characters and marks: a figure ends under its title
grep -m 1 '"task": "copy_list"' "$ROOT/eval/tasks.jsonl" | sed 's/"task": "copy_list"/"task": "日本語e'$'\xcc\x81''"/' >"$scratch/tasks"
try eval -m "$MODEL" --tasks "$scratch/tasks" -q
cat >"$scratch/under.py" <<'PYTHON'
import sys, unicodedata
def width(text):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
head, row = open(sys.argv[1]).read().split("\n")[:2]
end = width(head[:head.index("日本語e\u0301") + 5])
at = next(n for n in range(len(row)) if width(row[:n]) == end)
sys.exit(0 if row[at - 5:at] in ("1.000", "0.000") and row[at] == " " else "not under it: " + head + "\n" + row)
PYTHON
check "wide characters" python3 "$scratch/under.py" "$scratch/out"

# on terminals
if ! command -v script >/dev/null; then
    skip "what a terminal gets: no script"
    finish
    exit
fi
# on_terminal ASSIGNMENTS ARGS: what a terminal of 60 columns gets, $stdout
on_terminal() {
    stdout=$(script -qec "stty cols 60; $1 '$PLEAT' $2" /dev/null </dev/null | tr -d '\r')
    echo "$stdout" >"$scratch/out"
}
holds() { grep -qF -- "$1" "$scratch/out"; }
lacks() { ! holds "$1"; }
bold=$'\e[1m' red=$'\e[1;31m' yellow=$'\e[33m' plain=$'\e[0m' escape=$'\e'
"$PLEAT" plan --arch list >"$scratch/full"
on_terminal "" "plan --arch list"
check "its columns are known" calc "$(sed "s/$escape\[[0-9;]*m//g" "$scratch/out" | wc -L) <= 60"
check "titles are bold" holds "${bold}arch "
on_terminal "" "plan --arch list | cat"
check "not in a pipe" cmp -s "$scratch/out" "$scratch/full"
on_terminal "COLUMNS=1000 NO_COLOR=1" "plan --arch list"
check "COLUMNS says more than the terminal" cmp -s "$scratch/out" "$scratch/full"
for plainly in NO_COLOR=1 NO_COLOR=yes TERM=dumb TERM=; do
    on_terminal "$plainly" "plan --arch list"
    check "$plainly: no styles" lacks "$escape"
    on_terminal "$plainly" "plan --arch lsit"
    check "$plainly: none in messages" lacks "$escape"
done
on_terminal "NO_COLOR=" "plan --arch list"
check "NO_COLOR that is empty says nothing" holds "$bold"
for format in csv md json; do
    on_terminal "" "plan --arch list --format $format"
    check "--format $format has none" lacks "$escape"
done
on_terminal "" "plan --arch lsit"
check "an error is red" holds "${red}pleat plan:${plain} --arch 'lsit'"
on_terminal "" "plan --arch llama3-8b --ctx 9000 -o /dev/null"
check "a note is not" holds "${yellow}pleat plan: note:${plain} "
on_terminal "" "plan --arch lsit 2>&1 | cat"
check "a pipe gets none" lacks "$escape"
on_terminal "TERM=dumb" "eval -m '$MODEL' --tasks '$scratch/tasks' --kv 'f16 k8v4'"
check "no line is drawn over where it cannot be" lacks "$escape"

head -n 8 "$ROOT/eval/tasks.jsonl" >"$scratch/some"
script -qec "stty cols 60; '$PLEAT' eval -m '$MODEL' --tasks '$scratch/some' --kv 'f16 leankv:ah=30,al=0.05,window=128,low=k2v2'" \
    /dev/null </dev/null | tr '\r' '\n' | sed "s/$escape\[[0-9;]*[mK]//g" >"$scratch/out"
check "a line is drawn" grep -qE '^tasks .*[0-9]+/[0-9]+ .* s left, [12] of 2 \(' "$scratch/out"
check "and none is longer than the terminal" calc "$(wc -L <"$scratch/out") <= 60"

# the demo
demo() { script -qec "$1 PLEAT='$PLEAT' '$ROOT/tools/demo.sh' k8v4 h2o:budget=128" /dev/null </dev/null >"$scratch/out"; }
demo ""
check "right is green" holds $'\e[32mright \e[0m'
check "wrong is red" holds $'\e[31mwrong \e[0m'
demo NO_COLOR=1
check "not with NO_COLOR" lacks "$escape"
finish
