"""Every error of ours has its way onto the wire."""

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from hourwheel import errors
from hourwheel.transport import grpc_status

ON_THE_WIRE = [
    kind
    for kind in errors.BY_REASON.values()
    if not issubclass(kind, errors.StartupError) and kind is not errors.HourwheelError
]


@pytest.mark.parametrize("kind", ON_THE_WIRE)
def test_status_carries_code_reason_and_params_when_made_of_any_error(
    kind: type[errors.HourwheelError],
) -> None:
    made = grpc_status.to_status(kind("what happened", limit=7))
    metadata = dict(made.trailing_metadata)
    parsed = status_pb2.Status.FromString(metadata["grpc-status-details-bin"])
    info = error_details_pb2.ErrorInfo()
    assert parsed.details[0].Unpack(info)
    assert made.code is grpc.StatusCode[kind.code]
    assert (parsed.code, parsed.message) == (made.code.value[0], "what happened")
    assert (info.reason, info.domain, dict(info.metadata)) == (
        kind.reason,
        "hourwheel",
        {"limit": "7"},
    )


@pytest.mark.parametrize("kind", ON_THE_WIRE)
def test_detail_says_the_same_when_the_error_is_a_field(
    kind: type[errors.HourwheelError],
) -> None:
    detail = grpc_status.to_detail(kind("what happened", limit=7))
    assert (detail.code, detail.reason) == (grpc.StatusCode[kind.code].value[0], kind.reason)
    assert (detail.message, dict(detail.params)) == ("what happened", {"limit": "7"})


def test_status_stays_small_when_the_text_is_long() -> None:
    made = grpc_status.to_status(errors.InvalidTopic("x" * 100_000, topic="y" * 100_000))
    assert len(made.details) == 1_024
    assert sum(len(value) for _, value in made.trailing_metadata) < 3_000


def test_public_hides_strangers_texts() -> None:
    ours = errors.DiskFull("no room")
    assert grpc_status.public(ours) is ours
    hidden = grpc_status.public(RuntimeError("password=1234"))
    assert isinstance(hidden, errors.Internal)
    assert "1234" not in hidden.message
