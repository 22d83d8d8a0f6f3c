"""The table of aten ops: what a row is given, and how rows are found.

Pipeline: a node of an FX graph -> Call -> its row -> Values. A row writes the op's statements and returns its value,
or a tuple of values (None for one that it does not make and that nobody reads). It refuses with Unsupported, whose
text is the reason that the report shows. What a row returns is compared with the node's own metadata by the caller,
so a row can't silently change a dtype or a shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from .element_types import NAMES, SIXTEEN_BIT, Number, holds, promote
from .graph_text import Attribute, GraphText, Operand, Value

f32 = torch.float32


class Unsupported(Exception):
    """Why a node can't be compiled."""


RowResult = Value | tuple[Value | None, ...] | list[Value]
Row = Callable[["Call"], RowResult]
_ROWS: dict[Any, Row] = {}


def row(*targets: Any) -> Callable[[Row], Row]:
    """Registers a function as the row of these overloads."""

    def register(function: Row) -> Row:
        for target in targets:
            if target in _ROWS:
                raise ValueError(f"two rows for {target}")
            _ROWS[target] = function
        return function

    return register


def find_row(target: Any) -> Row | None:
    return _ROWS.get(target)


def row_targets() -> frozenset[Any]:
    return frozenset(_ROWS)


def normal_dim(dim: int, rank: int) -> int:
    return dim + max(rank, 1) if dim < 0 else dim


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    rank = max(map(len, shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for at, size in enumerate(shape, rank - len(shape)):
            if size != 1:
                if result[at] not in (1, size):
                    raise Unsupported(f"shapes {list(shapes)} do not broadcast")
                result[at] = size
    return tuple(result)


@dataclass(slots=True)
class Call:
    """One node's arguments, bound to its schema's names; nodes are replaced by Values, symbolic sizes by numbers."""

    node: torch.fx.Node
    text: GraphText
    args: dict[str, Any]
    # The metadata of the node's results, sizes as numbers: (dtype, shape), or None for what is no tensor.
    results: list[tuple[torch.dtype, tuple[int, ...]] | None]
    eager_numerics: bool = False
    used_results: frozenset[int] = field(default_factory=frozenset)

    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.args.get(name, default)

    @property
    def dtype(self) -> torch.dtype:
        result = self.results[0]
        if result is None:
            raise Unsupported("the result is no tensor")
        return result[0]

    @property
    def shape(self) -> tuple[int, ...]:
        result = self.results[0]
        if result is None:
            raise Unsupported("the result is no tensor")
        return result[1]

    def emit(
        self,
        op: str,
        operands: Sequence[Operand],
        dtype: torch.dtype,
        shape: Sequence[int],
        /,
        **attributes: Attribute | None,
    ) -> Value:
        return self.text.emit(op, operands, dtype, shape, **attributes)

    def cast(self, value: Value, dtype: torch.dtype) -> Value:
        if value.dtype is dtype:
            return value
        if dtype is f32 and value.wide is not None:
            return value.wide
        if dtype not in NAMES:
            raise Unsupported(f"dtype {dtype}")
        return self.emit("cast", [value], dtype, value.shape, dtype=dtype)

    def narrow(self, wide: Value, dtype: torch.dtype) -> Value:
        """Rounds to `dtype`. Where the node has one reader, that reader may take the wide value: nothing is stored
        between them."""
        if wide.dtype is dtype:
            return wide
        result = self.cast(wide, dtype)
        if dtype in SIXTEEN_BIT and wide.dtype is f32 and not self.eager_numerics and len(self.node.users) <= 1:
            result.wide = wide
        return result

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        if tuple(shape) == value.shape:
            return value
        return self.emit("reshape", [value], value.dtype, shape, shape=list(shape))

    def permute(self, value: Value, dims: Sequence[int]) -> Value:
        if list(dims) == list(range(value.rank)):
            return value
        return self.emit("permute", [value], value.dtype, [value.shape[d] for d in dims], dims=list(dims))

    def transpose(self, value: Value, dim0: int = -2, dim1: int = -1) -> Value:
        dims = list(range(value.rank))
        dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
        return self.permute(value, dims)

    def expand(self, value: Value, shape: Sequence[int]) -> Value:
        if tuple(shape) == value.shape:
            return value
        return self.emit("broadcast_to", [value], value.dtype, shape, shape=list(shape))

    def slice(self, value: Value, dim: int, start: int, end: int, step: int = 1) -> Value:
        """Positions start, start + step, … below end, which must be in range."""
        if (start, end, step) == (0, value.shape[dim], 1):
            return value
        shape = list(value.shape)
        shape[dim] = max(0, -((start - end) // step))
        steps = None if step == 1 else [step]
        return self.emit("slice", [value], value.dtype, shape, starts=[start], ends=[end], steps=steps, dims=[dim])

    def full(self, number: Number, dtype: torch.dtype, shape: Sequence[int]) -> Value:
        if dtype.is_floating_point:
            number = float(number)
        elif dtype is torch.bool:
            number = bool(number)
        return self.emit("full", [], dtype, shape, shape=list(shape), value=number, dtype=dtype)

    def iota(self, shape: Sequence[int], dim: int, dtype: torch.dtype = torch.int64) -> Value:
        return self.emit("iota", [], dtype, shape, shape=list(shape), dim=dim, dtype=dtype)

    def promoted(self, operands: Sequence[Operand]) -> torch.dtype:
        values = [o for o in operands if isinstance(o, Value)]
        return promote(((v.dtype, v.rank) for v in values), [o for o in operands if not isinstance(o, Value)])

    def pointwise(
        self,
        op: str,
        operands: Sequence[Operand],
        compute: torch.dtype | None = None,
        result: torch.dtype | None = None,
        **attributes: Attribute | None,
    ) -> Value:
        """Emits a pointwise op after casts to `compute` (by default the operands' common dtype); `result` is the op's
        dtype
        where it is another one (comparisons).

        A 16-bit op whose number that dtype can't hold exactly is computed in f32, as torch does; so is one whose
        operand is still at hand unrounded.
        """
        compute = compute or self.promoted(operands)
        values = [o for o in operands if isinstance(o, Value)]
        if compute in SIXTEEN_BIT and any(
            (o.wide is not None) if isinstance(o, Value) else not holds(compute, o) for o in operands
        ):
            wide = self.pointwise(op, operands, f32, result, **attributes)
            return wide if result is not None else self.narrow(wide, compute)
        first = operands[0]
        if not values and not isinstance(first, Value):
            values = [self.full(first, compute, ())]
            operands = [values[0], *operands[1:]]
        shape = broadcast([v.shape for v in values])
        args = [self.cast(o, compute) if isinstance(o, Value) else self.number(o, compute) for o in operands]
        return self.emit(op, args, result or compute, shape, **attributes)

    def number(self, value: Number, dtype: torch.dtype) -> Number:
        """The number as a literal of `dtype`."""
        if dtype.is_floating_point:
            limit = torch.finfo(dtype).max
            number = float(value)
            return number if abs(number) <= limit or number != number else float("inf") if number > 0 else -float("inf")
        if dtype is torch.bool:
            return bool(value)
        if not holds(dtype, value):
            raise Unsupported(f"{dtype} can't hold {value}")
        return int(value)
