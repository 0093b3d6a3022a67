#!/bin/bash
# SPDX-License-Identifier: MIT
# ctest-labels: slow
#
# serve_company.sh: `pleat serve` says greedily what `pleat run` says, of a prompt alone and with 64 others at the same time,
# for f16, k8v4, leankv and kvcomp.  SERVE_TOLD: of how many of the 65 texts (2); tests/long/company.sh takes all.
. "$(dirname "${BASH_SOURCE[0]}")/harness.bash"
. "$ROOT/tests/cli/serve/server.bash"

specs=(f16 k8v4 "leankv:profile=$ROOT/models/pleat-28m-q8_0.leankv.json" kvcomp)
start "$MODEL" -np 65 -t 2 -c 2048 --pool-bytes 1GiB "${specs[@]/#/--kv=}" || exit 1
capture python3 "$ROOT/tests/cli/serve/same.py" "${url##*:}" "$PLEAT" "$MODEL" "$ROOT/eval/prose.txt" 64 "${SERVE_TOLD:-2}" \
    "${specs[@]}"
check "texts are those of pleat run" exits 0
sed 's/^/   /' <<<"$stdout"
check "who has left is cancelled" await gauge vllm:num_requests_running 0
stop
check "SIGTERM ends it with 0" exits 0
finish
