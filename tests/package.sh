#!/usr/bin/env bash
# Packs the crate as `cargo publish` does, and checks what a user unpacks: the library and the
# examples build, and every picture and file that the README and the docs link to is there.
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
    grep -vE '^(https?:|#)' | sed 's/#.*//'
}

missing=0
while IFS= read -r page; do
  while IFS= read -r link; do
    if [ ! -e "$(dirname "$page")/$link" ]; then
      echo "tests/package.sh: ${page#"$folder/"} links to $link, which is not in the package" >&2
      missing=1
    fi
  done < <(links "$page")
done < <(find "$folder/README.md" "$folder/docs" -name '*.md')
exit $missing
