#!/usr/bin/env python3
"""What a take costs the server: the scripts of lua/ beside the same decision written plainly.

    python3 benches/scripts.py [--rounds N] [--against OLD_CHECKOUT] [--print]

Puts its table into benches/README.md, or prints it only. Needs redis-server and valgrind; about six
minutes. The plain scripts of benches/plain are figures to approach: they know one quota, no plans, no
leases, no refunds and no errors.

Server time is usec_per_call of INFO commandstats, with 500 calls in a pipeline, the scripts in turns;
the ratio is the median over the rounds of what each round says. Instructions are those of the server,
counted by callgrind: they do not depend on what else the machine does. A checkout that has the same
questions can be compared, too.
"""
import argparse
import glob
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
from statistics import median

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ALGORITHMS = ['sliding_log', 'gcra', 'fixed_window', 'sliding_window']
# Of a quota of 10^9 in 10 s: max and window, and what the algorithm has to know besides.
QUOTAS = {
    'sliding_log': [10**9, 10_000_000],
    'fixed_window': [10**9, 10_000_000],
    'sliding_window': [10**9, 10_000_000, 100],
    'gcra': [10**9, 10_000_000, 10**9, 10_000_000, 100, 1],
}


class Server:
    """A redis-server on a socket of its own, perhaps under callgrind."""

    def __init__(self, folder, counts):
        self.path = f'{folder}/{"counted" if counts else "timed"}.sock'
        self.out = f'{folder}/callgrind'
        command = ['redis-server', '--port', '0', '--unixsocket', self.path, '--save', '', '--appendonly', 'no']
        if counts:
            command = ['valgrind', '--tool=callgrind', '--instr-atstart=no', f'--callgrind-out-file={self.out}', *command]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(300):
            try:
                self.socket = socket.socket(socket.AF_UNIX)
                self.socket.connect(self.path)
                break
            except OSError:
                time.sleep(0.1)
        self.stream = self.socket.makefile('rb')

    def read(self):
        line = self.stream.readline()
        kind, value = line[:1], line[1:-2]
        if kind == b'-':
            raise RuntimeError(value.decode())
        if kind == b'$':
            return None if int(value) < 0 else self.stream.read(int(value) + 2)[:-2]
        if kind == b'*':
            return [self.read() for _ in range(int(value))]
        return value

    def call(self, *words):
        self.socket.sendall(encode(*words))
        return self.read()

    def play(self, call, numbers, at_a_time):
        numbers = list(numbers)
        for first in range(0, len(numbers), at_a_time):
            some = numbers[first : first + at_a_time]
            self.socket.sendall(b''.join(call(number) for number in some))
            for _ in some:
                self.read()

    def time(self, call, numbers):
        """Microseconds of a call."""
        self.call('CONFIG', 'RESETSTAT')
        self.play(call, numbers, 500)
        stats = self.call('INFO', 'commandstats').decode()
        found = re.search(r'cmdstat_evalsha:calls=(\d+),usec=(\d+)', stats)
        return int(found[2]) / int(found[1])

    def count(self, call, number):
        """Instructions of a call."""
        control = lambda *words: subprocess.run(['callgrind_control', *words, str(self.process.pid)], capture_output=True)
        self.play(call, range(300), 50)
        for name in glob.glob(self.out + '*'):
            os.remove(name)
        control('-i', 'on')
        self.play(call, range(300, 300 + number), 50)
        control('-i', 'off')
        control('-d')
        time.sleep(0.5)
        sums = [int(found[1]) for name in glob.glob(self.out + '*') for found in re.finditer(r'^(?:totals|summary): (\d+)', open(name, errors='replace').read(), re.M)]
        return max(sums) / number

    def stop(self):
        self.process.terminate()
        self.process.wait()


