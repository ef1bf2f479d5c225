#!/usr/bin/env bash
# What limiters and locks give to callers that wait: medians of five runs, then three minutes of
# mixed operations by four processes. About ten minutes; --short: one run each, and seconds.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=5 seconds=56 minutes=3 put=(bash benches/put.sh waiting)
if [ "${1:-}" = --short ]; then rounds=1 seconds=0 minutes=1 put=(cat); fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT

run() {
  cargo test -q --release -p tidegate -p tidegate-tests --all-features --test "$1" -- --nocapture --test-threads 1 "${@:2}" 2>&1
}

for round in $(seq "$rounds"); do
  echo "round $round of $rounds" >&2
  run limiter grants::free_permits >>"$log"
  TIDEGATE_PERMITS=100 run limiter ten_thousand_waiters_cost >>"$log"
  run hostile_lock handover_fleet >>"$log"
done
for minute in $(seq "$minutes"); do
  echo "minute $minute of $minutes of mixed operations" >&2
  TIDEGATE_FLEET_SECONDS=$seconds run hostile_limiter changing >>"$log"
done

median() { sort -n | awk '{ all[NR] = $1 } END { if (NR) print all[int((NR + 1) / 2)]; else print "-" }'; }
numbers() { sed -nE "s|.*$1.*|\\1|p" "$log"; }

{
  echo "| | median | of |"
  echo "| --- | ---: | ---: |"
  waiting=$(sed -nE 's|[^0-9]*([0-9]+) by waiting, ([0-9]+) by trying.*|\1 \2|p' "$log" |
    awk '{ printf "%.2f\n", $1 / $2 }' | median)
  echo "| 200 tasks at a round trip of 2 ms: \`acquire\` to \`try_acquire\` | $waiting | 1 |"
  for fair in false true; do
    calls=$(numbers "fair: $fair: ([0-9]+) calls" | awk '{ printf "%.1f\n", ($1 - 157) / 100 }' | median)
    echo "| 10,000 waiters, 100 permits in 100 ms, fair: $fair: calls a refill | $calls | |"
  done
  echo "| a lock, 64 waiters in 4 processes: hand-over, p50, ms | $(numbers 'hand-over p50 ([0-9.]+) ms' | median) | |"
  echo "| the same, p99, ms | $(numbers 'p99 ([0-9.]+) ms' | median) | |"
  echo
  grep -F 'windows, none above' "$log" || true
} | "${put[@]}"
