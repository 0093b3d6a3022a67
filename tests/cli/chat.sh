#!/bin/bash
# SPDX-License-Identifier: MIT
# ctest-labels: slow
#
# chat.sh: `pleat run --chat` as a conversation: a turn reads its own tokens and no others under every kind of spec, what
# commands do, what is refused and loses nothing, and what a terminal gets.
. "$(dirname "$0")/harness.bash"
ONE="Add the numbers 3 4 5 step by step." TWO="Add the numbers 1 2 3 step by step." THREE="And 4?"

# chat ARGS: a conversation of the lines on stdin; like try.  says LINES are its stderr, prints LINES the answers.
chat() {
    "$PLEAT" run -m "$MODEL" --chat "$@" >"$scratch/out" 2>"$scratch/err"
    code=$?
    stdout=$(cat "$scratch/out") stderr=$(cat "$scratch/err")
}
lines() { printf '%s\n' "$@"; }
# turn NUMBER COLUMN: a figure of the last table of turns; columns are tokens 2, read anew 3, generated 5, finished 7
turn() { awk -v n="$1" -v col="$2" '$1 == n && NF == 7 { v = $col } END { print v }' "$scratch/err"; }
context() { sed -nE 's/^context +([0-9]+) of.*/\1/p' "$scratch/err" | tail -1; }

# ---- options ---------------------------------------------------------------------------------------------------------

fails 2 "no prompt: give -p TEXT or -f FILE, or --chat alone" run -m x
fails 2 "--system needs --chat: it is a part of the chat form" run -m x -p y --system z
fails 2 "--load needs --chat" run -m x --load z
fails 2 "--load and -p exclude each other: a conversation is read" run -m x --chat -p y --load z
fails 2 "--n-best: a conversation has one answer to each message" run -m x --chat --temp 1 --n-best 2
fails 2 "--beams: a conversation has one answer" run -m x --chat --beams 2
fails 2 "--format: a conversation is text; /save writes it as JSON" run -m x --chat --format json
fails 2 "--output: a conversation is shown as it goes on" run -m x --chat -o "$scratch/file"
fails 1 "cannot read /no/file" run -m x --chat --load /no/file
fails 1 "--system is not valid UTF-8: byte 0xff at offset 2" run -m x --chat --system $'ab\xff'
fails 1 "--ctx-size 100000: the model's context is" run -m "$MODEL" --chat -c 100000
try run -m "$MODEL" --chat
check "nothing to answer" exits 0
check "prints nothing" test -z "$stdout$stderr"

# ---- a turn reads its own tokens -------------------------------------------------------------------------------------

# The same text as one prompt gives
chat --kv f32 < <(lines "$ONE" "$TWO" /stats)
check "two turns" exits 0
check "the second answer is that of the whole as a prompt" same "$(tail -4 "$scratch/out")" "$("$PLEAT" run -m "$MODEL" \
    --kv f32 -q --special -p $'<|im_start|>user\n'"$ONE"$'<|im_end|>\n<|im_start|>assistant\n'"$(head -5 "$scratch/out")"$'<|im_end|>\n<|im_start|>user\n'"$TWO"$'<|im_end|>\n<|im_start|>assistant\n')"
own_two=$(turn 2 3)
check "the second turn is short" calc "$own_two > 10 && $own_two < 30"
chat -q < <(lines "$ONE")
first=$stdout
check "the first is that of one prompt" same "$first" "$("$PLEAT" run -m "$MODEL" --chat -p "$ONE" -q)"
check "-q is quiet" test -z "$stderr"

head -c 700 "$ROOT/eval/prose.txt" | tr '\n' ' ' | iconv -c -t utf-8 >"$scratch/long"
for kv in f16 k8v4 leankv:ah=30,al=0,window=16 topk:keep=50% h2o:budget=128 snapkv:budget=25% streaming:budget=64 \
    h2o:budget=25%+kvcrush kvcomp kvcomp+pack kivi:bits=4; do
    chat --kv $kv -n 60 < <(lines "$(<"$scratch/long")" "$TWO" "$THREE" /stats)
    check "$kv: three turns" exits 0
    check "$kv: the first is read whole" test "$(turn 1 3)" = "$(turn 1 2)"
    check "$kv: the second reads its own tokens" test "$(turn 2 3)" = "$own_two"
    check "$kv: and what was answered stays" calc "$(turn 2 2) == $(turn 1 2) + $(turn 1 5) + $own_two"
    check "$kv: so with the third" calc "$(turn 3 2) == $(turn 2 2) + $(turn 2 5) + $(turn 3 3) && $(turn 3 3) < 20"
    check "$kv: the cache holds all that was shown" calc "$(context) == $(turn 3 2) + $(turn 3 5)"
    check "$kv: bytes are told" says "^KV cache   ${kv%%[:+]*}.*: [0-9.]+ [KM]iB in [0-9]+ pages, [0-9.]+ % of f16's"
