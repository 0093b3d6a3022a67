#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# harness_test.sh: the harness of the command's tests itself: what has to fail does, and every check is counted.
# Sourced on its own in a shell of its own, where `probe COMMANDS...` says what a test made of these commands prints.
. "$(dirname "$0")/harness.bash"

# probe COMMANDS: run them as a test's body, on a command that prints what it is told; like try.
cat >"$scratch/command" <<'EOF'
#!/usr/bin/env bash
[ "$1" != fail ] || { echo "pleat: no such thing" >&2; exit 2; }
printf '%s\n' "$@"
EOF
chmod +x "$scratch/command"
probe() { capture env PLEAT="$scratch/command" ROOT="$ROOT" bash -c ". '$ROOT/tests/cli/harness.bash'; $1"; }

# ---- calc ------------------------------------------------------------------------------------------------------------

for truth in "1 < 2" "2 >= 2.0" "(0.5 - 1 / 2) ^ 2 < 1e-12" "int(7 / 2) == 3" "-3 < -2.5e0" "!(1 > 2)" "1<2 && 2 < 3" \
    "1 <= 3e-4 || 1 == 1" "2 * (3 + 4) == 14" "5 % 3 == 2" ".5 != 1" "1 == 1 && 1"; do
    check "true: $truth" calc "$truth"
done

for lie in "2 < 1" "1 == 2 && 1 == 1" "1 < 2 && 3 < 2"; do
    probe "calc '$lie'"
    check "false: $lie" exits 1
    check "which needs no word: $lie" test -z "$stdout$stderr"
done

# refuses MESSAGE EXPRESSION...: calc fails for each, and says why and of what.
refuses() {
    local message=$1 expression
    shift
    for expression; do
        probe "calc '$expression'"
        check "no number in: $expression" exits 1
        check "calc says '$message' of: $expression" test "$stdout" = "  calc: $message: $expression"
    done
}
refuses "'nan' is not a number" "nan <= 1e-3" "1 < 2 && nan < 1" "-nan < 1" "(1 + nan) ^ 2 < 1e-9"
refuses "'inf' is not a number" "inf > 5" "5 < inf" "-inf < 0"
refuses "'null' is not a number" "null <= 1" "0 == null"
refuses "an operand is missing before '<= 3'" " <= 3" "<= 3"
refuses "an operand is missing before '- 5 < 0'" "- 5 < 0"
refuses "an operand is missing before '/ 300 < 215'" " / 300 < 215"
refuses "an operand is missing before '&& 1 < 2'" "3 > && 1 < 2"
refuses "an operand is missing at the end" "" "  " "5 >" "5 > 1 + " "1 < 2 &&"
refuses "an operator is missing before '7 < 8'" "6 7 < 8"
refuses "it compares nothing" "1" " 1" "3 + 4" "1 && 1"
refuses "its parentheses do not match" "(1 < 2" "1 < 2)" "(1 + 2 == 3"

# ---- texts -----------------------------------------------------------------------------------------------------------

check "equal texts are the same" same "a b" "a b"
for args in "a b" "'' ''" "a ''" "'' a"; do
    probe "same $args"
    check "not the same: $args" exits 1
done

# ---- counts ----------------------------------------------------------------------------------------------------------

probe "check one true; check two true; finish"
check "what holds passes" exits 0
check "and is counted" test "$stdout" = "2 passed, 0 failed"

probe "check good true; check bad calc 'nan < 1'; check worse false; finish"
check "what does not hold fails the file" exits 1
check "and is named" prints "^FAILED: bad$"
check "with the expression" prints "calc: 'nan' is not a number: nan < 1"
check "each is counted" prints "^1 passed, 2 failed$"

probe "skip 'no GPU'; check one true; finish"
check "a skip does not fail the file" exits 0
check "it is named" prints "^skip no GPU$"
check "and counted" prints "^1 passed, 0 failed, 1 skipped$"

probe "needs no-such-program; check never false; finish"
check "a file that needs what is not there is skipped" exits 0
check "to its end" prints "^0 passed, 0 failed, 1 skipped$"

# ---- what a run of the command left -----------------------------------------------------------------------------------

probe "try alpha '\"beta\": 7,'; check a prints '^alpha\$'; check b test \"\$(field beta)\" = 7; check c exits 0; finish"
check "output, fields and exit codes are read" prints "^3 passed, 0 failed$"

probe "try alpha; check a says alpha; check b prints beta; check c exits 1; check d calc \"\$(field no) < 1\"; finish"
check "and what is not there is not found" prints "^0 passed, 4 failed$"

probe "fails 2 'no such thing' fail; finish"
check "fails() takes a refusal: code, message, nothing on stdout" prints "^3 passed, 0 failed$"

probe "fails 3 'another thing' fail; fails 0 'no such thing' alpha; finish"
check "and no other code, message or output" prints "^2 passed, 4 failed$"

finish
