#!/usr/bin/env bash
# Packs the crate and those that it is made of as `cargo publish` does, and checks what a user unpacks: the library and the
# examples build, and all links of the README and the docs lead to files of the package. What is
# only in the repository (tests, scripts, packages of their own) they name as a path in code type:
# each such path has to be there.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo package -p tidegate-base -p tidegate-redisson -p tidegate-macros -p tidegate --quiet --allow-dirty --no-verify
target=${CARGO_TARGET_DIR:-$PWD/target}
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
inner=$folder/target/inner
# The newest: an older version may be there, too.
unpack() {
  local archive
  archive=$(ls -t "$target"/package/"$1"-[0-9]*.crate | head -n 1)
  mkdir -p "$2"
  # With new times, or cargo would take the files for those that it has built already.
  tar -xzmf "$archive" -C "$2" --strip-components 1
  du -h "$archive"
}
unpack tidegate "$folder"
patches=()
for package in base redisson macros; do
  unpack "tidegate-$package" "$inner/$package"
  patches+=(--config "patch.crates-io.tidegate-$package.path='$inner/$package'")
done

# With the dependencies that are built already.
CARGO_TARGET_DIR=$target cargo check --quiet --manifest-path "$folder/Cargo.toml" --lib --examples \
  --features full "${patches[@]}"

# The targets of `[text](target)` and of `[name]: target`, without those elsewhere and in the page.
links() {
  { grep -oE '\]\([^) ]+\)' "$1" | sed -E 's/^\]\((.*)\)$/\1/'
    grep -oE '^\[[^]]+\]: .+' "$1" | sed -E 's/^\[[^]]+\]: //'; } |
    grep -vE '^(https?:|#)|::' | sed 's/#.*//'
}

# What stands in code type and begins with a folder of the repository.
paths() {
  grep -oE '`(\.ci|benches|crates|docs|examples|fuzz|lua|src|tests)/[A-Za-z0-9_./-]+`' "$1" | tr -d '`' |
    sort -u
}

missing=0
for page in README.md CONTRIBUTING.md docs/*.md docs/evidence/*.md; do
  for link in $(links "$page"); do
    if [ ! -e "$folder/$(dirname "$page")/$link" ]; then
      echo "tests/package.sh: $page links to $link, which the package lacks" >&2
      missing=1
    fi
  done
  for path in $(paths "$page"); do
    # The guide for contributors names files that its reader adds.
    if [ ! -e "$path" ] && ! grep -q "^+++ b/$path$" "$page"; then
      echo "tests/package.sh: $page names $path, which is not there" >&2
      missing=1
    fi
  done
done
exit $missing
