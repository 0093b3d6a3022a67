#!/bin/bash
# SPDX-License-Identifier: MIT
# ctest-labels: slow
#
# eval_served.sh: `pleat eval --serve`: what a served request answers is what its sample answers by itself, token for
# token; later turns go on from kept prefixes; and neither neighbours nor the pool nor preemption change an answer.
. "$(dirname "$0")/harness.bash"
TASKS=$ROOT/eval/tasks.jsonl

# samples PATTERN: those whose ids match, into $scratch/tasks
samples() { grep -E "\"id\": \"($1)\"" "$TASKS" >"$scratch/tasks"; }
# asked NAME ARGS...: evaluate; the answers stand in $scratch/NAME
asked() {
    local name=$1
    shift
    try eval -m "$MODEL" --tasks "$scratch/tasks" --format json -q --answers "$scratch/$name" "$@"
    check "eval $*" exits 0
}
same() { cmp "$scratch/$1" "$scratch/$2" >"$scratch/difference"; }
counts() { grep -E '"(correct|total)"' "$scratch/out"; }
first_turns() { grep '"turn":1,' "$scratch/$1"; }
# sum KEY: over the rows
sum() { sed -n "s/^ *\"$1\": \([0-9]*\),*\$/\1/p" "$scratch/out" | awk '{ n += $1 } END { print n + 0 }'; }

# ---- by itself, and served -------------------------------------------------------------------------------------------------
# conversations of two and of three turns, one of them behind a prompt of two chunks, and single turns
samples 'kv_recall-400-0[01]|code_recall-900-00|passkey-900-00|word_problem-300-00|copy_list-300-00'
n_turns=$(grep -o '"prompt"' "$scratch/tasks" | wc -l)
n_samples=$(wc -l <"$scratch/tasks")
later=$((n_turns - n_samples))
asked alone --kv f16
alone=$(counts) alone_bytes=$(field bytes)
check "each turn has an answer" test "$(wc -l <"$scratch/alone")" = "$n_turns"
check "nobody served" prints '"served": null'
asked served --kv f16 --serve
check_json "eval --serve"
check "f16 answers as it does by itself, token for token" same alone served
check "and is counted alike" test "$(counts)" = "$alone"
check "a request a turn" test "$(field requests)" = "$n_turns"
check "every later turn went on from a kept prefix" test "$(field prefix_hits)" = "$later" -a "$later" = 5
check "from most of what was said" calc "$(field prefix_hit_rate) > 0.3 && $(field prompt_tokens_computed) > 0"
check "several ran at once" test "$(field max_concurrency)" = "$n_samples"
check "nobody was preempted" test "$(field preempted_swap)$(field preempted_recompute)" = 00
check "served sequences hold what others do" calc "$(field bytes) < 1.001 * $alone_bytes && $(field bytes) > 0.999 * $alone_bytes"
asked none --kv f16 --serve --prefix-tokens 0
check "--prefix-tokens 0 keeps none" test "$(field prefix_hits)$(field evicted_prefixes)" = 00
check "and answers the same" same none alone
# first turns are cut into the same chunks, served or not, and k8v4 has no policy that would act between them
asked alone8 --kv k8v4
asked served8 --kv k8v4 --serve
check "k8v4's first turns" test "$(first_turns alone8)" = "$(first_turns served8)"

# ---- what must not matter --------------------------------------------------------------------------------------------------
samples 'kv_recall-400-0[01]|code_recall-400-00|word_problem-300-00|copy_list-300-00'
asked_all() { asked "$1" --serve --kv "f16 leankv:ah=3 snapkv:budget=50% kvcomp" -b 64 --prefix-tokens 128 "${@:2}"; }
asked_all wide
check "hits under every spec" test "$(sum prefix_hits)" = 20
asked_all single -np 1 -t 1
check "answers do not depend on neighbours and threads" same wide single
check "one ran at a time" test "$(field max_concurrency)" = 1
asked_all swapped --pool-bytes 4MiB --watermarks 1,1 --preempt swap
check "a small pool preempts by swap" calc "$(sum preempted_swap) > 0 && $(sum preempted_recompute) == 0"
check "and evicts prefixes" calc "$(sum evicted_prefixes) > 0 && $(sum prefix_hits) < 20"
check "answers do not depend on swaps" same wide swapped
asked_all again --pool-bytes 4MiB --watermarks 1,1 --preempt recompute
check "or has requests computed again" calc "$(sum preempted_recompute) > 0 && $(sum preempted_swap) == 0"
check "answers do not depend on that" same wide again

# ---- forms -----------------------------------------------------------------------------------------------------------------
samples kv_recall-400-00
mv "$scratch/tasks" "$scratch/one"
try eval -m "$MODEL" --tasks "$scratch/one" --serve --kv "f16 k8v4" --format csv -q
check "a table" prints "^kv,kv_recall,accuracy,accuracy_se,gain,gain_se,fraction,fraction_short,bytes,seconds,prefix_hits,prefix_hit_rate,evicted_prefixes,preempted$"
check "a row for each spec" prints "^k8v4,1.000,"
sed 's/"answer": "[0-9]*"/"answer": "no"/g' "$scratch/one" >"$scratch/wrong"
for way in "" --serve; do
    # shellcheck disable=SC2086
    try eval -m "$MODEL" --tasks "$scratch/wrong" $way --format json -q --answers "$scratch/told"
    check "wrong answers $way" prints '"correct": 0'
    check "are told up to their first wrong token $way" test "$(grep -cE \
        '^\{"kv":"f16","id":"kv_recall-400-00","turn":[12],"right":false,"answer":"[^"]{1,4}","tokens":\[[0-9]+\]\}$' "$scratch/told")" = 2
done

# ---- what is refused -------------------------------------------------------------------------------------------------------
fails 2 "--serve needs --tasks: requests are the samples" eval -m x --serve
fails 2 "--serve and --text exclude each other: requests are the samples" eval -m x --tasks x --text y --serve
fails 2 "--report and --serve exclude each other" eval -m x --tasks x --serve --report y
for option in "--pool-bytes 1MiB" "--preempt swap" "--swap-bytes 0" "--watermarks 1,1" "--prefix-tokens 0" "--page-tokens 16"; do
    # shellcheck disable=SC2086
    fails 2 "${option% *} needs --serve" eval -m x --tasks x $option
done
fails 2 "--answers needs --tasks" eval -m x --text x --answers y
fails 2 "--watermarks: LOW is above 0 and HIGH no less" eval -m x --tasks x --serve --watermarks 1,0.5
fails 2 "--prefix-tokens 100 is no multiple of" eval -m "$MODEL" --tasks "$scratch/one" --serve --prefix-tokens 100
fails 1 "kv_recall-400-00: .* the pool has" eval -m "$MODEL" --tasks "$scratch/one" --serve --pool-bytes 1MiB
fails 1 "cannot write /no/dir/x" eval -m x --tasks x --answers /no/dir/x
fails 1 "cannot write /dev/full" eval -m "$MODEL" --tasks "$scratch/one" --answers /dev/full -o "$scratch/rows" -q
check "neither file appears" test ! -e "$scratch/rows"
finish
