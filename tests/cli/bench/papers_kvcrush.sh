#!/bin/bash
# SPDX-License-Identifier: MIT
#
# papers_kvcrush.sh: bench/papers/kvcrush/run.py writes its two pages from what the command prints: differences between
# specs on the same samples, budgets searched for equal bytes, nothing measured twice.  Stubs stand in for the command
# and for bench_crush: no figure is judged here.
. "$(dirname "$0")/../harness.bash"
needs python3

mkdir -p "$scratch/bin/bench" "$scratch/store"
cat >"$scratch/bin/pleat" <<'STUB'
#!/usr/bin/env python3
"""Prints what the command would, of the shape alone; notes each call in calls.  Representatives answer one turn of
few_shot more of each block; bytes grow with the budget."""
import json, os, re, sys
argv = sys.argv[1:]
with open(os.environ["CALLS"], "a") as f:
    f.write(" ".join(argv) + "\n")
NAMES = ["passkey", "kv_recall", "two_hop", "code_recall", "few_shot", "word_problem", "chain_sum", "copy_list"]

def row(kv):
    found = re.search(r"(?:budget|keep)=([\d.]+)%", kv)
    ah = re.search(r"ah=([\d.]+)", kv)
    window = re.search(r"ah=1000000,.*window=(\d+)", kv)
    size = 0.23 + int(window[1]) / 10000 if window else float(found[1]) / 100 * (0.44 if "k8v4" in kv else 1.04) if found else 0.4 / (1 + float(ah[1]) / 8) if ah else 1.02
    tasks = {n: {"correct": 2, "total": 4, "accuracy": 0.5} for n in NAMES}
    if "kvcrush" in kv:
        tasks["few_shot"] = {"correct": 3, "total": 4, "accuracy": 0.75}
    return {"kv": kv, "tasks": tasks, "perplexity": 20.0, "kld_mean": 0.01, "same_top1": 0.9, "fraction": size,
            "bytes": int(size * 2e7), "bytes_f16": int(2e7)}

def timed(kv):
    return {"params": {"kv": kv, "n": 4096}, "tokens_per_s": 4096.0, "fraction": 0.3,
            "memory_management": {"pages": 0.0, "compaction": 0.003 if "kvcrush" in kv else 0.001}}

kvs = [b for a, b in zip(argv, argv[1:]) if a == "--kv"]
if argv == ["--version"]:
    print("pleat 0.0.0")
else:
    json.dump({"rows": [(row if argv[0] == "eval" else timed)(kv) for kv in kvs]}, sys.stdout)
STUB
cat >"$scratch/bin/bench/bench_crush" <<'STUB'
#!/bin/sh
for unit in token page; do
    echo "$unit plain 0.1"
    for anchor in mean random alternate; do echo "$unit $anchor 0.3 0.2 60.0"; done
    echo "$unit kmeans 12.1 12.0 1.0"
done
STUB
chmod +x "$scratch/bin/pleat" "$scratch/bin/bench/bench_crush"
export CALLS=$scratch/calls

# papers ARGS...: run the script on the stubs; like try.
papers() { paper kvcrush "$scratch/pages" "$@"; }
has() { unfilled "$scratch/pages/$1.md" | grep -E -- "$2" >/dev/null; }
n_evals() { grep -c '^eval' "$CALLS"; }

papers --samples 8 --only table3 --kept
check "--kept measures nothing" test "$(n_evals)" = 0
check "and says what is not there: exit 1" exits 1
check "on the page" has kvcrush 'Not measured: not measured yet'

papers --samples 8 -q
check "all" exits 0
check "one page has the paper's" test "$(grep -c '^## \(Figure\|Table\)' "$scratch/pages/kvcrush.md")" = 6
check "the other every policy" test "$(grep -c '^## [0-9.]* % of' "$scratch/pages/eviction.md")" = 4
check "each has a verdict" test "$(cat "$scratch"/pages/*.md | grep -c '^\*\*Here\.\*\*')" = 10
# 1 turn of 4 in 1 task of 8 is 3.1 points; it is the same in all blocks, so without error
check "a difference and its error" has kvcrush '^\| \+kvcrush \| 25 \|.*\| \+3\.1 ± 0\.0 \|'
check "and over all pairs" has kvcrush 'changes by \+3\.12 ± 0\.00 points.*9 pairs better, 0 worse'
check "the stage's share of a prompt" has kvcrush '0\.16 % of that prompt'
check "60 times cheaper than k-means" has kvcrush 'takes 60\.0 times as long'
check "a budget that gives 36 % of the bytes" has eviction 'h2o, k8v4 `h2o:budget=8[0-3]\.?[0-9]*%,format=k8v4`'
check "and an ah that does" has eviction 'leankv is .* points'
check "a window without significance, too" has eviction 'its control: significance off `leankv:ah=1000000,al=0,window=1[23][0-9]{2}`'
check "which leankv is compared with" has eviction 'It is .* points from its control, which looks at no attention'
check "at a share of the tokens leankv has its control" has eviction '^\| its control: significance off \|'
check "the first blocks are of the half that did not choose" test "$(cat "$scratch"/store/block-{0,1,2,3}.jsonl |
    python3 -c 'import json, sys
all = {}
for line in open("'"$ROOT"'/eval/tasks.jsonl"):
    s = json.loads(line)
    all.setdefault(s["task"], []).append(s["id"])
of = [json.loads(line) for line in sys.stdin]
print(len(of), sum(bin(all[s["task"]].index(s["id"])).count("1") % 2 for s in of))')" = "128 128"
check "bytes are equal" has eviction 'Bytes are within 0\.[0-6] points of 36 %'
papers --samples 8 -q
check "nothing is measured twice" test "$(n_evals)" = 0

papers --only fig99
check "an unknown figure: exit 2" exits 2
check "it is named" says 'fig99: not among'
papers --samples 6
check "samples that are not alike: exit 2" exits 2
finish
