#!/bin/bash
# SPDX-License-Identifier: MIT
#
# run.sh: `pleat run` on the reference model: the same text for any number of threads and any chunks, what a compressed
# cache saves, several texts and beams, and prompts that are refused.
. "$(dirname "$0")/harness.bash"

# One thread, two threads
try run -m "$MODEL" -p "The sea was calm and" -n 24 -t 1 --kv k8v4
one=$stdout
check "run" exits 0
check "run prints a text" test -n "$one"
check "run sums up on stderr" says "KV cache +k8v4: .* in [0-9]+ pages, [0-9.]+ % of f16's"
try run -m "$MODEL" -p "The sea was calm and" -n 24 -t 2 --kv k8v4
check "the same text from two threads" same "$stdout" "$one"
try run -m "$MODEL" -p "The sea was calm and" -n 24 --kv k8v4 -q
check "-q is quiet" test -z "$stderr"
check "-q gives the same text" same "$stdout" "$one"

# The prompt from a file and from stdin
printf 'The sea was calm and\n' >"$scratch/prompt"
try run -m "$MODEL" -f "$scratch/prompt" -n 24 --kv k8v4
check "-f gives the same text" same "$stdout" "$one"
stdout=$("$PLEAT" run -m "$MODEL" -f - -n 24 --kv k8v4 -q <"$scratch/prompt")
check "-f - gives the same text" same "$stdout" "$one"

# Chunks do not matter at f32
head -c 1500 "$ROOT/eval/prose.txt" | iconv -c -t utf-8 >"$scratch/long" 2>/dev/null || head -c 1500 "$ROOT/eval/prose.txt" >"$scratch/long"
try run -m "$MODEL" -f "$scratch/long" -n 16 --kv f32 -q
whole=$stdout
try run -m "$MODEL" -f "$scratch/long" -n 16 --kv f32 -q -b 37
check "the same text for a prompt in chunks" same "$stdout" "$whole"

# JSON
try run -m "$MODEL" -f "$scratch/long" -n 16 --kv k8v4 --format json -q
check "json" exits 0
check_json "run --format json"
for key in text tokens prompt generated finish_reason kv spec bytes bytes_f16 fraction pages_used pages_peak \
    tokens_high tokens_low tokens_dropped speed prompt_tokens_per_s generation_tokens_per_s load_ms; do
    check "json has $key" prints "\"$key\":"
done
check "json says which spec" test "$(field spec)" = k8v4
check "json says why it ended" test "$(field finish_reason)" = length
check "json counts" test "$(field generated)" = 16
check "k8v4 holds less than half of f16" calc "$(field fraction) > 0.3 && $(field fraction) < 0.5"
held=$(field bytes)
try run -m "$MODEL" -f "$scratch/long" -n 16 --kv f16 --format json -q
check "f16 holds more than k8v4" calc "$(field bytes) > 1.9 * $held"
try run -m "$MODEL" -f "$scratch/long" -n 4 -ctk q8_0 -ctv q4_0 --format json -q
check "llama.cpp's types are a spec" test "$(field spec)" = k8v4

# A policy: every token of every lane is high, low or dropped; chunks of a prompt are classed at its end
sum_tokens() { echo $(($(field tokens_high) + $(field tokens_low) + $(field tokens_dropped))); }
lean=leankv:ah=3,al=1,window=32
for threads in 1 2; do
    try run -m "$MODEL" -f "$scratch/long" -n 60 --kv $lean -t $threads
    check "leankv on $threads threads" exits 0
    check "the summary counts the levels" says "^tokens +high [0-9,]+, low [0-9,]+, dropped [0-9,]+; summed over"
    [ $threads = 1 ] && one=$stdout
done
check "the same text from two threads" same "$stdout" "$one"
try run -m "$MODEL" -f "$scratch/long" -n 60 --kv $lean --format json -q
check "leankv, json" exits 0
check "every token is counted once" calc "$(sum_tokens) == 32 * ($(field prompt) + 59)"
check "each level has some" calc "$(field tokens_high) > 0 && $(field tokens_low) > 0 && $(field tokens_dropped) > 0"
check "leankv holds less than k8v4" calc "$(field bytes) < $held"
try run -m "$MODEL" -f "$scratch/long" -n 60 --kv topk:keep=25% --format json -q
check "topk keeps a quarter" calc "$(field tokens_high) == 32 * int(($(field prompt) + 59 + 3) / 4)"
check "and drops the rest" calc "$(field tokens_low) == 0 && $(sum_tokens) == 32 * ($(field prompt) + 59)"
try run -m "$MODEL" -p "Hi" -n 2 --kv leankv --format json -q
check "a text shorter than the window" exits 0
fails 1 "the spec's window of 5000 tokens is longer" run -m "$MODEL" -p "Hi" -n 2 --kv leankv:window=5000

