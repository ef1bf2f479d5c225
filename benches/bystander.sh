#!/usr/bin/env bash
# What clients that leave before their answer cost a bystander of another route, beside control
# processes in the same seconds. Puts the table into benches/README.md. Options: --rounds N,
# --seconds N, --quick; with the last one the table is printed only.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v redis-server >/dev/null || { echo "benches/bystander.sh: no redis-server on the PATH" >&2; exit 1; }
# One peer asks for a newer compiler than it needs.
cargo build --release --ignore-rust-version --manifest-path benches/peers/Cargo.toml --bin bystander >&2

table=$(mktemp)
trap 'rm -f "$table" "$table.new"' EXIT
{
  echo
  benches/peers/target/release/bystander "$@"
} | tee "$table"

case " $* " in *" --quick "*) exit 0 ;; esac
awk -v table="$table" '
  /^<!-- bystander:begin -->/ { print; while ((getline line < table) > 0) print line; skipping = 1 }
  /^<!-- bystander:end -->/ { skipping = 0 }
  !skipping && !/^<!-- bystander:begin -->/ { print }
' benches/README.md >"$table.new"
cat "$table.new" >benches/README.md
