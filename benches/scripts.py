#!/usr/bin/env python3
"""What a take costs the server: the scripts of lua/ beside the same decision written plainly.

    python3 benches/scripts.py [--rounds N] [--against OLD_CHECKOUT] [--joint | --several] [--print]

Puts its tables into benches/README.md, or prints them only. Needs redis-server and valgrind; about
twelve minutes; `--joint` measures takes over three subjects alone, `--several` those under two
quotas. The plain scripts of benches/plain are figures to approach: they know one quota, no plans,
no refunds and no errors.

Server time is usec_per_call of INFO commandstats, with 500 calls in a pipeline, the scripts in
turns; the ratio is the median over the rounds of what each round says. That of takes over three
subjects is the p50 of INFO latencystats (Redis 7), in whole microseconds. Instructions are those of
the server, counted by callgrind: they do not depend on what else the machine does. A checkout that
has the same questions can be compared, too.
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
        command = ['redis-server', '--port', '0', '--unixsocket', self.path]
        # Ten times a second it would do other work, more of it in a slow program.
        command += ['--save', '', '--appendonly', 'no', '--hz', '1', '--dynamic-hz', 'no']
        if counts:
            output = f'--callgrind-out-file={self.out}'
            command = ['valgrind', '--tool=callgrind', '--instr-atstart=no', output, *command]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
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

    def middle_time(self, call, numbers):
        """Microseconds of the median call, on which a busy machine tells less."""
        self.call('CONFIG', 'RESETSTAT')
        self.play(call, numbers, 100)
        stats = self.call('INFO', 'latencystats').decode()
        return float(re.search(r'evalsha:p50=([\d.]+)', stats)[1])

    def count(self, call, number, at_a_time=50):
        """Instructions of a call."""
        self.play(call, range(300), 50)
        self.begin_count()
        self.play(call, range(300, 300 + number), at_a_time)
        return self.end_count() / number

    def control(self, *words):
        command = ['callgrind_control', *words, str(self.process.pid)]
        subprocess.run(command, capture_output=True)

    def begin_count(self):
        for name in glob.glob(self.out + '*'):
            os.remove(name)
        self.control('-i', 'on')

    def end_count(self):
        """Instructions since then."""
        self.control('-i', 'off')
        self.control('-d')
        time.sleep(0.5)
        return max(
            int(found[1])
            for name in glob.glob(self.out + '*')
            for found in re.finditer(
                r'^(?:totals|summary): (\d+)', open(name, errors='replace').read(), re.M
            )
        )

    def stop(self):
        self.process.terminate()
        self.process.wait()


def encode(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b'*%d\r\n' % len(words) + b''.join(
        b'$%d\r\n%s\r\n' % (len(word), word) for word in words
    )


def expand(root, name):
    """A script with its includes and constants. Older checkouts have another list, or none."""
    paths = [f'{root}/constants.rs', f'{root}/constants.txt']
    listed = ''.join(open(path).read() for path in paths if os.path.exists(path))
    line_of_list = r'^(?:pub\(crate\) const )?([A-Z]\w*)(?:: \S+)? = (.*?);?$'
    constants = dict(re.findall(line_of_list, listed, re.M))
    lines = []
    for line in open(f'{root}/{name}'):
        include = re.match(r'\s*-- include: (\w+)\s*$', line)
        if include:
            line = expand(root, f'include/{include[1]}.lua')
        elif not line.lstrip().startswith('--'):
            line = re.sub(r'\w+', lambda word: constants.get(word[0], word[0]), line)
        lines.append(line)
    return ''.join(lines)


def question(algorithm, keys, subjects, quotas, tries_usual):
    """One take of one unit for each key, or one over several subjects, each with a rule of its own;
    with one subject the core is asked. The window of each further quota is twice as long as the
    one before. See lua/formats.md."""
    seven = lambda number: number.to_bytes(7, 'big')
    expiry, slice_of_time = 12_098 << (quotas - 1), 1 << 20
    rule = bytes([quotas]) + b''.join(map(seven, [expiry, slice_of_time]))
    max_units, window, *others = QUOTAS[algorithm]
    for at in range(quotas):
        rule += b''.join(map(seven, [max_units, window << at, *others]))
    row = struct.pack('>H', 1) + seven(1) + seven(2**53)
    rules, kind, rows = max(subjects, 1), b'\2' if subjects else b'\0', [1] * keys
    if not tries_usual:
        kind = b'\2'
    if subjects > 1:
        rows = [32_768 + subjects] + [32_768] * (subjects - 1)
    begins = [12 + len(rule) * at if subjects else 12 for at in range(keys)]
    records = [struct.pack('>HH', begin, rows) + row for begin, rows in zip(begins, rows)]
    lone = keys == 1 and quotas == 1 and kind == b'\0'
    return b''.join(
        [b'\3' if lone else kind, struct.pack('>H', 12 + len(rule) * rules), bytes(8), rule * rules]
        + records
        + [str(expiry).encode() if lone else b'']
    )


def calls_of(server, source, algorithm, keys, label, subjects=0, quotas=1, tries_usual=True):
    sha = server.call('SCRIPT', 'LOAD', source)
    asked = question(algorithm, keys, subjects, quotas, tries_usual)
    varied = 1 if keys == 1 or subjects else 40_000
    names = lambda number: [
        f'{label}{at if subjects else (number * keys + at) % varied}' for at in range(keys)
    ]
    mark = lambda number: struct.pack('>Q', number)
    text = lambda number: asked[:3] + mark(number) + asked[11:]
    return lambda number: encode('EVALSHA', sha, keys, *names(number), text(number))


def measure(server, contenders, counts, rounds, is_small, time=Server.time):
    """Microseconds of each contender's calls in each round, or instructions of a call."""
    if counts:
        return [[server.count(call, 1_000 if is_small else 50)] for call in contenders]
    size, found = 3_000 if is_small else 500, [[] for _ in contenders]
    for turn in range(rounds):
        for call, times in zip(contenders, found):
            times.append(time(server, call, range(turn * size, (turn + 1) * size)))
    return found