# csv, md, -o
try run -m "$MODEL" -p "One, two," -n 4 --format csv -q
check "csv has a header" prints "^kv,prompt,generated,finish_reason,"
try run -m "$MODEL" -p "One, two," -n 4 --format md -q
check "md has a header" prints "^\| kv \|"
try run -m "$MODEL" -p "One, two," -n 4 --format json -q -o "$scratch/result"
check "-o writes the file" grep -q '"finish_reason"' "$scratch/result"
check "-o leaves stdout empty" test -z "$stdout"
fails 1 "cannot write /no/dir/x" run -m "$MODEL" -p x -n 1 -o /no/dir/x
ln "$scratch/prompt" "$scratch/twin"
fails 1 "twin: it is the same file as .*prompt, which is read" \
    run -m "$MODEL" -f "$scratch/prompt" -n 1 -o "$scratch/twin"
check "-o leaves what is read as it is" test -s "$scratch/prompt"

# One token comes with the prompt: none was timed.
try run -m "$MODEL" -p "One, two," -n 1 --format json
check "zero tokens timed are null" test "$(field generated) $(field generation_tokens_per_s)" = "1 null"
check "the prompt's speed is a number" calc "$(field prompt_tokens_per_s) > 0"
check "and the summary has no speed" says "^generated +1 tokens; finished: length$"
try run -m "$MODEL" -p "One, two," -n 1 --format csv -q
check "- in a table" test "$(tail -1 "$scratch/out" | cut -d, -f13)" = -

# A turn ends by itself
try run -m "$MODEL" --chat -p "Add the numbers 3 4 5 step by step." -n 200 --format json -q
check "chat stops at the end of the turn" test "$(field finish_reason)" = stop
check "chat shows no special token" test -z "$(grep -F '<|im_end|>' "$scratch/out")"

# Limits: the prompt, the context, and no tokens at all
head -c 30000 "$ROOT/eval/prose.txt" >"$scratch/huge"
iconv -f utf-8 -t utf-8 -c "$scratch/huge" >"$scratch/huge.txt" 2>/dev/null || cp "$scratch/huge" "$scratch/huge.txt"
fails 1 "the prompt is too long: it has [0-9]+ tokens, and the context of 4096 has room for 4095" \
    run -m "$MODEL" -f "$scratch/huge.txt" -n 4
fails 1 "the prompt is too long: it has [0-9]+ tokens, and the context of 3 " run -m "$MODEL" -p "a b c d e" -c 3
fails 1 "--ctx-size 9999: the model's context is 4096" run -m "$MODEL" -p a -c 9999
fails 1 "^pleat run: $scratch/none.gguf: cannot open: No such file" run -m "$scratch/none.gguf" -p a
stderr=$("$PLEAT" run -m "$MODEL" -p "Once upon a time" --temp 1 2>&1 >/dev/full) code=$?
check "a full disk ends the text" exits 1
check "at its first words" says "^generated  +[0-9] tokens.*; finished: not written"
check "and says why" says "cannot write standard output: No space"
fails 1 "cannot write /dev/full: No space" run -m "$MODEL" -p "Once upon a time" -o /dev/full
try run -m "$MODEL" -p "Once upon a time" -c 16 --format json
check "generation ends with the context" test "$(field finish_reason)" = length
check "and fills it" calc "$(sed -n 's/^ *"generated": \([0-9]*\).*/\1/p' "$scratch/out") + $(sed -n 's/^ *"prompt": \([0-9]*\).*/\1/p' "$scratch/out") == 16"
check "and says so" says "the context of 16 tokens is full"
try run -m "$MODEL" -p "Once upon a time" -n 0 --format json
check "-n 0 generates nothing" test "$(field generated)" = 0
check "-n 0 exits 0" exits 0
try run -m "$MODEL" -p "" -n 2
check "an empty prompt is bos alone" exits 0
check "and that is said" says "note: the prompt is empty: generation starts from the beginning-of-text token"
check "a short text's pages are mostly empty" says "% of f16's .*\(pages of 32 tokens, mostly empty yet\)"
try run -m "$MODEL" -p "" -n 2 -q
check "-q: no note of it" test -z "$stderr"
try run -m "$MODEL" -p a -n 1 -t 200
check "more threads than CPUs" exits 0
[ "$(nproc)" -ge 200 ] || check "more threads than cores is noted" says "note: --threads 200 is more than the [0-9]+ cores"

