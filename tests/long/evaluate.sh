# SPDX-License-Identifier: MIT
#
# evaluate.sh: the full evaluation and what it must show: f16 solves the tasks, k8v4 loses at most a hundredth of them
# at 46 % of the bytes or less, and keys need the bits more than values do.  Some ten minutes on two cores.
. "$ROOT/tests/cli/harness.bash"

report=${REPORT:-$scratch/evaluation.json}
try eval -m "$MODEL" --tasks "$ROOT/eval/tasks.jsonl" --text "$ROOT/eval/prose.txt" --text-windows 16 \
    --kv f16 --kv k8v4 --kv k4v8 --kv k2v4 --format json -o "$report"
check "eval ends well" test "$code" = 0

# holds EXPRESSION: over r, the rows by spec.
holds() {
    python3 - "$report" "$1" <<'PY'
import json, sys
r = {row["kv"]: row for row in json.load(open(sys.argv[1]))["rows"]}
for row in r.values():
    print("  ", row["kv"], {key: row[key] for key in ("accuracy", "perplexity", "kld_mean", "same_top1", "fraction")})
sys.exit(not eval(sys.argv[2]))
PY
}

check "f16: accuracy >= 0.95" holds 'r["f16"]["accuracy"] >= 0.95'
check "k8v4: within 0.01 of f16" holds 'abs(r["k8v4"]["accuracy"] - r["f16"]["accuracy"]) <= 0.01'
check "k8v4: at most 46 % of the bytes" holds 'r["k8v4"]["fraction"] / r["f16"]["fraction"] <= 0.46 and r["k8v4"]["fraction"] <= 0.46'
check "keys need the bits: k8v4 >= k4v8 > k2v4" holds 'r["k8v4"]["accuracy"] >= r["k4v8"]["accuracy"] > r["k2v4"]["accuracy"]'
check "and diverges less" holds 'r["k8v4"]["kld_mean"] < r["k4v8"]["kld_mean"] < r["k2v4"]["kld_mean"]'
check "tasks are all there" holds 'all(sum(t["total"] for t in row["tasks"].values()) >= 512 and len(row["tasks"]) == 8 for row in r.values())'
finish
