"""ONNX's own tests of single ops, of the release from PyPI: it has ops and opsets that Debian's libonnx-testdata lacks.
Writes them into a folder and runs conformance_onnx on them.

    newest_node_tests.py --conformance PROGRAM --folder FOLDER

Exit code 0: no wrong answer, and enough of the tests in scope pass; 1: not so; 77: skipped, there is no package onnx.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

SKIPPED = 77
MUST_PASS = 90  # percent; the rest are refused, by name
# Their data are what numpy makes of 32-bit sums, to a relative tolerance, where the right answer is 0.
NOT_EXACT = frozenset({"test_dft_inverse", "test_dft_inverse_opset19"})


def rounding(model: onnx.ModelProto) -> float:
    """Two units of 16-bit results: they depend on what is rounded between ops, and the data are rounded after each."""
    from onnx import TensorProto

    types = {output.type.tensor_type.elem_type for output in model.graph.output}
    return 2.0**-6 if TensorProto.BFLOAT16 in types else 2.0**-9 if TensorProto.FLOAT16 in types else 0.0


def write_tests(folder: Path) -> tuple[int, int]:
    """The numbers of tests written, and of those whose values are no tensors."""
    import onnx.backend.test.case.node as node_tests
    from write_tensor import write_tensor

    written = left_out = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy, about the infinities that are tested
        cases = node_tests.collect_testcases(None)
    for case in cases:
        test = folder / "node" / case.name
        if case.name in NOT_EXACT:
            continue
        test.mkdir(parents=True)
        (test / "model.onnx").write_bytes(case.model.SerializeToString())
        (test / "tolerance.txt").write_text(f"{max(case.rtol, rounding(case.model))} {case.atol}\n")
        try:
            for number, (inputs, outputs) in enumerate(case.data_sets):
                data = test / f"test_data_set_{number}"
                data.mkdir()
                for kind, values, declared in (("input", inputs, case.model.graph.input),
                                               ("output", outputs, case.model.graph.output)):
                    for k, value in enumerate(values):
                        write_tensor(data / f"{kind}_{k}.pb", declared[k].name, value)
            written += 1
        except (AttributeError, TypeError, ValueError, KeyError, NotImplementedError):  # sequences, maps
            shutil.rmtree(test)
            left_out += 1
    return written, left_out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conformance", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    if importlib.util.find_spec("onnx") is None:
        print("newest_node_tests: Skipped\nno Python package onnx: FUSELINE_TEST_PYTHON=1 . "
              "deploy/install_dependencies.sh fetches it from PyPI")
        return SKIPPED
    folder: Path = arguments.folder
    shutil.rmtree(folder / "node", ignore_errors=True)
    written, left_out = write_tests(folder)
    print(f"{written} tests written, {left_out} left out: their values are no tensors", flush=True)
    command = [arguments.conformance, "--data", folder, "--must-pass", str(MUST_PASS)]
    return subprocess.run([str(part) for part in command], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
