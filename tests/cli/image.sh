#!/bin/bash
# SPDX-License-Identifier: MIT
#
# image.sh: a prompt that is read once (`run --prompt-cache`), and the file it leaves: `image inspect`, `image verify`.
# What another process takes from the file goes on as what it read itself would, byte for byte; what does not belong to
# the prompt, the model or the spec is read again, and what is no such file stays as it is.
. "$(dirname "$0")/harness.bash"

head -c 2500 "$ROOT/eval/prose.txt" >"$scratch/prompt"
{ cat "$scratch/prompt" && echo " And so it was that they"; } >"$scratch/longer"
file=$scratch/kept

run() { try run -m "$MODEL" -f "$scratch/prompt" -n 12 --prompt-cache "$file" "$@"; }

specs="f16 k8v4 leankv:ah=3,al=0.1 h2o:budget=200 kvcomp"
[ -z "${CHECK_QUICK:-}" ] || specs="leankv:ah=3,al=0.1 kvcomp"
for kv in $specs; do
    rm -f "$file"
    run --kv "$kv"
    first=$stdout
    check "$kv: a file that is not there is no error" exits 0
    check "$kv: it is written" test -s "$file"
    run --kv "$kv"
    check "$kv: the same text from the file" same "$stdout" "$first"
    check "$kv: says what came from it" says "prompt +[0-9]+ tokens, [0-9]+ of them from $file"
    try image verify "$file" -m "$MODEL"
    check "$kv: a cache of the model takes it" prints "whole and undamaged, and a cache of the model takes it"
done

# A longer prompt takes what there is of it; a shorter one and another spec do not
cp "$file" "$scratch/before"
try run -m "$MODEL" -f "$scratch/longer" -n 4 --kv kvcomp --prompt-cache "$file" --format json
check "a longer prompt begins with the file" calc "$(field from_prompt_cache) > 400"
check "and takes its place" test -n "$(cmp "$file" "$scratch/before" 2>&1)"
run --kv kvcomp
check "a shorter prompt is read" says "does not serve, and is written anew: it holds [0-9]+ tokens"
run --kv k8v4
check "another spec is read" says "does not serve, and is written anew: image: its KV spec is kvcomp:"
try run -m "$MODEL" -p "Another text than that, of more than one token" -n 4 --kv k8v4 --prompt-cache "$file"
check "another prompt is read" says "does not serve, and is written anew: token [0-9]+ of the prompt is another"

# What the file says of itself
run --kv k8v4
try image inspect "$file"
check "inspect" exits 0
check "inspect says the spec" prints "KV cache +k8v4"
check "inspect says the shape" prints "8 layers, 8 query heads, 4 KV heads, head dimension 64"
try image inspect "$file" --format json
check "inspect as JSON" test "$(field kv)" = k8v4
try image verify "$file"
check "verify needs no model" prints "whole and undamaged$"

# Damage
size=$(wc -c <"$file")
cp "$file" "$scratch/bad"
printf 'X' | dd of="$scratch/bad" bs=1 seek=$((size - 99)) conv=notrunc 2>/dev/null
try image verify "$scratch/bad"
check "a damaged piece is found" says "piece [0-9]+ of [0-9]+ is damaged"
check "and verify fails" exits 1
try run -m "$MODEL" -f "$scratch/prompt" -n 12 --kv k8v4 --prompt-cache "$scratch/bad"
check "a damaged file is written anew" says "does not serve, and is written anew: image: piece"
try image verify "$scratch/bad"
check "and is whole then" exits 0
head -c $((size / 2)) "$file" >"$scratch/cut"
try image inspect "$scratch/cut"
check "a file that was cut is refused" says "the body has [0-9]+ bytes, and the head says [0-9]+"
cp "$scratch/prompt" "$scratch/letter"
try run -m "$MODEL" -f "$scratch/prompt" -n 1 --prompt-cache "$scratch/letter"
check "a file of another kind is refused" says "this is no image of Pleat's; nothing was read or written"
check "and stays as it is" cmp -s "$scratch/letter" "$scratch/prompt"
try image verify "$scratch"
check "a folder is refused" says "it is no regular file"
try image verify "$scratch/nothing"
check "a file that is not there" says "No such file"
try run -m "$MODEL" -p "a b c" -n 1 --prompt-cache "$scratch/x" --beams 2
check "not with beams" says "exclude each other: FILE holds one text"
try run -m "$MODEL" -p "a b c" -n 1 --prompt-cache "$MODEL"
check "the model is not written over" exits 1
try run -m "$MODEL" --chat --prompt-cache "$scratch/x"
check "not with a conversation" says "needs a prompt, -p TEXT or -f FILE"
check "and that is wrong usage" exits 2

finish
