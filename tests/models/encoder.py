"""A small transformer encoder of text, spelled as exporters spell it: heads by Reshape and Transpose, shapes computed
from Shape, an additive mask, Gelu by Erf. LayerNormalization is one op, or decomposed as before opset 17."""

from __future__ import annotations

import numpy as np
import onnx
from model_writer import ModelWriter
from onnx import TensorProto

VOCABULARY = 300
MAX_POSITIONS = 64
WIDTH = 64
HEADS = 4
HIDDEN = 192
LAYERS = 4
CLASSES = 5


class Encoder:
    def __init__(self, writer: ModelWriter, decomposed_norm: bool) -> None:
        self._w = writer
        self._decomposed_norm = decomposed_norm

    def build(self) -> None:
        w = self._w
        ids = w.input("input_ids", TensorProto.INT64, ["batch", "sequence"])
        mask = self._additive_mask(w.input("attention_mask", TensorProto.INT64, ["batch", "sequence"]))
        x = self._embeddings(ids)
        for layer in range(LAYERS):
            x = self._layer(x, mask, f"layer.{layer}")
        w.output(x, "hidden", ["batch", "sequence", WIDTH])
        # The first position's state, through a pooler and a classifier.
        first = w.node("Gather", x, w.int_scalar(0), axis=1)
        pooled = w.node("Tanh", self._gemm(first, "pooler", WIDTH, WIDTH))
        w.output(self._gemm(pooled, "classifier", WIDTH, CLASSES), "logits", ["batch", CLASSES])

    def _dim(self, x: str, d: int) -> str:
        """The size of a dim, as one element."""
        w = self._w
        return w.node("Unsqueeze", w.node("Gather", w.node("Shape", x), w.int_scalar(d), axis=0), w.ints(0))

    def _additive_mask(self, mask: str) -> str:
        """0 where a position counts, else the least float: [batch, 1, 1, sequence]."""
        w = self._w
        wide = w.node("Unsqueeze", w.node("Unsqueeze", mask, w.ints(1)), w.ints(2))
        absent = w.node("Sub", w.number(1.0), w.node("Cast", wide, to=TensorProto.FLOAT))
        return w.node("Mul", absent, w.constant(np.array(np.finfo(np.float32).min, dtype=np.float32)))

    def _embeddings(self, ids: str) -> str:
        w = self._w
        words = w.node("Gather", w.normal("embeddings.word", (VOCABULARY, WIDTH), 0.5), ids)
        positions = w.tensor(np.arange(MAX_POSITIONS, dtype=np.int64).reshape(1, MAX_POSITIONS), "position_ids")
        used = w.node("Slice", positions, w.ints(0), self._dim(ids, 1), w.ints(1), w.ints(1))
        places = w.node("Gather", w.normal("embeddings.position", (MAX_POSITIONS, WIDTH), 0.3), used)
        return self._layer_norm(w.node("Add", words, places), "embeddings.norm")

    def _layer(self, x: str, mask: str, name: str) -> str:
        w = self._w
        attended = self._linear(self._attention(x, mask, f"{name}.attention"), f"{name}.output", WIDTH, WIDTH)
        x = self._layer_norm(w.node("Add", attended, x), f"{name}.norm1")
        hidden = self._gelu(self._linear(x, f"{name}.up", WIDTH, HIDDEN))
        down = self._linear(hidden, f"{name}.down", HIDDEN, WIDTH)
        return self._layer_norm(w.node("Add", down, x), f"{name}.norm2")

    def _attention(self, x: str, mask: str, name: str) -> str:
        w = self._w
        size = WIDTH // HEADS
        batch, sequence = self._dim(x, 0), self._dim(x, 1)
        heads_shape = w.node("Concat", batch, sequence, w.ints(HEADS), w.ints(size), axis=0)

        def heads(which: str, perm: list[int]) -> str:
            projected = w.node("Reshape", self._linear(x, f"{name}.{which}", WIDTH, WIDTH), heads_shape)
            return w.node("Transpose", projected, perm=perm)

        query, value = heads("query", [0, 2, 1, 3]), heads("value", [0, 2, 1, 3])
        scores = w.node("MatMul", query, heads("key", [0, 2, 3, 1]))
        scores = w.node("Add", w.node("Div", scores, w.number(float(np.sqrt(size)))), mask)
        mixed = w.node("MatMul", w.node("Softmax", scores, axis=-1), value)
        flat_shape = w.node("Concat", batch, sequence, w.ints(WIDTH), axis=0)
        return w.node("Reshape", w.node("Transpose", mixed, perm=[0, 2, 1, 3]), flat_shape)

    def _linear(self, x: str, name: str, inputs: int, outputs: int) -> str:
        w = self._w
        weight = w.normal(f"{name}.weight", (inputs, outputs), 1.2 / float(np.sqrt(inputs)))
        return w.node("Add", w.normal(f"{name}.bias", (outputs,), 0.05), w.node("MatMul", x, weight))

    def _gemm(self, x: str, name: str, inputs: int, outputs: int) -> str:
        w = self._w
        weight = w.normal(f"{name}.weight", (outputs, inputs), 1.0 / float(np.sqrt(inputs)))
        return w.node("Gemm", x, weight, w.normal(f"{name}.bias", (outputs,), 0.05), transB=1)

    def _gelu(self, x: str) -> str:
        w = self._w
        erf = w.node("Erf", w.node("Div", x, w.number(float(np.sqrt(2.0)))))
        return w.node("Mul", w.node("Mul", x, w.node("Add", erf, w.number(1.0))), w.number(0.5))

    def _layer_norm(self, x: str, name: str) -> str:
        w = self._w
        weight = w.uniform(f"{name}.weight", (WIDTH,), 0.7, 1.3)
        bias = w.normal(f"{name}.bias", (WIDTH,), 0.05)
        if not self._decomposed_norm:
            return w.node("LayerNormalization", x, weight, bias, axis=-1, epsilon=1e-12)
        centred = w.node("Sub", x, w.node("ReduceMean", x, axes=[-1]))
        variance = w.node("ReduceMean", w.node("Pow", centred, w.constant(np.array(2.0, dtype=np.float32))), axes=[-1])
        root = w.node("Sqrt", w.node("Add", variance, w.number(1e-12)))
        return w.node("Add", w.node("Mul", w.node("Div", centred, root), weight), bias)


def make_encoder(seed: int, decomposed_norm: bool) -> onnx.ModelProto:
    name = "encoder_decomposed" if decomposed_norm else "encoder"
    writer = ModelWriter(name, seed, opset=13 if decomposed_norm else 17)
    Encoder(writer, decomposed_norm).build()
    return writer.model()


def encoder_inputs(batch: int, sequence: int, seed: int) -> dict[str, np.ndarray]:
    """Sequences of several lengths; the rest of each is masked."""
    random = np.random.default_rng(seed)
    lengths = random.integers(sequence // 3, sequence + 1, (batch, 1))
    lengths[0] = sequence
    mask = (np.arange(sequence)[None, :] < lengths).astype(np.int64)
    return {"input_ids": random.integers(0, VOCABULARY, (batch, sequence)) * mask, "attention_mask": mask}
