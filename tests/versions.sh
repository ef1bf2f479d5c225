#!/usr/bin/env bash
# A fleet of two versions on one Redis, rolled up and back: processes of an older version, of both,
# of this tree, of both, of the older one. Histories at random by a clock of the test, whose answers
# have to be those of memory, and load by the server's clock. Prints what was asked; a failure says
# its seed, and the lines of the history.
#
#   bash tests/versions.sh [--old REVISION] [--seconds N]    # default: 60 seconds
#   bash tests/versions.sh --has-old                         # fails if the older version is not there
#
# The older version is the last tag before this commit, or the commit below as long as there is
# none. A shallow clone fetches it; where that is not possible either, nothing can be compared, and
# this fails.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! git rev-parse -q --verify HEAD^ >/dev/null; then
  git fetch -q --unshallow --tags origin 2>/dev/null || true
fi
old=$(git describe --tags --abbrev=0 HEAD^ 2>/dev/null || echo a48634eafb8beaeee26bec0f204341a88fcb83a3)
seconds=60
only_looks=
while [ $# -gt 0 ]; do
  case "$1" in
    --old) old=${2:?a revision}; shift 2 ;;
    --seconds) seconds=${2:?a number}; shift 2 ;;
    --has-old) only_looks=1; shift ;;
    *) echo "usage: bash tests/versions.sh [--old REVISION] [--seconds N] [--has-old]" >&2; exit 1 ;;
  esac
done

git cat-file -e "$old^{commit}" 2>/dev/null || git fetch -q --depth 1 origin "$old" 2>/dev/null ||
  { echo "$0: the older version $old is not in this clone, and cannot be fetched" >&2; exit 1; }
old=$(git rev-parse "$old^{commit}")
if [ -n "$only_looks" ]; then exit; fi

source tests/need.sh
need_cargo
need redis-server=redis-server

target=${CARGO_TARGET_DIR:-$PWD/target}
folder=$target/versions/process
older=$folder/${old::12}
if [ ! -e "$older/Cargo.toml" ]; then
  rm -rf "$older" "$older.part"
  mkdir -p "$older.part"
  git archive "$old" | tar -x -C "$older.part"
  mv "$older.part" "$older"
fi

# The same program for both, each with the versions of other crates that its tree was tested with.
build() {
  local name=$1 checkout=$2 package=$folder/$1
  mkdir -p "$package"
  cp -r tests/versions/src "$checkout/Cargo.lock" "$package"
  # As the replacement of `sed` has it.
  checkout=$(printf '%s' "$checkout" | sed 's/[&|\\]/\\&/g')
  sed "s|path = \"../..\"|path = \"$checkout\"|" tests/versions/Cargo.toml >"$package/Cargo.toml"
  cargo build --quiet --manifest-path "$package/Cargo.toml" --target-dir "$folder/target" >&2
  cp "$folder/target/debug/tidegate-process" "$folder/$name.program"
}
build old "$older"
build new "$PWD"

export TIDEGATE_OLD=$folder/old.program TIDEGATE_NEW=$folder/new.program
export TIDEGATE_VERSIONS_SECONDS=$seconds
export TIDEGATE_SEED=${TIDEGATE_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
echo "$0: ${old::12} beside this tree, TIDEGATE_SEED=$TIDEGATE_SEED"
exec cargo test --quiet -p tidegate -p tidegate-base -p tidegate-redisson -p tidegate-tests --all-features --test fleet \
  versions:: -- --ignored --nocapture --test-threads 1
