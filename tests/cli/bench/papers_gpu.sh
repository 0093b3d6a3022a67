#!/bin/bash
# SPDX-License-Identifier: MIT
#
# papers_gpu.sh: bench/papers/gpu/run.py keeps what the command prints, puts its sections at the end of the pages, whatever is
# there already, and says which results are missing.  A stub stands in for the command: no GPU is asked for, and no figure is
# judged.
. "$(dirname "$0")/../harness.bash"
needs python3

cat >"$scratch/pleat" <<'STUB'
#!/usr/bin/env python3
"""Prints what `bench attn|pages|codec|serve --device cuda` would, of the shape alone: faster for fewer bits and for longer lanes.
FAIL: the word that makes a call fail."""
import json, os, sys
what = sys.argv[2]
if os.environ.get("FAIL") in sys.argv:
    sys.exit("pleat: no such luck")
after = lambda flag, default: [b for a, b in zip(sys.argv, sys.argv[1:]) if a == flag] or [default]
numbers = lambda flag, default: [int(v) for v in after(flag, default)[0].split(",")]
us = lambda v: {"min": v, "median": v, "max": v}
rows = []
if what == "pages":
    for op, how, t in (("pages", "launched", 8), ("pages", "graph", 4), ("CUB", "launched", 14), ("CUB", "graph", 5), ("CPU loop", "copies", 60)):
        for taking in ("1/16", "all"):
            rows.append({"params": {"op": op, "how": how, "gpu": "Stub", "taking": taking, "lanes": numbers("--lanes", "1")[0]}, "us": us(t)})
elif what == "attn":
    for ctx in numbers("--ctx", "8192"):
        for kv in after("--kv", "f16"):
            size = 512 if kv == "f16" else 64 + ctx / 8192
            for spread in {1, *numbers("--spread", "1")}:
                for how in ("launched", "graph", "block a lane", "step"):
                    rows.append({"params": {"kv": kv, "how": how, "gpu": "Stub", "ctx": ctx, "spread": spread, "layers": 4}, "us": us(size * spread),
                                 "plan_us": us(5), "bytes": size, "fraction_of_peak": 0.9, "speed_to_first": 512 / size, "time_to_equal": spread,
                                 "speed_to_block_a_lane": 1.5, "max_rel_err": 1e-4})
elif what == "serve":
    for kv in after("--kv", "f16"):
        fast = 1 if "none" in kv or kv == "f16" else 3
        rows.append({"params": {"kv": kv, "gpu": "Stub"}, "output_throughput": 1000 * fast, "mean_concurrency": 10 * fast, "preempted_swap": 3 - fast,
                     "preempted_recompute": 0, "median_itl_ms": 5, "p99_itl_ms": 12 / fast, "pool_used_mean": 0.5})
else:
    for ctx in numbers("--ctx", "8192"):
        for kv in after("--kv", "kvcomp"):
            for product in ("K q", "p V"):
                for how in ("fused", "bit-serial", "cuBLAS"):
                    for gqa in numbers("--gqa", "1,4"):
                        rows.append({"params": {"kv": kv, "product": product, "how": how, "gpu": "Stub", "ctx": ctx, "gqa": gqa}, "us": us(ctx / 100),
                                     "bits": 2.5, "gcodes_per_s": 3000, "f16_gb_per_s": 6000, "speed_to_cublas": 1.5, "speed_to_bit_serial": 6})
print(json.dumps({"rows": rows, "skipped": []}))
STUB
chmod +x "$scratch/pleat"
gpu() { capture python3 "$ROOT/bench/papers/gpu/run.py" --results "$scratch/results" --out "$scratch" "$@"; }

printf 'a page\n' >"$scratch/leankv.md"
cp "$ROOT/docs/papers/kvcomp.md" "$ROOT/docs/papers/spvllm.md" "$scratch/"
gpu
check "without results it fails" test "$code" = 1
check "and names one that is missing" says 'no result "pages-256"'
check "and the page says so" grep -q 'Not measured yet' "$scratch/leankv.md"

gpu --measure --pleat "$scratch/pleat"
check "results are kept" test "$code" = 0 -a -f "$scratch/results/contexts.json"
gpu
check "with results sections are written" test "$code" = 0
check "nothing is missing" test "$(cat "$scratch/leankv.md" "$scratch/kvcomp.md" "$scratch/spvllm.md" | grep -c 'Not measured yet')" = 0
check "the page's own text stays" grep -qx 'a page' "$scratch/leankv.md"
for figure in 11 12 13; do
    check "leankv.md has figure $figure" grep -q "^## Figure $figure on a GPU" "$scratch/leankv.md"
done
for figure in 9 10 11; do
    check "kvcomp.md has figure $figure" grep -q "^## Figure $figure on a GPU" "$scratch/kvcomp.md"
done
check "spvllm.md has the strategies" grep -q 'Met: reuse is at least 2.2 times' "$scratch/spvllm.md"
check "each with its command" test "$(grep -c 'build/pleat bench .* --device cuda' "$scratch/leankv.md")" -ge 6
check "and its GPU" grep -q 'Figures of one Stub' "$scratch/leankv.md"
cp "$scratch/leankv.md" "$scratch/once.md"
gpu
check "writing them again changes nothing" cmp -s "$scratch/leankv.md" "$scratch/once.md"

export FAIL=pages
gpu --measure --only pages-256,large --pleat "$scratch/pleat"
check "a command that fails is told" test "$code" = 1
check "with its last line" says 'pages-256: .*: ended with 1: pleat: no such luck'
gpu --measure --pleat "$scratch/pleat"
check "two that fail alike end it" test "$(grep -c 'no such luck' "$scratch/err")" = 2
check "and it says so" says 'the same twice: not going on'
unset FAIL
gpu --only codec
check "--only without --measure is wrong usage" test "$code" = 2
gpu --measure --only nothing
check "an unknown result is wrong usage" test "$code" = 2
check "and the known ones are listed" says 'there are contexts, peers'
gpu --measure --only pages-256 --pleat "$scratch/no-such-program"
check "a program that is not there is named" says 'cannot run .*no-such-program'

# The pages that are kept are what the kept results give.
mkdir -p "$scratch/kept"
cp "$ROOT/docs/papers/leankv.md" "$ROOT/docs/papers/kvcomp.md" "$ROOT/docs/papers/spvllm.md" "$scratch/kept/"
capture python3 "$ROOT/bench/papers/gpu/run.py" --out "$scratch/kept"
check "leankv.md is up to date" cmp -s "$scratch/kept/leankv.md" "$ROOT/docs/papers/leankv.md"
check "kvcomp.md is up to date" cmp -s "$scratch/kept/kvcomp.md" "$ROOT/docs/papers/kvcomp.md"
check "spvllm.md is up to date" cmp -s "$scratch/kept/spvllm.md" "$ROOT/docs/papers/spvllm.md"
finish
