#!/usr/bin/env bash
# The third tier: what takes long, or needs other programs. In parts of at most an hour on two cores:
#
#   bash tests/nightly.sh --list        # the parts
#   bash tests/nightly.sh --part 3      # one of them
#   bash tests/nightly.sh --tree        # the name of this tree
#
# A part that was interrupted goes on where it was: what has passed on this tree is not run again. What
# a step says is kept in target/nightly/, that of a failure with the seed of its random numbers
# (TIDEGATE_SEED=... repeats it; the test itself prints the case). Each part writes its row of
# docs/evidence/nightly.md.
set -euo pipefail
cd "$(dirname "$0")/.."
source tests/steps.sh
source tests/servers.sh

parts=(
  "1 histories: random histories at length, by the driver and by the stores"
  "2 fleets: several processes at length"
  "3 soak: a quarter of an hour of faults under load, and the tables of faults"
  "4 mutants: the first half of the list"
  "5 mutants: the second half of the list"
  "6 mutants: defects of the past, and forty of cargo-mutants"
  "7 programs: Redisson, Chromium, Prometheus, exporters of metrics; the model of threads"
  "8 builds: all feature sets, clippy on them, the benches, the contributors' guide, Miri"
  "9 servers: Redis 6.2 to 8, Valkey 8 and 9, and what must be refused, where they can be had"
  "10 versions: the last release beside this tree, rolled up and back; the next Redis client"
  "11 releases: the limiters of ten releases of Redisson, each beside each generation"
  "12 proxies: nine real proxies before one app"
  "13 clients: what real clients make of a denial"
)
usage() {
  echo "usage: bash tests/nightly.sh --part N | --list | --tree" >&2
  exit 1
}
folder=target/nightly
case "${1:-}" in
  --list) printf '%s\n' "${parts[@]}"; exit ;;
  --tree) part= ;;
  --part) part=${2:-}; [[ $part =~ ^([1-9]|1[0-3])$ ]] || usage ;;
  *) usage ;;
esac

# The tree that it runs on, with what is not committed. Without prose, pictures and findings: parts
# write some pages, and the rest is not tested here.
index=$(mktemp)
cp "$(git rev-parse --git-path index)" "$index"
export GIT_INDEX_FILE=$index
git add -A
git rm -rq --cached --ignore-unmatch -- '*.md' llms.txt '*.svg' '*.png' findings
tree=$(git write-tree | cut -c1-12)
unset GIT_INDEX_FILE
rm "$index"
if [ -z "$part" ]; then
  echo "$tree"
  exit
