#!/bin/bash
# SPDX-License-Identifier: MIT
#
# peers.sh: bench/peers/run.py measures every peer that it is given, prints the right ratios and fails in one line.
# Scripts that print canned JSON stand in for pleat, llama-bench and llama_cpp: no figure is judged here.
. "$(dirname "$0")/../harness.bash"
if ! command -v python3 >/dev/null; then
    skip "no python3"
    finish
    exit
fi
export CALLS=$scratch/calls PYTHONDONTWRITEBYTECODE=1
mkdir -p "$scratch"/{up,ik,none,broken,there,more/up,shape}
cd "$scratch" || exit
: >m.gguf
# a llama_cpp that is not there, whatever this python has; one that cannot be imported
echo "raise ModuleNotFoundError(\"No module named 'llama_cpp'\")" >none/llama_cpp.py
echo 'raise ImportError("libggml.so: no such file")' >broken/llama_cpp.py
cat >there/llama_cpp.py <<'STUB'
"""A llama_cpp with a clock of its own: 100 tokens/s, 20 % less without flash attention, for f16 caches twice that
repacked.  The second process that loads repacked weights crashes."""
import ctypes, os, signal, sys, time
from types import SimpleNamespace as Struct
__version__ = "0.0.0"
llama_token, now = ctypes.c_int32, [0.0]
time.perf_counter = lambda: now[0]
llama_model_default_params = llama_context_default_params = Struct
llama_vocab_n_tokens = lambda vocab: 100
llama_model_get_vocab = llama_get_memory = llama_synchronize = llama_free = lambda _: None
llama_memory_clear = lambda memory, data: None
llama_init_from_model = lambda model, params: Struct(model=model, **vars(params))
llama_batch_get_one = lambda tokens, n: n

def llama_model_load_from_file(path, params):
    with open(os.environ["CALLS"], "a+") as f:
        f.seek(0)
        again = "python repacked" in f.read()
        f.write(f"python {'repacked' if params.use_extra_bufts else 'plain'}\n")
    if params.use_extra_bufts and again:
        print("sched_reserve: all is well", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    return params

def llama_decode(ctx, n):
    speed = 200 if ctx.model.use_extra_bufts and ctx.type_k == 1 else 100
    now[0] += n / (speed * (1 if ctx.flash_attn_type else 0.8))
    return 0
STUB

cat >"$scratch/pleat" <<'STUB'
#!/bin/sh
# Prints a row for each --kv, f16 at 100 tokens/s, k8v4 at 200, others at 300; or $PRINTS.
[ "$1" = --version ] && echo "pleat 0.0.0" && exit
echo "pleat $*" >>"$CALLS"
[ -z "${INTERRUPT:-}" ] || { kill -INT $PPID && exec sleep 5; }
while [ $# -gt 0 ]; do
    case $1/$2 in
    --kv/f16) speeds="${speeds:-}{\"tokens_per_s\": 100}" ;;
    --kv/k8v4) speeds="${speeds:+$speeds, }{\"tokens_per_s\": 200}" ;;
    --kv/*) speeds="${speeds:+$speeds, }{\"tokens_per_s\": 300}" ;;
    esac
    shift
done
rows="{\"rows\": [$speeds], \"skipped\": []}"
echo "${PRINTS:-$rows}"
STUB
cat >"$scratch/bench.py" <<'STUB'
"""llama-bench in the dialect that DIALECT names: its flags, its JSON.  Speed: 100, half that for q8_0 and q4_0, 20 % less
without flash attention, twice that repacked."""
import json, os, sys
argv, ik = sys.argv[1:], os.environ["DIALECT"] == "ik"
if "--help" in argv:
    print("  -gp <pp,tg>   -rtr, --run-time-repack <0|1>" if ik else "  -d, --n-depth <n>")
    sys.exit(0)
with open(os.environ["CALLS"], "a") as f:
    f.write(f"{os.environ['DIALECT']} {' '.join(argv)}\n")
if os.environ.get("FAIL"):
    print("error: no such luck", file=sys.stderr)
    sys.exit(1)
flag = dict(zip(argv, argv[1:]))
depth, n_gen = (flag["-gp"].split(",") if "-gp" in flag else (flag.get("-d", 0), flag["-n"]))
row = {"build_commit": "c0ffee", "build_number": 7, "type_k": flag["-ctk"], "n_gen": int(n_gen)}
row["n_prompt"] = int(depth) if ik and int(n_gen) else int(flag["-p"])
if not ik:
    row["n_depth"] = int(depth)
speed = 100 if flag["-ctk"] == "f16" else 50
speed *= (1 if flag["-fa"] == "1" else 0.8) * (2 if flag.get("-rtr") == "1" else 1)
print(json.dumps([dict(row, n_prompt=7, n_gen=0, avg_ts=1), dict(row, avg_ts=speed)]))
STUB
for dialect in up ik; do
    printf '#!/bin/sh\nDIALECT=%s exec python3 -S "%s" "$@"\n' $dialect "$scratch/bench.py" >"$scratch/$dialect/llama-bench"
done
cp up/llama-bench more/up/llama-bench
# a llama-bench that prints $SHAPE
printf '#!/bin/sh\n[ "$1" = --help ] && SHAPE=--n-depth\necho "$SHAPE"\n' >shape/llama-bench
printf '#!/bin/sh\necho "usage: something else"\n' >other
: >not-executable
chmod +x pleat other */llama-bench more/up/llama-bench

