#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# fuzz.sh [SECONDS]: build the libFuzzer programs with clang, ASan and UBSan, and run each for SECONDS (60), from the
# committed corpus.  What it finds lands in build/fuzz/NAME: new inputs in corpus/, failures as crash-* files.
# A failure that is fixed goes to tests/fuzz/corpus/NAME, so that every later `make test` replays it.
# Goes through all targets and prints "N passed, N failed" last, one a target.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
tools/build.sh build/fuzz -q -t test_programs -DCMAKE_C_COMPILER=clang -DPLEAT_FUZZ=ON -DPLEAT_TESTS=OFF
passed=0 failed=0
for source in tests/fuzz/fuzz_*.c; do
    name=$(basename "$source" .c)
    name=${name#fuzz_}
    found=build/fuzz/$name
    mkdir -p "$found/corpus"
    echo "== $name: $seconds s"
    if "build/fuzz/tests/fuzz_$name" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=1024 -timeout=10 \
        -artifact_prefix="$found/" -print_final_stats=1 "$found/corpus" "tests/fuzz/corpus/$name"; then
        passed=$((passed + 1))
    else
        echo "FAIL fuzz_$name: what broke it is in $found"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
