"""Launchers on PyTorch's tensors: on the caller's stream, with outputs from PyTorch's allocator, and little per call.

Imported only where PyTorch is. Pipeline: Launcher -> make_run, torch_call -> tensors in, tensors out. Thread-safety:
thread-safe. Tested by tests/python/test_launch_torch.py
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from fuseline.dtypes import DType
from fuseline.errors import InvalidArgumentError
from fuseline.graph import dense_strides
from fuseline.launch import _last_error as last_error

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


@dataclass(slots=True)
class OutputLayout:
    """How torch sees an output of a group. The group writes it without gaps, the dims in the order of `strides`."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    final_strides: tuple[int, ...] | None = None
    """Where torch's operation leaves gaps, or repeats elements: the output is put in that form after the launch."""


def allocator(device: torch.device) -> Callable[..., torch.Tensor]:
    """torch.empty_strided for (sizes, strides, dtype) on the device; on a machine with one GPU by its short way."""
    if device.type == "cuda" and torch.cuda.device_count() == 1:
        short = getattr(getattr(torch._C._dynamo, "guards", None), "_empty_strided_cuda", None)
        if short is not None:
            return short
    if device.type == "cpu":
        short = getattr(getattr(torch._C._dynamo, "guards", None), "_empty_strided_cpu", None)
        if short is not None:
            return short
    empty_strided = torch.empty_strided
    return lambda sizes, strides, dtype: empty_strided(sizes, strides, dtype=dtype, device=device)


def laid_out(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    copy = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)


def with_final_strides(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The same elements with gaps, or, where a stride is 0, with one element for the whole dim."""
    part = tensor
    for dim, stride in enumerate(strides):
        if stride == 0:
            part = part.narrow(dim, 0, 1)
    return laid_out(part, strides).expand(tensor.shape)


def make_run(
    launcher: Launcher,
    device: torch.device,
    outputs: Sequence[OutputLayout],
    *,
    unfit: Sequence[str],
    scope: Mapping[str, Any],
    slow: Callable[..., Any],
    failed: Callable[[int], None],
    single: bool = False,
) -> Callable[..., Any]:
    """A function of the launcher's inputs a0, a1, … on PyTorch's current stream, its text made for their number.

    `unfit`: Python's text, over a0, a1, … and the names in `scope`, of when these inputs are not what the kernels
    assume; then, and where one is not aligned, the result is `slow`'s. `failed` raises for a code of the library.
    `single`: gives the one output, not a tuple.
    """
    mask = functools.reduce(operator.or_, (s.alignment_bytes - 1 for s in launcher.inputs), 0)
    stream = torch._C._cuda_getCurrentRawStream if device.type == "cuda" else None
    arena_bytes = launcher.arena_bytes if stream is not None else 0
    count = len(launcher.inputs)
    names = ", ".join(f"a{i}" for i in range(count))
    known: dict[str, Any] = {
        **scope,
        "slow": slow,
        "failed": failed,
        "allocate": allocator(device),
        "enqueue": launcher._enqueue,
        "handle": launcher._handle,
        "inputs_type": launcher._inputs_type,
        "outputs_type": launcher._outputs_type,
        "stream": stream,
        "index": device.index or 0,
        "launcher": launcher,  # keeps the handle
    }
    lines = [f"def run({names}):"]
    if unfit:
        lines.append(f"    if {' or '.join(unfit)}: return slow({names})")
    lines += [f"    p{i} = a{i}.data_ptr()" for i in range(count)]
    if count and mask:
        lines.append(f"    if ({' | '.join(f'p{i}' for i in range(count))}) & {mask}: return slow({names})")
    for i, output in enumerate(outputs):
        known[f"n{i}"], known[f"t{i}"], known[f"d{i}"] = tuple(output.shape), tuple(output.strides), output.dtype
        lines.append(f"    o{i} = allocate(n{i}, t{i}, d{i})")
    arena = "None"
    if arena_bytes:
        known["arena_shape"], known["arena_strides"], known["u8"] = (arena_bytes,), (1,), torch.uint8
        lines.append("    arena = allocate(arena_shape, arena_strides, u8)")
        arena = "arena.data_ptr()"
    pointers = ", ".join(f"p{i}" for i in range(count))
    results = ", ".join(f"o{i}.data_ptr()" for i in range(len(outputs)))
    number = "stream(index)" if stream is not None else "None"
    lines.append(f"    code = enqueue(handle, inputs_type({pointers}), outputs_type({results}), {arena}, {number})")
    lines.append("    if code: failed(code)")
    for i, output in enumerate(outputs):
        if output.final_strides is not None:
            known["with_final_strides"], known[f"f{i}"] = with_final_strides, output.final_strides
            lines.append(f"    o{i} = with_final_strides(o{i}, f{i})")
    lines.append("    return o0" if single else f"    return ({''.join(f'o{i}, ' for i in range(len(outputs)))})")
    exec(compile("\n".join(lines), "<fuseline runner>", "exec"), known)
    return known["run"]


def _fail(code: int) -> None:
    # The error is this thread's last. Asking again would lose it: an index out of range is reported once.
    raise last_error(code)


def checked_run(launcher: Launcher, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors that are as the signature says, on PyTorch's current stream; for others `otherwise`'s."""
    ordinal = launcher.device.cuda_ordinal
    device = torch.device("cpu") if ordinal is None else torch.device("cuda", ordinal)
    unfit = []
    scope: dict[str, Any] = {"device": device}
    for i, s in enumerate(launcher.inputs):
        scope[f"type{i}"], scope[f"shape{i}"], scope[f"strides{i}"] = (
            torch_dtype(s.dtype),
            torch.Size(s.shape),
            s.strides,
        )
        dense = s.strides == dense_strides(s.shape)
        unfit += [
            f"a{i}.dtype is not type{i}",
            f"a{i}.shape != shape{i}",
            f"a{i}.device != device",
            f"not a{i}.is_contiguous()" if dense else f"a{i}.stride() != strides{i}",
        ]
    outputs = [OutputLayout(torch_dtype(s.dtype), s.shape, s.strides) for s in launcher.outputs]
    return make_run(
        launcher, device, outputs, unfit=unfit, scope=scope, slow=otherwise, failed=_fail, single=len(outputs) == 1
    )


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
        if stream is None:
            return checked(*tensors)
        return checked_call(tensors, stream)

    def checked_call(tensors: tuple[Any, ...], stream: int | None) -> Any:
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

    checked = checked_run(launcher, lambda *tensors: checked_call(tensors, None))
    return call
