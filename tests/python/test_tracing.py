"""jit and fuseline.numpy: every function against NumPy, through a server that checks the declared types as well."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import fuseline
import fuseline.numpy as fnp
import numpy as np
import pytest

RNG = np.random.default_rng(7)
X = RNG.standard_normal((3, 4, 5)).astype(np.float32)
Y = RNG.standard_normal((4, 5)).astype(np.float32)
UNIT = RNG.uniform(0.05, 0.95, (3, 4)).astype(np.float32)
K = RNG.integers(-5, 6, (3, 4)).astype(np.int64)
J = RNG.integers(1, 6, (3, 4)).astype(np.int64)
B = RNG.integers(0, 2, (3, 4)).astype(bool)
C = RNG.integers(0, 2, (3, 4)).astype(bool)


def run(client: fuseline.Client, function: Callable[..., Any], *arguments: Any) -> Any:
    return fuseline.jit(client=client)(function)(*arguments)


def check(
    client: fuseline.Client, function: Callable[..., Any], expected: Any, *arguments: Any, tol: float = 2e-5
) -> None:
    got = run(client, function, *arguments)
    expected = np.asarray(expected)
    assert got.shape == expected.shape
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(got, expected, rtol=tol, atol=tol)
    else:
        np.testing.assert_array_equal(got, expected)


def erf(x: Any) -> Any:
    return np.vectorize(math.erf)(x)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


UNARY: dict[str, Callable[[Any], Any]] = {
    "abs": np.abs, "negative": np.negative, "sign": np.sign, "square": np.square, "exp": np.exp, "exp2": np.exp2,
    "expm1": np.expm1, "sin": np.sin, "cos": np.cos, "tan": np.tan, "atan": np.arctan, "sinh": np.sinh,
    "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "erf": erf, "erfc": lambda x: 1 - erf(x), "floor": np.floor,
    "ceil": np.ceil, "trunc": np.trunc, "round": np.round, "sigmoid": sigmoid, "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x * sigmoid(x), "log_sigmoid": lambda x: np.log(sigmoid(x)), "reciprocal": lambda x: 1 / x,
    "softsign": lambda x: x / (1 + np.abs(x)), "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
    "logical_not": np.logical_not, "softmax": lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    "log_softmax": lambda x: np.log(np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))), "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x), "softplus": lambda x: np.log1p(np.exp(x)),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
}  # fmt: skip
UNIT_UNARY: dict[str, Callable[[Any], Any]] = {
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "asin": np.arcsin, "acos": np.arccos, "atanh": np.arctanh,
    "lgamma": np.vectorize(math.lgamma),
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary_functions_equal_numpys(client: fuseline.Client, name: str) -> None:
    check(client, getattr(fnp, name), UNARY[name](X), X)


@pytest.mark.parametrize("name", UNIT_UNARY)
def test_unary_functions_of_the_unit_interval_equal_numpys(client: fuseline.Client, name: str) -> None:
    check(client, getattr(fnp, name), UNIT_UNARY[name](UNIT), UNIT)


def test_acosh_equals_numpys(client: fuseline.Client) -> None:
    check(client, fnp.acosh, np.arccosh(UNIT + 1), UNIT + 1)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "maximum": np.maximum,
    "minimum": np.minimum, "fmax": np.fmax, "fmin": np.fmin, "atan2": np.arctan2, "hypot": np.hypot,
    "copysign": np.copysign, "nextafter": np.nextafter, "remainder": np.remainder, "fmod": np.fmod,
    "floor_divide": np.floor_divide, "equal": np.equal, "not_equal": np.not_equal, "less": np.less,
    "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal,
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
}  # fmt: skip
INTEGER_BINARY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
    "floor_divide": np.floor_divide, "remainder": np.remainder, "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor, "bitwise_left_shift": np.left_shift,
    "bitwise_right_shift": np.right_shift, "pow": np.power, "equal": np.equal, "less": np.less,
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_binary_functions_broadcast_as_numpys(client: fuseline.Client, name: str) -> None:
    check(client, getattr(fnp, name), BINARY[name](X, Y), X, Y)


@pytest.mark.parametrize("name", INTEGER_BINARY)
def test_binary_functions_of_integers_equal_numpys(client: fuseline.Client, name: str) -> None:
    check(client, getattr(fnp, name), INTEGER_BINARY[name](K, J), K, J)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor", "logical_and"])
def test_bitwise_functions_take_booleans(client: fuseline.Client, name: str) -> None:
    check(client, getattr(fnp, name), getattr(np, name)(B, C), B, C)


OPERATORS: list[tuple[str, Callable[..., Any]]] = [
    ("arithmetic", lambda x: (2 * x + 1 - x / 3) ** 2 - (-x)),
    ("reflected", lambda x: 1 - (2 / (x * x + 1)) + (3 + x)),
    ("comparison", lambda x: (x > 0) & ~(x >= 1) | (x != x)),
    ("abs and pos", lambda x: abs(+x)),
    ("floor division", lambda x: (x // 0.5) % 3),
]


@pytest.mark.parametrize(("name", "function"), OPERATORS, ids=[name for name, _ in OPERATORS])
def test_operators_equal_numpys(client: fuseline.Client, name: str, function: Callable[..., Any]) -> None:
    check(client, function, function(X), X, tol=1e-4)


REDUCTIONS = ["sum", "mean", "max", "min", "prod", "var", "std", "any", "all"]


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_equal_numpys(client: fuseline.Client, name: str, axis: Any, keepdims: bool) -> None:
    expected = getattr(np, name)(X, axis=axis, keepdims=keepdims)
    check(client, lambda x: getattr(fnp, name)(x, axis, keepdims=keepdims), expected, X, tol=1e-4)


SHAPES: list[tuple[str, Callable[..., Any], Callable[..., Any]]] = [
    ("argmax", lambda x: fnp.argmax(x, 1), lambda x: np.argmax(x, 1)),
    ("argmax of all", fnp.argmax, np.argmax),
    ("argmin kept", lambda x: fnp.argmin(x, -1, keepdims=True), lambda x: np.argmin(x, -1, keepdims=True)),
    ("logsumexp", lambda x: fnp.logsumexp(x, -1), lambda x: np.log(np.exp(x).sum(-1))),
    ("cumsum", lambda x: fnp.cumsum(x, 1), lambda x: np.cumsum(x, 1)),
    ("cumprod", lambda x: fnp.cumulative_prod(x, axis=-1), lambda x: np.cumprod(x, -1)),
    ("sort", lambda x: fnp.sort(x, axis=1), lambda x: np.sort(x, 1)),
    ("argsort", lambda x: fnp.argsort(x), lambda x: np.argsort(x, -1)),
    ("topk", lambda x: fnp.topk(x, 2)[0], lambda x: -np.sort(-x, -1)[..., :2]),
    ("reshape", lambda x: x.reshape(2, -1, 5), lambda x: x.reshape(2, -1, 5)),
    ("ravel", fnp.ravel, np.ravel),
    ("transpose", lambda x: x.T, lambda x: x.T),
    ("permute", lambda x: fnp.permute_dims(x, (1, 2, 0)), lambda x: x.transpose(1, 2, 0)),
    ("swapaxes", lambda x: fnp.swapaxes(x, 0, -1), lambda x: np.swapaxes(x, 0, -1)),
    ("moveaxis", lambda x: fnp.moveaxis(x, 0, 2), lambda x: np.moveaxis(x, 0, 2)),
    ("expand, squeeze", lambda x: fnp.squeeze(fnp.expand_dims(x, 1), 1), lambda x: x),
    ("broadcast_to", lambda x: fnp.broadcast_to(x, (2, 3, 4, 5)), lambda x: np.broadcast_to(x, (2, 3, 4, 5))),
    ("flip", lambda x: fnp.flip(x, (0, 2)), lambda x: np.flip(x, (0, 2))),
    ("roll", lambda x: fnp.roll(x, 2, 1), lambda x: np.roll(x, 2, 1)),
    ("roll of all", lambda x: fnp.roll(x, 7), lambda x: np.roll(x, 7)),
    ("tile", lambda x: fnp.tile(x, (2, 1, 1, 3)), lambda x: np.tile(x, (2, 1, 1, 3))),
    ("repeat", lambda x: fnp.repeat(x, 3, axis=1), lambda x: np.repeat(x, 3, axis=1)),
    ("concat", lambda x: fnp.concat([x, 2 * x, x[:, :1]], 1), lambda x: np.concatenate([x, 2 * x, x[:, :1]], 1)),
    ("stack", lambda x: fnp.stack([x, -x], -1), lambda x: np.stack([x, -x], -1)),
    ("split", lambda x: fnp.split(x, [1, 3], 1)[1], lambda x: np.split(x, [1, 3], 1)[1]),
    ("pad", lambda x: fnp.pad(x, ((0, 0), (1, 2), (0, 1)), constant_values=2.5),
     lambda x: np.pad(x, ((0, 0), (1, 2), (0, 1)), constant_values=2.5)),
    ("pad reflect", lambda x: fnp.pad(x, 1, "reflect"), lambda x: np.pad(x, 1, "reflect")),
    ("tril", lambda x: fnp.tril(x, k=1), lambda x: np.tril(x, k=1)),
    ("triu", lambda x: fnp.triu(x), lambda x: np.triu(x)),
    ("clip", lambda x: fnp.clip(x, -0.5, 0.5), lambda x: np.clip(x, -0.5, 0.5)),
    ("clip by arrays", lambda x: fnp.clip(x, fnp.zeros(5), Y), lambda x: np.minimum(np.maximum(x, 0), Y)),
    ("where", lambda x: fnp.where(x > 0, x, 0), lambda x: np.where(x > 0, x, 0)),
    ("matmul", lambda x: x @ fnp.swapaxes(x, -1, -2), lambda x: x @ np.swapaxes(x, -1, -2)),
    ("matmul by a vector", lambda x: x @ Y[0], lambda x: x @ Y[0]),
    ("reflected matmul", lambda x: Y.T @ x, lambda x: Y.T @ x),
    ("einsum", lambda x: fnp.einsum("bij,kj->bik", x, Y), lambda x: np.einsum("bij,kj->bik", x, Y)),
    ("einsum dots", lambda x: fnp.einsum("...j,ij", x, Y), lambda x: np.einsum("...j,ij", x, Y)),
    ("vecdot", lambda x: fnp.vecdot(x, Y), lambda x: (x * Y).sum(-1)),
    ("linear", lambda x: fnp.linear(x, Y, Y[:, 0]), lambda x: x @ Y.T + Y[:, 0]),
    ("layer_norm", lambda x: fnp.layer_norm(x, Y[0], Y[1]),
     lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * Y[0] + Y[1]),
    ("rms_norm", lambda x: fnp.rms_norm(x), lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)),
    ("take", lambda x: fnp.take(x, np.array([2, 0, 1, 1]), axis=1), lambda x: np.take(x, [2, 0, 1, 1], axis=1)),
    ("take_along_axis", lambda x: fnp.take_along_axis(x, fnp.argsort(x)), lambda x: np.sort(x, -1)),
    ("embedding", lambda x: fnp.embedding(Y, np.array([[0, 3], [1, 1]])), lambda x: Y[np.array([[0, 3], [1, 1]])]),
    ("one_hot", lambda x: fnp.one_hot(np.array([0, 2]), 4), lambda x: np.eye(4, dtype=np.int64)[[0, 2]]),
    ("arange", lambda x: fnp.arange(2, 11, 3) + 0 * fnp.arange(3), lambda x: np.arange(2, 11, 3)),
    ("eye", lambda x: x[0, :, :4] * fnp.eye(4), lambda x: x[0, :, :4] * np.eye(4, dtype=np.float32)),
    ("likes", lambda x: fnp.full_like(x, 3) + fnp.ones_like(x) - fnp.zeros_like(x), lambda x: np.full_like(x, 4)),
    ("methods", lambda x: x.sum(0) + x.mean(0) - x.max(0), lambda x: x.sum(0) + x.mean(0) - x.max(0)),
    ("more methods", lambda x: x.min(0).transpose().astype("f64"), lambda x: x.min(0).T.astype(np.float64)),
    ("index", lambda x: x[1], lambda x: x[1]),
    ("slices", lambda x: x[::2, -3:-1, ::-1], lambda x: x[::2, -3:-1, ::-1]),
    ("empty slice", lambda x: x[2:1], lambda x: x[2:1]),
    ("reversed from the end", lambda x: x[:, 3:0:-2], lambda x: x[:, 3:0:-2]),
    ("None and ...", lambda x: x[..., None, 2], lambda x: x[..., None, 2]),
    ("index array", lambda x: x[:, np.array([3, 0])], lambda x: x[:, np.array([3, 0])]),
    ("two index arrays", lambda x: x[np.array([0, 2]), np.array([1, -1])],
     lambda x: x[np.array([0, 2]), np.array([1, -1])]),
    ("apart index arrays", lambda x: x[np.array([0, 2]), :, np.array([1, -1])],
     lambda x: x[np.array([0, 2]), :, np.array([1, -1])]),
    ("number and array", lambda x: x[0, :, np.array([1, -1])], lambda x: x[0, :, np.array([1, -1])]),
    ("2-d index array in the middle", lambda x: x[:, np.array([[0, 1], [2, 3]])],
     lambda x: x[:, np.array([[0, 1], [2, 3]])]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "function", "expected"), SHAPES, ids=[case[0] for case in SHAPES])
def test_functions_equal_numpys(
    client: fuseline.Client, name: str, function: Callable[..., Any], expected: Callable[..., Any]
) -> None:
    check(client, function, expected(X), X, tol=1e-4)


def test_attention_equals_its_formula(client: fuseline.Client) -> None:
    q, k, v = (RNG.standard_normal((2, 6, 8)).astype(np.float32) for _ in range(3))
    scores = q @ k.transpose(0, 2, 1) / math.sqrt(8)
    scores = np.where(np.tril(np.ones((6, 6), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ v
    check(client, lambda *a: fnp.attention(*a, causal=True), expected, q, k, v)


PROMOTIONS = [
    (np.float32, np.float64, "f64"), (np.float16, np.float32, "f32"), (np.int32, np.float16, "f16"),
    (np.int8, np.uint8, "i16"), (np.int64, np.int32, "i64"), (bool, np.int8, "i8"),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b", "expected"), PROMOTIONS)
def test_common_dtype_is_pytorchs(client: fuseline.Client, a: Any, b: Any, expected: str) -> None:
    graph = fuseline.jit(client=client)(lambda x, y: x + y).graph(np.ones(2, a), np.ones(2, b))
    assert f": {expected}[2]" in graph.text().splitlines()[-3]
    assert run(client, lambda x, y: x + y, np.ones(2, a), np.ones(2, b)).tolist() == [2, 2]


def test_numbers_take_the_arrays_dtype_unless_their_kind_is_wider(client: fuseline.Client) -> None:
    assert run(client, lambda x: x + 1, np.ones(2, np.float16)).dtype == np.float16
    assert run(client, lambda x: x + 1.5, np.ones(2, np.int32)).dtype == np.float32
    assert run(client, lambda x: x + 1, np.ones(2, np.uint8)).dtype == np.uint8


def test_arguments_and_results_may_be_nested(client: fuseline.Client) -> None:
    @fuseline.jit(client=client)
    def step(model: dict[str, Any], batch: list[Any], *, scale: float = 1.0) -> Any:
        y = batch[0] * model["w"] * scale + model["b"]
        return {"y": y, "more": (y.sum(), None, batch[1]), "scale": scale}

    x = np.ones(3, np.float32)
    result = step({"w": x * 2, "b": x}, [x, x * 5], scale=3.0)
    assert result["y"].tolist() == [7, 7, 7]
    assert result["more"][0] == 21 and result["more"][1] is None and result["more"][2].tolist() == [5, 5, 5]
    assert result["scale"] == 3.0


def test_tensors_that_the_server_keeps_are_arguments(client: fuseline.Client) -> None:
    @fuseline.jit(client=client)
    def scale(x: Any, model: dict[str, Any]) -> Any:
        return x * model["w"]

    kept = client.put_tensor(Y)
    for _ in range(2):
        np.testing.assert_array_equal(scale(X, {"w": kept}), X * Y)
    client.delete_tensor(kept)
    with pytest.raises(fuseline.NotFoundError):
        scale(X, {"w": kept})


def test_a_function_is_traced_once_for_each_signature(client: fuseline.Client) -> None:
    calls = []

    @fuseline.jit(client=client)
    def double(x: Any, times: int = 2) -> Any:
        calls.append(times)
        return x * times

    for _ in range(3):
        double(np.ones(3, np.float32))
    double(np.ones(4, np.float32))
    double(np.ones(3, np.float64))
    double(np.ones(3, np.float32), 5)
    assert calls == [2, 2, 2, 5]
    assert double.signature_count == 4


def test_the_same_array_of_the_program_is_one_constant(client: fuseline.Client) -> None:
    graph = fuseline.jit(client=client)(lambda x: x * Y + Y).graph(X)
    assert sum(node.op == "constant" for node in graph.nodes) == 1


def test_explain_shows_what_was_fused(client: fuseline.Client) -> None:
    explanation = fuseline.jit(client=client)(lambda x: fnp.sigmoid(x * 2 + 1)).explain(X)
    assert len(explanation.report.kernels) == 1
    assert explanation.report.kernels[0].unfused_kernels == 3
    assert "3 kernels -> 1" in str(explanation)
    assert "<table>" in explanation._repr_html_()


ERRORS: list[tuple[str, Callable[..., Any], str]] = [
    ("truth", lambda x: x if x > 0 else -x, "no truth value"),
    ("numpy", lambda x: np.sin(x), "traced|Array"),
    ("float", lambda x: float(x), "no value yet"),
    ("broadcast", lambda x: x + np.ones(3, np.float32), r"\[3, 4, 5\] and \[3\] do not broadcast"),
    ("matmul", lambda x: x @ x, "do not fit"),
    ("axis", lambda x: fnp.sum(x, 3), "axis 3 is out of range for 3 dims"),
    ("reshape", lambda x: x.reshape(7, -1), "can't be reshaped"),
    ("index", lambda x: x[3], "index 3 is out of range for size 3"),
    ("mask", lambda x: x[x > 0], "only integers"),
    ("einsum", lambda x: fnp.einsum("ij,jk", x, x), "does not fit"),
]


@pytest.mark.parametrize(("name", "function", "message"), ERRORS, ids=[case[0] for case in ERRORS])
def test_what_cannot_be_traced_says_why(
    client: fuseline.Client, name: str, function: Callable[..., Any], message: str
) -> None:
    with pytest.raises((fuseline.InvalidArgumentError, TypeError), match=message):
        run(client, function, X)


def test_functions_outside_a_trace_say_so() -> None:
    with pytest.raises(fuseline.InvalidArgumentError, match="inside a function that is traced"):
        fnp.zeros(3)
