#!/usr/bin/env python3
"""What a take costs Redis, in instructions of the whole server, which no neighbour moves.

    python3 benches/server_instructions.py [--check | --quick]

`benches/instructions.sh` calls it, and has built the program that asks. Puts its tables into
benches/README.md. With `--check` it compares with those that are there, and fails if a row takes
over 3 % more, or over 10 % at 64 connections; with `--quick` it only prints, after one run in place
of three. Needs redis-server and valgrind.
"""

import math
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
from statistics import median

# No folder of compiled files is left in the tree.
sys.dont_write_bytecode = True
from scripts import ALGORITHMS, ROOT, Server, encode, expand  # noqa: E402

PROGRAM = f'{ROOT}/benches/peers/target/release/instructions'
README = f'{ROOT}/benches/README.md'
WEEK = 604_800_000_000
MAX = 1_000
# See lua/formats.md.
USUAL, GENERAL, LONE, HOLDS = 0, 2, 3, 16
JOINT, CALENDAR, NO_DEADLINE = 32_768, 17, 1 << 53
# Where what stands behind the head of the questions begins.
HEAD = 12
CALLS = 1_000
# How often a row is counted.
RUNS = 1 if '--quick' in sys.argv else 3


def sevens(*numbers):
    return b''.join(number.to_bytes(7, 'big') for number in numbers)


