#!/bin/bash
# SPDX-License-Identifier: MIT
# ctest-labels: slow
#
# evict.sh: eviction policies through the command: every strategy of reclamation keeps the same tokens and gives the
# same text, budgets hold in tokens, per cent and bytes, and budgets that cannot be are refused with what may be.
. "$(dirname "$0")/harness.bash"

head -c 1800 "$ROOT/eval/prose.txt" | iconv -c -t utf-8 >"$scratch/long" 2>/dev/null || head -c 1800 "$ROOT/eval/prose.txt" >"$scratch/long"
generate() { try run -m "$MODEL" -f "$scratch/long" -n 60 --format json -q --kv "$1"; }

# The four strategies: one text, the same live tokens, and less and less held
for how in none block copy reuse; do
    generate "h2o:budget=96,format=f32,reclaim=$how"
    check "reclaim=$how" exits 0
    if [ $how = none ]; then
        text=$(grep '^ "text"' "$scratch/out") live=$(field tokens_high) none=$(field fragmentation)
        continue
    fi
    check "reclaim=$how gives the text of none" same "$(grep '^ "text"' "$scratch/out")" "$text"
    check "reclaim=$how keeps as many tokens" same "$(field tokens_high)" "$live"
    case $how in
        block) block=$(field fragmentation) ;;
        copy) copied=$(field tokens_moved) ;;
        reuse) reuse=$(field fragmentation) moved=$(field tokens_moved) ;;
    esac
done
check "96 tokens in each lane" test "$live" = $((96 * 32))
check "reuse wastes least" calc "$reuse < 0.3 && $reuse <= $block && $block <= $none && $none > 0.5"
check "copy moves many more tokens than reuse" calc "$copied > 20 * $moved"

# Every policy, with and without representatives
for policy in random recent streaming h2o snapkv pyramidkv adakv; do
    for stage in "" +merge +novel +kvcrush +kvcrush:share=50%,anchor=kmeans +kvcrush:share=0%,unit=page; do
        generate "$policy:budget=30%$stage"
        check "$policy$stage" exits 0
        check "$policy$stage drops tokens" calc "$(field tokens_dropped) > 5000"
        check "$policy$stage counts every token" calc "$(field tokens_high) + $(field tokens_dropped) == 32 * ($(field prompt) + 59)"
    done
done

generate novel:budget=30%
check "novel" exits 0
check "novel drops tokens" calc "$(field tokens_dropped) > 5000"
check "novel counts every token" calc "$(field tokens_high) + $(field tokens_dropped) == 32 * ($(field prompt) + 59)"

# A second reading decides what kvzip drops, in steps of any length; who does not read twice refuses it
for step in 512 64; do
    try run -m "$MODEL" -f "$scratch/long" -n 60 -b $step --format json -q --kv kvzip:budget=50%
    check "kvzip by $step" exits 0
    check "kvzip by $step keeps half of the prompt and what comes behind it" calc \
        "$(field tokens_high) - 32 * 59 >= 16 * $(field prompt) && $(field tokens_high) - 32 * 59 <= 16 * $(field prompt) + 32"
    check "kvzip by $step counts every token" calc "$(field tokens_high) + $(field tokens_dropped) == 32 * ($(field prompt) + 59)"
done
fails 1 "allowed is --batch-size [0-9]+ and more" run -m "$MODEL" -p x -b 16 --kv kvzip
yes word | head -n 2030 > "$scratch/full"
fails 1 "the prompt is too long: kvzip reads it again in steps of [0-9]+ .* of the context of 4096" run -m "$MODEL" -f "$scratch/full" -n 1 --kv kvzip
printf '{"id": "long", "task": "t", "turns": [{"prompt": "%s", "answer": "x"}]}\n' "$(sed 's/$/\\n/' "$scratch/full" | tr -d '\n')" >"$scratch/full.jsonl"
# before the first row, which fails too, and before the first window
fails 1 "long: kvzip reads it again in steps" eval -m "$MODEL" --tasks "$scratch/full.jsonl" --kv "h2o:budget=64KiB kvzip"
fails 1 "kvzip.*: kvzip reads it again in steps" eval -m "$MODEL" --text "$scratch/full" --ctx-window 4096 --scored 1 --kv kvzip
try inspect "$MODEL" --kv "kvzip:budget=25% h2o:budget=25% h2o:budget=25%,reclaim=block k8v4"
check "inspect names the specs whose budget its bytes do not count" same \
    "$(sed -nE 's/.* note: (.*): bytes are those of all tokens.*/\1/p' <<<"$stderr" | tr '\n' ' ')" \
    "kvzip:budget=25% h2o:budget=25%,reclaim=block "
