#!/bin/bash
# SPDX-License-Identifier: MIT
#
# gpus.sh: bench/gpus.py asks for what its parts name, prints the right ratios and goes on where one part fails.  Scripts
# that print canned JSON stand in for pleat, bench_images and nvidia-smi: no figure is judged here, and no GPU is needed.
. "$(dirname "$0")/../harness.bash"
needs python3
export CALLS=$scratch/calls PYTHONDONTWRITEBYTECODE=1
mkdir -p "$scratch"/{bin,build/bench}
cd "$scratch" || exit
cat >build/pleat <<'STUB'
#!/usr/bin/env python3
"""pleat bench run, attn, codec or serve: a row for each --kv and test, with figures that follow from the KV's name."""
import json, os, sys
argv = sys.argv[1:]
with open(os.environ["CALLS"], "a") as f:
    f.write(" ".join(argv) + "\n")
if os.environ.get("FAILS") in argv:
    print("pleat: error: no such luck", file=sys.stderr)
    sys.exit(1)
if os.environ.get("PRINTS"):
    print(os.environ["PRINTS"])
    sys.exit(0)
kvs = [word for flag, word in zip(argv, argv[1:]) if flag == "--kv"]
flag = dict(zip(argv, argv[1:]))
numbers = lambda name: [int(n) for n in flag.get(name, "0").split(",")]
speed = lambda kv: {"f16": 2000, "k8v4": 4000}.get(kv, 3000)
if argv[1] == "run":
    rows = [{"params": {"kv": kv, "n": n, "depth": d}, "tokens_per_s": speed(kv)}
            for d in numbers("-d") for n in numbers("-p") + numbers("-n") if n for kv in kvs]
elif argv[1] == "attn":
    rows = [{"params": {"kv": kv, "how": how}, "us": {"median": us * 2000 / speed(kv)}}
            for kv in kvs for how, us in (("launched", 99), ("graph", 90), ("block a lane", 120), ("step", 100))]
elif argv[1] == "codec":
    rows = [{"params": {"how": how, "product": p}, "speed_to_cublas": 1.25} for p in ("K q", "p V")
            for how in ("fused", "bit-serial", "cuBLAS")]
else:
    rows = [dict({"params": {"kv": kv}, "output_throughput": speed(kv), "preempted_swap": 0, "preempted_recompute": 0,
                  "mean_concurrency": 5, "median_itl_ms": 10, "p99_itl_ms": 20, "scheduling_share": 0.01,
                  "management_share": 0.02}) for kv in kvs]
print(json.dumps({"rows": rows, "skipped": []}))
STUB
cat >build/bench/bench_images <<'STUB'
#!/bin/sh
echo "| KV | image, MB | saved, GB/s | restored, GB/s | a step of others meanwhile; moved then | beside plain copies |"
echo "|---|---|---|---|---|---|"
echo "| f16 | 1074 | 49.3, 0.89 of the link's 55.4 | 48.8, 0.80 of 55.4 | 2.22 for 2.14 ms, +4.0 %; 27.0 GB/s | 2.21 for 2.14 ms, +3.1 %; 54.0 GB/s |"
STUB
cat >bin/nvidia-smi <<'STUB'
#!/bin/sh
case $* in
*name,*) echo "A card, 580.1, 700.00" ;;
*) echo "1980, 100"; echo "1700, 690"; exec sleep 20 ;;
esac
STUB
chmod +x build/pleat build/bench/bench_images bin/nvidia-smi
PATH=$scratch/bin:$PATH

gpus() {
    : >"$CALLS"
    capture python3 "$ROOT/bench/gpus.py" --build build --commit c0ffee "$@"
}

