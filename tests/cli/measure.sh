#!/bin/bash
# SPDX-License-Identifier: MIT
# ctest-labels: slow
#
# measure.sh: eval, bench and inspect say what they should, in each form.  Figures of speed are not judged here.
. "$(dirname "$0")/harness.bash"
TASKS=$ROOT/eval/tasks.jsonl

# eval --tasks
grep -E '"id": "(few_shot-300|chain_sum-300|copy_list-300|kv_recall-400)-0[01]"' "$TASKS" >"$scratch/tasks"
printf '\r\n  \n' >>"$scratch/tasks" # blank lines are no samples
try eval -m "$MODEL" --tasks "$scratch/tasks" --samples 1 --kv f16 --kv k8v4 --format json
check "eval" exits 0
check_json "eval --format json"
for key in model rows kv tasks correct total accuracy perplexity kld_mean same_top1 fraction fraction_short seconds bytes; do
    check "eval json has $key" prints "\"$key\":"
done
check "eval finds the answers" calc "$(sed -n 's/^   "accuracy": \([0-9.]*\).*/\1/p' "$scratch/out" | head -1) >= 0.75"
sums=$(grep -E '"(correct|total|bytes)"' "$scratch/out")
try eval -m "$MODEL" --tasks "$scratch/tasks" --samples 1 --kv f16 --kv k8v4 --format json -np 1 -t 1
check "eval's results depend neither on -np nor on -t" same "$(grep -E '"(correct|total|bytes)"' "$scratch/out")" "$sums"

# Short samples, and long ones: of which a fraction is.
short_of() { sed -n 's/^ *"fraction_short": \([0-9.nul]*\),*$/\1/p' "$scratch/out"; }
fraction_of() { sed -n 's/^   "fraction": \([0-9.]*\),*$/\1/p' "$scratch/out"; }
both() {
    grep -E "\"id\": \"$1\"" "$TASKS" >"$scratch/lengths"
    try eval -m "$MODEL" --tasks "$scratch/lengths" --kv k8v8 --format json -q
}
both '(copy_list-300-00|chain_sum-300-01)'
short=$(short_of)
check "short samples alone: both fractions are one" test "$short" = "$(fraction_of)"
both 'passkey-400-00'
check "no short sample: null" test "$(short_of)" = null
both '(copy_list-300-00|passkey-400-00|chain_sum-300-01)'
check "both: that of the short ones" test "$(short_of)" = "$short"
check "and it is above that of all" calc "$(short_of) > $(fraction_of)"

# eval --text
head -c 6000 "$ROOT/eval/prose.txt" | iconv -f utf-8 -t utf-8 -c >"$scratch/text" 2>/dev/null
try eval -m "$MODEL" --text "$scratch/text" --ctx-window 256 --text-windows 3 --kv f32 --kv k8v8 --kv k2v2 --format csv
check "eval --text" exits 0
check "eval --text has a header" prints "^kv,accuracy,accuracy_se,gain,gain_se,perplexity,kld_mean,kld_se,same_top1,same_top1_se,fraction,fraction_short,bytes,seconds"
# nth KV COLUMN: the column of that title in the row of KV
nth() { awk -F, -v kv="$1" -v title="$2" 'NR == 1 { for (n = 1; n < NF && $n != title; n++) continue } $1 == kv { print $n }' "$scratch/out"; }
check "the reference diverges by nothing" calc "$(nth f32 kld_mean) == 0 && $(nth f32 same_top1) == 1"
check "a text has a perplexity" calc "$(nth f32 perplexity) > 3 && $(nth f32 perplexity) < 300"
check "k8v8 is nearer to f32 than k2v2" calc "$(nth k8v8 kld_mean) < $(nth k2v2 kld_mean)"
check "windows of 256 tokens are short" test "$(nth k8v8 fraction_short)" = "$(nth k8v8 fraction)"
check "what is not a divergence has no error" calc "$(nth f32 kld_se) == 0 && $(nth f32 same_top1_se) == 0"
check "a divergence has" calc "0 < $(nth k2v2 kld_se) && $(nth k2v2 kld_se) < $(nth k2v2 kld_mean)"
same=$(nth k8v8 perplexity)
few() { try eval -m "$MODEL" --text "$scratch/text" --ctx-window 256 --text-windows 3 --kv k8v8 -q "$@"; }
few --scored 128 --format csv
check "half of each window is scored if nothing else is said" test "$(nth k8v8 perplexity)" = "$same"
few --scored 8 --format json
check "--scored 8: of each window" prints '"scored_tokens": 24'
fails 1 "--scored 256: windows have 256 tokens, and one at least is the prompt" \
    eval -m "$MODEL" --text "$scratch/text" --ctx-window 256 --scored 256 -q
