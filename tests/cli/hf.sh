#!/bin/bash
# SPDX-License-Identifier: MIT
#
# hf.sh: -hf USER/REPO[:QUANT] against a hub on this machine (hub/server.py): the file that is meant arrives whole, in the
# folder that the hub's own tools share, whatever breaks, lies or is missing; the token is shown to the hub alone.
. "$(dirname "$0")/harness.bash"

for name in $(env | sed -n 's/^\(HF_[A-Z_]*\|HUGGING[A-Z_]*\|XDG_CACHE_HOME\|SSL_CERT_FILE\)=.*/\1/p'); do unset "$name"; done
export HOME=$scratch/home no_proxy=127.0.0.1 NO_PROXY=127.0.0.1 HF_HUB_CACHE=$scratch/cache
commit=cccccccccccccccccccccccccccccccccccccccc
one=$HF_HUB_CACHE/models--us--one
only=$one/snapshots/$commit/only.gguf

# what is wrong before anything is asked
mkdir -p "$HOME"
export HF_ENDPOINT=http://127.0.0.1:1
for wrong in one us/ /one us/one/two us/.. ../us/one us/o--ne us/-one "us/o ne" us/one: us/one:a/b http://x/y; do
    fails 2 "^pleat inspect: -hf '.*': " inspect -hf "$wrong"
done
fails 2 "-hf and -m exclude each other: give one model" inspect -hf us/one -m "$MODEL"
fails 2 "exclude each other" inspect "$MODEL" -hf us/one
fails 2 "exclude each other" plan --arch llama3-8b -hf us/one
fails 2 "exclude each other" bench serve -hf us/one --arch llama3-8b --simulate --prices 1,1,1,1 --synthetic chat --pool-bytes 1MiB
fails 2 "-hff needs --hf-repo" inspect -hff x.gguf
fails 2 "no model: give -m FILE, a GGUF file, or -hf USER/REPO" run -p x
HF_HUB_OFFLINE=1 fails 1 "us/one: HF_HUB_OFFLINE is set; and in the cache: nothing of it is in $scratch/cache" inspect -hf us/one
for command in run eval calibrate "bench run" "bench serve" inspect plan; do
    # shellcheck disable=SC2086
    try help $command
    check "$command takes -hf" prints '^  -hf, --hf-repo REPO '
done

if "$PLEAT" --version | grep -q "no libcurl"; then
    fails 1 "us/one: this build has no libcurl .*; and in the cache: nothing of it" inspect -hf us/one
    skip "downloads: this build has no libcurl"
    finish
    exit
fi
needs python3

# a well-formed file of a little more than 4 MiB
gguf=$scratch/made.gguf
python3 - "$gguf" <<'END'
import random, struct, sys
def text(s): return struct.pack("<Q", len(s)) + s.encode()
head = struct.pack("<4sIQQ", b"GGUF", 3, 1, 1) + text("general.architecture") + struct.pack("<I", 8) + text("made")
head += text("weights") + struct.pack("<IQIQ", 1, 1 << 20, 0, 0)
head += bytes(-len(head) % 32)
open(sys.argv[1], "wb").write(head + random.Random(7).randbytes(4 << 20))
END
sha=$(sha256sum "$gguf" | cut -d' ' -f1)
bytes=$(stat -c %s "$gguf")

# ---- the hub ---------------------------------------------------------------------------------------------------------

hub=$scratch/hub
mkdir -p "$hub/files/us/one" "$hub/files/us/many/sub" "$hub/files/us/split" "$hub/files/us/none" "$hub/files/us/two" "$hub/files/us/real"
# holds REPO FILE...: files that are this one
holds() { for file in "${@:2}"; do ln -s "$gguf" "$hub/files/us/$1/$file"; done; }
holds one only.gguf
holds many a-Q8_0.gguf a-Q4_K_M.gguf mmproj-a-f16.gguf a.imatrix.gguf sub/b-UD-q5_k_m.gguf
holds split big-Q4_K_M-00001-of-00002.gguf big-Q4_K_M-00002-of-00002.gguf
holds two a.gguf b.gguf
ln -s "$MODEL" "$hub/files/us/real/real.gguf"
echo text | tee "$hub/files/us/one/README.md" >"$hub/files/us/none/README.md"
if command -v openssl >/dev/null; then
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 \
        -keyout "$scratch/key" -out "$scratch/crt" 2>/dev/null && cat "$scratch/key" "$scratch/crt" >"$hub/certificate.pem"
