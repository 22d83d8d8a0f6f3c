"""Turns nodes of an FX graph into a graph in Fuseline's text form.

Pipeline: FX nodes with metadata, sizes of symbols -> find_unsupported, lower_group -> reasons; text with a map from
its values to nodes. Every row's results are compared with the metadata that tracing left on its node; one that
differs is refused, never compiled.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from fuseline.launch_torch import OutputLayout

from .constants import is_number, value_of
from .element_types import NAMES
from .graph_text import GraphText, Value
from .op_rows import find_row
from .rows import Call, Unsupported
from .sizes import Sizes

MAX_RANK = 12


@dataclass(slots=True)
class LoweredGroup:
    text: str
    outputs: list[OutputLayout]
    input_strides: list[tuple[int, ...]]
    # The node that a value of the text was made for: for errors that name values.
    origins: dict[str, torch.fx.Node]
    statement_count: int


def tensor_reason(value: Any, device: torch.device | None) -> str | None:
    """Why a tensor can't be an operand or a result, or None."""
    if value.layout is not torch.strided or value.is_sparse or value.is_quantized:
        return f"a tensor of layout {value.layout}"
    if value.dtype not in NAMES:
        return f"dtype {str(value.dtype).removeprefix('torch.')}"
    if value.dim() > MAX_RANK:
        return f"rank {value.dim()}"
    if value.is_conj() or value.is_neg():
        return "a conjugated or negated view"
    if device is not None and value.device != device:
        return f"a tensor on {value.device} among tensors on {device}"
    return None


def meta_results(node: torch.fx.Node) -> list[Any]:
    """The metadata of a node's results, one or several."""
    value = node.meta.get("val")
    return list(value) if isinstance(value, (list, tuple)) else [value]


def used_results(node: torch.fx.Node) -> frozenset[int]:
    """Which results of a node are read; all of them where a user takes the whole tuple."""
    if not isinstance(node.meta.get("val"), (list, tuple)):
        return frozenset((0,))
    used: set[int] = set()
    for user in node.users:
        if user.target is operator.getitem and isinstance(user.args[1], int):
            if user.users:
                used.add(user.args[1])
        else:
            used.update(range(len(node.meta["val"])))
    return frozenset(used)


