"""Errors on the wire, as a node answers them: the one table from hourwheel.errors to gRPC.

A call that fails ends with a gRPC status code and, in `grpc-status-details-bin`, a
google.rpc.Status with one google.rpc.ErrorInfo: `reason` is the class's reason, `domain` is
"hourwheel", `metadata` is the error's `params`. Generic clients decode it without our code. In a
stream that goes on, the same facts travel as an `ErrorDetail`. `grpc_errors` is the way back.
"""

from typing import Final

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from hourwheel import errors
from hourwheel.transport.grpc_errors import ERROR_DOMAIN
from hourwheel.v1.broker_pb2 import ErrorDetail

_MESSAGE_CHARS_MAX: Final = 1_024
"""The details travel in a header: a client's own text in them must not make it too long."""
_PARAM_CHARS_MAX: Final = 256

CODES: Final[dict[str, grpc.StatusCode]] = {code.name: code for code in grpc.StatusCode}
"""Name of a status code, as errors have it -> the code."""

_HIDDEN: Final = errors.Internal("internal error; the node's log tells more")


def code_of(error: errors.HourwheelError) -> grpc.StatusCode:
    """The gRPC status code of an error."""
    return CODES[error.code]


def number_of(code: grpc.StatusCode) -> int:
    """A status code's number on the wire."""
    return int(code.value[0])


def public(error: BaseException) -> errors.HourwheelError:
    """What a caller may know of `error`: ours as it is, nothing of a stranger's text."""
    return error if isinstance(error, errors.HourwheelError) else _HIDDEN


def to_status(error: errors.HourwheelError) -> grpc.Status:
    """The status that ends a call, with its details."""
    info = ErrorInfo(reason=error.reason, domain=ERROR_DOMAIN, metadata=_params(error))
    packed = AnyMessage()
    packed.Pack(info)
    message = error.message[:_MESSAGE_CHARS_MAX]
    return rpc_status.to_status(
        Status(code=number_of(code_of(error)), message=message, details=[packed])
    )


def to_detail(error: errors.HourwheelError) -> ErrorDetail:
    """The same as a field, where a stream goes on after the error."""
    return ErrorDetail(
        code=number_of(code_of(error)),
        reason=error.reason,
        message=error.message[:_MESSAGE_CHARS_MAX],
        params=_params(error),
    )


def _params(error: errors.HourwheelError) -> dict[str, str]:
    return {name: value[:_PARAM_CHARS_MAX] for name, value in error.params.items()}
