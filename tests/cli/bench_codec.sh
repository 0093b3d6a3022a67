#!/bin/bash
# SPDX-License-Identifier: MIT
#
# bench_codec.sh: `pleat bench codec` says what it should, with and without peers, and its bytes add up; `pleat bench
# attn` takes the same specs.  Figures of speed are not judged here.
. "$(dirname "$0")/harness.bash"

# What is wrong is said.
fails 2 "--kv f16: this measures kvcomp and kivi; .pleat bench attn. measures formats" bench codec --kv f16
fails 2 "--kv k8v4: this measures kvcomp" bench codec --kv "kvcomp k8v4"
fails 2 "--kv h2o:.* this measures kvcomp and kivi" bench codec --kv h2o:budget=512
fails 2 "codec: --head-dim 72 must be a multiple of 16 from 16 to 512" bench codec --head-dim 64,72
fails 2 "--reps: '3' is not a whole number between 7 and 10000" bench codec -r 3
fails 2 "--ctx: '255' is not a whole number between 256 and 1048576" bench codec --ctx 255
fails 2 "argument 3, '-t': no such option" bench codec -t 2
fails 2 "argument 3, '--lanes': no such option" bench codec --lanes 64
fails 2 "the nearest is 'pleat bench codec'" bench codecs
try help bench codec
check "help" exits 0
check "usage" prints "^usage: pleat bench codec \[--kv SPEC\]"
try bench -h
check "bench -h lists it" prints "^  bench codec +speed and bytes"
try --version
check "--version tells of the peers" prints "; (no zstd|zstd [0-9.]+ \((Huffman, FSE|literals)\)); (no libcurl|libcurl [0-9.]+); (no libevent|libevent [0-9.]+[a-z-]*); (no libedit|libedit [0-9.]+)$"
describes=$(grep -oE '(no zstd|zstd [0-9.]+ \([^)]*\))' "$scratch/out")

# The forms, on few tokens.  300 tokens are 4 blocks of 64, 18 of 16 and 9 of 32.
specs="kvcomp:k=0.25,v=0.15 kvcomp:k=0.05,v=0.15,kunit=block,block=16 kvcomp:k=0.25,v=0.15+pack kivi:bits=2 kivi:bits=4"
try bench codec --kv "$specs" --ctx 300 --head-dim 48,64 -r 7 -q --format json
check "bench codec" exits 0
check "quiet" test -z "$stderr"
check_json "bench codec --format json"
for key in what params kv head_dim tokens block_tokens threads reps peers gcodes_per_s quantise code encode decode load \
    huffman fse decode_to_huffman decode_to_fse keys values bits entropy bits_to_entropy bytes payloads headers k_units \
    v_units order k_codes v_codes books f16 ratio error_to_bound; do
    check "json has $key" prints "\"$key\":"
done
check "a row for each spec and head dimension" test "$(grep -c '"what": "codec"' "$scratch/out")" = 10
check "its own peers" grep -qF "\"peers\": \"$describes\"" "$scratch/out"
check "blocks of 64" test "$(field block_tokens)/$(field tokens)" = 64/256

# figures KV D: the row's figures as NAME=VALUE, objects' names in front
cat >"$scratch/figures.py" <<'END'
import json, sys

def walk(name, value):
    for key, inner in value.items():
        if isinstance(inner, dict):
            walk(name + key + "_", inner)
        else:
            print(f"{name}{key}={json.dumps(inner)}")

rows = json.load(open(sys.argv[1]))["rows"]
for row in rows:
    if row["params"]["kv"] == sys.argv[2] and row["params"]["head_dim"] == int(sys.argv[3]):
        walk("", row)
