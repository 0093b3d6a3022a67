#!/bin/bash
# SPDX-License-Identifier: MIT
# ctest-labels: slow
#
# interrupt.sh: Ctrl-C in eval, calibrate and bench serve: what is kept is said, the exit code is 130, and no file has half
# of anything.  Of eval, rows that are complete are printed, those that it prints where it is let alone; else nothing is.
. "$(dirname "$0")/harness.bash"
TASKS=$ROOT/eval/tasks.jsonl
echo old >"$scratch/kept"

# catches PID: whether it handles SIGINT by now, as pleat: until it is that, it is a shell with a handler of its own, and
# ignores SIGINT from then on
catches() {
    [ "/proc/$1/exe" -ef "$PLEAT" ] && (($(sed -nE 's/^SigCgt:.*(.)$/0x\1/p' "/proc/$1/status" 2>/dev/null || echo 0) & 2))
}

# interrupts ARGS...: like try, with Ctrl-C while the work goes on; $delay seconds in it
interrupts() {
    "$PLEAT" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null &
    local pid=$!
    while kill -0 $pid 2>/dev/null && ! catches $pid; do sleep 0.05; done
    sleep "${delay:-0.3}"
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
check "eval: says what is lost" says "^pleat eval: interrupted before a row was complete: nothing is kept.*--samples N"
check "eval: files stay as they were" no_files
interrupts eval -m "$MODEL" --text "$ROOT/eval/prose.txt" -q
check_interrupted "eval --text"

# Of sixteen rows the first are kept, whenever it comes: some delay falls between the first and the last
few=(eval -m "$MODEL" --tasks "$TASKS" --samples 1 -q --answers "$scratch/page.html")
rows=(f16 k8v8 k8v4 k4v4 k4v2 f32 kvcomp rd topk h2o snapkv streaming random recent leankv:ah=1 leankv:ah=2)
try "${few[@]}" --kv f16 --format csv
alone=$(sed -n 's/,[^,]*$//; 2p' <<<"$stdout")
rm "$scratch/page.html"
for delay in 0.3 0.6 1.2 2.4 5 10 20 40 80; do
    interrupts "${few[@]}" "${rows[@]/#/--kv=}" --format csv
    [ $code != 130 ] || [ -n "$stdout" ] && break
done
check "eval: some rows are kept" exits 130
check "eval: the first is the one that it is alone" test "$(sed -n 's/,[^,]*$//; 2p' <<<"$stdout")" = "$alone"
n=$(($(wc -l <"$scratch/out") - 1))
check "eval: what is missing is said" says "^pleat eval: interrupted: $n of 16 rows are complete; what is missing is ${rows[n]}.*--answers is not written"
check "eval: nor is it" no_files
unset delay
interrupts eval -m "$MODEL" --tasks "$TASKS" --samples 1 --text "$ROOT/eval/prose.txt" -np 1 --ctx-window 256 -q --format json \
    -o "$scratch/kept"
[ -s "$scratch/kept" ] && python3 - "$scratch/kept" <<'PY' # whatever it was then
import json, sys
text = open(sys.argv[1]).read()
assert text == "old\n" or json.loads(text)["complete"] is False, text
PY
check "eval: a file has whole rows, or is as it was" test $? = 0
echo old >"$scratch/kept"

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
