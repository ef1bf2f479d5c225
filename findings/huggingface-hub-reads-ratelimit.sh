#!/usr/bin/env bash
# huggingface_hub reads one spelling of the field RateLimit.
#
# Expected: a list of named limits; the one that denied counts; any name and order are read.
# Seen: the first item alone is read, also where another one denied. Parameters in another order,
#   which structured fields allow, and names with a hyphen, as express-rate-limit 8.7.5 makes
#   them of its limits ("5-in-1min"), are not read at all.
# With: huggingface_hub 2.4.0; 27 November 2026
# Matters: a mirror of the hub has to name the limit that denied first, by letters and digits.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 -m venv env
env/bin/pip install -q huggingface_hub==2.4.0
env/bin/python - <<'END' | tee saw
from huggingface_hub.utils import parse_ratelimit_headers

for field in ('"api";r=0;t=7', '"hour";r=9;t=3000, "second";r=0;t=1', '"api";t=7;r=0',
              # As express-rate-limit 8.7.5 names a limit of 5 in a minute.
              '"5-in-1min"; r=0; t=60'):
    read = parse_ratelimit_headers({"ratelimit": field})
    print(field, "->", read and f"{read.remaining} left, {read.reset_in_seconds} s")
END
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
"api";r=0;t=7 -> 0 left, 7 s
"hour";r=9;t=3000, "second";r=0;t=1 -> 9 left, 3000 s
"api";t=7;r=0 -> None
"5-in-1min"; r=0; t=60 -> None
END
