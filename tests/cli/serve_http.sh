#!/bin/bash
# SPDX-License-Identifier: MIT
#
# serve_http.sh: `pleat serve` from outside: what clients of OpenAI's API send and hear, refusals, streams, strangers'
# bytes, clients that leave, a full queue, keys, and the end.  curl asks; tests/cli/serve/stranger.py sends by hand;
# tests/cli/serve/client.py is the `openai` package's client, where Python has it.
#
# Nothing here counts on time: what has to have happened is awaited until the server says so, and the limits of clients
# are there for a server that hangs.  A start costs seconds under a sanitizer, so checks stand together by server.
. "$(dirname "$0")/harness.bash"
TINY=$ROOT/tests/golden/llama.gguf # a context of 128

if "$PLEAT" --version | grep -q "no libevent"; then
    fails 1 "this build has no libevent .the build option PLEAT_LIBEVENT." serve -m "$MODEL"
    skip "all else: this build has no libevent"
    finish
    exit
fi
. "$ROOT/tests/cli/serve/server.bash"

start "$MODEL" -np 4 --queue 8 -t 2 --grace 1 || exit 1
said=$("$PLEAT" run -m "$MODEL" -p "The sea was calm and" -n 24 -q)

# Questions
ask /health
check "health" holds "a['status'] == 'ok'"
ask /version
check "version" holds "a['version'] == '$("$PLEAT" --version | sed -n '1s/pleat //p')'"
ask /v1/models
check "the model has its name" holds "a['data'][0]['id'] == 'small' and a['data'][0]['max_model_len'] == 4096"
ask /tokenizer_info
check "tokenizer_info" holds "a['vocab_size'] > 1000 and a['eos_token'] is not None"

ask /props
check "props" holds "a['total_slots'] == 4 and a['default_generation_settings']['n_ctx'] == 4096 and a['model_alias'] == 'small'"
ask /slots
check "four places are free" holds "[(t['id'], t['is_processing']) for t in a] == [(i, False) for i in range(4)]"
ask /openapi.json
check "openapi.json has every path and field" python3 "$ROOT/tests/cli/serve/openapi.py" "$scratch/out" "$ROOT/cli/serve"
ask /
check "a page" test "$code" = 200 -a "$(head -c 15 "$scratch/out")" = "<!doctype html>"
check "that needs nobody else" test -z "$(grep -o 'https\?://[^"]*' "$scratch/out" | grep -v '^http://www.w3.org/2000/svg$')"

check "that nobody frames" grep -q "frame-ancestors 'none'" <(curl -si -m 60 "$url/")
ask /v1/completions "{\"prompt\": [$(seq -s, 300 3300)], \"max_tokens\": 4, \"time_limit_ms\": 1}"
check "timings count what was computed" holds "a['timings']['prompt_n'] < 3001 == a['usage']['prompt_tokens']"

# Text to tokens and back
ask /tokenize '{"prompt": "The sea was calm and"}'
check "tokenize" holds "a['count'] == len(a['tokens']) == 6"
ids=$(pick "a['tokens'][1:]")
ask /detokenize "{\"tokens\": $ids}"
check "detokenize" holds "a['prompt'] == 'The sea was calm and' == a['content']"
ask /tokenize '{"messages": [{"role": "user", "content": "Hi"}]}'
check "tokenize takes messages" holds "a['count'] > 4"

# The same tokens as pleat run
greedy='"temperature": 0, "max_tokens": 24'
ask /v1/completions "{\"model\": \"small\", \"prompt\": \"The sea was calm and\", $greedy}"
check "a completion" test "$code" = 200
check "has the text of pleat run" test "$(pick "a['choices'][0]['text']")" = "$said"
check "and its usage" holds "a['usage']['prompt_tokens'] == 6 and a['usage']['completion_tokens'] == 24"
check "and its bytes, those of f16 a multiple of 29 tokens" holds "0 < a['usage']['kv_bytes'] and
    0 < a['usage']['kv_bytes_f16'] and a['usage']['kv_bytes_f16'] % 29 == 0"
