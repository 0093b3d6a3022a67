# SPDX-License-Identifier: MIT
"""soak.py PORT PID SECONDS CLIENTS MEMORY SPEC...: good clients and bad ones at a server, all at the same time.

Half of the CLIENTS are good: their answers have to be those of the same questions asked alone.  Who hears 429 comes again.
The others, from another address, are bad in turn, in one of the ways of bad.py, until SECONDS have passed.  Then all leave.  The server has to
hold no text any more, and no page but those of kept prefixes, to answer as before, and to have been no larger than MEMORY
MiB.  Of the second half of
the time the memory's medians, of each half, are at most 2 % apart, where that is ten minutes or more in all (MEMORY 0: not
asked, for a build whose allocator keeps what is freed).

At the end SIGTERM among 100 streams: each ends with a reason and [DONE].
"""
import asyncio
import collections
import os
import random
import signal
import statistics
import sys
import time

import bad
from asking import Failed, Host

N_STREAMS = 100
FLAT = 0.02
FLAT_FROM_S = 600  # shorter, and pages and places are still taken for the first time
PAUSE_S = 5 # a machine that stood still so long let time limits pass that nobody else does
TEXTS = ("The old house by the sea had stood there for a hundred years, and", "Once there was a king who",
         "In the morning the fishermen went down to the harbour. " * 12 + "Then", "She opened the letter and read:",
         "The sea was calm and " * 30, "A long road leads from the village to")

CUT = (asyncio.IncompleteReadError, ConnectionError)  # the connection ended within an answer, or before it


def questions_of(specs):
    """(path, body) of each that good clients ask: each text of each spec, as a completion or a chat, a third of them whole."""
    questions = []
    for i, (text, spec) in enumerate((text, spec) for text in TEXTS for spec in specs):
        what = {"prompt": text} if i % 2 else {"messages": [{"role": "user", "content": text}]}
        body = {**what, "kv": spec, "temperature": 0, "max_tokens": 12 + i % 30}
        questions.append(("/v1/completions" if i % 2 else "/v1/chat/completions", body, i % 3 > 0))
    return questions


async def ask(host, question):
    """(text, why it ended), or None where the server is full."""
    path, body, streams = question
    if not streams:
        status, answer = await host.ask(path, body)
        if status in (429, 503):
            return None
        choice = answer["choices"][0] if status == 200 else fail(f"{status} {answer}")
        return choice.get("text") or choice["message"]["content"], choice["finish_reason"]
    stream = await host.stream(path, body)
    if stream.status in (429, 503):
        return None
    if stream.status != 200:
        fail(f"{stream.status} of {body}")
    text, why = "", None
    async for event in stream:
        if why:
            fail(f"an event behind the last: {event}")
        choice = event["choices"][0]
        text += choice["text"] if "text" in choice else choice["delta"].get("content", "")
        why = choice["finish_reason"]
    return text, why


def fail(text):
    raise Failed(text)


