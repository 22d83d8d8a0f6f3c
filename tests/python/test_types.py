"""The package's types, as a type checker sees them from outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="mypy is not installed: the package's types are not checked")

PROGRAM = """
from typing import Any
import numpy as np
import fuseline
import fuseline.numpy as fnp

client: fuseline.Client = fuseline.connect("localhost:1", target="cpu", deadline=None)
graph = fuseline.Graph("g")
x: fuseline.Value = graph.input("x", "f32", ["n", 4])
graph.output(graph.neg(x), "y")
compiled: fuseline.Compiled = client.compile(graph, symbols={"n": 2})
names: list[str] = compiled.input_names
fingerprint: bytes = compiled.fingerprint
kept: fuseline.KeptTensor = client.put_tensor(np.ones(3))
result: fuseline.ExecuteResult = client.execute(compiled, [np.ones(3), kept], keep={"y": fuseline.Keep()})
y: np.ndarray[Any, Any] = result.outputs["y"]
text: str = str(client.explain(graph).report)

@fuseline.jit(client=client)
def f(x: Any) -> Any:
    return fnp.exp(x)

explanation: fuseline.Explanation = f.explain(np.ones(3))
try:
    f(1)
except fuseline.UnavailableError as error:
    delay: float = error.retry_delay
"""
WRONG = ["client.compile(3)", "client.compile(graph, target=1)", "graph.output(3)", "compiled.fingerprint + 'a'"]


def mypy(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), "program.py"]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


def test_a_programs_types_are_checked(tmp_path: Path) -> None:
    good = mypy(tmp_path, PROGRAM)
    assert good.returncode == 0, good.stdout
    bad = mypy(tmp_path, PROGRAM + "\n".join(WRONG) + "\n")
    first = PROGRAM.count("\n") + 1
    for line in range(first, first + len(WRONG)):
        assert f"program.py:{line}: error" in bad.stdout, bad.stdout
