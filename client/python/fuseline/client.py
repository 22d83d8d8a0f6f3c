"""The client of a server: compiles graphs, runs them there, keeps tensors there.

    client = fuseline.connect("127.0.0.1:50061")
    compiled = client.compile(text)
    y = compiled(x, w)

Wherever a graph is taken it may be a Graph, its text, or what compile gave; a fingerprint (32 bytes) stands for a
graph that the server has compiled before. An unchanged graph costs a 32-byte question: the client remembers the
fingerprints that the server answered, asks by them first, and sends the graph only where the server does not know it.

Errors: fuseline.Error's classes, with the server's code, reason and details; docs/errors.md says what to do about each.
Thread-safety: Client is thread-safe. Blocking: every call blocks until the answer, an error or the deadline. Processes
made by fork need a client of their own. Tested by tests/python/test_client.py
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Union

import grpc
import numpy as np

from fuseline import execute as execution
from fuseline import protocol
from fuseline import report as reports
from fuseline.channel import Attempt, Channel, ChannelOptions
from fuseline.compiled import Compiled, compiled_from_response
from fuseline.errors import Error, FailedPreconditionError, InternalError, InvalidArgumentError, make_error
from fuseline.execute import ExecuteResult, Keep
from fuseline.graph import Graph, as_graph
from fuseline.report import Benchmark, CacheStats, Explanation, KeptTensor, ServerInfo, Verification
from fuseline.spec import FingerprintMemory, Options, Spec, by_spec
from fuseline.tensors import HostTensor, empty_like_proto, fill_tensor, host_tensor

GraphLike = Union[Graph, str, bytes, Compiled]

# Fingerprints remembered.
_MOST_REMEMBERED = 10_000
# The server's bound on a batch.
_MOST_BATCHED = 1000
_FINGERPRINT_BYTES = 32


class Client:
    """Made by connect."""

    def __init__(self, channel: Channel, target: str, options: Options, remember: bool) -> None:
        self._channel = channel
        self._memory = FingerprintMemory(_MOST_REMEMBERED if remember else 0)
        self.target = target
        """What graphs are compiled for where a call does not say; empty: the server chooses."""
        self._cuda_target: str | None = None
        self.options = options
        """How graphs are compiled where a call does not say."""

    @property
    def address(self) -> str:
        return self._channel.address

    def __repr__(self) -> str:
        return f"<fuseline client of {self.address}>"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    # --- Compiling ---

    def compile(
        self,
        graph: GraphLike,
        *,
        symbols: Mapping[str, int] | None = None,
        target: str | None = None,
        options: Options | None = None,
        include_source: bool = False,
        omit_artifact: bool = False,
        bypass_cache: bool = False,
        deadline: float | None = None,
    ) -> Compiled:
        """Compiles, or finds in the server's cache.

        `symbols`: a size for each symbolic dim. `omit_artifact`: leave kernels and launch plan on the server; then it
        can run only there. `bypass_cache`: build anew and do not store. `deadline`: seconds for this call.
        """
        spec = self._spec(graph, symbols, target, options, bypass_cache)
        request = protocol.message("CompileRequest")(omit_artifact=omit_artifact, include_source=include_source)
        response, sent = by_spec(
            spec,
            self._memory,
            request,
            lambda _: self._channel.unary("Compile", request, deadline, spec.route("compile")),
        )
        return compiled_from_response(self, spec, response, sent)

    def compile_batch(
        self,
        graphs: Sequence[GraphLike],
        *,
        symbols: Mapping[str, int] | None = None,
        target: str | None = None,
        options: Options | None = None,
        include_source: bool = False,
        omit_artifact: bool = False,
        deadline: float | None = None,
    ) -> list[Compiled | Error]:
        """Compiles many graphs in parallel. Where one can't be compiled, its place holds the error."""
        specs = [self._spec(graph, symbols, target, options, False) for graph in graphs]
        results: dict[int, Compiled | Error] = {}
        for first in range(0, len(specs), _MOST_BATCHED):
            part = range(first, min(first + _MOST_BATCHED, len(specs)))

            def attempt(call: Attempt, part: range = part) -> None:
                # A broken call is made again for what is not answered yet.
                batch = protocol.message("BatchCompileRequest")()
                places = [i for i in part if i not in results]
                for i in places:
                    entry = batch.requests.add(include_source=include_source, omit_artifact=omit_artifact)
                    if specs[i].graph is None:
                        entry.spec.fingerprint = specs[i].fingerprint
                    else:
                        specs[i].fill_graph(entry.spec)
                self._channel.check_size(batch)
                for answer in call.call("BatchCompile", batch):
                    if not 0 <= answer.index < len(places):
                        continue
                    place = places[answer.index]
                    results[place] = self._batch_result(specs[place], answer)

            self._channel.with_retries(attempt, deadline, specs[first].route("compile"))
        if len(results) != len(specs):
            raise InternalError(f"the server left {len(specs) - len(results)} graphs of a batch unanswered")
        return [results[i] for i in range(len(specs))]

    def explain(
        self,
        graph: GraphLike,
        *,
        symbols: Mapping[str, int] | None = None,
        target: str | None = None,
        options: Options | None = None,
        stages: bool = False,
        key: bool = False,
        deadline: float | None = None,
    ) -> Explanation:
        """The fusion report. `stages`: also what each stage of the compilation made; `key`: the key's fields."""
        spec = self._spec(graph, symbols, target, options, False)
        request = protocol.message("ExplainRequest")(include_stages=stages, include_key=key)
        if spec.graph is not None:
            # Sent even where its fingerprint is known: the answer has the graph's names then.
            spec.fill_graph(request.spec)
        else:
            request.spec.fingerprint = spec.fingerprint
        response = self._channel.unary("Explain", request, deadline, spec.route("compile"))
        sent = spec.graph is not None
        return Explanation(
            reports.summary_from_proto(response.summary, sent),
            reports.report_from_proto(response.report),
            {stage.name: stage.text for stage in response.stages},
            tuple(reports.KeyField(f.name, f.value, f.digest) for f in response.key_fields),
            spec.graph,
            lambda: self._artifact_with_source(spec, deadline),
        )

    def _artifact_with_source(self, spec: Spec, deadline: float | None) -> Any:
        """A fuseline.v1.Artifact."""
        request = protocol.message("CompileRequest")(include_source=True)
        response, _ = by_spec(
            spec,
            self._memory,
            request,
            lambda _: self._channel.unary("Compile", request, deadline, spec.route("compile")),
        )
        return response.artifact

    # --- Running ---

    def execute(
        self,
        graph: GraphLike,
        inputs: Mapping[str, Any] | Sequence[Any],
        *,
        outputs: Sequence[str] = (),
        keep: Mapping[str, Keep] | None = None,
        device: int | None = None,
        symbols: Mapping[str, int] | None = None,
        target: str | None = None,
        options: Options | None = None,
        bypass_cache: bool = False,
        deadline: float | None = None,
    ) -> ExecuteResult:
        """Compiles where needed, and runs on the server.

        `inputs`: by name or by position; NumPy arrays, numbers, anything in the CPU's memory that speaks DLPack, or
        kept tensors. `outputs`: the names of those to return; none: all that are not kept. `keep`: outputs that stay on
        the server. `device`: an ordinal of server_info().devices; None: the server chooses.
        """
        spec = self._spec(graph, symbols, target, options, bypass_cache)
        return execution.execute(self._channel, self._memory, spec, inputs, outputs, keep or {}, device, deadline)

    def verify(
        self,
        graph: GraphLike,
        inputs: Mapping[str, Any] | Sequence[Any],
        expected: Mapping[str, Any] | Sequence[Any] = (),
        *,
        rtol: float = 0.0,
        atol: float = 0.0,
        symbols: Mapping[str, int] | None = None,
        target: str | None = None,
        options: Options | None = None,
        deadline: float | None = None,
    ) -> Verification:
        """Runs a graph and compares its outputs with `expected`; with the reference interpreter's where there are none.

        A value passes if |got - want| <= atol + rtol |want|. A mismatch is no error: see Verification.passed.
        """
        spec = self._spec(graph, symbols, target, options, False)
        if spec.graph is None:
            raise InvalidArgumentError("a fingerprint can't be verified: give the graph", reason="OPTION_INVALID")
        request = protocol.message("VerifyRequest")()
        spec.fill_graph(request.spec)
        for tensors, field in ((inputs, request.inputs), (expected, request.expected)):
            named = tensors.items() if isinstance(tensors, Mapping) else (("", tensor) for tensor in tensors)
            for name, tensor in named:
                fill_tensor(self._host(tensor), field.add(name=name).tensor)
        request.tolerance.rtol = rtol
        request.tolerance.atol = atol
        response = self._channel.unary("Verify", request, deadline, spec.route("execute"))
        return reports.verification_from_proto(response)

    def benchmark(
        self,
        graph: GraphLike,
        *,
        iterations: int = 20,
        warmup: int = 3,
        seed: int = 1,
        symbols: Mapping[str, int] | None = None,
        target: str | None = None,
        options: Options | None = None,
        deadline: float | None = None,
    ) -> Benchmark:
        """Measures on a device of the server, on random inputs made there. Each symbolic dim needs its size."""
        spec = self._spec(graph, symbols, target, options, False)
        request = protocol.message("BenchmarkRequest")(seed=seed, warmup_count=warmup, iteration_count=iterations)
        response, sent = by_spec(
            spec,
            self._memory,
            request,
            lambda _: self._channel.unary("Benchmark", request, deadline, spec.route("execute")),
        )
        return reports.benchmark_from_proto(response, sent)

    # --- Tensors that stay on the server ---

    def put_tensor(
        self, tensor: Any, *, handle: str = "", lease: float = 0.0, deadline: float | None = None
    ) -> KeptTensor:
        """Keeps a tensor on the server. `lease`: seconds without use; 0: the server's default."""
        host = self._host(tensor)
        request = protocol.message("PutTensorRequest")

        def messages() -> Iterator[Any]:
            first = request()
            first.header.handle = handle
            first.header.dtype = host.dtype.number
            first.header.shape.extend(host.shape)
            if lease:
                execution.set_duration(first.header.lease, lease)
            yield first
            yield from execution.chunks(request, host, "")

        response = self._channel.with_retries(
            lambda call: call.call("PutTensor", messages()), deadline, self._channel.tensors
        )
        return KeptTensor(response.handle, host.dtype, host.shape, response.size_bytes, reports.seconds(response.lease))

    def get_tensor(self, handle: str | KeptTensor, *, deadline: float | None = None) -> np.ndarray[Any, Any]:
        request = protocol.message("GetTensorRequest")(handle=_handle(handle))

        def attempt(call: Attempt) -> np.ndarray[Any, Any]:
            array = None
            receiver = None
            for message in call.call("GetTensor", request):
                if receiver is None:
                    array = empty_like_proto(message.header)
                    receiver = execution.ChunkReceiver([("", array)])
                else:
                    receiver.add(message.chunk)
            if receiver is None or array is None:
                raise InternalError("the server sent no header")
            receiver.check_complete()
            return array

        return self._channel.with_retries(attempt, deadline, self._channel.tensors)

    def delete_tensor(self, handle: str | KeptTensor, *, deadline: float | None = None) -> None:
        request = protocol.message("DeleteTensorRequest")(handle=_handle(handle))
        self._channel.unary("DeleteTensor", request, deadline, self._channel.tensors)

    def list_tensors(self, *, deadline: float | None = None) -> list[KeptTensor]:
        """The tensors of this client's owner, by handle."""
        request = protocol.message("ListTensorsRequest")()
        response = self._channel.unary("ListTensors", request, deadline, self._channel.tensors)
        return [reports.kept_from_proto(tensor) for tensor in response.tensors]

    # --- The server ---

    def server_info(self, *, deadline: float | None = None) -> ServerInfo:
        return reports.server_info_from_proto(
            self._channel.unary("GetServerInfo", protocol.message("GetServerInfoRequest")(), deadline)
        )

    def cache_stats(self, *, deadline: float | None = None) -> CacheStats:
        return reports.cache_stats_from_proto(
            self._channel.unary("GetCacheStats", protocol.message("GetCacheStatsRequest")(), deadline)
        )

    # --- Inside ---

    def _spec(
        self,
        graph: GraphLike,
        symbols: Mapping[str, int] | None,
        target: str | None,
        options: Options | None,
        bypass_cache: bool,
    ) -> Spec:
        if isinstance(graph, Compiled):
            given = (symbols, target, options)
            if given == (None, None, None) and not bypass_cache:
                return graph.spec
            base = graph.spec
            return Spec(
                base.graph,
                None if base.graph is not None else base.fingerprint,
                dict(symbols) if symbols is not None else base.symbols,
                base.target if target is None else self._resolved(target),
                base.options if options is None else options,
                bypass_cache,
            )
        if isinstance(graph, bytes):
            if len(graph) != _FINGERPRINT_BYTES:
                raise InvalidArgumentError(
                    f"a fingerprint has {_FINGERPRINT_BYTES} bytes, not {len(graph)}",
                    reason="OPTION_INVALID",
                    subject="fingerprint",
                )
            return Spec(None, graph, {}, "", self.options)
        return Spec(
            as_graph(graph),
            None,
            dict(symbols or {}),
            self._resolved(self.target if target is None else target),
            self.options if options is None else options,
            bypass_cache,
        )

    def _resolved(self, target: str) -> str:
        """ "cuda" and "auto" as the target of one of the server's devices."""
        if target not in ("cuda", "auto"):
            return target
        if self._cuda_target is None:
            found = [device.target for device in self.server_info().devices if device.target.startswith("cuda")]
            self._cuda_target = found[0] if found else ""
        if not self._cuda_target and target == "cuda":
            raise FailedPreconditionError(
                "the server has no CUDA device", reason="TARGET_NOT_AVAILABLE", subject="target"
            )
        return self._cuda_target or "cpu"

    def _batch_result(self, spec: Spec, answer: Any) -> Compiled | Error:
        if answer.HasField("response"):
            return compiled_from_response(self, spec, answer.response, spec.graph is not None)
        failure = answer.failure
        codes = {code.value[0]: code.name for code in grpc.StatusCode}
        return make_error(
            codes.get(failure.code, "UNKNOWN"), failure.message, reason=failure.reason, subject=failure.subject
        )

    @staticmethod
    def _host(tensor: Any) -> HostTensor:
        try:
            return host_tensor(tensor)
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"no tensor: {error}", reason="TENSOR_MISMATCH", subject="tensor") from None


