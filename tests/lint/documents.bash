# SPDX-License-Identifier: MIT
#
# documents.bash: what documents say of the tree is so.  Read by lint.sh, as prose.bash is, whose prose_documents it uses.

# Paths between backquotes lead somewhere: those that begin with a folder of the root, and have no * or < in them.
check_document_paths() {
    local doc path
    for doc in $(prose_documents); do
        grep -oE '`(include|src|cli|examples|bench|tests|tools|docs|eval|models|cmake)/[A-Za-z0-9_./-]*' "$doc" | tr -d '`' |
            sort -u | while read -r path; do
            [ -e "${path%.}" ] || echo "$doc: no $path"
        done
    done
}

# ARCHITECTURE lists every folder of src, and none that is not there.
check_document_tree() {
    local doc=docs/ARCHITECTURE.md
    comm -3 <(ls -d src/*/ | sort) <(grep -oE '^src/[a-z]+/ ' "$doc" | tr -d ' ' | sort) | tr -d '\t' |
        sed "s|$|: in the tree or in $doc, not in both|"
}

# architecture_row FOLDER: what ARCHITECTURE's table lets it include, with a space on both sides of each.
architecture_row() {
    awk -F'|' -v noun="$1" '$2 ~ "(^|[ ,])" noun "([ ,]|$)" && NF == 4 { gsub(/\([^)]*\)|,/, " ", $3); print " " $3 " " }' \
        <(sed -n '/^| folder | may include/,/^$/p' docs/ARCHITECTURE.md)
}

# Its table of includes is what the sources do.
check_document_includes() {
    local noun row target
    for noun in src/*/; do
        noun=$(basename "$noun")
        row=$(architecture_row "$noun")
        [ -n "$row" ] || echo "docs/ARCHITECTURE.md: src/$noun is not in the table of includes"
        for target in $(grep -rhoE '^ *# *include *"[a-z]+/' "src/$noun" | sed -E 's/.*"|\///g' | sort -u); do
            [[ " pleat $noun $row " == *" $target "* ]] ||
                echo "docs/ARCHITECTURE.md: the table does not say that $noun includes \"$target/...\""
        done
    done
}

# Words that docs/GLOSSARY.md replaces, in documents and sources: those that stand for nothing else.
check_document_words() {
    local gone='(give|gives|giving|gave|given) (way|back)|(let|lets|letting) in|loners?|relieve[sd]?|attention given'
    { prose_documents | grep -v '^docs/GLOSSARY.md$'; find include src cli bench tests examples -name '*.[ch]'; } |
        xargs grep -nEiw "$gone" | sed -E "s/^([^:]*:[0-9]+):.*\b($gone)\b.*/\1: \"\2\": docs\/GLOSSARY.md has the word for it/I"
}

# names_in DOCUMENT REGEX: what matches at the beginning of a backquoted word.
names_in() { grep -oE "\`($2)" "$1" | tr -d '`()' | sort -u; }

# Functions, types, constants, tests and headers that documents name between backquotes are there.  (CLI.md is apart: it
# names variables of the environment, which are made from the options' names.)
check_document_names() {
    local doc name
    mkdir -p "$build/lint"
    find include src cli bench tests examples cmake CMakeLists.txt -type f 2> /dev/null > "$build/lint/files"
    grep -E '\.([ch]|cuh?|cmake|txt)$' "$build/lint/files" | xargs cat | grep -oE '\w+' | sort -u > "$build/lint/names"
    for doc in $(prose_documents | grep -v '^docs/CLI.md$'); do
        names_in "$doc" '(pleat|PLEAT)_\w+|[a-z]\w+\(\)' | grep -vxFf "$build/lint/names" | sed "s|^|$doc: nowhere in the sources: |"
        names_in "$doc" '(check|fuzz)_\w+' | grep -vxFf "$build/lint/names" | while read -r name; do
            grep -qE "/(test_${name#check_}|$name)\.c$" "$build/lint/files" || echo "$doc: no test: $name"
        done
        names_in "$doc" '[a-z]\w*\.[ch]' | while read -r name; do
            grep -q "/$name$" "$build/lint/files" || echo "$doc: no file: $name"
        done
    done
}
