"""Splits an FX graph into groups that are compiled and nodes that stay in eager execution.

Pipeline: FX graph, the nodes that can't be compiled -> split -> steps in an order that can be run. A node's level is
the number of changes from eager to compiled on the way to it; the compilable nodes of one level are one group. So
groups never depend on themselves through an eager node, and there are as few as the longest such way asks for. Linear
in the graph.

A view that something outside its group reads is made again outside, where it costs nothing, and its operand leaves
the group instead: else the group would have to copy it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
import torch.fx

from .constants import is_number, value_of
from .rows_views import VIEWS


@dataclass(slots=True)
class Group:
    """Nodes that become one compiled graph; inputs and outputs in order."""

    nodes: list[torch.fx.Node]
    inputs: list[torch.fx.Node] = field(default_factory=list)
    outputs: list[torch.fx.Node] = field(default_factory=list)


Step = Group | torch.fx.Node


def is_view(node: torch.fx.Node) -> bool:
    if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
        return node.args[0].target in VIEWS
    return node.op == "call_function" and node.target in VIEWS


def _levels(graph: torch.fx.Graph, compiled: set[torch.fx.Node]) -> dict[torch.fx.Node, int]:
    levels: dict[torch.fx.Node, int] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            levels[node] = -1
        elif node in compiled:
            levels[node] = max((levels[i] + (i not in compiled) for i in node.all_input_nodes), default=0)
            levels[node] = max(levels[node], 0)
        else:
            levels[node] = max((levels[i] for i in node.all_input_nodes), default=-1)
    return levels


def make_views_outside(graph: torch.fx.Graph, compiled: set[torch.fx.Node]) -> None:
    """Gives every view of a compiled group that is read outside of it a twin that is not compiled."""
    levels = _levels(graph, compiled)
    for node in reversed(list(graph.nodes)):
        if node not in compiled or not is_view(node):
            continue
        level = levels[node]
        outside = [u for u in node.users if u not in compiled or levels[u] != level]
        if not outside:
            continue
        with graph.inserting_after(node):
            twin = graph.node_copy(node, lambda n: n)
        twin.meta = {**node.meta, "fuseline_twin": True}
        levels[twin] = level
        for user in outside:
            user.replace_input_with(node, twin)


def split(graph: torch.fx.Graph, compiled: set[torch.fx.Node], least_ops: int = 1) -> list[Step]:
    """The steps. `compiled` loses the nodes of groups that hold fewer than `least_ops` ops which are no views."""
    while True:
        steps, dropped = _split_once(graph, compiled, least_ops)
        if not dropped:
            return steps
        compiled -= dropped


def _split_once(
    graph: torch.fx.Graph, compiled: set[torch.fx.Node], least_ops: int
) -> tuple[list[Step], set[torch.fx.Node]]:
    levels = _levels(graph, compiled)
    groups: dict[int, Group] = {}
    eager: dict[int, list[torch.fx.Node]] = {}
    output: torch.fx.Node | None = None
    last: list[torch.fx.Node] = []
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            continue
        if node.op == "output":
            output = node
        elif node in compiled:
            groups.setdefault(levels[node], Group([])).nodes.append(node)
        elif writes_its_operand(node):
            last.append(node)
        else:
            eager.setdefault(levels[node], []).append(node)
    dropped: set[torch.fx.Node] = set()
    for group in groups.values():
        _find_ends(group)
        if (
            sum(not is_view(n) and n.target is not operator.getitem for n in group.nodes) < least_ops
            or not group.outputs
        ):
            dropped.update(group.nodes)
    steps: list[Step] = []
    for level in sorted({*groups, *eager}):
        if level in groups:
            steps.append(groups[level])
        steps.extend(eager.get(level, ()))
    steps.extend(last)
    if output is not None:
        steps.append(output)
    return steps, dropped


def writes_its_operand(node: torch.fx.Node) -> bool:
    """What functionalisation leaves at the end of a graph: writes into inputs, after all that reads them."""
    return node.target is torch.ops.aten.copy_.default


def _find_ends(group: Group) -> None:
    inside = set(group.nodes)
    inputs: dict[torch.fx.Node, None] = {}
    for node in group.nodes:
        for operand in node.all_input_nodes:
            if operand not in inside and not is_number(operand):
                inputs[operand] = None
        if any(user not in inside for user in node.users):
            group.outputs.append(node)
    group.inputs = list(inputs)


def eager_module(group: Group) -> torch.fx.GraphModule:
    """The group as a module that torch runs op by op: for sizes or servers that can't serve it. Returns a tuple."""
    graph, root = torch.fx.Graph(), torch.nn.Module()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in group.inputs:
        copies[node] = graph.placeholder(node.name)
    for node in group.nodes:
        for operand in node.all_input_nodes:
            if operand not in copies and is_number(operand):
                setattr(root, operand.name, value_of(operand))
                copies[operand] = graph.get_attr(operand.name)
        copies[node] = graph.node_copy(node, copies.__getitem__)
        without_seed(copies[node])
    graph.output(tuple(copies[n] for n in group.outputs))
    return torch.fx.GraphModule(root, graph)


def without_seed(node: torch.fx.Node) -> None:
    """Torch's own random ops take no seed."""
    if "fuseline_seed" in node.kwargs:
        node.kwargs = {key: item for key, item in node.kwargs.items() if key != "fuseline_seed"}


def dead_code(graph: torch.fx.Graph) -> Iterable[torch.fx.Node]:
    """Nodes that nobody reads, from the end on."""
    for node in reversed(graph.nodes):
        if node.op == "call_function" and not node.users and not writes_its_operand(node) and not node.is_impure():
            yield node
