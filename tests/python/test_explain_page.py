"""The page of explanations: its data, and how it gets into notebooks and files."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import fuseline
import fuseline.numpy as fnp
import fuseline.report
import numpy as np
import pytest

TEXT = """graph g(x: f32[n, 4]) {
  %t = mul(x, 2.0)
  %s = sum(%t) {dims = [-1]}
  %v = reshape(%s) {shape = [1, -1]}
  return y = %v
}"""


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found.group(1))


def test_page_has_graph_kernels_plan_and_source(client: fuseline.Client) -> None:
    data = data_of(client.explain(TEXT, symbols={"n": 3}).html())
    assert data["graph"]["inputs"] == [["x", "f32[n, 4]"]]
    assert data["graph"]["nodes"][0] == ["mul", ["x", ["2.0"]], [["t", ""]], ""]
    assert data["graph"]["nodes"][1] == ["sum", ["%t"], [["s", ""]], "dims = [-1]"]
    assert data["graph"]["outputs"] == [["y", "%v"]]
    (kernel,) = data["report"]["kernels"]
    assert kernel["ops"] == ["mul %t", "sum %s"] and data["report"]["kernels_before"] == 2
    (launch,) = data["plan"]["launches"]
    assert [data["plan"]["buffers"][b][0] for b in launch["buffers"]] == ["input", "output"]
    assert kernel["name"] in data["images"][launch["image"]]["source"]


def test_compiled_graphs_are_explained_in_their_own_names(client: fuseline.Client) -> None:
    compiled = client.compile(TEXT, symbols={"n": 5})
    for _ in range(2):
        assert compiled.explain().report.kernels[0].ops == ("mul %t", "sum %s")


def test_fingerprint_is_explained_without_a_graph(client: fuseline.Client) -> None:
    compiled = client.compile(TEXT, symbols={"n": 6})
    data = data_of(client.explain(compiled.fingerprint).html())
    assert data["graph"] is None and len(data["plan"]["launches"]) == 1


def test_notebooks_show_it_in_a_frame_without_rights(client: fuseline.Client) -> None:
    shown = fuseline.jit(client=client)(lambda x: fnp.sigmoid(x * 2)).explain(np.ones(4, np.float32))._repr_html_()
    frame = re.search(r'<iframe sandbox="allow-scripts"[^>]* srcdoc="([^"]*)"></iframe>', shown)
    assert frame is not None
    assert data_of(html.unescape(frame.group(1)))["graph"]["nodes"][0][2][0][1] == "f32[4]"


def test_page_is_saved_to_a_file(client: fuseline.Client, tmp_path: Path) -> None:
    explanation = client.explain(TEXT, symbols={"n": 2}, stages=True, key=True)
    explanation.save_html(tmp_path / "report.html")
    data = data_of((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "loops" in data["stages"] and {"name", "value", "digest"} <= data["key"][0].keys()


def test_page_shows_a_measurement(client: fuseline.Client) -> None:
    measured = client.benchmark(TEXT, symbols={"n": 2}, warmup=0, iterations=3)
    data = data_of(client.explain(TEXT, symbols={"n": 2}).html(measured))
    assert data["benchmark"]["micros"] == list(measured.micros) and data["benchmark"]["moved_bytes"] > 0


def test_nothing_in_the_data_ends_its_script(client: fuseline.Client) -> None:
    hostile = "</script><script>alert(1)</script><!--"
    explanation = client.explain(TEXT, symbols={"n": 2}, stages=True)
    explanation.stages["graph"] = hostile  # type: ignore[index]
    page = explanation.html()
    assert hostile not in page and data_of(page)["stages"]["graph"] == hostile


def test_tables_are_left_where_the_source_cannot_be_fetched(client: fuseline.Client) -> None:
    def fail() -> None:
        raise fuseline.UnavailableError("gone")

    explanation = client.explain(TEXT, symbols={"n": 2})
    explanation = fuseline.report.Explanation(explanation.summary, explanation.report, {}, (), None, fail)
    assert "<table>" in explanation._repr_html_() and "<iframe" not in explanation._repr_html_()
    with pytest.raises(fuseline.UnavailableError):
        explanation.html()
