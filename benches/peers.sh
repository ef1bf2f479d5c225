#!/usr/bin/env bash
# Measures tidegate and its peers behind one axum server, decisions on a cluster, and four servers
# with one hot key, and puts the tables into benches/README.md. Options: --rounds N, --seconds N, --quick, --only NAME,...
# With one of the last two the tables are printed and benches/README.md stays as it is.
set -euo pipefail
cd "$(dirname "$0")/.."

partial=
for argument in "$@"; do
  case "$argument" in --quick | --only) partial=yes ;; esac
done

for program in redis-server wrk; do
  if ! command -v "$program" >/dev/null; then
    echo "installing $program" >&2
    as_root=
    [ "$(id -u)" = 0 ] || as_root=sudo
    $as_root apt-get update -qq >&2 || true
    $as_root apt-get install -y -qq "$program" >&2
  fi
done

# One peer asks for a newer compiler than it needs.
cargo build --release --ignore-rust-version --manifest-path benches/peers/Cargo.toml >&2
programs=benches/peers/target/release

table=$(mktemp)
trap 'rm -f "$table"' EXIT

{
  "$programs/peers" "$@"
  "$programs/cluster" "$@"
  "$programs/processes" "$@"
} | tee "$table"

[ -z "$partial" ] || exit 0
bash benches/put.sh peers <"$table" >/dev/null
