# SPDX-License-Identifier: MIT
#
# served.sh: what serving costs in answers: eight samples of each task, two of each length, by themselves and as requests
# of one serving that keeps prefixes as long as its pool has room.  Right answers agree within one, or within the bound that
# docs/ACCURACY.md explains, "Through serving"; the table there is what this prints.  No answer depends on the pool, which
# tests/cli/eval_served.sh holds; a smaller one keeps fewer prefixes: SERVED_POOL=48MiB.
#
#     PLEAT=build/pleat bash tests/long/served.sh
. "$(dirname "${BASH_SOURCE[0]}")/../cli/harness.bash"

evict="h2o:budget=50% streaming:budget=50% recent:budget=50% random:budget=50% novel:budget=50%"
evict+=" snapkv:budget=50% pyramidkv:budget=50% adakv:budget=50%"
specs="f16 k8v4 leankv kvcomp $evict"
# four tasks number the samples of each length, the others all of them
grep -E '"id": "((passkey|kv_recall|two_hop|code_recall)-[0-9]+-0[01]|(few_shot|word_problem|chain_sum|copy_list)-[0-9]+-0[0-7])"' \
    "$ROOT/eval/tasks.jsonl" >"$scratch/tasks"
check "eight samples of eight tasks" test "$(wc -l <"$scratch/tasks")" = 64

# asked NAME SPECS ARGS...: evaluate into $scratch/NAME.json, the answers into NAME.jsonl
asked() {
    try eval -m "$MODEL" --tasks "$scratch/tasks" --kv "$2" --answers "$scratch/$1.jsonl" --format json \
        -o "$scratch/$1.json" "${@:3}"
    check "eval ${*:3}" exits 0
}
asked alone "$specs"
pool=${SERVED_POOL:-512MiB}
asked served "$specs" --serve --pool-bytes "$pool"
# prefixes at the ends of turns alone, for the policies that drop tokens at every one
asked turns "$evict" --serve --pool-bytes "$pool" --prefix-tokens 4096

# NAME:SPEC:BOUND: the most answers by which the served ones may differ
python3 - "$scratch" served:f16:0 served:k8v4:1 served:leankv:1 served:kvcomp:1 \
    served:h2o:1 served:streaming:1 served:recent:1 served:random:1 served:novel:1 \
    served:snapkv:26 served:pyramidkv:26 served:adakv:26 \
    turns:h2o:1 turns:streaming:1 turns:recent:1 turns:random:1 turns:novel:1 \
    turns:snapkv:1 turns:pyramidkv:1 turns:adakv:1 <<'PY'
import json, sys

folder = sys.argv[1]
rows, answers = {}, {}
for way in ("alone", "served", "turns"):
    rows[way] = {row["kv"].split(":")[0]: row for row in json.load(open(f"{folder}/{way}.json"))["rows"]}
    answers[way] = {(a["kv"], a["id"], a["turn"]): a for a in map(json.loads, open(f"{folder}/{way}.jsonl"))}
flaws = []


def right(row):
    return sum(task["correct"] for task in row["tasks"].values())


def percent(row):
    return f"{100 * row['fraction']:.1f} %"


def compare(way, name, bound):
    alone, served = rows["alone"][name], rows[way][name]
    total = sum(task["total"] for task in alone["tasks"].values())
    pairs = [(answers["alone"][key], a) for key, a in answers[way].items() if key[0] == served["kv"]]
    differ = [(a, s) for a, s in pairs if a["tokens"] != s["tokens"]]
    for a, s in differ:
        print(f"    {s['id']} turn {s['turn']}: ..{a['answer'][-24:]!r} {a['right']}, served ..{s['answer'][-24:]!r} "
              f"{s['right']}", file=sys.stderr)
    did = served["served"]
    kv = served["kv"] + (", prefixes at turns alone" if way == "turns" else "")
    print(f"| {kv} | {right(alone)} of {total} | {right(served)} | {sum(s['right'] > a['right'] for a, s in differ)} "
          f"| {sum(s['right'] < a['right'] for a, s in differ)} | {percent(alone)} | {percent(served)} "
          f"| {did['prefix_hits']} | {did['preempted_swap'] + did['preempted_recompute']} |")
    if len(pairs) != total:
        flaws.append(f"{kv}: {len(pairs)} answers of {total}")
    if not abs(right(served) - right(alone)) <= bound:
        flaws.append(f"{kv}: more than {bound} answers apart")
    if did["requests"] != total or did["max_concurrency"] < 2:
        flaws.append(f"{kv}: {did['requests']} requests, or nobody ran beside another")
    return did["prefix_hits"]


print("| KV spec | right by itself | right when served | gained | lost | bytes by itself | when served | prefix hits "
      "| preempted |\n|---|---|---|---|---|---|---|---|---|")
n_hits = 0
for case in sys.argv[2:]:
    way, name, bound = case.split(":")
    n_hits += compare(way, name, int(bound))
if n_hits == 0:
    flaws.append("no prefix was hit")
for flaw in flaws:
    print(f"FAILED: {flaw}")
sys.exit(len(flaws) > 0)
PY
check "answers agree" test $? = 0
finish
