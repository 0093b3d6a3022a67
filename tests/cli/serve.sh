#!/bin/bash
# SPDX-License-Identifier: MIT
# ctest-labels: slow
#
# serve.sh: `pleat bench serve`: traces that are wrong, counts that add up, simulated results that are the same twice, and
# the engine against what is known of a trace.  No check depends on speed.
. "$(dirname "$0")/harness.bash"

serve() { try bench serve --format json -q "$@"; }
simulate() { serve --simulate --arch llama3-8b --prices 1e7,1e5,2e5,0.001 -c 4096 --pool-bytes 8GiB "$@"; }
real() { serve -m "$MODEL" -t 2 "$@"; }
# figures: what the last try printed, without its parameters
figures() { sed '/"params"/,/}/d' "$scratch/out"; }
counts_add_up() { [ $(($(field completed) + $(field failed) + $(field rejected))) = "$(field requests)" ]; }

# ---- wrong command lines -----------------------------------------------------------------------------------------------
fails 2 "say who serves what: -m MODEL --synthetic chat --pool-bytes" bench serve
fails 2 "give --trace FILE or --synthetic NAME" bench serve -m x --pool-bytes 1MiB
fails 2 "--trace and --synthetic exclude each other: give one of them" \
    bench serve -m x --pool-bytes 1MiB --trace x --synthetic chat
fails 2 "give --pool-bytes" bench serve -m x --synthetic chat
fails 2 "--pool-bytes: '-1' is no number of bytes" bench serve -m x --synthetic chat --pool-bytes -1
fails 2 "--pool-bytes: '0' is no number of bytes between 1" bench serve -m x --synthetic chat --pool-bytes 0
fails 2 "--swap-bytes: '0.5' is no number of bytes between 0" bench serve --swap-bytes 0.5
fails 2 "no model: give -m FILE, .*, or --simulate --arch NAME" bench serve --synthetic chat --pool-bytes 1MiB
fails 2 "--fractions: one for each --kv" bench serve -m x --synthetic chat --pool-bytes 1MiB --simulate --fractions 1,1
fails 2 "no --kv is leankv" bench serve -m x --synthetic chat --pool-bytes 1MiB --kv "f16 topk" --ah-most 4
fails 2 "--prefix-tokens 100 is no multiple of 512" \
    bench serve -m "$MODEL" --synthetic chat --pool-bytes 64MiB --prefix-tokens 100
fails 1 "--pool-bytes is too small for any request" bench serve -m "$MODEL" --synthetic chat --pool-bytes 64KiB
fails 2 "--rate: 'nan' is not a number" bench serve -m x --synthetic chat --pool-bytes 1MiB --rate nan
fails 2 "--rate: '0' is not a number" bench serve -m x --synthetic chat --pool-bytes 1MiB --rate 0
fails 2 "--preempt: 'swop' is none of .* nearest is 'swap'" bench serve --preempt swop
fails 2 "--watermarks: '0.5' is not 2 numbers, LOW,HIGH: of the pool" bench serve -m x --synthetic chat --pool-bytes 1MiB --watermarks 0.5
fails 2 "--watermarks: 'nan' is not a number" bench serve --watermarks nan,1
fails 2 "--arch needs --simulate: it has no weights to run" bench serve --arch llama3-8b --synthetic chat --pool-bytes 1MiB
fails 2 "--arch needs --prices" bench serve --simulate --arch llama3-8b --synthetic chat --pool-bytes 1MiB
fails 2 "--prices: '1,2' is not 4 to 6 numbers: ns of a step" bench serve --simulate -m x --synthetic chat --pool-bytes 1MiB --prices 1,2
fails 2 "--prices needs --simulate" bench serve -m x --synthetic chat --pool-bytes 1MiB --prices 1,2,3,4
fails 2 "--fractions needs --simulate" bench serve -m x --synthetic chat --pool-bytes 1MiB --fractions 0.5
fails 2 "--arch and -m exclude each other" bench serve -m x --arch llama3-8b --synthetic chat --pool-bytes 1MiB
fails 2 "--text needs --model: its words become tokens" \
    bench serve --simulate --arch llama3-8b --prices 1,2,3,4 --synthetic chat --pool-bytes 1MiB --text x
