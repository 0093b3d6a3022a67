# SPDX-License-Identifier: MIT
"""stranger.py PORT PID NAME...: clients that mean no good, or are odd, against the server with that process id."""
import select
import socket
import sys

port, pid = int(sys.argv[1]), int(sys.argv[2])


def connect():
    s = socket.create_connection(("127.0.0.1", port), timeout=30)
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


for name in sys.argv[3:]:
    globals()[name]()
