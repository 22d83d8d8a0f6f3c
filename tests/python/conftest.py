"""Fixtures of the Python tests: a server of their own, and the programs that the build made.

Environment: FUSELINE_SERVER_PROGRAM, FUSELINE_CLI, FUSELINE_SOURCE_DIR (set by ctest); FUSELINE_LAUNCH_LIBRARY where
local launch is to be tested with another library than the installed package's.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import fuseline
import fuseline.launch
import pytest

START_SECONDS = 60


class ServerProcess:
    """A fuseline-server on a free loopback port."""

    def __init__(self, folder: Path, *flags: str, listen: str = "127.0.0.1:0") -> None:
        program = os.environ["FUSELINE_SERVER_PROGRAM"]
        self.port_file = folder / "port"
        self.log = folder / "server.log"
        self.port_file.unlink(missing_ok=True)
        command = [program, "--listen", listen, "--port_file", str(self.port_file), "--cache_dir", "", *flags]
        if os.environ.get("FUSELINE_NVRTC_DIR"):
            command += ["--nvrtc_path", os.environ["FUSELINE_NVRTC_DIR"]]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not (self.port_file.exists() and self.port_file.read_text().strip()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start: {self.log.read_text()}")
            time.sleep(0.02)
        self.address = f"127.0.0.1:{self.port_file.read_text().strip()}"

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One that all tests share."""
    process = ServerProcess(tmp_path_factory.mktemp("server"))
    yield process
    assert process.stop() == 0


@pytest.fixture
def client(server: ServerProcess) -> Iterator[fuseline.Client]:
    with fuseline.connect(server.address, target="cpu") as connected:
        yield connected


@pytest.fixture(scope="session")
def source_dir() -> Path:
    return Path(os.environ["FUSELINE_SOURCE_DIR"])


@pytest.fixture(scope="session")
def cli() -> str:
    return os.environ["FUSELINE_CLI"]


@pytest.fixture(scope="session")
def torch_server(server: ServerProcess) -> str:
    """The server's address, for what compiles there and is launched here."""
    if not fuseline.launch.is_available():
        pytest.skip("the launch library is not installed: nothing can be launched here")
    return server.address


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def run_script(script: str, folder: Path, server: ServerProcess) -> str:
    environment = {**os.environ, "FUSELINE_SERVER": server.address}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
