"""Calls to one server or several: deadlines, retries with back-off, errors with their details.

Only UNAVAILABLE is retried, and calls whose answer was lost on the way: every call is idempotent, save those that keep
tensors. Of several servers the next one is asked, also where one has a full queue or can't serve the target.
Pipeline: messages -> Channel -> Servers -> gRPC -> messages. Thread-safety: thread-safe. Tested by
tests/python/test_errors.py and tests/python/test_servers.py
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import grpc

from fuseline import protocol
from fuseline.errors import Error, FailedPreconditionError, ResourceExhaustedError, make_error
from fuseline.servers import Route, Server, Servers, stable_hash

Result = TypeVar("Result")

_MOST_MESSAGE_BYTES = 2**31 - 1
_DETAILS_KEY = "grpc-status-details-bin"
_TYPE_PREFIX = "type.googleapis.com/"


@dataclasses.dataclass(frozen=True)
class ChannelOptions:
    deadline: float | None = 600.0
    """Seconds for one call, all its attempts together. None: no limit."""
    max_attempts: int = 5
    """Attempts of one call while the server answers UNAVAILABLE; 1: no retries. Of several servers each is tried in
    every attempt."""
    initial_backoff: float = 0.1
    """Seconds before the second attempt; doubled for each further one, with jitter. The server's delay is the least."""
    max_backoff: float = 5.0
    max_message_bytes: int = _MOST_MESSAGE_BYTES
    owner: str = ""
    """Whose kept tensors the calls see."""
    credentials: grpc.ChannelCredentials | None = None
    """None: plain text."""
    balance: str = "affinity"
    """Of several servers: "affinity" or "round_robin"."""


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One try of a call, on one server. Its methods raise grpc.RpcError."""

    server: Server
    timeout: float | None
    metadata: Sequence[tuple[str, str]]

    def call(self, name: str, request: Any) -> Any:
        """`request`: an iterator of messages where the method takes a stream; so is the answer where it sends one."""
        return self.server.callable(name)(request, timeout=self.timeout, metadata=self.metadata)


class Channel:
    def __init__(self, address: str, options: ChannelOptions) -> None:
        arguments = [
            ("grpc.max_receive_message_length", options.max_message_bytes),
            ("grpc.max_send_message_length", options.max_message_bytes),
            # The retries are ours: they know RetryInfo.
            ("grpc.enable_retries", 0),
            # gRPC waits a second before it connects again; a server that restarts is back sooner.
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 10000),
            ("grpc.max_reconnect_backoff_ms", 5000),
            # A server that is cut off sends no word of it. While a call waits, silence is noticed within 15 s.
            ("grpc.keepalive_time_ms", 10000),
            ("grpc.keepalive_timeout_ms", 5000),
            # gRPC would ask twice and then no more until it sends data: a compilation may take longer.
            ("grpc.http2.max_pings_without_data", 0),
        ]
        several = "," in address
        if several:
            # There are others to ask instead.
            arguments.append(("grpc.min_reconnect_backoff_ms", 3000))
        if "dns:///" in address:
            arguments.append(("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'))
        self.address = address
        self.options = options
        self._servers = Servers(address, options.balance, arguments, options.credentials)
        self._metadata = (("fuseline-owner", options.owner),) if options.owner else ()
        self.tensors = Route("tensors", key=stable_hash(b"owner:" + options.owner.encode()))
        """Of the calls about the owner's kept tensors."""

    def close(self) -> None:
        self._servers.close()

    def with_retries(
        self, attempt: Callable[[Attempt], Result], deadline: float | None = None, route: Route | None = None
    ) -> Result:
        """Calls `attempt`, which starts from the beginning each time. `deadline`: of all its tries, in seconds."""
        options = self.options
        route = route or Route()
        limit = options.deadline if deadline is None else deadline
        end = None if limit is None else time.monotonic() + limit
        metadata = self._metadata
        if route.key is not None:
            metadata = (*metadata, ("x-fuseline-affinity", f"{route.key:016x}"))
        backoff = options.initial_backoff
        count = 1
        while True:
            lost: Error | None = None  # of the last one that did not answer
            refusal: Error | None = None  # of the first one whose answer another might better
            reasons = []  # why the servers can't serve the route
            servers = self._servers.order(route)
            for server in servers:
                try:
                    why_not = self._servers.why_not(server, route)
                    if why_not:
                        reasons.append(f"{server.address}: {why_not}")
                        continue
                    timeout = None if end is None else max(end - time.monotonic(), 0.0)
                    result = attempt(Attempt(server, timeout, metadata))
                except grpc.RpcError as failure:
                    error = decode_error(failure)
                else:
                    self._servers.succeeded(server)
                    return result
                if _is_lost(error):
                    self._servers.failed(server, error.retry_delay)
                    lost = error
                elif len(servers) == 1:
                    raise error
                elif error.reason == "TARGET_NOT_AVAILABLE":
                    self._servers.forget_info(server)
                    reasons.append(f"{server.address}: {error.message}")
                elif error.reason == "QUEUE_FULL" or (route.ask_all and error.reason == "FINGERPRINT_UNKNOWN"):
                    refusal = refusal or error
                else:
                    raise error
            if lost is None:
                raise refusal or _no_server(route, len(servers), reasons)
            if count >= options.max_attempts:
                raise lost
            wait = max(backoff * random.uniform(0.5, 1.0), lost.retry_delay)
            if end is not None and time.monotonic() + wait >= end:
                raise lost
            time.sleep(wait)
            backoff = min(backoff * 2, options.max_backoff)
            count += 1

    def unary(self, name: str, request: Any, deadline: float | None = None, route: Route | None = None) -> Any:
        """A call with one message each way."""
        self.check_size(request)
        return self.with_retries(lambda attempt: attempt.call(name, request), deadline, route)

    def check_size(self, request: Any) -> None:
        # Said here, since gRPC's own message for it is unreadable.
        size = request.ByteSize()
        if size > self.options.max_message_bytes:
            raise ResourceExhaustedError(
                f"a request of {size} bytes is over the limit of {self.options.max_message_bytes}",
                reason="LIMIT_EXCEEDED",
                subject="request",
            )


