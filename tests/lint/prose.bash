# SPDX-License-Identifier: MIT
#
# prose.bash: rules of the documents' English and of field comments; prose.py beside it counts.  Read by lint.sh.

# Every document of the project, wherever it stands.
prose_documents() { find . \( -name build -o -name '.[!.]*' \) -prune -o -name '*.md' -print | sed 's|^\./||' | sort; }

check_prose_self_test() { python3 tests/lint/prose.py self-test; }

check_prose_lines() { prose_documents | xargs python3 tests/lint/prose.py lines; }

check_prose_sentences() { prose_documents | xargs python3 tests/lint/prose.py sentences; }

check_prose_comments() {
    find src include cli bench tests/check examples \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) | sort |
        xargs python3 tests/lint/prose.py comments
}

check_prose_fields() { find include src -name '*.h' | sort | xargs python3 tests/lint/prose.py fields; }

# The picture is what its script draws from the rows that are kept.
check_prose_picture() { python3 docs/figures/accuracy_per_byte.py --check; }
