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

# The library does not exit, abort, print, or take memory but through an allocator.
check_symbols_forbidden() {
    local talk='exit|_exit|abort|printf|puts|putchar|fputs|fputc|fprintf|vprintf|vfprintf|perror|stdout|stderr|__assert_fail'
    local memory='malloc|calloc|realloc|aligned_alloc|posix_memalign|memalign|free|strdup|strndup|asprintf|vasprintf'
    local unsafe='gets|strcpy|strcat|sprintf|rand|srand|getenv|setlocale'
    nm -A --undefined-only "$build/libpleat.a" | awk -v re="^($talk|$unsafe|$memory)\$" \
        '$NF ~ re && !(/:memory\.c\.o:/ && $NF ~ /^(aligned_alloc|free)$/) { print $0 ": not in a library" }'
}
