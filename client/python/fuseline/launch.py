"""Local launch: compiled graphs on the caller's own device, stream and tensors, without a server and without copies.

    run = compiled.launcher()              # on the device that the artifact is for
    y = run(x, w)                          # NumPy arrays on the CPU; PyTorch's or other CUDA tensors on a GPU
    run.launch([x_pointer, w_pointer], [y_pointer], stream=stream)

Everything that can be checked is checked when the artifact is loaded; a call is one call of libfuseline_launch.so
(client/launch/fuseline_launch.h), which the wheel carries where it was built with it.

On CUDA, launches are asynchronous, ordered by `stream` (a cudaStream_t as a number; by default PyTorch's current stream
for PyTorch's tensors, else the legacy default stream), and may be captured into CUDA graphs.

Pipeline: artifact -> Device.load -> Launcher -> tensors. Ownership: a Launcher keeps its device. Thread-safety:
thread-safe. Errors: fuseline.Error's classes. Tested by tests/python/test_launch.py
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import weakref
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

import numpy as np

from fuseline.dlpack import TensorView, view_of
from fuseline.dtypes import DType
from fuseline.errors import Error, FailedPreconditionError, InvalidArgumentError, make_error
from fuseline.graph import dense_strides
from fuseline.signature import Signature

_LIBRARY = "libfuseline_launch.so"
_ABI_VERSION = 1
# google.rpc.Code, as far as the library answers it.
_CODES = {
    3: "INVALID_ARGUMENT", 8: "RESOURCE_EXHAUSTED", 9: "FAILED_PRECONDITION", 12: "UNIMPLEMENTED", 13: "INTERNAL",
    14: "UNAVAILABLE", 15: "DATA_LOSS",
}  # fmt: skip


class _TensorInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("size_bytes", ctypes.c_int64),
        ("alignment_bytes", ctypes.c_int64),
    ]


class _LoadOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("fingerprint", ctypes.c_char_p), ("sha256", ctypes.c_char_p)]


# name -> result, arguments; pointers as void*, which takes None, numbers and arrays.
_P = ctypes.c_void_p
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "fuseline_abi_version": (ctypes.c_int32, []),
    "fuseline_version": (ctypes.c_char_p, []),
    "fuseline_last_error": (ctypes.c_char_p, []),
    "fuseline_last_error_reason": (ctypes.c_char_p, []),
    "fuseline_cuda_device_count": (ctypes.c_int32, []),
    "fuseline_open_cuda": (ctypes.c_int32, [ctypes.c_int32, _P]),
    "fuseline_open_cpu": (ctypes.c_int32, [ctypes.c_int32, _P]),
    "fuseline_device_close": (None, [_P]),
    "fuseline_device_name": (ctypes.c_char_p, [_P]),
    "fuseline_device_target": (ctypes.c_char_p, [_P]),
    "fuseline_device_memory_bytes": (ctypes.c_int64, [_P]),
    "fuseline_device_driver_version": (ctypes.c_int32, [_P]),
    "fuseline_load": (ctypes.c_int32, [_P, ctypes.c_char_p, ctypes.c_size_t, _P, _P]),
    "fuseline_callable_release": (None, [_P]),
    "fuseline_callable_input_count": (ctypes.c_int32, [_P]),
    "fuseline_callable_output_count": (ctypes.c_int32, [_P]),
    "fuseline_callable_input": (ctypes.c_int32, [_P, ctypes.c_int32, _P]),
    "fuseline_callable_output": (ctypes.c_int32, [_P, ctypes.c_int32, _P]),
    "fuseline_callable_arena_bytes": (ctypes.c_int64, [_P]),
    "fuseline_callable_step_count": (ctypes.c_int32, [_P]),
    "fuseline_callable_check_count": (ctypes.c_int32, [_P]),
    "fuseline_launch": (ctypes.c_int32, [_P, _P, _P, _P, _P]),
    "fuseline_callable_prepare_stream": (ctypes.c_int32, [_P, _P, ctypes.c_int32]),
    "fuseline_callable_check": (ctypes.c_int32, [_P, _P]),
    "fuseline_callable_forget_stream": (ctypes.c_int32, [_P, _P]),
}


@functools.cache
def library() -> ctypes.CDLL:
    """The launch library: $FUSELINE_LAUNCH_LIBRARY, else the package's own. Raises FailedPreconditionError."""
    given = os.environ.get("FUSELINE_LAUNCH_LIBRARY")
    path = given or str(resources.files("fuseline").joinpath(_LIBRARY))
    if not os.path.isfile(path):
        raise FailedPreconditionError(
            f"local launch needs {_LIBRARY}, which this package was built without: build the target fuseline_launch, "
            "then install the package again or set FUSELINE_LAUNCH_LIBRARY",
            reason="TARGET_NOT_AVAILABLE",
            subject=_LIBRARY,
        )
    try:
        loaded = ctypes.CDLL(path)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(loaded, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError) as error:
        raise FailedPreconditionError(
            f"{path} can't be used: {error}", reason="TARGET_NOT_AVAILABLE", subject=_LIBRARY
        ) from None
    if loaded.fuseline_abi_version() < _ABI_VERSION:
        raise FailedPreconditionError(f"{path} is too old", reason="TARGET_NOT_AVAILABLE", subject=_LIBRARY)
    return loaded


