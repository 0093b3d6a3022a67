#!/bin/bash
# SPDX-License-Identifier: MIT
#
# serve_events.sh: `pleat serve --events`: what routers hear of kept prefixes is what is kept, also behind a gap; who asks the
# socket for replays something else gets nothing and disturbs nobody.
. "$(dirname "${BASH_SOURCE[0]}")/../harness.bash"
. "$ROOT/tests/cli/serve/server.bash"

events=$ROOT/tests/cli/serve/events.py
read -r pub router < <(python3 -c '
import socket
two = [socket.socket() for _ in range(2)]
for s in two: s.bind(("127.0.0.1", 0))
print(*("tcp://127.0.0.1:%d" % s.getsockname()[1] for s in two))')

# A pool of two prompts, so that prefixes go.
if start "$MODEL" -np 2 -t 2 -c 2048 --pool-bytes 16MiB --kv k8v4 --events "$pub" --events-replay "$router" --events-topic kv; then
    capture python3 "$events" watch "$pub" "$router" "$url"
    check "what is told is what is kept" exits 0
    check "no batch was lost" gauge pleat_events_lost_total 0
    check "and replays are counted" test "$(count pleat_events_replays_total)" -gt 3
    python3 "$events" last "$pub" >"$scratch/last" &
    last=$!
    check "somebody listens" await grep -q here "$scratch/last"
    sleep 0.2 # a subscription has no answer
    stop
    check "it ends with 0" exits 0
    wait $last
    check "its end clears all" grep -q cleared "$scratch/last"
elif grep -qE "no (libzmq|msgpack)" "$scratch/server"; then
    skip "this build has no libzmq or no msgpack"
else
    check "it starts" false
fi
try serve -m "$MODEL" --events-topic kv
check "a topic without events is refused" exits 2
try serve -m "$MODEL" --events nowhere
check "an endpoint that is none is refused" exits 1
check "by name" says "nowhere"
printf precious >"$scratch/file"
try serve -m "$MODEL" --events "ipc://$scratch/file"
check "so is a file's name" exits 1
check "which stays as it was" test "$(cat "$scratch/file")" = precious
if start "$MODEL" -c 512 --pool-bytes 16MiB --events "ipc://$scratch/socket"; then
    try serve -m "$MODEL" --events "ipc://$scratch/socket"
    check "and another server's socket" exits 1
    check "by name" says "in use"
    { kill -KILL $server && wait $server; } 2>/dev/null
    start "$MODEL" -c 512 --pool-bytes 16MiB --events "ipc://$scratch/socket"
    check "one that is left over is taken" test $? = 0
    stop
fi
finish
