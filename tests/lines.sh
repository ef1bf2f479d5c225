#!/usr/bin/env bash
# Counts the lines of code of `src` by folder, and of `lua`: without blank lines, comments and
# inline `#[cfg(test)] mod tests` blocks.
#
#     bash tests/lines.sh              # this checkout
#     bash tests/lines.sh ../another   # another one
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

rust='
    FNR == 1 { held = 0; skipping = 0 }
    skipping { if (/^}/) skipping = 0; next }
    /^[ \t]*(\/\/|$)/ { next }
    /^#\[cfg\(test\)\]$/ { held = 1; next }
    held && /^mod tests \{/ { held = 0; skipping = 1; next }
    {
        folder = FILENAME
        sub(/^src\//, "", folder)
        if (!sub(/\/.*/, "/", folder)) folder = "(root)"
        lines[folder] += 1 + held
        total += 1 + held
        held = 0
    }
    END {
        for (folder in lines) printf "%6d  src/%s\n", lines[folder], folder | "sort -k2"
        close("sort -k2")
        printf "%6d  src\n", total
    }
'
find src -name '*.rs' -print0 | sort -z | xargs -0 awk "$rust"
find lua -name '*.lua' -print0 | sort -z | xargs -0 awk '
    !/^[ \t]*(--|$)/ { total += 1 }
    END { printf "%6d  lua\n", total }
'
