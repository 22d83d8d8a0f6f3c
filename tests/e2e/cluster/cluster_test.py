#!/usr/bin/env python3
"""A cluster on one machine: three servers, Redis, HAProxy and four clients, a host each; what befalls it.

    cluster_test.py --server fuseline-server --client cluster_client [--full]

Hosts are network namespaces: as root, with iproute2; besides, redis-server and haproxy (Debian's packages). Each step
does one thing to the cluster while clients ask, and checks what they and the servers' metrics saw; a table is printed.
`--full`: a server is cut off for 30 s, not 8, and what takes long is done too. Exit code: 0; 1 where a step failed; 77
where this machine can't run it.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from hosts import Network, enter, wait_until, why_not
from services import Clients, Proxy, Redis, Server

_SKIPPED = 77
_SOURCE = Path(__file__).resolve().parents[3]
_LEASE_SECONDS = 3


@dataclasses.dataclass
class Row:
    step: str
    done: str
    seen: str
    passed: bool
    seconds: float


class Cluster:
    """Three servers behind the proxy, with one Redis and one signing key, and four clients."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.folder = folder
        self.full = arguments.full
        self._program = arguments.server
        self._next_graph = 0
        self._server_count = 0
        self.network = Network()
        self.key = self.write_key("key", "first 6b65792d6f662d7468652d636c75737465722d30303030303030303030303031")
        # g++, after as many seconds as the file says.
        self._delay = folder / "delay"
        compiler = folder / "slow-g++"
        compiler.write_text(
            "#!/bin/sh\n"
            f'case "$*" in *kernel.cc*) [ -s {self._delay} ] && sleep "$(cat {self._delay})" ;; esac\n'
            'exec g++ "$@"\n'
        )
        compiler.chmod(0o755)
        self._compiler = compiler
        self.redis = Redis(self.network.host("redis"), folder)
        proxy_host = self.network.host("proxy")
        self.servers = [self.new_server() for _ in range(3)]
        self.proxy = Proxy(_SOURCE / "deploy/haproxy/haproxy.cfg", proxy_host, self.servers, folder)
        hosts = [self.network.host(f"client-{number}") for number in range(4)]
        self.clients = Clients(arguments.client, hosts, folder)
        can_compile_cuda = self.servers[0].metric("fuseline_target_available", target="cuda:sm_90") == 1
        self.cuda = "cuda:sm_90" if can_compile_cuda else ""
        if not self.cuda:
            print("no NVRTC here: all graphs are compiled for the CPU")

    def write_key(self, name: str, line: str) -> Path:
        path = self.folder / name
        path.write_text(line + "\n")
        path.chmod(0o600)
        return path

    def new_server(self, key: Path | str | None = "own") -> Server:
        """On a host of its own, with an empty disk. `key`: None for none."""
        self._server_count += 1
        host = self.network.host(f"server-{self._server_count}")
        flags = ["--no-cuda", "--log_format=json", "--compile_threads=2", "--cpu_threads=1"]
        flags += [f"--host_compiler={self._compiler}", f"--shared_cache={self.redis.url}"]
        flags += [f"--shared_cache_lease_seconds={_LEASE_SECONDS}"]
        if key is not None:
            flags.append(f"--cache_key_file={self.key if key == 'own' else key}")
        return Server(self._program, host, self.folder / host.name, flags)

    def graphs(self, count: int) -> tuple[str, ...]:
        """Flags for so many graphs that nobody has asked for yet."""
        first = self._next_graph
        self._next_graph += count
        return ("--first", str(first), "--count", str(count))

    def slow_down(self, seconds: float) -> None:
        """How long the C++ compiler takes from now on, besides."""
        self._delay.write_text(f"{seconds}\n" if seconds else "")

    def builds(self) -> int:
        return sum(server.builds() for server in self.servers if server.process.is_running())

    def wait_for_writes(self) -> None:
        """Until everything that the servers have built is in Redis."""
        wait_until(
            "all writes are in Redis",
            lambda: all(server.metric("fuseline_shared_cache_queue_bytes") == 0 for server in self.servers),
        )


