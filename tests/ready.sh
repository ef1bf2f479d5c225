#!/usr/bin/env bash
# What `ready` says of each server, proxy in front of one, and fake that docs/topologies.md names,
# against what the page says of it. Prints a table, and writes that of docs/evidence/topologies.md.
# A minute, and one more to fetch them, in the versions that tests/servers.sh and tests/servers/
# name; those that cannot be had are skipped, and their rows say so.
set -euo pipefail
cd "$(dirname "$0")/.."
source tests/need.sh
source tests/servers.sh
need_cargo
need redis-server=redis-server python3=python3,python3-venv
(need go=golang-go mvn=maven java=default-jdk-headless) || true
other_servers
proxies_and_fakes

cargo build -q -p tidegate -p tidegate-tests --all-features --example servers
PATH=$PWD/target/servers:$PATH:/usr/sbin exec python3 tests/servers/run.py