# peers LLAMA_CPP ARGS...: run the script with the llama_cpp of that folder
peers() {
    local where=$1
    shift
    : >"$CALLS"
    PYTHONPATH=$scratch/$where python3 "$ROOT/bench/peers/run.py" --model m.gguf --pleat "$scratch/pleat" "$@" \
        >"$scratch/out" 2>"$scratch/err" </dev/null
    code=$?
    stdout=$(cat "$scratch/out") stderr=$(cat "$scratch/err")
}

peers none
check "no peer at all" exits 2
check "says what is missing" says "has no llama_cpp \(.*pip install llama-cpp-python\)"
check "and what would do" says "no peer to measure: .*--llama-bench PATH"
check "nothing was measured" test ! -s "$CALLS"

peers none --llama-bench "$scratch/up/llama-bench" --llama-bench "$scratch/ik/llama-bench" --reps 3 --threads 2 \
    --out "$scratch/table" --json "$scratch/raw"
check "two peers without llama_cpp" exits 0
check "says what is left out" says "llama-cpp-python is left out"
check "--out is what was printed" cmp -s "$scratch/out" "$scratch/table"
check "--json is JSON" python3 -m json.tool "$scratch/raw" /dev/null
check "names the builds" prints "^- up/llama-bench, build c0ffee \(7\)$"
check "ratio to f16" prints '^\| pp2048 \| k8v4 \| 200 \| up/llama-bench \| f16, ubatch (512|2048), flash \| 100 \| \*\*2.00\*\* \|'
check "a target that is met" prints '^\| tg96 @ d4000 \| leankv \| 300 \| up/llama-bench \| q8_0, .*\*\*6.00\*\* \| >= 2: met \|$'
check "the best setting counts" prints '^\| tg96 \| f16 \| 100 \| ik/llama-bench \| f16, ubatch 512, flash, repacked \| 200 \| \*\*0.50\*\* \|'
check "repacked q8_0" prints '^\| tg96 @ d4000 \| leankv \| 300 \| ik/llama-bench \| q8_0, .*\| 100 \| \*\*3.00\*\* \| >= 2: met \|$'
check "thirteen rows a peer" test "$(grep -c '^| [pt][pg].* | [ui][pk]/' "$scratch/out")" = 26
check "and five of the better of them" test "$(grep -c '^| [pt][pg].* | the better, ' "$scratch/out")" = 5
check "which is the faster" prints '^\| tg96 \| f16 \| 100 \| the better, ik/llama-bench \| .* \*\*0.50\*\* \| >= 1.1: MISSED \|$'
check "depth by -d upstream" grep -q '^up .* -p 0 -n 96 -d 4000 ' "$CALLS"
check "depth by -gp in ik_llama.cpp" grep -q '^ik .* -p 0 -n 0 -gp 4000,96 ' "$CALLS"
check "pleat takes its turn in each repetition" test "$(grep -c '^pleat .*-p 2048 ' "$CALLS")" = 3
check "all have the same threads" test "$(grep -vc -- ' -t 2 ' "$CALLS")" = 0
check "slow settings are tried once" test "$(grep -c '^ik .*-fa 1 -rtr 0 -p 0 -n 96 ' "$CALLS")" = 1
check "good ones in each repetition" test "$(grep -c '^ik .*-fa 1 -rtr 1 -p 0 -n 96 ' "$CALLS")" = 3
check "the first row of a repetition is pleat's" test "$(head -n 1 "$CALLS" | cut -d' ' -f1)" = pleat

