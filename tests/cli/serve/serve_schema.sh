#!/bin/bash
# SPDX-License-Identifier: MIT
# ctest-labels: slow
#
# serve_schema.sh: answers of `pleat serve` under JSON schemas, of the reference model, which knows nothing of JSON.
# SERVE_SCHEMAS: of how many (60).
. "$(dirname "${BASH_SOURCE[0]}")/../harness.bash"
. "$ROOT/tests/cli/serve/server.bash"

start "$MODEL" -np 16 -t 2 -c 512 || exit 1
capture python3 "$ROOT/tests/cli/serve/schemas.py" "${url##*:}" "${SERVE_SCHEMAS:-60}"
check "each that is whole has its schema" exits 0
sed 's/^/   /' <<<"$stdout"
stop
check "SIGTERM ends it with 0" exits 0
finish
