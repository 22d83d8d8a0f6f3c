"""The page that shows an explanation: the same as that of `fuseline explain --html`.

Pipeline: Explanation, Graph, fuseline.v1.Artifact -> JSON (of client/cli/explain_page.h) -> _explain_page.html, a page.
Thread-safety: pure functions. Tested by tests/python/test_explain_page.py
"""

from __future__ import annotations

import dataclasses
import functools
import html
import json
from importlib import resources
from typing import TYPE_CHECKING, Any

from fuseline.errors import Error, FailedPreconditionError
from fuseline.graph import Graph, Node, Value
from fuseline.graph_text import value_text

if TYPE_CHECKING:
    from fuseline.report import Benchmark, Explanation, Report

_RESOURCE = "_explain_page.html"
_MARKER = "@FUSELINE_EXPLAIN_DATA@"
_MOST_ATTRIBUTE_CHARACTERS = 300
_BUFFER_KINDS = ("", "input", "output", "temporary", "constant", "checks")  # fuseline.v1.PlanBuffer.Kind
_LAUNCH = 1  # fuseline.v1.PlanStep.KIND_LAUNCH


@functools.cache
def _template() -> tuple[str, str] | None:
    resource = resources.files("fuseline").joinpath(_RESOURCE)
    if not resource.is_file():
        return None
    head, tail = resource.read_text(encoding="utf-8").split(_MARKER)
    return head, tail


def page(explanation: Explanation, benchmark: Benchmark | None = None) -> str:
    """Raises FailedPreconditionError where the package has no page, and what asking for the source raises."""
    template = _template()
    if template is None:
        raise FailedPreconditionError("the package was built without the page of explanations")
    artifact = explanation.fetch_artifact() if explanation.fetch_artifact is not None else None
    # Inside a script of data nothing but "<" can end it or begin a comment; JSON has it within strings alone.
    data = json.dumps(page_data(explanation, artifact, benchmark), separators=(",", ":")).replace("<", "\\u003c")
    return template[0] + data + template[1]


def frame(explanation: Explanation) -> str:
    """The page within a notebook; nothing where it can't be made."""
    try:
        text = page(explanation)
    except Error:
        return ""
    # Its own document, so that its styles and the notebook's leave each other alone; without rights on the notebook.
    return (
        '<iframe sandbox="allow-scripts" style="width:100%;height:860px;border:0" title="Fuseline explanation" '
        f'srcdoc="{html.escape(text)}"></iframe>'
    )


def page_data(explanation: Explanation, artifact: Any, benchmark: Benchmark | None) -> dict[str, Any]:
    """`artifact`: a fuseline.v1.Artifact, or None."""
    summary = explanation.summary
    return {
        "summary": {
            "fingerprint": summary.fingerprint.hex(),
            "target": summary.target,
            "outcome": summary.outcome,
            "compile_ms": summary.elapsed * 1e3,
            "build_ms": summary.build_time * 1e3,
        },
        "report": _report_data(explanation.report),
        "graph": None if explanation.graph is None else _graph_data(explanation.graph),
        "plan": None if artifact is None else _plan_data(artifact.plan),
        "images": [] if artifact is None else [_image_data(kernel) for kernel in artifact.kernels],
        "benchmark": None if benchmark is None else _benchmark_data(benchmark),
        "stages": dict(explanation.stages),
        "key": [dataclasses.asdict(field) for field in explanation.key_fields],
    }


def _report_data(report: Report) -> dict[str, Any]:
    kernels = report.kernels
    return {
        "kernels_before": sum(k.unfused_kernels for k in kernels),
        "kernels_after": len(kernels),
        "transfers_before": sum(k.unfused_transfers for k in kernels),
        "transfers_after": sum(k.tensors_read + k.tensors_written for k in kernels),
        "bytes_before": sum(k.unfused_bytes for k in kernels),
        "bytes_after": sum(k.bytes_read + k.bytes_written for k in kernels),
        "intermediates_removed": report.intermediates_removed,
        "kernels": [dataclasses.asdict(kernel) for kernel in kernels],
        "refusals": [dataclasses.asdict(refusal) for refusal in report.refusals],
        "stage_micros": dict(report.stage_micros),
    }


def _benchmark_data(benchmark: Benchmark) -> dict[str, Any]:
    return {
        "micros": list(benchmark.micros),
        "copy_bytes_per_second": benchmark.copy_bytes_per_second,
        "moved_bytes": benchmark.moved_bytes,
        "device_name": benchmark.device_name,
    }


def _type_text(value: Value) -> str:
    return "" if value.type is None else str(value.type)


def _attributes_text(node: Node) -> str:
    parts = []
    for name, value in sorted(node.attributes.items()):
        if isinstance(value, (list, tuple)):
            value = value[:_MOST_ATTRIBUTE_CHARACTERS]
        parts.append(f"{name} = {value_text(value)}")
    text = ", ".join(parts)
    return text if len(text) <= _MOST_ATTRIBUTE_CHARACTERS else text[:_MOST_ATTRIBUTE_CHARACTERS] + "…"


def _graph_data(graph: Graph) -> dict[str, Any]:
    nodes = [
        [
            node.op,
            [str(operand) if isinstance(operand, Value) else [value_text(operand)] for operand in node.operands],
            [[result.name, _type_text(result)] for result in node.results],
            _attributes_text(node),
        ]
        for node in graph.nodes
    ]
    return {
        "name": graph.name,
        "inputs": [[value.name, _type_text(value)] for value in graph.inputs],
        "nodes": nodes,
        "outputs": [[name, str(value)] for name, value in graph.outputs],
    }


def _plan_data(plan: Any) -> dict[str, Any]:
    return {
        "buffers": [[_BUFFER_KINDS[buffer.kind], buffer.index, buffer.size_bytes] for buffer in plan.buffers],
        "launches": [
            {"image": step.kernel if step.kind == _LAUNCH else -1, "buffers": list(step.buffers)} for step in plan.steps
        ],
    }


def _image_data(kernel: Any) -> dict[str, Any]:
    return {
        "name": kernel.entry,
        "source": kernel.source,
        "registers": kernel.resources.registers_per_thread,
        "shared_bytes": kernel.resources.static_shared_bytes,
        "spill_store_bytes": kernel.resources.spill_store_bytes,
        "spill_load_bytes": kernel.resources.spill_load_bytes,
    }
