#!/bin/bash
# SPDX-License-Identifier: MIT
#
# serve_tools.sh: tool calls by `pleat serve`, of models that say what they are told (tests/cli/serve/scripted.py): what a
# client hears, whole and streamed.  tests/cli/serve/tools.py is the `openai` package's client, where Python has it.
. "$(dirname "$0")/harness.bash"
. "$ROOT/tests/cli/serve/server.bash"

# scripted MARK SCRIPTS: $scratch/scripted.gguf, whose template names the mark.
scripted() {
    python3 "$ROOT/tests/cli/serve/scripted.py" "$scratch/scripted.gguf" "{#$1#}{%for m in messages%}{{m.content}}{%endfor%}{%if \
tools%}A{%endif%}{%for m in messages if m.tool_calls%}{{m.tool_calls[0].function.arguments.day}}{%endfor%}{{messages[-1].content}}" "$2"
}
tools='"tools": [{"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "wind"}}]'
# chat LETTER [MORE]: the answer to it
chat() { ask /v1/chat/completions "{\"messages\": [{\"role\": \"user\", \"content\": \"$1\"}], \"temperature\": 0, $tools${2:+, $2}}"; }
# strict LETTER: the same with one tool, whose calls have a schema
strict() {
    ask /v1/chat/completions "{\"messages\": [{\"role\": \"user\", \"content\": \"$1\"}], \"temperature\": 0, \"logit_bias\":
        {\"32\": -100, \"10\": -100, \"9\": -100, \"13\": -100}, \"tools\": [{\"type\": \"function\", \"function\":
        {\"name\": \"tide\", \"strict\": true, \"parameters\": {\"type\": \"object\", \"properties\": {\"day\": {\"const\": 2}},
        \"required\": [\"day\"], \"additionalProperties\": false}}}]}"
}
# streamed LETTER [MORE]: the events of its stream, as a list
streamed() {
    chat "$1" "\"stream\": true${2:+, $2}"
    check "the stream of $1 ends" test "$(grep -v '^$' "$scratch/out" | tail -1)" = "data: [DONE]"
    sed -n 's/^data: {/{/p' "$scratch/out" | python3 -c 'import json, sys
print(json.dumps([json.loads(line) for line in sys.stdin]))' >"$scratch/events" && mv "$scratch/events" "$scratch/out"
}

scripted '<tool_call>' '{
    "B": ["Let me see.", "\n<tool_call>\n{\"name\": \"tide\", ", "\"arguments\": {\"day\": 1}}\n</tool", "_call>"],
    "C": ["<tool_call>{\"name\": \"wind\"}</tool_call>\n", "<tool_call>[{\"name\": \"tide\", \"arguments\": {}}]</tool_call>"],
    "D": ["<tool_call>{\"name\": \"tide\"", ", \"arguments\": {\"day\": }}</tool_call>"],
    "E": ["<tool_call>{\"name\": \"moon\", \"arguments\": {}}", "</tool_call>  "],
    "F": ["High water ", "<tool", " at six"],
    "G": ["{\"tide\": [1, ", "2], \"é", "\\u00", "e9\": null}", " and more"],
    "S": ["Hm <tool<tool", "_call>\n{\"name\": \"tide\", \"arguments\":", " {\"day\": ", "3}}"],
    "}": ["</tool_call>"],
    " ": ["{\"day", "\": 2", "}}"]}'
start "$scratch/scripted.gguf" || exit 1
chat B
check "a call is none of the text" holds "a['choices'][0]['message']['content'] == 'Let me see.'"
check "but one of the message's" holds "[(c['type'], c['function']) for c in a['choices'][0]['message']['tool_calls']] ==
    [('function', {'name': 'tide', 'arguments': '{\"day\": 1}'})]"
check "with an id of nine letters and digits" holds "[(len(c['id']), c['id'].isalnum())
    for c in a['choices'][0]['message']['tool_calls']] == [(9, True)]"
check "and its reason" holds "a['choices'][0]['finish_reason'] == 'tool_calls'"
chat C
check "two calls, and no text" holds "[c['function']['name'] for c in a['choices'][0]['message']['tool_calls']] ==
    ['wind', 'tide'] and a['choices'][0]['message']['content'] is None"
check "have two ids" holds "len({c['id'] for c in a['choices'][0]['message']['tool_calls']}) == 2"
chat C '"parallel_tool_calls": false'
check "or one, where no more are wanted" holds "[c['function']['name'] for c in a['choices'][0]['message']['tool_calls']] == ['wind']"
chat C '"max_tokens": 2'
check "the length ends a text, with calls or without" holds "a['choices'][0]['finish_reason'] == 'length' and
    len(a['choices'][0]['message']['tool_calls']) == 2"
chat D
check "damaged JSON stays text" holds "a['choices'][0]['message']['content'] ==
    '<tool_call>{\"name\": \"tide\", \"arguments\": {\"day\": }}</tool_call>'"
