#!/usr/bin/env bash
# The table of faults, each under load on a redis-server of its own, and how long the way back takes in a hundred
# cycles of six kinds of outage; then a server that stands still for 5 s. About six minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."

export TIDEGATE_CYCLES=${TIDEGATE_CYCLES:-100}
export TIDEGATE_HANG_SECONDS=${TIDEGATE_HANG_SECONDS:-5}

faults() {
  # The test harness writes between the rows.
  bash tests/run.sh --release --test faults -- --nocapture "$@" 2>&1 | tee "$log" | grep -o "$rows" || true
  grep -q "^test result: ok" "$log" || { cat "$log" >&2; exit 1; }
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT

echo "| fault | caller gets, of a time-out of 50 ms | slowest answer | charged | back after |"
echo "|---|---|---|---|---|"
rows='| .* |$' faults --skip cycles:: --skip late::
echo
echo "| outage | first decision after the server accepts: half of all within | slowest | within 500 ms |"
echo "|---|---|---|---|"
rows='| .* |$' faults --test-threads 2 cycles::
echo
rows='\(late charges\|used_memory\).*' faults late::
