#!/usr/bin/env bash
# Counts what a request costs on each route, of this crate and of its peers, behind one axum server:
# instructions, different lines of code, allocations and their bytes. Puts the table into
# benches/README.md. With `--check` it compares with the table that is there, and fails if a request
# takes over 3 % more instructions or lines on any route; if other programs made that table, it only
# prints. `--quick` only prints. With `--server` in front of these it does the same with what takes cost
# Redis: see server_instructions.py.
# Needs valgrind and redis-server.
set -euo pipefail
cd "$(dirname "$0")/.."
source benches/callgrind.sh

for program in valgrind redis-server; do
  command -v $program >/dev/null || { echo "$0: no $program on the PATH" >&2; exit 1; }
done
# One peer asks for a newer compiler than it needs.
cargo build --release --ignore-rust-version --manifest-path benches/peers/Cargo.toml --bin instructions >&2
if [ "${1:-}" = --server ]; then
  shift
  exec python3 benches/server_instructions.py "$@"
fi

requests=4000
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
# The least of three runs: where malloc finds room depends on all that it gave before.
for run in 1 2 3; do
  counted_lines $((requests * 4 / 10)) "$work/rows" benches/peers/target/release/instructions $requests \
    >"$work/counts-$run"
done
paste -d '|' "$work"/counts-? | awk -F '|' '
  function least(of) {
    for (at = of + 3; at <= NF; at += 3) if ($at < $of) $of = $at
    return $of
  }
  { print least(1) "|" least(2) "|" least(3) }' >"$work/counts"
version() {
  "$@" | grep -oE '[0-9]+\.[0-9]+(\.[0-9]+)?' | head -n 1
}
programs="rustc $(version rustc --version), Redis $(version redis-server --version), valgrind $(
  version valgrind --version), glibc $(version getconf GNU_LIBC_VERSION), $(uname -m)."
{
  echo
  echo "$programs"
  echo
  echo "| a request | instructions | above no layer | lines of code | of this crate | allocations | bytes allocated |"
  echo "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
  paste -d '|' "$work/counts" "$work/rows" | awk -F '|' -v requests=$requests '
    NR == 1 { split($0, plain) }
    $4 == "Redis, gcra" { split($0, bare) }
    { printf "| %s | %.0f | %.0f | %d | %d | %.1f | %.0f |\n", $4, $1 / requests,
        ($1 - plain[1]) / requests, $2, $3, ($5 - plain[5]) / requests, ($6 - plain[6]) / requests }
    $4 ~ /^Redis, gcra, `/ { printf "| what it adds to `RedisStore` | | %.0f | %d | %d | %.1f | %.0f |\n",
        ($1 - bare[1]) / requests, $2 - bare[2], $3 - bare[3], ($5 - bare[5]) / requests,
        ($6 - bare[6]) / requests }'
  echo
} | tee "$work/table"

case "${1:-}" in
  --quick) ;;
  --check)
    if ! grep -qxF "$programs" benches/README.md; then
      echo "$0: other programs made the table in benches/README.md: nothing is compared"
      exit
    fi
    awk -F ' *[|] *' '
      /<!-- instructions:begin -->/ { inside = 1 }
      /<!-- instructions:end -->/ { inside = 0 }
      !/^\| .*[0-9] \|$/ || $3 == "" { next }
      FNR == NR { if (inside) { before[$2] = $3; lines[$2] = $5 }; next }
      {
        seen[$2] = 1
        if (!($2 in before)) { print "there is no row yet: " $2; failed = 1 }
        else if ($3 > before[$2] * 1.03 || $5 > lines[$2] * 1.03) {
          print $2 ": " $3 " in " $5 " lines, before " before[$2] " in " lines[$2]
          failed = 1
        }
      }
      END {
        for (row in before) if (!(row in seen)) { print "not measured: " row; failed = 1 }
        exit failed
      }' benches/README.md "$work/table" >&2
    ;;
  *)
    bash benches/put.sh instructions <"$work/table" >/dev/null
    ;;
esac
