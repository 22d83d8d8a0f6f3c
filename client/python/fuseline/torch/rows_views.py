"""Rows of views and of ops that put tensors together. Pipeline: Call -> this -> Value. See rows.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .graph_text import Value
from .rows import Call, Unsupported, normal_dim, row
from .rows_pointwise import select

aten = torch.ops.aten

# Slices that unfold may become.
LARGEST_WINDOW = 64

# What only looks at its operand's memory in another way: outside a compiled part torch does it for nothing.
VIEWS: frozenset[Any] = frozenset(
    (
        aten.alias.default,
        aten.detach.default,
        aten.diagonal.default,
        aten.expand.default,
        aten.permute.default,
        aten.select.int,
        aten.slice.Tensor,
        aten.split.Tensor,
        aten.split_with_sizes.default,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.t.default,
        aten.transpose.int,
        aten.unfold.default,
        aten.unbind.int,
        aten.unsqueeze.default,
        aten.view.default,
        aten._unsafe_view.default,
        aten.view.dtype,
    )
)


@row(aten.view.default, aten._unsafe_view.default, aten.reshape.default)
def view(call: Call) -> Value:
    return call.reshape(call["self"], call.shape)


@row(aten.permute.default)
def permute(call: Call) -> Value:
    x: Value = call["self"]
    return call.permute(x, [normal_dim(d, x.rank) for d in call["dims"]])


@row(aten.t.default)
def transpose_2d(call: Call) -> Value:
    x: Value = call["self"]
    return call.permute(x, list(reversed(range(x.rank))))


@row(aten.transpose.int)
def transpose(call: Call) -> Value:
    x: Value = call["self"]
    if not x.rank:
        return x
    return call.transpose(x, normal_dim(call["dim0"], x.rank), normal_dim(call["dim1"], x.rank))


@row(aten.expand.default)
def expand(call: Call) -> Value:
    return call.expand(call["self"], call.shape)


@row(
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
)
def change_rank(call: Call) -> Value:
    return call.reshape(call["self"], call.shape)


def slice_bounds(size: int, start: int | None, end: int | None) -> tuple[int, int]:
    start = 0 if start is None else start
    end = size if end is None else end
    start = min(max(start + size if start < 0 else start, 0), size)
    end = min(max(end + size if end < 0 else end, start), size)
    return start, end


@row(aten.slice.Tensor)
def slice_(call: Call) -> Value:
    x: Value = call["self"]
    dim = normal_dim(call["dim"], x.rank)
    start, end = slice_bounds(x.shape[dim], call["start"], call["end"])
    return call.slice(x, dim, start, end, call["step"])


@row(aten.select.int)
def select_int(call: Call) -> Value:
    x: Value = call["self"]
    dim = normal_dim(call["dim"], x.rank)
    index = call["index"] + (x.shape[dim] if call["index"] < 0 else 0)
    return call.reshape(call.slice(x, dim, index, index + 1), call.shape)


def _pieces(call: Call, x: Value, dim: int, sizes: Sequence[int]) -> list[Value]:
    values, start = [], 0
    for size in sizes:
        values.append(call.slice(x, dim, start, start + size))
        start += size
    return values


@row(aten.split_with_sizes.default)
def split_with_sizes(call: Call) -> list[Value]:
    x: Value = call["self"]
    return _pieces(call, x, normal_dim(call["dim"], x.rank), call["split_sizes"])


@row(aten.split.Tensor)
def split(call: Call) -> list[Value]:
    x: Value = call["self"]
    dim, size = normal_dim(call["dim"], x.rank), call["split_size"]
    length = x.shape[dim]
    sizes = [min(size, length - at) for at in range(0, length, size)] if size else [length]
    return _pieces(call, x, dim, sizes)


@row(aten.unbind.int)
def unbind(call: Call) -> list[Value]:
    x: Value = call["self"]
    dim = normal_dim(call["dim"], x.rank)
    shape = x.shape[:dim] + x.shape[dim + 1 :]
    return [call.reshape(piece, shape) for piece in _pieces(call, x, dim, [1] * x.shape[dim])]


@row(aten.flip.default)
def flip(call: Call) -> Value:
    x: Value = call["self"]
    return call.emit("flip", [x], x.dtype, x.shape, dims=[normal_dim(d, x.rank) for d in call["dims"]])


@row(aten.repeat.default)
def repeat(call: Call) -> Value:
    x: Value = call["self"]
    return call.emit("tile", [x], x.dtype, call.shape, repeats=list(call["repeats"])) if call["repeats"] else x


@row(aten.roll.default)
def roll(call: Call) -> Value:
    x: Value = call["self"]
    if not x.element_count:
        return x
    dims = [normal_dim(d, x.rank) for d in call["dims"]] or None
    return call.emit("roll", [x], x.dtype, x.shape, shifts=list(call["shifts"]), dims=dims)


@row(aten.diagonal.default)
def diagonal(call: Call) -> Value:
    x: Value = call["self"]
    dim0, dim1 = normal_dim(call["dim1"], x.rank), normal_dim(call["dim2"], x.rank)
    return call.emit("diagonal", [x], x.dtype, call.shape, offset=call["offset"], dim0=dim0, dim1=dim1)


@row(aten.unfold.default)
def unfold(call: Call) -> Value:
    """A slice for each place in the window, stacked along a new last dim."""
    x: Value = call["self"]
    size, step = call["size"], call["step"]
    if not x.rank or not 1 <= size <= LARGEST_WINDOW:
        raise Unsupported(f"windows of {size} elements")
    dim = normal_dim(call["dimension"], x.rank)
    count = (x.shape[dim] - size) // step + 1
    parts = [call.slice(x, dim, start, start + (count - 1) * step + 1, step) for start in range(size)]
    return call.emit("stack", parts, x.dtype, call.shape, dim=x.rank)


@row(aten.cat.default)
def cat(call: Call) -> Value:
    tensors: list[Value] = [t for t in call["tensors"] if t.shape != (0,) or len(call.shape) == 1]
    dim = normal_dim(call["dim"], len(call.shape))
    values = [call.cast(t, call.dtype) for t in tensors]
    return values[0] if len(values) == 1 else call.emit("concat", values, call.dtype, call.shape, dim=dim)


@row(aten.stack.default)
def stack(call: Call) -> Value:
    values = [call.cast(t, call.dtype) for t in call["tensors"]]
    return call.emit("stack", values, call.dtype, call.shape, dim=normal_dim(call["dim"], len(call.shape)))


@row(aten.constant_pad_nd.default)
def constant_pad(call: Call) -> Value:
    x: Value = call["self"]
    return pad(call, x, call["pad"], "constant", call.number(call["value"], x.dtype))


@row(aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default)
def reflection_pad(call: Call) -> Value:
    return pad(call, call["self"], call["padding"], "reflect", None)


@row(aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default)
def replication_pad(call: Call) -> Value:
    return pad(call, call["self"], call["padding"], "edge", None)


def pad(call: Call, x: Value, padding: Sequence[int], mode: str, value: Any) -> Value:
    """torch's padding: pairs, the last dim first."""
    low, high = [0] * x.rank, [0] * x.rank
    for at in range(len(padding) // 2):
        low[-1 - at], high[-1 - at] = padding[2 * at], padding[2 * at + 1]
    if not any(low) and not any(high):
        return x
    return call.emit("pad", [x], x.dtype, call.shape, low=low, high=high, mode=mode, value=value)


@row(aten.tril.default, aten.triu.default)
def triangle(call: Call) -> Value:
    x: Value = call["self"]
    op = "tril" if call.node.target is aten.tril.default else "triu"
    return call.emit(op, [x], x.dtype, x.shape, diagonal=call["diagonal"])


@row(aten.slice_scatter.default)
def slice_scatter(call: Call) -> Value:
    x, source = call["self"], call["src"]
    dim = normal_dim(call["dim"], x.rank)
    start, end = slice_bounds(x.shape[dim], call["start"], call["end"])
    source = call.expand(call.cast(source, x.dtype), source.shape)
    step, size = call["step"], x.shape[dim]
    if step == 1:
        parts = [call.slice(x, dim, 0, start), source, call.slice(x, dim, end, size)]
        parts = [p for p in parts if p.element_count or p is source]
        return parts[0] if len(parts) == 1 else call.emit("concat", parts, x.dtype, x.shape, dim=dim)
    if math.prod(source.shape) == 0:
        return x
    # Spread the source over the steps, then take it where a step lies.
    length = source.shape[dim] * step
    spread_shape = [*source.shape[:dim], length, *source.shape[dim + 1 :]]
    spread = call.emit("repeat_interleave", [source], x.dtype, spread_shape, repeats=step, dim=dim)
    low, high = [0] * x.rank, [0] * x.rank
    low[dim], high[dim] = start, size - start - length
    spread = call.emit("pad", [spread], x.dtype, x.shape, low=low, high=high, mode="constant")
    line = [1] * x.rank
    line[dim] = size
    position = call.pointwise("sub", [call.iota(line, dim), start])
    on_step = call.pointwise("eq", [call.pointwise("remainder", [position, step]), 0], torch.int64, torch.bool)
    inside = call.pointwise("lt", [position, end - start], torch.int64, torch.bool)
    after = call.pointwise("ge", [position, 0], torch.int64, torch.bool)
    mask = call.emit("logical_and", [on_step, inside], torch.bool, line)
    mask = call.emit("logical_and", [mask, after], torch.bool, line)
    return select(call, mask, spread, x, x.dtype)


@row(aten.select_scatter.default)
def select_scatter(call: Call) -> Value:
    x, source = call["self"], call["src"]
    dim = normal_dim(call["dim"], x.rank)
    index = call["index"] + (x.shape[dim] if call["index"] < 0 else 0)
    shape = [*x.shape[:dim], 1, *x.shape[dim + 1 :]]
    middle = call.reshape(call.cast(source, x.dtype), shape)
    parts = [call.slice(x, dim, 0, index), middle, call.slice(x, dim, index + 1, x.shape[dim])]
    parts = [p for p in parts if p.element_count or p is middle]
    return parts[0] if len(parts) == 1 else call.emit("concat", parts, x.dtype, x.shape, dim=dim)


@row(aten.as_strided.default)
def as_strided(call: Call) -> Value:
    raise Unsupported("a view by strides")
