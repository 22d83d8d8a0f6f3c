"""Runs PyTorch's own Inductor tests with backend="fuseline" and counts passed, failed and not applicable.

usage: torch_inductor_tests.py [--file PATH] [--device cpu|cuda] [--only TEXT,…] [--skip TEXT,…] [--limit N]
[--seconds 60] [--out
FILE.json]

The file is test/inductor/test_torchinductor.py of a PyTorch checkout of the installed version; without --file it is
looked for beside the installed torch. Nothing of it is kept here. Its class CommonTemplate is run with its own
checking function, in which `compile_fx` is Fuseline's backend; torch.compile without a backend, or with "inductor",
means Fuseline too. Tests run in child processes, so that a crash or a hang costs one test.

A test that fails is "not applicable" where it looks at Inductor itself: at its generated code, kernel counts,
settings or internal classes (names in the test's own text decide; the list is INDUCTOR_NAMES below). $FUSELINE_SERVER
names the server.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import inspect
import json
import os
import signal
import subprocess
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fuseline.torch
import torch
from fuseline.torch.backend import backend as fuseline_backend

INDUCTOR_NAMES = (
    "run_and_get_code",
    "run_and_get_triton_code",
    "run_and_get_kernels",
    "run_fw_bw_and_get_code",
    "generated_kernel_count",
    "assertGeneratedKernelCountEqual",
    "metrics.",
    "FileCheck",
    "config.patch",
    "torch._inductor",
    "inductor_config",
    "compile_fx_inner",
    "get_decompositions",
    "counters[",
    "lowering",
    "triton",
    "InductorError",
    "is_dynamic_shape_enabled",
    "aot_inductor",
    "assertExpectedInline",
    "_run_and_assert",
)
OUTCOMES = ("passed", "failed", "not_applicable", "skipped", "crashed", "timed_out")


def find_file() -> Path | None:
    root = Path(torch.__file__).resolve().parent
    for folder in (root, *root.parents[:3]):
        path = folder / "test" / "inductor" / "test_torchinductor.py"
        if path.is_file():
            return path
    return None


def redirect_torch_compile() -> None:
    """torch.compile with Inductor, by default or by name, means Fuseline."""
    original = torch.compile

    def compile_with_fuseline(model: Any = None, *, backend: Any = "inductor", **how: Any) -> Any:
        if backend == "inductor":
            backend = "fuseline"
            how.pop("options", None)
            how.pop("mode", None)
        return original(model, backend=backend, **how)

    torch.compile = compile_with_fuseline


def load_tests(path: Path, device: str) -> type[unittest.TestCase]:
    """A test case of the file's CommonTemplate on this backend."""
    redirect_torch_compile()
    for folder in (path.parent, *path.parents[1:3]):
        sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location("inductor_tests", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["inductor_tests"] = module
    spec.loader.exec_module(module)

    def compile_fx(model: Any, example_inputs: Any, *_: Any, **__: Any) -> Any:
        return fuseline_backend(model, example_inputs, options={"on_server_loss": "raise"})

    module.compile_fx = compile_fx
    check = module.check_model
    if device == "cuda":
        check = getattr(module, "check_model_gpu", getattr(module, "check_model_cuda", check))
    base = getattr(module, "TestCase", unittest.TestCase)
    return type("FuselineTests", (module.CommonTemplate, base), {"common": check, "device": device})


def test_names(case: type[unittest.TestCase], only: str) -> list[str]:
    wanted = only.split(",")
    return [name for name in unittest.TestLoader().getTestCaseNames(case) if any(text in name for text in wanted)]


def looks_at_inductor(case: type[unittest.TestCase], name: str) -> bool:
    try:
        source = inspect.getsource(inspect.unwrap(getattr(case, name)))
    except (OSError, TypeError):
        return False
    return any(word in source for word in INDUCTOR_NAMES)


class _Timeout(Exception):
    pass


def _on_alarm(*_: Any) -> None:
    raise _Timeout


def run_one(case: type[unittest.TestCase], name: str, seconds: int) -> dict[str, Any]:
    torch._dynamo.reset()
    fuseline.torch.reset_report()
    result = unittest.TestResult()
    signal.signal(signal.SIGALRM, _on_alarm)
    signal.alarm(seconds)
    outcome, detail = "passed", ""
    try:
        case(name).run(result)
    except _Timeout:
        outcome = "timed_out"
    finally:
        signal.alarm(0)
    problems = [*result.failures, *result.errors]
    if any("_Timeout" in text for _, text in problems):
        outcome = "timed_out"
    elif problems:
        outcome = "not_applicable" if looks_at_inductor(case, name) else "failed"
        detail = problems[0][1].strip()[-1500:]
    elif result.skipped:
        outcome, detail = "skipped", result.skipped[0][1]
    report = fuseline.torch.report()
    if outcome == "passed" and not report.graphs:
        # Nothing reached the backend, so it shows nothing.
        outcome = "not_applicable"
    return {
        "test": name,
        "outcome": outcome,
        "detail": detail,
        "ops": report.op_count,
        "compiled_ops": report.compiled_op_count,
        "in_eager": [f"{e.op}: {e.reason}" for e in report.eager_ops],
    }


def child(options: argparse.Namespace) -> int:
    """Runs the tests named on standard input; a line before each, so that the parent knows which one a crash was in."""
    case = load_tests(options.file, options.device)
    if options.child == "list":
        print(json.dumps({"names": test_names(case, options.only)}), flush=True)
        return 0
    for name in sys.stdin.read().split():
        print(json.dumps({"begin": name}), flush=True)
        print(json.dumps(run_one(case, name, options.seconds)), flush=True)
    return 0


def in_child(options: argparse.Namespace, what: str, names: list[str]) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-W", "ignore", __file__, "--file", str(options.file), "--device", options.device]
    command += ["--only", options.only, "--seconds", str(options.seconds), "--child", what]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if options.verbose else subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n".join(names))
    process.stdin.close()
    for line in process.stdout:
        if line.startswith("{"):
            yield json.loads(line)
    process.wait()


def run_all(options: argparse.Namespace) -> list[dict[str, Any]]:
    names = next((line["names"] for line in in_child(options, "list", []) if "names" in line), None)
    if names is None:
        raise SystemExit(f"{options.file} could not be loaded with torch {torch.__version__}: see --verbose")
    unwanted = [text for text in options.skip.split(",") if text]
    names = [name for name in names if not any(text in name for text in unwanted)]
    waiting = names[: options.limit] if options.limit else names
    results: list[dict[str, Any]] = []
    while waiting:
        begun = None
        for line in in_child(options, "run", waiting):
            if "begin" in line:
                begun = line["begin"]
            elif "outcome" in line:
                results.append(line)
                begun = None
                print(f"{line['outcome']:15} {line['test']}", file=sys.stderr, flush=True)
        done = {result["test"] for result in results}
        if begun is not None:
            results.append({"test": begun, "outcome": "crashed", "detail": "", "in_eager": []})
            done.add(begun)
        elif not done & set(waiting):
            raise SystemExit("the tests' process ended without running one: see --verbose")
        waiting = [name for name in waiting if name not in done]
    return results


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    counts = {outcome: sum(r["outcome"] == outcome for r in results) for outcome in OUTCOMES}
    eager = collections.Counter(op for r in results for op in r["in_eager"])
    whole = sum(r["outcome"] == "passed" and not r["in_eager"] for r in results)
    return {
        "torch": torch.__version__,
        **counts,
        "passed_without_eager_ops": whole,
        "most_often_in_eager": eager.most_common(40),
        "failed_tests": [r["test"] for r in results if r["outcome"] in ("failed", "crashed", "timed_out")],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, default=None)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", default="", help="tests with one of these texts in their names: TEXT,…")
    parser.add_argument("--skip", default="", help="no tests with one of these: TEXT,…")
    parser.add_argument("--limit", type=int, default=0, help="at most this many tests")
    parser.add_argument("--seconds", type=int, default=60, help="for one test")
    parser.add_argument("--out", type=Path, default=None, help="results of each test")
    parser.add_argument("--verbose", action="store_true", help="show what the tests print")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.file = options.file or find_file()
    if options.file is None:
        print(
            f"no test/inductor/test_torchinductor.py beside torch {torch.__version__}, {Path(torch.__file__).parent}: "
            "give --file of a checkout",
            file=sys.stderr,
        )
        return 77
    if options.child:
        return child(options)
    if not os.environ.get("FUSELINE_SERVER"):
        raise SystemExit("FUSELINE_SERVER names no server")
    results = run_all(options)
    if options.out is not None:
        options.out.write_text(json.dumps({"summary": summary(results), "tests": results}, indent=1))
    print(json.dumps(summary(results), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