# --- Steps. Each returns what was done and what was seen; it fails by an AssertionError. ---


def each_graph_is_compiled_once(cluster: Cluster) -> tuple[str, str]:
    """By all clients at once, through the proxy."""
    run_flags = ("--execute", *cluster.graphs(60))
    compile_flags = (*(("--target", cluster.cuda) if cluster.cuda else ()), *cluster.graphs(140))
    before = cluster.builds()
    seen = cluster.clients.run(cluster.proxy.address, *compile_flags).check()
    ran = cluster.clients.run(cluster.proxy.address, *run_flags).check()
    builds = cluster.builds() - before
    assert builds == 200, f"{builds} builds of 200 graphs: {[server.builds() for server in cluster.servers]}"
    assert seen.asked + ran.asked == 800
    return (
        "4 clients ask for 140 graphs for cuda:sm_90 and run 60 on the CPU, through HAProxy"
        if cluster.cuda
        else "4 clients ask for 140 graphs and run 60 on the CPU, through HAProxy",
        f"{builds} builds ({' + '.join(str(s.builds()) for s in cluster.servers)}); {seen}; {ran}; all answers right",
    )


def leases_keep_it_to_one_build(cluster: Cluster) -> tuple[str, str]:
    """Each client asks another server first, so that servers race for each graph."""
    before = cluster.builds()
    flags = ("--balance", "round_robin", "--execute", "--threads", "1", *cluster.graphs(30))
    started = []
    for number in range(4):
        first = number % 3
        servers = cluster.servers[first:] + cluster.servers[:first]
        started += cluster.clients.start(",".join(server.address for server in servers), *flags, only=number)
    seen = cluster.clients.finish(started).check()
    builds = cluster.builds() - before
    assert builds == 30, f"{builds} builds of 30 graphs"
    waited = sum(server.metric("fuseline_lease_waited_total") for server in cluster.servers)
    assert waited > 0, f"the servers never met: {seen}"
    return (
        "4 clients run 30 graphs, each on another server first",
        f"{builds} builds, {waited:.0f} times one server waited for another; {seen}; all answers right",
    )


def server_is_killed_in_mid_compile(cluster: Cluster) -> tuple[str, str]:
    cluster.slow_down(3)
    graphs = cluster.graphs(1)
    before = {server: server.builds() for server in cluster.servers}
    addresses = ",".join(server.address for server in cluster.servers)
    started = []
    for number in range(4):
        # Two through the proxy, two that know all servers.
        server = cluster.proxy.address if number < 2 else addresses
        started += cluster.clients.start(server, "--execute", *graphs, only=number)
    victim = _wait_for_a_build(cluster)
    time.sleep(0.5)
    victim.process.kill()
    killed = time.monotonic()
    cluster.slow_down(0)
    seen = cluster.clients.finish(started).check()
    seconds = time.monotonic() - killed
    others = [server for server in cluster.servers if server is not victim]
    builds = sum(server.builds() - before[server] for server in others)
    assert builds == 1, f"{builds} builds on the servers that were left"
    taken_over = sum(server.metric("fuseline_lease_taken_over_total") for server in others)
    assert taken_over == 1, f"{taken_over} leases taken over"
    victim.start()
    return (
        f"{victim.host.name} killed while it compiles a graph that 4 clients wait for",
        f"another took over its lease ({_LEASE_SECONDS} s) and compiled it; all answered {seconds:.1f} s after; {seen}",
    )


def _wait_for_a_build(cluster: Cluster) -> Server:
    """The server that runs the C++ compiler."""
    building: list[Server] = []

    def somebody_builds() -> bool:
        building[:] = [
            s for s in cluster.servers if s.metric("fuseline_compiler_workers", compiler="host", state="busy")
        ]
        return bool(building)

    wait_until("a server compiles", somebody_builds)
    return building[0]


