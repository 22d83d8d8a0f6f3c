"""Where a tensor lies, of whatever package: NumPy, PyTorch, or anything that speaks DLPack or __cuda_array_interface__.

Nothing is copied, and none of those packages is imported. Pipeline: tensor -> view_of -> TensorView -> tensors, launch.
Thread-safety: pure functions. Errors: TypeError. Tested by tests/python/test_tensors.py
"""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any

import numpy as np

from fuseline.dtypes import DType


@dataclasses.dataclass(frozen=True)
class TensorView:
    """Memory of a tensor. Valid while `owner` lives."""

    pointer: int  # of the first element
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None  # in elements; None: dense row-major
    cuda_device: int | None  # None: memory of the host
    owner: Any


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    """DLTensor of dlpack.h; the first member of DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


# (code, bits) of DLDataType.
_DLPACK_DTYPES = {
    (2, 64): DType.F64, (2, 32): DType.F32, (2, 16): DType.F16, (4, 16): DType.BF16,
    (10, 8): DType.F8E4M3, (12, 8): DType.F8E5M2,
    (0, 64): DType.I64, (0, 32): DType.I32, (0, 16): DType.I16, (0, 8): DType.I8, (1, 8): DType.U8, (6, 8): DType.BOOL,
}  # fmt: skip
# Types of DLDevice: CPU and pinned memory; CUDA and managed memory.
_HOST_DEVICES = (1, 3)
_CUDA_DEVICES = (2, 13)

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def view_of(tensor: Any, stream: int | None = None) -> TensorView:
    """The memory of `tensor`. Raises TypeError where it is no tensor, or of a dtype or device without counterpart.

    `stream`: on which CUDA memory is to be used, which DLPack's producers then make it ready for; None: the legacy
    default stream.
    """
    if isinstance(tensor, np.ndarray):
        return _of_numpy(tensor)
    if type(tensor).__module__.partition(".")[0] == "torch" and hasattr(tensor, "data_ptr"):
        return _of_torch(tensor)
    interface = getattr(tensor, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_cuda_interface(tensor, interface)
    if hasattr(tensor, "__dlpack__"):
        return _of_dlpack(tensor, stream)
    raise TypeError(f"{type(tensor).__name__} is no tensor: it has neither DLPack nor __cuda_array_interface__")


def _of_numpy(array: np.ndarray[Any, Any]) -> TensorView:
    dtype = DType.of(array.dtype)
    if not array.dtype.isnative:
        raise TypeError(f"an array of {array.dtype} is in the other byte order")
    strides = None
    if not array.flags.c_contiguous:
        if any(stride % dtype.itemsize for stride in array.strides):
            raise TypeError("an array whose strides are no multiples of its element size")
        strides = tuple(stride // dtype.itemsize for stride in array.strides)
    return TensorView(array.ctypes.data, dtype, array.shape, strides, None, array)


def _of_torch(tensor: Any) -> TensorView:
    kind = tensor.device.type
    if kind not in ("cpu", "cuda"):
        raise TypeError(f"a tensor on the device '{tensor.device}'")
    strides = None if tensor.is_contiguous() else tuple(tensor.stride())
    device = (tensor.device.index or 0) if kind == "cuda" else None
    return TensorView(tensor.data_ptr(), DType.of(tensor.dtype), tuple(tensor.shape), strides, device, tensor)


def _of_cuda_interface(tensor: Any, interface: dict[str, Any]) -> TensorView:
    dtype = DType.of(np.dtype(interface["typestr"]))
    strides = interface.get("strides")
    if strides is not None:
        strides = tuple(stride // dtype.itemsize for stride in strides)
    device = 0
    if hasattr(tensor, "__dlpack_device__"):
        device = int(tensor.__dlpack_device__()[1])
    return TensorView(int(interface["data"][0] or 0), dtype, tuple(interface["shape"]), strides, device, tensor)


def _of_dlpack(tensor: Any, stream: int | None) -> TensorView:
    on_cuda = hasattr(tensor, "__dlpack_device__") and int(tensor.__dlpack_device__()[0]) in _CUDA_DEVICES
    # The capsule is never marked as used, so it frees what it holds when it goes itself. To DLPack 1 is the legacy
    # default stream, and 0 is nothing.
    capsule = tensor.__dlpack__(stream=stream or 1) if on_cuda else tensor.__dlpack__()
    managed = _Tensor.from_address(_get_pointer(capsule, b"dltensor"))
    dtype = _DLPACK_DTYPES.get((managed.dtype.code, managed.dtype.bits))
    if dtype is None or managed.dtype.lanes != 1:
        raise TypeError(f"no dtype corresponds to DLPack's ({managed.dtype.code}, {managed.dtype.bits})")
    device = None
    if managed.device.type in _CUDA_DEVICES:
        device = int(managed.device.id)
    elif managed.device.type not in _HOST_DEVICES:
        raise TypeError(f"a tensor on DLPack's device {managed.device.type}")
    rank = managed.ndim
    strides = tuple(managed.strides[:rank]) if managed.strides else None
    pointer = (managed.data or 0) + managed.byte_offset
    return TensorView(pointer, dtype, tuple(managed.shape[:rank]), strides, device, (tensor, capsule))
