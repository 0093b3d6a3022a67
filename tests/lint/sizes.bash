# SPDX-License-Identifier: MIT
#
# sizes.bash: how long a file and a function may be, and how full a folder.

max_file_lines=700
max_function_lines=60 # of the library
max_folder_files=40

check_lengths() {
    local file lines
    for file in $(sources) $(scripts); do
        lines=$(wc -l < "$file")
        [ "$lines" -le $max_file_lines ] || echo "$file: $lines lines, more than $max_file_lines: split it"
    done
}

# A function is what begins at the left margin, opens with ") {" and ends with "}" at the left margin.
check_function_lengths() {
    find src include -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort | xargs awk -v max=$max_function_lines '
        FNR == 1 { inside = 0 }
        !inside && /^[A-Za-z_]/ { begin = FNR; head = $0 }
        !inside && /\) \{$/ { inside = 1 }
        inside && /^}/ {
            lines = FNR - begin + 1
            if (lines > max) print FILENAME ":" begin ": " lines " lines, more than " max ": split it: " head
            inside = 0
        }'
}

# Files directly in a folder; a corpus has as many as it needs.
check_folders() {
    local folder n
    for folder in $(find $(folders src cli bench tests tools include examples docs cmake) -type d ! -path '*/corpus*' | sort); do
        n=$(find "$folder" -maxdepth 1 -type f | wc -l)
        [ "$n" -le $max_folder_files ] || echo "$folder: $n files, more than $max_folder_files: give it folders"
    done
}
