# SPDX-License-Identifier: MIT
#
# Rules of examples/: programs that an embedder copies whole.  Sourced by lint.sh.

# README shows the first of them, word for word, as a block of C.
check_example_in_readme() {
    python3 - <<'EOF'
example = open("examples/embed.c").read()
if "\n```c\n" + example + "```\n" not in open("README.md").read():
    print("README.md: has no ```c block that is examples/embed.c word for word")
EOF
}

# They see what an installed library has, each is a program by itself, and short enough to be read at once.
check_example_files() {
    local file lines
    for file in examples/*; do
        case $file in *.c) ;; *) echo "$file: not a program"; continue ;; esac
        head -n 1 "$file" | grep -q '^/\* SPDX-License-Identifier: MIT' || echo "$file: first line is not its licence"
        grep -nE '^ *# *include' "$file" | grep -vE '<(pleat/[a-z_]+|[a-z]+)\.h>' | sed "s|^|$file:|; s|\$|: not a public header|"
        lines=$(wc -l < "$file")
        [ "$lines" -le 90 ] || echo "$file: $lines lines, more than 90"
    done
    ! command -v clang-format > /dev/null || clang-format --dry-run -Werror examples/*.c 2>&1 |
        sed -nE 's/^([^:]*):.*(error|warning):.*/\1: not as clang-format has it/p' | sort -u
}
