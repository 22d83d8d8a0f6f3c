"""Element types of torch and of the graph IR, and torch's rules for mixing them.

Pipeline: dtypes, Values and Python numbers -> this -> the dtype that an op computes in. The promotion rules are those
of torch.result_type, for any number of operands.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

NAMES: dict[torch.dtype, str] = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "f8e4m3",
    torch.float8_e5m2: "f8e5m2",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "bool",
}

SIXTEEN_BIT: frozenset[torch.dtype] = frozenset((torch.float16, torch.bfloat16))

Number = bool | int | float


def number_dtype(value: Number) -> torch.dtype:
    """The dtype that torch gives a Python number."""
    if isinstance(value, bool):
        return torch.bool
    return torch.int64 if isinstance(value, int) else torch.get_default_dtype()


def _category(dtype: torch.dtype) -> int:
    return 0 if dtype is torch.bool else 2 if dtype.is_floating_point else 1


def _combine(high: torch.dtype | None, low: torch.dtype | None) -> torch.dtype | None:
    """`high` decides, unless `low` is of a higher category."""
    if high is None or low is None:
        return high if low is None else low
    return high if _category(high) >= _category(low) else low


def promote(tensors: Iterable[tuple[torch.dtype, int]], numbers: Iterable[Number]) -> torch.dtype:
    """The common dtype of tensors (dtype, rank) and numbers: tensors with dims decide before 0-d ones, those before
    numbers."""
    kinds: list[torch.dtype | None] = [None, None, None]
    for dtype, rank in tensors:
        at = 0 if rank else 1
        known = kinds[at]
        kinds[at] = dtype if known is None else torch.promote_types(known, dtype)
    for number in numbers:
        known, dtype = kinds[2], number_dtype(number)
        kinds[2] = dtype if known is None else torch.promote_types(known, dtype)
    result = _combine(_combine(kinds[0], kinds[1]), kinds[2])
    if result is None:
        raise ValueError("no operands")
    return result


def holds(dtype: torch.dtype, value: Number) -> bool:
    """Whether `value` is exact in `dtype`; infinities and NaN are."""
    if dtype.is_floating_point:
        number = float(value)
        if number != number or number in (float("inf"), float("-inf")):
            return True
        return torch.tensor(number, dtype=torch.float64).to(dtype).to(torch.float64).item() == number
    if dtype is torch.bool:
        return isinstance(value, bool) or value in (0, 1)
    if isinstance(value, float) and not value.is_integer():
        return False
    limits = torch.iinfo(dtype)
    return limits.min <= int(value) <= limits.max
