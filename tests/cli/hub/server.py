# SPDX-License-Identifier: MIT
"""A hub for tests: server.py FOLDER.  Writes its ports to FOLDER/port (the hub's, and one that speaks TLS with
FOLDER/certificate.pem or 0) and serves FOLDER/files/USER/REPO/PATH as a hub does.

Two servers run: the hub, which lists files and redirects to a store, and the store, which has their bytes.  Each request
adds a line to FOLDER/requests: who (hub, store), path, Range, If-Range, Authorization, with - for what there is not.

What goes wrong is said in FOLDER/faults, a JSON object that is read at each request:

    status     {PATTERN: STATUS}   requests whose path has PATTERN are answered with it
    times      N                   so often, then no more (default: always)
    retry      SECONDS             Retry-After with those
    message    TEXT                X-Error-Message with those
    cut        N                   the store breaks off after N bytes; `times` counts these, too
    stall      N                   the store says nothing more after N bytes
    slow       SECONDS             the store waits so long after each 64 KiB
    no_range   true                the store sends everything
    bad_range  true                the store sends another part than was asked for
    chunked    true                without Content-Length
    extra      N                   N bytes more than listed, 0 or less: Content-Length says so, unless chunked
    size       {PATH: N}           the hub lists this size
    sha256     {PATH: TEXT}        the hub lists this hash
    rename     {PATH: TEXT}        the hub lists this name
    body       {PATTERN: TEXT}     the answer to requests whose path has PATTERN
    redirect   URL                 the hub redirects files there
    direct     true                the hub has the bytes itself
    pages      N                   the list comes in parts of N files
    commit     TEXT                main's commit
"""
import hashlib
import http.server
import json
import os
import ssl
import sys
import threading
import time
import urllib.parse

folder = sys.argv[1]
root = os.path.join(folder, "files")
guard = threading.Lock()
left = {}
ports = {}


def faults():
    """The faults now; a new text of them starts their counts."""
    with guard:
        text = open(os.path.join(folder, "faults")).read()
        if left.get("text") != text:
            left.clear()
            left["text"] = text
        return json.loads(text or "{}")


