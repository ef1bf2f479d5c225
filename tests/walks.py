#!/usr/bin/env python3
"""The way of a request, and that of its take to Redis, through the files of the crate.

    python3 tests/walks.py             # this checkout; with --files the files, one after the other
    python3 tests/walks.py ../another  # another one, by its own lists

`walks.txt` lists the functions that the usual request passes, each below its caller, without
getters. A hop is a change of file, and a return is a hop to a file where the walk has been before:
a reader turns back. It fails if a function is gone, or if no caller names it; `~` stands before one
that is reached by a poll, a closure or a drop.
"""
import re
import sys
from pathlib import Path

folders = [it for it in sys.argv[1:] if it != "--files"]
root = Path(folders[0]) if folders else Path(__file__).parent.parent
FN = re.compile(r"( {4}|)(?:pub(?:\([^)]*\))? )?(?:(?:const|async|unsafe) )*fn (\w+)")


def owner(head):
    """The type of an `impl`, or the name of a trait."""
    while (plain := re.sub(r"<[^<>]*>", "", head.replace("->", ""))) != head:
        head = plain
    head = re.split(r"\bwhere\b|\{", head)[0].split(" for ")[-1]
    return re.sub(r"impl|trait|pub(\([^)]*\))?", "", head).strip().split(":")[0].strip()


functions = {}
for folder in [root / "src", *root.glob("crates/*/src")]:
    for path in sorted(folder.rglob("*.rs")):
        file = str(path.relative_to(root))
        module = path.parent.name if path.name == "mod.rs" else path.stem
        lines = path.read_text().split("\nmod tests {")[0].splitlines()
        holder = ""
        for at, line in enumerate(lines):
            if re.match(r"(pub(\([^)]*\))? )?(impl\b|trait )", line):
                holder = owner(" ".join(lines[at : at + 3]))
            if found := FN.match(line):
                indent, name = found.groups()
                end = next((i for i in range(at, len(lines)) if lines[i] == indent + "}"), at)
                body = "\n".join(lines[at + 1 : end])
                key = f"{holder if indent else module}::{name}"
                functions.setdefault(key, {}).setdefault(file, []).append(body)


def check(holds, message):
    holds or sys.exit(f"tests/walks.txt: {message}")


def walk(entries):
    """The files that the walk passes, one after the other."""
    callers, passed = [], []
    for line in entries:
        depth, entry = (len(line) - len(line.lstrip())) // 2, line.strip().lstrip("~")
        while len(callers) > depth:
            callers.pop()
            passed += [callers[-1][0]] if callers else []
        if "." in entry:
            file, bodies = entry, []
            check((root / entry).exists(), f"{entry} is gone")
        else:
            places = functions.get(entry, {})
            check(len(places) == 1, f"{entry} is in {sorted(places) or 'no file'}")
            [(file, bodies)] = places.items()
            name = re.compile(rf"\b{entry.split('::')[1]}\b")
            named = any(name.search(body) for _, of in callers for body in of)
            check(named or not callers or "~" in line, f"no caller names {entry}")
        callers.append((file, bodies))
        passed.append(file)
    return passed + [file for file, _ in reversed(callers[:-1])]


sums = [0, 0, 0]
for part in (root / "tests/walks.txt").read_text().split("\n\n"):
    title, *entries = part.strip().splitlines()
    passed = walk(entries)
    hops = sum(one != other for one, other in zip(passed, passed[1:]))
    counts = [len(set(passed)), hops, hops - len(set(passed)) + 1]
    print("{}: {} files, {} hops, {} returns".format(title, *counts))
    sums = [one + other for one, other in zip(sums, counts)]
    if "--files" in sys.argv:
        print(" > ".join(it for it, before in zip(passed, ["", *passed]) if it != before))
print("both: {} hops, {} returns".format(*sums[1:]))
