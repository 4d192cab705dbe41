import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from hourwheel import errors
from hourwheel.channel import Channel, StreamBroken, failure_of, make_error
from hourwheel.methods import DELETE_TOPIC, LIST_TOPICS, PUBLISH_STREAM
from hourwheel.session import Backoff
from hourwheel.wire import admin_pb2, broker_pb2
from tests.support.fake_node import FakeNode

LIST = admin_pb2.ListTopicsRequest()
KINDS = list(errors.BY_REASON.values())
DELETE = admin_pb2.DeleteTopicRequest(name="t")


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


async def test_call_when_refused_with_params(node: FakeNode, channel: Channel) -> None:
    node.fail_next("ListTopics", errors.TooManyItems("too many", count=5, count_max=4))
    with pytest.raises(errors.TooManyItems, match="too many") as refused:
        await channel.call(LIST_TOPICS, LIST)
    assert refused.value.params == {"count": "5", "count_max": "4"}


async def test_call_when_refused_for_now(node: FakeNode, channel: Channel) -> None:
    node.fail_next("ListTopics", errors.Overloaded(), errors.ShuttingDown(), errors.Timeout())
    await channel.call(LIST_TOPICS, LIST)
    assert len(node.calls["ListTopics"]) == 4
    node.fail_next("ListTopics", errors.Overloaded())
    with pytest.raises(errors.Overloaded):
        await channel.call(LIST_TOPICS, LIST, is_retried=False)


async def test_call_when_it_must_not_be_repeated(node: FakeNode, channel: Channel) -> None:
    node.topics["t"] = 1
    node.fail_next("DeleteTopic", errors.Overloaded())
    await channel.call(DELETE_TOPIC, DELETE)  # a definite refusal may be tried again
    assert len(node.calls["DeleteTopic"]) == 2
    node.fail_next("DeleteTopic", errors.Timeout())
    with pytest.raises(errors.Timeout):
        await channel.call(DELETE_TOPIC, DELETE)
    assert len(node.calls["DeleteTopic"]) == 3


async def test_call_when_the_connection_breaks_under_it(node: FakeNode, channel: Channel) -> None:
    with node.hold("DeleteTopic"):
        call = asyncio.create_task(channel.call(DELETE_TOPIC, DELETE))
        await node.seen("DeleteTopic")
        await node.stop()
        with pytest.raises(errors.Timeout, match="outcome is unknown"):
            await call
    assert len(node.calls["DeleteTopic"]) == 1


async def test_call_when_time_runs_out(node: FakeNode, channel: Channel) -> None:
    await channel.connect()
    with node.hold("ListTopics"), pytest.raises(errors.Timeout):
        await channel.call(LIST_TOPICS, LIST, timeout_ms=20.0)


async def test_call_when_there_is_no_node(node: FakeNode) -> None:
    await node.stop()
    async with Channel(node.address, backoff=Backoff(ms_min=1.0, ms_max=1.0)) as channel:
        with pytest.raises(errors.Unavailable, match="no connection to 127"):
            await channel.call(LIST_TOPICS, LIST, timeout_ms=30.0)
        with pytest.raises(errors.Unavailable, match="no connection to 127"):
            await channel.call(DELETE_TOPIC, DELETE, timeout_ms=30.0)


async def test_call_when_closed(channel: Channel) -> None:
    await channel.call(LIST_TOPICS, LIST)
    await channel.close()
    with pytest.raises(errors.Cancelled):
        await channel.call(LIST_TOPICS, LIST)


async def test_stream_when_it_breaks(node: FakeNode, channel: Channel) -> None:
    node.break_stream(after_batches=1, is_taken=False)
    stream = channel.stream(PUBLISH_STREAM)
    await stream.write(broker_pb2.PublishStreamRequest(topic="t", record_batch=b"nonsense"))
    assert (await stream.read()).error.reason == "INVALID_BATCH"
    await stream.write(broker_pb2.PublishStreamRequest(topic="t"))
    with pytest.raises(StreamBroken) as broken:
        await stream.read()
    assert isinstance(broken.value.failure.error, errors.Unavailable)
    assert not broken.value.failure.is_definite
    with pytest.raises(StreamBroken):
        await stream.write(broker_pb2.PublishStreamRequest(topic="t"))


async def test_stream_when_the_node_is_gone(node: FakeNode, channel: Channel) -> None:
    await node.stop()
    stream = channel.stream(PUBLISH_STREAM)
    with pytest.raises(StreamBroken) as broken:
        await stream.read()
    assert broken.value.failure.is_definite