def ratio(found, n):
    return median(ours / other for ours, other in zip(found[0], found[n]))


def joint_rows(server, counts, rounds, rows):
    """A take over three subjects, beside the core's and the usual case's take of one."""
    for at, algorithm in enumerate(ALGORITHMS):
        source = expand(f'{ROOT}/lua', f'{algorithm}.lua')
        contenders = [(3, 3), (1, 1), (1, 0)]
        contenders = [
            calls_of(server, source, algorithm, keys, f'joint{at}:{n}:', subjects)
            for n, (keys, subjects) in enumerate(contenders)
        ]
        found = measure(server, contenders, counts, rounds, True, Server.middle_time)
        if not counts:
            rows.append([algorithm.replace('_', ' '), *(f'{median(times):.2f}' for times in found)])
        rows[at] += [f'{ratio(found, 1):.2f}', f'{ratio(found, 2):.2f}']
        print(f'{"counted" if counts else "timed"}: {rows[at]}', file=sys.stderr)


def several_rows(server, counts, rounds, against, rows):
    """Takes under two quotas, beside the same takes under one."""
    wanted = [(algorithm, keys) for keys in (1, 64) for algorithm in ALGORITHMS]
    for at, (algorithm, keys) in enumerate(wanted):
        contenders = [(ROOT, 2), (ROOT, 1)] + [(root, 2) for root in against]
        contenders = [
            calls_of(
                server,
                expand(f'{root}/lua', f'{algorithm}.lua'),
                algorithm,
                keys,
                f'several{at}:{n}:',
                quotas=quotas,
                tries_usual=quotas == 1 or algorithm == 'sliding_log' and root == ROOT,
            )
            for n, (root, quotas) in enumerate(contenders)
        ]
        found = measure(server, contenders, counts, rounds, keys == 1)
        if not counts:
            name = algorithm.replace('_', ' ') + (', one take' if keys == 1 else ', 64 keys')
            rows.append([name, *(f'{median(times) / keys:.2f}' for times in found[:2])])
        rows[at] += [f'{ratio(found, n):.2f}' for n in range(1, len(found))]
        print(f'{"counted" if counts else "timed"}: {rows[at]}', file=sys.stderr)