fi
echo '{}' >"$hub/faults"
python3 "$ROOT/tests/cli/hub/server.py" "$hub" >"$scratch/server" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null; rm -rf "$scratch"' EXIT
for ((i = 0; i < 100; i++)); do
    [ -e "$hub/port" ] && break
    sleep 0.1
done
if ! read -r port tls <"$hub/port"; then
    skip "downloads: the server of the test does not start: $(tail -n 1 "$scratch/server")"
    finish
    exit
fi
export HF_ENDPOINT=http://127.0.0.1:$port

# faults JSON: what goes wrong from now on; the requests are counted anew
faults() {
    echo "$1" >"$hub/faults"
    : >"$hub/requests"
}
# fresh [JSON]: the same with an empty cache
fresh() {
    rm -rf "$HF_HUB_CACHE"
    faults "${1:-{\}}"
}
asked() { grep -cE -- "$1" "$hub/requests"; }
is_whole() { cmp -s "$one/blobs/$sha" "$gguf" && cmp -s "$only" "$gguf"; }
has_no_rest() { [ -z "$(find "$HF_HUB_CACHE" -name '*.incomplete*' -o -name '*.tmp')" ]; }
size_of() { stat -c %s "$1" 2>/dev/null || echo 0; }
lacks() { ! grep -q -- "$1" <<<"$stderr"; }
kept() { size_of "$one/blobs/$sha.incomplete"; }
check_arrived() {
    check "$1: exits with 0" exits 0
    check "$1: the file is whole" is_whole
    check "$1: nothing is left over" has_no_rest
}

# ---- what a user sees ------------------------------------------------------------------------------------------------

fresh
try inspect -hf us/one
check_arrived "a first download"
check "it says what it does" says "note: downloading only.gguf, 4.00 MiB$"
check "it inspects the file" prints "^file +$only$"
check "its name is a link to its bytes" test "$(readlink "$only")" = "../../blobs/$sha"
check "main is known" test "$(<"$one/refs/main")" = $commit
check "the lock is where the hub's tools have theirs" test -e "$HF_HUB_CACHE/.locks/models--us--one/$sha.lock"
check "three questions and the file" test "$(wc -l <"$hub/requests")" = 4
faults '{}'
try inspect -hf us/one
check_arrived "a second time"
check "nothing is downloaded" test "$(asked 'resolve|store')" = 0
check "and nothing said" lacks note

HF_HUB_OFFLINE=1 try inspect -hf us/one -q
check_arrived "offline"
faults '{}'
for word in 1 ON yes True; do HF_HUB_OFFLINE=$word try inspect -hf us/one; done
check "offline nobody is asked" test ! -s "$hub/requests"
check "and nothing said" lacks note
HF_ENDPOINT=https://me:word@127.0.0.1:1 fails 1 "HF_ENDPOINT: a user's name stands in it" inspect -hf us/one
check "a password is not shown" lacks "word"
HF_ENDPOINT=http://127.0.0.1:1 try inspect -hf us/one
check_arrived "without a network"
check "it says so" says "note: http://127.0.0.1:1: .*; taking $only, which is in the cache"
faults '{"status": {"api": 503}}'
try inspect -hf us/one
check_arrived "a hub that is not well"
check "it is asked once" test "$(asked api)" = 1
faults '{"status": {"api": 404}}'
fails 1 "us/one: http://127.0.0.1:$port has no such model" inspect -hf us/one
HF_HUB_OFFLINE=1 fails 1 "us/two: HF_HUB_OFFLINE is set; and in the cache: nothing" inspect -hf us/two
HF_HUB_OFFLINE=1 fails 1 "us/one: .*; and in the cache: no file is of Q4_0; there are: only.gguf" inspect -hf us/one:Q4_0

