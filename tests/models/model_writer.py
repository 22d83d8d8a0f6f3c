"""Writes an ONNX model node by node, with seeded random weights, as exporters write them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Dim = int | str
Attribute = int | float | list[int] | onnx.TensorProto


class ModelWriter:
    """Collects nodes, weights, inputs and outputs; `model` makes a checked ModelProto of them.

    Weights keep 8 bits of mantissa, so that they pack to half of their size; products and sums of them do not.
    """

    def __init__(self, name: str, seed: int, opset: int = 17) -> None:
        self._name = name
        self._opset = opset
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._count = 0

    def input(self, name: str, dtype: int, dims: Sequence[Dim]) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, dtype, list(dims)))
        return name

    def output(self, value: str, name: str, dims: Sequence[Dim], dtype: int = TensorProto.FLOAT) -> None:
        self._nodes.append(helper.make_node("Identity", [value], [name], name=f"output_{name}"))
        self._outputs.append(helper.make_tensor_value_info(name, dtype, list(dims)))

    def node(self, op: str, *inputs: str, outputs: int = 1, **attributes: Attribute) -> str:
        """Adds a node; gives its first result, the others being named like it with .1, .2, … behind."""
        self._count += 1
        result = f"{op.lower()}_{self._count}"
        results = [result] + [f"{result}.{i}" for i in range(1, outputs)]
        self._nodes.append(helper.make_node(op, list(inputs), results, name=f"/{op}_{self._count}", **attributes))
        return result

    def tensor(self, array: np.ndarray, name: str | None = None) -> str:
        """An initializer."""
        self._count += 1
        name = name or f"const_{self._count}"
        self._initializers.append(numpy_helper.from_array(array, name))
        return name

    def ints(self, *values: int) -> str:
        return self.tensor(np.array(values, dtype=np.int64))

    def int_scalar(self, value: int) -> str:
        return self.tensor(np.array(value, dtype=np.int64))

    def number(self, value: float) -> str:
        return self.tensor(np.array(value, dtype=np.float32))

    def constant(self, array: np.ndarray) -> str:
        """A Constant node, which is the other way that exporters write constants."""
        return self.node("Constant", value=numpy_helper.from_array(array))

    def normal(self, name: str, shape: Sequence[int], scale: float, mean: float = 0.0) -> str:
        return self.tensor(_shorten(mean + scale * self._random.standard_normal(shape)), name)

    def uniform(self, name: str, shape: Sequence[int], low: float, high: float) -> str:
        return self.tensor(_shorten(self._random.uniform(low, high, shape)), name)

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(self._nodes, self._name, self._inputs, self._outputs, self._initializers)
        # Both versions are what Debian's onnxruntime and ONNX library know as well.
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self._opset)], ir_version=8)
        model.producer_name = "fuseline-tests"
        onnx.checker.check_model(model, full_check=True)
        return model


def _shorten(array: np.ndarray) -> np.ndarray:
    bits = np.asarray(array, dtype=np.float32).view(np.uint32)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)
