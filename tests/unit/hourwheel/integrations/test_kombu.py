import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.pidbox import Mailbox

from hourwheel import errors
from hourwheel.formats.frames import Frame
from hourwheel.formats.meta import decode
from hourwheel.integrations.kombu import (
    Transport,
    due_ms_of,
    expire_after_ms_of,
    key_of,
    payload_of,
    target_of,
)
from tests.support.eventually import until
from tests.unit.hourwheel.integrations.conftest import LocalBridge

TASKS = Queue("tasks", Exchange("tasks"), routing_key="tasks")


@contextmanager
def connected(local: LocalBridge, **options: Any) -> Iterator[Connection]:
    class Local(Transport):
        open_bridge = staticmethod(local.open_bridge)

    host, _, port = local.node.address.partition(":")
    with Connection(
        hostname=host, port=int(port), transport=Local, transport_options=options
    ) as found:
        yield found


def take(connection: Connection, *queues: Queue, count: int = 1, **settings: Any) -> list[Any]:
    """What comes, not acknowledged."""
    found: list[Any] = []
    with Consumer(connection, list(queues), on_message=found.append, accept=["json"], **settings):
        while len(found) < count:
            connection.drain_events(timeout=30)
    return found


async def test_task_has_its_due_time_and_its_id_as_the_key(local: LocalBridge) -> None:
    def work() -> None:
        with connected(local) as connection:
            headers = {"eta": "2099-01-02T03:04:05.000678+00:00", "id": "t-1"}
            Producer(connection).publish({"n": 1}, routing_key="tasks", headers=headers)
            Producer(connection).publish({"n": 2}, routing_key="tasks")
            (late, soon) = take(connection, TASKS, count=2)
            assert (late.payload, late.headers["eta"]) == ({"n": 1}, None)
            assert late.headers["hourwheel_eta"] == headers["eta"]
            assert soon.payload == {"n": 2}
            late.ack()
            soon.ack()

    await asyncio.to_thread(work)
    late, soon = local.node.messages
    due = datetime(2099, 1, 2, 3, 4, 5, 1_000, tzinfo=UTC)
    assert (late.topic, late.due_ms) == ("tasks", int(due.timestamp() * 1_000))
    assert decode(late.blob[: late.meta_bytes]).keys == ("t-1",)
    assert decode(soon.blob[: soon.meta_bytes]).keys == ()
    await local.done()
    assert local.node.acked() == {late.body, soon.body}


async def test_task_has_its_priority(local: LocalBridge) -> None:
    def work() -> None:
        with connected(local) as connection:
            for priority in (None, 7, 200):
                Producer(connection).publish({}, routing_key="tasks", priority=priority)
                Producer(connection).maybe_declare(TASKS)
            for message in take(connection, TASKS, count=3):
                message.ack()

    await asyncio.to_thread(work)
    metas = [decode(one.blob[: one.meta_bytes]) for one in local.node.messages]
    assert [meta.priority for meta in metas] == [0, 7, 9], "at most what Celery knows"
    await local.done()


async def test_task_has_its_expiry(local: LocalBridge) -> None:
    def work() -> None:
        with connected(local) as connection:
            producer = Producer(connection)
            producer.maybe_declare(TASKS)
            late = {"eta": "2099-01-02T03:04:05+00:00", "id": "t-1"}
            producer.publish({}, routing_key="tasks")
            producer.publish({}, routing_key="tasks", expiration=90)
            producer.publish({}, routing_key="tasks", expiration=90, headers=late)

    await asyncio.to_thread(work)
    metas = [decode(one.blob[: one.meta_bytes]) for one in local.node.messages]
    assert [meta.expires_ms for meta in metas] == [0, -90_000, 0], "the last one: when it arrives"
    await local.done()


