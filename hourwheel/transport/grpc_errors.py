"""What went wrong on the wire, as an error of our own and with what is known about its outcome.

A node's error is a gRPC status with a google.rpc.ErrorInfo in its details; its `reason` names the
class in `hourwheel.errors`. gRPC's own errors are sorted here, too: whether a node can
have seen the request.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import grpc.aio
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from hourwheel import errors
from hourwheel.transport.retry import Failure, is_undecided

ERROR_DOMAIN: Final = "hourwheel"
_DETAILS_KEY: Final = "grpc-status-details-bin"
_UNSEEN_CODES: Final = ("UNIMPLEMENTED", "UNAUTHENTICATED", "PERMISSION_DENIED")
"""What gRPC itself answers before anything of the request is looked at."""
_TOO_LARGE: Final = "larger than max"
"""Part of what gRPC says, with RESOURCE_EXHAUSTED, of a message that it takes in no more than in
part: trying again is of no use. Who said it has received it, or was about to send it."""
_ANSWER_TOO_LARGE: Final = "CLIENT: Received"
_SIZES: Final = re.compile(r"\((\d+) vs\. (\d+)\)")
NO_STREAM: Final = "limits.publish_streams"
"""A node that has as many streams as it may have ends a new one before it reads from it."""
_LOST_STATUS: Final = "Internal error from Core"
"""What grpc.aio says when it writes to a stream that has just ended, instead of how it ended."""
_CANCELLED_HERE: Final = "Locally cancelled by application!"
"""What grpc.aio says of a call that this process has cancelled."""
_NEVER_SENT: Final = "failed to connect to all addresses"
"""What gRPC says where there never was a connection. Should it ever say it in other words, calls
that must not be repeated fail where they could have been tried again: the safe side."""


def make_error(
    code: str, reason: str, message: str, params: Mapping[str, str]
) -> errors.HourwheelError:
    """The exception for an error on the wire.

    Args:
        code: name of the gRPC status code.
        reason: typed reason; an unknown one (of a newer node) falls back on the code's class.
        message: for people.
        params: facts for programs.
    """
    kind = errors.BY_REASON.get(reason)
    if kind is None:
        kind = errors.Timeout if code == errors.Timeout.code else errors.BY_REASON.get(code)
    error = (kind or errors.HourwheelError)(message or f"the node answered {code}")
    error.params.update(params)
    return error


def failure_of(status: grpc.aio.AioRpcError, *, is_stream: bool = False) -> Failure:
    """Our failure for one of gRPC.

    Args:
        status: how the call ended.
        is_stream: the call was a stream; then its end says nothing of the requests in it, unless
            no node ever saw it.
    """
    code, message = status.code().name, status.details() or ""
    info = _find_error_info(status)
    if info is not None:
        error = make_error(code, info.reason, message, info.metadata)
        # A node reads nothing of a caller that it does not know.
        is_unseen = not is_stream or isinstance(error, errors.Unauthenticated)
        is_unseen |= error.params.get("limit") == NO_STREAM
        return Failure(error, is_unseen and not is_undecided(error))
    if code == errors.Internal.code and message == _LOST_STATUS:
        return Failure(errors.Unavailable("the connection was cut"), is_definite=False)
    if code == errors.ResourceExhausted.code and _TOO_LARGE in message:
        is_unseen = not is_stream and not message.startswith(_ANSWER_TOO_LARGE)
        return Failure(errors.MessageTooLarge(message, **_sizes(message)), is_unseen)
    if code == errors.HourwheelError.code:  # what a node's handler raised was not even typed
        return Failure(errors.Internal(message), is_definite=False)
    if code == errors.Cancelled.code and message != _CANCELLED_HERE:
        # So gRPC answers what reaches a node that has just begun to stop.
        return Failure(errors.Unavailable("the node dropped the call"), is_definite=False)
    is_unseen = code in _UNSEEN_CODES or (code == "UNAVAILABLE" and _NEVER_SENT in message)
    return Failure(make_error(code, "", message, {}), is_unseen)


def _find_error_info(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo | None:
    metadata: Sequence[tuple[str, str | bytes]] = tuple(error.trailing_metadata() or ())
    for key, value in metadata:
        if key != _DETAILS_KEY or not isinstance(value, bytes):
            continue
        try:
            details = status_pb2.Status.FromString(value).details
            for detail in details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info) and info.domain == ERROR_DOMAIN:
                    return info
        except DecodeError:
            return None  # not ours: the status code still says what there is to say
    return None


def _sizes(message: str) -> dict[str, int]:
    """What gRPC says of a message that is too large: how large it is, and may be."""
    found = _SIZES.search(message)
    return {} if found is None else {"bytes": int(found[1]), "bytes_max": int(found[2])}