fresh
try inspect -hf us/one -q
check_arrived "-q"
check "-q is quiet" test -z "$stderr"
try run -hf us/real -p "The old house" -n 8 -q
text=$stdout
try run -m "$MODEL" -p "The old house" -n 8 -q
check "run has the model" same "$text" "$stdout"
PLEAT_HF_REPO=us/real try plan --ctx 1024
check "plan, by the environment" exits 0
check "plan names the file" prints "real.gguf"
PLEAT_MODEL=/no/file try bench run -hf us/real -p 8 -n 0 -r 1 --kv f16 -q
check "bench run; the command line wins" exits 0
echo "Once there was a house by the sea, and nobody lived in it." >"$scratch/text"
fails 1 "tokens are too few to measure" plan -hf us/real --kv kvcomp --text "$scratch/text"
fails 1 "it is the same file as $only, which is read" inspect -hf us/one -o "$only"
check "the model is not overwritten" is_whole

# ---- which file ------------------------------------------------------------------------------------------------------

many=$HF_HUB_CACHE/models--us--many/snapshots/$commit
fresh
try inspect -hf us/many
check "Q4_K_M is the default" prints "^file +$many/a-Q4_K_M.gguf$"
try inspect -hf us/many:q8_0
check "a type in small letters" prints "^file +$many/a-Q8_0.gguf$"
check "bytes that are there are not downloaded" test "$(asked '^store')" = 1
try inspect -hf us/many:Q5_K_M
check "a file in a folder" prints "^file +$many/sub/b-UD-q5_k_m.gguf$"
check "its link leads up" test "$(readlink "$many/sub/b-UD-q5_k_m.gguf")" = "../../../blobs/$sha"
fails 1 "us/many: no file is of Q4_K; there are: a-Q4_K_M.gguf, a-Q8_0.gguf, sub/b-UD-q5_k_m.gguf$" inspect -hf us/many:Q4_K
try inspect -hf us/many --hf-file a-Q8_0.gguf
check "--hf-file" prints "^file +$many/a-Q8_0.gguf$"
fails 1 "there is no file 'b.gguf' in it; there are: a-Q4" inspect -hf us/many -hff b.gguf
HF_HUB_OFFLINE=1 try inspect -hf us/many:q8_0
check "the same offline" prints "^file +$many/a-Q8_0.gguf$"
fails 1 "us/two: name one, as USER/REPO:QUANT or with --hf-file; there are: a.gguf, b.gguf$" inspect -hf us/two
fails 1 "us/none: there is no GGUF model in it" inspect -hf us/none
fails 1 "us/split: big-Q4_K_M-00001-of-00002.gguf is one of 2 parts, and models in parts are not supported" inspect -hf us/split
fails 1 "us/lost: http://127.0.0.1:$port has no such model" inspect -hf us/lost
fresh '{"pages": 1}'
try inspect -hf us/many:q8_0
check "a list in several parts" prints "^file +$many/a-Q8_0.gguf$"

# what the hub's own tools have left
fresh
mkdir -p "$one/blobs" "$one/snapshots/$commit" "$one/refs"
cp "$gguf" "$one/blobs/$sha"
try inspect -hf us/one
check_arrived "bytes without a name"
check "nothing is downloaded" test "$(asked '^store')" = 0
rm -r "$one/snapshots"
mkdir -p "$one/snapshots/$commit"
ln -s "../../blobs/$sha" "$only"
HF_HUB_OFFLINE=1 try inspect -hf us/one
check_arrived "a cache of others"
unset HF_HUB_CACHE
for where in HF_HOME=$scratch/home/hf XDG_CACHE_HOME=$scratch/home/xdg HUGGINGFACE_HUB_CACHE=$scratch/home/old HF_HUB_CACHE=; do
    env "$where" "$PLEAT" inspect -hf us/one >"$scratch/out" 2>&1
    stdout=$(<"$scratch/out")
    case $where in
        HF_HOME=*) path=$scratch/home/hf/hub ;;
        XDG*) path=$scratch/home/xdg/huggingface/hub ;;
        HUGGING*) path=$scratch/home/old ;;
        *) path=$scratch/home/.cache/huggingface/hub ;;
    esac
    check "the cache by ${where%%=*}" prints "^file +$path/models--us--one/snapshots/$commit/only.gguf$"
