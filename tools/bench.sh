#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# bench.sh DIR: run the benches that DIR was built with, bench/kernels and bench/allocators.
set -euo pipefail
cd "$(dirname "$0")/.."

for program in "$1"/bench/bench_*; do
    [ -x "$program" ] || continue
    echo "== $(basename "$program")"
    "$program"
done
