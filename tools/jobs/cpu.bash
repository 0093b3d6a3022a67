# SPDX-License-Identifier: MIT
#
# cpu.bash: the release build, with all that this CPU has and with less, and builds for other CPUs.

# What serves a model, shares pages, or kills who writes, for minutes in full rounds.
long_rounds='^check_(generation|share|serving|serving_(evict|json|simulated)|store_faults)$'

# Everything is built here, benches too: nothing of the tree may stop compiling.
job_release() {
    local status=0
    cpu_has amx_int8 || echo "skip $job: this CPU has no AMX"
    tools/build.sh build -t "all test_programs bench_programs example_programs" || return
    ctest_in build -E "$long_rounds" || status=1
    fewer_rounds
    ctest_in build -R "$long_rounds" || status=1
    return $status
}

# Programs that look at what a CPU's features change: the library's own, and of the command's scripts those that ask it
# for numbers of this CPU, or generate.  The others find in job release, and in job plain without kernels, what they are for.
with_kernels='^(check_.*|cli_(bench_codec|shape|image))$'

# Of these, programs in which features change nothing: in the first row, who runs when and what is stored is not the
# kernels' work, and scalar kernels make the programs long; the others meet no kernel.
no_kernels='^check_(serving(_[b-z].*)?|store.*|sched.*|cost|page|table|nearest|prefix|reclaim|search|half|beams'
no_kernels+='|gguf|load|damage|tokenizer|pretokenize|sentencepiece|vocab_pairs|chat.*|conversation|calls|json|http|hub|places'
no_kernels+='|spec.*|shape|fingerprint|long_text|weight_types|device.*)$'

# Programs in which the kernels between AVX2 and VNNI are met.
between='^check_(attn_.*|linear|tiles|forward|golden|quant|levels|entropy|block|codec|rd.*|blocks_cache|cache|leankv|novel|auto|images)$'

# masked_in DIR MASK [CTEST_ARG...]
masked_in() {
    local dir=$1 mask=$2
    shift 2
    fewer_rounds
    PLEAT_CPU_MASK=$mask tests_in "$dir" -R "$with_kernels" -E "$no_kernels" "$@"
}

job_scalar() { configure build && masked_in build 0; }

job_avx2() {
    cpu_has avx2 fma f16c || { skip_job "this CPU has no AVX2"; return; }
    cpu_has avx512f || { skip_job "this CPU has no more than AVX2: it is job release"; return; }
    configure build && masked_in build 1
}

job_avxvnni() {
    cpu_has avx2 fma f16c avx_vnni || { skip_job "this CPU has no AVX-VNNI"; return; }
    configure build && PLEAT_CPU_MASK=9 tests_in build -R '^check_(attn_blocks|attn_decode|cache|forward|golden|leankv|linear)$'
}

job_avx512() {
    cpu_has avx512f avx512bw avx512dq avx512vl || { skip_job "this CPU has no AVX-512"; return; }
    cpu_has avx512_vnni || { skip_job "this CPU has no VNNI: it is job release"; return; }
    configure build && fewer_rounds && PLEAT_CPU_MASK=3 tests_in build -R "$between"
}

# Job scalar runs what meets kernels, and those with ASan keep assert().
plain_tests="$no_kernels|^check_(cache|codec|core|engine|events|forward|kernels|policy|quant)\$"
plain_tests+='|^cli_(usage|help|hf|plan|image|shape|bench_codec)$'

job_plain() {
    configure build/bare -DPLEAT_CUDA=off -DPLEAT_ONEDNN=off -DPLEAT_ZSTD=off -DPLEAT_CURL=off -DPLEAT_LIBEVENT=off -DPLEAT_TLS=off -DPLEAT_SQLITE=off -DPLEAT_HIREDIS=off -DPLEAT_ZMQ=off -DPLEAT_MSGPACK=off -DPLEAT_EDITLINE=off -DPLEAT_X86=OFF -DPLEAT_ASSERTS=ON || return
    export CHECK_QUICK=1
    tests_in build/bare -LE slow -R "$plain_tests" -E '^check_beams$'
}

# The tests of kernels, and no more is built: qemu takes ten times as long.  Prompts and the quantiser have no dot
# product to do without.  The second run's test numbers get a 9 in front, so that totals() counts both.
job_arm() {
    local need status=0
    for need in aarch64-linux-gnu-gcc qemu-aarch64; do
        command -v $need > /dev/null || { skip_job "there is no $need; tools/setup.sh arm installs it"; return; }
    done
    for need in libpcre2-8.so.0 libjansson.so.4; do
        [ -e /usr/lib/aarch64-linux-gnu/$need ] || { skip_job "there is no $need of arm64; tools/setup.sh arm installs it"; return; }
    done
    export CHECK_QUICK=1
    configure build/arm -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake -DPLEAT_ONEDNN=off || return
    tests_in build/arm -R '^check_(attn_blocks|attn_decode|attn_prompt|block|codec|entropy|kernels|quant|linear|forward|core)$' || status=1
    PLEAT_CPU_MASK=16 ctest_in build/arm -R '^check_(attn_decode|linear|forward|core)$' |
        sed -E 's/^([0-9]+: )/9\1/; s/(Test +#)/\19/' || status=1
    return $status
}
