#!/usr/bin/env bash
# Expands the scripts of the folder lua/ with their includes, as src/connection/scripts.rs does, and looks for mistakes
# with luacheck. Installs luacheck where it is missing, which needs apt-get. With the name of a script, as
# `bash tests/lua.sh sliding_log.lua`, it prints that script with its includes.
set -euo pipefail
cd "$(dirname "$0")/.."

expand() {
    awk '
        function put(path,    line, rest) {
            while ((getline line < path) > 0) {
                rest = line
                sub(/^ */, "", rest)
                if (rest ~ /^-- include: /) {
                    sub(/^-- include: /, "", rest)
                    put("lua/include/" rest ".lua")
                } else {
                    print line
                }
            }
            close(path)
        }
        BEGIN { put(ARGV[1]) }
    ' "$1"
}

if [ $# -gt 0 ]; then
    expand "lua/$1"
    exit
fi

source tests/need.sh
need luacheck=lua-check

folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
for script in lua/*.lua lua/fleet/*.lua lua/refund/*.lua lua/limiter/*.lua lua/lock/*.lua; do
    expanded="$folder/$(echo "$script" | tr / _)"
    expand "$script" >"$expanded"
done
luacheck --std lua51 --globals redis struct cjson bit KEYS ARGV server_now --max-line-length 125 --ignore 211 221 231 311 411 421 431 --quiet \
    "$folder"/*.lua