check "and its times" holds "a['timings']['prompt_n'] == 6 and a['timings']['predicted_n'] == 24 and
    all(abs(a['timings'][k + '_per_second'] * a['timings'][k + '_ms'] / 1000 - a['timings'][k + '_n']) < 1e-6
        for k in ('prompt', 'predicted'))"
check "and its reason" holds "a['choices'][0]['finish_reason'] == 'length'"
for i in 1 2 3 4 5 6 7 8; do # in company, of which half streams
    stream=false
    [ $((i % 2)) = 0 ] || stream=true
    curl -s -m 600 "$url/v1/completions" -d "{\"prompt\": \"The sea was calm and\", $greedy, \"stream\": $stream}" \
        >"$scratch/many.$i" &
    many[i]=$!
done
wait "${many[@]}"
check "eight at once have it too" test "$(python3 - "$scratch" "$said" <<'PY'
import json, sys
n = 0
for i in range(1, 9):
    text = open(f"{sys.argv[1]}/many.{i}").read()
    if i % 2:
        events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
        assert events[-1] == "[DONE]", events[-1]
        assert ["timings" in json.loads(e) for e in events[:-1]].index(True) == len(events) - 2
        text = "".join(json.loads(e)["choices"][0]["text"] for e in events[:-1])
    else:
        text = json.loads(text)["choices"][0]["text"]
    n += text.rstrip("\n") == sys.argv[2].rstrip("\n")
print(n)
PY
)" = 8

# JSON objects, of a model that knows nothing of them: what is likely to close them is made likelier
ask /tokenize '{"content": "\"}", "add_special_tokens": false}'
closes=$(pick "', '.join(f'\"{t}\": 9' for t in a['tokens'])")
ask /v1/chat/completions "{\"messages\": [{\"role\": \"user\", \"content\": \"The sea\"}], \"n\": 4, \"seed\": 3, \"max_tokens\": 200,
    \"response_format\": {\"type\": \"json_object\"}, \"logit_bias\": {$closes}}"
check "four answers are JSON" holds "[type(__import__('json').loads(c['message']['content'])).__name__ for c in a['choices']
    if c['finish_reason'] == 'stop'].count('dict') == [c['finish_reason'] for c in a['choices']].count('stop') > 0"
ask /v1/completions '{"prompt": "The sea", "max_tokens": 5, "response_format": {"type": "json_object"}, "temperature": 0}'
check "and what is cut off is the beginning of some" holds "a['choices'][0]['text'].lstrip()[:1] in ('{', '') and
    a['choices'][0]['finish_reason'] in ('length', 'stop')"

# What lm-evaluation-harness asks for: token ids, echo, logprobs; prompt + 1 entries, the likeliest in the top
ask /v1/completions '{"prompt": [[458, 1875, 330, 3061], [288, 5, 6]], "temperature": 0, "max_tokens": 1, "logprobs": 1,
    "echo": true, "seed": 1234}'
check "echo of token ids" test "$code" = 200
check "prompt + 1 entries" holds "[len(c['logprobs']['token_logprobs']) for c in a['choices']] == [5, 4]"
check "none for the first" holds "all(c['logprobs']['token_logprobs'][0] is None for c in a['choices'])"
check "the likeliest is in the top, by the same float" holds "all(
    lp <= max(top.values()) and lp in top.values()
    for c in a['choices'] for lp, top in list(zip(c['logprobs']['token_logprobs'], c['logprobs']['top_logprobs']))[1:])"
check "greedy took the likeliest" holds "all(
    c['logprobs']['token_logprobs'][-1] == max(c['logprobs']['top_logprobs'][-1].values()) for c in a['choices'])"
first=$(pick "a['choices'][0]['logprobs']['token_logprobs'][1:4]")
ask /v1/completions '{"prompt": [458, 1875, 330, 3061], "max_tokens": 0, "logprobs": 20, "echo": true}'
check "echo alone" holds "a['choices'][0]['logprobs']['token_logprobs'][1:] == $first"
ask /v1/completions '{"prompt": "The sea was calm and", "temperature": 0, "max_tokens": 2, "logprobs": 0, "echo": true}'
check "offsets of a text's tokens are in it" holds "[a['choices'][0]['text'][n:].startswith(t)
    for n, t in zip(a['choices'][0]['logprobs']['text_offset'], a['choices'][0]['logprobs']['tokens'])] == [False] + 7 * [True]"
