#!/usr/bin/env python3
"""Makes the files of the package that come from the rest of the project.

  _protocol.binpb        the descriptors of proto/, by protoc: grpcio-tools', else the one on PATH
  _explain_page.html     the page of explanations, which the command line has too
  _ops.json              the op table, by `fuseline --json ops`: $FUSELINE_CLI, else a build tree's, else left out
  libfuseline_launch.so  local launch: $FUSELINE_LAUNCH_LIBRARY, else a build tree's, else left out

A build tree is build/ or build/* of the project, save those with sanitizers; the newest that has the file counts.
setup.py calls this for wheels;

    package_resources.py FOLDER

puts the whole package into FOLDER, to be named by PYTHONPATH, with Python and protoc alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIBRARY = "libfuseline_launch.so"
PROTOS = (
    "fuseline/v1/admin_service.proto",
    "fuseline/v1/compile_service.proto",
    "fuseline/v1/execute_service.proto",
    "google/rpc/error_details.proto",
    "google/rpc/status.proto",
)


def in_build_trees(path: str, variable: str) -> Path | None:
    """The file that the environment names, or the newest of the build trees'. An empty variable: none."""
    given = os.environ.get(variable)
    if given is not None:
        if given and not Path(given).is_file():
            raise SystemExit(f"{variable} names no file: {given}")
        return Path(given).resolve() if given else None
    found = [*ROOT.glob(f"build/{path}"), *(f for f in ROOT.glob(f"build/*/{path}") if _is_plain(f))]
    return max((f for f in found if f.is_file()), key=lambda f: f.stat().st_mtime, default=None)


def _is_plain(file: Path) -> bool:
    """Not of a build with sanitizers or counters: Python can't load those."""
    return file.relative_to(ROOT / "build").parts[0] not in ("asan", "coverage", "fuzz", "tsan")


def launch_library() -> Path | None:
    return in_build_trees(f"client/launch/{LIBRARY}", "FUSELINE_LAUNCH_LIBRARY")


def make_descriptors(target: Path) -> None:
    arguments = [f"-I{ROOT / 'proto'}", "--include_imports", f"--descriptor_set_out={target.resolve()}", *PROTOS]
    try:
        import grpc_tools
    except ImportError:
        protoc = shutil.which("protoc")
        if protoc is None:
            raise SystemExit("neither grpcio-tools nor protoc is installed") from None
        command = [protoc, *arguments]
    else:
        well_known = Path(grpc_tools.__file__).parent / "_proto"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{well_known}", *arguments]
    subprocess.run(command, check=True, cwd=ROOT / "proto")


def make_op_table(target: Path) -> None:
    program = in_build_trees("client/cli/fuseline", "FUSELINE_CLI")
    if program is None:
        print("no fuseline program was found: the package goes without the op table", file=sys.stderr)
        return
    listing = subprocess.run([str(program), "--json", "ops"], stdout=subprocess.PIPE, check=False)
    if listing.returncode != 0:
        print(f"{program} is too old for `ops`: the package goes without the op table", file=sys.stderr)
        return
    target.write_bytes(listing.stdout)


def make_resources(package: Path) -> None:
    """Adds the files to the folder of the built package."""
    package.mkdir(parents=True, exist_ok=True)
    make_descriptors(package / "_protocol.binpb")
    make_op_table(package / "_ops.json")
    shutil.copy(ROOT / "client/cli/explain_page/page.html", package / "_explain_page.html")
    library = launch_library()
    if library is not None:
        shutil.copy(library, package / LIBRARY)


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    package = Path(sys.argv[1]) / "fuseline"
    shutil.copytree(HERE / "fuseline", package, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    make_resources(package)
    return 0


if __name__ == "__main__":
    sys.exit(main())
