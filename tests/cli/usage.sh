#!/bin/bash
# SPDX-License-Identifier: MIT
#
# usage.sh: wrong command lines exit with 2 and say what would be right; help comes from the table of options.
. "$(dirname "$0")/harness.bash"

fails 2 "no such command; the nearest is 'pleat run'" rnu
fails 2 "no such command; the nearest is 'pleat bench attn'" bench atn
fails 2 "no such command; the nearest is 'pleat --version'" version
fails 2 "argument 1, 'fetch': no such command; there are:$" fetch
check "and lists them" says "^  inspect "
fails 2 "argument 1, 'generate': no such command; 'pleat run' generates text" generate
fails 2 "argument 1, 'quantize': no such command; llama.cpp's llama-quantize makes models smaller" quantize
fails 2 "argument 1, 'bench speed': no such command; there are:$" bench speed
check "and lists the benches" says "^  bench pages "
check "and nothing else" test "$(wc -l <"$scratch/err")" = 6
fails 2 "'bench': needs a second word" bench
fails 2 "argument 2, '-ngl': no such option; .pleat run --help. lists all" run -ngl 99
fails 2 "argument 2, '--zzzzzz': no such option; .pleat run --help. lists all" run --zzzzzz
fails 2 "--format: 'q' is none of terminal, json, csv, md$" run --format q
fails 2 "--format: 'cvs' is none of terminal, json, csv, md; the nearest is 'csv'" run --format cvs
fails 2 "--format: 'term' is none of .*; the nearest is 'terminal'" run --format term
fails 2 "--format: 'table' is none of .*; it is 'terminal' here" run --format table
fails 2 "--device: 'gpu' is none of cpu, cuda; it is 'cuda' here" bench attn --device gpu
fails 2 "--device: 'tpu' is none of cpu, cuda$" bench attn --device tpu
for command in run eval "bench run" serve calibrate; do
    fails 2 "--activations: '7' is none of 16, 8$" $command -m x --activations 7
done
fails 2 "--preempt: 'swpa' is none of .*; the nearest is 'swap'" bench serve --preempt swpa
fails 2 "--arch 'llama-3-8b': no such model is known; the nearest is 'llama3-8b' " plan --arch llama-3-8b
fails 2 "--arch 'opt': no such model is known \(.pleat plan --arch list. shows all" plan --arch opt
fails 2 "--synthetic: 'chta' is none of .*; the nearest is 'chat'" bench serve -m "$MODEL" --synthetic chta --pool-bytes 1MiB
fails 2 "--synthetic: 'bursts' is none of .*, fixed$" bench serve -m "$MODEL" --synthetic bursts --pool-bytes 1MiB
fails 2 "--beams and --top-k exclude each other" run -m x -p x --beams 2 --top-k 5
fails 2 "--beams and --seed exclude each other: a search draws nothing" run -m x -p x --beams 2 --seed 5
fails 2 "--beams and -s exclude each other" run -m x -p x --beams 2 -s 5
fails 2 "argument 4, '--tsaks': no such option; the nearest is '--tasks'" eval -m x --tsaks
fails 2 "argument 2, '-p': needs TEXT" run -p
fails 2 "'--chat=1': takes no value" run --chat=1
fails 2 "--threads: 'two' is not a whole number between 1 and 256" run -t two
fails 2 "--threads: '0' is not a whole number" run -t 0
fails 2 "--temp: 'nan' is not a number" run --temp nan
fails 2 "--top-p: '1.5' is not a number between" run --top-p 1.5
fails 2 "--seed: '-1' is not a whole number" run -s -1
fails 2 "--format: 'jsno' is none of .* nearest is 'json'" run --format jsno
fails 2 "argument 6, 'words': an option was expected" run -m x -p two words
fails 2 "no model: give -m FILE" run -p x
fails 2 "no prompt: give -p TEXT or -f FILE" run -m x
fails 2 "-p and -f exclude each other" run -m x -p x -f y
fails 2 "nothing to evaluate" eval -m x
fails 2 "no file" inspect
fails 2 "--heads 30 must be a multiple of --kv-heads 8" bench attn --heads 30
fails 2 "--heads 1024 .*--kv-heads 8, and at most 64 times as many" bench attn --heads 1024
fails 2 "attn: --head-dim 72 must be a multiple of 16 from 16 to 512" bench attn --head-dim 64,72
fails 2 "--gqa: '65' is not a whole number between 1 and 64" bench attn --gqa 65
fails 2 "--gqa: '0' is not a whole number between 1 and 64" bench attn --gqa 1,0
fails 2 "--heads and --gqa exclude each other" bench attn --heads 32 --gqa 4
fails 2 "--reps: '3' is not a whole number between 7 and 10000" bench attn --reps 3
fails 2 "--reps: '6' is not a whole number between 7 and 10000" bench pages --reps 6