# Prompts that are no text
printf 'abc\377def' >"$scratch/bytes"
fails 1 "not valid UTF-8: byte 0xff at offset 3" run -m "$MODEL" -f "$scratch/bytes" -n 1
printf 'abc\303' >"$scratch/bytes"
fails 1 "not valid UTF-8: byte 0xc3 at offset 3" run -m "$MODEL" -f "$scratch/bytes" -n 1

# Sampling: the same seed, the same text
try run -m "$MODEL" -p "The sea" -n 16 --temp 1 --seed 7 -q
seven=$stdout
try run -m "$MODEL" -p "The sea" -n 16 --temp 1 --seed 7 -q
check "the same seed gives the same text" same "$stdout" "$seven"
try run -m "$MODEL" -p "The sea" -n 16 --temp 1 --seed 8 -q
check "another seed gives another text" test "$stdout" != "$seven"

# Several texts from one prompt: each is the one that its seed gives alone
: >"$scratch/expected"
for seed in 7 8 9; do
    try run -m "$MODEL" -f "$scratch/long" -n 16 --temp 1 --seed $seed -q
    [ $seed = 7 ] || echo >>"$scratch/expected"
    { echo "== text $((seed - 6)): seed $seed"; cat "$scratch/out"; } >>"$scratch/expected"
done
try run -m "$MODEL" -f "$scratch/long" -n 16 --temp 1 --seed 7 --n-best 3
check "several texts" exits 0
sed -E 's/^== ([123]): (seed [789]), [0-9]+ tokens, [a-z]+ ==$/== text \1: \2/' "$scratch/out" >"$scratch/several"
check "each of several texts is its seed's" cmp -s "$scratch/several" "$scratch/expected"
check "the summary counts texts" says "^generated +[0-9]+ tokens in 3 texts"
check "and shared pages" says "in [0-9]+ pages \([1-9][0-9]* of them shared\), .* unshared"
try run -m "$MODEL" -f "$scratch/long" -n 16 --temp 1 --format json -q
held_by_one=$(field pages_used)
check "alone, all pages are its own" same "$(field pages_own)" "$held_by_one"
try run -m "$MODEL" -f "$scratch/long" -n 16 --temp 1 --n-best 4 --format json -q
check_json "run --n-best --format json"
for key in choices text tokens finish_reason logprob seed pages_used pages_own; do
    check "json of several texts has $key" prints "\"$key\":"
done
check "json has four texts" test "$(grep -c '"text":' "$scratch/out")" = 4
check "json has no score of drawn texts" test -z "$(grep '"score":' "$scratch/out")"
check "four texts share the prompt's pages" calc "$(field pages_used) < 1.7 * $held_by_one"
check "and own the rest" calc "0 < $(field pages_own) && $(field pages_own) < $(field pages_used)"
try run -m "$MODEL" -p "One, two," -n 4 --temp 1 --n-best 3 --format csv -q
check "csv has the seeds" test "$(sed 's/.*,-,\([0-9]*\),.*/\1/;1d' "$scratch/out" | grep -c '^[123]$')" = 3
check "csv has a row for each text" test "$(grep -c '^k8v4,' "$scratch/out")" = 3
for kv in $lean topk:keep=80%; do
    try run -m "$MODEL" -f "$scratch/long" -n 60 --temp 1 --n-best 8 --kv $kv --format json -q
    check "eight texts with $kv" test "$(grep -c '"text":' "$scratch/out")" = 8
    check "share sealed pages" calc "$(field pages_own) < $(field pages_used)"
done

# Beams: one is greedy, more find a likelier text
try run -m "$MODEL" -p "The sea was calm and" -n 24 -q
greedy=$stdout
try run -m "$MODEL" -p "The sea was calm and" -n 24 -q --beams 1
check "one beam is greedy" same "$stdout" "$greedy"
try run -m "$MODEL" -p "The sea was calm and" -n 24 --beams 1 --format json -q
one=$(field score)
try run -m "$MODEL" -p "The sea was calm and" -n 24 --beams 6 --n-best 4 --format json -q
check_json "run --beams --format json"
check "json has the best four" test "$(grep -c '"score":' "$scratch/out")" = 4
check "the best is likelier than the greedy one" calc "$(field score) > $one"
check "best first" test "$(sed -n 's/^ *"score": \(.*\)$/\1/p' "$scratch/out" | sort -gr)" = \
    "$(sed -n 's/^ *"score": \(.*\)$/\1/p' "$scratch/out")"
