#!/bin/bash
# SPDX-License-Identifier: MIT
#
# serve_tls.sh: `pleat serve` over HTTPS, with certificates that are made here: what curl hears, who is not let in, files
# that are refused, and the end amid streams.
. "$(dirname "$0")/harness.bash"
TINY=$ROOT/tests/golden/llama.gguf # a context of 128
. "$ROOT/tests/cli/serve/server.bash"
needs openssl

# certificate NAME: $scratch/NAME.crt for this machine, signed by itself, and its key
certificate() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
        -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$scratch/$1.key" -out "$scratch/$1.crt" 2>/dev/null
}
certificate ours && certificate other || { echo "openssl makes no certificate"; exit 1; }
openssl ec -in "$scratch/ours.key" -aes256 -passout pass:x -out "$scratch/locked.key" 2>/dev/null
serve() { try serve -m "$TINY" --host 203.0.113.7 "$@"; } # where nothing can listen

serve --tls-cert "$scratch/ours.crt" --tls-key "$scratch/ours.key"
if says "this build has no TLS"; then
    skip "all else: this build has no TLS"
    finish
    exit
fi
check "a certificate and its key" says "cannot listen on 203.0.113.7"
serve --tls-cert "$scratch/ours.crt" --tls-key "$scratch/other.key"
check "another's key is refused" exits 1
check "by both names" says "--tls-key .*other.key: this is not the key of the certificate in .*ours.crt"
openssl genrsa -out "$scratch/rsa.key" 2048 2>/dev/null
serve --tls-cert "$scratch/ours.crt" --tls-key "$scratch/rsa.key"
check "so is one of another kind" says "rsa.key: this is not the key of the certificate"
serve --tls-cert "$scratch/ours.crt" --tls-key "$scratch/locked.key"
check "a key with a pass phrase, which nobody is asked for" says "locked.key: there is no key in it that needs no pass phrase"
serve --tls-cert "$scratch/ours.key" --tls-key "$scratch/ours.key"
check "a file without a certificate" says "--tls-cert .*ours.key: there is no certificate in it"
serve --tls-cert "$scratch/none" --tls-key "$scratch/ours.key"
check "no file" says "none"
fails 2 "--tls-cert and --tls-key stand together" serve -m "$TINY" --tls-cert "$scratch/ours.crt"
fails 2 "--tls-cert and --tls-key stand together" serve -m "$TINY" --tls-key "$scratch/ours.key"

start "$MODEL" -np 4 -t 2 --grace 1 --tls-cert "$scratch/ours.crt" --tls-key "$scratch/ours.key" || exit 1
check "it says so" grep -q " on https://127.0.0.1:" "$scratch/server"
headers=(--cacert "$scratch/ours.crt")
ask /health
check "curl hears it" holds "a['status'] == 'ok'"
check "who does not know the certificate leaves" test "$(curl -s "$url/health"; echo $?)" = 60
check "TLS 1.1 is too old" test "$(curl -s --cacert "$scratch/ours.crt" --tls-max 1.1 "$url/health"; echo $?)" != 0
code=$(curl -s -m 60 -o /dev/null -w '%{http_code}' "http://${url#https://}/health")
check "plain HTTP hears nothing" test "$code" = 000
greedy='"temperature": 0, "max_tokens": 24'
ask /v1/completions "{\"prompt\": \"The sea was calm and\", $greedy}"
check "a completion is that of pleat run" test "$(pick "a['choices'][0]['text']")" = \
    "$("$PLEAT" run -m "$MODEL" -p "The sea was calm and" -n 24 -q)"
whole=$(pick "a['choices'][0]['text']")
ask /v1/completions "{\"prompt\": \"The sea was calm and\", $greedy, \"stream\": true}"
check "and so is a stream" test "$(sed -n 's/^data: {/{/p' "$scratch/out" | python3 -c 'import json, sys
print("".join(json.loads(line)["choices"][0]["text"] for line in sys.stdin))')" = "$whole"
python3 -c 'print("{\"prompt\": [" + "288, " * 900 + "288], \"max_tokens\": 0, \"echo\": true, \"logprobs\": 20}")' >"$scratch/body"
ask /v1/completions "@$scratch/body"
check "a long body and a long answer pass whole" holds "len(a['choices'][0]['logprobs']['tokens']) == 901"
check "many requests pass on one connection" test "$(curl -s -m 600 --cacert "$scratch/ours.crt" -w '%{num_connects} ' -o /dev/null \
    "$url/health" -o /dev/null "$url/version" -o /dev/null "$url/props")" = "1 0 0 "

# Who comes and leaves within a handshake, or speaks something else, takes nothing from others
python3 - "${url##*:}" <<'PY'
import socket, sys
for bytes_ in (b"", b"\x16\x03\x01\x02\x00\x01", b"GET /health HTTP/1.1\r\n\r\n", b"\xff" * 4000):
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    s.sendall(bytes_)
    s.close()
PY
only_we() { [ "$(curl -s --cacert "$scratch/ours.crt" "$url/metrics" | sed -n 's/^pleat_connections.* //p')" = 1 ]; }
check "half a handshake leaves nothing" await only_we

for i in 1 2 3 4 5 6; do
    curl -s -m 600 --cacert "$scratch/ours.crt" "$url/v1/completions" \
        -d '{"prompt": "The sea", "max_tokens": 3000, "ignore_eos": true, "stream": true}' >"$scratch/stream.$i" &
    many[i]=$!
done
four_run() { curl -s --cacert "$scratch/ours.crt" "$url/metrics" | grep -q '^vllm:num_requests_running{.*} 4$'; }
check "four streams run" await four_run
stop
left=0
for i in 1 2 3 4 5 6; do wait "${many[i]}" || left=$((left + 1)); done
check "SIGTERM ends it with 0" exits 0
check "no stream breaks off" test $left = 0
check "and each ends well-formed" test "$(tail -qn 2 "$scratch"/stream.* | grep -c '^data: \[DONE\]')" = 6
finish