def markdown(head, rows, texts=1):
    table = [head, ['---'] * texts + ['---:'] * (len(head) - texts), *rows]
    return ''.join('| ' + ' | '.join(row) + ' |\n' for row in table)


def main():
    options = argparse.ArgumentParser()
    options.add_argument('--rounds', type=int, default=12)
    options.add_argument('--against')
    options.add_argument('--joint', action='store_true')
    options.add_argument('--several', action='store_true')
    options.add_argument('--print', action='store_true')
    options = options.parse_args()
    folder = tempfile.mkdtemp()
    plain = {
        name: open(f'{ROOT}/benches/plain/{name}.lua').read() for name in ('gcra', 'sliding_log')
    }
    lone = (
        [] if options.joint else [(algorithm, keys) for keys in (1, 64) for algorithm in ALGORITHMS]
    )
    rows, joint, several = [], [], []
    against = [options.against] if options.against else []
    for counts in (False, True):
        server = Server(folder, counts)
        try:
            if not options.joint:
                several_rows(server, counts, options.rounds, against, several)
            for at, (algorithm, keys) in enumerate(() if options.several else lone):
                beside = algorithm if algorithm in plain else 'gcra'
                contenders = [
                    (expand(f'{ROOT}/lua', f'{algorithm}.lua'), algorithm),
                    (plain[beside], beside),
                ]
                if options.against:
                    contenders.append(
                        (expand(f'{options.against}/lua', f'{algorithm}.lua'), algorithm)
                    )
                contenders = [
                    calls_of(server, source, of, keys, f'{at}:{n}:')
                    for n, (source, of) in enumerate(contenders)
                ]
                found = measure(server, contenders, counts, options.rounds, keys == 1)
                if not counts:
                    name = algorithm.replace('_', ' ')
                    name += ', one take' if keys == 1 else ', 64 keys'
                    rows.append([name, beside.replace('_', ' ')])
                    rows[at] += [f'{median(times) / keys:.2f}' for times in found[:2]]
                rows[at] += [f'{ratio(found, n):.2f}' for n in range(1, len(found))]
                print(f'{"counted" if counts else "timed"}: {rows[at]}', file=sys.stderr)
            if not options.several:
                joint_rows(server, counts, options.rounds, joint)
        finally:
            server.stop()
    head = ['server time of a take', 'plain one', 'µs', 'plain µs', 'to plain']
    old = ['to the other version'] if options.against else []
    head += old + ['instructions to plain'] + old
    tables = {} if options.joint or options.several else {'scripts': markdown(head, rows, 2)}
    if not options.joint:
        head = ['a take under two quotas', 'µs', 'under one, µs', 'to one'] + old
        head += ['instructions to one'] + old
        tables['several-scripts'] = markdown(head, several)
    head = ['a take over three subjects', 'µs', 'one subject, core, µs']
    head += ['one, usual case, µs', 'to the core', 'to the usual case']
    head += ['instructions to the core', 'to the usual case']
    if not options.several:
        tables['joint-scripts'] = markdown(head, joint)
    print('\n'.join(tables.values()))
    for name, table in tables.items() if not options.print else ():
        put = ['bash', f'{ROOT}/benches/put.sh', name]
        subprocess.run(put, input=table, text=True, stdout=subprocess.DEVNULL, check=True)


if __name__ == '__main__':
    main()
