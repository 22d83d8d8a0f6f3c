"""The programs of the cluster: Redis, fuseline-server, HAProxy with the configuration of deploy/haproxy, clients."""

from __future__ import annotations

import collections
import dataclasses
import json
import re
import socket
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hosts import Host, Process, wait_until

_REDIS_PORT = 6379
_SERVER_PORT = 50061
_METRICS_PORT = 9464


class Redis:
    """One redis-server, which keeps nothing on disk."""

    def __init__(self, host: Host, folder: Path) -> None:
        self._host = host
        self._folder = folder
        self.start()

    @property
    def url(self) -> str:
        return f"redis://{self._host.address}:{_REDIS_PORT}"

    def start(self) -> None:
        options = {"bind": self._host.address, "port": str(_REDIS_PORT), "protected-mode": "no", "save": ""}
        argv = ["redis-server", "--dir", str(self._folder)]
        for name, value in options.items():
            argv += [f"--{name}", value]
        self.process = self._host.start(argv, self._folder / "redis.log")
        wait_until("Redis serves", self._answers)

    def command(self, *arguments: str | bytes) -> Any:
        """In its own protocol, so that values may be any bytes. Raises OSError; RuntimeError for an error's answer."""
        with socket.create_connection((self._host.address, _REDIS_PORT), timeout=5) as connection:
            parts = [a.encode() if isinstance(a, str) else a for a in arguments]
            connection.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
            with connection.makefile("rb") as answer:
                return self._read(answer)

    def _read(self, answer: Any) -> Any:
        line = answer.readline().rstrip(b"\r\n")
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$":
            if int(rest) < 0:
                return None
            return answer.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self._read(answer) for _ in range(int(rest))]
        return int(rest) if kind == b":" else rest

    def _answers(self) -> bool:
        try:
            return self.command("PING") == b"PONG"
        except OSError:
            return False

    def corrupt_all_values(self) -> int:
        """Flips a bit in the middle of every string that is longer than a word. Returns how many there were."""
        count = 0
        for key in self.command("KEYS", "*"):
            if self.command("TYPE", key) != b"string":
                continue
            value = bytearray(self.command("GET", key))
            if len(value) <= 64:  # leases and the like
                continue
            value[len(value) // 2] ^= 0x10
            self.command("SET", key, bytes(value), "KEEPTTL")
            count += 1
        return count


class Server:
    """One fuseline-server."""

    def __init__(self, program: str, host: Host, folder: Path, flags: Sequence[str]) -> None:
        self._program = program
        self.host = host
        self.folder = folder
        self.flags = list(flags)
        self.cache_dir = folder / "cache"
        folder.mkdir(parents=True, exist_ok=True)
        self.start()

    @property
    def address(self) -> str:
        return f"{self.host.address}:{_SERVER_PORT}"

    def start(self, extra: Sequence[str] = ()) -> None:
        argv = [self._program, "--listen", self.address, "--metrics_listen", f"{self.host.address}:{_METRICS_PORT}"]
        argv += ["--cache_dir", str(self.cache_dir), *self.flags, *extra]
        self.process = self.host.start(argv, self.folder / "server.log")
        wait_until(f"{self.host.name} serves", lambda: not self.process.is_running() or self._answers(), 30)
        assert self.process.is_running(), f"{self.host.name} did not start:\n{self.process.log}"

    def _answers(self) -> bool:
        try:
            return self.metric("fuseline_serving") == 1
        except OSError:
            return False

    def metrics(self) -> dict[str, float]:
        """By name with labels, as they are printed."""
        with urllib.request.urlopen(f"http://{self.host.address}:{_METRICS_PORT}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        return {name: float(value) for name, value in re.findall(r"^(\w+(?:\{[^}]*\})?) (\S+)$", text, re.MULTILINE)}

    def metric(self, name: str, **labels: str) -> float:
        """The sum over all label values that are not given; 0 where there is none."""
        total = 0.0
        for found, value in self.metrics().items():
            if found.partition("{")[0] != name:
                continue
            if all(f'{label}="{wanted}"' in found for label, wanted in labels.items()):
                total += value
        return total

    def builds(self) -> int:
        return int(self.metric("fuseline_builds_total"))


class Proxy:
    """HAProxy with deploy/haproxy/haproxy.cfg itself; addresses come from the environment."""

    def __init__(self, configuration: Path, host: Host, servers: Sequence[Server], folder: Path) -> None:
        self.address = f"{host.address}:{_SERVER_PORT}"
        environment = {"FUSELINE_LISTEN": self.address, "FUSELINE_PROXY_METRICS": f"{host.address}:8405"}
        for number, server in enumerate(servers, 1):
            environment[f"FUSELINE_SERVER_{number}"] = server.address
        self.process = host.start(["haproxy", "-db", "-f", str(configuration)], folder / "haproxy.log", environment)
        wait_until("HAProxy serves", lambda: not self.process.is_running() or self._answers())
        assert self.process.is_running(), f"HAProxy did not start:\n{self.process.log}"

    def _answers(self) -> bool:
        try:
            with socket.create_connection(_split(self.address), timeout=1):
                return True
        except OSError:
            return False


@dataclasses.dataclass
class Seen:
    """What clients have seen, together."""

    asked: int = 0
    failed: int = 0
    wrong: int = 0
    slowest_ms: float = 0.0
    errors: list[str] = dataclasses.field(default_factory=list)
    outcomes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    digests: dict[str, set[str]] = dataclasses.field(default_factory=dict)

    def add(self, line: dict[str, Any]) -> None:
        self.asked += line["asked"]
        self.failed += line["failed"]
        self.wrong += line["wrong"]
        self.slowest_ms = max(self.slowest_ms, line["slowest_ms"])
        self.errors += line["errors"]
        self.outcomes.update(line["outcomes"])
        for number, digest in line["digests"].items():
            self.digests.setdefault(number, set()).add(digest)

    def check(self) -> Seen:
        """Raises AssertionError where a request failed, an answer was wrong, or two clients got different ones."""
        assert self.failed == 0, f"{self.failed} of {self.asked} requests failed: {self.errors}"
        assert self.wrong == 0, f"{self.wrong} of {self.asked} answers are wrong: {self.errors}"
        several = [number for number, digests in self.digests.items() if len(digests) > 1]
        assert not several, f"clients were given different artifacts of graphs {several}"
        return self

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        return f"{self.asked} requests, none failed ({outcomes}), the slowest {self.slowest_ms:.0f} ms"


class Clients:
    """Cluster clients that run at the same time, one on each host."""

    def __init__(self, program: str, hosts: Sequence[Host], folder: Path) -> None:
        self._program = program
        self._hosts = hosts
        self._folder = folder
        self._runs = 0

    def start(self, server: str, *flags: str, only: int | None = None) -> list[tuple[Process, Path]]:
        """On all hosts, or one. `flags`: see cluster_client.cc."""
        started = []
        for host in self._hosts if only is None else [self._hosts[only]]:
            self._runs += 1
            output = self._folder / f"client-{self._runs}.json"
            started.append((host.start([self._program, "--server", server, *flags], output), output))
        return started

    def finish(self, started: list[tuple[Process, Path]], seconds: float = 150) -> Seen:
        seen = Seen()
        for process, output in started:
            code = process.wait(seconds)
            text = output.read_text()
            assert code == 0 and text, f"a client ended with {code}: {text}"
            seen.add(json.loads(text.splitlines()[-1]))
        return seen

    def run(self, server: str, *flags: str, only: int | None = None) -> Seen:
        return self.finish(self.start(server, *flags, only=only))


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