peers none --llama-bench "$scratch/up/llama-bench" --reps 1 --tests empty --quiet
check "one test" exits 0
check "only its rows" test "$(grep -c '^| [pt][pg]' "$scratch/out")" = 3
check "one repetition has no medians" prints '^`m.gguf`, threads: [0-9]+, one repetition; '
check "--quiet shows no progress" test "$(grep -c repetition <<<"$stderr")" = 0

# some caches, other lengths, random weights and a mask for Pleat
peers none --llama-bench "$scratch/ik/llama-bench" --reps 1 --kv f16,k8v4 --peer-kv f16,q8_0 --prompt 64 --gen 8 \
    --depth 300 --shape llama3-8b --weights q4_k --cpu-mask 1
check "a shape beside a file" exits 0
check "rows of what was asked for" test "$(grep -c '^| [pt][pg]' "$scratch/out")" = 7
check "Pleat has the shape" grep -q '^pleat bench run --shape llama3-8b --weights q4_k -t [0-9]* --cpu-mask 1 ' "$CALLS"
check "the peer has the file" grep -q '^ik -m m.gguf .* -gp 300,8 ' "$CALLS"
check "no micro-batches longer than the prompt" test "$(grep -c -- '-ub 2048' "$CALLS")" = 0
check "of one peer, its own rows have the targets" prints '^\| tg8 @ d300 \| k8v4 \| 200 \| ik/llama-bench \| q8_0, .* \| >= 1.7: met \|$'
check "the page says what Pleat ran" prints 'random weights, --shape llama3-8b --weights q4_k; --cpu-mask 1$'

peers none --llama-bench "$scratch/up/llama-bench" --reps 1 --few --tests prompt
check "--few" test "$(grep -c '^up ' "$CALLS")" = 1
: >"$CALLS"
peers none --llama-bench "$scratch/ik/llama-bench" --reps 1 --few --tests prompt --repack 1
check "--repack 1" test "$(grep '^ik ' "$CALLS" | grep -c -- '-rtr 1')" = "$(grep -c '^ik ' "$CALLS")"

# --keep: repetitions of several calls count together, tests of one call or of several
keep() { peers none --llama-bench "$scratch/ik/llama-bench" --reps 1 --keep "$scratch/kept" --quiet "$@"; }
keep --tests empty
check "--keep" exits 0
keep --tests empty
check "the second call" exits 0
check "has two repetitions" prints "medians of 2 alternating repetitions"
check "slow settings are not tried again" test "$(grep -c '^ik ' "$CALLS")" = 2
keep --tests depth --kv k8v4 --peer-kv q8_0
check "another test" test "$(grep -c '^ik ' "$CALLS")" = 2
keep --tests empty
check "what it did not measure stays" prints "medians of 3 alternating repetitions"
keep --tests empty --gen 4
check "other lengths do not count together" exits 1
check "and it says so" says "kept: is of other settings"

peers there --no-python
check "--no-python leaves it out" exits 2
peers none --llama-bench "$scratch/other"
check "no llama-bench" exits 1
check "says so" says "other: no llama-bench that can generate at a depth"
peers none --llama-bench /no/llama-bench
check "no such file" exits 1
check "names the file" says "^/no/llama-bench: cannot be run: No such file"
FAIL=1 peers none --llama-bench "$scratch/up/llama-bench" --reps 1
check "a peer that fails" exits 1
check "its last words" says "ended with 1: error: no such luck"
peers none --tests prompt,speed
check "no such test" exits 2
check "names them" says "'speed' is none of prompt, empty, depth"
peers none --reps 0
check "no repetitions" exits 2
peers none --help
check "--help has the exit codes" prints "Exit codes: 0 ok"
check "and the lengths" prints "prompt, 2048 tokens.* empty, 96 "

