#!/bin/bash
# SPDX-License-Identifier: MIT
#
# serve_turns.sh: a conversation with a prompt_cache_key goes on from where its last prompt ended, after a restart too, and says what
# a server says that has nothing kept.
. "$(dirname "${BASH_SOURCE[0]}")/../harness.bash"
. "$ROOT/tests/cli/serve/server.bash"

# turn N [KEY]: the N-th question, behind the earlier ones and their answers, which $scratch/said has
turn() {
    python3 - "$ROOT/eval/prose.txt" "$scratch/said" "$1" ${2+"$2"} >"$scratch/body" <<'EOF'
import json, sys
prose, said, n = open(sys.argv[1]).read(), open(sys.argv[2]).read().split("\0")[:-1], int(sys.argv[3])
messages = []
for i in range(n):
    messages.append({"role": "user", "content": prose[1100 * i : 1100 * (i + 1)]})
    if i + 1 < n:
        messages.append({"role": "assistant", "content": said[i]})
body = {"messages": messages, "temperature": 0, "max_tokens": 12, "ignore_eos": True}
if len(sys.argv) > 4:
    body["prompt_cache_key"] = sys.argv[4]
json.dump(body, sys.stdout)
EOF
    ask /v1/chat/completions "$(cat "$scratch/body")"
    text=$(pick "a['choices'][0]['message']['content']")
    n_prompt=$(pick "a['usage']['prompt_tokens']")
    n_cached=$(pick "a['usage']['prompt_tokens_details']['cached_tokens']")
}
answered() { printf '%s\0' "$text" >>"$scratch/said"; }
# kept N...: of prompts of N tokens each, how many are there already, in $n_kept
kept() {
    n_kept=
    for n; do
        ask /v1/completions "$(python3 -c 'import json, sys
n = int(sys.argv[1])
print(json.dumps({"prompt": [1000 + i * n % 3000 for i in range(n)], "max_tokens": 1, "prompt_cache_key": "k"}))' "$n")"
        n_kept+="$(python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["usage"]["prompt_tokens_details"]["cached_tokens"])' "$scratch/out") "
    done
}
serves() { start "$MODEL" -np 2 -t 2 -c 2048 --pool-bytes 128MiB --grace 1 "$@"; }

: >"$scratch/said"
if serves --store "$scratch/store"; then
    turn 1 mine
    first=$n_prompt first_text=$text
    check "the first turn is no multiple of anything" test $((first % 256)) != 0
    turn 1 mine
    check "asked again, all but its last token is there" test "$n_cached" = $((first - 1))
    check "and the same is said" test "$text" = "$first_text"
    answered
    turn 2 mine
    second=$n_prompt second_text=$text
    check "the next turn goes on from there" test "$n_cached" = $((first - 1))
    answered
    kept 512 513 514
    stop
    serves --store "$scratch/store"
    kept 512 513 514
    check "no chunk of one token is made, which no image has" test "$n_kept" = "510 512 512 "
    turn 2 mine
    check "after a restart too" test "$n_cached" = $((second - 1))
    check "and the same is said" test "$text" = "$second_text"
    turn 3 "another key"
    third=$text
    check "the third goes on from the second" test "$n_cached" = $((second - 1))
    stop
    serves
    turn 3 mine
    check "who has nothing says the same" test "$text" = "$third"
    check "and had nothing" test "$n_cached" = 0
    turn 3
    check "without a key it is read otherwise, from the start" test "$n_cached" = 0
    python3 - "$scratch/body" >"$scratch/bad" <<'EOF'
import json, sys
print(json.dumps({**json.load(open(sys.argv[1])), "prompt_cache_key": 7}))
EOF
    ask /v1/chat/completions "$(cat "$scratch/bad")"
    check "a key is a string" test "$code" = 400
    stop
    check "it ends with 0" exits 0
elif grep -q "no SQLite" "$scratch/server"; then
    skip "this build has no SQLite"
else
    check "it starts" false
fi
finish