async def test_no_more_is_held_than_the_prefetch_count(local: LocalBridge) -> None:
    def work() -> None:
        with connected(local) as connection:
            for number in range(5):
                Producer(connection).publish(number, routing_key="tasks")
            found: list[Any] = []
            consumer = Consumer(connection, [TASKS], on_message=found.append, prefetch_count=2)
            with consumer:
                connection.drain_events(timeout=30)
                connection.drain_events(timeout=30)
                assert connection.transport.bridge.call("size", topic="none", group="g")
                with pytest.raises(socket.timeout):
                    connection.drain_events(timeout=0.01)
                found[0].ack()
                connection.drain_events(timeout=30)
                assert [one.payload for one in found] == [0, 1, 2]
                consumer.qos(prefetch_count=4)
                connection.drain_events(timeout=30)
                connection.drain_events(timeout=30)

    await asyncio.to_thread(work)
    assert all(request.max_messages <= 4 for request in local.node.calls["Receive"])


async def test_what_is_held_comes_again_when_it_is_requeued_or_the_connection_ends(
    local: LocalBridge,
) -> None:
    def work() -> None:
        with connected(local) as connection:
            Producer(connection).publish("a", routing_key="tasks")
            (first,) = take(connection, TASKS)
            assert not first.delivery_info["redelivered"]
            first.requeue()
            (second,) = take(connection, TASKS)
            assert second.delivery_info["redelivered"]
        with connected(local) as connection:
            (third,) = take(connection, TASKS)
            third.ack()

    await asyncio.to_thread(work)
    await local.done()
    (message,) = local.node.messages
    assert message.attempt == 3
    assert local.node.acked() == {message.body}


def dead_letters(local: LocalBridge) -> list[str]:
    """Why each is one."""
    return [one.reason for one in local.node.calls["Nack"] if one.dead_letter]


async def test_what_is_rejected_is_a_dead_letter_that_says_which_task_it_is(
    local: LocalBridge,
) -> None:
    def work() -> None:
        with connected(local) as connection:
            Producer(connection).publish("a", routing_key="tasks", headers={"task": "shop.gone"})
            Producer(connection).publish("b", routing_key="tasks")
            for found in take(connection, TASKS, count=2, prefetch_count=2):
                found.reject()
            Producer(connection).publish("c", routing_key="tasks")
            (third,) = take(connection, TASKS, prefetch_count=2)
            third.ack()

    await asyncio.to_thread(work)
    await local.done()
    assert dead_letters(local) == [
        "its worker, whose log says why, rejected task shop.gone",
        "its worker, whose log says why, rejected it",
    ]
    assert local.node.acked() == {local.node.messages[2].body}
    assert all(one.attempt == 1 for one in local.node.messages)


async def test_what_cannot_be_rejected_comes_again_when_its_lease_ends(
    local: LocalBridge, caplog: pytest.LogCaptureFixture
) -> None:
    local.node.fail_next("Nack", errors.PermissionDenied("no"))

    def work() -> None:
        with connected(local) as connection:
            Producer(connection).publish("a", routing_key="tasks")
            (found,) = take(connection, TASKS)
            found.reject()

    await asyncio.to_thread(work)
    await local.done()
    assert "comes again" in caplog.text
    assert local.node.acked() == set()


async def test_message_that_is_damaged_is_a_dead_letter_and_the_next_one_comes(
    local: LocalBridge, caplog: pytest.LogCaptureFixture
) -> None:
    """It takes none of the places that a consumer has, of which this one has one."""

    def work() -> None:
        with connected(local) as connection:
            producer = Producer(connection)
            for number in range(4):
                producer.publish({"n": number}, routing_key="tasks")
            for number in (0, 2):
                local.node.messages[number].crc ^= 1
            (second,) = take(connection, TASKS, prefetch_count=1)
            assert second.payload == {"n": 1}
            second.ack()
            fourth = connection.default_channel.basic_get("tasks")
            assert json.loads(fourth.body) == {"n": 3}

    await asyncio.to_thread(work)
    await local.done()
    assert [one.partition(":")[0] for one in dead_letters(local)] == ["InvalidBatch"] * 2
    assert caplog.text.count("is a dead letter") == 2


async def test_deliveries_that_are_damaged_on_the_way_are_waited_for(local: LocalBridge) -> None:
    local.node.damage_next_delivery = True

    def work() -> None:
        with connected(local) as connection:
            for number in range(2):
                Producer(connection).publish({"n": number}, routing_key="tasks")
            (second,) = take(connection, TASKS, prefetch_count=1)
            assert second.payload == {"n": 1}

    await asyncio.to_thread(work)


