#!/bin/sh
# Whether the diffs of docs/contributing.md that name lines still apply.
set -eu
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
awk -v folder="$folder" '
    /^```diff$/ { inside = 1; number++; next }
    /^```$/ { inside = 0 }
    inside { print >(folder "/" number ".diff") }
' docs/contributing.md
checked=0
for diff in "$folder"/*.diff; do
    # A shortened diff names no lines.
    grep -q '^@@ -[0-9]' "$diff" || continue
    git apply --check -v "$diff"
    checked=$((checked + 1))
done
test "$checked" -ge 3 || { echo "tests/guide.sh: only $checked diffs were found" >&2; exit 1; }