fails 1 "--ctx-window 5000: no window is longer than the model.s context, 4096 tokens" \
    eval -m "$MODEL" --text "$scratch/text" --ctx-window 5000 --scored 5000
fails 1 "the text is not UTF-8 .at byte [0-9]+.$" eval -m "$MODEL" --text "$MODEL" -q

# eval: bad task files
printf '{"id": "a", "task": "t", "turns": [{"prompt": "p", "answer": "a"}]}\n{"id": "b"\n' >"$scratch/bad"
fails 1 "bad, line 2, column [0-9]+: " eval -m "$MODEL" --tasks "$scratch/bad"
printf '{"id": "a", "task": "t", "turns": [{"prompt": "p", "anwser": "a"}]}\n' >"$scratch/bad"
fails 1 "bad, line 1: a turn has no \"answer\"" eval -m "$MODEL" --tasks "$scratch/bad"
sample='"task": "t", "turns": [{"prompt": "p", "answer": "a"}]}'
printf '{"id": "a", %s\n{"id": "b", %s\n\n{"id": "a", %s\n' "$sample" "$sample" "$sample" >"$scratch/bad"
fails 1 "bad, line 4: the id 'a' is line 1's" eval -m "$MODEL" --tasks "$scratch/bad"
fails 1 "bad, line 4: the id 'a' is line 1's" eval -m "$MODEL" --tasks "$scratch/bad" --samples 1
printf '{"id": "a\\u001b[2J\\u009bm", %s\n{"id": "a\\u001b[2J\\u009bm", %s\n' "$sample" "$sample" >"$scratch/bad"
fails 1 'the id .a\\x1b\[2J\\u009bm. is line 1' eval -m "$MODEL" --tasks "$scratch/bad"
printf '{"id": "a", "task": "t\\u001b[31m|\\r\\u007f\\u0085é", "turns": [{"prompt": "p", "answer": "a"}]}\n' >"$scratch/bad"
for format in terminal md csv; do
    try eval -m "$MODEL" --tasks "$scratch/bad" -q --format $format
    check "a task's name in $format" exits 0
    check "is escaped" test -z "$(LC_ALL=C tr -dc '\001-\010\013-\037\177' <"$scratch/out" | tr -d '\r')"
    check "and shown" prints 't\\x1b\[31m'
    check "all of it" prints '\\x7f\\u0085é'
done
printf '\n{"id": "a", "task": "t", "turns": [], "turn": 1}\n' >"$scratch/bad"
fails 1 "bad, line 2: the line has an unknown \"turn\"; the nearest known is .turns." \
    eval -m "$MODEL" --tasks "$scratch/bad"
: >"$scratch/bad"
fails 1 "no samples" eval -m "$MODEL" --tasks "$scratch/bad"
fails 1 "cannot read /no/tasks" eval -m "$MODEL" --tasks /no/tasks

# inspect
try inspect "$MODEL"
check "inspect" exits 0
check "inspect names the architecture" prints "^architecture +llama"
check "inspect counts tensors by type" prints "^Q8_0 +[0-9]+"
check "inspect gives bytes per token" prints "^k8v4 +[0-9]+ "
try inspect "$MODEL" --metadata
check "a value with line ends keeps to its line" prints '^tokenizer.chat_template +.*<\|im_start\|>.*endif %\}'
try inspect "$MODEL" --metadata --kv f16 --kv k4v2 --ctx 100,4096 --format json
check_json "inspect --format json"
check "inspect --metadata shows keys" prints '"llama.block_count": "8"'
check "f16 takes 4 bytes a dimension, lane and token" test "$(field bytes_per_token)" = $((4 * 64 * 8 * 4))
try inspect "$MODEL" --kv k8v4 --kv topk:keep=10% --kv leankv --ctx 10,2000 --format csv
check "inspect gives the most that a policy can hold" prints '^topk:keep=10%,3584,[0-9]+,[0-9]+,'
check "also for contexts below its window" prints '^"leankv:ah=3,al=0",3584,[1-9][0-9]+,'
ln -s "$MODEL" "$scratch/$(printf 'a\377.gguf')"
try inspect "$scratch/$(printf 'a\377.gguf')" --format json
check "a path that is no UTF-8" exits 0
check_json "inspect of a path that is no UTF-8"
check "the path is there" prints '^ "file": ".*a.*\.gguf"'
check "and run takes the file" prints '^ "runs": true'
check "for which no reason is needed" prints '^ "why_not": null'
check "and says what weights it holds" prints '^ "weight_bytes": 2[0-9]{7},'
check "its chat template is supported" prints '^ "chat_template": true'
check "for which no reason is needed, either" prints '^ "chat_template_why_not": null'

