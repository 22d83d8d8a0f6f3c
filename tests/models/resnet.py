"""A small residual network: the layers of ResNet-18 with narrower channels."""

from __future__ import annotations

import numpy as np
import onnx
from model_writer import ModelWriter
from onnx import TensorProto

IMAGE_SIZE = 48
CLASSES = 40
CHANNELS = (16, 24, 40, 64)
BLOCKS = 2


def _conv(w: ModelWriter, x: str, name: str, inputs: int, outputs: int, kernel: int, stride: int) -> str:
    scale = float(np.sqrt(2.0 / (inputs * kernel * kernel)))
    weight = w.normal(f"{name}.weight", (outputs, inputs, kernel, kernel), scale)
    return w.node("Conv", x, weight, dilations=[1, 1], group=1, kernel_shape=[kernel, kernel],
                  pads=[kernel // 2] * 4, strides=[stride, stride])


def _batch_norm(w: ModelWriter, x: str, name: str, channels: int) -> str:
    gamma = w.uniform(f"{name}.weight", (channels,), 0.6, 1.2)
    beta = w.normal(f"{name}.bias", (channels,), 0.1)
    mean = w.normal(f"{name}.running_mean", (channels,), 0.2)
    var = w.uniform(f"{name}.running_var", (channels,), 0.6, 1.8)
    return w.node("BatchNormalization", x, gamma, beta, mean, var, epsilon=1e-5, momentum=0.9)


def _basic_block(w: ModelWriter, x: str, name: str, inputs: int, outputs: int, stride: int) -> str:
    y = _batch_norm(w, _conv(w, x, f"{name}.conv1", inputs, outputs, 3, stride), f"{name}.bn1", outputs)
    y = _conv(w, w.node("Relu", y), f"{name}.conv2", outputs, outputs, 3, 1)
    y = _batch_norm(w, y, f"{name}.bn2", outputs)
    if stride != 1 or inputs != outputs:
        x = _conv(w, x, f"{name}.downsample.0", inputs, outputs, 1, stride)
        x = _batch_norm(w, x, f"{name}.downsample.1", outputs)
    return w.node("Relu", w.node("Add", y, x))


def make_resnet(seed: int) -> onnx.ModelProto:
    w = ModelWriter("resnet", seed, opset=13)
    x = w.input("image", TensorProto.FLOAT, ["batch", 3, IMAGE_SIZE, IMAGE_SIZE])
    x = _batch_norm(w, _conv(w, x, "conv1", 3, CHANNELS[0], 7, 2), "bn1", CHANNELS[0])
    x = w.node("MaxPool", w.node("Relu", x), kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2], ceil_mode=0)
    inputs = CHANNELS[0]
    for stage, outputs in enumerate(CHANNELS):
        for block in range(BLOCKS):
            stride = 2 if stage > 0 and block == 0 else 1
            x = _basic_block(w, x, f"layer{stage + 1}.{block}", inputs, outputs, stride)
            inputs = outputs
    x = w.node("Flatten", w.node("GlobalAveragePool", x), axis=1)
    weight = w.normal("fc.weight", (CLASSES, inputs), 0.02)
    bias = w.normal("fc.bias", (CLASSES,), 0.1)
    w.output(w.node("Gemm", x, weight, bias, alpha=1.0, beta=1.0, transB=1), "logits", ["batch", CLASSES])
    return w.model()


def resnet_inputs(batch: int, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    image = random.standard_normal((batch, 3, IMAGE_SIZE, IMAGE_SIZE)).astype(np.float16)
    return {"image": image.astype(np.float32)}
