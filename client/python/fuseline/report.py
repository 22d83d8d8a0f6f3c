"""What a compilation did and cost: fusion reports, explanations, and what is known of a server. Plain data.

Pipeline: fuseline.v1 messages -> these -> text, HTML. Thread-safety: immutable. Tested by tests/python/test_report.py
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fuseline import protocol
from fuseline.dtypes import DType

if TYPE_CHECKING:
    from fuseline.graph import Graph


@dataclasses.dataclass(frozen=True)
class CompileSummary:
    fingerprint: bytes
    outcome: str  # "miss", "memory-hit", "disk-hit", "joined", "shared-hit"
    elapsed: float  # seconds from request to artifact, in the server
    build_time: float  # of them, spent compiling; 0 on a hit
    target: str
    graph_sent: bool  # False: the fingerprint was enough

    @property
    def is_hit(self) -> bool:
        return self.outcome not in ("miss", "joined")


@dataclasses.dataclass(frozen=True)
class KernelReport:
    """A kernel; bytes are those of whole tensors, each counted once a kernel."""

    name: str
    kind: str
    schedule: str
    ops: tuple[str, ...]
    tensors_read: int
    tensors_written: int
    bytes_read: int
    bytes_written: int
    unfused_kernels: int
    unfused_transfers: int
    unfused_bytes: int


@dataclasses.dataclass(frozen=True)
class FusionRefusal:
    producer: str
    consumer: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Report:
    kernels: tuple[KernelReport, ...]
    refusals: tuple[FusionRefusal, ...]
    intermediates_removed: int
    stage_micros: Mapping[str, int]

    def __str__(self) -> str:
        unfused = sum(k.unfused_kernels for k in self.kernels)
        before, after = self._bytes()
        lines = [
            f"{unfused} kernels -> {len(self.kernels)}, {self._transfers()}, {_bytes_text(before)} -> "
            f"{_bytes_text(after)} moved, {self.intermediates_removed} intermediates removed"
        ]
        for kernel in self.kernels:
            moved = f"reads {_bytes_text(kernel.bytes_read)}, writes {_bytes_text(kernel.bytes_written)}"
            lines.append(f"  {kernel.name} ({kernel.kind}, {kernel.schedule}): {moved}")
            lines.append(f"    {', '.join(kernel.ops)}")
        return "\n".join(lines)

    def _transfers(self) -> str:
        unfused = sum(k.unfused_transfers for k in self.kernels)
        return f"{unfused} tensor transfers -> {sum(k.tensors_read + k.tensors_written for k in self.kernels)}"

    def _bytes(self) -> tuple[int, int]:
        unfused = sum(k.unfused_bytes for k in self.kernels)
        return unfused, sum(k.bytes_read + k.bytes_written for k in self.kernels)

    def _repr_html_(self) -> str:
        import html  # its tables take longer to load than the rest of this file

        rows = "".join(
            f"<tr><td><code>{html.escape(k.name)}</code></td><td>{html.escape(k.kind)}, {html.escape(k.schedule)}</td>"
            f"<td>{_bytes_text(k.bytes_read)}</td><td>{_bytes_text(k.bytes_written)}</td>"
            f"<td>{k.unfused_kernels}, {_bytes_text(k.unfused_bytes)}</td>"
            f"<td style='text-align:left'><code>{html.escape(', '.join(k.ops))}</code></td></tr>"
            for k in self.kernels
        )
        heads = ("kernel", "kind", "reads", "writes", "unfused", "ops")
        return (
            f"<p>{html.escape(str(self).splitlines()[0])}</p><table><thead><tr>"
            + "".join(f"<th>{head}</th>" for head in heads)
            + f"</tr></thead><tbody>{rows}</tbody></table>"
        )


@dataclasses.dataclass(frozen=True)
class KeyField:
    name: str
    value: str
    digest: str


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What `explain` gives. Shown as HTML in notebooks."""

    summary: CompileSummary
    report: Report
    stages: Mapping[str, str]  # "graph", "canonical", "loops", "fusion", "plan", "source", where asked for
    key_fields: tuple[KeyField, ...]
    graph: Graph | None = dataclasses.field(default=None, repr=False, compare=False)
    """What was explained; None: a fingerprint."""
    fetch_artifact: Callable[[], Any] | None = dataclasses.field(default=None, repr=False, compare=False)
    """Gives the fuseline.v1.Artifact with source, or None; asked by html() alone, since it costs a call."""

    def __str__(self) -> str:
        parts = [str(self.report)]
        parts += [f"-- {name} --\n{text}" for name, text in self.stages.items()]
        if self.key_fields:
            parts.append("\n".join(f"{field.name} = {field.value} ({field.digest})" for field in self.key_fields))
        return "\n".join(parts)

    def html(self, benchmark: Benchmark | None = None) -> str:
        """One page for a browser, that needs no network: the graph before and after fusion, kernels and their source.

        `benchmark`: a measurement of the same graph, to be shown too. Asks the server for the source. Raises
        FailedPreconditionError where the package was built without the page.
        """
        from fuseline import explain_page

        return explain_page.page(self, benchmark)

    def save_html(self, path: str | os.PathLike[str], benchmark: Benchmark | None = None) -> None:
        """Writes html() to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html(benchmark))

    def _repr_html_(self) -> str:
        from fuseline import explain_page

        frame = explain_page.frame(self)
        if not frame:
            return self._tables()
        # Where frames are not shown (a notebook that is not trusted, a preview) there are the tables.
        return f"<details><summary>as tables</summary>{self._tables()}</details>{frame}"

    def _tables(self) -> str:
        import html

        stages = "".join(
            f"<details><summary>{html.escape(name)}</summary><pre>{html.escape(text)}</pre></details>"
            for name, text in self.stages.items()
        )
        return self.report._repr_html_() + stages


@dataclasses.dataclass(frozen=True)
class TargetInfo:
    target: str
    can_compile: bool
    can_execute: bool
    reason: str  # why not, and what to install


@dataclasses.dataclass(frozen=True)
class DeviceInfo:
    ordinal: int
    name: str
    target: str
    memory_bytes: int
    healthy: bool
    executions: int
    queue_depth: int


@dataclasses.dataclass(frozen=True)
class ServerInfo:
    version: str
    compiler_identity: str
    targets: tuple[TargetInfo, ...]
    devices: tuple[DeviceInfo, ...]
    limits: Mapping[str, int]
    uptime: float
    draining: bool
    warnings: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class CacheStats:
    builds: int
    joins: int
    levels: tuple[Mapping[str, Any], ...]  # fastest first


@dataclasses.dataclass(frozen=True)
class KeptTensor:
    """A tensor that the server keeps. It may stand for an input."""

    handle: str
    dtype: DType
    shape: tuple[int, ...]
    size_bytes: int
    lease: float
    remaining: float = 0.0
    name: str = ""  # the output's, where a run kept it


@dataclasses.dataclass(frozen=True)
class OutputComparison:
    name: str
    elements: int
    mismatches: int  # off by more than the tolerance
    max_abs_error: float
    max_rel_error: float
    first_mismatch: str  # "at [1, 2]: got 3, want 4"; empty if there is none


@dataclasses.dataclass(frozen=True)
class Verification:
    """What `verify` gives. True where all outputs are within the tolerance."""

    summary: CompileSummary
    passed: bool
    outputs: tuple[OutputComparison, ...]

    def __bool__(self) -> bool:
        return self.passed


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """What `benchmark` gives."""

    summary: CompileSummary
    report: Report
    micros: tuple[float, ...]  # of each measured run, all its kernels together, on the device's clock
    copy_bytes_per_second: float  # what a plain copy on the device moves, read and written together; 0: unknown
    moved_bytes: int  # what a run has to move
    device: int
    device_name: str

    @property
    def median_micros(self) -> float:
        ordered = sorted(self.micros)
        return ordered[len(ordered) // 2]


def verification_from_proto(proto: Any) -> Verification:
    outputs = tuple(
        OutputComparison(o.name, o.element_count, o.mismatch_count, o.max_abs_error, o.max_rel_error, o.first_mismatch)
        for o in proto.outputs
    )
    return Verification(summary_from_proto(proto.summary, True), proto.passed, outputs)


def benchmark_from_proto(proto: Any, graph_sent: bool) -> Benchmark:
    return Benchmark(
        summary_from_proto(proto.summary, graph_sent), report_from_proto(proto.report), tuple(proto.iteration_micros),
        proto.copy_bytes_per_second, proto.moved_bytes, proto.device, proto.device_name,
    )  # fmt: skip


def seconds(duration: Any) -> float:
    return duration.seconds + duration.nanos * 1e-9


def summary_from_proto(proto: Any, graph_sent: bool) -> CompileSummary:
    return CompileSummary(
        fingerprint=proto.fingerprint,
        outcome=protocol.enum_name("CacheOutcome", proto.outcome, "CACHE_OUTCOME_"),
        elapsed=seconds(proto.elapsed),
        build_time=seconds(proto.build_time),
        target=proto.target,
        graph_sent=graph_sent,
    )


def report_from_proto(proto: Any) -> Report:
    kernels = tuple(
        KernelReport(
            k.name, k.kind, k.schedule, tuple(k.ops), k.tensors_read_count, k.tensors_written_count, k.read_bytes,
            k.written_bytes, k.unfused_kernel_count, k.unfused_transfer_count, k.unfused_bytes,
        )
        for k in proto.kernels
    )  # fmt: skip
    refusals = tuple(FusionRefusal(r.producer, r.consumer, r.reason) for r in proto.refusals)
    return Report(kernels, refusals, proto.intermediates_removed_count, dict(proto.stage_micros))


def kept_from_proto(proto: Any, name: str = "") -> KeptTensor:
    return KeptTensor(
        proto.handle, DType.from_number(proto.dtype), tuple(proto.shape), proto.size_bytes, seconds(proto.lease),
        seconds(proto.remaining), name or proto.name,
    )  # fmt: skip


def server_info_from_proto(proto: Any) -> ServerInfo:
    targets = tuple(TargetInfo(t.target, t.can_compile, t.can_execute, t.reason) for t in proto.targets)
    devices = tuple(
        DeviceInfo(d.ordinal, d.name, d.target, d.memory_bytes, d.healthy, d.execution_count, d.queue_depth_count)
        for d in proto.devices
    )
    limits = {field.name: getattr(proto.limits, field.name) for field in proto.limits.DESCRIPTOR.fields}
    draining = protocol.enum_name("ServerState", proto.state, "SERVER_STATE_") == "draining"
    return ServerInfo(
        proto.version, proto.compiler_identity, targets, devices, limits, seconds(proto.uptime), draining,
        tuple(proto.warnings),
    )  # fmt: skip


def cache_stats_from_proto(proto: Any) -> CacheStats:
    levels = tuple({f.name: getattr(level, f.name) for f in level.DESCRIPTOR.fields} for level in proto.levels)
    return CacheStats(proto.build_count, proto.join_count, levels)


def _bytes_text(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError
