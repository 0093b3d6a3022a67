# SPDX-License-Identifier: MIT
#
# soak.sh: `pleat serve` at ten times what it takes, for SOAK_MINUTES (30): 500 good clients, whose answers have to be those
# of questions asked alone, beside 500 that vanish, stall, read slowly, send half a head, half a body, 100 MB, bad UTF-8, deep
# JSON or noise (tests/cli/serve/bad.py), at a server that takes 107 texts.  Then the pool is exact, memory was bounded and
# has been flat (of ten minutes or more), and SIGTERM among 100 streams ends each well-formed.
#
#     PLEAT=build/pleat ROOT=$PWD SOAK_MINUTES=2 bash tests/long/soak.sh
#
# SOAK_MEMORY: MiB that the server may take at most (1024); 0: memory is not judged, as of a build with a sanitizer.
. "$ROOT/tests/cli/harness.bash"
. "$ROOT/tests/cli/serve/server.bash"

specs=(f16 k8v4 "leankv:ah=1,al=0.02,window=32" kvcomp)
start "$MODEL" -np 8 --queue 99 --connections 1100 -t 2 -c 1024 --grace 2 --pool-bytes 48MiB --swap-bytes 64MiB \
    "${specs[@]/#/--kv=}" || exit 1
python3 "$ROOT/tests/cli/serve/soak.py" "${url##*:}" "$server" "$(awk "BEGIN { print ${SOAK_MINUTES:-30} * 60 }")" 1000 \
    "${SOAK_MEMORY:-1024}" "${specs[@]}" 2>"$scratch/err"
code=$? stdout='' stderr=$(tail -n 3 "$scratch/err")
check "good clients, memory, pool and streams" exits 0
[ $code = 0 ] || kill -TERM $server 2>/dev/null
wait $server
code=$? stderr=$(tail -n 5 "$scratch/server")
check "SIGTERM ends it with 0" exits 0
finish
