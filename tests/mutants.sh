#!/usr/bin/env bash
# Builds the crate with one mistake after the other, and checks that some test notices each.
#
#   bash tests/mutants.sh             # those of tests/mutants/list.toml: an hour
#   bash tests/mutants.sh past        # defects that were mended once: half an hour
#   bash tests/mutants.sh tool        # forty of cargo-mutants, the same in each run; installs it
#   bash tests/mutants.sh "owed"      # those of a part of the list
#   bash tests/mutants.sh --changed [BASE]   # those of the list in files that differ from where this
#                                            # branch left BASE, by default origin/main
#
# What the tests of its row do not notice is tried on whole binaries, then on both tiers: that takes
# an hour, and what notices it there is proposed for the row.
#
# TIDEGATE_SHARD=2/3 makes the second of three shares.
set -euo pipefail
cd "$(dirname "$0")/.."

export TIDEGATE_MUTANTS=${1:-list}
if [ "$TIDEGATE_MUTANTS" = --changed ]; then
  base=${2:-origin/main}
  from=$(git merge-base "$base" HEAD 2>/dev/null) ||
    { echo "tests/mutants.sh: there is no commit $base, expected --changed BASE" >&2; exit 2; }
  TIDEGATE_CHANGED=$(git diff --name-only "$from")
  export TIDEGATE_CHANGED
fi
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
