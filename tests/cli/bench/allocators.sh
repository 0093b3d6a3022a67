#!/bin/bash
# SPDX-License-Identifier: MIT
#
# allocators.sh: bench_allocators counts memory right, against what its own list of requests says; and the page of
# bench/papers/article holds the corrected figures.  No time is judged.
. "$(dirname "$0")/../harness.bash"
bench=$(dirname "$PLEAT")/bench/bench_allocators

# alloc ARGS...: run the bench without timing; like try.
alloc() {
    "$bench" --repeats 0 "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
    code=$?
    stdout=$(head -c 4000 "$scratch/out") stderr=$(cat "$scratch/err")
}
refuses() { # REGEX ARGS...
    local regex=$1
    shift
    alloc "$@"
    check "exit 2 from: $*" exits 2
    check "message '$regex' from: $*" says "$regex"
    check "nothing on stdout from: $*" test -z "$stdout"
}
# every AWK: true if it holds in all rows of out, whose columns are variables by name; prints those that break it.
every() {
    awk -F, -v n=0 "NR == 1 { for (i = 1; i <= NF; i++) at[\$i] = i; next }
        function c(name) { return \$at[name] }
        function near(a, b) { return a - b < 1e-8 && b - a < 1e-8 }
        { n++; if (!($1)) { print \"  not so: \" \$0; bad = 1 } } END { exit bad || n == 0 }" "$scratch/out"
}
is_paged='c("allocator") ~ /^paged/'

# ---- what was drawn --------------------------------------------------------------------------------------------------

small=(--pool 32768 --requests 700 --whole --check)
declare -A mean=([chat]=830 [instruct]=380 [code]=1200 [summary]=2800) longest=([chat]=4096 [instruct]=2048 [code]=4096 [summary]=4096)
for w in chat instruct code summary; do
    alloc --workload $w "${small[@]}" --requests-only
    cp "$scratch/out" "$scratch/$w.requests"
    check "$w: 700 requests" test "$(wc -l <"$scratch/out")" = 700
    check "$w: in the order of arrival, within bounds, of the mean that was wanted" awk -F, -v mean="${mean[$w]}" -v most="${longest[$w]}" '
        $2 < before || $3 < 1 || $4 < 1 || $3 + $4 > most { bad = 1 } { before = $2; sum += $3 + $4 }
        END { exit bad || sum / NR < mean - 1 || sum / NR > mean + 1 }' "$scratch/out"

    # The sums over all steps depend on the requests alone, whoever waits or is thrown out.
    awk -F, -v most="${longest[$w]}" '
        { for (i = 1; i <= $4; i++) {
            n = $3 + i; live += n; max += most; known += $3 + $4
            for (b = 1; b <= 128; b *= 2) held[b] += int((n + b - 1) / b) * b } }
        END { printf "max %.12g\nknown %.12g\n", live / max, live / known
            for (b = 1; b <= 128; b *= 2) printf "paged%d %.12g\n", b, live / held[b] }' "$scratch/out" >"$scratch/expected"
    alloc --workload $w "${small[@]}" --format csv
    check "$w: replayed, no memory lost or held twice" exits 0
    cp "$scratch/out" "$scratch/$w.csv"
    check "$w: 14 allocators" test "$(wc -l <"$scratch/out")" = 15
    while read -r name share; do
        check "$w, $name: live / held is $share" every "c(\"allocator\") != \"$name\" || near(c(\"utilisation\"), $share)"
    done <"$scratch/expected"
    check "$w: growing by 16 holds what pages of 16 do" \
        every "c(\"allocator\") !~ /^step16/ || near(c(\"utilisation\"), $(sed -n 's/^paged16 //p' "$scratch/expected"))"
    check "$w: doubling wastes less than half" every 'c("allocator") !~ /^double/ || c("utilisation") > 0.5'
    check "$w: live, slack and free are all of the pool" every 'near(c("live") + c("slack") + c("free"), 1)'
    check "$w: shares are shares" every 'c("external") >= 0 && c("external") <= 1 && c("free") >= 0 && c("slack") >= 0'
    check "$w: pages never fail while there is room, have no holes, move nothing" \
        every "!($is_paged) || (c(\"failures_holes\") == 0 && c(\"external\") == 0 && c(\"moved\") == 0)"
    check "$w: pieces of one length never fail while there is room" every 'c("allocator") != "max" || c("failures_holes") == 0'
    check "$w: what cannot grow throws nobody out" every 'c("allocator") !~ /^(max|known)$/ || c("preempted") + c("again") + c("moved") == 0'
    check "$w: holes make pieces of different lengths fail" test "$(every 'c("allocator") != "known" || c("failures_holes") == 0' | wc -l)" = 1
    check "$w: no time without timing" every 'c("ns_token") == "" && c("ns_allocation") == ""'
    check "$w: smaller pages have larger tables" awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $at["allocator"] ~ /^paged/ { if (before && $at["table_bytes"] >= before) bad = 1; before = $at["table_bytes"] }
        END { exit bad || !before }' "$scratch/out"
done

# ---- memory that is short --------------------------------------------------------------------------------------------

# of COLUMN NAME: its value
of() {
    awk -F, -v column="$1" -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
        $at["allocator"] == name { print $at[column] }' "$scratch/out"
}
alloc --workload chat --pool 32768 --requests 2000 --load 3 --format csv
check "at the longest length the pool holds pool / longest" calc "$(of running max) == 8"
check "an oracle holds more" calc "$(of running known) > 12"
check "pages hold more than an oracle" calc "$(of running paged16) > $(of running known)"
check "and at the mean length: live tokens fill all but the headroom" every 'c("allocator") != "paged1" || (c("live") > 0.93 && c("live") <= 1)'
check "small blocks hold more than large ones" calc "$(of running paged1) > $(of running paged128)"

check "the best fit keeps larger pieces free than the first" calc "$(of external double-best) < $(of external double)"
check "an allocator that moves pieces, counts it" calc "$(of moved double) > 0.1 && $(of moved step16) > $(of moved double)"

# A pool that is hardly larger than the longest request: everything ends.
alloc --prompt 1500 --output 1500 --max 4096 --pool 4224 --requests 40 --shape 1 --workload chat --whole --check --format csv
check "one request at a time: all end" exits 0
check "and hardly ever two" every 'c("running") <= 2'
alloc --workload instruct --prompt 1 --output 1 --shape 0 --max 3 --pool 256 --requests 300 --whole --check --format csv
check "two tokens each" exits 0
check "live in a block of 16 is 1/8" every 'c("allocator") != "paged16" || near(c("utilisation"), 0.125)'

# ---- output ----------------------------------------------------------------------------------------------------------

alloc "${small[@]}" --workload chat --format csv
check "the same seed: the same output" cmp -s "$scratch/out" "$scratch/chat.csv"
alloc "${small[@]}" --workload chat --seed 2 --format csv
check "another seed: another output" test "$(cmp -s "$scratch/out" "$scratch/chat.csv"; echo $?)" = 1
alloc --requests 100 --format json
check_json "json"
check "all four workloads by default" test "$(grep -c '"name": "paged128"' "$scratch/out")" = 4
"$bench" --requests 100 --repeats 1 --workload code --format csv >"$scratch/out"
check "times with timing" every 'c("ns_token") > 0 && c("ns_allocation") >= c("ns_token")'
alloc --requests 100 --workload code --whole
check "a table for people" prints '^paged16 +[0-9.]+ +[0-9.]+%'
alloc --requests 100 --workload code
check "too few requests to fill the pool: it says so" prints '^paged16 +no step counts'

refuses '--no-such' --no-such 1
refuses '--pool x' --pool x
refuses '--pool: no|--pool *:' --pool
refuses 'multiple of 128' --pool 5000
refuses 'multiple of 128 and at least 128 above' --pool 4096
refuses '--load 0' --load 0
refuses '--load nan' --load nan
refuses '--requests 1.5' --requests 1.5
refuses '--requests -3' --requests -3
refuses '--workload novel' --workload novel
refuses '--format xml' --format xml
refuses 'needs a --max of at least' --max 600 --workload chat

# ---- the page --------------------------------------------------------------------------------------------------------

needs python3
# article ARGS...: write the page; like try.
article() {
    python3 "$ROOT/bench/papers/article/run.py" --pleat "$PLEAT" --store "$scratch/store" --out "$scratch/page.md" \
        --quick -q "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
    code=$?
    stdout=$(cat "$scratch/out") stderr=$(cat "$scratch/err")
}
page_has() { unfilled "$scratch/page.md" | grep -E -- "$1" >/dev/null; }
# Slow builds leave out the four tables of a whole server, which serve.sh's command makes.
n_tables=16 only=()
if [ "${CHECK_QUICK:-0}" != 0 ]; then
    n_tables=12
    only=(--only no_cache,models,batches,waste,allocators,blocks,beams,precisions,decode,gain,swap,small)
fi
article "${only[@]}"
check "the page is written" exits 0
check "$n_tables tables" test "$(grep -c '^## ' "$scratch/page.md")" = $n_tables
check "each says what the article has" test "$(grep -c '^\*\*Article\.\*\*' "$scratch/page.md")" = $n_tables
check "those of arithmetic say how they were computed" test "$(grep -c '^Computed: ' "$scratch/page.md")" = 12
check "8B at batch 32: 16 GiB" page_has '^\| Llama 3 8B \| 32 \|.*\| \*\*16\*\* \| 16\.0[0-9]* \| 4x'
check "70B at batch 64: 80 GiB" page_has '^\| Llama 3 70B \| 64 \|.*\| \*\*80\*\* \| 80\.0[0-9]* \| 4x'
check "405B at batch 32: 63 GiB" page_has '^\| Llama 3 405B \| 32 \|.*\| \*\*63\*\* '
check "2048 tokens of 70B: 0.625 GiB, 26.8 ms" page_has '^\| 2048 \|.*\| \*\*0\.625\*\* \|.*\| \*\*26\.8\*\* \|'
check "beams: 140 blocks, 1.094x" page_has '^\| 16 \| 128 \| 512 \| 140 \| \*\*1\.094x\*\*'
check "INT8 and INT4 at batch 256: +36 and +67 %" page_has '^\| 256 \| \+26 \| \+36 \| \+43 \| \+67 \|'
check "k8v8 with its metadata: 41.25 GiB" page_has '`k8v8` \| 264 \| \*\*41\.25\*\*'
check "the longest length wastes most of a chat's memory" page_has '^\| ShareGPT \(chat\) \|.*\| \*\*7[0-9]\.[0-9]\*\* \|'
article --only swap,beams
check "two of them" test "$(grep -c '^## ' "$scratch/page.md")" = 2
article --only waste,tides
check "an unknown table: exit 2" exits 2
check "it is named" says 'tides: not among'
article --pleat "$scratch/none"
check "no program: exit 2" exits 2
mkdir "$scratch/half"
ln -s "$PLEAT" "$scratch/half/pleat"
mkdir "$scratch/half/bench"
printf '#!/bin/sh\necho "no such luck" >&2\nexit 1\n' >"$scratch/half/bench/bench_allocators"
chmod +x "$scratch/half/bench/bench_allocators"
article --pleat "$scratch/half/pleat" --only blocks,swap
check "a bench that fails: exit 1" exits 1
check "the page says so" page_has 'Not measured: .*no such luck'
check "and has the rest" page_has '^## Swap against recomputing'
finish