def is_available() -> bool:
    """Whether the launch library is there."""
    try:
        library()
    except FailedPreconditionError:
        return False
    return True


def _last_error(code: int) -> Error:
    lib = library()
    text = (lib.fuseline_last_error() or b"").decode(errors="replace")
    reason = (lib.fuseline_last_error_reason() or b"").decode(errors="replace")
    return make_error(_CODES.get(code, "UNKNOWN"), text, reason=reason or "UNSPECIFIED")


def _check(code: int) -> None:
    if code != 0:
        raise _last_error(code)


class Device:
    """A GPU, in the process's primary context, or the CPU. Made by cpu_device, cuda_device, device_for."""

    def __init__(self, handle: int, cuda_ordinal: int | None) -> None:
        lib = library()
        self._handle = handle
        self._finalizer = weakref.finalize(self, lib.fuseline_device_close, handle)
        # Threads and contexts need not be taken down when the process ends, and its order of doing so is not ours.
        self._finalizer.atexit = False
        self.cuda_ordinal = cuda_ordinal
        self.name: str = lib.fuseline_device_name(handle).decode()
        self.target: str = lib.fuseline_device_target(handle).decode()
        """What to compile for: "cuda:sm_90", "cpu"."""
        self.memory_bytes: int = lib.fuseline_device_memory_bytes(handle)
        self.driver_version: int = lib.fuseline_device_driver_version(handle)

    def __repr__(self) -> str:
        return f"<fuseline device {self.name!r}, {self.target}>"

    def load(
        self,
        artifact: bytes,
        fingerprint: bytes | None = None,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
    ) -> Launcher:
        """Loads a serialised artifact. `fingerprint`: what it must have. Names are for messages: the graph's own."""
        handle = ctypes.c_void_p()
        options = _LoadOptions(ctypes.sizeof(_LoadOptions), fingerprint, None)
        _check(
            library().fuseline_load(
                self._handle, artifact, len(artifact), ctypes.addressof(options), ctypes.addressof(handle)
            )
        )
        assert handle.value is not None
        return Launcher(self, handle.value, input_names, output_names)


@functools.cache
def cpu_device(threads: int = 0) -> Device:
    """The CPU: up to `threads` threads for a call, 0: one for each core. One device for each number of threads."""
    handle = ctypes.c_void_p()
    _check(library().fuseline_open_cpu(threads, ctypes.addressof(handle)))
    assert handle.value is not None
    return Device(handle.value, None)


@functools.cache
def cuda_device(ordinal: int = 0) -> Device:
    """A GPU, by the number that CUDA gives it."""
    handle = ctypes.c_void_p()
    _check(library().fuseline_open_cuda(ordinal, ctypes.addressof(handle)))
    assert handle.value is not None
    return Device(handle.value, ordinal)


def device_for(target: str, cuda_ordinal: int | None = None) -> Device:
    """The device of this machine that runs a target. Raises FailedPreconditionError where there is none."""
    if target == "cpu":
        return cpu_device()
    return cuda_device(cuda_ordinal or 0)


def cuda_device_count() -> int:
    return int(library().fuseline_cuda_device_count())