# One tiny model of each architecture.
for model in tests/golden/*.gguf; do
    try inspect "$model" --format json
    check "run takes $model" prints '^ "runs": true'
done
try inspect tests/golden/gemma3.gguf
check "windows by the file's pattern" prints "^sliding window +9 tokens in 2 of 3 layers"
try run -m tests/golden/mixtral.gguf -p "a few bytes" -n 8 --temp 0 -q
check "run of a mixture of experts" exits 0
try inspect tests/golden/phi3-short.gguf
check "a window over the whole context is none" test -z "$(grep 'sliding window' "$scratch/out")"

# A GGUF of Gemma 3 270M's shape: 15 of its 18 layers see 512 tokens.
write_gemma() {
    python3 - "$1" "$2" <<'END'
import struct, sys
text = lambda s: struct.pack("<Q", len(s)) + s.encode()
keys = {"block_count": 18, "attention.head_count": 4, "attention.head_count_kv": 1, "attention.key_length": 256,
        "embedding_length": 640, "context_length": 32768, "attention.sliding_window": 512}
out = b"GGUF" + struct.pack("<IQQ", 3, 1, len(keys) + 1)
out += text("general.architecture") + struct.pack("<I", 8) + text(sys.argv[2])
for key, v in keys.items():
    out += text(sys.argv[2] + "." + key) + struct.pack("<II", 4, v)
out += text("token_embd.weight") + struct.pack("<IQIQ", 1, 64, 1, 0)
out += bytes(-len(out) % 32 + 128)
open(sys.argv[1], "wb").write(out)
END
}
if command -v python3 >/dev/null; then
    write_gemma "$scratch/gemma.gguf" gemma3
    try inspect "$scratch/gemma.gguf" --kv f16 --ctx 32768 --format json
    check_json "inspect --format json of windows"
    inspected=$(sed -n 's/^ *"bytes": *\([0-9]*\).*/\1/p' "$scratch/out" | tail -1)
    check "windows are counted" calc "$inspected >= 4 * 256 * (3 * 32768 + 15 * 512) && $inspected < 105 * 1048576"
    check "and said" prints '^ "windowed_layers": 15'
    check "run does not take it" prints '^ "runs": false'
    check "and why not" prints "^ \"why_not\": \"metadata key 'gemma3.feed_forward_length' is missing\""
    try plan -m "$scratch/gemma.gguf" --kv f16 --ctx 32768 --weights f16 --format json
    check "as plan counts them" same "$(sed -n '/"sequence"/,/}/s/^ *"bytes": *\([0-9]*\).*/\1/p' "$scratch/out" | head -1)" "$inspected"
    try inspect "$scratch/gemma.gguf" --kv f16
    check "also in words" prints "^sliding window +512 tokens in 15 of 18 layers"
    check "with the reason" prints "^pleat run +refuses it: metadata key 'gemma3.feed_forward_length' is missing"
    write_gemma "$scratch/gemma9.gguf" gemma9
    try inspect "$scratch/gemma9.gguf"
    check "an architecture that is unknown" prints "^pleat run +refuses it: architecture 'gemma9' is not supported; those that"
    # Of each kind of layers what it is kept as: token bytes are 1 head of 256, and 8 with scores more.
    try inspect "$scratch/gemma.gguf" --kv f16 --kv h2o:budget=256 --kv kivi:bits=4 --ctx 32768 --format csv
    check "full layers follow the policy" prints "^h2o:budget=256,3,all tokens,h2o:budget=256,$((3 * (256 + 128 + 8 + 8))),"
    check "windows its high format" prints "^h2o:budget=256,15,the newest 512,k8v4,$((15 * (256 + 128 + 8))),"
    check "blocks too" prints "^kivi:bits=4,3,all tokens,kivi:bits=4,$((3 * 1024)),"
    check "whose windows are in the buffer's format" prints "^kivi:bits=4,15,the newest 512,f16,$((15 * 1024)),$((15 * 16 * (32 * 1024 + 8)))\$"
    try inspect "$scratch/gemma.gguf" --kv h2o:budget=256 --ctx 512 --format json
    check "a context within the window has one kind" test "$(grep -c '"kept_as"' "$scratch/out")" = 1
else
    skip "inspect of windows: no python3 to write a file"
fi

