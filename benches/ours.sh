#!/usr/bin/env bash
# Runs the benchmarks of these names (default: all of them) and puts their tables into
# benches/README.md: bash benches/ours.sh refunds plans
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || set -- refunds outcomes plans budget joint permits crowds
for name in "$@"; do
  bench=$name
  case $name in
    refunds) rounds= ;;
    outcomes) rounds=7 ;;
    crowds) bench=waiting rounds=${ROUNDS:-5} ;;
    *) rounds=${ROUNDS:-9} ;;
  esac
  table=$(cargo bench -p tidegate-benches --bench "$bench" | tee /dev/stderr | { grep -E '^\||^$' || true; })
  bash benches/put.sh "$name" <<<"${rounds:+Medians of $rounds rounds.}

$table" >/dev/null
done
