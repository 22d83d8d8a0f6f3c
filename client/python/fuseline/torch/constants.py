"""Computes once what tracing left as copies of constants.

Pipeline: FX module -> fold_constants -> the same module, in which constants lie where they are used.
torch.tensor([…]) in a traced function becomes a constant on the CPU, a copy of it, and a move to the device at every
call.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from .element_types import NAMES

aten = torch.ops.aten

_COPIES = (aten.lift_fresh_copy.default, aten.lift_fresh.default, aten._to_copy.default, aten.clone.default)


def attribute(module: torch.nn.Module, path: str) -> Any:
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value


def is_constant(node: Any) -> bool:
    """A tensor that tracing kept with its values."""
    if not isinstance(node, torch.fx.Node) or node.op != "get_attr":
        return False
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor) and type(value) is torch.Tensor


def is_number(node: Any) -> bool:
    """A constant without dims: it is written into graphs, on whatever device it lies."""
    return is_constant(node) and node.meta["val"].dim() == 0 and node.meta["val"].dtype in NAMES


def fold_constants(module: torch.fx.GraphModule) -> None:
    """Metadata of get_attr nodes must be there. A copy that the graph returns stays: its reader may write into it."""
    graph, made = module.graph, 0
    for node in list(graph.nodes):
        if node.target not in _COPIES or not node.args or not is_constant(node.args[0]):
            continue
        if any(user.op == "output" for user in node.users):
            continue
        with unset_fake_temporarily(), torch.no_grad():
            value = node.target(node.args[0].meta["val"], *node.args[1:], **node.kwargs)
        name = f"_fuseline_constant{made}"
        made += 1
        setattr(module, name, value)
        with graph.inserting_before(node):
            constant = graph.get_attr(name)
        constant.meta["val"] = value
        node.replace_all_uses_with(constant)
        graph.erase_node(node)
