"""The text form of graphs (docs/ir.md): parser and printer, inverses of each other.

Pipeline: text -> parse_graph -> Graph -> print_graph -> text. Thread-safety: pure functions. Neither recurses on the
input. Errors: InvalidArgumentError (GRAPH_SYNTAX) with "line L, column C: …". Tested by tests/python/test_graph_text.py
"""

from __future__ import annotations

import re
from typing import Any

from fuseline import op_table
from fuseline.dtypes import DType
from fuseline.element_text import double_text, elements_text, literal_text, parse_element, parse_number
from fuseline.errors import InvalidArgumentError
from fuseline.graph import Graph, Node, Operand, TensorType, Value

_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\r\n]|\#[^\n]*)+)
      | (?P<punct>[(){}\[\],=:])
      | (?P<string>"(?:\\.|[^"\\\n])*")
      | (?P<value>%[A-Za-z_][A-Za-z0-9_.]*)
      | (?P<number>nan\(0x[0-9a-fA-F]*\) | (?:-?inf|nan)(?![A-Za-z0-9_.])
          | -?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_.]))
      | (?P<word>[A-Za-z_][A-Za-z0-9_.]*)
    """,
    re.VERBOSE,
)
_DTYPES = {dtype.value: dtype for dtype in DType}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)")


def parse_graph(text: str) -> Graph:
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._kind = ""
        self._token = ""
        self._offset = 0
        self._values: dict[str, Value] = {}
        self._graph = Graph()
        self._advance()

    def parse(self) -> Graph:
        if self._token != "graph" or self._kind != "word":
            raise self._error("expected 'graph'")
        self._advance()
        if self._kind == "word":
            self._graph.name = self._token
            self._advance()
        self._expect("(", "before the inputs")
        while self._token != ")":
            if self._graph.inputs:
                self._expect(",", "between inputs")
            self._input()
        self._advance()
        self._expect("{", "before the statements")
        while self._kind == "value":
            self._statement()
        if self._kind != "word" or self._token != "return":
            raise self._error(f"expected a statement or 'return', got {self._got()}")
        self._advance()
        self._returns()
        self._expect("}", "after the outputs")
        if self._kind != "end":
            raise self._error(f"expected the end of the text, got {self._got()}")
        return self._graph

    # --- Tokens ---

    def _advance(self) -> None:
        while True:
            if self._position == len(self._text):
                self._kind, self._token, self._offset = "end", "", self._position
                return
            match = _TOKEN.match(self._text, self._position)
            if match is None:
                self._offset = self._position
                raise self._error(f"unexpected character {self._text[self._position]!r}")
            kind = match.lastgroup or ""
            self._offset, self._position = match.start(), match.end()
            if kind != "space":
                self._kind, self._token = kind, match.group()
                if self._token in ("true", "false"):
                    self._kind = "bool"
                return

    def _got(self) -> str:
        return "the end of the text" if self._kind == "end" else f"'{self._token[:40]}'"

    def _error(self, message: str, offset: int | None = None) -> InvalidArgumentError:
        offset = self._offset if offset is None else offset
        line = self._text.count("\n", 0, offset) + 1
        column = offset - self._text.rfind("\n", 0, offset)
        return InvalidArgumentError(f"line {line}, column {column}: {message}", reason="GRAPH_SYNTAX")

    def _expect(self, punct: str, where: str) -> None:
        if self._kind != "punct" or self._token != punct:
            raise self._error(f"expected '{punct}' {where}, got {self._got()}")
        self._advance()

    # --- Parts ---

    def _number(self) -> Any:
        if self._kind == "bool":
            value: bool | int | float = self._token == "true"
        elif self._kind == "number":
            try:
                value = parse_number(self._token)
            except ValueError as error:
                raise self._error(str(error)) from None
        else:
            raise self._error(f"expected a number or a boolean, got {self._got()}")
        self._advance()
        return value

    def _integer(self, what: str) -> int:
        offset, got = self._offset, self._got()
        if self._kind != "number":
            raise self._error(f"expected {what}, got {got}")
        value = self._number()
        if not isinstance(value, int):
            raise self._error(f"expected {what}, got {got}", offset)
        return value

    def _type(self) -> TensorType:
        if self._kind != "word" or self._token not in _DTYPES:
            raise self._error(f"unknown dtype {self._got()}")
        dtype = _DTYPES[self._token]
        self._advance()
        self._expect("[", "after the dtype")
        dims: list[int | str] = []
        while self._token != "]":
            if dims:
                self._expect(",", "between dims")
            if self._kind == "word":
                dims.append(self._token)
                self._advance()
            else:
                offset = self._offset
                size = self._integer("a dim")
                if size < 0:
                    raise self._error(f"dim {size} is negative", offset)
                dims.append(size)
        self._advance()
        if self._token != "{" or self._kind != "punct":
            return TensorType(dtype, dims)
        offset = self._offset
        self._advance()
        strides: list[int] = []
        while self._token != "}":
            if strides:
                self._expect(",", "between strides")
            strides.append(self._integer("a stride"))
        self._advance()
        if len(strides) != len(dims):
            raise self._error(f"{len(dims)} dims, but {len(strides)} strides", offset)
        return TensorType(dtype, dims, strides)

    def _input(self) -> None:
        if self._kind != "word":
            raise self._error(f"expected the name of an input, got {self._got()}")
        name, offset = self._token, self._offset
        self._advance()
        self._expect(":", "after the name of an input")
        type_ = self._type()
        if name in self._values:
            raise self._error(f"the name '{name}' is defined twice", offset)
        self._values[name] = self._graph.input(name, type_.dtype, type_.shape, type_.strides)

    def _value(self) -> Value:
        is_result = self._kind == "value"
        name = self._token[1:] if is_result else self._token
        value = self._values.get(name)
        if value is None:
            raise self._error(f"no statement above defines '%{name}'" if is_result else f"'{name}' is not an input")
        if value.is_input == is_result:
            raise self._error(
                f"'{name}' is an input: it has no '%'" if is_result else f"'{name}' is a result: write '%{name}'"
            )
        self._advance()
        return value

    def _statement(self) -> None:
        begin = self._offset
        names: list[str] = []
        while True:
            if self._kind != "value":
                raise self._error(f"expected a result such as '%t0', got {self._got()}")
            names.append(self._token[1:])
            if names[-1] in self._values or names[-1] in names[:-1]:
                raise self._error(f"the name '{names[-1]}' is defined twice")
            self._advance()
            if self._token != ",":
                break
            self._advance()
        self._expect("=", "after the results")
        if self._kind != "word":
            raise self._error(f"expected an op, got {self._got()}")
        op = self._token
        self._advance()
        self._expect("(", "after the op")
        operands: list[Operand] = []
        while self._token != ")":
            if operands:
                self._expect(",", "between operands")
            operands.append(self._value() if self._kind in ("value", "word") else self._number())
        self._advance()
        attributes: dict[str, Any] = {}
        data = None
        if self._token == "{" and self._kind == "punct":
            attributes, data = self._attributes(op)
        types: list[TensorType | None] = [None] * len(names)
        if self._token == ":" and self._kind == "punct":
            self._advance()
            for i in range(len(names)):
                if i > 0:
                    self._expect(",", "between the types of the results")
                if self._token == "_":
                    self._advance()
                else:
                    types[i] = self._type()
        try:
            # Attributes stay as they are written: the server says what does not fit.
            node = Node(op, tuple(operands), attributes, "")
            node.data = data
            row = op_table.ops().get(op)
            if row is not None and row.results != len(names):
                raise self._error(f"{op}: has {row.results} results, not {len(names)}", begin)
            results = self._graph._add(node, len(names), names, types)
        except InvalidArgumentError as error:
            raise error if error.reason == "GRAPH_SYNTAX" else self._error(error.message, begin) from None
        for name, value in zip(names, results if len(names) > 1 else [results]):
            self._values[name] = value

    def _attributes(self, op: str) -> tuple[dict[str, Any], bytes | None]:
        self._advance()
        attributes: dict[str, Any] = {}
        data: list[tuple[str, int]] | None = None
        begin = self._offset
        first = True
        while self._token != "}":
            if not first:
                self._expect(",", "between attributes")
            first = False
            if self._kind != "word":
                raise self._error(f"expected the name of an attribute, got {self._got()}")
            name = self._token
            if name in attributes or (name == "data" and data is not None):
                raise self._error(f"attribute '{name}' is given twice")
            self._advance()
            self._expect("=", "after the name of an attribute")
            if op == "constant" and name == "data":
                begin = self._offset
                data = self._elements()
            else:
                attributes[name] = self._attribute_value()
        self._advance()
        if data is None:
            return attributes, None
        dtype = attributes.get("dtype")
        if not isinstance(dtype, DType):
            raise self._error("data needs the attribute 'dtype'", begin)
        parts = []
        for text, offset in data:
            try:
                parts.append(parse_element(text, dtype))
            except ValueError as error:
                raise self._error(str(error), offset) from None
        return attributes, b"".join(parts)

    def _elements(self) -> list[tuple[str, int]]:
        self._expect("[", "before the data")
        elements: list[tuple[str, int]] = []
        while self._token != "]":
            if elements:
                self._expect(",", "between elements")
            if self._kind not in ("number", "bool"):
                raise self._error(f"expected an element, got {self._got()}")
            elements.append((self._token, self._offset))
            self._advance()
        self._advance()
        return elements

    def _attribute_value(self) -> Any:
        if self._kind == "string":
            value: Any = self._string()
            self._advance()
            return value
        if self._kind == "word":
            if self._token not in _DTYPES:
                raise self._error(f"expected a value, got {self._got()}, which is no dtype")
            value = _DTYPES[self._token]
            self._advance()
            return value
        if self._kind != "punct" or self._token != "[":
            return self._number()
        self._advance()
        begin = self._offset
        items: list[Any] = []
        while self._token != "]":
            if items:
                self._expect(",", "between the elements of a list")
            items.append(self._number())
        self._advance()
        booleans = sum(isinstance(item, bool) for item in items)
        if booleans not in (0, len(items)):
            raise self._error("the list mixes booleans and numbers", begin)
        return [float(i) for i in items] if any(isinstance(item, float) for item in items) else items

    def _string(self) -> str:
        def replace(match: re.Match[str]) -> str:
            code = match[1]
            if code[0] == "x" and len(code) == 3:
                return chr(int(code[1:], 16))
            plain = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}.get(code)
            if plain is None:
                raise self._error("unknown escape in the string")
            return plain

        return _ESCAPE.sub(replace, self._token[1:-1])

    def _returns(self) -> None:
        while True:
            name = None
            if self._kind == "word" and self._text[self._position :].lstrip(" \t\r\n").startswith("="):
                name = self._token
                self._advance()
                self._advance()
            if self._kind not in ("value", "word"):
                raise self._error(f"expected an output, got {self._got()}")
            offset = self._offset
            value = self._value()
            try:
                self._graph.output(value, name)
            except InvalidArgumentError as error:
                raise self._error(error.message, offset) from None
            if self._token != ",":
                return
            self._advance()


def _string_text(value: str) -> str:
    out = []
    for byte in value.encode("utf-8"):
        char = chr(byte)
        if char in '"\\':
            out.append("\\" + char)
        elif char == "\n":
            out.append("\\n")
        elif char == "\t":
            out.append("\\t")
        elif byte < 0x20 or byte == 0x7F:
            out.append(f"\\x{byte:02x}")
        else:
            out.append(char)
    return '"' + "".join(out).encode("latin-1").decode("utf-8") + '"'


def value_text(value: Any) -> str:
    if isinstance(value, DType):
        return value.value
    if isinstance(value, str):
        return _string_text(value)
    if isinstance(value, (list, tuple)):
        if any(isinstance(item, float) for item in value):
            return "[" + ", ".join(double_text(float(item)) for item in value) + "]"
        return "[" + ", ".join(map(literal_text, value)) + "]"
    return literal_text(value)


def _attributes_text(node: Node) -> str:
    parts = [(name, value_text(value)) for name, value in node.attributes.items()]
    if node.data is not None:
        dtype = node.attributes.get("dtype")
        parts.append(("data", "[" + ", ".join(elements_text(dtype, node.data) if dtype is not None else ()) + "]"))
    if not parts:
        return ""
    return " {" + ", ".join(f"{name} = {text}" for name, text in sorted(parts)) + "}"


def print_graph(graph: Graph) -> str:
    inputs = ", ".join(f"{value.name}: {value.type}" for value in graph.inputs)
    lines = [f"graph {graph.name}({inputs}) {{"]
    for node in graph.nodes:
        results = ", ".join(map(str, node.results))
        operands = ", ".join(str(o) if isinstance(o, Value) else literal_text(o) for o in node.operands)
        declared = ""
        if any(result.type is not None for result in node.results):
            types = ", ".join("_" if r.type is None else str(r.type) for r in node.results)
            declared = f" : {types}"
        lines.append(f"  {results} = {node.op}({operands}){_attributes_text(node)}{declared}")
    outputs = ", ".join(
        str(value) if name == f"out{i}" else f"{name} = {value}" for i, (name, value) in enumerate(graph.outputs)
    )
    lines.append(f"  return {outputs}")
    return "\n".join(lines) + "\n}\n"
