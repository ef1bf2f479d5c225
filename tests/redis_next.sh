#!/usr/bin/env bash
# The newest release of the Redis client's next major version, also a candidate: a copy of this tree
# with `tests/next/redis-2.patch`, and its tests of the store, the limiter, the lock, topologies, and
# of TLS by the roots of the system. Fails where the patch does not apply, or a test fails. At the end
# the instructions of a call, here and there, if valgrind is installed.
#
#   bash tests/redis_next.sh
#   bash tests/redis_next.sh --instructions    # these alone
set -euo pipefail
cd "$(dirname "$0")/.."
source tests/need.sh
source tests/steps.sh
source benches/callgrind.sh
need_cargo
need redis-server=redis-server openssl=openssl
case "${1:-}" in
  "" | --instructions) ;;
  *) echo "usage: bash tests/redis_next.sh [--instructions]" >&2; exit 1 ;;
esac

target=${CARGO_TARGET_DIR:-$PWD/target}/next
tree=$target/tree
rm -rf "$tree"
mkdir -p "$tree"
# As it is here; files keep their times, so that only what has changed is built again.
git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x -C "$tree"
# A repository of its own: else the patch would be of the one around it.
git init -q "$tree"
git -C "$tree" apply "$PWD/tests/next/redis-2.patch"
# The crate gets the newest version below 3; the tests keep theirs, as no type of it is public.
for manifest in "$tree"/{,crates/*/}Cargo.toml; do
  sed -E 's/^(redis = \{ version = ")1[^"]*/\12.0.0-rc/' "$manifest" >"$target/manifest"
  cmp -s "$target/manifest" "$manifest" || cat "$target/manifest" >"$manifest"
done
export CARGO_TARGET_DIR=$target/build
cargo metadata --format-version 1 --manifest-path "$tree/Cargo.toml" >/dev/null
# The last one, where the tests have another.
version_in() {
  awk '/^name = "redis"$/ { getline; gsub(/"/, ""); version = $3 } END { print version }' \
    "$1/Cargo.lock"
}
echo "$0: the Redis client $(version_in "$tree")"

test=(cargo test --manifest-path "$tree/Cargo.toml" -p tidegate -p tidegate-base -p tidegate-redisson
  -p tidegate-tests --all-features --no-fail-fast)
if [ -z "${1:-}" ]; then
  step "store, limiter, lock, topologies" \
    "${test[@]}" --test store --test limiter --test lock --test topologies
  step "the roots of the system" \
    "${test[@]}" --test hostile_topologies connecting::tls::only_what_is_trusted
fi

# The instructions of a bare call, and of a take.
count() {
  local checkout=$1 package=$target/package
  mkdir -p "$package"
  cp -r tests/next/src "$checkout/Cargo.lock" "$package"
  sed -E "s|path = \"../..\"|path = \"$checkout\"|
    s|^(redis = \{ version = \")[^\"]*|\1=$(version_in "$checkout")|" \
    tests/next/Cargo.toml >"$package/Cargo.toml"
  cargo build --quiet --release --manifest-path "$package/Cargo.toml" || return
  counted "$target/calls" "$CARGO_TARGET_DIR/release/tidegate-next" "$url" >"$target/counts"
  paste "$target/counts" "$target/calls" | awk '{ printf "%.0f\n", $1 / $2 }'
}
instructions() {
  local folder port=0
  folder=$(mktemp -d)
  redis-server --port 0 --unixsocket "$folder/socket" --save '' --dir "$folder" >/dev/null &
  server=$!
  url=unix://$folder/socket
  until [ -S "$folder/socket" ]; do sleep 0.1; done
  local outcome=0
  count "$PWD" >"$target/here" && count "$tree" >"$target/there" || outcome=1
  kill "$server"
  rm -r "$folder"
  echo "| instructions | redis $(version_in .) | redis $(version_in "$tree") |"
  echo "| --- | ---: | ---: |"
  printf '%s\n' "a bare \`EVALSHA\`" "a take" | paste -d '|' - "$target/here" "$target/there" |
    awk -F '|' '{ printf "| %s | %s | %s |\n", $1, $2, $3 }'
  return $outcome
}
if has_callgrind; then
  step "instructions" instructions
else
  skipped "instructions" "valgrind is not installed"
fi
finish
