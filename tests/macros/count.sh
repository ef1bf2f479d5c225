#!/usr/bin/env bash
# The instructions of a call that the attribute has written, and of the same one written by hand.
# Needs valgrind.
set -euo pipefail
cd "$(dirname "$0")/../.."
source benches/callgrind.sh

cargo build --quiet --release -p tidegate-macro-tests --example count
program=${CARGO_TARGET_DIR:-target}/release/examples/count

each() {
  echo $(($(counted /dev/null "$program" 2000 "$@") / 2000))
}

echo "instructions of a call: $(each) by the attribute, $(each hand) by hand"
