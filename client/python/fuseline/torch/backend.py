"""The backend of torch.compile: takes what Dynamo traced, compiles what it can on the server, leaves the rest to torch.

Pipeline: FX graph of Dynamo -> AOTAutograd (forward, backward, functional) -> rows, partition, groups -> program.
Registered under the name "fuseline" by the package's entry point in PyTorch's group torch_dynamo_backends. Against
server loss: a server that can't be reached while compiling means eager execution with one warning (option
on_server_loss).
"""

from __future__ import annotations

import functools
import operator
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx

import fuseline
from fuseline.errors import Error

from .constants import fold_constants, set_metadata
from .decompositions import decompositions
from .groups import Refused, Settings, local_device, prepare_groups
from .lowering import find_unsupported
from .options import Options, parse_options
from .partition import Group, dead_code, is_view, make_views_outside, split, writes_its_operand
from .program import build_program
from .random_seeds import add_seeds
from .report import RECORDER, GraphRecord

aten = torch.ops.aten

# How often a graph is split anew because the compiler refused a node.
MOST_REFUSALS = 32

# Ops that an option leaves to torch's libraries, by the option's name: beginnings of the ops' names.
_LIBRARY_OPS = {
    "attention": (
        "aten._scaled_dot_product_flash_attention",
        "aten._scaled_dot_product_efficient_attention",
        "aten._scaled_dot_product_cudnn_attention",
    ),
    "contractions": ("aten.mm.", "aten.bmm.", "aten.addmm.", "aten.baddbmm.", "aten.convolution"),
}


class _Clients:
    """One client for each server of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: dict[str, fuseline.Client] = {}

    def get(self, options: Options) -> fuseline.Client:
        """Raises fuseline.Error where no address is known, or the server can't be reached."""
        with self._lock:
            client = self._clients.get(options.server)
        if client is None:
            start = time.perf_counter()
            client = fuseline.connect(options.server or None, deadline=options.deadline, max_attempts=2)
            client.server_info(deadline=10.0)
            RECORDER.connected(time.perf_counter() - start)
            with self._lock:
                client = self._clients.setdefault(options.server, client)
        return client


_clients = _Clients()


