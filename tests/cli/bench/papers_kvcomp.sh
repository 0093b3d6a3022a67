#!/bin/bash
# SPDX-License-Identifier: MIT
#
# papers_kvcomp.sh: bench/papers/kvcomp/run.py finds turning points, KIVI's widths of equal step, error and accuracy, and
# writes its page from what the commands print.  Stubs stand in for them: no figure is judged here.
. "$(dirname "$0")/../harness.bash"
needs python3

mkdir -p "$scratch/bin/bench" "$scratch/store"
cat >"$scratch/bin/pleat" <<'STUB'
#!/usr/bin/env python3
"""Prints what the command would, of the shape alone; notes each call in calls.  Up to scales of 0.25 for keys (0.05 by
block) and 0.2 for values accuracy is 1, then it falls.  Compressed tokens attend twice as fast as f16.  FAIL: the word that
makes a call fail."""
import json, os, sys
what = sys.argv[1:3]
if what == ["--version"]:
    sys.exit(print("pleat 0.0.0"))
print(*sys.argv[1:], file=open(os.environ["CALLS"], "a"))
if os.environ.get("FAIL", "none") in what:
    sys.exit("pleat: error: no such luck")
after = lambda flag: [b for a, b in zip(sys.argv, sys.argv[1:]) if a == flag]
NAMES = ["passkey", "kv_recall", "two_hop", "code_recall", "few_shot", "word_problem", "chain_sum", "copy_list"]

def right(kv):
    keys = dict(w.split("=") for w in kv.removesuffix("+pack").partition(":")[2].split(",")) if ":" in kv else {}
    if "bits" in keys:
        return 3 if keys["bits"] == "2" else 4
    k, v = (float(keys.get(x, 0)) for x in "kv")
    return 4 if k <= (0.05 if keys.get("kunit") == "block" else 0.25) and v <= 0.25 else 2

def row(kv):
    n = right(kv)
    tasks = {name: {"correct": n, "total": 4, "accuracy": n / 4} for name in NAMES}
    size = 1.02 if kv == "f16" else 0.24
    return {"kv": kv, "tasks": tasks, "accuracy": n / 4, "fraction": size, "bytes": int(size * 1e6), "bytes_f16": 10**6}

ms = lambda v: {"min": v, "median": v, "max": v}
kvs = after("--kv")
if what[0] == "eval":
    rows = [row(kv) for kv in kvs]
elif what[1] == "attn":
    rows = [{"params": {"kv": kv, "ctx": int(n)}, "ms": ms(int(n) / 1000 * (2 if kv == "f16" else 1))}
            for kv in kvs for n in after("--ctx")[0].split(",")]
else:
    rows = [{"params": {"kv": kv}, "decode_to_huffman": 5.0,
             "gcodes_per_s": {what: ms(1.0) for what in ("quantise", "code", "encode", "decode", "load")}} for kv in kvs]
json.dump({"rows": rows}, sys.stdout)
STUB
cat >"$scratch/bin/bench/kvcomp_blocks" <<'STUB'
#!/usr/bin/env python3
"""1000 numbers of the keys and of the values: KIVI's at b bits take b + 1 with rms errors of 20 %, ours 2 and 0.5 for units
and errors of the scale."""
import json, sys
rows = []
for kv in sys.argv[5:]:
    keys = dict(w.split("=") for w in kv.removesuffix("+pack").partition(":")[2].split(","))
    kivi = "bits" in keys
    codes, units = (int(keys["bits"]) * 125, 125) if kivi else (250, 62.5)
    of = lambda x: {"error": (0.2 if keys["bits"] == "2" else 0.04) if kivi else float(keys[x]), "worst": 0.1, "entropy": 1.9,
                    "codes": [[10, 60, 20, 10]] * 2}
    for context in map(int, sys.argv[3].split(",")):
        rows.append({"kv": kv, "context": context, "block": 64, "values": 1000, "blocks": 1, "books": 0,
                     "bytes": {"header": 0, "k_units": units, "v_units": units, "order": 0, "k_codes": codes, "v_codes": codes},
                     "k": of("k"), "v": of("v")})
json.dump({"windows": 1, "rows": rows}, sys.stdout)
STUB
cat >"$scratch/bin/bench/bench_codec" <<'STUB'
#!/bin/sh
shift 4
for spec in "$@"; do
    echo "$spec: 32 query heads, 8 KV heads, d 128, 8192 tokens, 1 threads"
    for way in "tree decode    " "tree x4 decode " "block decode   "; do echo "$way  9.0 9.0 1.0 1.0 - 6.0 -"; done
    for way in "tree fused     500" "tree x4 fused  200" "block fused    5" "block first    50" "f16            10"; do
        echo "$way 9.0 1.0 1.0 1.0 6.0 0"
    done
done
STUB
chmod +x "$scratch/bin/pleat" "$scratch"/bin/bench/*
export CALLS=$scratch/calls

# papers ARGS...: run the script on the stubs; like try.
papers() { paper kvcomp "$scratch/page.md" "$@"; }
has() { unfilled "$scratch/page.md" | grep -E -- "$1" >/dev/null; }
n_calls() { wc -l <"$CALLS"; }

papers --samples 8 --only fig10 --kept
check "--kept measures nothing" test "$(n_calls)" = 0
check "and says what is not there: exit 1" exits 1
FAIL=attn papers --only fig10
check "a measurement that fails: exit 1" exits 1
check "the page says so" has 'Not measured: .*attn.*no such luck'

papers --samples 8 -q
check "all" exits 0
check "every figure is there" test "$(grep -c '^## ' "$scratch/page.md")" = 15 # with three on a GPU
check "turning points" has 'Turning points: k block 0\.05 \(.*k channel 0\.25 .*v token 0\.25 '
check "samples that they were judged by" has '^\| 0\.25 \| 100\.0 .*\| 8 \|$'
# a scale of 0.25 is log2(5) = 2.32 bits; errors of 0.25 where 2 bits have 0.2: log2(0.6 / 0.25 + 1) = 1.77
check "KIVI of equal step and error" has '^\| keys, channel \| `kvcomp:k=0\.25.*\| 2\.50 \| 6\.40 \|.*\| 2\.32 \| 3\.32 \| \+33 \| 1\.77 \| 2\.77 \| \+11 \|'
check "of equal accuracy: the first step below 0.25" has '^\| keys, channel .*\| 3 \| 4\.00 \| \+60 \|$'
check "a requirement that is met" has '^- Met: keys, channel 30 % better .*\(\+60 %'
check "values at the paper's best scale, in whole bits" has '^\| 0\.12 \|.*\| 4 \| 3\.20 \| \+100 \|$'
check "ratios" has '^\| `kivi:bits=2` .*\| 3\.00 \| 3\.00 \| 5\.33 \|'
check "fused against first, tree and f16" has '\| 10\.0 \| 100 \| 2\.00 \|'
check "faster than f16 adds nothing" has '\| none added \|'
check "a setting that does" has 'Met: `kvcomp:k=0\.13,v=0\.25,buffer=94` is within 0\.005'
papers --samples 8 -q
check "nothing is measured twice" test "$(n_calls)" = 0

papers --samples 6 --only fig3
check "samples that are not alike: exit 2" exits 2
papers --only fig99
check "so is an unknown figure" exits 2
check "which is named" says 'fig99: not among'
finish
