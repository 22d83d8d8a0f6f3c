"""The text form: the same text as the command line's printer, and its errors."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

import fuseline
import numpy as np
import pytest
from fuseline import element_text

EVERYTHING = """# A comment
graph all(x: f32[4, n], s: f32[2, 3]{1, 2}, i: i64[4]) {
  %a = add(x, 2.0) : f32[4, n]
  %b, %c = var_mean(x) {dims = [], correction = 0} : _, f32[4, n]
  %k = constant {dtype = f32, shape = [2], data = [1, 1e-07]}
  %g = gelu(s) {approximate = "tanh"}
  %h = clamp(%g) {min = -1.5, max = inf}
  %q = mul(%h, nan)
  %w = where(true, %q, 0)
  return %a, y = %w, x, again = %a
}
"""
EVERYTHING = EVERYTHING.replace("constant {", "constant() {")


def formatted(cli: str, text: str) -> str:
    return subprocess.run([cli, "fmt", "-"], input=text, capture_output=True, text=True, check=True).stdout


def test_text_is_printed_as_the_command_line_prints_it(cli: str) -> None:
    graph = fuseline.Graph.from_text(EVERYTHING)
    assert graph.text() == formatted(cli, EVERYTHING)
    assert graph.output_names == ["out0", "y", "out2", "again"]
    assert graph.symbols == ["n"]


def test_every_graph_of_the_project_is_read_and_printed_the_same(cli: str, source_dir: Path) -> None:
    files = sorted((source_dir / "deploy" / "examples").rglob("*.fl"))
    assert len(files) > 10
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert fuseline.Graph.from_text(text).text() == formatted(cli, text), file


NUMBERS = [
    0.0, -0.0, 1.0, -1.5, 0.1, 1e5, 100000.0, 1e15, 1e16, 1e22, 1.2345678901234568e20, 1e-4, 1e-5, 123456.789, 5e-324,
    1.7976931348623157e308, 2.0**53, 2.0**63, 1 / 3, 1e-7, 0.00012, 12e10, math.inf, -math.inf, math.nan,
]  # fmt: skip


def constant_text(dtype: str, data: bytes, count: int) -> str:
    g = fuseline.Graph()
    g.output(g.constant_bytes(data, dtype, [count]))
    return g.text()


@pytest.mark.parametrize(
    "dtype", ["f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i64", "i32", "i16", "i8", "u8", "bool"]
)
def test_elements_are_printed_as_the_command_line_prints_them(cli: str, dtype: str) -> None:
    kind = fuseline.DType.of(dtype)
    if kind in (fuseline.DType.F64, fuseline.DType.F32):
        data = np.concatenate([np.array(NUMBERS), np.random.default_rng(1).standard_normal(50)])
        with np.errstate(over="ignore"):
            bytes_ = data.astype(kind.numpy).tobytes()
    elif kind is fuseline.DType.BOOL:
        bytes_ = b"\0\1\1"
    elif kind.itemsize == 1:
        bytes_ = bytes(range(256))
    else:
        bytes_ = np.random.default_rng(1).integers(0, 256, 64 * kind.itemsize, dtype=np.uint8).tobytes()
    text = constant_text(dtype, bytes_, len(bytes_) // kind.itemsize)
    assert text == formatted(cli, text)
    assert fuseline.Graph.from_text(text).nodes[0].data == bytes_


def test_literals_are_printed_as_the_command_line_prints_them(cli: str) -> None:
    g = fuseline.Graph()
    x = g.input("x", "f64", [2])
    for number in NUMBERS:
        x = g.add(x, number)
    g.output(x)
    assert g.text() == formatted(cli, g.text())


def test_narrow_elements_round_once() -> None:
    # Half-way between two values of bf16, and a little above: through f64 the second would round down too.
    assert element_text.parse_element("1.00390625", fuseline.DType.BF16) == b"\x80\x3f"
    assert element_text.parse_element("1.0039062500000000000000000001", fuseline.DType.BF16) == b"\x81\x3f"
    assert element_text.parse_element("1e10", fuseline.DType.F8E4M3) == b"\x7e"
    assert element_text.parse_element("1e10", fuseline.DType.F16) == b"\x00\x7c"


ERRORS = [
    ("graph g(x: f32[2]) {\n  %t = mul(x 2.0)\n  return %t\n}", "line 2, column 14: expected ',' between operands"),
    ("graph g(x: f33[2]) { return x }", "line 1, column 12: unknown dtype 'f33'"),
    ("graph g(x: f32[2]) { return %x }", "'x' is an input: it has no '%'"),
    ("graph g(x: f32[2]) { %t = neg(x) return t }", "'t' is a result: write '%t'"),
    ("graph g(x: f32[2]) { %t = neg(y) return %t }", "'y' is not an input"),
    ("graph g(x: f32[2]) { %t = neg(x) %t = neg(x) return %t }", "the name 't' is defined twice"),
    ("graph g(x: f32[2], x: f32[2]) { return x }", "the name 'x' is defined twice"),
    ("graph g(x: f32[-2]) { return x }", "dim -2 is negative"),
    ("graph g(x: f32[2]) { %t = sum(x) {dims = [0], dims = [0]} return %t }", "attribute 'dims' is given twice"),
    ("graph g(x: f32[2]) { %t = sum(x) {dims = [0, true]} return %t }", "mixes booleans and numbers"),
    ("graph g() { %t = constant() {dtype = u8, shape = [1], data = [300]} return %t }", "element 300 does not fit u8"),
    ("graph g() { %t = constant() {shape = [1], data = [3]} return %t }", "data needs the attribute 'dtype'"),
    ("graph g(x: f32[2]) { return x } more", "expected the end of the text, got 'more'"),
    ("graph g(x: f32[2]) { %t = add(x, 1e999) return %t }", "number 1e999 does not fit f64"),
    ("graph g(x: f32[2]) { $ }", "unexpected character '$'"),
    ("grph", "expected 'graph'"),
    ("", "expected 'graph'"),
]


@pytest.mark.parametrize(("text", "message"), ERRORS)
def test_malformed_text_says_where(text: str, message: str, cli: str) -> None:
    with pytest.raises(fuseline.InvalidArgumentError) as caught:
        fuseline.Graph.from_text(text)
    assert message in caught.value.message
    assert caught.value.message.startswith("line ")
    assert caught.value.reason == "GRAPH_SYNTAX"
    # The command line refuses it at the same place.
    refused = subprocess.run([cli, "fmt", "-"], input=text, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert caught.value.message.split(":")[0] in refused.stderr