@pytest.mark.parametrize(
    "body",
    [
        b"\xff",
        b'{"properties": {}, "headers": [1]}',
        b'{"properties": {"body_encoding": "base64"}, "body": "x"}',
        b'{"properties": {"body_encoding": "rot13"}, "body": "x"}',
        b'{"properties": {"body_encoding": 3}, "body": "x"}',
        b'{"properties": {"delivery_info": []}, "body": "x"}',
    ],
)
async def test_what_others_have_published_is_there_to_be_rejected(
    local: LocalBridge, body: bytes
) -> None:
    local.node.add_topic("tasks", body)

    def work() -> None:
        with connected(local) as connection:
            (found,) = take(connection, TASKS)
            assert (found.headers, found.content_type) == ({}, "application/data")
            found.reject()

    await asyncio.to_thread(work)
    await local.done()
    assert dead_letters(local) == ["its worker, whose log says why, rejected it"]


async def test_messages_are_fetched_one_by_one(local: LocalBridge) -> None:
    def work() -> None:
        with connected(local) as connection:
            queue = connection.SimpleQueue("simple")
            queue.put({"n": 1})
            found = queue.get(timeout=30)
            assert found.payload == {"n": 1}
            found.ack()
            channel = connection.default_channel
            Producer(connection).publish("x", routing_key="tasks")
            assert channel.basic_get("tasks", no_ack=True).payload == "x"
            assert channel.basic_get("tasks") is None
            queue.close()

    await asyncio.to_thread(work)
    await local.done()
    assert len(local.node.acked()) == 2


async def test_what_was_given_back_is_there_for_the_next_fetch(local: LocalBridge) -> None:
    asked = threading.Event()

    def work() -> None:
        with connected(local) as connection, ThreadPoolExecutor(1) as fetching:
            channel = connection.default_channel
            Producer(connection).publish("x", routing_key="tasks")
            channel.basic_get("tasks").requeue()
            fetch = fetching.submit(channel.basic_get, "tasks")
            channel.queue_declare("tasks", passive=True)  # as long as a fetch would take
            asked.set()
            assert fetch.result(30).delivery_info["redelivered"]

    with local.node.hold("Nack"):
        working = asyncio.create_task(asyncio.to_thread(work))
        await until(asked.is_set)
    await working


async def test_what_is_broadcast_comes_by_any_channel_of_the_connection(local: LocalBridge) -> None:
    exchange = Exchange("news", type="fanout")
    queue = Queue("readers", exchange)

    def work() -> None:
        with connected(local) as connection, connection.channel() as channel:
            Producer(channel, exchange).publish("x", declare=[queue])
            (found,) = take(connection, queue)
            found.ack()

    await asyncio.to_thread(work)
    assert [one.topic for one in local.node.messages] == ["fanout.news"]


async def test_size_is_what_is_released_and_not_leased(local: LocalBridge) -> None:
    def work() -> None:
        with connected(local) as connection:
            declare = connection.default_channel.queue_declare
            assert declare("none", passive=True).message_count == 0
            assert declare("fresh", passive=True).message_count == 5
            take_none = Consumer(connection, [Queue("orders")], on_message=print)
            with take_none:
                assert declare("orders", passive=True).message_count == 10
            assert declare("orders").message_count == 0

    local.node.topics.update(orders=1, fresh=1)
    await asyncio.to_thread(work)


async def test_what_is_broadcast_goes_to_groups_of_their_own_that_end_with_the_connection(
    local: LocalBridge,
) -> None:
    mailbox = Mailbox("celery", type="fanout", accept=["json"])

    def work() -> None:
        with connected(local) as worker, connected(local) as client:
            node = mailbox(worker).Node("celery@host", channel=worker.default_channel)
            node.handlers["ping"] = lambda state: {"ok": "pong"}
            consumer = node.listen()
            asked = mailbox(client)
            asked.cast(None, "ping")
            worker.drain_events(timeout=30)
            with ThreadPoolExecutor(1) as asking:
                asked_for = asking.submit(asked.multi_call, "ping", timeout=30, limit=1)
                worker.drain_events(timeout=30)
            replies = asked_for.result()
            assert replies == [{"celery@host": {"ok": "pong"}}]
            assert "celery|40host.celery.pidbox" in local.node.groups
            consumer.cancel()

    await asyncio.to_thread(work)
    await local.done()
    assert [one for one in local.node.groups if one != "celery"] == []
    assert {one.topic for one in local.node.messages if "reply" not in one.topic} == {
        "fanout.celery.pidbox"
    }


