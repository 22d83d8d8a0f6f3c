"""A client of several servers: who is asked, and who after whom."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fuseline
import numpy as np
import pytest
from conftest import ServerProcess
from fuseline.servers import rendezvous_score, stable_hash

X = np.arange(4, dtype=np.float32)


def graph(number: int) -> str:
    return f"graph g(x: f32[4]) {{\n  %t = add(x, {number}.0)\n  return y = %t\n}}\n"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[ServerProcess]]:
    """One that only compiles, and two that run too."""
    started = []
    for number, flags in enumerate([["--no-execute"], ["--no-cuda"], ["--no-cuda"]]):
        folder = tmp_path / str(number)
        folder.mkdir()
        started.append(ServerProcess(folder, *flags))
    yield started
    for server in started:
        server.kill()


def addresses(servers: list[ServerProcess]) -> str:
    return ", ".join(server.address for server in servers)


def test_hashes_are_those_of_the_cpp_client() -> None:
    # The same numbers stand in tests/unit/client/server_pool_test.cc.
    assert stable_hash(b"10.0.0.1:50061") == 0xC173D58BC0CFC7A7
    assert rendezvous_score(12345, 0xC173D58BC0CFC7A7) == 0x61B2DCF443EC2159


def test_runs_go_where_there_are_devices_and_equal_graphs_meet(servers: list[ServerProcess]) -> None:
    with fuseline.connect(addresses(servers), target="cpu") as client:
        for number in range(8):
            for _ in range(2):
                assert (client.execute(graph(number), [X]).outputs["y"] == X + number).all()
    builds = []
    for server in servers:
        with fuseline.connect(server.address) as client:
            builds.append(client.cache_stats().builds)
    assert builds[0] == 0 and sum(builds) == 8
    with fuseline.connect(servers[0].address, target="cpu") as client, pytest.raises(fuseline.FailedPreconditionError):
        client.execute(graph(1), [X])


def test_target_that_no_server_has_is_refused_with_the_reason_of_each(servers: list[ServerProcess]) -> None:
    with fuseline.connect(addresses(servers)) as client, pytest.raises(fuseline.FailedPreconditionError) as caught:
        client.execute(graph(1), [X], target="cuda:sm_90")
    assert caught.value.reason == "TARGET_NOT_AVAILABLE"
    assert "none of the 3 servers can run 'cuda:sm_90'" in caught.value.message
    assert servers[1].address in caught.value.message


def test_killed_server_costs_no_call(servers: list[ServerProcess]) -> None:
    with fuseline.connect(addresses(servers[1:]), target="cpu", balance="round_robin", max_attempts=1) as client:
        for number in range(8):
            if number == 3:
                servers[1].kill()
            assert (client.execute(graph(number), [X]).outputs["y"] == X + number).all()
        results = client.compile_batch([graph(number) for number in range(4)])
        assert all(isinstance(result, fuseline.Compiled) for result in results)


def test_kept_tensors_are_found_by_every_client_of_the_owner(servers: list[ServerProcess]) -> None:
    for owner in ("ann", "bob", "carol"):
        with fuseline.connect(addresses(servers), target="cpu", owner=owner) as first:
            kept = first.put_tensor(X, handle="x")
        with fuseline.connect(addresses(servers[::-1]), target="cpu", owner=owner) as second:
            assert (second.get_tensor("x") == X).all()
            assert (second.execute(graph(2), [kept]).outputs["y"] == X + 2).all()
            assert [tensor.handle for tensor in second.list_tensors()] == ["x"]


def test_malformed_addresses_are_refused() -> None:
    for bad in ("a:1,,b:2", "a:1, "):
        with pytest.raises(fuseline.InvalidArgumentError, match="empty part"):
            fuseline.connect(bad)
    with pytest.raises(fuseline.InvalidArgumentError, match="balance"):
        fuseline.connect("a:1,b:2", balance="random")
