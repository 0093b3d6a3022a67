#!/bin/bash
# SPDX-License-Identifier: MIT
#
# models.sh: bench/models/run.py and bench/frontier/run.py keep what the command prints with when, by what and on how many
# threads it was measured, measure nothing twice, and make tables and pictures of that.  A stub stands in for the command:
# no figure is judged here.
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
fails = os.environ.get("FAILS_TASK", "-")
tasks = {name: {"total": 8, "accuracy": 0.25 if name == fails else 0.75} for name in ("fact-1k", "facts-1k")}
rows = [{"kv": kv, "perplexity": 40.0, "kld_mean": 0 if kv == "f16" else len(kv) / 1000, "kld_se": 0.001, "same_top1": 0.9,
         "bytes": 10000000 // len(kv), "fraction": 3 / len(kv), "tasks": tasks, "accuracy": 0.75, "accuracy_se": 0.1,
         "gain": -0.004, "gain_se": 0.002} for kv in kvs]
print(json.dumps({"model": "m", "samples": 9, "scored_tokens": 512, "rows": rows}))
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

# ---- the frontier ----------------------------------------------------------------------------------------------------------
frontier() { capture python3 bench/frontier/run.py --pleat "$scratch/pleat" --results "$scratch/frontier" "$@"; }
: >"$CALLS"
frontier --measure --only pleat,gemma3 --groups 1 --parts prose --threads 2 -q
check "the frontier's prose, of the reference model alone" test "$code$(wc -l <"$CALLS")" = 01
check "is of the half that shows" grep -q -- '--text eval/prose.txt .* --half show --kv f16 --kv k8v8' "$CALLS"
FAILS_TASK=facts-1k frontier --measure --only gemma3 --groups 1,3 --parts documents --threads 2 -q
check "documents: tried once on the half that chooses, then each family, then some questions in sight" \
    test "$code$(wc -l <"$CALLS")" = 05
check "the last of them without --unseen" test "$(tail -n 1 "$CALLS" | grep -c -- '--half show --kv f16 --kv snapkv')$(tail -n 1 "$CALLS" | grep -c -- --unseen)" = 10
check "a task that is failed is not asked" same "$(cut -d '"' -f 8 build/models/documents-gemma3-passed.jsonl | sort -u)" fact-1k
check "the others are, with their questions unseen" grep -q -- 'documents-gemma3-passed.jsonl --unseen --half show --kv f16 --kv kvcomp' "$CALLS"
frontier --measure --only gemma3 --groups 1,3 --parts prose,documents --threads 2 -q
check "what is kept is not measured again" test "$(wc -l <"$CALLS")" = 5
cp docs/FRONTIER.md "$scratch/FRONTIER.md"
frontier --out "$scratch/FRONTIER.md"
check "the frontier's page" test "$code" = 0
check "a row" grep -qxF '| `k8v4` | 0.0040 ± 0.0010 | 90.0 % | 75.0 % |' "$scratch/FRONTIER.md"
check "a row of documents, beside the page of models' prose" grep -qE '^\| `k8v4` \| 0\.0193 \| 92\.8 % \| 38\.3 % \| 75\.0 \| -0\.4 ± 0\.2 \| 75\.0 % \|$' "$scratch/FRONTIER.md"
check "a family" grep -qF '| *kivi* |' "$scratch/FRONTIER.md"
check "what was left out, and why" grep -q 'Left out, for what f16 has right of them on the half that chooses: facts-1k 25 %\.' \
    <(tr '\n' ' ' <"$scratch/FRONTIER.md")
rm "$scratch"/frontier/pleat-*
frontier --out "$scratch/FRONTIER.md"
check "a model without figures" test "$(grep -c '^Not measured yet' "$scratch/FRONTIER.md")" = 1
check "which is said" grep -q 'not measured yet: 1 of 3 models' "$scratch/err"
check "the picture is XML" python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$scratch/frontier-gemma3.svg"
n_divergences=$(sed -n '/<!-- gemma3 -->/,/<!-- end -->/p' "$scratch/FRONTIER.md" | grep -cE '^\| `[^`]*` \| 0\.[0-9]*[1-9]')
check "with a mark for each figure but f16's divergence" test "$(grep -c '<g><title>' "$scratch/frontier-gemma3.svg")" -gt $((12 + n_divergences - 1))
frontier --only nothing
check "a model that is not" test "$code" = 2
finish