async def test_revoking_cancels_by_the_ids_of_tasks(local: LocalBridge) -> None:
    mailbox = Mailbox("celery", type="fanout", accept=["json"])

    def work() -> None:
        with connected(local) as connection:
            TASKS(connection.default_channel).declare()
            bound = mailbox(connection)
            bound.cast(None, "revoke", {"task_id": ["t-1", "t-2"], "terminate": False})
            bound.cast(None, "revoke", {"task_id": "t-3"})
            bound.cast(None, "revoke", {})
            bound.cast(None, "rate_limit", {"task_id": "t-4"})

    await asyncio.to_thread(work)
    keys = [list(one.keys) for one in local.node.calls["Cancel"]]
    assert sorted({tuple(one) for one in keys}) == [("t-1", "t-2"), ("t-3",)]
    assert "tasks" in {one.topic for one in local.node.calls["Cancel"]}
    assert len(local.node.messages) == 4


async def test_very_many_tasks_are_revoked_at_one_time(local: LocalBridge) -> None:
    """More ids than a request to the bridge process has room for."""
    ids = [f"{number:036}" for number in range(30_000)]

    def work() -> None:
        with connected(local) as connection:
            TASKS(connection.default_channel).declare()
            Mailbox("celery", type="fanout", accept=["json"])(connection).cast(
                None, "revoke", {"task_id": ids}
            )

    await asyncio.to_thread(work)
    cancelled = [key for one in local.node.calls["Cancel"] for key in one.keys]
    assert sorted(set(cancelled)) == ids
    assert len(local.node.messages) == 1


async def test_events_go_to_all_who_listen_where_that_is_asked_for(local: LocalBridge) -> None:
    events = Exchange("celeryev", type="topic")

    def work() -> None:
        for has_events in (False, True):
            with connected(local, events=has_events) as connection:
                Producer(connection, events).publish({"type": "x"}, routing_key="worker.x")

    await asyncio.to_thread(work)
    assert [one.topic for one in local.node.messages] == ["fanout.celeryev"]


async def test_message_that_is_too_large_is_refused_and_the_connection_goes_on(
    local: LocalBridge,
) -> None:
    def work() -> None:
        with connected(local) as connection:
            producer = Producer(connection)
            with pytest.raises(errors.MessageTooLarge):
                producer.publish("x" * 5_000_000, routing_key="tasks")
            with pytest.raises(errors.InvalidDueTime, match="no instant"):
                producer.publish("x", routing_key="tasks", headers={"eta": "soon"})
            with pytest.raises(errors.InvalidTopic):
                producer.publish("x", routing_key="q" * 200)
            with pytest.raises(errors.InvalidArgument):
                producer.publish("x", routing_key="tasks", headers={"id": "k" * 300})
            producer.publish("y", routing_key="tasks")

    await asyncio.to_thread(work)
    assert len(local.node.messages) == 1


async def test_node_that_knows_who_it_is_and_says_no_is_there(local: LocalBridge) -> None:
    local.node.fail_next("GetStatus", *[errors.PermissionDenied("no")] * 2)

    def work() -> None:
        with connected(local) as connection:
            connection.ensure_connection(max_retries=1)

    await asyncio.to_thread(work)


async def test_node_that_knows_nobody_refuses(local: LocalBridge) -> None:
    local.node.fail_next("GetStatus", *[errors.Unauthenticated("who?")] * 9)

    def refused() -> None:
        with connected(local) as connection, pytest.raises(errors.Unauthenticated):
            connection.connect()

    await asyncio.to_thread(refused)


