#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures what `pleat serve` takes beside its engine, and sets it beside other servers, with chats on loopback.

    python3 bench/serve/run.py WHAT --model FILE.gguf [--kv SPEC]... [--server NAME=COMMAND]... [--out FILE]

    throughput   the same requests through `pleat serve` and through `pleat bench serve`, which has no HTTP, JSON, events or
                 template: output tokens/s of both, in turn
    request      requests of few tokens, one after the other: what each takes beside the engine's own time
    peers        closed-loop chats: output tokens/s of `pleat serve` and of each --server, in turn
    fit          many chats at once from --pool-bytes, under each --kv: how many run at the same time

COMMAND starts any server of OpenAI's API: {model} and {port} in it are replaced, and it has to answer /v1/models.  Chats
are pieces of --text; lengths are log-normal.  The client is part of the machine: what it took of a core stands in the
table.  Medians over --reps.

Exit codes: 0 ok, 1 a measurement failed, 2 wrong usage, 130 interrupted.
"""
import argparse
import datetime
import json
import os
import re
import resource
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import traffic
from traffic import Failed

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
START_S = 300
NAP_S = 0.02 # of the client, where throughput is what counts: it sleeps as if it were elsewhere


# ---- servers ------------------------------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A process that answers; `with` starts it, waits for it, and ends it."""

    def __init__(self, name, argv):
        self.name, self.argv = name, argv

    def __enter__(self):
        self.port = free_port()
        argv = [word.replace("{port}", str(self.port)) for word in self.argv]
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(argv, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            if traffic.ask(self.port, "/v1/models"):
                return self
            time.sleep(0.1)
        self.__exit__()
        raise Failed(f"{self.name} does not answer: {self.words()}")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def words(self):
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines() or ["no word"]
        return lines[-1]

    def cpu_s(self):
        """(seconds of the process, of its first thread): of `pleat serve` that is the event loop.  None: no /proc."""
        try:
            return tuple(times_of(f"/proc/{self.process.pid}{path}/stat") for path in ("", f"/task/{self.process.pid}"))
        except OSError:
            return None


def times_of(path):
    with open(path, encoding="ascii", errors="replace") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pleat_serve(o, kv, running):
    pool = ["--pool-bytes", o.pool_bytes] if o.pool_bytes else []
    return Server(f"pleat serve, {kv}", [o.pleat, "serve", "-m", o.model, "--kv", kv, "--port", "{port}", "-np", str(running),
                                         "--queue", "2048", "-t", str(o.threads), "-c", str(o.context), *pool, "-q"])


def peer(o, text):
    name, _, command = text.partition("=")
    return Server(name, [word.replace("{model}", o.model) for word in shlex.split(command)])


# ---- measuring ----------------------------------------------------------------------------------------------------------


class Run:
    """Chats that were answered, and what that took."""

    def __init__(self, server, chats, n_connections, fields, nap_s=0, every_s=0, watch=None):
        before, mine = server.cpu_s(), client_s()
        bodies = [traffic.body_of(chat, fields) for chat in chats]
        self.answers = traffic.drive(server.port, bodies, n_connections, nap_s, every_s, watch)
        self.seconds = max(a.end_s for a in self.answers)
        self.n_output = sum(a.n_output for a in self.answers)
        self.speed = self.n_output / self.seconds
        self.client = (client_s() - mine) / self.seconds
        after = server.cpu_s()
        self.loop = (after[1] - before[1]) / self.seconds if before else None
        self.loop_ms = (after[1] - before[1]) * 1e3 / len(chats) if before else None


def client_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def chats_of(o, n, seed):
    with open(o.text, encoding="utf-8") as f:
        return traffic.chats(f.read(), n, o.words, o.tokens, o.shape, seed)


def write_trace(path, answers):
    """What was answered, as `pleat bench serve` reads it: the same lengths, in the same order, all at once."""
    with open(path, "w", encoding="ascii") as f:
        for a in answers:
            f.write(json.dumps({"arrival": 0, "prompt_tokens": a.n_prompt, "output_tokens": a.n_output}) + "\n")


def replay(o, kv, answers, running):
    """Output tokens/s of `pleat bench serve` on the same lengths."""
    with tempfile.TemporaryDirectory() as folder:
        trace, out = os.path.join(folder, "trace"), os.path.join(folder, "out")
        write_trace(trace, answers)
        argv = [o.pleat, "bench", "serve", "-m", o.model, "--kv", kv, "--trace", trace, "--rate", "inf", "--max-running",
                str(running), "--pool-bytes", o.pool_bytes, "-t", str(o.threads), "-c", str(o.context), "-q", "--format",
                "json", "-o", out]
        done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8", check=False)
        if done.returncode:
            raise Failed(f"pleat bench serve: {done.stderr.strip()}")
        with open(out, encoding="utf-8") as f:
            row = json.load(f)["rows"][0]
    if row["completed"] != len(answers):
        raise Failed(f"pleat bench serve completed {row['completed']} of {len(answers)}")
    return row["output_throughput"]


# ---- what is measured -----------------------------------------------------------------------------------------------------


def throughput(o):
    rows = []
    for n, streams in [(n, streams) for n in o.connections for streams in o.streams]:
        fields = {"ignore_eos": True, "stream": streams, **({"stream_options": {"include_usage": True}} if streams else {})}
        for kv in o.kv:
            runs, alone = [], []
            for rep in range(o.reps):
                with pleat_serve(o, kv, o.running) as server:
                    runs.append(Run(server, chats_of(o, n, rep), n, fields, NAP_S))
                alone.append(replay(o, kv, runs[-1].answers, o.running))
                say(o, f"{n} connections, {kv}: {runs[-1].speed:.1f} of {alone[-1]:.1f} tokens/s")
            ratio = statistics.median(run.speed / speed for run, speed in zip(runs, alone))
            rows.append({"connections": n, "kv": kv, "answers": "streams" if streams else "whole",
                         "tokens": runs[0].n_output, "prompt_tokens": sum(a.n_prompt for a in runs[0].answers),
                         "cached": sum(a.n_cached for r in runs for a in r.answers),
                         "serve": statistics.median(r.speed for r in runs), "bench": statistics.median(alone),
                         "overhead_percent": 100 * (1 - ratio), "loop": median_or_none(r.loop for r in runs),
                         "loop_ms": median_or_none(r.loop_ms for r in runs),
                         "client": statistics.median(r.client for r in runs)})
    return rows


def median_or_none(values):
    values = list(values)
    return None if None in values else statistics.median(values)


def request(o):
    """Beside the engine's time: from the first byte sent to the last that came, less what the server says it computed."""
    rows = []
    for kv in o.kv:
        with pleat_serve(o, kv, o.running) as server:
            runs = [Run(server, chats_of(o, o.requests, rep), 1, {"ignore_eos": True}) for rep in range(o.reps)]
        beside = [1e3 * (a.end_s - a.begin_s) - a.engine_ms for run in runs for a in run.answers]
        whole = [1e3 * (a.end_s - a.begin_s) for run in runs for a in run.answers]
        rows.append({"kv": kv, "requests": len(beside), "median_ms": statistics.median(beside),
                     "p90_ms": statistics.quantiles(beside, n=10)[-1], "whole_ms": statistics.median(whole),
                     "loop_ms": median_or_none(r.loop_ms for r in runs)})
    return rows


def peers(o):
    """Closed loop: each of --connections has a chat, and asks the next when it is answered."""
    n = o.connections[0]
    servers = [pleat_serve(o, kv, o.running) for kv in o.kv] + [peer(o, text) for text in o.server]
    runs = {server.name: [] for server in servers}
    for rep in range(o.reps):
        for server in servers:
            with server:
                Run(server, chats_of(o, 1, 1000 + rep), 1, {})
                runs[server.name].append(Run(server, chats_of(o, o.requests, rep), n, {}))
            say(o, f"{server.name}: {runs[server.name][-1].speed:.1f} tokens/s")
    best = {name: statistics.median(run.speed for run in some) for name, some in runs.items()}
    return [{"server": name, "chats": n, "requests": o.requests,
             "tokens": statistics.median(r.n_output for r in some), "speed": best[name],
             "first_ms": statistics.median(1e3 * (a.first_s - a.begin_s) for r in some for a in r.answers),
             "whole_ms": statistics.median(1e3 * (a.end_s - a.begin_s) for r in some for a in r.answers),
             **{f"times {other.partition('=')[0]}": best[name] / best[other.partition("=")[0]] for other in o.server}}
            for name, some in runs.items()]


def fit(o):
    """How many run at once, from equal bytes."""
    rows = []
    for kv in o.kv:
        with pleat_serve(o, kv, o.connections[0]) as server:
            running = []

            def watch(port=server.port, seen=running):
                text = traffic.ask(port, "/metrics")
                seen.append({name: float(re.search(rf"^vllm:num_{name}\S* (\S+)$", text, re.M).group(1))
                             for name in ("requests_running", "requests_waiting", "preemptions_total")})

            chats = chats_of(o, o.connections[0], 1)
            run = Run(server, chats, len(chats), {"ignore_eos": True}, NAP_S, 0.1, watch)
        full = [seen["requests_running"] for seen in running if seen["requests_waiting"]]
        rows.append({"kv": kv, "pool": o.pool_bytes, "chats": len(chats), "at_once_most": max(full or [0]),
                     "at_once_mean": statistics.fmean(full) if full else None, "speed": run.speed,
                     "preempted": running[-1]["preemptions_total"]})
        rows[-1]["times_first"] = rows[-1]["at_once_mean"] / rows[0]["at_once_mean"] if full else None
    return rows


# ---- the page -----------------------------------------------------------------------------------------------------------


def words_of(value):
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if value >= 1000 or value == int(value) else f"{value:.2f}"


def machine():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    except OSError:
        names = []
    return f"{names[0] if names else 'unknown CPU'}, {len(os.sched_getaffinity(0))} cores"


def page(o, rows):
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = [f"`{o.what}`, `{os.path.basename(o.model)}`, threads {o.threads}, {o.reps} repetitions, chats of "
            f"{o.words} words and {o.tokens} tokens (shape {o.shape:g}); {machine()}; {datetime.date.today()}.", "",
            "| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    text += ["| " + " | ".join(words_of(row.get(name)) for name in names) + " |" for row in rows]
    return "\n".join(text) + "\n"


def say(o, text):
    if not o.quiet:
        print(text, file=sys.stderr, flush=True)


def parse_options(argv):
    lines = __doc__.split("\n", 1)
    parser = argparse.ArgumentParser(description=lines[0], epilog=lines[1],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("throughput", "request", "peers", "fit"))
    parser.add_argument("--model", required=True, help="GGUF that all serve")
    parser.add_argument("--pleat", default=os.path.join(ROOT, "build", "pleat"), help="default: build/pleat")
    parser.add_argument("--kv", action="append", help="KV specs, each measured (default k8v4)")
    parser.add_argument("--server", action="append", default=[], metavar="NAME=COMMAND", help="another server, for peers")
    parser.add_argument("--connections", default="64", help="connections at once, as 64,512 (default 64)")
    parser.add_argument("--requests", type=int, default=64, help="of request and peers (default 64)")
    parser.add_argument("--running", type=int, default=16, help="texts in one step, pleat's -np (default 16)")
    parser.add_argument("--streams", default="1,0", help="answers as events (1), whole (0): default 1,0")
    parser.add_argument("--words", type=int, default=110, help="of a prompt, mean (default 110: some 150 tokens)")
    parser.add_argument("--tokens", type=int, default=100, help="of an answer, mean (default 100)")
    parser.add_argument("--shape", type=float, default=0.6, help="deviation of the lengths' logarithms (default 0.6)")
    parser.add_argument("--context", type=int, default=2048, help="of each text (default 2048)")
    parser.add_argument("--pool-bytes", default="512MiB", help="of pleat's KV (default 512MiB)")
    parser.add_argument("--text", default=os.path.join(ROOT, "eval", "prose.txt"), help="what chats are made of")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of pleat (default: all cores)")
    parser.add_argument("--reps", type=int, default=3, help="repetitions (default 3)")
    parser.add_argument("--out", metavar="FILE", help="write the table to FILE, too")
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    o = parser.parse_args(argv)
    o.kv = o.kv or ["k8v4"]
    o.connections = [int(n) for n in o.connections.split(",")]
    o.streams = [word == "1" for word in o.streams.split(",")]
    for text in o.server:
        if "{port}" not in text or "=" not in text:
            parser.error(f"--server '{text}': NAME=COMMAND, with {{port}} in it")
    return o


def main(argv):
    o = parse_options(argv)
    try:
        rows = {"throughput": throughput, "request": request, "peers": peers, "fit": fit}[o.what](o)
    except Failed as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 1
    text = page(o, rows)
    print(text, end="")
    for path, what in ((o.out, text), (o.json, json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")):
        if path:
            with open(path, "w", encoding="utf-8") as f:
                f.write(what)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
