"""Launchers on PyTorch's tensors: on the caller's stream, with outputs from PyTorch's allocator, and little per call.

Imported only where PyTorch is. Pipeline: Launcher -> torch_call -> tensors in, tensors out. Thread-safety: thread-safe.
Tested by tests/python/test_launch_torch.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from fuseline.dtypes import DType
from fuseline.errors import InvalidArgumentError
from fuseline.graph import dense_strides

if TYPE_CHECKING:
    from fuseline.launch import Launcher

_TORCH_NAMES = {
    DType.F64: "float64", DType.F32: "float32", DType.F16: "float16", DType.BF16: "bfloat16",
    DType.F8E4M3: "float8_e4m3fn", DType.F8E5M2: "float8_e5m2", DType.I64: "int64", DType.I32: "int32",
    DType.I16: "int16", DType.I8: "int8", DType.U8: "uint8", DType.BOOL: "bool",
}  # fmt: skip


def torch_dtype(dtype: DType) -> Any:
    """PyTorch's counterpart."""
    return getattr(torch, _TORCH_NAMES[dtype])


def current_stream(ordinal: int) -> int:
    """PyTorch's current stream on a device, as a number."""
    return int(torch.cuda.current_stream(ordinal).cuda_stream)


def torch_call(launcher: Launcher) -> Callable[[tuple[Any, ...], int | None], Any]:
    """A function of a tuple of tensors and a stream (None: PyTorch's current one)."""
    ordinal = launcher.device.cuda_ordinal
    device = torch.device("cpu") if ordinal is None else torch.device("cuda", ordinal)
    wanted = [
        (
            torch_dtype(s.dtype),
            torch.Size(s.shape),
            s.strides,
            s.alignment_bytes,
            s.strides == dense_strides(s.shape),
            s,
        )
        for s in launcher.inputs
    ]
    made = [(torch.Size(s.shape), torch_dtype(s.dtype)) for s in launcher.outputs]
    single = len(made) == 1
    launch = launcher.launch
    empty = torch.empty
    # One call of C where PyTorch has it; a Stream object costs more than the launch.
    raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None) or current_stream

    def lay_out(tensor: Any, dtype: Any, shape: Any, strides: Any, sig: Any, stream: int | None) -> Any:
        if not isinstance(tensor, torch.Tensor):
            raise InvalidArgumentError(
                f"'{sig.name}' is no PyTorch tensor, where the first input is one",
                reason="TENSOR_MISMATCH",
                subject=sig.name,
            )
        if tensor.dtype != dtype or tensor.shape != shape:
            raise InvalidArgumentError(
                f"'{sig.name}' is {tensor.dtype}{list(tensor.shape)}, not {sig}",
                reason="TENSOR_MISMATCH",
                subject=sig.name,
            )
        if tensor.device != device:
            raise InvalidArgumentError(
                f"'{sig.name}' is on {tensor.device}, the artifact on {device}",
                reason="TENSOR_MISMATCH",
                subject=sig.name,
            )
        copy = torch.empty_strided(shape, strides, dtype=dtype, device=device)
        if stream is None or ordinal is None:
            copy.copy_(tensor)
        else:
            with torch.cuda.stream(torch.cuda.ExternalStream(stream, device=device)):
                copy.copy_(tensor)
        return copy

    def call(tensors: tuple[Any, ...], stream: int | None) -> Any:
        pointers = []
        held: list[Any] = []
        for tensor, (dtype, shape, strides, alignment, dense, sig) in zip(tensors, wanted):
            if (
                tensor.dtype is not dtype
                or tensor.shape != shape
                or tensor.device != device
                or not (tensor.is_contiguous() if dense else tensor.stride() == strides)
                or tensor.data_ptr() % alignment
            ):
                tensor = lay_out(tensor, dtype, shape, strides, sig, stream)
                # PyTorch's allocator gives the memory of a copy away in the stream's order, so it may go after the
                # launch; not before.
                held.append(tensor)
            pointers.append(tensor.data_ptr())
        outputs = tuple([empty(shape, dtype=dtype, device=device) for shape, dtype in made])
        number = 0 if ordinal is None else raw_stream(ordinal) if stream is None else stream
        launch(pointers, [output.data_ptr() for output in outputs], stream=number)
        return outputs[0] if single else outputs

    return call
