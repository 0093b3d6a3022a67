#!/bin/bash
# SPDX-License-Identifier: MIT
# ctest-labels: slow
#
# calibrate.sh: `pleat calibrate` writes a profile that other commands read, goes on where it was stopped, and leaves
# alone what is not its own; a profile that does not fit is refused by each command that is given one.  What it chooses
# is better than its control on one half of the samples, and shown on the other.
. "$(dirname "$0")/harness.bash"
needs python3
grep -E '"id": "(few_shot-(300|800)-0[01]|kv_recall-400-0[01])"' "$ROOT/eval/tasks.jsonl" >"$scratch/tasks"
profile=$scratch/profile.json

calibrate() { try calibrate -m "$MODEL" --tasks "$scratch/tasks" -o "$profile" "$@"; }
# fails_calibrate REGEX ARGS...: refused, and the profile is as it was
fails_calibrate() {
    local regex=$1
    shift
    cp "$profile" "$scratch/before"
    fails 1 "$regex" calibrate -m "$MODEL" --tasks "$scratch/tasks" -o "$profile" "$@"
    check "and the file stays as it is" says "stays as it is: remove it, or name another file with -o"
    check "byte for byte" cmp -s "$profile" "$scratch/before"
}
n_points() { sed -n '/^ "curve"/,/^ ]/p' "$profile" | grep -c '"kv": "leankv'; }
near() { calc "$1 < $2 + 1e-6 && $2 < $1 + 1e-6"; }
# of EXPRESSION: of the profile p, in Python; at(LIST, KV) is a point
of() {
    python3 -c 'import json, sys
p = json.load(open(sys.argv[1]))
at = lambda points, kv: next(x for x in points if x["kv"] == kv)
print(eval(sys.argv[2]))' "$profile" "$1"
}
# row KEY: of the last try's first row
row() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["rows"][0][sys.argv[2]])' "$scratch/out" "$1"; }
in_profile() { grep -Eq -- "$1" "$profile"; }

# A calibration
calibrate --ah 3,1 --al 0,0.5,2 --goal accuracy --format json
check "calibrate" exits 0
check_json "calibrate --format json"
check "it prints the profile" cmp -s "$scratch/out" "$profile"
for key in pleat_profile model name fingerprint kv chosen best control ah al tasks text half f16 curve controls shown accuracy \
    perplexity fraction seconds; do
    check "the profile has $key" in_profile "\"$key\":"
done
check "the profile is complete" in_profile '"complete": true'
check "the model is named" in_profile '"name": "Pleat reference 28M"'
check "the fingerprint has 32 digits" in_profile '"fingerprint": "[0-9a-f]{32}"'
check "a text that was not given has no perplexity" in_profile '"perplexity": null'
check "each point is told" says "^leankv:ah=1,al=0 +accuracy [01]\.[0-9]+, [0-9.]+ % of f16's bytes, [0-9.]+ s"
check "no other file is left" test "$(find "$scratch" -name 'profile.json*' | wc -l)" = 1
chosen=$(sed -n 's/^ "kv": "\(.*\)",/\1/p' "$profile")
check "the choice is the best point or its control" test "$(of 'p["kv"] in (p["best"], p["control"])')" = True
check "the best is a point of the curve" test "$(of 'at(p["curve"], p["best"])["kv"] == p["best"]')" = True

# The control: significance off, and the best point's bytes
check "significance is off in the control" test "$(of 'p["control"][:22]')" = "leankv:ah=1000000,al=0"
check "it has the best one's bytes" test "$(of 'abs(at(p["controls"], p["control"])["fraction"] / at(p["curve"], p["best"])["fraction"] - 1) < 0.03')" = True
check "the summary names it" says "^control    leankv:ah=1000000,al=0.*: significance off"
check "and says what significance brings" says "is better than that: |brings nothing that its window does not"

