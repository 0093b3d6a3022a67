#!/bin/bash
# SPDX-License-Identifier: MIT
# ctest-labels: slow
#
# plan.sh: `pleat plan` says the bytes that `pleat run` then reports, the sizes of known models, what fits and what does
# not to the last sequence and token, and nothing about what it was not told.
. "$(dirname "$0")/harness.bash"

# plan ARGS...: as JSON, of one spec, so that every field stands once.
plan() { try plan --format json -q "$@"; }
# of PART KEY: a field of one of the objects sequence, bytes, step, preempt.
of() { sed -n "/\"$1\": {/,/}/s/^ *\"$2\": *\"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$scratch/out" | head -1; }

# ---- the article's table, corrected ------------------------------------------------------------------------------------

plan --arch llama3-70b --ctx 4096 --batch 64 --kv f16
check "plan" exits 0
check_json "plan --format json"
check "70B, 64 sequences of 4096 tokens: 80 GiB" test "$(of step kv)" = $((80 << 30))
check "held with pages and tables: within 0.1 % of it" calc "$(of bytes kv) / 2^30 / 80 < 1.001 && $(of bytes kv) / 2^30 >= 80"
plan --arch llama3-8b --ctx 4096 --batch 32 --kv f16
check "8B, 32 sequences of 4096 tokens: 16 GiB" test "$(of step kv)" = $((16 << 30))
plan --arch llama3-70b --ctx 2048 --kv f16 --swap-bandwidth 25GB --prefill 10000
check "70B, 2048 tokens: 0.625 GiB to swap" test "$(field swap_bytes)" = $((5 << 27))
check "which take 26.8 ms one way" calc "$(field swap_ms) > 26.8 && $(field swap_ms) < 26.9"
check "twice that both ways" calc "$(field swap_both_ms) > 53.6 && $(field swap_both_ms) < 53.8"
check "reading the prompt again takes longer" calc "$(field recompute_ms) > 204.7 && $(field recompute_ms) < 204.9"
check "so swapping is sooner" test "$(field cheaper)" = swap
plan --arch llama3-70b --ctx 2048 --kv f16 --swap-bandwidth 1GB --prefill 10000
check "and is not through a narrow way" test "$(field cheaper)" = recompute

# A step reads all weights but the rows of the embedding, and is bound by the bandwidth.
plan --arch llama3-8b --ctx 4096 --batch 32 --kv f16 --bandwidth 2TB
check "weights of 8B" test "$(of bytes weights)" = $((2 * 8030261248))
check "of which a step reads" test "$(of step weights)" = $((2 * (8030261248 - 128256 * 4096)))
check "and with the KV" test "$(of step bytes)" = $(($(of step weights) + (16 << 30)))
check "in" calc "$(of step ms) / ($(of step bytes) / 2e9) > 0.999999 && $(of step ms) / ($(of step bytes) / 2e9) < 1.000001"
check "so tokens/s" calc "$(of step tokens_per_s) * $(of step ms) / 32000 > 0.999999"

# ---- known models ------------------------------------------------------------------------------------------------------

# Parameters as the repositories give them, counted here from each row's shape.
try plan --arch list --format csv
check "--arch list" exits 0
while read -r name params; do
    check "$name has $params parameters" prints "^$name,$params,"
done <<'END'
llama3-8b 8030261248
llama3-70b 70553706496
llama3.1-8b 8030261248
llama3.1-70b 70553706496
llama3.1-405b 405853388800
llama3.2-1b 1235814400
llama3.2-3b 3212749824
smollm2-135m 134515008
mistral-7b 7248023552
mixtral-8x7b 46702792704
qwen2.5-7b 7615616512
qwen2.5-32b 32763876352
qwen2.5-72b 72706203648
qwen3-4b 4022468096
qwen3-8b 8190735360
qwen3-32b 32762123264
gemma2-9b 9241705984
gemma2-27b 27227128320
gemma3-27b 27009346304
phi-3-mini 3821079552
phi-4 14659507200
gpt-oss-20b 20914757184
gpt-oss-120b 116829156672
END
for name in $(tail -n +2 "$scratch/out" | cut -d, -f1 | grep -v deepseek-v3); do
    plan --arch "$name" --kv k8v4 --ctx 1024
    check "$name can be planned" exits 0
