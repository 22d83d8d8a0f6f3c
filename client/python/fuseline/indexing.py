"""Indexing of traced arrays: numbers, slices, None, `...`, and integer arrays.

Pipeline: array[key] -> index -> slice, reshape, index_select and gather nodes. Thread-safety: as tracing. Tested by
tests/python/test_tracing.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuseline.dtypes import DType
from fuseline.tracing import Array, as_array, broadcast_shapes, emit, trace_error


def index(array: Array, key: Any) -> Array:
    """NumPy's rules. Arrays of booleans are refused: their results' sizes depend on values."""
    parts = list(key) if isinstance(key, tuple) else [key]
    parts = [_part(part) for part in parts]
    taken = sum(part is not None and part is not Ellipsis for part in parts)
    if sum(part is Ellipsis for part in parts) > 1:
        raise trace_error("an index has one '...' at most")
    if taken > array.ndim:
        raise trace_error(f"{taken} indices into {array.ndim} dims")
    if any(isinstance(part, Array) for part in parts):
        # NumPy: beside index arrays, numbers are index arrays too.
        parts = [as_array(part, DType.I64) if isinstance(part, int) else part for part in parts]
    at = next((i for i, part in enumerate(parts) if part is Ellipsis), len(parts))
    parts[at : at + 1] = [slice(None)] * (array.ndim - taken)
    array, shape, arrays = _slices(array, parts)
    array = array if shape == list(array.shape) else emit("reshape", (array,), shape, array.dtype, shape=shape)
    return array if not arrays else _gather(array, arrays)


def _part(part: Any) -> Any:
    if part is None or part is Ellipsis or isinstance(part, slice):
        return part
    if isinstance(part, (bool, np.bool_)):
        raise trace_error("booleans are no indices here")
    if isinstance(part, (int, np.integer)):
        return int(part)
    found = as_array(part)
    if not found.dtype.is_integer:
        raise trace_error(f"an index array of {found.dtype}: only integers are taken")
    return found


def _slices(array: Array, parts: list[Any]) -> tuple[Array, list[int], list[tuple[int, Array]]]:
    """Applies slices and numbers; index arrays are left, each with the position of its dim."""
    starts, ends, steps = [], [], []
    shape: list[int] = []
    arrays: list[tuple[int, Array]] = []
    dims: list[int] = []  # of the sliced array
    dim = 0
    changed = False
    for part in parts:
        if part is None:
            shape.append(1)
            continue
        size = array.shape[dim]
        if isinstance(part, int):
            if not -size <= part < size:
                raise trace_error(f"index {part} is out of range for size {size}")
            part = slice(part % size, part % size + 1)
            keep = False
        else:
            keep = True
        if isinstance(part, slice):
            start, stop, step = part.indices(size)
            count = len(range(start, stop, step))
            # A stop before the first element is "beyond the start" to a negative step, and no position from the end.
            ends.append(stop if stop >= 0 else -size - 1)
            starts.append(start if count else 0)
            if not count:
                ends[-1] = 0
                step = 1
            steps.append(step)
            changed = changed or (start, count, step) != (0, size, 1)
        else:
            arrays.append((len(shape), part))
            starts.append(0)
            ends.append(size)
            steps.append(1)
            count = size
        dims.append(count)
        if keep:
            shape.append(count)
        dim += 1
    if changed:
        array = emit("slice", (array,), dims, array.dtype, starts=starts, ends=ends, steps=steps)
    return array, shape, arrays


def _gather(array: Array, arrays: list[tuple[int, Array]]) -> Array:
    positions = [position for position, _ in arrays]
    adjacent = positions == list(range(positions[0], positions[0] + len(positions)))
    if len(arrays) == 1 and arrays[0][1].ndim == 1:
        position, places = arrays[0]
        shape = [*array.shape[:position], places.shape[0], *array.shape[position + 1 :]]
        return emit("index_select", (array, places), shape, array.dtype, dim=position)
    places_shape = broadcast_shapes(*(places.shape for _, places in arrays))
    columns = []
    for _, places in arrays:
        places = (
            places if places.dtype is DType.I64 else emit("cast", (places,), places.shape, DType.I64, dtype=DType.I64)
        )
        if places.shape != places_shape:
            places = emit("broadcast_to", (places,), places_shape, DType.I64, shape=list(places_shape))
        columns.append(places)
    joined = emit("stack", columns, [*places_shape, len(columns)], DType.I64, dim=len(places_shape))
    rest = [i for i in range(array.ndim) if i not in positions]
    order = [*positions, *rest]
    if order != list(range(array.ndim)):
        array = emit("permute", (array,), [array.shape[i] for i in order], array.dtype, dims=order)
    rest_shape = list(array.shape[len(positions) :])
    result = emit("gather_nd", (array, joined), [*places_shape, *rest_shape], array.dtype)
    if not adjacent or positions[0] == 0:
        return result  # NumPy: indexed dims come first where they do not stand together
    rank = len(places_shape)
    before = positions[0]
    order = [*range(rank, rank + before), *range(rank), *range(rank + before, result.ndim)]
    return emit("permute", (result,), [result.shape[i] for i in order], result.dtype, dims=order)
