"""Rows of ops that make values, random ones too. Pipeline: Call -> this -> Value. See rows.py.

Random numbers: random_seeds.py gives each random op a seed that is drawn from torch's generator at every call, so
torch.manual_seed repeats them. They are not the numbers of eager execution.
"""

from __future__ import annotations

import torch

from .graph_text import Value
from .rows import Call, Unsupported, f32, row
from .rows_pointwise import boolean

aten = torch.ops.aten
prims = torch.ops.prims
i64 = torch.int64


@row(
    aten.full.default,
    aten.full_like.default,
    aten.new_full.default,
)
def full(call: Call) -> Value:
    return call.full(call.number(call["fill_value"], call.dtype), call.dtype, call.shape)


@row(aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)
def zeros(call: Call) -> Value:
    return call.full(0, call.dtype, call.shape)


@row(aten.ones.default, aten.ones_like.default, aten.new_ones.default)
def ones(call: Call) -> Value:
    return call.full(1, call.dtype, call.shape)


@row(
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.new_empty.default,
    prims.empty_strided.default,
    aten.empty_strided.default,
)
def empty(call: Call) -> Value:
    return call.full(0, call.dtype, call.shape)


@row(aten.scalar_tensor.default)
def scalar_tensor(call: Call) -> Value:
    return call.full(call.number(call["s"], call.dtype), call.dtype, ())


@row(prims.iota.default)
def prims_iota(call: Call) -> Value:
    return _sequence(call, call["start"], call["step"])


@row(aten.arange.start_step, aten.arange.start, aten.arange.default)
def arange(call: Call) -> Value:
    return _sequence(call, call.get("start", 0), call.get("step", 1))


def _sequence(call: Call, start: float, step: float) -> Value:
    dtype = call.dtype
    if dtype is boolean:
        raise Unsupported("arange of bool")
    if isinstance(start, int) and isinstance(step, int):
        value = call.iota(call.shape, 0)
        if step != 1:
            value = call.pointwise("mul", [value, step], i64)
        if start != 0:
            value = call.pointwise("add", [value, start], i64)
        return call.cast(value, dtype)
    wide = torch.float64
    value = call.pointwise("mul", [call.iota(call.shape, 0, wide), float(step)], wide)
    return call.cast(call.pointwise("add", [value, float(start)], wide), dtype)


def seed_of(call: Call) -> Value:
    seed = call.node.kwargs.get("fuseline_seed")
    if seed is None:
        raise Unsupported("random numbers of torch's own generator")
    return call.args["fuseline_seed"]


def uniform(call: Call, shape: tuple[int, ...], dtype: torch.dtype) -> Value:
    return call.emit("rand", [seed_of(call)], dtype, shape, shape=list(shape), dtype=dtype)


def random_rows() -> dict[object, str]:
    """The random ops that are given a seed, and the name of what they draw."""
    return {
        aten.rand.default: "rand",
        aten.rand_like.default: "rand",
        aten.randn.default: "randn",
        aten.randn_like.default: "randn",
        aten.bernoulli.p: "bernoulli",
        aten.native_dropout.default: "dropout",
        aten.uniform.default: "uniform",
        aten.normal_functional.default: "normal",
        aten.normal.float_float: "normal",
        aten.randint.default: "integers",
        aten.randint.low: "integers",
        aten.randint_like.default: "integers",
        aten.randint_like.low_dtype: "integers",
    }


@row(aten.rand.default, aten.rand_like.default, aten.randn.default, aten.randn_like.default)
def random(call: Call) -> Value:
    op = random_rows()[call.node.target]
    return call.emit(op, [seed_of(call)], call.dtype, call.shape, shape=list(call.shape), dtype=call.dtype)


@row(aten.bernoulli.p)
def bernoulli(call: Call) -> Value:
    x: Value = call["self"]
    drawn = call.pointwise("lt", [uniform(call, x.shape, f32), float(call["p"])], f32, boolean)
    return call.cast(drawn, x.dtype)


@row(aten.uniform.default)
def uniform_between(call: Call) -> Value:
    low, high = float(call["from"]), float(call["to"])
    drawn = call.pointwise("mul", [uniform(call, call.shape, call.dtype), high - low], call.dtype)
    return call.pointwise("add", [drawn, low], call.dtype)


@row(aten.normal_functional.default, aten.normal.float_float)
def normal(call: Call) -> Value:
    shape = list(call.shape)
    drawn = call.emit("randn", [seed_of(call)], call.dtype, shape, shape=shape, dtype=call.dtype)
    scaled = call.pointwise("mul", [drawn, float(call["std"])], call.dtype)
    return call.pointwise("add", [scaled, float(call["mean"])], call.dtype)


@row(aten.randint.default, aten.randint.low, aten.randint_like.default, aten.randint_like.low_dtype)
def integers(call: Call) -> Value:
    low, high = call.get("low", 0), call["high"]
    if call.dtype is boolean or not 0 < high - low <= 1 << 32:
        raise Unsupported("random integers of this range")
    wide = torch.float64
    drawn = call.pointwise("mul", [uniform(call, call.shape, wide), float(high - low)], wide)
    return call.cast(call.pointwise("add", [call.cast(drawn, i64), low], i64), call.dtype)


@row(aten.native_dropout.default)
def native_dropout(call: Call) -> tuple[Value, ...]:
    x, p = call["input"], float(call["p"])
    if call["train"] is False or p == 0.0:
        return x, call.full(True, boolean, x.shape)
    if p >= 1.0:
        return call.full(0, x.dtype, x.shape), call.full(False, boolean, x.shape)
    kept = call.pointwise("ge", [uniform(call, x.shape, f32), p], f32, boolean)
    scaled = call.pointwise("mul", [x, 1.0 / (1.0 - p)], x.dtype)
    return call.emit("where", [kept, scaled, 0.0], x.dtype, x.shape), kept