ask /v1/completions '{"prompt": [458, 1875, 330, 3061], "max_tokens": 0, "logprobs": 20, "echo": true}'
check "generates nothing" holds "a['usage']['completion_tokens'] == 0 and a['choices'][0]['text'].startswith('The sea was')"

# Stops, several texts, penalties, biases
ask /v1/completions "{\"prompt\": \"The sea was calm and\", $greedy, \"stop\": [\"zzz\", \"calm\"]}"
check "a stop string ends the text before it" holds "a['choices'][0]['text'] == ' the sea was ' and
    a['choices'][0]['finish_reason'] == 'stop'"
ask /v1/completions "{\"prompt\": [\"The sea\", \"A house\"], \"max_tokens\": 5, \"n\": 3, \"seed\": 7}"
check "two prompts, three texts each" holds "[c['index'] for c in a['choices']] == list(range(6)) and
    len({c['text'] for c in a['choices']}) > 3"
one=$(pick "[c['text'] for c in a['choices']]")
ask /v1/completions "{\"prompt\": [\"The sea\", \"A house\"], \"max_tokens\": 5, \"n\": 3, \"seed\": 7}"
check "a seed makes them again" test "$(pick "[c['text'] for c in a['choices']]")" = "$one"
ask /v1/completions "{\"prompt\": \"The sea was calm and\", $greedy, \"logit_bias\": {\"288\": 100}}"
check "a bias forces a token" holds "a['choices'][0]['text'] == ' and' * 24"
ask /v1/completions "{\"prompt\": \"The sea was calm and\", $greedy, \"frequency_penalty\": 2, \"presence_penalty\": 2}"
check "penalties change a text that repeats itself" test "$(pick "a['choices'][0]['text']")" != "$said"

# Chat
ask /v1/chat/completions '{"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    "max_tokens": 6, "temperature": 0, "logprobs": true, "top_logprobs": 2}'
check "a chat" holds "a['object'] == 'chat.completion' and a['choices'][0]['message']['role'] == 'assistant'"
check "has logprobs" holds "all(len(t['top_logprobs']) == 2 and t['logprob'] == t['top_logprobs'][0]['logprob']
    for t in a['choices'][0]['logprobs']['content'])"
"$PLEAT" run -m "$MODEL" -p "Hi" --chat -n 6 --format json -q -o "$scratch/ran"
asked=$(sed -nE 's/^ *"text": "(.*)",$/\1/p' "$scratch/ran")
check "and the text of pleat run --chat" test "$(pick "a['choices'][0]['message']['content']")" = "$asked"
check "behind as many tokens" grep -q "\"prompt\": $(pick "a['usage']['prompt_tokens']")," "$scratch/ran"
curl -s -m 600 -N "$url/v1/chat/completions" -d '{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6,
    "temperature": 0, "stream": true, "stream_options": {"include_usage": true}}' >"$scratch/stream"
check "a chat's stream" test "$(python3 - "$scratch/stream" <<'PY'
import json, sys
events = [line[6:] for line in open(sys.argv[1]).read().splitlines() if line.startswith("data: ")]
parts = [json.loads(e) for e in events[:-1]]
assert events[-1] == "[DONE]" and parts[0]["choices"][0]["delta"]["role"] == "assistant"
assert parts[-1]["choices"] == [] and parts[-1]["usage"]["completion_tokens"] == 6, parts[-1]
assert parts[-1]["timings"]["predicted_n"] == 6 and not any("timings" in p for p in parts[:-1]), parts
assert parts[-2]["choices"][0]["finish_reason"] == "length"
print("".join(p["choices"][0]["delta"].get("content", "") for p in parts[:-1]))
PY
)" = "$asked"

# How far a long prompt has been read, in a stream that asks for it
python3 -c 'print("{\"prompt\": [" + "288," * 1600 + "289], \"max_tokens\": 2, \"stream\": true, \"return_progress\": true}")' \
    >"$scratch/prompt"
for turn in first again; do
    curl -s -m 600 -N "$url/v1/completions" -d @"$scratch/prompt" >"$scratch/$turn"
