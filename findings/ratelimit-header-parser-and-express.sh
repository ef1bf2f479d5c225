#!/usr/bin/env bash
# ratelimit-header-parser cannot read the newest form that express-rate-limit writes.
#
# Expected: it reads all four forms, for both come from the same authors.
# Seen: three are read. Of draft-8, a structured field with a named limit, each number is NaN,
#   without an error; comparisons with NaN are false.
# With: express 5.3.0, express-rate-limit 8.7.5, ratelimit-header-parser 0.1.0; 27 November 2026
# Matters: a server that moves to draft-8 blinds these clients: "remaining < 1" is never true.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

npm install --silent --no-audit --no-fund express@5.3.0 express-rate-limit@8.7.5 \
  ratelimit-header-parser@0.1.0
cat >ask.mjs <<'END'
import express from "express";
import { rateLimit } from "express-rate-limit";
import { parseRateLimit } from "ratelimit-header-parser";

const forms = {
  legacy: { legacyHeaders: true, standardHeaders: false },
  "draft-6": { legacyHeaders: false, standardHeaders: "draft-6" },
  "draft-7": { legacyHeaders: false, standardHeaders: "draft-7" },
  "draft-8": { legacyHeaders: false, standardHeaders: "draft-8" },
};
for (const [form, options] of Object.entries(forms)) {
  const app = express();
  app.use(rateLimit({ windowMs: 60_000, limit: 5, ...options }));
  app.get("/", (request, response) => response.end());
  const server = app.listen(0, "127.0.0.1");
  await new Promise((listens) => server.on("listening", listens));
  const response = await fetch(`http://127.0.0.1:${server.address().port}/`);
  if (form === "draft-8") console.log("ratelimit:", response.headers.get("ratelimit"));
  const { limit, remaining, reset } = parseRateLimit(response);
  const minute = Math.abs(reset - Date.now() - 60_000) < 5_000;
  console.log(`${form}: ${remaining} of ${limit}, reset in a minute: ${minute}`);
  server.close();
}
END
node ask.mjs | tee saw
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
legacy: 4 of 5, reset in a minute: true
draft-6: 4 of 5, reset in a minute: true
draft-7: 4 of 5, reset in a minute: true
ratelimit: "5-in-1min"; r=4; t=60
draft-8: NaN of NaN, reset in a minute: false
END
