"""Rows of reductions, scans and sorts. Pipeline: Call -> this -> Value. See rows.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .graph_text import Value
from .rows import Call, Unsupported, f32, normal_dim, row
from .rows_pointwise import boolean, to_bool

aten = torch.ops.aten
i64 = torch.int64


def reduced_dims(dims: Sequence[int] | int | None, rank: int) -> list[int]:
    """torch takes no dims, and an empty list, for all."""
    if isinstance(dims, int):
        dims = [dims]
    if not dims:
        return list(range(rank))
    return [normal_dim(d, rank) for d in dims] if rank else []


def reduced_shape(shape: Sequence[int], dims: Sequence[int], keepdim: bool) -> list[int]:
    return [1 if at in dims else size for at, size in enumerate(shape) if keepdim or at not in dims]


def reduce(
    call: Call, op: str, x: Value, dims: Sequence[int], keepdim: bool, to: torch.dtype | None = None, **attributes: Any
) -> Value:
    """`to`: the dtype of the result, where it is not that of x."""
    shape = reduced_shape(x.shape, dims, keepdim)
    return call.emit(op, [x], to or x.dtype, shape, dims=list(dims), keepdim=keepdim, **attributes)


def wide_of(x: Value) -> Value:
    """The value before it was rounded to 16 bits, where it is at hand."""
    return x.wide or x


def _sum_like(op: str, targets: tuple[Any, ...]) -> None:
    @row(*targets)
    def _row(call: Call) -> Value:
        x: Value = wide_of(call["self"])
        asked = call["self"].dtype
        dtype = call.get("dtype") or (asked if asked.is_floating_point else i64)
        dims = reduced_dims(call.get("dim"), x.rank)
        if dtype.is_floating_point and (x.dtype is not dtype):
            source = x if x.dtype is f32 and dtype.itemsize == 2 else call.cast(x, dtype)
            return call.narrow(reduce(call, op, source, dims, call.get("keepdim", False)), dtype)
        if dtype is boolean:
            raise Unsupported(f"{op} to bool")
        attributes = {} if dtype is x.dtype else {"dtype": dtype}
        return reduce(call, op, x, dims, call.get("keepdim", False), dtype, **attributes)


_sum_like("sum", (aten.sum.default, aten.sum.dim_IntList))
_sum_like("prod", (aten.prod.default, aten.prod.dim_int))


@row(aten.mean.default, aten.mean.dim)
def mean(call: Call) -> Value:
    x: Value = wide_of(call["self"])
    dtype = call.get("dtype") or call["self"].dtype
    source = x if x.dtype is f32 and dtype.itemsize == 2 else call.cast(x, dtype)
    result = reduce(call, "mean", source, reduced_dims(call.get("dim"), x.rank), call.get("keepdim", False))
    return call.narrow(result, dtype)


def _extremum(op: str, targets: tuple[Any, ...]) -> None:
    @row(*targets)
    def _row(call: Call) -> Value:
        x: Value = call["self"]
        dims = reduced_dims(call.get("dim"), x.rank)
        if any(x.shape[d] == 0 for d in dims):
            raise Unsupported(f"{op} of nothing")
        if x.dtype is boolean:
            return reduce(call, "any" if op == "amax" else "all", x, dims, call.get("keepdim", False))
        return reduce(call, op, x, dims, call.get("keepdim", False))


_extremum("amax", (aten.amax.default, aten.max.default))
_extremum("amin", (aten.amin.default, aten.min.default))


def _arg_extremum(op: str, target: Any) -> None:
    @row(target)
    def _row(call: Call) -> Value:
        return arg_reduce(call, op, call["self"], call["dim"], call["keepdim"])


def arg_reduce(call: Call, op: str, x: Value, dim: int | None, keepdim: bool) -> Value:
    if x.dtype is boolean:
        x = call.cast(x, torch.uint8)
    if x.element_count == 0:
        raise Unsupported(f"{op} of nothing")
    if not x.rank:
        return call.full(0, i64, ())
    dims = list(range(x.rank)) if dim is None else [normal_dim(dim, x.rank)]
    shape = reduced_shape(x.shape, dims, keepdim)
    if dim is None:
        return call.emit(op, [x], i64, shape, keepdim=keepdim)
    return call.emit(op, [x], i64, shape, dim=dims[0], keepdim=keepdim)


_arg_extremum("argmax", aten.argmax.default)
_arg_extremum("argmin", aten.argmin.default)


def _value_and_index(op: str, target: Any) -> None:
    @row(target)
    def _row(call: Call) -> tuple[Value | None, ...]:
        x, dim, keepdim = call["self"], call["dim"], call["keepdim"]
        if x.dtype is boolean:
            raise Unsupported("order of bool")
        dims = reduced_dims(dim, x.rank)
        value = reduce(call, f"a{op}", x, dims, keepdim)
        return value, arg_reduce(call, f"arg{op}", x, dim, keepdim) if 1 in call.used_results else None


_value_and_index("max", aten.max.dim)
_value_and_index("min", aten.min.dim)


def _any_all(op: str, targets: tuple[Any, ...]) -> None:
    @row(*targets)
    def _row(call: Call) -> Value:
        x: Value = to_bool(call, call["self"])
        dtype = torch.uint8 if call["self"].dtype is torch.uint8 else boolean
        return call.cast(reduce(call, op, x, reduced_dims(call.get("dim"), x.rank), call.get("keepdim", False)), dtype)


_any_all("any", (aten.any.default, aten.any.dim, aten.any.dims))
_any_all("all", (aten.all.default, aten.all.dim, aten.all.dims))


def correction_of(call: Call) -> int:
    correction = 1 if call["correction"] is None else call["correction"]
    if int(correction) != correction:
        raise Unsupported(f"correction {correction}")
    return int(correction)


def _spread(op: str, target: Any) -> None:
    @row(target)
    def _row(call: Call) -> Value:
        x: Value = wide_of(call["self"])
        dims = reduced_dims(call["dim"], x.rank)
        value = reduce(call, op, x, dims, call["keepdim"], correction=correction_of(call))
        return call.narrow(value, call["self"].dtype)


_spread("var", aten.var.correction)
_spread("std", aten.std.correction)


@row(aten.var_mean.correction)
def var_mean(call: Call) -> tuple[Value, ...]:
    x: Value = call["self"]
    dims = reduced_dims(call["dim"], x.rank)
    kind = (x.dtype, tuple(reduced_shape(x.shape, dims, call["keepdim"])))
    attributes = {"dims": dims, "keepdim": call["keepdim"], "correction": correction_of(call)}
    return tuple(call.text.emit_many("var_mean", [x], [kind, kind], **attributes))


@row(aten.logsumexp.default)
def logsumexp(call: Call) -> Value:
    x: Value = call["self"]
    if not x.dtype.is_floating_point:
        raise Unsupported("logsumexp of integers")
    return reduce(call, "logsumexp", x, reduced_dims(call["dim"], x.rank), call["keepdim"])


@row(aten.linalg_vector_norm.default)
def vector_norm(call: Call) -> Value:
    x: Value = call["self"]
    dtype, order = call["dtype"] or x.dtype, float(call["ord"])
    dims = reduced_dims(call["dim"], x.rank)
    x = call.cast(x, dtype)
    if order in (2.0, 1.0):
        return reduce(call, "norm", x, dims, call["keepdim"], p=order)
    size = call.pointwise("abs", [x])
    if math.isinf(order) and x.element_count:
        return reduce(call, "amax" if order > 0 else "amin", size, dims, call["keepdim"])
    raise Unsupported(f"norm of order {order}")


def _scan(op: str, target: Any) -> None:
    @row(target)
    def _row(call: Call) -> Value:
        x: Value = call["self"]
        dtype = call["dtype"] or (x.dtype if x.dtype.is_floating_point else i64)
        if not x.rank:
            return call.cast(x, dtype)
        source = call.cast(x, dtype) if dtype.is_floating_point else x
        return call.emit(op, [source], dtype, x.shape, dim=normal_dim(call["dim"], x.rank), dtype=dtype)


_scan("cumsum", aten.cumsum.default)
_scan("cumprod", aten.cumprod.default)


@row(aten.cummax.default)
def cummax(call: Call) -> tuple[Value | None, ...]:
    x: Value = call["self"]
    if 1 in call.used_results:
        raise Unsupported("torch's indices are those of the last of equals")
    kinds = [(x.dtype, x.shape), (i64, x.shape)]
    return call.text.emit_many("cummax", [x], kinds, dim=normal_dim(call["dim"], x.rank))[0], None


@row(aten.sort.default, aten.sort.stable)
def sort(call: Call) -> tuple[Value, ...]:
    x: Value = call["self"]
    if not x.rank or x.dtype is boolean:
        raise Unsupported("sort of this kind")
    dim, descending = normal_dim(call["dim"], x.rank), call["descending"]
    kinds = [(x.dtype, x.shape), (i64, x.shape)]
    return tuple(call.text.emit_many("sort", [x], kinds, dim=dim, descending=descending))


@row(aten.topk.default)
def topk(call: Call) -> tuple[Value, ...]:
    x: Value = call["self"]
    if not x.rank or x.dtype is boolean:
        raise Unsupported("topk of this kind")
    dim = normal_dim(call["dim"], x.rank)
    shape = tuple(call["k"] if at == dim else size for at, size in enumerate(x.shape))
    kinds = [(x.dtype, shape), (i64, shape)]
    return tuple(call.text.emit_many("topk", [x], kinds, k=call["k"], dim=dim, largest=call["largest"]))
