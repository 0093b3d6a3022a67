#!/bin/bash
# SPDX-License-Identifier: MIT
#
# calibrate.sh: `pleat calibrate` writes a profile that other commands read, goes on where it was stopped, and leaves
# alone what is not its own; a profile that does not fit is refused by each command that is given one.
. "$(dirname "$0")/harness.bash"
grep -E '"id": "(few_shot-300|kv_recall-400)-0[01]"' "$ROOT/eval/tasks.jsonl" >"$scratch/tasks"
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
n_points() { grep -c '"kv": "leankv' "$profile"; } # of the curve, and the choice
in_profile() { grep -Eq -- "$1" "$profile"; }

# A calibration
calibrate --ah 3,1 --al 0,0.5,2 --goal accuracy --format json
check "calibrate" exits 0
check_json "calibrate --format json"
check "it prints the profile" cmp -s "$scratch/out" "$profile"
for key in pleat_profile model name fingerprint kv chosen ah al tasks text f16 curve accuracy perplexity fraction seconds; do
    check "the profile has $key" in_profile "\"$key\":"
done
check "the profile is complete" in_profile '"complete": true'
check "the model is named" in_profile '"name": "Pleat reference 28M"'
check "the fingerprint has 32 digits" in_profile '"fingerprint": "[0-9a-f]{32}"'
check "a text that was not given has no perplexity" in_profile '"perplexity": null'
check "each point is told" says "^leankv:ah=1,al=0 +accuracy [01]\.[0-9]+, [0-9.]+ % of f16's bytes, [0-9.]+ s"
check "no other file is left" test "$(find "$scratch" -name 'profile.json*' | wc -l)" = 1
chosen=$(sed -n 's/^ "kv": "\(.*\)",/\1/p' "$profile")
check "the choice is a point" test "$(grep -c "\"kv\": \"$chosen\"" "$profile")" = 2

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
check "the csv has every point" test "$(grep -c '^"leankv:' "$scratch/out")" = $((points + 1))
calibrate --goal bytes --tolerance 1 --ah 1 --al 0
least=$(awk -F'[:,]' '/"fraction"/ && ++n > 1 && (!m || $2 < m) { m = $2 } END { print m }' "$profile")
kept=$(sed -n "/\"kv\": \"$(sed -n 's/^ "kv": "\(.*\)",/\1/p' "$profile")\",/,/fraction/p" "$profile" | sed -n 's/.*"fraction": \([0-9.]*\).*/\1/p' | tail -1)
check "with any accuracy allowed the fewest bytes are chosen" calc "$kept == $least"

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
edit 's/"pleat_profile": 1/"pleat_profile": 2/'
refused "profile .*bad.json is of version 2; this build reads version 1"
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
fails_calibrate "profile .* was made with another --kv" --kv leankv:low=k4v4
fails_calibrate "profile .* was made with another --batch-size" -b 100
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
fails 1 "cannot write /no/dir/x" calibrate -m "$MODEL" --tasks "$scratch/tasks" -o /no/dir/x
fails 1 "cannot read /no/text" calibrate -m "$MODEL" --tasks "$scratch/tasks" --text /no/text -o "$profile"
check "nothing is written for it" test ! -e "$profile"

# Killed after some points, and started again; beside the model, whose folder is ours
ln -s "$MODEL" "$scratch/m.gguf"
profile=$scratch/m.leankv.json
"$PLEAT" calibrate -m "$scratch/m.gguf" --tasks "$scratch/tasks" --ah 1,2,3,4,5,6 --al 0 -q >/dev/null 2>&1 &
pid=$!
for _ in $(seq 600); do
    [ -e "$profile" ] && [ "$(n_points)" -ge 2 ] && break
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
    check "with all its points" test "$(n_points)" = 7
fi
finish