fails 2 "--ah: '2x' is not a number between 0 and 1000000" calibrate -m x --ah 1,2x
fails 2 "--al: 'nan' is not a number" calibrate -m x --al nan
fails 2 "--al: '' is not a number" calibrate -m x --al 0.1,
fails 2 "--goal: 'byte' is none of bytes, accuracy; the nearest is 'bytes'" calibrate -m x --goal byte
fails 2 "--tolerance: '-1' is not a number" calibrate -m x --tolerance -1
fails 2 "--half: 'none' is none of all, even, odd" calibrate -m x --half none
fails 2 "give --tasks FILE" calibrate -m x --text y
fails 2 "--kv 'k8v4': only leankv has thresholds" calibrate -m x --tasks y --kv k8v4
fails 2 "--kv may stand once" calibrate -m x --tasks y --kv leankv --kv leankv:ah=2
fails 2 "--parallel: '0' is not a whole number" bench run -m x -np 0
fails 2 "nothing to measure: -p and -n are 0" bench run -m x -p 0 -n 0

# names of other programs
fails 2 "argument 2, '--temperature': no such option; it is '--temp' here" run --temperature 0.8
fails 2 "argument 4, '--max_tokens=5': no such option; it is '--n-predict' here" run -m x --max_tokens=5
fails 2 "'--max-new-tokens': no such option; it is '--n-predict' here" run --max-new-tokens 5
fails 2 "'--kv-cache-dtype': no such option; it is '--kv' here" eval --kv-cache-dtype fp8
fails 2 "'--json': no such option; it is '--format json' here" plan --json
fails 2 "'--temperature': no such option; .pleat plan --help. lists all" plan --temperature 1 # it has no --temp
fails 2 "--kv 'q8_0': k8v8 has 8 bits.*pleat help kv" run -m x -p x --kv q8_0
fails 2 "--kv 'FP8': k8v8 has 8 bits" run -m x -p x --kv FP8
fails 2 "--kv 'int4': k4v4 has 4 bits" eval -m x --tasks y --kv int4
fails 2 "--kv 'turboquant:bits=3': its names here are tq4 and tq3" run -m x -p x --kv turboquant:bits=3
fails 2 "--kv 'float16': f16 is the uncompressed cache" run -m x -p x --kv float16
fails 2 "argument 2, 'some/model.gguf': a model's file stands behind -m: -m FILE" run some/model.gguf -p x
fails 2 "argument 2, 'model': an option was expected" run model

# one letter abbreviates nothing, and a mask has known bits only
fails 2 "argument 5, '-c': no such option" bench run -m x -c 512
fails 2 "argument 3, '-c=4': no such option" bench pages -c=4
fails 2 "argument 3, '-b': no such option" bench attn -b
fails 2 "argument 4, 'words': an option was expected" run --sys -c words # an option's value, and an abbreviation
fails 2 "--cpu-mask: '512' is not BITS: .*1 AVX2, .*32 its dot product; 64 AMX, 128 AVX-512 VBMI2" bench run -m x --cpu-mask 512
fails 2 "--cpu-mask: '0x101' is not BITS" run -m x -p x --cpu-mask 0x101
fails 2 "no model: give -m FILE" run -p x --cpu-mask 255

# numbers are decimal, but a mask
fails 2 "--threads: '0x1' is not a whole number" run -t 0x1
fails 2 "--head-dim: '0X40' is not a whole number" bench attn --head-dim 0X40
fails 2 "--top-p: '0x1p-1' is not a number" run --top-p 0x1p-1
fails 2 "--ah: '-0x1' is not a number" calibrate -m x --ah -0x1
fails 2 "--ah: '0x1' is not a number" calibrate -m x --ah 1,0x1
fails 2 "--pool-bytes: '0x40MiB' is no number of bytes" bench serve -m x --synthetic chat --pool-bytes 0x40MiB
fails 2 "'prompt=0x10': prompt is a whole number" bench serve --simulate --arch llama3-8b --prices 1,2,3,4 \
    --pool-bytes 1GiB --synthetic fixed:prompt=0x10