class Launcher:
    """An artifact loaded on a device. Called with tensors, or launched on pointers."""

    def __init__(
        self,
        device: Device,
        handle: int,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
    ) -> None:
        lib = library()
        self.device = device
        self._handle = handle
        finalizer = weakref.finalize(self, lib.fuseline_callable_release, handle)
        finalizer.atexit = False
        self.inputs: tuple[Signature, ...] = self._signatures(
            lib.fuseline_callable_input_count(handle), lib.fuseline_callable_input, input_names
        )
        self.outputs: tuple[Signature, ...] = self._signatures(
            lib.fuseline_callable_output_count(handle), lib.fuseline_callable_output, output_names
        )
        self.arena_bytes: int = lib.fuseline_callable_arena_bytes(handle)
        """What temporaries take; who gives no arena uses one that the callable keeps for each stream."""
        self.step_count: int = lib.fuseline_callable_step_count(handle)
        self.check_count: int = lib.fuseline_callable_check_count(handle)
        """Indices that kernels check while they run; 0: check() has nothing to say."""
        self._inputs_type = ctypes.c_void_p * len(self.inputs)
        self._outputs_type = ctypes.c_void_p * len(self.outputs)
        self._enqueue = lib.fuseline_launch
        self._torch_call: Callable[..., Any] | None = None
        self._numpy_inputs: tuple[tuple[Any, ...], ...] = ()
        self._numpy_outputs: tuple[tuple[tuple[int, ...], np.dtype[Any], int], ...] | None = None

    def launch(
        self, inputs: Sequence[int | None], outputs: Sequence[int | None], *, arena: int = 0, stream: int = 0
    ) -> None:
        """Enqueues one call on device pointers, in the signature's order. On the CPU it is done when this returns.

        Nothing about the tensors is checked but alignment. On CUDA they must stay as they are until `stream` is past
        the call. `arena`: memory of arena_bytes, aligned to 256; 0: the callable's own.
        """
        code = self._enqueue(self._handle, self._inputs_type(*inputs), self._outputs_type(*outputs), arena, stream)
        if code:
            raise _last_error(code)

    def check(self, stream: int = 0) -> None:
        """Waits for the stream, and raises where an index of a call since the last check was out of range."""
        _check(library().fuseline_callable_check(self._handle, stream))

    def prepare_stream(self, stream: int = 0, own_arena: bool = True) -> None:
        """Makes ready what the first launch on a stream would: before it is captured, say."""
        _check(library().fuseline_callable_prepare_stream(self._handle, stream, int(own_arena)))

    def forget_stream(self, stream: int) -> None:
        """Before a stream is destroyed that outlives its use here."""
        _check(library().fuseline_callable_forget_stream(self._handle, stream))

    def __call__(self, *tensors: Any, out: Any = None, stream: int | None = None) -> Any:
        """Runs on tensors, in the signature's order. The output, or a tuple where there are several.

        Outputs are new: NumPy arrays on the CPU (PyTorch tensors where an input is one), PyTorch tensors on CUDA; or
        `out`, one tensor or a sequence of them, of any package. Inputs whose memory is laid out otherwise than the
        signature says are copied where they are NumPy's or PyTorch's.
        """
        if len(tensors) != len(self.inputs):
            raise self._mismatch("inputs", f"{len(self.inputs)} inputs are needed, {len(tensors)} were given")
        if out is None and tensors and hasattr(tensors[0], "data_ptr"):
            if self._torch_call is None:
                from fuseline.launch_torch import torch_call

                self._torch_call = torch_call(self)
            return self._torch_call(tensors, stream)
        if self.device.cuda_ordinal is None and out is None and all(isinstance(t, np.ndarray) for t in tensors):
            return self._call_numpy(tensors)
        return self._call_views(tensors, out, stream)

    # --- Inside ---

    def _call_numpy(self, arrays: tuple[np.ndarray[Any, Any], ...]) -> Any:
        if self._numpy_outputs is None:
            self._numpy_inputs = tuple(
                (s.shape, s.dtype.numpy, s.strides == dense_strides(s.shape), s.alignment_bytes, s) for s in self.inputs
            )
            self._numpy_outputs = tuple((s.shape, s.dtype.numpy, s.alignment_bytes) for s in self.outputs)
        held = []
        pointers = []
        for array, (shape, dtype, dense, alignment, wanted) in zip(arrays, self._numpy_inputs):
            if array.shape != shape or array.dtype != dtype:
                raise self._mismatch(wanted.name, f"is {array.dtype}{list(array.shape)}, not {wanted}")
            pointer = array.__array_interface__["data"][0]
            if not (dense and array.flags.c_contiguous) or pointer % alignment:
                array, pointer = _laid_out(array, wanted)
                held.append(array)
            pointers.append(pointer)
        outputs = tuple(_empty(shape, dtype, alignment) for shape, dtype, alignment in self._numpy_outputs)
        self.launch(pointers, [array.__array_interface__["data"][0] for array in outputs])
        return outputs[0] if len(outputs) == 1 else outputs

    def _call_views(self, tensors: Sequence[Any], out: Any, stream: int | None) -> Any:
        # Arrays first: a view does not keep what only the call holds.
        held = [
            _array_of_number(t, w.dtype) if self.device.cuda_ordinal is None else t
            for t, w in zip(tensors, self.inputs)
        ]
        inputs = [self._fit(view_of(tensor, stream), wanted) for tensor, wanted in zip(held, self.inputs)]
        if out is None:
            if self.device.cuda_ordinal is not None:
                raise self._mismatch("out", "new outputs on CUDA need PyTorch tensors as inputs: give out")
            results: Any = tuple(_empty(s.shape, s.dtype.numpy, s.alignment_bytes) for s in self.outputs)
        else:
            results = tuple(out) if isinstance(out, (list, tuple)) else (out,)
            if len(results) != len(self.outputs):
                raise self._mismatch("out", f"{len(self.outputs)} outputs are needed, {len(results)} were given")
        outputs = [self._fit(view_of(tensor, stream), wanted) for tensor, wanted in zip(results, self.outputs)]
        self.launch([v.pointer for v in inputs], [v.pointer for v in outputs], stream=stream or 0)
        return results[0] if len(results) == 1 else results

    def _fit(self, view: TensorView, wanted: Signature) -> TensorView:
        if view.dtype is not wanted.dtype or view.shape != wanted.shape:
            raise self._mismatch(wanted.name, f"is {view.dtype}{list(view.shape)}, not {wanted}")
        if view.cuda_device != self.device.cuda_ordinal:
            where = "the CPU" if view.cuda_device is None else f"CUDA device {view.cuda_device}"
            raise self._mismatch(wanted.name, f"is on {where}, the artifact on {self.device.name}")
        strides = view.strides if view.strides is not None else dense_strides(view.shape)
        if math.prod(view.shape) > 0 and any(
            size > 1 and a != b for size, a, b in zip(wanted.shape, strides or (), wanted.strides)
        ):
            raise self._mismatch(wanted.name, f"has the strides {strides}, not {wanted.strides}")
        return view

    @staticmethod
    def _mismatch(name: str, message: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"'{name}' {message}", reason="TENSOR_MISMATCH", subject=name)

    def _signatures(self, count: int, get: Callable[..., int], names: Sequence[str] | None) -> tuple[Signature, ...]:
        found = []
        for i in range(count):
            info = _TensorInfo(struct_size=ctypes.sizeof(_TensorInfo))
            _check(get(self._handle, i, ctypes.addressof(info)))
            found.append(
                Signature(
                    names[i] if names is not None and len(names) == count else info.name.decode(),
                    DType.from_number(info.dtype),
                    tuple(info.shape[: info.rank]),
                    tuple(info.strides[: info.rank]),
                    info.alignment_bytes,
                )
            )
        return tuple(found)


