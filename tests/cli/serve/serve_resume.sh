#!/bin/bash
# SPDX-License-Identifier: MIT
#
# serve_resume.sh: a conversation is gone on with by the id of its last answer, with the new message alone: what is said is what
# the whole history brings, in the same server, in another of its store, and after a restart; and nobody else finds it.
. "$(dirname "${BASH_SOURCE[0]}")/../harness.bash"
. "$ROOT/tests/cli/serve/server.bash"

printf 'sea tenant=sea\nland tenant=land\n' >"$scratch/keys"
as() { headers=(-H "Content-Type: application/json" -H "Authorization: Bearer $1"); }
# chat FIELDS MESSAGE...: a chat with these messages, the user's and the answers in turn;  answered: $text, $id and $n_cached
chat() {
    ask /v1/chat/completions "$(python3 -c 'import json, sys
messages = [{"role": ["user", "assistant"][i % 2], "content": text} for i, text in enumerate(sys.argv[2:])]
body = {"messages": messages, "temperature": 0, "max_tokens": 12, "ignore_eos": True}
print(json.dumps({**body, **json.loads(sys.argv[1])}))' "$@")"
}
answered() {
    text=$(pick "a['choices'][0]['message']['content']")
    id=$(pick "a['id']")
    n_cached=$(pick "a['usage']['prompt_tokens_details']['cached_tokens']")
}
serves() { start "$MODEL" -np 2 -t 2 -c 2048 --pool-bytes 64MiB --grace 1 --api-key-file "$scratch/keys" "$@"; }
in_memory() { ask /metrics && grep -q "^pleat_conversations{.*} $1\$" "$scratch/out"; }
goes_on() { chat "{\"previous_response_id\": \"$1\"${3:-}}" "$2"; }
first=$(head -c 1500 "$ROOT/eval/prose.txt") second="And what came then?" third="Who said so?"

# Memory alone
as sea
serves || exit 1
chat '{"store": true}' "$first"
answered
one=$text one_id=$id
n_prompt=$(pick "a['usage']['prompt_tokens']")
chat '{"store": true}' "$first" "$one" "$second"
answered
two=$text
goes_on "$one_id" "$second" ', "store": true'
answered
two_id=$id
check "gone on with by its id it says what the whole history brings" test "$text" = "$two"
check "and began where the first prompt ended" test "$n_cached" -ge $((n_prompt - 1))
check "each answer has another id" test "$two_id" != "$one_id"
chat '{"prompt_cache_key": "k"}' "$first" "$one" "$second" "$two" "$third"
answered
three=$text
goes_on "$two_id" "$third"
answered
check "a third turn, too" test "$text" = "$three"
goes_on "$id" "$third"
check "what was not to be stored is not" test "$code" = 404
goes_on "$one_id" "$second"
answered
check "an earlier answer can be gone on with again" test "$text" = "$two"
goes_on "$one_id" "$second" ', "stream": true, "store": true'
stream_id=$(sed -n 's/^data: {"id":"\([^"]*\)".*/\1/p' "$scratch/out" | head -1)
goes_on "$stream_id" "$third"
answered
check "a stream is kept, too" test "$text" = "$three"
check "conversations are counted" in_memory 4

# Who knows an id may go on from it, so none is shown
curl -s -m 600 "${headers[@]}" "$url/v1/chat/completions" -d '{"messages": [{"role": "user", "content": "Go"}], "store": true,
    "stream": true, "max_tokens": 1500, "ignore_eos": true}' >"$scratch/long" &
long=$!
check "a stream names its id" await grep -q '^data: {"id":"chatcmpl-' "$scratch/long"
ask /slots
check "which no list of texts shows" holds "'chatcmpl' not in str(a) and isinstance(a[0]['id_task'], int)"
kill $long

# Who may not, and what is none
as land
goes_on "$two_id" "$third"
check "another tenant finds nothing" holds "a['error']['param'] == 'previous_response_id' and a['error']['code'] == 404"
hidden=$(sed 's/'"$two_id"'//' "$scratch/out")
goes_on "chatcmpl-00000000000000000000000000000000" "$third"
check "and hears what he hears of an id that nobody had" test "$(cat "$scratch/out")" = "$hidden"
check "which says what would do" holds "'store' in a['error']['message'] and 'all messages' in a['error']['message']"
as sea
goes_on "$two_id" "$third" ', "cache_salt": "x"'
check "nor does another salt" test "$code" = 404
goes_on "" "$third"
check "an empty id is none" test "$code" = 404
goes_on "$(printf 'x%.0s' {1..5000})" "$third"
check "nor is a long one" test "$code" = 404
chat '{"previous_response_id": 7}' "$third"
check "an id is a string" holds "a['error']['code'] == 400 and a['error']['param'] == 'previous_response_id'"
chat "{\"previous_response_id\": \"$two_id\", \"messages\": []}" "$third"
check "something new has to be said" test "$code" = 400
chat '{"store": true, "n": 2}' "$third"
check "one answer is kept" holds "a['error']['code'] == 400 and a['error']['param'] == 'n'"
chat '{"store": true, "continue_final_message": true}' "$third"
check "whole messages are" test "$code" = 400
ask /v1/completions "{\"prompt\": \"The\", \"previous_response_id\": \"$two_id\"}"
check "completions have no conversations" test "$code" = 400
stop
serves
goes_on "$two_id" "$third"
check "memory does not outlive the server" test "$code" = 404
stop
check "it ends with 0" exits 0

# With a store
if serves --store "$scratch/store"; then
    chat '{"store": true}' "$first"
    answered
    chat '{"store": true, "previous_response_id": "'"$id"'"}' "$second"
    answered
    check "with a store the same is said" test "$text" = "$two"
    two_id=$id
    stop
    serves --store "$scratch/store"
    check "a new server has none in memory" in_memory 0
    as land
    goes_on "$two_id" "$third"
    check "another tenant finds nothing in the store" test "$code" = 404
    as sea
    goes_on "$two_id" "$third" ', "cache_salt": "x"'
    check "nor another salt" test "$code" = 404
    goes_on "chatcmpl-00000000000000000000000000000000" "$third"
    check "an id that nobody had is none" test "$code" = 404
    goes_on "$two_id" "$third" ', "store": true'
    answered
    check "after a restart it goes on" test "$text" = "$three"
    check "from where its last prompt ended" test "$n_cached" -gt $((n_prompt - 1))
    goes_on "$two_id" "$third" ', "stream": true'
    check "in a stream, too" grep -q '^data: \[DONE\]' "$scratch/out"
    image=$(grep -la "And what came then" "$scratch/store"/*.img | head -1)
    capture "$PLEAT" image verify "$image"
    check "it is an image that verifies" exits 0
    stop
    for image in $(grep -la "And what came then" "$scratch/store"/*.img); do
        printf 'X' | dd of="$image" bs=1 seek=$(($(stat -c %s "$image") - 9)) conv=notrunc 2>"$scratch/dd"
    done
    serves --store "$scratch/store"
    goes_on "$two_id" "$third"
    check "a damaged one is none" test "$code" = 404
    stop
    check "it ends with 0" exits 0
elif ! grep -q "no SQLite" "$scratch/server"; then
    check "it starts" false
fi
finish
