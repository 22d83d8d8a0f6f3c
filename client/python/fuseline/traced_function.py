"""jit: Python functions of arrays, traced into graphs, compiled once for each signature, and run.

    @fuseline.jit
    def f(x, w): return fnp.tanh(x @ w)

    y = f(x, w)

Arrays among the arguments (also inside tuples, lists and dicts), and tensors that the server keeps, are inputs of the
graph; whatever else they are is part of the signature, as the arrays' dtypes and shapes are. The function runs once for
each signature.

Where it runs: on the server; on this machine where an input is on a GPU, or with local=True (the launch library).
Pipeline: arguments -> trace -> Graph -> Client.compile -> Compiled -> outputs. Thread-safety: thread-safe. Errors: as
Client; InvalidArgumentError for what can't be traced. Tested by tests/python/test_tracing.py
"""

from __future__ import annotations

import functools
import inspect
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import numpy as np

from fuseline.client import Client, connect
from fuseline.compiled import Compiled
from fuseline.dlpack import view_of
from fuseline.dtypes import DType
from fuseline.errors import InvalidArgumentError
from fuseline.graph import Graph
from fuseline.launch import cuda_device
from fuseline.report import Explanation, KeptTensor
from fuseline.spec import Options
from fuseline.tracing import Array, Trace, as_array, trace_error, tracing

# A trace nests no deeper than the arguments do; arguments are written by hand.
_LEAF = "*"


class _Leaf:
    """An array among the arguments, as the signature has it."""

    __slots__ = ("cuda_device", "dtype", "shape", "strides")

    def __init__(self, value: Any) -> None:
        if isinstance(value, (np.ndarray, np.generic, KeptTensor)):
            self.dtype = DType.of(value.dtype)
            self.shape: tuple[int, ...] = value.shape
            self.strides: tuple[int, ...] | None = None
            self.cuda_device: int | None = None
            return
        view = view_of(value)
        self.dtype, self.shape, self.cuda_device = view.dtype, view.shape, view.cuda_device
        # On the way to the server memory becomes dense; on a GPU it is taken as it lies.
        self.strides = view.strides if view.cuda_device is not None else None

    def key(self) -> tuple[Any, ...]:
        return (self.dtype, self.shape, self.strides, self.cuda_device)


def _is_array(value: Any) -> bool:
    return (
        isinstance(value, (np.ndarray, np.generic, KeptTensor))
        or hasattr(value, "__dlpack__")
        or hasattr(value, "__cuda_array_interface__")
    )


def _flatten(value: Any, name: str, leaves: list[tuple[str, Any]]) -> Any:
    """Takes the arrays out; what is left is hashable and tells how they stood."""
    if _is_array(value):
        leaves.append((name, value))
        return _LEAF
    if isinstance(value, (tuple, list)):
        parts = tuple(_flatten(item, f"{name}.{i}", leaves) for i, item in enumerate(value))
        return (type(value) is list, parts)
    if isinstance(value, Mapping):
        return (dict, tuple((key, _flatten(item, f"{name}.{key}", leaves)) for key, item in value.items()))
    try:
        hash(value)
    except TypeError:
        raise trace_error(f"argument '{name}' is neither an array nor hashable: {type(value).__name__}") from None
    return (type(value), value)


def _rebuild(value: Any, arrays: Any) -> Any:
    """The arguments again, with traced arrays in place of those that were taken out."""
    if _is_array(value):
        return next(arrays)
    if isinstance(value, (tuple, list)):
        items = [_rebuild(item, arrays) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, Mapping):
        return {key: _rebuild(item, arrays) for key, item in value.items()}
    return value


class _Program:
    """A function traced for one signature."""

    def __init__(self, graph: Graph, result: Any, count: int) -> None:
        self.graph = graph
        self.result = result  # with positions of outputs in place of arrays
        self.output_count = count
        self.compiled: Compiled | None = None

    def is_output_itself(self) -> bool:
        return isinstance(self.result, _Position) and self.output_count == 1


class _Position(int):
    """Where an output stands in the graph's."""


# What a function of tensors gives where it is for others.
_OTHERS = object()