def server_is_cut_off_in_a_long_compile(cluster: Cluster) -> tuple[str, str]:
    """Later than a client would notice whose keepalive had ended by then."""
    cluster.slow_down(50)
    addresses = ",".join(server.address for server in cluster.servers)
    started = cluster.clients.start(addresses, "--execute", *cluster.graphs(1))
    victim = _wait_for_a_build(cluster)
    time.sleep(35)
    cluster.slow_down(0)
    victim.host.cut_off()
    cut = time.monotonic()
    seen = cluster.clients.finish(started).check()
    seconds = time.monotonic() - cut
    victim.host.join_again()
    assert seconds < 25, f"answered {seconds:.1f} s after the cut"
    return (
        f"{victim.host.name} cut off 35 s into a compilation that 4 clients wait for",
        f"another compiled it, all answered {seconds:.1f} s after; {seen}",
    )


def servers_are_restarted_one_by_one(cluster: Cluster) -> tuple[str, str]:
    graphs = cluster.graphs(24)
    addresses = ",".join(server.address for server in cluster.servers)
    started = []
    for number in range(4):
        server = cluster.proxy.address if number < 2 else addresses
        started += cluster.clients.start(
            server, "--execute", "--pace-ms", "300", "--threads", "1", *graphs, only=number
        )
    time.sleep(1)
    for server in cluster.servers:
        code = server.process.terminate(30)
        assert code == 0, f"{server.host.name} ended with {code}"
        server.start()
    seen = cluster.clients.finish(started).check()
    return "the servers drained (SIGTERM) and started again, one after the other", str(seen)


def redis_is_killed_and_comes_back(cluster: Cluster) -> tuple[str, str]:
    graphs = cluster.graphs(16)
    started = cluster.clients.start(cluster.proxy.address, "--execute", "--pace-ms", "300", "--threads", "1", *graphs)
    time.sleep(1)
    cluster.redis.process.kill()
    time.sleep(3)
    noticed = _servers_without_redis(cluster)
    assert noticed > 0, "no server has noticed"
    cluster.redis.start()
    wait_until("all servers use Redis again", lambda: _servers_without_redis(cluster) == 0, 60)
    seen = cluster.clients.finish(started).check()
    return (
        "Redis killed for 3 s, then started again, empty",
        f"{noticed} servers went on without; all use it again; {seen}",
    )


def redis_hangs(cluster: Cluster) -> tuple[str, str]:
    graphs = cluster.graphs(16)
    started = cluster.clients.start(cluster.proxy.address, "--execute", "--pace-ms", "300", "--threads", "1", *graphs)
    time.sleep(1)
    cluster.redis.process.pause()
    time.sleep(3)
    noticed = _servers_without_redis(cluster)
    assert noticed > 0, "no server has noticed"
    cluster.redis.process.go_on()
    wait_until("all servers use Redis again", lambda: _servers_without_redis(cluster) == 0, 60)
    seen = cluster.clients.finish(started).check()
    return "Redis silent for 3 s (SIGSTOP)", f"{noticed} servers went on without; all use it again; {seen}"


def _servers_without_redis(cluster: Cluster) -> int:
    return sum(server.metric("fuseline_shared_cache_breaker") != 0 for server in cluster.servers)


def corrupted_values_are_dropped(cluster: Cluster) -> tuple[str, str]:
    graphs = cluster.graphs(10)
    cluster.clients.run(cluster.proxy.address, "--execute", *graphs, only=0).check()
    cluster.wait_for_writes()
    values = cluster.redis.corrupt_all_values()
    assert values >= 10, f"only {values} values in Redis"
    newcomer = cluster.new_server()
    seen = cluster.clients.run(newcomer.address, "--execute", *graphs, only=0).check()
    dropped = newcomer.metric("fuseline_cache_corrupt_total", level="redis")
    assert newcomer.builds() == 10, f"{newcomer.builds()} builds of 10 graphs whose entries were corrupt"
    assert dropped >= 10, f"only {dropped} entries counted as corrupt"
    newcomer.process.kill()
    return (
        f"a bit flipped in each of {values} values; a new server asked for 10 of their graphs",
        f"{dropped:.0f} dropped and counted, 10 compiled again; {seen}",
    )