done
check "events while a prompt is read" test "$(python3 - "$scratch/first" "$scratch/again" <<'PY'
import json, sys
for name in sys.argv[1:]:
    events = [json.loads(line[6:]) for line in open(name) if line.startswith("data: {")]
    told = [e["prompt_progress"] for e in events if "prompt_progress" in e]
    read = [t["processed"] for t in told]
    assert all(t["total"] == 1601 and t["time_ms"] >= 0 for t in told) and told[-1]["time_ms"] > 0, told
    assert read == sorted(set(read)) and read[0] == told[0]["cache"] and read[-1] == 1601, told
    assert all("prompt_progress" in e for e in events[:len(told)]), "text before the prompt's end"
    print(len(told), *{t["cache"] for t in told})
PY
)" = "5 0
2 1536"

# Events of text alone are written by another way than those with logprobs: both have the same form
for way in '/v1/completions "prompt": "The sea was calm and", "logprobs": 0' \
    '/v1/completions "prompt": "The sea was calm and"' \
    '/v1/chat/completions "messages": [{"role": "user", "content": "Hi"}], "logprobs": true' \
    '/v1/chat/completions "messages": [{"role": "user", "content": "Hi"}]'; do
    curl -s -m 600 -N "$url${way%% *}" -d "{${way#* }, \"max_tokens\": 12, \"temperature\": 0, \"stream\": true}"
    echo "data: over"
done >"$scratch/stream"
check "events have one form" test "$(python3 - "$scratch/stream" <<'PY'
import json, sys
streams = [[]]
for line in open(sys.argv[1]).read().splitlines():
    if line == "data: over":
        streams.append([])
    elif line.startswith("data: {"):
        streams[-1].append(json.loads(line[6:]))

def form(event):
    del event["id"], event["created"]
    event["choices"][0]["logprobs"] = None
    event.pop("timings", None)
    return json.dumps(event)

for way in (0, 2):
    probable, plain = ([form(event) for event in stream] for stream in streams[way:way + 2])
    assert probable == plain and len(plain) > 8, (probable, plain)
print("same")
PY
)" = same

