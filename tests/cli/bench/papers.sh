#!/bin/bash
# SPDX-License-Identifier: MIT
#
# papers.sh: bench/papers/leankv/run.py writes its page from what the command prints, measures nothing twice, goes on
# after an interruption, and says what it could not measure.  A stub stands in for the command: no figure is judged here.
. "$(dirname "$0")/../harness.bash"
needs python3

mkdir -p "$scratch/bin/bench" "$scratch/store"
cat >"$scratch/bin/pleat" <<'STUB'
#!/usr/bin/env python3
"""Prints what the command would, of the shape alone; notes each call in calls.  FAIL: the word that makes a call fail."""
import json, os, sys
argv = sys.argv[1:]
if argv == ["--version"]:
    print("pleat 0.0.0")
    sys.exit(0)
with open(os.environ["CALLS"], "a") as f:
    f.write(" ".join(argv) + "\n")
if os.environ.get("FAIL") and os.environ["FAIL"] in argv:
    print("pleat: error: no such luck", file=sys.stderr)
    sys.exit(1)
after = lambda flag: [b for a, b in zip(argv, argv[1:]) if a == flag]
NAMES = ["passkey", "kv_recall", "two_hop", "code_recall", "few_shot", "word_problem", "chain_sum", "copy_list"]
ms = lambda v: {"min": v, "median": v, "max": v}

def row(kv):
    worth = 0.5 + 0.5 / (1 + len(kv))
    size = 1.01 if kv == "f16" else 0.2 + len(kv) / 200
    tasks = {n: {"correct": 1, "total": 2, "accuracy": worth, "fraction": size} for n in NAMES}
    return {"kv": kv, "tasks": tasks, "accuracy": worth, "perplexity": 20.0, "kld_mean": 0.01, "same_top1": 0.9,
            "fraction": size, "bytes": int(size * 2e7), "bytes_f16": int(2e7)}

def observed():
    needs = {"layers": [{"mean": 100.0 + i, "sd": 3.0} for i in range(2)],
             "heads": [[{"mean": 50.0 + 60 * h, "sd": 9.0} for h in range(2)] for _ in range(2)]}
    logs = [[-5.0, -4.0, -3.5, -3.2, -3.0, -2.5, -2.0, -1.5, -0.5]] * 2
    return {"requests": 3, "tokens": {"mean": 500.0, "sd": 0.0}, "levels": {"high": 60, "low": 20, "dropped": 20},
            "all": needs, "query": needs, "at": [0, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 1], "significance": logs,
            "norm": logs, "newest": 0.1, "relative": [-2 + 0.06 * i for i in range(51)]}

def bench_rows():
    rows = []
    if argv[1] == "pages":
        for op, hows in (("take", ("step", "plan", "loop", "mutex")), ("return", ("step", "loop", "mutex"))):
            rows += [{"params": {"op": op, "how": how, "lanes": 64}, "ms": ms(0.1 * len(how))} for how in hows]
    for kv in after("--kv") if argv[1] == "attn" else ():
        for ctx in after("--ctx")[0].split(","):
            params = {"kv": kv, "ctx": int(ctx), "heads": 8, "kv_heads": 4, "threads": 1}
            rows.append({"params": params, "ms": ms(1), "speed_to_first": 1.5, "fraction_of_peak": 0.5})
    for kv in after("--kv") if argv[1] == "run" else ():
        rows.append({"params": {"kv": kv}, "tokens_per_s": 100.0, "sd": 1.0, "bytes_per_sequence": 1e6,
                     "memory_management": {"pages": 0.001, "compaction": None}})
    return rows

def profile():
    def point(ah, al, more=""):
        return {"kv": f"leankv:ah={ah:g},al={al:g}{more}", "ah": ah, "al": al, "accuracy": 0.9, "fraction": 0.4 - ah / 100}
    curve = [point(float(x), 0.0) for x in after("--ah")[0].split(",")]
    control = {**point(1000000, 0.0, ",window=99"), "accuracy": 0.8, "fraction": curve[1]["fraction"]}
    return {"f16": {"accuracy": 0.91, "fraction": 1.01}, "curve": curve, "controls": [control], "tolerance": 0.005,
            "kv": curve[1]["kv"], "best": curve[1]["kv"], "control": control["kv"], "chosen": {"ah": curve[1]["ah"], "al": 0.0}}

if os.path.basename(sys.argv[0]) == "leankv_observe":
    result = observed()
elif argv[0] == "eval":
    result = {"rows": [row(kv) for kv in after("--kv")]}
else:
    result = profile() if argv[0] == "calibrate" else {"rows": bench_rows()}