done
export HF_HUB_CACHE=$scratch/cache

# ---- the token -------------------------------------------------------------------------------------------------------

fresh
HF_TOKEN=" secret1 " try inspect -hf us/one
check_arrived "with a token"
check "the hub sees it" test "$(asked '^hub .* Bearer_secret1$')" = 3
check "the store does not" test "$(asked '^store .* -$')" = 1
check "nobody else does" test "$(asked secret1)" = 3
fresh '{"direct": true}'
echo secret2 >"$scratch/home/token"
HF_HOME=$scratch/home try inspect -hf us/one
check_arrived "a token in a file"
check "the hub's own files are asked for with it" test "$(asked '^hub .*resolve.* Bearer_secret2$')" = 1
fresh
HF_TOKEN=$'x\r\nEvil: 1' try inspect -hf us/one
check_arrived "a token of two lines"
check "is none" test "$(asked Bearer)" = 0
fresh '{"status": {"api": 401}, "message": "the model is gated"}'
fails 1 "us/one: there is no such model, or it wants a token, in HF_TOKEN: the model is gated .status 401" inspect -hf us/one
HF_TOKEN=x fails 1 "us/one: .* your token may not read it: the model is gated" inspect -hf us/one
check "a refusal is final" test "$(asked api)" = 2

# ---- what breaks -----------------------------------------------------------------------------------------------------

fresh '{"status": {"api": 429}, "times": 3, "retry": 0}'
try inspect -hf us/one
check_arrived "a hub that is busy"
check "it is asked again" test "$(asked revision)" = 4
check "which is said" says "status 429; trying again"
fresh '{"status": {"api": 500}, "retry": 0}'
fails 1 "us/one: http://127.0.0.1:$port: the server answers with status 500; and in the cache: nothing" inspect -hf us/one
check "five times" test "$(asked revision)" = 5
fresh '{"status": {"only.gguf": 503}, "times": 3, "retry": 0}'
try inspect -hf us/one
check_arrived "a store that is busy"
fresh '{"status": {"only.gguf": 404}}'
fails 1 "only.gguf: the server answers with status 404" inspect -hf us/one
fresh '{"cut": 1000000, "times": 3}'
try inspect -hf us/one
check_arrived "a store that breaks off"
check "which is said" says "note: only.gguf: .*; going on"
check "it goes on where it was" test "$(asked '^store .* bytes=[1-9][0-9]*- "[0-9a-f]{16}"')" = 3
fresh
faults '{"cut": 0, "retry": 0}'
fails 1 "only.gguf: .*; 0 B of 4.00 MiB are kept, and the same command goes on" inspect -hf us/one
fresh '{"chunked": true, "extra": -10}'
fails 1 "only.gguf: the server ended early; 4.00 MiB of 4.00 MiB are kept" inspect -hf us/one
check "all but ten bytes are" test "$(kept)" = $((bytes - 10))
faults '{}'
try inspect -hf us/one
check_arrived "the last ten bytes"
check "it goes on" test "$(asked "^store .* bytes=$((bytes - 10))- \"")" = 1
check "which is said" says "4.00 MiB, of which are here 4.00 MiB$"
fresh '{"stall": 1000000, "times": 1}'
HF_HUB_DOWNLOAD_TIMEOUT=1 try inspect -hf us/one
check_arrived "a store that says nothing more"
check "it goes on" test "$(asked '^store .* bytes=[1-9]')" = 1

# Ctrl-C
fresh '{"slow": 0.05}'
"$PLEAT" inspect -hf us/one >"$scratch/out" 2>"$scratch/err" </dev/null &
pid=$!
for ((i = 0; i < 100 && $(kept) < 300000; i++)); do sleep 0.05; done
kill -INT $pid
wait $pid
code=$? stdout=$(<"$scratch/out") stderr=$(<"$scratch/err")
check "Ctrl-C: exits with 130" exits 130
check "Ctrl-C: says what is kept" says "interrupted: .* of 4.00 MiB are kept; the same command goes on"
check "Ctrl-C: it is" calc "$(kept) >= 300000"
first=$(kept)
faults '{}'
try inspect -hf us/one
check_arrived "after Ctrl-C"
check "it goes on" test "$(asked "^store .* bytes=$first- \"[0-9a-f]{16}\"")" = 1

