# SPDX-License-Identifier: MIT
"""stranger.py PORT PID NAME...: clients that mean no good, or are odd, against the server with that process id."""
import select
import socket
import sys
import time

port, pid = int(sys.argv[1]), int(sys.argv[2])


def connect(address="127.0.0.1"):
    s = socket.create_connection(("127.0.0.1", port), timeout=600, source_address=(address, 0))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    return s


def resident():
    """MiB of the server in memory."""
    line = next(line for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def pour(s, data, n_max):
    """Send data over and over, without reading, until the server takes no more; at most n_max bytes."""
    n = 0
    while n < n_max and select.select([], [s], [], 1)[1]:
        n += s.send(data)
    return n


def pipeline():
    """Who asks without end and never reads makes the server hold one answer, not all."""
    s, before = connect(), resident()
    pour(s, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 512, 8 << 20)
    assert resident() - before < 64, f"{before} MiB became {resident()}"


def answers():
    """What was sent ahead is answered in order, however much it is."""
    s, n = connect(), 2000
    s.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" * (n - 1))
    s.sendall(b"GET /version HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    got = b"".join(iter(lambda: s.recv(65536), b""))
    assert got.count(b"HTTP/1.1 200 ") == n and b'"version"' in got[-300:], got[-300:]


def ask(s, request):
    """Send; the answer up to its head's end, and what the server says of its body's length."""
    s.sendall(request)
    head = b""
    while b"\r\n\r\n" not in head:
        head += s.recv(1) or sys.exit(f"no answer to {request[:60]}: {head}")
    length = next(line for line in head.split(b"\r\n") if line.startswith(b"Content-Length: "))
    return head, int(length.split()[1])


def silent():
    """Who announces bodies and sends none takes nothing from others."""
    many = [connect() for _ in range(40)]
    for s in many:
        s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 8388608\r\n\r\n{")
    head, _ = ask(connect(), b'POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 15\r\n\r\n{"prompt": "a"}')
    assert head.startswith(b"HTTP/1.1 200 "), head


def hoard():
    """Who sends bodies that never end, and more of them than are taken, keeps nobody else away, and leaves nothing behind."""
    many, before = [connect() for _ in range(18)], resident()
    for s in many:
        try:
            s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 8388608\r\n\r\n" + bytes(8388607))
        except (BrokenPipeError, ConnectionResetError):
            pass  # the largest is refused
        head, _ = ask(connect(), b'POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 36\r\n\r\n{"prompt": "a few words of no harm"}')
        assert head.startswith(b"HTTP/1.1 200 "), head
    assert resident() - before < 200, f"{before} MiB became {resident()}"
    for s in many:
        s.close()
    end = time.monotonic() + 60
    while resident() - before > 32 and time.monotonic() < end:
        time.sleep(0.05)
    assert resident() - before <= 32, f"{before} MiB became {resident()} when all had left"


def siege():
    """Of 40 connections at most: who holds all, with nothing, half a head or half a body, keeps nobody else away.  The oldest
    goes for who comes, and nobody whose text is computed."""
    s, beginnings = begin_stream(), (b"", b"GET /health HTT", b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
    many = [connect() for _ in range(45)]
    for i, one in enumerate(many[6:]):
        one.sendall(beginnings[i % len(beginnings)])
    for _ in range(10):
        head, _ = ask(connect(), b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
    is_closed = [bool(select.select([one], [], [], 0)[0]) for one in many]
    assert 6 <= sum(is_closed) <= 16 and is_closed == sorted(is_closed, reverse=True), is_closed
    assert s.recv(65536), "the stream was cut off"


def early():
    """What is refused whatever its body says is refused before that has come."""
    for method, path, status in ((b"POST", b"/v2", b"404"), (b"POST", b"/health", b"405"), (b"PUT", b"/tokenize", b"405")):
        head, _ = ask(connect(), method + b" " + path + b" HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 " + status) and b"\r\nConnection: close\r\n" in head, head
        assert (b"\r\nAllow: " in head) == (status == b"405"), head


def heads():
    """HEAD has no body, and the connection goes on; so it does behind a 404, and in HTTP/1.0 where that is asked for."""
    s = connect()
    for i in range(3):
        head, n = ask(s, b"HEAD /health HTTP/1.1\r\nHost: a\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ") and n > 0, head
    head, n = ask(s, b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404 ") and len(s.recv(n)) == n, head
    for i in range(2):
        head, n = ask(s, b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert b"\r\nConnection: keep-alive\r\n" in head and len(s.recv(n)) == n, head


def large():
    """A request that has been taken keeps no body: of six, with a MiB of lists each, no more is left than of the first."""
    tail = b'"ignore_eos": true, "max_tokens": 2000, "prompt": "a", "x": [' + b"1," * (1 << 19) + b"1]}"
    many, first = [connect() for _ in range(6)], 0
    for s in many:
        body = b'{"stream": true, ' + tail
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert s.recv(12) == b"HTTP/1.1 200"
        first = first or resident()
    assert resident() - first < 50, f"{first} MiB became {resident()}"


def ask_stream(address="127.0.0.1"):
    """A connection on which a long text was asked for, and how the answer begins."""
    s = connect(address)
    body = b'{"prompt": "a", "stream": true, "ignore_eos": true, "max_tokens": 4000}'
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return s, s.recv(12)


def begin_stream():
    """A connection on which a long text has begun to come."""
    s, status = ask_stream()
    assert status == b"HTTP/1.1 200"
    return s


def greedy():
    """Of 32 places for texts: who asks for all, and more, keeps nobody away who has none."""
    many = [ask_stream("127.0.0.2") for _ in range(40)]
    assert [status for _, status in many] == [b"HTTP/1.1 200"] * 31 + [b"HTTP/1.1 429"] * 9, many
    one, status = ask_stream()
    assert status == b"HTTP/1.1 200", status
    _, status = ask_stream("127.0.0.3")
    assert status == b"HTTP/1.1 429", status
    one.close()
    while ask_stream("127.0.0.3")[1] != b"HTTP/1.1 200":
        pass


def ahead():
    """Who sends without end while its text is computed is closed: else it would not be seen to leave."""
    s = begin_stream()
    try:
        while True:
            s.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" * 1000)
    except (BrokenPipeError, ConnectionResetError):
        pass


def burst():
    """A reader that reads gets all of an answer that comes at once and is large."""
    prompt = ", ".join(["88"] * 120)
    body = b'{"prompt": [%s], "echo": true, "logprobs": 20, "max_tokens": 2, "stream": true}' % (
        b"[" + b"], [".join([prompt.encode()] * 64) + b"]")
    s = connect()
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    got = b"".join(iter(lambda: s.recv(1 << 20), b""))
    assert len(got) > 4 << 20 and got.endswith(b"0\r\n\r\n"), f"{len(got)} bytes, {got[-100:]}"


for name in sys.argv[3:]:
    globals()[name]()
