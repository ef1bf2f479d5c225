#!/bin/sh
# Looks for misspelt words with typos, see _typos.toml. Installs a known version of it into target/
# where it is missing, which needs python3 with venv.
set -eu
cd "$(dirname "$0")/.."

if ! command -v typos >/dev/null; then
    folder=target/typos
    if [ ! -x "$folder/bin/typos" ]; then
        echo "tests/spelling.sh: installing typos into $folder" >&2
        python3 -m venv "$folder"
        "$folder/bin/pip" install --quiet --disable-pip-version-check typos==1.52.0
    fi
    PATH=$PWD/$folder/bin:$PATH
fi
typos
echo "no misspelt words"