fails 2 "--arch 'llama3-8': not known; the nearest is 'llama3-8b'" \
    bench serve --simulate --arch llama3-8 --prices 1,2,3,4 --synthetic chat --pool-bytes 1MiB
made() { fails 2 "$1" bench serve --simulate --arch llama3-8b --prices 1,2,3,4 -c 4096 --pool-bytes 1GiB "${@:2}"; }
made "'chatt' is none of .* nearest is 'chat'" --synthetic chatt
made "'zzzzzzzz' is none of .*shared-prefix, fixed$" --synthetic zzzzzzzz
made "'promt=3': unknown key; the nearest is 'prompt'; there are prompt, output" --synthetic chat:promt=3
made "'zzzzzzzz=3': unknown key; there are prompt, output" --synthetic chat:zzzzzzzz=3
made "'requests=0': that is an option of its own, --requests" --synthetic chat:requests=0
made "'prompt' is no KEY=VALUE" --synthetic chat:prompt
made "--watermarks: LOW is above 0 and HIGH no less" --synthetic chat --watermarks 1,0.5
made "--watermarks: LOW is above 0 and HIGH no less" --synthetic chat --watermarks 0,1
made "--page-tokens 17 must be a multiple of 16 from 16 to 4096" --synthetic chat --page-tokens 17
made "--prices: all are 0" --synthetic chat --prices 0,0,0,0
made "--prices: '1e15' is not a number between 0 and 1e" --synthetic chat --prices 1e15,1,1,1
made "--fractions: one for each --kv" --synthetic chat --kv "f16 k8v4" --fractions 0.5
made "nothing is compressed in a simulation" --synthetic chat --kv leankv --ah-most 4
fails 2 "--kv leankv:ah=3,al=0 has ah=3 and al=0" bench serve -m "$MODEL" --synthetic chat --pool-bytes 64MiB \
    --kv leankv:ah=3 --ah-most 2
fails 2 "al up to ah at most" bench serve -m "$MODEL" --synthetic chat --pool-bytes 64MiB \
    --kv leankv:ah=3 --ah-most 5 --al-most 6
fails 1 "--pool-bytes 1: the pool has from [0-9]+ bytes" bench serve --simulate --arch llama3-8b --prices 1,2,3,4 \
    --pool-bytes 1 --synthetic chat
made "'prompt=2.5': prompt is a whole number between 1" --synthetic chat:prompt=2.5
made "'share=nan': share is a number between 0 and 1" --synthetic chat:share=nan
made "prefix=5000 leaves no room for a prompt in a context of 4096" --synthetic chat:prefix=5000
made "prefix=0, prompt=8000 and output=128 are more than a context of 4096" --synthetic fixed:prompt=8000
made "prompt=512 and output=3585 are more than a context of 4096" --synthetic fixed:output=3585
made "prefix=4000, prompt=40 and output=64 are more" --synthetic shared-prefix:prefix=4000
made "'prompt=9': prompt stands there twice" --synthetic fixed:prompt=8,prompt=9
made "the quotas add up to 110 %" --synthetic chat --tenants a:50%,b:60%
made "'a' is not NAME:QUOTA%" --synthetic chat --tenants a
made "'a:10%:0' is not NAME:QUOTA%" --synthetic chat --tenants a:10%:0
made "'a' stands there twice" --synthetic chat --tenants a:10%,a:10%
made "cannot read /no/trace" --trace /no/trace
for file in --svg --series --write-trace; do
    fails 1 "cannot write /no/dir/x" bench serve -m x --synthetic chat --pool-bytes 1GiB $file /no/dir/x
done

# ---- traces ------------------------------------------------------------------------------------------------------------
cat >"$scratch/bad" <<'END'
{"arrival": 0, "prompt_tokens": 100, "output_tokens": 20}
{"arrival": -1, "prompt_tokens": 100, "output_tokens": 20}
{"arrival": 2, "prompt_tokens": 100, "output_tokens": 21, "prefix": "a", "prefix_tokens": 50}
{"arrival": 1, "prompt_tokens": 100, "output_tokens": 20}
{"arrival": NaN, "prompt_tokens": 100, "output_tokens": 20}
{"arrival": 3, "prompt_tokens": 0, "output_tokens": 20}
{"arrival": 3, "prompt_tokens": 100, "output_tokens": 99999999999}
{"arrival": 3, "prompt_tokens": 100, "output_tokens": 20, "tenant": "x"}

