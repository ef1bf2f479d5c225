#!/usr/bin/env bash
# Half an hour at several thousand requests a second against two processes that share a Redis, with a fault every ten
# seconds; prints a row for each fault, and what was answered in all. Ends with an error if any answer is missing, any
# window was above its quota, or memory, files or tasks grow. TIDEGATE_SOAK_SECONDS and TIDEGATE_SOAK_RATE say otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."

export TIDEGATE_SOAK_SECONDS=${TIDEGATE_SOAK_SECONDS:-1800}
export TIDEGATE_SOAK_RATE=${TIDEGATE_SOAK_RATE:-4000}
exec bash tests/run.sh --release --test fleet soak:: -- --nocapture
