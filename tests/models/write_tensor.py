"""Files of the layout of ONNX's backend tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper


def write_tensor(path: Path, name: str, value: npt.ArrayLike | onnx.TensorProto) -> None:
    tensor = value if isinstance(value, onnx.TensorProto) else numpy_helper.from_array(np.asarray(value), name)
    path.write_bytes(tensor.SerializeToString())
