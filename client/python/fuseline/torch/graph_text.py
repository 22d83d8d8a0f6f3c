"""Writes graphs in Fuseline's text form (docs/ir.md).

Pipeline: ops, operands, attributes -> GraphText -> text for Compile. Values carry torch's dtype and their static
shape, so that rows can check what they emit. Thread-safety: none, one writer a graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from .element_types import NAMES, Number

Attribute = bool | int | float | str | torch.dtype | Sequence[int] | Sequence[float]


@dataclass(eq=False, slots=True)
class Value:
    """An SSA value. `wide` is the same value in f32 before it was rounded to 16 bits, where there is one."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    wide: Value | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def element_count(self) -> int:
        return math.prod(self.shape)


Operand = Value | bool | int | float


def literal(value: Number) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(value)


def _attribute(value: Attribute) -> str:
    if isinstance(value, (bool, int, float)):
        return literal(value)
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, torch.dtype):
        return NAMES[value]
    return "[" + ", ".join(literal(item) for item in value) + "]"


def type_text(dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int] | None = None) -> str:
    text = f"{NAMES[dtype]}[{', '.join(map(str, shape))}]"
    return text if strides is None else f"{text}{{{', '.join(map(str, strides))}}}"


@dataclass(slots=True)
class GraphText:
    name: str = "g"
    _inputs: list[str] = field(default_factory=list)
    _lines: list[str] = field(default_factory=list)
    _temporaries: int = 0

    def add_input(
        self, name: str, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int] | None = None
    ) -> Value:
        self._inputs.append(f"{name}: {type_text(dtype, shape, strides)}")
        return Value(name, dtype, tuple(shape))

    def emit(
        self,
        op: str,
        operands: Sequence[Operand],
        dtype: torch.dtype,
        shape: Sequence[int],
        /,
        **attributes: Attribute | None,
    ) -> Value:
        return self.emit_many(op, operands, [(dtype, tuple(shape))], **attributes)[0]

    def emit_many(
        self,
        op: str,
        operands: Sequence[Operand],
        results: Sequence[tuple[torch.dtype, tuple[int, ...]]],
        /,
        **attributes: Attribute | None,
    ) -> list[Value]:
        values = []
        for dtype, shape in results:
            values.append(Value(f"%t{self._temporaries}", dtype, shape))
            self._temporaries += 1
        args = ", ".join(o.name if isinstance(o, Value) else literal(o) for o in operands)
        attrs = ", ".join(f"{key} = {_attribute(item)}" for key, item in attributes.items() if item is not None)
        declared = ", ".join(type_text(v.dtype, v.shape) for v in values)
        names = ", ".join(v.name for v in values)
        self._lines.append(f"  {names} = {op}({args}){f' {{{attrs}}}' if attrs else ''} : {declared}")
        return values

    def text(self, outputs: Sequence[Value]) -> str:
        body = "\n".join(self._lines)
        returned = ", ".join(value.name for value in outputs)
        return f"graph {self.name}({', '.join(self._inputs)}) {{\n{body}\n  return {returned}\n}}\n"

    @property
    def statement_count(self) -> int:
        return len(self._lines)

    def names_after(self, count: int) -> list[str]:
        """The names of the results of the statements from number `count` on."""
        return [name for line in self._lines[count:] for name in line.split(" = ", 1)[0].strip().split(", ")]

    def drop_statements_after(self, count: int) -> None:
        """Takes back what a row wrote before it was refused."""
        del self._lines[count:]
