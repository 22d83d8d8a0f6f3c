"""mode = "reduce-overhead": what was compiled is recorded into CUDA graphs and replayed.

Pipeline: module, compiler of its graphs -> compile_with_cuda_graphs -> function. The recording, its memory pool and
the copying of inputs that move
are torch's own (cudagraph trees); launches of compiled groups, their outputs and their arenas come from torch's
allocator, so they record like
torch's own kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from .report import RECORDER


def _skip_reason(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> str | None:
    """Why a graph can't be recorded."""
    devices = {i.device for i in inputs if isinstance(i, torch.Tensor)}
    if any(device.type != "cuda" for device in devices):
        return "an input is on the CPU"
    if len(devices) > 1:
        return "it uses several devices"
    if any(not isinstance(i, torch.Tensor) for i in inputs):
        return "its sizes are symbolic"
    if any(n.target is torch.ops.aten.copy_.default for n in graph.graph.nodes):
        return "it writes into an input"
    return None


def compile_with_cuda_graphs(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    compiler: Callable[..., Callable[[list[Any]], Any]],
    trace: Callable[..., Callable[..., Any]],
) -> Callable[..., Any]:
    from torch._dynamo.backends.debugging import boxed_nop  # noqa: F401  (loads what cudagraph trees need)
    from torch._inductor.cudagraph_trees import cudagraphify_impl
    from torch._inductor.cudagraph_utils import get_placeholder_info
    from torch._inductor.utils import count_tangents, get_first_incompatible_cudagraph_node

    boxes_forward_skipped = [False]
    static = _static_inputs(module)

    def compile_and_record(
        graph: torch.fx.GraphModule, inputs: Sequence[Any], *, kind: str
    ) -> Callable[[list[Any]], Any]:
        reason = _skip_reason(graph, inputs)
        bad = get_first_incompatible_cudagraph_node(graph)
        if reason is None and bad is not None:
            reason = f"{bad.target} can't be recorded"
        placeholders = get_placeholder_info(graph.graph)
        fixed = range(count_tangents(graph)) if kind == "backward" else range(static(graph))
        run = compiler(graph, inputs, kind=kind)
        if reason is not None or (kind == "backward" and boxes_forward_skipped[0]):
            if reason is not None:
                RECORDER.note(f"a {kind} graph is not recorded into a CUDA graph: {reason}")
            boxes_forward_skipped[0] = boxes_forward_skipped[0] or kind == "forward"
            return run
        recorded = cudagraphify_impl(
            run,
            list(inputs),
            fixed,
            device_index=next(i.device.index for i in inputs if isinstance(i, torch.Tensor)),
            is_backward=kind == "backward",
            is_inference=kind == "inference",
            placeholders=placeholders,
            mutated_input_idxs=(),
        )
        recorded._boxed_call = True
        return recorded

    return trace(module, example_inputs, functools.partial(compile_and_record))


def _static_inputs(module: torch.fx.GraphModule) -> Callable[[torch.fx.GraphModule], int]:
    """How many of a graph's first inputs are parameters and buffers, which stay where they are."""
    from torch._inductor.utils import num_fw_fixed_arguments  # type: ignore[attr-defined]

    dynamo_inputs = sum(n.op == "placeholder" for n in module.graph.nodes)

    def count(graph: torch.fx.GraphModule) -> int:
        return num_fw_fixed_arguments(dynamo_inputs, sum(n.op == "placeholder" for n in graph.graph.nodes))

    return count