# bench: the forms, on small shapes
try bench attn --kv f16 --kv k8v4 --ctx 256 --batch 2 --heads 8 --kv-heads 2 --head-dim 64 --reps 7 --format json
check "bench attn" exits 0
check_json "bench attn --format json"
for key in what params ms min median max bytes gb_per_s peak_gb_per_s fraction_of_peak max_rel_err model_ms \
    measured_to_model skipped; do
    check "bench attn json has $key" prints "\"$key\":"
done
check "attention is right" calc "$(sed -n 's/^ *"max_rel_err": \([0-9.e-]*\).*/\1 <= 3e-4 \&\& /p' "$scratch/out" | tr -d '\n') 1"
check "--heads and --kv-heads make a group" test "$(field gqa)" = 4
check "the model predicts something" calc "$(field model_ms) > 0 && $(field measured_to_model) > 0"
try bench attn --kv k4v2 --ctx 64,128 --batch 1,2 --gqa 1,3 --kv-heads 2 --head-dim 32,48 --reps 7 --format csv
check "bench attn sweeps" exits 0
check "one row each" test "$(grep -c '^k4v2,' "$scratch/out")" = 16
check "the last of each list" prints '^k4v2,128,2,3,48,'
check "attention is right in all" calc "$(awk -F, 'NR > 1 { printf "%s <= 3e-4 && ", $16 }' "$scratch/out") 1"
try bench attn --kv f16 --kv k4v2 --ctx 32,16000000 --batch 64 --kv-heads 1 --head-dim 64 --reps 7 --format json
check "what does not fit in memory is skipped" exits 0
check "that is said" says "note: skipped: f16, 64 x 16000000 tokens, .*one layer needs .*, and caches may take "
check_json "bench attn with skipped configurations"
check "and stands in the JSON" test "$(grep -c '"reason": "one layer needs' "$scratch/out")" = 2
check "the rest is there" test "$(grep -c '"what": "attn"' "$scratch/out")" = 2
fails 1 "nothing left to measure" bench attn --kv f16 --ctx 16000000 --batch 4096 --reps 7
try bench pages --lanes 512 --reps 7 --format csv
check "bench pages" exits 0
check "bench pages has seven rows" test "$(grep -cE '^(take,(step|plan|loop|mutex)|return,(step|loop|mutex)),512,' "$scratch/out")" = 7
try bench run -m "$MODEL" -p 32 -n 4 -d 0,16 -r 2 --kv k8v4 --format csv
check "bench run" exits 0
check "bench run has llama-bench's rows" prints ",tg4 @ d16,"
check "and columns" prints "^model,size,params,backend,threads,np,kv,test,t/s,sd,"
check "the model is the file's name" prints "^pleat-28m-q8_0,29558784,27795968,CPU,"
try bench run -m "$MODEL" -p 16 -n 2 -d 0,4090 -r 2 --kv f16 --format md
check "bench run at a depth that only generation fits" exits 0
check "t/s is mean and deviation" prints '\| pp16 \| [0-9.]+ ± [0-9.]+ \|'
check "the prompt that does not fit is skipped" says "note: skipped: pp16 after 4090 tokens needs 4106, the model's context is 4096"
check "the rest is measured" prints "\| tg2 @ d4090 \|"
try bench run -m "$MODEL" -p 16 -n 2 -d 4090 -r 1 --kv f16 --format json -q
check "with -q too" exits 0
check "-q says nothing" test -z "$stderr"
check "the JSON says what was skipped" prints '"reason": "pp16 after 4090 tokens needs 4106'
check "bytes are a whole number" prints '"bytes_per_sequence": [1-9][0-9]*,'
try bench run -m "$MODEL" -p 40 -n 8 -d 100 -r 2 -np 3 -b 16 --kv f16 --kv leankv:window=16,ah=4 --format json
check "bench run of three sequences" exits 0
check_json "bench run --format json"
for key in parallel model_size model_n_params backend memory_management of steps pages compaction bytes_per_sequence \
    fraction skipped; do
    check "bench run json has $key" prints "\"$key\":"
done
check "f16 compacts nothing, leankv does" test "$(sed -n 's/^ *"compaction": \([^,]*\).*/\1/p' "$scratch/out" | grep -c '^0\.0$')" = 2
check "and both count their steps" test "$(grep -c '"steps": 1[68],' "$scratch/out")" = 4
check "leankv's sequences hold less" calc "$(sed -n 's/^ *"bytes_per_sequence": \([0-9.]*\).*/\1/p' "$scratch/out" | tail -n 2 | paste -sd'>')"
fails 1 "needs 5000, the model's context is 4096" bench run -m "$MODEL" -p 5000 -n 0 -r 1
fails 1 "pp16 after 4090 tokens needs 4106" bench run -m "$MODEL" -p 16 -n 0 -d 4090 -r 1
finish
