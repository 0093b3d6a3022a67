#!/bin/bash
# SPDX-License-Identifier: MIT
# ctest-labels: slow
#
# auto.sh: `--kv auto`: a budget in bytes is kept, what was chosen is said, and what cannot be promised is refused.
. "$(dirname "$0")/harness.bash"

if [ ! -f "$ROOT/models/pleat-28m-q8_0.stats" ]; then
    skip "the reference model has no statistics"
    finish
    exit
fi

head -c 7000 "$ROOT/eval/prose.txt" >"$scratch/prompt"
try run -m "$MODEL" -f "$scratch/prompt" -n 40 --kv auto:bytes=20%,from=1200 --format json
check "auto runs" exits 0
check "within its share" calc "$(field fraction) <= 0.2 && $(field fraction) > 0.16"
check "and JSON has what was chosen" prints '"chosen": *"rd:k=0\.[0-9]+,v=[01]\.[0-9]+,buffer=91"'
try run -m "$MODEL" -f "$scratch/prompt" -n 4 --kv auto:bytes=20%,from=1200
check "so does the summary" says "^chosen +rd:k=0\.[0-9]+,v=[01]\.[0-9]+,buffer=91, coarser or finer as the text needs; promised from 1200 tokens on$"
try run -m "$MODEL" -p "The sea" -n 2 --kv rd --format json
check "other specs choose nothing" test -z "$(grep chosen "$scratch/out")"

try run -m "$MODEL" -p "The sea" -n 2 --kv auto:bytes=4%
check "what cannot be promised is refused" exits 1
check "with what can" says "auto cannot promise 4% of f16's bytes from 1024 tokens on, with tables for [0-9]+: the smallest share that it can is [0-9.]+%"
least=$(grep -oE "that it can is [0-9.]+" <<<"$stderr" | grep -oE "[0-9.]+$")
try run -m "$MODEL" -p "The sea" -n 2 --kv "auto:bytes=$least%"
check "which is taken" exits 0
try run -m "$MODEL" -p "The sea" -n 2 --kv auto:bytes=20% --stats "$ROOT/eval/prose.txt"
check "what are no statistics is refused" says "this is no file of statistics"
cp "$MODEL" "$scratch/n.gguf"
try run -m "$scratch/n.gguf" -p "The sea" -n 2 --kv auto:bytes=20%
check "and missing ones" says "--kv auto:bytes=20%: there are no statistics of the model at"
printf 'X' | dd of="$scratch/n.gguf" bs=1 seek=$(($(wc -c <"$MODEL") - 200)) conv=notrunc 2>/dev/null
try run -m "$scratch/n.gguf" -p "The sea" -n 2 --kv auto --stats "$ROOT/models/pleat-28m-q8_0.stats"
check "and another model's" says "is of another model: fingerprint [0-9a-f]{32}, not [0-9a-f]{32}"

head -c 30000 "$ROOT/eval/prose.txt" >"$scratch/text"
try eval -m "$MODEL" --text "$scratch/text" --text-windows 1 --ctx-window 1100 --scored 64 --kv f16 --kv auto:bytes=20%
check "eval measures it" exits 0
check "and says what was chosen" says "auto:bytes=20% is rd:k=[0-9.]+,v=[0-9.]+,buffer=91, but coarser in [0-9.]+ % of the blocks and finer in [0-9.]+ %"
try inspect "$MODEL" --kv auto:bytes=25% --ctx 2048 --format csv
check "inspect gives what is promised" prints "$((2048 * 32 * 256 / 4))"
for spec in auto:bytes=0 auto:bytes=101% auto:from=0 auto:k=1 auto+pack; do
    try run -m "$MODEL" -p x --kv $spec
    check "$spec is refused" exits 2
done
finish