# Refusals: OpenAI's form, the right status, both numbers
refuses() {
    local status=$1 regex=$2
    shift 2
    ask "$@"
    check "$*: $status" test "$code" = "$status"
    check "$*: says why" grep -Eq -- "$regex" <<<"$(pick "a['error']['message']")"
}
long=$(python3 -c 'print("word " * 6000)')
refuses 400 "has [0-9]+ tokens; the context of 4096" /v1/completions "{\"prompt\": \"$long\"}"
refuses 400 "max_tokens 5000 are more than the context of 4096" /v1/completions '{"prompt": "a", "max_tokens": 5000}'
refuses 400 "beside \"stream\": true" /v1/completions '{"prompt": "a", "return_progress": true}'
refuses 400 "no JSON" /v1/completions '{"prompt": '
refuses 400 "no JSON" /v1/completions '{"prompt": "a", "prompt": "b"}'
refuses 400 "the body has U.0000" /v1/completions '{"prompt": "a\u0000b"}'
refuses 400 "no JSON: maximum parsing depth" /v1/completions "$(python3 -c 'print("[" * 5000)')"
python3 -c 'print("{\"prompt\": \"a\", \"x\": [" + "[]," * 70000 + "0]}")' >"$scratch/lists"
refuses 400 "more than 65536" /v1/completions "@$scratch/lists"
refuses 400 "temperature is a number" /v1/completions '{"prompt": "a", "temperature": "hot"}'
refuses 400 "top_p is above 0" /v1/completions '{"prompt": "a", "top_p": 0}'
refuses 400 "logprobs is a whole number in 0..20" /v1/completions '{"prompt": "a", "logprobs": 21}'
refuses 400 "the whole is no object" /v1/chat/completions '{"messages": [{"role": "user", "content": "a"}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}}'
check "which is its field's" holds "a['error']['param'] == 'response_format'"
# What would cost a step or the loop of events seconds
python3 - "$scratch" <<'PY'
import json, sys
schemas = {"names": {"properties": {"a": True}, "required": ["a"] * 9}, "either": {"anyOf": [{"const": i} for i in range(33)]},
           "texts": {"properties": {"a": {"enum": [str(i) + "x" * 4000 for i in range(40)]}}}}
for name, schema in schemas.items():
    body = {"messages": [{"role": "user", "content": "a"}],
            "response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
    json.dump(body, open(f"{sys.argv[1]}/{name}", "w"))
PY
refuses 400 "'required' has more names than 'properties'" /v1/chat/completions "@$scratch/names"
refuses 400 "'anyOf' is a list of 1 to 32 schemas" /v1/chat/completions "@$scratch/either"
refuses 400 "names and values of more than 131072 bytes" /v1/chat/completions "@$scratch/texts"
refuses 400 "messages is a list" /v1/chat/completions '{"messages": []}'
refuses 400 "messages.0. has no content" /v1/chat/completions '{"messages": [{"role": "user"}]}'
refuses 400 "messages.0. has no content" /v1/chat/completions '{"messages": [{"role": "system", "content": null}]}'
refuses 400 "no text" /v1/chat/completions '{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}'
refuses 400 "token 99999999, which the model has not" /v1/completions '{"prompt": [99999999]}'
refuses 404 "'other' is not here; 'small' is" /v1/completions '{"prompt": "a", "model": "other"}'
refuses 404 "there is no /v2 here; /openapi.json lists what there is" /v2
refuses 405 "is asked by POST" /v1/completions
ask /tokenizer_info
eos=$(pick "a['eos_token']")
refuses 400 "spells out .* a special token" /v1/chat/completions \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"x $eos y\"}]}"
refuses 400 "13 continuations are more than the 12" /v1/completions '{"prompt": "a", "n": 13}'
refuses 400 "14 continuations are more than the 12" /v1/completions '{"prompt": ["a", "b"], "n": 7}'
refuses 400 "echo with logprobs is for n 1" /v1/completions '{"prompt": "a", "n": 2, "echo": true, "logprobs": 1}'
refuses 400 "min_tokens is not supported" /v1/completions '{"prompt": "a", "min_tokens": 3}'
refuses 400 "guided_choice is not supported" /v1/completions '{"prompt": "a", "guided_choice": ["a", "b"]}'
refuses 400 "beside add_generation_prompt false" /v1/chat/completions '{"messages": [{"role": "user", "content": "a"}],
    "add_generation_prompt": true, "continue_final_message": true}'
refuses 400 "no last message with words" /v1/chat/completions '{"messages": [{"role": "assistant", "content": " "}],
    "continue_final_message": true}'
hi='{"role": "user", "content": "Hi"}'
chat() { ask /v1/chat/completions "{\"messages\": [$1], \"max_tokens\": $2, \"temperature\": 0, \"ignore_eos\": true${3:-}}"; }
chat "$hi" 8
begun="$hi, {\"role\": \"assistant\", \"content\": $(pick "__import__('json').dumps(a['choices'][0]['message']['content'])")}"
ask /tokenize "{\"messages\": [$begun], \"add_generation_prompt\": false}"
n=$(pick "a['count']") ids=$(pick "a['tokens'][:-2]") # less what ends a turn
chat "$begun" 8 ', "continue_final_message": true'
goes_on=$(pick "a['choices'][0]['message']['content']")
ask /v1/completions "{\"prompt\": $ids, \"max_tokens\": 8, \"temperature\": 0, \"ignore_eos\": true}"
check "the last message goes on, as text that has no end" test "$(pick "a['choices'][0]['text']")" = "$goes_on"
ask /tokenize "{\"messages\": [$begun]}"
check "a prompt for an answer stands behind messages" holds "a['count'] > $n"
chat "$begun" 1 ', "add_generation_prompt": false'
check "or not" holds "a['usage']['prompt_tokens'] == $n"
refuses 400 "messages.0. is no object with a role" /tokenize '{"messages": [7]}'
refuses 404 "is not here" /v1/completions "{\"prompt\": \"a\", \"model\": \"a$(python3 -c 'print("é" * 200)')\"}"
ask /v1/completions '{"prompt": "a", "max_tokens": 1, "min_tokens": 0, "bad_words": [], "guided_choice": null}'
check "defaults of clients are no wishes" test "$code" = 200
refuses 400 "has [0-9]+ tokens; the context of 4096" /v1/completions "{\"prompt\": [\"a\", \"$long\"]}"
check "what is refused has not left" test "$(aborted)" = 0