done
fails 1 "deepseek-v3: not supported: it keeps one latent of 576 numbers .*70272 bytes" plan --arch deepseek-v3
fails 2 "'lama3-8b': no such model is known; the nearest is 'llama3-8b'" plan --arch lama3-8b
plan --arch gpt-oss-20b --ctx 128 --kv f16
check "gpt-oss-20b weighs what its files do" test "$(of bytes weights)" = 13761264768
check "one sequence reaches 4 of 32 experts" calc "$(of step weights) < 0.32 * 13761264768"
plan --arch gpt-oss-20b --ctx 128 --kv f16 --batch 8
check "8 sequences may reach all" test "$(of step weights)" = $((13761264768 - 2 * 201088 * 2880))
plan --arch llama3-8b --ctx 128 --kv f16 --weights q8_0
check "q8_0 takes 34 bytes for 32 numbers" test "$(of bytes weights)" = $((8030261248 / 32 * 34))
for row in "q4_k 144" "q6_k 210" "q2_k 84" "iq4_xs 136"; do
    read -r type block_bytes <<<"$row"
    plan --arch llama3-8b --ctx 128 --kv f16 --weights "$type"
    check "$type takes $block_bytes bytes for 256 numbers" test "$(of bytes weights)" = $((8030261248 / 256 * block_bytes))
done
plan --arch llama3-8b --ctx 128 --kv f16 --weights 10GB
check "weights as given" test "$(of bytes weights)" = 10000000000
check "and what a step reads of them in proportion" calc "$(of step weights) / 1e10 > 0.934 && $(of step weights) / 1e10 < 0.935"

# Layers with a window hold no more than it.
plan --arch gemma2-27b --ctx 8192 --kv f16
check "gemma2-27b: half of its layers hold 4096 tokens" test "$(of step kv)" = $((23 * (8192 + 4096) * 16 * 4 * 128))
check "so do pages" calc "$(of sequence kv) / $(of step kv) < 1.001"
plan --arch gemma2-27b --ctx 4096 --kv f16
check "up to the window there is no difference" test "$(of step kv)" = $((46 * 4096 * 16 * 4 * 128))
tables=$(of sequence tables)
plan --arch gemma2-27b --ctx 8000 --kv f16
check "rows of a table are of one length, windows or not" calc "$(of sequence tables) / $tables > 1.8 && $(of sequence tables) / $tables < 2"
plan --arch phi-3-mini --ctx 4096 --kv k8v4
all=$(of sequence kv)
plan --arch phi-3-mini --ctx 2047 --kv k8v4
check "phi-3-mini holds 2047 tokens in all layers" same "$(of sequence kv)" "$all"

plan --arch llama3-8b --ctx 100 --kv leankv --fraction 0.5
check "a token under a policy has a score and a position" test "$(field bytes_per_token)" = $(((128 + 64 + 8 + 8) * 256))

# ---- what specs do -----------------------------------------------------------------------------------------------------

# budgets SPEC TOKENS ARGS...: a lane of llama3-70b holds TOKENS, in whole pages of 64.
budgets() {
    local spec=$1 tokens=$2
    shift 2
    plan --arch llama3-70b --ctx 8192 --kv "$spec" "$@"
    check "$spec $*: a step reads $tokens tokens a lane" test "$(of step kv)" = $((tokens * $(field bytes_per_token)))
    check "$spec $*: whole pages of them" calc \
        "$(of sequence kv) / ($(field bytes_per_token) * 64 * int(($tokens + 63) / 64)) < 1.01 && $(of sequence kv) >= $(of step kv)"
    check "$spec $*: that is a forecast" test "$(field certainty)" = forecast
}
budgets h2o:budget=256 256
check "while a prompt is read it stands whole" calc "$(of sequence most) / (8192 * $(field bytes_per_token)) < 1.01 && $(of sequence most) >= 8192 * $(field bytes_per_token)"
budgets h2o:budget=250 250 -n 100 # a hole more
budgets h2o:budget=25% 2048
budgets streaming:budget=200 200
budgets snapkv:budget=256 256
budgets snapkv:budget=256 355 -n 100 # what follows the prompt stays; the last token is not stored
budgets snapkv:budget=25% $((2024 + 99)) -n 100
plan --arch llama3-70b --ctx 8192 --kv h2o:budget=8192
check "a budget of the whole context keeps all" test "$(of step kv)" = $((8192 * $(field bytes_per_token)))
for spec in pyramidkv:budget=256 adakv:budget=256; do
    plan --arch llama3-70b --ctx 8192 --kv $spec
    check "$spec: 256 tokens a lane and half a page" calc "$(of sequence kv) / ($(field bytes_per_token) * (256 + 32)) < 1.01 && $(of sequence kv) / ($(field bytes_per_token) * (256 + 32)) > 0.99"