{"arrival": 3, "prompt_tokens": 1000000, "output_tokens": 20}
{"arrival": 3, "prompt_tokens": 100, "output_tokens": 20, "tennant": "x"}
{"arrival": 1e999, "prompt_tokens": 100, "output_tokens": 20}
["arrival"]
no request
{"arrival": 4, "prompt_tokens": 10, "output_tokens": 20, "prefix": "a", "prefix_tokens": 50}
{"arrival": 4, "prompt": "Once upon", "output_tokens": 20}
{"prompt_tokens": 10, "output_tokens": 20}
{"arrival": 4, "prompt_tokens": 10, "output_tokens": 22, "salt": "s", "priority": -3}
END
simulate --trace "$scratch/bad"
check "a trace with wrong lines" exits 0
check_json "bench serve --format json"
rejects() { check "line $1: $2" says "/bad:$1: rejected: $2"; }
rejects 2 '"arrival" is not a number of seconds between 0'
rejects 4 '"arrival" 1 is before 2'
rejects 5 "column [0-9]+: .*NaN"
rejects 6 '"prompt_tokens" is not a whole number between 1'
rejects 7 '"output_tokens" is not a whole number between 1'
rejects 8 "unknown tenant 'x'"
rejects 10 "."
rejects 11 'unknown "tennant"; the nearest known is .tenant.'
rejects 12 "column [0-9]+: real number overflow"
rejects 13 "not an object"
rejects 14 "column"
rejects 15 '"prefix_tokens" is 50, the prompt has 10'
rejects 16 '"prompt" needs a model'
rejects 17 'no "arrival"'
check "the others are served" test "$(field completed) $(field rejected)" = "3 14"
check "counts add up" counts_add_up
check "tokens are those of who was served" test "$(field total_input_tokens) $(field total_output_tokens)" = "210 63"
sed -n '2p;5p' "$scratch/bad" >"$scratch/all_bad"
fails 1 "no request to serve" bench serve --simulate --arch llama3-8b --prices 1,2,3,4 --pool-bytes 1GiB \
    --trace "$scratch/all_bad"
try bench serve --simulate --arch llama3-8b --prices 1,2,3,4 -c 4096 --pool-bytes 8MiB --synthetic fixed -q
check "requests larger than the pool: nothing is served" exits 1
check "and each is told" says "request 1: rejected: "
check "but not without end" test "$(wc -l <"$scratch/err")" -le 23
# what one command writes appears together or not at all, the trace too
outputs=(--write-trace "$scratch/out_trace" --svg "$scratch/out_svg" -o "$scratch/out_rows")
absent() { [ -z "$(find "$scratch" -name 'out_*')" ]; }
try bench serve --simulate --arch llama3-8b --prices 1,2,3,4 -c 4096 --pool-bytes 8MiB --synthetic fixed -q \
    "${outputs[@]}"
check "nothing is served: exit 1" exits 1
check "and nothing is written" absent
simulate --synthetic fixed --requests 4 "${outputs[@]}" --series /dev/full
check "an output that cannot be written: exit 1" exits 1
check "and is named" says "cannot write /dev/full: No space left"
check "and the others do not appear" absent
simulate --synthetic fixed --requests 4 "${outputs[@]}"
check "all of them appear" test "$code $(find "$scratch" -name 'out_*' | wc -l)" = "0 3"
ln "$scratch/bad" "$scratch/twin"
fails 1 "cannot write .*twin: it is the same file" bench serve --simulate --arch llama3-8b --prices 1,2,3,4 \
    --pool-bytes 1GiB --trace "$scratch/bad" --write-trace "$scratch/twin"