# Bytes from strangers
raw 'GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx'
check "two lengths" prints "^HTTP/1.1 400 "
raw 'GET /health HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n'
check "a NUL" prints "^HTTP/1.1 400 "
raw 'GET /health HTTP/1.1\nHost: a\n\n\r\n\r\n'
check "bare line ends" prints "^HTTP/1.1 400 "
raw 'GET /health HTTP/1.1\r\n\r\n'
check "no host" prints "^HTTP/1.1 400 "
check "no host: it says how heads are" prints "one Host"
raw 'POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'
check "chunks" prints "^HTTP/1.1 411 "
raw 'POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n'
check "a body of 100 MB" prints "^HTTP/1.1 413 "
raw 'GET /health HTTP/3.0\r\nHost: a\r\n\r\n'
check "another version" prints "^HTTP/1.1 505 "
check "another version: it says how heads are" prints "HTTP/1.1 and HTTP/1.0"
raw "GET /health HTTP/1.1\r\nHost: a\r\nX: $(head -c 20000 /dev/zero | tr '\0' x)\r\n\r\n"
check "a long head" prints "^HTTP/1.1 431 "
check "a long head: it says how heads are" prints "16384 bytes"
raw 'GET /health HTTP/1.0\r\n\r\n'
check "HTTP/1.0 ends the connection" prints '"status":"ok"'
raw 'GET /health HTTP/1.1\r\nHost: a\r\n\r\nGET /version HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n'
check "two requests on one connection" test "$(grep -o "HTTP/1.1 200" <<<"$stdout" | wc -l)" = 2

# Clients that are odd
strange answers pipeline silent hoard early heads large ahead

# The package that people have
if python3 -c 'import openai' 2>/dev/null; then
    capture python3 "$ROOT/tests/cli/serve/client.py" "$url/v1"
    check "the openai client" exits 0
else
    skip "the openai client: Python has no package openai (pip install openai==1.109.1)"
fi

# A client that leaves: its texts are cancelled, and the pool is as it was
check "odd clients leave nothing behind" await gauge vllm:num_requests_running 0
before=$(aborted)
curl -s "$url/v1/completions" -d '{"prompt": "The sea", "max_tokens": 4000, "n": 4, "ignore_eos": true}' >/dev/null &
many=$!
check "a client's four texts run" await gauge vllm:num_requests_running 4
ask /slots
check "and take four places" holds "[t['is_processing'] for t in a] == 4 * [True] and
    all(t['n_prompt_tokens'] == 3 and t['next_token'][0]['n_decoded'] + t['next_token'][0]['n_remain'] == 4000 for t in a)"
kill $many
check "who leaves is cancelled" await gauge vllm:num_requests_running 0
check "and counted" calc "$(aborted) == $before + 4"
check "metrics" calc "$(count vllm:generation_tokens_total) > 100 && $(count vllm:time_to_first_token_seconds_count) > 10"

# A full queue: 4 run and 8 wait
for i in $(seq 12); do
    curl -s -m 600 "$url/v1/completions" -d '{"prompt": "The sea", "max_tokens": 3000, "ignore_eos": true, "stream": true}' \
        >"$scratch/full.$i" &
    many[i]=$!
done
check "eight wait" await gauge vllm:num_requests_waiting 8
curl -s -m 600 -D "$scratch/head" "$url/v1/completions" -d '{"prompt": "The sea", "max_tokens": 1}' >"$scratch/out"
check "a full queue is 429" grep -q "^HTTP/1.1 429 " "$scratch/head"
check "with Retry-After" grep -q "^Retry-After: [0-9]" "$scratch/head"
check "in OpenAI's form" holds "a['error']['type'] == 'rate_limit_error'"

