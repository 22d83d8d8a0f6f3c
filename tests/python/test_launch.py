"""Local launch on this machine's CPU, through the C ABI. On a GPU: test_launch_torch.py."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import fuseline
import numpy as np
import pytest
from conftest import python_blocks, run_script
from fuseline import launch

needs_library = pytest.mark.skipif(not launch.is_available(), reason="the package has no launch library")

TEXT = """graph g(x: f32[3, 4], w: f32[4]) {
  %t0 = mul(x, w)
  %t1 = sum(%t0) {dims = [-1]}
  return y = %t0, s = %t1
}
"""
X = np.arange(12, dtype=np.float32).reshape(3, 4)
W = np.array([1, 2, 3, 4], np.float32)


@pytest.fixture
def compiled(client: fuseline.Client) -> fuseline.Compiled:
    return client.compile(TEXT)


@needs_library
def test_launched_results_equal_the_servers(compiled: fuseline.Compiled) -> None:
    y, s = compiled.launch(X, W)
    served = compiled(X, W)
    assert (y == served[0]).all() and (s == served[1]).all()
    assert y.flags.writeable and y.dtype == np.float32


@needs_library
def test_a_launcher_tells_its_signature(compiled: fuseline.Compiled) -> None:
    run = compiled.launcher()
    assert run is compiled.launcher()
    assert [str(tensor) for tensor in run.inputs] == ["f32[3, 4]", "f32[4]"]
    assert [tensor.shape for tensor in run.outputs] == [(3, 4), (3,)]
    assert run.device.target == "cpu" and run.device.memory_bytes > 0 and run.device.cuda_ordinal is None
    assert run.step_count >= 1 and run.arena_bytes >= 0 and run.check_count == 0


@needs_library
def test_outputs_may_be_given(compiled: fuseline.Compiled) -> None:
    run = compiled.launcher()
    y, s = np.empty((3, 4), np.float32), np.empty(3, np.float32)
    given = run(X, W, out=(y, s))
    assert given[0] is y and given[1] is s
    assert (y == X * W).all() and (s == (X * W).sum(-1)).all()
    y[:] = 0
    run.launch([X.ctypes.data, W.ctypes.data], [y.ctypes.data, s.ctypes.data])
    assert (y == X * W).all()


class Exporter:
    """Speaks DLPack and nothing else."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self) -> Any:
        return self._array.__dlpack__()


@needs_library
def test_dlpack_tensors_are_launched_on(compiled: fuseline.Compiled) -> None:
    y, s = compiled.launch(Exporter(X), W)
    assert (y == X * W).all() and s.shape == (3,)
    out = np.empty((3, 4), np.float32), np.empty(3, np.float32)
    compiled.launch(Exporter(X), Exporter(W), out=[Exporter(array) for array in out])
    assert (out[0] == X * W).all()


@needs_library
def test_inputs_laid_out_otherwise_are_copied(compiled: fuseline.Compiled) -> None:
    wide = np.repeat(X, 2, axis=1)
    bytes_ = np.zeros(X.nbytes + 4, np.uint8)
    unaligned = bytes_[4:].view(np.float32).reshape(3, 4)
    unaligned[:] = X
    for x in (wide[:, ::2], np.asfortranarray(X), X[::-1][::-1], unaligned):
        assert (compiled.launch(x, W)[0] == X * W).all()


@needs_library
def test_declared_strides_are_taken_as_they_are(client: fuseline.Client) -> None:
    g = fuseline.Graph()
    g.output(g.neg(g.input("x", "f32", [3, 4], strides=[1, 3])))
    run = client.compile(g).launcher()
    assert run.inputs[0].strides == (1, 3)
    for x in (np.asfortranarray(X), X):
        assert (run(x) == -X).all()


WRONG = [
    ((X,), {}, "2 inputs are needed, 1 were given"),
    ((X.astype(np.float64), W), {}, r"'x' is float64\[3, 4\], not f32\[3, 4\]"),
    ((X[:2], W), {}, r"'x' is float32\[2, 4\]"),
    ((X, W), {"out": np.empty(3)}, "2 outputs are needed, 1 were given"),
    ((X, W), {"out": (np.empty((3, 4), np.float32).T, np.empty(3, np.float32))}, r"'y' is f32\[4, 3\]"),
    ((X, W), {"out": (np.empty((4, 3), np.float32).T, np.empty(3, np.float32))}, "'y' has the strides"),
]