fails 2 "'a:0x10%' is not NAME:QUOTA%" bench serve --simulate --arch llama3-8b --prices 1,2,3,4 \
    --pool-bytes 1GiB --synthetic fixed --tenants a:0x10%
fails 2 "no model: give -m FILE" run -p x --cpu-mask 0xff

# specs: the position and the nearest word
fails 2 "--kv: .*'k8v5'.* position 0.*k8v" run -m x -p x --kv k8v5
fails 2 "--kv: .*position 4" run -m x -p x --kv f16:k=1
fails 2 "--kv: .*unknown key 'hgih' at position 7; did you mean 'high'" run -m x -p x --kv leankv:hgih=k8v4
fails 2 "--kv: .*al=2 is above ah=1, at position 15" run -m x -p x --kv leankv:ah=1,al=2
fails 2 "--kv: .*window '0' at position 14: it must be a whole number from 1 to 16777216" run -m x -p x --kv leankv:window=0
fails 2 "--kv: .*low=k8v8 takes more bits than high=k8v4" run -m x -p x --kv leankv:low=k8v8
fails 2 "--kv: .*keep '0%' at position 10: it must be a share" eval -m x --tasks x --kv topk:keep=0%
fails 2 "--kv: .*budget '0.25' at position 11: it must be tokens .*; a share is written with %$" run -m x -p x --kv h2o:budget=0.25
fails 2 "--kv: .*budget '100.1%' at position 11: .* a share .above 0% up to 100%." run -m x -p x --kv h2o:budget=100.1%
fails 2 "--kv: .*budget 'nan' at position 14: it must be tokens .1 to 16777216." run -m x -p x --kv snapkv:budget=nan
fails 2 "--kv: .*'64KB' at position 21: .* or bytes .*; whole bytes, in B, KiB, MiB or GiB$" eval -m x --tasks x --kv adakv:sinks=8,budget=64KB
fails 2 "--kv: .*budget=50 is below sinks=4 . window=64: at least 68, at position 11$" run -m x -p x --kv h2o:budget=50
fails 2 "--kv: .*reclaim 'resue' at position 12; did you mean 'reuse'" run -m x -p x --kv h2o:reclaim=resue
fails 2 "--kv: .*'kvcrush' at position 0 must stand behind one of random, .*, adakv, as in h2o.kvcrush$" run -m x -p x --kv kvcrush
fails 2 "--kv: .*'kvcrush' at position 5: nothing can follow k8v4; kvcrush can follow random" run -m x -p x --kv k8v4+kvcrush
fails 2 "--kv: .*'snapkv' at position 4: only kvcrush, merge or novel can follow h2o$" run -m x -p x --kv h2o+snapkv
fails 2 "no model: give -m FILE" run -p x --kv adakv:budget=1.5MiB+kvcrush:unit=page
fails 2 "--kv: .*unknown name 'kvcmp' at position 0; did you mean 'kvcomp'[?]$" run -m x -p x --kv kvcmp
fails 2 "--kv 'f16,k8v4': commas stand between options, as in leankv:ah=5,al=0, and blanks between specs$" run -m x -p x --kv f16,k8v4
fails 2 "--kv: .*unknown name 'zzzzzzzzzzzzzzzz' at position 0; allowed: f32, .*, kivi, rd, auto$" run -m x -p x --kv zzzzzzzzzzzzzzzzzz
fails 2 "--kv: .*k '2' at position 9: it must be a number from 1/255 .0.0039216. to 1$" run -m x -p x --kv kvcomp:k=2
fails 2 "--kv: .*block '48' at position 13: it must be 16, 32, 64, 128 or 256$" run -m x -p x --kv kvcomp:block=48
fails 2 "--kv: .*bits '3' at position 10: it must be 2 or 4$" run -m x -p x --kv kivi:bits=3
fails 2 "--kv: .*'pack' at position 0 must stand behind kvcomp, as in kvcomp.pack$" run -m x -p x --kv pack
fails 2 "--kv: .*'pack' at position 5: nothing can follow kivi; pack can follow kvcomp$" run -m x -p x --kv kivi+pack
fails 2 "no model: give -m FILE" run -p x --kv kvcomp:k=0.05,kunit=block,buffer=64+pack
fails 2 "--kv: ' ' names no way to keep the cache" run -m x -p x --kv ' '
fails 2 "--kv: '  ' names no way" eval -m x --tasks y --kv '  ' --kv f16
fails 2 "--kv may stand once" run -m x -p x --kv f16 --kv f32
fails 2 "--kv and -ctk exclude each other: --kv alone is enough" run -m x -p x --kv f16 -ctk f16
fails 2 "--cache-type-k 'q9', --cache-type-v 'f16': " run -m x -p x -ctk q9
fails 2 "--cache-type-k 'q8_0', --cache-type-v 'f16': " run -m x -p x -ctk q8_0

