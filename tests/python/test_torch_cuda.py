"""The torch.compile backend on a GPU: streams, CUDA graphs, errors that come later, mixed devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: its backend is not tested")

import fuseline.torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch_testing import assert_same, compiled  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: the backend is tested on the CPU only")


@pytest.fixture(autouse=True)
def default_device() -> Iterator[None]:
    with torch.device("cuda"):
        yield


def numbers(*shape: int, dtype: Any = None) -> Any:
    torch.manual_seed(5)
    return torch.randn(*shape, dtype=dtype or torch.float32)


def test_launches_follow_the_stream_that_is_current(torch_server: str) -> None:
    function = compiled(lambda a: (a * 2).sum(-1), torch_server)
    x = numbers(4096, 4096)
    want = (x * 2).sum(-1)
    function(x)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        # What is read is written on the same stream just before: another stream would not wait for it.
        y = torch.zeros_like(x)
        for _ in range(20):
            y.add_(x)
        got = function(y / 20)
    stream.synchronize()
    assert_same(got, want, tolerance=1e-3)


def test_scratch_memory_and_outputs_come_from_torch(torch_server: str) -> None:
    function = compiled(lambda a, b: torch.softmax(a @ b, -1) @ b, torch_server)
    a, b = numbers(512, 512), numbers(512, 512)
    assert_same(function(a, b), torch.softmax(a @ b, -1) @ b, tolerance=1e-3)
    before = torch.cuda.memory_allocated()
    for _ in range(10):
        function(a, b)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


def test_an_index_out_of_range_is_an_error_of_a_later_call(torch_server: str) -> None:
    function = compiled(lambda x, i: x[i] * 2, torch_server)
    x = numbers(16)
    function(x, torch.tensor([1, 77]))
    torch.cuda.synchronize()
    with pytest.raises(IndexError, match="out of range"):
        function(x, torch.tensor([1, 2]))
    assert_same(function(x, torch.tensor([1, 2])), x[1:3] * 2)


def test_tensors_on_the_cpu_among_others_are_named(torch_server: str) -> None:
    x, scalar = numbers(8), torch.tensor(3.0, device="cpu")
    assert_same(compiled(lambda a, s: a * s + a.sin(), torch_server)(x, scalar), x * 3 + x.sin())
    reasons = [e.reason for e in fuseline.torch.report().eager_ops]
    assert any("on cpu" in reason for reason in reasons), reasons


def test_attention_of_torch_is_kept_unless_asked_for(torch_server: str) -> None:
    q, k, v = (numbers(2, 4, 64, 32, dtype=torch.bfloat16) for _ in range(3))

    def function(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True) * 2

    assert_same(compiled(function, torch_server)(q, k, v), function(q, k, v), tolerance=5e-2)
    kept = [e.op for e in fuseline.torch.report().eager_ops]
    assert all("scaled_dot_product" in op for op in kept), kept
    got = compiled(function, torch_server, {"attention": "compiled"})(q, k, v)
    assert_same(got, function(q, k, v), tolerance=5e-2)
    assert fuseline.torch.report().eager_ops == [], str(fuseline.torch.report())


def test_gradients_of_attention(torch_server: str) -> None:
    def run(function: Any) -> list[Any]:
        leaves = [t.detach().requires_grad_() for t in (q, k, v)]
        function(*leaves).square().sum().backward()
        return [leaf.grad for leaf in leaves]

    q, k, v = (numbers(2, 4, 64, 32, dtype=torch.bfloat16) for _ in range(3))

    def attend(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v)

    want = run(attend)
    for attention in ("library", "compiled"):
        got = run(compiled(attend, torch_server, {"attention": attention}))
        assert_same(got, want, tolerance=8e-2)


# --- CUDA graphs ---


def test_a_recorded_graph_reads_new_inputs(torch_server: str) -> None:
    function = compiled(lambda a, b: (a * b + 1).relu().sum(-1), torch_server, {"cuda_graphs": True})
    for seed in range(6):
        torch.manual_seed(seed)
        a, b = torch.randn(64, 64), torch.randn(64)
        assert_same(function(a, b).clone(), (a * b + 1).relu().sum(-1), tolerance=1e-3)
    assert not [note for note in fuseline.torch.report().notes if "not recorded" in note]


def test_replays_draw_new_random_numbers_that_a_seed_repeats(torch_server: str) -> None:
    function = compiled(lambda a: F.dropout(a, 0.5), torch_server, {"cuda_graphs": True})
    x = torch.ones(64, 64)
    for _ in range(3):
        function(x)
    torch.manual_seed(3)
    first, second = function(x).clone(), function(x).clone()
    torch.manual_seed(3)
    assert torch.equal(function(x), first)
    assert not torch.equal(first, second)


def test_training_is_recorded(torch_server: str) -> None:
    def train(wrap: Any) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8))
        function = wrap(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for step in range(8):
            torch.manual_seed(step % 2)
            x, y = torch.randn(16, 32), torch.randn(16, 8)
            loss = F.mse_loss(function(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
        return losses

    got = train(lambda model: compiled(model, torch_server, {"cuda_graphs": True}))
    assert got == pytest.approx(train(lambda model: model), rel=1e-3)


def test_what_can_not_be_recorded_runs_without(torch_server: str) -> None:
    def function(a: Any) -> Any:
        a.add_(1)
        return a * 2

    x, y = numbers(8), numbers(8)
    assert_same(compiled(function, torch_server, {"cuda_graphs": True})(x), function(y))
    assert_same(x, y)
    assert any("not recorded" in note for note in fuseline.torch.report().notes)
