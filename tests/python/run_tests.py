#!/usr/bin/env python3
"""Builds the Python package, installs it into a fresh virtual environment and runs its tests there.

    run_tests.py --work FOLDER --source ROOT --server PROGRAM --cli PROGRAM [--launch-library FILE] [PYTEST-ARGUMENT…]

From PyPI, as a user does: `pip wheel` and `pip install ./client/python[test]`. Where PyPI can't be reached, on Debian's
packages (python3-grpcio, python3-numpy, python3-protobuf, python3-pytest), which root gets from apt-get where they are
missing; then the package is put together with protoc and named by PYTHONPATH. Says which of the two it was.
Exit code: pytest's; 77 where neither is to be had.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

SKIPPED = 77
PIP = ["-m", "pip", "--disable-pip-version-check", "--quiet", "--retries", "1", "--timeout", "20"]
DEBIAN_PYTHON = "/usr/bin/python3"
DEBIAN_PACKAGES = ["python3-grpcio", "python3-numpy", "python3-protobuf", "python3-pytest"]
DEBIAN_MODULES = "grpc, numpy, google.protobuf, pytest"


def say(text: str) -> None:
    print(f"python_client: {text}", flush=True)


def quiet(command: list[str], environment: dict[str, str] | None = None, seconds: int = 420) -> bool:
    """Runs; its output is shown only if it fails."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        say(f"no end after {seconds} s: {' '.join(command)}")
        return False
    if done.returncode != 0:
        sys.stdout.write(done.stdout.decode(errors="replace")[-4000:])
        sys.stdout.flush()
    return done.returncode == 0


def from_pypi(work: Path, package: Path, environment: dict[str, str]) -> str | None:
    """The interpreter of a new virtual environment that has the package; None where PyPI can't be reached."""
    home = work / "venv"
    shutil.rmtree(home, ignore_errors=True)
    wheels = work / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    try:
        venv.create(home, with_pip=True, symlinks=True)
    except (subprocess.CalledProcessError, OSError) as error:
        say(f"no virtual environment (python3-venv?): {error}")
        return None
    python = str(home / "bin" / "python")
    commands = [
        ["wheel", "--no-deps", "--wheel-dir", str(wheels), str(package)],
        # The very command of the README, then what the tests need besides.
        ["install", str(package)],
        ["install", "pytest", "ml_dtypes", "mypy"],
    ]
    for command in commands:
        if not quiet([python, *PIP, *command], environment):
            probe = [python, *PIP, "download", "--no-deps", "--dest", str(work / "probe"), "setuptools"]
            if subprocess.run(probe, capture_output=True, env=environment, check=False).returncode == 0:
                say(f"FAILED: PyPI can be reached, but not: pip {' '.join(command)}")
                sys.exit(1)
            return None
    say(f"wheel: {', '.join(wheel.name for wheel in wheels.iterdir())}")
    return python


def from_debian(work: Path, package: Path, environment: dict[str, str]) -> str | None:
    """Debian's interpreter, with the package on PYTHONPATH; None where its packages are missing."""
    complete = [DEBIAN_PYTHON, "-c", f"import {DEBIAN_MODULES}"]
    if subprocess.run(complete, capture_output=True, check=False).returncode != 0:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            return None
        quiet(["apt-get", "-q", "-y", "update"])
        install = ["apt-get", "-q", "-y", "--no-install-recommends", "install", *DEBIAN_PACKAGES]
        if not quiet(install, {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}):
            return None
    library = work / "lib"
    shutil.rmtree(library, ignore_errors=True)
    build = [DEBIAN_PYTHON, str(package / "package_resources.py"), str(library)]
    done = subprocess.run(build, env=environment, check=False)
    if done.returncode != 0:
        say("the package can't be built")
        sys.exit(1)
    environment["PYTHONPATH"] = str(library)
    return DEBIAN_PYTHON


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for the environment; made anew")
    parser.add_argument("--source", type=Path, required=True, help="root of the project")
    parser.add_argument("--server", required=True, help="fuseline-server")
    parser.add_argument("--cli", required=True, help="fuseline")
    parser.add_argument("--launch-library", default="", help="libfuseline_launch.so; none: local launch is not tested")
    parser.add_argument("--debian", action="store_true", help="do not ask PyPI")
    arguments, rest = parser.parse_known_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    package = arguments.source / "client" / "python"
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    environment.update(
        FUSELINE_SERVER_PROGRAM=arguments.server,
        FUSELINE_CLI=arguments.cli,
        FUSELINE_SOURCE_DIR=str(arguments.source),
        # For the build; an empty one means none, wherever a build tree may have one.
        FUSELINE_LAUNCH_LIBRARY=arguments.launch_library,
        PYTHONDONTWRITEBYTECODE="1",
    )
    environment.pop("FUSELINE_SERVER", None)
    python = None if arguments.debian else from_pypi(arguments.work, package, environment)
    if python is not None:
        say("tested on PyPI's packages, in a fresh virtual environment")
    else:
        python = from_debian(arguments.work, package, environment)
        if python is None:
            say("SKIPPED: neither PyPI nor Debian's Python packages can be had")
            return SKIPPED
        say(
            "not asked of PyPI: tested on Debian's packages"
            if arguments.debian
            else "PyPI can't be reached: tested on Debian's packages"
        )
    del environment["FUSELINE_LAUNCH_LIBRARY"]  # what the package carries is what is tested
    versions = (
        "import sys, grpc, numpy, google.protobuf as p; print(sys.version.split()[0], 'grpcio', grpc.__version__, "
    )
    subprocess.run([python, "-c", versions + "'protobuf', p.__version__, 'numpy', numpy.__version__)"], check=False)
    tests = arguments.source / "tests" / "python"
    command = [python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *(rest or [str(tests)])]
    return subprocess.run(command, cwd=arguments.work, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
