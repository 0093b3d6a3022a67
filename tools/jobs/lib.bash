# SPDX-License-Identifier: MIT
#
# lib.bash: what the jobs share.  A job prints to its log, and may change its environment: it runs in a process of its
# own.  $job is its name, $with_long says whether full rounds are asked for.

per_test_s=900 # a test that takes longer hangs

# ctest_in DIR [CTEST_ARG...]: run, showing the programs' output with the test's number in front of each line.
ctest_in() {
    local dir=$1
    shift
    ctest --test-dir "$dir" -V -j "$(nproc)" --timeout $per_test_s --no-tests=error "$@"
}

# targets_of NAME...: what has to be built for the tests NAME.
targets_of() {
    local name
    for name in "$@"; do
        case $name in
            check_* | replay_*) echo "$name" ;;
            teach_files) echo codec_store teach_decode ;;
            cli_*) echo pleat bench_programs example_programs ;;
            *) echo all test_programs bench_programs example_programs ;;
        esac
    done | tr ' ' '\n' | sort -u | tr '\n' ' '
}

# tests_in DIR [CTEST_ARG...]: build what the chosen tests need, and run them; DIR is configured.
tests_in() {
    local dir=$1 names
    shift
    names=$(ctest --test-dir "$dir" -N "$@" | sed -nE 's/^ *Test +#[0-9]+: //p') || return
    tools/build.sh "$dir" -t "$(targets_of $names)" && ctest_in "$dir" "$@"
}

# configure DIR [CMAKE_ARG...]: a build of a job's own has no more debug information than reports show.
configure() {
    local dir=$1
    shift
    [ "$dir" = build ] || set -- -DPLEAT_DEBUG=OFF "$@"
    tools/build.sh "$dir" -t "" "$@"
}

# Fewer rounds, unless all are asked for.
fewer_rounds() { [ "$with_long" = 1 ] || export CHECK_QUICK=1; }

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