END
check_row() { # KV D T N CODER
    eval "$(python3 "$scratch/figures.py" "$scratch/out" "$1" "$2" | tr -d ' ')"
    local values=$(($2 * $3 * $4)) kind=$5
    check "$1 d $2: whole blocks" test "$params_tokens" = $(($3 * $4))
    check "$1 d $2: f16 takes 4 bytes a value of each kind" test "$bytes_f16" = $((4 * values))
    check "$1 d $2: payloads are their parts" test "$bytes_payloads" = \
        $((bytes_headers + bytes_k_units + bytes_v_units + bytes_order + bytes_k_codes + bytes_v_codes))
    check "$1 d $2: the ratio is of all bytes" calc "($ratio - $bytes_f16 / ($bytes_payloads + $bytes_books)) ^ 2 < 1e-8"
    check "$1 d $2: bits are of the codes" calc "($keys_bits - 8 * $bytes_k_codes / $values) ^ 2 < 1e-8 && \
        ($values_bits - 8 * $bytes_v_codes / $values) ^ 2 < 1e-8"
    check "$1 d $2: the error bound" calc "$error_to_bound > 0.9 && $error_to_bound < 1.01"
    check "$1 d $2: speeds in order" calc "$gcodes_per_s_decode_min > 0 && \
        $gcodes_per_s_decode_min <= $gcodes_per_s_decode_median && \
        $gcodes_per_s_decode_median <= $gcodes_per_s_decode_max"
    case $kind in
        huffman) check "$1 d $2: has books, near the entropy" calc "$bytes_books > 0 && $bytes_order == 0 && \
            $keys_bits_to_entropy > 0.99 && $keys_bits_to_entropy < 1.2 && $values_bits_to_entropy < 1.2" ;;
        pack) check "$1 d $2: has an order, no books" calc "$bytes_books == 0 && $bytes_order == $3 * $4" ;;
        raw) check "$1 d $2: has neither" calc "$bytes_books == 0 && $bytes_order == 0" ;;
    esac
    check "$1 d $2: ratios to peers" test \
        "$([ "$decode_to_huffman" = null ] && echo without || echo with)/$([ "$decode_to_fse" = null ] && echo without || echo with)" = "$peers"
    [ "$decode_to_huffman" = null ] || check "$1 d $2: Huffman's bits are no fewer than the entropy" \
        calc "$keys_huffman_bits > 0.9 * $keys_entropy && $values_huffman_bits > 0.9 * $values_entropy"
}
case $describes in
    *FSE*) peers=with/with ;;
    *literals*) peers=with/without ;;
    *) peers=without/without ;;
esac
if command -v python3 >/dev/null; then
    for d in 48 64; do
        check_row kvcomp:k=0.25,v=0.15 $d 64 4 huffman
        check_row kvcomp:k=0.05,v=0.15,kunit=block,block=16 $d 16 18 huffman
        check_row kvcomp:k=0.25,v=0.15+pack $d 64 4 pack
        check_row kivi:bits=2 $d 32 9 raw
        check_row kivi:bits=4 $d 32 9 raw
    done
else
    skip "no python3: figures"
fi

# The table, and what the environment says.
export PLEAT_THREADS=4 PLEAT_CTX=256
try bench codec --kv kivi:bits=2 --head-dim 16 -r 7 --format csv
unset PLEAT_THREADS PLEAT_CTX
check "csv" exits 0
check "csv has titles" prints "^kv,d,tokens,quantise G/s,code G/s,decode G/s min,decode G/s,.*,x Huffman,K bits,"
check "csv has the row" prints "^kivi:bits=2,16,256,"
try bench codec --kv kvcomp --head-dim 32 --ctx 256 -r 7 -o "$scratch/table" --format md
check "a file" exits 0
check "the file has the table" grep -q "^| kvcomp" "$scratch/table"

# Attention over caches of blocks.  128 tokens of 256 stay in the buffer.
try bench attn --kv "f16 kvcomp:k=0.25 kvcomp:k=0.25+pack kivi:bits=2" --ctx 256 --heads 4 --kv-heads 2 --head-dim 32 \
    -r 7 -q --format csv
check "bench attn takes kvcomp and kivi" exits 0
bytes_of() { awk -F, -v row="$1" 'NR == row + 1 { n = NF; print $(n - 7) }' "$scratch/out"; }
check "four rows" test "$(wc -l <"$scratch/out")" = 5
check "attention is right in all" calc "$(awk -F, 'NR > 1 { printf "%s <= 3e-4 && ", $NF }' "$scratch/out") 1"
check "f16's bytes" test "$(bytes_of 1)" = $((256 * 2 * 32 * 4))
for row in 2 3 4; do
    check "row $row: bytes of blocks and buffer" calc "$(bytes_of $row) > 128 * 2 * 32 * 4 && $(bytes_of $row) < 2 * $(bytes_of 1)"
done
check "no model of blocks" test "$(awk -F, 'NR > 2 { print $(NF - 2) $(NF - 1) }' "$scratch/out" | sort -u)" = "--"
fails 2 "--kv leankv.*: this measures formats, as f16 or k8v4, kvcomp, kivi and rd" bench attn --kv leankv

finish
