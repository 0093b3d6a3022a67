# SPDX-License-Identifier: MIT
#
# symbols.bash: what the built libraries define, export and call.

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

# What a header of src declares, two other files name at least: the one that has it, and who calls it; or the header's own
# macros do.  What a public header declares, a file calls: the library, the command, a test, a bench or an example.
check_functions_have_callers() {
    local headers files
    headers=$(find src include -name '*.h')
    files=$(find $(folders src cli tests bench examples) -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh')
    awk '
        FILENAME != file { file = FILENAME; is_header = FILENAME ~ /^(src|include)\/.*\.h$/; n_files++ }
        n_files <= n_headers && /^[A-Za-z_]/ && !/^(static|typedef|extern|return)/ && match($0, /pleat_[a-z0-9_]+\(/) {
            name = substr($0, RSTART, RLENGTH - 1)
            declared[name] = FILENAME
        }
        n_files > n_headers {
            line = $0
            sub(/\/\*.*/, "", line)
            while (match(line, /pleat_[a-z0-9_]+/)) {
                name = substr(line, RSTART, RLENGTH)
                line = substr(line, RSTART + RLENGTH)
                if (!(name in declared)) continue
                if (declared[name] == FILENAME) { n_own[name]++; continue }
                if (!((name, FILENAME) in seen)) { seen[name, FILENAME] = 1; n_users[name]++ }
            }
        }
        END {
            for (name in declared)
                if (n_users[name] < 2 && n_own[name] < 2) print declared[name] ": " name "() has no caller in another file"
        }' n_headers="$(wc -w <<< "$headers")" $headers $files
}

# The library does not exit, abort, print, or take memory but through an allocator.
check_symbols_forbidden() {
    local talk='exit|_exit|abort|printf|puts|putchar|fputs|fputc|fprintf|vprintf|vfprintf|perror|stdout|stderr|__assert_fail'
    local memory='malloc|calloc|realloc|aligned_alloc|posix_memalign|memalign|free|strdup|strndup|asprintf|vasprintf'
    local unsafe='gets|strcpy|strcat|sprintf|rand|srand|getenv|setlocale'
    nm -A --undefined-only "$build/libpleat.a" | awk -v re="^($talk|$unsafe|$memory)\$" \
        '$NF ~ re && !(/:memory\.c\.o:/ && $NF ~ /^(aligned_alloc|free)$/) { print $0 ": not in a library" }'
}
