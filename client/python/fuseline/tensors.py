"""Tensors on their way to the server and back.

Pipeline: NumPy array, DLPack, number -> host_tensor -> HostTensor -> message; message -> from_proto -> NumPy array.
Thread-safety: pure functions. Errors: TypeError, ValueError; InternalError for what a server sends. Tested by
tests/python/test_tensors.py
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from fuseline.dlpack import view_of
from fuseline.dtypes import DType
from fuseline.errors import InternalError

# Stand in for the dtypes that NumPy lacks where only bytes count.
_BITS: dict[int, np.dtype[Any]] = {1: np.dtype("u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4"), 8: np.dtype("<u8")}


@dataclasses.dataclass(frozen=True)
class HostTensor:
    """A tensor in memory of the host. `array` is dense row-major; its own dtype may be a stand-in of the same size."""

    dtype: DType
    array: np.ndarray[Any, Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    def bytes_view(self) -> memoryview:
        return self.array.reshape(-1).view(np.uint8).data


class _Interface:
    """Memory as an array of NumPy's, whose owner it keeps."""

    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__array_interface__ = interface
        self.owner = owner


def host_tensor(value: Any, dtype: DType | None = None) -> HostTensor:
    """What may be given for an input. `dtype`: of plain numbers and lists. Copies only what is not dense row-major."""
    if isinstance(value, (bool, int, float, list, tuple)):
        array = np.asarray(value, dtype=None if dtype is None else dtype.numpy)
        return HostTensor(DType.of(array.dtype), np.ascontiguousarray(array).reshape(array.shape))
    if isinstance(value, np.generic):
        value = np.asarray(value)
    view = view_of(value)
    if view.cuda_device is not None:
        raise TypeError(f"a tensor on CUDA device {view.cuda_device}: bring it to the CPU, or launch locally")
    if isinstance(value, np.ndarray):
        array = value if value.flags.c_contiguous else value.copy(order="C")
        return HostTensor(view.dtype, array)
    bits = _BITS[view.dtype.itemsize]
    if math.prod(view.shape) == 0:
        return HostTensor(view.dtype, np.empty(view.shape, bits))
    strides = None if view.strides is None else tuple(s * view.dtype.itemsize for s in view.strides)
    interface = {
        "version": 3, "typestr": bits.str, "shape": view.shape, "strides": strides, "data": (view.pointer, True)
    }  # fmt: skip
    array = np.asarray(_Interface(interface, view.owner))
    return HostTensor(view.dtype, array if array.flags.c_contiguous else array.copy(order="C"))


def fill_tensor(tensor: HostTensor, proto: Any, with_data: bool = True) -> None:
    """Writes a fuseline.v1.Tensor."""
    proto.dtype = tensor.dtype.number
    proto.shape.extend(tensor.shape)
    if with_data:
        proto.data = tensor.array.tobytes()


def empty_like_proto(proto: Any) -> np.ndarray[Any, Any]:
    """A new array of the type that a message tells. Raises InternalError where it tells none."""
    try:
        dtype = DType.from_number(proto.dtype)
    except ValueError as error:
        raise InternalError(f"the server sent a tensor of {error}") from None
    if any(size < 0 for size in proto.shape):
        raise InternalError("the server sent a tensor with a negative size")
    return np.empty(tuple(proto.shape), dtype.numpy)


def from_proto(proto: Any) -> np.ndarray[Any, Any]:
    """The array of a fuseline.v1.Tensor."""
    array = empty_like_proto(proto)
    if array.nbytes != len(proto.data):
        raise InternalError(f"the server sent a tensor of {len(proto.data)} bytes where its shape has {array.nbytes}")
    if array.nbytes > 0:
        writable_bytes(array)[:] = proto.data
    return array


def writable_bytes(array: np.ndarray[Any, Any]) -> memoryview:
    """The bytes of a dense array, to be written."""
    return array.reshape(-1).view(np.uint8).data
