#!/usr/bin/env bash
# Expands the scripts of the folders lua/ and crates/redisson/lua/ with their includes and constants, as crates/base/src/connection/scripts.rs does, and looks
# for mistakes with luacheck. Installs luacheck where it is missing, which needs apt-get. With the name of a script, as
# `bash tests/lua.sh sliding_log.lua`, it prints that script expanded.
set -euo pipefail
cd "$(dirname "$0")/.."

expand() {
    awk '
        # Outside of comments, a word that is the name of a constant becomes its text.
        function with_constants(line,    word, whole) {
            if (line ~ /^ *--/) return line
            while (match(line, /[A-Za-z0-9_]+/)) {
                word = substr(line, RSTART, RLENGTH)
                whole = whole substr(line, 1, RSTART - 1) (word in constants ? constants[word] : word)
                line = substr(line, RSTART + RLENGTH)
            }
            return whole line
        }
        function put(path,    line, rest) {
            while ((getline line < path) > 0) {
                rest = line
                sub(/^ */, "", rest)
                if (rest ~ /^-- include: /) {
                    sub(/^-- include: /, "", rest)
                    put(folder "include/" rest ".lua")
                } else {
                    print with_constants(line)
                }
            }
            close(path)
        }
        BEGIN {
            folder = ARGV[1] ~ /^crates/ ? "crates/redisson/lua/" : "lua/"
            while (folder == "lua/" && (getline line < "lua/constants.rs") > 0) {
                if (!sub(/^pub\(crate\) const /, "", line)) continue
                sub(/;$/, "", line)
                constants[substr(line, 1, index(line, ":") - 1)] = substr(line, index(line, " = ") + 3)
            }
            put(ARGV[1])
        }
    ' "$1"
}

if [ $# -gt 0 ]; then
    if [ -e "lua/$1" ]; then expand "lua/$1"; else expand "crates/redisson/lua/$1"; fi
    exit
fi

source tests/need.sh
need luacheck=lua-check

folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
for script in lua/*.lua lua/fleet/*.lua lua/refund/*.lua lua/permits/*.lua crates/redisson/lua/limiter/*.lua crates/redisson/lua/lock/*.lua; do
    expanded="$folder/$(echo "$script" | tr / _)"
    expand "$script" >"$expanded"
done
luacheck --std lua51 --globals redis struct cjson bit KEYS ARGV server_now --max-line-length 125 --ignore 211 221 231 241 311 411 421 431 --quiet \
    "$folder"/*.lua
