#!/usr/bin/env bash
# nginx, proxy_next_upstream http_429: one client that is denied takes all servers from everybody.
#
# Expected: a 429 is asked again at the next server, and passed on if that denies, too: the other
#   clients notice nothing, for a server that answers 429 is alive.
# Seen: the second denial is a 502, and all clients get 502 for fail_timeout (3 s here, 10 s by
#   default). With max_fails=0 nobody does, and each denial costs a request at each server. A denied
#   POST, which is not passed on, does no harm in either.
# With: nginx 1.22.1 of Debian 12; 29 November 2026
# Matters: whoever limits clients behind nginx and lets it look for a less busy server, by http_429.
set -euo pipefail
folder=$(mktemp -d)
nginx= servers=
trap 'for id in $nginx $servers; do kill "$id" || true; done; wait; rm -rf "$folder"' EXIT
cd "$folder"

apt-get download nginx &>log || { cat log; exit 2; }
dpkg-deb -x nginx_*.deb nginx
program=$PWD/nginx/usr/sbin/nginx
"$program" -v 2>&1 | grep '1\.22\.1'
read -r first second counted lenient <<<"$(python3 -c 'import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
print(*[one.getsockname()[1] for one in held])')"
cat >servers.py <<'END'
# Two servers that deny one client by 429.
import http.server, sys, threading

class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(429 if self.headers.get("client") == "denied" else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *args):
        pass

for port in sys.argv[1:]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Answer)
    threading.Thread(target=server.serve_forever).start()
END
python3 servers.py "$first" "$second" &
servers=$!
cat >nginx.conf <<END
daemon off;
master_process off;
pid $folder/pid;
error_log /dev/null;
events {}
http {
  access_log off;
  client_body_temp_path $folder/body;
  proxy_temp_path $folder/proxy;
  fastcgi_temp_path $folder/fastcgi;
  uwsgi_temp_path $folder/uwsgi;
  scgi_temp_path $folder/scgi;
  proxy_next_upstream error timeout http_429;
  add_header asked \$upstream_addr always;
  upstream counted {
    server 127.0.0.1:$first fail_timeout=3s;
    server 127.0.0.1:$second fail_timeout=3s;
  }
  upstream lenient {
    server 127.0.0.1:$first max_fails=0;
    server 127.0.0.1:$second max_fails=0;
  }
  server { listen 127.0.0.1:$counted; location / { proxy_pass http://counted; } }
  server { listen 127.0.0.1:$lenient; location / { proxy_pass http://lenient; } }
}
END
"$program" -c "$folder/nginx.conf" -e /dev/null &
nginx=$!
cat >ask.py <<'END'
import http.client, socket, sys, time

def ask(port, client, method="GET"):
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    link.request(method, "/", headers={"client": client})
    answer = link.getresponse()
    answer.read()
    asked = [one for one in (answer.getheader("asked") or "").split(", ") if ":" in one]
    link.close()
    return answer.status, len(asked)

ports = [int(port) for port in sys.argv[1:]]
for port in ports:
    for _ in range(100):
        if socket.socket().connect_ex(("127.0.0.1", port)) == 0:
            break
        time.sleep(0.1)
for name, port in ("max_fails by default", ports[2]), ("max_fails=0", ports[3]):
    print(name)
    for method in "POST", "GET":
        denied = [ask(port, "denied", method) for _ in range(4)]
        others = [ask(port, "other") for _ in range(4)]
        print(f"  denied {method}: {[status for status, _ in denied]},"
              f" servers asked: {[asked for _, asked in denied]}")
        print(f"  others: {[status for status, _ in others]}")
    began = time.monotonic()
    while ask(port, "other")[0] != 200 and time.monotonic() - began < 10:
        time.sleep(0.05)
    print("  others, after fail_timeout:" if time.monotonic() - began > 2 else "  others, at once:",
          [ask(port, "other")[0] for _ in range(4)])
END
python3 ask.py "$first" "$second" "$counted" "$lenient" | tee saw
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
max_fails by default
  denied POST: [429, 429, 429, 429], servers asked: [1, 1, 1, 1]
  others: [200, 200, 200, 200]
  denied GET: [429, 502, 502, 502], servers asked: [2, 1, 0, 0]
  others: [502, 502, 502, 502]
  others, after fail_timeout: [200, 200, 200, 200]
max_fails=0
  denied POST: [429, 429, 429, 429], servers asked: [1, 1, 1, 1]
  others: [200, 200, 200, 200]
  denied GET: [429, 429, 429, 429], servers asked: [2, 2, 2, 2]
  others: [200, 200, 200, 200]
  others, at once: [200, 200, 200, 200]
END
