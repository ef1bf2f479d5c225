#!/usr/bin/env bash
# What the page costs: the throughput of a flood while 32 browsers poll it, beside the same service
# without a page (`cargo bench -p tidegate-benches --bench page`, needs wrk), and with valgrind the instructions of a
# request through the layer with a page at which nobody looks, and without. ROUNDS=n: pairs.
set -euo pipefail
cd "$(dirname "$0")/.."
source benches/callgrind.sh

program=$(cargo bench --quiet -p tidegate-benches --bench page --no-run --message-format=json |
  sed -n 's/.*"executable":"\([^"]*page-[^"]*\)".*/\1/p' | tail -n 1)
{
  "$program"

  if has_callgrind; then
    instructions() {
      echo $(($(export "$@" COUNTED=40000 && counted /dev/null "$program") / 40000))
    }
    echo "| instructions of a request through the layer | without a page | with one | ratio |"
    echo "|---|---:|---:|---:|"
    for max in 1000000 5; do
      case $max in 5) name="mostly denied" ;; *) name="allowed" ;; esac
      without=$(instructions MAX=$max)
      with=$(instructions MAX=$max PAGE=1)
      echo "| $name | $without | $with | $(awk "BEGIN { printf \"%.3f\", $with / $without }") |"
    done
  fi
} | bash benches/put.sh page
