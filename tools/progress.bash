# SPDX-License-Identifier: MIT
#
# progress.bash: says on a terminal that something is still going on.  Source me.

# how_far LOG: the last "[3/195]" of a build or "3/69" of ctest in LOG, if any.
how_far() {
    tail -n 40 "$1" 2> /dev/null | grep -aoE '^\[ *[0-9]+[/%][0-9]*\]|^ *[0-9]+/[0-9]+ Test' | tail -n 1 | tr -d '[] Test'
}

# tick LABEL LOG: every half second, as long as this script runs.
tick() {
    local began=$SECONDS
    while kill -0 $$ 2> /dev/null; do
        printf '\r%-60.60s' "$1 $(how_far "$2") $((SECONDS - began)) s" >&2
        sleep 0.5
    done
}

# with_progress LABEL LOG COMMAND...: run COMMAND in a subshell with its output in LOG, and return its status.  On a
# terminal one line of stderr says LABEL, how far it is and the seconds, and is wiped at the end; elsewhere nothing is
# said.  COMMAND is in front and the line behind, so that Ctrl-C reaches what works.
with_progress() {
    local label=$1 log=$2 status=0 ticker=""
    shift 2
    : > "$log"
    if [ -t 2 ]; then
        tick "$label" "$log" &
        ticker=$!
    fi
    ("$@") > "$log" 2>&1 < /dev/null || status=$?
    if [ -n "$ticker" ]; then
        kill $ticker
        wait $ticker 2> /dev/null || true
        printf '\r%60s\r' "" >&2
    fi
    return $status
}
