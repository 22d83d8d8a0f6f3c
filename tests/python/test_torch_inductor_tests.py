"""The runner of PyTorch's Inductor tests, on a stand-in for their file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: its backend is not tested")

# What the runner relies on of the real file: check_model with compile_fx, TestCase, CommonTemplate.
STAND_IN = """
import os
import time
import unittest

import torch
from torch._inductor.compile_fx import compile_fx


class TestCase(unittest.TestCase):
    pass


def check_model(self, model, example_inputs, **how):
    want = model(*example_inputs)

    def wrapper(graph, inputs):
        return compile_fx(graph, inputs)

    got = torch.compile(lambda *args: model(*args), backend=wrapper)(*example_inputs)
    torch.testing.assert_close(got, want)


class CommonTemplate:
    def test_add(self):
        self.common(lambda a, b: a + b * 2, (torch.randn(4), torch.randn(4)))

    def test_default_backend(self):
        x = torch.randn(4)
        torch.testing.assert_close(torch.compile(lambda a: a.sin())(x), x.sin())

    def test_partly_eager(self):
        self.common(lambda a: torch.linalg.inv(a + 4 * torch.eye(3)) + 1, (torch.rand(3, 3),))

    def test_wrong(self):
        self.common(lambda a: a + 1, (torch.randn(4),))
        self.fail("wrong")

    def test_kernel_count(self):
        self.common(lambda a: a + 1, (torch.randn(4),))
        from torch._inductor import metrics

        self.assertEqual(metrics.generated_kernel_count, 1)

    def test_nothing(self):
        pass

    @unittest.skip("not here")
    def test_skipped(self):
        pass

    def test_crash(self):
        os._exit(3)

    def test_hang(self):
        time.sleep(100)

    def test_zero(self):
        self.common(lambda a: a * 0, (torch.randn(4),))
"""

EXPECTED = {
    "test_add": "passed",
    "test_default_backend": "passed",
    "test_partly_eager": "passed",
    "test_wrong": "failed",
    "test_kernel_count": "not_applicable",
    "test_nothing": "not_applicable",
    "test_skipped": "skipped",
    "test_crash": "crashed",
    "test_hang": "timed_out",
    "test_zero": "passed",
}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    script = Path(__file__).with_name("torch_inductor_tests.py")
    return subprocess.run(
        [sys.executable, "-W", "ignore", str(script), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_outcomes_are_told_apart(tmp_path: Path, torch_server: str) -> None:
    file, out = tmp_path / "stand_in.py", tmp_path / "out.json"
    file.write_text(STAND_IN)
    done = run(
        "--file", str(file), "--device", "cpu", "--seconds", "15", "--out", str(out), FUSELINE_SERVER=torch_server
    )
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(out.read_text())
    assert {r["test"]: r["outcome"] for r in results["tests"]} == EXPECTED, done.stderr
    summary = results["summary"]
    assert summary["passed"] == 4 and summary["passed_without_eager_ops"] == 3
    assert any("linalg_inv" in op for op, _ in summary["most_often_in_eager"])


def test_without_the_file_it_says_so() -> None:
    done = run()
    if done.returncode == 77:
        assert "test_torchinductor.py" in done.stderr
    else:
        pytest.skip("this torch comes with its tests")
