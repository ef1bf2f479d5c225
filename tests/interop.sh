#!/usr/bin/env bash
# Redisson and this crate on one Redis: who gets a lock, what windows hold, calls at random from processes of both
# languages, and what their scripts write; locks also on a cluster and behind sentinels. Prints a table of each, and ends
# with an error if anything is violated.
# --short, the default: 20,000 calls, in three minutes. --long: 500,000 calls, and the medians of five runs.
# --releases: the limiter of one release of each kind since 3.10.7 beside each generation, in half an hour; with names of
# releases behind it, of these. Runs of 20 s with --long before it, else of 5 s.
# Installs Java, Maven and redis-server where they are missing. REDISSON=4.7.0 runs another release than pom.xml says,
# REDISSON=RELEASE the newest that Maven has.
set -euo pipefail
cd "$(dirname "$0")/.."

profile=()
releases=()
for word in "$@"; do
  case $word in
    --short) ;;
    --long) export TIDEGATE_INTEROP=long ;;
    --releases) releases=(3.10.7 3.13.2 3.13.3 3.16.3 3.16.8 3.17.0 3.20.1 3.34.0 3.52.0 RELEASE) ;;
    [0-9]*|RELEASE) if [ -z "${chosen:-}" ]; then releases=(); chosen=1; fi; releases+=("$word") ;;
    *) echo "usage: bash tests/interop.sh [--short|--long] [--releases [RELEASE...]]" >&2; exit 1 ;;
  esac
done

# How fast this crate is matters to the other tests alone.
if [ ${#releases[@]} -eq 0 ] && [ "${TIDEGATE_INTEROP:-}" = long ]; then profile=(--release); fi

source tests/need.sh
need javac=default-jdk-headless mvn=maven redis-server=redis-server

# Builds the Java half in a folder of target/ from sources beside pom.xml, unless it stands there.
build() {
  local built=target/$1 sources=$2 release=$3 wanted
  wanted=$(cat tests/fleet/interop/pom.xml "tests/fleet/interop/$sources"/*.java; echo "$release")
  if [ "$release" = RELEASE ] || [ "$wanted" != "$(cat "$built/built" 2>/dev/null)" ]; then
    rm -rf "$built"
    mvn -q -B -f tests/fleet/interop/pom.xml ${release:+-Dredisson.version=$release} -Dsources="$sources" \
      -Dbuilt="$PWD/$built" compile dependency:copy-dependencies -DoutputDirectory="$PWD/$built/lib"
    echo "$wanted" >"$built/built"
  fi
  ls "$built/lib" | grep '^redisson-[0-9]'
}

run() {
  cargo test -p tidegate -p tidegate-tests --all-features "${profile[@]}" --test fleet "$@" --ignored --nocapture --test-threads 1
}

if [ ${#releases[@]} -eq 0 ]; then
  build interop java "${REDISSON:-}"
  run interop:: -- --skip interop::generations
  exit
fi

# All are run, and then the table is printed.
said=target/interop-releases/said
mkdir -p "${said%/*}"
: >"$said"
failed=0
for release in "${releases[@]}"; do
  build "interop-releases/$release" releases "$release"
  TIDEGATE_INTEROP_BUILT=target/interop-releases/$release run interop::generations -- 2>&1 | tee -a "$said" || failed=1
done
echo "| Redisson | a grant of 3 | First | Second | Third | fullest of ${TIDEGATE_INTEROP:-short} runs: Java alone | both | Java's share, % | errors of Java: alone, both | script calls a second, both |"
echo "|---|---|---|---|---|---|---|---|---|---|"
grep '^row ' "$said" | sed 's/^row //'
exit $failed
