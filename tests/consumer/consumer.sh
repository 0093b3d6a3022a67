#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# consumer.sh DIR: install the build DIR below a fresh prefix, move that elsewhere, and use it from there as a stranger
# would: what is installed, pkg-config shared and static, the examples, CMake package shared and static, C and C++.
set -uo pipefail
build=$(realpath "$1")
cd "$(dirname "$0")"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. ./try.bash

prefix=$work/moved
install_and_move() {
    cmake --install "$build" --prefix "$work/first" > "$work/install.log" || return
    mv "$work/first" "$prefix" # nothing may depend on where it was first
}

files_are_there() {
    local lib
    lib=$(dirname "$(find "$prefix" -name libpleat.a)")
    for file in include/pleat/pleat.h include/pleat/cache.h bin/pleat; do
        [ -f "$prefix/$file" ] || { echo "missing: $file"; return 1; }
    done
    [ -L "$lib/libpleat.so" ] && [ -L "$lib/libpleat.so.1" ] && [ -f "$lib/pkgconfig/pleat.pc" ] &&
        [ -f "$lib/cmake/Pleat/PleatConfig.cmake" ]
}

soname_is_right() { objdump -p "$(find "$prefix" -name libpleat.so)" | grep -q 'SONAME *libpleat.so.1$'; }
no_paths_inside() { [ -d "$prefix" ] && ! grep -rlF "$build" "$prefix" --include='*.cmake' --include='*.pc' --include='*.h'; }
command_runs() { "$prefix/bin/pleat" --version; }

pc() { PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name pleat.pc)") pkg-config "$@"; }
with_libs() { LD_LIBRARY_PATH=$(dirname "$(find "$prefix" -name libpleat.so)") "$@"; }

pkgconfig_c() {
    cc -Wall -Wextra -Werror consumer.c -o "$work/c" $(pc --cflags --libs pleat) -lm && with_libs "$work/c"
}
pkgconfig_cpp() {
    c++ -Wall -Wextra -Werror consumer.cpp -o "$work/cpp" $(pc --cflags --libs pleat) && with_libs "$work/cpp"
}
examples() {
    local name
    for name in embed generate many; do
        cc -Wall -Wextra -Werror "../../examples/$name.c" -o "$work/$name" $(pc --cflags --libs pleat) -lm || return
    done
    with_libs "$work/embed"
}
pkgconfig_static() {
    # The other libraries may stay shared: Debian has no static oneDNN.
    local libs
    libs=$(pc --static --libs pleat | sed 's/-lpleat /-l:libpleat.a /')
    cc -Wall -Wextra -Werror consumer.c -o "$work/static" $(pc --cflags pleat) $libs && "$work/static"
}

cmake_package() {
    cmake -S . -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" &&
        cmake --build "$work/cmake" || return
    local program
    for program in "$work"/cmake/consumer_*; do
        "$program" || return
    done
}

try install install_and_move
try files files_are_there
try soname soname_is_right
try paths no_paths_inside
try command command_runs
try pkgconfig-c pkgconfig_c
try pkgconfig-c++ pkgconfig_cpp
try pkgconfig-static pkgconfig_static
try examples examples
try cmake-package cmake_package
echo "$passed passed, $failed failed"
[ $failed = 0 ]