fi
mkdir -p "$folder/$tree"
TIDEGATE_SEED=${TIDEGATE_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
export TIDEGATE_SEED
echo "tests/nightly.sh: part $part, tree $tree, TIDEGATE_SEED=$TIDEGATE_SEED"

# A step, unless it has passed on this tree; what it says is kept.
once() {
  local name=$1 kept
  kept=$folder/$tree/$part-${name//[^a-z0-9]/-}
  if [ -e "$kept.passed" ]; then
    steps+=("$name|0|passed before")
    return
  fi
  shift
  echo "TIDEGATE_SEED=$TIDEGATE_SEED $*" >"$kept.log"
  step "$name" kept_in "$kept" "$@"
}

kept_in() {
  local kept=$1 began=$SECONDS
  shift
  if "$@" 2>&1 | tee -a "$kept.log"; then
    echo "seconds: $((SECONDS - began))" >>"$kept.log"
    mv "$kept.log" "$kept.passed"
  else
    echo "kept: $kept.log"
    return 1
  fi
}

run=(bash tests/run.sh --release)

histories() {
  once "histories" env TIDEGATE_HISTORIES=20000 "${run[@]}" --test histories
  once "usual case" env TIDEGATE_HISTORIES=20000 "${run[@]}" --test store usual_case
  once "laws" env TIDEGATE_HISTORIES=100000 "${run[@]}" --test laws
  once "limiter" env TIDEGATE_HISTORIES=20000 "${run[@]}" --test limiter history
  once "waiting" env TIDEGATE_HISTORIES=50000 "${run[@]}" --test layer waiting_histories
  once "calendar" env TIDEGATE_HISTORIES=100 "${run[@]}" --test store calendar::
  once "lock-outs" env TIDEGATE_LOCKOUTS=1250 "${run[@]}" --test store lockouts::
  once "budgets" env TIDEGATE_HISTORIES=100 "${run[@]}" --test layer budget_histories::
  once "clocks" env TIDEGATE_FLEET_SECONDS=60 "${run[@]}" --test hostile_store periods:: \
    -- --nocapture
  once "lock" env TIDEGATE_ACQUISITIONS=100000 "${run[@]}" --test hostile_lock soak -- --nocapture
  once "flood" env TIDEGATE_FLOOD=10000000 "${run[@]}" --test store flood:: -- --nocapture
}

fleets() {
  once "saturated" env TIDEGATE_FLEET_SECONDS=22 "${run[@]}" --test fleet saturated -- --nocapture
  once "outcomes" env TIDEGATE_OUTCOMES=200000 "${run[@]}" --test fleet outcomes:: -- --nocapture
  once "starved" env TIDEGATE_STARVED=20 "${run[@]}" --test fleet starved:: -- --nocapture
  once "frozen" env TIDEGATE_FROZEN=8 "${run[@]}" --test fleet frozen:: -- --nocapture
  once "waiting" env TIDEGATE_WAITING=10000 "${run[@]}" --test fleet waiting:: -- --nocapture
  once "permits" env TIDEGATE_AT_A_TIME=200000 "${run[@]}" --test fleet permits:: -- --nocapture
}

soak() {
  once "faults" bash tests/faults.sh
  once "passwords" env TIDEGATE_ROTATION_SECONDS=20 TIDEGATE_ROTATIONS=14 "${run[@]}" \
    --test hostile_topologies rotations:: -- --nocapture
  once "soak" env TIDEGATE_SOAK_SECONDS=900 bash tests/soak.sh
}

mutants() {
  local share
  for share in "$@"; do
    once "mutants $share/12" env TIDEGATE_SHARD="$share/12" bash tests/mutants.sh
  done
}

past_and_tool() {
  once "past defects" bash tests/mutants.sh past
  once "cargo-mutants" bash tests/mutants.sh tool
}

programs() {
  once "model of threads" bash tests/model.sh
  once "the real Redisson" bash tests/interop.sh --short
  once "the newest Redisson" env REDISSON=RELEASE bash tests/interop.sh --short
  once "Prometheus" bash tests/observe.sh
  need go=golang-go
  once "exporters" cargo test --no-fail-fast --manifest-path tests/exporters/Cargo.toml \
    --target-dir target/exporters
  once "Chromium" bash tests/page.sh
}

# Each set that a user may choose: two features at a time, and all but one.
builds() {
  if ! command -v cargo-hack >/dev/null; then
    PATH=$PWD/target/tools/bin:$PATH
    command -v cargo-hack >/dev/null || once "cargo-hack" cargo install cargo-hack --locked --root target/tools
  fi
  once "feature sets" cargo hack check -p tidegate --lib --feature-powerset --depth 2 \
    --exclude-features default,full
  local one
  for one in $(awk '/^full = / { gsub(/[",\[\]]/, ""); $1 = $2 = ""; print }' Cargo.toml); do
    once "all but $one" all_but "$one"
  done
  once "clippy, default features" cargo clippy -p tidegate --all-targets -- -D warnings
  once "clippy, no features" cargo clippy -p tidegate --all-targets --no-default-features -- -D warnings
  once "benches" cargo bench -p tidegate-benches --no-run
  once "bench beside peers" cargo check --ignore-rust-version --manifest-path benches/peers/Cargo.toml
  once "bench of versions" cargo check --manifest-path benches/versions/Cargo.toml
  if command -v valgrind >/dev/null; then
    once "instructions" bash benches/instructions.sh --check
    once "instructions of Redis" bash benches/instructions.sh --server --check
  else
    skipped "instructions" "valgrind is not installed"
  fi
  if cargo +nightly --version >/dev/null 2>&1; then
    once "public API" bash tests/public_api.sh
  else
    skipped "public API" "no nightly Rust"
  fi
  if cargo +nightly miri --version >/dev/null 2>&1; then
    once "Miri" bash tests/miri.sh
  else
    skipped "Miri" "no nightly Rust with Miri"
  fi
}

# Without `redis` means without what needs it, too.
all_but() {
  local without=$1 rest
  if [ "$without" = redis ]; then without='redis|lock|cluster|sentinel|tls'; fi
  rest=$(awk '/^full = / { gsub(/[",\[\]]/, ""); $1 = $2 = ""; print }' Cargo.toml | tr ' ' '\n' |
    grep -vxE "|$without" | paste -sd,)
  cargo check -p tidegate --lib --no-default-features --features "$rest"
}

# Whatever needs a server runs on each of the others. The tests take more of Redis than the crate
# does, so Redis 6.2 runs a part of them.
servers() {
  local name program all=(--test histories --test store --test limiter --test lock)
  once "ready" bash tests/ready.sh
  other_servers
  for name in "${OTHER_SERVERS[@]}"; do
    program=$(command -v "$name" || ls target/servers/"$name" 2>/dev/null || true)
    if [ -z "$program" ]; then
      skipped "$name" "not found on the PATH, and it cannot be had here"
      continue
    fi
    mkdir -p "$folder/bin-$name"
    ln -sf "$(realpath "$program")" "$folder/bin-$name/redis-server"
    local on=(env PATH="$PWD/$folder/bin-$name:$PATH" "${run[@]}" "${all[@]}")
    case $name in
      *-6.2) once "$name" "${on[@]}" -- histories conformance usual_case history basics redis_keys ;;
      *) once "$name" "${on[@]}" --test topologies ;;
    esac
  done
}

