"""Writes the models into a folder in the layout of ONNX's backend tests, with what onnxruntime makes of their inputs.

    make_models.py FOLDER

FOLDER/models/NAME gets model.onnx and, for two batch sizes, test_data_set_N with input_K.pb and output_K.pb.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from encoder import encoder_inputs, make_encoder
from resnet import make_resnet, resnet_inputs
from write_tensor import write_tensor

SEED = 20240917


@dataclass(frozen=True)
class TestModel:
    name: str
    make: Callable[[], onnx.ModelProto]
    data_sets: tuple[dict[str, np.ndarray], ...]


def test_models() -> list[TestModel]:
    return [
        TestModel("resnet", lambda: make_resnet(SEED), (resnet_inputs(1, SEED + 1), resnet_inputs(3, SEED + 2))),
        TestModel("encoder", lambda: make_encoder(SEED + 3, decomposed_norm=False),
                  (encoder_inputs(1, 24, SEED + 4), encoder_inputs(3, 17, SEED + 5))),
        TestModel("encoder_decomposed", lambda: make_encoder(SEED + 6, decomposed_norm=True),
                  (encoder_inputs(2, 24, SEED + 7), encoder_inputs(5, 9, SEED + 8))),
    ]


def run_onnxruntime(model: bytes, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    # Op by op: what is compared with should not depend on another compiler's fusion.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def write_model(test: TestModel, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = test.make()
    data = model.SerializeToString()
    (folder / "model.onnx").write_bytes(data)
    for number, inputs in enumerate(test.data_sets):
        set_folder = folder / f"test_data_set_{number}"
        set_folder.mkdir()
        outputs = run_onnxruntime(data, inputs)
        for k, (name, array) in enumerate(inputs.items()):
            write_tensor(set_folder / f"input_{k}.pb", name, array)
            np.save(set_folder / f"{name}.npy", array)
        for k, (value, array) in enumerate(zip(model.graph.output, outputs, strict=True)):
            if not np.isfinite(array).all():
                raise ValueError(f"{test.name}: output '{value.name}' is not finite")
            write_tensor(set_folder / f"output_{k}.pb", value.name, array)
            np.save(set_folder / f"{value.name}.npy", array)
            shape = "x".join(map(str, array.shape))
            print(f"{test.name}: set {number}: {value.name} {shape}, magnitude {np.abs(array).max():.3g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    for test in test_models():
        write_model(test, folder / "models" / test.name)


if __name__ == "__main__":
    main()
