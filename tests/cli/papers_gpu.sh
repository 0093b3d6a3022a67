#!/bin/bash
# SPDX-License-Identifier: MIT
#
# papers_gpu.sh: bench/papers/gpu/run.py puts its sections at the end of both pages, whatever is there already, and the
# pages that are kept hold just what the kept results give.  No GPU is asked for: no figure is judged here.
. "$(dirname "$0")/harness.bash"
needs python3

gpu() { capture python3 "$ROOT/bench/papers/gpu/run.py" "$@"; }

cp "$ROOT/docs/papers/leankv.md" "$ROOT/docs/papers/kvcomp.md" "$scratch/"
gpu --out "$scratch"
check "sections are written" test "$code" = 0
check "leankv.md is what the results give" cmp -s "$scratch/leankv.md" "$ROOT/docs/papers/leankv.md"
check "kvcomp.md likewise" cmp -s "$scratch/kvcomp.md" "$ROOT/docs/papers/kvcomp.md"
for figure in 11 12 13; do
    check "leankv.md has figure $figure" grep -q "^## Figure $figure on a GPU" "$scratch/leankv.md"
done
for figure in 9 10 11; do
    check "kvcomp.md has figure $figure" grep -q "^## Figure $figure on a GPU" "$scratch/kvcomp.md"
done
check "each with its command" test "$(grep -c 'bench .* --device cuda' "$scratch/leankv.md")" -ge 6

printf 'a page\n' >"$scratch/leankv.md"
gpu --out "$scratch"
check "a page without sections keeps its text" grep -qx 'a page' "$scratch/leankv.md"
check "and gets them" grep -q '^# On a GPU' "$scratch/leankv.md"

gpu --only nothing
check "an unknown result is wrong usage" test "$code" = 2
check "and the known ones are listed" says 'there are contexts, peers'
gpu --measure --only pages-256 --pleat "$scratch/no-such-program"
check "a program that is not there fails" test "$code" = 1
check "and is named" says 'no-such-program'
finish
