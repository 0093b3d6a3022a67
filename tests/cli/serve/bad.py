# SPDX-License-Identifier: MIT
"""bad.py: clients that mean no good, or are odd.  WAYS: {name: function of (host, rng, spec)}, each one such client's visit.

They speak through bare sockets, so that nobody reads for them, and from an address of their own.  Failed: the server did
what it may not.
"""
import asyncio
import json
import socket
import struct

from asking import Failed, head_of

HELD_S = 40  # a visit is over after so long, whatever the server does


class Line:
    """A connection whose reader takes as little as can be."""

    def __init__(self, host, n_buffer=4096):
        self.loop, self.address = asyncio.get_running_loop(), ("127.0.0.1", host.port)
        self.s = socket.socket()
        self.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, n_buffer)
        self.s.bind(("127.0.0.2", 0))
        self.s.setblocking(False)

    async def __aenter__(self):
        await self.loop.sock_connect(self.s, self.address)
        return self

    async def __aexit__(self, *_):
        self.s.close()

    async def send(self, data):
        """False: the server has closed the connection."""
        try:
            async with asyncio.timeout(HELD_S):
                await self.loop.sock_sendall(self.s, data)
            return True
        except (ConnectionError, TimeoutError):
            return False

    async def receive(self, n=65536):
        """b"": closed, or nothing has come for a visit's time."""
        try:
            async with asyncio.timeout(HELD_S):
                return await self.loop.sock_recv(self.s, n)
        except (ConnectionError, TimeoutError):
            return b""

    async def until_closed(self):
        """What the server says until it closes; b"" where the visit's time is over before."""
        said = b""
        try:
            async with asyncio.timeout(HELD_S):
                while some := await self.receive():
                    said = (said + some)[:1 << 16]
        except TimeoutError:
            pass
        return said

    def reset(self):
        """The connection ends as if a cable had been cut, as far as that can be."""
        self.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def post(path, body, extra=""):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return head_of("POST", path, len(data), extra) + data


def text_body(rng, spec, **fields):
    """A request for much, behind a prompt of its own."""
    prompt = " ".join(f"word {rng.randrange(1000)}" for _ in range(rng.randrange(5, 150)))
    return {"prompt": prompt, "kv": spec, "max_tokens": 120, "ignore_eos": True, "stream": True, **fields}


def refused(said, *statuses):
    """Nothing but a refusal, if anything; 429 and 503: there is too much of all."""
    if said and not any(said.startswith(b"HTTP/1.1 %d " % status) for status in (*statuses, 429, 503)):
        raise Failed(f"not one of {statuses}: {said[:200]}")


# ---- who leaves ---------------------------------------------------------------------------------------------------------


async def vanish(host, rng, spec):
    async with Line(host) as line:
        await line.send(post("/v1/completions", text_body(rng, spec, stream=rng.random() < 0.7)))
        for _ in range(rng.randrange(3)):
            await line.receive(512)
        await asyncio.sleep(rng.random())
        if rng.random() < 0.5:
            line.reset()


async def many(host, rng, spec):
    """Several texts of a prompt, and the one who wants them leaves."""
    async with Line(host) as line:
        await line.send(post("/v1/completions", text_body(rng, spec, n=rng.randrange(2, 5))))
        await line.receive(2048)
        await asyncio.sleep(rng.random())


async def half_head(host, rng, spec):
    async with Line(host) as line:
        request = post("/v1/completions", text_body(rng, spec))
        await line.send(request[:rng.randrange(1, request.index(b"\r\n\r\n"))])
        refused(await line.until_closed(), 400)


async def half_body(host, rng, spec):
    """A large body that never ends."""
    async with Line(host) as line:
        n = (8 << 20) - 1
        await line.send(head_of("POST", "/v1/completions", n) + b" " * rng.randrange(n))
        refused(await line.until_closed())


# ---- who does not read ------------------------------------------------------------------------------------------------------


async def stall(host, rng, spec):
    async with Line(host) as line:
        body = text_body(rng, spec, logprobs=20, max_tokens=700, prompt="The sea")
        if await line.send(post("/v1/completions", body)):
            await asyncio.sleep(rng.randrange(HELD_S))


async def slow(host, rng, spec):
    async with Line(host) as line:
        await line.send(post("/v1/completions", text_body(rng, spec, logprobs=5), "Connection: close\r\n"))
        for _ in range(2 * HELD_S):
            if not await line.receive(1024):
                break
            await asyncio.sleep(0.5)


async def pipeline(host, rng, _):
    async with Line(host) as line:
        try:
            async with asyncio.timeout(rng.randrange(1, 10)):
                await line.send(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 4000)
        except TimeoutError:
            pass


async def ahead(host, rng, spec):
    """Asks on, and on, while its text is computed."""
    async with Line(host) as line:
        await line.send(post("/v1/completions", text_body(rng, spec)))
        while await line.send(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" * 100):
            await asyncio.sleep(0.1)


async def echo(host, rng, spec):
    """Much to say at once, and who asked takes a little of it."""
    async with Line(host) as line:
        ids = [rng.randrange(300, 3000) for _ in range(400)]
        await line.send(post("/v1/completions", text_body(rng, spec, prompt=ids, echo=True, logprobs=20, max_tokens=2)))
        await line.receive(1024)
        await asyncio.sleep(rng.randrange(5))


# ---- what cannot be read ------------------------------------------------------------------------------------------------------


async def huge(host, rng, _):
    """100 MB, of which the server should not read much."""
    async with Line(host) as line:
        await line.send(head_of("POST", "/v1/completions", 100_000_000))
        block = bytes(1 << 20)
        for _ in range(95):
            if not await line.send(block):
                return
        refused(await line.until_closed(), 413)


async def utf8(host, rng, spec):
    async with Line(host) as line:
        bytes_of = bytes(rng.randrange(128, 256) for _ in range(rng.randrange(1, 100)))
        body = post("/v1/completions", b'{"prompt": "' + bytes_of + b'\xff", "kv": "' + spec.encode() + b'"}',
                    "Connection: close\r\n")
        await line.send(body)
        refused(await line.until_closed(), 400)


async def deep(host, rng, _):
    async with Line(host) as line:
        n = rng.choice((3000, 60000, 1000000))
        body = rng.choice((b'{"prompt": ' + b"[" * n, b'{"a":' * n, b"[" * n + b"]" * n))
        await line.send(post("/v1/completions", body, "Connection: close\r\n"))
        refused(await line.until_closed(), 400)


async def lists(host, rng, spec):
    """As many lists as are taken, and a long text then."""
    async with Line(host) as line:
        body = {**text_body(rng, spec, n=1), "x": [[]] * rng.randrange(60000)}
        await line.send(post("/v1/completions", body))
        await line.receive(1024)


async def noise(host, rng, _):
    async with Line(host) as line:
        begin = rng.choice((b"", b"GET / HTTP/1.1\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: 5\r\n", b"\r\n"))
        await line.send(begin + rng.randbytes(rng.randrange(1, 40000)) + b"\r\n\r\n")
        refused(await line.until_closed(), 400, 431, 414, 505, 405, 404)


async def long(host, rng, spec):
    """A prompt beyond the context."""
    status, _ = await host.ask("/v1/completions", {"prompt": "long " * 20000, "kv": spec})
    if status not in (400, 429, 503):
        raise Failed(f"{status} of a prompt beyond the context")


WAYS = {way.__name__: way for way in (vanish, many, half_head, half_body, stall, slow, pipeline, ahead, echo, huge, utf8, deep,
                                      lists, noise, long)}
