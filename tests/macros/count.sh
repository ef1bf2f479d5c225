#!/usr/bin/env bash
# The instructions of a call that the attribute has written, and of the same one written by hand.
# Needs valgrind.
set -euo pipefail
cd "$(dirname "$0")/../.."

cargo build --quiet --release -p tidegate-macro-tests --example count
program=${CARGO_TARGET_DIR:-target}/release/examples/count

each() {
  local all
  all=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='count::counted' \
    "$program" 2000 "$@" 2>&1 | sed -n 's/.*Collected : //p')
  echo $((all / 2000))
}

echo "instructions of a call: $(each) by the attribute, $(each hand) by hand"
