"""Helpers of the tests of the torch.compile backend.

FUSELINE_TEST_DEVICE is the device that they run on: a GPU where there is one, unless it says "cpu".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import fuseline.torch
import torch
import torch.utils._pytree as tree

DEVICE = os.environ.get("FUSELINE_TEST_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")


def seeded(*shape: int, seed: int = 7) -> torch.Tensor:
    """Normal numbers, the same on every device."""
    return torch.randn(*shape, device="cpu", generator=torch.Generator("cpu").manual_seed(seed)).to(DEVICE)


def on_device(values: Any) -> Any:
    """The same, with its tensors on the device. A view stays one: their strides are kept."""

    def move(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.device.type == DEVICE:
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=DEVICE).copy_(value)

    return tree.tree_map(move, values)


# What is left to torch's libraries by default is under test too.
COMPILE_ALL = {"contractions": "compiled"}


def compiled(function: Any, server: str, options: Mapping[str, Any] | None = None, **how: Any) -> Any:
    """The function or module, compiled by a server of which the address is given; the report begins anew."""
    torch._dynamo.reset()
    fuseline.torch.reset_report()
    return torch.compile(
        function, backend="fuseline", options={**COMPILE_ALL, "server": server, **(options or {})}, **how
    )


def assert_same(got: Any, want: Any, tolerance: float = 1e-4) -> None:
    """Equal structure, dtypes, shapes and, within a tolerance, values."""
    got_leaves, got_form = tree.tree_flatten(got)
    want_leaves, want_form = tree.tree_flatten(want)
    assert got_form == want_form
    for at, (a, b) in enumerate(zip(got_leaves, want_leaves)):
        exact = not b.dtype.is_floating_point
        torch.testing.assert_close(
            a,
            b,
            rtol=0 if exact else tolerance,
            atol=0 if exact else tolerance / 10,
            equal_nan=True,
            msg=lambda text, at=at: f"result {at}: {text}",
        )


def assert_all_compiled(report: Any) -> None:
    """Everything but torch's own attention, which stays with torch on a GPU unless asked for."""
    kept = [e for e in report.eager_ops if DEVICE == "cuda" and "option attention" in e.reason]
    assert [e for e in report.eager_ops if e not in kept] == [], str(report)
    assert report.compiled_op_count + sum(e.count for e in kept) == report.op_count > 0, str(report)


def check(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    server: str,
    options: Mapping[str, Any] | None = None,
    tolerance: float = 1e-4,
) -> Any:
    """Compares with eager execution, and demands that everything was compiled."""
    arguments = on_device(tuple(arguments))
    before = torch.get_default_device()
    torch.set_default_device(DEVICE)
    try:
        want = function(*arguments)
        got = compiled(function, server, options, fullgraph=True)(*arguments)
    finally:
        torch.set_default_device(before)
    assert_same(got, want, tolerance)
    assert_all_compiled(fuseline.torch.report())
    return got
