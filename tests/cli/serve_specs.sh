#!/bin/bash
# SPDX-License-Identifier: MIT
#
# serve_specs.sh: several KV specs in one `pleat serve`, of which requests choose: each has the text of `pleat run` with its
# spec, alone and all at once; what is not served is refused, and numbers are told by spec.
. "$(dirname "$0")/harness.bash"
. "$ROOT/tests/cli/serve/server.bash"

specs=(k8v4 f16 kvcomp "leankv:ah=1,al=0.02,window=32")
prompt="The old house by the sea had stood there for a hundred years, and"
start "$MODEL" -np 4 -t 2 --grace 1 --pool-bytes 256MiB "${specs[@]/#/--kv=}" || exit 1
check "it names them all" grep -q "KV cache k8v4, f16, kvcomp.*, leankv.*window=32" "$scratch/server"
ask /v1/models
check "and so does the model" holds "[s.split(':')[0] for s in a['data'][0]['kv_specs']] == ['k8v4', 'f16', 'kvcomp', 'leankv'] and
    a['data'][0]['kv'] == 'k8v4'"

# asks SPEC FILE: its text, in FILE
asks() {
    curl -s -m 600 "$url/v1/completions" \
        -d "{\"prompt\": \"$prompt\", \"temperature\": 0, \"max_tokens\": 40${1:+, \"kv\": \"$1\"}}" >"$2"
}
for i in "${!specs[@]}"; do
    "$PLEAT" run -m "$MODEL" -p "$prompt" -n 40 --kv "${specs[i]}" -q >"$scratch/said.$i"
    asks "${specs[i]}" "$scratch/out"
    pick "a['choices'][0]['text']" >"$scratch/text"
    check "${specs[i]} says what pleat run says" cmp "$scratch/text" "$scratch/said.$i"
    check "and is named in the usage" holds "a['usage']['kv'].split(':')[0] == '${specs[i]%%:*}'"
    echo "$(pick "a['usage']['kv_bytes']")" >>"$scratch/bytes"
done
check "f16 holds most" test "$(sort -n "$scratch/bytes" | tail -1)" = "$(sed -n 2p "$scratch/bytes")"
asks "" "$scratch/out"
check "the first is that of requests that name none" holds "a['usage']['kv'] == 'k8v4'"
asks "leankv:window=32,al=0.02,ah=1" "$scratch/out"
check "a spec may be spelled otherwise" holds "a['usage']['kv'].startswith('leankv')"

for i in 0 1 2 3 4 5 6 7 8 9 10 11; do
    asks "${specs[i % 4]}" "$scratch/many.$i" &
    many[i]=$!
done
wait "${many[@]}"
for i in 0 1 2 3 4 5 6 7 8 9 10 11; do
    cp "$scratch/many.$i" "$scratch/out"
    pick "a['choices'][0]['text']" >"$scratch/text"
    check "twelve at once, $i: ${specs[i % 4]}" cmp "$scratch/text" "$scratch/said.$((i % 4))"
done

ask /v1/completions '{"prompt": "a", "kv": "k4v2"}'
check "another is refused by name" holds "a['error']['param'] == 'kv' and
    a['error']['message'].startswith(\"the KV spec 'k4v2' is not served here; these are: k8v4, f16, kvcomp\")"
check "with 400" test "$code" = 400
ask /v1/completions '{"prompt": "a", "kv": 8}'
check "a number is none" holds "a['error']['param'] == 'kv'"
ask /metrics
check "bytes by spec" test "$(grep -c '^pleat_kv_bytes{.*holds="free"' "$scratch/out")" = 4
check "have equal parts of the pool" test "$(sed -n 's/^pleat_kv_bytes{.*kv="\([a-z0-9]*\).*holds="[a-z]*"} /\1 /p' "$scratch/out" |
    awk '{n[$1] += $2} END {for (k in n) ok += n[k] > 60 * 1048576 && n[k] <= 64 * 1048576; print ok}')" = 4
check "tokens by spec" test "$(sed -n 's/^pleat_kv_generated_tokens_total{.*kv="\([a-z0-9]*\).*} /\1=/p' "$scratch/out" | tr '\n' ' ')" = \
    "k8v4=200 f16=160 kvcomp=160 leankv=200 "
check "and together" test "$(count vllm:generation_tokens_total)" = 720

# Who leaves is cancelled in each
for i in 0 1 2 3; do
    curl -s "$url/v1/completions" -d "{\"prompt\": \"The sea\", \"max_tokens\": 3000, \"ignore_eos\": true, \"kv\": \"${specs[i]}\"}" \
        >"$scratch/many.$i" &
    many[i]=$!
done
check "four run" await gauge vllm:num_requests_running 4
kill "${many[0]}" "${many[2]}"
check "two have left" await gauge vllm:num_requests_running 2
stop
check "SIGTERM ends it with 0" exits 0
finish
