"""Rows of softmax, normalisations and other ops that the compiler decomposes itself. Pipeline: Call -> this -> Value.
See rows.py."""

from __future__ import annotations

import math

import torch

from .graph_text import Value
from .rows import Call, Unsupported, f32, normal_dim, row
from .rows_reductions import wide_of

aten = torch.ops.aten


@row(aten._softmax.default, aten._log_softmax.default, aten._safe_softmax.default)
def softmax(call: Call) -> Value:
    x: Value = wide_of(call["self"])
    op = "log_softmax" if call.node.target is aten._log_softmax.default else "softmax"
    if not x.rank:
        return call.full(0.0 if op == "log_softmax" else 1.0, call.dtype, ())
    if call.node.target is aten._safe_softmax.default:
        raise Unsupported("rows that are masked everywhere")
    if call.get("half_to_float"):
        x = call.cast(x, f32)
    value = call.emit(op, [x], x.dtype, x.shape, dim=normal_dim(call["dim"], x.rank))
    return call.narrow(value, call.dtype)


def compute_dtype(x: Value) -> torch.dtype:
    return f32 if x.dtype.itemsize < 4 else x.dtype


@row(aten.native_layer_norm.default)
def native_layer_norm(call: Call) -> tuple[Value | None, ...]:
    x: Value = wide_of(call["input"])
    size = len(call["normalized_shape"])
    dims = list(range(x.rank - size, x.rank))
    weight, bias, eps = call["weight"], call["bias"], float(call["eps"])
    dtype = call["input"].dtype
    whole = x.dtype is dtype and all(w is None or w.dtype is dtype for w in (weight, bias))
    if call.used_results <= {0} and whole and (bias is None or weight is not None):
        operands = [x, *(w for w in (weight, bias) if w is not None)]
        return call.emit("layer_norm", operands, dtype, x.shape, dims=dims, eps=eps), None, None
    wide = compute_dtype(x)
    source = call.cast(x, wide)
    kind = (wide, (*x.shape[:-size], *[1] * size))
    variance, mean = call.text.emit_many("var_mean", [source], [kind, kind], dims=dims, keepdim=True, correction=0)
    scale = call.pointwise("rsqrt", [call.pointwise("add", [variance, eps])])
    value = call.pointwise("mul", [call.pointwise("sub", [source, mean]), scale])
    if weight is not None:
        value = call.pointwise("mul", [value, weight], wide)
    if bias is not None:
        value = call.pointwise("add", [value, bias], wide)
    statistics = [call.results[1], call.results[2]]
    kept = [call.cast(v, r[0]) if r is not None else None for v, r in zip((mean, scale), statistics)]
    return call.narrow(value, dtype), *kept


@row(aten._fused_rms_norm.default)
def fused_rms_norm(call: Call) -> tuple[Value | None, ...]:
    x: Value = call["input"]
    size = len(call["normalized_shape"])
    dims = list(range(x.rank - size, x.rank))
    wide = compute_dtype(x)
    eps = call["eps"]
    eps = torch.finfo(x.dtype).eps if eps is None else float(eps)
    source = call.cast(x, wide)
    square = call.pointwise("square", [source])
    mean = call.emit("mean", [square], wide, (*x.shape[:-size], *[1] * size), dims=dims, keepdim=True)
    scale = call.pointwise("rsqrt", [call.pointwise("add", [mean, eps])])
    value = call.pointwise("mul", [source, scale])
    if call["weight"] is not None:
        value = call.pointwise("mul", [value, call["weight"]], wide)
    statistic = call.results[1]
    return call.narrow(value, x.dtype), call.cast(scale, statistic[0]) if statistic is not None else None


