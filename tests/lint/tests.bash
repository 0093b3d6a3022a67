# SPDX-License-Identifier: MIT
#
# Rules of tests/check and tests/fuzz.  Sourced by lint.sh.

# A function of a test is read in one look: 60 lines at most.
check_test_functions() {
    find tests \( -name '*.c' -o -name '*.h' \) -print0 | xargs -0 awk '
        FNR == 1 { first = 0 }
        !first && /^[a-z].*[({,]$/ && !/;|= \{|^(typedef|struct|enum)/ { first = FNR; name = $0 }
        /^}/ {
            if (first && FNR - first + 1 > 60) print FILENAME ":" first ": " FNR - first + 1 " lines, more than 60: " name
            first = 0
        }'
}

# A test stands in the folder of what it tests, and its name says which program it is.
check_test_folders() {
    local dir file name n
    for dir in tests/check tests/check/*/; do
        n=$(find "$dir" -maxdepth 1 -type f | wc -l)
        [ "$n" -le 40 ] || echo "$dir: $n files, more than 40"
    done
    find tests/check -maxdepth 1 -type f | sed 's/$/: not in a folder/'
    find tests/check -name 'test_*.c' | sed 's|.*/||' | sort | uniq -d | sed 's/$/: twice below tests\/check/'
    for dir in tests/check/*/; do
        name=$(basename "$dir")
        case $name in lib | cli | device) ;; *) [ -d "src/$name" ] || echo "$dir: there is no src/$name" ;; esac
    done
}

# Random numbers come from check.h, or by seed from core/rng.h (lib/cache_rig.h): no generators by hand.
check_test_generators() {
    grep -rnE '6364136223846793005|1103515245|\b(rand|srand|random|drand48)\(' tests --include='*.[ch]' |
        grep -v '^tests/fuzz/gguf_seeds.c:'
}
