#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""replicas.py: several `pleat serve` on this machine, one store that they share, and a router in front.

    python3 deploy/replicas.py -m MODEL.gguf [--replicas 4] [--router sglang|vllm|none] [--store PLACE] [--port N]
                               [--pleat PATH] [-- OPTIONS OF pleat serve]

    clients ──> router ──> pleat serve, the first  ──┐
                  ^   └──> pleat serve, the second ──┴──> the store: a redis-server of its own, or --store
                  └─────────────── KV events ────────┘

    sglang   sglang-router 0.3.2, policy cache_aware: it remembers what it sent where
    vllm     vllm-router 0.1.17, policy kv_aware: it hears from the replicas what they keep
    none     only the replicas; their addresses are printed

Both come from PyPI, and are looked for in PATH.  Ctrl-C ends all.  Everything listens on 127.0.0.1.
docs/REPLICAS.md says more.
"""
import argparse
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
START_S = 120


class Failed(Exception):
    """Something did not start, in one line."""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Replica:
    """A server, where it is asked, and where it tells what it keeps."""

    def __init__(self, o, store):
        self.port, self.events, self.replay = free_port(), free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [o.pleat, "serve", "-m", o.model, "--alias", o.alias, "--port", str(self.port), "-q"]
        if store:
            command += ["--store", store]
        if o.router == "vllm":
            command += ["--events", self.endpoint(self.events), "--events-replay", self.endpoint(self.replay)]
        self.process = subprocess.Popen(command + o.rest)

    @staticmethod
    def endpoint(port):
        return f"tcp://127.0.0.1:{port}"


class Setup:
    """All of it; ends with the `with` that it stands in."""

    def __init__(self, o):
        self.o, self.replicas, self.others = o, [], []
        self.url = None  # of the router; None: there is none

    def __enter__(self):
        try:
            store = self.o.store if self.o.store is not None else self.start_redis()
            self.replicas = [Replica(self.o, store) for _ in range(self.o.replicas)]
            for r in self.replicas:
                await_health(r.url, r.process)
            if self.o.router != "none":
                self.start_router()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        everybody = self.others[::-1] + [r.process for r in self.replicas]
        for process in everybody:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in everybody:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, command, **how):
        if not shutil.which(command[0]):
            raise Failed(f"there is no {command[0]}")
        self.others.append(subprocess.Popen(command, **how))
        return self.others[-1]

    def start_redis(self):
        port = free_port()
        process = self.start(["redis-server", "--port", str(port), "--save", "", "--bind", "127.0.0.1", "--maxmemory",
                              self.o.redis_bytes, "--maxmemory-policy", "allkeys-lru"], stdout=subprocess.DEVNULL)
        end = time.monotonic() + START_S
        while process.poll() is None and time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return f"redis://127.0.0.1:{port}"
            except OSError:
                time.sleep(0.05)
        raise Failed("redis-server does not start")

    def start_router(self):
        port = self.o.port or free_port()
        urls = [r.url for r in self.replicas]
        common = ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port()), "--worker-urls", *urls,
                  "--health-check-interval-secs", "2", "--health-failure-threshold", "1", "--log-level", "error"]
        if self.o.router == "sglang":
            command = ["sglang-router", "launch", *common, "--policy", "cache_aware"]
        else:
            command = ["vllm-router", *common, "--policy", "kv_aware", "--kv-event-model", self.o.alias,
                       "--kv-event-block-size", "16"]
            for r in self.replicas:
                command += ["--kv-event-source", f"{r.url}={r.endpoint(r.events)}",
                            "--kv-event-replay-source", f"{r.url}={r.endpoint(r.replay)}"]
        self.url = f"http://127.0.0.1:{port}"
        await_health(self.url, self.start(command, stdout=sys.stderr))


def await_health(url, process):
    end = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < end:
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        time.sleep(0.1)
    raise Failed(f"nobody answers at {url}")


def options(words):
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="Behind -- stand options of pleat serve.")
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--replicas", type=int, default=4)
    p.add_argument("--router", choices=("sglang", "vllm", "none"), default="sglang")
    p.add_argument("--store", help="a folder or redis://..., '' for none (default: a redis-server is started)")
    p.add_argument("--redis-bytes", default="2gb", help="of that redis-server (default 2gb)")
    p.add_argument("--port", type=int, default=0, help="of the router; 0: any that is free")
    p.add_argument("--alias", default="model", help="the model's name for clients (default: model)")
    p.add_argument("--pleat", default=os.path.join(ROOT, "build", "pleat"))
    own, rest = (words[:words.index("--")], words[words.index("--") + 1:]) if "--" in words else (words, [])
    o = p.parse_args(own)
    o.rest = rest
    return o


def main():
    with Setup(options(sys.argv[1:])) as setup:
        for r in setup.replicas:
            print(f"replica {r.url}/v1")
        if setup.url:
            print(f"router  {setup.url}/v1", flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("ending", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        print(f"replicas.py: {error}", file=sys.stderr)
        sys.exit(1)
