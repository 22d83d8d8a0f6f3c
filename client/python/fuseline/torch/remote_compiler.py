"""Asks the server to compile graphs in their text form.

Pipeline: texts -> compile_texts -> artifacts or errors, in the same order. Thread-safety: thread-safe. The text goes
as it is: the server parses it faster than Python would.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import fuseline
from fuseline import protocol
from fuseline.errors import Error
from fuseline.report import summary_from_proto
from fuseline.servers import Route, stable_hash
from fuseline.spec import Spec

# Calls at one time; the server bounds its work itself.
MOST_CALLS = 8


@dataclass(frozen=True, slots=True)
class CompiledText:
    artifact: bytes
    fingerprint: bytes
    kernel_count: int
    outcome: str


def compile_texts(
    client: fuseline.Client, texts: Sequence[str], target: str, options: fuseline.Options, deadline: float
) -> list[CompiledText | Error]:
    """Where one can't be compiled, its place holds the error."""

    def one(text: str) -> CompiledText | Error:
        request = protocol.message("CompileRequest")()
        Spec(None, None, {}, target, options).fill_fields(request.spec)
        request.spec.graph_text = text
        try:
            route = Route("compile", target, stable_hash(request.spec.SerializeToString(deterministic=True)))
            response = client._channel.unary("Compile", request, deadline, route)
        except Error as error:
            return error
        summary = summary_from_proto(response.summary, True)
        artifact = response.artifact.SerializeToString()
        return CompiledText(artifact, summary.fingerprint, len(response.report.kernels), summary.outcome)

    if len(texts) <= 1:
        return [one(text) for text in texts]
    with ThreadPoolExecutor(min(MOST_CALLS, len(texts)), thread_name_prefix="fuseline-compile") as pool:
        return list(pool.map(one, texts))
