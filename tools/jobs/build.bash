# SPDX-License-Identifier: MIT
#
# build.bash: jobs about the tree itself: its rules, other compilers, what is installed, what takes long.

job_lint() { tools/build.sh build && bash tests/lint/lint.sh build; }

job_install() {
    local script status=0
    tools/build.sh build || return
    for script in tests/consumer/*.sh; do
        bash "$script" build || status=1
    done
    return $status
}

# Everything compiles without a warning; the bits are those that gcc's code gives.
job_clang() {
    command -v clang > /dev/null || { skip_job "there is no clang; tools/setup.sh fuzz installs it"; return; }
    configure build/clang -DCMAKE_C_COMPILER=clang -DPLEAT_CUDA=off || return
    export CHECK_QUICK=1
    tools/build.sh build/clang -t "all test_programs bench_programs example_programs" && ctest_in build/clang -R '^check_' -E "$no_kernels" -LE slow
}

# nvcc, and its version, are looked for where cmake/cuda.cmake looks.  With --long for every architecture.
job_cuda() {
    local nvcc release archs=90a-real
    nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc) || { skip_job "there is no nvcc; it is of NVIDIA's CUDA toolkit, 13 or later"; return; }
    release=$("$nvcc" --version | sed -nE 's/.*release ([0-9]+)\..*/\1/p')
    [ "${release:-0}" -ge 13 ] || { skip_job "$nvcc is of CUDA ${release:-?}, and 13 or later is needed"; return; }
    [ $with_long = 0 ] || archs=""
    configure build/cuda -DPLEAT_CUDA=on -DCMAKE_CUDA_ARCHITECTURES=$archs && tests_in build/cuda -R '^(check_device.*|cli_devices?)$'
}

job_long() {
    local script status=0
    export SOAK_MINUTES=${SOAK_MINUTES:-2}
    tools/build.sh build || return
    for script in tests/long/*.sh; do
        [ -f "$script" ] || continue
        echo "== $script"
        PLEAT=$PWD/build/pleat ROOT=$PWD bash "$script" || status=1
    done
    return $status
}
