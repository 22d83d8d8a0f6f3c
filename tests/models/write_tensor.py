"""Files of the layout of ONNX's backend tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper


def write_tensor(path: Path, name: str, value: np.ndarray | onnx.TensorProto | Any) -> None:
    tensor = value if isinstance(value, onnx.TensorProto) else numpy_helper.from_array(np.asarray(value), name)
    path.write_bytes(tensor.SerializeToString())