done

# A prefix that all share is held once; under eviction by each.
plan --arch llama3-8b --ctx 4096 --batch 32 --kv f16 --shared 2048
check "32 sequences on a prefix of 2048 tokens" calc "$(of bytes kv) / (33 * 2048 * $(field bytes_per_token)) < 1.01 && $(of bytes kv) >= 33 * 2048 * $(field bytes_per_token)"
check "of which it takes" calc "$(of bytes prefix) / (2048 * $(field bytes_per_token)) < 1.01 && $(of bytes prefix) >= 2048 * $(field bytes_per_token)"
check "a step reads all of them for each" test "$(of step kv)" = $((32 * 4096 * $(field bytes_per_token)))
plan --arch llama3-8b --ctx 4096 --batch 32 --kv h2o:budget=256 --shared 2048
check "under eviction each has its own" calc "$(of bytes kv) / (33 * 256 * $(field bytes_per_token)) < 1.01 && $(of bytes kv) >= 33 * 256 * $(field bytes_per_token)"
plan --arch gemma2-27b --ctx 8192 --kv h2o:budget=256
check "a policy is the full layers', whose lanes hold 256 tokens" test \
    "$(of step kv)" = $((23 * 16 * (256 * (128 + 64 + 8 + 8) + 4096 * (128 + 64 + 8))))
check "of both kinds of layers the answer says what they are kept as" prints '^ *"kept_as": "k8v4"'
check "and there are two" test "$(grep -c '"kept_as"' "$scratch/out")" = 2
plan --arch gemma2-27b --ctx 8192 --kv h2o:budget=256 --batch 4 --shared 4096
check "neither kind shares pages under eviction" calc "$(of bytes kv) >= 5 * $(of sequence kv)"
fails 1 "every layer has a sliding window" plan --arch phi-3-mini --ctx 4096 --kv h2o:budget=256
plan --arch phi-3-mini --ctx 2000 --kv h2o:budget=256
check "phi-3-mini within its window has full layers alone" exits 0
plan --arch gemma2-27b --ctx 8192 --batch 4 --kv f16 --shared 4096
check "windows are each one's own" calc "$(of bytes kv) / (23 * 16 * 512 * (5 * 4096 + 5 * 4096)) < 1.01 && $(of bytes kv) >= 23 * 16 * 512 * (5 * 4096 + 5 * 4096)"

# ---- what fits, to the last one ----------------------------------------------------------------------------------------

# fits_to_the_last ARGS...
fits_to_the_last() {
    plan "$@" --device-bytes 24GiB
    local seqs tokens crossing
    seqs=$(field most_sequences) tokens=$(field most_tokens) crossing=$(field batch_kv_passes_weights)
    plan "$@" --device-bytes 24GiB --batch "$seqs"
    check "$seqs sequences fit: $*" test "$(field fits)" = true
    plan "$@" --device-bytes 24GiB --batch $((seqs + 1))
    check "and not one more: $*" test "$(field fits)" = false
    plan "$@" --device-bytes 24GiB --ctx "$tokens"
    check "$tokens tokens fit: $*" test "$(field fits)" = true
    plan "$@" --device-bytes 24GiB --ctx $((tokens + 1))
    check "and not one more: $*" test "$(field fits)" = false
    plan "$@" --batch "$crossing"
    check "KV passes the weights at $crossing: $*" calc "$(of step kv) > $(of step weights)"
    plan "$@" --batch $((crossing - 1))
    check "and not before: $*" calc "$(of step kv) <= $(of step weights)"
}
fits_to_the_last --arch llama3-8b --ctx 2000 --batch 3 --kv k8v4
fits_to_the_last --arch llama3-8b --ctx 100 --batch 7 --kv leankv:al=0.02 --fraction 0.4
fits_to_the_last --arch llama3-8b --ctx 3000 --batch 3 --kv snapkv:budget=25% -n 200
fits_to_the_last --arch llama3-8b --ctx 3000 --batch 3 --kv k8v4 --shared 1000
fits_to_the_last --arch gemma2-9b --ctx 6000 --batch 2 --kv f16
fits_to_the_last --arch gemma2-9b --ctx 6000 --batch 2 --kv snapkv:budget=25% -n 200
fits_to_the_last --arch gpt-oss-20b --ctx 9000 --batch 2 --kv k4v2 --weights 13GB
plan --config "$ROOT/tests/fuzz/corpus/hf_config/heads-alone.json" --ctx 1 --kv f16 --weights $((10 * 80 * 64 * 512))
check "KV of ten sequences is as much as the weights, and passes them at eleven" test "$(field batch_kv_passes_weights)" = 11
plan --arch llama3-70b --ctx 4096 --device-bytes 80GiB --kv k4v2
check "weights that do not fit leave no room" test "$(field most_sequences) $(field most_tokens) $(field fits)" = "0 0 false"
check "which the answer says" prints "No help: the weights alone"

