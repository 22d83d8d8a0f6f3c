"""Calls to one server: deadlines, retries with back-off, errors with their details.

Only UNAVAILABLE is retried: every call is idempotent, save those that keep tensors.
Pipeline: messages -> Channel -> gRPC -> messages. Thread-safety: thread-safe. Tested by tests/python/test_errors.py
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import grpc

from fuseline import protocol
from fuseline.errors import Error, ResourceExhaustedError, make_error

Result = TypeVar("Result")

_MOST_MESSAGE_BYTES = 2**31 - 1
_DETAILS_KEY = "grpc-status-details-bin"
_TYPE_PREFIX = "type.googleapis.com/"


@dataclasses.dataclass(frozen=True)
class ChannelOptions:
    deadline: float | None = 600.0
    """Seconds for one call, all its attempts together. None: no limit."""
    max_attempts: int = 5
    """Attempts of one call while the server answers UNAVAILABLE; 1: no retries."""
    initial_backoff: float = 0.1
    """Seconds before the second attempt; doubled for each further one, with jitter. The server's delay is the least."""
    max_backoff: float = 5.0
    max_message_bytes: int = _MOST_MESSAGE_BYTES
    owner: str = ""
    """Whose kept tensors the calls see."""
    credentials: grpc.ChannelCredentials | None = None
    """None: plain text."""


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
        ]
        self.address = address
        self.options = options
        if options.credentials is not None:
            self._channel = grpc.secure_channel(address, options.credentials, arguments)
        else:
            self._channel = grpc.insecure_channel(address, arguments)
        self._metadata = (("fuseline-owner", options.owner),) if options.owner else None
        # A multi-callable costs tens of microseconds to make. Made twice at worst.
        self._callables: dict[str, Any] = {}

    def close(self) -> None:
        self._channel.close()

    def with_retries(self, attempt: Callable[[float | None], Result], deadline: float | None = None) -> Result:
        """Calls `attempt(timeout)`, which starts from the beginning each time. `deadline`: of this call, in seconds."""
        options = self.options
        limit = options.deadline if deadline is None else deadline
        end = None if limit is None else time.monotonic() + limit
        backoff = options.initial_backoff
        count = 1
        while True:
            try:
                return attempt(None if end is None else max(end - time.monotonic(), 0.0))
            except grpc.RpcError as failure:
                error = decode_error(failure)
            if error.code != "UNAVAILABLE" or count >= options.max_attempts:
                raise error
            wait = max(backoff * random.uniform(0.5, 1.0), error.retry_delay)
            if end is not None and time.monotonic() + wait >= end:
                raise error
            time.sleep(wait)
            backoff = min(backoff * 2, options.max_backoff)
            count += 1

    def unary(self, name: str, request: Any, deadline: float | None = None) -> Any:
        """A call with one message each way."""
        self._check_size(request)
        call = self._callable(name)
        return self.with_retries(lambda timeout: call(request, timeout=timeout, metadata=self._metadata), deadline)

    def server_stream(self, name: str, request: Any, timeout: float | None) -> Iterator[Any]:
        """One attempt of a call that answers with a stream. Raises grpc.RpcError, so only inside with_retries."""
        self._check_size(request)
        return self._callable(name)(request, timeout=timeout, metadata=self._metadata)

    def stream(self, name: str, requests: Iterable[Any], timeout: float | None) -> Any:
        """One attempt of a call that sends a stream; as server_stream."""
        return self._callable(name)(iter(requests), timeout=timeout, metadata=self._metadata)

    def _callable(self, name: str) -> Any:
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

    def _check_size(self, request: Any) -> None:
        # Said here, since gRPC's own message for it is unreadable.
        size = request.ByteSize()
        if size > self.options.max_message_bytes:
            raise ResourceExhaustedError(
                f"a request of {size} bytes is over the limit of {self.options.max_message_bytes}",
                reason="LIMIT_EXCEEDED",
                subject="request",
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