# ---- simulated: the same twice -----------------------------------------------------------------------------------------
busy="--synthetic chat:priorities=3 --requests 300 --rate 40 --tenants a:30%:2,b:20% --max-running 200"
# shellcheck disable=SC2086
{
    simulate $busy --pool-bytes 2GiB --kv "f16 k8v4" --write-trace "$scratch/trace"
    check "simulated" exits 0
    check "counts add up" counts_add_up
    once=$stdout figures=$(figures)
    simulate $busy --pool-bytes 2GiB --kv "f16 k8v4"
    check "the same twice" same "$stdout" "$once"
    simulate --trace "$scratch/trace" --tenants a:30%:2,b:20% --max-running 200 --pool-bytes 2GiB --kv "f16 k8v4"
    check "the trace as written gives the same" same "$(figures)" "$figures"
    simulate $busy --pool-bytes 2GiB --kv "f16 k8v4" --seed 2
    check "another seed gives another" test "$(figures)" != "$figures"
}
check "f16 had no room for all" calc "$(field pool_used_max) > 0.8"
sum() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$scratch/trace" | awk '{ n += $1 } END { print n }'; }
simulate --trace "$scratch/trace" --tenants a:30%,b:20%
check "input tokens are the trace's" same "$(field total_input_tokens)" "$(sum prompt_tokens)"
check "output tokens are the trace's" same "$(field total_output_tokens)" "$(sum output_tokens)"
check "chat has 225 tokens in" calc "$(sum prompt_tokens) / 300 > 215 && $(sum prompt_tokens) / 300 < 235"
check "and 209 out" calc "$(sum output_tokens) / 300 > 205 && $(sum output_tokens) / 300 < 211"
simulate --trace "$scratch/trace" --tenants a:30%,b:20% --rate inf
check "--rate inf: all at once" calc "$(field median_ttft_ms) > 0"
check "the rate is told" test "$(field rate)" = inf
for seed in 1 2; do simulate --synthetic fixed:shape=1 --seed $seed --write-trace "$scratch/seed$seed"; done
check "lengths are the seed's" calc "$(cmp -s "$scratch/seed1" "$scratch/seed2"; echo $?) == 1"
for kind in chat sharegpt sharegpt-vllm alpaca longdoc shared-prefix fixed; do
    simulate --synthetic $kind --requests 8 -c 512 --prefix-tokens 0
    check "$kind in a small context" test "$(field completed)" = 8
done

simulate --synthetic sharegpt-vllm --requests 300 --prefix-tokens 0
check "ShareGPT as vLLM has it: 225 in" calc "$(field mean_input_tokens) > 215 && $(field mean_input_tokens) < 235"
check "and 209 out" calc "$(field mean_output_tokens) > 205 && $(field mean_output_tokens) < 211"

# Chunks are no longer than the context, whatever -b says, and prefixes are kept at multiples of them.
for args in "-c 300" "-c 500" "-b 8000" "-c 300 -b 100"; do
    # shellcheck disable=SC2086
    simulate --synthetic fixed:prompt=20,output=4 $args
    check "simulated with $args" test "$(field completed)" = 64
    # shellcheck disable=SC2086
    real --synthetic fixed:prompt=20,output=4 --requests 2 --pool-bytes 64MiB $args
    check "an engine with $args" test "$(field completed)" = 2
done

# ---- what is measured ---------------------------------------------------------------------------------------------------
load="--synthetic sharegpt:prompt=200,output=1500,shape=0.35 --requests 2000 --max-running 512 --prefix-tokens 0"
# shellcheck disable=SC2086
{
    simulate $load --rate inf --warmup 300
    check "--warmup" exits 0
    long=$(field output_throughput) n_long=$(field mean_concurrency)
    check "who ended before is not counted" calc "$(field completed) < 2000 && $(field unfinished) == 0"
    simulate $load --rate inf --seconds 20
    check "in the first seconds requests are short, and many" calc "$(field mean_concurrency) > 2 * $n_long"
    simulate $load --steady --warmup 5 --seconds 20
    check "--seconds count from there" calc "$(field duration) >= 20 && $(field duration) < 20.5"
    check "--steady: as many at once as in long runs" calc "$(field mean_concurrency) > 0.9 * $n_long && \
        $(field mean_concurrency) < 1.1 * $n_long"
    check "and as fast" calc "$(field output_throughput) > 0.93 * $long && $(field output_throughput) < 1.07 * $long"
    once=$(figures)
    simulate $load --steady --warmup 5 --seconds 20
    check "the same twice" same "$(figures)" "$once"
    simulate --synthetic fixed:prompt=200,output=300 --requests 400 --max-running 64 --prefix-tokens 0 --rate inf --warmup 30
    check "an answer's length is of those that ended since" calc "$(field completed) < 400 && $(field mean_output_tokens) == 300"
    simulate $load --rate inf --warmup 1e8
    check "nothing is left to measure" exits 1
    check "and that is said" says "all requests had been served before measuring began"
}
made "--steady lets requests come all at once" --synthetic chat --steady --rate 3

