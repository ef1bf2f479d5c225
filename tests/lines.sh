#!/usr/bin/env bash
# Counts the lines of code of each crate by folder, and of all Lua: without blank lines, comments and
# inline `#[cfg(test)] mod tests` blocks. Then all lines of Rust that only tests compile, in all
# packages, with blank lines and comments.
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
        package = folder = FILENAME
        sub(/src\/.*/, "src", package)
        sub(/.*src\//, "", folder)
        if (!sub(/\/.*/, "/", folder)) folder = "(root)"
        lines[package "/" folder] += 1 + held
        lines[package] += 1 + held
        total += 1 + held
        held = 0
    }
    END {
        for (folder in lines) printf "%6d  %s\n", lines[folder], folder | "sort -k2"
        close("sort -k2")
        printf "%6d  all crates\n", total
    }
'
find src crates/*/src -name '*.rs' -print0 | sort -z | xargs -0 awk "$rust"
find lua crates -name '*.lua' -print0 | sort -z | xargs -0 awk '
    !/^[ \t]*(--|$)/ { total += 1 }
    END { printf "%6d  lua\n", total }
'

# Rust that only tests compile: the folder `tests`, tests of other packages, and inline blocks.
tests() {
  {
    find tests examples/tenants/output.rs -name '*.rs' -print0 |
      sort -z | xargs -0 awk '
        {
            folder = FILENAME
            n = split(folder, parts, "/")
            folder = n > 3 && parts[2] == "hostile" ? parts[1] "/hostile/" parts[3] : parts[1] "/" parts[2]
            lines[folder]++
        }
        END { for (folder in lines) print lines[folder], folder }'
    find src crates/*/src macros/src -name '*.rs' -print0 | xargs -0 awk '
        FNR == 1 { held = 0; inside = 0 }
        inside { total++; if (/^}/) inside = 0; next }
        /^#\[cfg\(test\)\]$/ { held = 1; next }
        held && /^mod [a-z_]+ \{/ { inside = 1; total += 2 }
        { held = 0 }
        END { print total, "src, inline" }'
  } | sort -k2 | awk '
    { total += $1; printf "%6d  %s\n", $1, substr($0, length($1) + 2) }
    END { printf "%6d  Rust for tests alone\n", total }'
}
echo
tests
