# SPDX-License-Identifier: MIT
#
# evaluate.sh: the full evaluation and what it must show: f16 solves the tasks, k8v4 loses at most a hundredth of them
# at 46 % of the bytes or less, keys need the bits more than values do, leankv as calibrated for the model loses at most half a
# hundredth at 32 % or less, and no uniform format that is as small is as accurate.  Some fifteen minutes on two cores.
. "$ROOT/tests/cli/harness.bash"

report=${REPORT:-$scratch/evaluation.json}
try eval -m "$MODEL" --tasks "$ROOT/eval/tasks.jsonl" --text "$ROOT/eval/prose.txt" --text-windows 16 \
    --kv f16 --kv k8v4 --kv k4v8 --kv k2v4 --kv k4v4 --kv "leankv:profile=$ROOT/models/pleat-28m-q8_0.leankv.json" \
    --format json -o "$report"
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
lean='next(row for kv, row in r.items() if kv.startswith("leankv"))'
check "leankv: within 0.005 of f16" holds "abs($lean['accuracy'] - r['f16']['accuracy']) <= 0.005"
check "leankv: at most 32 % of the bytes" holds "$lean['fraction'] <= 0.32"
check "no uniform format is both smaller and as accurate" holds \
    "not any(row['fraction'] <= $lean['fraction'] and row['accuracy'] >= $lean['accuracy'] for kv, row in r.items() if kv[0] == 'k')"
check "tasks are all there" holds 'all(sum(t["total"] for t in row["tasks"].values()) >= 512 and len(row["tasks"]) == 8 for row in r.values())'
finish