done
chat --kv k8v4 -t 1 -n 60 < <(lines "$(<"$scratch/long")" "$TWO" "$THREE")
one=$stdout
chat --kv k8v4 -t 2 -n 60 < <(lines "$(<"$scratch/long")" "$TWO" "$THREE")
check "the same on two threads" same "$stdout" "$one"
draws=(--temp 1.2 --top-k 0 --top-p 1 --min-p 0 -n 30)
chat "${draws[@]}" -s 5 < <(lines "$ONE" /regen "$TWO")
one=$stdout
chat "${draws[@]}" -s 5 < <(lines "$ONE" /regen "$TWO")
check "the same with a seed" same "$stdout" "$one"
# What is drawn is often spelled in tokens that the tokenizer would not have chosen; it stays, unless it is no text.
n_kept=0
for seed in 1 2 3 4 5; do
    chat --temp 1.6 --top-k 0 --top-p 1 --min-p 0 -n 60 -s $seed < <(lines "Tell me a story" "$TWO" /stats)
    [ "$(turn 2 3)" != "$own_two" ] || n_kept=$((n_kept + 1))
done
check "what was drawn stays as it was spelled" calc "$n_kept >= 3"

# ---- going back ------------------------------------------------------------------------------------------------------

for kv in f16 k8v4 kvcomp leankv:ah=30,al=0,window=16 h2o:budget=128; do
    chat --kv $kv < <(lines "$ONE" "$TWO" /undo "$TWO" /stats)
    case $kv in
        leankv* | h2o*) want=$(turn 2 2) ;; # no marks: from the start
        *) want=$own_two ;;
    esac
    check "$kv: /undo goes back" test "$(turn 2 3)" = "$want"
    cp "$scratch/out" "$scratch/undone"
    [[ $want != "$own_two" ]] || check "$kv: and the same gives the same" same "$(tail -4 "$scratch/undone")" "$(tail -8 "$scratch/undone" | head -4)"
    chat --kv $kv < <(lines "$ONE" "$TWO" /regen /stats)
    check "$kv: /regen" exits 0
    check "$kv: /regen goes back" test "$(turn 2 3)" = "$want"
    check "$kv: there are two turns" test "$(grep -c '^ *[0-9]* .* stop$' "$scratch/err")" = 2
    [[ $want != "$own_two" ]] || check "$kv: the same answer" same "$(tail -4 "$scratch/out")" "$(tail -8 "$scratch/out" | head -4)"
done
chat < <(lines "$ONE" "$TWO" "$THREE" /undo /undo /stats /undo /stats /undo)
check "there are no more turns to drop" says "/undo: nothing has been said yet"
check "the last figures: nothing is held" test "$(context)" = 0
check "what failed is told" exits 1
chat < <(lines /regen)
check "nothing to answer again" says "/regen: there is no message of yours to answer"
chat < <(lines "$ONE" /clear /stats "$ONE" /stats)
check "/clear empties the cache" says "^KV cache   k8v4: 0 B in 0 pages"
check "and begins anew" test "$(turn 1 3)" = "$(turn 1 2)"
check "with the same answer" same "$stdout" "$first"$'\n'"$first"

# ---- the system text -------------------------------------------------------------------------------------------------

chat --system "Be brief." < <(lines "$ONE" /stats /system /clear "$ONE")
with=$(turn 1 2)
check "--system" exits 0
check "it is shown" says '^Be brief\.$'
check "/clear leaves it" same "$stdout" "$(lines "$(head -n $(($(wc -l <"$scratch/out") / 2)) "$scratch/out")" "$(head -n $(($(wc -l <"$scratch/out") / 2)) "$scratch/out")")"
try run -m "$MODEL" --chat --system "Be brief." -p "$ONE" -n 1 --format json -q
check "the same with a prompt" test "$(field prompt)" = "$with"
chat < <(lines "/system Be brief." "$ONE" /stats "/system -" /system "$TWO" /stats)
check "/system sets it" grep -qE "^ +1 +$with " "$scratch/err"
check "/system - takes it out" says "There is no system text"
check "then all is read anew" test "$(turn 2 3)" = "$(turn 2 2)"

