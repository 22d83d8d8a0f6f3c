"""Arrays that stand for values of a graph while a Python function is traced, and the rules that they follow.

An operation on Arrays adds a node; its dtype and shape are worked out here, declared in the graph, and so compared with
the server's own. Dtypes follow PyTorch's rule: of two arrays, the wider kind (bool, integer, float) decides, then the
wider type, and f16 with bf16 gives f32; a Python number takes the array's dtype unless its kind is wider.

Pipeline: fuseline.numpy, operators -> Array -> Graph. Thread-safety: thread-compatible; each thread has its own trace.
Errors: InvalidArgumentError. Tested by tests/python/test_tracing.py
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from typing import Any, TypeGuard, Union

import numpy as np

from fuseline.dtypes import DType
from fuseline.errors import InvalidArgumentError
from fuseline.graph import Graph, TensorType, Value
from fuseline.tensors import host_tensor

ArrayLike = Union["Array", bool, int, float, Any]

_KIND = {DType.BOOL: 0}
_KIND.update({dtype: 1 for dtype in DType if dtype.is_integer})
_KIND.update({dtype: 2 for dtype in DType if dtype.is_float})
_WIDTH = {dtype: dtype.itemsize for dtype in DType}


class Trace:
    """A graph under construction, and the constants that it already has."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._constants: dict[int, tuple[Any, Array]] = {}

    def constant(self, value: Any) -> Array:
        """An array of the program that becomes part of the graph. The same one only once."""
        known = self._constants.get(id(value))
        if known is not None:
            return known[1]
        try:
            tensor = host_tensor(value)
        except (TypeError, ValueError) as error:
            raise trace_error(f"no array: {error}") from None
        array = Array(
            self,
            self.graph.constant_bytes(tensor.array.tobytes(), tensor.dtype, tensor.shape),
            tensor.dtype,
            tensor.shape,
        )
        self._constants[id(value)] = (value, array)  # kept, so that the id stays taken
        return array


_current: contextvars.ContextVar[Trace | None] = contextvars.ContextVar("fuseline_trace", default=None)


@contextlib.contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)


def current_trace() -> Trace:
    trace = _current.get()
    if trace is None:
        raise trace_error("this works only inside a function that is traced: see fuseline.jit")
    return trace


