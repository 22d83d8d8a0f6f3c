"""Rows of the pointwise ops. Pipeline: Call -> this -> Value. See rows.py."""

from __future__ import annotations

from typing import Any

import torch

from .graph_text import Operand, Value
from .rows import Call, Unsupported, broadcast, f32, row

aten = torch.ops.aten
prims = torch.ops.prims
boolean = torch.bool


def float_of(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


# Same dtype in and out.
_KEEP = {
    "abs": aten.abs.default,
    "neg": aten.neg.default,
    "ceil": aten.ceil.default,
    "floor": aten.floor.default,
    "trunc": aten.trunc.default,
    "round": aten.round.default,
    "relu": aten.relu.default,
    "bitwise_not": aten.bitwise_not.default,
}
# Integers become floats.
_FLOAT = {
    name: getattr(aten, name).default
    for name in [
        "sqrt",
        "rsqrt",
        "reciprocal",
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "erf",
        "erfc",
        "lgamma",
        "sigmoid",
        "silu",
        "mish",
        "hardswish",
    ]
}
_BINARY = {
    "mul": (aten.mul.Tensor, aten.mul.Scalar),
    "remainder": (aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor),
    "fmod": (aten.fmod.Tensor, aten.fmod.Scalar),
    "copysign": (aten.copysign.Tensor, aten.copysign.Scalar),
    "atan2": (aten.atan2.default,),
    "hypot": (aten.hypot.default,),
    "nextafter": (aten.nextafter.default,),
    "maximum": (aten.maximum.default,),
    "minimum": (aten.minimum.default,),
    "fmax": (aten.fmax.default,),
    "fmin": (aten.fmin.default,),
    "bitwise_and": (aten.bitwise_and.Tensor, aten.bitwise_and.Scalar, aten.bitwise_and.Scalar_Tensor),
    "bitwise_or": (aten.bitwise_or.Tensor, aten.bitwise_or.Scalar, aten.bitwise_or.Scalar_Tensor),
    "bitwise_xor": (aten.bitwise_xor.Tensor, aten.bitwise_xor.Scalar, aten.bitwise_xor.Scalar_Tensor),
    "shift_left": (
        aten.bitwise_left_shift.Tensor,
        aten.bitwise_left_shift.Tensor_Scalar,
        aten.__lshift__.Scalar,
        aten.__lshift__.Tensor,
    ),
    "shift_right": (
        aten.bitwise_right_shift.Tensor,
        aten.bitwise_right_shift.Tensor_Scalar,
        aten.__rshift__.Scalar,
        aten.__rshift__.Tensor,
    ),
}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_LOGICAL = ("logical_and", "logical_or", "logical_xor")
# What arithmetic on truth values means.
_ON_BOOL = {
    "mul": "logical_and",
    "maximum": "logical_or",
    "minimum": "logical_and",
    "fmax": "logical_or",
    "fmin": "logical_and",
}


def operands_of(call: Call) -> list[Operand]:
    """The first two arguments, whatever their names."""
    return list(call.args.values())[:2]


def _unary(op: str, target: Any, to_float: bool) -> None:
    @row(target)
    def _row(call: Call) -> Value:
        x: Value = next(iter(call.args.values()))
        dtype = float_of(x.dtype) if to_float else x.dtype
        if not to_float and not x.dtype.is_floating_point and op in ("ceil", "floor", "trunc", "round"):
            return x
        op_name = "logical_not" if op == "bitwise_not" and x.dtype is boolean else op
        return call.pointwise(op_name, [x], dtype)


for _name, _target in _KEEP.items():
    _unary(_name, _target, to_float=False)
for _name, _target in _FLOAT.items():
    _unary(_name, _target, to_float=True)


def _binary(op: str, targets: tuple[Any, ...]) -> None:
    @row(*targets)
    def _row(call: Call) -> Value:
        operands = operands_of(call)
        dtype = call.promoted(operands)
        if dtype is boolean and op in _ON_BOOL:
            return call.pointwise(_ON_BOOL[op], operands, boolean, boolean)
        if op in ("copysign", "atan2"):
            dtype = float_of(dtype)
        if op in ("bitwise_and", "bitwise_or", "bitwise_xor") and dtype is boolean:
            return call.pointwise(op.replace("bitwise", "logical"), operands, boolean, boolean)
        if dtype is boolean:
            raise Unsupported(f"{op} of bool")
        return call.pointwise(op, operands, dtype)


for _name, _targets in _BINARY.items():
    _binary(_name, _targets)


def _comparison(op: str, targets: tuple[Any, ...]) -> None:
    @row(*targets)
    def _row(call: Call) -> Value:
        a, b = operands_of(call)
        dtype = call.promoted([a, b])
        if isinstance(b, float) and dtype.is_floating_point and dtype.itemsize < 4 and isinstance(a, Value):
            # The number counts with the precision of f32, not rounded to 16 bits.
            dtype = f32
        return call.pointwise(op, [a, b], dtype, boolean)


for _name in _COMPARISONS:
    _comparison(_name, (getattr(aten, _name).Tensor, getattr(aten, _name).Scalar))


def _logical(op: str) -> None:
    @row(getattr(aten, op).default)
    def _row(call: Call) -> Value:
        a, b = call["self"], call["other"]
        return call.pointwise(op, [to_bool(call, a), to_bool(call, b)], boolean, boolean)


for _name in _LOGICAL:
    _logical(_name)


def to_bool(call: Call, x: Value) -> Value:
    return call.cast(x, boolean)


@row(aten.logical_not.default)
def logical_not(call: Call) -> Value:
    return call.pointwise("logical_not", [to_bool(call, call["self"])], boolean)


@row(aten.sign.default, aten.sgn.default)
def sign(call: Call) -> Value:
    x: Value = call["self"]
    if x.dtype is boolean:
        return x
    if not x.dtype.is_floating_point:
        return call.pointwise("sign", [x])
    # torch's sign of NaN is 0.
    return select(call, call.pointwise("isnan", [x], x.dtype, boolean), 0.0, call.pointwise("sign", [x]), x.dtype)


def select(call: Call, condition: Value, a: Operand, b: Operand, dtype: torch.dtype) -> Value:
    if not isinstance(a, Value) and not isinstance(b, Value):
        a = call.full(a, dtype, ())
    a, b = (call.cast(o, dtype) if isinstance(o, Value) else call.number(o, dtype) for o in (a, b))
    shape = broadcast([o.shape for o in (condition, a, b) if isinstance(o, Value)])
    return call.emit("where", [condition, a, b], dtype, shape)


@row(aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther, aten.where.Scalar)
def where(call: Call) -> Value:
    a, b = call["self"], call["other"]
    return select(call, to_bool(call, call["condition"]), a, b, call.promoted([a, b]))


@row(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(call: Call) -> Value:
    x: Value = call["self"]
    return select(call, call["mask"], call["value"], x, x.dtype)


def _scaled(call: Call, x: Operand, alpha: Any, dtype: torch.dtype) -> Operand:
    if alpha == 1:
        return x
    if not isinstance(x, Value):
        return x * alpha
    return call.pointwise("mul", [x, alpha], dtype)


def _add_sub(op: str, targets: tuple[Any, ...]) -> None:
    @row(*targets)
    def _row(call: Call) -> Value:
        a, b = call["self"], call["other"]
        dtype = call.promoted([a, b])
        if dtype is boolean:
            if op != "add" or call.get("alpha", 1) != 1:
                raise Unsupported(f"{op} of bool")
            return call.pointwise("logical_or", [a, b], boolean, boolean)
        return call.pointwise(op, [a, _scaled(call, b, call.get("alpha", 1), dtype)], dtype)


_add_sub("add", (aten.add.Tensor, aten.add.Scalar))
_add_sub("sub", (aten.sub.Tensor, aten.sub.Scalar))


@row(aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(call: Call) -> Value:
    a, b = call["self"], call["other"]
    dtype = call.promoted([a, b])
    return call.pointwise("sub", [b, _scaled(call, a, call.get("alpha", 1), dtype)], dtype)


@row(aten.div.Tensor, aten.div.Scalar, aten.div.Tensor_mode, aten.div.Scalar_mode)
def div(call: Call) -> Value:
    operands = operands_of(call)
    dtype = call.promoted(operands)
    mode = call.get("rounding_mode")
    if mode is None:
        return call.pointwise("div", operands, float_of(dtype))
    if dtype is boolean:
        raise Unsupported("division of bool")
    if mode == "floor":
        return call.pointwise("floor_divide", operands, dtype)
    if not dtype.is_floating_point:
        return call.pointwise("trunc_divide", operands, dtype)
    return call.pointwise("trunc", [call.pointwise("div", operands, dtype)])


@row(aten.floor_divide.default, aten.floor_divide.Scalar)
def floor_divide(call: Call) -> Value:
    return call.pointwise("floor_divide", operands_of(call))


_POWERS: dict[float, str] = {1.0: "", 2.0: "square", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}


@row(aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor, aten.pow.Scalar)
def power(call: Call) -> Value:
    base, exponent = call["self"], call["exponent"]
    dtype = call.promoted([base, exponent])
    if dtype is boolean:
        raise Unsupported("pow of bool")
    if isinstance(exponent, (int, float)) and isinstance(base, Value):
        if exponent in (1, 2) or (dtype.is_floating_point and exponent in _POWERS):
            op = _POWERS[float(exponent)]
            return call.pointwise(op, [base], dtype) if op else call.cast(base, dtype)
        if exponent == 3:
            return call.pointwise("mul", [call.pointwise("square", [base], dtype), base], dtype)
    return call.pointwise("pow", [base, exponent], dtype)


@row(aten.isnan.default, aten.isinf.default)
def classify(call: Call) -> Value:
    x: Value = call["self"]
    if not x.dtype.is_floating_point:
        return call.full(False, boolean, x.shape)
    return call.pointwise("isnan" if call.node.target is aten.isnan.default else "isinf", [x], x.dtype, boolean)


@row(aten.round.decimals)
def round_decimals(call: Call) -> Value:
    x, scale = call["self"], 10.0 ** abs(call["decimals"])
    if not x.dtype.is_floating_point:
        raise Unsupported("decimals of integers")
    there, back = ("mul", "div") if call["decimals"] >= 0 else ("div", "mul")
    rounded = call.pointwise("round", [call.pointwise(there, [x, scale])])
    return call.pointwise(back, [rounded, scale])


@row(aten.signbit.default)
def signbit(call: Call) -> Value:
    x: Value = call["self"]
    if not x.dtype.is_floating_point:
        return call.pointwise("lt", [x, 0], x.dtype, boolean)
    # Comparing would not see the sign of -0.0.
    return call.pointwise("lt", [call.pointwise("copysign", [1.0, x], x.dtype), 0.0], x.dtype, boolean)


@row(aten.gelu.default)
def gelu(call: Call) -> Value:
    return call.pointwise("gelu", [call["self"]], approximate=call["approximate"])


@row(aten.elu.default)
def elu(call: Call) -> Value:
    if call["scale"] != 1 or call["input_scale"] != 1:
        x: Value = call["self"]
        inner = call.pointwise("mul", [x, float(call["input_scale"])])
        negative = call.pointwise(
            "mul", [call.pointwise("expm1", [inner]), float(call["alpha"]) * float(call["scale"])]
        )
        positive = call.pointwise("mul", [x, float(call["scale"])])
        return select(call, call.pointwise("gt", [x, 0.0], x.dtype, boolean), positive, negative, x.dtype)
    return call.pointwise("elu", [call["self"]], alpha=float(call["alpha"]))


@row(aten.leaky_relu.default)
def leaky_relu(call: Call) -> Value:
    return call.pointwise("leaky_relu", [call["self"]], slope=float(call["negative_slope"]))


@row(aten.softplus.default)
def softplus(call: Call) -> Value:
    return call.pointwise("softplus", [call["self"]], beta=float(call["beta"]), threshold=float(call["threshold"]))


@row(aten.hardtanh.default)
def hardtanh(call: Call) -> Value:
    low, high = call["min_val"], call["max_val"]
    return clamp_between(call, call["self"], low, high)


@row(aten.hardsigmoid.default)
def hardsigmoid(call: Call) -> Value:
    return call.pointwise("hardsigmoid", [call["self"]])


@row(aten.relu6.default)
def relu6(call: Call) -> Value:
    return call.pointwise("relu6", [call["self"]])


@row(aten.threshold.default)
def threshold(call: Call) -> Value:
    return call.pointwise("threshold", [call["self"]], threshold=float(call["threshold"]), value=float(call["value"]))


@row(aten.log_sigmoid_forward.default)
def log_sigmoid_forward(call: Call) -> tuple[Value | None, ...]:
    if 1 in call.used_results:
        raise Unsupported("its buffer is read")
    return call.pointwise("log_sigmoid", [call["self"]]), None


@row(aten.threshold_backward.default)
def threshold_backward(call: Call) -> Value:
    grad, x = call["grad_output"], call["self"]
    keep = call.pointwise("le", [x, call["threshold"]], x.dtype, boolean)
    return select(call, keep, 0, grad, call.promoted([grad, x]))


def clamp_between(call: Call, x: Value, low: Any, high: Any) -> Value:
    dtype = call.promoted([x, *(o for o in (low, high) if o is not None)])
    if dtype is boolean:
        raise Unsupported("clamp of bool")
    value = call.cast(x, dtype) if x.dtype is not dtype else x
    if low is not None:
        value = call.pointwise("maximum", [value, low], dtype)
    if high is not None:
        value = call.pointwise("minimum", [value, high], dtype)
    return value


@row(aten.clamp.default, aten.clamp.Tensor)
def clamp(call: Call) -> Value:
    return clamp_between(call, call["self"], call["min"], call["max"])


@row(aten.clamp_min.default, aten.clamp_min.Tensor)
def clamp_min(call: Call) -> Value:
    return clamp_between(call, call["self"], call["min"], None)


@row(aten.clamp_max.default, aten.clamp_max.Tensor)
def clamp_max(call: Call) -> Value:
    return clamp_between(call, call["self"], None, call["max"])


@row(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(call: Call) -> Value:
    start, end, weight = call["self"], call["end"], call["weight"]
    return call.pointwise("lerp", [start, end, weight], call.promoted([start, end]))


def _add_product(op: str, target: Any) -> None:
    @row(target)
    def _row(call: Call) -> Value:
        x, a, b = call["self"], call["tensor1"], call["tensor2"]
        dtype = call.promoted([x, a, b])
        product = call.pointwise(op, [a, b], dtype)
        return call.pointwise("add", [x, _scaled(call, product, call["value"], dtype)], dtype)


_add_product("mul", aten.addcmul.default)
_add_product("div", aten.addcdiv.default)


def converted(call: Call, x: Value, dtype: torch.dtype) -> Value:
    if dtype is f32 and x.wide is not None:
        return x.wide
    return call.cast(x, dtype)


@row(aten._to_copy.default, prims.convert_element_type.default)
def to_copy(call: Call) -> Value:
    x: Value = next(iter(call.args.values()))
    return converted(call, x, call.get("dtype") or x.dtype)


@row(aten.copy.default)
def copy(call: Call) -> Value:
    x, source = call["self"], call["src"]
    return call.expand(call.cast(source, x.dtype), x.shape)


@row(aten.view.dtype)
def view_as_dtype(call: Call) -> Value:
    x: Value = call["self"]
    if x.dtype.itemsize != call["dtype"].itemsize or boolean in (x.dtype, call["dtype"]):
        raise Unsupported("a view of another element size")
    return call.emit("bitcast", [x], call["dtype"], x.shape, dtype=call["dtype"])


@row(
    aten.clone.default,
    aten.alias.default,
    aten.detach.default,
    aten.lift_fresh_copy.default,
    aten.lift_fresh.default,
    aten.positive.default,
)
def same(call: Call) -> Value:
    return next(iter(call.args.values()))
