# SPDX-License-Identifier: MIT
"""events.py: KV events as a router reads them, with nothing but what Python has: ZMTP 3 sockets, msgpack, and the blocks that a server keeps.

    events.py watch PUB ROUTER URL     ask URL, hold what is told against what was asked; replay; odd requests
    events.py last PUB                 wait until everything is cleared, as a server does when it ends
"""
import json
import os
import random
import socket
import struct
import sys
import urllib.request

try:
    import msgpack  # where it is there, both have to read the same
except ImportError:
    msgpack = None

BLOCK = 16


def unpack(b, at=0):
    """The value that begins at b[at], and where it ends: of msgpack what is used."""
    t = b[at]
    at += 1
    if t < 0x80:
        return t, at
    if t < 0x90:
        return unpack_map(b, at, t & 15)
    if t < 0xA0:
        return unpack_list(b, at, t & 15)
    if t < 0xC0:
        return b[at : at + (t & 31)].decode(), at + (t & 31)
    fixed = {0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
    if t in fixed:
        return struct.unpack_from(fixed[t], b, at)[0], at + struct.calcsize(fixed[t])
    if t == 0xC0:
        return None, at
    if t in (0xD9, 0xDA):
        n = struct.unpack_from(">B" if t == 0xD9 else ">H", b, at)[0]
        at += 1 if t == 0xD9 else 2
        return b[at : at + n].decode(), at + n
    assert t in (0xDC, 0xDD), hex(t)
    n = struct.unpack_from(">H" if t == 0xDC else ">I", b, at)[0]
    return unpack_list(b, at + (2 if t == 0xDC else 4), n)


def unpack_list(b, at, n):
    out = []
    for _ in range(n):
        value, at = unpack(b, at)
        out.append(value)
    return out, at


def unpack_map(b, at, n):
    flat, at = unpack_list(b, at, 2 * n)
    return dict(zip(flat[::2], flat[1::2])), at


class Zmtp:
    """A socket of ZeroMQ's protocol, version 3, without security."""

    def __init__(self, endpoint, kind, identity=b""):
        host, port = endpoint.removeprefix("tcp://").rsplit(":", 1)
        self.s = socket.create_connection((host, int(port)), timeout=60)
        self.s.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + b"\x00" + bytes(31))
        assert self.take(64)[10] == 3
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
        ready += b"\x08Identity" + struct.pack(">I", len(identity)) + identity
        self.s.sendall(bytes([6]) + struct.pack(">Q", len(ready)) + ready)
        assert self.frame()[0] & 4

    def take(self, n):
        b = b""
        while len(b) < n:
            part = self.s.recv(n - len(b))
            if not part:
                raise EOFError
            b += part
        return b

    def frame(self):
        flags = self.take(1)[0]
        n = struct.unpack(">Q", self.take(8))[0] if flags & 2 else self.take(1)[0]
        return flags, self.take(n)

    def receive(self):
        parts = []
        while True:
            flags, part = self.frame()
            if flags & 4:
                continue
            parts.append(part)
            if not flags & 1:
                return parts

    def send(self, parts):
        for i, part in enumerate(parts):
            more = i + 1 < len(parts)
            head = bytes([more | 2]) + struct.pack(">Q", len(part)) if len(part) > 255 else bytes([more, len(part)])
            self.s.sendall(head + part)


def subscribe(endpoint):
    sub = Zmtp(endpoint, b"SUB")
    sub.send([b"\x01"])
    return sub


def ask_replay(endpoint, start, identity=b""):
    """(number, batch) of all from start on."""
    dealer = Zmtp(endpoint, b"DEALER", identity)
    dealer.send([b"", struct.pack(">Q", start)])
    out = []
    while True:
        empty, topic, seq, batch = dealer.receive()
        assert empty == b"", empty
        if seq == b"\xff" * 8:
            assert topic == b"" and batch == b"", (topic, batch)
            return out
        assert topic == b"kv", topic
        out.append((struct.unpack(">q", seq)[0], batch))


