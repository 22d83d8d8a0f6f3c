"""Ops through torch.compile(backend="fuseline"): equal to eager execution, and nothing left to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: its backend is not tested")

import torch.nn.functional as F  # noqa: E402
from torch_testing import check  # noqa: E402

Function = Callable[..., Any]


def floats(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def integers(*shape: int, high: int = 5) -> Any:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(sum(shape) + 1))


X, Y = floats(4, 5), floats(4, 5) + 0.25
N, M = integers(4, 5), integers(4, 5) + 1
T, F_ = floats(4, 5) > 0, floats(5, 4).t() > 0

UNARY = [
    "abs",
    "neg",
    "ceil",
    "floor",
    "trunc",
    "round",
    "exp",
    "exp2",
    "expm1",
    "sin",
    "cos",
    "tan",
    "tanh",
    "sinh",
    "cosh",
    "asinh",
    "atan",
    "erf",
    "erfc",
    "sigmoid",
    "sign",
    "isnan",
    "isinf",
    "square",
    "frac",
    "isfinite",
    "signbit",
    "deg2rad",
]
POSITIVE = ["sqrt", "rsqrt", "reciprocal", "log", "log2", "log10", "log1p", "lgamma"]
ACTIVATIONS = [
    "relu",
    "silu",
    "mish",
    "hardswish",
    "gelu",
    "elu",
    "leaky_relu",
    "softplus",
    "hardtanh",
    "hardsigmoid",
    "relu6",
    "logsigmoid",
    "selu",
    "celu",
    "softsign",
    "tanhshrink",
    "hardshrink",
    "softshrink",
]

CASES: dict[str, tuple[Function, tuple[Any, ...]]] = {
    **{name: (getattr(torch, name), (X,)) for name in UNARY},
    **{name: (getattr(torch, name), (X.abs() + 0.1,)) for name in POSITIVE},
    **{name: (getattr(F, name), (X,)) for name in ACTIVATIONS},
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), (X,)),
    "elu_scaled": (lambda x: F.elu(x, 0.5), (X,)),
    "arithmetic": (lambda a, b: (a + b, a - b, a * b, a / b, a // b, a % b, torch.fmod(a, b), 1 - a, 2 / a), (X, Y)),
    "scaled_sums": (lambda a, b: (torch.add(a, b, alpha=2), torch.sub(a, b, alpha=3), torch.rsub(a, b)), (X, Y)),
    "powers": (lambda x: [x.pow(p) for p in (1, 2, 3, 4)] + [x.abs().pow(p) for p in (0.5, -0.5, -1, 1.7)], (X,)),
    "power_of_tensors": (lambda a, b: (a.abs() ** b, 2**a), (X, Y)),
    "extrema": (lambda a, b: (torch.maximum(a, b), torch.minimum(a, b), torch.fmax(a, b), torch.fmin(a, b)), (X, Y)),
    "two_operands": (
        lambda a, b: (torch.atan2(a, b), torch.hypot(a, b), torch.copysign(a, b), torch.lerp(a, b, 0.3)),
        (X, Y),
    ),
    "three_operands": (
        lambda a, b: (torch.addcmul(a, a, b, value=0.5), torch.addcdiv(a, a, b.abs() + 1, value=0.5)),
        (X, Y),
    ),
    "choices": (
        lambda a, b: (
            torch.where(a > b, a, b),
            torch.where(a > 0, 1.0, b),
            a.masked_fill(b > 0, -1e9),
            a.clamp(-0.5, 0.5),
        ),
        (X, Y),
    ),
    "clamps": (lambda a, b: (a.clamp(min=b), a.clamp(max=0.1), a.clamp_min(0), F.threshold(a, 0.1, 20.0)), (X, Y)),
    "comparisons": (lambda a, b: (a == b, a != b, a < b, a <= b, a > 0.1, a >= 0), (X, Y)),
    "rounded_division": (
        lambda a, b: [torch.div(a, b, rounding_mode=mode) for mode in ("trunc", "floor")],
        (X, Y),
    ),
    "integer_arithmetic": (lambda a, b: (a + b, a - b, a * b, a // 3, a % 3, a / b, -a, a.abs(), a.pow(2)), (N, M)),
    "integer_bits": (lambda a, b: (a & b, a | b, a ^ b, ~a, a << 1, a >> 1), (N, M)),
    "integers_become_floats": (lambda a: (torch.sin(a), a * 2.5, a.sqrt(), a.float().mean()), (N,)),
    "truth_values": (
        lambda a, b: (a & b, a | b, ~a, a ^ b, a * b, a + b, a.logical_and(b), a.to(torch.int32) * 3),
        (T, F_),
    ),
    "promotion": (
        lambda a, b, c: (a + b, a * c, b * c, torch.where(a > 0, a, c), a >= c, a + c.sum(), a * b.sum()),
        (X, Y.double(), N),
    ),
    "casts": (
        lambda x: [x.to(d) for d in (torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.bool)],
        (X,),
    ),
    "sums": (
        lambda x: (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True), x.mean(-1), x.mean(), x.prod(1)),
        (floats(3, 4, 5),),
    ),
    "sums_of_others": (
        lambda n, t: (n.sum(), n.sum(0), n.prod(1), t.sum(), t.any(0), t.all(), n.any(1), n.sum(dtype=torch.float32)),
        (N, T),
    ),
    "reduced_extrema": (
        lambda x: (x.amax(1), x.amin((0, 1)), x.max(), x.min(1), x.max(2), x.argmax(1), x.argmin()),
        (floats(3, 4, 5),),
    ),
    "spreads": (
        lambda x: (x.var(1), x.std(), x.var((0, 1), correction=0), torch.var_mean(x, 1), torch.std_mean(x, 2)),
        (floats(3, 4, 5),),
    ),
    "norms_of_vectors": (
        lambda x: (
            x.norm(),
            x.norm(dim=1),
            torch.linalg.vector_norm(x, 1, dim=1),
            torch.linalg.vector_norm(x, torch.inf),
        ),
        (X,),
    ),
    "softmaxes": (lambda x: (x.softmax(1), x.log_softmax(0), x.logsumexp(1), F.softmin(x, 1)), (X,)),
    "scans": (lambda x: (x.cumsum(1), x.cumprod(0), x.cummax(1)[0]), (X,)),
    "orders": (lambda x: (x.sort(-1), x.sort(0, descending=True), x.topk(2, -1), x.argsort(1)), (X,)),
    "views": (
        lambda x: (x.t() + 1, x.view(2, 10) * 2, x[1:3] * 2, x[:, ::2] + 1, x[0] * 1.5, x[-1] + 1, x.unsqueeze(0) * 2),
        (X,),
    ),
    "more_views": (
        lambda x: (
            x.expand(3, 4, 5) * 2,
            x.diagonal() * 2,
            x.reshape(-1) + 1,
            x.movedim(0, 1) * 1.5,
            x.narrow(0, 1, 2) + 0.5,
        ),
        (X,),
    ),
    "pieces": (lambda x: [p * 2 for p in (*x.split(2, 1), *x.unbind(0), *x.chunk(2))], (X,)),
    "moves": (lambda x: (x.flip(0), x.repeat(2, 3), x.roll(1, 0), x.roll(2), x.t().contiguous(), x.rot90()), (X,)),
    "joins": (
        lambda x, y: (torch.cat([x, y], 1), torch.stack([x, y], 1), torch.cat([x, y.double()]), torch.hstack([x, y])),
        (X, Y),
    ),
    "paddings": (
        lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, -1, 0, 2), value=3.0), F.pad(x[None], (1, 1), mode="reflect")),
        (X,),
    ),
    "windows_as_dims": (lambda x: (x.unfold(1, 3, 2) * 2, x.unfold(0, 2, 1).sum(-1)), (X,)),
    "triangles": (lambda x: (x.tril(), x.triu(1), torch.diag_embed(x)), (X,)),
    "made_values": (
        lambda x: (
            torch.arange(5, device=x.device) + x,
            torch.arange(0, 1, 0.2, device=x.device) * x,
            torch.ones_like(x) * x,
            torch.full((4, 1), 1.5, device=x.device) + x,
        ),
        (X,),
    ),
    "more_made_values": (
        lambda x: (
            torch.eye(5, device=x.device) + x[0],
            torch.linspace(0, 1, 5, device=x.device) + x,
            torch.tensor([1.0, 2, 3, 4, 5], device=x.device) * x,
            x + torch.arange(10, 0, -2, device=x.device),
        ),
        (X,),
    ),
    "rows_by_index": (
        lambda x, i: (
            x[i],
            F.embedding(i, x),
            x.index_select(1, i),
            x.gather(1, i[:, None].expand(3, 2)),
            x[i[:, None]],
        ),
        (floats(6, 5), integers(3)),
    ),
    "several_indices": (
        lambda x, i, j: (x[i, j], x[:, i, j], x[i, :, j], x[:, i], x[i[:, None], j[None]]),
        (floats(6, 6, 4), integers(3), integers(3, high=4)),
    ),
    "scatters": (
        lambda x, i: (
            x.scatter(0, i[None], 1.5),
            x.scatter_add(0, i[:, None].expand(3, 5), torch.ones(3, 5)),
            x.index_add(0, i, torch.ones(3, 5)),
            x.index_put((i,), torch.zeros(5)),
            x.index_put((i, i), torch.ones(()), accumulate=True),
            x.scatter_reduce(0, i[None], torch.full((1, 3), 0.5), "amax"),
        ),
        (floats(6, 5), integers(3)),
    ),
    "buckets": (
        lambda x, b: (torch.bucketize(x, b), torch.bucketize(x, b, right=True, out_int32=True)),
        (torch.tensor([[0.5, 1.0, float("nan")], [-1.0, 3.0, 9.0]]), torch.tensor([0.0, 1.0, 3.0])),
    ),
    "decimals": (lambda x: (x.round(decimals=2), x.round(decimals=-1)), (X * 7,)),
    "products": (
        lambda a, b, c: (
            a @ b,
            a @ b[:, 0],
            torch.dot(a[0], b[:, 0]),
            torch.addmm(b[0], a, b, beta=0.5, alpha=2),
            c @ c.mT,
        ),
        (X, floats(5, 3), floats(2, 4, 6)),
    ),
    "more_products": (
        lambda a, b, c: (
            torch.einsum("ij,jk->ki", a, b),
            F.linear(a, b.t(), b[0]),
            torch.baddbmm(c @ c.mT, c, c.mT),
            torch.outer(a[0], b[0]),
        ),
        (X, floats(5, 3), floats(2, 4, 6)),
    ),
    "convolutions": (
        lambda x, w, b: (
            F.conv2d(x, w, b, padding=1),
            F.conv2d(x, w, stride=2),
            F.conv1d(x[:, :, 0], w[:, :, 0], dilation=2),
        ),
        (floats(2, 3, 8, 8), floats(4, 3, 3, 3), floats(4)),
    ),
    "grouped_and_transposed_convolutions": (
        lambda x, w: (F.conv2d(x, w, groups=2), F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1)),
        (floats(2, 4, 6, 6), floats(4, 2, 3, 3)),
    ),
    "pools": (
        lambda x: (
            F.max_pool2d(x, 2),
            F.max_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 3, 2, 1),
            F.adaptive_avg_pool2d(x, (3, 2)),
        ),
        (floats(2, 3, 8, 8),),
    ),
    "pool_with_indices": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), (floats(2, 3, 8, 8),)),
    "resizes": (
        lambda x: (
            F.interpolate(x, scale_factor=2),
            F.interpolate(x, size=(5, 9), mode="bilinear"),
            F.interpolate(x, size=(5, 7), mode="bicubic"),
        ),
        (floats(1, 2, 4, 4),),
    ),
    "normalisations": (
        lambda x, w, b: (
            F.layer_norm(x, (8,), w, b),
            F.layer_norm(x, (8,)),
            F.rms_norm(x, (8,), w),
            F.instance_norm(x),
        ),
        (floats(2, 4, 8), floats(8), floats(8)),
    ),
    "group_and_batch_norms": (
        lambda x, w, b: (F.group_norm(x, 2, w, b), F.batch_norm(x, w, b.abs(), w, b), F.normalize(x, dim=-1), F.glu(x)),
        (floats(2, 8, 4), floats(8), floats(8)),
    ),
    "losses": (
        lambda x, y, t: (
            F.cross_entropy(x, t),
            F.cross_entropy(x, t, label_smoothing=0.1),
            F.mse_loss(x, y),
            F.l1_loss(x, y),
        ),
        (floats(6, 5), floats(6, 5) + 0.1, integers(6)),
    ),
    "more_losses": (
        lambda x, y, t: (
            F.nll_loss(x.log_softmax(1), t),
            F.smooth_l1_loss(x, y),
            F.huber_loss(x, y),
            F.kl_div(x, y.softmax(1), reduction="batchmean"),
            F.binary_cross_entropy_with_logits(x, y.sigmoid()),
            F.cross_entropy(x, t, ignore_index=2),
        ),
        (floats(6, 5), floats(6, 5) + 0.1, integers(6)),
    ),
    "attention": (
        lambda q, k, v: (
            F.scaled_dot_product_attention(q, k, v),
            F.scaled_dot_product_attention(q, k, v, is_causal=True),
        ),
        (floats(2, 3, 8, 4), floats(2, 3, 8, 4) + 0.1, floats(2, 3, 8, 4) - 0.1),
    ),
    "scalars": (lambda x, n: (x.sum() * 2 + 1, x.mean().exp(), n.sum() * 2, x[0, 0] * 3), (X, N)),
    "empty_tensors": (lambda x: (x * 2, x.sum(), x.sum(0), torch.cat([x, torch.ones(2, 3)])), (torch.ones(0, 3),)),
    "nan_and_infinities": (
        lambda x: (
            x.relu(),
            x.sign(),
            x.clamp(-1, 1),
            x.maximum(torch.zeros(())),
            x.isnan(),
            x.nan_to_num(),
            x.amax(),
            x.sum(),
        ),
        (torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), -0.0]),),
    ),
    "written_slices": (lambda x: written(x), (X,)),
}


def written(x: Any) -> Any:
    y = x.clone()
    y[:, 1] = 5.0
    y[::2] = -1.0
    y[1:3, 2:] += 1
    y.mul_(2).add_(x)
    return y, torch.zeros(4, 5).copy_(x)


@pytest.mark.parametrize("name", CASES)
def test_equals_eager_execution(name: str, torch_server: str) -> None:
    function, arguments = CASES[name]
    check(function, arguments, torch_server)


HALF_CASES: dict[str, Function] = {
    "numbers_that_16_bits_round": lambda x, y: (x * 0.3 + y, F.gelu(x) * 0.1, x > 0.3, F.softmax(x * 0.7, -1)),
    "reductions": lambda x, y: (x.sum(), x.mean(-1), x.pow(2).sum(), (x * 1.1).amax(-1), x.float().sum()),
    "normalisations": lambda x, y: (F.layer_norm(x, (8,)), F.rms_norm(x, (8,)), x.softmax(0)),
    "products": lambda x, y: (x @ y.t(), torch.relu(x @ y.t() * 0.3)),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", HALF_CASES)
def test_16_bit_floats_equal_eager_execution(name: str, dtype: Any, torch_server: str) -> None:
    tolerance = 3e-2 if dtype is torch.bfloat16 else 5e-3
    check(HALF_CASES[name], (floats(4, 8).to(dtype), floats(4, 8).to(dtype) + 0.5), torch_server, tolerance=tolerance)
