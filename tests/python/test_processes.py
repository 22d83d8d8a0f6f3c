"""Many processes that compile the same model at once: each graph is compiled once, and all get equal results."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import fuseline
import pytest
from conftest import ServerProcess

PROCESSES = 8
LAYERS = 6

# A model of several graphs; every process spells names its own way, as processes that trace apart do.
WORKER = """
import json, sys
import numpy as np
import fuseline, fuseline.numpy as fnp

address, number, layers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
client = fuseline.connect(address, target="cpu")
rng = np.random.default_rng(3)
x = rng.standard_normal((16, 64)).astype(np.float32)

def layer(width):
    def body(x, w, b):
        y = fnp.gelu(fnp.layer_norm(x) @ w + b)
        return y / (1 + fnp.max(fnp.abs(y)))
    body.__name__ = f"process{number}"
    return fuseline.jit(client=client)(body)

print("ready", flush=True)
sys.stdin.readline()
sums = []
outcomes = []
for i in range(layers):
    width = 64 + 16 * i
    w = rng.standard_normal((x.shape[1], width)).astype(np.float32)
    b = rng.standard_normal(width).astype(np.float32)
    step = layer(width)
    outcomes.append(step.compile(x, w, b).outcome)
    x = step(x, w, b)
    sums.append(x.tobytes().hex()[:64])
print(json.dumps({"sums": sums, "outcomes": outcomes}))
"""


def metric(text: str, name: str) -> float:
    (value,) = re.findall(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(value)


def test_eight_processes_compile_a_model_once(tmp_path: Path) -> None:
    try:
        server = ServerProcess(tmp_path, "--metrics_listen", "127.0.0.1:0")
    except RuntimeError as error:
        if "no HTTP server for metrics" not in str(error):
            raise
        pytest.skip("this build of the server shows no metrics to count builds by")
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, server.address, str(number), str(LAYERS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    for worker in workers:
        assert worker.stdout is not None and worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    answers = [json.loads(worker.communicate(timeout=300)[0]) for worker in workers]
    assert all(worker.returncode == 0 for worker in workers)
    assert all(answer["sums"] == answers[0]["sums"] for answer in answers)
    with fuseline.connect(server.address) as client:
        assert client.cache_stats().builds == LAYERS
    outcomes = [outcome for answer in answers for outcome in answer["outcomes"]]
    assert outcomes.count("miss") == LAYERS and len(outcomes) == PROCESSES * LAYERS
    (port,) = set(re.findall(r"metrics_port=(\d+)", server.log.read_text()))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        metrics = response.read().decode()
    assert metric(metrics, "fuseline_builds_total") == LAYERS
    assert metric(metrics, "fuseline_build_errors_total") == 0
    assert server.stop() == 0