def trace_error(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(message, reason="GRAPH_TYPE_MISMATCH")


class Array:
    """A value of the graph that is traced. Has NumPy's operators; functions are in fuseline.numpy."""

    __slots__ = ("_trace", "_value", "dtype", "shape")
    # Before NumPy's own: array * Array comes here.
    __array_priority__ = 1000
    __array_ufunc__ = None

    def __init__(self, trace: Trace, value: Value, dtype: DType, shape: tuple[int, ...]) -> None:
        self._trace = trace
        self._value = value
        self.dtype = dtype
        self.shape = shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        size = 1
        for dim in self.shape:
            size *= dim
        return size

    @property
    def T(self) -> Array:
        return _functions().permute_dims(self, range(self.ndim)[::-1])

    @property
    def mT(self) -> Array:
        return _functions().swapaxes(self, -1, -2)

    @property
    def value(self) -> Value:
        return self._value

    @property
    def trace(self) -> Trace:
        return self._trace

    def __repr__(self) -> str:
        return f"<traced {self._value}: {self.dtype}{list(self.shape)}>"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        raise trace_error(
            "a traced array has no truth value: use fuseline.numpy.where, or arguments that are no arrays"
        )

    def __float__(self) -> float:
        raise trace_error("a traced array has no value yet")

    __int__ = __index__ = __complex__ = __float__

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise trace_error("a traced array has no value yet: use fuseline.numpy's functions instead of NumPy's")

    def __getitem__(self, key: Any) -> Array:
        from fuseline.indexing import index

        return index(self, key)

    # Methods that NumPy's arrays have.

    def astype(self, dtype: Any) -> Array:
        return _functions().astype(self, dtype)

    def reshape(self, *shape: Any) -> Array:
        return _functions().reshape(self, shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)

    def transpose(self, *axes: int) -> Array:
        return _functions().permute_dims(self, axes or range(self.ndim)[::-1])

    def sum(self, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> Array:
        return _functions().sum(self, axis, dtype=dtype, keepdims=keepdims)

    def mean(self, axis: Any = None, *, keepdims: bool = False) -> Array:
        return _functions().mean(self, axis, keepdims=keepdims)

    def max(self, axis: Any = None, *, keepdims: bool = False) -> Array:
        return _functions().max(self, axis, keepdims=keepdims)

    def min(self, axis: Any = None, *, keepdims: bool = False) -> Array:
        return _functions().min(self, axis, keepdims=keepdims)

    # Operators.

    def __neg__(self) -> Array:
        return _functions().negative(self)

    def __pos__(self) -> Array:
        return self

    def __abs__(self) -> Array:
        return _functions().abs(self)

    def __invert__(self) -> Array:
        return _functions().bitwise_invert(self)


def _functions() -> Any:
    import fuseline.numpy

    return fuseline.numpy


def _add_operators() -> None:
    names = {
        "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
        "mod": "remainder", "pow": "pow", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or",
        "xor": "bitwise_xor", "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
    }  # fmt: skip
    for operator, name in names.items():

        def forward(self: Array, other: Any, name: str = name) -> Array:
            return getattr(_functions(), name)(self, other)

        def backward(self: Array, other: Any, name: str = name) -> Array:
            return getattr(_functions(), name)(other, self)

        setattr(Array, f"__{operator}__", forward)
        setattr(Array, f"__r{operator}__", backward)
    comparisons = {
        "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"
    }  # fmt: skip
    for operator, name in comparisons.items():

        def compare(self: Array, other: Any, name: str = name) -> Array:
            return getattr(_functions(), name)(self, other)

        setattr(Array, f"__{operator}__", compare)
    Array.__hash__ = object.__hash__  # type: ignore[method-assign]


_add_operators()


# --- Rules ---


def is_number(value: Any) -> TypeGuard[bool | int | float]:
    return isinstance(value, (bool, int, float)) and not isinstance(value, np.generic)


def as_array(value: ArrayLike, dtype: DType | None = None) -> Array:
    """An Array as it is; a number or an array of the program as a constant."""
    if isinstance(value, Array):
        return value
    trace = current_trace()
    if is_number(value):
        kind = dtype if dtype is not None else number_dtype(value)
        return emit("full", (), (), kind, shape=[], value=value, dtype=kind)
    return trace.constant(value)


def number_dtype(value: bool | int | float) -> DType:
    """Of a Python number alone."""
    return DType.BOOL if isinstance(value, bool) else DType.I64 if isinstance(value, int) else DType.F32


def result_dtype(*values: ArrayLike) -> DType:
    """The common dtype of arrays and Python numbers."""
    found: DType | None = None
    for value in values:
        if not is_number(value):
            dtype = value if isinstance(value, DType) else as_array(value).dtype
            found = dtype if found is None else _promote(found, dtype)
    for value in values:
        if is_number(value):
            number = number_dtype(value)
            if found is None or _KIND[number] > _KIND[found]:
                found = number
    assert found is not None
    return found


def _promote(a: DType, b: DType) -> DType:
    if a is b:
        return a
    if _KIND[a] != _KIND[b]:
        return a if _KIND[a] > _KIND[b] else b
    if {a, b} & {DType.F8E4M3, DType.F8E5M2}:
        raise trace_error(f"{a} and {b} have no common dtype: cast one")
    if _WIDTH[a] != _WIDTH[b]:
        return a if _WIDTH[a] > _WIDTH[b] else b
    return DType.I16 if DType.U8 in (a, b) else DType.F32  # u8 with i8; f16 with bf16


def cast(array: Array, dtype: DType) -> Array:
    return array if array.dtype is dtype else emit("cast", (array,), array.shape, dtype, dtype=dtype)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        raise trace_error(f"shapes {' and '.join(str(list(shape)) for shape in shapes)} do not broadcast") from None


def axis_of(axis: int, rank: int) -> int:
    """Not negative. Raises where there is no such axis."""
    number = int(axis)
    if not -rank <= number < rank:
        raise trace_error(f"axis {number} is out of range for {rank} dims")
    return number % rank if rank else 0


def axes_of(axis: int | Sequence[int] | None, rank: int) -> list[int]:
    """Sorted; None: all."""
    if axis is None:
        return list(range(rank))
    axes = [axis_of(a, rank) for a in ([axis] if isinstance(axis, int) else axis)]
    if len(set(axes)) != len(axes):
        raise trace_error(f"axes {axis} are repeated")
    return sorted(axes)


def emit(op: str, operands: Sequence[Any], shape: Sequence[int], dtype: DType, /, **attributes: Any) -> Array:
    """Adds a node with one result, of the declared type."""
    return emit_several(op, operands, [(dtype, tuple(shape))], **attributes)[0]


def emit_several(
    op: str, operands: Sequence[Any], types: Sequence[tuple[DType, tuple[int, ...]]], /, **attributes: Any
) -> list[Array]:
    trace = next((operand.trace for operand in operands if isinstance(operand, Array)), None) or current_trace()
    values = [operand.value if isinstance(operand, Array) else operand for operand in operands]
    declared = [TensorType(dtype, shape) for dtype, shape in types]
    results = trace.graph.op(op, *values, results=len(types), types=declared, **attributes)
    if len(types) == 1:
        results = (results,)
    return [Array(trace, value, dtype, shape) for value, (dtype, shape) in zip(results, types)]
