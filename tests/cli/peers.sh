#!/bin/bash
# SPDX-License-Identifier: MIT
#
# peers.sh: bench/peers/run.py measures every peer that it is given and prints the right ratios.  Scripts that print
# canned JSON stand in for pleat, llama-bench and llama_cpp: no figure is judged here.
. "$(dirname "$0")/harness.bash"
if ! command -v python3 >/dev/null; then
    skip "no python3"
    finish
    exit
fi
export CALLS=$scratch/calls PYTHONDONTWRITEBYTECODE=1
mkdir "$scratch/up" "$scratch/ik" "$scratch/none" "$scratch/there"
# a llama_cpp that cannot be imported, whatever this python has; and one that can
echo 'raise ImportError("none here")' >"$scratch/none/llama_cpp.py"
: >"$scratch/there/llama_cpp.py"

cat >"$scratch/pleat" <<'STUB'
#!/usr/bin/env python3
"""Prints three rows, f16 at 100 tokens/s, k8v4 at 200, leankv at 300."""
import json, os, sys
argv = sys.argv[1:]
if argv == ["--version"]:
    print("pleat 0.0.0")
    sys.exit(0)
with open(os.environ["CALLS"], "a") as f:
    f.write("pleat " + " ".join(argv) + "\n")
print(json.dumps({"rows": [{"tokens_per_s": v} for v in (100, 200, 300)], "skipped": []}))
STUB
cat >"$scratch/bench.py" <<'STUB'
"""llama-bench in the dialect that DIALECT names: its flags, its JSON.  Speed: 100, half that for q8_0 and q4_0, 20 % less
without flash attention, twice that repacked."""
import json, os, sys
argv, ik = sys.argv[1:], os.environ["DIALECT"] == "ik"
if "--help" in argv:
    print("  -gp <pp,tg>   -rtr, --run-time-repack <0|1>" if ik else "  -d, --n-depth <n>")
    sys.exit(0)
with open(os.environ["CALLS"], "a") as f:
    f.write(f"{os.environ['DIALECT']} {' '.join(argv)}\n")
if os.environ.get("FAIL"):
    print("error: no such luck", file=sys.stderr)
    sys.exit(1)
flag = dict(zip(argv, argv[1:]))
depth, n_gen = (flag["-gp"].split(",") if "-gp" in flag else (flag.get("-d", 0), flag["-n"]))
row = {"build_commit": "c0ffee", "build_number": 7, "type_k": flag["-ctk"], "n_gen": int(n_gen)}
row["n_prompt"] = int(depth) if ik and int(n_gen) else int(flag["-p"])
if not ik:
    row["n_depth"] = int(depth)
speed = 100 if flag["-ctk"] == "f16" else 50
speed *= (1 if flag["-fa"] == "1" else 0.8) * (2 if flag.get("-rtr") == "1" else 1)
print(json.dumps([dict(row, n_prompt=7, n_gen=0, avg_ts=1), dict(row, avg_ts=speed)]))
STUB
for dialect in up ik; do
    printf '#!/bin/sh\nDIALECT=%s exec python3 "%s" "$@"\n' $dialect "$scratch/bench.py" >"$scratch/$dialect/llama-bench"
done
printf '#!/bin/sh\necho "usage: something else"\n' >"$scratch/other"
chmod +x "$scratch/pleat" "$scratch"/*/llama-bench "$scratch/other"

# peers LLAMA_CPP ARGS...: run the script with the llama_cpp of that folder
peers() {
    local where=$1
    shift
    : >"$CALLS"
    PYTHONPATH=$scratch/$where python3 "$ROOT/bench/peers/run.py" --model m.gguf --pleat "$scratch/pleat" "$@" \
        >"$scratch/out" 2>"$scratch/err" </dev/null
    code=$?
    stdout=$(cat "$scratch/out") stderr=$(cat "$scratch/err")
}

peers none
check "no peer at all" exits 2
check "says what is missing" says "has no llama_cpp.*pip install llama-cpp-python"
check "and what would do" says "no peer to measure: .*--llama-bench PATH"
check "nothing was measured" test ! -s "$CALLS"

peers none --llama-bench "$scratch/up/llama-bench" --llama-bench "$scratch/ik/llama-bench" --reps 3 --threads 2 \
    --out "$scratch/table" --json "$scratch/raw"
check "two peers without llama_cpp" exits 0
check "says what is left out" says "llama-cpp-python is left out"
check "--out is what was printed" cmp -s "$scratch/out" "$scratch/table"
check "--json is JSON" python3 -m json.tool "$scratch/raw" /dev/null
check "names the builds" prints "^- up/llama-bench, build c0ffee \(7\)$"
check "ratio to f16" prints '^\| pp2048 \| k8v4 \| 200 \| up/llama-bench \| f16, ubatch (512|2048), flash \| 100 \| \*\*2.00\*\* \|'
check "a target that is met" prints '^\| tg96 @ d4000 \| leankv \| 300 \| up/llama-bench \| q8_0, .*\*\*6.00\*\* \| >= 2: met \|$'
check "the best setting counts" prints '^\| tg96 \| f16 \| 100 \| ik/llama-bench \| f16, ubatch 512, flash, repacked \| 200 \| \*\*0.50\*\* \|'
check "repacked q8_0" prints '^\| tg96 @ d4000 \| leankv \| 300 \| ik/llama-bench \| q8_0, .*\| 100 \| \*\*3.00\*\* \| >= 2: met \|$'
check "thirteen rows a peer" test "$(grep -c '^| [pt][pg]' "$scratch/out")" = 26
check "depth by -d upstream" grep -q '^up .* -p 0 -n 96 -d 4000 ' "$CALLS"
check "depth by -gp in ik_llama.cpp" grep -q '^ik .* -p 0 -n 0 -gp 4000,96 ' "$CALLS"
check "pleat takes its turn in each repetition" test "$(grep -c '^pleat .*-p 2048 ' "$CALLS")" = 3
check "all have the same threads" test "$(grep -vc -- ' -t 2 ' "$CALLS")" = 0
check "slow settings are tried once" test "$(grep -c '^ik .*-fa 1 -rtr 0 -p 0 -n 96 ' "$CALLS")" = 1
check "good ones in each repetition" test "$(grep -c '^ik .*-fa 1 -rtr 1 -p 0 -n 96 ' "$CALLS")" = 3
check "the first row of a repetition is pleat's" test "$(head -n 1 "$CALLS" | cut -d' ' -f1)" = pleat

peers none --llama-bench "$scratch/up/llama-bench" --reps 1 --tests empty --quiet
check "one test" exits 0
check "only its rows" test "$(grep -c '^| [pt][pg]' "$scratch/out")" = 3
check "--quiet shows no progress" test "$(grep -c repetition <<<"$stderr")" = 0

peers there --no-python
check "--no-python leaves it out" exits 2
peers none --llama-bench "$scratch/other"
check "no llama-bench" exits 1
check "says so" says "other: no llama-bench that can generate at a depth"
peers none --llama-bench /no/llama-bench
check "no such file" exits 1
FAIL=1 peers none --llama-bench "$scratch/up/llama-bench" --reps 1
check "a peer that fails" exits 1
check "its last words" says "ended with 1: error: no such luck"
peers none --tests prompt,speed
check "no such test" exits 2
check "names them" says "'speed' is none of prompt, empty, depth"
peers none --reps 0
check "no repetitions" exits 2
finish
