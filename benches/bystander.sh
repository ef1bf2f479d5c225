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
trap 'rm -f "$table"' EXIT
{
  echo
  benches/peers/target/release/bystander "$@"
} | tee "$table"

case " $* " in *" --quick "*) exit 0 ;; esac
bash benches/put.sh bystander <"$table" >/dev/null
