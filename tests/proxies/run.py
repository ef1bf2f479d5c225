"""Runs real proxies with the files of this folder before one app: tests/proxies.sh.

Who is the client is asked from 127.0.0.2, 127.0.0.3 and ::1, each time with made-up addresses; the
app trusts 127.0.0.1, from where the proxy comes. Prints a table, and writes docs/evidence/proxies.md.
"""

import http.client
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

FOLDER = pathlib.Path(__file__).parent
ROOT = FOLDER.parent.parent
APP = ROOT / "target/debug/examples/proxied"
MB = 1_000_000

# Name, file, program, how it tells its version, how it is started; the field that it writes.
PROXIES = [
    *[(name, "nginx.conf", "nginx -v", "nginx -c {file} -e {folder}/log -g daemon\\ off;pid\\ {folder}/pid;")
      for name in ("nginx", "nginx, two servers")],
    ("HAProxy", "haproxy.cfg", "haproxy -v", "haproxy -db -f {file}"),
    ("Caddy", "Caddyfile", "caddy version", "caddy run --adapter caddyfile --config {file}"),
    ("Traefik", "traefik.yaml", "traefik version", "traefik --configFile={file}"),
    ("Apache", "apache.conf", "apache2 -v",
     "apache2 -D FOREGROUND -f {file} -c PidFile\\ {folder}/pid -c ErrorLog\\ {folder}/log"),
    ("Varnish", "varnish.vcl", "varnishd -V",
     "varnishd -F -f {file} -n {folder}/work -a 127.0.0.1:{port} -a [::1]:{port}"),
    ("lighttpd", "lighttpd.conf", "lighttpd -v", "lighttpd -D -f {file}"),
    ("lighttpd, `forwarded`", "lighttpd.conf", "lighttpd -v", "lighttpd -D -f {file}"),
    ("Squid", "squid.conf", "squid -v", "squid -N -f {file}"),
    ("Envoy", "envoy.yaml", "envoy --version", "envoy -c {file} --concurrency 2 -l error"),
    ("nghttpx", "nghttpx.conf", "nghttpx --version", "nghttpx --conf={file}"),
    ("h2o", "h2o.conf", "h2o --version", "h2o -c {file}"),
    ("http-proxy", "http-proxy.js", "node -p require('http-proxy/package.json').version", "node {file}"),
]
# Those that write no address, and what of their files is left out for that.
SILENT = [
    ("nghttpx, by default", *PROXIES[-3][1:], "add-x-forwarded-for=yes"),
    ("http-proxy, by default", *PROXIES[-1][1:], ", xfwd: true"),
    ("mitmproxy", "none", "mitmdump --version",
     "mitmdump -q --set confdir={folder} --mode reverse:http://127.0.0.1:{app} --listen-host 127.0.0.1 -p {port}", ""),
]
# Squid writes into folders of root.
EXTRA = {"squid.conf": "pid_filename none\naccess_log none\ncache_log {folder}/log\ncoredump_dir {folder}\n"}
COLUMNS = ["proxy", "IPv4", "IPv6", "`Host`", "503, fields", "its cache", "fast uploads", "slow", "others"]
# Megabytes; whether in chunks.
UPLOADS = [(1, False), (20, False), (20, True), (40, False)]
PAGE = """# Proxies: who is the client, and uploads that are denied

`bash tests/proxies.sh` runs each proxy with its file of `tests/proxies/` before one app, and writes
this page. [proxies.md](../proxies.md) says what follows from it.

- *IPv4, IPv6*: ten requests to log in with made-up addresses in `X-Forwarded-For`, also twice and
  empty, `X-Real-IP` and `Forwarded`: right if the first five are admitted, another client too, and the
  app sees the client's address. Envoy tells a client on its own machine by another address of that.
- *Host*: whether the app gets the client's, also over HTTP/2 if the file speaks it without TLS.
  *503, fields*: whether ours, and all fields of a 429, arrive as sent. *Its cache*: whether it answers a GET itself.
- *Fast uploads*: five each of 1, 20 and 40 MB with a `Content-Length`, and of 20 MB in chunks, all
  sent before the answer is read. *Slow*: two of 3 MB in 4 s.
- *Others*: what another client lost of its requests meanwhile and soon after.
- The last proxies write no address: whether others are denied with one client, and when a warning
  names the field.
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(clients, process):
    """Waits until the app answers."""
    for _ in range(300):
        if process.poll() is not None:
            raise RuntimeError(f"it ended with {process.returncode}")
        try:
            if clients.ask("GET", "/who")[0] == 200:
                return
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(0.1)
    raise RuntimeError("the app cannot be reached")


class Clients:
    def __init__(self, port):
        self.port = port

    def ask(self, method, path, source="127.0.0.2", fields=(), body=None):
        """The status, the fields and the body of an answer."""
        to = "::1" if ":" in source else "127.0.0.1"
        connection = http.client.HTTPConnection(to, self.port, 10, source_address=(source, 0))
        connection.putrequest(method, path, skip_host=True)
        for name, value in [("Host", "api.example.com"), *fields]:
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body or b"")))
        connection.endheaders(body)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, answer.headers, text

    def lying(self, source, number):
        """A request to log in, with addresses that the client made up."""
        lie = f"198.51.100.{number}"
        fields = [("X-Forwarded-For", lie), ("X-Real-IP", lie), ("Forwarded", f"for={lie}")]
        if number == 9:
            fields = [("X-Forwarded-For", ""), ("X-Forwarded-For", lie)]
        if number == 10:
            fields = [("X-Forwarded-For", "")]
        return self.ask("POST", "/login", source, fields)[0]

    def identity(self, source, other):
        """Whether the app sees this client, and five of its ten requests are admitted."""
        statuses = [self.lying(source, number) for number in range(1, 11)]
        seen = self.ask("POST", "/who", source, [("X-Forwarded-For", "198.51.100.1")])[2].split(" ")[0]
        is_right = statuses == [200] * 5 + [429] * 5
        if other:
            is_right = is_right and self.lying(other, 1) == 200
        if is_right and seen == source:
            return "right"
        return f"{'right' if is_right else f'WRONG {statuses}'}, as {'its machine' if is_own(seen) else seen}"

    def upload(self, size, chunked=False, seconds=0):
        """The status that a client gets who sends all, in so many seconds, before it reads."""
        head = "POST /upload HTTP/1.1\r\nHost: api.example.com\r\n"
        head += "Transfer-Encoding: chunked\r\n\r\n" if chunked else f"Content-Length: {size}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.port), 20, ("127.0.0.4", 0)) as one:
            try:
                one.sendall(head.encode())
                piece = b"x" * 50_000
                if chunked:
                    piece = b"c350\r\n" + piece + b"\r\n"
                pieces = size // 50_000
                for _ in range(pieces):
                    one.sendall(piece)
                    time.sleep(seconds / pieces)
                if chunked:
                    one.sendall(b"0\r\n\r\n")
            except OSError:
                pass
            try:
                line = one.makefile("rb").readline().decode()
                return line.split(" ")[1] if line else "closed"
            except OSError:
                return "reset"

    def cached(self):
        """Whether a second GET is answered by the first one, so that it is not counted."""
        left = [self.ask("GET", "/search", source)[1].get("RateLimit") for source in ("127.0.0.2", "127.0.0.3")]
        again = self.ask("GET", "/search", "127.0.0.2")[1].get("RateLimit")
        return "no" if ";r=3;" in again and left[0] == left[1] else "yes, not counted"


def is_own(address):
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as one:
            one.bind((address, 0))
            return True
    except OSError:
        return False


class Bystanders(threading.Thread):
    """Others who send while somebody's uploads are denied."""

    def __init__(self, clients):
        super().__init__()
        self.clients, self.lost, self.all, self.is_over = clients, 0, 0, False

    def run(self):
        while not self.is_over:
            self.all += 1
            try:
                self.lost += self.clients.ask("POST", "/open", "127.0.0.5", body=b"hello")[0] != 200
            except (OSError, http.client.HTTPException):
                self.lost += 1
            time.sleep(0.01)