# ---- as run reports ----------------------------------------------------------------------------------------------------

# run stores all tokens but the last one generated
# held SPEC CHARS N: bytes that run holds; leaves $stored and $opened
held() {
    head -c "$2" "$ROOT/eval/prose.txt" >"$scratch/text"
    try run -m "$MODEL" -f "$scratch/text" -n "$3" --kv "$1" --format json -q
    ran=$(field bytes) fraction=$(field fraction)
    stored=$(($(field prompt) + $(field generated) - 1)) opened=$(($(field prompt) + $3))
}
for spec in f16 k8v8 k8v4 k4v2; do
    for size in 900 4000; do
        held $spec $size 3
        plan -m "$MODEL" --ctx $stored -c $opened --kv $spec
        check "$spec, $stored tokens: $ran bytes as run says" same "$(of sequence bytes)" "$ran"
        plan -m "$MODEL" --ctx $stored --kv $spec
        check "$spec, $stored tokens: within 1 % without -c" calc "$(of sequence bytes) / $ran < 1.01 && $(of sequence bytes) / $ran > 0.99"
    done
done
# A text that ends long before what it was opened for: its tables are those of the longest.
question=$(printf '<|im_start|>user\nA chain of sums. Start at 0, then add: 73, 81, 154.<|im_end|>\n<|im_start|>assistant\n')
try run -m "$MODEL" --special -p "$question" -n 3000 --kv k8v4 --format json -q
ran=$(field bytes) stored=$(($(field prompt) + $(field generated) - 1)) opened=$(($(field prompt) + 3000))
check "a text that ends" test "$(field finish_reason)" = stop
plan -m "$MODEL" --ctx $stored -c $opened --kv k8v4
check "opened for $opened tokens: $ran bytes" same "$(of sequence bytes)" "$ran"
plan -m "$MODEL" --ctx $stored --kv k8v4
check "for no more than it has: fewer" calc "$(of sequence bytes) < $ran"

for spec in h2o:budget=72 h2o:budget=20%,reclaim=copy streaming:budget=70,reclaim=none snapkv:budget=72 random:budget=72 novel:budget=72; do
    held $spec 4000 30
    plan -m "$MODEL" --ctx $stored -c $opened -n 30 --kv $spec
    check "$spec, $stored tokens: $ran bytes as run says" test "$(of sequence bytes)" = "$ran"
done
for spec in leankv:ah=0 leankv:ah=3,al=0.05 leankv topk:keep=30% kvcomp kvcomp:block=16,buffer=1+pack kivi:bits=4; do
    held $spec 4000 3
    plan -m "$MODEL" --ctx $stored -c $opened -n 3 --kv $spec --text "$scratch/text"
    check "$spec, measured: run's bytes within 2 %" calc "$(of sequence bytes) / $ran < 1.02 && $(of sequence bytes) / $ran > 0.98"
    check "$spec: and that is called so" test "$(field certainty)" = measured
    fails 2 "'${spec%%[:+]*}.*': what it keeps depends on the text: give --fraction, .* -m FILE --text FILE" \
        plan -m "$MODEL" --ctx $stored --kv $spec
    plan -m "$MODEL" --ctx $stored -c $opened --kv $spec --fraction "$fraction"
    check "$spec: with run's fraction, run's bytes" calc "$(of sequence bytes) / $ran < 1.001 && $(of sequence bytes) / $ran > 0.999"
    check "$spec: and that is called so" test "$(field certainty)" = "by --fraction"
done
plan -m "$MODEL" --kv f16
check "without --ctx the model's context" test "$(field ctx)" = 4096
check "parameters of the file" same "$(field params)" "$("$PLEAT" inspect "$MODEL" --format json | sed -n 's/^ *"params": *\([0-9]*\).*/\1/p' | head -1)"

