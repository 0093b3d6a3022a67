# SPDX-License-Identifier: MIT
#
# includes.bash: who may include whom.

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

# No source includes a source.
check_include_sources() { grep -nE '^ *# *include *["<].*\.c[">]' $(sources); }

# A library from elsewhere stays in the folder that needs it, and intrinsics in the files that are compiled for them.
check_include_foreign() {
    grep -rnE '# *include *<.*(dnnl|pcre2|xxhash)' include src cli | grep -vE '^src/(gguf/|tokenizer/|linear/|model/|(events/blocks|cache/(image_form|inspect_blocks|cuda/image_hash)|image/image|image/sum|image/x86/sum_avx2|store/key|stats/stats|codec/rd_(lane|read|write)|codec/block_write|codec/codebooks)\.c.*xxhash)'
    grep -rnE '# *include *<(jansson|zstd)' include src
    grep -rnE '# *include *<sqlite3' include src cli | grep -vE '^src/store/folder/index\.c:'
    grep -rnE '# *include *<hiredis' include src cli | grep -vE '^src/store/servers/server\.c:'
    grep -rnE '# *include *<zmq' include src cli | grep -vE '^src/events/publisher\.c:'
    grep -rnE '# *include *<msgpack' include src cli | grep -vE '^src/events/wire\.c:'
    grep -rnE '# *include *<(curl/|openssl/)' include src cli | grep -vE '^cli/(lib/hub/curl/|serve/net/tls\.c:)'
    grep -rnE '# *include *<(cub/|cublas)' src
    grep -rnE '# *include *<(immintrin|x86intrin)' include src cli | grep -vE '^src/[a-z]+/x86/'
    grep -rnE '# *include *<arm_neon' include src cli | grep -vE '^src/[a-z]+/arm/'
    grep -rnE '# *include *<cuda' include src cli | grep -vE '^(src/[a-z]+|cli/bench/device)/cuda/'
}
