"""Gives random ops seeds that come from torch's generator.

Pipeline: FX graph -> add_seeds -> the same graph, where random ops carry a seed of type i64[2]. One draw a call from
the device's generator serves all random ops of the graph: torch.manual_seed repeats a run, successive calls differ,
and CUDA graphs may capture it. The numbers are not those of eager execution; with random = "eager" torch's own ops
draw them.
"""

from __future__ import annotations

import torch
import torch.fx

from .rows_creation import random_rows

aten = torch.ops.aten


def add_seeds(graph: torch.fx.Graph) -> None:
    random_ops = random_rows()
    nodes = [n for n in graph.nodes if n.op == "call_function" and n.target in random_ops]
    if not nodes:
        return
    value = nodes[0].meta["val"]
    first = value[0] if isinstance(value, (list, tuple)) else value
    anchor = next(n for n in graph.nodes if n.op != "placeholder")
    options = {"dtype": torch.int64, "device": first.device}
    limits = torch.iinfo(torch.int64)
    with graph.inserting_before(anchor):
        drawn = graph.call_function(aten.randint.low, (limits.min, limits.max, [len(nodes), 2]), options)
        drawn.meta["val"] = first.new_empty((len(nodes), 2), dtype=torch.int64)
        drawn.meta["fuseline_seeds"] = True
        for at, node in enumerate(nodes):
            seed = graph.call_function(aten.select.int, (drawn, 0, at))
            seed.meta["val"] = first.new_empty((2,), dtype=torch.int64)
            seed.meta["fuseline_seeds"] = True
            node.kwargs = {**node.kwargs, "fuseline_seed": seed}
