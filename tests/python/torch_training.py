"""Trains a 4-layer transformer and a small ResNet with eager torch, Inductor and backend="fuseline", and prints JSON.

usage: torch_training.py [--device cuda|cpu] [--small] [--steps 100] [--no-inductor] [--only transformer,resnet]
                         [--attention library|compiled] [--contractions auto|compiled|library]
                         [--precision bf16|f32] [--cuda-graphs] [--eager-ops OP,…] [--out
                         FILE.json]

$FUSELINE_SERVER names the server. All runs of a model begin with the same weights and see the same batches. Per
model: the loss curves, the largest distance of each from eager's, the noise (that distance of an eager run whose
weights begin one rounding error away), the median step times of the last half of the steps, and how much of the
forward and backward graphs was compiled. Exit code 1 where Fuseline's curve leaves eager's by more than four times
the noise and 2 % of the loss, or a run fails.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fuseline.torch
import torch
import torch.nn.functional as F
from torch import nn
from torch_timing import synchronize


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Transformer(nn.Module):
    def __init__(self, words: int, width: int, heads: int, layers: int, length: int) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(words, width), nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, words: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.embedding(words) + self.position)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.reshape(-1))


class Residual(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outer), nn.BatchNorm2d(outer)
        self.skip = nn.Conv2d(inner, outer, 1, stride, bias=False) if stride != 1 or inner != outer else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.skip(x))


class ResNet(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.blocks = nn.Sequential(
            Residual(width, width, 1), Residual(width, 2 * width, 2), Residual(2 * width, 4 * width, 2)
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.stem(images))), 2)
        x = F.adaptive_avg_pool2d(self.blocks(x), 1).flatten(1)
        return F.cross_entropy(self.head(x).float(), targets)


@dataclass
class Task:
    model: Callable[[], nn.Module]
    batches: Callable[[], list[tuple[torch.Tensor, torch.Tensor]]]
    rate: float


def make_tasks(small: bool, device: str) -> dict[str, Task]:
    words, width, heads, length, batch = (64, 32, 2, 16, 4) if small else (8192, 512, 8, 512, 16)
    side, channels, images = (16, 8, 8) if small else (32, 64, 128)

    def sequences() -> list[tuple[torch.Tensor, torch.Tensor]]:
        # Each word follows from the one before it, mostly: something to learn.
        made = []
        for _ in range(4):
            start = torch.randint(0, words, (batch, 1))
            steps = torch.arange(length + 1)
            noise = torch.randint(0, 3, (batch, length + 1))
            sequence = ((start + 7 * steps + noise) % words).to(device)
            made.append((sequence[:, :-1].contiguous(), sequence[:, 1:].contiguous()))
        return made

    def pictures() -> list[tuple[torch.Tensor, torch.Tensor]]:
        patterns = torch.randn(10, 3, side, side)
        made = []
        for _ in range(4):
            classes = torch.randint(0, 10, (images,))
            made.append(((patterns[classes] + torch.randn(images, 3, side, side)).to(device), classes.to(device)))
        return made

    return {
        "transformer": Task(
            lambda: Transformer(words, width, heads, 4, length), sequences, 3e-4 if not small else 3e-3
        ),
        "resnet": Task(lambda: ResNet(channels, 10), pictures, 1e-3),
    }


@dataclass
class Run:
    losses: list[float]
    step_ms: float
    first_step_s: float


def train(
    task: Task, device: str, steps: int, precision: str, compiler: Callable[[nn.Module], Any], nudge: bool = False
) -> Run:
    torch.manual_seed(1)
    batches = task.batches()
    model = task.model().to(device)
    if nudge:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1 + torch.finfo(parameter.dtype).eps)
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.rate)
    compiled = compiler(model)
    losses, times = [], []
    for step in range(steps):
        start = time.perf_counter()
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            loss = compiled(*batches[step % len(batches)])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        synchronize(device)
        times.append(time.perf_counter() - start)
        losses.append(loss.item())
    return Run(losses, statistics.median(times[len(times) // 2 :]) * 1e3, times[0])


def distance(a: Run, b: Run) -> float:
    return max((abs(x - y) for x, y in zip(a.losses, b.losses)), default=0.0)


def run_task(task: Task, options: argparse.Namespace) -> dict[str, Any]:
    arguments = (task, options.device, options.steps, options.precision)
    eager = train(*arguments, lambda model: model)
    noise = distance(train(*arguments, lambda model: model, nudge=True), eager)
    runs = {"eager": eager}
    if not options.no_inductor:
        torch._dynamo.reset()
        runs["inductor"] = train(*arguments, lambda model: torch.compile(model, dynamic=False))
    torch._dynamo.reset()
    fuseline.torch.reset_report()
    settings: dict[str, Any] = {"on_server_loss": "raise", "cuda_graphs": options.cuda_graphs}
    settings["eager_ops"] = tuple(filter(None, options.eager_ops.split(",")))
    settings["contractions"] = options.contractions
    if options.attention:
        settings["attention"] = options.attention
    runs["fuseline"] = train(
        *arguments,
        lambda model: torch.compile(model, backend="fuseline", dynamic=False, options=settings),
    )
    report = fuseline.torch.report()
    off = distance(runs["fuseline"], eager)
    return {
        "passed": off <= max(4 * noise, 0.02 * abs(eager.losses[0])),
        "noise": noise,
        "distance": {name: distance(run, eager) for name, run in runs.items() if name != "eager"},
        "first_and_last_loss": {name: [run.losses[0], run.losses[-1]] for name, run in runs.items()},
        "step_ms": {name: run.step_ms for name, run in runs.items()},
        "first_step_s": {name: run.first_step_s for name, run in runs.items()},
        "ops": report.op_count,
        "compiled_ops": report.compiled_op_count,
        "share": report.compiled_op_count / max(report.op_count, 1),
        "graphs": [f"{g.kind}: {g.compiled_op_count}/{g.op_count}, {g.kernel_count} kernels" for g in report.graphs],
        "in_eager": [f"{e.op} x{e.count}: {e.reason}" for e in report.eager_ops],
        "notes": report.notes,
        "losses": {name: run.losses for name, run in runs.items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true", help="models and batches for a machine without a GPU")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--no-inductor", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--attention", default="", choices=("", "library", "compiled"))
    parser.add_argument("--contractions", default="auto", choices=("auto", "compiled", "library"))
    parser.add_argument("--precision", default="bf16", choices=("bf16", "f32"))
    parser.add_argument("--cuda-graphs", action="store_true", help="Fuseline with CUDA graphs")
    parser.add_argument("--eager-ops", default="", help="ops that Fuseline leaves to torch: aten.convolution,…")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    only = set(filter(None, options.only.split(",")))
    results: dict[str, Any] = {}
    for name, task in make_tasks(options.small, options.device).items():
        if only and name not in only:
            continue
        try:
            results[name] = run_task(task, options)
        except Exception as error:
            results[name] = {"passed": False, "error": f"{type(error).__name__}: {error}"[:4000]}
        shown = {key: value for key, value in results[name].items() if key != "losses"}
        print(json.dumps({name: shown}), flush=True)
        if options.out is not None:
            options.out.write_text(json.dumps(results, indent=1))
    failed = [name for name, result in results.items() if not result["passed"]]
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
