#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# test.sh [--long] [JOB...]: run the named jobs, or all of them, and add up what they counted.
#
#   release    release build; every test, with all that this CPU has: the only job with AMX
#   scalar     the same programs, but for the benches' own tests, with PLEAT_CPU_MASK=0: no CPU features
#   avx2       ... with AVX2, FMA and F16C only
#   avxvnni    ... with AVX2 and AVX-VNNI: the programs that meet its kernels
#   avx512     ... with AVX-512 but no VNNI, neither form
#   sanitize   ASan and UBSan; every test but those labelled slow, with fewer rounds
#   threads    ThreadSanitizer: the programs whose workers share caches, engines and requests
#   fuzz       the fuzz corpora through their targets, under ASan and UBSan
#   plain      a build without CUDA, oneDNN and x86 kernels, with assert(); like sanitize
#   arm        the kernels' tests for 64-bit Arm, under qemu-user: with the dot product, then without
#   lint       include edges, headers alone, symbols, forbidden calls, licence lines, lengths, format
#   install    `make install` elsewhere, and C and C++ programs against it by pkg-config and by CMake
#   long       only with --long: tests/long/*.sh, the full evaluation
#   device     only when named: the GPU kernels' tests, which every other job skips where there is no GPU, and then with
#              fewer rounds under compute-sanitizer's memcheck and racecheck
#
# A job prints one line (on a terminal its name while it runs); its log is build/JOB/log.  The last line is "N passed,
# N failed, N skipped" over all jobs: the sum of the totals that each test program prints last.  A program that ends
# badly without counting a failure is one failure.  Exit status 1 if anything failed.
set -uo pipefail
cd "$(dirname "$0")/.."

all_jobs="release scalar avx2 avxvnni avx512 sanitize threads fuzz plain arm lint install"
per_test_s=900 # a test that takes longer hangs

# ---- the test programs of one build --------------------------------------------------------------------------------

# ctest_in DIR [CTEST_ARG...]: run, showing the programs' output with the test's number in front of each line.
ctest_in() {
    local dir=$1
    shift
    ctest --test-dir "$dir" -V -j "$(nproc)" --timeout $per_test_s --no-tests=error "$@"
}

# cpu_has FLAG...: all of them in /proc/cpuinfo.
cpu_has() {
    local flag
    for flag in "$@"; do
        grep -qm1 "^flags.*\b$flag\b" /proc/cpuinfo || return 1
    done
}

skip_job() {
    echo "skip $job: $1"
    echo "0 passed, 0 failed, 1 skipped"
}

job_release() {
    cpu_has amx_int8 || echo "skip $job: this CPU has no AMX"
    tools/build.sh build && ctest_in build
}

# The programs that a CPU's features matter to: the benches' own tests and who runs when are not, and scalar kernels make
# them long.
masked_in() { ctest_in "$@" -E '^(cli_(measure|peers|allocators|serve|evict)|check_serving(_evict)?)$'; }

job_scalar() { tools/build.sh build && PLEAT_CPU_MASK=0 masked_in build; }

job_avx2() {
    cpu_has avx2 fma f16c || { skip_job "this CPU has no AVX2"; return; }
    cpu_has avx512f || { skip_job "this CPU has no more than AVX2: it is job release"; return; }
    tools/build.sh build && PLEAT_CPU_MASK=1 masked_in build
}

job_avxvnni() {
    cpu_has avx2 fma f16c avx_vnni || { skip_job "this CPU has no AVX-VNNI"; return; }
    tools/build.sh build && PLEAT_CPU_MASK=9 ctest_in build -R '^check_(attn_decode|cache|forward|golden|leankv|linear)$'
}

job_avx512() {
    cpu_has avx512f avx512bw avx512dq avx512vl || { skip_job "this CPU has no AVX-512"; return; }
    cpu_has avx512_vnni || { skip_job "this CPU has no VNNI: it is job release"; return; }
    tools/build.sh build && PLEAT_CPU_MASK=3 masked_in build
}