def _array_of_number(value: Any, dtype: DType) -> Any:
    """A number as an array; anything else as it is."""
    if isinstance(value, np.generic):
        return np.asarray(value)
    return np.asarray(value, dtype.numpy) if isinstance(value, (bool, int, float)) else value


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any], alignment: int) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = np.empty(shape, dtype)
    if array.__array_interface__["data"][0] % alignment == 0:
        return array
    size = array.nbytes
    block = np.empty(size + alignment, np.uint8)
    start = -block.__array_interface__["data"][0] % alignment
    return block[start : start + size].view(dtype).reshape(shape)


def _laid_out(array: np.ndarray[Any, Any], wanted: Signature) -> tuple[np.ndarray[Any, Any], int]:
    """A copy as the signature wants it in memory, and its pointer; the array itself where it is so."""
    size = array.dtype.itemsize
    strides = tuple(stride * size for stride in wanted.strides)
    pointer = array.__array_interface__["data"][0]
    fits = all(count <= 1 or a == b for count, a, b in zip(array.shape, array.strides, strides))
    if fits and pointer % wanted.alignment_bytes == 0:
        return array, pointer
    extent = sum((count - 1) * stride for count, stride in zip(array.shape, wanted.strides)) + 1 if array.size else 0
    base = _empty((extent,), array.dtype, wanted.alignment_bytes)
    copy = np.lib.stride_tricks.as_strided(base, array.shape, strides, writeable=True) if array.size else base
    if array.size:
        copy[...] = array
    return copy, base.__array_interface__["data"][0]
