#!/bin/bash
# SPDX-License-Identifier: MIT
# ctest-labels: slow
#
# interrupt.sh: Ctrl-C in eval, calibrate and bench serve: what is kept is said, the exit code is 130, nothing is printed,
# and no file has half of anything.
. "$(dirname "$0")/harness.bash"
TASKS=$ROOT/eval/tasks.jsonl
echo old >"$scratch/kept"

# catches PID: whether it handles SIGINT by now, as pleat: until it is that, it is a shell with a handler of its own, and
# ignores SIGINT from then on
catches() {
    [ "/proc/$1/exe" -ef "$PLEAT" ] && (($(sed -nE 's/^SigCgt:.*(.)$/0x\1/p' "/proc/$1/status" 2>/dev/null || echo 0) & 2))
}

# interrupts ARGS...: like try, with Ctrl-C while the work goes on
interrupts() {
    "$PLEAT" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null &
    local pid=$!
    while kill -0 $pid 2>/dev/null && ! catches $pid; do sleep 0.05; done
    sleep 0.3
    kill -INT $pid
    wait $pid
    code=$?
    stdout=$(<"$scratch/out") stderr=$(<"$scratch/err")
}
check_interrupted() {
    check "$1: exits with 130" exits 130
    check "$1: prints nothing" test -z "$stdout"
    check "$1: says one line" test "$(wc -l <"$scratch/err")" = 1
    check "$1: leaves no half of a file" test -z "$(find "$scratch" -name '*.tmp')"
}
no_files() { test "$(<"$scratch/kept")" = old && test ! -e "$scratch/page.html"; }

interrupts eval -m "$MODEL" --tasks "$TASKS" --kv f16 --kv k8v4 -o "$scratch/kept" --report "$scratch/page.html" -q
check_interrupted eval
check "eval: says what is lost" says "^pleat eval: interrupted: nothing is kept.*--samples N"
check "eval: files stay as they were" no_files
interrupts eval -m "$MODEL" --text "$ROOT/eval/prose.txt" -q
check_interrupted "eval --text"

serve=(bench serve -m "$MODEL" --synthetic fixed:prompt=600,output=100 --requests 200 --pool-bytes 16MiB --kv k8v4 -q)
interrupts "${serve[@]}" -o "$scratch/kept" --series "$scratch/page.html" --svg "$scratch/figure"
check_interrupted "bench serve"
check "bench serve: says how far it was" says "interrupted after [0-9]+ of 200 requests under k8v4: nothing is kept.*--requests N"
check "bench serve: files stay as they were" no_files
check "bench serve: all of them" test ! -e "$scratch/figure"
interrupts "${serve[@]}" --write-trace "$scratch/trace"
check_interrupted "bench serve --write-trace"
check "its trace appears with the result, so not here" test ! -e "$scratch/trace"
interrupts bench serve --simulate --arch llama3-8b --prices 1000,1,1,0.001 --pool-bytes 64GiB --synthetic chat \
    --requests 2000000 -q
check_interrupted "bench serve --simulate"

# calibrate goes on from what it has
calibrate=(calibrate -m "$MODEL" --tasks "$TASKS" --samples 1 --half all --ah 1,3 --al 0 -o "$scratch/profile" -q)
interrupts "${calibrate[@]}"
check_interrupted calibrate
check "calibrate: says what is kept" says "interrupted( before the first point|: .*profile keeps the [1-9] points? measured so far; the same command goes on)"
before=$(grep -c '"accuracy":' "$scratch/profile")
try "${calibrate[@]}"
check "the same command goes on" exits 0
check "and has no fewer points" calc "$(grep -c '"accuracy":' "$scratch/profile") >= $before"
for ah in 1 3; do check "all of them: ah=$ah" prints "^leankv:ah=$ah,al=0 "; done
finish