# oneDNN and the OpenMP under it keep some memory until the end; what is ours has to be free.
sanitizer_env() {
    # Not detect_stack_use_after_return: gcc 12's stack frames for it are aligned to 32, and AVX-512 code faults on them.
    export ASAN_OPTIONS=strict_string_checks=1:detect_stack_use_after_return=0
    export UBSAN_OPTIONS=print_stacktrace=1
    export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
    export CHECK_QUICK=1
}

job_sanitize() {
    sanitizer_env
    tools/build.sh build/asan -DPLEAT_SANITIZE=address && ctest_in build/asan -LE 'slow|fuzz'
}

# Without oneDNN, whose OpenMP it does not understand.
job_threads() {
    local programs="check_cache check_policy_cache check_leankv check_share check_ring check_forward check_engine"
    export CHECK_QUICK=1 TSAN_OPTIONS=halt_on_error=0
    cmake -S . -B build/tsan -G Ninja -DPLEAT_SANITIZE=thread -DPLEAT_ONEDNN=off &&
        cmake --build build/tsan --parallel "$(nproc)" --target $programs check_serving &&
        ctest_in build/tsan -R "^(${programs// /|})\$" && build/tsan/tests/check_serving shared_prefix &&
        build/tsan/tests/check_serving conversation
}

job_fuzz() {
    sanitizer_env
    tools/build.sh build/asan -DPLEAT_SANITIZE=address && ctest_in build/asan -L fuzz
}

job_plain() {
    export CHECK_QUICK=1
    tools/build.sh build/bare -DPLEAT_CUDA=off -DPLEAT_ONEDNN=off -DPLEAT_ZSTD=off -DPLEAT_X86=OFF -DPLEAT_ASSERTS=ON && masked_in build/bare -LE 'slow|fuzz'
}

# The tests of kernels, and no more is built: qemu takes ten times as long.  Prompts and the quantiser have no dot
# product to do without.  The second run's test numbers get a 9 in front, so that totals() counts both.
job_arm() {
    local need status=0 programs="check_attn_decode check_attn_prompt check_quant check_linear check_forward check_core"
    for need in aarch64-linux-gnu-gcc qemu-aarch64 ninja; do
        command -v $need > /dev/null || { skip_job "$need is not installed"; return; }
    done
    for need in libpcre2-8.so.0 libjansson.so.4; do
        [ -e /usr/lib/aarch64-linux-gnu/$need ] || { skip_job "$need of arm64 is not installed"; return; }
    done
    export CHECK_QUICK=1
    cmake -S . -B build/arm -G Ninja -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake -DPLEAT_ONEDNN=off &&
        cmake --build build/arm --parallel "$(nproc)" --target $programs || return
    ctest_in build/arm -R "^(${programs// /|})\$" || status=1
    PLEAT_CPU_MASK=16 ctest_in build/arm -R '^check_(attn_decode|linear|forward|core)$' |
        sed -E 's/^([0-9]+: )/9\1/; s/(Test +#)/\19/' || status=1
    return $status
}

job_lint() { tools/build.sh build && bash tests/lint/lint.sh build; }
job_install() { tools/build.sh build && bash tests/consumer/consumer.sh build; }

