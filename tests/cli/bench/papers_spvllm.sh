#!/bin/bash
# SPDX-License-Identifier: MIT
#
# papers_spvllm.sh: bench/papers/spvllm/run.py draws its trace, serves it under every strategy in turn and writes its
# page from what the command and spvllm_steps print: medians of rounds, verdicts on what is required, prices.  Stubs
# stand in for both: no figure is judged here.
. "$(dirname "$0")/../harness.bash"
needs python3

mkdir -p "$scratch/bin/bench" "$scratch/store"
cat >"$scratch/bin/pleat" <<'STUB'
#!/usr/bin/env python3
"""Prints what the command would, of the shape alone; notes each run in calls.  Of 20 requests drawn every fifth is longer
than the sampler takes; others have 225 tokens in and 9 out.  Budgets serve three times the requests, the larger the turn
the more.  FAIL: the word that makes a run fail."""
import json, os, sys
argv = sys.argv[1:]
after = lambda flag: argv[argv.index(flag) + 1]
if argv == ["--version"]:
    print("pleat 0.0.0")
elif argv[1] == "run":
    print('{"rows": [{"tokens_per_s": 100}]}')
elif "--write-trace" in argv:
    n = int(after("--requests"))
    with open(after("--write-trace"), "w") as f:
        for i in range(n):
            f.write(json.dumps({"arrival": 0, "prompt_tokens": 1025 if i % 5 == 4 else 225, "output_tokens": 209}) + "\n")
else:
    with open(os.environ["CALLS"], "a") as f:
        f.write(" ".join(argv) + "\n")
    with open(os.environ["CALLS"]) as f:
        turn = f.read().splitlines().count(" ".join(argv))
    kv = after("--kv")
    if os.environ.get("FAIL") and os.environ["FAIL"] in kv:
        print("pleat: error: no such luck", file=sys.stderr)
        sys.exit(1)
    speed = (3.0 if "budget" in kv and "reclaim" not in kv else 1.0) * turn
    row = {"params": {"kv": kv}, "request_throughput": speed, "output_throughput": 209 * speed,
           "total_token_throughput": 434 * speed, "mean_concurrency": 4.0, "pool_used_mean": 0.5, "steps": 100,
           "p99_ttft_ms": 1000.0, "p99_tpot_ms": 9.0, "p99_itl_ms": 50.0 / speed * turn, "median_itl_ms": 2.0,
           "preempted_recompute": 0 if "budget" in kv else 7, "preempted_swap": 0, "replayed_tokens": 0, "duration": 10.0,
           "compaction_ms": 500.0 if "copy" in kv else 100.0}
    json.dump({"rows": [row]}, sys.stdout)
STUB
cat >"$scratch/bin/bench/spvllm_steps" <<'STUB'
#!/usr/bin/env python3
import json, sys
kv = sys.argv[2]
p99 = 80 if "none" in kv else 60 if "block" in kv else 20
medians = [p99 // 2 + i for i in range(19)] if p99 > 20 else [5] * 19
json.dump({"kv": kv, "requests": 2, "pages_total": 5120, "pool_bytes": 20 << 20, "preempted": 0, "computed_again": 0,
           "tokens_moved": 64000, "moving_steps": 4, "pages_returned": 9,
           "fragmentation": {"median": p99 // 2, "p99": p99, "medians": medians},
           "steps": [[2, 450, 2, 512]] + [[2, 0, 2, 512]] * 8, "tokens": [list(range(9)), list(range(9))]}, sys.stdout)
STUB
chmod +x "$scratch/bin/pleat" "$scratch/bin/bench/spvllm_steps"
export CALLS=$scratch/calls

# papers ARGS...: run the script on the stubs; like try.
papers() { paper spvllm "$scratch/page.md" "$@"; }
has() { unfilled "$scratch/page.md" | grep -E -- "$1" >/dev/null; }
n_runs() { wc -l <"$CALLS"; }

FAIL=reclaim=copy papers --only fig4
check "a measurement that fails: exit 1" exits 1
check "the page says so" has 'Not measured: .*reclaim=copy.*no such luck'

rm -r "$scratch/store"
papers -q
check "all" exits 0
check "every table is there" test "$(grep -c '^## ' "$scratch/page.md")" = 12
check "too long requests are left out" test "$(grep -c 1025 "$scratch/store/trace.jsonl")" = 0
check "specs take turns" test "$(sed -n 1p "$CALLS")" = "$(sed -n 14p "$CALLS")"
check "medians of three rounds" has '^\| 256 \| reuse \(SpvLLM\) \| 6\.00 \| 1254 \| 2604 \| 3\.00 \|'
check "a requirement that is met" has '^- \*\*Met\*\*:.* 2\.2 times .*\(3\.00; paper 2\.21\)'
check "fragmentation against free-block" has '^- \*\*Met\*\*: it is at least 15 points below free-block \(-40'
check "copying without the search for victims" has '^\| 256 \| 2007 \| 179\.14 \| 4 \| 64,000 \| 400 \|'
# 2 requests in 9 steps of 13.3 GB and 256 tokens of 524,288 bytes at 320 GB/s, the first of 452 tokens, 93.2 ms
check "prices" has '^\| 20 \| 256, reuse \| 4\.[0-9]* \| 1\.00 \| 9 \| 2\.0 \|'
papers -q
check "nothing is measured twice" test "$(n_runs)" = 0

papers --only fig99
check "an unknown figure: exit 2" exits 2
check "it is named" says 'fig99: not among'
finish