async def test_consumer_is_told_when_it_may_not_receive(local: LocalBridge) -> None:
    local.node.fail_next("Receive", errors.PermissionDenied("no"))

    def work() -> None:
        with connected(local) as connection, pytest.raises(errors.PermissionDenied):
            take(connection, TASKS)

    await asyncio.to_thread(work)


@pytest.mark.parametrize(
    ("eta", "due_ms"),
    [
        (None, None),
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T00:00:01.000001+00:00", 1_001),
        ("1970-01-01T01:00:01+01:00", 1_000),
        ("1970-01-01T01:00:01", 1_000),
        (datetime(1970, 1, 1, tzinfo=timezone(timedelta(hours=-1))), 3_600_000),
    ],
)
def test_due_time_is_rounded_up(eta: object, due_ms: int | None) -> None:
    assert due_ms_of(eta, lambda: ZoneInfo("Europe/Berlin")) == due_ms


@pytest.mark.parametrize("eta", ["tomorrow", "", 17, "2099-13-01", b"x"])
def test_due_time_is_refused_when_it_is_no_instant(eta: object) -> None:
    with pytest.raises(errors.InvalidDueTime):
        due_ms_of(eta)


@pytest.mark.parametrize(
    ("expiration", "due_ms", "after_ms"),
    [
        (None, None, None),
        ("1500", None, 1_500),
        ("0", None, 1),
        ("1500", 6_000, 500),
        ("1500", 6_500, None),
        ("1500", 9_000, None),
    ],
)
def test_expiry_is_counted_from_the_due_time(
    expiration: object, due_ms: int | None, after_ms: int | None
) -> None:
    assert expire_after_ms_of(expiration, due_ms, 5_000.0) == after_ms


def test_expiry_is_refused_when_it_is_no_number() -> None:
    with pytest.raises(errors.InvalidArgument):
        expire_after_ms_of("soon", None, 5_000.0)


def test_key_is_the_id_of_a_task() -> None:
    assert [key_of({"id": "a"}), key_of({}), key_of({"id": 3})] == ["a", "", ""]


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff", b"[]", b"{}", b'{"properties": 3}', b'{"properties": {"delivery_info": 3}}'],
)
def test_what_others_have_published_has_no_headers(body: bytes) -> None:
    found = payload_of(Frame({"tag": 7, "attempt": 1}, body))
    assert (found["headers"], found["properties"]["delivery_tag"]) == ({}, "7")


@pytest.mark.parametrize(
    ("url", "settings", "servers"),
    [
        ("hourwheel://", {}, "localhost:7400"),
        ("hourwheel://a:1//", {}, "a:1"),
        ("hourwheel://u:p%40@a:1;hourwheel://b:2;c:3", {}, "a:1,b:2,c:3"),
        ("hourwheel://[::1]:9", {}, "[::1]:9"),
    ],
)
def test_url_names_nodes(url: str, settings: dict[str, Any], servers: str) -> None:
    connection = Connection(url, **settings)
    found = target_of(connection)
    assert found.servers == servers
    assert found.user == (("u", "p@") if "@" in url else None)
    assert (found.tls, found.invisible_ms) == (None, 60_000)


def test_options_say_how_to_connect() -> None:
    files = {"ca_certs": "ca.pem", "certfile": None, "keyfile": None}
    options = {"visibility_timeout": 1.5}
    found = target_of(Connection("hourwheel://a:1", ssl=files, transport_options=options))
    assert found.tls == {"ca": "ca.pem", "cert": None, "key": None}
    assert found.invisible_ms == 1_500
    assert found.connect_ms == 5_000
    assert target_of(Connection("hourwheel://a:1", connect_timeout=0.5)).connect_ms == 500
    assert target_of(Connection("hourwheel://a:1", ssl=True)).tls is True
    with pytest.raises(errors.InvalidArgument, match="no host:port"):
        target_of(Connection("hourwheel://a:1;hourwheel://b:x"))


def test_message_that_came_before_says_so() -> None:
    message = json.dumps({"properties": {}, "headers": None}).encode()
    found = payload_of(Frame({"tag": 1, "attempt": 2}, message))
    assert found["properties"]["delivery_info"] == {"redelivered": True}
