#!/usr/bin/env bash
# Measures a lone request: one connection, one request at a time. A plain route, a bare script call,
# this crate's own scripts called by hand, this crate's layers and its peers take turns behind one
# axum server; then the steps of a take, one by one. Puts medians and their spread over the rounds
# into benches/README.md. Options: --rounds N, --seconds N, --quick; with the last one the table is printed only.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v redis-server >/dev/null || { echo "benches/lone.sh: no redis-server on the PATH" >&2; exit 1; }
# One peer asks for a newer compiler than it needs.
cargo build --release --ignore-rust-version --manifest-path benches/peers/Cargo.toml --bin lone --bin steps >&2

table=$(mktemp)
trap 'rm -f "$table"' EXIT
{
  echo
  benches/peers/target/release/lone "$@"
  benches/peers/target/release/steps "$@"
} | tee "$table"

case " $* " in *" --quick "*) exit 0 ;; esac
bash benches/put.sh lone <"$table" >/dev/null
