# SPDX-License-Identifier: MIT
"""client.py URL: the `openai` package's client against a server: chats, streams, logprobs, several texts, tools, errors."""
import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
name = client.models.list().data[0].id
messages = [{"role": "user", "content": "The sea was calm and"}]
settings = {"model": name, "messages": messages, "max_tokens": 8, "temperature": 0, "extra_body": {"ignore_eos": True}}

whole = client.chat.completions.create(**settings)
text = whole.choices[0].message.content
assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 8, whole

parts = list(client.chat.completions.create(**settings, stream=True, stream_options={"include_usage": True}))
assert "".join(p.choices[0].delta.content or "" for p in parts if p.choices) == text, parts
assert parts[-1].usage.total_tokens == whole.usage.total_tokens, parts[-1]

several = client.chat.completions.create(**{**settings, "temperature": 1}, n=3, seed=3)
assert [c.index for c in several.choices] == [0, 1, 2]

probable = client.chat.completions.create(**settings, logprobs=True, top_logprobs=20)
content = probable.choices[0].logprobs.content
assert len(content) == 8 and text.startswith(content[0].token), content
assert all(len(t.top_logprobs) == 20 and t.top_logprobs[0].logprob == t.logprob for t in content)

asked = {**settings, "max_tokens": 60, "logit_bias": {}, "response_format": {"type": "json_object"}}
written = client.chat.completions.create(**asked).choices[0]
assert written.finish_reason == "length" or json.loads(written.message.content) is not None, written
assert written.message.content.lstrip()[:1] in ("{", ""), written

tools = [{"type": "function", "function": {"name": "tide", "description": "the tide", "parameters": {"type": "object"}}}]
assert client.chat.completions.create(**settings, tools=tools).choices[0].message.role == "assistant"

old = client.completions.create(model=name, prompt="The sea was calm and", max_tokens=4, temperature=0, logprobs=2, echo=True)
assert old.choices[0].text.startswith("The sea was calm and"), old
assert len(old.choices[0].logprobs.tokens) == old.usage.total_tokens

stopped = client.completions.create(model=name, prompt="The sea was calm and", max_tokens=24, temperature=0, stop="calm")
assert stopped.choices[0].finish_reason == "stop" and "calm" not in stopped.choices[0].text, stopped

for bad, kind in (
    ({"model": "another"}, openai.NotFoundError),
    ({"max_tokens": 100000}, openai.BadRequestError),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}}, openai.BadRequestError),
):
    try:
        client.chat.completions.create(**{**settings, **bad})
        raise SystemExit(f"{bad} was taken")
    except kind as error:
        assert error.body["message"], error
with client.chat.completions.create(**{**settings, "max_tokens": 2000}, stream=True) as stream:
    next(iter(stream))  # and leaves
print("all well")