job_long() {
    local script status=0
    tools/build.sh build || return
    for script in tests/long/*.sh; do
        [ -f "$script" ] || continue
        echo "== $script"
        PLEAT=$PWD/build/pleat ROOT=$PWD bash "$script" || status=1
    done
    return $status
}

# sanitized TOOL PROGRAM: counts its own tests, and one more failure for what the tool finds.
sanitized() {
    echo "== compute-sanitizer $1 $(basename "$2")"
    # Tests provoke errors of the CUDA runtime on purpose: only what kernels do counts.
    local options=(--tool "$1" --error-exitcode 9)
    [ "$1" != memcheck ] || options+=(--report-api-errors no)
    CHECK_QUICK=1 compute-sanitizer "${options[@]}" "$2" --device cuda
    [ $? != 9 ] || { echo "FAIL $1 $(basename "$2")"; echo "0 passed, 1 failed"; return 1; }
}

job_device() {
    local program tool status=0
    tools/build.sh build || return
    if ! build/tests/check_device --device cuda info; then
        echo "FAIL device: there is no GPU that this build can use"
        return 1
    fi
    for program in build/tests/check_device*; do
        "$program" --device cuda || status=1
    done
    command -v compute-sanitizer > /dev/null || { skip_job "compute-sanitizer is not installed"; return $status; }
    for tool in memcheck racecheck; do
        for program in build/tests/check_device*; do
            sanitized $tool "$program" || status=1
        done
    done
    return $status
}

# ---- counting ----------------------------------------------------------------------------------------------------

# totals LOG STATUS: prints "P F S".  Under ctest, lines begin with the test's number; each test's last totals line
# counts, and a test that ctest calls failed counts at least one failure.  Outside ctest every totals line counts.
totals() {
    awk -v status="$2" '
        function add(key, text,    a) {
            split(text, a, /[^0-9]+/)
            passed[key] = a[1]; failed[key] = a[2]; skipped[key] = a[3]
        }
        match($0, /^[0-9]+: /) {
            id = substr($0, 1, RLENGTH - 2)
            text = substr($0, RLENGTH + 1)
            if (text ~ /^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$/) add(id, text)
            next
        }
        /^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$/ { add("line " NR, $0); next }
        match($0, /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: /) {
            id = $0; sub(/^[^#]*#/, "", id); sub(/:.*/, "", id)
            if (substr($0, RLENGTH) ~ /\*\*\*/) bad[id] = 1
            else if (!(id in passed)) passed[id] = 1   # a program that counts nothing is one test
        }
        END {
            for (id in bad) if (failed[id] + 0 == 0) failed[id] = 1
            for (id in passed) p += passed[id]
            for (id in failed) f += failed[id]
            for (id in skipped) s += skipped[id]
            if (status != 0 && f + 0 == 0) f = 1       # did not build, or ended before it could count
            print p + 0, f + 0, s + 0
        }' "$1"
}

# skips JOB LOG: the reasons, each once, behind the job's name; skip_job has put it there already.
skips() { sed -nE "s/^([0-9]+: )?skip ($1: )?(.+)\$/skip $1: \3/p" "$2" | sort -u; }

# what_failed LOG: the lines that matter, for the screen: those in front of a FAIL, and ctest's and compilers' words.
what_failed() {
    {
        grep -aE -B 6 '^FAIL ' "$1" | grep -avE '^(ok|skip|--) *'
        grep -aE '^([0-9]+: )(FAIL |.*CHECK_SEED=|.*(ERROR|error|SUMMARY): )|^FAILED|.* error: |\*\*\*' "$1"
    } | head -n 24
}

# ---- running -------------------------------------------------------------------------------------------------------

jobs=""
with_long=0
for arg in "$@"; do
    if [ "$arg" = --long ]; then
        with_long=1
    elif declare -F "job_$arg" > /dev/null; then
        jobs+=" $arg"
    else
        echo "test.sh: no job \"$arg\"; jobs: $all_jobs long device" >&2
        exit 2
    fi
done
[ -n "$jobs" ] || jobs=$all_jobs
[ $with_long = 0 ] || jobs+=" long"

passed=0 failed=0 skipped=0
reasons=""
for job in $jobs; do
    mkdir -p "build/$job"
    log=build/$job/log
    began=$SECONDS
    [ ! -t 1 ] || printf '%-9s ...' "$job"
    ("job_$job") > "$log" 2>&1 < /dev/null
    status=$?
    read -r p f s <<< "$(totals "$log" $status)"
    [ -n "$s" ] || p=0 f=1 s=0 # no log to count
    [ ! -t 1 ] || printf '\r'
    printf '%-9s %5d passed, %d failed, %d skipped  %4d s\n' "$job" "$p" "$f" "$s" $((SECONDS - began))
    if [ "$f" != 0 ]; then
        what_failed "$log" | sed 's/^/    /'
        echo "    see $log"
    fi
    reasons+=$(skips "$job" "$log")$'\n'
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done

grep . <<< "$reasons" | sort -u
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
