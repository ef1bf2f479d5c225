#!/usr/bin/env bash
# Redisson and this crate on one Redis: who gets a lock, what windows hold, calls at random from processes of both
# languages, and what their scripts write; locks also on a cluster and behind sentinels. Prints a table of each, and ends
# with an error if anything is violated.
# --short, the default: 20,000 calls, in three minutes. --long: 500,000 calls, and the medians of five runs.
# Installs Java, Maven and redis-server where they are missing. REDISSON=4.7.0 runs another release than pom.xml says,
# REDISSON=RELEASE the newest that Maven has.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:---short}" in
  --short) profile=() ;;
  --long) profile=(--release); export TIDEGATE_INTEROP=long ;;
  *) echo "usage: bash tests/interop.sh [--short|--long]" >&2; exit 1 ;;
esac

source tests/need.sh
need javac=default-jdk-headless mvn=maven redis-server=redis-server

built=target/interop
wanted=$(cat tests/fleet/interop/pom.xml tests/fleet/interop/java/*.java; echo "${REDISSON:-}")
if [ "${REDISSON:-}" = RELEASE ] || [ "$wanted" != "$(cat "$built/built" 2>/dev/null)" ]; then
  rm -rf "$built"
  mvn -q -B -f tests/fleet/interop/pom.xml ${REDISSON:+-Dredisson.version=$REDISSON} \
    compile dependency:copy-dependencies -DoutputDirectory="$PWD/$built/lib"
  echo "$wanted" >"$built/built"
fi
ls "$built/lib" | grep '^redisson-'

exec cargo test -p tidegate -p tidegate-tests --all-features "${profile[@]}" --test fleet interop:: -- --ignored --nocapture --test-threads 1