def counted(statuses):
    if len(set(statuses)) == 1:
        return statuses[0]
    return ", ".join(f"{statuses.count(it)} x {it}" for it in sorted(set(statuses)))


def host(clients):
    """What the app gets of the client's, also over HTTP/2."""
    one = clients.ask("GET", "/who")[2].split(" ")[1]
    command = f"curl -s --max-time 10 --http2-prior-knowledge -H Host:api.example.com http://127.0.0.1:{clients.port}/who"
    two = subprocess.run(command.split(" "), capture_output=True, text=True)
    speaks = two.returncode == 0 and re.match(r"\S+ ", two.stdout)
    told = [one, *([two.stdout.split(" ")[1]] if speaks else [])]
    return ", ".join(("passed", "HTTP/2")[at] if it == "api.example.com" else f"WRONG {it}" for at, it in enumerate(told))


def answers(clients, app):
    """Whether a 503 and a 429 of the app arrive as it sends them."""
    own = ("ratelimit", "ratelimit-policy", "retry-after", "cache-control", "content-type")

    def both(one):
        told = [one.ask("POST", path, source) for path in ("/down", "/upload")
                for source in ("127.0.0.2", "127.0.0.3")]
        return [(status, *(fields.get_all(it) for it in own), text) for status, fields, text in told]

    sent, arrived = both(app), both(clients)
    if sent[0][0] != 503 or sent[2][0] != 429 or not sent[2][1]:
        return f"WRONG app: {sent}"
    return "passed" if sent == arrived else f"WRONG {arrived}"