# files
fails 1 "cannot read /no/prompt" run -m x -f /no/prompt
fails 1 "pleat run: /no/model.gguf: " run -m /no/model.gguf -p x
fails 1 "pleat inspect: /no/model.gguf: " inspect /no/model.gguf
printf 'this is no model' >"$scratch/bad.gguf"
fails 1 "bad.gguf: " inspect "$scratch/bad.gguf"
fails 1 "pleat calibrate: /no/model.gguf: " calibrate -m /no/model.gguf --tasks y

# devices have no end, nor may pipes
fails 1 "cannot read /dev/zero: it is a device and no file" plan --config /dev/zero
fails 1 "cannot read /dev/zero: it is a device" run -m "$MODEL" -f /dev/zero
fails 1 "cannot read /dev/zero: it is a device" eval -m "$MODEL" --tasks /dev/zero -q
simulate="bench serve --simulate --arch llama3-8b --prices 1,2,3,4 --pool-bytes 1GiB"
# shellcheck disable=SC2086
fails 2 "cannot read /dev/zero: it is a device" $simulate --trace /dev/zero

# endless CODE MIB WHAT ARGS...: of a pipe that brings 8 MiB more than WHAT may have the rest is not read, which SIGPIPE
# tells the writer.
endless() {
    local want=$1 mib=$2 what=$3
    shift 3
    # shellcheck disable=SC2016  # the inner shell's own words
    capture bash -c 'head -c "$1" /dev/zero | "${@:2}"; echo "pipe ${PIPESTATUS[*]}"' - $((mib + 8))M "$PLEAT" "$@"
    check "$what has a bound: reading stops" prints "^pipe 141 $want$"
    check "and the message says which" says "cannot read standard input: it has more than $mib MiB, the most for $what$"
}
# shellcheck disable=SC2086
{
    endless 1 64 "a prompt" run -m "$MODEL" -f -
    endless 1 256 "a task file" eval -m "$MODEL" --tasks - -q
    endless 1 256 "a text" eval -m "$MODEL" --text - -q
    endless 1 256 "a text" bench serve -m "$MODEL" --pool-bytes 16MiB --synthetic fixed --text - -q
    endless 2 1024 "a trace" $simulate --trace -
    endless 1 16 "a config.json" plan --config -
}
truncate -s 17M "$scratch/profile"
fails 1 "cannot read .*profile: it has more than 16 MiB, the most for a profile$" \
    run -m "$MODEL" -p x --kv "leankv:profile=$scratch/profile"

# weights that are not finite: an error that names the tensor, and no result
{ head -c -1024 "$MODEL" && head -c 1024 /dev/zero | tr '\0' '\377'; } >"$scratch/nan.gguf"
head -1 "$ROOT/eval/tasks.jsonl" >"$scratch/task"
finite="step: tensor 'blk[.0-9a-z_]*weight' of the model holds weights that are not finite"
fails 1 "$finite" run -m "$scratch/nan.gguf" -p x -n 1 -q
fails 1 "$finite" eval -m "$scratch/nan.gguf" --tasks "$scratch/task" -q
fails 1 "$finite" eval -m "$scratch/nan.gguf" --text "$ROOT/eval/prose.txt" --ctx-window 64 --text-windows 1 -q
fails 1 "$finite" calibrate -m "$scratch/nan.gguf" --tasks "$scratch/task" --half all -o "$scratch/nan.json" -q
fails 1 "$finite" bench run -m "$scratch/nan.gguf" -p 8 -n 1 -r 1 -q
fails 1 "$finite" bench serve -m "$scratch/nan.gguf" --synthetic fixed:prompt=8,output=2 --requests 1 \
    --pool-bytes 16MiB -q

