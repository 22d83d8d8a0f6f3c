"""A compiled graph: called like a function, it runs on the server; launched, on this machine.

Pipeline: CompileResponse -> Compiled -> arrays in, arrays out. Thread-safety: thread-safe. Errors: as Client. Tested by
tests/python/test_client.py
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fuseline import protocol
from fuseline.dtypes import DType
from fuseline.errors import FailedPreconditionError, InvalidArgumentError
from fuseline.report import CompileSummary, Explanation, Report, report_from_proto, summary_from_proto
from fuseline.signature import Signature
from fuseline.spec import Spec

if TYPE_CHECKING:
    from fuseline.client import Client
    from fuseline.launch import Device, Launcher


@dataclasses.dataclass(frozen=True)
class Kernel:
    entry: str
    source: str  # empty unless asked for
    image: bytes
    registers: int
    spill_bytes: int


class Compiled:
    def __init__(
        self, client: Client, spec: Spec, summary: CompileSummary, report: Report, artifact: Any | None
    ) -> None:
        self.client = client
        self.spec = spec
        self.summary = summary
        self.report = report
        """The fusion report. Its values have canonical names (%v0, …); explain() has the graph's."""
        self._artifact = artifact
        self._lock = threading.Lock()
        self._launchers: dict[Device, Launcher] = {}

    @property
    def graph(self) -> Any:
        """The graph, or None where a fingerprint was compiled."""
        return self.spec.graph

    @property
    def fingerprint(self) -> bytes:
        return self.summary.fingerprint

    @property
    def target(self) -> str:
        return self.summary.target

    @property
    def outcome(self) -> str:
        return self.summary.outcome

    def __repr__(self) -> str:
        name = self.graph.name if self.graph is not None else ""
        count = len(self.report.kernels)
        return f"<fuseline compiled {name!r} for {self.target}: {count} kernels, {self.outcome}>"

    # --- The artifact ---

    def artifact(self) -> bytes:
        """The serialised fuseline.v1.Artifact. Raises FailedPreconditionError where it was left on the server."""
        return self._loaded().SerializeToString()

    @property
    def inputs(self) -> tuple[Signature, ...]:
        return self._signatures(self._loaded().plan.inputs, self.input_names)

    @property
    def outputs(self) -> tuple[Signature, ...]:
        return self._signatures(self._loaded().plan.outputs, self.output_names)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(
            Kernel(k.entry, k.source, k.image, k.resources.registers_per_thread, k.resources.spill_store_bytes)
            for k in self._loaded().kernels
        )

    @property
    def source(self) -> str:
        """The kernels' source, where compile was asked for it."""
        return "\n".join(kernel.source for kernel in self.kernels)

    @property
    def input_names(self) -> list[str]:
        if self.graph is not None:
            return self.graph.input_names
        return [tensor.name for tensor in self._loaded().plan.inputs]

    @property
    def output_names(self) -> list[str]:
        if self.graph is not None:
            return self.graph.output_names
        return [tensor.name for tensor in self._loaded().plan.outputs]

    # --- Running ---

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Runs on the server; inputs by position or by name. The output, or a tuple where there are several.

        launch() runs it on this machine instead.
        """
        outputs = tuple(self.client.execute(self, self._given(inputs, named)).outputs.values())
        return outputs[0] if len(outputs) == 1 else outputs

    def launcher(self, device: Device | None = None) -> Launcher:
        """The artifact, loaded on a device of this machine: by default the CPU or the first GPU, as its target says.

        Loaded once for each device. Raises FailedPreconditionError where the launch library or the device is missing.
        """
        from fuseline import launch

        if device is None:
            device = launch.device_for(self.target)
        with self._lock:
            found = self._launchers.get(device)
            if found is None:
                found = device.load(self.artifact(), self.fingerprint, self.input_names, self.output_names)
                self._launchers[device] = found
        return found

    def launch(self, *inputs: Any, out: Any = None, stream: int | None = None, device: Device | None = None) -> Any:
        """Runs on this machine, as Launcher.__call__; inputs by position."""
        return self.launcher(device)(*inputs, out=out, stream=stream)

    def explain(self, *, stages: bool = False, key: bool = False) -> Explanation:
        return self.client.explain(self, stages=stages, key=key)

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()

    # --- Inside ---

    def _given(self, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        if not named:
            return inputs
        if len(inputs) > len(self.input_names):
            raise InvalidArgumentError("too many inputs", reason="TENSOR_MISMATCH", subject="inputs")
        given = dict(zip(self.input_names, inputs))
        for name, value in named.items():
            if name in given:
                raise InvalidArgumentError(f"input '{name}' is given twice", reason="TENSOR_MISMATCH", subject=name)
            given[name] = value
        return given

    def _loaded(self) -> Any:
        if self._artifact is None:
            raise FailedPreconditionError("the artifact was left on the server: compile without omit_artifact")
        return self._artifact

    @staticmethod
    def _signatures(tensors: Any, names: list[str]) -> tuple[Signature, ...]:
        return tuple(
            Signature(name, DType.from_number(t.dtype), tuple(t.shape), tuple(t.strides), t.alignment_bytes)
            for name, t in zip(names, tensors)
        )


def compiled_from_response(client: Client, spec: Spec, response: Any, graph_sent: bool) -> Compiled:
    summary = summary_from_proto(response.summary, graph_sent)
    artifact = None
    if response.HasField("artifact"):
        artifact = protocol.message("Artifact")()
        artifact.CopyFrom(response.artifact)
    # From now on asked for by what the server answered.
    known = dataclasses.replace(spec, fingerprint=summary.fingerprint, bypass_cache=False)
    return Compiled(client, known, summary, report_from_proto(response.report), artifact)
