#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# build.sh DIR [-q] [-t TARGETS] [CMAKE_ARG...]: configure DIR, if that is to be done, and build TARGETS in it, one word
# with blanks between them (all: the command and the libraries; empty: only configure), with ninja, or with make where
# there is none.
#   -q   print progress on a terminal, and everything if it fails; the log is DIR/build.log
#
# Where there is ccache, objects compiled before are taken from it, unless CMAKE_C_COMPILER_LAUNCHER says otherwise in the
# environment or in CMAKE_ARG; empty in the environment: no launcher.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/progress.bash

dir=$1
shift
quiet=0
targets=all
while [ $# -gt 0 ]; do
    case $1 in
        -q) quiet=1 ;;
        -t)
            targets=$2
            shift
            ;;
        *) break ;;
    esac
    shift
done

missing=""
command -v cmake > /dev/null || missing=cmake
# Only where cmake would look for it: it may have been told of another.
if [ -z "$missing" ] && [ ! -f "$dir/CMakeCache.txt" ] && [[ "$*" != *_COMPILER=* && "$*" != *TOOLCHAIN_FILE=* ]]; then
    [ -n "${CC:-}" ] || command -v cc gcc clang > /dev/null || missing="a C compiler"
fi
if [ -n "$missing" ]; then
    echo "build: $missing is missing: run tools/setup.sh run first (make run and make test do)" >&2
    exit 1
fi

if [ -z "${CMAKE_C_COMPILER_LAUNCHER+chosen}" ] && command -v ccache > /dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache
    [ -n "${CMAKE_CXX_COMPILER_LAUNCHER+chosen}" ] || export CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi

build() {
    if [ ! -f "$dir/build.ninja" ] && [ ! -f "$dir/Makefile" ]; then
        rm -f "$dir/CMakeCache.txt" # left by a configure that failed
        local generator="Unix Makefiles"
        if command -v ninja > /dev/null; then
            generator=Ninja
        fi
        cmake -S . -B "$dir" -G "$generator" "$@" || return
    elif [ $# -gt 0 ]; then
        cp "$dir/CMakeCache.txt" "$dir/CMakeCache.txt.before"
        if ! cmake -S . -B "$dir" "$@"; then
            mv "$dir/CMakeCache.txt.before" "$dir/CMakeCache.txt" # what was refused is not asked for again
            return 1
        fi
        rm "$dir/CMakeCache.txt.before"
    fi
    [ -z "$targets" ] || cmake --build "$dir" --parallel "$(nproc)" --target $targets
}

if [ $quiet = 0 ]; then
    build "$@"
else
    mkdir -p "$dir"
    if ! with_progress building "$dir/build.log" build "$@"; then
        cat "$dir/build.log"
        exit 1
    fi
fi
