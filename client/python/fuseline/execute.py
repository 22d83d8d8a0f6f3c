"""One run on the server, whatever way its tensors travel: in one message, or in chunks where they are large.

Pipeline: Spec, inputs -> execute -> Channel -> ExecuteResult. Thread-safety: as Channel. Tested by
tests/python/test_client.py
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fuseline import protocol
from fuseline.channel import Attempt, Channel
from fuseline.errors import InternalError, InvalidArgumentError, ResourceExhaustedError
from fuseline.graph import Graph
from fuseline.report import CompileSummary, KeptTensor, kept_from_proto, seconds, summary_from_proto
from fuseline.spec import FingerprintMemory, Spec, by_spec
from fuseline.tensors import HostTensor, empty_like_proto, fill_tensor, from_proto, host_tensor, writable_bytes

# From here on inputs travel in chunks: below, a stream's extra messages cost more than the copies that it saves.
_STREAM_BYTES = 4 << 20
# In a stream, inputs up to this size travel in the header.
_INLINE_BYTES = 16 << 10
_CHUNK_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Keep:
    """How an output, or a tensor that is put, stays on the server."""

    handle: str = ""
    """1 to 128 of [A-Za-z0-9_.:/-]; empty: the server makes one up."""
    lease: float = 0.0
    """Seconds without use; 0: the server's default."""


@dataclasses.dataclass(frozen=True)
class ExecuteResult:
    summary: CompileSummary
    outputs: Mapping[str, np.ndarray[Any, Any]]  # in the graph's order
    kept: Mapping[str, KeptTensor]  # by the outputs' names
    queue_time: float
    run_time: float  # transfers and kernels
    device: int


def execute(
    channel: Channel,
    memory: FingerprintMemory,
    spec: Spec,
    inputs: Mapping[str, Any] | Sequence[Any],
    outputs: Sequence[str],
    keep: Mapping[str, Keep],
    device: int | None,
    deadline: float | None,
) -> ExecuteResult:
    return _ExecuteCall(channel, spec, inputs, outputs, keep, device, deadline).run(memory)


class _ExecuteCall:
    def __init__(
        self,
        channel: Channel,
        spec: Spec,
        inputs: Mapping[str, Any] | Sequence[Any],
        outputs: Sequence[str],
        keep: Mapping[str, Keep],
        device: int | None,
        deadline: float | None,
    ) -> None:
        self._channel = channel
        self._spec = spec
        self._deadline = deadline
        self._keep = keep
        self._named_outputs = list(outputs)
        self._input_names: list[str] = []  # only where there is no graph
        self._inputs = self._in_order(inputs)
        uses_kept = bool(keep) or any(isinstance(tensor, str) for tensor in self._inputs)
        self._route = channel.tensors if uses_kept else spec.route("execute")
        self._arrays: list[np.ndarray[Any, Any]] = []
        self._request = protocol.message("ExecuteRequest")()
        if device is not None:
            self._request.device = device
        self._stream = False
        self._streamed: list[tuple[str, HostTensor]] = []
        if spec.graph is not None:
            known = spec.graph.output_names
            for name in [*outputs, *keep]:
                if name not in known:
                    raise InvalidArgumentError(
                        f"the graph has no output '{name}'", reason="OPTION_INVALID", subject=name
                    )
            self._returned = [i for i, name in enumerate(known) if (name in outputs if outputs else name not in keep)]

    def run(self, memory: FingerprintMemory) -> ExecuteResult:
        size = sum(tensor.nbytes for tensor in self._inputs if isinstance(tensor, HostTensor))
        self._stream = size >= min(_STREAM_BYTES, self._channel.options.max_message_bytes)
        self._add_inputs()
        input_key = ";".join(t if isinstance(t, str) else ",".join(map(str, t.shape)) for t in self._inputs)
        response, graph_sent = by_spec(self._spec, memory, self._request, self._send, input_key)
        return self._result(response, graph_sent)

    def _in_order(self, inputs: Mapping[str, Any] | Sequence[Any]) -> list[HostTensor | str]:
        """In the graph's order. Checked here too, since a request by fingerprint does not carry the graph's names."""
        graph = self._spec.graph
        if isinstance(inputs, Mapping):
            if graph is None:
                self._input_names = list(inputs)
                return [_input(value, None, None) for value in inputs.values()]
            rest = dict(inputs)
            ordered = []
            for i, name in enumerate(graph.input_names):
                if name not in rest:
                    raise _mismatch(name, "has no tensor")
                ordered.append(_input(rest.pop(name), graph, i))
            for name in rest:
                raise _mismatch(name, "is not an input of the graph")
            return ordered
        values = list(inputs)
        if graph is not None and len(values) != len(graph.inputs):
            raise InvalidArgumentError(
                f"the graph has {len(graph.inputs)} inputs, {len(values)} tensors were given",
                reason="TENSOR_MISMATCH",
                subject="inputs",
            )
        return [_input(value, graph, i) for i, value in enumerate(values)]

    def _add_inputs(self) -> None:
        del self._request.inputs[:]
        self._streamed = []
        for i, tensor in enumerate(self._inputs):
            # With a graph by position, so that the request is the same by fingerprint.
            entry = self._request.inputs.add(name=self._input_names[i] if self._input_names else "")
            if isinstance(tensor, str):
                entry.handle = tensor
            elif self._stream and tensor.nbytes > _INLINE_BYTES:
                fill_tensor(tensor, entry.tensor, with_data=False)
                self._streamed.append((entry.name, tensor))
            else:
                fill_tensor(tensor, entry.tensor)

    def _name_outputs(self, by_fingerprint: bool) -> None:
        graph = self._spec.graph
        del self._request.output_names[:]
        del self._request.kept_outputs[:]
        if graph is None:
            self._request.output_names.extend(self._named_outputs)
        elif self._named_outputs:
            names = graph.output_names
            self._request.output_names.extend(f"out{i}" if by_fingerprint else names[i] for i in self._returned)
        for name, how in self._keep.items():
            if graph is not None and by_fingerprint:
                name = f"out{graph.output_names.index(name)}"
            entry = self._request.kept_outputs.add(name=name, handle=how.handle)
            if how.lease:
                set_duration(entry.lease, how.lease)

    def _send(self, by_fingerprint: bool) -> Any:
        self._name_outputs(by_fingerprint)
        if not self._stream:
            try:
                response = self._channel.unary("Execute", self._request, self._deadline, self._route)
                self._arrays = [from_proto(output.tensor) for output in response.outputs]
                return response
            except ResourceExhaustedError as error:
                # Of gRPC itself, and not of the server: a message is over a bound. Kept outputs may be kept by now.
                if "message larger than max" not in error.message or self._keep:
                    raise
            self._stream = True
            self._add_inputs()
        return self._channel.with_retries(self._attempt, self._deadline, self._route)

    def _attempt(self, call: Attempt) -> Any:
        request = protocol.message("ExecuteStreamRequest")

        def requests() -> Iterator[Any]:
            first = request()
            first.header.CopyFrom(self._request)
            yield first
            for name, tensor in self._streamed:
                yield from chunks(request, tensor, name)

        responses = call.call("ExecuteStream", requests())
        header = None
        receiver = None
        try:
            for message in responses:
                if header is None:
                    if not message.HasField("header"):
                        raise InternalError("the server sent no header")
                    header = message.header
                    self._arrays = [empty_like_proto(output.tensor) for output in header.outputs]
                    receiver = ChunkReceiver([(o.name, a) for o, a in zip(header.outputs, self._arrays)])
                elif receiver is not None:
                    receiver.add(message.chunk)
        finally:
            responses.cancel()  # of a call that has ended it changes nothing
        if header is None or receiver is None:
            raise InternalError("the server sent no header")
        receiver.check_complete()
        return header

    def _result(self, response: Any, graph_sent: bool) -> ExecuteResult:
        graph = self._spec.graph
        if graph is not None:
            if len(self._arrays) != len(self._returned):
                raise InternalError(f"the server sent {len(self._arrays)} outputs of {len(self._returned)}")
            names = [graph.output_names[i] for i in self._returned]
        else:
            names = [output.name for output in response.outputs]
        if len(response.kept) != len(self._keep):
            raise InternalError(f"the server kept {len(response.kept)} outputs of {len(self._keep)}")
        return ExecuteResult(
            summary=summary_from_proto(response.summary, graph_sent),
            outputs=dict(zip(names, self._arrays)),
            kept={name: kept_from_proto(proto, name) for name, proto in zip(self._keep, response.kept)},
            queue_time=seconds(response.timings.queue_time),
            run_time=seconds(response.timings.run_time),
            device=response.device,
        )


