"""Functions of traced arrays, by the names of the array API standard and NumPy, and those of neural networks.

    import fuseline.numpy as fnp

    @fuseline.jit
    def norm(x, w):
        return x * fnp.rsqrt(fnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * w

They work inside functions that are traced. Arrays of the program (NumPy's, or what speaks DLPack) that meet a traced
array become constants of the graph. Where this differs from NumPy: dtypes follow PyTorch's rules (fuseline.tracing),
and what would depend on values (boolean masks, nonzero) is refused.

Pipeline: calls -> nodes of the traced graph. Errors: InvalidArgumentError. Thread-safety: as tracing. Tested by
tests/python/test_tracing.py
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as _np

from fuseline.dtypes import DType
from fuseline.tracing import (
    Array,
    ArrayLike,
    as_array,
    axes_of,
    axis_of,
    broadcast_shapes,
    cast,
    emit,
    emit_several,
    is_number,
    result_dtype,
    trace_error,
)

float64, float32, float16, bfloat16 = DType.F64, DType.F32, DType.F16, DType.BF16
float8_e4m3fn, float8_e5m2 = DType.F8E4M3, DType.F8E5M2
int64, int32, int16, int8, uint8, bool_ = DType.I64, DType.I32, DType.I16, DType.I8, DType.U8, DType.BOOL
pi, e, inf, nan, newaxis = math.pi, math.e, math.inf, math.nan, None

Shape = Sequence[int]
Axis = int | Sequence[int] | None


# --- Making arrays ---


def asarray(value: ArrayLike, dtype: Any = None) -> Array:
    array = as_array(value, None if dtype is None or not is_number(value) else DType.of(dtype))
    return array if dtype is None else cast(array, DType.of(dtype))


array = asarray


def full(shape: int | Shape, value: bool | int | float, dtype: Any = None) -> Array:
    kind = result_dtype(value) if dtype is None else DType.of(dtype)
    sizes = [shape] if isinstance(shape, int) else [int(size) for size in shape]
    return emit("full", (), sizes, kind, shape=sizes, value=value, dtype=kind)


def zeros(shape: int | Shape, dtype: Any = float32) -> Array:
    kind = DType.of(dtype)
    return full(shape, False if kind is bool_ else 0, kind)


def ones(shape: int | Shape, dtype: Any = float32) -> Array:
    kind = DType.of(dtype)
    return full(shape, True if kind is bool_ else 1, kind)


def full_like(x: Array, value: bool | int | float, dtype: Any = None) -> Array:
    return full(x.shape, value, x.dtype if dtype is None else dtype)


def zeros_like(x: Array, dtype: Any = None) -> Array:
    return zeros(x.shape, x.dtype if dtype is None else dtype)


def ones_like(x: Array, dtype: Any = None) -> Array:
    return ones(x.shape, x.dtype if dtype is None else dtype)


def arange(start: float, stop: float | None = None, step: float = 1, dtype: Any = None) -> Array:
    if stop is None:
        start, stop = 0, start
    kind = result_dtype(start, stop, step) if dtype is None else DType.of(dtype)
    count = builtins.max(0, math.ceil((stop - start) / step))
    steps = emit("iota", (), [count], kind, shape=[count], dim=0, dtype=kind)
    scaled = steps if step == 1 else multiply(steps, step)
    return scaled if start == 0 else add(scaled, start)


def eye(rows: int, columns: int | None = None, *, k: int = 0, dtype: Any = float32) -> Array:
    shape = [rows, rows if columns is None else columns]
    row = emit("iota", (), shape, int64, shape=shape, dim=0, dtype=int64)
    column = emit("iota", (), shape, int64, shape=shape, dim=1, dtype=int64)
    return astype(equal(subtract(column, row), k), dtype)


def astype(x: ArrayLike, dtype: Any) -> Array:
    return cast(as_array(x), DType.of(dtype))


# --- Elementwise ---


def _unary(op: str, kinds: str, result: DType | None = None) -> Callable[[ArrayLike], Array]:
    """`kinds`: "f" only floats, and integers are taken as float32; "n" numbers, "a" all."""

    def function(x: ArrayLike) -> Array:
        operand = as_array(x)
        if kinds == "f" and not operand.dtype.is_float:
            operand = cast(operand, float32)
        if kinds == "n" and operand.dtype is bool_:
            operand = cast(operand, int64)
        return emit(op, (operand,), operand.shape, result or operand.dtype)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"Elementwise: the op `{op}` of docs/ir.md."
    return function


abs = absolute = _unary("abs", "n")
negative = _unary("neg", "n")
sign = _unary("sign", "n")
square = _unary("square", "n")
sqrt, rsqrt, reciprocal = _unary("sqrt", "f"), _unary("rsqrt", "f"), _unary("reciprocal", "f")
exp, exp2, expm1 = _unary("exp", "f"), _unary("exp2", "f"), _unary("expm1", "f")
log, log2, log10, log1p = _unary("log", "f"), _unary("log2", "f"), _unary("log10", "f"), _unary("log1p", "f")
sin, cos, tan = _unary("sin", "f"), _unary("cos", "f"), _unary("tan", "f")
asin, acos, atan = _unary("asin", "f"), _unary("acos", "f"), _unary("atan", "f")
sinh, cosh, tanh = _unary("sinh", "f"), _unary("cosh", "f"), _unary("tanh", "f")
asinh, acosh, atanh = _unary("asinh", "f"), _unary("acosh", "f"), _unary("atanh", "f")
erf, erfc, lgamma = _unary("erf", "f"), _unary("erfc", "f"), _unary("lgamma", "f")
sigmoid, log_sigmoid, silu, mish = (
    _unary("sigmoid", "f"), _unary("log_sigmoid", "f"), _unary("silu", "f"), _unary("mish", "f")
)  # fmt: skip
relu, softsign, selu, hardswish = (
    _unary("relu", "n"), _unary("softsign", "f"), _unary("selu", "f"), _unary("hardswish", "f")
)  # fmt: skip
isnan, isinf, isfinite = _unary("isnan", "f", bool_), _unary("isinf", "f", bool_), _unary("isfinite", "f", bool_)
logical_not = _unary("logical_not", "a", bool_)


def _rounding(op: str) -> Callable[[ArrayLike], Array]:
    floats = _unary(op, "f")

    def function(x: ArrayLike) -> Array:
        operand = as_array(x)
        return floats(operand) if operand.dtype.is_float else operand

    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"Elementwise: the op `{op}` of docs/ir.md; integers stay as they are."
    return function


ceil, floor, trunc, round = _rounding("ceil"), _rounding("floor"), _rounding("trunc"), _rounding("round")


def bitwise_invert(x: ArrayLike) -> Array:
    operand = as_array(x)
    return (
        logical_not(operand)
        if operand.dtype is bool_
        else emit("bitwise_not", (operand,), operand.shape, operand.dtype)
    )


def _operands(values: Sequence[ArrayLike], dtype: DType) -> tuple[list[Any], tuple[int, ...]]:
    """Operands of one dtype, and the shape that they broadcast to. Numbers beside an array stay literals."""
    arrays = [not is_number(value) for value in values]
    literals = builtins.any(arrays)
    operands = [
        _literal(value, dtype) if is_number(value) and literals else cast(as_array(value, dtype), dtype)
        for value in values
    ]
    shape = broadcast_shapes(*(operand.shape for operand in operands if isinstance(operand, Array)))
    return operands, shape


def _literal(value: Any, dtype: DType) -> bool | int | float:
    if dtype.is_float:
        return float(value)
    return builtins.bool(value) if dtype is bool_ else int(value)


def _binary(op: str, kinds: str, result: DType | None = None) -> Callable[[ArrayLike, ArrayLike], Array]:
    """`kinds`: "f" floats, "n" numbers, "i" integers, "a" all; narrower kinds are taken as the least of these."""

    def function(x1: ArrayLike, x2: ArrayLike) -> Array:
        dtype = result_dtype(x1, x2)
        if kinds == "f" and not dtype.is_float:
            dtype = float32
        if kinds in "ni" and dtype is bool_:
            dtype = int64
        if kinds == "i" and dtype.is_float:
            raise trace_error(f"{op}: takes integers, not {dtype}")
        operands, shape = _operands((x1, x2), dtype)
        return emit(op, operands, shape, result or dtype)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"Elementwise: the op `{op}` of docs/ir.md."
    return function


add, subtract, multiply = _binary("add", "n"), _binary("sub", "n"), _binary("mul", "n")
divide = _binary("div", "f")
floor_divide, remainder, fmod = _binary("floor_divide", "n"), _binary("remainder", "n"), _binary("fmod", "n")
pow = power = _binary("pow", "n")
atan2, hypot = _binary("atan2", "f"), _binary("hypot", "f")
copysign, nextafter = _binary("copysign", "f"), _binary("nextafter", "f")
maximum, minimum, fmax, fmin = (
    _binary("maximum", "n"), _binary("minimum", "n"), _binary("fmax", "n"), _binary("fmin", "n")
)  # fmt: skip
bitwise_left_shift, bitwise_right_shift = _binary("shift_left", "i"), _binary("shift_right", "i")
logical_and, logical_or, logical_xor = (
    _binary("logical_and", "a", bool_), _binary("logical_or", "a", bool_), _binary("logical_xor", "a", bool_)
)  # fmt: skip
equal, not_equal = _binary("eq", "a", bool_), _binary("ne", "a", bool_)
less, less_equal = _binary("lt", "a", bool_), _binary("le", "a", bool_)
greater, greater_equal = _binary("gt", "a", bool_), _binary("ge", "a", bool_)


def _bitwise(op: str) -> Callable[[ArrayLike, ArrayLike], Array]:
    logical, integers = _binary("logical_" + op, "a", bool_), _binary("bitwise_" + op, "i")

    def function(x1: ArrayLike, x2: ArrayLike) -> Array:
        return (logical if result_dtype(x1, x2) is bool_ else integers)(x1, x2)

    function.__name__ = function.__qualname__ = "bitwise_" + op
    return function


bitwise_and, bitwise_or, bitwise_xor = _bitwise("and"), _bitwise("or"), _bitwise("xor")


def where(condition: ArrayLike, x1: ArrayLike, x2: ArrayLike) -> Array:
    chosen = cast(as_array(condition), bool_)
    operands, shape = _operands((x1, x2), result_dtype(x1, x2))
    dtype = result_dtype(x1, x2)
    shape = broadcast_shapes(chosen.shape, shape)
    return emit("where", (chosen, *operands), shape, dtype)


def clip(x: ArrayLike, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
    operand = as_array(x)
    bounds = [bound for bound in (min, max) if bound is not None]
    if not bounds:
        return operand
    if builtins.all(is_number(bound) for bound in bounds):
        dtype = result_dtype(operand, *bounds)
        low, high = (None if bound is None else _literal(bound, dtype) for bound in (min, max))
        return emit("clamp", (cast(operand, dtype),), operand.shape, dtype, min=low, max=high)
    if min is not None:
        operand = maximum(operand, min)
    return operand if max is None else minimum(operand, max)


def gelu(x: ArrayLike, approximate: str = "none") -> Array:
    operand = _floats(x)
    return emit("gelu", (operand,), operand.shape, operand.dtype, approximate=approximate)


def leaky_relu(x: ArrayLike, slope: float = 0.01) -> Array:
    operand = _floats(x)
    return emit("leaky_relu", (operand,), operand.shape, operand.dtype, slope=slope)


def elu(x: ArrayLike, alpha: float = 1.0) -> Array:
    operand = _floats(x)
    return emit("elu", (operand,), operand.shape, operand.dtype, alpha=alpha)


def softplus(x: ArrayLike, beta: float = 1.0, threshold: float = 20.0) -> Array:
    operand = _floats(x)
    return emit("softplus", (operand,), operand.shape, operand.dtype, beta=beta, threshold=threshold)


def _floats(x: ArrayLike) -> Array:
    operand = as_array(x)
    return operand if operand.dtype.is_float else cast(operand, float32)


# --- Reductions ---


def _reduced(shape: tuple[int, ...], axes: Sequence[int], keepdims: bool) -> list[int]:
    return [1 if i in axes else size for i, size in enumerate(shape) if keepdims or i not in axes]


def _reduction(x: Array, op: str, axis: Axis, keepdims: bool, dtype: DType, /, **attributes: Any) -> Array:
    axes = axes_of(axis, x.ndim)
    shape = _reduced(x.shape, axes, keepdims)
    return emit(op, (x,), shape, dtype, dims=None if axis is None else axes, keepdim=keepdims, **attributes)


def _sum_like(op: str, x: ArrayLike, axis: Axis, dtype: Any, keepdims: bool) -> Array:
    operand = as_array(x)
    kind = DType.of(dtype) if dtype is not None else operand.dtype if operand.dtype.is_float else int64
    return _reduction(operand, op, axis, keepdims, kind, dtype=None if dtype is None else kind)


def sum(x: ArrayLike, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> Array:
    return _sum_like("sum", x, axis, dtype, keepdims)


def prod(x: ArrayLike, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> Array:
    return _sum_like("prod", x, axis, dtype, keepdims)


def mean(x: ArrayLike, axis: Axis = None, *, keepdims: bool = False) -> Array:
    operand = _floats(x)
    return _reduction(operand, "mean", axis, keepdims, operand.dtype)


def max(x: ArrayLike, axis: Axis = None, *, keepdims: bool = False) -> Array:
    operand = as_array(x)
    return _reduction(operand, "amax", axis, keepdims, operand.dtype)


def min(x: ArrayLike, axis: Axis = None, *, keepdims: bool = False) -> Array:
    operand = as_array(x)
    return _reduction(operand, "amin", axis, keepdims, operand.dtype)


def any(x: ArrayLike, axis: Axis = None, *, keepdims: bool = False) -> Array:
    return _reduction(as_array(x), "any", axis, keepdims, bool_)


def all(x: ArrayLike, axis: Axis = None, *, keepdims: bool = False) -> Array:
    return _reduction(as_array(x), "all", axis, keepdims, bool_)


def var(x: ArrayLike, axis: Axis = None, *, correction: int = 0, keepdims: bool = False) -> Array:
    operand = _floats(x)
    return _reduction(operand, "var", axis, keepdims, operand.dtype, correction=correction)


def std(x: ArrayLike, axis: Axis = None, *, correction: int = 0, keepdims: bool = False) -> Array:
    operand = _floats(x)
    return _reduction(operand, "std", axis, keepdims, operand.dtype, correction=correction)


def logsumexp(x: ArrayLike, axis: Axis = None, *, keepdims: bool = False) -> Array:
    operand = _floats(x)
    return _reduction(operand, "logsumexp", axis, keepdims, operand.dtype)


def _argument(op: str, x: ArrayLike, axis: int | None, keepdims: bool) -> Array:
    operand = as_array(x)
    axes = axes_of(axis, operand.ndim)
    shape = _reduced(operand.shape, axes, keepdims)
    return emit(op, (operand,), shape, int64, dim=None if axis is None else axes[0], keepdim=keepdims)


def argmax(x: ArrayLike, axis: int | None = None, *, keepdims: bool = False) -> Array:
    return _argument("argmax", x, axis, keepdims)


def argmin(x: ArrayLike, axis: int | None = None, *, keepdims: bool = False) -> Array:
    return _argument("argmin", x, axis, keepdims)


def cumulative_sum(x: ArrayLike, *, axis: int | None = None, dtype: Any = None) -> Array:
    return _cumulative("cumsum", x, axis, dtype)


def cumulative_prod(x: ArrayLike, *, axis: int | None = None, dtype: Any = None) -> Array:
    return _cumulative("cumprod", x, axis, dtype)


def _cumulative(op: str, x: ArrayLike, axis: int | None, dtype: Any) -> Array:
    operand = as_array(x)
    if axis is None:
        if operand.ndim != 1:
            raise trace_error(f"{op}: an axis is needed for {operand.ndim} dims")
        axis = 0
    kind = DType.of(dtype) if dtype is not None else operand.dtype if operand.dtype.is_float else int64
    dim = axis_of(axis, operand.ndim)
    return emit(op, (operand,), operand.shape, kind, dim=dim, dtype=None if dtype is None else kind)


def cumsum(x: ArrayLike, axis: int | None = None, *, dtype: Any = None) -> Array:
    return cumulative_sum(x, axis=axis, dtype=dtype)


def _sorted(x: ArrayLike, axis: int, descending: builtins.bool) -> list[Array]:
    operand = as_array(x)
    types = [(operand.dtype, operand.shape), (int64, operand.shape)]
    return emit_several("sort", (operand,), types, dim=axis_of(axis, operand.ndim), descending=descending)


def sort(x: ArrayLike, *, axis: int = -1, descending: builtins.bool = False) -> Array:
    return _sorted(x, axis, descending)[0]


def argsort(x: ArrayLike, *, axis: int = -1, descending: builtins.bool = False) -> Array:
    return _sorted(x, axis, descending)[1]


def topk(x: ArrayLike, k: int, *, axis: int = -1, largest: builtins.bool = True) -> tuple[Array, Array]:
    """Values and indices of the k largest, or smallest, in order."""
    operand = as_array(x)
    dim = axis_of(axis, operand.ndim)
    shape = tuple(k if i == dim else size for i, size in enumerate(operand.shape))
    values, indices = emit_several(
        "topk", (operand,), [(operand.dtype, shape), (int64, shape)], k=k, dim=dim, largest=largest
    )
    return values, indices


# --- Shapes ---


def reshape(x: ArrayLike, shape: int | Shape) -> Array:
    operand = as_array(x)
    sizes = [shape] if isinstance(shape, int) else [int(size) for size in shape]
    if -1 in sizes:
        rest = math.prod(size for size in sizes if size != -1)
        if sizes.count(-1) > 1 or rest == 0 or operand.size % rest:
            raise trace_error(f"{list(operand.shape)} can't be reshaped to {sizes}")
        sizes[sizes.index(-1)] = operand.size // rest
    if math.prod(sizes) != operand.size:
        raise trace_error(f"{list(operand.shape)} can't be reshaped to {sizes}")
    return operand if tuple(sizes) == operand.shape else emit("reshape", (operand,), sizes, operand.dtype, shape=sizes)


def ravel(x: ArrayLike) -> Array:
    return reshape(x, -1)


def permute_dims(x: ArrayLike, axes: Sequence[int]) -> Array:
    operand = as_array(x)
    order = [axis_of(axis, operand.ndim) for axis in axes]
    if sorted(order) != list(range(operand.ndim)):
        raise trace_error(f"{order} is no order of {operand.ndim} dims")
    return emit("permute", (operand,), [operand.shape[axis] for axis in order], operand.dtype, dims=order)


def transpose(x: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    operand = as_array(x)
    return permute_dims(operand, range(operand.ndim)[::-1] if axes is None else axes)


def matrix_transpose(x: ArrayLike) -> Array:
    return swapaxes(x, -1, -2)


def swapaxes(x: ArrayLike, axis1: int, axis2: int) -> Array:
    operand = as_array(x)
    order = list(range(operand.ndim))
    a, b = axis_of(axis1, operand.ndim), axis_of(axis2, operand.ndim)
    order[a], order[b] = order[b], order[a]
    return permute_dims(operand, order)


def moveaxis(x: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Array:
    operand = as_array(x)
    sources = [source] if isinstance(source, int) else list(source)
    targets = [destination] if isinstance(destination, int) else list(destination)
    moved = dict(zip((axis_of(t, operand.ndim) for t in targets), (axis_of(s, operand.ndim) for s in sources)))
    if len(moved) != len(sources) or len(set(moved.values())) != len(moved):
        raise trace_error(f"axes {sources} and {targets} do not correspond")
    rest = iter([axis for axis in range(operand.ndim) if axis not in moved.values()])
    return permute_dims(operand, [moved[i] if i in moved else next(rest) for i in range(operand.ndim)])


def expand_dims(x: ArrayLike, axis: int = 0) -> Array:
    operand = as_array(x)
    place = axis_of(axis, operand.ndim + 1)
    return emit("unsqueeze", (operand,), [*operand.shape[:place], 1, *operand.shape[place:]], operand.dtype, dim=place)


def squeeze(x: ArrayLike, axis: Axis = None) -> Array:
    operand = as_array(x)
    axes = [i for i, size in enumerate(operand.shape) if size == 1] if axis is None else axes_of(axis, operand.ndim)
    if builtins.any(operand.shape[i] != 1 for i in axes):
        raise trace_error(f"axes {axes} of {list(operand.shape)} are not all of size 1")
    return emit("squeeze", (operand,), _reduced(operand.shape, axes, False), operand.dtype, dims=axes)


def broadcast_to(x: ArrayLike, shape: Shape) -> Array:
    operand = as_array(x)
    sizes = [int(size) for size in shape]
    if broadcast_shapes(operand.shape, tuple(sizes)) != tuple(sizes):
        raise trace_error(f"{list(operand.shape)} does not broadcast to {sizes}")
    return emit("broadcast_to", (operand,), sizes, operand.dtype, shape=sizes)


def flip(x: ArrayLike, axis: Axis = None) -> Array:
    operand = as_array(x)
    return emit("flip", (operand,), operand.shape, operand.dtype, dims=axes_of(axis, operand.ndim))


def roll(x: ArrayLike, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Array:
    operand = as_array(x)
    shifts = [shift] if isinstance(shift, int) else list(shift)
    dims = None if axis is None else [axis_of(a, operand.ndim) for a in ([axis] if isinstance(axis, int) else axis)]
    if dims is not None and len(shifts) == 1:
        shifts = shifts * len(dims)
    return emit("roll", (operand,), operand.shape, operand.dtype, shifts=shifts, dims=dims)


def tile(x: ArrayLike, repeats: int | Sequence[int]) -> Array:
    operand = as_array(x)
    counts = [repeats] if isinstance(repeats, int) else list(repeats)
    rank = builtins.max(len(counts), operand.ndim)
    counts = [1] * (rank - len(counts)) + counts
    sizes = [1] * (rank - operand.ndim) + list(operand.shape)
    return emit("tile", (operand,), [a * b for a, b in zip(counts, sizes)], operand.dtype, repeats=counts)


def repeat(x: ArrayLike, repeats: int, *, axis: int | None = None) -> Array:
    operand = ravel(x) if axis is None else as_array(x)
    dim = axis_of(axis or 0, operand.ndim)
    shape = [size * repeats if i == dim else size for i, size in enumerate(operand.shape)]
    return emit("repeat_interleave", (operand,), shape, operand.dtype, repeats=repeats, dim=dim)


def concat(arrays: Sequence[ArrayLike], axis: int | None = 0) -> Array:
    operands = _same_dtype(arrays)
    if axis is None:
        operands, axis = [ravel(operand) for operand in operands], 0
    dim = axis_of(axis, operands[0].ndim)
    rest = [(*operand.shape[:dim], *operand.shape[dim + 1 :]) for operand in operands]
    if builtins.any(operand.ndim != operands[0].ndim for operand in operands) or len(set(rest)) > 1:
        raise trace_error(f"shapes {[list(o.shape) for o in operands]} can't be joined along axis {dim}")
    shape = list(operands[0].shape)
    shape[dim] = builtins.sum(operand.shape[dim] for operand in operands)
    return emit("concat", operands, shape, operands[0].dtype, dim=dim)


concatenate = concat


def stack(arrays: Sequence[ArrayLike], axis: int = 0) -> Array:
    operands = _same_dtype(arrays)
    if len({operand.shape for operand in operands}) > 1:
        raise trace_error(f"shapes {[list(o.shape) for o in operands]} can't be stacked: they differ")
    dim = axis_of(axis, operands[0].ndim + 1)
    shape = [*operands[0].shape[:dim], len(operands), *operands[0].shape[dim:]]
    return emit("stack", operands, shape, operands[0].dtype, dim=dim)


def _same_dtype(arrays: Sequence[ArrayLike]) -> list[Array]:
    if not arrays:
        raise trace_error("nothing to join")
    dtype = result_dtype(*arrays)
    return [cast(as_array(a, dtype), dtype) for a in arrays]


def split(x: ArrayLike, sections: int | Sequence[int], axis: int = 0) -> list[Array]:
    """NumPy's: `sections` equal parts, or parts that end at the given positions."""
    operand = as_array(x)
    dim = axis_of(axis, operand.ndim)
    size = operand.shape[dim]
    if isinstance(sections, int):
        if sections < 1 or size % sections:
            raise trace_error(f"{size} elements can't be split into {sections} equal parts")
        ends = list(range(size // sections, size + 1, size // sections)) if size else [0] * sections
    else:
        ends = [*sections, size]
    parts = []
    start = 0
    for end in ends:
        parts.append(operand[(slice(None),) * dim + (slice(start, end),)])
        start = end
    return parts


def pad(x: ArrayLike, width: Any, mode: str = "constant", constant_values: bool | int | float = 0) -> Array:
    """NumPy's, with the modes constant, edge, reflect and wrap."""
    operand = as_array(x)
    try:
        pairs = _np.broadcast_to(_np.asarray(width), (operand.ndim, 2)).tolist()
    except ValueError:
        raise trace_error(f"pad: {width} are no widths for {operand.ndim} dims") from None
    low, high = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    shape = [a + size + b for a, size, b in zip(low, operand.shape, high)]
    value = _literal(constant_values, operand.dtype) if mode == "constant" else None
    return emit("pad", (operand,), shape, operand.dtype, low=low, high=high, value=value, mode=mode)


def tril(x: ArrayLike, *, k: int = 0) -> Array:
    operand = as_array(x)
    return emit("tril", (operand,), operand.shape, operand.dtype, diagonal=k)


def triu(x: ArrayLike, *, k: int = 0) -> Array:
    operand = as_array(x)
    return emit("triu", (operand,), operand.shape, operand.dtype, diagonal=k)


def take(x: ArrayLike, indices: ArrayLike, *, axis: int | None = None) -> Array:
    operand = ravel(x) if axis is None else as_array(x)
    dim = axis_of(axis or 0, operand.ndim)
    return operand[(slice(None),) * dim + (as_array(indices),)]


def take_along_axis(x: ArrayLike, indices: ArrayLike, axis: int = -1) -> Array:
    operand, places = as_array(x), as_array(indices)
    dim = axis_of(axis, operand.ndim)
    if places.ndim != operand.ndim:
        raise trace_error(f"take_along_axis: {operand.ndim} dims, but {places.ndim} of the indices")
    rest = [tuple(1 if i == dim else size for i, size in enumerate(a.shape)) for a in (operand, places)]
    shape = list(broadcast_shapes(*rest))
    shape[dim] = places.shape[dim]
    return emit("take_along_dim", (operand, places), shape, operand.dtype, dim=dim)


# --- Products ---


def matmul(x1: ArrayLike, x2: ArrayLike) -> Array:
    dtype = result_dtype(x1, x2)
    a, b = cast(as_array(x1), dtype), cast(as_array(x2), dtype)
    if not a.ndim or not b.ndim:
        raise trace_error("matmul: takes no scalars")
    inner, other = a.shape[-1], b.shape[-2] if b.ndim > 1 else b.shape[0]
    if inner != other:
        raise trace_error(f"matmul: {list(a.shape)} and {list(b.shape)} do not fit: {inner} and {other}")
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = [*batch, *(a.shape[-2:-1] if a.ndim > 1 else ()), *(b.shape[-1:] if b.ndim > 1 else ())]
    return emit("matmul", (a, b), shape, dtype)


dot = matmul


def vecdot(x1: ArrayLike, x2: ArrayLike, *, axis: int = -1) -> Array:
    return sum(multiply(x1, x2), axis)


def linear(x: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None) -> Array:
    """Over the last dim of x; the weight is [out, in], as PyTorch's."""
    given = [x, weight] if bias is None else [x, weight, bias]
    operands = _same_dtype(given)
    if operands[1].ndim != 2 or not operands[0].ndim or operands[0].shape[-1] != operands[1].shape[1]:
        raise trace_error(f"linear: {list(operands[0].shape)} and a weight {list(operands[1].shape)} do not fit")
    return emit("linear", operands, [*operands[0].shape[:-1], operands[1].shape[0]], operands[0].dtype)


def einsum(equation: str, *arrays: ArrayLike) -> Array:
    operands = _same_dtype(arrays)
    try:
        shape = _einsum_shape(equation, [operand.shape for operand in operands])
    except (ValueError, KeyError) as error:
        raise trace_error(f"einsum '{equation}': {error}") from None
    return emit("einsum", operands, shape, operands[0].dtype, equation=equation.replace(" ", ""))


def _einsum_shape(equation: str, shapes: Sequence[tuple[int, ...]]) -> list[int]:
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise ValueError(f"{len(terms)} terms, {len(shapes)} operands")
    sizes: dict[str, int] = {}
    batch: tuple[int, ...] = ()
    letters: list[str] = []
    for term, shape in zip(terms, shapes):
        before, dots, after = term.partition("...")
        letters.extend(before + after)
        middle = len(shape) - len(before) - len(after)
        if middle < 0 or (middle and not dots):
            raise ValueError(f"'{term}' does not fit {len(shape)} dims")
        batch = broadcast_shapes(batch, shape[len(before) : len(before) + middle])
        for letter, size in zip(before + after, shape[: len(before)] + shape[len(before) + middle :]):
            known = sizes.setdefault(letter, size)
            if known != size and 1 not in (known, size):
                raise ValueError(f"'{letter}' is {known} and {size}")
            sizes[letter] = builtins.max(known, size)
    if not arrow:
        once = sorted(letter for letter in set(letters) if letters.count(letter) == 1)
        return [*batch, *(sizes[letter] for letter in once)]
    before, dots, after = result.partition("...")
    return [*(sizes[c] for c in before), *(batch if dots else ()), *(sizes[c] for c in after)]


# --- Neural networks ---


def softmax(x: ArrayLike, axis: int = -1) -> Array:
    operand = _floats(x)
    return emit("softmax", (operand,), operand.shape, operand.dtype, dim=axis_of(axis, operand.ndim))


def log_softmax(x: ArrayLike, axis: int = -1) -> Array:
    operand = _floats(x)
    return emit("log_softmax", (operand,), operand.shape, operand.dtype, dim=axis_of(axis, operand.ndim))


def layer_norm(
    x: ArrayLike, weight: ArrayLike | None = None, bias: ArrayLike | None = None, *, axis: Axis = -1, eps: float = 1e-5
) -> Array:
    operand = _floats(x)
    if bias is not None and weight is None:
        raise trace_error("layer_norm: a bias needs a weight")
    scales = [cast(as_array(a), operand.dtype) for a in (weight, bias) if a is not None]
    dims = axes_of(axis, operand.ndim)
    return emit("layer_norm", (operand, *scales), operand.shape, operand.dtype, dims=dims, eps=eps)


def rms_norm(x: ArrayLike, weight: ArrayLike | None = None, *, axis: Axis = -1, eps: float = 1e-5) -> Array:
    operand = _floats(x)
    scales = [] if weight is None else [cast(as_array(weight), operand.dtype)]
    dims = axes_of(axis, operand.ndim)
    return emit("rms_norm", (operand, *scales), operand.shape, operand.dtype, dims=dims, eps=eps)


def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    causal: builtins.bool = False,
) -> Array:
    """Scaled dot-product attention: q [..., l, d], k [..., s, d], v [..., s, e]."""
    operands = _same_dtype([q, k, v])
    shape = [*operands[0].shape[:-1], operands[2].shape[-1]]
    if mask is not None:
        masked = as_array(mask)
        operands.append(masked if masked.dtype is bool_ else cast(masked, operands[0].dtype))
    return emit("attention", operands, shape, operands[0].dtype, scale=scale, causal=causal)


def embedding(table: ArrayLike, indices: ArrayLike) -> Array:
    rows, places = as_array(table), as_array(indices)
    return emit("embedding", (rows, places), [*places.shape, *rows.shape[1:]], rows.dtype)


def one_hot(indices: ArrayLike, classes: int, dtype: Any = int64) -> Array:
    places = as_array(indices)
    kind = DType.of(dtype)
    return emit("one_hot", (places,), [*places.shape, classes], kind, classes=classes, dtype=kind)