fails 2 "-o -: the profile .* needs a file" calibrate -m x --tasks y -o -

# -o: a file changes when there is a result, and stays what it is
plan() { try plan --arch llama3-8b --format csv "$@"; }
plan
table=$stdout
plan -o -
check "-o -: stdout" same "$stdout" "$table"
plan -o "$scratch/new"
check "-o: a new file" test "$code $(<"$scratch/new")" = "0 $table"
echo old >"$scratch/old"
chmod 600 "$scratch/old"
try plan -m "$scratch/bad.gguf" -o "$scratch/old"
check "a failure leaves -o as it was" test "$code $(<"$scratch/old")" = "1 old"
ln -s old "$scratch/link"
plan -o "$scratch/link"
check "a link's target is written" same "$(<"$scratch/old")" "$table"
check "with its mode" test "$(stat -c %a "$scratch/old")" = 600
check "and the link stays" test "$(readlink "$scratch/link")" = old
ln -s "$scratch/later" "$scratch/dangling"
plan -o "$scratch/dangling"
check "also one that led nowhere" same "$(<"$scratch/later")" "$table"
# two outputs of one file, or one that is read, whatever the spelling
serve="$simulate --synthetic fixed"
mkdir "$scratch/there"
ln -s there "$scratch/folder"
ln -s there/free "$scratch/leads"
ln -s leads "$scratch/leads_there"
ln "$scratch/old" "$scratch/hard"
for pair in "there/free there/../there/free" "there/free folder/free" "leads there/free" "leads leads_there" \
    "old ./old" "old hard" "old link"; do
    fails 1 "cannot write .*: it is the same file as .*${pair#* }, which --output writes" \
        eval -m /no/model --tasks x --report "$scratch/${pair% *}" -o "$scratch/${pair#* }"
    # shellcheck disable=SC2086
    fails 1 "it is the same file as .*, which --svg writes" $serve --svg "$scratch/${pair% *}" \
        --series "$scratch/${pair#* }"
    # shellcheck disable=SC2086
    fails 1 "it is the same file as .*, which --series writes" $serve --write-trace "$scratch/${pair% *}" \
        --series "$scratch/${pair#* }"
    fails 1 "cannot write .*: it is the same file as .*${pair#* }, which is read" \
        calibrate -m /no/model --tasks "$scratch/${pair#* }" -o "$scratch/${pair% *}"
done
"$PLEAT" plan --config - -o "$scratch/hard" <"$scratch/old" 2>"$scratch/err"
code=$? stderr=$(<"$scratch/err")
check "what stdin reads is no output" exits 1
check "and that is said" says "--output: cannot write .*hard: it is the same file as -, which is read"
fails 1 "it is the same file as .*old, which is read" calibrate -m x --tasks y --kv "leankv:profile=$scratch/old" \
    -o "$scratch/hard"
check "nothing was written" test ! -e "$scratch/there/free"
# the profile beside a model is read where leankv has no keys, and that is known before the model is looked at
cp "$scratch/bad.gguf" "$scratch/beside.gguf"
echo old >"$scratch/beside.leankv.json"
for command in "run -p x" "eval --tasks x" "bench run"; do
    # shellcheck disable=SC2086
    fails 1 "it is the same file as .*beside.leankv.json, which is read" \
        $command -m "$scratch/beside.gguf" --kv leankv -o "$scratch/there/../beside.leankv.json"
done
fails 1 "beside.gguf: " run -p x -m "$scratch/beside.gguf" --kv leankv:ah=3 -o "$scratch/beside.leankv.json"
fails 1 "it is the same file as .*beside.leankv.json, which is read" \
    calibrate -m "$scratch/beside.gguf" --tasks "$scratch/beside.leankv.json" # its own output, by default
