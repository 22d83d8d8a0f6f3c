#!/usr/bin/env python3
"""Opens the page of `fuseline explain --html` in headless Chromium.

    explain_page_test.py --template PAGE_HTML [--cli FUSELINE] [--keep FOLDER]

Checks: no error and no message in the console, no request to anything, kernels open and close by mouse and keyboard,
links choose kernels, names and sources with markup stay text, 10,000 ops open in time. Skipped (77) without Chromium.
`--keep`: pages and screenshots stay there.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SKIPPED = 77
MOST_SECONDS = (
    10.0  # to open 10,000 ops, start of the tab included; 3 s are wanted, on a machine that does nothing else
)
SOURCE = """extern "C" __global__ void kernel(const float* a, float* b) {
  // adds 1
  b[threadIdx.x] = a[threadIdx.x] + 1.0f;
}
"""
HOSTILE = "</script><img src=x onerror=alert(1)><!--"


class Browser:
    """A headless Chromium with one tab, driven through its DevTools pipe (file descriptors 3 and 4)."""

    def __init__(self, program: str, profile: str) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        command = [
            "/bin/sh", "-c", f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}', program, "--headless", "--no-sandbox",
            "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
            "--remote-debugging-pipe", f"--user-data-dir={profile}", "--window-size=1400,1200", "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command, pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._buffer = b""
        self._last_id = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise RuntimeError("Chromium has ended")
            self._buffer += piece
        text, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._last_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def run(self, script: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def open(self, page: Path, dark: bool = False) -> float:
        """Returns the seconds until the page says that it is drawn."""
        self.events.clear()
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        start = time.monotonic()
        self.call("Page.navigate", url=page.as_uri())
        while not self.run("document.documentElement?.dataset.ready || ''"):
            if time.monotonic() - start > 60:
                raise RuntimeError(f"{page.name} did not open within a minute: {self.complaints()}")
            time.sleep(0.02)
        return time.monotonic() - start

    def settle(self) -> None:
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def press(self, key: str, code: int, text: str = "") -> None:
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)
        self.settle()

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def complaints(self) -> list[str]:
        """What the console has, and requests beyond the page itself."""
        found = []
        for event in self.events:
            method, parameters = event.get("method"), event.get("params", {})
            if method in (
                "Runtime.consoleAPICalled",
                "Runtime.exceptionThrown",
                "Log.entryAdded",
                "Page.javascriptDialogOpening",
            ):
                found.append(f"{method}: {json.dumps(parameters)[:400]}")
            if method == "Network.requestWillBeSent" and not parameters["request"]["url"].startswith(
                ("file:", "data:")
            ):
                found.append(f"request: {parameters['request']['url'][:200]}")
        files = {
            e["params"]["request"]["url"].split("#")[0]
            for e in self.events
            if e.get("method") == "Network.requestWillBeSent" and e["params"]["request"]["url"].startswith("file:")
        }
        if len(files) > 1:
            found.append(f"more than one file: {sorted(files)}")
        return found

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)


def page_of(template: str, data: dict[str, Any]) -> str:
    head, tail = template.split("@FUSELINE_EXPLAIN_DATA@")
    return head + json.dumps(data).replace("<", "\\u003c") + tail


def synthetic(count: int, ops_of_kernel: int, name: str = "synthetic") -> dict[str, Any]:
    """A graph of `count` ops, a kernel for each `ops_of_kernel` of them; each also reads one some way before it."""
    nodes: list[Any] = []
    kernels: list[dict[str, Any]] = []
    buffers: list[Any] = [["input", 0, 4096]]
    launches: list[dict[str, Any]] = []
    kinds = ("mul", "add", "tanh", "exp", "sub")
    for i in range(count):
        operands: list[Any] = [f"%t{i - 1}" if i else "x"]
        if i % ops_of_kernel == 0 and i:
            operands.append(f"%t{max(0, i - ops_of_kernel * (2 + i % 5) - 1)}")
        elif i % 3 == 0:
            operands.append(["2.0"])
        nodes.append([kinds[i % 5], operands, [[f"t{i}", "f32[8, 128]"]], ""])
    for k in range((count + ops_of_kernel - 1) // ops_of_kernel):
        ops = [f"{nodes[i][0]} %t{i}" for i in range(k * ops_of_kernel, min(count, (k + 1) * ops_of_kernel))]
        kernels.append(
            {
                "name": f"fuseline_pointwise_mul_add_{k}",
                "kind": "pointwise",
                "schedule": "vec4",
                "ops": ops,
                "tensors_read": 2,
                "tensors_written": 1,
                "bytes_read": 8192,
                "bytes_written": 4096,
                "unfused_kernels": len(ops),
                "unfused_transfers": 2 * len(ops),
                "unfused_bytes": 8192 * len(ops),
            }
        )
        buffers.append(["temporary", 0, 4096])
        launches.append({"image": 0, "buffers": sorted({max(0, k - k % 7), k, k + 1})})
    buffers[-1][0] = "output"
    report = {
        "kernels_before": count,
        "kernels_after": len(kernels),
        "transfers_before": 2 * count,
        "transfers_after": 3 * len(kernels),
        "bytes_before": 8192 * count,
        "bytes_after": 12288 * len(kernels),
        "intermediates_removed": count - len(kernels),
        "kernels": kernels,
        "stage_micros": {"lower": 120, "compile": 81000},
        "refusals": [
            {"producer": f"%t{i}", "consumer": f"%t{i + 1}", "reason": "for a reason"}
            for i in range(ops_of_kernel - 1, count - 1, ops_of_kernel)
        ],
    }
    image = {
        "name": kernels[0]["name"],
        "source": SOURCE,
        "registers": 32,
        "shared_bytes": 0,
        "spill_store_bytes": 0,
        "spill_load_bytes": 0,
    }
    return {
        "summary": {"fingerprint": "0" * 64, "target": "cuda:sm_90", "outcome": "miss", "compile_ms": 1, "build_ms": 1},
        "graph": {"name": name, "inputs": [["x", "f32[8, 128]"]], "nodes": nodes, "outputs": [["y", f"%t{count - 1}"]]},
        "report": report,
        "plan": {"buffers": buffers, "launches": launches},
        "images": [image],
        "benchmark": None,
        "stages": {},
        "key": [],
    }


class Checks:
    def __init__(self) -> None:
        self.failures = 0

    def expect(self, condition: bool, what: str) -> None:
        if not condition:
            self.failures += 1
            print(f"FAILED: {what}", flush=True)


OPEN_BOXES = "document.querySelectorAll('#picture .node[aria-expanded=true]').length"
OP_BOXES = "document.querySelectorAll('#picture .node[data-key^=op-]').length"
FIRST_KERNEL = """(() => {
  const r = document.querySelector("#picture .node[data-key='kernel-0'] rect").getBoundingClientRect();
  return [r.left + 12, r.top + 12]; })()"""


def check_small(browser: Browser, page: Path, checks: Checks) -> None:
    browser.open(page)
    checks.expect(browser.run(OPEN_BOXES) == 0, "all kernels are closed at first")
    browser.click(*browser.run(FIRST_KERNEL))
    checks.expect(
        browser.run(OPEN_BOXES) == 1 and browser.run(OP_BOXES) == 5, "a click opens a kernel and shows its five ops"
    )
    detail = browser.run("document.getElementById('detail').textContent")
    checks.expect(
        "Kernel 0" in detail and "threadIdx" in detail and "5 before, 1 after" in detail,
        f"its facts and source: {detail}",
    )
    checks.expect(
        browser.run("document.querySelectorAll('#detail pre .keyword').length") >= 4, "its source is highlighted"
    )
    browser.press("Enter", 13, "\r")
    checks.expect(browser.run(OPEN_BOXES) == 0, "it has the focus then, and Enter closes it")
    browser.run("document.querySelector(\"#picture .node[data-key='kernel-1']\").focus()")
    browser.press("Enter", 13, "\r")
    state = browser.run(OPEN_BOXES), browser.run("document.activeElement.dataset.key")
    checks.expect(state == (1, "kernel-1"), f"Enter opens a kernel, and the focus stays on it: {state}")
    browser.press(" ", 32, " ")
    checks.expect(browser.run(OPEN_BOXES) == 0, "the space bar closes it")
    browser.run("document.getElementById('expand-all').click()")
    browser.settle()
    checks.expect(browser.run(OPEN_BOXES) >= 2, "all are opened")
    browser.run("document.getElementById('collapse-all').click()")
    browser.settle()
    checks.expect(browser.run(OPEN_BOXES) == 0, "and closed")
    browser.run("document.getElementById('show-before').click()")
    browser.settle()
    checks.expect(browser.run(OP_BOXES) >= 5, "the graph before fusion has the ops")
    browser.run("document.querySelectorAll('#rows a')[2].click()")
    browser.settle()
    where = browser.run("[location.hash, document.querySelector('#detail h2').textContent]")
    checks.expect(
        where[0] == "#kernel-2" and where[1].startswith("Kernel 2:"), f"a link of the list chooses its kernel: {where}"
    )
    browser.run("const f = document.getElementById('filter'); f.value = '%t7'; f.dispatchEvent(new Event('input'))")
    checks.expect(browser.run("document.querySelectorAll('#rows tr').length") == 1, "the filter finds a value")
    browser.run("document.querySelectorAll('#more details').forEach((d) => { d.open = true; })")
    browser.settle()
    checks.expect(browser.run("document.querySelectorAll('#more tbody tr').length") >= 4, "the folded lists open")
    checks.expect(not browser.complaints(), f"nothing in the console, no request: {browser.complaints()}")


def in_place_data() -> dict[str, Any]:
    """Kernel 1 writes into what it reads, and kernel 2 has more ops than its report names."""
    data = synthetic(100, 5)
    kernels = [{**kernel, "tensors_read": 1} for kernel in data["report"]["kernels"][:3]]
    kernels[2]["ops"] = [f"mul %t{i}" for i in range(10, 74)] + ["and 26 more"]
    data["report"]["kernels"] = kernels
    data["plan"] = {
        "buffers": [["input", 0, 64], ["temporary", 0, 64], ["checks", 0, 16], ["output", 0, 64]],
        "launches": [{"image": 0, "buffers": [0, 1]}, {"image": 0, "buffers": [1]}, {"image": 0, "buffers": [1, 2, 3]}],
    }
    return data


def bare_pages() -> dict[str, dict[str, Any]]:
    """What need not be known, left out."""
    whole = synthetic(20, 5)
    empty = {
        "kernels": [],
        "refusals": [],
        "kernels_before": 0,
        "kernels_after": 0,
        "bytes_before": 0,
        "bytes_after": 0,
    }
    return {
        "no_graph": {**whole, "graph": None},
        "no_plan": {**whole, "plan": None, "images": []},
        "no_kernels": {**whole, "plan": {"buffers": [], "launches": []}, "report": {**whole["report"], **empty}},
    }


def check_bare(browser: Browser, page: Path, checks: Checks) -> None:
    browser.open(page)
    browser.run("document.querySelectorAll('.bar button:enabled, #rows a').forEach((b) => b.click())")
    browser.settle()
    kernels = browser.run("document.querySelectorAll('#rows tr').length")
    checks.expect(kernels == (0 if page.stem == "no_kernels" else 4), f"{page.stem}: the kernels are listed")
    if page.stem == "no_plan":
        links = browser.run("document.querySelectorAll('#detail dd a').length")
        checks.expect(links > 0, "the graph says which kernels read another")
    checks.expect(not browser.complaints(), f"nothing in the console, no request: {browser.complaints()}")


def check_in_place(browser: Browser, page: Path, checks: Checks) -> None:
    browser.open(page)
    browser.run("document.querySelectorAll('#rows a')[2].click()")
    links = browser.run("[...document.querySelectorAll('#detail dd a')].map((a) => a.textContent)")
    checks.expect(links == ["kernel 1"], f"what was written last is what is read: {links}")
    browser.run("document.querySelectorAll('#rows a')[1].click()")
    links = browser.run("[...document.querySelectorAll('#detail dd a')].map((a) => a.textContent)")
    checks.expect(links == ["kernel 0", "kernel 2"], f"a kernel that writes in place reads too: {links}")
    checks.expect("90 ops" in browser.run("document.getElementById('picture').textContent"), "all ops are counted")
    title = browser.run("document.getElementById('subtitle').textContent")
    checks.expect("without a kernel" not in title, f"ops that no report names are with their neighbours: {title}")
    checks.expect(not browser.complaints(), f"nothing in the console, no request: {browser.complaints()}")


def check_hostile(browser: Browser, page: Path, checks: Checks) -> None:
    browser.open(page)
    browser.run("document.querySelector('#rows a').click()")
    browser.run("document.getElementById('expand-all').click()")
    browser.run("document.querySelectorAll('#more details').forEach((d) => { d.open = true; })")
    browser.settle()
    checks.expect(browser.run("document.images.length") == 0, "markup in names and sources makes no element")
    checks.expect(
        HOSTILE in browser.run("document.querySelector('#detail pre').textContent"), "sources are shown as they are"
    )
    checks.expect(HOSTILE in browser.run("document.querySelector('h1').textContent"), "names are shown as they are")
    checks.expect(not browser.complaints(), f"nothing in the console, no request: {browser.complaints()}")


def check_large(browser: Browser, page: Path, checks: Checks, what: str) -> None:
    seconds = browser.open(page)
    own = float(browser.run("document.documentElement.dataset.ready")) / 1000
    print(f"{what}: open in {seconds:.2f} s ({own:.2f} s by the page's clock)", flush=True)
    checks.expect(seconds < MOST_SECONDS, f"{what} opens within {MOST_SECONDS} s")
    start = time.monotonic()
    browser.run("document.getElementById('show-before').click()")
    browser.settle()
    print(f"{what}: drawn before fusion in {time.monotonic() - start:.2f} s", flush=True)
    checks.expect(
        browser.run("document.querySelectorAll('*').length") < 6000, "what is out of sight is not in the document"
    )
    browser.run("document.getElementById('fit').click()")
    browser.settle()
    browser.run("document.getElementById('show-after').click()")
    browser.run("document.getElementById('expand-all').click()")
    browser.settle()
    checks.expect(browser.run("document.querySelectorAll('*').length") < 8000, "nor is it when all is open")
    checks.expect(not browser.complaints(), f"nothing in the console, no request: {browser.complaints()}")


NORM = """graph norm(x: f32[rows, 64], w: f32[64]) {
  %n = rms_norm(x, w) {dims = [-1]}
  %t = permute(%n) {dims = [1, 0]}
  %y = silu(%n)
  %s = sum(%t) {dims = [0]}
  return y = %y, s = %s
}
"""


def cli_page(cli: str, folder: Path) -> Path:
    graph = folder / "norm.fl"
    graph.write_text(NORM, encoding="utf-8")
    page = folder / "norm.html"
    command = [cli, "--local", "explain", str(graph), "--symbol", "rows=32", "--key", "--bench", "--html", str(page)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120)
    return page


def check_cli_page(browser: Browser, page: Path, checks: Checks) -> None:
    browser.open(page)
    browser.run("document.querySelector('#rows a').click()")
    browser.settle()
    detail = browser.run("document.getElementById('detail').textContent")
    checks.expect("%n: f32[32, 64] = rms_norm(x, w)" in detail, f"ops with the graph's names and types: {detail[:400]}")
    checks.expect(browser.run("document.querySelector('#detail pre').textContent.length") > 200, "the kernel's source")
    checks.expect(
        "a run, median of" in browser.run("document.getElementById('tiles').textContent"), "the measured time"
    )
    checks.expect(not browser.complaints(), f"nothing in the console, no request: {browser.complaints()}")


def hostile_data() -> dict[str, Any]:
    data = synthetic(10, 5, HOSTILE)
    data["graph"]["inputs"][0] = [HOSTILE, HOSTILE]
    data["graph"]["nodes"][0][3] = HOSTILE
    data["graph"]["nodes"][0][2][0][1] = HOSTILE
    data["report"]["kernels"][0]["schedule"] = HOSTILE
    data["report"]["kernels"][0]["kind"] = HOSTILE
    data["report"]["kernels"][1]["ops"].append(HOSTILE)
    data["report"]["refusals"][0]["reason"] = HOSTILE
    data["images"][0]["source"] = f"// {HOSTILE}\nint x = 1; /* {HOSTILE}"
    data["stages"] = {HOSTILE: HOSTILE}
    data["key"] = [{"name": HOSTILE, "value": HOSTILE, "digest": HOSTILE}]
    return data


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--template", required=True, type=Path)
    parser.add_argument("--cli")
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        print("SKIPPED: no Chromium is installed, so the page was opened nowhere (Debian: apt-get install chromium)")
        return SKIPPED
    template = arguments.template.read_text(encoding="utf-8")
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="fuseline-page.", ignore_cleanup_errors=True) as scratch:
        folder = arguments.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        pages = {
            "small": synthetic(20, 5),
            "hostile": hostile_data(),
            "in_place": in_place_data(),
            "fused": synthetic(10000, 8),
            "unfused": synthetic(10000, 1),
        }
        bare = bare_pages()
        for name, data in {**pages, **bare}.items():
            (folder / f"{name}.html").write_text(page_of(template, data), encoding="utf-8")
        browser = Browser(program, os.path.join(scratch, "profile"))
        try:
            check_small(browser, folder / "small.html", checks)
            check_in_place(browser, folder / "in_place.html", checks)
            for name in bare:
                check_bare(browser, folder / f"{name}.html", checks)
            check_hostile(browser, folder / "hostile.html", checks)
            check_large(browser, folder / "fused.html", checks, "10,000 ops in 1250 kernels")
            check_large(browser, folder / "unfused.html", checks, "10,000 ops in 10,000 kernels")
            if arguments.cli:
                check_cli_page(browser, cli_page(arguments.cli, folder), checks)
        finally:
            browser.close()
    print("passed" if not checks.failures else f"{checks.failures} checks failed")
    return 1 if checks.failures else 0


if __name__ == "__main__":
    sys.exit(main())
