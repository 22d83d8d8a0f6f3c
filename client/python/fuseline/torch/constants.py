"""Computes once what tracing left as copies of constants.

Pipeline: FX module -> fold_constants -> the same module, in which constants lie where they are used.
torch.tensor([…]) in a traced function becomes a constant on the CPU, a copy of it, and a move to the device at every
call.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from .element_types import NAMES

aten = torch.ops.aten

_VALUE = "fuseline_constant"
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
    return type(node.meta.get(_VALUE)) is torch.Tensor


def value_of(node: torch.fx.Node) -> torch.Tensor:
    """Of a constant: its tensor. Its metadata may be a stand-in without values."""
    value: torch.Tensor = node.meta[_VALUE]
    return value


def set_metadata(module: torch.fx.GraphModule) -> None:
    """Notes the tensors that get_attr nodes stand for."""
    for node in module.graph.nodes:
        if node.op == "get_attr":
            node.meta[_VALUE] = attribute(module, str(node.target))
            node.meta.setdefault("val", node.meta[_VALUE])


def is_number(node: Any) -> bool:
    """A constant without dims: it is written into graphs, on whatever device it lies."""
    return is_constant(node) and value_of(node).dim() == 0 and value_of(node).dtype in NAMES


def fold_constants(module: torch.fx.GraphModule) -> None:
    """After set_metadata. A copy that the graph returns stays: its reader may write into it."""
    graph, made = module.graph, 0
    for node in list(graph.nodes):
        if node.target not in _COPIES or not node.args or not is_constant(node.args[0]):
            continue
        if any(user.op == "output" for user in node.users):
            continue
        with unset_fake_temporarily(), torch.no_grad():
            value = node.target(value_of(node.args[0]), *node.args[1:], **node.kwargs)
        name = f"_fuseline_constant{made}"
        made += 1
        setattr(module, name, value)
        with graph.inserting_before(node):
            constant = graph.get_attr(name)
        constant.meta["val"] = constant.meta[_VALUE] = value
        node.replace_all_uses_with(constant)
        graph.erase_node(node)
