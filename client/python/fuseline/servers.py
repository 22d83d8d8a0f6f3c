"""The servers that a client may ask: which one a call goes to first, which ones after it, and which are left alone for
a while because they did not answer.

The same rules as the C++ client's (client/cpp/server_pool.h): with affinity by rendezvous hashing of the call's key,
with round robin each call begins one further, those that failed of late come last. One address is that server, always.
Pipeline: Route -> Servers -> Server (gRPC's channel) -> Channel. Thread-safety: thread-safe. Tested by
tests/python/test_servers.py
"""

from __future__ import annotations

import dataclasses
import hashlib
import threading
import time
from collections.abc import Sequence
from typing import Any

import grpc

from fuseline import protocol
from fuseline.errors import FailedPreconditionError, InvalidArgumentError

_FIRST_PENALTY = 1.0
_MOST_PENALTY = 30.0
_INFO_AGE = 30.0
# For a server to say what it can do.
_INFO_SECONDS = 3.0
_MASK = 2**64 - 1
BALANCES = ("affinity", "round_robin")


@dataclasses.dataclass(frozen=True)
class Route:
    """What decides which servers a call may go to, and in which order."""

    need: str = ""
    """"compile" or "execute" the target; "tensors": the one that keeps the owner's, and no other; "": any answers."""
    target: str = ""
    """Empty: whatever the server chooses."""
    key: int | None = None
    """Calls of equal keys meet; of "tensors" the owner's."""
    ask_all: bool = False
    """NOT_FOUND of one server says nothing of the others: a fingerprint without its graph."""


class Server:
    """One server's channel. Its state is that of Servers."""

    def __init__(
        self, address: str, arguments: Sequence[tuple[str, Any]], credentials: grpc.ChannelCredentials | None
    ) -> None:
        self.address = address
        self.hash = stable_hash(address.encode())
        if credentials is not None:
            self._channel = grpc.secure_channel(address, credentials, arguments)
        else:
            self._channel = grpc.insecure_channel(address, arguments)
        # A multi-callable costs tens of microseconds to make. Made twice at worst.
        self._callables: dict[str, Any] = {}
        self.avoided_until = 0.0
        self.penalty = 0.0
        self.info: Any = None  # a GetServerInfoResponse
        self.info_until = 0.0

    def callable(self, name: str) -> Any:
        """gRPC's multi-callable of a method."""
        found = self._callables.get(name)
        if found is None:
            method = protocol.method(name)
            kind = (
                ("stream" if method.client_streaming else "unary")
                + "_"
                + ("stream" if method.server_streaming else "unary")
            )
            found = getattr(self._channel, kind)(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
            self._callables[name] = found
        return found

    def close(self) -> None:
        self._channel.close()


class Servers:
    def __init__(
        self,
        address: str,
        balance: str,
        arguments: Sequence[tuple[str, Any]],
        credentials: grpc.ChannelCredentials | None,
    ) -> None:
        """`address`: as connect's."""
        addresses = list(dict.fromkeys(part.strip() for part in address.split(",")))
        if not all(addresses):
            raise InvalidArgumentError(
                f"the server's address '{address}' has an empty part", reason="OPTION_INVALID", subject="address"
            )
        if balance not in BALANCES:
            raise InvalidArgumentError(
                f"balance '{balance}' is neither of {', '.join(BALANCES)}", reason="OPTION_INVALID", subject="balance"
            )
        self._balance = balance
        self._all = [Server(part, arguments, credentials) for part in addresses]
        self._lock = threading.Lock()
        self._calls = 0

    def __len__(self) -> int:
        return len(self._all)

    def close(self) -> None:
        for server in self._all:
            server.close()

    def order(self, route: Route) -> list[Server]:
        """The servers that a call tries, the first first; of "tensors" the one."""
        if len(self._all) == 1:
            return self._all
        by_key = sorted(self._all, key=lambda server: -rendezvous_score(route.key or 0, server.hash))
        if route.need == "tensors":
            return [self._keeper_of_tensors(by_key)]
        ordered = by_key if self._balance == "affinity" and route.key is not None else list(self._all)
        with self._lock:
            if self._balance == "round_robin" and route.need:
                first = self._calls % len(ordered)
                self._calls += 1
                ordered = ordered[first:] + ordered[:first]
            now = time.monotonic()
            return sorted(ordered, key=lambda server: now < server.avoided_until)

    def why_not(self, server: Server, route: Route) -> str:
        """Why the server can't do what the call needs; empty: it can. Raises grpc.RpcError where it does not say."""
        if len(self._all) == 1 or route.need not in ("compile", "execute"):
            return ""
        reasons = []
        for target in self._info(server).targets:
            can = target.can_compile if route.need == "compile" else target.can_execute
            # NVRTC compiles for any architecture: what holds for one of them holds for all.
            same_compiler = (
                route.need == "compile" and route.target.startswith("cuda") and target.target.startswith("cuda")
            )
            if route.target and target.target != route.target and not same_compiler:
                continue
            if can:
                return ""
            reasons.append(target.reason)
        return "; ".join(filter(None, reasons)) or "it has no device for it"

    def succeeded(self, server: Server) -> None:
        with self._lock:
            server.avoided_until = server.penalty = 0.0

    def failed(self, server: Server, least: float) -> None:
        """It did not answer, or asked to be left alone for `least` seconds."""
        with self._lock:
            now = time.monotonic()
            # Calls that were on their way together count once.
            if now >= server.avoided_until:
                server.penalty = min(max(server.penalty * 2, _FIRST_PENALTY), _MOST_PENALTY)
            server.avoided_until = max(server.avoided_until, now + max(server.penalty, min(least, _MOST_PENALTY)))
            server.info_until = 0.0  # it may come back as another

    def forget_info(self, server: Server) -> None:
        with self._lock:
            server.info_until = 0.0

    def _info(self, server: Server) -> Any:
        with self._lock:
            if server.info is not None and time.monotonic() < server.info_until:
                return server.info
        request = protocol.message("GetServerInfoRequest")()
        info = server.callable("GetServerInfo")(request, timeout=_INFO_SECONDS)
        with self._lock:
            server.info = info
            server.info_until = time.monotonic() + _INFO_AGE
        return info

    def _keeper_of_tensors(self, by_key: list[Server]) -> Server:
        """Of those with devices, GPUs before others, the first by key."""
        fallback = None
        for server in by_key:
            try:
                info = self._info(server)
            except grpc.RpcError:
                info = server.info
            if info is None:
                # For all that is known, it is the one that keeps them.
                if fallback is None:
                    return server
                continue
            if any(device.target.startswith("cuda") for device in info.devices):
                return server
            if info.devices and fallback is None:
                fallback = server
        if fallback is None:
            raise FailedPreconditionError(
                f"none of the {len(by_key)} servers has a device to keep tensors for",
                reason="TARGET_NOT_AVAILABLE",
                subject="target",
            )
        return fallback


def rendezvous_score(key: int, server: int) -> int:
    """As RendezvousScore of the C++ client."""
    x = key ^ (server * 0x9E3779B97F4A7C15 & _MASK)
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)


def stable_hash(data: bytes) -> int:
    """The first 64 bits of SHA-256."""
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big")