def backend(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """What torch.compile(model, backend="fuseline") calls with each graph that Dynamo has traced."""
    chosen = parse_options(mode, options)
    try:
        _clients.get(chosen)
    except Error as error:
        if chosen.on_server_loss == "raise":
            raise
        RECORDER.note(f"no server, so in eager execution: {error}")
        return module.forward
    if chosen.cuda_graphs and any(isinstance(i, torch.Tensor) and i.is_cuda for i in example_inputs):
        from .cuda_graphs import compile_with_cuda_graphs

        return compile_with_cuda_graphs(module, example_inputs, functools.partial(compile_graph, options=chosen), trace)
    return trace(module, example_inputs, functools.partial(compile_graph, options=chosen))


GraphCompiler = Callable[..., Callable[[list[Any]], Any]]


def trace(module: torch.fx.GraphModule, example_inputs: Sequence[Any], compiler: GraphCompiler) -> Callable[..., Any]:
    """AOTAutograd with `compiler(graph, inputs, kind=…)` for the three kinds of graphs."""
    from functorch.compile import min_cut_rematerialization_partition  # type: ignore[import-untyped, unused-ignore]
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(
        fw_compiler=functools.partial(compiler, kind="forward"),
        bw_compiler=functools.partial(compiler, kind="backward"),
        inference_compiler=functools.partial(compiler, kind="inference"),
        decompositions=decompositions(),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )(module, example_inputs)


def compile_graph(
    module: torch.fx.GraphModule, example_inputs: Sequence[Any], *, kind: str, options: Options
) -> Callable[[list[Any]], Any]:
    """Compiles one graph of AOTAutograd. The function takes its arguments in a list, which it empties."""
    start = time.perf_counter()
    graph = module.graph
    set_metadata(module)
    fold_constants(module)
    for node in dead_code(graph):
        graph.erase_node(node)
    device = _device_of(graph)
    record = GraphRecord(kind)
    # The parts of compile_graph that a lost server leaves behind must still run: seeds are taken out by the program.
    if options.random == "seeded" and device is not None:
        add_seeds(graph)
    refused = dict(_kept_by_options(graph, options, device))
    candidates = [n for n in graph.nodes if n.op == "call_function" and not _is_internal(n)]
    for _ in range(MOST_REFUSALS):
        reasons = (
            find_unsupported(candidates, device, options.numerics == "eager", refused)
            if device is not None
            else dict.fromkeys(candidates, "a graph without tensors")
        )
        compiled = {n for n in candidates if n not in reasons}
        make_views_outside(graph, compiled)
        for node in dead_code(graph):
            compiled.discard(node)
            reasons.pop(node, None)
            graph.erase_node(node)
        alive = frozenset(graph.nodes)
        candidates = [n for n in candidates if n in alive]
        steps = split(graph, compiled)
        groups = {at: step for at, step in enumerate(steps) if isinstance(step, Group)}
        for group in groups.values():
            for node in group.outputs:
                node.meta["fuseline_dense"] = True
        try:
            runners = _prepare(list(groups.values()), options, device, record)
        except Refused as error:
            for node in [error.node] if error.node is not None else error.nodes:
                refused[node] = error.reason
            continue
        except Error as error:
            if options.on_server_loss == "raise":
                raise
            RECORDER.note(f"in eager execution, since compiling failed: {error}")
            compiled, runners = set(), []
            steps = split(graph, compiled)
            groups = {}
        break
    else:
        compiled, runners = set(), []
        steps, groups = split(graph, compiled), {}
    program = build_program(module, steps, dict(zip(groups, runners)))
    record.seconds = time.perf_counter() - start
    _record(record, graph, compiled, reasons, groups)
    return program


def _prepare(groups: list[Group], options: Options, device: torch.device | None, record: GraphRecord) -> list[Any]:
    if not groups or device is None:
        return []
    client = _clients.get(options)
    target = options.target or local_device(device, options.cpu_threads).target
    tf32 = options.allow_tf32
    if tf32 is None:
        tf32 = device.type == "cuda" and torch.backends.cuda.matmul.allow_tf32
    compile_options = fuseline.Options(numerics=options.numerics, allow_tf32=tf32)
    return prepare_groups(groups, Settings(client, options, device, target, compile_options), record)


def _is_internal(node: torch.fx.Node) -> bool:
    """Made here, and not to be compiled: seeds, and twins of views."""
    return "fuseline_seeds" in node.meta or "fuseline_twin" in node.meta


def _tensors(node: torch.fx.Node) -> Iterator[torch.Tensor]:
    value = node.meta.get("val")
    for item in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(item, torch.Tensor):
            yield item


def _device_of(graph: torch.fx.Graph) -> torch.device | None:
    """The device that most nodes are on, CUDA before the CPU."""
    counts: dict[torch.device, int] = {}
    for node in graph.nodes:
        for tensor in _tensors(node):
            if tensor.device.type in ("cpu", "cuda"):
                counts[tensor.device] = counts.get(tensor.device, 0) + 1
    return max(counts, key=lambda d: (d.type == "cuda", counts[d]), default=None)


def _kept_by_options(
    graph: torch.fx.Graph, options: Options, device: torch.device | None
) -> Iterator[tuple[torch.fx.Node, str]]:
    on_gpu = device is not None and device.type == "cuda"
    library = {
        option: names
        for option, names in _LIBRARY_OPS.items()
        if getattr(options, option) == "library" or (getattr(options, option) == "auto" and on_gpu)
    }
    for node in graph.nodes:
        name = str(node.target)
        if node.op != "call_function":
            continue
        if any(name == op or name.startswith(f"{op}.") for op in options.eager_ops):
            yield node, "option eager_ops"
            continue
        for option, names in library.items():
            if name.startswith(names):
                yield node, f"torch's own kernel (option {option})"


def _counts(node: torch.fx.Node) -> bool:
    """Whether the node is an op in the report: no view, no taking apart of tuples, no arithmetic on sizes."""
    if node.op != "call_function" or _is_internal(node) or is_view(node) or node.target is operator.getitem:
        return False
    return any(True for _ in _tensors(node)) and not writes_its_operand(node)


def _record(
    record: GraphRecord,
    graph: torch.fx.Graph,
    compiled: set[torch.fx.Node],
    reasons: Mapping[torch.fx.Node, str],
    groups: Mapping[int, Group],
) -> None:
    record.group_count = len(groups)
    for node in graph.nodes:
        if not _counts(node):
            continue
        record.op_count += 1
        if node in compiled:
            record.compiled_op_count += 1
        else:
            RECORDER.eager(str(node.target), reasons.get(node, "alone between ops that are in eager execution"))
    RECORDER.graph(record)