class Soak:
    def __init__(self, port, pid, seconds, memory, specs):
        self.host, self.pid, self.seconds, self.memory = Host(port), pid, seconds, memory
        self.questions, self.specs = questions_of(specs), specs
        self.told, self.counts, self.resident, self.pause_s = [], collections.Counter(), [], 0

    def resident_mib(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as f:
            return int(next(line for line in f if line.startswith("VmRSS")).split()[1]) / 1024

    async def good(self, rng):
        while True:
            i = rng.randrange(len(self.questions))
            try:
                said = await ask(self.host, self.questions[i])
            except CUT:
                self.counts["cut"] += 1
                continue
            self.counts["good" if said else "full"] += 1
            if said and said != self.told[i]:
                fail(f"{self.questions[i]}: {said}, and alone {self.told[i]}")
            await asyncio.sleep(0 if said else 0.5 + rng.random())

    async def bad(self, way, rng):
        while True:
            try:
                await bad.WAYS[way](self.host, rng, rng.choice(self.specs))
                self.counts[way] += 1
            except CUT:
                pass  # what it heard of it is its own fault, or a pause's
            await asyncio.sleep(rng.random())

    async def watch(self):
        """Until the time is over and each kind has come to its end, or a client's task has ended, which is a failure."""
        now, end = time.monotonic(), time.monotonic() + self.seconds
        while (now < end or self.missing()) and not any(task.done() for task in self.tasks):
            self.resident.append(self.resident_mib())
            await asyncio.sleep(1)
            self.pause_s, now = max(self.pause_s, time.monotonic() - now - 1), time.monotonic()
        ended = [task for task in self.tasks if task.done()]
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for task in ended:
            task.result()

    def missing(self):
        """On a slow machine it takes longer than asked for until a place is free for a good one."""
        return self.counts["good"] < len(self.questions) or any(self.counts[way] == 0 for way in bad.WAYS)

    async def alone(self):
        return [await self.once(question) for question in self.questions]

    async def once(self, question):
        """One answer; asked again where this machine stood still so long that the server gave up."""
        for _ in range(5):
            try:
                return await ask(self.host, question)
            except CUT:
                pass
        return fail(f"never answered: {question}")

    async def rests(self):
        """Nobody runs or waits, and pages are free or those of kept prefixes."""
        while True:
            m = await self.host.metrics()
            if m["vllm:num_requests_running"] + m["vllm:num_requests_waiting"] == 0 and m["pleat_connections"] == 1:
                break
            await asyncio.sleep(0.2)
        held = {name: n for name, n in m.items() if name.startswith("pleat_kv_bytes{") and 'holds="requests"' in name and n}
        if held:
            fail(f"nobody is here, and pages are held: {held}")
        return m

    async def soak(self, n_clients):
        self.told = await self.alone()
        before = self.resident_mib()
        ways = list(bad.WAYS)
        self.tasks = [asyncio.create_task(self.good(random.Random(i)) if i % 2 else
                                          self.bad(ways[i // 2 % len(ways)], random.Random(i))) for i in range(n_clients)]
        await self.watch()
        m = await self.rests()
        if await self.alone() != self.told:
            fail("it answers otherwise than before")
        print(f"{n_clients} clients in {self.seconds} s: {self.counts['good']} good answers, {self.counts['full']} times "
              f"full, {self.counts['cut']} cut off (the longest pause of this machine: {self.pause_s:.1f} s); " +
              ", ".join(f"{way} {self.counts[way]}" for way in ways))
        kept = sum(n for name, n in m.items() if 'holds="kept"' in name)
        print(f"{m['vllm:num_preemptions_total']:.0f} preempted, {m['pleat_evicted_prefixes_total']:.0f} prefixes evicted, "
              f"{m['vllm:generation_tokens_total']:.0f} tokens; prefixes hold {kept / 2**20:.1f} MiB")
        self.judge(before)

    def judge(self, before):
        some = self.resident
        third, fourth = (statistics.median(some[i * len(some) // 4:(i + 1) * len(some) // 4]) for i in (2, 3))
        print(f"memory: {before:.0f} MiB before, {max(some):.0f} at most, {third:.1f} and {fourth:.1f} in the last quarters, "
              f"{self.resident_mib():.0f} at the end")
        if self.counts["cut"] and self.pause_s < PAUSE_S:
            fail(f"{self.counts['cut']} good clients were cut off")
        if self.memory and max(some) > self.memory:
            fail(f"more than {self.memory} MiB")
        if self.memory and self.seconds >= FLAT_FROM_S and abs(fourth / third - 1) > FLAT:
            fail("the memory is not flat")

    async def end(self):
        """SIGTERM among streams, of which most wait."""
        body = {"prompt": "The sea", "max_tokens": 900, "ignore_eos": True}
        streams = [await self.host.stream("/v1/completions", {**body, "kv": self.specs[i % len(self.specs)]})
                   for i in range(N_STREAMS)]

        async def last(stream):
            event = {}
            async for event in stream:
                pass
            return event["choices"][0]["finish_reason"]

        readers = [asyncio.create_task(last(stream)) for stream in streams]
        os.kill(self.pid, signal.SIGTERM)
        reasons = collections.Counter(await asyncio.gather(*readers))
        print(f"SIGTERM among {N_STREAMS} streams: {dict(reasons)}")
        if sum(reasons[why] for why in ("abort", "length")) != N_STREAMS:
            fail("a stream ended otherwise")


async def main():
    port, pid, seconds, n_clients, memory, *specs = sys.argv[1:]
    soak = Soak(int(port), int(pid), float(seconds), int(memory), specs)
    await soak.soak(int(n_clients))
    await soak.end()


asyncio.run(main())