def _handle(handle: str | KeptTensor) -> str:
    return handle.handle if isinstance(handle, KeptTensor) else handle


def connect(
    address: str | None = None,
    *,
    target: str = "",
    options: Options | None = None,
    deadline: float | None = 600.0,
    max_attempts: int = 5,
    initial_backoff: float = 0.1,
    max_backoff: float = 5.0,
    owner: str = "",
    remember_fingerprints: bool = True,
    max_message_bytes: int = 2**31 - 1,
    credentials: grpc.ChannelCredentials | None = None,
    balance: str = "affinity",
) -> Client:
    """A client of the server at `address`: "HOST:PORT", "[::1]:PORT" or "unix:/path"; None: $FUSELINE_SERVER.

    Several addresses, separated by commas, are several servers: a call goes to one that can serve it, and to the next
    where that does not answer. `balance`: "affinity", equal graphs meet on one server; "round_robin", each call goes to
    the next. "dns:///HOST:PORT": gRPC's own round robin over the name's addresses.

    Does not wait for the server: a call that finds none raises UnavailableError. `target`: "cpu", "cuda:sm_90"; "cuda":
    that of the server's first CUDA device; "auto": the same, or else cpu; empty: the server chooses. `deadline`:
    seconds for each call, all its attempts together; None: no limit. `max_attempts`: while the server answers
    UNAVAILABLE, with waits from `initial_backoff` to `max_backoff` seconds. `owner`: whose kept tensors the calls see.
    `credentials`: of gRPC's channel; None: plain text.
    """
    address = address if address is not None else os.environ.get("FUSELINE_SERVER", "")
    if not address:
        raise InvalidArgumentError(
            "no address of a server: give one, or set FUSELINE_SERVER", reason="OPTION_INVALID", subject="address"
        )
    if max_attempts < 1 or initial_backoff < 0 or max_backoff < 0 or (deadline is not None and deadline < 0):
        raise InvalidArgumentError(
            "attempts must be at least 1, times not negative", reason="OPTION_INVALID", subject="options"
        )
    channel = Channel(
        address,
        ChannelOptions(
            deadline, max_attempts, initial_backoff, max_backoff, max_message_bytes, owner, credentials, balance
        ),
    )
    return Client(channel, target, options or Options(), remember_fingerprints)
