# SPDX-License-Identifier: MIT
#
# text.bash: licence lines, words, links, scripts that parse, and the layout of C.

check_licence_lines() {
    local file
    for file in $(sources); do
        head -n 1 "$file" | grep -q '^/\* SPDX-License-Identifier: MIT' || echo "$file: first line is not its licence"
    done
    for file in $(scripts); do
        head -n 3 "$file" | grep -q '^# SPDX-License-Identifier: MIT' || echo "$file: no licence line at its top"
    done
}

# Left-over notes, a machine's own paths, pictures in text.
check_words() {
    local note='TO''DO|FIX''ME|X''XX' # in halves, or this line would be found
    grep -rnE "\b($note)\b" $(folders include src cli tests bench examples tools docs cmake) $(documents)
    grep -rnE '(^|[^a-zA-Z0-9._$}/-])/(home|root|work|mnt|srv)/' $(folders include src cli tests bench examples tools docs cmake) $(documents) |
        grep -v '^tests/lint/text.bash:'
    LC_ALL=C grep -rnP '\xF0\x9F' $(folders include src cli tests bench examples tools docs) $(documents) --include='*.[ch]' --include='*.md' --include='*.sh'
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
    find tools .ci -type f ! -perm -u+x ! -name '*.bash' | sed 's/$/: not executable/'
}

check_format() {
    tools/format.sh --check 2>&1 | sed -nE 's/^([^:]*):.*(error|warning):.*/\1: not as clang-format has it/p' | sort -u
}
