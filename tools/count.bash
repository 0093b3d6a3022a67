# SPDX-License-Identifier: MIT
#
# count.bash: what a job's log says: how many tests passed, what was skipped and why, what failed.  Source me.

# totals LOG STATUS: prints "P F S".  Under ctest, lines begin with the test's number; each test's last totals line
# counts, and a test that ctest calls failed counts at least one failure.  Outside ctest every totals line counts.
totals() {
    awk -v status="$2" '
        function add(key, text,    a) {
            split(text, a, /[^0-9]+/)
            passed[key] = a[1]; failed[key] = a[2]; skipped[key] = a[3]
        }
        match($0, /^[0-9]+: /) {
            id = substr($0, 1, RLENGTH - 2)
            text = substr($0, RLENGTH + 1)
            if (text ~ /^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$/) add(id, text)
            next
        }
        /^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$/ { add("line " NR, $0); next }
        match($0, /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: /) {
            id = $0; sub(/^[^#]*#/, "", id); sub(/:.*/, "", id)
            if (substr($0, RLENGTH) ~ /\*\*\*/) bad[id] = 1
            else if (!(id in passed)) passed[id] = 1   # a program that counts nothing is one test
        }
        END {
            for (id in bad) if (failed[id] + 0 == 0) failed[id] = 1
            for (id in passed) p += passed[id]
            for (id in failed) f += failed[id]
            for (id in skipped) s += skipped[id]
            if (status != 0 && f + 0 == 0) f = 1       # did not build, or ended before it could count
            print p + 0, f + 0, s + 0
        }' "$1"
}

# skips JOB LOG: the reasons, each once, behind the job's name; skip_job has put it there already.
skips() { sed -nE "s/^([0-9]+: )?skip ($1: )?(.+)\$/skip $1: \3/p" "$2" | sort -u; }

# what_failed LOG: the lines that matter, for the screen: those in front of a FAIL, and ctest's and compilers' words.
what_failed() {
    {
        grep -aE -B 6 '^FAIL ' "$1" | grep -avE '^(ok|skip|--) *'
        grep -aE '^([0-9]+: )(FAIL |.*CHECK_SEED=|.*(ERROR|error|SUMMARY): )|^FAILED|.* error: |\*\*\*' "$1"
    } | head -n 24
}
