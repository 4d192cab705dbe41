from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from hourwheel import errors
from hourwheel.transport.grpc_errors import failure_of, make_error

KINDS = list(errors.BY_REASON.values())


def rpc_error(code: grpc.StatusCode, message: str = "", *details: Any) -> grpc.aio.AioRpcError:
    packed = []
    for detail in details:
        packed.append(any_pb2.Any())
        packed[-1].Pack(detail)
    raw = status_pb2.Status(details=packed).SerializeToString()
    metadata = grpc.aio.Metadata(("other", "x"), ("grpc-status-details-bin", raw))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), metadata, details=message)


@pytest.mark.parametrize("kind", KINDS, ids=[kind.reason for kind in KINDS])
def test_make_error_when_the_reason_is_known(kind: type[errors.HourwheelError]) -> None:
    error = make_error(kind.code, kind.reason, "why", {"message": "x", "bytes": "5"})
    assert type(error) is kind
    assert (error.message, error.params) == ("why", {"message": "x", "bytes": "5"})


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("INVALID_ARGUMENT", errors.InvalidArgument),
        ("RESOURCE_EXHAUSTED", errors.ResourceExhausted),
        ("DEADLINE_EXCEEDED", errors.Timeout),
        ("UNAVAILABLE", errors.Unavailable),
        ("UNIMPLEMENTED", errors.HourwheelError),
    ],
)
def test_make_error_when_the_reason_is_of_a_newer_node(
    code: str, kind: type[errors.HourwheelError]
) -> None:
    error = make_error(code, "SOMETHING_NEW", "", {})
    assert type(error) is kind
    assert code in error.message


def test_failure_of_when_the_node_says_why() -> None:
    info = error_details_pb2.ErrorInfo(
        reason="DISK_FULL", domain="hourwheel", metadata={"free_bytes": "0"}
    )
    retry = error_details_pb2.RetryInfo()
    failure = failure_of(rpc_error(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", retry, info))
    assert isinstance(failure.error, errors.DiskFull)
    assert failure.error.params == {"free_bytes": "0"}
    assert failure.is_definite
    of_stream = failure_of(rpc_error(grpc.StatusCode.INTERNAL, "full", info), is_stream=True)
    assert not of_stream.is_definite


@pytest.mark.parametrize(
    ("code", "message", "kind", "is_definite"),
    [
        ("UNAVAILABLE", "Socket closed", errors.Unavailable, False),
        ("UNAVAILABLE", "failed to connect to all addresses; x", errors.Unavailable, True),
        ("UNIMPLEMENTED", "Method not found!", errors.HourwheelError, True),
        ("INTERNAL", "Internal error from Core", errors.Unavailable, False),
        ("INTERNAL", "something else", errors.Internal, False),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", errors.Timeout, False),
        ("CANCELLED", "CANCELLED", errors.Unavailable, False),
        ("UNKNOWN", "Unexpected ZeroDivisionError", errors.Internal, False),
        ("CANCELLED", "Locally cancelled by application!", errors.Cancelled, False),
        (
            "RESOURCE_EXHAUSTED",
            "SERVER: Received message larger than max (17825792 vs. 10485760)",
            errors.MessageTooLarge,
            True,
        ),
        (
            "RESOURCE_EXHAUSTED",
            "CLIENT: Received message larger than max (5 vs. 4)",
            errors.MessageTooLarge,
            False,
        ),
        (
            "RESOURCE_EXHAUSTED",
            "Decompressed message larger than max",
            errors.MessageTooLarge,
            True,
        ),
        ("RESOURCE_EXHAUSTED", "connection limit", errors.ResourceExhausted, False),
    ],
)
def test_failure_of_when_grpc_itself_speaks(
    code: str, message: str, kind: type[errors.HourwheelError], *, is_definite: bool
) -> None:
    failure = failure_of(rpc_error(grpc.StatusCode[code], message))
    assert type(failure.error) is kind
    assert failure.is_definite == is_definite


def test_failure_of_when_details_are_foreign_or_garbage() -> None:
    foreign = error_details_pb2.ErrorInfo(reason="DISK_FULL", domain="example.com")
    error = rpc_error(grpc.StatusCode.UNAVAILABLE, "", foreign)
    assert type(failure_of(error).error) is errors.Unavailable
    garbage = grpc.aio.Metadata(("grpc-status-details-bin", b"\xff\xff"))
    error = grpc.aio.AioRpcError(grpc.StatusCode.NOT_FOUND, grpc.aio.Metadata(), garbage)
    assert type(failure_of(error).error) is errors.NotFound
