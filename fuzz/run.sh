#!/usr/bin/env bash
# Runs the fuzz targets, one after the other, and prints what came of it. Needs nightly Rust and cargo-fuzz.
#
#   bash fuzz/run.sh                         # all targets
#   bash fuzz/run.sh client_ip replies       # these
#   FUZZ_RUNS=1000000 bash fuzz/run.sh       # so many inputs for each, instead of ten million
#   FUZZ_SANITIZER=address bash fuzz/run.sh  # slower; the crate itself has no unsafe code
#
# What it finds stands in fuzz/artifacts/<target>/. An input that has found something belongs into fuzz/corpus/<target>/ once that
# is mended: tests/laws/fuzz.rs runs it ever after.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${FUZZ_RUNS:-10000000}
sanitizer=${FUZZ_SANITIZER:-none}
built=${CARGO_TARGET_DIR:-fuzz/target}/fuzz
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for file in fuzz/fuzz_targets/*.rs; do targets+=("$(basename "$file" .rs)"); done
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The socket of the targets' own server goes with this folder.
export TMPDIR=$work
cargo +nightly fuzz build --sanitizer "$sanitizer" --target-dir "$built" >&2
host=$(rustc -vV | sed -n 's/^host: //p')

failed=0
echo "| target | inputs | time | findings |"
echo "|---|---|---|---|"
for target in "${targets[@]}"; do
  # New inputs go into the first folder; what is checked in is only read.
  new=$work/$target found=fuzz/artifacts/$target log=$work/$target.log
  mkdir -p "$new" "$found"
  before=$(find "$found" -type f | wc -l)
  began=$SECONDS
  "$built/$host/release/$target" -runs="$runs" -max_len=768 -timeout=10 -rss_limit_mb=1024 \
    -artifact_prefix="$found/" "$new" "fuzz/corpus/$target" 2>"$log" || { failed=1; tail -n 30 "$log" >&2; }
  inputs=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p; s/^#\([0-9]*\).*/\1/p' "$log" | tail -n 1)
  echo "| $target | ${inputs:-0} | $((SECONDS - began)) s | $(($(find "$found" -type f | wc -l) - before)) |"
done
exit "$failed"
