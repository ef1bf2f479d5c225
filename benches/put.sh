#!/usr/bin/env bash
# Puts a table from standard input between the marks NAME:begin and NAME:end of benches/README.md,
# behind a line with the day, the tree and the machine, and prints it: bash benches/put.sh NAME
set -euo pipefail
cd "$(dirname "$0")/.."

name=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)
redis=$(redis-server --version 2>/dev/null | grep -o 'v=[0-9.]*' | sed 's/v=/, Redis /' || true)
{
  echo
  echo "$(date +%Y-%m-%d), tree $(git rev-parse --short=8 HEAD), $(nproc 2>/dev/null || echo some) cores${processor:+ of $processor}, $(rustc --version | cut -d' ' -f1-2)$redis."
  echo
  cat
  echo
} | cat -s | tee "$work/table"
grep -q "^<!-- $name:begin -->" benches/README.md || { echo "$0: no mark $name:begin" >&2; exit 1; }
awk -v table="$work/table" -v name="$name" '
  $0 == "<!-- " name ":begin -->" { print; while ((getline line < table) > 0) print line; skipping = 1; next }
  $0 == "<!-- " name ":end -->" { skipping = 0 }
  !skipping { print }
' benches/README.md >"$work/new"
cat "$work/new" >benches/README.md
