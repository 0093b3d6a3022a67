# SPDX-License-Identifier: MIT
#
# device.bash: the GPU kernels' tests, on a machine with a GPU.

# sanitized TOOL PROGRAM: counts its own tests, and one more failure for what the tool finds.
sanitized() {
    echo "== compute-sanitizer $1 $(basename "$2")"
    # Tests provoke errors of the CUDA runtime on purpose: only what kernels do counts.
    local options=(--tool "$1" --error-exitcode 9)
    [ "$1" != memcheck ] || options+=(--report-api-errors no)
    CHECK_LEAST=1 compute-sanitizer "${options[@]}" "$2" --device cuda
    [ $? != 9 ] || { echo "FAIL $1 $(basename "$2")"; echo "0 passed, 1 failed"; return 1; }
}

job_device() {
    local program without status=0
    tools/build.sh build -t "pleat test_programs" || return
    if ! build/tests/check_device --device cuda info; then
        echo "FAIL device: there is no GPU that this build can use"
        return 1
    fi
    for program in build/tests/check_device*; do
        "$program" --device cuda || status=1
    done
    command -v compute-sanitizer > /dev/null || { skip_job "compute-sanitizer is not installed"; return $status; }
    for program in build/tests/check_device*; do
        sanitized memcheck "$program" || status=1
    done
    # racecheck finds hazards in cuBLASLt's own kernels, and fails where they are left out: so without the library.
    without=$(mktemp -d) && cc -shared -o "$without/libcublasLt.so.13" -x c /dev/null || return
    for program in build/tests/check_device*; do
        LD_LIBRARY_PATH=$without:${LD_LIBRARY_PATH:-} sanitized racecheck "$program" || status=1
    done
    rm -r "$without"
    return $status
}
