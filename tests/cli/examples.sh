#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# examples.sh: the programs of examples/, which stand beside the command: what they print is right, and what they cannot
# do they say.
. "$(dirname "$0")/harness.bash"
unset PLEAT_CPU_MASK # the command would obey it, the examples do not: their texts are compared

# example NAME ARGS...: run it; like try.
example() { capture "$(dirname "$PLEAT")/examples/$1" "${@:2}"; }

# number REGEX: the number in the last output that stands where REGEX has (...).
number() { sed -nE "s/(.*[^0-9.])?$1.*/\\2/p" "$scratch/out"; }
fraction() { number '([0-9.]+) % of f16'; }

# ---- embed -----------------------------------------------------------------------------------------------------------

example embed f32
check "embed runs" exits 0
check "f32 pages give plain attention" calc "$(number 'off by ([0-9.]+)') == 0"
example embed f16
check "f16 rounds by 2^-11 at most" calc "$(number 'off by ([0-9.]+)') <= 0.0005"
check "and takes what f16 takes, with unused slots and tables" calc "$(fraction) >= 100 && $(fraction) < 103"
# Values are uniform over a range of 2, in 16 levels: an error of 2 / 15 / sqrt(12) on a deviation of 2 / sqrt(12).
example embed
check "k8v4's error is that of 4-bit values: 1/15" calc "$(number 'off by ([0-9.]+)') > 0.055 && \
    $(number 'off by ([0-9.]+)') < 0.075"
check "64 + 32 + 8 bytes a token of f16's 256, and what is unused" calc "$(fraction) >= 40.6 && $(fraction) < 42"
example embed nonsense
check "an unknown spec fails" exits 1
check "by its name" says "unknown name 'nonsense'"

# ---- generate ----------------------------------------------------------------------------------------------------------

prompt="The old house by the sea"
example generate "$MODEL" f16 "$prompt"
check "generate runs" exits 0
held=$(number 'tokens in ([0-9]+) bytes')
example generate "$MODEL" k8v4 "$prompt"
check "the sequence holds the prompt's 7 tokens and 40 more" prints '^\[k8v4: 47 tokens in'
check "in less than half of f16's bytes" calc "$(number 'tokens in ([0-9]+) bytes') < 0.5 * $held"
text=$(head -n -1 <<<"$stdout")
try run -m "$MODEL" --kv k8v4 -n 40 -p "$prompt"
check "the text is the command's" same "$text" "$stdout"

long=$(head -c 3000 "$ROOT/eval/prose.txt" | tr '\n' ' ')
example generate "$MODEL" leankv "$long"
check "a prompt of several chunks is read" exits 0
text=$(head -n -1 <<<"$stdout")
try run -m "$MODEL" --kv leankv:ah=3 -n 40 -p "$long"
check "as the command reads it" same "$text" "$stdout"

example generate
check "no arguments: exit 2" exits 2
check "and how it is called" says "^usage: generate MODEL"
example generate "$scratch/none.gguf" f16 "$prompt"
check "no model: exit 1" exits 1
check "by its name" says "cannot open '$scratch/none.gguf'"
example generate "$MODEL" f16 "$(printf 'a\xff')"
check "a prompt that is no UTF-8 fails" exits 1
check "with words" says "^generate: ."

# ---- many --------------------------------------------------------------------------------------------------------------

prompts=("$prompt" "Once upon a time" "It was a dark night" "She said" "In the morning" "The old house by the river")
example many "$MODEL" k8v4 "${prompts[@]}"
check "many runs" exits 0
check "each request is answered" calc "$(wc -l <<<"$stdout") == ${#prompts[@]}"
together=$stdout
for prompt in "${prompts[@]}"; do
    example many "$MODEL" k8v4 "$prompt"
    check "in company as alone: $prompt" grep -qxF "$stdout" <<<"$together"
done
try run -m "$MODEL" --kv k8v4 -n 24 -p "$prompt"
check "which is the command's text" grep -qxF "$prompt ...$stdout" <<<"$together"
example many "$MODEL" k8v4
check "no prompt: exit 2" exits 2
check "and how it is called" says "^usage: many MODEL"
# shellcheck disable=SC2046  # one word a prompt
example many "$MODEL" k8v4 $(seq 257)
check "more prompts than it has room for: exit 2" exits 2
check "and how many it takes" says "256 at most"
example many "$MODEL" k3v3 "$prompt"
check "an unknown spec fails" exits 1
check "by its name" says "unknown name 'k3v3'"

finish