json.dump(result, sys.stdout)
STUB
chmod +x "$scratch/bin/pleat"
ln -s ../pleat "$scratch/bin/bench/leankv_observe"
export CALLS=$scratch/calls

# papers ARGS...: run the script on the stub; like try.
papers() { paper leankv "$scratch/page.md" "$@"; }
page_has() { unfilled "$scratch/page.md" | grep -E -- "$1" >/dev/null; }
n_calls() { wc -l <"$CALLS"; }

papers --samples 2 --only fig7
check "one figure" exits 0
check "it has its table" page_has '^\| k4v2 \|.*\| 20\.3 \|$'
check "progress with an estimate" says '[0-9]+/[0-9]+ .*about [0-9]+:[0-9]+ left'
check "raw results are kept" test "$(ls "$scratch/store" | grep -c '^tasks-.*\.json$')" = 5

FAIL=k4v8 papers --samples 3 --only fig7
check "a measurement that fails: exit 1" exits 1
check "the page says so" page_has 'Not measured: .*k4v8.*no such luck'
n_before=$(n_calls)
papers --samples 3 --only fig7
check "then only the rest is measured" test "$(n_calls)" -lt $((n_before + 4))
check "and the page is whole" page_has '^## Figure 7'

papers --samples 3 -q
check "all" exits 0
check "every figure and table is there" test "$(grep -c '^## \(Figure\|Table\) ' "$scratch/page.md")" = 18 # with three on a GPU
check "each has a verdict" test "$(grep -c '^\*\*Here\.\*\*' "$scratch/page.md")" = 18
check "no progress with -q" test "$(wc -l <"$scratch/err")" = 1
papers --samples 3 -q
check "nothing is measured twice" test "$(n_calls)" = 0
touch "$scratch/bin/pleat" && echo "# another build" >>"$scratch/bin/pleat"
papers --samples 3 -q --only fig11
check "another build is measured anew" test "$(n_calls)" -gt 0

# Sections of two commits: fig11 anew, the others as they were.  Measuring took more than a minute.
papers --samples 3 -q
sed -i 's/"date": "[^"]*"/"date": "2026-01-02 03:04 UTC"/' "$(ls -t "$scratch"/store/tasks-*.json | head -1)"
papers --samples 3 -q
check "a section says from when to when it was measured" page_has '^Measured 2026-01-02 03:04 UTC to 20'
unfilled "$scratch/page.md" | sed 's/^\(Measured [-0-9 :UTCto]* UTC\)\(, commit [^.]*\)*/\1, commit 0123abc/' >"$scratch/older.md"
python3 "$ROOT/bench/papers/lab/fill.py" "$scratch/older.md"
mv "$scratch/older.md" "$scratch/page.md"
cp "$scratch/page.md" "$scratch/before.md"
rm "$scratch"/store/pages-*.json
papers --samples 3 -q --only fig11 --keep-rest
check "a page of which one section is measured again" exits 0
of_fig11() { awk '/^## /{ is = /^## Figure 11:/ } is' "$1"; }
rest_of() { awk '/^<!-- /{ exit } /^## /{ is = !/^## Figure 11:/ } is' "$1"; }
check "the others stay as they are, with their commit" test "$(rest_of "$scratch/page.md")" = "$(rest_of "$scratch/before.md")"
check "which is not that of the new one" test -z "$(of_fig11 "$scratch/page.md" | grep 0123abc)"
check "each measured section says where" test "$(unfilled "$scratch/page.md" | grep -c '^Measured .*commit 0123abc[.] Machine: ')" = 14
of_fig11 "$scratch/page.md" >"$scratch/fig11.md"
commit=$(git -C "$ROOT" describe --always --abbrev=7 --exclude='*' 2>"$scratch/err" || true)
check "the new one says its own" eval 'unfilled "$scratch/fig11.md" | grep -E "^Measured .*(, commit $commit.*)?[.] Machine: .* cores" >"$scratch/line"'
rm "$scratch"/store/pages-*.json
FAIL=pages papers --samples 3 -q --only fig11 --keep-rest
check "one that fails then: exit 1" exits 1
check "and it stays as it was" test "$(of_fig11 "$scratch/page.md")" = "$(<"$scratch/fig11.md")"
papers --samples 2 -q --only fig11 --keep-rest
check "a page with other settings: exit 1" exits 1
check "it is said" says 'its head says other things'
check "and the page stays" test "$(rest_of "$scratch/page.md")" = "$(rest_of "$scratch/before.md")"

papers --only fig99
check "an unknown figure: exit 2" exits 2
check "it is named" says 'fig99: not among'
papers --samples 99
check "too many samples: exit 2" exits 2
finish
