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

missing=""
command -v cmake > /dev/null || missing=cmake
# Only where cmake would look for them: it may have been told of others.
if [ -z "$missing" ] && [ ! -f "$dir/CMakeCache.txt" ] && [[ "$*" != *_COMPILER=* && "$*" != *TOOLCHAIN_FILE=* ]]; then
    [ -n "${CC:-}" ] || command -v cc gcc clang > /dev/null || missing="a C compiler"
    [ -n "${CXX:-}" ] || command -v c++ g++ clang++ > /dev/null || missing=${missing:-a C++ compiler}
fi
if [ -n "$missing" ]; then
    echo "build: $missing is missing: run tools/setup.sh run first (make run and make test do)" >&2
    exit 1
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
        cp "$dir/CMakeCache.txt" "$dir/CMakeCache.txt.before"
        if ! cmake -S . -B "$dir" "$@"; then
            mv "$dir/CMakeCache.txt.before" "$dir/CMakeCache.txt" # what was refused is not asked for again
            return 1
        fi
        rm "$dir/CMakeCache.txt.before"
    fi
    cmake --build "$dir" --parallel "$(nproc)"
}

if [ $quiet = 0 ]; then
    build "$@"
else
    mkdir -p "$dir"
    [ -f "$dir/build.ninja" ] || [ -f "$dir/Makefile" ] ||
        echo "building: some minutes the first time, longer where nvcc is found (CMAKE_ARGS=-DPLEAT_CUDA=off leaves the GPU out)" >&2
    build "$@" > "$dir/build.log" 2>&1 &
    while kill -0 $! 2> /dev/null; do
        [ ! -t 2 ] || printf '\rbuilding %s ' "$(grep -aoE '^\[ *[0-9]+[/%][0-9]*\]' "$dir/build.log" | tail -n 1)" >&2
        sleep 0.5
    done
    [ ! -t 2 ] || printf '\r%24s\r' "" >&2
    if ! wait $!; then
        cat "$dir/build.log"
        exit 1
    fi
fi
