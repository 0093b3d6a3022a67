#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# lint.sh DIR: the rules of the tree that no compiler checks.  DIR is a release build.
# Each check prints what breaks its rule, one line each; it passes if it prints nothing.
set -uo pipefail
cd "$(dirname "$0")/../.."
build=$1
max_lines=700

sources() { find include src cli tests bench -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort; }
scripts() { { find tools tests cmake -name '*.sh' -o -name '*.bash' -o -name '*.txt' -path '*CMakeLists*' -o -name '*.in'; echo Makefile; \
    echo CMakeLists.txt; echo .ci/run; echo pleat.pc.in; } | sort; }

documents() { find . docs -maxdepth 1 -name '*.md' | sort; }

# ---- layout and includes ---------------------------------------------------------------------------------------------

# Edges between the folders of src, by the table in tests/lint/edges.
check_include_edges() {
    local noun allowed file target
    for noun in src/*/; do
        noun=$(basename "$noun")
        allowed=$(sed -n "s/^$noun://p" tests/lint/edges)
        grep -q "^$noun:" tests/lint/edges || echo "src/$noun: not in tests/lint/edges"
        grep -rnE '^ *# *include *"' "src/$noun" | while IFS=: read -r file line text; do
            target=$(sed -E 's/.*"([^"]*)".*/\1/' <<< "$text")
            case " pleat $noun $allowed " in
                *" ${target%%/*} "*) ;;
                *) echo "$file:$line: $noun may not include \"$target\"" ;;
            esac
        done
    done
}

# The command sees the library as any program does; no source includes a source.
check_include_outside() {
    local file text target
    grep -rnE '^ *# *include *"' cli 2> /dev/null | while IFS=: read -r file line text; do
        target=$(sed -E 's/.*"([^"]*)".*/\1/' <<< "$text")
        [ -f "include/$target" ] || [ -f "cli/${target#cli/}" ] ||
            echo "$file:$line: cli/ sees only include/pleat, not \"$target\""
    done
    grep -rnE '^ *# *include *["<].*\.c[">]' include src cli tests bench
}

# A library from elsewhere stays in the folder that needs it, and intrinsics in the files that are compiled for them.
check_include_foreign() {
    grep -rnE '# *include *<.*(dnnl|pcre2|xxhash)' include src cli | grep -vE '^src/(model/|(cache/image|codec/block_write)\.c.*xxhash)'
    grep -rnE '# *include *<(jansson|zstd)' include src
    grep -rnE '# *include *<(cub/|cublas)' src
    grep -rnE '# *include *<(immintrin|x86intrin)' include src cli | grep -vE '^src/[a-z]+/x86/'
    grep -rnE '# *include *<arm_neon' include src cli | grep -vE '^src/[a-z]+/arm/'
    grep -rnE '# *include *<cuda' include src cli | grep -vE '^(src/[a-z]+|cli)/cuda/'
}

# ---- headers -----------------------------------------------------------------------------------------------------------

# compiles_alone HEADER COMPILER...: as the only include of a file.
compiles_alone() {
    local header=$1
    shift
    echo "#include \"$header\"" | "$@" -Wall -Wextra -Werror -fsyntax-only - 2> "$build/lint/cc" && return
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
        compiles_alone "$header" cc -x c -std=c17 -D_GNU_SOURCE -Iinclude -I. -Isrc
    done
}

# ---- symbols -------------------------------------------------------------------------------------------------------------

check_symbols_prefixed() {
    nm -A --defined-only --extern-only "$build/libpleat.a" | awk '$NF !~ /^pleat_/ { print $0 ": does not begin with pleat_" }'
}