# One half chooses, the other is shown; eval has the same figures
check "the half that chooses does" test "$(of 'p["settings"]["half"] + p["shown"]["half"]')" = chooseshow
check "the other is shown" test "$(of '[x["kv"] for x in p["shown"]["points"]] == [p["best"], p["control"]]')" = True
check "the summary says so" says "^shown      on the show samples, by which nothing was chosen"
best=$(of 'p["best"]')
try eval -m "$MODEL" --tasks "$scratch/tasks" --half show --kv "$best" --format json -q
check "eval --half show" exits 0
check "eval's accuracy of that half is what is shown" near "$(row accuracy)" "$(of 'at(p["shown"]["points"], p["best"])["accuracy"]')"
check "and so are its bytes" near "$(row fraction)" "$(of 'at(p["shown"]["points"], p["best"])["fraction"]')"
check "the half is named" prints '"half": "show"'
try eval -m "$MODEL" --tasks "$scratch/tasks" --half choose --kv "$best" --format json -q
check "the other half chose" near "$(row fraction)" "$(of 'at(p["curve"], p["best"])["fraction"]')"
check "of half the samples" prints '"samples": 2'
fails 1 "the odd half of task '.*' has no sample: of 1 there is none at an odd place" eval -m "$MODEL" \
    --tasks "$scratch/tasks" --samples 1 --half odd
fails 1 "the show half of task '.*' has no sample: of 1 there is none that shows" eval -m "$MODEL" \
    --tasks "$scratch/tasks" --samples 1 --half show
head -c 12000 "$ROOT/eval/prose.txt" >"$scratch/text"
text() { try eval -m "$MODEL" --text "$scratch/text" --ctx-window 512 --text-windows 3 --format json -q "$@"; }
text
all=$(field scored_tokens)
text --half even
check "the first of three windows is even" calc "$(field scored_tokens) * 3 == $all"
even=$(field perplexity)
text --half odd
check "the two behind it are odd" calc "$(field scored_tokens) * 3 == $all * 2"
odd=$(field perplexity)
text
check "together they are all" near "($even * $odd^2)^(1/3)" "$(field perplexity)"
text --half choose
choose=$(field perplexity)
head -c 6000 "$scratch/text" >"$scratch/first"
tail -c +6001 "$scratch/text" | head -n 1 >>"$scratch/first"
try eval -m "$MODEL" --text "$scratch/first" --ctx-window 512 --text-windows 3 --format json -q
check "the first half of a text ends behind the line in its middle" near "$choose" "$(field perplexity)"
tail -c +$(($(wc -c <"$scratch/first") + 1)) "$scratch/text" >"$scratch/second"
text --half show
show=$(field perplexity)
try eval -m "$MODEL" --text "$scratch/second" --ctx-window 512 --text-windows 3 --format json -q
check "the other half is the rest" near "$show" "$(field perplexity)"
fails 1 "the odd half of 1 window of 512 tokens is empty" eval -m "$MODEL" --text "$scratch/text" --ctx-window 512 \
    --text-windows 1 --half odd

# Once more: nothing is measured, nothing changes.  Other thresholds: only they are measured.
cp "$profile" "$scratch/first"
calibrate --ah 3,1 --al 0,0.5,2 --goal accuracy
check "calibrate again" exits 0
check "what is there is not measured again" test -z "$(grep -E '^(leankv|f16)' "$scratch/err" | grep -v 'measured already')"
check "nor written otherwise" cmp -s "$profile" "$scratch/first"
check "the table marks the choice" prints "^$chosen .* chosen *$"
check "the table has f16" prints "^f16 +[01]\.[0-9]+ +0\.0000 "
points=$(n_points)
calibrate --ah 1,2 --al 0 --goal accuracy -q
check "calibrate -q with another ah" exits 0
check "-q is quiet" test -z "$stderr"
check "one point is new" test "$(n_points)" = $((points + 1))
calibrate --ah 0 --al 0,5 --goal accuracy --format csv
check "an al above the best ah is left out" says "note: al=5 is left out: it is above ah=[0-3], the best"
check "the csv has every point" test "$(grep -c '^"leankv:' "$scratch/out")" = \
    "$(of 'len(p["curve"]) + len(p["controls"]) + len(p["shown"]["points"])')"
calibrate --goal bytes --tolerance 1 --ah 1 --al 0
check "with any accuracy allowed the fewest bytes are best" \
    test "$(of 'at(p["curve"], p["best"])["fraction"] == min(x["fraction"] for x in p["curve"])')" = True