check "and is as it was" test "$(<"$scratch/beside.leankv.json")" = old
# shellcheck disable=SC2086
"$PLEAT" $serve --series "$scratch/both" >"$scratch/both" 2>"$scratch/err"
code=$? stderr=$(<"$scratch/err")
check "stdout is an output too" exits 1
check "and says so" says "--series: cannot write .*both: it is the same file as standard output"
try plan --arch llama3-8b -o /dev/null
check "/dev/null keeps nothing to lose" exits 0
# shellcheck disable=SC2086
try $serve --svg /dev/null --series /dev/null -o /dev/null -q
check "not for many either" exits 0
mkfifo "$scratch/pipe"
cat "$scratch/pipe" >"$scratch/piped" &
plan -o "$scratch/pipe"
wait $!
check "a pipe gets the result" test "$code $(<"$scratch/piped")" = "0 $table"
check "and stays one" test -p "$scratch/pipe"
"$PLEAT" plan --arch llama3-8b --format csv -o /dev/stdout >"$scratch/out"
check "-o /dev/stdout" same "$(<"$scratch/out")" "$table"
fails 1 "cannot write $scratch: Is a directory" plan --arch llama3-8b -o "$scratch"
fails 1 "cannot write /no/dir/x: No such file" plan --arch llama3-8b -o /no/dir/x
echo old >"$scratch/old"
"$PLEAT" bench attn --format csv -q -o "$scratch/old" --ctx 65536 --reps 10000 >/dev/null 2>&1 &
sleep 0.3
kill $!
wait $! 2>/dev/null
check "who is ended leaves -o as it was" test "$(<"$scratch/old")" = old
check "nothing is left over" test -z "$(find "$scratch" -name '*.tmp')"

# the environment
export PLEAT_KV="f16 k8v4" # specs on the command line replace those of the environment, however many
fails 1 "/no/line.gguf: " run -m /no/line.gguf -p x --kv k8v4
fails 1 "/no/line.gguf: " run -m /no/line.gguf -p x -ctk f16
fails 2 "PLEAT_KV may stand once" run -m /no/line.gguf -p x
unset PLEAT_KV
export PLEAT_N_PREDICT=many
fails 2 "PLEAT_N_PREDICT: 'many' is not a whole number" run -m x -p x
unset PLEAT_N_PREDICT
export PLEAT_MODEL=/no/twin.gguf
fails 1 "/no/twin.gguf: " run -p x
fails 1 "/no/line.gguf: " run -m /no/line.gguf -p x
plan
check "what the command line excludes is as if it were not in the environment" test "$code $stdout" = "0 $table"
export PLEAT_ARCH=mistral-7b
fails 2 "PLEAT_MODEL and PLEAT_ARCH exclude each other" plan
plan
check "an option hides its own twin, and those that it excludes" test "$code $stdout" = "0 $table"
fails 1 "/no/line.gguf: " plan -m /no/line.gguf
unset PLEAT_ARCH
export PLEAT_PROMPT=x
fails 1 "cannot read /no/prompt" run -f /no/prompt
unset PLEAT_MODEL PLEAT_PROMPT

# help
try
check "no command is wrong usage" exits 2
check "no command shows the commands" says "^  run "
for args in --help -h help "help run" "run --help" "bench attn --help" "help bench pages" \
    "help bench" "bench --help" "bench -h"; do
    # shellcheck disable=SC2086
    try $args
    check "pleat $args" exits 0
    check "pleat $args prints" prints "^usage: pleat"
done
check "bench -h lists the benches" prints "^  bench attn +speed of decode attention"
for command in eval inspect "bench attn" "bench run"; do
    # shellcheck disable=SC2086
    try $command --help
    check "$command --help says what --kv is without one" prints "--kv SPEC .*\(default \"?f16"
done
try help bench attn
check "usage of bench attn" prints "^usage: .*--gqa .*--head-dim .*-r N"
try help bench run
check "usage of bench run" prints "^usage: .*-np N.*-b N"
try run --help
check "help shows both spellings and the twin" prints "-ctk, --cache-type-k TYPE .*\[PLEAT_CACHE_TYPE_K\]"
try --version
check "version" exits 0
check "version prints" prints "^pleat [0-9]+\.[0-9]+\.[0-9]+"
for args in help --version "run --help"; do
    # shellcheck disable=SC2086
    stderr=$("$PLEAT" $args 2>&1 >/dev/full) code=$?
    check "pleat $args on a full disk" exits 1
    check "pleat $args on a full disk says so" says "cannot write standard output"
done
finish
