"""A node inside this process."""

import asyncio
import http.client
from pathlib import Path

import grpc
import pytest

from hourwheel import errors
from hourwheel.v1 import broker_pb2, broker_pb2_grpc, consumer_pb2, consumer_pb2_grpc
from node.process.loopback_config import config_for
from tests.support.embedded_node import EmbeddedNode

SMALL = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}}


async def test_message_is_delivered_when_it_is_due(tmp_path: Path) -> None:
    async with (
        EmbeddedNode(tmp_path, SMALL) as node,
        grpc.aio.insecure_channel(node.address) as channel,
    ):
        producer = broker_pb2_grpc.ProducerServiceStub(channel)
        consumer = consumer_pb2_grpc.ConsumerServiceStub(channel)
        message = broker_pb2.OutgoingMessage(body=b"hello", delay_ms=20)
        published = await producer.Publish(
            broker_pb2.PublishRequest(topic="orders", messages=[message])
        )
        asked = consumer_pb2.ReceiveRequest(group="g", topic="orders", wait_ms=60_000)
        answer = await consumer.Receive(asked)
    (received,) = answer.messages
    assert received.body == b"hello"
    assert received.message_id == published.messages[0].message_id
    assert answer.receive_ms >= received.due_ms


async def test_metrics_are_served_from_another_thread(tmp_path: Path) -> None:
    async with EmbeddedNode(tmp_path, SMALL) as node:

        def get() -> str:
            connection = http.client.HTTPConnection(node.metrics_address, timeout=60)
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
            connection.close()
            return text

        text = await asyncio.to_thread(get)
    assert "hourwheel_wheel_pending_messages" in text


async def test_owner_is_told_when_the_node_could_not_go_on(tmp_path: Path) -> None:
    node = EmbeddedNode(tmp_path, SMALL)
    with pytest.raises(errors.FsyncFailed):
        async with node:
            node.node.failure.report(errors.FsyncFailed("EIO"))


async def test_failure_of_the_body_is_what_its_owner_sees(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with EmbeddedNode(tmp_path, SMALL):
            raise ZeroDivisionError


def test_configuration_has_free_ports_where_nothing_else_is_said(tmp_path: Path) -> None:
    config = config_for(tmp_path, {"node": {"metrics_listen": ""}, "log": {"async_flush_ms": 3}})
    assert config.node.listen == "127.0.0.1:0"
    assert config.node.metrics_listen == ""
    assert config.node.data_directory == tmp_path
    assert config.log.async_flush_ms == 3