check "and ends as text" holds "'tool_calls' not in a['choices'][0]['message'] and a['choices'][0]['finish_reason'] == 'stop'"
chat E
check "a tool that is not there stays text" holds "a['choices'][0]['message']['content'].startswith('<tool_call>{\"name\": \"moon\"')"
chat B '"tool_choice": "none"'
check "without tools a call is text" holds "'</tool_call>' in a['choices'][0]['message']['content'] and
    a['choices'][0]['finish_reason'] == 'stop'"
chat B '"n": 3, "logprobs": true'
check "three texts have a call each" holds "[len(c['message']['tool_calls']) for c in a['choices']] == [1, 1, 1]"
check "and a logprob for each token" holds "[len(c['logprobs']['content']) for c in a['choices']] == [4, 4, 4]"

# A call that is forced: its beginning is part of the prompt, and its arguments are a JSON object
named='"tool_choice": {"type": "function", "function": {"name": "tide"}}'
chat B "$named, \"logit_bias\": {\"125\": 5}"
check "a call is forced" holds "[c['function'] for c in a['choices'][0]['message']['tool_calls']] ==
    [{'name': 'tide', 'arguments': '{\"day\": 2}'}] and a['choices'][0]['message']['content'] is None"
check "and its reason" holds "a['choices'][0]['finish_reason'] == 'tool_calls'"
chat B "$named, \"max_tokens\": 1"
check "one that is cut off is text" holds "a['choices'][0]['message']['content'] ==
    '<tool_call>\n{\"name\": \"tide\", \"arguments\": {\"day' and a['choices'][0]['finish_reason'] == 'length'"
chat B '"tool_choice": "required"'
check "one of two tools is required, and which and what is the model's" holds "a['choices'][0]['finish_reason'] == 'length' or
    a['choices'][0]['message']['tool_calls'][0]['function']['name'] in ('tide', 'wind')"
ask /v1/chat/completions '{"messages": [{"role": "user", "content": "B"}], "temperature": 0, "tool_choice": "required", "tools": [
    {"type": "function", "function": {"name": "tide", "strict": true, "parameters": {"type": "object", "properties":
    {"day": {"const": 2}}, "required": ["day"], "additionalProperties": false}}}, {"type": "function", "function":
    {"name": "moon", "strict": true, "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}}],
    "logit_bias": {"32": -100, "10": -100, "9": -100, "13": -100, "116": 5}}'
check "strict tools have their schemas" holds "a['choices'][0]['message']['tool_calls'][0]['function'] ==
    {'name': 'tide', 'arguments': '{\"day\":2}'}"
chat S
check "a call that is not strict says what the model says" holds "a['choices'][0]['message']['tool_calls'][0]['function'] ==
    {'name': 'tide', 'arguments': '{\"day\": 3}'}"
strict S
check "one that the model begins by itself is held to its schema" holds "a['choices'][0]['message']['tool_calls'][0]['function'] ==
    {'name': 'tide', 'arguments': '{\"day\": 2}'} and a['choices'][0]['message']['content'] == 'Hm <tool'"
strict F
check "and what is no call is free" holds "a['choices'][0]['message']['content'] == 'High water <tool at six'"
ask /v1/chat/completions '{"messages": [{"role": "user", "content": "B"}], "tool_choice": "required", "tools": [{"type": "function",
    "function": {"name": "tide", "strict": true, "parameters": {"type": "object", "properties": {"day": {"pattern": "x"}}}}}]}'
check "what a schema may not say is refused by name" holds "a['error']['param'] == 'tools' and 'pattern' in a['error']['message']"
schema() { chat G "\"tool_choice\": \"none\", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": $1}}"; }
schema '{"type": "array"}'
check "a schema is that of an object" holds "'no object' in a['error']['message']"
schema '{"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}}, "$defs": {}}'
check "a reference leads somewhere" holds "'leads to' in a['error']['message'] and a['error']['param'] == 'response_format'"
schema '{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}'
check "a schema can be written" holds "'error' in a and 'shape' in a['error']['message']"
schema '{"type": "object", "properties": {"tide": {"type": "array", "items": {"type": "integer"}}, "é": {"type": "null"}}}'
check "what has the schema by itself stays" holds "a['choices'][0]['message']['content'].startswith('{\"tide\": [1, 2], ')"
ask /v1/chat/completions '{"messages": [{"role": "user", "content": "B"}], "temperature": 0, "tool_choice": "required",
    "tools": [{"type": "function", "function": {"name": "wind"}}], "logit_bias": {"125": 5}}'
check "the only tool is" holds "a['choices'][0]['message']['tool_calls'][0]['function']['name'] == 'wind'"
chat B '"tool_choice": {"type": "function", "function": {"name": "moon"}}'
check "a choice that is no tool" holds "a['error']['param'] == 'tool_choice'"
chat B '"response_format": {"type": "json_object"}'
check "JSON beside tools is refused" holds "a['error']['param'] == 'response_format'"

