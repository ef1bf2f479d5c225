#!/usr/bin/env bash
# Builds the crate with one mistake after the other, and checks that some test notices each.
#
#   bash tests/mutants.sh             # those of tests/mutants/list.toml: an hour
#   bash tests/mutants.sh past        # defects that were mended once: half an hour
#   bash tests/mutants.sh tool        # forty of cargo-mutants, the same in each run; installs it
#   bash tests/mutants.sh "owed"      # those of a part of the list
#
# TIDEGATE_SHARD=2/3 makes the second of three shares.
set -euo pipefail
cd "$(dirname "$0")/.."

export TIDEGATE_MUTANTS=${1:-list}
# The seed of the nightly would draw forty others each time, and other histories to notice them.
unset TIDEGATE_SEED
if [ "$TIDEGATE_MUTANTS" = tool ]; then
  command -v cargo-mutants >/dev/null || cargo install cargo-mutants --locked --root target/tools
  mkdir -p target/mutants-of-tool
  PATH=$PWD/target/tools/bin:$PATH cargo mutants --list --json --diff \
    -p tidegate -p tidegate-base -p tidegate-redisson >target/mutants-of-tool/list.json
fi
cargo test -p tidegate -p tidegate-tests --all-features --test mutants -- \
  --ignored --nocapture --exact every_mutant_is_noticed
