"""Builds the package: adds to the Python files what is made from the rest of the project.

  _protocol.binpb        the descriptors of proto/, by protoc: grpcio-tools', else the one on PATH
  _ops.json              the op table, by `fuseline ops --json`: $FUSELINE_CLI, else a build tree's, else left out
  libfuseline_launch.so  local launch: $FUSELINE_LAUNCH_LIBRARY, else a build tree's, else left out

A build tree is build/ or build/* of the project; the newest that has the file counts. Nothing is written into the
source tree.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70
    from wheel.bdist_wheel import bdist_wheel

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PROTOS = (
    "fuseline/v1/admin_service.proto",
    "fuseline/v1/compile_service.proto",
    "fuseline/v1/execute_service.proto",
    "google/rpc/error_details.proto",
    "google/rpc/status.proto",
)


def in_build_trees(path: str, variable: str) -> Path | None:
    """The file that the environment names, or the newest of the build trees'."""
    given = os.environ.get(variable)
    if given is not None:
        if given and not Path(given).is_file():
            raise SystemExit(f"{variable} names no file: {given}")
        return Path(given).resolve() if given else None
    found = [*ROOT.glob(f"build/{path}"), *ROOT.glob(f"build/*/{path}")]
    return max((f for f in found if f.is_file()), key=lambda f: f.stat().st_mtime, default=None)


def make_descriptors(target: Path) -> None:
    arguments = [f"-I{ROOT / 'proto'}", "--include_imports", f"--descriptor_set_out={target}", *PROTOS]
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
    listing = subprocess.run([program, "--json", "ops"], stdout=subprocess.PIPE, check=False)
    if listing.returncode != 0:
        print(f"{program} is too old for `ops`: the package goes without the op table", file=sys.stderr)
        return
    target.write_bytes(listing.stdout)


class BuildPackage(build_py):
    def run(self) -> None:
        super().run()
        package = Path(self.build_lib) / "fuseline"
        package.mkdir(parents=True, exist_ok=True)
        make_descriptors(package / "_protocol.binpb")
        make_op_table(package / "_ops.json")
        library = launch_library()
        if library is not None:
            shutil.copy(library, package / "libfuseline_launch.so")


def launch_library() -> Path | None:
    return in_build_trees("client/launch/libfuseline_launch.so", "FUSELINE_LAUNCH_LIBRARY")


class BuildWheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        # The library is loaded with ctypes: it depends on the machine, and not on the interpreter.
        _, _, platform = super().get_tag()
        return ("py3", "none", platform if launch_library() is not None else "any")


class Package(Distribution):
    def has_ext_modules(self) -> bool:
        return launch_library() is not None


scratch = tempfile.mkdtemp(prefix="fuseline-build.")
setup(
    cmdclass={"build_py": BuildPackage, "bdist_wheel": BuildWheel},
    distclass=Package,
    options={"build": {"build_base": scratch}, "egg_info": {"egg_base": scratch}},
)
shutil.rmtree(scratch, ignore_errors=True)
