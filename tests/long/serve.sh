# SPDX-License-Identifier: MIT
#
# serve.sh: ten minutes of ten times more requests than the pool holds.  Nobody is lost, nobody among the running waits
# for more than two steps, and at the end every page is back (the command itself fails where one is not).
. "$ROOT/tests/cli/harness.bash"

seconds=${SERVE_SECONDS:-600}
report=$scratch/serve.json

# serve SPEC REQUESTS: chats of up to 1024 tokens (8 MiB in f16), at most 40 running, all of them there from the beginning.
serve() {
    try bench serve -m "$MODEL" --synthetic chat --requests "$2" --rate inf --kv "$1" --pool-bytes 12MiB -c 1024 \
        --max-running 40 --watermarks 1,1 --tenants a:30%,b:20%:2 --format json -o "$report" -q
}
field() { python3 -c "import json, sys; print(json.load(open(sys.argv[1]))['rows'][0][sys.argv[2]])" "$report" "$1"; }

for spec in f16 k8v4 "leankv:profile=$ROOT/models/pleat-28m-q8_0.leankv.json"; do
    began=$SECONDS n=0
    while [ $((SECONDS - began)) -lt $((seconds / 3)) ]; do
        serve "$spec" 200
        check "$spec: ends well, with no page lost" test "$code" = 0
        [ "$code" = 0 ] || break
        check "$spec: every request is answered" test "$(field completed) $(field failed) $(field rejected)" = "200 0 0"
        check "$spec: no step without a token" test "$(field idle_steps_most)" = 0
        check "$spec: nobody who runs waits for more than two steps" test "$(field stalled_steps_most)" -le 2
        check "$spec: the pool ran short" test "$(field pool_used_max)" = 1.0 -o "$(field preempted_swap)" -gt 0
        check "$spec: no page is left" test "$(field pages_left)" = 0
        n=$((n + 1))
    done
    echo "   $spec: $n times 200 requests in $((SECONDS - began)) s; the last: $(field preempted_swap) preempted by swap," \
        "$(field preempted_recompute) to be computed again"
done
finish