# The shared library exports what include/pleat declares, all of it and nothing else.
check_symbols_exported() {
    nm -D --defined-only "$build/libpleat.so" | awk '{ print $NF }' | sed 's/@.*//' | sort > "$build/lint/exported"
    cat include/pleat/*.h | grep -oE '^PLEAT_API [^(]*\(' | grep -oE 'pleat_[a-z0-9_]+\($' | tr -d '(' | sort > "$build/lint/declared"
    comm -23 "$build/lint/exported" "$build/lint/declared" | sed 's/$/: exported, but in no public header/'
    comm -13 "$build/lint/exported" "$build/lint/declared" | sed 's/$/: declared, but not exported/'
}

# The library does not exit, abort, print, or take memory but through an allocator.
check_symbols_forbidden() {
    local talk='exit|_exit|abort|printf|puts|putchar|fputs|fputc|fprintf|vprintf|vfprintf|perror|stdout|stderr|__assert_fail'
    local memory='malloc|calloc|realloc|aligned_alloc|posix_memalign|memalign|free|strdup|strndup|asprintf|vasprintf'
    local unsafe='gets|strcpy|strcat|sprintf|rand|srand|getenv|setlocale'
    nm -A --undefined-only "$build/libpleat.a" | awk -v re="^($talk|$unsafe|$memory)\$" \
        '$NF ~ re && !(/:memory\.c\.o:/ && $NF ~ /^(aligned_alloc|free)$/) { print $0 ": not in a library" }'
}

# ---- text ----------------------------------------------------------------------------------------------------------------

check_licence_lines() {
    local file
    for file in $(sources); do
        head -n 1 "$file" | grep -q '^/\* SPDX-License-Identifier: MIT' || echo "$file: first line is not its licence"
    done
    for file in $(scripts); do
        head -n 3 "$file" | grep -q '^# SPDX-License-Identifier: MIT' || echo "$file: no licence line at its top"
    done
}

check_lengths() {
    local file lines
    for file in $(sources) $(scripts); do
        lines=$(wc -l < "$file")
        [ "$lines" -le $max_lines ] || echo "$file: $lines lines, more than $max_lines: split it"
    done
}

# Left-over notes, a machine's own paths, pictures in text.
check_words() {
    local note='TO''DO|FIX''ME|X''XX' # in halves, or this line would be found
    grep -rnE "\b($note)\b" include src cli tests bench tools docs cmake $(documents)
    grep -rnE '(^|[^a-zA-Z0-9._$}/-])/(home|root|work|mnt|srv)/' include src cli tests bench tools docs cmake $(documents) |
        grep -v '^tests/lint/lint.sh:'
    LC_ALL=C grep -rnP '\xF0\x9F' include src cli tests bench tools docs $(documents) --include='*.[ch]' --include='*.md' --include='*.sh'
}

# Relative links and backquoted paths of the documents lead somewhere.
check_links() {
    local doc target
    for doc in $(documents); do
        grep -oE '\]\([^)#]+' "$doc" | sed 's/^](//' | grep -vE '^[a-z]+:' | while read -r target; do
            [ -e "$(dirname "$doc")/$target" ] || echo "$doc: link to $target leads nowhere"
        done
    done
}

check_scripts() {
    local file
    for file in $(scripts); do
        case $file in *.sh | *.bash | .ci/run) bash -n "$file" 2>&1 ;; esac
    done
    find tools .ci -type f ! -perm -u+x | sed 's/$/: not executable/'
}

check_format() {
    tools/format.sh --check 2>&1 | sed -nE 's/^([^:]*):.*(error|warning):.*/\1: not as clang-format has it/p' | sort -u
}

# ---- all of them -----------------------------------------------------------------------------------------------------------

mkdir -p "$build/lint"
passed=0 failed=0 skipped=0
for check in $(declare -F | sed -n 's/^declare -f check_//p'); do
    if [ "$check" = format ] && ! command -v clang-format > /dev/null; then
        echo "skip format: clang-format is not installed"
        skipped=$((skipped + 1))
        continue
    fi
    found=$("check_$check")
    if [ -z "$found" ]; then
        echo "ok   $check"
        passed=$((passed + 1))
    else
        echo "$found"
        echo "FAIL $check"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