def unsigned_values_are_dropped(cluster: Cluster) -> tuple[str, str]:
    graphs = cluster.graphs(10)
    unsigned = cluster.new_server(key=None)
    cluster.clients.run(unsigned.address, "--execute", *graphs, only=0).check()
    wait_until("its writes are in Redis", lambda: unsigned.metric("fuseline_shared_cache_queue_bytes") == 0)
    newcomer = cluster.new_server()
    seen = cluster.clients.run(newcomer.address, "--execute", *graphs, only=0).check()
    dropped = newcomer.metric("fuseline_cache_unsigned_total", level="redis")
    assert newcomer.builds() == 10, f"{newcomer.builds()} builds of 10 graphs whose entries were unsigned"
    assert dropped >= 10, f"only {dropped} entries counted as unsigned"
    newcomer.process.kill()
    unsigned.process.kill()
    return (
        "a server without a key wrote 10 graphs; a new one with the key was asked for them",
        f"{dropped:.0f} dropped and counted, 10 compiled again; {seen}",
    )


def server_is_cut_off(cluster: Cluster) -> tuple[str, str]:
    seconds = 30 if cluster.full else 8
    graphs = cluster.graphs(4 * (seconds + 8))
    flags = ("--pace-ms", "400", "--threads", "2", *(("--target", cluster.cuda) if cluster.cuda else ()), *graphs)
    victim = cluster.servers[1]
    addresses = ",".join(server.address for server in cluster.servers)
    started = []
    for number in range(4):
        # Two leave it to the proxy, two know all servers.
        started += cluster.clients.start(cluster.proxy.address if number < 2 else addresses, *flags, only=number)
    time.sleep(1)
    victim.host.cut_off()
    time.sleep(seconds)
    victim.host.join_again()
    answered = victim.metric("fuseline_calls_total", method="CompileService/Compile")
    wait_until(
        f"{victim.host.name} gets calls again",
        lambda: victim.metric("fuseline_calls_total", method="CompileService/Compile") > answered,
        30,
    )
    seen = cluster.clients.finish(started).check()
    # Silence is noticed within 6 s by the proxy, 15 s by clients.
    assert seen.slowest_ms < 20_000, f"a request waited {seen.slowest_ms / 1000:.1f} s"
    return f"{victim.host.name} cut off from the network for {seconds} s", f"it serves again; {seen}"


def disk_is_full(cluster: Cluster) -> tuple[str, str]:
    victim = cluster.servers[2]
    victim.process.kill()
    shutil.rmtree(victim.cache_dir)
    victim.cache_dir.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(victim.cache_dir)], check=True)
    victim.start()
    with (victim.cache_dir / "full").open("wb") as file:
        try:
            while True:
                file.write(bytes(64 << 10))
                file.flush()
        except OSError:
            pass
    graphs = cluster.graphs(10)
    seen = cluster.clients.run(victim.address, "--execute", *graphs).check()
    assert victim.builds() == 10
    errors = victim.metric("fuseline_cache_errors_total", level="rocksdb")
    available = victim.metric("fuseline_cache_available", level="rocksdb")
    assert errors > 0 or available == 0, "nothing says that the disk is full"
    victim.process.kill()
    subprocess.run(["umount", str(victim.cache_dir)], check=True)
    victim.start()
    return (
        f"{victim.host.name}'s disk full, then asked for 10 new graphs by 4 clients",
        f"{errors:.0f} disk errors counted, disk cache {'on' if available else 'off'}; {seen}",
    )


