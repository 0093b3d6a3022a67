# SPDX-License-Identifier: MIT
#
# bench.bash: rules of bench/ that no compiler checks.  Read by lint.sh.

# A paper's modules are named by its package: run.py puts bench/papers on the path in place of its own folder, and nothing
# else touches the path, so that no order of folders decides which module is meant.  bench/models and bench/frontier do
# the same with bench, and take the papers' lab besides.
check_bench_paths() {
    grep -rn 'sys\.path' bench --include='*.py' |
        grep -vE '^bench/(models|frontier)/run\.py:[0-9]+:sys\.path\.append\(os\.path\.join\(sys\.path\[0\], "papers"\)\)$' |
        grep -vE '^bench/(papers/[a-z]+|models|frontier)/run\.py:[0-9]+:sys\.path\[0\] = os\.path\.dirname\(os\.path\.dirname\(os\.path\.abspath\(__file__\)\)\)$' |
        sed -E 's/^([^:]*:[0-9]+):.*/\1: a path of its own; modules are named by their package/'
    grep -rnE '^(import|from) (lab|page|samples|printed|sections?|rows|models|runs)( |$)' bench/papers --include='*.py' |
        grep -vE ':from lab import ' | sed -E 's/^([^:]*:[0-9]+):.*/\1: a module without its package/'
}

# The clock, medians and spreads are cli/lib/measure's.
check_bench_measure() {
    grep -nE 'CLOCK_MONOTONIC|\bqsort\(' bench/*.h bench/kernels/*.[ch] bench/allocators/*.[ch] |
        sed -E 's/^([^:]*:[0-9]+):.*/\1: a clock or a median of its own; cli\/lib\/measure.h has them/'
}