def encode(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b'*%d\r\n' % len(words) + b''.join(b'$%d\r\n%s\r\n' % (len(word), word) for word in words)


def expand(root, name):
    lines = []
    for line in open(f'{root}/{name}'):
        include = re.match(r'\s*-- include: (\w+)\s*$', line)
        lines.append(expand(root, f'include/{include[1]}.lua') if include else line)
    return ''.join(lines)


def question(algorithm, keys):
    """One take of one unit for each key: see lua/include/read_question.lua."""
    seven = lambda number: number.to_bytes(7, 'big')
    lease, expiry, slice_of_time = 0, 12_098, 1 << 20
    rule = bytes([1, 1, 0]) + b''.join(map(seven, [lease, expiry, slice_of_time, *QUOTAS[algorithm]]))
    record = struct.pack('>HH', 4, 1) + seven(1) + struct.pack('>H', 1) + seven(2**53)
    return b'\0' + struct.pack('>H', 4 + len(rule)) + rule + record * keys


def calls_of(server, source, algorithm, keys, label):
    sha, asked = server.call('SCRIPT', 'LOAD', source), question(algorithm, keys)
    names = lambda number: [f'{label}{(number * keys + at) % (1 if keys == 1 else 40_000)}' for at in range(keys)]
    return lambda number: encode('EVALSHA', sha, keys, *names(number), asked, number)


def main():
    options = argparse.ArgumentParser()
    options.add_argument('--rounds', type=int, default=12)
    options.add_argument('--against')
    options.add_argument('--print', action='store_true')
    options = options.parse_args()
    folder = tempfile.mkdtemp()
    plain = {name: open(f'{ROOT}/benches/plain/{name}.lua').read() for name in ('gcra', 'sliding_log')}
    rows = []
    for counts in (False, True):
        server = Server(folder, counts)
        try:
            for at, (algorithm, keys) in enumerate((algorithm, keys) for keys in (1, 64) for algorithm in ALGORITHMS):
                beside = algorithm if algorithm in plain else 'gcra'
                contenders = [(expand(f'{ROOT}/lua', f'{algorithm}.lua'), algorithm), (plain[beside], beside)]
                if options.against:
                    contenders.append((expand(f'{options.against}/lua', f'{algorithm}.lua'), algorithm))
                contenders = [calls_of(server, source, of, keys, f'{at}:{n}:') for n, (source, of) in enumerate(contenders)]
                if counts:
                    found = [[server.count(call, 1_000 if keys == 1 else 50)] for call in contenders]
                else:
                    size, found = 3_000 if keys == 1 else 500, [[] for _ in contenders]
                    for turn in range(options.rounds):
                        for call, times in zip(contenders, found):
                            times.append(server.time(call, range(turn * size, (turn + 1) * size)))
                    rows.append([algorithm.replace('_', ' ') + (', one take' if keys == 1 else ', 64 keys'), beside.replace('_', ' ')])
                ratio = lambda n: median(ours / other for ours, other in zip(found[0], found[n]))
                if not counts:
                    rows[at] += [f'{median(times) / keys:.2f}' for times in found[:2]]
                rows[at] += [f'{ratio(n):.2f}' for n in range(1, len(found))]
                print(f'{"counted" if counts else "timed"}: {rows[at]}', file=sys.stderr)
        finally:
            server.stop()
    head = ['server time of a take', 'plain one', 'µs', 'plain µs', 'to plain']
    old = ['to the other version'] if options.against else []
    head += old + ['instructions to plain'] + old
    table = [head, ['---', '---'] + ['---:'] * (len(head) - 2), *rows]
    table = ''.join('| ' + ' | '.join(row) + ' |\n' for row in table)
    print(table)
    if not options.print:
        path = f'{ROOT}/benches/README.md'
        text = open(path).read()
        text = re.sub(r'(<!-- scripts:begin -->\n).*?(<!-- scripts:end -->)', lambda found: f'{found[1]}\n{table}\n{found[2]}', text, flags=re.S)
        open(path, 'w').write(text)


main()