# The end, amid twelve streams
stop
wait "${many[@]}"
check "SIGTERM ends it with 0" exits 0
check "every stream ends well-formed" test "$(python3 - "$scratch" <<'PY'
import json, sys
n = 0
for i in range(1, 13):
    events = [line[6:] for line in open(f"{sys.argv[1]}/full.{i}").read().splitlines() if line.startswith("data: ")]
    n += events[-1] == "[DONE]" and json.loads(events[-2])["choices"][0]["finish_reason"] in ("abort", "length")
print(n)
PY
)" = 12

# Keys at a public address; options from a file
printf '# ours\nsecret-1\n\nsecret-2\n' >"$scratch/keys"
printf '# ours\n\napi-key-file = %s\n host=0.0.0.0 \r\nspecial = off\nport = 1\ngrace = 0\nlog-format = json' "$scratch/keys" >"$scratch/conf"
start "$TINY" --config "$scratch/conf" || exit 1
check "a public address with a key" test -z "$(grep "anybody" "$scratch/server")"
ask /health
check "health needs none" test "$code" = 200
ask /
check "nor does the page" test "$code" = 200
ask /v1/models
check "no key" test "$code" = 401
headers=(-H "Authorization: Bearer secret-3")
ask /v1/models
check "a wrong key" test "$code" = 401
check "says so in OpenAI's form" holds "a['error']['type'] == 'authentication_error'"
headers=(-H "Authorization: Bearer secret-2")
ask /v1/models
check "a right key" test "$code" = 200
headers=()
ask '/no"such\path?key=secret-2'
stop
check "and stops" exits 0
grep '^{' "$scratch/server" >"$scratch/log"
check "its log has each request" test "$(python3 - "$scratch/log" <<'PY'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert [line["id"] for line in lines] == list(range(1, 7)), lines
assert all(line["ms"] >= 0 and not line["left"] and line["method"] == "GET" for line in lines)
print(*(f'{line["path"]} {line["status"]}' for line in lines), sep=", ")
PY
)" = '/health 200, / 200, /v1/models 401, /v1/models 401, /v1/models 200, /no"such\path 401'

# Tenants: what a key allows, and whose prefixes are whose
printf 'top priority=2\nsea-1 tenant=sea quota=0.5 priority=1\nsea-2 tenant=sea\nland tenant=land weight=3\nhasty time-limit-ms=1\n' \
    >"$scratch/keys"
start "$MODEL" --api-key-file "$scratch/keys" -t 2 || exit 1
as() { headers=(-H "Authorization: Bearer $1"); }
as sea-1
ask /v1/completions '{"prompt": "The sea", "max_tokens": 2, "priority": 1}'
check "a key's priority" test "$code" = 200
refuses 400 "priority 2 is above 1, the highest of this key" /v1/completions '{"prompt": "a", "priority": 2}'
long="{\"prompt\": [$(seq -s, 300 1500)], \"max_tokens\": 2, \"cache_salt\": \"x\"}"
ask /v1/completions "$long"
check "a long prompt is computed" holds "a['usage']['prompt_tokens_details']['cached_tokens'] == 0"
as sea-2
ask /v1/completions "$long"
check "another key of the tenant finds it" holds "a['usage']['prompt_tokens_details']['cached_tokens'] > 500"
for key in land top; do
    as $key
    ask /v1/completions "$long"
    check "another tenant does not: $key" holds "a['usage']['prompt_tokens_details']['cached_tokens'] == 0"
done
as hasty
ask /v1/completions "{\"prompt\": [$(seq -s, 300 3300)], \"max_tokens\": 90, \"time_limit_ms\": 60000}"
check "a key's time limit" holds "a['choices'][0]['finish_reason'] == 'time_limit'"
as top
ask /metrics
check "texts by tenant" test "$(sed -n 's/^pleat_tenant_texts_total.*tenant="\(.*\)"} / \1:/p' "$scratch/out" | tr -d '\n')" = " :2 sea:3 land:1"
check "tokens by tenant" grep -q 'pleat_tenant_tokens_total{.*tenant="land",kind="generated"} 2$' "$scratch/out"
stop
check "and stops, too" exits 0
headers=()

# More connections than there may be, and more texts
start "$MODEL" -np 1 --queue 31 --connections 40 || exit 1
strange siege
check "those that made room are counted" calc "$(count pleat_displaced_connections_total) >= 6"
check "who has left is cancelled" await gauge vllm:num_requests_running 0
strange greedy
stop

