# SPDX-License-Identifier: MIT
#
# headers.bash: each header compiles as the only include of a file; the public ones as C11 and as C++11.

# compiles_alone HEADER COMPILER...: as the only include of a file.
compiles_alone() {
    local header=$1
    shift
    echo "#include \"$header\"" | "$@" -Wall -Wextra -Wno-missing-field-initializers -Werror -fsyntax-only - 2> "$build/lint/cc" && return
    echo "$header: does not compile alone ($1): $(head -n 1 "$build/lint/cc")"
}

check_headers_public() {
    local header
    for header in include/pleat/*.h; do
        compiles_alone "${header#include/}" cc -x c -std=c11 -pedantic -Iinclude
        compiles_alone "${header#include/}" c++ -x c++ -std=c++11 -pedantic -Iinclude
    done
}

check_headers_internal() {
    local header simd="" arm=""
    [ "$(uname -m)" != x86_64 ] || simd="-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx2 -mfma -mf16c"
    ! command -v aarch64-linux-gnu-gcc > /dev/null || arm=aarch64-linux-gnu-gcc
    [ "$(uname -m)" != aarch64 ] || arm=cc
    for header in $(find src -name '*.h' | sort); do
        case $header in
            */x86/*) [ -z "$simd" ] || compiles_alone "${header#src/}" cc -x c -std=c17 -D_GNU_SOURCE -DPLEAT_X86=1 $simd -Iinclude -Isrc ;;
            */arm/*) [ -z "$arm" ] || compiles_alone "${header#src/}" $arm -x c -std=c17 -D_GNU_SOURCE -DPLEAT_ARM=1 -Iinclude -Isrc ;;
            *) compiles_alone "${header#src/}" cc -x c -std=c17 -D_GNU_SOURCE -DPLEAT_X86=1 -Iinclude -Isrc ;;
        esac
    done
    for header in $(find cli tests -name '*.h' | sort); do
        compiles_alone "$header" cc -x c -std=c17 -D_GNU_SOURCE -Iinclude -I. -Isrc -Itests/check/lib
    done
}
