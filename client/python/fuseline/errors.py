"""What goes wrong, as exceptions: one class for each code, with the reason and the details that the server sent.

docs/errors.md lists codes and reasons. Errors of the client itself have the code and reason that the server would
give. Tested by tests/python/test_errors.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Error(Exception):
    """The base class; also raised itself, for codes that have no class of their own."""

    code: str = "UNKNOWN"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        reason: str = "UNSPECIFIED",
        subject: str = "",
        request_id: str = "",
        retry_delay: float = 0.0,
        details: Sequence[Any] = (),
    ) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.message = message
        self.reason = reason
        """As in docs/errors.md."""
        self.subject = subject
        """The node ("%t3"), input or field that it is about; may be empty."""
        self.request_id = request_id
        """Of an INTERNAL error: what the server's log has."""
        self.retry_delay = retry_delay
        """Seconds to wait before another attempt; 0: not said."""
        self.details = tuple(details)
        """The google.rpc messages that came with it."""

    def __str__(self) -> str:
        text = f"{self.code}: {self.message}"
        return f"{text} (request {self.request_id})" if self.request_id else text

    def __reduce__(self) -> tuple[Any, ...]:
        # Details are messages of a pool of their own, which do not travel between processes.
        state = {key: value for key, value in self.__dict__.items() if key != "details"}
        return (type(self), (self.message,), state | {"details": ()})


class InvalidArgumentError(Error):
    """The graph, a tensor or an option is wrong: fix it."""

    code = "INVALID_ARGUMENT"


class NotFoundError(Error):
    """No artifact has this fingerprint, or no tensor this handle."""

    code = "NOT_FOUND"


class AlreadyExistsError(Error):
    """The handle is taken."""

    code = "ALREADY_EXISTS"


class FailedPreconditionError(Error):
    """Not on this server, or not on this machine: another target, or something to install."""

    code = "FAILED_PRECONDITION"


class UnimplementedError(Error):
    """A valid request that this version can't serve: fall back."""

    code = "UNIMPLEMENTED"


class ResourceExhaustedError(Error):
    """A queue, quota or memory is full, or a message too large."""

    code = "RESOURCE_EXHAUSTED"


class UnavailableError(Error):
    """No server answers, or it is draining. The only code that the client retries."""

    code = "UNAVAILABLE"


class DeadlineExceededError(Error):
    """The call's deadline has passed."""

    code = "DEADLINE_EXCEEDED"


class InternalError(Error):
    """A bug: report it, with `request_id`."""

    code = "INTERNAL"


_CLASSES: dict[str, type[Error]] = {
    cls.code: cls
    for cls in (
        InvalidArgumentError, NotFoundError, AlreadyExistsError, FailedPreconditionError, UnimplementedError,
        ResourceExhaustedError, UnavailableError, DeadlineExceededError, InternalError,
    )
}  # fmt: skip


def make_error(code: str, message: str, **fields: Any) -> Error:
    """The exception of a code's class."""
    return _CLASSES.get(code, Error)(message, code=code, **fields)
