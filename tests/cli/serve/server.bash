# SPDX-License-Identifier: MIT
#
# server.bash: a server and who asks it, for scripts that have read harness.bash.  Without libevent, curl or python3 the rest
# of such a script is skipped.
if "$PLEAT" --version | grep -q "no libevent"; then
    skip "this build has no libevent"
    finish
    exit
fi
needs curl
needs python3
export PYTHONDONTWRITEBYTECODE=1

# await COMMAND...: until it succeeds; fails after a time that nothing takes, or when the server has ended.
await() {
    local end=$((SECONDS + 600))
    until "$@"; do
        kill -0 $server 2>/dev/null && [ $SECONDS -lt $end ] || return 1
        sleep 0.05
    done
}

# start MODEL ARGS...: a server at $url, whose words are in $scratch/server.  A sanitizer that keeps what is freed would
# count as the server's memory.
start() {
    : >"$scratch/server"
    ASAN_OPTIONS=${ASAN_OPTIONS:-}:quarantine_size_mb=1 "$PLEAT" serve -m "$@" -a small --port 0 2>"$scratch/server" &
    server=$!
    if ! await grep -q " on https\?://.*/v1 " "$scratch/server"; then
        echo "no server: $(cat "$scratch/server")"
        return 1
    fi
    url=$(sed -n 's|.* on \(https\?\)://[^/]*:\([0-9]*\)/v1 .*|\1://127.0.0.1:\2|p' "$scratch/server")
}

# stop: SIGTERM; leaves $code.
stop() {
    kill -TERM $server
    wait $server
    code=$?
}
trap 'kill $server 2>/dev/null; rm -rf "$scratch"' EXIT

# ask PATH [JSON]: the answer in $stdout and $scratch/out, its status in $code.
ask() {
    local path=$1
    shift
    code=$(curl -s -m 600 -o "$scratch/out" -w '%{http_code}' "${headers[@]}" "$url$path" ${1+-d "$1"})
    stdout=$(cat "$scratch/out") stderr=
}
headers=(-H "Content-Type: application/json")

# pick EXPRESSION: of the last answer, as Python names it from `a`.  One Python looks at all of them.
coproc PICKER {
    python3 -ISc '
import json, sys
for line in sys.stdin:
    try:
        print(eval(line, {"a": json.load(open(sys.argv[1]))}), end="\0", flush=True)
    except Exception as error:
        print(repr(error), end="\0", flush=True)' "$scratch/out"
}
pick() {
    local picked
    printf '%s\n' "${1//$'\n'/ }" >&"${PICKER[1]}"
    IFS= read -r -d '' picked <&"${PICKER[0]}"
    printf '%s\n' "$picked"
}
holds() { [ "$(pick "$1" 2>&1)" = True ]; }

# raw TEXT: send bytes (printf's escapes) to the server; what it says first, and the rest until it ends the connection.
raw() {
    exec 9<>"/dev/tcp/127.0.0.1/${url##*:}" || return
    # shellcheck disable=SC2059
    printf "$1" >&9
    stdout=$(timeout 600 cat <&9 | tr -d '\0')
    exec 9>&-
}

# count NAME: a number of /metrics, the first of that name;  gauge NAME N: is it N?
count() { curl -s -m 600 "$url/metrics" | sed -n "s/^$1{[^}]*} //p" | head -1; }
gauge() { [ "$(count "$1")" = "$2" ]; }
aborted() { curl -s -m 600 "$url/metrics" | sed -n 's/.*finished_reason="abort"} //p'; }

# strange NAME...: clients that are odd, one check each
strange() {
    local name
    for name in "$@"; do
        capture python3 "$ROOT/tests/cli/serve/stranger.py" "${url##*:}" "$server" "$name"
        check "stranger.py $name" exits 0
    done
}
