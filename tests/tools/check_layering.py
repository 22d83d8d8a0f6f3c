#!/usr/bin/env python3
"""Checks every #include against the include table of docs/pipeline.md.

    check_layering.py [ROOT]

The table is the one between the markers `<!-- include table -->` and `<!-- end of include table -->`, with the columns
folder | may include, of ours | may include, of others. A folder's own headers, the standard library and Abseil are always allowed.
An entry of the second column is a folder of the table that stands above, or one header. A first-column entry that ends in .cc or .h
adds to what its folder may. Prints one line for each include that the table does not allow and exits with 1; 0 if there is none.
"""

import os
import re
import sys

BEGIN = "<!-- include table -->"
END = "<!-- end of include table -->"
CHECKED_FOLDERS = ("common", "server", "client")
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')
# Headers of the system have no folder, or one of these.
SYSTEM_FOLDERS = ("sys/", "linux/", "netinet/", "arpa/", "bits/")
ABSEIL = "absl/"


class TableError(Exception):
    """The table itself is wrong."""


class Rule:
    """One row of the table."""

    def __init__(self, folder, ours, others):
        self.folder = folder
        self.ours = ours
        self.others = others


def parse_table(text):
    """Returns the rows of the table as a dict from folder (or file) to Rule, in the table's order."""
    if BEGIN not in text or END not in text:
        raise TableError(f"no table between '{BEGIN}' and '{END}'")
    rules = {}
    for line in text.split(BEGIN, 1)[1].split(END, 1)[0].splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.strip().startswith("|") or set(cells[0]) <= set("-: ") or "`" not in cells[0]:
            continue  # not a row: prose, the heading or the line below it
        if len(cells) != 3:
            raise TableError(f"a row needs 3 columns: {line.strip()}")
        names = re.findall(r"`([^`]+)`", cells[0])
        if len(names) != 1:
            raise TableError(f"the first column names one folder: {line.strip()}")
        folder = names[0]
        if folder in rules:
            raise TableError(f"'{folder}' has two rows")
        ours = re.findall(r"`([^`]+)`", cells[1])
        for entry in ours:
            above = entry in rules or any(entry.startswith(other + "/") for other in rules if entry.endswith(".h"))
            if not above:
                raise TableError(f"'{folder}' may include only what stands above it, and '{entry}' does not")
        rules[folder] = Rule(folder, ours, re.findall(r"`([^`]+)`", cells[2]))
    if not rules:
        raise TableError("the table has no rows")
    return rules


def owner(path, rules):
    """The folder of the table that `path` lies in: the longest that fits, or None."""
    fitting = [name for name in rules if path.startswith(name + "/")]
    return max(fitting, key=len, default=None)


def generated_proto(include):
    return include.endswith(".pb.h")


def problem(path, kind, include, rules):
    """What is wrong with `path` including `include`, or None."""
    folder = owner(path, rules)
    if folder is None:
        return "its folder is not in the include table of docs/pipeline.md"
    ours = list(rules[folder].ours)
    others = list(rules[folder].others)
    if path in rules:
        ours += rules[path].ours
        others += rules[path].others

    if generated_proto(include):
        return None if "proto" in ours else "only a folder with `proto` in its row may include generated code"
    target = owner(include, rules)
    if target is not None:
        if kind == "<":
            return "headers of ours are included with quotes"
        if target == folder or target in ours or include in ours:
            return None
        return f"'{folder}' may not include from '{target}'"
    first = include.split("/")[0]
    if first in CHECKED_FOLDERS:
        return "its folder is not in the include table of docs/pipeline.md"
    if "/" not in include or include.startswith(SYSTEM_FOLDERS):
        # <vector>, <unistd.h>; but CUDA's headers, say, are someone's too.
        library = {"cuda.h": "cuda", "nvrtc.h": "nvrtc", "hiredis.h": "hiredis"}.get(include)
        return None if library is None or library in others else f"'{folder}' may not include '{library}'"
    if include.startswith(ABSEIL) or first in others:
        return None
    return f"'{folder}' may not include '{first}'"


def source_files(root):
    for top in CHECKED_FOLDERS:
        for folder, folders, files in os.walk(os.path.join(root, top)):
            folders.sort()
            for name in sorted(files):
                if name.endswith((".h", ".cc")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def check(root):
    """Returns (problems, number of files read)."""
    with open(os.path.join(root, "docs", "pipeline.md"), encoding="utf-8") as page:
        rules = parse_table(page.read())
    problems = []
    count = 0
    for path in source_files(root):
        count += 1
        with open(os.path.join(root, path), encoding="utf-8") as source:
            for number, line in enumerate(source, start=1):
                match = INCLUDE.match(line)
                if match is None:
                    continue
                what = problem(path, match.group(1), match.group(2), rules)
                if what is not None:
                    problems.append(f"{path}:{number}: {match.group(2)}: {what}")
    return problems, count


def main(argv):
    root = argv[1] if len(argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    try:
        problems, count = check(root)
    except (OSError, TableError) as error:
        print(f"check_layering: {error}", file=sys.stderr)
        return 2
    if count == 0:
        print("check_layering: no source files found", file=sys.stderr)
        return 2
    for line in problems:
        print(line)
    print(f"check_layering: {count} files, {len(problems)} includes that the table does not allow")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
