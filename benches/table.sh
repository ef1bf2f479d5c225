#!/usr/bin/env bash
# Runs the benchmarks of a process and of the scripts, and puts their tables into benches/README.md.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo bench -p tidegate-benches --bench in_process --bench redis | tee /dev/stderr |
  { grep -E '^\||^$' || true; } | bash benches/put.sh tables >/dev/null
