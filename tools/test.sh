#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# test.sh [--long] [--after FILE] JOB|GROUP...: run the named jobs, and those of the named groups, and add up what they
# counted.
#
#   quick      what `make test` runs: release lint
#   rest       every other job of `make test-all`, from memory to install
#
#   release    release build; every test, with all that this CPU has: the only job with AMX; of what serves a model for
#              minutes fewer rounds
#   lint       include edges, headers alone, symbols, forbidden calls, licence lines, lengths, format
#   memory     ASan and UBSan, with fewer rounds: what parses or frees, and the fuzz corpora through their targets
#   scalar     the release programs in which the CPU matters with PLEAT_CPU_MASK=0, no CPU features; fewer rounds
#   avx2       ... with AVX2, FMA and F16C only
#   avxvnni    ... with AVX2 and AVX-VNNI: the programs that meet its kernels
#   avx512     ... with AVX-512 but no VNNI, neither form: the programs that meet its kernels
#   sanitize   ASan and UBSan: the tests that memory leaves, but those labelled slow
#   threads    ThreadSanitizer: the programs whose workers share caches, engines and requests
#   plain      a build without libraries and x86 kernels, with assert(): the programs that meet no kernel and some of those
#              that do, with fewer rounds, none labelled slow, and the scripts about what such a build says
#   clang      everything compiled by clang; the unit programs in which bits may differ, with fewer rounds
#   fuzz       each fuzz target for FUZZ_SECONDS, 6 by default, from its corpus
#   cuda       the GPU kernels for Hopper, with --long for both architectures; compiled, and run only as far as there is no GPU
#   arm        the kernels' tests for 64-bit Arm, under qemu-user: with the dot product, then without
#   portable   with musl: threads run, with a futex and without; every file read for musl, and by clang for macOS and Windows
#   install    `make install` elsewhere and `make uninstall`, and C and C++ programs against it by pkg-config and CMake
#
#   long       only with --long, which also gives release, scalar, avx2 and avx512 their full rounds: tests/long/*.sh, the full evaluation
#   device     only when named: the GPU kernels' tests, which every other job skips where there is no GPU, and then with
#              fewer rounds under compute-sanitizer's memcheck and racecheck
#
# A job is a function of tools/jobs/*.bash.  It prints one line (on a terminal how far it is while it runs); its log is
# build/JOB/log.  The last line is "N passed, N failed, N skipped" over all jobs: the sum of the totals that each test
# program prints last.  A program that ends badly without counting a failure is one failure.  The three numbers are kept
# in build/totals; --after FILE begins with those of an earlier run.  Exit status 1 if anything failed.
set -uo pipefail
cd "$(dirname "$0")/.."

quick_jobs="release lint"
rest_jobs="memory scalar avx2 avxvnni avx512 sanitize threads plain clang fuzz cuda arm portable install"

. tools/progress.bash
. tools/count.bash
for file in tools/jobs/*.bash; do
    . "$file"
done

jobs=""
with_long=0
after=""
while [ $# -gt 0 ]; do
    case $1 in
        --long) with_long=1 ;;
        --after)
            after=${2:?a file}
            shift
            ;;
        quick) jobs+=" $quick_jobs" ;;
        rest) jobs+=" $rest_jobs" ;;
        *)
            if ! declare -F "job_$1" > /dev/null; then
                echo "test.sh: no job \"$1\"; jobs: $quick_jobs $rest_jobs long device; groups: quick rest" >&2
                exit 2
            fi
            jobs+=" $1"
            ;;
    esac
    shift
done
if [ -z "$jobs" ]; then
    echo "usage: tools/test.sh [--long] [--after FILE] JOB|GROUP...; jobs: $quick_jobs $rest_jobs long device; groups: quick rest" >&2
    exit 2
fi
[ $with_long = 0 ] || jobs+=" long"

passed=0 failed=0 skipped=0
if [ -n "$after" ] && ! read -r passed failed skipped 2> /dev/null < "$after"; then
    echo "test.sh: $after is not there: the run before this one did not end"
    passed=0 failed=1 skipped=0
fi
mkdir -p build
rm -f build/totals

reasons=""
for job in $jobs; do
    mkdir -p "build/$job"
    log=build/$job/log
    began=$SECONDS
    with_progress "$job" "$log" "job_$job"
    status=$?
    read -r p f s <<< "$(totals "$log" $status)"
    [ -n "$s" ] || p=0 f=1 s=0 # no log to count
    printf '%-9s %5d passed, %d failed, %d skipped  %4d s\n' "$job" "$p" "$f" "$s" $((SECONDS - began))
    if [ "$f" != 0 ]; then
        what_failed "$log" | sed 's/^/    /'
        echo "    see $log"
    fi
    reasons+=$(skips "$job" "$log")$'\n'
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done

grep . <<< "$reasons" | sort -u
echo "$passed $failed $skipped" > build/totals
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
