"""How FX graphs are split, and the rules of dtypes and sizes, without a server."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: its backend is not tested")

from fuseline.torch.constants import set_metadata  # noqa: E402
from fuseline.torch.element_types import NAMES, holds, promote  # noqa: E402
from fuseline.torch.lowering import is_dense, memory_order  # noqa: E402
from fuseline.torch.partition import Group, eager_module, make_views_outside, split  # noqa: E402
from fuseline.torch.program import build_program  # noqa: E402

aten = torch.ops.aten


class Builder:
    """A graph of aten ops; those named in `eager` are not compiled."""

    def __init__(self) -> None:
        self.graph = torch.fx.Graph()
        self.compiled: set[torch.fx.Node] = set()

    def input(self, name: str) -> torch.fx.Node:
        return self.graph.placeholder(name)

    def op(self, target: Any, *args: Any, compiled: bool = True) -> torch.fx.Node:
        node = self.graph.call_function(target, args)
        if compiled:
            self.compiled.add(node)
        return node

    def steps(self, *outputs: torch.fx.Node) -> list[Any]:
        self.graph.output(outputs)
        make_views_outside(self.graph, self.compiled)
        return split(self.graph, self.compiled)


def groups(steps: list[Any]) -> list[Group]:
    return [step for step in steps if isinstance(step, Group)]


def test_ops_around_an_eager_op_become_two_groups() -> None:
    b = Builder()
    x = b.input("x")
    first = b.op(aten.sin.default, x)
    eager = b.op(aten.linalg_inv_ex.default, first, compiled=False)
    last = b.op(aten.cos.default, eager)
    parts = groups(b.steps(last))
    assert [part.nodes for part in parts] == [[first], [last]]
    assert parts[1].inputs == [eager]


def test_independent_branches_share_a_group_although_one_is_cut() -> None:
    b = Builder()
    x = b.input("x")
    left = b.op(aten.sin.default, x)
    eager = b.op(aten.linalg_inv_ex.default, left, compiled=False)
    right = b.op(aten.exp.default, x)
    end = b.op(aten.add.Tensor, eager, right)
    parts = groups(b.steps(end))
    assert [set(part.nodes) for part in parts] == [{left, right}, {end}]


def test_a_group_never_depends_on_itself_through_an_eager_op() -> None:
    b = Builder()
    x = b.input("x")
    a = b.op(aten.sin.default, x)
    eager = b.op(aten.linalg_inv_ex.default, a, compiled=False)
    both = b.op(aten.add.Tensor, a, eager)
    steps = b.steps(both)
    made: set[torch.fx.Node] = {x}
    for step in steps:
        reads = step.inputs if isinstance(step, Group) else step.all_input_nodes
        assert set(reads) <= made
        made.update(step.outputs if isinstance(step, Group) else [step])


def test_a_view_that_is_read_outside_is_made_there() -> None:
    b = Builder()
    x = b.input("x")
    value = b.op(aten.sin.default, x)
    view = b.op(aten.t.default, value)
    product = b.op(aten.mul.Tensor, view, 2.0)
    steps = b.steps(view, product)
    (part,) = groups(steps)
    assert set(part.outputs) == {value, product}
    assert [step.target for step in steps if not isinstance(step, Group)] == [aten.t.default, "output"]


def test_views_alone_are_no_group() -> None:
    b = Builder()
    x = b.input("x")
    assert groups(b.steps(b.op(aten.t.default, x))) == []


def test_writes_into_inputs_come_last() -> None:
    b = Builder()
    x = b.input("x")
    value = b.op(aten.sin.default, x)
    write = b.op(aten.copy_.default, x, value, compiled=False)
    eager = b.op(aten.linalg_inv_ex.default, x, compiled=False)
    steps = b.steps(value, eager)
    assert steps.index(write) > steps.index(eager)


def test_a_program_runs_its_steps_and_empties_its_arguments() -> None:
    b = Builder()
    x, y = b.input("x"), b.input("y")
    total = b.op(aten.add.Tensor, x, y)
    end = b.op(aten.mul.Tensor, total, 3, compiled=False)
    steps = b.steps(end, y)
    module = torch.fx.GraphModule(torch.nn.Module(), b.graph)
    runners = {at: lambda p, q: (p + q,) for at, step in enumerate(steps) if isinstance(step, Group)}
    args = [torch.ones(2), torch.full((2,), 2.0)]
    got = build_program(module, steps, runners)(args)
    assert args == []
    assert torch.equal(got[0], torch.full((2,), 9.0)) and torch.equal(got[1], torch.full((2,), 2.0))


DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)


@pytest.mark.parametrize("ranks", [(1, 1), (0, 1), (1, 0), (0, 0)])
def test_promotion_is_that_of_torch(ranks: tuple[int, int]) -> None:
    for a, b in itertools.product(DTYPES, DTYPES):
        tensors = [torch.ones((2,) * rank, dtype=dtype) for rank, dtype in zip(ranks, (a, b))]
        assert promote([(a, ranks[0]), (b, ranks[1])], []) is torch.result_type(*tensors)


@pytest.mark.parametrize("number", [True, 3, 2.5])
def test_promotion_with_numbers_is_that_of_torch(number: float) -> None:
    for dtype, rank in itertools.product(DTYPES, (0, 1)):
        assert promote([(dtype, rank)], [number]) is torch.result_type(torch.ones((2,) * rank, dtype=dtype), number)


@pytest.mark.parametrize(
    ("dtype", "number", "held"),
    [
        (torch.bfloat16, 0.5, True),
        (torch.bfloat16, 0.3, False),
        (torch.float32, 0.1, False),
        (torch.float16, 1e6, False),
        (torch.float16, float("inf"), True),
        (torch.int8, 127, True),
        (torch.int8, 128, False),
        (torch.uint8, -1, False),
        (torch.int64, 2.0, True),
        (torch.int64, 2.5, False),
    ],
)
def test_numbers_that_a_dtype_holds(dtype: Any, number: float, held: bool) -> None:
    assert holds(dtype, number) is held


def test_memory_orders() -> None:
    assert is_dense((2, 3), (3, 1)) and is_dense((2, 1, 3), (3, 99, 1)) and not is_dense((2, 3), (1, 2))
    assert memory_order((2, 3), (1, 2)) == [1, 0]
    assert memory_order((2, 3), (4, 1)) is None
    assert memory_order((2, 3), (0, 1)) is None
    x = torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert memory_order(x.shape, x.stride()) == [0, 2, 3, 1]


def test_every_dtype_of_the_ir_has_a_counterpart() -> None:
    from fuseline.dtypes import DType

    assert set(NAMES.values()) == {dtype.value for dtype in DType}


def test_a_constant_without_dims_is_part_of_the_group() -> None:
    b = Builder()
    x = b.input("x")
    module = torch.nn.Module()
    module.number = torch.tensor(3.0)
    number = b.graph.get_attr("number")
    product = b.op(aten.mul.Tensor, x, number)
    b.graph.output(product)
    set_metadata(torch.fx.GraphModule(module, b.graph))
    number.meta.update(next(n for n in b.graph.nodes if n.op == "get_attr").meta)
    (part,) = groups(split(b.graph, b.compiled))
    assert part.inputs == [x]
    (got,) = eager_module(part)(torch.ones(2))
    assert torch.equal(got, torch.full((2,), 3.0))
