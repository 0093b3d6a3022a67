# SPDX-License-Identifier: MIT
#
# try.bash: checks of an installation, counted.

passed=0 failed=0

# try NAME COMMAND...: one check.
try() {
    local name=$1
    shift
    if "$@"; then
        echo "ok   $name"
        passed=$((passed + 1))
    else
        echo "FAIL $name"
        failed=$((failed + 1))
    fi
}
