# SPDX-License-Identifier: MIT
"""asking.py: a client of asyncio's streams, for tests that ask much at once: whole answers, and streams as they come.

    host = Host(port)                               on this machine
    status, answer = await host.ask(path, body)     body None: GET; else POST of it as JSON.  The answer's JSON, or its text
    stream = await host.stream(path, body)          its status and head are there
        async for event in stream                   dicts; ends behind [DONE].  Failed where the stream ends otherwise
        stream.close()                              leave, whatever is yet to come
    await host.metrics()                            {'name{labels}': number}, without the model's name
"""
import asyncio
import json
import re


class Failed(Exception):
    """What a server may not do."""


def head_of(method, path, n_body, extra=""):
    length = f"Content-Type: application/json\r\nContent-Length: {n_body}\r\n" if method == "POST" else ""
    return f"{method} {path} HTTP/1.1\r\nHost: a\r\n{length}{extra}\r\n".encode()


async def read_head(reader):
    """(status, {name: value}) of an answer."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines[1:] if line)
    return int(lines[0].split()[1]), {name.lower(): value for name, value in fields.items()}


async def chunks(reader):
    """The chunks of a body in HTTP/1.1's chunked form, up to its end."""
    while True:
        n = int(await reader.readuntil(b"\r\n"), 16)
        chunk = (await reader.readexactly(n + 2))[:n]
        if n == 0:
            return
        yield chunk


class Stream:
    def __init__(self, reader, writer, status):
        self.reader, self.writer, self.status, self.is_done = reader, writer, status, False

    async def __aiter__(self):
        async for chunk in chunks(self.reader):
            if self.is_done or not (chunk.startswith(b"data: ") and chunk.endswith(b"\n\n")):
                raise Failed(f"no event, or one behind the last: {chunk[:200]}")
            self.is_done = chunk == b"data: [DONE]\n\n"
            if not self.is_done:
                yield json.loads(chunk[6:])
        if not self.is_done:
            raise Failed("a stream ended without [DONE]")
        self.close()

    def close(self):
        self.writer.close()


class Host:
    def __init__(self, port):
        self.port = port

    async def open(self, **options):
        return await asyncio.open_connection("127.0.0.1", self.port, **options)

    async def begin(self, path, body):
        """Send a request; (reader, writer, status, head's fields)."""
        data = b"" if body is None else json.dumps(body).encode()
        reader, writer = await self.open()
        try:
            writer.write(head_of("GET" if body is None else "POST", path, len(data), "Connection: close\r\n") + data)
            return (reader, writer, *await read_head(reader))
        except BaseException:
            writer.close()
            raise

    async def ask(self, path, body=None):
        reader, writer, status, fields = await self.begin(path, body)
        try:
            text = await reader.readexactly(int(fields["content-length"]))
        finally:
            writer.close()
        return status, json.loads(text) if fields["content-type"] == "application/json" else text.decode()

    async def stream(self, path, body):
        """A stream; one that is refused has no events, and its status says why."""
        reader, writer, status, fields = await self.begin(path, {**body, "stream": True})
        if status == 200 and fields["content-type"] != "text/event-stream":
            raise Failed(f"no stream: {fields}")
        if status != 200:
            writer.close()
        return Stream(reader, writer, status)

    async def metrics(self):
        _, text = await self.ask("/metrics")
        pairs = re.findall(r'^(\w[\w:]*)\{model_name="[^"]*",?([^}]*)\} (\S+)$', text, re.M)
        return {name + (f"{{{labels}}}" if labels else ""): float(value) for name, labels, value in pairs}
