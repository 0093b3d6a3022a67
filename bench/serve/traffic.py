# SPDX-License-Identifier: MIT
"""traffic.py: chats for a server of OpenAI's API, and a client that takes as little time as Python can.

One thread waits for all connections at once, and answers are kept as bytes until all have come: what runs beside the server
takes its cores from it.
"""
import collections
import http.client
import json
import math
import random
import selectors
import socket
import time

# An answer that has come: seconds from the traffic's beginning, tokens as the server counts them.
Answer = collections.namedtuple("Answer", "begin_s first_s end_s n_prompt n_cached n_output engine_ms")


class Failed(Exception):
    """A server did not do what was asked, in one line."""


# ---- what is asked ------------------------------------------------------------------------------------------------------


def lengths(rng, n, mean, shape):
    """n lengths whose mean is `mean`, log-normal: `shape` is the deviation of their logarithms."""
    factors = [math.exp(shape * rng.gauss(0, 1)) for _ in range(n)]
    return [max(1, round(mean * f * n / sum(factors))) for f in factors]


def chats(text, n, words, tokens, shape, seed):
    """[(messages, tokens to generate)] of n conversations of one turn: pieces of the text, no two beginning alike."""
    rng, source = random.Random(seed), text.split()
    some = []
    for i, (n_words, n_tokens) in enumerate(zip(lengths(rng, n, words, shape), lengths(rng, n, tokens, shape))):
        at = rng.randrange(len(source) - n_words)
        content = f"{i + seed}. " + " ".join(source[at:at + n_words])
        some.append(([{"role": "user", "content": content}], n_tokens))
    return some


def body_of(chat, fields):
    messages, n_tokens = chat
    return {"messages": messages, "max_tokens": n_tokens, "temperature": 0, **fields}


def request_of(body):
    data = json.dumps(body).encode()
    return (f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n").encode() + data


def ask(port, path, body=None):
    """One answer's JSON; None while nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    try:
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise Failed(f"{path}: {answer.status} {text[:200]!r}")
        return json.loads(text) if path != "/metrics" else text.decode()
    except OSError:
        return None
    finally:
        connection.close()


# ---- the client -----------------------------------------------------------------------------------------------------------


class Visit:
    """A connection that has asked: what has come of its answer."""

    def __init__(self, port, selector, request, start_s):
        self.begin_s = time.perf_counter() - start_s
        self.s = socket.create_connection(("127.0.0.1", port))
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.s.setblocking(False)
        self.parts, self.start_s, self.first_s = [], start_s, None
        self.left, self.selector = request, selector
        selector.register(self.s, selectors.EVENT_WRITE, self)

    def go_on(self):
        """The time at which its answer was whole; None while it is not."""
        if self.left:
            self.left = self.left[self.s.send(self.left):]
            if not self.left:
                self.selector.modify(self.s, selectors.EVENT_READ, self)
            return None
        part = self.s.recv(1 << 18)
        now_s = time.perf_counter() - self.start_s
        if part:
            self.first_s = self.first_s or now_s
            self.parts.append(part)
            return None
        self.selector.unregister(self.s)
        self.s.close()
        return now_s


def drive(port, bodies, n_connections, nap_s=0, every_s=0, watch=None):
    """Ask all, n_connections at once, each as soon as one before it has been answered; [Answer], in the order of bodies.
    nap_s: time between two looks at what has come, so that several events are taken at once.  `watch` is called each every_s
    seconds, if given."""
    selector, requests = selectors.DefaultSelector(), [request_of(body) for body in bodies]
    start_s, next_s, n_begun, answers = time.perf_counter(), every_s, 0, [None] * len(bodies)
    numbers = {}
    while n_begun < len(requests) or numbers:
        while len(numbers) < n_connections and n_begun < len(requests):
            visit = Visit(port, selector, requests[n_begun], start_s)
            numbers[visit] = n_begun
            n_begun += 1
        for key, _ in selector.select(every_s or None):
            end_s = key.data.go_on()
            if end_s is not None:
                answers[numbers.pop(key.data)] = (key.data, end_s)
        if nap_s:
            time.sleep(nap_s)
        if watch and time.perf_counter() - start_s >= next_s:
            watch()
            next_s += every_s
    selector.close()
    return [read(visit, end_s) for visit, end_s in answers]


def unchunked(data):
    text, at = [], 0
    while True:
        end = data.index(b"\r\n", at)
        n = int(data[at:end], 16)
        if n == 0:
            return b"".join(text)
        text.append(data[end + 2:end + 2 + n])
        at = end + n + 4


def read(visit, end_s):
    """The Answer that a visit has brought."""
    data = b"".join(visit.parts)
    head, _, rest = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise Failed(f"not answered: {data[:300]!r}")
    if b"transfer-encoding: chunked" in head.lower():
        rest = unchunked(rest)
    if b"text/event-stream" in head.lower():
        events = [line[6:] for line in rest.decode().splitlines() if line.startswith("data: ")]
        if events[-1] != "[DONE]":
            raise Failed("a stream that does not end")
        last = json.loads(events[-2])
    else:
        last = json.loads(rest)
    usage, timings = last["usage"], last.get("timings")
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return Answer(visit.begin_s, visit.first_s, end_s, usage["prompt_tokens"], cached, usage["completion_tokens"],
                  timings and timings["prompt_ms"] + timings["predicted_ms"])