# Where specs reject different requests, their figures are of different work.
try bench serve --simulate --arch llama3-8b --prices 1,2,3,4 --pool-bytes 64MB --synthetic chat --kv "f16 k8v4"
check "who rejects what is told" says "note: f16 rejected [1-9][0-9]* requests, k8v4 [0-9]+: they did not serve the same"
try bench serve --simulate --arch llama3-8b --prices 1,2,3,4 --pool-bytes 1GB --synthetic chat --kv "f16 k8v4"
check "and nothing where they are the same" test -z "$(grep "did not serve" <<<"$stderr")"

# vLLM's names
simulate --synthetic fixed:prompt=50,output=10 --requests 9
for key in completed duration total_input_tokens total_output_tokens request_throughput output_throughput \
    total_token_throughput {mean,median,p99}_{ttft,tpot,itl,e2el}_ms; do
    check "json has $key" calc "$(field $key) > 0"
done
check "fixed lengths" test "$(field total_input_tokens) $(field total_output_tokens)" = "450 90"
check "latencies add up" calc "(($(field mean_ttft_ms) + 9 * $(field mean_tpot_ms)) / $(field mean_e2el_ms) - 1) ^ 2 < 1e-12"
check "intervals are the TPOT's" calc "($(field mean_itl_ms) / $(field mean_tpot_ms) - 1) ^ 2 < 1e-9"
check "what is not measured is null" prints '"scheduling_share": null'

# Forms and files
args="--simulate --arch llama3-8b --prices 1e7,1e5,2e5,0.001 -c 4096 --pool-bytes 8GiB --synthetic chat -q"
# shellcheck disable=SC2086
{
    try bench serve $args --kv "f16 k8v4"
    check "a column for each spec" prints "^ +f16 +k8v4$"
    check "a line for each figure" prints "^successful requests +128 +128$"
    try bench serve $args --kv "f16 k8v4" --format csv
    check "csv: a line for each spec" test "$(cut -d, -f1,2 "$scratch/out" | tr '\n' ' ')" = "kv,completed f16,128 k8v4,128 "
    try bench serve $args --format md --series "$scratch/series" --svg "$scratch/svg" --rate 2
}
mkfifo "$scratch/pipe"
cat "$scratch/pipe" >"$scratch/piped" &
simulate --synthetic fixed --requests 2 --series "$scratch/plain"
ln -s plain "$scratch/to_plain"
simulate --synthetic fixed --requests 2 --series "$scratch/pipe" --svg "$scratch/to_plain"
wait $!
check "a pipe stays one" test -p "$scratch/pipe"
check "and gets the series" test "$(head -c 10 "$scratch/piped")" = kv,time_s,
check "a link stays, what it leads to is new" test "$(readlink "$scratch/to_plain") $(head -c 4 "$scratch/plain")" = \
    "plain <svg"
try bench serve $args --format md --rate 2
check "md" prints "^\| successful requests \| 128 \|$"
echo old >"$scratch/rows"
simulate --synthetic fixed --requests 2 --series "$scratch/none" --svg /dev/full -o "$scratch/rows"
check "a figure that cannot be written fails" exits 1
check "and with it the series and -o" test "$(<"$scratch/rows") $(ls "$scratch/none" 2>/dev/null)" = "old "
check "the figure's title" grep -q ">llama3-8b (simulated), pool of 8.00 GiB, chat</text>" "$scratch/svg"
check "no low format, no entry" test -z "$(grep "of these low" "$scratch/svg")"
simulate --synthetic fixed --requests 2 --tenants a:30%:2 --fractions 0.3 --kv f16
check "params have tenants and fractions" test "$(field quota) $(field weight)" = "0.3 2"
check "fractions too" prints '"fractions": \['
simulate --synthetic fixed --requests 2
check "pages as an engine has them, 32 tokens" test "$(field page_tokens)" = 32
simulate --synthetic fixed --requests 2 -c 8192
check "and 64 in long contexts" test "$(field page_tokens)" = 64
check "the series has its columns" test "$(head -1 "$scratch/series")" = \
    kv,time_s,waiting,running,swapped,pages_used,pages_evictable,pages_free,pages_high,pages_low