versions() {
  if bash tests/versions.sh --has-old; then
    once "versions" bash tests/versions.sh --seconds 1800
  else
    skipped "versions" "the older version is not in this clone"
  fi
  once "the next Redis client" bash tests/redis_next.sh
}

# A step for each release, so that one that fails is run again alone.
releases() {
  local release
  for release in 3.10.7 3.13.2 3.13.3 3.16.3 3.16.8 3.17.0 3.20.1 3.34.0 3.52.0 RELEASE; do
    once "Redisson $release" bash tests/interop.sh --long --releases "$release"
  done
}

proxies() {
  once "proxies" bash tests/proxies.sh
}

clients() {
  once "clients" bash tests/clients.sh
}

case $part in
  1) histories ;;
  2) fleets ;;
  3) soak ;;
  4) mutants $(seq 6) ;;
  5) mutants $(seq 7 12) ;;
  6) past_and_tool ;;
  7) programs ;;
  8) builds ;;
  9) servers ;;
  10) versions ;;
  11) releases ;;
  12) proxies ;;
  13) clients ;;
esac

# A step that was skipped proves nothing, and the row says so. What passed before this run counts.
of_outcome() { printf '%s\n' "${steps[@]}" | awk -F'|' -v outcome="$1" '$3 ~ "^" outcome { printf ", %s", $1 }'; }
outcome=passed
if [ -n "$(of_outcome skipped)" ]; then outcome="skipped$(of_outcome skipped | cut -c2-)"; fi
if [ $steps_failed -ne 0 ]; then outcome="failed$(of_outcome FAILED | cut -c2-)"; fi
row=$({ cat "$folder/$tree/$part"-*.passed 2>/dev/null || true; } | awk -v part="${parts[part - 1]%%:*}" -v tree="$tree" \
  -v day="$(date +%F)" -v outcome="$outcome" '
  /^seconds: / { seconds += $2 }
  /^test result:/ { passed += $4 }
  END { printf "| %s | %s | %s | %d | %s | %s |", part, tree, day, (seconds + 59) / 60, passed, outcome }')
page=docs/evidence/nightly.md
exec 9>"$folder/lock"
flock 9
awk -F'|' -v row="$row" -v part="$part" '
  function write() { if (row != "") print row; row = "" }
  /^\| part / { in_table = 1 }
  /^\| [0-9]+ / { if ($2 + 0 == part) { write(); next } if ($2 + 0 > part) write() }
  in_table && !/^\|/ { write() }
  { print }
  END { write() }' "$page" >"$folder/page"
cp "$folder/page" "$page"
flock -u 9
finish
