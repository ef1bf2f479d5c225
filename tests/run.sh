#!/usr/bin/env bash
# Runs all tests with all features, against real redis-server processes that they start themselves.
# Installs redis-server, and openssl for the certificates of one of them, where they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "tests/run.sh: need root to run: $*" >&2
    return 1
  fi
}

install_servers() {
  echo "tests/run.sh: installing redis-server and openssl" >&2
  if command -v apt-get >/dev/null; then
    as_root apt-get update -q
    # The tests start servers of their own: none has to run beside them.
    as_root env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -yq redis-server openssl
  elif command -v brew >/dev/null; then
    brew install redis openssl
  else
    echo "tests/run.sh: no apt-get and no brew here; install Redis 7.0 or later (redis-server and redis-cli; the tests use more of it than the crate) and openssl, and start again" >&2
    exit 1
  fi
}

if ! command -v cargo >/dev/null; then
  echo "tests/run.sh: no cargo on the PATH; install Rust 1.88 or later (rustup) and start again" >&2
  exit 1
fi
for program in redis-server redis-cli openssl; do
  if ! command -v "$program" >/dev/null; then
    install_servers
    break
  fi
done
redis-server --version

# Snapshots are compared, never written.
export INSTA_UPDATE=no
exec cargo test --all-features --no-fail-fast "$@"
