"""What the torch.compile backend does around ops: memory, autograd, sizes, random numbers, failures, its report."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: its backend is not tested")

import fuseline.torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from conftest import ServerProcess  # noqa: E402
from torch import nn  # noqa: E402
from torch_testing import DEVICE, assert_all_compiled, assert_same, check, compiled, on_device, seeded  # noqa: E402


@pytest.fixture(autouse=True)
def default_device() -> Iterator[None]:
    # For what is made inside compiled functions too, which a context outside of them is not.
    torch.set_default_device(DEVICE)
    yield
    torch.set_default_device(None)


def test_pytorch_knows_the_backend_by_name() -> None:
    assert "fuseline" in torch._dynamo.list_backends()
    try:
        metadata.distribution("fuseline")
    except metadata.PackageNotFoundError:
        pytest.skip("the package is on the path but not installed: it has no entry point")
    found = {point.name: point.value for point in metadata.entry_points(group="torch_dynamo_backends")}
    assert found["fuseline"] == "fuseline.torch:backend"


# --- Memory ---


def test_strided_inputs_are_read_where_they_lie(torch_server: str) -> None:
    x = seeded(8, 6)
    check(lambda a, b, c: a.t() + b * c, (x[::2], x.t()[:, 1::2], x[0, :4]), torch_server)


def test_results_have_the_strides_that_torch_gives_them(torch_server: str) -> None:
    x, y = seeded(4, 5), seeded(4, 5)

    def function(a: Any, b: Any) -> Any:
        s = a + b
        return s.t(), s.view(-1), (a * b).t().contiguous(), a.t() * 2, a[1:], a.expand(2, 4, 5), s

    got, want = compiled(function, torch_server)(x, y), function(x, y)
    assert_same(got, want)
    assert [t.stride() for t in got] == [t.stride() for t in want]


def test_views_of_inputs_alias_them(torch_server: str) -> None:
    x = seeded(4, 5)
    view, double = compiled(lambda a: (a.t(), a * 2), torch_server)(x)
    view[0, 0] = 9.0
    assert x[0, 0] == 9.0
    assert double[0, 0] != 18.0


def test_views_of_results_share_their_memory(torch_server: str) -> None:
    whole, part = compiled(lambda a: (lambda s: (s, s[1:]))(a + 1), torch_server)(seeded(4, 5))
    whole[1, 0] = 9.0
    assert part[0, 0] == 9.0


def test_inputs_may_be_misaligned(torch_server: str) -> None:
    base = seeded(65)
    function = compiled(lambda a: a * 2, torch_server)
    assert_same(function(base[:64]), base[:64] * 2)
    assert_same(function(base[1:]), base[1:] * 2)


def test_inputs_that_are_written_change(torch_server: str) -> None:
    def function(a: Any, b: Any) -> Any:
        a.add_(b).mul_(2)
        b[0] = 1.0
        return a.sum()

    x, y = seeded(4, 5), seeded(4, 5) + 1
    want_x, want_y = x.clone(), y.clone()
    want = function(want_x, want_y)
    assert_same((compiled(function, torch_server)(x, y), x, y), (want, want_x, want_y))


# --- Autograd ---


def gradients(model: nn.Module, function: Any, *inputs: Any) -> list[Any]:
    model.zero_grad()
    function(*inputs).square().mean().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4), nn.SiLU()), (6, 8)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 5, 1)
        ),
        (2, 3, 9, 9),
    ),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (2, 5, 8)),
    "pools": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 1), nn.AvgPool2d(2), nn.AvgPool2d(3, 2, 1), nn.AdaptiveAvgPool2d(2), nn.MaxPool2d(2)
        ),
        (2, 3, 17, 17),
    ),
    "norms": (
        lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.Conv1d(4, 4, 3), nn.InstanceNorm1d(4, affine=True)),
        (2, 4, 8),
    ),
    "activations": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.ELU(), nn.Hardswish(), nn.Softplus(), nn.PReLU()),
        (5, 4),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_gradients_equal_eager_execution(name: str, torch_server: str) -> None:
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model, x = make(), seeded(*shape)
    got = gradients(model, compiled(model, torch_server, fullgraph=True), x)
    report = fuseline.torch.report()
    assert_same(got, gradients(model, model, x), tolerance=1e-3)
    assert [graph.kind for graph in report.graphs] == ["forward", "backward"]
    assert_all_compiled(report)


def test_batch_norm_keeps_its_statistics(torch_server: str) -> None:
    model, other = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    function = compiled(model, torch_server)
    for _ in range(3):
        x = seeded(6, 4)
        assert_same(function(x).detach(), other(x).detach())
    assert_same(list(model.buffers()), list(other.buffers()))


def test_embedding_gradient_adds_up_rows_and_leaves_padding_out(torch_server: str) -> None:
    model = nn.Embedding(7, 3, padding_idx=2)
    words = torch.tensor([[1, 2, 1], [5, 6, 2]])
    got = gradients(model, compiled(model, torch_server), words)
    assert_same(got, gradients(model, model, words))
    assert fuseline.torch.report().eager_ops == []


def test_an_optimizer_step_is_compiled(torch_server: str) -> None:
    def step(weight: Any, grad: Any, mean: Any, square: Any) -> None:
        mean.lerp_(grad, 0.1)
        square.mul_(0.99).addcmul_(grad, grad, value=0.01)
        weight.addcdiv_(mean, square.sqrt().add_(1e-8), value=-1e-3)

    got, want = ([seeded(4, 5).abs() for _ in range(4)] for _ in range(2))
    compiled(step, torch_server)(*got)
    step(*want)
    assert_same(got, want)
    assert fuseline.torch.report().eager_ops == []


# --- Random numbers ---


def test_a_seed_repeats_random_numbers(torch_server: str) -> None:
    function = compiled(
        lambda x: (F.dropout(x, 0.3), torch.rand_like(x), torch.randn(64, 64, device=x.device)), torch_server
    )
    x = torch.ones(64, 64)
    torch.manual_seed(3)
    first, second = function(x), function(x)
    torch.manual_seed(3)
    assert_same(function(x), first, tolerance=0)
    assert not torch.equal(first[0], second[0])
    dropped, uniform, normal = first
    assert abs((dropped == 0).float().mean().item() - 0.3) < 0.05
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean().item() - 0.5) < 0.03
    assert abs(normal.mean().item()) < 0.06 and abs(normal.std().item() - 1) < 0.05
    assert fuseline.torch.report().eager_ops == []


def test_gradients_see_the_mask_that_was_dropped(torch_server: str) -> None:
    x = torch.ones(32, 32, requires_grad=True)
    y = compiled(lambda t: F.dropout(t, 0.5), torch_server)(x)
    y.sum().backward()
    assert_same(x.grad, y.detach())


def test_random_ops_of_torch_draw_its_own_numbers(torch_server: str) -> None:
    function = compiled(lambda x: F.dropout(x, 0.5) * 2, torch_server, {"random": "eager"})
    x = torch.ones(8, 8)
    torch.manual_seed(3)
    got = function(x)
    torch.manual_seed(3)
    assert_same(got, F.dropout(x, 0.5) * 2)
    assert [e.op for e in fuseline.torch.report().eager_ops] == ["aten.native_dropout.default"]


# --- Sizes ---


def test_symbolic_sizes_are_compiled_for_the_sizes_that_come(torch_server: str) -> None:
    def function(x: Any, w: Any) -> Any:
        return F.gelu(x @ w).reshape(-1) * x.shape[0], torch.arange(x.shape[0], device=x.device)

    call = compiled(function, torch_server, dynamic=True)
    w = seeded(8, 4)
    for size in (3, 5, 7, 5):
        x = seeded(size, 8)
        assert_same(call(x, w), function(x, w))
    report = fuseline.torch.report()
    assert len(report.graphs) == 1, str(report)
    assert sum("compiled once more" in note for note in report.notes) == 2, str(report)


def test_training_with_symbolic_sizes(torch_server: str) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 2))
    function = compiled(model, torch_server, dynamic=True)
    for size in (4, 6, 9):
        x = seeded(size, 8)
        assert_same(gradients(model, function, x), gradients(model, model, x), tolerance=1e-3)


# --- What stays in eager execution ---


def test_what_can_not_be_compiled_is_named_once(torch_server: str, caplog: pytest.LogCaptureFixture) -> None:
    def function(x: Any) -> Any:
        eye = torch.eye(4, device=x.device)
        return torch.linalg.inv(x + 4 * eye) * 2 + torch.linalg.inv(x * 0.1 + eye).sin()

    with caplog.at_level(logging.WARNING, "fuseline.torch"):
        x = seeded(4, 4)
        assert_same(compiled(function, torch_server)(x), function(x), tolerance=1e-3)
    report = fuseline.torch.report()
    assert [(e.op, e.reason, e.count) for e in report.eager_ops] == [
        ("aten.linalg_inv_ex.default", "no row for this op", 2)
    ]
    assert sum("linalg_inv_ex" in record.message for record in caplog.records) == 1
    assert report.op_count - report.compiled_op_count == 2
    assert "linalg_inv_ex" in str(report)


def test_dtypes_that_the_ir_has_not_stay_in_eager_execution(torch_server: str) -> None:
    x = seeded(4, 4)
    got = compiled(lambda a: (a.to(torch.complex64) * 1j).abs() + a.exp(), torch_server)(x)
    assert_same(got, (x.to(torch.complex64) * 1j).abs() + x.exp())
    report = fuseline.torch.report()
    assert any("dtype complex64" in e.reason for e in report.eager_ops), str(report)
    assert report.compiled_op_count >= 1


def test_ops_can_be_left_to_torch(torch_server: str) -> None:
    x, w = seeded(4, 5), seeded(5, 3)
    function = compiled(lambda a, b: torch.relu(a * 2 @ b) + 1, torch_server, {"eager_ops": ("aten.mm",)})
    assert_same(function(x, w), torch.relu(x * 2 @ w) + 1)
    report = fuseline.torch.report()
    assert [(e.op, e.reason) for e in report.eager_ops] == [("aten.mm.default", "option eager_ops")]
    assert report.graphs[0].group_count == 2


@pytest.mark.parametrize("choice", ["auto", "compiled", "library"])
def test_contractions_can_be_left_to_torchs_libraries(choice: str, torch_server: str) -> None:
    x, w = on_device((seeded(4, 5), seeded(5, 3)))
    function = compiled(lambda a, b: torch.relu(a * 2 @ b) + 1, torch_server, {"contractions": choice})
    assert_same(function(x, w), torch.relu(x * 2 @ w) + 1)
    left = choice == "library" or (choice == "auto" and DEVICE == "cuda")
    assert [e.op for e in fuseline.torch.report().eager_ops] == (["aten.mm.default"] if left else [])


@pytest.mark.skipif(DEVICE != "cpu", reason="on a GPU it is an error of a later call")
def test_an_index_out_of_range_is_an_error(torch_server: str) -> None:
    function = compiled(lambda x, i: x[i] * 2, torch_server)
    with pytest.raises(IndexError, match="out of range"):
        function(seeded(4), torch.tensor([1, 7]))


def test_eager_numerics_round_as_torch_does(torch_server: str) -> None:
    x, y = seeded(64, 64).bfloat16(), seeded(64, 64).bfloat16() + 1
    got = check(lambda a, b: (a + b) * b - a, (x, y), torch_server, {"numerics": "eager"}, tolerance=1e-2)
    assert torch.equal(got, (x + y) * y - x)


# --- Servers and options ---


def test_without_a_server_torch_runs_it_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    x = seeded(4)
    with caplog.at_level(logging.WARNING, "fuseline.torch"):
        assert_same(compiled(lambda a: a * 2, "127.0.0.1:1")(x), x * 2)
        assert_same(torch.compile(lambda a: a * 3, backend="fuseline", options={"server": "127.0.0.1:1"})(x), x * 3)
    assert len([r for r in caplog.records if r.name == "fuseline.torch"]) == 1
    assert any("no server" in note for note in fuseline.torch.report().notes)


def test_without_a_server_an_option_raises() -> None:
    function = compiled(lambda a: a * 2, "127.0.0.1:1", {"on_server_loss": "raise"})
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="UNAVAILABLE"):
        function(seeded(4))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"options": {"no_such_option": 1}}, "no_such_option"),
        ({"options": {"numerics": "wild"}}, "wild"),
        ({"mode": "max-autotune"}, "max-autotune"),
    ],
)
def test_unknown_options_are_errors(how: dict[str, Any], message: str) -> None:
    torch._dynamo.reset()
    with pytest.raises(Exception, match=message):
        torch.compile(lambda a: a * 2, backend="fuseline", **how)(seeded(4))


@pytest.mark.skipif(DEVICE != "cpu", reason="test_torch_cuda.py has the test of a GPU")
@pytest.mark.parametrize("option", [True, False], ids=["option", "mode"])
def test_cuda_graphs_change_nothing_on_the_cpu(
    option: bool, torch_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch._dynamo.reset()
    fuseline.torch.reset_report()
    monkeypatch.setenv("FUSELINE_SERVER", torch_server)
    how: dict[str, Any] = {"options": {"cuda_graphs": True}} if option else {"mode": "reduce-overhead"}
    x = seeded(4, 4)
    assert_same(torch.compile(lambda a: a * 2, backend="fuseline", **how)(x), x * 2)
    assert fuseline.torch.report().compiled_op_count == 1


def test_a_server_that_is_lost_later_leaves_new_graphs_to_torch(
    torch_server: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = ServerProcess(tmp_path)
    first = compiled(lambda a: F.dropout(a.sin(), 0.5, False) + 1, other.address)
    x = seeded(4, 4)
    assert_same(first(x), x.sin() + 1)
    other.kill()
    # What was compiled runs on; what is new is left to torch, random ops too.
    assert_same(first(x), x.sin() + 1)
    second = torch.compile(
        lambda a: (F.dropout(a.cos(), 0.5), a.t().cos()), backend="fuseline", options={"server": other.address}
    )
    with caplog.at_level(logging.WARNING, "fuseline.torch"):
        dropped, result = second(x)
    assert dropped.shape == x.shape
    assert_same(result, x.t().cos())
    assert any("compiling failed" in note for note in fuseline.torch.report().notes)


def test_constants_of_the_function_are_moved_once(torch_server: str) -> None:
    def function(a: Any) -> Any:
        return a * torch.tensor([1.0, 2.0, 3.0], device=a.device) + torch.tensor(0.5) + torch.tensor(2)

    x = seeded(4, 3)
    check(function, (x,), torch_server)
    first = compiled(lambda a: (a * 2, torch.tensor([1.0, 2.0], device=a.device)), torch_server)
    second = torch.tensor([1.0, 2.0])
    first(x)[1].add_(1)
    assert_same(first(x)[1], second)
