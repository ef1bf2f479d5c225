#!/usr/bin/env bash
# Runs the unit tests and tests/model/miri.rs under Miri: undefined behaviour and data races, in this crate and below it.
# Options are those of `cargo miri test`. TIDEGATE_NIGHTLY names the toolchain. Default: nightly.
set -euo pipefail
cd "$(dirname "$0")/.."

toolchain="${TIDEGATE_NIGHTLY:-nightly}"

stop() {
  echo "tests/miri.sh: $1; install it and start again:" >&2
  echo "  $2" >&2
  exit 1
}

if ! command -v rustup >/dev/null; then
  stop "no rustup on the PATH" "https://rustup.rs"
fi
if ! cargo "+$toolchain" --version >/dev/null 2>&1; then
  stop "no toolchain $toolchain" "rustup toolchain install $toolchain --profile minimal -c miri -c rust-src"
fi
installed="$(rustup "+$toolchain" component list --installed)"
for component in miri rust-src; do
  if ! grep -q "^$component" <<<"$installed"; then
    stop "the toolchain $toolchain has no $component" "rustup +$toolchain component add miri rust-src"
  fi
done

# A new store looks for the processor's time-stamp counter with an instruction that Miri does not know. This processor
# has none, so the system's clock is read; nothing has to be installed for it, and its byte order is the other one.
target="s390x-unknown-linux-gnu"

# The system's clock is outside of the interpreter.
export MIRIFLAGS="${MIRIFLAGS:--Zmiri-disable-isolation}"
export CARGO_TARGET_DIR="${TIDEGATE_MIRI_TARGET:-target/miri}"
miri=(cargo "+$toolchain" miri test --target "$target")
"${miri[@]}" -p tidegate --no-default-features --features test-util --lib "$@"
"${miri[@]}" -p tidegate-model "$@"
