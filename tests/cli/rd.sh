#!/bin/bash
# SPDX-License-Identifier: MIT
# ctest-labels: slow
#
# rd.sh: `pleat stats` and `--kv rd`: statistics are made, found beside the model, and refused if they are another
# model's or damaged; a prompt that is taken from a file goes on as one that was read.
. "$(dirname "$0")/harness.bash"

head -c 60000 "$ROOT/eval/prose.txt" >"$scratch/text"
cp "$MODEL" "$scratch/m.gguf"
model=$scratch/m.gguf

try run -m "$model" -p "The sea" -n 2 --kv rd
check "without statistics rd is refused" exits 1
check "and says what makes them" says "there are no statistics of the model at $scratch/m.stats; .pleat stats -m $model --text FILE. makes them"
try stats -m "$model"
check "stats needs a text" says "give --text FILE"
try stats -m "$model" --text "$scratch/text" --ctx-window 2048 --text-windows 3 --target-kld 0
check "a text that is too short is made the most of" exits 0
rm -f "$scratch/m.stats"
try stats -m "$model" --text "$scratch/text" --ctx-window 256 --text-windows 4 --target-kld 0
check "statistics are made" exits 0
check "and stand beside the model" test -s "$scratch/m.stats"
check "with their size" says "m.stats: [0-9.]+ KiB, of 8 layers"
cp "$scratch/m.stats" "$scratch/first"
try stats -m "$model" --text "$scratch/text" --ctx-window 256 --text-windows 4 -t 1 --stats-file "$scratch/again" -q --target-kld 0
check "the same text gives the same bytes" cmp -s "$scratch/first" "$scratch/again"

# steps that are fitted: a bare rd diverges as was asked, on the windows that were read
try stats -m "$model" --text "$scratch/text" --ctx-window 256 --fit-windows 1 --stats "$scratch/first" --target-kld 0.004 --stats-file "$scratch/fitted"
check "steps are fitted" says "rd: a mean divergence of 0.00(3[5-9]|4[0-9]) in [0-9.]+ % of f16's bytes; before its steps were fitted 0.0"
! cmp -s "$scratch/first" "$scratch/fitted"
check "others than before" test $? = 0
head -c 30000 "$scratch/text" >"$scratch/half"
divergence() {
    try eval -m "$model" --text "$scratch/half" --text-windows 1 --ctx-window 256 --kv f16 --kv rd --stats "$scratch/$1" --format json -q
    python3 -c "import json, sys; print(json.load(open(sys.argv[1]))['rows'][1]['kld_mean'])" "$scratch/out"
}
check "a smaller divergence is had by smaller steps" calc "$(divergence fitted) < 0.8 * $(divergence first)"
try stats -m "$model" --text "$scratch/text" --stats "$scratch/text"
check "what has no steps is refused" says "this is no file of statistics"
: >"$scratch/empty"
try stats -m "$model" --text "$scratch/text" --stats "$scratch/empty"
check "an empty file is said to be empty" says "statistics: the file is empty"
try stats -m "$model" --text "$scratch/text" --stats-file "$scratch"
check "where nothing can be written nothing is read" exits 1
check "and it says so first" test -z "$(grep -E "reading|rd:" <<<"$stderr")"
try stats -m "$model" --text "$scratch/text" --target-kld 0 --fit-layers
check "two options that exclude each other" exits 2
check "are named" says "--fit-layers fits steps, and --target-kld 0 says not to"
try stats -m "$model" --text "$scratch/text" --ctx-window 256 --fit-windows 1 --stats "$scratch/first" --target-kld 3 --stats-file "$scratch/far"
check "a target out of reach is told" says "--target-kld 3 is not what came out"
printf 'caf\xe9 %.0s' $(seq 2000) >"$scratch/latin"
try stats -m "$model" --text "$scratch/latin"
check "a text that is no UTF-8 is named" says "$scratch/latin"

head -c 3000 "$ROOT/eval/prose.txt" >"$scratch/prompt"
try stats -m "$model" --text "$scratch/text" --ctx-window 256 --text-windows 2 --positions 300 --stats-file "$scratch/near" -q --target-kld 0
try run -m "$model" -f "$scratch/prompt" -n 4 --kv rd --stats "$scratch/near"
check "sequences that go further than the statistics are told" says "the statistics serve 300 positions, and a sequence may have [0-9]+: .*--positions"
try run -m "$model" -f "$scratch/prompt" -n 16 --kv rd --format json
check "rd runs" exits 0
check "and no further than its statistics" test -z "$(grep "the statistics serve" <<<"$stderr")"
text=$(field text)
check "in less than a fifth of f16's bytes" calc "$(field fraction) < 0.2"
try run -m "$model" -f "$scratch/prompt" -n 16 --kv rd -t 1 --format json
check "the same text from one thread" same "$(field text)" "$text"
for i in 1 2; do
    try run -m "$model" -f "$scratch/prompt" -n 8 --kv rd --prompt-cache "$scratch/kept" -q
    [ $i = 2 ] || first=$stdout
