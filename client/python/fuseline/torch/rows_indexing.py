"""Rows of gathers and scatters. Pipeline: Call -> this -> Value. See rows.py.

An index out of range is an error of the call here, as it is in torch; on a GPU it is reported by a later call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from .graph_text import Value
from .rows import Call, Unsupported, broadcast, normal_dim, row
from .rows_pointwise import boolean, select

aten = torch.ops.aten
i64 = torch.int64


@row(aten.embedding.default)
def embedding(call: Call) -> Value:
    table, index = call["weight"], call["indices"]
    return call.emit("embedding", [table, index], table.dtype, (*index.shape, *table.shape[1:]))


@row(aten.index_select.default)
def index_select(call: Call) -> Value:
    x, index = call["self"], call["index"]
    if not x.rank:
        raise Unsupported("index_select of a scalar")
    return _select_along(call, x, normal_dim(call["dim"], x.rank), call.reshape(index, (index.element_count,)))


def _select_along(call: Call, x: Value, dim: int, index: Value) -> Value:
    shape = (*x.shape[:dim], index.shape[0], *x.shape[dim + 1 :])
    if dim == 0 and x.rank == 2:
        return call.emit("embedding", [x, index], x.dtype, shape)
    return call.emit("index_select", [x, index], x.dtype, shape, dim=dim)


@row(aten.gather.default)
def gather(call: Call) -> Value:
    x, index = call["self"], call["index"]
    if not x.rank or index.rank != x.rank:
        raise Unsupported("gather of a scalar")
    return call.emit("gather", [x, index], x.dtype, index.shape, dim=normal_dim(call["dim"], x.rank))


@row(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(call: Call) -> Value:
    x: Value = call["self"]
    indices: list[Value | None] = list(call["indices"])
    dims = [at for at, i in enumerate(indices) if i is not None]
    given = [i for i in indices if i is not None]
    if any(i.dtype in (boolean, torch.uint8) for i in given):
        raise Unsupported("a mask as index: the result's size depends on data")
    if len(given) == 1:
        at, places = dims[0], given[0]
        flat = call.reshape(places, (places.element_count,))
        return call.reshape(_select_along(call, x, at, flat), call.shape)
    places, moved, shape = _places(call, x, dims, given)
    rest = moved.shape[len(dims) :]
    value = call.emit("gather_nd", [moved, places], x.dtype, (*shape, *rest))
    # Indices that stand side by side leave their dims in place; else these come first.
    if dims[0] and dims == list(range(dims[0], dims[-1] + 1)):
        order = [*range(len(shape), len(shape) + dims[0]), *range(len(shape))]
        order += range(len(shape) + dims[0], value.rank)
        value = call.permute(value, order)
    return value


def _places(call: Call, x: Value, dims: Sequence[int], given: Sequence[Value]) -> tuple[Value, Value, tuple[int, ...]]:
    """Positions stacked in a last dim, x with the indexed dims in front, and the shape of the positions."""
    shape = broadcast([i.shape for i in given])
    columns = [call.expand(call.cast(i, i64), shape) for i in given]
    if len(columns) == 1:
        places = call.reshape(columns[0], (*shape, 1))
    else:
        places = call.emit("stack", columns, i64, (*shape, len(columns)), dim=len(shape))
    moved = call.permute(x, [*dims, *(d for d in range(x.rank) if d not in dims)])
    return places, moved, shape


@row(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(call: Call) -> Value:
    x, values = call["self"], call["values"]
    indices: list[Value | None] = list(call["indices"])
    dims = [at for at, i in enumerate(indices) if i is not None]
    given = [i for i in indices if i is not None]
    if any(i.dtype in (boolean, torch.uint8) for i in given):
        if len(given) == 1 and dims == [0] and values.element_count == 1 and not call["accumulate"]:
            mask = call.reshape(given[0], (*given[0].shape, *[1] * (x.rank - given[0].rank)))
            return select(call, mask, call.reshape(values, ()), x, x.dtype)
        raise Unsupported("a mask as index")
    places, moved, shape = _places(call, x, dims, given)
    rest = moved.shape[len(dims) :]
    adjacent = dims == list(range(dims[0], dims[-1] + 1))
    if dims[0] and adjacent and len(given) >= 1:
        whole = (*x.shape[: dims[0]], *shape, *x.shape[dims[-1] + 1 :])
        source = call.expand(call.cast(values, x.dtype), whole)
        lead = dims[0]
        order = [*range(lead, lead + len(shape)), *range(lead), *range(lead + len(shape), len(whole))]
        source = call.permute(source, order)
    else:
        source = call.expand(call.cast(values, x.dtype), (*shape, *rest))
    if not source.element_count:
        return x
    reduction = "add" if call["accumulate"] else "none"
    if x.dtype is boolean and call["accumulate"]:
        raise Unsupported("sums of bool")
    value = call.emit("scatter_nd", [moved, places, source], x.dtype, moved.shape, reduction=reduction)
    order = [*dims, *(d for d in range(x.rank) if d not in dims)]
    return call.permute(value, [order.index(d) for d in range(x.rank)])


def _scatter(call: Call, source: Value, reduction: str) -> Value:
    x, index = call["self"], call["index"]
    if not x.rank or index.rank != x.rank or (source.rank and source.rank != x.rank):
        raise Unsupported("scatter of a scalar")
    if not index.element_count:
        return x
    dim = normal_dim(call["dim"], x.rank)
    operands = [x, index, call.cast(source, x.dtype)]
    return call.emit("scatter", operands, x.dtype, x.shape, dim=dim, reduction=reduction)


@row(aten.scatter.src)
def scatter(call: Call) -> Value:
    return _scatter(call, call["src"], "none")


@row(aten.scatter.value)
def scatter_value(call: Call) -> Value:
    x: Value = call["self"]
    return _scatter(call, call.full(call.number(call["value"], x.dtype), x.dtype, ()), "none")


@row(aten.scatter_add.default)
def scatter_add(call: Call) -> Value:
    if call["self"].dtype is boolean:
        raise Unsupported("sums of bool")
    return _scatter(call, call["src"], "add")


_SCATTER_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


@row(aten.scatter_reduce.two)
def scatter_reduce(call: Call) -> Value:
    reduction = _SCATTER_REDUCTIONS.get(call["reduce"])
    if reduction is None or not call["include_self"] or call["self"].dtype is boolean:
        raise Unsupported(f"reduce = {call['reduce']}, include_self = {call['include_self']}")
    return _scatter(call, call["src"], reduction)


@row(aten.embedding_dense_backward.default)
def embedding_dense_backward(call: Call) -> Value:
    grad, indices, rows = call["grad_output"], call["indices"], call["num_weights"]
    if call["scale_grad_by_freq"]:
        raise Unsupported("scale_grad_by_freq")
    width, count = grad.shape[-1], math.prod(indices.shape)
    flat = call.reshape(grad, (count, width))
    index = call.reshape(call.cast(indices, i64), (count,))
    if call["padding_idx"] >= 0:
        padded = call.pointwise("eq", [call.reshape(index, (count, 1)), call["padding_idx"]], i64, boolean)
        flat = select(call, padded, 0.0, flat, flat.dtype)
    zeros = call.full(0, grad.dtype, (rows, width))
    return call.emit("index_add", [zeros, index, flat], grad.dtype, (rows, width), dim=0)


@row(aten.scatter.reduce)
def scatter_and_reduce(call: Call) -> Value:
    if call["self"].dtype is boolean:
        raise Unsupported("sums of bool")
    return _scatter(call, call["src"], {"add": "add", "multiply": "mul"}[call["reduce"]])


@row(aten.bucketize.Tensor)
def bucketize(call: Call) -> Value:
    """How many boundaries lie below; NaN is above all of them."""
    x, boundaries = call["self"], call["boundaries"]
    column = call.reshape(x, (*x.shape, 1))
    above = call.pointwise("gt" if call["right"] else "ge", [boundaries, column], None, boolean)
    below = call.emit("logical_not", [above], boolean, above.shape)
    count = call.emit("sum", [below], i64, x.shape, dims=[-1], keepdim=False)
    return call.cast(count, torch.int32 if call["out_int32"] else i64)


@row(aten.index_add.default)
def index_add(call: Call) -> Value:
    x, index, source = call["self"], call["index"], call["source"]
    if call["alpha"] != 1 or not x.rank or x.dtype is boolean or index.rank != 1:
        raise Unsupported("index_add of this kind")
    if not index.element_count:
        return x
    return call.emit("index_add", [x, index, source], x.dtype, x.shape, dim=normal_dim(call["dim"], x.rank))
