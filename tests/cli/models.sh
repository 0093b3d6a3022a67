#!/bin/bash
# SPDX-License-Identifier: MIT
#
# models.sh: bench/models/run.py keeps what the command prints with when, by what and on how many threads it was measured,
# measures nothing twice, and makes its tables of that.  A stub stands in for the command: no figure is judged here.
. "$(dirname "$0")/harness.bash"
needs python3

cd "$ROOT" || exit
export CALLS=$scratch/calls PYTHONDONTWRITEBYTECODE=1
: >"$CALLS"
cat >"$scratch/pleat" <<'STUB'
#!/usr/bin/env python3
"""Prints the rows that eval would; notes each call in calls.  FAIL: the spec that makes a call fail."""
import json, os, sys
argv = sys.argv[1:]
if argv == ["--version"]:
    print("pleat 0.0.0\ncpu: stub; cuda: not in this build")
    sys.exit(0)
with open(os.environ["CALLS"], "a") as f:
    f.write(" ".join(argv) + "\n")
kvs = [b for a, b in zip(argv, argv[1:]) if a == "--kv"]
if os.environ.get("FAIL") in kvs:
    print("pleat: error: no such luck", file=sys.stderr)
    sys.exit(1)
rows = [{"kv": kv, "perplexity": 40.0, "kld_mean": len(kv) / 1000, "same_top1": 0.9, "bytes": 10000000 // len(kv)}
        for kv in kvs]
print(json.dumps({"model": "m", "scored_tokens": 512, "rows": rows}))
STUB
chmod +x "$scratch/pleat"

models() { capture python3 bench/models/run.py --pleat "$scratch/pleat" --results "$scratch/results" "$@"; }
field() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[0][sys.argv[2]])' "$kept" "$1"; }
kept=$scratch/results/smollm2-4096.json

models --measure --only smollm2-4096 --families 1 --threads 3 -q
check "--measure" test "$code" = 0
check "one command for a family" test "$(wc -l <"$CALLS")" = 1
check "on the threads that were asked for" grep -q -- ' -t 3 ' "$CALLS"
check "the record says how many" test "$(field threads)" = 3
check "and by what" grep -q 'pleat 0.0.0.*cpu: stub' <<<"$(field version)"
check "the command without them" test "$(field command | grep -c -- ' -t ')" = 0
begun=$(date -ud "$(field date)" +%s)
check "and when it began" calc "$(date -u +%s) - $begun < 600 && $begun <= $(date -u +%s)"
models --measure --only smollm2-4096 --families 1 --threads 1 -q
check "what is kept is not measured again" test "$(wc -l <"$CALLS")" = 1

FAIL=kvcomp models --measure --only smollm2-4096 --families 2 --threads 1 -q
check "a command that fails" test "$code" = 1
check "is named" grep -q "^run.py: smollm2-4096, Blocks: .*ended with 1: pleat: error: no such luck" "$scratch/err"
models --measure --only smollm2-4096 --families 2 --threads 1 -q

cp docs/MODELS.md "$scratch/page"
models --out "$scratch/page"
check "tables of a part" test "$code" = 1
check "what is missing is said" grep -q "^run.py: gemma3-8192: not measured yet" "$scratch/err"
check "a row" grep -qxF '| `k8v4` | 40.00 | 0.0040 | 90.0 % | 2.5 | 75.0 % |' "$scratch/page"
check "a family without figures" grep -q '^| \*Two levels: not measured yet\*' "$scratch/page"
check "the threads of all records" grep -qz 'one\sthread\sand\s3\sthreads\seach' "$scratch/page"
check "lines are wrapped" test "$(grep -v '^|' "$scratch/page" | awk 'length > 110' | wc -l)" = 0
models --only nothing
check "a table that is not" test "$code" = 2
finish
