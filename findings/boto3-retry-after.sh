#!/usr/bin/env bash
# boto3 ignores Retry-After and obeys x-amz-retry-after.
#
# Expected: ten requests, 0.05 s doubled each time, whatever the answer's fields say.
# Seen: four requests. Retry-After changes nothing; x-amz-retry-after, in milliseconds, is obeyed.
#   A 503 without it is repeated three times, each in less than 0.3 s. The waits are
#   recorded here instead of waited.
# With: boto3 1.44.8, client of DynamoDB; 27 November 2026
# Matters: a limiter in front of a service that speaks AWS's protocols has to send both.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 -m venv env
env/bin/pip install -q boto3==1.44.8
cat >ask.py <<'END'
import http.server, threading, time
import boto3, botocore.exceptions

class Refuses(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        Refuses.asked += 1
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(Refuses.status)
        for field in Refuses.fields.items():
            self.send_header(*field)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuses)
threading.Thread(target=server.serve_forever, daemon=True).start()
waits = []
time.sleep = lambda seconds: waits.append(seconds)
for status, fields in [(429, {"retry-after": "4"}), (429, {"x-amz-retry-after": "4000"}),
                       (503, {"retry-after": "4"}), (503, {"x-amz-retry-after": "4000"})]:
    Refuses.status, Refuses.fields, Refuses.asked, waits[:] = status, fields, 0, []
    client = boto3.client("dynamodb", region_name="eu-west-1", aws_access_key_id="none",
                          aws_secret_access_key="none",
                          endpoint_url=f"http://127.0.0.1:{server.server_address[1]}")
    try:
        client.list_tables()
    except botocore.exceptions.ClientError:
        pass
    bound = 0.3 if status == 503 else 4
    own = f"its own waits, below {bound} s" if max(waits) < bound else "4 s before each"
    for name, value in fields.items():
        print(f"{status}, {name}: {value}: {Refuses.asked} requests, {own}")
END
env/bin/python ask.py | tee saw
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
429, retry-after: 4: 4 requests, its own waits, below 4 s
429, x-amz-retry-after: 4000: 4 requests, 4 s before each
503, retry-after: 4: 4 requests, its own waits, below 0.3 s
503, x-amz-retry-after: 4000: 4 requests, 4 s before each
END
