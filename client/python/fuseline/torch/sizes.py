"""Symbolic sizes of FX graphs as numbers.

Pipeline: torch.SymInt, the sizes that symbols have -> this -> int.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .rows import Unsupported


def symbol_of(value: Any) -> Any | None:
    """The sympy symbol that a SymInt is, or None where it is an expression or a number."""
    if not isinstance(value, torch.SymInt):
        return None
    expression = value.node.expr
    return expression if expression.is_symbol else None


def symbols_in(value: Any) -> set[Any]:
    """The symbols that a size, or a tensor's metadata, depends on."""
    if isinstance(value, torch.SymInt):
        return set(value.node.expr.free_symbols)
    if isinstance(value, (torch.SymFloat, torch.SymBool)):
        return set(value.node.expr.free_symbols)
    if isinstance(value, torch.Tensor):
        sizes = [*value.shape, *(value.stride() if value.layout is torch.strided else ()), value.storage_offset()]
        return set().union(*(symbols_in(s) for s in sizes))
    if isinstance(value, (list, tuple)):
        return set().union(*(symbols_in(s) for s in value))
    return set()


class Sizes:
    """Resolves sizes: with the given sizes of symbols, or, without, with the sizes that tracing has seen."""

    def __init__(self, known: Mapping[Any, int] | None = None) -> None:
        self._known = known

    def __call__(self, value: Any) -> Any:
        if isinstance(value, (torch.SymFloat, torch.SymBool)):
            raise Unsupported("a symbolic number that is no size")
        if not isinstance(value, torch.SymInt):
            return value
        if self._known is None:
            hint = value.node.hint
            if hint is None:
                raise Unsupported(f"the size {value} depends on data")
            return int(hint)
        result = value.node.expr.xreplace(self._known)
        if result.free_symbols:
            raise Unsupported(f"the size {value} is not known from the inputs")
        return int(result)

    def shape(self, sizes: Sequence[Any]) -> tuple[int, ...]:
        return tuple(self(s) for s in sizes)