# left BYTES [ETAG]: the first bytes are there, from an earlier time
left() {
    fresh "${3:-{\}}"
    mkdir -p "$one/blobs"
    head -c "$1" "$gguf" >"$one/blobs/$sha.incomplete"
    [ -z "${2:-}" ] || echo -n "$2" >"$one/blobs/$sha.incomplete.etag"
}
left 2000000
try inspect -hf us/one
check_arrived "bytes of another tool"
check "are gone on from" test "$(asked '^store .* bytes=2000000- - ')" = 1
left 2000000 '"other"'
try inspect -hf us/one
check_arrived "a file that changed"
check "If-Range is sent" test "$(asked '^store .* bytes=2000000- "other" ')" = 1
left 2000000 "" '{"no_range": true}'
try inspect -hf us/one
check_arrived "a store that knows no parts"
left 2000000 "" '{"bad_range": true}'
try inspect -hf us/one
check_arrived "a store that sends another part"
check "it begins again" test "$(asked '^store .* - - -$')" = 1
left 2000000
printf wrong | dd of="$one/blobs/$sha.incomplete" conv=notrunc 2>/dev/null
try inspect -hf us/one
check_arrived "parts that do not fit"
check "which is said" says "its parts do not fit together; it is downloaded anew"
left "$bytes"
try inspect -hf us/one
check_arrived "all bytes, but not checked"
check "none is downloaded" test "$(asked '^store')" = 0
left "$bytes"
echo more >>"$one/blobs/$sha.incomplete"
try inspect -hf us/one
check_arrived "more bytes than there are"

# no room
fresh
(
    trap '' XFSZ
    ulimit -f 2048
    exec "$PLEAT" inspect -hf us/one
) >"$scratch/out" 2>"$scratch/err" </dev/null
code=$? stdout=$(<"$scratch/out") stderr=$(<"$scratch/err")
check "a full disk: exits with 1" exits 1
check "a full disk: says so" says "cannot write .*/$sha.incomplete: .*; 2.00 MiB of it are kept"
check "a full disk: what came is kept" test "$(kept)" = 2097152
try inspect -hf us/one
check_arrived "a disk that has room again"
check "it goes on" test "$(asked '^store .* bytes=2097152-')" = 1
echo >"$scratch/file"
HF_HUB_CACHE=$scratch/file/cache fails 1 "cannot make the folder $scratch/file" inspect -hf us/one

# two at once
fresh '{"slow": 0.02}'
"$PLEAT" inspect -hf us/one >"$scratch/other" 2>&1 </dev/null &
pid=$!
for ((i = 0; i < 100 && $(kept) < 100000; i++)); do sleep 0.05; done
try inspect -hf us/one
check_arrived "two at once: the second"
check "it waits" says "note: only.gguf: another process downloads it; waiting"
wait $pid
code=$?
check_arrived "two at once: the first"
check "one downloads" test "$(asked '^store')" = 1

# ---- what lies -------------------------------------------------------------------------------------------------------

