#!/usr/bin/env bash
# How long the guides are, and whether their links lead somewhere.
set -euo pipefail
cd "$(dirname "$0")/.."
paths=$(mktemp)
trap 'rm "$paths"' EXIT

# How long the README, the guides and the recipes may be.
test "$(wc -l <README.md)" -le 180 || { echo "tests/guide.sh: the README has more than 180 lines" >&2; exit 1; }
test "$(wc -l <llms.txt)" -le 150 || { echo "tests/guide.sh: llms.txt has more than 150 lines" >&2; exit 1; }
# Both commands of a checkout.
for command in 'cargo run --example web_app' 'bash tests/run.sh'; do
  grep -qF "\`$command\`" README.md || { echo "tests/guide.sh: the README does not name $command" >&2; exit 1; }
done
at_most() {
  local words
  words=$(cat "${@:3}" | wc -w)
  test "$words" -le "$1" ||
    { echo "tests/guide.sh: $2 have $words words, expected at most $1: say it shorter, or once" >&2; exit 1; }
}
at_most 25790 "README, CONTRIBUTING and the guides" README.md CONTRIBUTING.md docs/*.md
at_most 2205 "the words for those who come from elsewhere" docs/migrating.md
at_most 10050 "the pages of docs/evidence" docs/evidence/*.md
# The headings that links within these pages name.
for page in README.md CONTRIBUTING.md docs/*.md docs/evidence/*.md; do
  { grep -oE '\]\([^) ]*#[^) ]+\)' "$page" || true; } | sed -E 's/^\]\((.*)\)$/\1/' | { grep -v : || true; } |
    while IFS='#' read -r file anchor; do
      target=$(dirname "$page")/$file
      test -n "$file" || target=$page
      grep -E '^##* ' "$target" | sed -E 's/^#+ //' | tr '[:upper:]' '[:lower:]' |
        sed -E 's/[^a-z0-9 _-]//g; s/ /-/g' | grep -qx -- "$anchor" ||
        { echo "tests/guide.sh: $page links to $file#$anchor, which is not there" >&2; exit 1; }
    done
done
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
# The files and folders that docs name between backquotes, from the root or from any folder.
find . -path ./target -prune -o -path ./.git -prune -o -path ./node_modules -prune -o -print |
  sed 's/^\.//' >"$paths"
grep -noE '`[A-Za-z0-9_.][A-Za-z0-9_/.-]*(\.(rs|lua|sh|md|js|py)|[a-z_]/)`' README.md CONTRIBUTING.md SECURITY.md \
  docs/*.md docs/*/*.md tests/README.md benches/*.md src/*/mod.rs crates/*/src/*/mod.rs src/lib.rs /dev/null |
  tr -d '`' |
  awk -F: -v paths="$paths" '
    BEGIN { while ((getline path <paths) > 0) { known[path] = 1; all[++n] = path } }
    {
      # Files of other projects.
      if ($1 == "docs/evidence/peers.md") next
      name = $3
      sub(/^(\.\.?\/)+/, "", name)
      sub(/\/$/, "", name)
      if (!(name in found)) {
        found[name] = ("/" name) in known
        for (i = 1; i <= n && !found[name]; i++) {
          rest = length(all[i]) - length(name)
          found[name] = rest > 0 && substr(all[i], rest) == "/" name
        }
      }
      if (!found[name]) {
        printf "tests/guide.sh: %s:%s names %s, which is not there\n", $1, $2, $3
        wrong = 1
      }
    }
    END { exit wrong }
  ' >&2
# The types, functions and modules that CONTRIBUTING names, and the functions of its drawings.
defined() {
  grep -rqE "\b(fn|mod|struct|enum|trait|type|const|static|function) $1\b" "${@:2}"
}
code=(src crates tests/kit lua)
for name in $(grep -ohE '`([A-Za-z_]+::)*[A-Za-z_]+`' CONTRIBUTING.md | tr -d '`') \
  $(grep -hE '^//!? ' src/layer/mod.rs crates/base/src/connection/mod.rs | grep -ohE '\b[A-Z][A-Za-z]+::[a-z_]+  '); do
  files=("${code[@]}")
  if [[ $name =~ ([A-Z][A-Za-z]*):: ]]; then
    mapfile -t files < <(grep -rlE "\b(impl|struct|enum|trait)\b.*\b${BASH_REMATCH[1]}\b" "${code[@]}")
  fi
  test "${#files[@]}" -gt 0 && defined "${name##*::}" "${files[@]}" ||
    { echo "tests/guide.sh: the guides name $name, which is not there" >&2; exit 1; }
done
# The test binaries that the page names.
for binary in $(grep -oE 'run\.sh [^`]*--test [a-z_]+' docs/*.md docs/evidence/*.md | grep -oE '[a-z_]+$' | sort -u); do
  test -d "tests/${binary/#hostile_/hostile/}" ||
    { echo "tests/guide.sh: the docs name the test binary $binary, which is not there" >&2; exit 1; }
done
# Each limiter of the comparison, in its version, has a line that says where that was read.
peers=$(sed -n 's/^\[\([a-z_-]*\)\]: https:.*/\1/p' docs/compare.md)
test -n "$peers" || { echo "tests/guide.sh: docs/compare.md names no other crates" >&2; exit 1; }
for peer in $peers Redisson express-rate-limit axum-governor; do
  version=$(sed -n "s/.*\[$peer\] \([0-9][0-9.]*\).*/\1/p" docs/compare.md | head -n 1)
  grep -q "^| $peer $version" docs/evidence/peers.md ||
    { echo "tests/guide.sh: docs/evidence/peers.md has no line for $peer $version" >&2; exit 1; }
done
awk -F ' [|] ' '
    /^[|] / && !/^[|] what / && $3 !~ /^20[0-9][0-9]-[01][0-9]-[0-3][0-9]$/ { print; wrong = 1 }
    END { exit wrong }
' docs/evidence/peers.md ||
  { echo "tests/guide.sh: these lines of docs/evidence/peers.md have no day" >&2; exit 1; }