def _on_arrays(program: _Program, function: Callable[..., Any]) -> Callable[[Sequence[Any]], Any]:
    """What a compiled function of arrays gives, in the form that the traced function gave."""
    if program.is_output_itself():
        return lambda arrays: function(*arrays)
    single = program.output_count == 1
    return lambda arrays: _fill(program.result, (function(*arrays),) if single else function(*arrays))


def _collect(value: Any, trace: Trace, outputs: list[Array], depth: int = 0) -> Any:
    if isinstance(value, (tuple, list)):
        items = [_collect(item, trace, outputs) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, Mapping):
        return {key: _collect(item, trace, outputs) for key, item in value.items()}
    if _is_array(value) and not isinstance(value, KeptTensor):
        value = as_array(value)
    if isinstance(value, Array):
        if value.trace is not trace:
            raise trace_error("the function returns an array of another trace")
        outputs.append(value)
        return _Position(len(outputs) - 1)
    return value


def _fill(value: Any, outputs: tuple[Any, ...]) -> Any:
    if isinstance(value, _Position):
        return outputs[value]
    if isinstance(value, (tuple, list)):
        items = [_fill(item, outputs) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, Mapping):
        return {key: _fill(item, outputs) for key, item in value.items()}
    return value


def _device_of(key: Any) -> int | None:
    """The GPU that an argument is on; None: none is on any."""
    return next((leaf[3] for leaf in key[1] if leaf[3] is not None), None)


