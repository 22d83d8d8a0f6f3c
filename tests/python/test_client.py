"""The client against a server: compiling, running, kept tensors, asking by fingerprint, deadlines and retries."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import fuseline
import numpy as np
import pytest
from conftest import ServerProcess

TEXT = """graph g(x: f32[n, 4], w: f32[4]) {
  %t0 = mul(x, w)
  %t1 = sum(%t0) {dims = [-1]}
  return y = %t0, s = %t1
}
"""
X = np.arange(8, dtype=np.float32).reshape(2, 4)
W = np.array([1, 2, 3, 4], np.float32)


def test_compiled_graphs_are_called_by_position_and_by_name(client: fuseline.Client) -> None:
    compiled = client.compile(TEXT, symbols={"n": 2}, include_source=True)
    for y, s in (compiled(X, W), compiled(X, w=W), compiled(w=W, x=X)):
        assert (y == X * W).all() and (s == (X * W).sum(-1)).all()
        assert y.flags.writeable
    assert compiled.target == "cpu"
    assert [str(tensor) for tensor in compiled.inputs] == ["f32[2, 4]", "f32[4]"]
    assert [tensor.name for tensor in compiled.outputs] == ["y", "s"]
    assert len(compiled.fingerprint) == 32 and len(compiled.artifact()) > 100
    assert compiled.kernels[0].entry in compiled.source
    with pytest.raises(fuseline.InvalidArgumentError, match="input 'x' is given twice"):
        compiled(X, x=X)


def test_an_unchanged_graph_is_asked_for_by_fingerprint(client: fuseline.Client) -> None:
    graph = fuseline.Graph.from_text(TEXT.replace("mul", "add"))
    sent = [client.execute(graph, [X, W]).summary.graph_sent for _ in range(3)]
    assert sent == [True, False, False]
    # Another size of the symbol is another graph to the server.
    assert client.execute(graph, [X[:1], W]).summary.graph_sent
    # So is the graph after a change.
    graph.output(graph.outputs[0][1], "more")
    result = client.execute(graph, [X, W])
    assert result.summary.graph_sent and list(result.outputs) == ["y", "s", "more"]


def test_without_memory_the_graph_goes_with_every_call(server: ServerProcess) -> None:
    with fuseline.connect(server.address, target="cpu", remember_fingerprints=False) as client:
        assert [client.execute(TEXT, [X, W]).summary.graph_sent for _ in range(2)] == [True, True]


def test_a_server_that_forgot_gets_the_graph_again(tmp_path: Path) -> None:
    first = ServerProcess(tmp_path)
    client = fuseline.connect(first.address, target="cpu", initial_backoff=0.05)
    compiled = client.compile(TEXT, symbols={"n": 2})
    first.stop()
    second = ServerProcess(tmp_path, listen=first.address)
    assert (compiled(X, W)[0] == X * W).all()
    assert client.cache_stats().builds == 1
    second.stop()


def test_a_fingerprint_stands_for_its_graph(client: fuseline.Client) -> None:
    fingerprint = client.compile(TEXT, symbols={"n": 2}).fingerprint
    result = client.execute(fingerprint, [X, W])
    assert list(result.outputs) == ["out0", "out1"]
    assert (client.execute(fingerprint, {"in1": W, "in0": X}).outputs["out0"] == X * W).all()
    assert client.compile(fingerprint).input_names == ["in0", "in1"]
    with pytest.raises(fuseline.NotFoundError) as caught:
        client.compile(bytes(32))
    assert caught.value.reason == "FINGERPRINT_UNKNOWN"


def test_large_tensors_travel_in_chunks(client: fuseline.Client) -> None:
    rows = 1_200_000
    x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    for _ in range(2):  # by graph, then by fingerprint
        outputs = client.execute(TEXT, {"x": x, "w": W}).outputs
        assert (outputs["y"] == x * W).all()
        np.testing.assert_allclose(outputs["s"], (x * W).sum(-1), rtol=1e-6)


def test_a_message_over_the_bound_is_sent_in_chunks(server: ServerProcess) -> None:
    with fuseline.connect(server.address, target="cpu", max_message_bytes=2 << 20) as client:
        x = np.ones((100_000, 4), np.float32)
        assert client.execute(TEXT, [x, W], outputs=["y"]).outputs["y"].shape == x.shape


def test_only_the_outputs_asked_for_are_returned(client: fuseline.Client) -> None:
    for _ in range(2):  # by graph, then by fingerprint
        assert list(client.execute(TEXT, [X, W], outputs=["s"]).outputs) == ["s"]
    with pytest.raises(fuseline.InvalidArgumentError, match="the graph has no output 'z'"):
        client.execute(TEXT, [X, W], outputs=["z"])


def test_tensors_stay_on_the_server(client: fuseline.Client) -> None:
    kept = client.put_tensor(W, handle="weights", lease=60)
    assert (kept.handle, kept.dtype, kept.shape, kept.size_bytes) == ("weights", fuseline.DType.F32, (4,), 16)
    assert [tensor.handle for tensor in client.list_tensors()] == ["weights"]
    result = client.execute(TEXT, {"x": X, "w": kept}, keep={"y": fuseline.Keep("result", 60)})
    assert list(result.outputs) == ["s"]
    assert result.kept["y"].shape == (2, 4) and result.kept["y"].name == "y"
    assert (client.get_tensor(result.kept["y"]) == X * W).all()
    client.delete_tensor("result")
    with pytest.raises(fuseline.AlreadyExistsError):
        client.put_tensor(X, handle="weights")
    client.delete_tensor(kept)
    with pytest.raises(fuseline.NotFoundError) as caught:
        client.execute(TEXT, {"x": X, "w": kept})
    assert caught.value.reason == "HANDLE_UNKNOWN"
    large = np.arange(3_000_000, dtype=np.int64)
    handle = client.put_tensor(large).handle
    assert (client.get_tensor(handle) == large).all()
    client.delete_tensor(handle)
    empty = client.put_tensor(np.zeros((0, 3), np.float32))
    assert client.get_tensor(empty).shape == (0, 3)
    client.delete_tensor(empty)


def test_owners_do_not_see_each_others_tensors(server: ServerProcess) -> None:
    with fuseline.connect(server.address, owner="a") as a, fuseline.connect(server.address, owner="b") as b:
        a.put_tensor(X, handle="mine")
        assert b.list_tensors() == []
        a.delete_tensor("mine")


def test_a_batch_holds_each_graphs_result_or_error(client: fuseline.Client) -> None:
    graphs = [f"graph (x: f32[{n}]) {{ %t = exp(x) return %t }}" for n in range(1, 5)]
    graphs.insert(2, "graph (x: f32[2], y: f32[3]) { %t = add(x, y) return %t }")
    results = client.compile_batch(graphs)
    good = [result for result in results if isinstance(result, fuseline.Compiled)]
    assert len(good) == 4
    assert good[3](np.zeros(4, np.float32)).tolist() == [1, 1, 1, 1]
    assert isinstance(results[2], fuseline.InvalidArgumentError)
    assert results[2].reason == "GRAPH_TYPE_MISMATCH" and results[2].subject == "%t"
    assert client.compile_batch([]) == []


def test_explain_has_stages_and_key_where_asked_for(client: fuseline.Client) -> None:
    plain = client.explain(TEXT, symbols={"n": 2})
    assert plain.stages == {} and plain.key_fields == ()
    assert any("mul %t0" in kernel.ops for kernel in plain.report.kernels)
    full = client.explain(TEXT, symbols={"n": 2}, stages=True, key=True)
    assert "source" in full.stages and "options.numerics" in [field.name for field in full.key_fields]
    assert "-- source --" in str(full) and "<details>" in full._repr_html_()


def test_options_are_part_of_the_key(client: fuseline.Client) -> None:
    text = "graph (x: f16[4]) { %a = exp(x) %t = add(%a, x) return %t }"
    fused = client.compile(text)
    eager = client.compile(text, options=fuseline.Options(numerics="eager"))
    unfused = client.compile(text, options=fuseline.Options(fuse=False))
    assert len({fused.fingerprint, eager.fingerprint, unfused.fingerprint}) == 3
    assert len(unfused.report.kernels) == 2 and len(fused.report.kernels) == 1
    with pytest.raises(fuseline.InvalidArgumentError, match="numerics 'lazy'"):
        fuseline.Options(numerics="lazy")


def test_bypassing_the_cache_compiles_anew(client: fuseline.Client) -> None:
    text = "graph (x: f32[7]) { %t = log1p(x) return %t }"
    client.compile(text)
    assert client.compile(text).summary.is_hit
    assert client.compile(text, bypass_cache=True).outcome == "miss"


def test_an_omitted_artifact_runs_on_the_server_only(client: fuseline.Client) -> None:
    compiled = client.compile(TEXT, symbols={"n": 2}, omit_artifact=True)
    assert (compiled(X, W)[0] == X * W).all()
    with pytest.raises(fuseline.FailedPreconditionError, match="left on the server"):
        compiled.artifact()


def test_targets_may_be_left_to_the_servers_devices(client: fuseline.Client) -> None:
    has_gpu = any(device.target.startswith("cuda") for device in client.server_info().devices)
    if has_gpu:
        assert client.compile(TEXT, symbols={"n": 2}, target="cuda").target.startswith("cuda:sm_")
    else:
        assert client.compile(TEXT, symbols={"n": 2}, target="auto").target == "cpu"
        with pytest.raises(fuseline.FailedPreconditionError, match="no CUDA device"):
            client.compile(TEXT, symbols={"n": 2}, target="cuda")


def test_server_info_names_targets_and_devices(client: fuseline.Client) -> None:
    info = client.server_info()
    assert any(target.target == "cpu" and target.can_execute for target in info.targets)
    assert info.devices[0].memory_bytes > 0 and info.limits["max_node_count"] > 0
    assert not info.draining and info.uptime > 0


INPUT_ERRORS = [
    ([X], "the graph has 2 inputs, 1 tensors were given"),
    ({"x": X}, "input 'w' has no tensor"),
    ({"x": X, "w": W, "z": W}, "input 'z' is not an input of the graph"),
    ([X, "w"], "input 'w' is no tensor"),
    ([X, W.astype(np.float64)], "f64"),
    ([X, W[:3]], r"\[3\]"),
]


@pytest.mark.parametrize(("inputs", "message"), INPUT_ERRORS)
def test_wrong_inputs_are_named(client: fuseline.Client, inputs: object, message: str) -> None:
    for _ in range(2):  # by graph, then where its fingerprint is known
        with pytest.raises(fuseline.InvalidArgumentError, match=message) as caught:
            client.execute(TEXT, inputs)  # type: ignore[arg-type]
        assert caught.value.reason == "TENSOR_MISMATCH"
        client.execute(TEXT, [X, W])


def test_an_index_out_of_range_is_named_as_in_the_graph(client: fuseline.Client) -> None:
    text = "graph (x: f32[4], i: i64[2]) { %picked = index_select(x, i) {dim = 0} return %picked }"
    client.execute(text, [W, np.array([0, 3])])
    with pytest.raises(fuseline.InvalidArgumentError, match=r"'%picked'.*index 9") as caught:
        client.execute(text, [W, np.array([0, 9])])
    assert caught.value.reason == "INDEX_OUT_OF_RANGE"


def test_graphs_are_verified_against_the_reference_and_given_outputs(client: fuseline.Client) -> None:
    graph = fuseline.Graph.from_text(TEXT)
    assert client.verify(graph, [X, W])
    given = client.verify(graph, {"w": W, "x": X}, {"y": X * W, "s": (X * W).sum(-1) + 1}, rtol=1e-6)
    assert not given.passed
    y, s = given.outputs
    assert (y.name, y.elements, y.mismatches) == ("y", 8, 0)
    assert (s.name, s.mismatches, s.max_abs_error) == ("s", 2, 1.0) and s.first_mismatch.startswith("at [0]")
    assert client.verify(graph, [X, W], [X * W, (X * W).sum(-1) + 1], atol=1.5)
    with pytest.raises(fuseline.InvalidArgumentError, match="give the graph"):
        client.verify(bytes(32), [X])


def test_graphs_are_measured_on_the_server(client: fuseline.Client) -> None:
    measured = client.benchmark(TEXT, symbols={"n": 64}, iterations=5, warmup=0)
    assert len(measured.micros) == 5 and min(measured.micros) <= measured.median_micros <= max(measured.micros)
    assert measured.moved_bytes == 64 * 4 * 4 * 2 + 16 + 64 * 4 and measured.device_name
    assert measured.report.kernels


def test_threads_share_a_client(client: fuseline.Client) -> None:
    compiled = client.compile(TEXT, symbols={"n": 2})
    wrong = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal((2, 4)).astype(np.float32)
        for _ in range(20):
            if not (compiled(x, W)[0] == x * W).all():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_no_server_is_unavailable_after_the_attempts() -> None:
    with fuseline.connect("127.0.0.1:1", max_attempts=3, initial_backoff=0.05) as client:
        started = time.monotonic()
        with pytest.raises(fuseline.UnavailableError):
            client.server_info()
        assert 0.07 < time.monotonic() - started < 30


def test_a_server_that_comes_up_late_is_found(tmp_path: Path) -> None:
    early = ServerProcess(tmp_path)
    early.stop()
    late: list[ServerProcess] = []
    timer = threading.Timer(0.5, lambda: late.append(ServerProcess(tmp_path, listen=early.address)))
    timer.start()
    with fuseline.connect(early.address, max_attempts=50, max_backoff=0.3) as client:
        assert client.server_info().version
    timer.join()
    late[0].stop()


def test_a_deadline_that_has_passed_says_so(client: fuseline.Client) -> None:
    with pytest.raises(fuseline.DeadlineExceededError):
        client.compile(TEXT, symbols={"n": 3}, bypass_cache=True, deadline=0.0)


def test_wrong_options_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSELINE_SERVER", raising=False)
    with pytest.raises(fuseline.InvalidArgumentError, match="FUSELINE_SERVER"):
        fuseline.connect()
    with pytest.raises(fuseline.InvalidArgumentError, match="attempts"):
        fuseline.connect("localhost:1", max_attempts=0)
