#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# demo.sh [-m MODEL] [SPEC...]: what ways to keep the KV cache answer, hold and bring; a line each, as it is measured.
#
#     answer     of `pleat run` to eval/demo.txt, which hides a number in pages of a novel and asks for it
#     bytes      of the cache at the end of that answer
#     tokens/s   of `pleat bench run`: 64 tokens generated behind as long a prompt, three times
#     AVX2       the same without what this CPU has beyond AVX2, if it has AVX-512: as most CPUs would do it
#
# PLEAT is the command, build/pleat by default.  On a terminal right and wrong are coloured, unless NO_COLOR is set.
set -euo pipefail
cd "$(dirname "$0")/.."
pleat=${PLEAT:-build/pleat} model=models/pleat-28m-q8_0.gguf prompt=eval/demo.txt
if [ "${1:-}" = -m ]; then
    model=${2:?demo: -m needs a model}
    shift 2
fi
[ $# -gt 0 ] || set -- f16 k8v4 leankv h2o:budget=25%
number=$(sed -nE 's/.*The pass key is ([0-9]+)\..*/\1/p' "$prompt" | head -n 1)

bold='' good='' bad='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
    bold=$'\e[1m' good=$'\e[32m' bad=$'\e[31m' plain=$'\e[0m'
fi

avx2_alone=0
if "$pleat" --version | grep -q ' avx512'; then avx2_alone=1; fi

# field KEY: its value in the JSON on stdin
field() { sed -nE "s/^ *\"$1\": \"?([^\",]*)\"?,?\$/\1/p" | head -n 1; }

# speed SPEC TOKENS [OPTION...]: a column: tokens/s behind so many
speed() {
    local json
    json=$("$pleat" bench run -m "$model" -p 0 -n 64 -d "$2" -r 3 --kv "$1" --format json -q "${@:3}")
    printf ' %10.0f' "$(field tokens_per_s <<< "$json")"
}

# measure SPEC: the line of the spec, begun when there is an answer: none for a spec that is refused
measure() {
    local json answer tokens verdict=wrong colour=$bad
    json=$("$pleat" run -m "$model" --chat -f "$prompt" -n 64 --kv "$1" --format json -q)
    tokens=$(field prompt <<< "$json")
    answer=$(field text <<< "$json")
    if [ "$answer" = "$number" ]; then verdict=right colour=$good; fi
    printf '%-30s %-8.8s %s%-6s%s' "$1" "$answer" "$colour" "$verdict" "$plain"
    awk -v bytes="$(field bytes <<< "$json")" -v fraction="$(field fraction <<< "$json")" \
        'BEGIN { printf " %7.2f MiB %8.1f %%", bytes / 1048576, 100 * fraction }'
    speed "$1" "$tokens"
    [ $avx2_alone = 0 ] || speed "$1" "$tokens" --cpu-mask 1
    echo
}

echo "The number to find is $number."
echo
title=$(printf '%-30s %-15s %11s %10s %10s' "--kv" answer "cache" "of f16's" tokens/s)
[ $avx2_alone = 0 ] || title+="  with AVX2"
echo "$bold$title$plain"
for spec in "$@"; do measure "$spec"; done
