"""An input or output of an artifact, as who launches it sees it. Immutable."""

from __future__ import annotations

import dataclasses

from fuseline.dtypes import DType


@dataclasses.dataclass(frozen=True)
class Signature:
    name: str
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements; outputs are dense row-major
    alignment_bytes: int  # that the pointer must have

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"
