#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# fuzz.sh [SECONDS]: build the libFuzzer programs with clang, ASan and UBSan, and run each for SECONDS (60), from the
# committed corpus, as many at once as there are CPUs.  What a target prints comes when it has ended.  What it finds
# lands in build/fuzz/NAME: new inputs in corpus/, failures as crash-* files.
# A failure that is fixed goes to tests/fuzz/corpus/NAME, so that every later `make test` replays it.
# Goes through all targets and prints "N passed, N failed" last, one a target.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
tools/build.sh build/fuzz -q -t test_programs -DCMAKE_C_COMPILER=clang -DPLEAT_FUZZ=ON -DPLEAT_TESTS=OFF -DPLEAT_DEBUG=OFF

# fuzz NAME: its log and its status stay in build/fuzz/NAME.
fuzz() {
    local name=$1 found=build/fuzz/$1 status=0
    mkdir -p "$found/corpus"
    "build/fuzz/tests/fuzz_$name" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=1024 -timeout=10 \
        -artifact_prefix="$found/" -print_final_stats=1 "$found/corpus" "tests/fuzz/corpus/$name" \
        > "$found/log" 2>&1 || status=$?
    echo $status > "$found/status"
    echo "== $name: $seconds s"
    cat "$found/log"
    [ $status = 0 ] || echo "FAIL fuzz_$name: what broke it is in $found"
}

names=$(basename -s .c tests/fuzz/fuzz_*.c | sed 's/^fuzz_//')
for name in $names; do
    rm -f "build/fuzz/$name/status"
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
    fuzz "$name" &
done
wait

passed=0 failed=0
for name in $names; do
    if [ "$(cat "build/fuzz/$name/status")" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
