"""Runs a compiled group on torch's tensors: on the caller's stream, without a copy, memory from torch's allocator.

Pipeline: Launcher, how inputs and outputs lie in memory -> make_runner -> function of tensors that gives a tuple. All
that does not depend on the call is worked out here, and dtypes, shapes and strides were guarded by Dynamo: a call
reads pointers, allocates outputs and makes one native call. Its text is generated for the group's number of inputs
and outputs. Thread-safety: thread-safe. Errors: an index out of range raises IndexError; on a GPU at a later call of
the same group.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fuseline.errors import Error
from fuseline.launch import Launcher
from fuseline.launch import _last_error as last_error

from .lowering import OutputLayout

Runner = Callable[..., tuple[torch.Tensor, ...]]

_ARENA_ALIGNMENT = 256


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


def _laid_out(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    copy = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)


def _with_final_strides(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The same elements with gaps, or, where a stride is 0, with one element for the whole dim."""
    part = tensor
    for dim, stride in enumerate(strides):
        if stride == 0:
            part = part.narrow(dim, 0, 1)
    return _laid_out(part, strides).expand(tensor.shape)


def _misplaced(tensor: torch.Tensor, strides: tuple[int, ...]) -> bool:
    return any(n > 1 and a != b for n, a, b in zip(tensor.shape, tensor.stride(), strides))


def _slow_call(
    launch: Callable[[Sequence[int], Sequence[int]], None],
    input_strides: Sequence[tuple[int, ...]],
    alignments: Sequence[int],
    new_outputs: Callable[[], tuple[torch.Tensor, ...]],
    outputs: Sequence[OutputLayout],
    *tensors: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """For inputs that do not lie as the kernels assume: those are copied."""
    held = [
        _laid_out(t, strides) if t.data_ptr() % alignment or _misplaced(t, strides) else t
        for t, strides, alignment in zip(tensors, input_strides, alignments)
    ]
    results = new_outputs()
    launch([t.data_ptr() for t in held], [t.data_ptr() for t in results])
    return tuple(
        r if o.final_strides is None else _with_final_strides(r, o.final_strides) for r, o in zip(results, outputs)
    )


def _raise(error: Error) -> None:
    if error.reason == "INDEX_OUT_OF_RANGE":
        raise IndexError(error.message) from error
    raise error


def make_runner(
    launcher: Launcher,
    device: torch.device,
    input_strides: Sequence[tuple[int, ...]],
    outputs: Sequence[OutputLayout],
    unchecked_strides: Sequence[bool],
) -> Runner:
    """`unchecked_strides`: inputs whose strides nobody has guarded; one that differs is copied."""
    alignments = [s.alignment_bytes for s in launcher.inputs]
    mask = functools.reduce(operator.or_, (a - 1 for a in alignments), 0)
    allocate = allocator(device)
    stream = torch._C._cuda_getCurrentRawStream if device.type == "cuda" else None
    index = device.index or 0
    arena_bytes = launcher.arena_bytes if stream is not None else 0

    def new_arena() -> torch.Tensor | None:
        return allocate((arena_bytes,), (1,), torch.uint8) if arena_bytes else None

    def new_outputs() -> tuple[torch.Tensor, ...]:
        return tuple(allocate(o.shape, o.strides, o.dtype) for o in outputs)

    def launch(inputs: Sequence[int], results: Sequence[int]) -> None:
        arena = new_arena()
        try:
            launcher.launch(
                inputs,
                results,
                arena=arena.data_ptr() if arena is not None else 0,
                stream=stream(index) if stream is not None else 0,
            )
        except Error as error:
            _raise(error)

    def failed(code: int) -> None:
        # The error is this thread's last. Asking again would lose it: an index out of range is reported once.
        _raise(last_error(code))

    count = len(input_strides)
    names = [f"a{i}" for i in range(count)]
    scope: dict[str, Any] = {
        "slow": functools.partial(_slow_call, launch, input_strides, alignments, new_outputs, outputs),
        "allocate": allocate,
        "enqueue": launcher._enqueue,
        "handle": launcher._handle,
        "inputs_type": launcher._inputs_type,
        "outputs_type": launcher._outputs_type,
        "stream": stream,
        "index": index,
        "failed": failed,
        "launcher": launcher,
    }
    lines = [f"def run({', '.join(names)}):"]
    lines += [f"    p{i} = a{i}.data_ptr()" for i in range(count)]
    conditions = [f"({' | '.join(f'p{i}' for i in range(count))}) & {mask}"] if count and mask else []
    for i, unchecked in enumerate(unchecked_strides):
        if unchecked:
            scope[f"s{i}"] = tuple(input_strides[i])
            conditions.append(f"a{i}.stride() != s{i}")
    if conditions:
        lines.append(f"    if {' or '.join(conditions)}: return slow({', '.join(names)})")
    for i, output in enumerate(outputs):
        scope[f"n{i}"], scope[f"t{i}"], scope[f"d{i}"] = tuple(output.shape), tuple(output.strides), output.dtype
        lines.append(f"    o{i} = allocate(n{i}, t{i}, d{i})")
    arena = "None"
    if arena_bytes:
        scope["arena_shape"], scope["arena_strides"], scope["u8"] = (arena_bytes,), (1,), torch.uint8
        lines.append("    arena = allocate(arena_shape, arena_strides, u8)")
        arena = "arena.data_ptr()"
    pointers = ", ".join(f"p{i}" for i in range(count))
    results = ", ".join(f"o{i}.data_ptr()" for i in range(len(outputs)))
    number = "stream(index)" if stream is not None else "None"
    lines.append(f"    code = enqueue(handle, inputs_type({pointers}), outputs_type({results}), {arena}, {number})")
    lines.append("    if code: failed(code)")
    for i, output in enumerate(outputs):
        if output.final_strides is not None:
            scope["with_final_strides"], scope[f"f{i}"] = _with_final_strides, output.final_strides
            lines.append(f"    o{i} = with_final_strides(o{i}, f{i})")
    lines.append(f"    return ({''.join(f'o{i}, ' for i in range(len(outputs)))})")
    exec(compile("\n".join(lines), "<fuseline runner>", "exec"), scope)
    return scope["run"]
