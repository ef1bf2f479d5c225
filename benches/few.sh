#!/usr/bin/env bash
# Processor time of a request at 1 to 256 connections, beside the peers, and open loops around eight
# takes in progress. Puts medians into benches/README.md. With `--beside REVISION` that tree takes its
# turns, too, and both are compared. Other options: --rounds N, --seconds N; --quick prints only.
set -euo pipefail
cd "$(dirname "$0")/.."

options=() beside=() partial=
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) partial=yes; options+=(--rounds 1) ;;
    --beside)
      tree=target/few-beside
      git worktree remove --force "$tree" 2>/dev/null || true
      git worktree add --quiet --detach "$tree" "$2"
      # Its crate, and the program of this tree.
      rm -r "$tree/benches/peers"
      cp -r benches/peers "$tree/benches/peers"
      rm -rf "$tree/benches/peers/target"
      beside=(--beside "$PWD/$tree/benches/peers/target/release/few")
      shift
      ;;
    *) options+=("$1") ;;
  esac
  shift
done
for program in redis-server wrk; do
  command -v "$program" >/dev/null || { echo "benches/few.sh: no $program on the PATH" >&2; exit 1; }
done
# One peer asks for a newer compiler than it needs.
build=(cargo build --release --ignore-rust-version --bin few)
"${build[@]}" --manifest-path benches/peers/Cargo.toml >&2
if [ ${#beside[@]} -gt 0 ]; then "${build[@]}" --manifest-path "$tree/benches/peers/Cargo.toml" >&2; fi

few=benches/peers/target/release/few
table=$(mktemp)
trap 'rm -f "$table"' EXIT
{
  echo
  "$few" "${options[@]}" "${beside[@]}"
  "$few" --open "${options[@]}" "${beside[@]}"
} | tee "$table"

[ -z "$partial" ] || exit 0
bash benches/put.sh few <"$table" >/dev/null
