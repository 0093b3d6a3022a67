#!/bin/bash
# SPDX-License-Identifier: MIT
#
# device.sh: `pleat bench attn|pages|codec --device cuda`: what it refuses, what it says where there is no GPU, and where
# there is one a tiny run of each.  Figures of speed are not judged here.
. "$(dirname "$0")/harness.bash"

# What is wrong is said, GPU or not.
fails 2 "--device: 'tpu' is none of cpu, cuda" bench attn --device tpu
fails 2 "--device: 'cudaa' is none of cpu, cuda; the nearest is 'cuda'" bench pages --device cudaa
fails 2 "--device: 'gpu' is none of cpu, cuda" bench codec --device gpu
fails 2 "--device 'cudaa': it is cpu, cuda or cuda:N" bench run --device cudaa -m x
fails 2 "--device 'cuda:': it is cpu, cuda or cuda:N" run --device cuda: -m x -p hello
fails 2 "--device 'cuda:-1': it is cpu, cuda or cuda:N" eval --device cuda:-1 -m x --tasks eval/tasks.jsonl
fails 2 "--activations 8: it is for the CPU; with --device cuda products are of halves" run --device cuda --activations 8 -m x -p hello
fails 2 "--batch-size: with --device cuda prompts are read whole" run --device cuda -b 64 -m x -p hello
fails 2 "--serve asks for what a cache on a GPU" eval --device cuda --serve -m x --tasks eval/tasks.jsonl
fails 2 "--report asks for what a cache on a GPU" eval --device cuda --report "$scratch/r.html" -m x --tasks eval/tasks.jsonl
fails 2 "--device and --simulate exclude each other" bench serve --device cuda -m x --simulate --synthetic fixed --pool-bytes 1MiB
fails 2 "--device 'cudaa': it is cpu, cuda or cuda:N" serve --device cudaa -m x
fails 2 "--free-splits needs --device" serve -m x --free-splits
fails 2 "--fixed-splits needs --device" bench run -m x --fixed-splits
fails 2 "--kv f32: on a GPU there are f16, k8v8 to k2v2, h4v4 to h2v2, kvcomp.pack, and leankv" bench attn --device cuda --kv f32
fails 2 "--kv h2o:.*: on a GPU there are f16" bench attn --device cuda --kv "f16 h2o:budget=512"
fails 2 "--kv kvcomp:.*: on a GPU there are f16" bench attn --device cuda --kv kvcomp
fails 2 "--head-dim 96: with --device cuda it is 64 or 128" bench attn --device cuda --head-dim 64,96
fails 2 "16 query heads for a KV head: with --device cuda at most 8" bench attn --device cuda --gqa 4,16
fails 2 "--low-share: '1' is not a number between 0 and 0.99" bench attn --device cuda --low-share 1
fails 2 "--spread: '0' is not a whole number between 1 and 64" bench attn --device cuda --spread 0
fails 2 "--spread needs --device cuda" bench attn --spread 8
fails 2 "--low-share needs --device cuda" bench attn --low-share 0.9
fails 2 "--layers: '257' is not a whole number between 1 and 256" bench attn --device cuda --layers 257
fails 2 "--layers needs --device cuda" bench attn --layers 32
fails 2 "--kv kivi:bits=2: on a GPU there are the blocks of kvcomp without .pack" bench codec --device cuda --kv kivi:bits=2
fails 2 "--kv kvcomp:.*.pack: on a GPU there are the blocks of kvcomp without .pack" bench codec --device cuda --kv kvcomp+pack
fails 2 "--gqa needs --device cuda: on the CPU one head" bench codec --gqa 4
fails 2 "--batch needs --device cuda: on the CPU one head" bench codec --batch 2
fails 2 "--gqa: '9' is not a whole number between 1 and 8" bench codec --device cuda --gqa 9
fails 2 "--reps: '3' is not a whole number between 7 and 10000" bench attn --device cuda -r 3
try help bench attn
check "help lists --device" prints '^  --device DEVICE +where to run: cpu or cuda .default cpu.  \[PLEAT_DEVICE\]'
export PLEAT_DEVICE=npu
fails 2 "PLEAT_DEVICE: 'npu' is none of cpu, cuda" bench pages
unset PLEAT_DEVICE

# --device cpu is what there was before, and bench codec takes a list of contexts.
try bench codec --device cpu --kv kivi:bits=2 --head-dim 16 --ctx 256,512 -r 7 -q --format csv
check "--device cpu" exits 0
check "a row for each context" test "$(cut -d, -f3 "$scratch/out" | paste -sd' ')" = "tokens 256 512"

# Without a GPU each fails with the reason, and leaves a file as it was.
try inspect --devices --format json
if ! prints '"reason": null'; then
    reason='(this build has no CUDA|no GPU|the CUDA driver)'
    for what in attn pages codec; do
        fails 1 "^pleat bench $what: --device cuda: .*$reason" bench $what --device cuda
        check "$what: in one line" test "$(wc -l <"$scratch/err")" = 1
    done
    # before 800 GB of weights are made
    fails 1 "^pleat bench run: --device cuda: .*$reason" bench run --device cuda --shape llama3.1-405b --weights f16
    fails 1 "^pleat bench serve: --device cuda: .*$reason" bench serve --device cuda --shape llama3.1-405b --weights f16 \
        --synthetic fixed --pool-bytes 1GiB
    fails 1 "^pleat run: --device cuda: .*$reason" run --device cuda -m models/pleat-28m-q8_0.gguf -p hello
    fails 1 "^pleat eval: --device cuda: .*$reason" eval --device cuda -m models/pleat-28m-q8_0.gguf --tasks eval/tasks.jsonl
    fails 1 "^pleat serve: --device cuda: .*$reason" serve --device cuda -m models/pleat-28m-q8_0.gguf
    fails 1 "^pleat bench serve: --device cuda: .*$reason" bench serve --device cuda -m models/pleat-28m-q8_0.gguf --synthetic fixed --pool-bytes 8MiB
    fails 1 "^pleat bench run: --device cuda: .*$reason" bench run --device cuda:3 -m models/pleat-28m-q8_0.gguf
    echo old >"$scratch/old"
    try bench attn --device cuda -o "$scratch/old"
    check "no GPU leaves -o as it was" test "$code $(<"$scratch/old")" = "1 old"
    skip "no GPU: runs of --device cuda"
    finish
    exit