# ---- files -----------------------------------------------------------------------------------------------------------

saved=$scratch/saved.json
chat --kv f32 < <(lines "/system Be exact." "$ONE" "/save $saved" "$TWO")
check "/save" exits 0
whole=$stdout
capture cat "$saved"
check_json "what /save writes"
check "it has the messages" test "$(grep -c '"role"' "$saved")" = 3
cp "$saved" "$scratch/before"
chat --kv f32 --load "$saved" < <(lines "$TWO" /stats)
check "--load goes on where it was" same "$stdout" "$(tail -n "$(wc -l <"$scratch/out")" <<<"$whole")"
check "and reads all once" test "$(turn 2 3)" = "$(turn 2 2)"
chat --kv f32 < <(lines "/load $saved" "$TWO" "/save $saved" "/save! $saved")
check "/load goes on, too" same "$stdout" "$(tail -n "$(wc -l <"$scratch/out")" <<<"$whole")"
check "an old file stays" says "/save: $saved is there already; /save! $saved replaces it"
check "what failed is told" exits 1
check "/save! replaces it" test "$(grep -c '"role"' "$saved")" = 5
chat --load "$scratch/before" < <(lines /regen /undo "/load $saved")
check "/regen answers what was loaded" same "$stdout" "$(head -n "$(wc -l <"$scratch/out")" <<<"$whole")"
check "after /undo another may be loaded" exits 0
chat --load "$scratch/before" < <(lines "/load $saved")
check "a conversation is not lost to /load" says "/load: a conversation is under way; /save FILE keeps it"
echo '{"messages": [{"role": "user", "content": "x"}]}' >"$scratch/asked"
chat --load "$scratch/asked" < <(lines /exit)
check "a message without an answer is told of" says "note: the last message has no answer yet: /regen answers it"
echo '{"messages": [{"role": "tool", "content": "x"}]}' >"$scratch/bad"
chat < <(lines "/load $scratch/bad" "/load /no/file" /load /save "/save $scratch/new" "$ONE" "/save! $MODEL" "/save /no/dir/file" "/save $scratch")
check "a bad file" says "bad holds no conversation: message 1: its role is none of system, user, assistant"
check "no file" says "cannot read /no/file"
check "no name" says "/load needs FILE: go on with"
check "nothing to save" says "/save: nothing has been said yet"
check "makes no file" test ! -e "$scratch/new"
check "a folder is not a file" says "/save: $scratch is a folder; name a file in it"
check "the model is not replaced" says "/save!: $MODEL is a file that the command reads"
check "nor what cannot be written" says "cannot write /no/dir/file"
check "and the conversation goes on" same "$stdout" "$first"

# ---- what is odd -----------------------------------------------------------------------------------------------------

chat < <(printf 'ab\xff\n\n  \t \n%s\r\n' "$ONE")
check "what is no UTF-8" says "the message is not valid UTF-8: byte 0xff at offset 2"
check "loses nothing, and empty lines say nothing" same "$stdout" "$first"
check "what failed is told" exits 1
chat < <(printf 'a\0b\n%s' "$ONE")
check "a NUL" says "the message holds a NUL byte at offset 1"
check "the last line needs no newline" same "$stdout" "$first"
chat < <(printf 'Add the numbers 3 4 5\\\nstep by step.\n/save %s\n' "$scratch/joined")
check "a line that goes on" grep -qF '"Add the numbers 3 4 5\nstep by step."' "$scratch/joined"
chat -n 20 < <(printf 'one\\\\\ntwo\\') # two backslashes go on nowhere, nor does the end
check "two messages" test "$(wc -l <"$scratch/out")" -ge 2
chat -n 20 < <(lines "//help" "/save $scratch/slash")
check "a message that begins with a slash" grep -qF '"/help"' "$scratch/slash"
chat < <(lines /sttas /zzzzzzzz "/stats now" /help)
check "a slip" says "'/sttas': no such command; the nearest is '/stats'; /help lists all, and //TEXT says /TEXT"
check "no slip" says "'/zzzzzzzz': no such command; /help lists all"
check "too much" says "/stats takes nothing behind it"
for command in $(grep -oE '^/[a-z!]+' "$scratch/err"); do
    check "docs/CLI.md has $command" grep -qE "^    $command( |\$)" "$ROOT/docs/CLI.md"
