"""All rows of the table of aten ops: importing this fills it. Pipeline: rows_*.py -> this -> lowering.py,
decompositions.py."""

from __future__ import annotations

from . import (  # noqa: F401
    rows_composites,
    rows_contractions,
    rows_creation,
    rows_indexing,
    rows_pointwise,
    rows_reductions,
    rows_views,
)
from .rows import find_row, row_targets

__all__ = ["find_row", "row_targets"]
