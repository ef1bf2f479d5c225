#!/usr/bin/env bash
# A Retry-After of 30 days makes @azure/core-rest-pipeline ask again at once.
#
# Expected: it gives up, or waits for its own longest wait.
# Seen: after 2 s it waits 2 s before each of three retries. After 30 days all three follow within
#   a second: a timer of Node with more than 2^31 - 1 ms, about 24.9 days, fires at once.
# With: @azure/core-rest-pipeline 1.24.0 on Node 20; 27 November 2026
# Matters: a limiter with a monthly budget should not send a Retry-After of more than 24 days.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

npm install --silent --no-audit --no-fund @azure/core-rest-pipeline@1.24.0
cat >ask.mjs <<'END'
import http from "node:http";
import { createDefaultHttpClient, createEmptyPipeline, createPipelineRequest, defaultRetryPolicy }
  from "@azure/core-rest-pipeline";

for (const seconds of [2, 30 * 24 * 3600]) {
  const arrivals = [];
  const server = http.createServer((request, response) => {
    arrivals.push(Date.now());
    response.writeHead(429, { "retry-after": seconds }).end();
  });
  await new Promise((listens) => server.listen(0, "127.0.0.1", listens));
  const pipeline = createEmptyPipeline();
  pipeline.addPolicy(defaultRetryPolicy());
  const url = `http://127.0.0.1:${server.address().port}/`;
  const request = createPipelineRequest({ url, allowInsecureConnection: true });
  const { status } = await pipeline.sendRequest(createDefaultHttpClient(), request);
  const took = arrivals.at(-1) - arrivals[0];
  console.log(`Retry-After ${seconds}: ${status} after ${arrivals.length} requests,`,
    took < 1000 ? "all within a second" : `about ${Math.round(took / 1000)} s`);
  server.close();
}
END
node --no-warnings ask.mjs | tee saw
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
Retry-After 2: 429 after 4 requests, about 6 s
Retry-After 2592000: 429 after 4 requests, all within a second
END
