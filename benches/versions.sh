#!/usr/bin/env bash
# Compares two versions of this crate in one run: an older checkout, and the present one.
#
#     bash benches/versions.sh OLD_CHECKOUT [--rows hot,lock] [--pairs 9] [--no-counts]
#
# It builds benches/versions against each checkout, with the target directory target/versions in it.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
old=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
new=$PWD

for program in redis-server wrk valgrind; do
  if ! command -v "$program" >/dev/null; then
    echo "installing $program" >&2
    as_root=
    [ "$(id -u)" = 0 ] || as_root=sudo
    $as_root apt-get update -qq >&2 || true
    $as_root apt-get install -y -qq "$program" >&2
  fi
done

# A copy of the package, which depends on the checkout: the same source for both.
build() {
  local checkout=$1 package=$1/target/versions/package
  mkdir -p "$package"
  cp -r benches/versions/src benches/versions/Cargo.lock benches/peers/wrk.lua "$package"
  sed "s|path = \"../..\"|path = \"$checkout\"|" benches/versions/Cargo.toml >"$package/Cargo.toml"
  # Before, `try_set_rate` took a rate's parts, and `try_set` a rate.
  if grep -qs 'fn try_set(' "$checkout/src/limiter/rate_limiter.rs"; then
    sed -i 's/\.try_set_rate(/.try_set(/' "$package/src/bin/subject.rs"
  fi
  cargo build --release --manifest-path "$package/Cargo.toml" --target-dir "$checkout/target/versions" >&2
}

build "$old"
build "$new"
"$new/target/versions/release/versions" \
  "$old/target/versions/release/subject" "$new/target/versions/release/subject" "$@"