# The choice by figures that we make up, so that nothing depends on what the model answers.  made_up BEST CONTROL: the
# lists [accuracy, perplexity] that the best point and its control have; f16 has 0.9
profile=$scratch/made.json
calibrate --ah 3 --al 0 -q
check "a profile to make figures up in" exits 0
made_up() {
    python3 - "$profile" "$1" "$2" <<'EOF'
import json, sys
path, best, control = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
p = json.load(open(path))
p["f16"]["accuracy"] = 0.9
off = "leankv:ah=1000000,al=0" # the first that is tried
for points, kv, (accuracy, perplexity) in ((p["curve"], p["best"], best), (p["controls"], off, control)):
    for x in points:
        if x["kv"] == kv:
            x.update(accuracy=accuracy, perplexity=perplexity, fraction=0.5)
json.dump(p, open(path, "w"), indent=1)
EOF
    calibrate --ah 3 --al 0 --tolerance 0.3
}
chooses() { exits 0 && test "$(of 'p["kv"] == p["'"$1"'"]')" = True; }
made_up '[0.9, 20]' '[0.9, 20]'
check "as good as its control: the control is chosen" chooses control
check "and it is said" says "$(of 'p["best"]') brings nothing that its window does not, so the control was chosen"
check "the table has both" prints "best, not chosen *$"
made_up '[1.0, null]' '[0.75, null]'
check "more answers: chosen" chooses best
check "with the reason" says 'is better than that: it answers more$'
check "nothing was measured for it" test -z "$(grep -E '^(leankv|f16)' "$scratch/err" | grep -v 'measured already')"
made_up '[0.75, 10]' '[1.0, 20]'
check "fewer answers and a better text: not chosen" chooses control
made_up '[0.9, 19.9]' '[0.9, 20]'
check "as many answers, a lower perplexity: chosen" chooses best
check "with that reason" says 'it answers as many, and predicts the text better$'
made_up '[0.9, 19.99]' '[0.9, 20]'
check "lower by less than a thousandth is not lower" chooses control
made_up '[0.9, null]' '[0.9, 20]'
check "what was not measured is not lower" chooses control
made_up '[0.7, 20]' '[0.5, 20]'
check "it alone is within the tolerance" says 'is better than that: it alone is within the tolerance$'
made_up '[0.5, 10]' '[0.7, 20]'
check "its control alone is" chooses control

# Profiles of version 1 had neither: their samples all chose
python3 - "$profile" <<'EOF'
import json, sys
p = json.load(open(sys.argv[1]))
for key in ("best", "control", "controls", "shown"):
    del p[key]
del p["settings"]["half"]
del p["settings"]["activations"]
p["kv"], p["chosen"] = p["curve"][0]["kv"], {"ah": p["curve"][0]["ah"], "al": p["curve"][0]["al"]}
p["pleat_profile"] = 1
json.dump(p, open(sys.argv[1], "w"), indent=1)
EOF
try run -m "$MODEL" -p "The sea was calm" -n 2 --kv "leankv:profile=$profile" --format json -q
check "a profile of version 1 is read" prints "\"spec\": \"$(of 'p["kv"]')\""
fails 1 "was made with another --half .*, --half all" calibrate -m "$MODEL" --tasks "$scratch/tasks" --ah 3 --al 0 -o "$profile"
calibrate --ah 3 --al 0 --half all
check "and gone on from, with --half all" exits 0
check "its points are not measured again" says "^leankv:ah=3,al=0 .*measured already"
check "its control is" in_profile '"control": "leankv:ah=1000000,al=0'
check "nothing is shown" test "$(of 'p["shown"]')" = None
check "and that is said" says "^shown      on no other samples"
profile=$scratch/profile.json

# A profile is read where a spec is
calibrate --ah 3 --al 0 -q
chosen=$(sed -n 's/^ "kv": "\(.*\)",/\1/p' "$profile")
try run -m "$MODEL" -p "The sea was calm" -n 4 --kv "leankv:profile=$profile" --format json -q
check "run takes a profile" exits 0
check "and says which spec it stands for" prints "\"spec\": \"$chosen\""
try eval -m "$MODEL" --tasks "$scratch/tasks" --samples 1 --kv "f16 leankv:profile=$profile" --format json -q
check "eval takes a profile" exits 0
check "eval names the spec" prints "\"kv\": \"$chosen\""
try bench run -m "$MODEL" -p 0 -n 2 -r 1 --kv "leankv:profile=$profile" --format json -q
check "bench run takes a profile" exits 0
check "bench run names the spec" prints "\"kv\": \"$chosen\""
fails 2 "a profile goes with a model that runs" inspect "$MODEL" --kv "leankv:profile=$profile"