@row(aten.native_group_norm.default)
def native_group_norm(call: Call) -> tuple[Value | None, ...]:
    x, weight, bias = call["input"], call["weight"], call["bias"]
    samples, channels, plane, groups = call["N"], call["C"], call["HxW"], call["group"]
    wide = compute_dtype(x)
    source = call.reshape(call.cast(x, wide), (samples, groups, channels // groups * plane))
    kind = (wide, (samples, groups, 1))
    variance, mean = call.text.emit_many("var_mean", [source], [kind, kind], dims=[2], keepdim=True, correction=0)
    scale = call.pointwise("rsqrt", [call.pointwise("add", [variance, float(call["eps"])])])
    value = call.pointwise("mul", [call.pointwise("sub", [source, mean]), scale])
    value = call.reshape(value, x.shape)
    column = (channels, *[1] * (x.rank - 2))
    if weight is not None:
        value = call.pointwise("mul", [value, call.reshape(weight, column)], wide)
    if bias is not None:
        value = call.pointwise("add", [value, call.reshape(bias, column)], wide)
    kept = [
        call.reshape(call.cast(v, r[0]), r[1]) if r is not None else None
        for v, r in zip((mean, scale), (call.results[1], call.results[2]))
    ]
    return call.narrow(value, x.dtype), *kept


def batch_statistics(call: Call, x: Value) -> tuple[Value, Value, Value]:
    """The input in f32 or more, its mean and its biased variance over all but the channels, which keep their dims."""
    wide = compute_dtype(x)
    source = call.cast(x, wide)
    dims = [0, *range(2, x.rank)]
    kind = (wide, tuple(x.shape[1] if d == 1 else 1 for d in range(x.rank)))
    variance, mean = call.text.emit_many("var_mean", [source], [kind, kind], dims=dims, keepdim=True, correction=0)
    return source, mean, variance


@row(
    aten._native_batch_norm_legit_functional.default,
    aten._batch_norm_with_update_functional.default,
    aten._native_batch_norm_legit_no_training.default,
    aten._native_batch_norm_legit.no_stats,
)
def batch_norm(call: Call) -> tuple[Value | None, ...]:
    """Results: y, saved mean, saved 1 / std, and for the functional ones (a reserve,) the new running mean and
    variance."""
    target = call.node.target
    x, weight, bias = call["input"], call["weight"], call["bias"]
    if x.rank < 2 or not x.element_count:
        raise Unsupported("batch norm of this shape")
    training = target is not aten._native_batch_norm_legit_no_training.default and call.get("training", True)
    eps, column = float(call["eps"]), tuple(x.shape[1] if d == 1 else 1 for d in range(x.rank))
    channels = (x.shape[1],)
    if training:
        source, mean, variance = batch_statistics(call, x)
    else:
        source = call.cast(x, compute_dtype(x))
        mean = call.reshape(call.cast(call["running_mean"], source.dtype), column)
        variance = call.reshape(call.cast(call["running_var"], source.dtype), column)
    wide = source.dtype
    scale = call.pointwise("rsqrt", [call.pointwise("add", [variance, eps])])
    value = call.pointwise("mul", [call.pointwise("sub", [source, mean]), scale])
    if weight is not None:
        value = call.pointwise("mul", [value, call.reshape(weight, column)], wide)
    if bias is not None:
        value = call.pointwise("add", [value, call.reshape(bias, column)], wide)
    results: list[Value | None] = [call.narrow(value, x.dtype)]
    for statistic, kind in zip((mean, scale), call.results[1:3]):
        if kind is None or kind[1] == channels:
            results.append(call.cast(call.reshape(statistic, channels), kind[0]) if kind is not None else None)
        elif math.prod(kind[1]) == 0:
            results.append(call.full(0, kind[0], kind[1]))
        else:
            raise Unsupported("statistics of another shape")
    if target is aten._batch_norm_with_update_functional.default:
        kind = call.results[3]
        if kind is not None and math.prod(kind[1]) != 0:
            raise Unsupported("a reserve for another library's gradient")
        results.append(call.full(0, kind[0], kind[1]) if kind is not None else None)
    if "running_mean" in call.args and target is not aten._native_batch_norm_legit_no_training.default:
        running_mean, running_var = call["running_mean"], call["running_var"]
        if training and running_mean is not None:
            momentum, count = float(call["momentum"]), x.element_count // x.shape[1]
            unbiased = call.pointwise("mul", [call.reshape(variance, channels), count / max(count - 1, 1)])
            running_mean = _blend(call, running_mean, call.reshape(mean, channels), momentum)
            running_var = _blend(call, running_var, unbiased, momentum)
        results += [running_mean, running_var]
    return tuple(results)


def _blend(call: Call, old: Value, new: Value, momentum: float) -> Value:
    kept = call.pointwise("mul", [old, 1.0 - momentum], old.dtype)
    return call.pointwise("add", [kept, call.cast(call.pointwise("mul", [new, momentum]), old.dtype)], old.dtype)
