"""How soon a fresh process has its first result, and what a call of a small compiled graph costs. Prints JSON.

usage: torch_first_result.py SUITE.py [--device cuda|cpu] [--small] [--no-inductor] [--workload NAME]
[--small-workload NAME] [--contractions auto|compiled|library]

$FUSELINE_SERVER names the server. For eager, Inductor and Fuseline a process of its own imports torch, runs the
workload (default transformer_block_bf16) once in eager execution, and then takes the time to the first result of the
compiled function. Each is started twice: with cold caches (Inductor's in an empty folder, the server as it is) and
again with warm ones. Fuseline's time is split: its own share (import, rows, server, loading), that of loading
Dynamo's modules, and that of Dynamo's and AOTAutograd's tracing. Then one process measures what a call of the small
workload (default reduction_seed_f32) costs the calling thread, in microseconds: eager, Inductor, Fuseline, its runner
alone, and the C ABI alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

WORKLOAD, SMALL_WORKLOAD = "transformer_block_bf16", "reduction_seed_f32"


def find_case(options: argparse.Namespace, name: str) -> dict[str, Any]:
    from torch_suite import load_suite

    suite = load_suite(options.suite, options.device, options.small)
    return next(case for case in suite.SUITE if case["name"] == name)


def installed() -> bool:
    """Whether PyTorch finds the backend by the package's entry point; a package that is only on the path has none."""
    try:
        return bool(metadata.distribution("fuseline"))
    except metadata.PackageNotFoundError:
        return False


def first_result(options: argparse.Namespace, how: str) -> dict[str, Any]:
    """Runs in a process of its own."""
    start = time.perf_counter()
    import torch
    from torch_timing import synchronize

    imported = time.perf_counter()
    case = find_case(options, options.workload)
    args = case["make"]()
    case["fn"](*args)
    synchronize(options.device)
    warmed = time.perf_counter()
    if how != "eager":
        # What torch.compile would load itself: told apart, since it is the same for every backend.
        import torch._dynamo.backends.common
        import torch._functorch.aot_autograd
    loaded = time.perf_counter()
    if how == "eager":
        function = case["fn"]
    elif how == "inductor":
        function = torch.compile(case["fn"])
    else:
        if not installed():
            import fuseline.torch
        function = torch.compile(
            case["fn"], backend="fuseline", options={"on_server_loss": "raise", "contractions": options.contractions}
        )
    function(*args)
    synchronize(options.device)
    total = time.perf_counter() - warmed
    function(*args)
    synchronize(options.device)
    result = {"import_s": imported - start, "warm_up_s": warmed - imported, "first_result_s": total}
    result["of_it_loading_dynamo_s"] = loaded - warmed
    result["second_result_s"] = time.perf_counter() - warmed - total
    if how == "fuseline":
        before = time.perf_counter()
        import fuseline.torch

        assert time.perf_counter() - before < 0.1, "the backend was not loaded by torch.compile"
        report = fuseline.torch.report()
        graphs = report.graphs
        own = sum(g.seconds for g in graphs) + fuseline.torch.import_seconds() + report.connect_seconds
        result["fuseline_s"] = own
        result["dynamo_and_aot_s"] = total - own - (loaded - warmed)
        result["parts_s"] = {
            "import": fuseline.torch.import_seconds(),
            "connecting": report.connect_seconds,
            "lowering": sum(g.lowering_seconds for g in graphs),
            "server": sum(g.server_seconds for g in graphs),
            "loading": sum(g.loading_seconds for g in graphs),
        }
        result["cache_hits"] = [f"{g.cache_hits}/{g.group_count}" for g in graphs]
    return result


def call_overhead(options: argparse.Namespace) -> dict[str, Any]:
    """Runs in a process of its own."""
    import fuseline
    import torch
    from fuseline import launch
    from fuseline.launch_torch import OutputLayout
    from fuseline.torch.runner import make_runner
    from torch_timing import host_microseconds

    case = find_case(options, options.small_workload)
    args = case["make"]()
    with torch.no_grad():
        result = {"eager_us": host_microseconds(lambda: case["fn"](*args), options.device)}
        if not options.no_inductor:
            inductor = torch.compile(case["fn"])
            inductor(*args)
            result["inductor_us"] = host_microseconds(lambda: inductor(*args), options.device)
            torch._dynamo.reset()
        compiled = torch.compile(case["fn"], backend="fuseline", options={"on_server_loss": "raise"})
        compiled(*args)
        result["fuseline_us"] = host_microseconds(lambda: compiled(*args), options.device)
    if options.small_workload != SMALL_WORKLOAD:
        return result
    # The same graph without Dynamo: the function that the backend calls, and one call of C.
    x = args[0]
    rows, columns = x.shape
    text = f"""graph g(x: f32[{rows}, {columns}]) {{
      %a = mul(x, 2.0)
      %b = sum(%a) {{dims = [-1]}}
      %c = add(%b, 1.0)
      return %c
    }}"""
    device = launch.cpu_device() if options.device == "cpu" else launch.cuda_device(0)
    artifact = fuseline.connect().compile(text, target=device.target).artifact()
    launcher = device.load(artifact)
    layout = OutputLayout(torch.float32, (rows,), (1,))
    run = make_runner(launcher, x.device, [tuple(x.stride())], [layout], [False])
    result["runner_us"] = host_microseconds(lambda: run(x), options.device)
    out = torch.empty(rows, device=x.device)
    enqueue, handle = launcher._enqueue, launcher._handle
    inputs, outputs = launcher._inputs_type(x.data_ptr()), launcher._outputs_type(out.data_ptr())
    result["c_abi_through_ctypes_us"] = host_microseconds(
        lambda: enqueue(handle, inputs, outputs, None, None), options.device
    )
    return result


def in_fresh_process(how: str, caches: Path) -> dict[str, Any]:
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
    }
    command = [sys.executable, "-W", "ignore", __file__, *sys.argv[1:], "--child", how]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        return {"error": f"exit code {done.returncode}"}
    return json.loads(lines[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", type=Path)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--contractions", default="auto", choices=("auto", "compiled", "library"))
    parser.add_argument("--no-inductor", action="store_true")
    parser.add_argument("--workload", default=WORKLOAD)
    parser.add_argument("--small-workload", default=SMALL_WORKLOAD)
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        result = call_overhead(options) if options.child == "overhead" else first_result(options, options.child)
        print(json.dumps(result))
        return 0
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as caches:
        for how in ("eager", "fuseline") if options.no_inductor else ("eager", "inductor", "fuseline"):
            results[how] = {state: in_fresh_process(how, Path(caches)) for state in ("cold", "warm")}
            print(json.dumps({how: results[how]}), flush=True)
        results["call_overhead"] = in_fresh_process("overhead", Path(caches))
        print(json.dumps({"call_overhead": results["call_overhead"]}), flush=True)
    if "inductor" in results and "first_result_s" in results["inductor"]["warm"]:
        ratio = results["inductor"]["warm"]["first_result_s"] / results["fuseline"]["warm"]["first_result_s"]
        print(json.dumps({"inductor_warm_over_fuseline_warm": ratio}), flush=True)
    return int(
        any("error" in state for how in results.values() for state in (how, *how.values()) if isinstance(state, dict))
    )


if __name__ == "__main__":
    sys.exit(main())