# leankv without a key takes the profile beside the model, if it is the model's
ln -s "$MODEL" "$scratch/near.gguf"
near=$scratch/near.leankv.json
bare() { try run -m "$scratch/near.gguf" -p "The sea was calm" -n 2 --format json --kv "${1:-leankv}"; }
bare
check "no profile: the defaults" prints '"spec": "leankv:ah=3,al=0"'
check "and no word of one" test -z "$(grep profile "$scratch/err")"
python3 - "$profile" "$near" <<'EOF'
import json, sys
profile = json.load(open(sys.argv[1]))
profile["kv"], profile["chosen"] = "leankv:ah=7,al=0", {"ah": 7.0, "al": 0.0}
json.dump(profile, open(sys.argv[2], "w"), indent=1)
EOF
bare
check "the profile beside the model" prints '"spec": "leankv:ah=7,al=0"'
check "is named" says "note: --kv leankv is leankv:ah=7,al=0 here, from the model's profile $near; leankv:ah=3,al=0 are"
bare leankv:ah=3
check "a key asks for the defaults" prints '"spec": "leankv:ah=3,al=0"'
check "without a note" test -z "$(grep note: "$scratch/err")"
try run -m "$scratch/near.gguf" -p x -n 1 --kv leankv -q
check "-q: no note" test "$code$stderr" = 0
try bench run -m "$scratch/near.gguf" -p 0 -n 2 -r 1 --kv leankv --format json -q
check "bench run takes it, too" prints '"kv": "leankv:ah=7,al=0"'
fails 1 "near.leankv.json" run -m "$scratch/near.gguf" -p x -n 1 --kv leankv -o "$near"
sed 's/"fingerprint": "..../"fingerprint": "0000/' "$profile" >"$near"
bare
check "another model's is not taken" prints '"spec": "leankv:ah=3,al=0"'
check "and said to be" says "note: --kv leankv is leankv:ah=3,al=0: the profile $near was made for another model"
sed 's/"complete": true/"complete": false/' "$profile" >"$near"
bare
check "nor one that is not complete" says "the profile $near is not complete"
echo "my notes" >"$near"
fails 1 "near.leankv.json is no profile" run -m "$scratch/near.gguf" -p x -n 1 --kv leankv
rm "$near"

# Profiles that do not fit
refused() { fails 1 "$1" run -m "$MODEL" -p x -n 1 --kv "leankv:profile=$scratch/bad.json"; }
edit() { sed "$1" "$profile" >"$scratch/bad.json"; }
fails 1 "cannot read .*none.json: No such file" run -m "$MODEL" -p x -n 1 --kv "leankv:profile=$scratch/none.json"
edit 's/"pleat_profile": 2/"pleat_profile": 3/'
refused "profile .*bad.json is of version 3; this build reads versions 1 to 2"
edit 's/"pleat_profile": 2/"pleat_profile": 4294967298/'
refused "bad.json is no profile: it has no \"pleat_profile\""
edit 's/"half": "choose"/"half": "third"/'
refused "profile .*bad.json is damaged: its \"half\" cannot be read"
edit 's/^ "control": .*/ "control": "leankv:ah=1000000,al=0,window=4095",/'
refused "profile .*bad.json is damaged: its \"control\" cannot be read"
edit 's/^ "best": .*/ "best": "f16",/'
refused "profile .*bad.json is damaged: its \"best\" cannot be read"
edit '/^ "shown"/,$s/"accuracy": [0-9.]*/"accuracy": []/'
refused "profile .*bad.json is damaged: its \"shown\" cannot be read"
edit 's/"complete": true/"complete": false/'
refused "profile .*bad.json is not complete: .*run the same .pleat calibrate. again"
edit 's/"fingerprint": "..../"fingerprint": "0000/'
refused "profile .*bad.json was made for the model 'Pleat reference 28M' \(fingerprint 0000[0-9a-f]{28}\); this one is"
edit 's/^ "kv": .*/ "kv": "k8v4",/'
refused "profile .*bad.json is damaged: its \"kv\" cannot be read"
edit 's/"accuracy": [0-9.]*/"accuracy": "good"/'
refused "profile .*bad.json is damaged: its \"f16\" cannot be read"
edit 's/"kv": "leankv:ah=3,al=0"/"kv": "leankv:ah=3,al=4"/'
refused "profile .*bad.json is damaged"
edit '/"chosen"/,/}/s/"ah": [0-9.]*/"ah": 7.5/'
refused "profile .*bad.json is damaged: its \"chosen\", which is not its \"kv\","
edit '/"chosen"/,/}/s/"al": [0-9.]*/"al": "none"/'
refused "profile .*bad.json is damaged: its \"chosen\""
edit '/"curve"/,/}/s/"ah": [0-9.]*/"ah": 7.5/'
refused "profile .*bad.json is damaged: its \"curve\" cannot be read"
edit '/"complete"/d;s/^}//'
refused "bad.json is no profile: line [0-9]+, column"
echo '[1, 2]' >"$scratch/bad.json"
refused "bad.json is no profile: it has no \"pleat_profile\""