none_is_there() { [ ! -e "$one/blobs/$sha" ] && [ ! -e "$only" ]; }
# lies JSON REGEX: the download is refused, and no file has its name
lies() {
    fresh "$1"
    fails 1 "$2" inspect -hf us/one
    check "no file from $1" none_is_there
}
zeros=0000000000000000000000000000000000000000000000000000000000000000
lies '{"sha256": {"only.gguf": "'$zeros'"}}' "only.gguf: its SHA-256 is $sha, and the hub lists $zeros; what came is deleted"
check "it is" test -z "$(find "$one/blobs" -type f)"
lies '{"sha256": {"only.gguf": "../../x"}}' "lists no SHA-256 for only.gguf, but '../../x'"
lies '{"size": {"only.gguf": 1000}}' "only.gguf: the server has $bytes bytes where the hub lists 1000"
lies '{"size": {"only.gguf": 1000}, "chunked": true}' "sends more than the 1000 bytes that the hub lists"
lies '{"extra": 7}' "the server has $((bytes + 7)) bytes where the hub lists $bytes"
lies '{"extra": 7, "chunked": true}' "sends more than the $bytes bytes"
lies '{"size": {"only.gguf": 100000000000000}}' "only.gguf: 90.9 TiB are missing, and the disk of .* has room for"
for size in -1 1e3 '"x"' null 4611686018427387904 99999999999999999999; do
    lies '{"size": {"only.gguf": '$size'}}' "lists no size for only.gguf|list of files is no list"
done
for path in ../only.gguf /tmp/only.gguf a//only.gguf ./only.gguf a/../only.gguf 'a\\only.gguf' 'a\u0007b.gguf' \
    1/2/3/4/5/6/7/8/9/only.gguf "$(printf 'x%.0s' {1..300}).gguf"; do
    lies '{"rename": {"only.gguf": "'"$path"'"}}' "us/one: the hub lists a file '.*', whose name leads elsewhere or is too long"
done
for wrong in ../../../x "" main $zeros; do
    lies '{"commit": "'$wrong'"}' "us/one: the hub's answer names no commit"
done
for wrong in '' '[' '{}' 'null' '"x"' '[[[[[[' '\udcff'; do
    lies '{"body": {"tree": "'"${wrong//\"/\\\"}"'"}}' "us/one: the hub's list of files is no list"
    lies '{"body": {"revision": "'"${wrong//\"/\\\"}"'"}}' "us/one: the hub's answer names no commit"
done
for wrong in '[]' '[1, null, {}]' '[{"type": "file"}]' '[{"path": 1, "type": "file"}]' '[{"path": "a.gguf", "type": "directory"}]'; do
    lies '{"body": {"tree": "'"${wrong//\"/\\\"}"'"}}' "us/one: there is no GGUF model in it"
done
lies '{"redirect": "file://'"$MODEL"'"}' "only.gguf: .*[Pp]rotocol"
lies '{"redirect": "/us/one/resolve/'$commit'/only.gguf"}' "only.gguf: the server redirects without end"
check "after ten times" test "$(asked resolve)" = 10
if [ "$tls" != 0 ]; then
    fresh
    HF_TOKEN=secret3 HF_ENDPOINT=https://127.0.0.1:$tls fails 1 "us/one: https.*certificate" inspect -hf us/one
    check "a certificate of nobody sees no request" test ! -s "$hub/requests"
    fresh '{"direct": true}'
    SSL_CERT_FILE=$scratch/crt HF_TOKEN=secret4 HF_ENDPOINT=https://127.0.0.1:$tls try inspect -hf us/one
    check_arrived "https with its authority's certificate"
    check "the token goes there" test "$(asked '^hub .* Bearer_secret4$')" = 3
    SSL_CERT_FILE=$scratch/crt HF_ENDPOINT=https://localhost:$tls fails 1 "https://localhost:.*: SSL.* host name" inspect -hf us/two
    fresh
    SSL_CERT_FILE=$scratch/crt HF_TOKEN=secret5 HF_ENDPOINT=https://127.0.0.1:$tls \
        fails 1 "only.gguf: the server redirects from https to what is not" inspect -hf us/one
    check "and nobody is asked in the open" test "$(asked '^store')" = 0
else
    skip "certificates: no openssl to make one"
fi

# ---- a terminal ------------------------------------------------------------------------------------------------------

if has_terminal "progress of a download"; then
    fresh '{"slow": 0.05}'
    script -qec "stty cols 100; '$PLEAT' inspect -hf us/one" /dev/null </dev/null | tr '\r' '\n' >"$scratch/out"
    check "a line is drawn" grep -qE '^only.gguf, MB \[=.* [0-9]+/4  [0-9]+ s left' "$scratch/out"
    code=0
    check_arrived "on a terminal"
fi
finish
