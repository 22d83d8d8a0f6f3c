#!/usr/bin/env python3
"""Checks what a shared library shows and needs, for one that is loaded into processes with libraries of their own.

    check_shared_library.py LIBRARY --prefix PREFIX --needs NAME… --glibc VERSION

Every symbol that it exports begins with PREFIX, and there is one; it needs no library besides those named, no symbol that other
libraries would have to bring, and no glibc newer than VERSION. Prints one line for each finding and exits with 1; 0 if there is none.
"""

import argparse
import re
import subprocess
import sys


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def version(text):
    return tuple(int(part) for part in text.split("."))


def findings(library, prefix, needs, glibc):
    exported = [line.split()[-1] for line in output("nm", "-D", "--defined-only", library)]
    names = [name.split("@")[0] for name in exported]
    if not any(name.startswith(prefix) for name in names):
        yield f"exports nothing that begins with '{prefix}'"
    for name in names:
        if not name.startswith(prefix):
            yield f"exports '{name}'"
    for line in output("objdump", "-p", library):
        words = line.split()
        if words[:1] == ["NEEDED"] and words[1] not in needs:
            yield f"needs '{words[1]}'"
    for line in output("nm", "-D", "--undefined-only", library):
        kind, name = line.split()[-2:]
        match = re.search(r"@+GLIBC_([0-9.]+)$", name)
        if match and version(match.group(1)) > version(glibc):
            yield f"needs '{name}', newer than glibc {glibc}"
        elif not match and "@" not in name and kind.upper() == "U":
            yield f"needs '{name}', of a library that is not named"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--needs", nargs="+", default=[])
    parser.add_argument("--glibc", required=True)
    arguments = parser.parse_args()
    found = list(findings(arguments.library, arguments.prefix, arguments.needs, arguments.glibc))
    for finding in found:
        print(f"{arguments.library}: {finding}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