class ChunkReceiver:
    """Puts the chunks of tensors, which come one after the other, into arrays."""

    def __init__(self, tensors: list[tuple[str, np.ndarray[Any, Any]]]) -> None:
        self._open = [(name, writable_bytes(array)) for name, array in tensors if array.nbytes > 0]
        self._open.reverse()
        self._filled = 0

    def add(self, chunk: Any) -> None:
        if not self._open:
            raise InternalError("the server sent more chunks than its header tells")
        name, target = self._open[-1]
        end = self._filled + len(chunk.data)
        if (chunk.name and name and chunk.name != name) or chunk.offset_bytes != self._filled or end > len(target):
            raise InternalError(f"the server sent a chunk of '{chunk.name}' that does not fit")
        target[self._filled : end] = chunk.data
        self._filled = end
        if end == len(target):
            self._open.pop()
            self._filled = 0

    def check_complete(self) -> None:
        if self._open:
            raise InternalError("the server sent too few chunks")


def chunks(request: Any, tensor: HostTensor, name: str) -> Iterator[Any]:
    """The messages that carry a tensor's data."""
    data = tensor.bytes_view()
    for offset in range(0, len(data), _CHUNK_BYTES):
        message = request()
        message.chunk.name = name
        message.chunk.offset_bytes = offset
        message.chunk.data = bytes(data[offset : offset + _CHUNK_BYTES])
        yield message


def set_duration(proto: Any, value: float) -> None:
    proto.seconds = int(value)
    proto.nanos = int((value - int(value)) * 1e9)


def _input(value: Any, graph: Graph | None, position: int | None) -> HostTensor | str:
    """A tensor, or a kept tensor's handle."""
    if isinstance(value, KeptTensor):
        return value.handle
    name = "" if graph is None or position is None else graph.inputs[position].name
    type_ = None if graph is None or position is None else graph.inputs[position].type
    try:
        return host_tensor(value, None if type_ is None else type_.dtype)
    except (TypeError, ValueError) as error:
        raise _mismatch(name, f"is no tensor: {error}") from None


def _mismatch(name: str, message: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"input '{name}' {message}", reason="TENSOR_MISMATCH", subject=name)
