#!/bin/bash
# SPDX-License-Identifier: MIT
#
# activations.sh: --activations 8 runs wherever a model does, moves a text's perplexity, and moves it little; what is
# wrong about it is refused in usage.sh and device.sh.
. "$(dirname "$0")/harness.bash"

# perplexity MORE..: of one window, its prompt in steps of two tokens, which no kernel leaves to oneDNN
perplexity() {
    try eval -m "$MODEL" --text "$ROOT/eval/prose.txt" --text-windows 1 --ctx-window 128 -b 2 --kv f16 --format json -q "$@"
    check "eval $* runs" exits 0
}
perplexity
of_default=$(field perplexity)
perplexity --activations 16
of_16=$(field perplexity)
perplexity --activations 8
of_8=$(field perplexity)
check "16 is the default" test "$of_default" = "$of_16"
check "8 changes the perplexity" test "$of_16" != "$of_8"
check "by less than 2 %" calc "$of_8 < $of_16 * 1.02 && $of_16 < $of_8 * 1.02"

try run -m "$MODEL" -p "The sea was calm" -n 4 --activations 8 -q
check "run takes it" exits 0
try bench run -m "$MODEL" -p 8 -n 2 -r 1 --kv f16 --activations 8 --format json -q
check "bench run takes it" exits 0
check "and says so" test "$(field activations)" = 8
try bench run -m "$MODEL" -p 8 -n 2 -r 1 --kv f16 --activations 8 -q
check "in the table, too" prints "CPU 8-bit"
try bench run -m "$MODEL" -p 8 -n 0 -r 1 --kv f16 --format json -q
check "else it says 16" test "$(field activations)" = 16
try completion bash
check "its words are completed" prints "activations"
finish
