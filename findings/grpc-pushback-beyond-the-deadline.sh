#!/usr/bin/env bash
# gRPC: a pushback longer than the deadline costs the deadline and hides why.
#
# Expected: RESOURCE_EXHAUSTED at once, for no retry can come in time.
# Seen: the call waits until its deadline, and then tells DEADLINE_EXCEEDED without the metadata of
#   the server. A pushback of -1, "do not repeat", gives status and metadata at once.
# With: grpcio 1.85.3; 27 November 2026
# Matters: a limiter should send a pushback of -1 where its wait is longer than callers wait.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 -m venv env
env/bin/pip install -q grpcio==1.85.3
env/bin/python - <<'END' 2>/dev/null | tee saw
import concurrent.futures, json, time
import grpc

calls = 0

def refuse(request, context):
    global calls
    calls += 1
    context.set_trailing_metadata((("grpc-retry-pushback-ms", pushback), ("limit", "5")))
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls")

server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
    "a.B", {"C": grpc.unary_unary_rpc_method_handler(refuse)}),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
config = {"methodConfig": [{"name": [{}], "retryPolicy": {
    "maxAttempts": 3, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
    "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}
channel = grpc.insecure_channel(f"127.0.0.1:{port}",
                                options=[("grpc.service_config", json.dumps(config))])
call = channel.unary_unary("/a.B/C")
for pushback in ("-1", "500", "60000"):
    calls, began = 0, time.monotonic()
    try:
        call(b"", timeout=3)
    except grpc.RpcError as error:
        kept = dict(error.trailing_metadata() or ()).get("limit")
        when = "at" if time.monotonic() - began > 2.9 else "before"
        print(f"pushback {pushback}: {error.code().name} {when} the deadline,"
              f" calls: {calls}, limit: {kept}")
server.stop(0)
END
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
pushback -1: RESOURCE_EXHAUSTED before the deadline, calls: 1, limit: 5
pushback 500: RESOURCE_EXHAUSTED before the deadline, calls: 3, limit: 5
pushback 60000: DEADLINE_EXCEEDED at the deadline, calls: 1, limit: None
END
