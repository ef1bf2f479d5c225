#!/usr/bin/env bash
# Runs the benchmarks and puts their tables into benches/README.md.
set -euo pipefail
cd "$(dirname "$0")/.."

tables=$(mktemp)
trap 'rm -f "$tables"' EXIT

{
  processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)
  echo
  echo "$(date +%Y-%m-%d), $(nproc 2>/dev/null || echo some) cores${processor:+ of $processor}, $(rustc --version | cut -d' ' -f1-2), $(redis-server --version | grep -o 'v=[0-9.]*' | sed 's/v=/Redis /')."
  echo
  cargo bench -p tidegate-benches --bench in_process --bench redis | tee /dev/stderr | { grep -E '^\||^$' || true; } | cat -s
} >"$tables"

awk -v tables="$tables" '
  /^<!-- tables -->/ { print; while ((getline line < tables) > 0) print line; skipping = 1 }
  /^<!-- \/tables -->/ { skipping = 0 }
  !skipping && !/^<!-- tables -->/ { print }
' benches/README.md >"$tables.new"
mv "$tables.new" benches/README.md
