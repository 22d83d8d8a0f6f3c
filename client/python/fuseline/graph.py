"""Graphs: built node by node, or read from their text form (docs/ir.md), and given to a client as they are.

    g = Graph("norm")
    x = g.input("x", "f32", ["rows", 4096])
    w = g.input("w", "f32", [4096])
    g.output(g.silu(g.rms_norm(x, w, dims=[-1])), "y")
    print(g.text())

Every op of docs/ir.md is a method: operands by position (numbers stand for literals), attributes by keyword. Names,
counts and attributes are checked at once where the package has the op table; types by the server.

Pipeline: Python calls, text -> Graph -> fuseline.v1.Graph. Thread-safety: thread-compatible; a graph that no longer
changes may be shared. Errors: InvalidArgumentError. Tested by tests/python/test_graph.py
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Union

import numpy as np

from fuseline import op_table, protocol
from fuseline.dtypes import DType
from fuseline.errors import InvalidArgumentError

Literal = Union[bool, int, float]
Operand = Union["Value", Literal]
Dim = Union[int, str]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")


class TensorType:
    """A dtype, dims (sizes, or names of symbols) and, for an input that is not dense row-major, strides in elements."""

    __slots__ = ("dtype", "shape", "strides")

    def __init__(self, dtype: Any, shape: Iterable[Dim] = (), strides: Iterable[int] | None = None) -> None:
        self.dtype = DType.of(dtype)
        self.shape: tuple[Dim, ...] = tuple(dim if isinstance(dim, str) else int(dim) for dim in shape)
        self.strides = None if strides is None else tuple(int(stride) for stride in strides)
        if self.strides is not None and len(self.strides) != len(self.shape):
            raise _structure_error("type", f"{len(self.shape)} dims, but {len(self.strides)} strides")
        if self.strides is not None and self.strides == dense_strides(self.shape):
            self.strides = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorType):
            return NotImplemented
        return (self.dtype, self.shape, self.strides) == (other.dtype, other.shape, other.strides)

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape, self.strides))

    def __str__(self) -> str:
        text = f"{self.dtype}[{', '.join(map(str, self.shape))}]"
        return text if self.strides is None else text + "{" + ", ".join(map(str, self.strides)) + "}"

    def __repr__(self) -> str:
        return f"TensorType('{self}')"

    def fill(self, proto: Any) -> None:
        """Writes itself into a fuseline.v1.TensorType."""
        proto.dtype = self.dtype.number
        for dim in self.shape:
            if isinstance(dim, str):
                proto.dims.add().symbol = dim
            else:
                proto.dims.add().size = dim
        if self.strides is not None:
            proto.layout.strides.extend(self.strides)
            proto.layout.SetInParent()


class Value:
    """A value of a graph: an input, or a result of a node."""

    __slots__ = ("graph", "index", "is_input", "name", "type")

    def __init__(self, graph: Graph, name: str, index: int, is_input: bool, type: TensorType | None) -> None:
        self.graph = graph
        self.name = name
        self.index = index
        """Inputs and results are numbered apart, each in order."""
        self.is_input = is_input
        self.type = type
        """Of an input; of a result, what was declared, or None."""

    def __str__(self) -> str:
        return self.name if self.is_input else "%" + self.name

    def __repr__(self) -> str:
        return f"<fuseline value {self}>"


class Node:
    """One application of an op."""

    __slots__ = ("attributes", "data", "op", "operands", "origin", "results")

    def __init__(self, op: str, operands: tuple[Operand, ...], attributes: dict[str, Any], origin: str) -> None:
        self.op = op
        self.operands = operands
        self.attributes = attributes
        self.origin = origin
        self.results: tuple[Value, ...] = ()
        self.data: bytes | None = None
        """Of a constant: the elements, dense row-major, little-endian."""


class Graph:
    """A graph under construction."""

    def __init__(self, name: str = "") -> None:
        if name and not _NAME.match(name):
            raise _structure_error("name", f"'{name}' is no name")
        self.name = name
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.outputs: list[tuple[str, Value]] = []
        self._names: set[str] = set()
        self._result_count = 0
        self._serialized: tuple[bytes, bytes] | None = None  # and its digest

    # --- Building ---

    def input(self, name: str, dtype: Any, shape: Iterable[Dim] = (), strides: Iterable[int] | None = None) -> Value:
        """Adds an input. `shape`: sizes, and names of symbolic dims. `strides`: in elements, where it is not dense."""
        self._changed()
        value = Value(self, self._take(name), len(self.inputs), True, TensorType(dtype, shape, strides))
        self.inputs.append(value)
        return value

    def op(
        self,
        op: str,
        *operands: Operand,
        results: int | None = None,
        names: Sequence[str] | None = None,
        types: Sequence[TensorType | None] | None = None,
        origin: str = "",
        **attributes: Any,
    ) -> Any:
        """Adds a node; returns its result, or a tuple of them where the op has several.

        `results`: how many, where the op table is not in the package. `names`: of the results. `types`: declared types,
        which the server compares with its own. `origin`: where the node comes from, for messages and reports.
        Attributes that are None are left out.
        """
        node = Node(op, operands, {}, origin)
        row = op_table.ops().get(op)
        where = f"%{names[0]}" if names else f"%t{self._result_count}"
        if row is None and op_table.ops():
            raise _structure_error(where, f"there is no op '{op}'")
        for operand in operands:
            if isinstance(operand, Value):
                if operand.graph is not self:
                    raise _structure_error(where, f"{op}: '{operand}' is of another graph")
            elif not isinstance(operand, (bool, int, float, np.number, np.bool_)):
                raise _structure_error(where, f"{op}: operand {operand!r} is neither a value of the graph nor a number")
        node.operands = tuple(o if isinstance(o, Value) else _plain_number(o) for o in operands)
        count = results if results is not None else 1
        if row is not None:
            least, most = row.min_operands, row.max_operands
            if len(operands) < least or 0 <= most < len(operands):
                takes = f"{least}" if least == most else f"{least} to {most}" if most >= 0 else f"at least {least}"
                raise _structure_error(where, f"{op}: takes {takes} operands, has {len(operands)}")
            if results is not None and results != row.results:
                raise _structure_error(where, f"{op}: has {row.results} results, not {results}")
            count = row.results
            for spec in row.attributes.values():
                if spec.required and attributes.get(spec.name) is None:
                    raise _structure_error(where, f"{op}: attribute '{spec.name}' is missing")
        for name, value in attributes.items():
            if value is None:
                continue
            known = None if row is None else row.attributes.get(name)
            if row is not None and (known is None or known.type == "data"):
                raise _structure_error(where, f"{op}: has no attribute '{name}'")
            try:
                node.attributes[name] = _attribute_value(name, value, known)
            except (TypeError, ValueError, OverflowError) as error:
                raise _structure_error(where, f"{op}: attribute '{name}': {error}") from None
        return self._add(node, count, names, types)

    def constant(self, array: Any, dtype: Any = None, *, name: str | None = None, origin: str = "") -> Value:
        """Adds a constant: a NumPy array, or what NumPy makes one of."""
        kind = DType.of(dtype) if dtype is not None else None
        values = np.asarray(array, dtype=None if kind is None else kind.numpy)
        if kind is None:
            kind = DType.of(values.dtype)
        return self.constant_bytes(values.tobytes(), kind, values.shape, name=name, origin=origin)

    def constant_bytes(
        self, data: bytes, dtype: Any, shape: Iterable[int], *, name: str | None = None, origin: str = ""
    ) -> Value:
        """Adds a constant from the bytes of its elements: dense, row-major, little-endian."""
        kind = DType.of(dtype)
        node = Node("constant", (), {"dtype": kind, "shape": [int(size) for size in shape]}, origin)
        count = 1
        for size in node.attributes["shape"]:
            count *= size
        if len(data) != count * kind.itemsize:
            raise _structure_error("constant", f"{len(data)} bytes where the shape has {count * kind.itemsize}")
        node.data = bytes(data)
        return self._add(node, 1, None if name is None else [name], None)

    def output(self, value: Value, name: str | None = None) -> None:
        """Returns a value; unnamed: "out" and its position."""
        if value.graph is not self:
            raise _structure_error("outputs", f"'{value}' is of another graph")
        self._changed()
        name = f"out{len(self.outputs)}" if name is None else name
        if not _NAME.match(name) or any(name == other for other, _ in self.outputs):
            raise _structure_error("outputs", f"'{name}' is no name, or taken")
        self.outputs.append((name, value))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or (op_table.ops() and name not in op_table.ops()):
            raise AttributeError(f"there is no op '{name}'")
        return lambda *operands, **attributes: self.op(name, *operands, **attributes)

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *op_table.ops()]

    # --- Out ---

    @property
    def input_names(self) -> list[str]:
        return [value.name for value in self.inputs]

    @property
    def output_names(self) -> list[str]:
        return [name for name, _ in self.outputs]

    @property
    def symbols(self) -> list[str]:
        """The symbolic dims of the inputs, in the order in which they occur."""
        found = {}
        for value in self.inputs:
            for dim in value.type.shape if value.type is not None else ():
                if isinstance(dim, str):
                    found[dim] = True
        return list(found)

    def text(self) -> str:
        """The text form. `fuseline fmt` prints the same."""
        from fuseline.graph_text import print_graph

        return print_graph(self)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<fuseline graph {self.name!r}: {len(self.inputs)} inputs, {len(self.nodes)} nodes>"

    @staticmethod
    def from_text(text: str) -> Graph:
        """Reads the text form. Raises InvalidArgumentError (GRAPH_SYNTAX, GRAPH_STRUCTURE)."""
        from fuseline.graph_text import parse_graph

        return parse_graph(text)

    def serialized(self) -> tuple[bytes, bytes]:
        """The graph as a serialised fuseline.v1.Graph, and the SHA-256 of that. Kept until the graph changes."""
        if self._serialized is None:
            data = self.to_proto().SerializeToString(deterministic=True)
            self._serialized = (data, hashlib.sha256(data).digest())
        return self._serialized

    def to_proto(self) -> Any:
        """A new fuseline.v1.Graph."""
        if not self.outputs:
            raise _structure_error("outputs", "the graph returns nothing")
        proto = protocol.message("Graph")(name=self.name)
        inputs = len(self.inputs)
        for value in self.inputs:
            entry = proto.inputs.add(name=value.name)
            assert value.type is not None
            value.type.fill(entry.type)
        for node in self.nodes:
            entry = proto.nodes.add(op=node.op, origin=node.origin)
            for operand in node.operands:
                target = entry.operands.add()
                if isinstance(operand, Value):
                    target.value_index = operand.index if operand.is_input else inputs + operand.index
                elif isinstance(operand, bool):
                    target.literal.bool_value = operand
                elif isinstance(operand, int):
                    target.literal.int_value = operand
                else:
                    target.literal.float_value = operand
            for name, value in node.attributes.items():
                _fill_attribute(entry.attributes[name], value)
            for result in node.results:
                field = entry.results.add(name=result.name)
                if result.type is not None:
                    result.type.fill(field.declared_type)
            if node.data is not None:
                entry.constant_data = node.data
        for name, value in self.outputs:
            proto.outputs.add(name=name, value_index=value.index if value.is_input else inputs + value.index)
        return proto

    # --- Inside ---

    def _changed(self) -> None:
        self._serialized = None

    def _take(self, name: str) -> str:
        if not _NAME.match(name):
            raise _structure_error(name, f"'{name}' is no name")
        if name in self._names:
            raise _structure_error(name, f"the name '{name}' is taken")
        self._names.add(name)
        return name

    def _free_name(self) -> str:
        number = self._result_count
        while f"t{number}" in self._names:
            number += 1
        return f"t{number}"

    def _add(
        self, node: Node, count: int, names: Sequence[str] | None, types: Sequence[TensorType | None] | None
    ) -> Any:
        if names is not None and len(names) != count:
            raise _structure_error(f"%{names[0]}" if names else node.op, f"{node.op}: has {count} results")
        self._changed()
        results = []
        for i in range(count):
            name = self._take(names[i] if names is not None else self._free_name())
            results.append(Value(self, name, self._result_count, False, None if types is None else types[i]))
            self._result_count += 1
        node.results = tuple(results)
        self.nodes.append(node)
        return results[0] if count == 1 else node.results


def dense_strides(shape: Sequence[Dim]) -> tuple[int, ...] | None:
    """Those of a dense row-major tensor, in elements; None where a size is not known."""
    strides: list[int] = []
    step = 1
    for i, size in reversed(list(enumerate(shape))):
        strides.append(step)
        if i > 0:  # the stride of the outermost dim is the last that matters
            if isinstance(size, str):
                return None
            step *= size
    return tuple(reversed(strides))


def _structure_error(subject: str, message: str) -> InvalidArgumentError:
    prefix = f"node '{subject}': " if subject.startswith("%") else ""
    return InvalidArgumentError(prefix + message, reason="GRAPH_STRUCTURE", subject=subject)


def _plain_number(value: Any) -> Literal:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    return float(value)


def _attribute_value(name: str, value: Any, spec: op_table.Attribute | None) -> Any:
    """One of int, float, bool, str, DType and lists of them: as the op table says, or else as it looks."""
    wanted = spec.type if spec is not None else ("dtype" if name == "dtype" else None)
    if wanted == "dtype":
        return DType.of(value)
    if wanted in ("int_list", "float_list"):
        items = value if isinstance(value, (list, tuple, np.ndarray)) else [value]
        return [_integer(item) if wanted == "int_list" else float(item) for item in items]
    if wanted == "int":
        return _integer(value)
    if wanted == "float":
        return float(value)
    if wanted == "bool":
        if not isinstance(value, (bool, np.bool_)):
            raise TypeError(f"expected a boolean, got {value!r}")
        return bool(value)
    if wanted == "string":
        if not isinstance(value, str):
            raise TypeError(f"expected a string, got {value!r}")
        return value
    if isinstance(value, (DType, str)):
        return value
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain_number(item) for item in value]
    if isinstance(value, (bool, int, float, np.number, np.bool_)):
        return _plain_number(value)
    raise TypeError(f"{value!r} is no value of an attribute")


def _integer(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"expected an integer, got {value!r}")
    return int(value)


def _fill_attribute(proto: Any, value: Any) -> None:
    if isinstance(value, DType):
        proto.dtype_value = value.number
    elif isinstance(value, bool):
        proto.bool_value = value
    elif isinstance(value, int):
        proto.int_value = value
    elif isinstance(value, float):
        proto.float_value = value
    elif isinstance(value, str):
        proto.string_value = value
    elif value and all(isinstance(item, bool) for item in value):
        proto.bool_list.values.extend(value)
    elif any(isinstance(item, float) for item in value):
        proto.float_list.values.extend(value)
    else:
        proto.int_list.values.extend(value)
        proto.int_list.SetInParent()


def as_graph(graph: Graph | str) -> Graph:
    """A graph as it is, or from its text."""
    if isinstance(graph, Graph):
        return graph
    if isinstance(graph, str):
        return Graph.from_text(graph)
    raise TypeError(f"expected a fuseline.Graph or its text, got {type(graph).__name__}")
