#!/usr/bin/env bash
# octokit ignores the Retry-After of a 429, and more fields make it ask twice as often.
#
# Expected: one retry, after Retry-After, or else at x-ratelimit-reset.
# Seen: retries after 1, 4 and 9 s whatever Retry-After says. With x-ratelimit-remaining: 0 a second
#   plugin repeats that whole series; it reads x-ratelimit-reset as seconds since 1970, so a
#   number of seconds from now is long past.
# With: octokit 5.0.5; 27 November 2026
# Matters: the three fields that many limiters send turn four requests into eight.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

npm install --silent --no-audit --no-fund octokit@5.0.5
cat >ask.mjs <<'END'
import http from "node:http";
import { Octokit } from "octokit";

const log = { debug() {}, info() {}, warn() {}, error() {} };
const forms = {
  "retry-after: 2": { "retry-after": "2" },
  "and x-ratelimit-remaining: 0, x-ratelimit-reset: 60": {
    "retry-after": "2", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "60" },
  "the same, x-ratelimit-reset: 22 s from now, since 1970": {
    "retry-after": "2", "x-ratelimit-remaining": "0",
    "x-ratelimit-reset": String(Math.floor(Date.now() / 1000) + 22) },
};
await Promise.all(Object.entries(forms).map(async ([form, fields]) => {
  const arrivals = [];
  const server = http.createServer((request, response) => {
    arrivals.push(Date.now());
    response.writeHead(429, fields).end();
  });
  await new Promise((listens) => server.listen(0, "127.0.0.1", listens));
  const octokit = new Octokit({ baseUrl: `http://127.0.0.1:${server.address().port}`, log });
  await octokit.request("GET /user").catch(() => {});
  const waits = arrivals.slice(1).map((at, i) => Math.floor((at - arrivals[i]) / 1000));
  if (waits[3] > 2) waits[3] = "more than 2";
  return `${form}\n  ${arrivals.length} requests, waits in seconds: ${waits}`;
})).then((lines) => console.log(lines.join("\n")));
process.exit();
END
node ask.mjs | tee saw
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
retry-after: 2
  4 requests, waits in seconds: 1,4,9
and x-ratelimit-remaining: 0, x-ratelimit-reset: 60
  8 requests, waits in seconds: 1,4,9,0,1,4,9
the same, x-ratelimit-reset: 22 s from now, since 1970
  8 requests, waits in seconds: 1,4,9,more than 2,1,4,9
END
