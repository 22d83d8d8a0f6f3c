#!/usr/bin/env python3
"""Checks habits that a compiler does not see.

    check_sources.py [ROOT]

For every file of the source tree:
  - no file or folder named *util* or *helper* or third_party, vendor, external;
  - at most 1000 lines for a .h, .cc, .py or .sh file, unless it is listed in TABLES below;
  - a header starts with a comment that says what it is, and has #pragma once;
  - no thread_local (but in THREAD_LOCAL_FILES below), no singleton (a static `instance`, or a function Instance()/GetInstance());
  - the file that "Tested by PATH" names exists;
  - no file of more than 512 KiB, and none with bytes that no text has, but for inputs of fuzzers (BINARY below);
  - every .h and .cc below a folder of ours, and every test, is named in a CMakeLists.txt at or above it, or by its whole path in any.
Prints one line for each finding and exits with 1; 0 if there is none.
"""

import os
import re
import sys

FOLDERS = ("cmake", "common", "server", "client", "proto", "deploy", "docker", "docs", "tests")
MAX_LINES = 1000
# Files that are one table or generated data, and may be longer.
TABLES = frozenset()
BAD_NAME = re.compile(r"util|helper", re.IGNORECASE)
BAD_FOLDER = re.compile(r"^(third[_-]?party|vendor|vendored|external|extern)$", re.IGNORECASE)
# Where a C ABI keeps each thread's last error: C has no other way to say it.
THREAD_LOCAL_FILES = frozenset({"client/launch/last_error.cc"})
THREAD_LOCAL = re.compile(r"\bthread_local\b|\b__thread\b")
SINGLETON = re.compile(r"\bstatic\b[^;(]*\binstance_?\b\s*[;={(]|\b(Get)?Instance\(\)")
TESTED_BY = re.compile(r"Tested by:?\s+((?:tests/[\w./-]+(?:,\s+|\s+and\s+)?)+)")
MAX_BYTES = 512 << 10
# Inputs as they travel on the wire.
BINARY = re.compile(r"^tests/fuzz/(corpus|regressions)/")
SOURCE_SUFFIXES = (".h", ".cc")
TEST_NAME = re.compile(r"(_test\.(cc|py|sh))$")


def without_comments_and_strings(text):
    """The text with comments and literals blanked; line breaks stay."""
    pattern = re.compile(r'R"([^()\s]{0,16})\((?:.|\n)*?\)\1"|//[^\n]*|/\*(?:.|\n)*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'')
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)


def tree_files(root):
    for top in FOLDERS:
        for folder, folders, files in os.walk(os.path.join(root, top)):
            folders[:] = sorted(name for name in folders if name not in ("__pycache__", "build"))
            for name in sorted(files):
                if not name.endswith(".pyc"):
                    yield os.path.relpath(os.path.join(folder, name), root)


def check_names(path):
    parts = path.split("/")
    for folder in parts[:-1]:
        if BAD_FOLDER.match(folder):
            yield f"{path}: folder '{folder}': nothing of others is kept in the tree"
    for part in parts:
        if BAD_NAME.search(part) and not part.endswith(".json"):
            yield f"{path}: '{part}': name it after its subject"


def check_contents(path, content):
    if len(content) > MAX_BYTES:
        yield f"{path}: {len(content)} bytes, and {MAX_BYTES} are allowed: make it when it is needed, or take it from a package"
    # A zero byte is what git calls binary by; UTF-8 is all that text is written in here.
    if not BINARY.match(path):
        try:
            binary = b"\0" in content
            content.decode("utf-8")
        except UnicodeDecodeError:
            binary = True
        if binary:
            yield f"{path}: binary: nothing built is committed"


def check_length(path, text):
    lines = text.count("\n")
    if path.endswith((".h", ".cc", ".py", ".sh")) and lines > MAX_LINES and path not in TABLES:
        yield f"{path}: {lines} lines, and {MAX_LINES} are allowed: is it two subjects?"


def check_header(path, text):
    if not re.match(r"// \S", text):
        yield f"{path}:1: a header starts with a comment that says what it is"
    if not re.search(r"^#pragma once$", text, re.MULTILINE):
        yield f"{path}:1: no #pragma once"


def check_code(path, text):
    code = without_comments_and_strings(text)
    for number, line in enumerate(code.splitlines(), start=1):
        if THREAD_LOCAL.search(line) and path not in THREAD_LOCAL_FILES:
            yield f"{path}:{number}: thread_local: pass it as an argument"
        if SINGLETON.search(line):
            yield f"{path}:{number}: a singleton: pass it as an argument"


def check_tested_by(root, path, text):
    for match in TESTED_BY.finditer(text):
        for name in re.findall(r"tests/[\w./-]+", match.group(1)):
            name = name.rstrip(".")
            if not os.path.exists(os.path.join(root, name)):
                yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: 'Tested by {name}': there is no such file"


def read_paths_in_lists(root):
    """The whole paths that CMake files name: ${PROJECT_SOURCE_DIR}/tests/testing/program_runner.cc."""
    paths = set()
    for path in tree_files(root):
        if path.endswith(("CMakeLists.txt", ".cmake")):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                paths.update(re.findall(r"\$\{PROJECT_SOURCE_DIR\}/([\w./-]+)", re.sub(r"#[^\n]*", "", file.read())))
    return paths


def check_registered(root, path, paths_in_lists):
    """The file is named, by its path from there, in a CMakeLists.txt at or above it. A header only where headers are listed at all:
    those of a program are not."""
    header = path.endswith(".h")
    headers_are_listed = False
    folder = os.path.dirname(path)
    while True:
        lists = os.path.join(root, folder, "CMakeLists.txt")
        if os.path.exists(lists):
            with open(lists, encoding="utf-8") as file:
                text = re.sub(r"#[^\n]*", "", file.read())
            headers_are_listed = headers_are_listed or re.search(r"\bHEADERS\b", text) is not None
            name = os.path.relpath(path, folder) if folder else path
            if re.search(r"(?<![\w./-])" + re.escape(name) + r"(?![\w./-])", text):
                return
        if not folder:
            break
        folder = os.path.dirname(folder)
    if header and not headers_are_listed or path in paths_in_lists:
        return
    yield f"{path}: named in no CMakeLists.txt at or above it"


def check(root):
    """Returns (findings, number of files read)."""
    findings = []
    count = 0
    paths_in_lists = read_paths_in_lists(root)
    for path in tree_files(root):
        count += 1
        findings += check_names(path)
        with open(os.path.join(root, path), "rb") as file:
            findings += check_contents(path, file.read())
        if not path.endswith((".h", ".cc", ".py", ".sh", ".proto")):
            continue
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        findings += check_length(path, text)
        if path.endswith(SOURCE_SUFFIXES):
            findings += check_code(path, text)
            findings += check_tested_by(root, path, text)
            in_tests = path.startswith("tests/")
            if path.endswith(".h"):
                findings += check_header(path, text)
            # A test's private header need not be named.
            if not (in_tests and path.endswith(".h")):
                findings += check_registered(root, path, paths_in_lists)
        elif path.startswith("tests/") and TEST_NAME.search(path):
            findings += check_registered(root, path, paths_in_lists)
    return findings, count


def main(argv):
    root = argv[1] if len(argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    findings, count = check(root)
    if count == 0:
        print("check_sources: no files found", file=sys.stderr)
        return 2
    for line in findings:
        print(line)
    print(f"check_sources: {count} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
