#!/usr/bin/env bash
# Measures how many decisions one Redis server makes for eight processes, and puts the table into
# benches/README.md: about seven minutes. Options: --rounds N, --seconds N, --quick. With --quick the
# table is printed after one minute, and benches/README.md stays as it is.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v redis-server >/dev/null; then
  echo "benches/server.sh: install redis-server, for example with bash tests/run.sh" >&2
  exit 1
fi

cargo build --release --ignore-rust-version --manifest-path benches/peers/Cargo.toml >&2

table=$(mktemp)
trap 'rm -f "$table" "$table.new"' EXIT

{
  processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)
  cores=$(nproc 2>/dev/null || echo some)
  redis=$(redis-server --version | grep -o 'v=[0-9.]*' | sed 's/v=/Redis /')
  echo
  echo "$(date +%Y-%m-%d), $cores cores${processor:+ of $processor},"
  echo "$(rustc --version | cut -d' ' -f1-2), $redis."
  echo
  benches/peers/target/release/server "$@"
} | tee "$table"

case " $* " in *" --quick "*) exit 0 ;; esac
awk -v tables="$table" '
  /^<!-- server:begin -->/ { print; while ((getline line < tables) > 0) print line; skipping = 1 }
  /^<!-- server:end -->/ { skipping = 0 }
  !skipping && !/^<!-- server:begin -->/ { print }
' benches/README.md >"$table.new"
cat "$table.new" >benches/README.md
