#!/usr/bin/env bash
# Checks the library under the feature sets that users choose: each feature alone, all but one, and
# those that change what another one offers. A warning is a failure. Says at the end which sets
# failed.
set -euo pipefail
cd "$(dirname "$0")/.."

# `default` and `full` are sets of the others.
features=$(awk '/^\[/ { here = $0 == "[features]" } here && /^[a-z-]+ = / { print $1 }' Cargo.toml |
  grep -vxE 'default|full')

all_but() {
  grep -vxE "$1" <<<"$features" | paste -sd,
}

sets=()
for feature in $features; do
  sets+=("$feature")
  # Without `redis` means without what needs it, too.
  case $feature in
    redis) sets+=("$(all_but 'redis|lock|cluster|sentinel|tls')") ;;
    *) sets+=("$(all_but "$feature")") ;;
  esac
done
sets+=("limiter,redis" "limiter,lock" "lock,cluster" "cluster,sentinel,tls" "tracing,redis" "metrics,config" "metrics,redis")

messages=$(mktemp)
trap 'rm "$messages"' EXIT
failed=()
for set in "${sets[@]}"; do
  echo "features: $set"
  # Silent unless there is a warning or an error. A flag that denies warnings would build all
  # dependencies again.
  if ! cargo check -p tidegate --quiet --lib --no-default-features --features "$set" 2>"$messages" ||
    [ -s "$messages" ]; then
    cat "$messages" >&2
    failed+=("$set")
  fi
done
if [ ${#failed[@]} -gt 0 ]; then
  printf 'tests/features.sh: failed with the features %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "${#sets[@]} feature sets, no warnings"