def strikes(f):
    """Whether a fault that is limited by `times` happens once more."""
    with guard:
        n = left.setdefault("times", f.get("times", 1 << 30))
        left["times"] = n - 1
        return n > 0


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def note(self):
        words = [self.who, self.path] + [self.headers.get(h, "-") for h in ("Range", "If-Range", "Authorization")]
        with guard, open(os.path.join(folder, "requests"), "a") as f:
            f.write(" ".join(w.replace(" ", "_") for w in words) + "\n")

    def say(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def say_json(self, value, **headers):
        self.say(200, json.dumps(value).encode(), **headers)

    def do_GET(self):
        self.note()
        f = faults()
        for pattern, status in f.get("status", {}).items():
            if pattern in self.path and strikes(f):
                headers = {"Retry_After": str(f["retry"])} if "retry" in f else {}
                if "message" in f:
                    headers["X_Error_Message"] = f["message"]
                return self.say(status, b"no", **headers)
        for pattern, text in f.get("body", {}).items():
            if pattern in self.path:
                return self.say(200, text.encode("utf-8", "surrogateescape"))
        self.answer(f)

    def send_file(self, f, path):
        data = open(path, "rb").read()
        etag = '"' + hashlib.sha256(data).hexdigest()[:16] + '"'
        first, last = 0, len(data)
        wanted = self.headers.get("Range")
        if wanted and not f.get("no_range") and self.headers.get("If-Range", etag) == etag:
            first = int(wanted[len("bytes="):].split("-")[0])
            if first >= last:
                return self.say(416)
            if f.get("bad_range"):
                first //= 2
        part = data[first:] + b"x" * max(0, f.get("extra", 0))
        if f.get("extra", 0) < 0:
            part = part[: f["extra"]]
        self.send_response(206 if first else 200)
        self.send_header("ETag", etag)
        if first:
            self.send_header("Content-Range", "bytes %d-%d/%d" % (first, last - 1, last))
        if f.get("chunked"):
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.send_body(f, part)

    def send_body(self, f, part):
        if "stall" in f and strikes(f):
            self.wfile.write(part[: f["stall"]])
            self.wfile.flush()
            time.sleep(5)
            self.close_connection = True
            return
        if "cut" in f and strikes(f):
            part = part[: f["cut"]]
            self.close_connection = True
        for at in range(0, len(part), 1 << 16):
            self.wfile.write(part[at : at + (1 << 16)])
            if "slow" in f:
                self.wfile.flush()
                time.sleep(f["slow"])
        self.close_connection = self.close_connection or bool(f.get("chunked"))


class Hub(Handler):
    who = "hub"

    def answer(self, f):
        url = urllib.parse.urlparse(self.path)
        words = urllib.parse.unquote(url.path).strip("/").split("/")
        repo = words[2:4] if words[:2] == ["api", "models"] else words[:2]
        here = os.path.join(root, *repo)
        if not os.path.isdir(here):
            return self.say(404, b"no")
        commit = f.get("commit", "c" * 40)
        if words[:2] == ["api", "models"] and words[4:] == ["revision", "main"]:
            return self.say_json({"id": "/".join(repo), "sha": commit})
        if words[:2] == ["api", "models"] and words[4:5] == ["tree"]:
            return self.list_files(f, here, urllib.parse.parse_qs(url.query))
        path = os.path.join(here, *words[4:])
        if words[2:4] != ["resolve", commit] or not os.path.isfile(path):
            return self.say(404, b"no")
        if f.get("direct"):
            return self.send_file(f, path)
        store = "http://127.0.0.1:%d/%s" % (ports["store"], urllib.parse.quote(os.path.relpath(path, root)))
        self.say(302, b"elsewhere", Location=f.get("redirect", store), X_Linked_Etag='"linked"')

    def list_files(self, f, here, query):
        entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "sub"}]
        for at, _, names in sorted(os.walk(here)):
            for name in sorted(names):
                path = os.path.relpath(os.path.join(at, name), here)
                data = open(os.path.join(at, name), "rb").read()
                size = f.get("size", {}).get(path, len(data))
                entry = {"type": "file", "oid": "1" * 40, "size": size, "path": f.get("rename", {}).get(path, path)}
                if name.endswith(".gguf"):
                    sha = f.get("sha256", {}).get(path, hashlib.sha256(data).hexdigest())
                    entry["lfs"] = {"oid": sha, "size": size, "pointerSize": 130}
                entries.append(entry)
        n, first = f.get("pages", len(entries)), int(query.get("cursor", ["0"])[0])
        more = {}
        if first + n < len(entries):
            url = "http://127.0.0.1:%d%s?recursive=true&cursor=%d" % (ports["hub"], self.path.split("?")[0], first + n)
            more["Link"] = '<%s>; rel="next"' % url
        self.say_json(entries[first : first + n], **more)


class Store(Handler):
    who = "store"

    def answer(self, f):
        path = os.path.join(root, urllib.parse.unquote(self.path.split("?")[0]).strip("/"))
        self.send_file(f, path) if os.path.isfile(path) else self.say(404, b"no")


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # a client that goes away is one of the tests


def start(name, handler, certificate=None):
    server = Server(("127.0.0.1", 0), handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    ports[name] = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()


start("hub", Hub)
start("store", Store)
certificate = os.path.join(folder, "certificate.pem")
if os.path.exists(certificate):
    start("tls", Hub, certificate)
with open(os.path.join(folder, "port.new"), "w") as out:
    out.write("%d %d\n" % (ports["hub"], ports.get("tls", 0)))
os.rename(os.path.join(folder, "port.new"), os.path.join(folder, "port"))
parent = os.getppid()
while os.getppid() == parent:  # the test may be killed
    time.sleep(0.2)
