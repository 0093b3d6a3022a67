# SPDX-License-Identifier: MIT
#
# device.bash: the GPU kernels' tests, on a machine with a GPU.

# sanitized TOOL PROGRAM KERNELS: counts its own tests, and one more failure for what the tool finds.  Launches are added to
# the file KERNELS.
sanitized() {
    echo "== compute-sanitizer $1 $(basename "$2")"
    # Tests provoke errors of the CUDA runtime on purpose: only what kernels do counts.
    local options=(--tool "$1" --error-exitcode 9)
    [ "$1" != memcheck ] || options+=(--report-api-errors no)
    CHECK_LEAST=1 CHECK_KERNELS=$3 compute-sanitizer "${options[@]}" "$2" --device cuda
    [ $? != 9 ] || { echo "FAIL $1 $(basename "$2")"; echo "0 passed, 1 failed"; return 1; }
}

# every_kernel TOOL KERNELS: a test, of whether the tool has seen each kernel that the programs have.  GPUs before Hopper do
# not run them all.
every_kernel() {
    local unseen n major
    major=$(nvidia-smi -i 0 --query-gpu=compute_cap --format=csv,noheader | cut -d. -f1)
    if [ "${major:-9}" -lt 9 ]; then
        skip_job "$1 cannot see the kernels that are for Hopper"
        return 0
    fi
    n=$(awk '{ print $2 }' "$2" | sort -u | wc -l)
    unseen=$(awk '{ n[$2] += $1 } END { for (name in n) if (n[name] == 0) print name }' "$2" | c++filt | sort)
    if [ "$n" -gt 0 ] && [ -z "$unseen" ]; then
        echo "ok   $1 has seen all $n kernels"
        echo "1 passed, 0 failed"
        return 0
    fi
    echo "$unseen"
    echo "FAIL $1: these of $n kernels were not launched"
    echo "0 passed, 1 failed"
    return 1
}

job_device() {
    local program scratch status=0
    tools/build.sh build -t "pleat test_programs" || return
    if ! build/tests/check_device --device cuda info; then
        echo "FAIL device: there is no GPU that this build can use"
        return 1
    fi
    for program in build/tests/check_device*; do
        "$program" --device cuda || status=1
    done
    command -v compute-sanitizer > /dev/null || { skip_job "compute-sanitizer is not installed"; return $status; }
    # racecheck finds hazards in cuBLASLt's own kernels, and fails where any kernels are left out: so without the library.
    scratch=$(mktemp -d) && cc -shared -o "$scratch/libcublasLt.so.13" -x c /dev/null || return
    for program in build/tests/check_device*; do
        sanitized memcheck "$program" "$scratch/memcheck" || status=1
        LD_LIBRARY_PATH=$scratch:${LD_LIBRARY_PATH:-} sanitized racecheck "$program" "$scratch/racecheck" || status=1
    done
    every_kernel memcheck "$scratch/memcheck" || status=1
    sed -i -E '/[0-9](plain|gate)(I|P)/d' "$scratch/racecheck" # only products by the library have them
    every_kernel racecheck "$scratch/racecheck" || status=1
    rm -r "$scratch"
    return $status
}