done
chat < <(lines "$ONE" /exit "$TWO")
check "/exit" same "$stdout" "$first"
check "exits with 0" exits 0
for command in /quit /bye; do
    chat < <(lines "$ONE" $command "$TWO")
    check "$command" same "$stdout" "$first"
done

# the context
head -c 300000 /dev/zero | tr '\0' 'x' >"$scratch/huge"
chat -c 105 < <(cat "$scratch/huge"; echo; lines "$ONE" "$(<"$scratch/long")" "$TWO" "$TWO" /stats)
check "what does not fit" says "the message does not fit: with it the conversation has [0-9]{4,} tokens, and the context of 105 \(-c\) has room for 104 and an answer; /undo and /clear make room, /save FILE keeps what was said, and -c may be up to 4096"
check "loses nothing" same "$(head -5 "$scratch/out")" "$first"
check "what came behind was read on" test "$(turn 2 3)" = "$own_two"
check "before it is full, it is said" says "note: the context is nearly full: [0-9]+ of 105 tokens; /undo and /clear make room"
chat -c 40 "${draws[@]}" < <(lines "$ONE" "$TWO" /undo "$ONE")
check "the end of the context" says "stopped: the context of 40 tokens is full"
check "the next does not fit" says "the message does not fit"
check "/undo makes room" test "$(grep -c 'is full' "$scratch/err")" = 2

# Ctrl-C where nobody types
long=(--temp 9 --top-k 0 --top-p 1 --min-p 0) # answers that go on to the context's end
lines "$ONE" "$TWO" "$THREE" >"$scratch/in"
: >"$scratch/out"
"$PLEAT" run -m "$MODEL" --chat "${long[@]}" <"$scratch/in" >"$scratch/out" 2>"$scratch/err" &
pid=$!
while kill -0 $pid 2>/dev/null && [ ! -s "$scratch/out" ]; do sleep 0.05; done
kill -INT $pid
wait $pid
code=$? stdout=$(<"$scratch/out") stderr=$(<"$scratch/err")
check "Ctrl-C ends what is piped in" exits 130

# ---- at a terminal ---------------------------------------------------------------------------------------------------

if ! has_terminal "a conversation at a terminal" || ! command -v python3 >/dev/null; then
    finish
    exit
fi
# Plays the lines of a file, `send BYTES` and `expect REGEX`, to a command at a terminal; writes all that it showed.
# libedit shows its prompt before it takes single keys, and a key that comes between may be lost.  So where it edits
# (EDITS=1) what is sent behind a prompt waits until it does.
cat >"$scratch/play.py" <<'PYTHON'
import os, pty, re, select, sys, termios, time
script, out, command = sys.argv[1], sys.argv[2], sys.argv[3:]
pid, fd = pty.fork()
if pid == 0:
    os.execvp(command[0], command)
seen, at = b"", 0
def more(seconds):
    global seen
    if not select.select([fd], [], [], seconds)[0]:
        return True
    try:
        seen += os.read(fd, 65536)
        return True
    except OSError:
        return False
def takes_keys():
    return not termios.tcgetattr(fd)[3] & termios.ICANON
edits, at_prompt = os.environ.get("EDITS") == "1", False
for line in open(script).read().splitlines():
    word, _, text = line.partition(" ")
    text = text.encode().decode("unicode_escape").encode("latin-1")
    if word == "send":
        end = time.time() + 60
        while edits and at_prompt and not takes_keys() and time.time() < end and more(0.01):
            pass
        os.write(fd, text)
        continue
    at_prompt = text.endswith(b"> ")
    end = time.time() + 60
    found = re.search(text, seen[at:])
    while not found and time.time() < end and more(0.1):
        found = re.search(text, seen[at:])
    if not found:
        print("never shown:", text)
        os.kill(pid, 15)
        break
    at += found.end()
end = time.time() + 60
while more(0.1): # the terminal is closed when the command has ended
    if time.time() > end:
        print("does not end")
        os.kill(pid, 9)
        break
