#!/usr/bin/env bash
# Runs the tests of every law and feature, with all features, against real redis-server processes
# that they start themselves. The attacks and the fleets take as long as all others together:
#   bash tests/run.sh --attacks
#   bash tests/run.sh --test fleet
# Installs redis-server, and openssl for the certificates of one of them, where they are missing and
# it may do so: with apt-get as root or by sudo, or with brew. Else it says what to install.
# Other options are those of `cargo test` and, after `--`, of the tests; only what they name runs.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -eq 0 ]; then
  echo "tests/run.sh: unit tests, doc tests and ten test binaries: about ten minutes on two cores"
fi

missing=()
for program in redis-server redis-cli openssl; do
  command -v "$program" >/dev/null || missing+=("$program")
done

say_what_to_install() {
  cat >&2 <<EOF
tests/run.sh: not found on the PATH: ${missing[*]}
$1 Install what is missing, and start again:
  Debian, Ubuntu   apt-get install redis-server redis-tools openssl
  Fedora, RHEL     dnf install redis openssl
  Alpine           apk add redis openssl
  macOS            brew install redis openssl
The tests need Redis 7.0 or later (they use more of it than the crate does), and openssl for TLS.
EOF
  exit 1
}

install_servers() {
  local as_root=()
  if command -v apt-get >/dev/null; then
    if [ "$(id -u)" -ne 0 ]; then
      command -v sudo >/dev/null || say_what_to_install "Installing needs root, and there is no sudo."
      as_root=(sudo)
    fi
    echo "tests/run.sh: installing redis-server and openssl, for ${missing[*]}" >&2
    # The tests start servers of their own: none has to run beside them.
    ${as_root[@]+"${as_root[@]}"} apt-get update -q &&
      ${as_root[@]+"${as_root[@]}"} env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
        apt-get install -yq redis-server redis-tools openssl ||
      say_what_to_install "Installing with apt-get failed."
  elif command -v brew >/dev/null; then
    brew install redis openssl || say_what_to_install "Installing with brew failed."
  else
    say_what_to_install "This script installs with apt-get or brew, and there is neither."
  fi
}

if ! command -v cargo >/dev/null; then
  echo "tests/run.sh: no cargo on the PATH; install Rust 1.88 or later, and start again:" >&2
  echo "  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh" >&2
  exit 1
fi
if [ ${#missing[@]} -gt 0 ]; then install_servers; fi
redis-server --version

# Snapshots are compared, never written.
export INSTA_UPDATE=no

# Each argument is a line of options; their tests run simultaneously, and what they say is shown one
# after the other. Most tests wait for servers and clocks most of the time, so they share two cores
# well. The build comes first, for all.
simultaneously() {
  local folder pids=() failed=0
  folder=$(mktemp -d)
  for at in $(seq $#); do
    # shellcheck disable=SC2086
    cargo test --all-features --no-fail-fast ${!at} >"$folder/$at" 2>&1 &
    pids+=($!)
  done
  for at in $(seq $#); do
    wait "${pids[at - 1]}" || failed=$?
    cat "$folder/$at"
  done
  rm -r "$folder"
  return $failed
}

if [ "${1:-}" = --attacks ] && [ $# -eq 1 ]; then
  binaries=()
  for folder in tests/*/attacks; do
    binaries+=("--test=$(basename "${folder%/attacks}")")
  done
  # They wait for servers and proxies most of the time. More of them would disturb each other.
  exec cargo test --all-features --no-fail-fast "${binaries[@]}" -- attacks:: --test-threads=6
fi
if [ $# -gt 0 ]; then exec cargo test --all-features --no-fail-fast "$@"; fi

failed=0
# Some tests start the examples.
cargo build --all-features --examples
binaries=(structure laws store layer limiter lock topologies faults mutants)
cargo test --all-features --no-run --lib "${binaries[@]/#/--test=}"
simultaneously \
  "--lib --test=structure --test=laws --test=store -- --skip attacks::" \
  "--test=layer --test=limiter -- --skip attacks::" \
  "--test=lock --test=topologies -- --skip attacks::" || failed=$?
# Alone: these tests say how long callers waited, under load.
cargo test --all-features --no-fail-fast --test=faults --test=mutants || failed=$?
cargo test --all-features --no-fail-fast --doc || failed=$?
if [ $failed -ne 0 ]; then echo "tests/run.sh: some tests failed, see above" >&2; fi
exit $failed
