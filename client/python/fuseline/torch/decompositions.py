"""Which aten ops are taken apart before rows see them.

Pipeline: torch's tables of decompositions -> decompositions() -> AOTAutograd. Ops with a row stay whole, so that the
compiler sees softmax and not its parts; gradients and rare ops become ops that have rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import _decomp
from torch._decomp import decomposition_table

aten = torch.ops.aten

# Whole ops outside of core aten's table whose parts have rows.
_ALSO_TAKEN_APART = (
    aten.batch_norm_backward,
    aten.native_batch_norm_backward,
    aten.native_group_norm_backward,
    aten.native_layer_norm_backward,
    aten.native_batch_norm,
    aten.upsample_nearest2d,
    aten.upsample_nearest1d,
    aten.upsample_bilinear2d,
    aten.upsample_bicubic2d,
    aten.upsample_trilinear3d,
    aten.grid_sampler_2d,
    aten.addmv,
    aten.addbmm,
    aten.hardtanh_backward,
    aten.nll_loss_forward,
    aten.nll_loss_backward,
    aten.nll_loss2d_forward,
    aten.nll_loss2d_backward,
    aten.smooth_l1_loss,
    aten.glu,
    aten.prelu,
    aten._prelu_kernel,
    aten.eye,
    aten.diagonal_scatter,
    aten.dist,
)


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    from .op_rows import row_targets

    # Without ops that autograd has taken apart before: those are most of the full table, which takes long to make.
    core = getattr(_decomp, "_core_aten_decompositions_post_autograd", _decomp.core_aten_decompositions)
    table = dict(core())
    for packet in _ALSO_TAKEN_APART:
        for overload in packet.overloads():  # type: ignore[no-untyped-call, unused-ignore]
            op = getattr(packet, overload)
            if op in decomposition_table:
                table[op] = decomposition_table[op]
    for target in row_targets():
        table.pop(target, None)
    return table
