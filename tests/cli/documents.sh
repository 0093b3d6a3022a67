#!/bin/bash
# SPDX-License-Identifier: MIT
# ctest-labels: slow
#
# documents.sh: eval/documents.py writes the same tasks everywhere, with the answers in them and each half's own prose; eval
# asks after a document in the model's own form, counts the answers that it finds, and reads the document first if the
# question is to be unseen.
. "$(dirname "$0")/harness.bash"
needs python3
export PYTHONDONTWRITEBYTECODE=1

# ---- the tasks -------------------------------------------------------------------------------------------------------------
make() { python3 "$ROOT/eval/documents.py" "$@"; }
make >"$scratch/any"
make --form reference >"$scratch/reference"
hash_of() { sha256sum <"$1" | cut -c 1-16; }
check "the tasks for any model are what they were" same "$(hash_of "$scratch/any")" 53dc39e76f2a25f3
check "and those for the reference model" same "$(hash_of "$scratch/reference")" f39975cd9d79088d
python3 "$ROOT/eval/sums.py" --samples 3 >"$scratch/sums"
check "and more sums" same "$(hash_of "$scratch/sums")" f9072b820e8dad7d
cat >"$scratch/sums_look" <<'END'
import json, sys
sys.path.insert(0, sys.argv[1] + "/eval")
import sums
for line in open(sys.argv[1] + "/eval/tasks.jsonl"):
    s = json.loads(line)
    if s["task"] == "chain_sum":
        numbers = [int(n) for n in s["turns"][0]["prompt"].split("numbers ")[1].split(" step")[0].split()]
        print("alike" if sums.sample("", numbers)["turns"] == s["turns"] else s["id"])
END
capture python3 "$scratch/sums_look" "$ROOT"
check "which are asked and answered as in eval/tasks.jsonl" same "$(sort <<<"$stdout" | uniq -c | xargs)" "64 alike"
cat >"$scratch/look" <<'END'
import json, sys
sys.path.insert(0, sys.argv[1] + "/eval")
import documents
halves = [{sentence.strip() for sentence in half if len(sentence) > 60} for half in documents.Prose().halves]
ids = set()
for line in open(sys.argv[2]):
    s = json.loads(line)
    ids.add(s["id"])
    if not all(answer in s["document"] for answer in s["answers"]):
        print("no answer in", s["id"])
    if s["task"].startswith(("lines", "words")):
        continue
    own, other = halves[documents.shows(s["id"])], halves[not documents.shows(s["id"])]
    if any(sentence in s["document"] for sentence in other - own) or not any(sentence in s["document"] for sentence in own):
        print("prose of the other half in", s["id"])
print(len(ids), "samples")
END
capture python3 "$scratch/look" "$ROOT" "$scratch/any"
check "every answer stands in its document, and the prose is its half's own" same "$stdout" "448 samples"
capture make --lengths 3k
check "a length that is not" test "$code" = 2

# ---- unseen ----------------------------------------------------------------------------------------------------------------
make --form reference --lengths 500 --samples 2 | grep -E '"id": "(fact|needles)-' >"$scratch/tasks"
ask() { try eval -m "$MODEL" --tasks "$scratch/tasks" --kv f16 --kv snapkv:budget=25% --kv novel:budget=25% --format json -q "$@"; }
# of N EXPRESSION: of row N, from 0
of() { python3 -c 'import json, sys; r = json.load(open(sys.argv[1]))["rows"][int(sys.argv[2])]; print(eval(sys.argv[3]))' "$scratch/out" "$1" "$2"; }
right() { of "$1" 'sum(t["correct"] for t in r["tasks"].values())'; }
ask --answers "$scratch/answers"
check "the reference model finds facts" calc "$(right 0) >= 7 && $(of 0 'sum(t["total"] for t in r["tasks"].values())') == 8"
check "the JSON says that it saw the questions" prints '"unseen": false'
seen=$(right 1)
cat >"$scratch/errors" <<'END'
import json, math, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
kvs = list(dict.fromkeys(r["kv"] for r in rows))
def error(kv, base):
    squares = 0
    for task in ("fact", "needles"):
        ids = sorted({r["id"] for r in rows if r["id"].startswith(task)})
        right = lambda kv, i: sum(r["right"] for r in rows if r["kv"] == kv and r["id"] == i)
        n = {i: sum(r["kv"] == kvs[0] and r["id"] == i for r in rows) for i in ids}
        x = {i: right(kv, i) - (right(base, i) if base else 0) for i in ids}
        mean = sum(x.values()) / sum(n.values())
        squares += sum((x[i] - mean * n[i]) ** 2 for i in ids) * len(ids) / (len(ids) - 1) / sum(n.values()) ** 2
    return math.sqrt(squares) / 2
