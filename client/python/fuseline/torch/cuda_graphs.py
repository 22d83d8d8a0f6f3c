"""mode = "reduce-overhead": what was compiled is recorded into CUDA graphs and replayed.

Pipeline: module, compiler of its graphs -> compile_with_cuda_graphs -> function. The recording, its memory pool and
the copying of inputs that move are torch's own (cudagraph trees). Launches of compiled groups, their outputs and
their arenas come from torch's allocator on torch's stream, so they are recorded like torch's own kernels. A graph
that can't be recorded runs as it would without, and the report says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from .partition import writes_its_operand
from .report import RECORDER

Compiler = Callable[..., Callable[[list[Any]], Any]]


def _tensors(graph: torch.fx.Graph) -> list[torch.Tensor]:
    values = [n.meta.get("val") for n in graph.nodes]
    return [v for v in values if isinstance(v, torch.Tensor)]


def _skip_reason(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> str | None:
    """Why a graph can't be recorded."""
    from torch._inductor.utils import get_first_incompatible_cudagraph_node

    devices = {t.device for t in _tensors(module.graph)}
    if any(device.type != "cuda" for device in devices):
        return "a tensor of it is on the CPU"
    if len(devices) != 1:
        return "it uses several devices"
    if any(not isinstance(i, torch.Tensor) for i in inputs):
        return "its sizes are symbolic"
    if any(writes_its_operand(n) for n in module.graph.nodes):
        return "it writes into an input"
    node = get_first_incompatible_cudagraph_node(module)
    return None if node is None else f"{node.target} can't be recorded"


def _static_inputs(dynamo_input_count: int, input_count: int) -> Sequence[int]:
    """Inputs of a forward graph that stay where they are: parameters and buffers."""
    context = torch._guards.TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        return list(context.fw_metadata.static_input_indices)
    return range(max(0, input_count - dynamo_input_count))


def compile_with_cuda_graphs(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    compiler: Compiler,
    trace: Callable[..., Callable[..., Any]],
) -> Callable[..., Any]:
    from torch._inductor import cudagraph_trees
    from torch._inductor.cudagraph_utils import get_placeholder_info
    from torch._inductor.utils import count_tangents

    recorded_device: list[int] = []

    def compile_and_record(
        graph: torch.fx.GraphModule, inputs: Sequence[Any], *, kind: str
    ) -> Callable[[list[Any]], Any]:
        reason = _skip_reason(graph, inputs)
        placeholders = get_placeholder_info(graph.graph)
        tangents = count_tangents(graph) if kind == "backward" else 0
        devices = [t.device for t in _tensors(graph.graph)]
        results = graph.graph.output_node().args[0]
        assert isinstance(results, (list, tuple))
        stack_traces = [r.stack_trace if isinstance(r, torch.fx.Node) else None for r in results]
        run = compiler(graph, inputs, kind=kind)
        if reason is not None:
            RECORDER.note(f"a {kind} graph is not recorded into a CUDA graph: {reason}")
            return _after_recorded_forward(run, recorded_device[0]) if kind == "backward" and recorded_device else run
        static = range(tangents) if kind == "backward" else _static_inputs(len(example_inputs), len(inputs))
        if kind == "forward":
            recorded_device.append(devices[0].index or 0)
        elif kind == "backward" and not recorded_device:
            # Its forward was not recorded: what that saved may lie anywhere.
            return run
        recorded: Any = cudagraph_trees.cudagraphify_impl(
            run,
            list(inputs),
            static,
            device_index=devices[0].index or 0,
            is_backward=kind == "backward",
            is_inference=kind == "inference",
            # One for each result: the trees count on them.
            stack_traces=stack_traces,
            placeholders=placeholders,
            mutated_input_idxs=(),
        )
        recorded._boxed_call = True
        return recorded

    def _after_recorded_forward(run: Callable[[list[Any]], Any], device: int) -> Callable[[list[Any]], Any]:
        """The trees must know that the backward of what they recorded has begun, although it is not recorded itself."""

        def call(arguments: list[Any]) -> Any:
            manager = cudagraph_trees.get_manager(device, create_if_none_exists=False)
            if manager is not None:
                manager.set_to_running_backward()
            return run(arguments)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call

    return trace(module, example_inputs, compile_and_record)
