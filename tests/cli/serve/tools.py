# SPDX-License-Identifier: MIT
"""tools.py URL: the `openai` package's client, and its accumulation of streams, against the server of serve_tools.sh."""
import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
tools = [{"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}},
         {"type": "function", "function": {"name": "wind"}}]
settings = {"model": "small", "temperature": 0, "tools": tools}
asked = [{"role": "user", "content": "B"}]

message = client.chat.completions.create(**settings, messages=asked).choices[0].message
assert message.content == "Let me see." and message.tool_calls[0].function.name == "tide", message
assert json.loads(message.tool_calls[0].function.arguments) == {"day": 1}

# The answer goes back as it came, with what the tool said
answered = asked + [message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "F"}]
final = client.chat.completions.create(**settings, messages=answered).choices[0]
assert final.message.content == "High water <tool at six" and not final.message.tool_calls, final
assert final.finish_reason == "stop"

named = {"type": "function", "function": {"name": "tide"}}
forced = client.chat.completions.create(**settings, messages=asked, tool_choice=named, logit_bias={"125": 5}).choices[0]
assert forced.message.tool_calls[0].function.arguments == '{"day": 2}', forced

with client.chat.completions.stream(**settings, messages=[{"role": "user", "content": "C"}]) as stream:
    for event in stream:
        pass
    whole = stream.get_final_completion().choices[0]
assert [c.function.name for c in whole.message.tool_calls] == ["wind", "tide"], whole
assert [json.loads(c.function.arguments) for c in whole.message.tool_calls] == [{}, {}]
assert whole.finish_reason == "tool_calls"