# What is in the way is left alone
fails_calibrate "profile .* was made with another --samples" --samples 1
fails_calibrate "profile .* was made with another --half .leankv:.*, --half choose" --half odd
fails_calibrate "profile .* was made with another --kv" --kv leankv:low=k4v4
fails_calibrate "profile .* was made with another --batch-size" -b 100
fails_calibrate "profile .* was made with other --activations" --activations 8
fails_calibrate "profile .* was made with another --text" --text "$ROOT/eval/prose.txt"
cp "$scratch/tasks" "$scratch/tasks.kept"
head -n 2 "$scratch/tasks.kept" >"$scratch/tasks"
fails_calibrate "profile .* was made with other --tasks"
cp "$scratch/tasks.kept" "$scratch/tasks"
sed -i 's/"fingerprint": "..../"fingerprint": "0000/' "$profile"
fails_calibrate "was made for the model"
printf 'my notes\n' >"$profile"
fails_calibrate "profile.json is no profile: line 1"
rm "$profile"
fails 1 "the show half of task '.*' has no sample" calibrate -m "$MODEL" --tasks "$scratch/tasks" --samples 1 -o "$profile"
check "with what to do" says "one half chooses, the other shows the result: give more samples, or --half all"
fails 1 "cannot write /no/dir/x" calibrate -m "$MODEL" --tasks "$scratch/tasks" -o /no/dir/x
fails 1 "cannot read /no/text" calibrate -m "$MODEL" --tasks "$scratch/tasks" --text /no/text -o "$profile"
check "nothing is written for it" test ! -e "$profile"

# Killed after some points, and started again; beside the model, whose folder is ours
ln -s "$MODEL" "$scratch/m.gguf"
profile=$scratch/m.leankv.json
"$PLEAT" calibrate -m "$scratch/m.gguf" --tasks "$scratch/tasks" --ah 1,2,3,4,5,6 --al 0 -q >/dev/null 2>&1 &
pid=$!
for _ in $(seq 600); do
    [ -e "$profile" ] && [ "$(n_points)" -ge 1 ] && break
    sleep 0.1
done
kill -KILL $pid
wait $pid 2>/dev/null
if in_profile '"complete": true'; then
    skip "an interrupted calibration: it was over before the signal came"
else
    check "the profile is whole at any time" in_profile '"complete": false'
    fails 1 "is not complete" run -m "$MODEL" -p x -n 1 --kv "leankv:profile=$profile"
    sed -n '/"curve"/,$p' "$profile" | grep -A3 '"kv"' | grep -v -- -- | head -n 4 >"$scratch/measured"
    try calibrate -m "$scratch/m.gguf" --tasks "$scratch/tasks" --ah 1,2,3,4,5,6 --al 0
    check "it goes on" exits 0
    check "with what it has" says "m.leankv.json has points already .[0-9]+., which are not measured again"
    check "the first point is the one measured already" says "^leankv:ah=1,al=0 .*\(measured already\)"
    check "and is complete now" in_profile '"complete": true'
    check "with all its points" test "$(n_points)" = 6
fi
finish
