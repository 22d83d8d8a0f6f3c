"""Rows of matrix products, convolutions, their gradients and pooling. Pipeline: Call -> this -> Value. See rows.py."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .graph_text import Value
from .rows import Call, Unsupported, broadcast, row
from .rows_pointwise import boolean, select

aten = torch.ops.aten
i64 = torch.int64


def matmul(call: Call, a: Value, b: Value) -> Value:
    if a.dtype is not b.dtype or a.dtype is boolean:
        raise Unsupported(f"product of {a.dtype} and {b.dtype}")
    shape = (*broadcast([a.shape[:-2], b.shape[:-2]]), a.shape[-2], b.shape[-1])
    return call.emit("matmul", [a, b], a.dtype, shape)


@row(aten.mm.default, aten.bmm.default)
def mm(call: Call) -> Value:
    return matmul(call, call["self"], call.get("mat2"))


@row(aten.mv.default)
def mv(call: Call) -> Value:
    a, b = call["self"], call["vec"]
    return call.emit("matmul", [a, b], a.dtype, (a.shape[0],))


@row(aten.dot.default)
def dot(call: Call) -> Value:
    a, b = call["self"], call["tensor"]
    return call.emit("matmul", [a, b], a.dtype, ())


def _scaled(call: Call, x: Value, by: float) -> Value:
    return x if by == 1 else call.pointwise("mul", [x, by], x.dtype)


@row(aten.addmm.default)
def addmm(call: Call) -> Value:
    product = _scaled(call, matmul(call, call["mat1"], call["mat2"]), call["alpha"])
    if call["beta"] == 0:
        return product
    return call.pointwise("add", [product, _scaled(call, call["self"], call["beta"])], product.dtype)


@row(aten.baddbmm.default)
def baddbmm(call: Call) -> Value:
    product = _scaled(call, matmul(call, call["batch1"], call["batch2"]), call["alpha"])
    if call["beta"] == 0:
        return product
    return call.pointwise("add", [product, _scaled(call, call["self"], call["beta"])], product.dtype)


def spread(value: Sequence[int], spatial: int) -> list[int]:
    return list(value) * spatial if len(value) == 1 else list(value)


@row(aten.convolution.default)
def convolution(call: Call) -> Value:
    x, weight, bias = call["input"], call["weight"], call["bias"]
    spatial = x.rank - 2
    if not 1 <= spatial <= 3 or not x.dtype.is_floating_point or x.dtype is not weight.dtype:
        raise Unsupported(f"convolution of {x.dtype} with {weight.dtype} over {spatial} dims")
    operands = [x, weight] if bias is None else [x, weight, bias]
    geometry = {name: spread(call[name], spatial) for name in ("padding", "dilation")}
    geometry["strides"] = spread(call["stride"], spatial)
    if call["transposed"]:
        geometry["output_padding"] = spread(call["output_padding"], spatial)
    op = "conv_transpose" if call["transposed"] else "conv"
    return call.emit(op, operands, x.dtype, call.shape, groups=call["groups"], **geometry)


@row(aten.convolution_backward.default)
def convolution_backward(call: Call) -> tuple[Value | None, ...]:
    grad, x, weight = call["grad_output"], call["input"], call["weight"]
    spatial, groups = x.rank - 2, call["groups"]
    if call["transposed"] or groups != 1 or not 1 <= spatial <= 3:
        raise Unsupported("the gradient of a transposed or grouped convolution")
    stride, padding, dilation = (spread(call[name], spatial) for name in ("stride", "padding", "dilation"))
    kernel, out = weight.shape[2:], grad.shape[2:]
    grad_input = grad_weight = grad_bias = None
    if 0 in call.used_results:
        reached = [
            (out[d] - 1) * stride[d] - 2 * padding[d] + dilation[d] * (kernel[d] - 1) + 1 for d in range(spatial)
        ]
        rest = [x.shape[2 + d] - reached[d] for d in range(spatial)]
        if any(not 0 <= r < max(stride[d], dilation[d]) for d, r in enumerate(rest)):
            raise Unsupported("the gradient of a convolution that leaves part of its input out")
        grad_input = call.emit(
            "conv_transpose",
            [grad, weight],
            x.dtype,
            x.shape,
            strides=stride,
            padding=padding,
            dilation=dilation,
            output_padding=rest,
        )
    if 1 in call.used_results:
        # Channels and samples change places: the gradient is a convolution over the samples, dilated by the stride.
        size = [
            (x.shape[2 + d] + 2 * padding[d] - stride[d] * (out[d] - 1) - 1) // dilation[d] + 1 for d in range(spatial)
        ]
        order = [1, 0, *range(2, x.rank)]
        product = call.emit(
            "conv",
            [call.permute(x, order), call.permute(grad, order)],
            x.dtype,
            (x.shape[1], grad.shape[1], *size),
            strides=dilation,
            padding=padding,
            dilation=stride,
        )
        for d in range(spatial):
            product = call.slice(product, 2 + d, 0, kernel[d])
        grad_weight = call.permute(product, order)
    if 2 in call.used_results:
        dims = [0, *range(2, x.rank)]
        grad_bias = call.emit("sum", [grad], grad.dtype, (grad.shape[1],), dims=dims, keepdim=False)
    return grad_input, grad_weight, grad_bias


def _windows(call: Call, x: Value, fill: float) -> tuple[list[Value], list[list[int]], tuple[int, ...]]:
    """A strided slice of the padded input for each place in the window, the places, and the shape of the result."""
    kernel = spread(call["kernel_size"], 2)
    stride = spread(call["stride"], 2) if call["stride"] else kernel
    padding, dilation = spread(call["padding"], 2), spread(call["dilation"], 2)
    shape = call.shape
    low, high = [0] * x.rank, [0] * x.rank
    padded_shape = list(x.shape)
    for d in range(2):
        at = x.rank - 2 + d
        need = (shape[at] - 1) * stride[d] + dilation[d] * (kernel[d] - 1) + 1
        low[at], high[at] = padding[d], need - x.shape[at] - padding[d]
        padded_shape[at] = need
    padded = call.emit("pad", [x], x.dtype, padded_shape, low=low, high=high, mode="constant", value=fill)
    values, places = [], []
    for row_at in range(kernel[0]):
        for column in range(kernel[1]):
            value = padded
            for d, start in enumerate((row_at * dilation[0], column * dilation[1])):
                at = x.rank - 2 + d
                value = call.slice(value, at, start, start + (shape[at] - 1) * stride[d] + 1, stride[d])
            values.append(value)
            places.append([row_at * dilation[0] - padding[0], column * dilation[1] - padding[1]])
    return values, places, shape


@row(aten.max_pool2d_with_indices.default)
def max_pool(call: Call) -> tuple[Value | None, ...]:
    x: Value = call["self"]
    kernel = spread(call["kernel_size"], 2)
    stride = spread(call["stride"], 2) if call["stride"] else kernel
    value = call.emit(
        "max_pool",
        [x],
        x.dtype,
        call.shape,
        kernel=kernel,
        strides=stride,
        padding=spread(call["padding"], 2),
        dilation=spread(call["dilation"], 2),
        ceil_mode=call["ceil_mode"],
    )
    if 1 not in call.used_results:
        return value, None
    if kernel[0] * kernel[1] > 64 or not x.dtype.is_floating_point:
        raise Unsupported("indices of a large window")
    # The first place of the window that has the maximum, as an index into the plane.
    windows, places, shape = _windows(call, x, -float("inf"))
    best, where = windows[0], call.full(0, i64, shape)
    for at, window in enumerate(windows[1:], 1):
        better = call.emit("gt", [window, best], boolean, shape)
        better = call.emit("logical_or", [better, call.emit("isnan", [window], boolean, shape)], boolean, shape)
        best = call.emit("where", [better, window, best], x.dtype, shape)
        where = call.emit("where", [better, at, where], i64, shape)
    width, columns = x.shape[-1], kernel[1]
    dilation = spread(call["dilation"], 2)
    first_row, first_column = places[0]
    lines = [1] * x.rank
    lines[-2] = shape[-2]
    rows = call.pointwise("mul", [call.iota(lines, x.rank - 2), stride[0]], i64)
    lines = [1] * x.rank
    lines[-1] = shape[-1]
    line = call.pointwise("mul", [call.iota(lines, x.rank - 1), stride[1]], i64)
    in_row = call.pointwise("mul", [call.pointwise("floor_divide", [where, columns], i64), dilation[0]], i64)
    in_column = call.pointwise("mul", [call.pointwise("remainder", [where, columns], i64), dilation[1]], i64)
    row_index = call.pointwise("add", [call.pointwise("add", [in_row, rows], i64), first_row], i64)
    column_index = call.pointwise("add", [call.pointwise("add", [in_column, line], i64), first_column], i64)
    index = call.pointwise("add", [call.pointwise("mul", [row_index, width], i64), column_index], i64)
    return value, index


@row(aten.max_pool2d_with_indices_backward.default)
def max_pool_backward(call: Call) -> Value:
    grad, x, indices = call["grad_output"], call["self"], call["indices"]
    plane, outer = (x.shape[-2] * x.shape[-1],), x.shape[:-2]
    count = grad.shape[-2] * grad.shape[-1]
    zeros = call.full(0, grad.dtype, (*outer, *plane))
    operands = [zeros, call.reshape(indices, (*outer, count)), call.reshape(grad, (*outer, count))]
    summed = call.emit("scatter", operands, grad.dtype, zeros.shape, dim=len(outer), reduction="add")
    return call.reshape(summed, x.shape)


@row(aten.avg_pool2d.default)
def avg_pool(call: Call) -> Value:
    x: Value = call["self"]
    if call["divisor_override"] is not None or not x.dtype.is_floating_point:
        raise Unsupported("divisor_override, or integers")
    kernel = spread(call["kernel_size"], 2)
    return call.emit(
        "avg_pool",
        [x],
        x.dtype,
        call.shape,
        kernel=kernel,
        strides=spread(call["stride"], 2) if call["stride"] else kernel,
        padding=spread(call["padding"], 2),
        ceil_mode=call["ceil_mode"],
        count_include_pad=call["count_include_pad"],
    )


@row(aten.avg_pool2d_backward.default)
def avg_pool_backward(call: Call) -> Value:
    """Every element of a window gets its share: a transposed convolution with equal weights, channel by channel."""
    grad, x = call["grad_output"], call["self"]
    kernel, padding = spread(call["kernel_size"], 2), spread(call["padding"], 2)
    stride = spread(call["stride"], 2) if call["stride"] else kernel
    if call["divisor_override"] is not None or call["ceil_mode"] or (any(padding) and not call["count_include_pad"]):
        raise Unsupported("windows that are divided by other numbers")
    planes = grad.element_count // (grad.shape[-2] * grad.shape[-1])
    reached = [(grad.shape[-2 + d] - 1) * stride[d] - 2 * padding[d] + kernel[d] for d in range(2)]
    rest = [x.shape[-2 + d] - reached[d] for d in range(2)]
    if any(not 0 <= r < stride[d] for d, r in enumerate(rest)):
        raise Unsupported("windows that leave part of the input out")
    share = call.full(1.0 / (kernel[0] * kernel[1]), torch.float32, (1, 1, *kernel))
    spread_out = call.emit(
        "conv_transpose",
        [call.reshape(grad, (planes, 1, *grad.shape[-2:])), call.cast(share, grad.dtype)],
        grad.dtype,
        (planes, 1, *x.shape[-2:]),
        strides=stride,
        padding=padding,
        output_padding=rest,
    )
    return call.reshape(spread_out, x.shape)


@row(aten._adaptive_avg_pool2d_backward.default)
def adaptive_avg_pool_backward(call: Call) -> Value:
    value, x = call["grad_output"], call["self"]
    for dim in (x.rank - 2, x.rank - 1):
        size, times = value.shape[dim], x.shape[dim] // max(value.shape[dim], 1)
        if size * times != x.shape[dim]:
            raise Unsupported("windows of unequal sizes")
        value = call.pointwise("mul", [value, 1.0 / times], value.dtype)
        if times > 1:
            shape = [*value.shape[:dim], x.shape[dim], *value.shape[dim + 1 :]]
            value = call.emit("repeat_interleave", [value], value.dtype, shape, repeats=times, dim=dim)
    return value


@row(aten._adaptive_avg_pool2d.default)
def adaptive_avg_pool(call: Call) -> Value:
    x: Value = call["self"]
    return call.emit("adaptive_avg_pool", [x], x.dtype, call.shape, output_size=list(call.shape[-2:]))


def _scores(call: Call, q: Value, k: Value, scale: float, causal: bool, mask: Value | None) -> Value:
    """Scaled scores in f32, minus infinity where a position does not count."""
    wide = torch.float32 if q.dtype.itemsize < 4 else q.dtype
    product = call.emit("matmul", [q, call.transpose(k)], wide, (*q.shape[:-1], k.shape[-2]), dtype=wide)
    scores = call.pointwise("mul", [product, scale], wide)
    if mask is not None:
        scores = call.pointwise("add", [scores, mask], wide)
    if causal:
        rows = call.iota((q.shape[-2], 1), 0)
        columns = call.iota((1, k.shape[-2]), 1)
        seen = call.emit("le", [columns, rows], boolean, (q.shape[-2], k.shape[-2]))
        scores = select(call, seen, scores, -float("inf"), wide)
    return scores


def attention_scale(call: Call, q: Value) -> float:
    scale = call.get("scale")
    return q.shape[-1] ** -0.5 if scale is None else float(scale)


@row(
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
)
def attention(call: Call) -> tuple[Value | None, ...]:
    q, k, v = call["query"], call["key"], call["value"]
    if call["dropout_p"]:
        raise Unsupported("attention with dropout")
    if k.shape[:-2] != q.shape[:-2]:
        raise Unsupported("attention over grouped heads")
    # Seeds, offsets and lengths are read by the gradient alone, which has no dropout to repeat.
    if call.used_results - {0, 1}:
        raise Unsupported("its seeds are read")
    mask = call.get("attn_bias") or call.get("attn_mask")
    if 1 not in call.used_results and (mask is None or mask.dtype is q.dtype or mask.dtype is boolean):
        operands = [q, k, v] if mask is None else [q, k, v, mask]
        out = call.emit(
            "attention", operands, q.dtype, call.shape, scale=attention_scale(call, q), causal=call["is_causal"]
        )
        return (out, *[None] * (len(call.results) - 1))
    scores = _scores(call, q, k, attention_scale(call, q), call["is_causal"], mask)
    total = call.emit("logsumexp", [scores], scores.dtype, scores.shape[:-1], dims=[-1], keepdim=False)
    weights = call.emit("softmax", [scores], scores.dtype, scores.shape, dim=-1)
    out = call.emit("matmul", [call.cast(weights, v.dtype), v], v.dtype, call.shape)
    expected = call.results[1]
    if expected is not None and expected[1] != total.shape:
        if len(expected[1]) != total.rank or expected[1][:-1] != total.shape[:-1]:
            raise Unsupported("its sums have a layout of their own")
        low = [0] * total.rank
        high = [*low[:-1], expected[1][-1] - total.shape[-1]]
        total = call.emit("pad", [total], total.dtype, expected[1], low=low, high=high, mode="constant")
    return (out, total, *[None] * (len(call.results) - 2))


@row(
    aten._scaled_dot_product_flash_attention_backward.default,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
    aten._scaled_dot_product_efficient_attention_backward.default,
)
def attention_backward(call: Call) -> tuple[Value | None, ...]:
    grad = call.get("grad_out") or call.get("grad_out_")
    q, k, v, out, total = call["query"], call["key"], call["value"], call["out"], call["logsumexp"]
    if call["dropout_p"] or k.shape[:-2] != q.shape[:-2]:
        raise Unsupported("the gradient of attention with dropout or grouped heads")
    mask = call.get("attn_bias") or call.get("attn_mask")
    scale = attention_scale(call, q)
    scores = _scores(call, q, k, scale, call["is_causal"], mask)
    wide = scores.dtype
    total = call.slice(total, total.rank - 1, 0, q.shape[-2])
    column = call.reshape(total, (*total.shape, 1))
    weights = call.pointwise("exp", [call.pointwise("sub", [scores, column], wide)], wide)
    narrow_weights = call.cast(weights, v.dtype)
    grad_v = matmul(call, call.transpose(narrow_weights), grad)
    grad_weights = call.emit("matmul", [grad, call.transpose(v)], wide, weights.shape, dtype=wide)
    products = call.pointwise("mul", [grad, out], wide)
    line = call.emit("sum", [products], wide, (*q.shape[:-1], 1), dims=[-1], keepdim=True)
    centred = call.pointwise("sub", [grad_weights, line], wide)
    grad_scores = call.pointwise("mul", [weights, centred], wide)
    scaled = call.cast(call.pointwise("mul", [grad_scores, scale], wide), q.dtype)
    grad_q = matmul(call, scaled, k)
    grad_k = matmul(call, call.transpose(scaled), q)
    if len(call.results) > 3 and 3 in call.used_results:
        raise Unsupported("the gradient of an attention mask")
    return (grad_q, grad_k, grad_v, *[None] * (len(call.results) - 3))