try inspect "$MODEL" --kv "kivi:bits=2 k8v4 kvcomp+pack rd auto:bytes=20%"
check "and those whose blocks they do not count" same \
    "$(sed -nE 's/.* note: ([^:+]*)[^ ]*: bytes are those of a buffer.*/\1/p' <<<"$stderr" | tr '\n' ' ')" "kivi kvcomp rd "
fails 2 "kvzip reads a prompt a second time" run -m "$MODEL" -p x --prompt-cache "$scratch/kept" --kv kvzip
fails 2 "kvzip reads a prompt a second time" run -m "$MODEL" --chat --kv kvzip
fails 2 "kvzip reads a prompt a second time" serve -m "$MODEL" --kv kvzip
fails 2 "kvzip drops tokens when a prompt has been read twice" plan --arch llama3-8b --ctx 4096 --kv kvzip

# Budgets in bytes hold, with everything that belongs to the sequence
for policy in h2o streaming novel; do
    for kib in 600 1024; do
        generate "$policy:budget=${kib}KiB,sinks=0"
        check "$policy in $kib KiB" calc "$(field bytes) <= $kib * 1024 && $(field bytes) > 0.8 * $kib * 1024"
    done
done
# what is held beside a budget in bytes is told
for spec in leverage:budget=1MiB expected:budget=1MiB snapkv:budget=1MiB h2o:budget=1MiB novel:budget=1MiB \
    h2o:budget=1MiB,reclaim=block; do
    try run -m "$MODEL" -p "The sea" -n 1 --kv "$spec"
    said=$(grep -oE "what is generated comes on top|slots of dropped tokens stay" <<<"$stderr")
    case $spec in
        leverage* | expected* | snapkv*) check "$spec grows" test "$said" = "what is generated comes on top" ;;
        *block) check "$spec holds dead slots" test "$said" = "slots of dropped tokens stay" ;;
        *) check "$spec holds its bytes" test -z "$said" ;;
    esac
done
try run -m "$MODEL" -f "$scratch/long" -n 1 --format json -q --kv adakv:budget=1MiB,window=16
check "adakv in 1 MiB after the prompt" calc "$(field bytes) <= 1048576"

# Several texts and beams go on from one prompt
for spec in h2o:budget=96 streaming:budget=25%,reclaim=none random:budget=96,reclaim=block+kvcrush \
    h2o:budget=300KiB,window=16,reclaim=copy snapkv:budget=30%+kvcrush novel:budget=96; do
    try run -m "$MODEL" -f "$scratch/long" -n 30 --temp 0.8 --n-best 4 -q --kv "$spec"
    check "four texts under $spec" exits 0
    try run -m "$MODEL" -f "$scratch/long" -n 30 --beams 4 -q --kv "$spec"
    check "four beams under $spec" exits 0
done
fails 1 "with 1024 tokens: cache: a budget of 65536 bytes .* allowed are [0-9]+ bytes and more" inspect "$MODEL" --kv h2o:budget=64KiB
fails 1 "a budget of 1572864 bytes .* allowed are [0-9]+ bytes and more" plan --arch llama3-8b --ctx 4096 --kv h2o:budget=1.5MiB

# What cannot be
fails 2 "budget '0' .* tokens .1 to 16777216., a share .above 0% up to 100%. or bytes" run -m "$MODEL" -p x --kv h2o:budget=0
fails 2 "budget '-5%' .* a share .above 0% up to 100%." run -m "$MODEL" -p x --kv h2o:budget=-5%
fails 2 "budget 'nan' .* tokens .1 to 16777216." run -m "$MODEL" -p x --kv h2o:budget=nan
fails 2 "budget=67 is below sinks=4 . window=64: at least 68" run -m "$MODEL" -p x --kv snapkv:budget=67
fails 1 "budget=5000 is above the longest sequence: allowed are 68 to 4096 tokens" run -m "$MODEL" -p x --kv h2o:budget=5000
fails 1 "budget of 1024 bytes .* need 68: allowed are [0-9]+ bytes and more" run -m "$MODEL" -p x --kv h2o:budget=1KiB
fails 2 "share '101%' .* a share from 0 to 1" run -m "$MODEL" -p x --kv h2o+kvcrush:share=101%
fails 2 "share '-1%' .* a share from 0 to 1" run -m "$MODEL" -p x --kv h2o+kvcrush:share=-1%
fails 2 "share 'nan' .* a share from 0 to 1" run -m "$MODEL" -p x --kv h2o+kvcrush:share=nan

finish