# 64 prompts of a tiny model end in one step, and what comes of them goes out at once
start "$TINY" -np 64 -b 8192 --log-format text || exit 1
strange burst
stop
check "the tiny model's server stops" exits 0
check "its log is text" grep -Eq '^[-0-9]+T[0-9:]+Z 1 POST /v1/completions 200 [0-9.]+ ms$' "$scratch/server"

# Without a key; and the last client leaves while its prompt is read, after SIGTERM: nobody is waited for
python3 -c 'print("{\"prompt\": [" + "288," * 4000 + "288], \"max_tokens\": 90, \"ignore_eos\": true}")' >"$scratch/prompt"
start "$MODEL" -np 1 -t 1 -b 64 --grace 86400 --host 0.0.0.0 || exit 1
check "a public address without a key is noted" grep -q "anybody may use it" "$scratch/server"
curl -s "$url/v1/completions" -d "@$scratch/prompt" >/dev/null &
many=$!
check "its prompt is read" await gauge vllm:num_requests_running 1
kill -TERM $server
check "the server would wait" await grep -q "stopping: 1 requests are under way" "$scratch/server"
kill $many
gone() { ! kill -0 $server 2>/dev/null; }
await gone
check "the end does not wait for who has left" gone
wait $server
check "and is a good one" test $? = 0

# Command lines
: >"$scratch/none"
printf 'a tenant=x quota=0.7\nb tenant=y quota=0.7\n' >"$scratch/keys"
fails 1 "cannot serve: .*quotas" serve -m "$TINY" --api-key-file "$scratch/keys"
printf '\na colour=red\n' >"$scratch/keys"
fails 1 "keys, line 2: behind a key stand tenant=NAME.* not colour=red" serve -m "$TINY" --api-key-file "$scratch/keys"
fails 1 "note: k8v4: 1.00 MiB are too few for a text of 4096 tokens, which takes [0-9.]+ MiB" \
    serve -m "$MODEL" --pool-bytes 1MiB --host 203.0.113.7
fails 1 "too small for any request: request: 4 tokens may need 0[.0-9]+ MiB .* the pool has 0[.0-9]+ MiB" \
    serve -m "$MODEL" --pool-bytes 64KiB -q
fails 1 "there is no key in it" serve -m "$MODEL" --api-key-file "$scratch/none"
fails 1 "cannot listen on 127.0.0.1 port 1:|cannot listen" serve -m "$MODEL" --host 203.0.113.7
fails 2 "'--port'|--port" serve -m "$MODEL" --port 70000
config() { printf "$@" >"$scratch/conf"; }
config 'grace = 1\nprot = 8080\n'
fails 2 "conf, line 2: no option 'prot'; the nearest is 'port'" serve -m "$MODEL" --config "$scratch/conf"
config 'port = 70000\n'
fails 2 "conf, line 1, port: '70000' is not a whole number" serve -m "$MODEL" --config "$scratch/conf"
config 'special\n'
fails 2 "conf, line 1: an option is NAME = VALUE" serve -m "$MODEL" --config "$scratch/conf"
config 'help = 1\n'
fails 2 "'help' stands on the command line alone" serve -m "$MODEL" --config "$scratch/conf"
config 'port = 1\0\n'
fails 2 "there is a NUL in it" serve -m "$MODEL" --config "$scratch/conf"
fails 1 "none-such" serve -m "$MODEL" --config "$scratch/none-such"
fails 2 "nearest is '--config'" serve -m "$MODEL" --conf "$scratch/conf"
config 'hf-repo = a/b\nhf-file = x.gguf\n'
fails 1 "cannot listen on 203.0.113.7" serve -m "$TINY" --config "$scratch/conf" --host 203.0.113.7
config 'model = %s/none-such\nhost = 203.0.113.8\n' "$scratch"
fails 1 "none-such" serve --config "$scratch/conf"
capture env PLEAT_MODEL="$TINY" PLEAT_HOST=127.0.0.1 "$PLEAT" serve --config "$scratch/conf" --host 203.0.113.7
check "the environment wins over the file, and the command line over both" says "cannot listen on 203.0.113.7"
finish
