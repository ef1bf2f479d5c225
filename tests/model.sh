#!/usr/bin/env bash
# Model checking of the in-memory store: its threads in thousands of orders, see tests/model/interleavings.rs.
# Options are those of `cargo test` and, after `--`, of the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v cargo >/dev/null; then
  echo "tests/model.sh: no cargo on the PATH; install Rust 1.88 or later (rustup) and start again" >&2
  exit 1
fi

# A folder of its own: another `--cfg` builds everything anew. Without debugging information, which takes longest.
export RUSTFLAGS="--cfg tidegate_model"
export CARGO_TARGET_DIR="${TIDEGATE_MODEL_TARGET:-target/model}"
export CARGO_PROFILE_DEV_DEBUG=0
# What the model leaves out is said in tests/model/interleavings.rs.
export SHUTTLE_SILENCE_WARNINGS=1
exec cargo test -p tidegate-model --test model "$@"
