#!/usr/bin/env bash
# Measures how many decisions one Redis server makes for eight processes, and puts the table into
# benches/README.md: about twelve minutes. Options: --rounds N, --seconds N, --quick. With --quick the
# table is printed after one minute, and benches/README.md stays as it is. With `--beside REVISION` the
# log and GCRA are compared with those of that tree, and it is printed, too.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v redis-server >/dev/null; then
  echo "benches/server.sh: install redis-server, for example with bash tests/run.sh" >&2
  exit 1
fi

options=() partial=
build=(cargo build --release --ignore-rust-version --bin server)
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) partial=yes; options+=("$1") ;;
    --beside)
      tree=target/server-beside partial=yes
      git worktree remove --force "$tree" 2>/dev/null || true
      git worktree add --quiet --detach "$tree" "$2"
      # The other tree has its scripts, and asks as this program does.
      rm -r "$tree/benches/peers"
      cp -r benches/peers "$tree/benches/peers"
      rm -rf "$tree/benches/peers/target"
      "${build[@]}" --manifest-path "$tree/benches/peers/Cargo.toml" >&2
      export BESIDE=$PWD/$tree/benches/peers/target/release/server
      shift
      ;;
    *) options+=("$1") ;;
  esac
  shift
done
"${build[@]}" --manifest-path benches/peers/Cargo.toml >&2

table=$(mktemp)
trap 'rm -f "$table"' EXIT

{
  benches/peers/target/release/server "${options[@]}"
} | tee "$table"

[ -z "$partial" ] || exit 0
bash benches/put.sh server <"$table" >/dev/null
