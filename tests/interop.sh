#!/usr/bin/env bash
# Redisson and this crate on one Redis: who gets a lock, what windows hold, calls at random from processes of both
# languages, and what their scripts write. Prints a table of each, and ends with an error if anything is violated.
# --short, the default: 20,000 calls, in three minutes. --long: 500,000 calls, and the medians of five runs.
# Installs Java, Maven and redis-server where they are missing. REDISSON=4.7.0 runs another release than pom.xml says.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:---short}" in
  --short) profile=() ;;
  --long) profile=(--release); export TIDEGATE_INTEROP=long ;;
  *) echo "usage: bash tests/interop.sh [--short|--long]" >&2; exit 1 ;;
esac

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "tests/interop.sh: need root to run: $*" >&2
    return 1
  fi
}

packages=()
command -v javac >/dev/null || packages+=(default-jdk-headless)
command -v mvn >/dev/null || packages+=(maven)
command -v redis-server >/dev/null || packages+=(redis-server)
if [ ${#packages[@]} -gt 0 ]; then
  echo "tests/interop.sh: installing ${packages[*]}" >&2
  if ! command -v apt-get >/dev/null; then
    echo "tests/interop.sh: no apt-get here; install Java 17 or later, Maven and Redis 7.0 or later, and start again" >&2
    exit 1
  fi
  as_root apt-get update -q
  # The tests start servers of their own: none has to run beside them.
  as_root env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -yq "${packages[@]}"
fi

built=target/interop
wanted=$(cat tests/fleet/interop/pom.xml tests/fleet/interop/java/*.java; echo "${REDISSON:-}")
if [ "$wanted" != "$(cat "$built/built" 2>/dev/null)" ]; then
  rm -rf "$built"
  mvn -q -B -f tests/fleet/interop/pom.xml ${REDISSON:+-Dredisson.version=$REDISSON} \
    compile dependency:copy-dependencies -DoutputDirectory="$PWD/$built/lib"
  echo "$wanted" >"$built/built"
fi
ls "$built/lib" | grep '^redisson-'

exec cargo test -p tidegate -p tidegate-tests --all-features "${profile[@]}" --test fleet interop:: -- --ignored --nocapture --test-threads 1