open(out, "wb").write(seen)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
PYTHON
export EDITS=1
! "$PLEAT" --version | grep -q 'no libedit' || EDITS=0
# plays ARGS: the conversation of the script on stdin; $code and $stdout
plays() {
    cat >"$scratch/script"
    python3 "$scratch/play.py" "$scratch/script" "$scratch/screen" "$PLEAT" run -m "$MODEL" --chat "$@" >"$scratch/err"
    code=$?
    tr -d '\r' <"$scratch/screen" >"$scratch/out"
    stdout=$(<"$scratch/out") stderr=$(<"$scratch/err")
}
plays "${long[@]}" <<SCRIPT
expect lists commands.*\n.*> 
send Tell me something\r
expect something\r*\n(.|\n)*[^\n]{20}
send \x03
expect tokens/s; cache: .*\n.*> 
send /stats\r
expect context .*\n(.|\n)*> 
send And more\r
expect more\r*\n(.|\n)*[^\n]{20}
send \x03
expect tokens/s; cache: .*\n.*> 
send /stats\r
expect (.|\n)*context .*\n(.|\n)*> 
send /save $scratch/cut\r
expect > 
send \x04
SCRIPT
check "Ctrl-C stops an answer, and not the program" exits 0
cp "$scratch/out" "$scratch/err"
stopped() { test "$(turn 1 7)$(turn 2 7)" = interruptedinterrupted; }
check "both were stopped" stopped
check "what came stays in the cache" calc "$(turn 2 2) == $(turn 1 2) + $(turn 1 5) + $(turn 2 3) || $(turn 2 3) > 30"
check "and in the conversation" test "$(grep -c '"role": "assistant"' "$scratch/cut")" = 2

plays <<'SCRIPT'
expect > 
send half a line
expect half a line
send \x03
expect > 
send \x03
expect Ctrl-C again leaves.*\n.*> 
send \x03
SCRIPT
check "Ctrl-C twice leaves" exits 130
plays --kv f16 <<SCRIPT
expect > 
send $ONE\r
expect #### 17\r\n.*31 tokens, [0-9]+ tokens/s; cache: .* % of f16's
expect > 
send /exit\r
SCRIPT
check "/exit at a terminal" exits 0
check "the figures are dim" grep -qF $'\e[2m31 tokens' "$scratch/out"
export NO_COLOR=1
plays --kv f16 <<SCRIPT
expect > 
send $ONE\r
expect #### 17\r\n31 tokens
expect > 
send \x04
SCRIPT
unset NO_COLOR
check "NO_COLOR" exits 0
check "no styles" test -z "$(grep -F $'\e[2m' "$scratch/out")"
plays -q <<SCRIPT
expect > 
send $ONE\r
expect #### 17\r\n(?!31).*> 
send \x04
SCRIPT
check "-q says nothing of an answer" exits 0
export TERM=dumb
EDITS=0 plays <<SCRIPT
expect > 
send /hlep\r
expect the nearest is '/help'
expect > 
send $ONE\r
expect #### 17
expect > 
send \x03
expect > 
send \x04
SCRIPT
export TERM=xterm
check "a terminal that cannot be drawn on" exits 0
check "gets no escapes" test -z "$(grep -F $'\e' "$scratch/out")"

if [ "$EDITS" = 0 ]; then
    skip "editing a line: this build has no libedit"
else
    plays --kv f16 -n 60 <<SCRIPT
expect > 
send the numbers 3 4 5 step by step.\x01Add \x05\r
expect #### 17
expect > 
send \x1b[A\x7f\x7f\r
expect tokens/s
expect > 
send \x1b[200~pasted one\rtwo \xc3\xa9\r\x1b[201~
expect two
send \r
expect tokens/s
expect > 
send first\\\\\r
expect first
send second\r
expect tokens/s
expect > 
send /save $scratch/edited\r
expect > 
send \x04
SCRIPT
    check "a line is edited" exits 0
    contents=$(sed -nE '/"role": "user"/{n; s/^ *"content": //p}' "$scratch/edited")
    check "keys, history, a paste, and a line that goes on" same "$contents" "$(lines '"Add the numbers 3 4 5 step by step."' \
        '"Add the numbers 3 4 5 step by ste"' '"pasted one\ntwo é"' '"first\nsecond"')"
fi
finish
