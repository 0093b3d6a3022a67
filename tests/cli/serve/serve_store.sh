#!/bin/bash
# SPDX-License-Identifier: MIT
# ctest-labels: slow
#
# serve_store.sh: `pleat serve --store`: what one server has read, the next one begins from, and says the same; a folder that
# is damaged or full, a server of Redis's that dies, cost only time.  Without redis-server that part is skipped.
. "$(dirname "${BASH_SOURCE[0]}")/../harness.bash"
. "$ROOT/tests/cli/serve/server.bash"

prompt=$(head -c 3000 "$ROOT/eval/prose.txt" | python3 -c 'import json, sys; print(json.dumps(sys.stdin.read()))')

# asks FILE [SALT]: the answer's text, in FILE; SALT as JSON has it
asks() {
    ask /v1/completions "{\"prompt\": $prompt, \"temperature\": 0, \"max_tokens\": 16, \"ignore_eos\": true,
        \"cache_salt\": \"${2:-}\"}"
    pick "a['choices'][0]['text']" >"$1"
}
cached() { pick "a['usage']['prompt_tokens_details']['cached_tokens']"; }
serves() { start "$MODEL" -np 2 -t 2 -c 2048 --pool-bytes 256MiB --grace 1 "$@"; }
has_written() { [ "$(count pleat_store_written_bytes_total)" -gt 0 ]; }
has_failed() { [ "$(count pleat_store_failed_total)" -gt 0 ]; }

# ---- a folder
if serves --store "$scratch/store"; then
    asks "$scratch/first"
    check "the first reads all of it" test "$(cached)" = 0
    check "a prefix is written" await has_written
    stop
    check "SIGTERM ends it with 0" exits 0
elif grep -q "no SQLite" "$scratch/server"; then
    skip "this build has no SQLite"
else
    check "it starts" false
fi
if [ -f "$scratch/first" ]; then
    serves --store "$scratch/store"
    asks "$scratch/second"
    check "the next begins from what is stored" test "$(cached)" -ge 512
    check "and says the same" cmp "$scratch/first" "$scratch/second"
    check "which is counted" gauge pleat_store_hits_total 1
    stop
    image=$(ls "$scratch"/store/*.img | head -1)
    try image verify "$image"
    check "what is stored is an image file" exits 0
    try image inspect "$image"
    check "which says what it is of" prints "k8v4"
    for file in "$scratch"/store/*.img; do
        printf 'x' | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") / 2)) conv=notrunc status=none
    done
    try image verify "$image"
    check "one that is damaged is none" exits 1
    serves --store "$scratch/store"
    asks "$scratch/third"
    check "nothing begins from it" test "$(cached)" = 0
    check "and the same is said" cmp "$scratch/first" "$scratch/third"
    check "which is counted, too" test "$(curl -s "$url/metrics" | sed -n 's/^pleat_store_misses_total{.*"damaged"} //p')" = 1
    stop

    # A disk that is full: no file may be longer than this, and who is told so by a signal would end
    printf '#!/bin/bash\ntrap "" XFSZ\nulimit -f 200\nexec "%s" "$@"\n' "$PLEAT" >"$scratch/full"
    chmod +x "$scratch/full"
    whole=$PLEAT PLEAT=$scratch/full
    serves --store "$scratch/small"
    asks "$scratch/fourth"
    check "on a full disk the same is said" cmp "$scratch/first" "$scratch/fourth"
    check "and what could not be written is counted" await has_failed
    asks "$scratch/fourth"
    check "from memory, too" cmp "$scratch/first" "$scratch/fourth"
    stop
    check "and it ends with 0" exits 0
    PLEAT=$whole

    mkdir -p "$scratch/taken/index.sqlite"
    fails 1 "the index .*/taken/index.sqlite: .*: Is a directory" serve -m "$MODEL" --store "$scratch/taken" --port 0
fi

# ---- a tenant, and a server of the same folder that asks for no key
if [ -f "$scratch/first" ]; then
    echo "secret tenant=alice" >"$scratch/keys"
    headers+=(-H "Authorization: Bearer secret")
    serves --store "$scratch/shared" --api-key-file "$scratch/keys"
    asks "$scratch/alice"
    stop # what is queued is written then
    check "a tenant's prefix is written" test -n "$(ls "$scratch/shared" | grep img)"
    serves --store "$scratch/shared"
    for salt in "" alice 'alice\n'; do
        asks "$scratch/other" "$salt"
        check "without her key nobody has it: '$salt'" test "$(cached)" = 0
    done
    stop
    serves --store "$scratch/shared" --api-key-file "$scratch/keys"
    asks "$scratch/other"
    check "with it she has" test "$(cached)" -ge 512
    stop
    unset 'headers[-1]' 'headers[-1]'
fi
if [ -f "$scratch/first" ]; then
    made=(bench serve -m "$MODEL" --synthetic fixed:prompt=600,output=2 --requests 2 --pool-bytes 64MiB --kv k8v4 -q --format json
        --store "$scratch/made")
    try "${made[@]}"
    check "bench serve computes what is not stored" test "$(field prefix_hits)" = 0
    try "${made[@]}"
    check "and begins from what is" test "$(field prefix_hits)" = 2
fi
try serve -m "$MODEL" --store "$MODEL/below"
check "a folder that cannot be is refused" test "$code" = 1
try serve -m "$MODEL" --store "$scratch/store" --store-ttl 5
check "a folder forgets nothing by the clock" says "store-ttl is of servers"
try bench serve -m "$MODEL" --synthetic fixed --pool-bytes 64MiB --simulate --store "$scratch/made"
check "a simulation stores nothing" says "nothing is stored in a simulation"

# ---- servers
try serve -m "$MODEL" --store redis://127.0.0.1
if [[ $stderr == *hiredis* ]]; then
    skip "this build has no hiredis"
elif ! command -v redis-server >/dev/null; then
    skip "there is no redis-server"
else
    check "an address without a port is refused" says "HOST:PORT"
    try serve -m "$MODEL" --store redis://127.0.0.1:1 --store-bytes 1MiB
    check "how much servers keep is theirs to say" says "maxmemory"
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    redis-server --port "$port" --save "" --bind 127.0.0.1 >/dev/null &
    redis=$!
    trap 'kill $server $redis 2>/dev/null; rm -rf "$scratch"' EXIT
    until (exec 8<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do sleep 0.05; done
    serves --store "redis://127.0.0.1:$port"
    asks "$scratch/one"
    check "servers: a prefix is written" await has_written
    stop
    serves --store "redis://127.0.0.1:$port"
    asks "$scratch/two"
    check "servers: the next begins from it" test "$(cached)" -ge 512
    check "servers: and says the same" cmp "$scratch/one" "$scratch/two"
    kill -9 $redis
    wait $redis 2>/dev/null
    prompt=\"Another.\ ${prompt:1}
    asks "$scratch/three"
    check "servers: one that is dead is missed by nobody" test "$(cached)" = 0
    check "servers: but said" gauge pleat_store_servers_down 1
    stop
    check "servers: it ends with 0" exits 0
    serves --store "redis://127.0.0.1:$port"
    check "servers: a note says so at the start" grep -q "note: --store: 1 of 1 servers did not answer" "$scratch/server"
    asks "$scratch/four"
    check "servers: nor at the start" cmp "$scratch/three" "$scratch/four"
    stop
fi
finish
