"""Errors: classes, reasons and details as the server sent them."""

from __future__ import annotations

import pickle

import fuseline
import pytest
from fuseline import errors

MISMATCH = "graph (x: f32[3], y: f32[4]) {\n  %t3 = add(x, y)\n  return %t3\n}"


def test_an_error_has_code_reason_subject_and_details(client: fuseline.Client) -> None:
    with pytest.raises(fuseline.InvalidArgumentError) as caught:
        client.compile(MISMATCH)
    error = caught.value
    assert isinstance(error, fuseline.Error)
    assert (error.code, error.reason, error.subject) == ("INVALID_ARGUMENT", "GRAPH_TYPE_MISMATCH", "%t3")
    assert error.message == "node '%t3': add: shapes [3] and [4] do not broadcast"
    assert str(error) == "INVALID_ARGUMENT: " + error.message
    names = [detail.DESCRIPTOR.full_name for detail in error.details]
    assert "google.rpc.ErrorInfo" in names and "google.rpc.BadRequest" in names


def test_a_target_that_is_not_there_is_a_failed_precondition(client: fuseline.Client) -> None:
    with pytest.raises(fuseline.FailedPreconditionError) as caught:
        client.execute("graph (x: f32[1]) { return x }", [[1.0]], target="cuda:sm_20")
    assert caught.value.reason == "TARGET_NOT_AVAILABLE"


def test_errors_survive_pickling(client: fuseline.Client) -> None:
    with pytest.raises(fuseline.Error) as caught:
        client.compile(MISMATCH)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is fuseline.InvalidArgumentError
    assert (again.message, again.reason, again.subject) == (
        caught.value.message,
        caught.value.reason,
        caught.value.subject,
    )


def test_codes_without_a_class_keep_their_name() -> None:
    error = errors.make_error("PERMISSION_DENIED", "no", reason="UNSPECIFIED")
    assert type(error) is fuseline.Error and error.code == "PERMISSION_DENIED"
    assert str(errors.make_error("INTERNAL", "bug", request_id="r1")) == "INTERNAL: bug (request r1)"