check "the score is the log-probability of a token" \
    calc "($(field score) * 24 - $(field logprob)) ^ 2 < 1e-6 && $(field tokens) == 24"
try run -m "$MODEL" -p "The sea was calm and" -n 24 --beams 6 --n-best 2 -t 1
check "two of six" prints "^== 2: score -[0-9.]+, 24 tokens, length ==\$"
check "the summary counts beams" says "^generated +48 tokens in the 2 best of 6 beams"
several=$stdout
try run -m "$MODEL" -p "The sea was calm and" -n 24 --beams 6 --n-best 2 -t 2
check "the same from two threads" same "$stdout" "$several"
try run -m "$MODEL" -p "The sea was calm and" -n 0 --beams 3 --n-best 2 --format json -q
check "no tokens to search: one text" test "$(grep -c '"text":' "$scratch/out")" = 1
check "which is empty" prints '^ *"text": "",$'
check "and says why" test "$(field finish_reason):$(field score)" = length:0.0
try run -m "$MODEL" --chat -p "Add the numbers 3 4 5 step by step." -n 100 --beams 3 --kv $lean --format json -q
check "beams end by themselves" test "$(field finish_reason)" = stop

fails 2 "--n-best 3 needs --temp above 0: greedy texts would all be the same" run -m "$MODEL" -p a -n 1 --n-best 3
fails 2 "--beams and --temp exclude each other" run -m "$MODEL" -p a -n 1 --beams 3 --temp 1
fails 2 "--n-best 4 is more than --beams 3 can find" run -m "$MODEL" -p a -n 1 --beams 3 --n-best 4
for bad in 0 65 -1 x 1.5; do
    fails 2 "--beams: '$bad' is not a whole number between 1 and 64" run -m "$MODEL" -p a -n 1 --beams $bad
    fails 2 "--n-best: '$bad' is not a whole number between 1 and 64" run -m "$MODEL" -p a -n 1 --temp 1 --n-best $bad
done

# Ctrl-C: what there is so far, and 130
interrupt() {
    "$PLEAT" "$@" >"$scratch/out" 2>"$scratch/err" &
    local pid=$!
    sleep 0.7
    kill -INT $pid
    wait $pid
    code=$?
    stdout=$(cat "$scratch/out") stderr=$(cat "$scratch/err")
}
for kind in "--temp 1" "--temp 1 --n-best 2" "--beams 4 --n-best 2"; do # the last number is that of texts
    interrupt run -m "$MODEL" -p "Chapter 1" -n 4000 $kind --format json -q
    if [ "$code" = 0 ]; then
        skip "Ctrl-C, $kind: the text was over before the signal came"
        continue
    fi
    check "Ctrl-C, $kind: exits with 130" exits 130
    check "Ctrl-C, $kind: it is the finish reason" prints '"finish_reason": "interrupted"'
    if grep -q '"tokens": 0' "$scratch/out"; then
        skip "Ctrl-C, $kind: the signal came before texts parted"
        continue
    fi
    check "Ctrl-C, $kind: the texts so far" calc "$(grep -c '"text":' "$scratch/out") == ${kind: -1}"
done

# On a terminal the prompt stands dimly before the text, and nowhere else
if has_terminal "the prompt on a terminal"; then
    on_terminal() { script -qec "$1 '$PLEAT' run -m '$MODEL' -p 'The sea was' -n 3 $2" /dev/null </dev/null; }
    dim=$(printf '\033[2mThe sea was\033[0m')
    check "the prompt is echoed" grep -qF "$dim" <<<"$(on_terminal "" "")"
    for quiet in "NO_COLOR=1 " " -q" " >'$scratch/text'" " --format json"; do
        lines=$(on_terminal "${quiet%% *}" "${quiet#* }")
        check "not with $quiet" test -z "$(grep -F "$dim" <<<"$lines")"
    done
fi

# On a terminal eval says how far all of it is
if has_terminal "progress on a terminal"; then
    length=1800
    [ -z "${CHECK_QUICK:-}" ] || length=400 # builds with fewer rounds are slow ones
    grep "\"id\": \"passkey-$length" "$ROOT/eval/tasks.jsonl" | head -n 4 >"$scratch/some"
    lines=$(script -qec "'$PLEAT' eval -m '$MODEL' --tasks '$scratch/some' --kv 'f16 k8v4'" /dev/null </dev/null | tr '\r' '\n')
    check "the first of two specs" grep -q 's left, 1 of 2 ([0-9]*:[0-9][0-9] left in all)' <<<"$lines"
    check "the second" grep -q 's left, 2 of 2 (' <<<"$lines"
fi
finish
