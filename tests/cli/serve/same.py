# SPDX-License-Identifier: MIT
"""same.py PORT PLEAT MODEL PROSE N_OTHERS N_TOLD SPEC...: is what a server says, greedily, what `pleat run` says?

Of each KV spec: N_OTHERS + 1 prompts of different lengths, pieces of PROSE.  `pleat run` tells how the first N_TOLD go on.
The server, which was started with the same
specs, has to say the same of them one by one, and of all at once.  There everybody goes on until all have said as much
as was told, so that nobody is alone at the end; then they leave.
"""
import asyncio
import json
import subprocess
import sys

from asking import Failed, Host

N_SAID = 24          # tokens of an answer that are compared
N_WORDS = (8, 330)   # of a prompt: from, to
AT_LEAST = 0.75      # part of the texts in company that have to have gone on to the end, rather than have ended themselves


def prompts_of(prose, n):
    """Pieces of as many lengths, the longest first."""
    words = prose.split(" ")
    some = []
    for i in range(n):
        length = N_WORDS[0] + round((N_WORDS[1] - N_WORDS[0]) * 0.93**i)
        some.append(" ".join(words[400 * i:400 * i + length]))
    return some


def run(pleat, model, spec, prompt, is_chat):
    """(text, whether it ended by itself) of `pleat run`."""
    argv = [pleat, "run", "-m", model, "-n", str(N_SAID), "--kv", spec, "-p", prompt, "-q", "--format", "json"]
    said = json.loads(subprocess.run(argv + ["--chat"] * is_chat, stdout=subprocess.PIPE, check=True).stdout)
    return said["text"], said["finish_reason"] == "stop"


def question(spec, prompt, is_chat, n_tokens):
    what = {"messages": [{"role": "user", "content": prompt}]} if is_chat else {"prompt": prompt}
    return ("/v1/chat/completions" if is_chat else "/v1/completions",
            {**what, "kv": spec, "temperature": 0, "max_tokens": n_tokens})


def text_of(choice):
    return choice["text"] if "text" in choice else choice.get("delta", choice.get("message")).get("content", "")


class Company:
    """Texts that go on until each has said n tokens."""

    def __init__(self, n):
        self.missing, self.all_said = n, asyncio.Event()

    async def text(self, host, path, body):
        """What one of them says, and whether it ended by itself."""
        stream = await host.stream(path, body)
        said, n = "", 0
        async for event in stream:
            choice = event["choices"][0]
            said += text_of(choice)
            n += 1
            if choice["finish_reason"]:
                self.count(n <= N_SAID + 1)
                return said, True
            self.count(n == N_SAID + 1)
            if self.all_said.is_set():
                stream.close()
                return said, False
        raise Failed("a text without an end")

    def count(self, is_enough):
        self.missing -= is_enough
        if self.missing == 0:
            self.all_said.set()


def differ(what, said, told):
    print(f"{what}: '..{said[-80:]}', and pleat run '..{told[-80:]}'")
    return 1


def differs(said, has_ended, told, told_ended):
    """In company texts are longer than what was told, but where both ended."""
    return said != told if told_ended else has_ended and len(said) < len(told) or not said.startswith(told)


async def compare(host, spec, questions, told):
    """The number of texts that are not those told."""
    n_wrong = 0
    for i, (text, _) in enumerate(told):
        path, body = questions(i, N_SAID)
        _, answer = await host.ask(path, body)
        said = text_of(answer["choices"][0])
        n_wrong += said != text and differ(f"{spec}, {i} alone", said, text)
    n = questions.n
    company = Company(n)
    all_said = await asyncio.gather(*(company.text(host, *questions(i, 20 * N_SAID)) for i in range(n)))
    for i, (text, has_ended) in enumerate(told):
        if differs(*all_said[i], text, has_ended):
            n_wrong += differ(f"{spec}, {i} in company", all_said[i][0], text)
    n_long = sum(not has_ended for _, has_ended in all_said)
    if n_long < AT_LEAST * n:
        n_wrong += 1
        print(f"{spec}: {n - n_long} of {n} texts had ended before the others")
    return n_wrong


async def main():
    port, pleat, model, prose, n_others, n_told, *specs = sys.argv[1:]
    with open(prose, encoding="utf-8") as f:
        prompts = prompts_of(f.read(), int(n_others) + 1)
    n_wrong, host = 0, Host(int(port))
    _, models = await host.ask("/v1/models")
    for spec, name in zip(specs, models["data"][0]["kv_specs"], strict=True):
        def questions(i, n_tokens, kv=name):
            return question(kv, prompts[i], i % 4 == 3, n_tokens)
        questions.n = len(prompts)
        told = [run(pleat, model, spec, prompts[i], i % 4 == 3) for i in range(int(n_told))]
        n_wrong += await compare(host, name, questions, told)
        print(f"{name}: {n_told} texts, alone and with {n_others} others" + (" as told" if n_wrong == 0 else ""))
    return n_wrong


sys.exit(asyncio.run(main()) > 0)