class Kept:
    """What a router would know: chains of blocks by hash."""

    def __init__(self):
        self.blocks = {}  # hash: (hash before, tokens, salt of those that begin)

    def apply(self, batch):
        value, end = unpack(batch)
        assert end == len(batch)
        assert msgpack is None or msgpack.unpackb(batch) == value
        ts, events, rank = value
        assert ts > 1.7e9 and rank == 0 and len(events) == 1, value
        e = events[0]
        kind = e.pop("type")
        if kind == "AllBlocksCleared":
            assert not e, e
            self.blocks.clear()
        elif kind == "BlockRemoved":
            assert set(e) == {"block_hashes", "medium"} and e["medium"] == "GPU", e
            for h in e["block_hashes"]:
                del self.blocks[h]  # it was told, and once
        else:
            self.store(kind, e)
        return kind

    def store(self, kind, e):
        needed = {"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"}
        assert kind == "BlockStored" and needed <= set(e) <= needed | {"extra_keys"}, (kind, e)
        assert e["block_size"] == BLOCK and len(e["token_ids"]) == BLOCK * len(e["block_hashes"]) > 0, e
        before = e["parent_block_hash"]
        assert before is None or before in self.blocks, e
        extra = e.get("extra_keys", [None] * len(e["block_hashes"]))
        assert len(extra) == len(e["block_hashes"]) and extra[1:] == [None] * (len(extra) - 1), extra
        for i, h in enumerate(e["block_hashes"]):
            assert h not in self.blocks, h
            self.blocks[h] = (before, e["token_ids"][BLOCK * i : BLOCK * (i + 1)], extra[i])
            before = h

    def prefixes(self):
        """The salt and the tokens of each chain that no other goes on from."""
        inner = {before for before, _, _ in self.blocks.values()}
        out = []
        for h in self.blocks.keys() - inner:
            tokens = []
            while h is not None:
                h, own, extra = self.blocks[h]
                tokens = own + tokens
            out.append((extra[0] if extra else "", tokens))
        return sorted(out)


def complete(url, tokens, salt=""):
    body = {"prompt": tokens, "max_tokens": 1, "temperature": 0, "cache_salt": salt, "ignore_eos": True}
    ask = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(ask, timeout=600))["usage"]["prompt_tokens_details"]["cached_tokens"]


def is_cut_off(endpoint, kind, *parts):
    """Whether who sends this loses its connection."""
    who = Zmtp(endpoint, kind)
    try:
        who.send(parts)
        who.s.settimeout(30)
        return who.s.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def odd_requests(endpoint):
    for parts in ([b""], [b"", b""], [b"", b"1234567"], [b"", b"123456789"], [b"x", b"12345678"], [b"12345678"],
                  [b""] * 40, [b"", b"12345678", b""]):
        Zmtp(endpoint, b"DEALER").send(parts)
    for junk in (b"", b"\x00" * 200, b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, os.urandom(500)):
        with socket.create_connection(endpoint.removeprefix("tcp://").rsplit(":", 1), timeout=60) as s:
            s.sendall(junk)
    assert is_cut_off(endpoint, b"DEALER", b"", b"x" * 100000)
    assert ask_replay(endpoint, 1 << 63) == [] and ask_replay(endpoint, (1 << 64) - 1) == []


def watch(pub, router, url):
    rng = random.Random(1)
    sub = subscribe(pub)
    first = [rng.randrange(1000, 4000) for _ in range(600)]
    second = first[:530] + [rng.randrange(1000, 4000) for _ in range(600)]
    complete(url, first)
    complete(url, second)
    complete(url, first, "another's")
    kept, seen = Kept(), ask_replay(router, 0)
    assert [seq for seq, _ in seen] == list(range(len(seen))) and len(seen) >= 4, seen
    for seq, batch in seen:
        assert (kept.apply(batch) == "AllBlocksCleared") == (seq == 0)
    assert kept.prefixes() == [("", second[:1024]), ("\nanother's", first[:512])], [len(p[1]) for p in kept.prefixes()]

    # What is in the pool goes as others come, and each change is told: what is known is always what is kept.
    for i in range(5):
        complete(url, [i] + [rng.randrange(1000, 4000) for _ in range(1100)])
    live = dict(seen)
    while len(live) < len(ask_replay(router, 0)):
        topic, seq, batch = sub.receive()
        seq = struct.unpack(">q", seq)[0]
        assert topic == b"kv" and live.setdefault(seq, batch) == batch, seq
    # A gap: batches that were missed are asked for by their number.
    gap = ask_replay(router, len(seen))
    assert gap == sorted(live.items())[len(seen) :]
    kinds = [kept.apply(batch) for _, batch in gap]
    assert "BlockRemoved" in kinds and "BlockStored" in kinds, kinds
    for salt, tokens in kept.prefixes():
        assert complete(url, tokens + [5], salt.removeprefix("\n")) == len(tokens), (salt, len(tokens))
    odd_requests(router)
    assert ask_replay(router, len(seen), b"a router's own name " * 12) == gap
    assert is_cut_off(pub, b"SUB", b"\x01" + b"topic" * 20000)  # the memory of a subscription is the server's
    print(f"{len(live)} batches, {kinds.count('BlockRemoved')} of blocks that went")


def last(pub):
    sub = subscribe(pub)
    print("here", flush=True)
    while unpack(sub.receive()[2])[0][1][0]["type"] != "AllBlocksCleared":
        pass
    print("cleared")


if __name__ == "__main__":
    {"watch": watch, "last": last}[sys.argv[1]](*sys.argv[2:])
