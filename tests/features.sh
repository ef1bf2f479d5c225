#!/usr/bin/env bash
# Checks the library with each feature alone. A warning is a failure. Says at the end which failed.
# Every set of features that users choose is checked by tests/nightly.sh, with cargo-hack.
set -euo pipefail
cd "$(dirname "$0")/.."

# `default` and `full` are sets of the others.
features=$(awk '/^\[/ { here = $0 == "[features]" } here && /^[a-z-]+ = / { print $1 }' Cargo.toml |
  grep -vxE 'default|full')

messages=$(mktemp)
trap 'rm "$messages"' EXIT
failed=()
for feature in $features; do
  # Without a warning it prints nothing but what it builds. A flag that denies warnings would build
  # all dependencies again.
  if ! cargo check -p tidegate --lib --no-default-features --features "$feature" 2>"$messages" ||
    grep -q '^warning' "$messages"; then
    failed+=("$feature")
  fi
  cat "$messages"
done
if [ ${#failed[@]} -gt 0 ]; then
  printf 'tests/features.sh: failed with the feature %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "$(wc -w <<<"$features") features, each alone, without warnings"