# with_u32 FILE KEY VALUE: the model with one more entry of metadata.
with_u32() {
    python3 - "$MODEL" "$@" <<'END'
import struct, sys
source, target, key, value = sys.argv[1:]
old = open(source, "rb").read()
sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
def text(at):
    return at + 8 + struct.unpack_from("<Q", old, at)[0]
def value_end(at, kind):
    if kind == 8:
        return text(at)
    if kind != 9:
        return at + sizes[kind]
    kind, n = struct.unpack_from("<IQ", old, at)
    at += 12
    if kind in sizes:
        return at + n * sizes[kind]
    for _ in range(n):
        at = value_end(at, kind)
    return at
version, n_tensors, n_keys = struct.unpack_from("<IQQ", old, 4)
keys_end = 24
for _ in range(n_keys):
    at = text(keys_end)
    keys_end = value_end(at + 4, struct.unpack_from("<I", old, at)[0])
end = keys_end
for _ in range(n_tensors):
    end = text(end)
    end += 4 + 8 * struct.unpack_from("<I", old, end)[0] + 12
new = old[:4] + struct.pack("<IQQ", version, n_tensors, n_keys + 1) + old[24:keys_end]
new += struct.pack("<Q", len(key)) + key.encode() + struct.pack("<II", 4, int(value)) + old[keys_end:end]
open(target, "wb").write(new + bytes(-len(new) % 32) + old[end + -end % 32:])
END
}
if command -v python3 >/dev/null; then
    with_u32 "$scratch/windowed.gguf" llama.attention.sliding_window 64
    for spec in f16 k8v4; do
        MODEL=$scratch/windowed.gguf held $spec 4000 3
        plan -m "$scratch/windowed.gguf" --ctx $stored -c $opened --kv $spec
        check "$spec, a window of 64 in all layers: $ran bytes as run says" same "$(of sequence bytes)" "$ran"
        check "$spec, as 64 tokens" calc "$(of step kv) == 64 * $(field bytes_per_token)"
    done
else
    skip "a llama with a window: no python3 to write it"
fi

# A GGUF with an embedding that is no output matrix, experts and windows.
write_gguf() {
    python3 - "$1" <<'END'
import struct, sys
text = lambda s: struct.pack("<Q", len(s)) + s.encode()
keys = {"block_count": 4, "attention.head_count": 8, "attention.head_count_kv": 2, "embedding_length": 512,
        "context_length": 4096, "attention.sliding_window": 128, "expert_count": 4, "expert_used_count": 1}
tensors = {"token_embd.weight": 4096, "output.weight": 4096, "blk.0.ffn_up_exps.weight": 8192, "blk.0.attn_q.weight": 1024}
out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys) + 1)
out += text("general.architecture") + struct.pack("<I", 8) + text("gpt-oss")
for key, v in keys.items():
    out += text("gpt-oss." + key) + struct.pack("<II", 4, v)
at = 0
for name, n in tensors.items(): # of F16
    out += text(name) + struct.pack("<IQIQ", 1, n, 1, at)
    at += 2 * n
out += bytes(-len(out) % 32 + at)
open(sys.argv[1], "wb").write(out)
END
}
if command -v python3 >/dev/null; then
    write_gguf "$scratch/experts.gguf"
    plan -m "$scratch/experts.gguf" --ctx 1000 --kv f16
    check "weights of the file" test "$(of bytes weights)" = $((2 * 17408))
    check "a step reads no embedding, and one expert of four" test "$(of step weights)" = $((2 * (4096 + 2048 + 1024)))
    check "every other layer has a window" test "$(of step kv)" = $(((2 * 128 + 2 * 1000) * 2 * 4 * 64))
    plan -m "$scratch/experts.gguf" --ctx 1000 --kv f16 --weights q8_0
    check "in another format" test "$(of bytes weights) $(of step weights)" = "$((17408 / 32 * 34)) $((7168 / 32 * 34))"
else
    skip "a GGUF with experts: no python3 to write it"
fi

# ---- nothing is made up ------------------------------------------------------------------------------------------------

plan -m "$MODEL" --ctx 1000 --kv k8v4
for key in fits most_sequences most_tokens ms tokens_per_s swap_ms swap_both_ms recompute_ms cheaper; do
    check "$key is not known" test "$(field $key)" = null
done
for option in --device-bytes --bandwidth --swap-bandwidth --prefill; do
    check "$option would tell" prints "\"$option\""