def expiry_and_slice(window):
    slice_of_time = max(window // 16, 1 << 20)
    return (window + 2 * slice_of_time + 999) // 1_000, slice_of_time


def rule(algorithm, *maxes):
    """Each further quota has half the window of the one before."""
    text = bytes([len(maxes)]) + sevens(*expiry_and_slice(WEEK))
    for at, units in enumerate(maxes):
        window = WEEK >> at
        common = math.gcd(units, window)
        text += sevens(units, window)
        if algorithm == 'gcra':
            text += sevens(units, window, units // common, window // common)
        elif algorithm == 'sliding_window':
            text += sevens(64)
    return text


def row(cost=1, takes=1):
    return struct.pack('>H', takes) + sevens(cost, NO_DEADLINE)


def question(kind, rules, records):
    """`records`: of each the number of its rule, and of its rows, and its first row."""
    begins, text = [], b''
    for one in rules:
        begins.append(HEAD + len(text))
        text += one
    text = bytes([kind]) + struct.pack('>H', HEAD + len(text)) + bytes(8) + text
    for of, rows, first in records:
        text += struct.pack('>HH', begins[of], rows) + first
    if kind % HOLDS == LONE:
        text += str(expiry_and_slice(WEEK)[0]).encode()
    return text


class Rows:
    """Counts one row after the other."""

    def __init__(self, server):
        self.server, self.scripts, self.found = server, {}, []

    def call(self, script, keys, *arguments):
        if script not in self.scripts:
            source = expand(f'{ROOT}/lua', f'{script}.lua')
            self.scripts[script] = self.server.call('SCRIPT', 'LOAD', source)
        return encode('EVALSHA', self.scripts[script], len(keys), *keys, *arguments)

    def take(self, script, keys, asked, number):
        return self.call(script, keys, asked[:3] + struct.pack('>Q', number) + asked[11:])

    def ask(self, command):
        self.server.socket.sendall(command)
        return self.server.read()

    def add(self, name, call, calls=CALLS, takes=1, at_a_time=8, before=lambda: None):
        """`call`: the command with this number; the first 300 are not counted."""
        counts = []
        for _ in range(RUNS):
            self.server.call('FLUSHALL')
            before()
            counts.append(self.server.count(call, calls, at_a_time) / takes)
        self.found.append((name, median(counts)))
        print(name, *map(round, counts), file=sys.stderr)

    def lone(self, algorithm):
        name, key = algorithm.replace('_', ' '), lambda number: f'CurrentLimiter:keys:{number}'
        asked = lambda units, kind=LONE: question(
            kind, [rule(algorithm, units)], [(0, 1, row())]
        )
        known, full = asked(MAX), asked(1)
        for found, text, of in [
            ('known', known, lambda number: key(number % 250)),
            ('first', known, key),
            ('denied', full, lambda _: key(0)),
        ]:
            self.add(f'{name}, {found}', lambda n: self.take(algorithm, [of(n)], text, n))
        other = asked(MAX // 2)
        self.add(
            f'{name}, the first after another max',
            lambda n: self.take(algorithm, [key(n % 300)], other if n < 300 else known, n),
            calls=300,
        )
        turns = [known, other]
        self.add(
            f'{name}, two maxes in turn',
            lambda n: self.take(algorithm, [key(n % 250)], turns[n // 250 % 2], n),
        )
        held = asked(MAX, LONE + HOLDS)
        self.add(
            f'{name}, may be held and is not',
            lambda n: self.take(
                algorithm, [key(n % 250), f'{{{key(n % 250)}}}~until'], held, n
            ),
        )
        for keys in (8, 64):
            many = question(USUAL, [rule(algorithm, MAX)], [(0, 1, row())] * keys)
            self.add(
                f'{name}, of a flight of {keys} keys',
                lambda n: self.take(
                    algorithm, [key((n * keys + at) % 512) for at in range(keys)], many, n
                ),
                calls=max(1_600 // keys, 32),
                takes=keys,
                at_a_time=1,
            )

    def others(self):
        key = lambda number: f'CurrentLimiter:keys:{number}'
        now, day = int(time.time() * 1e6), 86_400_000_000
        month = bytes([CALENDAR]) + sevens(now - day, now + 20 * day, now + 50 * day, 10**6)
        both = lambda algorithm: question(
            USUAL, [rule(algorithm, MAX), month], [(0, JOINT + 2, row()), (1, JOINT, row())]
        )
        for algorithm in ('gcra', 'fixed_window'):
            asked = both(algorithm)
            self.add(
                f'{algorithm.replace("_", " ")}, a month beside it',
                lambda n: self.take(algorithm, [key(n % 250), f'{key(n % 250)}:m'], asked, n),
            )
        two = question(USUAL, [rule('sliding_log', MAX, MAX)], [(0, 1, row())])
        self.add(
            'sliding log, two quotas', lambda n: self.take('sliding_log', [key(n % 250)], two, n)
        )
        part = question(USUAL, [rule('gcra', 2)], [(0, 1, row(takes=3))])
        self.add('gcra, a row that fits in part', lambda n: self.take('gcra', [key(n)], part, n))
        receipts = []

        def charge():
            receipts.clear()
            asked = question(LONE, [rule('gcra', MAX)], [(0, 1, row())])
            for number in range(300 + CALLS):
                reply = self.ask(self.take('gcra', [key(number)], asked, number))
                stamp, serial = reply[16:23], reply[9:16]
                receipt = stamp + serial + sevens(1, 1) + b'\1' + sevens(WEEK)
                receipts.append(struct.pack('>HI', 1, len(receipt)) + receipt)

        self.add(
            'gcra, a refund',
            lambda n: self.call('refund/gcra', [key(n), f'{{{key(n)}}}:back'], receipts[n]),
            before=charge,
        )
        permits = b'\0' + sevens(60_000, 7, MAX)
        self.add(
            'a permit',
            lambda n: self.take(
                'sliding_log',
                [key(n % 250)],
                question(GENERAL, [permits], [(0, JOINT + 1, row(cost=n + 1))]),
                n,
            ),
        )


def asked_by_app(server, route, found, connections):
    """Instructions of the server for a request to an application in front of it."""
    counts, requests = [], 640
    for _ in range(RUNS):
        server.call('FLUSHALL')
        app = subprocess.Popen(
            [PROGRAM, 'ask', route, found, f'{connections}', f'{requests}', f'unix://{server.path}'],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        ready = app.stdout.readline().strip()
        server.begin_count()
        answered = app.communicate('\n')[0].strip()
        counted = server.end_count()
        if (ready, answered) != ('ready', str(requests)):
            sys.exit(f'{route}, {found}: {answered} of {requests} as expected')
        counts.append(counted / requests)
    print(route, found, connections, *map(round, counts), file=sys.stderr)
    return median(counts)


def table(head, rows):
    lines = [head, ['---'] + ['---:'] * (len(head) - 1)] + rows
    return '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines)


def numbers_of(text):
    """The numbers of each row by its first cell."""
    rows = re.findall(r'^\| ([^|]+?) \| (.*) \|$', text, re.M)
    rows = [(name, cells.split(' | ')) for name, cells in rows if cells[0].isdigit()]
    return {name: [int(cell) for cell in cells] for name, cells in rows}


def main():
    server = Server(tempfile.mkdtemp(), True)
    version = lambda words: re.search(
        r'\d+\.\d+(\.\d+)?', subprocess.run(words, capture_output=True, text=True).stdout
    )[0]
    names = [('Redis', 'redis-server'), ('valgrind', 'valgrind')]
    programs = ', '.join(f'{name} {version([of, "--version"])}' for name, of in names) + '.'
    try:
        rows = Rows(server)
        for algorithm in ALGORITHMS:
            rows.lone(algorithm)
        rows.others()
        by_script = table(
            ['a take by script', 'instructions'],
            [[name, f'{count:.0f}'] for name, count in rows.found],
        )
        routes = ['tower-rate-limit-redis', 'tower-rate-limiter']
        routes += [algorithm.replace('_', '-') for algorithm in ALGORITHMS]
        cells = [(found, number) for number in (1, 64) for found in ('known', 'first', 'denied')]
        by_app = table(
            ['a request'] + [f'{found}, {number}' for found, number in cells],
            [
                [route] + [f'{asked_by_app(server, route, *cell):.0f}' for cell in cells]
                for route in routes
            ],
        )
    finally:
        server.stop()
    new = f'{programs}\n\n{by_script}\n\n{by_app}'
    print(new)
    text = open(README).read()
    marked = r'(<!-- server-instructions:begin -->\n).*?(<!-- server-instructions:end -->)'
    old = re.search(marked, text, re.S)[0]
    if '--quick' in sys.argv:
        return
    if '--check' not in sys.argv:
        put = ['bash', f'{ROOT}/benches/put.sh', 'server-instructions']
        subprocess.run(put, input=new, text=True, stdout=subprocess.DEVNULL, check=True)
    elif programs not in old:
        print(f'{sys.argv[0]}: other programs made the table: nothing is compared')
    else:
        before, after, failed = numbers_of(old), numbers_of(new), False
        for name in sorted(before.keys() | after.keys()):
            pairs = zip(before.get(name, []), after.get(name, []))
            # At 64 connections it depends on how full flights are.
            worse = [now > was * (1.03 if at < 3 else 1.1) for at, (was, now) in enumerate(pairs)]
            if any(worse) or name not in before or name not in after:
                print(f'{name}: {after.get(name)}, before {before.get(name)}', file=sys.stderr)
                failed = True
        sys.exit(failed)


main()