def one_server_has_a_wrong_key(cluster: Cluster) -> tuple[str, str]:
    graphs = cluster.graphs(10)
    wrong = cluster.write_key("wrong-key", "first 616e6f746865722d6b65792d656e746972656c792d3030303030303030303030")
    cluster.clients.run(cluster.servers[0].address, "--execute", *graphs, only=0).check()
    cluster.wait_for_writes()
    stranger = cluster.new_server(key=wrong)
    seen = cluster.clients.run(stranger.address, "--execute", *graphs, only=0).check()
    dropped = stranger.metric("fuseline_cache_unsigned_total", level="redis")
    assert stranger.builds() == 10, f"{stranger.builds()} builds of 10 graphs that it must not take from the others"
    assert dropped >= 10, f"only {dropped} entries counted"
    # What it wrote is not taken by those who have the right key.
    wait_until("its writes are in Redis", lambda: stranger.metric("fuseline_shared_cache_queue_bytes") == 0)
    newcomer = cluster.new_server()
    again = cluster.clients.run(newcomer.address, "--execute", *graphs, only=0).check()
    assert newcomer.builds() == 10, f"{10 - newcomer.builds()} entries signed with the wrong key were taken"
    stranger.process.kill()
    newcomer.process.kill()
    return (
        "a server with another key of the same name joins; then one with the right key",
        f"each dropped and counted the other's 10 entries ({dropped:.0f}) and compiled them; {seen}; {again}",
    )


_STEPS: tuple[Callable[[Cluster], tuple[str, str]], ...] = (
    each_graph_is_compiled_once,
    leases_keep_it_to_one_build,
    server_is_killed_in_mid_compile,
    servers_are_restarted_one_by_one,
    redis_is_killed_and_comes_back,
    redis_hangs,
    corrupted_values_are_dropped,
    unsigned_values_are_dropped,
    one_server_has_a_wrong_key,
    server_is_cut_off,
    disk_is_full,
    server_is_cut_off_in_a_long_compile,
)

# With --full only.
_LONG = (server_is_cut_off_in_a_long_compile,)


def _run(arguments: argparse.Namespace, folder: Path) -> bool:
    cluster = Cluster(arguments, folder)
    rows = []
    for step in _STEPS:
        if arguments.only and step.__name__ not in arguments.only:
            continue
        if step in _LONG and not cluster.full:
            continue
        name = step.__name__.replace("_", " ")
        start = time.monotonic()
        try:
            done, seen = step(cluster)
            passed = True
        except Exception as error:
            if not isinstance(error, AssertionError):
                traceback.print_exc()
            done, seen, passed = "", str(error) or repr(error), False
        rows.append(Row(name, done, seen, passed, time.monotonic() - start))
        print(f"{'ok  ' if passed else 'FAIL'} {name} ({rows[-1].seconds:.1f} s): {seen}", flush=True)
    print("\n| step | what was done | what was seen | s | |\n|---|---|---|---|---|")
    for row in rows:
        print(f"| {row.step} | {row.done} | {row.seen} | {row.seconds:.1f} | {'ok' if row.passed else 'FAILED'} |")
    return all(row.passed for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--server", required=True, help="the program fuseline-server")
    parser.add_argument("--client", required=True, help="the program cluster_client")
    parser.add_argument("--full", action="store_true", help="the times of the real thing, and what takes long")
    parser.add_argument("--only", action="append", default=[], help="a step's name; may be repeated")
    parser.add_argument("--keep", help="folder for logs, kept; default: a temporary one")
    arguments = parser.parse_args()
    os.environ["PATH"] += ":/usr/sbin:/sbin"  # haproxy and ip
    reason = why_not()
    for program in ("redis-server", "haproxy", "g++"):
        if not reason and shutil.which(program) is None:
            reason = f"there is no '{program}'"
    if reason:
        print(f"cluster_test: Skipped\n{reason}")
        return _SKIPPED
    enter()
    if arguments.keep:
        folder = Path(arguments.keep)
        folder.mkdir(parents=True, exist_ok=True)
        return 0 if _run(arguments, folder) else 1
    with tempfile.TemporaryDirectory() as temporary:
        return 0 if _run(arguments, Path(temporary)) else 1


if __name__ == "__main__":
    sys.exit(main())
