#!/bin/bash
# SPDX-License-Identifier: MIT
#
# shape.sh: bench run --shape: models of random weights, of known shapes and of a config.json's, in every type; what such
# a model takes is said before it is made, and what cannot be made is refused.
. "$(dirname "$0")/harness.bash"

# config NAME MORE: a config.json of a small model, with more fields
config() {
    cat >"$scratch/$1.json" <<END
{"model_type": "llama", "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 256,
 "intermediate_size": 512, "vocab_size": 1000, "max_position_embeddings": 256${2:+, $2}}
END
}
config small
config tied '"tie_word_embeddings": true'
config wide '"head_dim": 128'

# bytes of the matrices, q k v o gate up down and the vocabulary's, and of 7 norms
n_weights=$((3 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 512 * 256) + 2 * 1000 * 256))
for row in "q8_0 34 32" "q4_0 18 32" "q4_1 20 32" "q5_0 22 32" "q5_1 24 32" "q2_k 84 256" "q3_k 110 256" "q4_k 144 256" \
    "q5_k 176 256" "q6_k 210 256" "iq4_nl 18 32" "iq4_xs 136 256" "mxfp4 17 32" "f16 2 1" "bf16 2 1"; do
    read -r type block_bytes block_weights <<<"$row"
    try bench run --shape "$scratch/small.json" --weights "$type" -p 40 -n 8 -d 0,100 -r 1 --kv f32 --kv k8v4 --format json
    check "$type" exits 0
    check "$type: its name" prints '"model": "llama, random '"$type"'"'
    check "$type: its bytes" test "$(field model_size)" = $((n_weights / block_weights * block_bytes + 7 * 256 * 4))
    check "$type: its parameters" test "$(field model_n_params)" = $((n_weights + 7 * 256))
    check "$type: what it takes is said first" says "bench run: note: llama, random $type takes .* of memory, of .* that are free$"
    check_json "$type"
    check "$type: every speed is there" test "$(grep -c '"tokens_per_s": [0-9]' "$scratch/out")" = 8
done
try bench run --shape "$scratch/small.json" -p 8 -n 0 -r 1 --kv f16 -q
check "q8_0 is the default" prints "random q8_0"
check "-q is quiet" test -z "$stderr"
try bench run --shape "$scratch/tied.json" -p 8 -n 0 -r 1 --kv f16 --format json -q
check "tied: one matrix of the vocabulary" test "$(field model_n_params)" = $((n_weights + 7 * 256 - 256000))
try bench run --shape "$scratch/wide.json" -p 8 -n 2 -r 1 --kv f16 -q
check "heads wider than n_embd / heads" exits 0
try bench run --shape smollm2-135m --weights q4_0 -p 2 -n 1 -r 1 --kv k8v4 --format json -q
check "a known shape" exits 0
check "its parameters are the published ones" test "$(field model_n_params)" = 134515008
PLEAT_MODEL=/no/file try bench run --shape "$scratch/small.json" -p 8 -n 0 -r 1 --kv f16 -q
check "the command line wins" exits 0

# of_type TYPE NAME MORE: the small model as one of another model_type
of_type() {
    config "$2" "$3"
    sed -i "s/\"llama\"/\"$1\"/" "$scratch/$2.json"
}
experts='"num_local_experts": 4, "num_experts_per_tok": 2'
of_type mixtral mixtral "$experts"
of_type qwen3_moe qwen3moe "$experts, \"head_dim\": 64"
of_type gpt_oss gpt_oss "$experts, \"head_dim\": 64, \"sliding_window\": 32, \"attention_bias\": true"
of_type gemma2 gemma2 '"head_dim": 64, "sliding_window": 32'
of_type gemma3_text gemma3 '"head_dim": 64, "sliding_window": 32'
of_type mistral mistral '"sliding_window": 32'
for name in mixtral qwen3moe gpt_oss gemma2 gemma3 mistral; do
    try bench run --shape "$scratch/$name.json" --weights q4_k -p 40 -n 4 -d 0,70 -r 1 --kv f16 --kv k8v4 --format json -q
    check "$name" exits 0
    check_json "$name"
    try plan --config "$scratch/$name.json" --ctx 100 --kv f16 --format json
    planned=$(field params)
    check "$name: parameters are counted" test "${planned:-0}" -gt 0
    try bench run --shape "$scratch/$name.json" -p 1 -n 0 -r 1 --kv f16 --format json -q
    check "$name: as many as \`plan\` counts" test "$(field model_n_params)" = "$planned"
done

# what is refused, and before it is made
fails 1 "llama3.1-405b, random f16 takes 756 GiB of memory, and .* are free" bench run --shape llama3.1-405b --weights f16
fails 1 "--shape deepseek-v3: it has" bench run --shape deepseek-v3
of_type qwen2 experts '"num_local_experts": 4, "num_experts_per_tok": 2'
fails 1 "it has norms, biases, windows or experts as no architecture that Pleat runs" bench run --shape "$scratch/experts.json"
fails 2 "--shape 'lama3-8b': no such model is known; the nearest is 'llama3-8b'" bench run --shape lama3-8b
fails 2 "--weights: 'q3_9' is none of q8_0, q4_0, .*, f16, bf16" bench run --shape llama3-8b --weights q3_9
fails 2 "--weights needs --shape: a file has its own" bench run -m "$MODEL" --weights q4_0
fails 2 "--shape and -m exclude each other: give one model" bench run -m "$MODEL" --shape llama3-8b
fails 1 "cannot read /no/config.json" bench run --shape /no/config.json
config odd '"head_dim": 16, "intermediate_size": 100'
fails 1 "rows are no multiple of 32 weights" bench run --shape "$scratch/odd.json"
sed 's/"vocab_size": 1000/"vocab_size": 255/' "$scratch/small.json" >"$scratch/few.json"
fails 1 "a vocabulary of fewer than 256 tokens" bench run --shape "$scratch/few.json"
fails 1 "smollm2-135m, random q4_k: rows of token_embd.weight have 576 weights, no multiple of the 256 of a block" \
    bench run --shape smollm2-135m --weights q4_k
echo '{}' >"$scratch/empty.json"
fails 1 "num_hidden_layers is missing" bench run --shape "$scratch/empty.json"
finish
