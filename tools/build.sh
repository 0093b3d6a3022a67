#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# build.sh DIR [-q] [CMAKE_ARG...]: configure DIR, if that is to be done, and build everything in it with ninja, or
# with make where there is none.  -q: print only when it fails.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$1
shift
quiet=0
if [ "${1:-}" = -q ]; then
    quiet=1
    shift
fi

build() {
    if [ ! -f "$dir/build.ninja" ] && [ ! -f "$dir/Makefile" ]; then
        rm -f "$dir/CMakeCache.txt" # left by a configure that failed
        local generator="Unix Makefiles"
        if command -v ninja > /dev/null; then
            generator=Ninja
        fi
        cmake -S . -B "$dir" -G "$generator" "$@"
    elif [ $# -gt 0 ]; then
        cmake -S . -B "$dir" "$@"
    fi
    cmake --build "$dir" --parallel "$(nproc)"
}

if [ $quiet = 0 ]; then
    build "$@"
else
    mkdir -p "$dir"
    if ! build "$@" > "$dir/build.log" 2>&1; then
        cat "$dir/build.log"
        exit 1
    fi
fi
