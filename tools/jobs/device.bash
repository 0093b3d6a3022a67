# SPDX-License-Identifier: MIT
#
# device.bash: the GPU kernels' tests, on a machine with a GPU.

# sanitized TOOL PROGRAM SCRATCH: counts its own tests, and one more failure for what the tool finds.  Launches go to a file
# of SCRATCH, which has an empty libcublasLt.
sanitized() {
    local name status path=${LD_LIBRARY_PATH:-} options=(--tool "$1" --error-exitcode 9)
    name=$(basename "$2")
    # Tests provoke errors of the CUDA runtime on purpose: only what kernels do counts.
    [ "$1" != memcheck ] || options+=(--report-api-errors no)
    # racecheck finds hazards in cuBLASLt's own kernels, and fails where any kernels are left out: so without the library.
    [ "$1" != racecheck ] || path=$3:$path
    echo "== compute-sanitizer $1 $name"
    LD_LIBRARY_PATH=$path CHECK_LEAST=1 CHECK_KERNELS=$3/$1.$name.kernels compute-sanitizer "${options[@]}" "$2" --device cuda
    status=$?
    [ $status != 9 ] || { echo "FAIL $1 $name"; echo "0 passed, 1 failed"; }
    return $status
}

# side_by_side SCRATCH TOOL...: every program under each tool, as many at once as there are cores, up to 8.  What each says
# stands together.
side_by_side() {
    local scratch=$1 tool program most
    shift
    most=$(nproc)
    [ "$most" -le 8 ] || most=8
    for tool in "$@"; do
        for program in build/tests/check_device*; do
            while [ "$(jobs -rp | wc -l)" -ge "$most" ]; do wait -n; done
            { sanitized "$tool" "$program" "$scratch" || touch "$scratch/failed"; } \
                > "$scratch/$tool.$(basename "$program").log" 2>&1 &
        done
    done
    wait
    cat "$scratch"/*.log
    [ ! -e "$scratch/failed" ]
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
    scratch=$(mktemp -d) && cc -shared -o "$scratch/libcublasLt.so.13" -x c /dev/null || return
    side_by_side "$scratch" racecheck memcheck || status=1
    cat "$scratch"/memcheck.*.kernels > "$scratch/memcheck"
    cat "$scratch"/racecheck.*.kernels > "$scratch/racecheck"
    every_kernel memcheck "$scratch/memcheck" || status=1
    sed -i -E '/[0-9](plain|gate)(I|P)/d' "$scratch/racecheck" # only products by the library have them
    every_kernel racecheck "$scratch/racecheck" || status=1
    rm -r "$scratch"
    return $status
}
