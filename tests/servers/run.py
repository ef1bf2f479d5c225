"""Asks real servers, proxies in front of one, and fakes whether they are ready: tests/ready.sh.

Each has to stand in the table of docs/topologies.md by its name, with the version's first two
numbers. One that does not work has to be refused with the reason that the row gives, at once where
the error is of the kind Configuration. Writes the section of docs/evidence/topologies.md.
"""

import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path(__file__).parent
ROOT = FOLDER.parent.parent
FETCHED = ROOT / "target/servers"
EVIDENCE = ROOT / "docs/evidence/topologies.md"
TITLE = "## What `ready` says"
NEXT = "## Passwords that change"
TEXT = f"""{TITLE}

`bash tests/ready.sh` asks each, writes this table, and fails if a row of
[topologies.md](../topologies.md) says something else. *Works*: each algorithm admitted five of
twenty requests whose limit is five.
"""
REDIS = "--save '' --bind 127.0.0.1 --port {port}"

# Name, what tells the version, how it is started at {port}; where its file
# stands in {folder}, a Redis runs behind it.
SERVERS = [
    *[(name, f"{program} --version", f"{program} {REDIS}") for name, program in [
        ("Redis", "redis-server-6.2"), ("Redis", "redis-server-7"), ("Redis", "redis-server-8"),
        ("Redis", "redis-server-8.2"), ("Redis", "redis-server-8.6"),
        ("Valkey", "valkey-server-8"), ("Valkey", "valkey-server")]],
    ("haproxy", "haproxy -v", "haproxy -db -f {folder}/haproxy.cfg"),
    ("twemproxy", "nutcracker -V",
     "nutcracker -c {folder}/twemproxy.yaml -s {free} -o {folder}/log"),
    ("Envoy", "envoy --version", "envoy -c {folder}/envoy.yaml --use-dynamic-base-id -l error"),
    ("jedis-mock", "find {fetched}/jedis-mock -name jedis-mock-* -printf %f",
     "java -cp {fetched}/jedis-mock/* {tests}/JedisMock.java {port}"),
    ("miniredis", "grep miniredis/v2 {tests}/go.mod",
     "{fetched}/miniredis/miniredis 127.0.0.1:{port}"),
    ("fakeredis", "grep fakeredis {tests}/requirements.txt",
     "{fetched}/fakeredis/bin/python {tests}/fake.py {port}"),
]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def words(command, **values):
    values |= {"tests": FOLDER, "fetched": FETCHED}
    return [word.strip("'").format(**values) for word in command.split(" ")]


def start(command, port, folder, **values):
    """A process that listens at the port."""
    log = open(f"{folder}/said", "w")
    arguments = words(command, port=port, folder=folder, **values)
    process = subprocess.Popen(arguments, cwd=folder, stdout=log, stderr=log)
    for _ in range(300):
        with socket.socket() as one:
            if process.poll() is not None or one.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    return process


def ask(name, command):
    """What the program says of it."""
    folder = tempfile.mkdtemp(prefix="server")
    port, behind = free_port(), free_port()
    for file in [*FOLDER.glob("*.cfg"), *FOLDER.glob("*.yaml")]:
        ports = {"6380": str(port), "6379": str(behind)}
        text = re.sub("6380|6379", lambda it: ports[it[0]], file.read_text())
        pathlib.Path(folder, file.name).write_text(text)
    running = []
    try:
        if "{folder}" in command:
            running.append(start(f"redis-server {REDIS}", behind, folder))
        running.append(start(command, port, folder, free=free_port()))
        if running[-1].poll() is not None:
            return "FAILED: it ended: " + pathlib.Path(folder, "said").read_text()[-500:]
        program = [ROOT / "target/debug/examples/servers", f"redis://127.0.0.1:{port}"]
        said = subprocess.run(program, capture_output=True, text=True, timeout=60)
        return " ".join((said.stdout + said.stderr).split()).replace(str(port), "6379")
    finally:
        for process in reversed(running):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def promised(name, version):
    """What the page says of it."""
    major, minor = version.split(".")[:2]
    for line in (ROOT / "docs/topologies.md").read_text().splitlines():
        cells = line.split(" | ")
        if len(cells) > 1 and re.search(rf"\b{name}\b.*\b{major}\.{minor}\b", cells[0]):
            return cells[1].rstrip(" |")
    return None


def row(name, version, command):
    program = words(command, port=0, folder="", free=0)[0]
    try:
        told = subprocess.run(words(version), capture_output=True, text=True)
        number = re.search(r"\d+\.\d+(\.\d+)*", told.stdout + told.stderr).group()
        if not shutil.which(program):
            raise FileNotFoundError
    except (AttributeError, OSError):
        return f"{name} (`{pathlib.Path(program).name}`)", "skipped: cannot be had here"
    says, said = promised(name, number), ask(name, command)
    took = re.match(r"(\w+) after (\d+) ms: ", said)
    if says is None:
        verdict = f"FAILED: docs/topologies.md has no {name} {number}; it says: {said}"
    elif says.startswith("does not work"):
        reason = says.split(" ")[-1]
        is_right = took and reason in said and (took[1] != "Configuration" or int(took[2]) < 1_000)
        verdict = said if is_right else f"FAILED: '{reason}' was expected, at once: {said}"
    else:
        verdict = "works" if said == "ready: [5, 5, 5, 5]" else f"FAILED: it should work: {said}"
    return f"{name} {number}", verdict


def brief(verdict):
    """Without what differs from run to run, and with each script."""
    verdict = re.sub(r': (ResponseError|"NOPROTO").*', "", verdict, flags=re.S)
    return re.sub(r" after (\d+) ms: redis at \S+",
                  lambda it: f" {'at once' if int(it[1]) < 1_000 else 'after 3 s'}:", verdict)


def table(rows):
    rows = [("server", "`ready`"), ("---", "---"), *rows]
    return "\n".join(f"| {server} | {said} |" for server, said in rows)


def main():
    rows = [row(*one) for one in SERVERS]
    print(table(rows))
    verdicts = [verdict.split(":")[0] for _, verdict in rows]
    if "skipped" not in verdicts and "FAILED" not in verdicts:
        alike = {}
        for name, verdict in rows:
            alike.setdefault(brief(verdict), []).append(name)
        section = f"{TEXT}\n{table((', '.join(names), it) for it, names in alike.items())}\n\n"
        kept = re.sub(rf"{TITLE}\n.*?(?=^## )", "", EVIDENCE.read_text(), flags=re.S | re.M)
        EVIDENCE.write_text(re.sub(rf"(?=^{NEXT}$)", lambda _: section, kept, flags=re.M))
    sys.exit("FAILED" in verdicts)


main()
