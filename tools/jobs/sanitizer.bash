# SPDX-License-Identifier: MIT
#
# sanitizer.bash: builds that watch memory and threads, and the fuzzers.

# oneDNN and the OpenMP under it keep some memory until the end; what is ours has to be free.
sanitizer_env() {
    # Not detect_stack_use_after_return: gcc 12's stack frames for it are aligned to 32, and AVX-512 code faults on them.
    export ASAN_OPTIONS=strict_string_checks=1:detect_stack_use_after_return=0
    export UBSAN_OPTIONS=print_stacktrace=1
    export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
    export CHECK_QUICK=1
}

# What reads bytes of strangers, or hands out memory and takes it back.
memory_tests='check_(gguf|tokenizer|spec.*|load|arch|bounded|entropy|block|codec|codebooks|core|page|prefix|reclaim)'
memory_tests+='|check_(pretokenize|sentencepiece)'
memory_tests+='|check_(cache|share|ring|mixed|blocks_cache|evict|evict_cache|policy_cache|engine|serving_failures)|replay_.*|teach_files'

job_memory() {
    sanitizer_env
    configure build/asan -DPLEAT_SANITIZE=address && tests_in build/asan -R "^($memory_tests)\$"
}

# The scripts of papers and peers run nothing of ours that is compiled, and that of allocators what is compared with;
# usage has done what help would find; golden logits read what check_arch and check_forward read, in more tokens.
job_sanitize() {
    sanitizer_env
    configure build/asan -DPLEAT_SANITIZE=address && tests_in build/asan -LE slow -E "^($memory_tests|check_golden|cli_(papers.*|peers|allocators|help))\$"
}

# Without oneDNN, whose OpenMP it does not understand.
job_threads() {
    export CHECK_QUICK=1 TSAN_OPTIONS=halt_on_error=0
    configure build/tsan -DPLEAT_SANITIZE=thread -DPLEAT_ONEDNN=off && tools/build.sh build/tsan -t \
        "check_serving check_serving_answer check_serving_store" &&
        tests_in build/tsan -R '^check_(cache|policy_cache|leankv|share|ring|forward|engine|store|store_fetch|store_servers)$' &&
        build/tsan/tests/check_serving shared_prefix && build/tsan/tests/check_serving conversation &&
        build/tsan/tests/check_serving_store hang && build/tsan/tests/check_serving_answer threads &&
        build/tsan/tests/check_serving_answer continuations
}

job_fuzz() {
    command -v clang > /dev/null || { skip_job "there is no clang; tools/setup.sh fuzz installs it"; return; }
    tools/fuzz.sh "${FUZZ_SECONDS:-6}"
}