fi

# has KEY...: the last try's JSON has them
has() {
    local key
    for key in "$@"; do
        check "json has $key" prints "\"$key\":"
    done
}

try bench attn --device cuda --kv "f16 k8v4 leankv:al=0.05" --ctx 100,257 --batch 3 --heads 4 --kv-heads 2 \
    --head-dim 64,128 --spread 8 -r 7 -q --format json
check "bench attn" exits 0
check "quiet" test -z "$stderr"
check_json "bench attn"
has kv device gpu ctx batch gqa heads kv_heads head_dim spread how layers calls reps us plan_us bytes gb_per_s \
    peak_gb_per_s fraction_of_peak speed_to_first speed_to_block_a_lane time_to_equal max_rel_err low_share skipped
check "seven rows for each spec and shape" test "$(grep -c '"what": "attn"' "$scratch/out")" = 84
for how in launched graph "block a lane" step; do
    check "rows '$how'" prints "\"how\": \"$how\""
done
check "bytes of f16: whole tiles of 16 tokens, and page ids" calc "$(field bytes) >= 3 * 2 * 112 * 64 * 4 && \
    $(field bytes) < 3 * 2 * 112 * 64 * 4 * 1.01"
worst=$(sed -n 's/^ *"max_rel_err": \([^,]*\),*$/\1/p' "$scratch/out" | sort -g | tail -1)
check "attention is right: $worst" calc "$worst <= 1e-3"
try bench attn --device cuda --ctx 16000000 --batch 4096 --kv f16 -r 7
check "what does not fit is said" says 'skipped: f16, 4096 x 16000000 tokens'
check "and nothing left is a failure" test "$code" = 1

try bench pages --device cuda --lanes 1000 -r 7 -q --format json
check "bench pages" exits 0
check_json "bench pages"
has op how taking takers lanes sequences us ns_per_lane speed_to_cub speed_to_loop peak_gb_per_s
check "five rows for both loads" test "$(grep -c '"what": "pages"' "$scratch/out")" = 10
check "lanes of whole sequences" test "$(field lanes)" = 1024

try bench codec --device cuda --ctx 600 --batch 2 --gqa 1,3 --head-dim 64 -r 7 --format json
check "bench codec" exits 0
check_json "bench codec"
has kv product how ctx batch lanes gqa head_dim block_tokens us bytes bits gcodes_per_s gb_per_s peak_gb_per_s \
    fraction_of_peak f16_gb_per_s speed_to_cublas speed_to_bit_serial max_rel_err skipped
rows=24
says 'skipped: no cuBLAS' || rows=28
check "rows of each spec, product and group" test "$(grep -c '"what": "codec"' "$scratch/out")" = $rows
check "whole units of 256 tokens" test "$(field ctx)" = 512

# Several texts of one prompt are the CPU's.
several=(-m models/pleat-28m-q8_0.gguf -p "The sea was" -n 12 --beams 3 --n-best 2 --kv f16)
for device in cpu cuda; do
    try run "${several[@]}" --device $device
    check "beams on $device" exits 0
    sed 's/score [^,]*,/score,/' "$scratch/out" >"$scratch/$device"
done
check "beams on both are alike" cmp -s "$scratch/cpu" "$scratch/cuda"

# Texts that are drawn are those of their seeds alone.
drawn=(run -m models/pleat-28m-q8_0.gguf -p "The sea was" -n 12 --temp 1 --kv f16 --device cuda)
try "${drawn[@]}" --seed 6
check "a text that is drawn" exits 0
alone=$stdout
try "${drawn[@]}" --seed 5 --n-best 2
check "is the second of two" grep -Fq -- "${alone:?}" "$scratch/out"

# A prompt's file of either device serves both; the text is the device's own.
head -c 2500 "$ROOT/eval/prose.txt" >"$scratch/prompt"
for kv in f16 k8v4 leankv:ah=3,al=0.05; do
    for from in cpu cuda; do
        rm -f "$scratch/kept"
        kept=(run -m models/pleat-28m-q8_0.gguf -f "$scratch/prompt" -n 12 --kv "$kv" --prompt-cache "$scratch/kept")
        try "${kept[@]}" --device $from
        check "$kv: a prompt's file on $from" exits 0
        first=$stdout
        cp "$scratch/kept" "$scratch/$from-kept"
        try "${kept[@]}" --device $from
        check "$kv: the same text from the file" same "$stdout" "$first"
        try "${kept[@]}" --device $([ $from = cpu ] && echo cuda || echo cpu)
        check "$kv: the other device takes it" says "of them from $scratch/kept"
    done
done

# A store behind a server of requests
stored=(bench serve -m models/pleat-28m-q8_0.gguf --device cuda -b 256 --kv k8v4 --pool-bytes 64MiB --store "$scratch/store" \
    --synthetic fixed:prompt=700,output=8 --requests 4 --text "$ROOT/eval/prose.txt" --format json)
try "${stored[@]}"
check "requests with a store" exits 0
check "they say on which GPU" prints '"gpu": "[^"]+"'
check "prefixes are written" test -n "$(ls "$scratch/store"/*.img)"
finish
