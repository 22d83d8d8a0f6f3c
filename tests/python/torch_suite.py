"""Runs a file of workloads through eager torch, Inductor and backend="fuseline", and prints a line of JSON for each.

usage: torch_suite.py SUITE.py [--device cuda|cpu] [--small] [--no-inductor] [--only NAME,…] [--cuda-graphs]
[--contractions auto|compiled|library] [--out FILE.json]

SUITE.py defines SUITE, a list of dicts with name, fn (a function of tensors) and make (a function that makes them),
and D, their device. $FUSELINE_SERVER names the server. Per workload: the largest difference of each from float64,
times by the GPU's clock in one run, compile seconds, and what Fuseline left in eager execution. `--small` shrinks the
sizes written in the file, for a machine without a GPU. Exit code 1 where Fuseline is off by more than twice
Inductor's difference (or eager's, without Inductor) or fails.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch_timing import median_ms, synchronize

_LARGE = 512
_SMALL = 64
# Differences below this many units in the last place of the result's dtype say nothing.
_LEAST_ULPS = 2


def load_suite(path: Path, device: str, small: bool) -> Any:
    source = path.read_text()
    if small:
        source = re.sub(r"(?<![\w.])\d+(?![\w.])", lambda m: _shrunk(m.group()), source)
    module = types.ModuleType("suite")
    module.__file__ = str(path)
    # Dynamo looks the functions' module up by its name.
    sys.modules["suite"] = module
    exec(compile(source.replace('D = "cuda"', f'D = "{device}"'), str(path), "exec"), module.__dict__)
    return module


def _shrunk(number: str) -> str:
    value = int(number)
    return str(_SMALL) if value >= _LARGE else "8" if value == 56 else number


def as_tuple(value: Any) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def difference(got: Any, reference: Sequence[torch.Tensor]) -> float:
    """The largest absolute difference; infinite where shapes differ or only one is NaN."""
    worst = 0.0
    for a, b in zip(as_tuple(got), reference):
        if a.shape != b.shape or not torch.equal(torch.isnan(a), torch.isnan(b)):
            return float("inf")
        if a.numel():
            worst = max(worst, (a.double() - b.double()).abs().nan_to_num(0.0).max().item())
    return worst


def resolution(got: Any) -> float:
    """A few units in the last place of the largest result."""
    worst = 0.0
    for a in as_tuple(got):
        if a.numel() and a.dtype.is_floating_point:
            worst = max(worst, a.abs().max().double().item() * torch.finfo(a.dtype).eps * _LEAST_ULPS)
    return worst


def wide(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [t.double() if t.dtype.is_floating_point else t for t in tensors]


def compiled_with(fn: Callable[..., Any], args: Sequence[Any], device: str, **how: Any) -> tuple[Any, Any, float]:
    torch._dynamo.reset()
    start = time.perf_counter()
    function = torch.compile(fn, fullgraph=True, dynamic=False, **how)
    result = function(*args)
    synchronize(device)
    return function, result, time.perf_counter() - start


def run_case(case: dict[str, Any], device: str, inductor: bool, cuda_graphs: bool, contractions: str) -> dict[str, Any]:
    torch.manual_seed(0)
    args = case["make"]()
    row: dict[str, Any] = {"name": case["name"], "kind": case.get("kind", "")}
    with torch.no_grad():
        reference = as_tuple(case["fn"](*wide(args)))
        eager = case["fn"](*args)
        row["eager_error"] = difference(eager, reference)
        row["resolution"] = resolution(eager)
        eager = None
        row["eager_ms"] = median_ms(lambda: case["fn"](*args), device)
        if inductor:
            function, result, row["inductor_compile_s"] = compiled_with(case["fn"], args, device)
            row["inductor_error"] = difference(result, reference)
            result = None
            row["inductor_ms"] = median_ms(lambda: function(*args), device)
        import fuseline.torch  # here: others take this file's functions, and time the import

        fuseline.torch.reset_report()
        function, result, row["fuseline_compile_s"] = compiled_with(
            case["fn"],
            args,
            device,
            backend="fuseline",
            options={"on_server_loss": "raise", "cuda_graphs": cuda_graphs, "contractions": contractions},
        )
        row["fuseline_error"] = difference(result, reference)
        result = None
        row["fuseline_ms"] = median_ms(lambda: function(*args), device)
    report = fuseline.torch.report()
    row["ops"], row["compiled_ops"] = report.op_count, report.compiled_op_count
    row["kernels"] = sum(g.kernel_count for g in report.graphs)
    row["server_s"] = sum(g.server_seconds for g in report.graphs)
    row["in_eager"] = [f"{e.op}: {e.reason}" for e in report.eager_ops]
    row["notes"] = report.notes
    bound = 2 * row.get("inductor_error", row["eager_error"])
    row["passed"] = row["fuseline_error"] <= max(bound, row["resolution"])
    row["within_2x"] = row["fuseline_error"] <= bound
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true", help="shrink the sizes")
    parser.add_argument("--no-inductor", action="store_true")
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--cuda-graphs", action="store_true", help="Fuseline with CUDA graphs")
    parser.add_argument("--contractions", default="auto", choices=("auto", "compiled", "library"))
    parser.add_argument("--out", type=Path, default=None, help="also write all results to this file")
    options = parser.parse_args()
    suite = load_suite(options.suite, options.device, options.small)
    only = set(filter(None, options.only.split(",")))
    rows = []
    for case in suite.SUITE:
        if only and case["name"] not in only:
            continue
        try:
            row = run_case(case, options.device, not options.no_inductor, options.cuda_graphs, options.contractions)
        except Exception as error:
            row = {"name": case["name"], "passed": False, "error": f"{type(error).__name__}: {error}"[:2000]}
        if options.device == "cuda":
            torch.cuda.empty_cache()
        rows.append(row)
        print(json.dumps(row), flush=True)
        if options.out is not None:
            options.out.write_text(json.dumps({"torch": torch.__version__, "rows": rows}, indent=1))
    failed = [row["name"] for row in rows if not row["passed"]]
    print(f"{len(rows) - len(failed)} passed, {len(failed)} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
