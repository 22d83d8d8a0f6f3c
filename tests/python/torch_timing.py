"""Times of functions of torch's tensors, on a GPU by its own clock. Used by torch_suite.py, torch_training.py and
others."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

# Larger than any GPU's L2 cache: written between runs, so that each begins with a cold one.
_FLUSH_BYTES = 256 << 20


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def median_ms(call: Callable[[], Any], device: str, least_runs: int = 10, budget_s: float = 1.0) -> float:
    """The median time of a call in milliseconds, with a cold L2 cache; as many runs as `budget_s` allows, at most
    200."""
    for _ in range(3):
        call()
    synchronize(device)
    start = time.perf_counter()
    call()
    synchronize(device)
    runs = max(least_runs, min(200, int(budget_s / max(time.perf_counter() - start, 1e-6))))
    if device != "cuda":
        times = []
        for _ in range(runs):
            start = time.perf_counter()
            call()
            times.append((time.perf_counter() - start) * 1e3)
        return statistics.median(times)
    flush = torch.empty(_FLUSH_BYTES, dtype=torch.int8, device="cuda")
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(runs)]
    for begin, end in events:
        flush.zero_()
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in events)


def host_microseconds(call: Callable[[], Any], device: str, runs: int = 2000, blocks: int = 20) -> float:
    """What a call costs its thread, in microseconds: the best of blocks of calls, each waited for after its last call.

    Blocks are short, so that the GPU's queue never fills and what is measured is not the GPU.
    """
    for _ in range(50):
        call()
    synchronize(device)
    best = float("inf")
    each = max(1, runs // blocks)
    for _ in range(blocks):
        start = time.perf_counter()
        for _ in range(each):
            call()
        best = min(best, (time.perf_counter() - start) / each)
        synchronize(device)
    return best * 1e6
