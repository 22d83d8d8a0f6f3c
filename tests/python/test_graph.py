"""Graphs built in Python: what is refused at once, and what the server makes of the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fuseline
import numpy as np
import pytest
from fuseline import op_table


def norm() -> fuseline.Graph:
    g = fuseline.Graph("norm")
    x = g.input("x", "f32", ["rows", 8])
    w = g.input("w", "f32", [8])
    g.output(g.silu(g.rms_norm(x, w, dims=[-1])), "y")
    return g


def test_built_graph_prints_as_the_text_form() -> None:
    assert norm().text() == (
        "graph norm(x: f32[rows, 8], w: f32[8]) {\n"
        "  %t0 = rms_norm(x, w) {dims = [-1]}\n"
        "  %t1 = silu(%t0)\n"
        "  return y = %t1\n"
        "}\n"
    )
    assert norm().symbols == ["rows"]
    assert norm().input_names == ["x", "w"]
    assert norm().output_names == ["y"]


def test_built_graph_runs(client: fuseline.Client) -> None:
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    y = client.execute(norm(), {"x": x, "w": np.ones(8, np.float32)}).outputs["y"]
    n = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, n / (1 + np.exp(-n)), rtol=1e-5)


def test_ops_with_several_results_give_tuples(client: fuseline.Client) -> None:
    g = fuseline.Graph()
    x = g.input("x", "f32", [4])
    variance, mean = g.var_mean(x, correction=0)
    g.output(variance)
    g.output(g.add(mean, 1), "m")
    outputs = client.execute(g, [np.arange(4, dtype=np.float32)]).outputs
    assert outputs["out0"] == 1.25 and outputs["m"] == 2.5


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "i64", "i32", "i16", "i8", "u8", "bool"])
def test_constants_and_every_dtype_travel(client: fuseline.Client, dtype: str) -> None:
    numpy_dtype = fuseline.DType.of(dtype).numpy
    values = np.array([[0, 1], [1, 0]]).astype(numpy_dtype)
    g = fuseline.Graph()
    x = g.input("x", dtype, [2, 2])
    g.output(g.eq(x, g.constant(values)))
    g.output(g.reshape(x, shape=[4]), "same")
    outputs = client.execute(g, [values]).outputs
    assert outputs["out0"].all() and outputs["out0"].dtype == bool
    assert outputs["same"].dtype == numpy_dtype and (outputs["same"] == values.ravel()).all()


def test_narrow_floats_travel_as_ml_dtypes(client: fuseline.Client) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    g = fuseline.Graph()
    x = g.input("x", "bf16", [3])
    g.output(g.mul(x, 2), "double")
    g.output(g.cast(x, dtype="f8e5m2"), "small")
    outputs = client.execute(g, [np.array([1, 2.5, -3], ml_dtypes.bfloat16)]).outputs
    assert outputs["double"].dtype == ml_dtypes.bfloat16
    assert outputs["double"].astype(np.float32).tolist() == [2, 5, -6]
    assert outputs["small"].astype(np.float32).tolist() == [1, 2.5, -3]


def test_strided_inputs_are_declared(client: fuseline.Client) -> None:
    g = fuseline.Graph()
    x = g.input("x", "f32", [2, 3], strides=[1, 2])
    assert str(x.type) == "f32[2, 3]{1, 2}"
    assert g.input("dense", "f32", [2, 3], strides=[3, 1]).type.strides is None
    g.output(g.neg(x))
    g.output(g.inputs[1], "d")
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert (client.execute(g, [values, values]).outputs["out0"] == -values).all()


def test_origin_and_declared_types_reach_the_server(client: fuseline.Client) -> None:
    g = fuseline.Graph()
    x = g.input("x", "f32", [2])
    g.output(g.neg(x, names=["y"], types=[fuseline.TensorType("f32", [3])], origin="model.py:1"))
    with pytest.raises(fuseline.InvalidArgumentError, match=r"'%y'.*f32\[3\]"):
        client.compile(g)


ERRORS: list[tuple[str, Callable[[fuseline.Graph, fuseline.Value], Any], str, str]] = [
    ("unknown op", lambda g, x: g.op("negate", x), "there is no op 'negate'", "%t0"),
    ("operand count", lambda g, x: g.add(x), "add: takes 2 operands, has 1", "%t0"),
    ("least operands", lambda g, x: g.concat(dim=0), "concat: takes at least 1 operands, has 0", "%t0"),
    ("unknown attribute", lambda g, x: g.neg(x, axis=1), "neg: has no attribute 'axis'", "%t0"),
    ("missing attribute", lambda g, x: g.softmax(x), "softmax: attribute 'dim' is missing", "%t0"),
    ("attribute's type", lambda g, x: g.sum(x, dims=[0.5]), "attribute 'dims': expected an integer, got 0.5", "%t0"),
    ("attribute's dtype", lambda g, x: g.cast(x, dtype="f31"), "no dtype corresponds to 'f31'", "%t0"),
    ("operand's type", lambda g, x: g.add(x, "y"), "operand 'y' is neither a value", "%t0"),
    ("another graph", lambda g, x: g.neg(fuseline.Graph().input("z", "f32")), "'z' is of another graph", "%t0"),
    ("result count", lambda g, x: g.op("neg", x, results=2), "neg: has 1 results, not 2", "%t0"),
    ("name taken", lambda g, x: g.neg(x, names=["x"]), "the name 'x' is taken", "x"),
    ("bad name", lambda g, x: g.input("2x", "f32"), "'2x' is no name", "2x"),
    ("no outputs", lambda g, x: g.serialized(), "the graph returns nothing", "outputs"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "act", "message", "subject"), ERRORS, ids=[case[0] for case in ERRORS])
def test_wrong_graphs_are_refused_at_once(
    name: str, act: Callable[[fuseline.Graph, fuseline.Value], Any], message: str, subject: str
) -> None:
    g = fuseline.Graph()
    x = g.input("x", "f32", [3])
    with pytest.raises(fuseline.InvalidArgumentError) as caught:
        act(g, x)
    assert message in caught.value.message
    assert caught.value.reason == "GRAPH_STRUCTURE"
    assert caught.value.subject == subject


def test_unknown_methods_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="there is no op 'negate'"):
        fuseline.Graph().negate  # noqa: B018
    assert "rms_norm" in dir(fuseline.Graph())


def test_op_table_is_the_servers(source_dir: Any) -> None:
    table = op_table.ops()
    documented = (source_dir / "docs" / "ir.md").read_text(encoding="utf-8")
    assert len(table) > 100
    assert all(f"`{name}`" in documented for name in table)
    assert table["var_mean"].results == 2
    assert table["gelu"].attributes["approximate"].default == "none"


def test_without_the_op_table_the_server_checks(monkeypatch: pytest.MonkeyPatch, client: fuseline.Client) -> None:
    monkeypatch.setattr(op_table, "ops", dict)
    g = fuseline.Graph()
    x = g.input("x", "f32", [3])
    values, indices = g.op("sort", x, results=2, descending=True)
    g.output(g.cast(values, dtype="f64"))
    g.output(indices)
    outputs = client.execute(g, [np.array([1, 3, 2], np.float32)]).outputs
    assert outputs["out0"].tolist() == [3, 2, 1] and outputs["out1"].tolist() == [1, 2, 0]
    bad = fuseline.Graph()
    bad.output(bad.op("negate", bad.input("x", "f32", [3])))
    with pytest.raises(fuseline.InvalidArgumentError, match="negate"):
        client.compile(bad)


def test_long_graphs_are_built_and_compiled(client: fuseline.Client) -> None:
    g = fuseline.Graph()
    value = g.input("x", "f32", [4])
    for _ in range(2000):
        value = g.add(g.mul(value, 0.5), 1.0)
    g.output(value)
    assert fuseline.Graph.from_text(g.text()).serialized() == g.serialized()
    compiled = client.compile(g)
    np.testing.assert_allclose(compiled(np.zeros(4, np.float32)), 2.0)
