#!/usr/bin/env bash
# tus-js-client: a 429 ends an upload at once, a 503 does not; Retry-After is read in neither.
#
# Expected: both mean "later": the upload goes on after Retry-After, or by retryDelays.
# Seen: one PATCH and an error at a 429. At a 503 it goes on after 0, 1, 3 and 5 s (the defaults),
#   whether Retry-After says 2, 60 or nothing.
# With: tus-js-client 4.3.1; 29 November 2026
# Matters: a limit before a tus server ends its users' uploads, unless it answers 503 and counts in
#   windows of a few seconds.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

npm install --silent --no-audit --no-fund tus-js-client@4.3.1
cat >ask.mjs <<'END'
import http from "node:http";
import tus from "tus-js-client";

async function upload(status, field) {
  const arrivals = [];
  const server = http.createServer((request, response) => {
    request.resume().on("end", () => {
      const fields = { "tus-resumable": "1.0.0" };
      if (request.method === "POST") {
        response.writeHead(201, { ...fields, location: "/files/a" }).end();
      } else if (request.method === "HEAD") {
        response.writeHead(200, { ...fields, "upload-offset": "0", "upload-length": "5" }).end();
      } else {
        arrivals.push(performance.now());
        response.writeHead(status, field ? { ...fields, "retry-after": field } : fields).end();
      }
    });
  });
  await new Promise((listens) => server.listen(0, "127.0.0.1", listens));
  const end = await new Promise((ends) => {
    new tus.Upload(Buffer.from("hello"), {
      endpoint: `http://127.0.0.1:${server.address().port}/files/`,
      onError: (error) => ends(`error, ${error.originalResponse?.getStatus()}`),
      onSuccess: () => ends("success"),
    }).start();
  });
  const waits = arrivals.slice(1).map((at, i) => Math.floor((at - arrivals[i] + 20) / 1000));
  return `${status}, retry-after ${field ?? "none"}: ${arrivals.length} PATCH`
    + (waits.length ? `, waits in seconds: ${waits}` : "") + `; ${end}`;
}

const forms = [429, 503].flatMap((status) => [
  upload(status, undefined), upload(status, "2"), upload(status, "60")]);
console.log((await Promise.all(forms)).join("\n"));
process.exit();
END
node ask.mjs | tee saw
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
429, retry-after none: 1 PATCH; error, 429
429, retry-after 2: 1 PATCH; error, 429
429, retry-after 60: 1 PATCH; error, 429
503, retry-after none: 5 PATCH, waits in seconds: 0,1,3,5; error, 503
503, retry-after 2: 5 PATCH, waits in seconds: 0,1,3,5; error, 503
503, retry-after 60: 5 PATCH, waits in seconds: 0,1,3,5; error, 503
END
