"""A group of an FX graph with what runs it: one artifact, or one for each set of sizes where sizes are symbolic.

Pipeline: Group, settings -> prepare_groups (lowering, compilation of all at once, loading) -> runners.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

import fuseline
from fuseline import launch as local
from fuseline.errors import Error

from .lowering import LoweredGroup, lower_group
from .options import Options
from .partition import Group, eager_module, is_view
from .remote_compiler import CompiledText, compile_texts
from .report import RECORDER, GraphRecord
from .rows import Unsupported
from .runner import Runner, make_runner
from .sizes import Sizes, symbol_of, symbols_in

# Sets of sizes that one group keeps artifacts for; the oldest goes first.
MOST_SIZES = 256

_NODE_IN_ERROR = re.compile(r"node '(%[A-Za-z0-9_.]+)'")


class Refused(Exception):
    """The compiler refused a node that a row has written: it stays in eager execution then."""

    def __init__(self, node: torch.fx.Node | None, nodes: Sequence[torch.fx.Node], reason: str) -> None:
        super().__init__(reason)
        self.node = node
        self.nodes = list(nodes)
        self.reason = reason


@dataclass(slots=True)
class Settings:
    """What is the same for all groups of a graph."""

    client: fuseline.Client
    options: Options
    device: torch.device
    target: str
    compile_options: fuseline.Options


def local_device(device: torch.device, cpu_threads: int) -> local.Device:
    return local.cpu_device(cpu_threads) if device.type == "cpu" else local.cuda_device(device.index or 0)


def _unchecked(group: Group) -> list[bool]:
    """Inputs whose strides no guard has checked: what eager ops make, and gradients."""
    flags = []
    for node in group.inputs:
        if not isinstance(node.meta["val"], torch.Tensor):
            continue
        made_here = node.op == "call_function" and not is_view(node) and not node.meta.get("fuseline_dense", False)
        flags.append(made_here or (node.op == "placeholder" and "tangents" in node.name))
    return flags


def _numbers(group: Group) -> list[torch.fx.Node]:
    return [n for n in group.inputs if not isinstance(n.meta["val"], torch.Tensor)]


def _lower(group: Group, settings: Settings, sizes: Sizes) -> LoweredGroup:
    try:
        return lower_group(
            group.nodes,
            group.inputs,
            group.outputs,
            sizes,
            settings.device,
            settings.options.numerics == "eager",
        )
    except Unsupported as error:
        raise Refused(None, group.nodes, str(error)) from error


def _load(compiled: CompiledText, lowered: LoweredGroup, group: Group, settings: Settings) -> Runner:
    device = local_device(settings.device, settings.options.cpu_threads)
    launcher = device.load(compiled.artifact, compiled.fingerprint)
    return make_runner(launcher, settings.device, lowered.input_strides, lowered.outputs, _unchecked(group))


def _refusal(error: Error, lowered: LoweredGroup, group: Group) -> Refused:
    found = _NODE_IN_ERROR.search(error.message)
    node = lowered.origins.get(found.group(1)) if found else lowered.origins.get(error.subject)
    return Refused(node, group.nodes, f"the compiler refused it: {error.message}")


def prepare_groups(groups: Sequence[Group], settings: Settings, record: GraphRecord) -> list[Runner]:
    """Compiles all groups, in one batch, and loads them. Raises Refused, or the client's error where the server is
    lost."""
    start = time.perf_counter()
    symbolic = [bool(_symbols(group)) for group in groups]
    # What is symbolic is compiled for the sizes that tracing has seen, which the first call mostly has.
    lowered = [_lower(group, settings, Sizes()) for group in groups]
    record.statement_count += sum(one.statement_count for one in lowered)
    record.lowering_seconds += time.perf_counter() - start
    start = time.perf_counter()
    compiled = _compile([one.text for one in lowered], settings)
    record.server_seconds += time.perf_counter() - start
    start = time.perf_counter()
    runners: list[Runner] = []
    for at, (group, one, result) in enumerate(zip(groups, lowered, compiled)):
        if isinstance(result, Error):
            if result.code in ("INVALID_ARGUMENT", "UNIMPLEMENTED"):
                raise _refusal(result, one, group)
            raise result
        record.kernel_count += result.kernel_count
        record.cache_hits += result.outcome != "miss"
        runner = _load(result, one, group, settings)
        runners.append(_SizedGroup(group, settings, runner) if symbolic[at] else runner)
    record.loading_seconds += time.perf_counter() - start
    return runners


def _compile(texts: Sequence[str], settings: Settings) -> list[CompiledText | Error]:
    return compile_texts(settings.client, texts, settings.target, settings.compile_options, settings.options.deadline)


def _symbols(group: Group) -> set[Any]:
    found: set[Any] = set()
    for node in (*group.inputs, *group.nodes):
        found |= symbols_in(node.meta.get("val"))
    return found


class _SizedGroup:
    """Compiles a group for each set of sizes that it is called with. Where it can't, torch runs it op by op."""

    def __init__(self, group: Group, settings: Settings, hinted: Runner) -> None:
        self._group = group
        self._settings = settings
        self._lock = threading.Lock()
        self._runners: dict[tuple[int, ...], Runner] = {}
        self._sources, self._symbols = self._find_sources(group)
        self._tensors = [at for at, n in enumerate(group.inputs) if isinstance(n.meta["val"], torch.Tensor)]
        self._module: torch.fx.GraphModule | None = None
        hints = [symbol_hint(group, symbol) for symbol in self._symbols]
        known = [hint for hint in hints if hint is not None]
        if len(known) == len(hints):
            self._runners[tuple(known)] = hinted

    @staticmethod
    def _find_sources(group: Group) -> tuple[list[tuple[int, int]], list[Any]]:
        """For each symbol that an input shows, where: the input and its dim, or -1 where the input is a number."""
        sources: dict[Any, tuple[int, int]] = {}
        for at, node in enumerate(group.inputs):
            meta = node.meta["val"]
            sizes = list(enumerate(meta.shape)) if isinstance(meta, torch.Tensor) else [(-1, meta)]
            for dim, size in sizes:
                symbol = symbol_of(size)
                if symbol is not None and (dim < 0 or symbol not in sources):
                    sources[symbol] = (at, dim)
        return list(sources.values()), list(sources)

    def __call__(self, *args: Any) -> tuple[torch.Tensor, ...]:
        key = tuple([args[at] if dim < 0 else args[at].shape[dim] for at, dim in self._sources])
        runner: Any = self._runners.get(key)
        if runner is None:
            runner = self._make(key)
        module: Any = self._module
        if runner is module:
            return module(*args)
        return runner(*[args[at] for at in self._tensors])

    def _make(self, key: tuple[int, ...]) -> Any:
        sizes = ", ".join(f"{symbol} = {size}" for symbol, size in zip(self._symbols, key))
        with self._lock:
            if key in self._runners:
                return self._runners[key]
            runner: Any
            try:
                lowered = _lower(self._group, self._settings, Sizes(dict(zip(self._symbols, _integers(key)))))
                result = _compile([lowered.text], self._settings)[0]
                if isinstance(result, Error):
                    raise result
                runner = _load(result, lowered, self._group, self._settings)
                RECORDER.note(f"compiled once more for the sizes {sizes}", logging.INFO)
            except (Refused, Error) as error:
                if isinstance(error, Error) and self._settings.options.on_server_loss == "raise":
                    raise
                RECORDER.note(f"in eager execution for the sizes {sizes}: {error}")
                if self._module is None:
                    self._module = eager_module(self._group)
                runner = self._module
            if len(self._runners) >= MOST_SIZES:
                del self._runners[next(iter(self._runners))]
            self._runners[key] = runner
            return runner


def _integers(key: Sequence[int]) -> list[Any]:
    import sympy  # type: ignore[import-untyped, unused-ignore]

    return [sympy.Integer(size) for size in key]


def symbol_hint(group: Group, symbol: Any) -> int | None:
    """The size that tracing has seen."""
    for node in group.inputs:
        meta = node.meta["val"]
        sizes: Sequence[Any] = meta.shape if isinstance(meta, torch.Tensor) else (meta,)
        for size in sizes:
            if symbol_of(size) == symbol and size.node.hint is not None:
                return int(size.node.hint)
    return None