done
try plan -m "$MODEL" --ctx 1000 --kv k8v4
check "the terminal says so too" prints "^Unknown, shown as -: what needs --device-bytes, --bandwidth, --swap-bandwidth or --prefill$"
try plan -m "$MODEL" --ctx 1000 --format csv
check "csv is one table" test "$(wc -l <"$scratch/out")" = 6
try plan -m "$MODEL" --ctx 1000 --format md
check "md has tables" prints "^\| kv \| bytes/token \|"

# ---- the answer --------------------------------------------------------------------------------------------------------

# answers REGEX ARGS...
answers() {
    local regex=$1
    shift
    plan "$@"
    check "answer '$regex' to: $*" prints "\"answer\": \"$regex"
}
answers "Uncompressed, it fits: the KV is" --arch llama3-8b --ctx 4096 --kv f16 --device-bytes 80GiB
answers "Uncompressed, it does not fit: [0-9]+ sequences of 4096 tokens do" --arch llama3-8b --ctx 4096 --batch 512 --kv f16 --device-bytes 80GiB
answers "Worth it: it fits, and f16 does not: " --arch llama3-8b --ctx 4096 --batch 200 --kv k8v4 --device-bytes 80GiB
answers "Not enough: of 900 sequences of 4096 tokens [0-9]+ fit, [0-9]+ in f16" --arch llama3-8b --ctx 4096 --batch 900 --kv k8v4 --device-bytes 80GiB
answers "Not worth it: sequences of 256 tokens are short: .*, and f16 fits too" --arch llama3-8b --ctx 256 --batch 4 --kv k8v4 --device-bytes 80GiB
answers "Not worth it: the model is small and 1 sequence is few" --arch llama3.2-1b --ctx 2048 --kv k8v4
answers "Not worth it: 1 sequence of 2048 tokens is far below the weights: f16's KV is 1.8 %" --arch llama3-8b --ctx 2048 --kv k8v4
answers "Not worth it: with 4 tokens to generate, reading the prompts is the work" --arch llama3-8b --ctx 8000 --batch 64 --kv k8v4 -n 4
answers "Uncompressed: the KV is" --arch llama3-8b --ctx 4096 --kv f32
answers "Not worth it: it holds no less than f16" -m "$MODEL" --ctx 4000 --kv leankv --fraction 1.1
answers "Worth it: a step reads [0-9.]+ % less than with f16" --arch llama3-8b --ctx 4096 --batch 64 --kv kvcomp --fraction 0.2
answers "Not worth it: it holds no less than f16" --arch llama3-8b --ctx 4096 --batch 64 --kv kivi --fraction 1.01
answers "Hardly worth it: a step reads [0-9.]+ % less" --arch llama3-8b --ctx 4096 --batch 4 --kv k8v8
answers "Worth it: a step reads [0-9.]+ % less than with f16, and [0-9]+ sequences fit in place of [0-9]+" --arch llama3-8b --ctx 4096 --batch 64 --kv k8v4 --device-bytes 80GiB
answers "Worth it: a step reads [0-9.]+ % less" --arch llama3-8b --ctx 4096 --batch 64 --kv h2o:budget=512
answers "Not worth it: with 4 tokens to generate" --arch llama3-8b --ctx 4096 --batch 64 --kv h2o:budget=512 -n 4
answers "Worth it: a step reads 6" --arch llama3.2-1b --ctx 4096 --batch 64 --kv k4v2 # KV of a small model can be most of it

# ---- config.json -------------------------------------------------------------------------------------------------------

# The same figures as from the table, whatever says the shape.
for pair in llama3-70b gemma2-27b gpt-oss-20b mixtral-8x7b; do
    plan --arch $pair --ctx 5000 --batch 3 --kv k8v4
    sed '1,/"ctx"/d' "$scratch/out" >"$scratch/arch"
    plan --config "$ROOT/tests/fuzz/corpus/hf_config/$pair.json" --ctx 5000 --batch 3 --kv k8v4
    check "config.json of $pair" exits 0
    sed '1,/"ctx"/d' "$scratch/out" >"$scratch/config"
    check "the figures of --arch $pair" cmp -s "$scratch/arch" "$scratch/config"
