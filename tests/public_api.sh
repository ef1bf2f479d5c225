#!/usr/bin/env bash
# Compares what users of the published crates can name with public-api/: a line for each item, with
# all features, without impls that are derived or automatic. A change of these files in a review is
# a change of the API; one that takes or alters a line breaks users: docs/upgrading.md.
#
#   bash tests/public_api.sh             # prints what differs, and fails
#   bash tests/public_api.sh --update    # writes the files
#
# Needs GNU sed and grep, and nightly Rust for rustdoc's JSON; installs cargo-public-api into
# target/tools.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.52.0
PATH=$PWD/target/tools/bin:$PATH
if [ "$(cargo-public-api --version 2>/dev/null)" != "cargo-public-api $version" ]; then
  cargo install cargo-public-api --version $version --locked --quiet --root target/tools
fi
made=$(mktemp -d)
trap 'rm -r "$made"' EXIT

api() {
  cargo public-api -p "$1" --all-features -sss --color never 2>"$made/log" ||
    { cat "$made/log" >&2; return 1; }
}

# The crate, and what it re-exports of the inner ones: the modules of tidegate-redisson as a whole, and
# of tidegate-base the types that it names.
api tidegate >"$made/own"
api tidegate-redisson >"$made/redisson"
api tidegate-base >"$made/base"
names=$(sed -nE 's/^pub use .*::([A-Z][A-Za-z]*)$/\1/p' "$made/own" | sort -u | paste -sd'|')
type="tidegate_base::[a-z_:]+::($names)\b"
{
  cat "$made/own"
  grep -v '^pub mod tidegate_redisson$' "$made/redisson"
  # An item of one of these types, or an impl for one.
  grep -E "^((#\[[a-z_]+\]|pub|const|async|fn|struct|enum|trait|type|impl|impl<[^>]*>) )+([^(]* for )?$type" "$made/base"
} | sed -E "s/\btidegate_redisson::/tidegate::/g; s/$type/\1/g" >"$made/tidegate.txt"
api tidegate-macros >"$made/tidegate-macros.txt"

failed=0
for crate in tidegate tidegate-macros; do
  if [ "${1:-}" = --update ]; then
    mkdir -p public-api
    cp "$made/$crate.txt" public-api/
  elif ! diff -u "public-api/$crate.txt" "$made/$crate.txt"; then
    echo "$0: the API of $crate has changed: write it down with --update, and say it in CHANGELOG.md" >&2
    failed=1
  fi
done
exit $failed
