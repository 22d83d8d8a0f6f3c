"""The installed package, and the programs that the documentation shows."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

import fuseline
import pytest
from conftest import ServerProcess, python_blocks, run_script


def test_readmes_ten_lines_run(source_dir: Path, tmp_path: Path, server: ServerProcess) -> None:
    (script,) = python_blocks(source_dir / "README.md")
    assert len([line for line in script.splitlines() if line.strip()]) <= 12
    out = run_script(script, tmp_path, server)
    assert "(1024, 4096) float32" in out
    assert re.search(r"\d+ kernels -> 1,", out)


def test_every_program_of_the_manual_runs(source_dir: Path, tmp_path: Path, server: ServerProcess) -> None:
    blocks = python_blocks(source_dir / "docs" / "python.md")
    assert len(blocks) >= 5
    for block in blocks:
        if "torch" in block or "launch" in block:  # they need more than the package: test_launch.py runs the latter
            continue
        run_script(block, tmp_path, server)


def test_nothing_of_pytorch_is_imported() -> None:
    script = "import sys, fuseline, fuseline.numpy, fuseline.launch; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_package_is_typed_and_has_no_generated_modules() -> None:
    package = resources.files("fuseline")
    names = [entry.name for entry in package.iterdir()]
    assert "py.typed" in names and "_protocol.binpb" in names and "_ops.json" in names
    assert not [name for name in names if name.endswith(("_pb2.py", "_pb2_grpc.py"))]


def test_package_metadata_names_what_it_needs() -> None:
    try:
        found = metadata.metadata("fuseline")
    except metadata.PackageNotFoundError:
        pytest.skip("the package is on the path, and not installed")
    assert found["Requires-Python"] == ">=3.10"
    needed = [line.split(">")[0] for line in metadata.requires("fuseline") or [] if "extra" not in line]
    assert sorted(needed) == ["grpcio", "numpy", "protobuf"]


def test_public_names_are_there() -> None:
    assert [name for name in fuseline.__all__ if not hasattr(fuseline, name)] == []