done
plan --config "$ROOT/tests/fuzz/corpus/hf_config/gemma3-nested.json" --ctx 5000 --kv f16
check "the text_config of a model that sees" test "$(of step kv)" = $(((52 * 1024 + 10 * 5000) * 16 * 4 * 128))
plan --config "$ROOT/tests/fuzz/corpus/hf_config/qwen2-window.json" --ctx 5000 --kv f16
check "windows of late layers" test "$(field windowed_layers)" = 7
plan --config "$ROOT/tests/fuzz/corpus/hf_config/qwen3-moe.json" --ctx 100 --kv f16
check "experts of their own size" test "$(field params)" = 30532122624
# An expert of 48 numbers, of which a block holds 256: 4088 idle ones are no more bytes than all weights.
sed 's/"moe_intermediate_size": 768/"moe_intermediate_size": 1/; s/"num_experts": 128/"num_experts": 4096/
     s/"hidden_size": 2048/"hidden_size": 16/; s/"num_hidden_layers": 48/"num_hidden_layers": 1/
     s/"vocab_size": 151936/"vocab_size": 256/' \
    "$ROOT/tests/fuzz/corpus/hf_config/qwen3-moe.json" >"$scratch/config.json"
for type in q4_k q8_0 mxfp4 f16; do
    plan --config "$scratch/config.json" --ctx 100 --kv f16 --weights $type
    check "experts below a block of $type" calc "$(of step weights) > 0 && $(of step weights) <= $(of bytes weights)"
done
plan --config "$ROOT/tests/fuzz/corpus/hf_config/heads-alone.json" --ctx 5000 --kv k8v4
check "what says no model_type has no known weights" test "$(of bytes weights)" = null
check "and the answer asks for them" prints "Cannot be said: .* give --weights"

config() { # FIELDS: with 2 layers, 8 heads, 512 wide
    printf '{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 8, "hidden_size": 512%s}' "$1" >"$scratch/config.json"
}
bad_config() { # REGEX FIELDS
    config "$2"
    fails 1 "config.json: $1" plan --config "$scratch/config.json" --ctx 100
}
config ""
plan --config "$scratch/config.json" --ctx 100 --kv f16
check "as many KV heads as heads, if it is not said" test "$(field kv_heads) $(field head_dim)" = "8 64"
bad_config "num_key_value_heads is a string: a whole number from 1 to 1024" ', "num_key_value_heads": "8"'
bad_config "num_key_value_heads is 0: a whole number from 1" ', "num_key_value_heads": 0'
bad_config "8 query heads are no multiple of 3 KV heads" ', "num_key_value_heads": 3'
bad_config "head_dim is a fraction" ', "head_dim": 64.5'
bad_config "head dimension 72: Pleat's pages take multiples of 16" ', "head_dim": 72'
bad_config "vocab_size is -1: " ', "vocab_size": -1'
bad_config "tie_word_embeddings is a whole number: true or false" ', "tie_word_embeddings": 1'
bad_config "layer_types is no array of num_hidden_layers = 2" ', "layer_types": []'
bad_config "layer_types\[1\] is 'linear_attention': it may be" ', "layer_types": ["full_attention", "linear_attention"]'
bad_config "sliding_window is missing, and layer_types has 1" ', "layer_types": ["full_attention", "sliding_attention"]'
bad_config "sliding_window is 100, and nothing says which layers" ', "sliding_window": 100'
bad_config "num_experts_per_tok is 9: a whole number from 1 to 8" ', "num_local_experts": 8, "num_experts_per_tok": 9'
bad_config "kv_lora_rank" ', "kv_lora_rank": 512'
bad_config "not JSON: .* line 1" ', '
for type in mamba mamba2 rwkv6 jamba; do
    printf '{"model_type": "%s", "hidden_size": 512}' $type >"$scratch/config.json"
    fails 1 "config.json: model_type $type: its layers, or some, keep a state" plan --config "$scratch/config.json"
done
printf '{"num_hidden_layers": 2, "num_attention_heads": 32, "hidden_size": 4100}' >"$scratch/config.json"
fails 1 "hidden_size 4100 is no multiple of num_attention_heads 32, and head_dim is missing" \
    plan --config "$scratch/config.json" --ctx 100
printf '{"num_attention_heads": 8, "hidden_size": 512}' >"$scratch/config.json"
fails 1 "num_hidden_layers is missing: a whole number from 1 to 1024" plan --config "$scratch/config.json" --ctx 100
fails 1 "cannot read /no/config.json" plan --config /no/config.json
fails 1 "most-of-all.json: .* more bytes than 2\^63" plan --config "$ROOT/tests/fuzz/corpus/hf_config/most-of-all.json" --ctx 16777216 --batch 65536
config ""
fails 1 "it is the same file as .*config.json, which is read" plan --config "$scratch/config.json" --ctx 100 -o "$scratch/config.json"

# ---- the command line --------------------------------------------------------------------------------------------------

