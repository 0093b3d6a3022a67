#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# lint.sh DIR: the rules of the tree that no compiler checks.  DIR is a release build.
#
# A rule is a function check_NAME of tests/lint/*.bash, a file a topic.  It prints what breaks the rule, one line each;
# the rule is kept if it prints nothing.
set -uo pipefail
cd "$(dirname "$0")/../.."
build=$1

# ---- what the rules are about ----------------------------------------------------------------------------------------

# folders NAME...: those that there are.
folders() {
    local folder
    for folder in "$@"; do
        [ ! -d "$folder" ] || echo "$folder"
    done
}

sources() { find $(folders include src cli tests bench examples) -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort; }

scripts() {
    {
        find $(folders tools tests cmake bench examples) -name '*.sh' -o -name '*.bash' -o -name '*.cmake' -o -name 'CMakeLists.txt' -o -name '*.in'
        echo Makefile
        echo CMakeLists.txt
        echo .ci/run
        echo pleat.pc.in
    } | sort
}

documents() { find . docs docs/papers -maxdepth 1 -name '*.md' | sort; }

for rules in tests/lint/*.bash; do
    . "$rules"
done

# ---- all of them -----------------------------------------------------------------------------------------------------

mkdir -p "$build/lint"
passed=0 failed=0 skipped=0
for check in $(declare -F | sed -n 's/^declare -f check_//p'); do
    if [ "$check" = format ] && ! command -v clang-format > /dev/null; then
        echo "skip format: clang-format is not installed; tools/setup.sh test installs it"
        skipped=$((skipped + 1))
        continue
    fi
    found=$("check_$check" 2>&1) # a rule whose tool dies is not kept
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