check "about a thousand points" calc "$(wc -l <"$scratch/series") > 300 && $(wc -l <"$scratch/series") < 1026"
check "pages: used and free are always the same" test \
    "$(awk -F, 'NR > 1 { print $6 + $8 }' "$scratch/series" | sort -u | wc -l)" = 1
for spec in leankv kvcomp topk:keep=10%; do
    fails 2 "--kv '$spec.*': what it keeps depends on the text: give -m, .* or --fractions" bench serve --simulate \
        --arch llama3-8b --prices 1,2,3,4 --pool-bytes 1GiB --synthetic fixed --kv "$spec"
done
try bench serve --simulate --arch gemma2-9b --prices 1,2,3,4 --pool-bytes 4GiB --synthetic fixed --requests 2 \
    --kv h2o:budget=256 --format json -q
check "a policy beside windows" exits 0
check "serves all" test "$(field completed)" = 2
fails 1 "every layer has a sliding window" bench serve --simulate --arch phi-3-mini --prices 1,2,3,4 --pool-bytes 4GiB \
    --synthetic fixed --kv h2o:budget=256
fails 1 "reclaim=block it depends on the text which pages become empty" bench serve --simulate --arch llama3-8b \
    --prices 1,2,3,4 --pool-bytes 4GiB --synthetic fixed --kv h2o:budget=256,reclaim=block
many="--synthetic fixed:prompt=1900,output=100 --requests 200 --pool-bytes 4GiB --prefix-tokens 0"
# shellcheck disable=SC2086
{
    simulate $many --kv f16
    all=$(field mean_concurrency)
    simulate $many --kv h2o:budget=256,format=f16
    check "a budget of 256 makes room" calc "$(field mean_concurrency) > 1.5 * $all"
}
simulate --synthetic fixed --requests 2 --kv "f16 leankv:ah=3,al=1" --fractions 1,0.4 --series "$scratch/specs"
check "specs with commas are quoted there, others not" test "$(sed 's/,[0-9.]*\(,[0-9]*\)\{8\}$//' "$scratch/specs" |
    sed 1d | uniq | tr '\n' ' ')" = 'f16 "leankv:ah=3,al=1" '
if command -v python3 >/dev/null; then
    check "the figure is XML" python3 -c "import sys, xml.dom.minidom as x; x.parse(sys.argv[1])" "$scratch/svg"
else
    skip "no python3 to check the figure"
fi

# ---- the engine --------------------------------------------------------------------------------------------------------
real --synthetic fixed:prompt=40,output=8 --requests 6 --pool-bytes 16MiB --max-running 4 --kv "f16 k8v4"
check "an engine" exits 0
check "counts add up" counts_add_up
check "all are served" test "$(field completed) $(field total_input_tokens) $(field total_output_tokens)" = "6 240 48"
check "as many at once as may be" test "$(field max_concurrency)" = 4
check "and on average" calc "$(field mean_concurrency) > 1 && $(field mean_concurrency) <= 4"
check "fragmentation is known" calc "$(field fragmentation) >= 0 && $(field fragmentation) < 1"
check "a second spec" test "$(grep -c '"what": "serve"' "$scratch/out")" = 2

real --synthetic fixed:prompt=40,output=150 --requests 6 --pool-bytes 3MiB --kv f16 --preempt swap --watermarks 0.6,1 \
    --prefix-tokens 0 --swap-bytes 0
check "no memory to swap to" test "$(field completed) $(field swap_bytes) $(field preempted_swap)" = "6 0 0"
check "so they are computed again" calc "$(field preempted_recompute) > 0"
for how in swap recompute; do
    real --synthetic fixed:prompt=40,output=150 --requests 6 --pool-bytes 3MiB --kv f16 --preempt $how \
        --watermarks 0.6,1 --prefix-tokens 0
    check "a pool too small for all, $how" test "$(field completed) $(field total_output_tokens)" = "6 900"
    check "some gave way by $how" calc "$(field preempted_$how) > 0"