fails 2 "no model: give -m FILE.gguf, --arch NAME" plan --ctx 100
fails 2 "-m and --arch exclude each other: give one model" plan -m "$MODEL" --arch llama3-8b
fails 2 "--model and --config exclude each other: give one model" plan --model "$MODEL" --config x
fails 2 "--arch and --config exclude each other: give one model" plan --arch llama3-8b --config x
fails 2 "no context: give --ctx N" plan --config "$scratch/config.json"
fails 2 "--ctx: '0' is not a whole number between 1 and 16777216" plan --arch llama3-8b --ctx 0
fails 2 "--ctx: '16777217' is not" plan --arch llama3-8b --ctx 16777217
fails 2 "--batch: '65537' is not a whole number between 1 and 65536" plan --arch llama3-8b --batch 65537
fails 2 "--ctx-size 99 is shorter than --ctx 100" plan --arch llama3-8b --ctx 100 -c 99
fails 2 "--n-predict 101 are more tokens than --ctx 100" plan --arch llama3-8b --ctx 100 -n 101
for size in 0 -1 80XB 1e30 GiB nan ""; do
    fails 2 "--device-bytes: '$size' is no number of bytes" plan --arch llama3-8b --device-bytes "$size"
done
fails 2 "--weights: 'f32' is none of q8_0, .*, mxfp4, f16, bf16, nor bytes" plan --arch llama3-8b --weights f32
fails 1 "--weights q8_0: .* does not say how many parameters" plan --config "$scratch/config.json" --ctx 100 --weights q8_0
fails 2 "--prefill: '0' is not a number" plan --arch llama3-8b --prefill 0
fails 2 "--fraction is for specs whose bytes depend on the text" plan --arch llama3-8b --kv f16 --fraction 0.3
fails 2 "--fraction is for specs whose bytes depend on the text" plan --arch llama3-8b --kv h2o:budget=256 --fraction 0.3
fails 2 "'kvcomp.*': what it keeps depends on the text: give --fraction" plan --arch llama3-8b --kv f16 --kv kvcomp
fails 2 "what it keeps cannot be forecast with reclaim=block: give --fraction" plan --arch llama3-8b --kv h2o:budget=256,reclaim=block
plan --arch llama3-8b --kv h2o:budget=256,reclaim=block --fraction 0.1
check "with --fraction it is taken" test "$(field certainty)" = "by --fraction"
fails 2 "--fraction does not say what sequences share: --shared has to go" plan --arch llama3-8b --kv leankv --fraction 0.4 --shared 100
fails 2 "--text needs --model: it is the model that is run on it" plan --arch llama3-8b --kv leankv --text "$scratch/text"
fails 2 "--fraction and --text exclude each other" plan -m "$MODEL" --kv leankv --text "$scratch/text" --fraction 0.4
fails 2 "--shared 100 leaves nothing of a prompt of --ctx 100 tokens" plan --arch llama3-8b --ctx 100 --shared 100
fails 2 "--shared 90 leaves nothing of a prompt of --ctx 100 tokens less --n-predict" plan --arch llama3-8b --ctx 100 --shared 90 -n 11
printf 'too short' >"$scratch/short"
fails 1 "tokens are too few to measure --kv 'kvcomp" plan -m "$MODEL" --kv kvcomp --text "$scratch/short"
fails 2 "what it keeps depends on the text" plan --arch gemma2-9b --ctx 6000 --kv leankv
fails 2 "what a profile saves depends on the text" plan -m "$MODEL" --kv leankv:profile=x
fails 1 "window or budget is longer than the model's context" plan --arch llama3-8b --ctx 100 --kv leankv:window=9000
fails 2 "argument 2, '-t': no such option" plan -t 2 --arch llama3-8b
fails 1 "/no/model.gguf: " plan -m /no/model.gguf
export PLEAT_MODEL=/no/model.gguf
plan --arch llama3-8b --ctx 100
check "the command line's model wins over the environment's" exits 0
fails 1 "/no/model.gguf: " plan --ctx 100
unset PLEAT_MODEL
try plan --arch llama3-8b --ctx 9000
check "more than the model's context is noted" says "note: 9000 tokens are more than the model's context of 8192"
for unit in 24GiB 25769803776 25769803.776kB 24576MiB 25165824Ki; do
    plan --arch llama3-8b --ctx 100 --kv f16 --device-bytes $unit
    check "$unit" test "$(field device_bytes)" = 25769803776
done
finish