@dataclass
class Lowering:
    """Writes nodes, one after the other. Values that it has not written are the group's inputs."""

    text: GraphText
    sizes: Sizes
    device: torch.device | None
    eager_numerics: bool
    values: dict[torch.fx.Node, Any] = field(default_factory=dict)
    origins: dict[str, torch.fx.Node] = field(default_factory=dict)

    def argument(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            if value in self.values:
                return self.values[value]
            meta = value.meta.get("val")
            if isinstance(meta, torch.Tensor):
                if is_number(value):
                    self.values[value] = self.add_number(value_of(value))
                    return self.values[value]
                return self.add_input(value, meta)
            if isinstance(meta, (torch.SymInt, int)):
                return self.sizes(meta)
            raise Unsupported(f"an operand that is no tensor: {type(meta).__name__}")
        if isinstance(value, (list, tuple)):
            return [self.argument(item) for item in value]
        return self.sizes(value)

    def add_number(self, constant: torch.Tensor) -> Value:
        """A constant of one element is part of the graph, wherever it lies."""
        with unset_fake_temporarily():
            number = constant.item()
        return self.text.emit("full", [], constant.dtype, (), shape=[], value=number, dtype=constant.dtype)

    def add_input(self, node: torch.fx.Node, meta: torch.Tensor) -> Value:
        reason = tensor_reason(meta, self.device)
        if reason is not None:
            raise Unsupported(reason)
        shape = self.sizes.shape(meta.shape)
        strides = self.sizes.shape(meta.stride())
        dense = is_dense(shape, strides)
        self.values[node] = self.text.add_input(f"in_{node.name}", meta.dtype, shape, None if dense else strides)
        return self.values[node]

    def write(self, node: torch.fx.Node) -> None:
        """Writes the node's statements. Raises Unsupported, having written nothing."""
        if node.op != "call_function":
            raise Unsupported(f"{node.op} {node.target}")
        if node.target is operator.getitem:
            whole: Any = node.args[0]
            at: Any = node.args[1]
            source = self.values.get(whole)
            if not isinstance(source, (list, tuple)) or source[at] is None:
                raise Unsupported("a part of what was not compiled")
            self.values[node] = source[at]
            return
        function = find_row(node.target)
        if function is None:
            raise Unsupported("no row for this op")
        metas = meta_results(node)
        results: list[tuple[torch.dtype, tuple[int, ...]] | None] = []
        used = used_results(node)
        for at, meta in enumerate(metas):
            if not isinstance(meta, torch.Tensor):
                if at in used:
                    raise Unsupported("a result that is no tensor")
                results.append(None)
                continue
            reason = tensor_reason(meta, self.device) if at in used else None
            if reason is not None:
                raise Unsupported(reason)
            shape = self.sizes.shape(meta.shape)
            results.append((meta.dtype, shape))
        count = self.text.statement_count
        try:
            call = Call(node, self.text, self.bind(node), results, self.eager_numerics, used)
            value = function(call)
            values = list(value) if isinstance(value, (list, tuple)) else [value]
            self.check(values, results, used)
        except Unsupported:
            self.text.drop_statements_after(count)
            raise
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
            # A form of the op that its row does not know.
            self.text.drop_statements_after(count)
            raise Unsupported(f"a form of the op that is not known ({type(error).__name__}: {error})") from error
        self.values[node] = values if isinstance(node.meta.get("val"), (list, tuple)) else values[0]
        for name in self.text.names_after(count):
            self.origins[name] = node

    def bind(self, node: torch.fx.Node) -> dict[str, Any]:
        """Arguments by the schema's names, defaults filled in."""
        bound: dict[str, Any] = {}
        arguments = node.target._schema.arguments  # type: ignore[union-attr]
        positional = list(node.args)
        for at, argument in enumerate(arguments):
            if at < len(positional):
                bound[argument.name] = self.argument(positional[at])
            elif argument.name in node.kwargs:
                bound[argument.name] = self.argument(node.kwargs[argument.name])
            elif argument.has_default_value():
                bound[argument.name] = argument.default_value
        if "fuseline_seed" in node.kwargs:
            bound["fuseline_seed"] = self.argument(node.kwargs["fuseline_seed"])
        return bound

    def check(
        self,
        values: Sequence[Value | None],
        results: Sequence[tuple[torch.dtype, tuple[int, ...]] | None],
        used: frozenset[int],
    ) -> None:
        if len(values) != len(results):
            raise Unsupported(f"{len(results)} results where the row makes {len(values)}")
        for at in used:
            value, result = values[at], results[at]
            if value is None or result is None:
                raise Unsupported(f"result {at} is not made")
            if (value.dtype, value.shape) != result:
                made = f"{NAMES[value.dtype]}{list(value.shape)}"
                raise Unsupported(f"tracing says {NAMES[result[0]]}{list(result[1])}, the row makes {made}")


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Row-major without gaps; strides of dims of size 1 do not matter."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size == 0:
            return True
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def memory_order(shape: Sequence[int], strides: Sequence[int]) -> list[int] | None:
    """The dims from the slowest to the fastest, if in that order the tensor is dense; else None."""
    order = sorted(range(len(shape)), key=lambda d: (-strides[d], d))
    return order if is_dense([shape[d] for d in order], [strides[d] for d in order]) else None


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def find_unsupported(
    nodes: Iterable[torch.fx.Node],
    device: torch.device | None,
    eager_numerics: bool,
    refused: dict[torch.fx.Node, str],
) -> dict[torch.fx.Node, str]:
    """The nodes that no row can write, and why: found by writing all of them. `refused` come in as such."""
    reasons = dict(refused)
    lowering = Lowering(GraphText(), Sizes(), device, eager_numerics)
    for node in nodes:
        if node in refused:
            continue
        try:
            lowering.write(node)
        except Unsupported as error:
            reasons[node] = str(error)
    return reasons


def lower_group(
    nodes: Sequence[torch.fx.Node],
    inputs: Sequence[torch.fx.Node],
    outputs: Sequence[torch.fx.Node],
    sizes: Sizes,
    device: torch.device | None,
    eager_numerics: bool,
) -> LoweredGroup:
    """The text of a group. Its graph's inputs are `inputs` that are tensors, in order; its outputs are `outputs`, in
    memory
    order."""
    lowering = Lowering(GraphText(), sizes, device, eager_numerics)
    strides = []
    for node in inputs:
        meta = node.meta["val"]
        if isinstance(meta, torch.Tensor):
            lowering.add_input(node, meta)
            strides.append(sizes.shape(meta.stride()))
    for node in nodes:
        lowering.write(node)
    layouts, returned = [], []
    for node in outputs:
        meta = node.meta["val"]
        value: Value = lowering.values[node]
        shape, wanted = sizes.shape(meta.shape), sizes.shape(meta.stride())
        order = memory_order(shape, wanted)
        final = None
        if order is None:
            order, final, wanted = list(range(len(shape))), wanted, dense_strides(shape)
        if not is_dense(shape, wanted):
            permuted = [shape[d] for d in order]
            value = lowering.text.emit("permute", [value], value.dtype, permuted, dims=order)
            lowering.origins[value.name] = node
        returned.append(value)
        layouts.append(OutputLayout(meta.dtype, shape, wanted, final))
    return LoweredGroup(lowering.text.text(returned), layouts, strides, lowering.origins, lowering.text.statement_count)
