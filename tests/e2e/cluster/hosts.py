"""Hosts on one machine: network namespaces on a bridge, and the programs that run on them.

Everything lives in namespaces of this process's own (enter), so that nothing of it stays behind, however the test ends.
Needs root and iproute2.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_SUBNET = "10.77.0"
_INSIDE = "FUSELINE_CLUSTER_INSIDE"
_UNSHARE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def why_not() -> str:
    """Why this machine can't have such hosts; empty: it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "unshare", "mount"):
        if shutil.which(program) is None:
            return f"there is no '{program}' (Debian: iproute2, util-linux)"
    trial = "mount -t tmpfs none /run && ip link add bridge type bridge && ip netns add host"
    tried = subprocess.run([*_UNSHARE, "sh", "-c", trial], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"no namespaces here: {tried.stderr.strip()}"


def enter() -> None:
    """Starts this program again in namespaces of its own: network, mounts, and processes, which all end with it."""
    if os.environ.get(_INSIDE) == "1":
        # `ip netns` keeps its names here.
        subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
        return
    os.environ[_INSIDE] = "1"
    os.execvp(_UNSHARE[0], [*_UNSHARE, sys.executable, *sys.argv])


def wait_until(what: str, condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Raises AssertionError where the condition does not come true in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"after {seconds} s: not {what}"
        time.sleep(0.02)


class Process:
    """A program on a host; its output goes to a log."""

    def __init__(self, argv: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **(environment or {})}
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def is_running(self) -> bool:
        return self._popen.poll() is None

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()

    def terminate(self, seconds: float) -> int:
        """Asks it to end, and waits; its exit code."""
        self._popen.terminate()
        return self._popen.wait(seconds)

    def pause(self) -> None:
        self._popen.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._popen.send_signal(signal.SIGCONT)

    def wait(self, seconds: float) -> int:
        return self._popen.wait(seconds)


class Host:
    """A namespace with one address."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.address = f"{_SUBNET}.{number}"
        self._port = f"port{number}"  # the bridge's end
        _ip("netns", "add", name)
        _ip("link", "add", self._port, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", self._port, "master", "bridge", "up")
        _ip("-n", name, "address", "add", f"{self.address}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "link", "set", "lo", "up")

    def start(self, argv: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Process:
        return Process(["ip", "netns", "exec", self.name, *argv], log, environment)

    def cut_off(self) -> None:
        """Nothing reaches it or leaves it; nobody is told."""
        _ip("link", "set", self._port, "down")

    def join_again(self) -> None:
        _ip("link", "set", self._port, "up")


class Network:
    """The bridge; this process is on it too."""

    def __init__(self) -> None:
        self.host_count = 1
        _ip("link", "set", "lo", "up")
        _ip("link", "add", "bridge", "type", "bridge")
        _ip("address", "add", f"{_SUBNET}.1/24", "dev", "bridge")
        _ip("link", "set", "bridge", "up")

    def host(self, name: str) -> Host:
        self.host_count += 1
        return Host(name, self.host_count)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
