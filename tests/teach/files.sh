#!/bin/bash
# SPDX-License-Identifier: MIT
#
# files.sh: what one process stores another decodes.  STORE (store.c) writes codebooks and payloads to files; STORE again
# and TEACH (program.c, which links nothing of the library) read them, each as a process of its own.  All three have the
# same values, bit for bit; and files that do not belong together are refused by both readers.
PLEAT=${STORE:?the program of store.c}
. "$(dirname "$0")/../cli/harness.bash"
: "${TEACH:?the program of program.c}"

# teaches CODEBOOKS PAYLOAD VALUES: like try.
teaches() { capture "$TEACH" "$@"; }

# stored NAME SPEC HEAD_DIM SEED: $scratch/NAME with its files.
stored() {
    mkdir -p "$scratch/$1" "$scratch/$1.read" "$scratch/$1.taught"
    try write "$scratch/$1" "$2" "$3" "$4"
    check "write $2, head_dim $3" exits 0
}

# refused WHAT REGEX: the last reader refused it, and said why.
refused() {
    check "$1: refused" exits 1
    check "$1: says '$2'" says "$2"
}

specs="kvcomp kvcomp:k=0.05,v=0.15,kunit=block,block=16 kvcomp:k=0.01,v=1,kunit=block,block=32
    kvcomp:k=1,v=0.004,kunit=channel,block=128 kvcomp:k=0.25,v=0.15,block=64+pack
    kvcomp:k=0.05,v=0.01,kunit=block,block=256+pack kivi:bits=2 kivi:bits=4"
n=0
for spec in $specs; do
    for d in 48 128; do
        n=$((n + 1))
        all=$scratch/$n
        stored $n "$spec" $d $n
        try read "$all" "$spec" $d "$all.read"
        check "read $spec, head_dim $d" exits 0
        for i in 0 1 2 3; do
            teaches "$all/codebooks" "$all/payload-$i" "$all.taught/values-$i"
            check "taught $spec, head_dim $d" exits 0
            check "$spec, head_dim $d: read as written" cmp "$all/values-$i" "$all.read/values-$i"
            check "$spec, head_dim $d: taught as written" cmp "$all/values-$i" "$all.taught/values-$i"
        done
        check "$spec, head_dim $d: blocks differ" test "$(cat "$all"/values-* | wc -c)" = \
            $((4 * $(wc -c <"$all/values-0"))) -a "$(cksum <"$all/values-0")" != "$(cksum <"$all/values-1")"
    done
done
check "some specs" test $n = 16

# Codebooks of the same format, made of other tokens.
spec=kvcomp:k=0.2,v=0.15
stored a $spec 64 1
stored b $spec 64 2
check "other tokens make other codebooks" test "$(cksum <"$scratch/a/codebooks")" != "$(cksum <"$scratch/b/codebooks")"
cp "$scratch/b/codebooks" "$scratch/a.read/codebooks"
cp "$scratch"/a/payload-* "$scratch/a.read"
try read "$scratch/a.read" $spec 64 "$scratch/a.read"
refused "payloads of other codebooks" "payload-0: "
check "nothing is written" test ! -e "$scratch/a.read/values-0"
teaches "$scratch/b/codebooks" "$scratch/a/payload-0" "$scratch/a.taught/values-0"
refused "taught payloads of other codebooks" "payload-0: a sum that does not hold"

# Codebooks of another format, and what is none.
try read "$scratch/a" $spec 128 "$scratch/a.read"
refused "another head_dim" "codebooks of another spec or head_dim: their head_dim: 64; this codec's: 128"
try read "$scratch/a" kvcomp:k=0.05,v=0.15 64 "$scratch/a.read"
refused "other levels" "their K levels: [0-9]+; this codec's: 22"
try read "$scratch/a" kivi:bits=2 64 "$scratch/a.read"
refused "another coder" "their coder .*: 1; this codec's: 0"
for file in a/payload-0 a/values-0; do
    cp "$scratch/$file" "$scratch/b/codebooks"
    try read "$scratch/b" $spec 64 "$scratch/b.read"
    refused "$file as codebooks" "do not begin with PLCB"
    teaches "$scratch/b/codebooks" "$scratch/b/payload-0" "$scratch/b.taught/values-0"
    refused "$file as codebooks, taught" "no codebooks of version 1"
done
head -c 60 "$scratch/a/codebooks" >"$scratch/b/codebooks"
try read "$scratch/b" $spec 64 "$scratch/b.read"
refused "codebooks that are cut" "damaged or cut"
teaches "$scratch/b/codebooks" "$scratch/b/payload-0" "$scratch/b.taught/values-0"
refused "codebooks that are cut, taught" "a sum that does not hold"

# Levels that take the same bits: a payload of eight levels would have been read as one of six.
stored c kvcomp:k=0.15,v=0.15,block=16+pack 64 3
stored d kvcomp:k=0.2,v=0.2,block=16+pack 64 3
cp "$scratch"/c/payload-* "$scratch/d"
try read "$scratch/d" kvcomp:k=0.2,v=0.2,block=16+pack 64 "$scratch/d.read"
refused "payloads of other levels" "payload-0: "

finish
