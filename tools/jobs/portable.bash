# SPDX-License-Identifier: MIT
#
# portable.bash: the library beside another libc, and read for systems that are not here.

# Headers of libraries, without those of glibc that stand beside them.
portable_headers() {
    mkdir -p "$1" && cp /usr/include/{pcre2,jansson,xxhash}.h "$(find /usr/include -name jansson_config.h | head -1)" "$1"
}

# reads NAME FILE... -- COMPILER...: the files without an error or warning; counts as a test.
reads() {
    local name=$1 files=() status=0
    shift
    while [ "$1" != -- ]; do
        files+=("$1")
        shift
    done
    shift
    printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" "$@" -std=c17 -fsyntax-only -Wall -Wextra \
        -Wno-missing-field-initializers -Werror -Iinclude -Isrc -isystem build/portable/headers || status=1
    if [ $status = 0 ]; then
        echo "ok   $name reads ${#files[@]} files"
        echo "1 passed, 0 failed, 0 skipped"
    else
        echo "FAIL $name"
        echo "0 passed, 1 failed, 0 skipped"
    fi
    return $status
}

# Threads and waits with musl and without a futex: built and run.
musl_runs() {
    local futex out=build/portable program status=0
    for futex in 1 0; do
        for program in core/test_core hw/test_cores; do
            musl-gcc -std=c17 -O1 -D_GNU_SOURCE -DPLEAT_FUTEX=$futex -DPLEAT_X86=0 -Iinclude -Isrc -Itests/check/lib \
                -o "$out/check" tests/check/$program.c tests/check/lib/check.c src/core/*.c src/hw/{cpu,device_none,os_cores,os_wait,workers}.c \
                src/model/build_info.c src/linear/gemm.c -lm &&
                CHECK_QUICK=1 "$out/check" || status=1
        done
    done
    return $status
}

# gguf.c maps files, stats/load.c reads them and store/folder/files.c does both, for which Windows has other calls;
# kernels ask nothing of a system.
# There are no headers of macOS to have: musl's stand in for those of POSIX, and nothing of Linux is declared.
job_portable() {
    local need status=0 files
    for need in musl-gcc clang; do
        command -v $need > /dev/null || { skip_job "there is no $need; tools/setup.sh portable installs it"; return; }
    done
    [ -d /usr/x86_64-w64-mingw32/include ] || { skip_job "there are no headers of Windows; tools/setup.sh portable installs them"; return; }
    portable_headers build/portable/headers || return
    mapfile -t files < <(find src -name '*.c' ! -path '*/cuda/*' ! -path '*/x86/*' ! -path '*/arm/*' | sort)
    musl_runs || status=1
    reads musl "${files[@]}" -- musl-gcc -D_GNU_SOURCE -DPLEAT_FUTEX=1 || status=1
    reads macos "${files[@]}" src/*/arm/*.c -- clang --target=arm64-apple-macos13 -D_GNU_SOURCE -DPLEAT_ARM=1 \
        -isystem "$(musl_include)" || status=1
    mapfile -t files < <(printf '%s\n' "${files[@]}" | grep -vx -e src/gguf/gguf.c -e src/stats/load.c -e src/store/folder/files.c)
    reads windows "${files[@]}" -- clang --target=x86_64-w64-mingw32 -D_USE_MATH_DEFINES \
        -isystem /usr/x86_64-w64-mingw32/include || status=1
    return $status
}

musl_include() { echo "/usr/include/$(uname -m)-linux-musl"; }
