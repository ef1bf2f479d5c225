#!/usr/bin/env bash
# Runs all tests with all features, against real redis-server processes that they start themselves.
# Installs redis-server, and openssl for the certificates of one of them, where they are missing and
# it may do so: with apt-get as root or by sudo, or with brew. Else it says what to install.
# Options are those of `cargo test` and, after `--`, of the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

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
exec cargo test --all-features --no-fail-fast "$@"
