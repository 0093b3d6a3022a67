#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# bench.sh DIR: run the kernels' benches that DIR was built with, bench/*.c as bench_NAME.
set -euo pipefail
cd "$(dirname "$0")/.."

for program in "$1"/bench/bench_*; do
    [ -x "$program" ] || continue
    echo "== $(basename "$program")"
    "$program"
done