def measure(name, clients, app):
    row = [name, clients.identity("127.0.0.2", "127.0.0.3"), clients.identity("::1", None)]
    row += [host(clients), answers(clients, app), clients.cached()]
    others = Bystanders(clients)
    others.start()
    fast = [[clients.upload(size * MB, chunked) for _ in range(5)] for size, chunked in UPLOADS]
    if {it for statuses in fast for it in statuses} == {"429"}:
        row.append("429")
    else:
        row.append("; ".join(f"{size} MB{' in chunks' if chunked else ''}: {counted(statuses)}"
                             for (size, chunked), statuses in zip(UPLOADS, fast)))
    row.append(counted([clients.upload(3 * MB, seconds=4) for _ in range(2)]))
    # A connection that was left in a bad state is met later.
    while others.all < 200:
        time.sleep(0.1)
    others.is_over = True
    others.join()
    too_many = "WRONG " if others.lost * 100 > others.all else ""
    return [*row, f"{too_many}{others.lost} of {others.all}"]


def measure_silent(name, clients, app):
    """Whether another client is denied with one, and after how many requests of theirs a warning says why."""
    statuses = [clients.ask("POST", "/login", "127.0.0.2")[0] for _ in range(5)]
    other = clients.ask("POST", "/login", "127.0.0.3")[0]
    if (statuses, other) != ([200] * 5, 429):
        return [name, f"WRONG {statuses}, {other}"] + [""] * (len(COLUMNS) - 2)
    for number in range(7, 400):
        clients.ask("POST", "/login", f"127.0.0.{2 + number % 8}")
        if "100 requests in a row" in app.ask("GET", "/warnings")[2]:
            return [name, f"all are one: a warning after {number} requests"]
    return [name, "WRONG no warning"] + [""] * (len(COLUMNS) - 2)


def start(name, file, command, port, app, without=""):
    folder = tempfile.mkdtemp(prefix="proxy")
    pathlib.Path(folder).chmod(0o777)
    for part in FOLDER.glob(file.split(".")[0] + "*"):
        text = re.sub(r"\b8080\b", str(port), re.sub(r"\b3000\b", str(app), part.read_text()))
        if "two servers" in name:
            # One app, which nginx takes for two servers: either may be taken for dead.
            text = re.sub(r"( +server 127.*;\n)", r"\1\1", text)
        text = text.replace(without, "")
        text += EXTRA.get(file, "").format(folder=folder)
        (pathlib.Path(folder) / part.name).write_text(text)
    words = re.split(r"(?<!\\) ", command.format(file=f"{folder}/{file}", folder=folder, port=port, app=app))
    words = [word.replace("\\ ", " ") for word in words]
    log = open(f"{folder}/said", "w")
    return folder, subprocess.Popen(words, cwd=folder, stdout=log, stderr=log)


def run(name, file, version, command, without=None):
    program, number = version.split(" ")[0], None
    if shutil.which(program):
        said = subprocess.run(version.split(" "), capture_output=True, text=True)
        number = re.search(r"\d+\.\d+[.\d]*", said.stdout or said.stderr)
    if not number or said.returncode:
        print(f"{name}: not to be had here, skipped")
        return None
    shown = re.sub(r"^[\w-]+", rf"\g<0> {number.group()}", name)
    app, port = free_port(), free_port()
    field = "forwarded" if "`forwarded`" in name else "x-forwarded-for"
    server = subprocess.Popen([APP, str(app), field])
    folder, proxy = start(name, file, command, port, app, without or "")
    try:
        wait_for(Clients(app), server)
        wait_for(Clients(port), proxy)
        measured = measure if without is None else measure_silent
        return measured(shown, Clients(port), Clients(app))
    except Exception as error:
        said = pathlib.Path(folder, "said").read_text()[-2_000:]
        print(f"{name}: {error!r}\n{said}")
        return [shown, "FAILED"] + [""] * (len(COLUMNS) - 2)
    finally:
        for process in (proxy, server):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    wanted = sys.argv[1:]
    rows = [run(*one) for one in [*PROXIES, *SILENT] if not wanted or one[0] in wanted]
    rows = [row for row in rows if row]
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    print(table)
    if not wanted:
        (ROOT / "docs/evidence/proxies.md").write_text(f"{PAGE}\n{table}\n")
    sys.exit(any("FAILED" in row or "WRONG" in " ".join(row) for row in rows))


main()
