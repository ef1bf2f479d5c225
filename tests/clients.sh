#!/usr/bin/env bash
# What real clients make of a denial, in each form and by each recipe of docs/clients.md: writes the table of
# docs/evidence/clients.md. Fails if a client does something else than its program in tests/clients/ expects. Two
# minutes, and five to install: the clients below target/clients, in the versions that tests/clients/ names, and
# Python, Node.js, Go, curl and Prometheus where they are missing. Without a browser its rows say so.
set -euo pipefail
cd "$(dirname "$0")/.."

source tests/need.sh
install_elsewhere='Go 1.25 or later: https://go.dev/dl. Prometheus: https://prometheus.io/download'
need_cargo
need python3=python3,python3-venv node=nodejs npm=npm go=golang-go curl=curl prometheus=prometheus
(need chromium=chromium firefox=firefox-esr) || true

built=target/clients
wanted=$(cat tests/clients/{requirements.txt,package.json,go.mod})
if [ "$wanted" != "$(cat "$built/built" 2>/dev/null)" ]; then
  rm -rf "$built"
  mkdir -p "$built"
  python3 -m venv "$built/python"
  "$built/python/bin/pip" --quiet install --requirement tests/clients/requirements.txt
  cp tests/clients/package.json "$built"
  npm --prefix "$built" --silent --no-audit --no-fund install
  cp tests/clients/go.mod "$built"
  echo "$wanted" >"$built/built"
fi
cp tests/clients/clients.{py,mjs} tests/clients/main.go "$built"
(cd "$built" && go mod tidy && go build -o clients-go .)

cargo build -p tidegate -p tidegate-tests --all-features --example clients
coproc app { exec target/debug/examples/clients; }
read -r address <&"${app[0]}"

cd "$built"
pids=()
timeout 300 python/bin/python clients.py "$address" >python.rows & pids+=($!)
timeout 300 node clients.mjs "$address" >node.rows & pids+=($!)
timeout 300 ./clients-go "$address" >go.rows & pids+=($!)
failed=0
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
# Clients that do the same share a row.
cat python.rows node.rows go.rows | awk -F ' [|] ' '
    { sub(/^[|] /, "") }
    ($1, $3, $4) in clients { clients[$1, $3, $4] = clients[$1, $3, $4] ", " $2; next }
    { clients[$1, $3, $4] = $2; order[++rows] = $1 SUBSEP $3 SUBSEP $4 }
    END {
      for (row = 1; row <= rows; row++) {
        split(order[row], cell, SUBSEP)
        print "| " cell[1] " | " clients[order[row]] " | " cell[2] " | " cell[3]
      }
    }' | LC_ALL=C sort --stable --key=2,2 --field-separator='|' | tee rows
cd - >/dev/null
test $failed -eq 0 || { echo "tests/clients.sh: the table was not written" >&2; exit 1; }

page=docs/evidence/clients.md
awk '{ print } /^\|---/ { exit }' "$page" | cat - "$built/rows" >"$built/page"
cp "$built/page" "$page"
