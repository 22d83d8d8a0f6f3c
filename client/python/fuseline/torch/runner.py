"""Runs a compiled group on torch's tensors: on the caller's stream, without a copy, memory from torch's allocator.

Pipeline: Launcher, how inputs and outputs lie in memory -> make_runner -> function of tensors that gives a tuple. All
that does not depend on the call is worked out here, and dtypes, shapes and strides were guarded by Dynamo: a call
reads pointers, allocates outputs and makes one native call. Thread-safety: thread-safe. Errors: an index out of range
raises IndexError; on a GPU at a later call of the same group.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fuseline.errors import Error
from fuseline.launch import Launcher
from fuseline.launch import _last_error as last_error
from fuseline.launch_torch import OutputLayout, allocator, laid_out, make_run, with_final_strides

Runner = Callable[..., tuple[torch.Tensor, ...]]


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
        laid_out(t, strides) if t.data_ptr() % alignment or _misplaced(t, strides) else t
        for t, strides, alignment in zip(tensors, input_strides, alignments)
    ]
    results = new_outputs()
    launch([t.data_ptr() for t in held], [t.data_ptr() for t in results])
    return tuple(
        r if o.final_strides is None else with_final_strides(r, o.final_strides) for r, o in zip(results, outputs)
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

    scope: dict[str, Any] = {}
    unfit = []
    for i, unchecked in enumerate(unchecked_strides):
        if unchecked:
            scope[f"s{i}"] = tuple(input_strides[i])
            unfit.append(f"a{i}.stride() != s{i}")
    slow = functools.partial(_slow_call, launch, input_strides, alignments, new_outputs, outputs)
    return make_run(launcher, device, outputs, unfit=unfit, scope=scope, slow=slow, failed=failed)
