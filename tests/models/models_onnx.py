"""Runs the test models without a GPU and compares with onnxruntime: through the importer and the engine, with
weights as constants and as inputs, and through the command line as docs/onnx.md says.

    models_onnx.py --conformance PROGRAM --fuseline PROGRAM --folder FOLDER

The models are made anew in FOLDER. Exit code 0: all agree; 1: not so; 77: skipped, the packages onnx and onnxruntime
are not there (`. deploy/install_dependencies.sh` with FUSELINE_TEST_PYTHON=1 puts them into .cache/test_python).
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

TOLERANCE = 1e-4  # of the largest magnitude in the wanted output
SKIPPED = 77


def run(*command: str | Path, may_skip: bool = False) -> None:
    print("$", *command, flush=True)
    code = subprocess.run([str(part) for part in command], check=False).returncode
    if code != 0 and not (may_skip and code == SKIPPED):
        raise ValueError(f"{Path(command[0]).name} ended with code {code}")


def compare(name: str, got_file: Path, want_file: Path) -> None:
    import numpy as np

    got, want = np.load(got_file), np.load(want_file)
    if got.shape != want.shape or got.dtype != want.dtype:
        raise ValueError(f"{name}: got {got.dtype}{got.shape}, want {want.dtype}{want.shape}")
    error = float(np.abs(got - want).max() / np.abs(want).max())
    print(f"{name}: largest difference {error:.2g} of the output's magnitude")
    if not error <= TOLERANCE:
        raise ValueError(f"{name}: differs by {error:.2g}, more than {TOLERANCE}")


def check_command_line(fuseline: Path, folder: Path, inputs: dict[str, list[str]], output: str) -> None:
    """`inputs`: each input's dims, as sizes of symbols are given for them. Uses the last data set."""
    import numpy as np

    data = max(folder.glob("test_data_set_*"))
    symbols: list[str] = []
    for name, dims in inputs.items():
        for symbol, size in zip(dims, np.load(data / f"{name}.npy").shape, strict=True):
            if not symbol.isdigit() and f"{symbol}={size}" not in symbols:
                symbols += ["--symbol", f"{symbol}={size}"]
    files = [part for name in inputs for part in ("--input", f"{name}={data / name}.npy")]
    got = folder / "got.npy"
    into = ("--values", "0", "--output", f"{output}={got}")
    run(fuseline, "--local", "run", folder / "model.onnx", *symbols, *files, *into)
    compare(f"{folder.name}: run model.onnx", got, data / f"{output}.npy")
    graph, weights = folder / "model.fl", folder / "weights"
    weights.mkdir()
    run(fuseline, "convert", folder / "model.onnx", "-o", graph, *symbols, "--weights=inputs", "--weights-dir", weights)
    run(fuseline, "--local", "run", graph, *files, "--inputs-dir", weights, *into)
    compare(f"{folder.name}: convert --weights=inputs, run model.fl", got, data / f"{output}.npy")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conformance", type=Path, required=True)
    parser.add_argument("--fuseline", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    if importlib.util.find_spec("onnx") is None or importlib.util.find_spec("onnxruntime") is None:
        print("models_onnx: Skipped\nno Python packages onnx and onnxruntime: FUSELINE_TEST_PYTHON=1 . "
              "deploy/install_dependencies.sh fetches them from PyPI")
        return SKIPPED
    folder: Path = arguments.folder
    try:
        run(sys.executable, Path(__file__).with_name("make_models.py"), folder)
        conformance = (arguments.conformance, "--data", folder, "--tolerance", str(TOLERANCE))
        for weights in ("constants", "inputs"):
            run(*conformance, "--weights", weights)
        # The text of the CUDA kernels, run by the host.
        run(*conformance, "--target", "cuda_host", may_skip=True)
        models = folder / "models"
        check_command_line(arguments.fuseline, models / "resnet", {"image": ["batch", "3", "48", "48"]}, "logits")
        sequences = {"input_ids": ["batch", "sequence"], "attention_mask": ["batch", "sequence"]}
        for name in ("encoder", "encoder_decomposed"):
            check_command_line(arguments.fuseline, models / name, sequences, "hidden")
    except (OSError, ValueError) as error:
        print(f"models_onnx: FAILED: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
