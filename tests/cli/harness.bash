# SPDX-License-Identifier: MIT
#
# harness.bash: what the tests of the command share.  Sourced by each NAME.sh; needs PLEAT (the command); ROOT is the
# repository.
#
#     try ARGS...                 run the command; leaves $code, $stdout and $stderr
#     capture COMMAND...          the same with any command
#     check NAME TEST...          count a pass if the command TEST... succeeds, else say what was seen
#     says REGEX / prints REGEX   the last try's stderr / stdout holds a line that matches
#     same A B                    two results are equal, and something
#     field KEY                   the value of the first "KEY" in the last try's JSON
#     calc EXPRESSION             compare numbers; nan, inf, null and nothing are none
#     finish                      print the counts, fail if any check did

set -u
: "${PLEAT:?the command under test}"
[ -x "$PLEAT" ] || { echo "no command at $PLEAT"; exit 1; }
ROOT=${ROOT:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
MODEL=$ROOT/models/pleat-28m-q8_0.gguf
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0 skipped=0

# The caller's own settings must not change what is tested; the mask of CPU features is the test job's.
for name in $(env | sed -n 's/^\(PLEAT_[A-Z_]*\)=.*/\1/p'); do
    [ "$name" = PLEAT_CPU_MASK ] || unset "$name"
done

capture() {
    "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
    code=$?
    stdout=$(cat "$scratch/out") stderr=$(cat "$scratch/err")
}
try() { capture "$PLEAT" "$@"; }

# paper NAME OUT ARGS...: have bench/papers/NAME write the page OUT (or the pages below it) with what stands in for the
# command, $scratch/bin/pleat, and its store in $scratch/store; like try.  $CALLS, where calls are noted, starts empty.
paper() {
    local name=$1 out=$2
    shift 2
    : >"$CALLS"
    capture python3 "$ROOT/bench/papers/$name/run.py" --pleat "$scratch/bin/pleat" --store "$scratch/store" \
        --out "$out" "$@"
}

# unfilled FILE: the page with each paragraph and list item in one line, as greps want it.
unfilled() {
    awk '/^```/ { code = !code }
         { joins = !code && text && !/^(```|$|\||#|<!--|- )/
           if (NR > 1) printf joins ? " " : "\n"
           if (joins) sub(/^ +/, "")
           printf "%s", $0
           text = !code && !/^(```|$|\||#|<!--)/ }
         END { print "" }' "$1"
}

check() {
    local name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name"
        echo "  exit ${code:-}; stdout: $(head -c 400 <<<"${stdout:-}")"
        echo "  stderr: $(head -c 400 <<<"${stderr:-}")"
    fi
}

skip() {
    skipped=$((skipped + 1))
    echo "skip $1"
}

# needs PROGRAM: without it the rest of the file is skipped.
needs() {
    command -v "$1" >/dev/null && return
    skip "no $1"
    finish
    exit
}

exits() { [ "$code" = "$1" ]; }
says() { grep -Eq -- "$1" <<<"$stderr"; }
same() { [ -n "$1" ] && [ "$1" = "$2" ]; }
prints() { grep -Eq -- "$1" <<<"$stdout"; }
field() { sed -n "s/^ *\"$1\": *\"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$scratch/out" | head -1; }

# ---- numbers ---------------------------------------------------------------------------------------------------------

# flaw_of EXPRESSION: print why it must not be believed, or nothing.  Awk takes nan, inf, null and any other word for a
# variable that is 0, and an expression that has lost an operand may still be one.  So operands and operators have to
# alternate, operands are finite numbers, and at least one comparison stands among them.  A minus sign touches its number:
# "- 5" is what is left of "$a - 5" when $a is empty.
flaw_of() {
    local number='^([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?' word='^[A-Za-z_][A-Za-z0-9_]*' sign='^[-+][0-9.(A-Za-z]'
    local operator='^(&&|\|\||[<>=!]=|[-+*/%^<>])' rest=$1 depth=0 compares=0 wants=operand
    while rest=${rest#"${rest%%[![:space:]]*}"} && [ -n "$rest" ]; do
        if [ $wants = operand ]; then
            if [[ $rest =~ $number ]]; then wants=operator
            elif [[ $rest =~ ^int\( || $rest =~ ^[!]?\( ]]; then depth=$((depth + 1))
            elif [[ $rest =~ $word ]]; then echo "'${BASH_REMATCH[0]}' is not a number"; return
            elif [[ $rest =~ $sign ]]; then rest=${rest:1}; continue
            else echo "an operand is missing before '$rest'"; return; fi
        else
            if [[ $rest =~ ^\) ]]; then depth=$((depth - 1))
            elif [[ $rest =~ $operator ]]; then wants=operand; [[ ${BASH_REMATCH[0]} != [\<\>=!]* ]] || compares=1
            else echo "an operator is missing before '$rest'"; return; fi
        fi
        rest=${rest#"${BASH_REMATCH[0]}"}
    done
    if [ $wants = operand ]; then echo "an operand is missing at the end"
    elif [ $depth != 0 ]; then echo "its parentheses do not match"
    elif [ $compares = 0 ]; then echo "it compares nothing"; fi
}

# calc EXPRESSION: true if awk finds it so; fails with a message if a number in it is none, see flaw_of.
calc() {
    local flaw
    flaw=$(flaw_of "$1")
    if [ -n "$flaw" ]; then
        echo "  calc: $flaw: $1"
        return 1
    fi
    awk "BEGIN { exit !($1) }"
}

# fails CODE REGEX ARGS...: the command exits with CODE, says REGEX on stderr and prints nothing.
fails() {
    local want=$1 regex=$2
    shift 2
    try "$@"
    check "exit $want from: $*" exits "$want"
    check "message '$regex' from: $*" says "$regex"
    check "nothing on stdout from: $*" test -z "$stdout"
}

is_json() { python3 -m json.tool "$scratch/out" >"$scratch/json" 2>&1; }
check_json() {
    if command -v python3 >/dev/null; then
        check "$1 is JSON" is_json
    else
        skip "$1: no python3 to check that it is JSON"
    fi
}

finish() {
    echo "$passed passed, $failed failed$([ "$skipped" = 0 ] || echo ", $skipped skipped")"
    [ "$failed" = 0 ]
}
