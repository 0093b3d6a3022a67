# SPDX-License-Identifier: MIT
#
# device_soak.sh: a GPU's pool, oversubscribed ten times, for SOAK_MINUTES (10): rounds of `pleat bench serve` of so many
# seconds, each with requests of its own that all come at once, a spec after the other.  Ten times as many come as ever ran at
# once.  Of each round: everybody is served or under way at its end, none is lost, no page is held behind the last, and there
# is no step in which nobody gets a token.
#
#     PLEAT=build/pleat ROOT=$PWD SOAK_MINUTES=10 bash tests/long/device_soak.sh [SPEC POOL_MIB]...
#
# SOAK_SHAPE: of the model (llama3-8b).  SOAK_REQUESTS: of a round (5000).  SOAK_ROUND: its seconds (150).
. "$ROOT/tests/cli/harness.bash"

# judge FILE: what a round printed; says its figures, and what of them may not be.
judge() {
    python3 - "$1" <<'END'
import json, sys
row, = json.load(open(sys.argv[1]))["rows"]
n, most = row["params"]["requests"], row["max_concurrency"]
wrong = [text for text, is_wrong in (
    ("some are lost", row["completed"] + row["unfinished"] != n), ("some failed", row["failed"]), ("some were refused", row["rejected"]),
    ("pages are held", row["pages_left"]), ("steps without a token", row["idle_steps_most"]),
    ("not ten times as many as ran", n < 10 * most)) if is_wrong]
print(f'{row["params"]["kv"]}: {row["duration"]:.1f} s, {row["steps"]} steps, {n} requests, {row["completed"]} served, {most} at once at most, '
      f'{row["total_output_tokens"]} tokens, swapped {row["preempted_swap"]}, computed again {row["preempted_recompute"]}, '
      f'prefix hits {row["prefix_hits"]}, pool in use at most {row["pool_used_max"]:.2f}, most steps that one waited '
      f'{row["stalled_steps_most"]}, pages left {row["pages_left"]} of {row["pages_total"]}',
      *(f'WRONG: {text}' for text in wrong), sep="; ")
sys.exit(1 if wrong else 0)
END
}

if ! "$PLEAT" inspect --devices --format json 2>/dev/null | grep -q '"name"'; then
    skip "device_soak.sh: there is no GPU"
    finish
    exit
fi
[ $# -gt 0 ] || set -- f16 1024 leankv:ah=3,al=0.05 256 streaming:budget=128,format=f16 512
end=$((SECONDS + ${SOAK_MINUTES:-10} * 60)) round=1
while [ $SECONDS -lt $end ]; do
    for ((i = 1; i < $# && SECONDS < end; i += 2)); do
        spec=${!i} at=$((i + 1)) share=0
        [[ $spec = *:* ]] || share=0.8 # what follows a prefix is read token by token where a policy acts
        try bench serve --shape "${SOAK_SHAPE:-llama3-8b}" --weights f16 --device cuda -c 2048 --max-running 24 \
            --swap-bytes 2GiB --rate inf --requests "${SOAK_REQUESTS:-5000}" --seconds "${SOAK_ROUND:-150}" --seed $round -q --format json \
            --synthetic chat:output=300,shape=0.5,share=$share --pool-bytes "${!at}MiB" --kv "$spec"
        check "$spec, round $round: ends well" exits 0
        [ $code = 0 ] || continue
        judge "$scratch/out" >"$scratch/says"
        code=$? stdout=$(cat "$scratch/says")
        echo "$stdout"
        check "$spec, round $round: $stdout" exits 0
    done
    round=$((round + 1))
done
finish