def _is_lost(error: Error) -> bool:
    """The connection broke, or a proxy gave the call up. The server says why it fails; a reset stream does not, nor
    does CANCELLED, by which gRPC answers for a server that shut down before it took the call."""
    if error.code == "UNAVAILABLE":
        return True
    if error.reason != "UNSPECIFIED":
        return False
    return error.code == "CANCELLED" or ("RST_STREAM" in error.message and error.code in ("INTERNAL", "UNKNOWN"))


def _no_server(route: Route, count: int, reasons: list[str]) -> Error:
    verb = "compile for" if route.need == "compile" else "run"
    target = f"'{route.target}'" if route.target else "any target"
    return FailedPreconditionError(
        f"none of the {count} servers can {verb} {target}: {'; '.join(reasons)}",
        reason="TARGET_NOT_AVAILABLE",
        subject=route.target or "target",
    )


def decode_error(failure: grpc.RpcError) -> Error:
    """The exception for what gRPC raised."""
    code = failure.code().name if hasattr(failure, "code") and failure.code() is not None else "UNKNOWN"
    message = (failure.details() if hasattr(failure, "details") else None) or str(failure)
    metadata = failure.trailing_metadata() if hasattr(failure, "trailing_metadata") else None
    fields: dict[str, Any] = {"details": []}
    for key, value in metadata or ():
        if key == _DETAILS_KEY:
            _read_details(value, fields)
    return make_error(code, message, **fields)


def _read_details(data: bytes, fields: dict[str, Any]) -> None:
    status = protocol.message_class("google.rpc.Status")()
    try:
        status.ParseFromString(data)
    except Exception:  # protobuf's DecodeError: then there are no details
        return
    for packed in status.details:
        try:
            detail = protocol.message_class(packed.type_url.removeprefix(_TYPE_PREFIX))()
            detail.ParseFromString(packed.value)
        except Exception:  # of a type that this client does not know, or malformed
            continue
        fields["details"].append(detail)
        name = detail.DESCRIPTOR.name
        if name == "ErrorInfo" and detail.domain == "fuseline":
            fields["reason"] = detail.reason
            fields["subject"] = detail.metadata.get("subject", "")
        elif name == "RetryInfo":
            fields["retry_delay"] = max(detail.retry_delay.seconds + detail.retry_delay.nanos * 1e-9, 0.0)
        elif name == "RequestInfo":
            fields["request_id"] = detail.request_id
