"""What was compiled and what stayed in eager execution, and why.

Pipeline: backend.py records -> report() -> people. Thread-safety: thread-safe. Each op that stays in eager execution
is also logged once for each reason, by the logger "fuseline.torch".
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field

# Kept for the report; what comes after is not logged either, since each is one set of sizes.
MOST_NOTES = 1000

log = logging.getLogger("fuseline.torch")


@dataclass(slots=True)
class GraphRecord:
    """One graph that AOTAutograd gave: a forward, a backward or an inference graph."""

    kind: str
    op_count: int = 0
    """Ops, without views and what only takes tuples apart."""
    compiled_op_count: int = 0
    group_count: int = 0
    """Compiled graphs that it became."""
    kernel_count: int = 0
    statement_count: int = 0
    seconds: float = 0.0
    """All that Fuseline did for the graph; the next three are parts of it."""
    lowering_seconds: float = 0.0
    server_seconds: float = 0.0
    loading_seconds: float = 0.0
    cache_hits: int = 0


@dataclass(slots=True)
class EagerOp:
    """An op that stayed in eager execution."""

    op: str
    reason: str
    count: int = 0


@dataclass(slots=True)
class Report:
    graphs: list[GraphRecord] = field(default_factory=list)
    eager_ops: list[EagerOp] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What else happened that a user should know: sizes that were compiled for, a server that was lost."""
    connect_seconds: float = 0.0
    """Until servers had answered for the first time."""

    @property
    def op_count(self) -> int:
        return sum(g.op_count for g in self.graphs)

    @property
    def compiled_op_count(self) -> int:
        return sum(g.compiled_op_count for g in self.graphs)

    def __str__(self) -> str:
        lines = [f"{self.compiled_op_count} of {self.op_count} ops compiled, {len(self.graphs)} graphs"]
        for graph in self.graphs:
            lines.append(
                f"  {graph.kind}: {graph.compiled_op_count} of {graph.op_count} ops, "
                f"{graph.group_count} compiled parts, {graph.kernel_count} kernels"
            )
        lines += [f"  in eager: {e.op} x{e.count}: {e.reason}" for e in self.eager_ops]
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)


class Recorder:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._graphs: list[GraphRecord] = []
        self._eager: dict[tuple[str, str], EagerOp] = {}
        self._notes: dict[str, None] = {}
        self._connect_seconds = 0.0

    def graph(self, record: GraphRecord) -> None:
        with self._lock:
            self._graphs.append(record)

    def connected(self, seconds: float) -> None:
        with self._lock:
            self._connect_seconds += seconds

    def eager(self, op: str, reason: str) -> None:
        with self._lock:
            entry = self._eager.get((op, reason))
            if entry is None:
                entry = self._eager[op, reason] = EagerOp(op, reason)
                log.warning("%s stays in eager execution: %s", op, reason)
            entry.count += 1

    def note(self, text: str, level: int = logging.WARNING) -> None:
        with self._lock:
            if text not in self._notes and len(self._notes) < MOST_NOTES:
                self._notes[text] = None
                log.log(level, "%s", text)

    def report(self) -> Report:
        with self._lock:
            return Report(list(self._graphs), list(self._eager.values()), list(self._notes), self._connect_seconds)

    def clear(self) -> None:
        with self._lock:
            self._graphs.clear()
            self._eager.clear()
            self._notes.clear()
            self._connect_seconds = 0.0


RECORDER = Recorder()


def report() -> Report:
    """What this process has compiled so far."""
    return RECORDER.report()


def reset_report() -> None:
    RECORDER.clear()
