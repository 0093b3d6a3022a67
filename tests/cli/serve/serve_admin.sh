#!/bin/bash
# SPDX-License-Identifier: MIT
# ctest-labels: slow
#
# serve_admin.sh: /admin/prefixes of `pleat serve`, as an operator uses it: the prefixes of a system prompt are listed, one is
# pinned and outlives a flood of others, one is compressed, all are dropped; and nobody else may.
. "$(dirname "${BASH_SOURCE[0]}")/../harness.bash"
. "$ROOT/tests/cli/serve/server.bash"

printf 'root admin=on\nuser\nsea tenant=sea\n' >"$scratch/keys"
# text N M: N bytes of prose from M on, as JSON
text() { tail -c +$(($2 + 1)) "$ROOT/eval/prose.txt" | head -c "$1" | python3 -c 'import json, sys; print(json.dumps(sys.stdin.buffer.read().decode(errors="ignore")))'; }
as() { headers=(-H "Content-Type: application/json" -H "Authorization: Bearer $1"); }
# reads KEY N M [FIELDS]: a completion reads a prompt;  act JSON: as the administrator
reads() {
    as "$1"
    ask /v1/completions "{\"prompt\": $(text "$2" "$3"), \"max_tokens\": 8, \"temperature\": 0, \"ignore_eos\": true${4:-}}"
    as root
}
act() { ask /admin/prefixes "$1"; }
list() { ask /admin/prefixes; }
cached() { [ "$(pick "a['usage']['prompt_tokens_details']['cached_tokens']")" = "$1" ]; }

start "$MODEL" -np 2 -t 2 -c 2048 --prefix-tokens 512 --kv k8v4 --kv leankv --kv leankv:ah=1,al=0.5,window=64 --pool-bytes 36MiB --grace 1 \
    --api-key-file "$scratch/keys" || exit 1

# Who may
as user
list
check "a key that is no administrator's is refused" test "$code" = 403
check "and told which would do" holds "a['error']['type'] == 'permission_error' and 'admin=on' in a['error']['message']"
act '{"action": "drop", "id": 3}'
check "nor may it act" test "$code" = 403
as nobody
list
check "no key: 401" test "$code" = 401
as root
list
check "nothing is kept yet" holds "a == {'object': 'list', 'data': []}"
ask /v1/models
check "an administrator may ask what others do" test "$code" = 200

# A system prompt, which many will send
reads user 6000 0
said=$(pick "a['choices'][0]['text']")
list
check "its prefixes are listed" holds "sorted(p['tokens'] for p in a['data']) == [512, 1024] and
    {p['kv'] for p in a['data']} == {'k8v4'}"
check "with what they hold" holds "all(p['bytes'] > 0 and not p['pinned'] and p['users'] == 0 and p['tenant'] == '' and
    p['cache_salt'] == '' for p in a['data'])"
check "each knows whose child it is" holds "[p['parent'] for p in sorted(a['data'], key=lambda p: p['tokens'])] ==
    [None, min(a['data'], key=lambda p: p['tokens'])['id']]"
check "and their words" holds "all($(text 20 0)[:20] in p['begins'] and p['ends'].strip() for p in a['data'])"
act "{\"action\": \"pin\", \"prompt\": $(text 6000 0)}"
check "the longest of a prompt is pinned" holds "a['pinned'] and a['tokens'] == 1024"
id=$(pick "a['id']")
act "{\"action\": \"pin\", \"prompt\": $(text 6000 0), \"kv\": \"leankv\"}"
check "in another spec there is none" holds "a['error']['code'] == 404 and 'multiple of 512' in a['error']['message']"
act "{\"action\": \"pin\", \"prompt\": $(text 6000 0), \"tenant\": \"sea\"}"
check "nor of another tenant" test "$code" = 404
for i in 1 2 3 4 5; do reads user 6000 $((7000 * i)); done
list
check "others have filled the pool, and gone" holds "len(a['data']) < 12"
check "the pinned one and the one above stay" holds "sum(p['pinned'] for p in a['data']) == 1 and
    {p['id'] for p in a['data']} >= {$id, [p['parent'] for p in a['data'] if p['pinned']][0]}"
reads user 6000 0
check "who comes begins from it" cached 1024
check "and is told the same" test "$(pick "a['choices'][0]['text']")" = "$said"
act "{\"action\": \"drop\", \"id\": $id}"
check "a pinned one is not dropped" holds "a['error']['code'] == 409 and a['error']['type'] == 'conflict_error'"
act "{\"action\": \"compress\", \"id\": $id, \"ah\": 8}"
check "nor compressed where the spec has no thresholds" holds "a['error']['code'] == 400 and 'k8v4' in a['error']['message']"
act "{\"action\": \"unpin\", \"id\": $id}"
check "it is pinned no longer" holds "a['id'] == $id and not a['pinned']"
act "{\"action\": \"drop\", \"id\": $id}"
check "now it is" holds "a == {'id': $id, 'dropped': 1}"
act "{\"action\": \"pin\", \"id\": $id}"
check "and known no more" holds "a['error']['code'] == 404 and a['error']['param'] == 'id'"
reads user 6000 0
check "who comes computes it" cached 512
check "and says the same" test "$(pick "a['choices'][0]['text']")" = "$said"

# Compressed, of a tenant
reads sea 6000 0 ', "kv": "leankv", "cache_salt": "tide"'
list
check "leankv's are listed with thresholds and whose they are" holds "{(p['tenant'], p['cache_salt'], p['ah'] > 0)
    for p in a['data'] if p['kv'].startswith('leankv')} == {('sea', 'tide', True)}"
before=$(pick "[p['bytes'] for p in a['data'] if p['kv'].startswith('leankv') and p['tokens'] == 512][0]")
act "{\"action\": \"compress\", \"prompt\": $(text 3000 0), \"kv\": \"leankv\", \"tenant\": \"sea\", \"cache_salt\": \"tide\", \"ah\": 100}"
check "one is compressed" holds "a['tokens'] == 512 and a['ah'] == 100"
check "and holds less" holds "a['bytes'] < $before"
reads sea 6000 0 ', "kv": "leankv", "cache_salt": "tide"'
check "who comes begins from it" cached 512
act "{\"action\": \"compress\", \"prompt\": $(text 3000 0), \"kv\": \"leankv\", \"tenant\": \"sea\", \"cache_salt\": \"tide\", \"ah\": 20}"
check "not by lower thresholds" test "$code" = 400
reads sea 3000 0 ', "kv": "leankv:ah=1,al=0.5,window=64"'
act "{\"action\": \"compress\", \"prompt\": $(text 3000 0), \"kv\": \"leankv:ah=1,al=0.5,window=64\", \"tenant\": \"sea\", \"ah\": 100}"
check "the threshold that is left out stays" holds "a['ah'] == 100 and a['al'] == 0.5"

# What is no action
for wrong in '{}' '[]' '{"action": "list"}' '{"action": "drop"}' '{"action": "drop", "id": "3"}' '{"action": "drop", "id": -1}' \
    '{"action": "drop", "id": 1e300}' '{"action": "compress", "id": 40}' '{"action": "pin", "prompt": 3}' \
    '{"action": "pin", "prompt": "x", "kv": "f32"}' '{"action": "pin", "messages": [{}]}'; do
    act "$wrong"
    check "$wrong is refused" test "$code" = 400 -o "$code" = 404
done
raw "DELETE /admin/prefixes HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer root\r\nConnection: close\r\n\r\n"
check "another method is named" grep -q "^Allow: GET, HEAD, POST" <<<"$stdout"
for i in 1 2 3 4; do # clients that leave while they are asked for
    exec 9<>"/dev/tcp/127.0.0.1/${url##*:}"
    printf 'GET /admin/prefixes HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer root\r\n\r\n' >&9
    exec 9>&-
done
list
check "it goes on" test "$code" = 200
stop
check "SIGTERM ends it with 0" exits 0

# Without keys there is no administrator
headers=(-H "Content-Type: application/json")
start "$MODEL" -np 1 -t 1 -c 128 --grace 1
list
check "without keys nobody is one" test "$code" = 403
stop
finish
