#!/usr/bin/env bash
# Whether the diffs of docs/contributing.md that name lines still apply. With --compile, whether the
# library builds with those that change it.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
  "" | --compile) ;;
  *) echo "usage: bash tests/guide.sh [--compile]" >&2; exit 1 ;;
esac

folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
mkdir "$folder/diffs" "$folder/tree"
awk -v folder="$folder/diffs" '
    /^```diff$/ { inside = 1; number++; next }
    /^```$/ { inside = 0 }
    inside { print >(folder "/" number ".diff") }
' docs/contributing.md
checked=0
if [ "${1:-}" = --compile ]; then git archive HEAD | tar -x -C "$folder/tree"; fi
for diff in "$folder"/diffs/*.diff; do
  # A shortened diff names no lines.
  grep -q '^@@ -[0-9]' "$diff" || continue
  git apply --check -v "$diff"
  checked=$((checked + 1))
  if [ "${1:-}" = --compile ] && grep -q '^+++ b/src/' "$diff"; then
    patch --quiet -d "$folder/tree" -p1 <"$diff"
  fi
done
test "$checked" -ge 3 || { echo "tests/guide.sh: only $checked diffs were found" >&2; exit 1; }
if [ "${1:-}" = --compile ]; then
  CARGO_TARGET_DIR=$PWD/target \
    cargo check --manifest-path "$folder/tree/Cargo.toml" -p tidegate --lib --features full
fi
# How long the README and the recipes may be.
test "$(wc -l <README.md)" -le 200 || { echo "tests/guide.sh: the README has more than 200 lines" >&2; exit 1; }
awk '
    function check() {
      if (code > 12 || prose > 3) {
        printf "docs/cookbook.md: %s: %d lines of code, expected at most 12, and %d of prose, expected at most 3\n", title, code, prose
        wrong = 1
      }
      code = prose = 0
    }
    /^##+ / && !inside { check(); title = $0; next }
    /^```/ { inside = !inside; next }
    NF == 0 || /^# / && inside || /^\[.*\]: / { next }
    inside { code++ }
    !inside && title ~ /^### / { prose++ }
    END { check(); exit wrong }
' docs/cookbook.md
# The test binaries that the page names.
for binary in $(grep -oE 'cargo test [^`]*--test [a-z]+' docs/*.md docs/evidence/*.md | grep -oE '[a-z]+$' | sort -u); do
  test -d "tests/$binary" ||
    { echo "tests/guide.sh: the docs name the test binary $binary, which is not there" >&2; exit 1; }
done
