#!/usr/bin/env bash
# What counting and publishing cost: nanoseconds, and with valgrind instructions, of an allowed
# request through the layer over a memory store, in a build that counts, and publishes once per
# second, and in one that does neither. Five paired runs, alternating; PAIRS=n for another number.
set -euo pipefail
cd "$(dirname "$0")/.."
source benches/callgrind.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pairs=${PAIRS:-5}

build() {
  local name=$1
  shift
  env CARGO_TARGET_DIR="target/counters-$name" "$@" \
    cargo bench --quiet -p tidegate-benches --bench counters --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*counters-[^"]*\)".*/\1/p' | tail -n 1 >"$work/$name"
  cp "$(cat "$work/$name")" "$work/$name.exe"
}

build counting
build silent RUSTFLAGS="--cfg tidegate_uncounted"

{
  for _ in $(seq "$pairs"); do
    counting=$("$work/counting.exe")
    silent=$("$work/silent.exe")
    echo "$counting $silent"
  done | awk '
    { printf "| %s | %s | %.3f |\n", $1, $2, $1 / $2; ratios[NR] = $1 / $2 }
    BEGIN { print "| counting, ns | not counting, ns | ratio |\n|---|---|---|" }
    END {
      for (i = 1; i <= NR; i++)
        for (j = i + 1; j <= NR; j++)
          if (ratios[j] < ratios[i]) { t = ratios[i]; ratios[i] = ratios[j]; ratios[j] = t }
      printf "\nMedian of the ratios: %.3f\n", ratios[int((NR + 1) / 2)]
    }'

  if has_callgrind; then
    export COUNTED=1
    for name in counting silent; do
      echo "Instructions of a request, $name: $(($(counted /dev/null "$work/$name.exe") / 20000))"
    done
  fi
} | bash benches/put.sh counters