gpus --out table --json raw
check "all parts" exits 0
check "says what it does" says "round 1, pool64"
check "the card and the commit" grep -q '^A card, driver 580.1, at most 700.00 W; commit c0ffee; .* UTC; rounds: 1$' table
check "over a known figure" grep -q '^| one | one, Q8_0, f16, empty | 2,000 tokens/s | llama.cpp, Q8_0, empty: 251 | 7.9681 | >= 1.4 | held |$' table
check "over another line" grep -q '^| types32 | 32 behind 8k, Q8_0, k8v4 | 4,000 tokens/s | 32 behind 8k, F16, k8v4: 4,000 | 1.0000 | >= 1.15 | \*\*missed\*\* |$' table
check "over what nobody measured" grep -q '^| many128 | 128 behind 1k, F16, f16 | 2,000 tokens/s | PyTorch, 128 behind 1k: not measured |  | >= 1.25 |  |$' table
check "times: the shorter the better" grep -q '^| attn | a step, kvcomp+pack | 66.67 us | a step, f16: 100 | 1.5000 | >= 1.2 | held |$' table
check "at most" grep -q '^| attn | not attention, of a step, leankv:ah=3,al=0.05 | 0.1 share |  |  | <= 0.08 | \*\*missed\*\* |$' table
check "images" grep -q '^| images | images, f16, back | 0.8 of the link |  |  | >= 0.85 | \*\*missed\*\* |$' table
check "others beside images" grep -q '^| images | images, f16, others longer | 0.04 share |  |  | <= 0.03 | \*\*missed\*\* |$' table
check "parts of a prompt" grep -q '^| prompts | a prompt of 8192 in parts of 2048 | 2,000 tokens/s | a prompt of 8192, F16, f16: 2,000 | 1.0000 ' table
check "of several parts" grep -q '^| derived | management behind a step, leankv:ah=3,al=0.05,every=8 | 0.205 share |' table
check "clock and power, where it worked" grep -q '^| one | [0-9.]* | 1700.0 | 690.0 |$' table
check "--json is JSON" python3 -m json.tool raw /dev/null
check "with commands" grep -q '"command": "pleat bench run --device cuda -q --format json --shape llama3-8b --weights f16 -np 32 ' raw
check "a shape of 8 layers" grep -q -- '--shape [^ ]*eight-layers.json .*--pool-bytes 16GiB' "$CALLS"
check "every line that was asked is measured" python3 - <<END
import sys
sys.path.insert(0, "$ROOT/bench")
import gpus, json
lines = {row["line"] for row in json.load(open("raw"))["lines"]}
absent = [line for line in gpus.ASKED if line not in lines and not (line.startswith("images, ") and "f16" not in line)]
absent += [a.base for a in gpus.ASKED.values() if a.base and a.base not in lines and a.base not in gpus.BASES]
print(absent)
sys.exit(1 if absent else 0)
END

echo '{"PyTorch, 128 behind 1k": 1600, "PyTorch, 32 behind 8k": 1000}' >peers
gpus --parts many128,many32 --peers peers --rounds 3
check "one part, three times" exits 0
check "two commands a round" test "$(wc -l <"$CALLS")" = 6
check "peers of a file" prints '^\| many128 \| 128 behind 1k, F16, f16 \| 2,000 tokens/s \(2,000 to 2,000\) \| PyTorch, 128 behind 1k: 1,600 \| 1.2500 \| >= 1.25 \| held \|$'
check "what is asked over one" prints '^\| many32 \| 32 behind 8k, F16, leankv:ah=3,al=0.05 \| .* \| 3.0000 \| >= 1.8 \| held \|$'

FAILS=attn gpus --parts attn,images
check "a part that fails" exits 1
check "its last words" says "^gpus.py: attn: .*bench attn .*: pleat: error: no such luck$"
check "the next is measured" prints '^\| images \| images, f16, out '
for PRINTS in '{}' '[]' words; do
    export PRINTS
    gpus --parts codec
    check "pleat prints $PRINTS" exits 1
    check "$PRINTS: says so" says "codec: .*printed something else than rows"
done
unset PRINTS
gpus --parts images --build bin
check "no such program" says "images: there is no bench_images in bin"
gpus --parts one,two
check "no such part" exits 2
check "names them" says "'two' is none of one, many32, "
gpus --rounds 0
check "no rounds" exits 2
for given in 'words' '[]' '{"Torch": 5}' '{"PyTorch, 32 behind 8k": 0}'; do
    echo "$given" >bad
    gpus --parts one --peers bad
    check "peers: $given" exits 1
    check "one line: $given" test "$(wc -l <err)" = 1
done
gpus --parts one --peers /no/peers
check "no such file" says "^gpus.py: /no/peers: No such file"
gpus --parts images --out /no/table
check "cannot write" says "^gpus.py: /no/table: No such file"
finish