done

# Policies that evict in generation: what requests come to hold is known, so that nobody is preempted where slots are used
# again.
declare -A preempted moved returned median
for how in reuse copy block none; do
    real --synthetic fixed:prompt=40,output=150 --requests 6 --pool-bytes 4MiB --preempt recompute --watermarks 0.7,1 \
        --kv "streaming:budget=48,format=f16,reclaim=$how" --prefix-tokens 0 --page-tokens 16
    check "reclaim=$how" test "$(field completed) $(field total_output_tokens)" = "6 900"
    preempted[$how]=$(field preempted_recompute) moved[$how]=$(field tokens_moved)
    returned[$how]=$(field pages_returned) median[$how]=$(field median_fragmentation)
done
check "reuse, copy: nobody is preempted" test "${preempted[reuse]} ${preempted[copy]}" = "0 0"
check "none: some do" calc "${preempted[none]} > 0"
check "copy moves what stays in every step, reuse next to nothing" calc "${moved[copy]} > 100 * (${moved[reuse]} + 1)"
check "block and none move nothing" test "${moved[block]} ${moved[none]}" = "0 0"
check "none returns no page" test "${returned[none]}" = 0
check "block returns some" calc "${returned[block]} > 0"
check "fragmentation" calc "${median[copy]} <= ${median[reuse]} && ${median[reuse]} < ${median[none]}"

real --synthetic shared-prefix:prefix=300,prompt=20,output=4,shape=0 --requests 6 --pool-bytes 64MiB --kv f16
check "a shared prefix is computed once" test "$(field prompt_tokens_computed)" = 420
check "five hit it" test "$(field prefix_hits)" = 5
check "hit rate" calc "($(field prefix_hit_rate) - 1500 / 1920) ^ 2 < 1e-9"

cat >"$scratch/texts" <<'END'
{"arrival": 0, "prompt": "Once upon a time", "output_tokens": 5}
{"arrival": 0, "prompt_tokens": 3, "output_tokens": 5, "tenant": "b"}
{"arrival": 0.01, "prompt_tokens": 4000, "output_tokens": 500}
{"arrival": 0.02, "prompt_tokens": 700, "output_tokens": 5}
END
real --trace "$scratch/texts" --pool-bytes 4MiB --tenants a:10%,b:10% --text "$ROOT/eval/prose.txt"
check "texts, tenants" exits 0
check "larger than the context" says "texts:3: rejected: "
check "larger than the pool" says "texts:4: rejected: "
check "the others go on" test "$(field completed) $(field rejected) $(field total_output_tokens)" = "2 2 10"

real --simulate --synthetic fixed:prompt=40,output=8 --requests 50 --pool-bytes 64MiB --kv "f16 leankv"
check "simulated with a model's prices" test "$(field completed)" = 50
check "and the prices are told" calc "$(field prompt_ns) + $(field token_ns) + $(field fixed_ns) + $(field byte_ns) > 0"

# A limit of time: who is under way leaves, and what came of it counts
simulate --synthetic fixed:prompt=64,output=2000 --requests 40 --max-running 8 --seconds 3
check "--seconds ends well" exits 0
check "nobody is served to the end" test "$(field completed) $(field unfinished) $(field pages_left)" = "0 40 0"
check "tokens of who was under way count" test "$(field total_output_tokens)" -gt 1000
check "in no more time" test "$(field duration | cut -d. -f1)" = 3
simulate --synthetic fixed:prompt=2000,output=20 --requests 4 --seconds 0.001
check "too short a time is told" says "no request had a token when --seconds were over: give more"
simulate --synthetic fixed:prompt=64,output=20 --requests 40 --max-running 8 --seconds 300
check "who is served before is" test "$(field completed) $(field unfinished)" = "40 0"
simulate --synthetic fixed:prompt=64,output=20 --requests 40 --rate 0.01 --seconds 3
check "nobody is waited for who comes later" test "$(field duration | cut -d. -f1) $(field completed) $(field unfinished)" = "3 1 39"
check "means are of whole requests" test "$(field mean_output_tokens)" = 20.0

finish
