#!/usr/bin/env bash
# Whether each public type, trait and function of the modules that users read has an example in its
# documentation. `cargo test --doc` compiles and runs the examples.
set -euo pipefail
cd "$(dirname "$0")/.."

# The folder of a module.
place_of() {
  case $1 in limiter | lock) echo "crates/redisson/src/$1" ;; *) echo "src/$1" ;; esac
}

# The public names of a module: those that its mod.rs re-exports.
names_of() {
  tr '\n' ' ' <"$(place_of "$1")/mod.rs" | grep -oE '[^(]pub use [^;]*;' |
    sed -E 's/.*pub use //; s/as _//; s/.*::\{//; s/.*:://' | tr -d '{};' | tr ',' '\n' |
    sed 's/ //g' | grep -v '^$' | sort -u
}

# Whether the comment in front of the item has an example. A file that has no such item is silent.
has_example() {
  awk -v name="$1" '
    /^ *\/\/\// { comment = comment $0 "\n"; next }
    /^ *#!?\[/ || in_attribute { in_attribute = !/\]$/; next }
    $0 ~ "^    ?pub (struct|enum|trait|type|(async )?fn) " name "[^A-Za-z0-9_]" ||
      $0 ~ "^pub (struct|enum|trait|type|(async )?fn) " name "[^A-Za-z0-9_]" {
      print (comment ~ /```/ ? "yes" : "no")
      exit
    }
    { comment = "" }
  ' "$2"
}

missing=()
for module in layer limits key store limiter lock; do
  for name in $(names_of "$module"); do
    found=
    place=$(place_of "$module")
    for file in "$place"/*.rs "$place"/*/*.rs src/charge/*.rs src/question/*.rs src/outgoing/*.rs src/rule/*.rs crates/base/src/support/error.rs; do
      [ -f "$file" ] || continue
      found=$(has_example "$name" "$file")
      if [ -n "$found" ]; then break; fi
    done
    case $found in
      yes) ;;
      no) missing+=("$module::$name, in $file") ;;
      *) missing+=("$module::$name: not found in $(place_of "$module")") ;;
    esac
  done
done
if [ ${#missing[@]} -gt 0 ]; then
  printf 'tests/doc_examples.sh: no example: %s\n' "${missing[@]}" >&2
  exit 1
fi
echo "each public type of layer, limits, key, store, limiter and lock has an example"
