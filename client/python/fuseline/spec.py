"""What to compile and how, as a request; and asking by fingerprint before a graph is sent.

An unchanged graph costs a 32-byte question: the memory keeps which fingerprint the server answered for which request.
Pipeline: Graph, options -> Spec -> by_spec -> fuseline.v1.CompileSpec -> Channel. Thread-safety: Spec is immutable,
FingerprintMemory thread-safe. Tested by tests/python/test_client.py
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

from fuseline.errors import InvalidArgumentError, NotFoundError
from fuseline.graph import Graph
from fuseline.servers import Route, stable_hash

_NUMERICS = {"fused": 1, "eager": 2}


@dataclasses.dataclass(frozen=True)
class Options:
    """How to compile. Every field is part of the fingerprint."""

    numerics: str = "fused"
    """"fused": 16-bit floats are rounded where they are stored or cast; "eager": the bits of op-by-op execution."""
    fast_math: bool = False
    allow_tf32: bool = False
    fuse: bool = True
    """False: one kernel for each op, for comparison."""

    def __post_init__(self) -> None:
        if self.numerics not in _NUMERICS:
            raise InvalidArgumentError(
                f"numerics '{self.numerics}' is neither 'fused' nor 'eager'",
                reason="OPTION_INVALID",
                subject="numerics",
            )


@dataclasses.dataclass(frozen=True)
class Spec:
    """At least one of `graph` and `fingerprint` is set; with both, the fingerprint is asked for first."""

    graph: Graph | None
    fingerprint: bytes | None
    symbols: Mapping[str, int]
    target: str  # empty: the server chooses
    options: Options
    bypass_cache: bool = False

    def fill_fields(self, proto: Any) -> None:
        """All but the source."""
        for name, size in self.symbols.items():
            proto.symbol_sizes[name] = size
        proto.target = self.target
        proto.options.numerics = _NUMERICS[self.options.numerics]
        proto.options.fast_math = self.options.fast_math
        proto.options.allow_tf32 = self.options.allow_tf32
        proto.options.disable_fusion = not self.options.fuse
        proto.bypass_cache = self.bypass_cache

    def fill_graph(self, proto: Any) -> None:
        assert self.graph is not None
        self.fill_fields(proto)
        proto.graph.ParseFromString(self.graph.serialized()[0])

    def digest(self, input_key: str) -> bytes:
        """Of what is asked for. `input_key`: what of the inputs binds symbols."""
        assert self.graph is not None
        fields = (sorted(self.symbols.items()), self.target, dataclasses.astuple(self.options), input_key)
        return hashlib.sha256(self.graph.serialized()[1] + repr(fields).encode()).digest()

    def route(self, need: str) -> Route:
        """Where a call about it goes: equal graphs meet. Sizes are left out, since kernels serve several."""
        if self.graph is None:
            return Route(need, key=stable_hash(self.fingerprint or b""), ask_all=True)
        fields = repr((self.target, dataclasses.astuple(self.options)))
        return Route(need, self.target, stable_hash(self.graph.serialized()[1] + fields.encode()))


class FingerprintMemory:
    """Which fingerprint the server answered for which request; the oldest is forgotten first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._entries: collections.OrderedDict[bytes, bytes] = collections.OrderedDict()

    def find(self, digest: bytes) -> bytes | None:
        with self._lock:
            return self._entries.get(digest)

    def remember(self, digest: bytes, fingerprint: bytes) -> None:
        if self._capacity <= 0:
            return
        with self._lock:
            self._entries[digest] = fingerprint
            if len(self._entries) > self._capacity:
                self._entries.popitem(last=False)


def by_spec(
    spec: Spec, memory: FingerprintMemory, request: Any, call: Callable[[bool], Any], input_key: str = ""
) -> tuple[Any, bool]:
    """Makes a call by fingerprint where one is known, else by graph; falls back to the graph.

    `request.spec` is filled in. `call(by_fingerprint)` sends the request, in which names of inputs and outputs are then
    canonical (in0, …, out0, …), and returns the response. Returns it, and whether the graph was sent.
    """
    if spec.graph is None:
        request.spec.fingerprint = spec.fingerprint
        return call(True), False
    if spec.bypass_cache:
        spec.fill_graph(request.spec)
        return call(False), True
    digest = spec.digest(input_key)
    known = spec.fingerprint if spec.fingerprint is not None else memory.find(digest)
    if known is not None:
        request.spec.Clear()
        request.spec.fingerprint = known
        try:
            return call(True), False
        except NotFoundError as error:
            if error.reason == "HANDLE_UNKNOWN":
                raise
        except InvalidArgumentError:
            # Asked again with the graph, so that the message has the user's names and not canonical ones.
            pass
        request.spec.Clear()
    spec.fill_graph(request.spec)
    response = call(False)
    memory.remember(digest, response.summary.fingerprint)
    return response, True
