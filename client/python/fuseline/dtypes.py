"""Element types, and their counterparts in NumPy and PyTorch.

Thread-safety: immutable. Tested by tests/python/test_dtypes.py
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np


class DType(enum.Enum):
    """An element type. The value is its name in the text form of graphs."""

    F64 = "f64"
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    F8E4M3 = "f8e4m3"
    F8E5M2 = "f8e5m2"
    I64 = "i64"
    I32 = "i32"
    I16 = "i16"
    I8 = "i8"
    U8 = "u8"
    BOOL = "bool"

    def __str__(self) -> str:
        return self.value

    def __repr__(self) -> str:
        return f"fuseline.{self.value}" if self is not DType.BOOL else "fuseline.bool_"

    @property
    def number(self) -> int:
        """The number in the protocol (fuseline.v1.DataType)."""
        return _NUMBERS[self]

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return _SIZES[self]

    @property
    def is_float(self) -> bool:
        return self.value[0] in "f" or self is DType.BF16

    @property
    def is_integer(self) -> bool:
        return self.value[0] in "iu"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The dtype of NumPy arrays. For bf16 and the f8 types it comes from the package ml_dtypes."""
        plain = _TO_NUMPY.get(self)
        if plain is not None:
            return plain
        try:
            import ml_dtypes
        except ImportError:
            raise TypeError(
                f"NumPy arrays of {self.value} need the package ml_dtypes (pip install ml_dtypes)"
            ) from None
        return np.dtype(getattr(ml_dtypes, _ML_NAMES[self]))

    @staticmethod
    def from_number(number: int) -> DType:
        """Of a number of the protocol. Raises ValueError."""
        try:
            return _BY_NUMBER[number]
        except KeyError:
            raise ValueError(f"unknown dtype number {number}") from None

    @staticmethod
    def of(value: Any) -> DType:
        """From a DType, its name ("f32"), NumPy's name or dtype ("float32"), or PyTorch's dtype. Raises TypeError."""
        if isinstance(value, DType):
            return value
        try:
            known = _BY_NAME.get(value)
        except TypeError:
            known = None
        if known is None:
            if isinstance(value, type) and value in (float, int, bool):
                known = {float: DType.F64, int: DType.I64, bool: DType.BOOL}[value]
            elif type(value).__module__ == "torch":
                known = _BY_NAME.get(str(value).removeprefix("torch."))
            else:
                try:
                    known = _BY_NAME.get(np.dtype(value).name)
                except TypeError:
                    known = None
        if known is None:
            raise TypeError(f"no dtype corresponds to {value!r}")
        return known


_NUMBERS = {dtype: number for number, dtype in enumerate(DType, start=1)}
_BY_NUMBER = {number: dtype for dtype, number in _NUMBERS.items()}
_SIZES = {
    DType.F64: 8, DType.F32: 4, DType.F16: 2, DType.BF16: 2, DType.F8E4M3: 1, DType.F8E5M2: 1,
    DType.I64: 8, DType.I32: 4, DType.I16: 2, DType.I8: 1, DType.U8: 1, DType.BOOL: 1,
}  # fmt: skip
_NUMPY_NAMES = {
    DType.F64: "float64", DType.F32: "float32", DType.F16: "float16", DType.I64: "int64", DType.I32: "int32",
    DType.I16: "int16", DType.I8: "int8", DType.U8: "uint8", DType.BOOL: "bool",
}  # fmt: skip
_TO_NUMPY: dict[DType, np.dtype[Any]] = {dtype: np.dtype(name) for dtype, name in _NUMPY_NAMES.items()}
# The names that ml_dtypes and PyTorch use.
_ML_NAMES = {DType.BF16: "bfloat16", DType.F8E4M3: "float8_e4m3fn", DType.F8E5M2: "float8_e5m2"}
_BY_NAME: dict[Any, DType] = {dtype.value: dtype for dtype in DType}
_BY_NAME.update({name: dtype for dtype, name in (_NUMPY_NAMES | _ML_NAMES).items()})
