"""Makes a Python function of steps: compiled groups and eager nodes.

Pipeline: steps, what runs each group -> build_program -> function of a list of arguments (torch's boxed convention:
it empties the list, so that what is read last is freed early). Generated text rather than an interpreter: a call
costs what its steps cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from .constants import attribute
from .partition import Group, Step, without_seed

Runner = Callable[..., tuple[torch.Tensor, ...]]


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.globals: dict[str, Any] = {}
        self.names: dict[torch.fx.Node, str] = {}

    def constant(self, value: Any) -> str:
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        name = f"c{len(self.globals)}"
        self.globals[name] = value
        return name

    def name(self, node: torch.fx.Node) -> str:
        if node not in self.names:
            self.names[node] = f"v{len(self.names)}"
        return self.names[node]

    def argument(self, value: Any) -> str:
        if isinstance(value, torch.fx.Node):
            return self.name(value)
        if isinstance(value, tuple):
            return "(" + "".join(self.argument(item) + ", " for item in value) + ")"
        if isinstance(value, list):
            return "[" + ", ".join(self.argument(item) for item in value) + "]"
        if isinstance(value, slice):
            return f"slice({self.argument(value.start)}, {self.argument(value.stop)}, {self.argument(value.step)})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key!r}: {self.argument(item)}" for key, item in value.items()) + "}"
        return self.constant(value)


def _reads(step: Step) -> Sequence[torch.fx.Node]:
    return step.inputs if isinstance(step, Group) else step.all_input_nodes


def build_program(
    module: torch.fx.GraphModule, steps: Sequence[Step], runners: Mapping[int, Runner]
) -> Callable[[list[Any]], Any]:
    """`runners`: by the position of a group in `steps`."""
    writer = _Writer()
    last_reader: dict[torch.fx.Node, int] = {}
    for at, step in enumerate(steps):
        for node in _reads(step):
            last_reader[node] = at
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    attributes = [n for n in module.graph.nodes if n.op == "get_attr"]
    for node in attributes:
        writer.names[node] = writer.constant(attribute(module, str(node.target)))
    if placeholders:
        writer.lines.append("".join(f"{writer.name(n)}, " for n in placeholders) + "= args")
    writer.lines.append("args.clear()")
    for at, step in enumerate(steps):
        if isinstance(step, Group):
            results = "".join(f"{writer.name(n)}, " for n in step.outputs)
            args = ", ".join(writer.name(n) for n in step.inputs)
            writer.lines.append(f"{results}= {writer.constant(runners[at])}({args})")
        elif step.op == "output":
            writer.lines.append(f"return {writer.argument(step.args[0])}")
            continue
        else:
            writer.lines.append(_eager_line(writer, step))
        dead = [writer.name(n) for n in _reads(step) if last_reader[n] == at and n.op != "get_attr"]
        made = step.outputs if isinstance(step, Group) else [step]
        dead += [writer.name(n) for n in made if n not in last_reader]
        if dead:
            writer.lines.append("del " + ", ".join(dict.fromkeys(dead)))
    source = "def run(args):\n" + "\n".join(f"    {line}" for line in writer.lines)
    exec(compile(source, "<fuseline program>", "exec"), writer.globals)
    run = writer.globals["run"]
    run._boxed_call = True
    return run


def _eager_line(writer: _Writer, node: torch.fx.Node) -> str:
    without_seed(node)
    args = [writer.argument(item) for item in node.args]
    args += [f"{key}={writer.argument(item)}" for key, item in node.kwargs.items()]
    if node.op == "call_method":
        return f"{writer.name(node)} = {args[0]}.{node.target}({', '.join(args[1:])})"
    if node.op != "call_function":
        raise NotImplementedError(f"{node.op} {node.target}")
    return f"{writer.name(node)} = {writer.constant(node.target)}({', '.join(args)})"