# An answer that is one JSON object: as it would be without being asked for, but for its end
json='"tool_choice": "none", "response_format": {"type": "json_object"}'
chat G "$json, \"logprobs\": true"
check "what is JSON by itself stays" holds "a['choices'][0]['message']['content'] == '{\"tide\": [1, 2], \"é\\\\u00e9\": null}'"
check "and its end is the answer's" holds "a['choices'][0]['finish_reason'] == 'stop' and
    len(a['choices'][0]['logprobs']['content']) == 4"
chat G '"tool_choice": "none", "response_format": {"type": "text"}'
check "which it is not without" holds "a['choices'][0]['message']['content'].endswith('} and more')"
chat F "$json, \"max_tokens\": 40"
check "other text is not begun" holds "a['choices'][0]['message']['content'].strip(' \t\n\r') == ''"

streamed B
check "a stream has the text" holds "''.join(e['choices'][0]['delta'].get('content') or '' for e in a) == 'Let me see.'"
check "and the call in one event" holds "[(c['index'], c['type'], len(c['id']), c['function'])
    for e in a for c in e['choices'][0]['delta'].get('tool_calls', [])] ==
    [(0, 'function', 9, {'name': 'tide', 'arguments': '{\"day\": 1}'})]"
check "and its reason last" holds "[e['choices'][0]['finish_reason'] for e in a][-2:] == [None, 'tool_calls']"
check "and timings once" holds "['timings' in e for e in a].index(True) == len(a) - 1"
streamed C
check "two calls have an index each" holds "[c['index'] for e in a for c in e['choices'][0]['delta'].get('tool_calls', [])] == [0, 1]"
streamed D '"logprobs": true'
check "what is no call is streamed as text" holds "''.join(e['choices'][0]['delta'].get('content') or '' for e in a) ==
    '<tool_call>{\"name\": \"tide\", \"arguments\": {\"day\": }}</tool_call>' and a[-1]['choices'][0]['finish_reason'] == 'stop'"
check "with the logprobs of each token" holds "sum(len((e['choices'][0]['logprobs'] or {}).get('content', [])) for e in a) == 2"
streamed F
check "what may become a call waits no longer than that" holds "[e['choices'][0]['delta'].get('content')
    for e in a[1:-1]] == ['High water', ' <tool at six']"
ask /tokenize '{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": null, "tool_calls": [{"id": "1",
    "type": "function", "function": {"name": "tide", "arguments": "{\"day\": 77}"}}]}, {"role": "tool", "content": "F"}]}'
check "earlier calls reach the template as objects" holds "''.join(map(chr, a['tokens'])).endswith('77F')"
if python3 -c 'import openai' 2>/dev/null; then
    capture python3 "$ROOT/tests/cli/serve/tools.py" "$url/v1"
    check "the openai client" exits 0
else
    skip "the openai client: Python has no package openai (pip install openai==1.109.1)"
fi
stop
check "it stops" exits 0

scripted '[TOOL_CALLS]' '{"B": ["[TOOL_CALLS]", "[{\"name\": \"tide\", ", "\"arguments\": {\"day\": 1}}]"], "C": ["<|x|>", "well"]}'
start "$scratch/scripted.gguf" || exit 1
chat B
check "a marker that is a special token" holds "a['choices'][0]['message']['tool_calls'][0]['function'] ==
    {'name': 'tide', 'arguments': '{\"day\": 1}'} and a['choices'][0]['message']['content'] is None"
chat C '"tool_choice": "none"'
check "special tokens are no text otherwise" holds "a['choices'][0]['message']['content'] == 'well'"
stop

scripted '<|python_tag|>' '{"B": ["{\"name\": \"tide\", \"para", "meters\": {\"day\": 1}}"], "C": ["{\"name\": \"Ishmael\"}"]}'
start "$scratch/scripted.gguf" || exit 1
chat B
check "Llama's form" holds "a['choices'][0]['message']['tool_calls'][0]['function'] == {'name': 'tide', 'arguments': '{\"day\": 1}'}"
chat C
check "and what only looks like it" holds "a['choices'][0]['message']['content'] == '{\"name\": \"Ishmael\"}'"
strict B
check "whose calls nothing announces, so that none is held to a schema" holds "a['error']['param'] == 'tools' and
    'strict' in a['error']['message']"
stop

scripted 'none' '{"B": ["<tool_call>{\"name\": \"tide\"}</tool_call>"]}'
start "$scratch/scripted.gguf" || exit 1
chat B
check "a template that knows no calls" holds "a['choices'][0]['message']['content'] == '<tool_call>{\"name\": \"tide\"}</tool_call>'"
stop
finish