print(error(kvs[1], None), error(kvs[1], kvs[0]))
END
read -r se gain_se <<<"$(python3 "$scratch/errors" "$scratch/answers")"
near() { calc "$1 < $2 + 1e-6 && $2 < $1 + 1e-6"; }
check "an accuracy's error is over samples" near "$(of 1 'r["accuracy_se"]')" "$se"
check "a gain's is sample by sample" near "$(of 1 'r["gain_se"]')" "$gain_se"
check "a gain is what accuracies differ by" near "$(of 1 'r["gain"]')" "$(of 1 'r["accuracy"]') - $(of 0 'r["accuracy"]')"
ask --unseen
check "what is evicted by no attention loses nothing to an unseen question" calc "$(right 2) >= $(right 0) - 1"
check "what is evicted by attention does" calc "$(right 1) < $(right 0) - 3 && $(right 1) <= $seen"
check "all tokens kept: the same answers" calc "$(right 0) >= 7"
check "the JSON says that questions were unseen" prints '"unseen": true'
grep -hE '"id": "(copy_list-300-00|kv_recall-400-00)"' "$ROOT/eval/tasks.jsonl" >"$scratch/mixed"
try eval -m "$MODEL" --tasks "$scratch/mixed" --unseen --kv f16 --format json
check "a prompt without a document is left out" says "note: .*mixed: 1 sample of copy_list is left out: no document stands in front"
check "its task, too" test "$(of 0 'list(r["tasks"])[0]')" = kv_recall
check "and that is counted" prints '"left_out": 1'
fails 2 "a serving cuts prompts by itself" eval -m "$MODEL" --tasks "$scratch/mixed" --unseen --serve

# ---- any model's form ------------------------------------------------------------------------------------------------------
# asked ANSWERS [MORE]: a short document and what is to be found
asked() {
    printf '{"id": "a", "task": "t", "document": "The sea was calm. The code of the red library is 4829. The wind came from the west.", "question": "What is the code of the red library?", "answers": %s%s}\n' \
        "$1" "${2:-}" >"$scratch/one"
}
asked '["4829", "482", "82"]'
for way in "" --serve; do
    try eval -m "$MODEL" --tasks "$scratch/one" $way --format json -q --answers "$scratch/answers"
    check "a document${way:+, served}: answers that are words count" test "$(of 0 'r["tasks"]["t"]["correct"], r["tasks"]["t"]["total"]')" = "(1, 3)"
    check "what was said is noted whole" grep -q '"right":false,"answer":"4829' "$scratch/answers"
done
try eval -m "$MODEL" --tasks "$scratch/one" --unseen --kv snapkv:budget=50% --half choose --report "$scratch/page"
check "a page of it" exits 0
check "with the command that makes it" grep -q '>--unseen<' "$scratch/page"
check "which half it is of is said" says "note: --half choose: 1 sample of .*one"
asked '["4829"]'
try eval -m "$MODEL" --tasks "$scratch/one" --unseen --format json -q --answers "$scratch/answers"
check "all that was asked for is right" grep -q '"right":true,"answer":"4829' "$scratch/answers"
printf '{"id": "a", "task": "t", "document": "The code is 4829.", "question": "What is it?", "answers": ["4829"], "begin": "It is"}\n' >"$scratch/one"
try eval -m tests/golden/llama.gguf --tasks "$scratch/one" --format json -q
check "a model without a chat form is asked in plain text" exits 0
make --lengths 500,8k --samples 1 | grep -E '"id": "(facts|lines)' >"$scratch/long"
try eval -m "$MODEL" --tasks "$scratch/long" --kv k8v4 --format json
check "documents beyond the context are left out" says "note: .*long: 1 sample of lines-8k is left out: longer than the model's context"
check "with their tasks" test "$(of 0 'sorted(r["tasks"])')" = "['facts-500', 'lines-500']"
check "and counted" prints '"left_out": 2'
grep 8k "$scratch/long" >"$scratch/longer"
fails 1 "longer: no samples but those that are left out" eval -m "$MODEL" --tasks "$scratch/longer"

# ---- what is no task -------------------------------------------------------------------------------------------------------
asked '[]'
fails 1 'one, line 1: "answers" is not a list of texts' eval -m "$MODEL" --tasks "$scratch/one"
asked '["4829", ""]'
fails 1 'one, line 1: "answers" is not a list of texts' eval -m "$MODEL" --tasks "$scratch/one"
asked '["4829"]' ', "beginn": "x"'
fails 1 'the line has an unknown "beginn"; the nearest known is .begin.' eval -m "$MODEL" --tasks "$scratch/one"
asked '["4829"]' ', "begin": 1'
fails 1 '"begin" is not a text' eval -m "$MODEL" --tasks "$scratch/one"
asked '["4829"]' ', "turns": []'
fails 1 'the line has an unknown "turns"' eval -m "$MODEL" --tasks "$scratch/one"
finish
