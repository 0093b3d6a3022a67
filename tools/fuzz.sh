#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# fuzz.sh [SECONDS]: build the libFuzzer programs with clang, ASan and UBSan, and run each for SECONDS (60), from the
# committed corpus.  What it finds lands in build/fuzz/NAME: new inputs in corpus/, failures as crash-* files.
# A failure that is fixed goes to tests/fuzz/corpus/NAME, so that every later `make test` replays it.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
tools/build.sh build/fuzz -q -DCMAKE_C_COMPILER=clang -DPLEAT_FUZZ=ON -DPLEAT_TESTS=OFF
for source in tests/fuzz/fuzz_*.c; do
    name=$(basename "$source" .c)
    name=${name#fuzz_}
    found=build/fuzz/$name
    mkdir -p "$found/corpus"
    echo "== $name: $seconds s"
    "build/fuzz/tests/fuzz_$name" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=1024 -timeout=10 \
        -artifact_prefix="$found/" -print_final_stats=1 "$found/corpus" "tests/fuzz/corpus/$name"
done
