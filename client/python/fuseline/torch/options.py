"""What torch.compile(model, backend="fuseline", mode=…, options={…}) may say.

Pipeline: mode and options of torch.compile, environment -> Options.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

_MODES = ("default", "reduce-overhead")
_CHOICES = {
    "numerics": ("fused", "eager"),
    "random": ("seeded", "eager"),
    "attention": ("auto", "compiled", "library"),
    "contractions": ("auto", "compiled", "library"),
    "on_server_loss": ("eager", "raise"),
}


@dataclass(frozen=True, slots=True)
class Options:
    """The defaults are what torch.compile(model, backend="fuseline") does."""

    server: str = ""
    """HOST:PORT or unix:PATH; empty: $FUSELINE_SERVER."""
    target: str = ""
    """"cuda:sm_90", "cpu"; empty: that of the device the tensors are on."""
    numerics: str = "fused"
    """How 16-bit floats are rounded: "fused", where they are stored; "eager", after every op, as torch without a
    compiler
    does."""
    random: str = "seeded"
    """"seeded": random ops are compiled, torch.manual_seed repeats their numbers; "eager": torch's own ops draw
    torch's own
    numbers."""
    attention: str = "auto"
    """torch's fused attention ops: "compiled", "library" (torch's own kernels run them), "auto": compiled on the CPU
    only."""
    contractions: str = "auto"
    """Products of matrices and convolutions, likewise: on a GPU torch's libraries are faster than the compiler's own
    kernels for them, which use no tensor cores."""
    eager_ops: tuple[str, ...] = ()
    """Ops that stay in eager execution: "aten.convolution", or one overload, "aten.convolution.default"."""
    on_server_loss: str = "eager"
    """What a server that can't be reached means while compiling: "eager", with one warning, or "raise"."""
    allow_tf32: bool | None = None
    """Tensor cores' tf32 in products of f32; None: as torch.backends.cuda.matmul.allow_tf32 says."""
    deadline: float = 600.0
    """Seconds for one compilation."""
    cpu_threads: int = 0
    """Threads of the CPU target; 0: one for each core."""
    cuda_graphs: bool = False
    """Set by mode = "reduce-overhead"."""


def parse_options(mode: str | None, options: Mapping[str, Any] | None) -> Options:
    """Raises ValueError on an unknown mode, option or value."""
    mode = mode or "default"
    if mode not in _MODES:
        raise ValueError(f"mode '{mode}' is none of {', '.join(_MODES)}")
    given = dict(options or {})
    known = {field.name for field in fields(Options)}
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"option '{name}' is none of {', '.join(sorted(known))}")
        if name in _CHOICES and value not in _CHOICES[name]:
            raise ValueError(f"option '{name}': '{value}' is none of {', '.join(_CHOICES[name])}")
    given["eager_ops"] = tuple(given.get("eager_ops", ()))
    given.setdefault("server", "")
    given["server"] = given["server"] or os.environ.get("FUSELINE_SERVER", "")
    if mode == "reduce-overhead":
        given["cuda_graphs"] = True
    return Options(**given)
