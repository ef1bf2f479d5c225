#!/usr/bin/env bash
# Packs the crate as `cargo publish` does, and checks what a user unpacks: the library and the
# examples build, and the pictures of the README and the docs are there. Their other links lead to
# files of the repository.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo package --quiet --allow-dirty --no-verify
target=${CARGO_TARGET_DIR:-$PWD/target}
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
# The newest: an older version may be there, too.
archive=$(ls -t "$target"/package/*.crate | head -n 1)
# With new times, or cargo would take the files for those that it has built already.
tar -xzmf "$archive" -C "$folder" --strip-components 1
du -h "$archive"

# With the dependencies that are built already.
CARGO_TARGET_DIR=$target \
  cargo check --quiet --manifest-path "$folder/Cargo.toml" --lib --examples --features full

# The targets of `[text](target)` and of `[name]: target`, without those elsewhere and in the page.
links() {
  { grep -oE '\]\([^) ]+\)' "$1" | sed -E 's/^\]\((.*)\)$/\1/'
    grep -oE '^\[[^]]+\]: .+' "$1" | sed -E 's/^\[[^]]+\]: //'; } |
    grep -vE '^(https?:|#)|::' | sed 's/#.*//'
}

missing=0
for page in README.md docs/*.md; do
  for link in $(links "$page"); do
    case $link in
      *.png | *.svg) from=$folder ;;
      *) from=. ;;
    esac
    if [ ! -e "$from/$(dirname "$page")/$link" ]; then
      echo "tests/package.sh: $page links to $link, which is not there" >&2
      missing=1
    fi
  done
done
exit $missing