# two programs whose paths end alike, one of them given twice; a test given twice
peers none --llama-bench up/llama-bench --llama-bench "$scratch/more/up/llama-bench" \
    --llama-bench "$scratch/up/llama-bench" --reps 1 --tests empty,empty
check "peers that end alike" exits 0
check "one has its own name" prints "^- more/up/llama-bench, build"
check "so has the other" prints "^- [^/]+/up/llama-bench, build"
check "each has its rows" test "$(grep -c '^| [pt][pg]' out)" = 8
check "each is measured once in each setting" test "$(grep -c '^up ' "$CALLS")" = 4
check "pleat once" test "$(grep -c '^pleat ' "$CALLS")" = 1

# repacked weights that win and crash later: the plain ones stay in play
peers there --reps 3 --tests empty,depth
check "repacked weights that crash in repetition 2" exits 0
check "how" says "repacked weights is left out: .*: killed by SIGSEGV"
check "the table says how" prints "^- llama-cpp-python 0.0.0, without repacked weights \(killed by SIGSEGV; .*\)$"
check "plain weights count" prints '^\| tg96 \| f16 \| 100 \| llama-cpp-python \| f16, ubatch 512, flash \| 100 \| \*\*1.00\*\* \|'
check "so for other caches" prints '^\| tg96 @ d4000 \| k8v4 \| 200 \| llama-cpp-python \| q4_0, ubatch 512, flash \| 100 \|'
check "repacked ones are not tried a third time" test "$(grep -c '^python repacked' "$CALLS")" = 2
check "plain ones in each repetition" test "$(grep -c '^python plain' "$CALLS")" = 3
peers broken
check "a llama_cpp that is broken" exits 2
check "why" says "cannot import llama_cpp \(ImportError: libggml.so: no such file\)"

# one line CODE REGEX ARGS...: with up/llama-bench, the script says that and nothing else, and exits so
one_line() {
    local name=$1 want=$2 regex=$3
    shift 3
    peers none --no-python --quiet --reps 1 --tests empty "$@"
    check "$name" exits "$want"
    check "$name: one line" test "$(wc -l <err)" = 1
    check "$name: says so" says "$regex"
}
up="--llama-bench up/llama-bench"
one_line "no such model" 1 "^/no/model: cannot be read: No such file" $up --model /no/model
one_line "no folder for --out" 1 "^/no/table: cannot be written: No such file" $up --out /no/table
one_line "no folder for --json" 1 "^/no/raw: cannot be written: No such file" $up --out new --json /no/raw
check "before anything is measured" test ! -s "$CALLS"
check "and leaves no file" test ! -e new
one_line "a file that is no program" 1 "/not-executable: cannot be run: Permission denied" --llama-bench not-executable
one_line "no such pleat" 1 "/none-such: cannot be run: No such file" $up --pleat none-such
for printed in '{}' '[]' 'null' '{"rows": []}' '{"rows": [{}, {}, {}]}' 'words'; do
    PRINTS=$printed one_line "pleat prints $printed" 1 "/pleat bench run .*\`: printed something else" $up --pleat pleat
done
for SHAPE in '{"a": 1}' '[]' '7' '[{"n_prompt": 0, "type_k": "f16", "avg_ts": 5}]' \
    '[{"n_prompt": 0, "n_gen": 96, "type_k": "f16", "avg_ts": 0}]' \
    '[{"n_prompt": 0, "n_gen": 96, "type_k": "f16", "avg_ts": NaN}]'; do
    export SHAPE
    one_line "llama-bench prints $SHAPE" 1 "shape/llama-bench -m .*\`: printed something else" \
        --llama-bench shape/llama-bench
done
# as Ctrl-C does; python takes it only where the caller did not ignore it
if [ -n "$(python3 -c 'import signal; print(*[1] * (signal.getsignal(signal.SIGINT) != signal.SIG_IGN))')" ]; then
    INTERRUPT=1 one_line "interrupted" 130 "^interrupted$" $up
else
    skip "interrupted: SIGINT is ignored here"
fi
cd up || exit
peers none --no-python --reps 1 --tests empty --model ../m.gguf --llama-bench llama-bench --pleat ../pleat
check "in the folder of the program" exits 0
cd "$scratch" || exit
finish
