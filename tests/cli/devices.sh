#!/bin/bash
# SPDX-License-Identifier: MIT
#
# devices.sh: `pleat inspect --devices` and `pleat --version` say which GPUs there are, or why none can be used; a driver
# that is too old is played by a library of ours.
. "$(dirname "$0")/harness.bash"

try inspect --devices --format json
check "a list, whatever there is" test "$code" = 0
check "as JSON" prints '"devices": \['
if prints '"reason": null'; then
    check "names them" prints '"compute_capability": "[0-9]+\.[0-9]"'
    has_device=1
else
    check "says why there are none" prints '"reason": "(this build has no CUDA|no GPU|the CUDA driver)'
    check "and on stderr" says 'this build has no CUDA|no GPU|the CUDA driver'
    has_device=0
fi
try inspect --devices -q
check "-q: only the table" test -z "$stderr"
fails 2 "takes no file" inspect --devices "$MODEL"

try --version
check "--version tells of CUDA" prints 'cuda: '

# A driver of CUDA 11.4.
cat > "$scratch/driver.c" <<'END'
int cuDriverGetVersion(int *version) { *version = 11040; return 0; }
END
if [ $has_device = 0 ] && ! prints 'cuda: not in this build' && cc -shared -fPIC -o "$scratch/libcuda.so.1" "$scratch/driver.c"; then
    capture env LD_LIBRARY_PATH="$scratch" "$PLEAT" inspect --devices
    check "an old driver is named" says 'driver is too old: it knows CUDA 11\.4, this build needs [0-9]+\.[0-9]'
    check "and is no failure" test "$code" = 0
    capture env LD_LIBRARY_PATH="$scratch" "$PLEAT" inspect "$MODEL" --kv k8v4 --ctx 64
    check "the CPU's commands work beside it" test "$code" = 0
else
    echo "skip an old driver: no CUDA in this build, no compiler, or a GPU with its driver"
    skipped=$((skipped + 1))
fi
finish