def _short_key(args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """What the arguments are where all are NumPy's arrays or PyTorch's tensors; else None."""
    key: list[Any] = []
    for value in args:
        if type(value) is np.ndarray:
            key.append((value.dtype, value.shape))
        elif hasattr(value, "data_ptr"):
            key.append((value.dtype, value.shape, value.stride(), value.device))
        else:
            return None
    return tuple(key)


class JitFunction:
    """What jit makes of a function."""

    def __init__(
        self,
        function: Callable[..., Any],
        client: Client | None,
        target: str | None,
        options: Options | None,
        local: bool | None,
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._signature = inspect.signature(function)
        self._client = client
        self._target = target
        self._options = options
        self._local = local
        self._lock = threading.Lock()
        self._programs: dict[Any, _Program] = {}
        # By what the arguments are where they are arrays alone: found without taking them apart.
        self._runs: dict[Any, Callable[[Sequence[Any]], Any]] = {}
        # By their number: the one that ran last, which looks itself whether PyTorch's tensors are what it takes.
        self._last: dict[int, Callable[..., Any]] = {}

    @property
    def client(self) -> Client:
        """The client that compiles; where none was given, one of $FUSELINE_SERVER's server."""
        with self._lock:
            if self._client is None:
                self._client = connect()
            return self._client

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        last = None if kwargs else self._last.get(len(args))
        if last is not None:
            try:
                result = last(*args)
                if result is not _OTHERS:
                    return result
            except AttributeError:  # what is not a tensor lacks what is asked for
                pass
        short = None if kwargs else _short_key(args)
        if short is not None:
            known = self._runs.get(short)
            if known is not None:
                return known(args)
        leaves, key, bound = self._take_apart(args, kwargs)
        run, checked = self._run_of(self._program(leaves, key, bound), _device_of(key))
        # An array by default is an input that the arguments lack.
        if short is not None and len(leaves) == len(args):
            self._runs[short] = run
            if checked is not None and all(hasattr(value, "data_ptr") for value in args):
                self._last[len(args)] = checked()
        return run([value for _, value in leaves])

    def graph(self, *args: Any, **kwargs: Any) -> Graph:
        """The graph for these arguments."""
        return self._program(*self._take_apart(args, kwargs)).graph

    def compile(self, *args: Any, **kwargs: Any) -> Compiled:
        """Compiled for these arguments, without running it."""
        leaves, key, bound = self._take_apart(args, kwargs)
        return self._compiled(self._program(leaves, key, bound), _device_of(key))

    def explain(self, *args: Any, stages: bool = False, key: bool = False, **kwargs: Any) -> Explanation:
        """What was fused, for these arguments."""
        return self.compile(*args, **kwargs).explain(stages=stages, key=key)

    @property
    def signature_count(self) -> int:
        """For how many signatures it was traced."""
        return len(self._programs)

    # --- Inside ---

    def _take_apart(self, args: Any, kwargs: Any) -> tuple[list[tuple[str, Any]], Any, inspect.BoundArguments]:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        leaves: list[tuple[str, Any]] = []
        form = tuple(_flatten(value, name, leaves) for name, value in bound.arguments.items())
        try:
            types = tuple(_Leaf(value).key() for _, value in leaves)
        except TypeError as error:
            raise InvalidArgumentError(str(error), reason="TENSOR_MISMATCH", subject="arguments") from None
        return leaves, (form, types), bound

    def _program(self, leaves: list[tuple[str, Any]], key: Any, bound: inspect.BoundArguments) -> _Program:
        found = self._programs.get(key)
        if found is None:
            traced = self._trace(leaves, key[1], bound)
            with self._lock:
                found = self._programs.setdefault(key, traced)
        return found

    def _trace(self, leaves: list[tuple[str, Any]], types: Any, bound: inspect.BoundArguments) -> _Program:
        graph = Graph(re.sub(r"[^A-Za-z0-9_.]", "_", getattr(self._function, "__name__", "")).lstrip("0123456789._"))
        trace = Trace(graph)
        inputs = []
        for (name, _), (dtype, shape, strides, _) in zip(leaves, types):
            clean = re.sub(r"[^A-Za-z0-9_.]", "_", name)
            while clean in graph.input_names:
                clean += "_"
            inputs.append(Array(trace, graph.input(clean, dtype, shape, strides), dtype, shape))
        arrays = iter(inputs)
        with tracing(trace):
            arguments = {name: _rebuild(value, arrays) for name, value in bound.arguments.items()}
            call = inspect.BoundArguments(self._signature, arguments)
            outputs: list[Array] = []
            result = _collect(self._function(*call.args, **call.kwargs), trace, outputs)
        for array in outputs:
            graph.output(array.value)
        return _Program(graph, result, len(outputs))

    def _run_of(
        self, program: _Program, device: int | None
    ) -> tuple[Callable[[Sequence[Any]], Any], Callable[[], Callable[..., Any]] | None]:
        """What runs a program on its arrays; and, of one that runs on this machine, what makes a function of PyTorch's
        tensors that gives _OTHERS where they are not what the program takes."""
        compiled = self._compiled(program, device)
        if device is None and not self._local:
            return _on_arrays(program, compiled), None
        launcher = compiled.launcher(None if device is None else cuda_device(device))

        def checked() -> Callable[..., Any]:
            from fuseline.launch_torch import checked_run

            run = checked_run(launcher, lambda *_: _OTHERS)
            if program.is_output_itself():
                return run
            fill = _on_arrays(program, lambda *results: results if program.output_count != 1 else results[0])

            def filled(*tensors: Any) -> Any:
                results = run(*tensors)
                if results is _OTHERS:
                    return results
                return fill((results,) if program.output_count == 1 else results)

            return filled

        return _on_arrays(program, launcher), checked

    def _compiled(self, program: _Program, device: int | None) -> Compiled:
        if program.compiled is None:
            target = self._target
            if target is None and device is not None:
                target = cuda_device(device).target
            elif target is None and self._local:
                target = "cpu"
            program.compiled = self.client.compile(
                program.graph,
                target=target,
                options=self._options,
                omit_artifact=device is None and not self._local,
            )
        return program.compiled


@overload
def jit(function: Callable[..., Any]) -> JitFunction: ...


@overload
def jit(
    *,
    client: Client | None = None,
    target: str | None = None,
    options: Options | None = None,
    local: bool | None = None,
) -> Callable[[Callable[..., Any]], JitFunction]: ...


def jit(
    function: Callable[..., Any] | None = None,
    *,
    client: Client | None = None,
    target: str | None = None,
    options: Options | None = None,
    local: bool | None = None,
) -> Any:
    """Traces a function of arrays, compiles it once for each signature, and runs it.

    `client`: by default one of the server at $FUSELINE_SERVER. `target`, `options`: as of Client.compile. `local`:
    launch on this machine also where the arguments are in the CPU's memory.
    """

    def wrap(wrapped: Callable[..., Any]) -> JitFunction:
        return JitFunction(wrapped, client, target, options, local)

    return wrap if function is None else wrap(function)