@needs_library
@pytest.mark.parametrize(("inputs", "options", "message"), WRONG)
def test_wrong_tensors_are_named(
    compiled: fuseline.Compiled, inputs: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(fuseline.InvalidArgumentError, match=message) as caught:
        compiled.launch(*inputs, **options)
    assert caught.value.reason == "TENSOR_MISMATCH"


@needs_library
def test_an_index_out_of_range_is_an_error_of_the_call(client: fuseline.Client) -> None:
    compiled = client.compile("graph (x: f32[4], i: i64[2]) { %p = index_select(x, i) {dim = 0} return %p }")
    run = compiled.launcher()
    assert run.check_count == 1
    with pytest.raises(fuseline.InvalidArgumentError, match="index 9") as caught:
        run(W, np.array([0, 9]))
    assert caught.value.reason == "INDEX_OUT_OF_RANGE"
    assert run(W, np.array([0, 3])).tolist() == [1, 4]


@needs_library
@pytest.mark.parametrize("dtype", ["f64", "f16", "i64", "i32", "i16", "i8", "u8", "bool"])
def test_every_dtype_is_launched_on(client: fuseline.Client, dtype: str) -> None:
    values = np.array([0, 1, 1, 0]).astype(fuseline.DType.of(dtype).numpy)
    compiled = client.compile(f"graph (x: {dtype}[4]) {{ %t = eq(x, x) return %t, x }}")
    same, copy = compiled.launch(values)
    assert same.all() and (copy == values).all() and copy.dtype == values.dtype


@needs_library
def test_empty_tensors_and_scalars_are_launched_on(client: fuseline.Client) -> None:
    text = "graph (x: f32[0, 3], y: f32[]) { %t = neg(x) %u = add(y, 1) %s = sum(x) return %t, %u, %s }"
    compiled = client.compile(text)
    t, u, s = compiled.launch(np.empty((0, 3), np.float32), np.float32(2))
    assert compiled.launch(np.empty((0, 3), np.float32), 2)[1] == u
    assert t.shape == (0, 3) and u == 3 and s == 0


@needs_library
def test_threads_share_a_launcher(compiled: fuseline.Compiled) -> None:
    run = compiled.launcher()
    wrong = []

    def work(seed: int) -> None:
        x = np.full((3, 4), seed, np.float32)
        wrong.extend(seed for _ in range(200) if not (run(x, W)[0] == x * W).all())

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@needs_library
def test_jit_runs_here_where_asked_to(client: fuseline.Client) -> None:
    import fuseline.numpy as fnp

    @fuseline.jit(client=client, local=True)
    def f(x: Any, w: Any) -> Any:
        return fnp.tanh(x) * w

    before = client.server_info().devices[0].executions
    np.testing.assert_allclose(f(X, W), np.tanh(X) * W, rtol=1e-6)
    assert client.server_info().devices[0].executions == before


@needs_library
def test_what_is_no_artifact_is_refused() -> None:
    with pytest.raises(fuseline.Error):
        launch.cpu_device().load(b"nonsense")


@needs_library
def test_another_fingerprint_is_refused(compiled: fuseline.Compiled) -> None:
    with pytest.raises(fuseline.Error) as caught:
        launch.cpu_device().load(compiled.artifact(), bytes(32))
    assert caught.value.code == "DATA_LOSS"


@needs_library
@pytest.mark.skipif(launch.is_available() and launch.cuda_device_count() > 0, reason="there is a GPU")
def test_no_gpu_is_a_failed_precondition() -> None:
    with pytest.raises(fuseline.FailedPreconditionError):
        launch.cuda_device(0)


@needs_library
def test_a_call_costs_little(compiled: fuseline.Compiled) -> None:
    run = compiled.launcher()
    best = min(_seconds(run) for _ in range(5))
    # A bound for slow machines; an H200's host needs a tenth.
    assert best < 200e-6


def _seconds(run: launch.Launcher) -> float:
    count = 200
    started = time.perf_counter()
    for _ in range(count):
        run(X, W)
    return (time.perf_counter() - started) / count


@needs_library
def test_the_manuals_program_runs(source_dir: Path, tmp_path: Path, server: Any) -> None:
    blocks = [block for block in python_blocks(source_dir / "docs" / "python.md") if "launcher" in block]
    assert len(blocks) == 1
    run_script(blocks[0], tmp_path, server)


def test_without_the_library_it_says_what_is_missing(tmp_path: Path) -> None:
    script = (
        "import fuseline.launch as launch, fuseline\n"
        "launch.resources = type('R', (), {'files': staticmethod(lambda _: __import__('pathlib').Path('/nowhere'))})\n"
        "assert not launch.is_available()\n"
        "try:\n    launch.cpu_device()\n"
        "except fuseline.FailedPreconditionError as error:\n    assert 'fuseline_launch' in str(error)\n"
        "else:\n    raise AssertionError\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "FUSELINE_LAUNCH_LIBRARY"}
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path, env=environment)