done
check "a prompt from a file goes on alike" same "$stdout" "$first"
try image verify "$scratch/kept" -m "$model"
check "image verify finds the statistics" prints "and a cache of the model takes it"
try image verify "$scratch/kept" -m "$model" --stats "$scratch/fitted"
check "and says that they are others" says "its profile is [0-9a-f]{32}, not [0-9a-f]{32}"
try image inspect "$scratch/kept"
check "and inspect has their fingerprint" prints "profile's fingerprint +[0-9a-f]{32}"
try run -m "$model" -f "$scratch/prompt" -n 8 --kv rd --prompt-cache "$scratch/kept" --stats "$scratch/fitted"
check "a file of other statistics is read again" says "does not serve, and is written anew: image: its profile is"
check "and that is no error" exits 0
try run -m "$model" -f "$scratch/prompt" -n 8 --kv rd --prompt-cache "$scratch/kept" --stats "$scratch/fitted" --format json
check "and serves from then on" calc "$(field from_prompt_cache) > 400"
try eval -m "$model" --text "$scratch/text" --text-windows 1 --ctx-window 512 --kv f16 --kv rd --kv rd:k=0.03,v=0.3 --format json -q
check "eval measures it" exits 0
check "drift is said" python3 -c "
import json, sys
rows = json.load(open(sys.argv[1]))['rows']
sys.exit(rows[0]['drift'] is not None or not (0 <= rows[1]['drift']['share'] < 0.2 and rows[1]['drift']['blocks'] > 0))" "$scratch/out"
check "finer steps are nearer to f16" python3 -c "
import json, sys
rows = json.load(open(sys.argv[1]))['rows']
sys.exit(not 0 < rows[2]['kld_mean'] < rows[1]['kld_mean'] < 0.2)" "$scratch/out"
try plan -m "$model" --ctx 2048 --kv f16 --kv rd --text "$scratch/text"
check "plan prices it by samples" exits 0
try inspect "$model" --kv rd
check "inspect gives the most that it can hold" exits 0

try run -m "$model" -f "$scratch/prompt" -n 8 --kv novel:budget=25%,mean=model --format json
check "novel takes the mean from them" exits 0
check "and drops tokens" calc "$(field tokens_dropped) > 1000"

printf 'X' | dd of="$scratch/m.stats" bs=1 seek=500 conv=notrunc 2>/dev/null
try run -m "$model" -p "The sea" -n 2 --kv rd
check "damaged statistics are refused" says "the file is damaged, its sum does not hold: make it anew"
try run -m "$model" -p "The sea" -n 2 --kv novel:budget=50%,mean=model
check "for novel, too" says "the file is damaged, its sum does not hold: make it anew"
try run -m "$model" -p "The sea" -n 2 --kv novel:mean=model --stats "$scratch/none"
check "and missing ones" says "--kv novel:budget=25%,mean=model: there are no statistics of the model at"
try run -m "$model" -p "The sea" -n 2 --kv rd --stats "$scratch/first"
check "--stats names others" exits 0
fails 2 "--stats .*: no --kv asks for statistics of the model: rd, auto" run -m "$model" -p "The sea" -n 2 --kv k8v4 --stats "$scratch/first"
capture env PLEAT_STATS="$scratch/first" "$PLEAT" run -m "$model" -p "The sea" -n 2 --kv k8v4
check "those that the environment names are for those that ask" exits 0
try run -m "$model" -p "The sea" -n 2 --kv rd --stats "$scratch/text"
check "what is no such file is refused" says "this is no file of statistics"
python3 - "$scratch/first" "$scratch/other" <<'PY'
import sys
bytes_ = bytearray(open(sys.argv[1], "rb").read())
bytes_[8] = 5
open(sys.argv[2], "wb").write(bytes_)
PY
try run -m "$model" -p "The sea" -n 2 --kv rd --stats "$scratch/other"
check "another version is refused" says "version 5 with 20 classes; versions 1 to 4 with 20 can be read"
if [ -f "$ROOT/models/pleat-28m-q8_0.stats" ]; then
    try run -m "$MODEL" -p "The sea was calm" -n 4 --kv rd
    check "the reference model has its statistics" exits 0
fi
cp "$model" "$scratch/n.gguf"
printf 'X' | dd of="$scratch/n.gguf" bs=1 seek=$(($(wc -c <"$model") - 200)) conv=notrunc 2>/dev/null
try run -m "$scratch/n.gguf" -p "The sea" -n 2 --kv rd --stats "$scratch/first"
check "another model's statistics are refused" says "is of another model: fingerprint [0-9a-f]{32}, not [0-9a-f]{32}"
for spec in rd:k=0 rd:v=11 rd:kunit=channel rd:block=32; do
    try run -m "$model" -p x --kv $spec
    check "$spec is refused" exits 2
done
try bench attn --kv auto
check "bench attn has no model's statistics" says "auto.s, which need a model"

finish
