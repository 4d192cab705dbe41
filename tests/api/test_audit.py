"""The audit log of a served API: one event for each call, however it came."""

import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from hourwheel.v1 import admin_pb2
from hourwheel.v1.broker_pb2 import CancelRequest
from hourwheel.v1.session_pb2 import SessionCall, SessionRequest
from node.contracts.access import AccessPolicy
from tests.support.api_world import ApiWorld, refused
from tests.support.callers import identify
from tests.support.embedded_node import EmbeddedNode

ADMIN = "hourwheel.v1.AdminService."
ROOT = (("who", "root"),)
EVE = (("who", "eve"),)
ON = AccessPolicy(is_on=True, administrators=frozenset({"root"}))


def audited(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    found: list[Any] = [record.msg for record in caplog.records]
    return [one for one in found if isinstance(one, dict) and one["event"] == "call_audited"]


def told(event: dict[str, Any]) -> tuple[Any, ...]:
    named = [f"{one['kind']} {one['name']}" for one in event["resources"]]
    return event["principal"], event["principal_method"], event["method"], named, event["outcome"]


async def answers(session: Any) -> None:
    """Read until there are any."""
    while not (await session.read()).answers:
        pass


async def test_administrative_call_is_one_event_whether_access_control_is_on_or_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    create = admin_pb2.CreateTopicRequest(name="orders")
    delete = admin_pb2.DeleteTopicRequest(name="gone")
    async with ApiWorld(identify=identify) as world:
        await world.admin.CreateTopic(create)
        await world.publish(b"the body")
        await world.admin.GetTopic(admin_pb2.GetTopicRequest(name="orders"))
        world.access.replace(ON)
        await world.admin.CreateTopic(create, metadata=ROOT)
        outcome = (await refused(world.admin.DeleteTopic(delete, metadata=ROOT))).reason
        await refused(world.admin.DeleteTopic(delete, metadata=EVE))
    events = audited(caplog)
    assert [told(event) for event in events] == [
        ("", "anonymous", ADMIN + "CreateTopic", ["topic orders"], "OK"),
        ("root", "user", ADMIN + "CreateTopic", ["topic orders"], "OK"),
        ("root", "user", ADMIN + "DeleteTopic", ["topic gone"], outcome),
        ("eve", "user", ADMIN + "DeleteTopic", ["topic gone"], "PERMISSION_DENIED"),
    ]
    assert all(event["peer"].startswith("ipv4:127.0.0.1:") for event in events)
    named = [{"name": name} for name in ("orders", "orders", "gone")]
    assert [event["changed"] for event in events] == [*named, {}]
    assert "the body" not in str(events)


async def test_refused_calls_of_a_session_and_strangers_are_events(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cancel = CancelRequest()
    async with ApiWorld(identify=identify) as world:
        world.access.replace(ON)
        await refused(
            world.admin.GetStatus(admin_pb2.GetStatusRequest(), metadata=(("who", "liar"),))
        )
        with pytest.raises(grpc.aio.AioRpcError):
            await answers(world.sessions.Session())
        session = world.sessions.Session(metadata=EVE)
        await session.write(SessionRequest(calls=[SessionCall(call_id=1, cancel=cancel)]))
        await answers(session)
        session.cancel()
    strange = "PERMISSION_DENIED"
    assert [told(event) for event in audited(caplog)] == [
        ("", "anonymous", ADMIN + "GetStatus", [], strange),
        ("", "anonymous", "hourwheel.v1.SessionService.Session", [], strange),
        ("eve", "user", "hourwheel.v1.ProducerService.Cancel", ["topic *"], strange),
    ]


async def test_node_writes_the_file_that_its_configuration_names(tmp_path: Path) -> None:
    path = tmp_path / "audit.json"
    async with EmbeddedNode(tmp_path / "node", {"access": {"audit_file": str(path)}}) as node:
        channel = grpc.aio.insecure_channel(node.address)
        create: Any = channel.unary_unary(f"/{ADMIN[:-1]}/CreateTopic")
        request = admin_pb2.CreateTopicRequest(name="orders")
        await create(request.SerializeToString())
        await channel.close()
    (line,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert told(line) == ("", "anonymous", ADMIN + "CreateTopic", ["topic orders"], "OK")
    assert line["event"] == "call_audited"
