#!/bin/bash
# SPDX-License-Identifier: MIT
#
# demo.sh: what `make run` shows contrasts: the shipped model finds the number with three ways to keep the cache, in ever
# fewer bytes, and not with the fourth.
# ctest-labels: slow
. "$(dirname "$0")/harness.bash"

line() { grep -E "^$1 " "$scratch/out"; }
share() { line "$1" | sed -nE 's/.* ([0-9.]+) % .*/\1/p'; }
capture "$ROOT/tools/demo.sh"
check "the demo" exits 0
check "it says what is to be found" prints "^The number to find is 98413\.$"
check "f16 is right" test -n "$(line 'f16 .* 98413 +right')"
check "k8v4 is right" test -n "$(line 'k8v4 .* 98413 +right')"
check "leankv is right" test -n "$(line 'leankv .* 98413 +right')"
check "eviction to a quarter is wrong" test -n "$(line 'h2o:budget=25% .* wrong')"
check "in ever fewer bytes" calc "$(share f16) > $(share k8v4) && $(share k8v4) > $(share leankv) &&
    $(share leankv) > $(share h2o:budget=25%)"
check "each has a speed" test "$(grep -cE ' %( +[1-9][0-9]*)+$' "$scratch/out")" = 4
sets=1
if "$PLEAT" --version | grep -q ' avx512'; then sets=2; fi
check "one for each of this CPU's kinds of vectors" test "$(line f16 | sed 's/.*%//' | wc -w)" = $sets
capture "$ROOT/tools/demo.sh" -m "$MODEL" k2v9
check "a spec that there is not is an error" test "$code" != 0
check "which names it" says "unknown name 'k2v9'"
check "and has no line begun" test -z "$(line k2v9)" -a "$(tail -n 1 "$scratch/out" | cut -c 1-4)" = --kv
finish
