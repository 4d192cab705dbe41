"""Whoever may not ask for a thing is not told whether it is there: by no call of any port.

Each test walks a table: the API's descriptors, the gateway's routes, the console's. So a call that
is new is walked, too, or fails here until it has an example.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from grpc import aio

from hourwheel import Message
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.producer import AsyncProducer
from hourwheel.gateway.routes import ROUTES
from hourwheel.v1 import admin_pb2, groups_pb2
from hourwheel.v1.session_pb2 import SessionCall, SessionRequest
from node.access.permissions import RULES
from node.console.api import Api
from node.contracts.access import AccessPolicy, Grant, Operation, ResourceKind
from tests.api.test_http_access import administered, basic, grant_each, values_of
from tests.support.api_world import ApiWorld
from tests.support.callers import identify
from tests.support.console_client import ConsoleClient
from tests.support.embedded_node import EmbeddedNode
from tests.support.http_world import HttpWorld
from tests.support.tokens import Signer
from tests.unit.node.access.test_permissions import METHODS

THERE: Final = "exist"
GONE: Final = "fifth"
"""As long, so that answers are."""
KINDS: Final = (ResourceKind.TOPIC, ResourceKind.GROUP)
ALL: Final = frozenset(Operation)
GRANTS: Final[Mapping[str, Iterable[tuple[str, ResourceKind, frozenset[Operation]]]]] = {
    "": (),
    "bob": (),
    "alice": [("orders", kind, ALL) for kind in KINDS],
    **{f"only-{kind}s": [("*", kind, ALL)] for kind in KINDS},
    **{f"only-{one}": [("*", kind, frozenset({one})) for kind in KINDS] for one in Operation},
}
"""Caller of the API -> what it may."""
POLICY: Final = AccessPolicy(
    is_on=True,
    grants=tuple(
        Grant(who, operations, kind, name)
        for who, given in GRANTS.items()
        for name, kind, operations in given
    ),
)
ONLY: Final = [f"only-{one}" for one in Operation]
Told = Callable[[str, str], Awaitable[str]]
"""(caller, which of the two) -> all that it is told, and what was done for it."""


async def assert_refusals_are_the_same(
    told: Told, strangers: Iterable[str], others: Iterable[str]
) -> None:
    """`strangers` may nothing, and are told nothing; `others` where they are refused."""
    for who in strangers:
        assert await told(who, THERE) == await told(who, GONE), who
    for who in others:
        there, gone = await told(who, THERE), await told(who, GONE)
        if "PERMISSION_DENIED" in there + gone:
            assert there == gone, who


def named(request: Any, name: str) -> Any:
    """The request, with this name in each field that is a text, of what is in it, too."""
    for field in request.DESCRIPTOR.fields:
        value = getattr(request, field.name)
        if field.type == field.TYPE_STRING and field.is_repeated:
            value[:] = [name]
        elif field.type == field.TYPE_STRING:
            setattr(request, field.name, name)
        elif (
            field.type == field.TYPE_MESSAGE
            and not field.is_repeated
            and value.DESCRIPTOR.full_name.startswith("hourwheel.")
        ):
            named(value, name).SetInParent()
    return request


class Walk:
    """Calls of methods by hand, in the name of any caller, and all that each is told."""

    def __init__(self, world: ApiWorld, method: str) -> None:
        self._world, self._descriptor = world, METHODS[method]
        service, _, last = method.rpartition(".")
        self._path = f"/{service}/{last}"

    async def fill(self) -> None:
        world = self._world
        await world.admin.CreateTopic(admin_pb2.CreateTopicRequest(name=THERE))
        await world.admin.PutGroup(admin_pb2.PutGroupRequest(name=THERE))
        world.access.replace(POLICY)

    async def unary(self, who: str, name: str) -> str:
        request = GetMessageClass(self._descriptor.input_type)
        call: Any = self._world.channel.unary_unary(
            self._path, request_serializer=request.SerializeToString
        )

        async def ask() -> Any:
            return await call(named(request(), name), metadata=(("who", who),), timeout=60)

        return await self._told(ask, name)

    async def stream(self, who: str, name: str, request: Any) -> str:
        """The first answers to this request.

        By gRPC's blocking client: that of asyncio can lose how a stream has ended while it writes.
        """
        answer = GetMessageClass(self._descriptor.output_type)

        def ask() -> list[Any]:
            with grpc.insecure_channel(self._world.address) as channel:
                call: Any = channel.stream_stream(
                    self._path,
                    request_serializer=type(request).SerializeToString,
                    response_deserializer=answer.FromString,
                )
                return list(call(iter([request]), metadata=(("who", who),), timeout=60))

        return await self._told(lambda: asyncio.to_thread(ask), name)

    async def _told(self, ask: Callable[[], Awaitable[Any]], name: str) -> str:
        before = len(self._world.engine.calls)
        try:
            found = str(await ask())
        except grpc.RpcError as refused:
            error: Any = refused  # of either client: what both have is not in gRPC's base class
            sent = [*(error.initial_metadata() or ()), *(error.trailing_metadata() or ())]
            found = str([error.code(), error.details(), sorted(map(str, sent))])
        return f"{found} {len(self._world.engine.calls) - before}".replace(name, "it")


@pytest.mark.parametrize("method", [one for one in RULES if not METHODS[one].client_streaming])
async def test_unary_method_says_nothing_to_whom_it_refuses(method: str) -> None:
    async with ApiWorld(identify=identify) as world:
        walk = Walk(world, method)
        await walk.fill()
        assert "PERMISSION_DENIED" in await walk.unary("", THERE)
        await assert_refusals_are_the_same(walk.unary, ("", "bob"), GRANTS)


@pytest.mark.parametrize("method", [one for one in RULES if METHODS[one].client_streaming])
async def test_stream_says_nothing_to_whom_it_refuses(method: str) -> None:
    request_type: Any = GetMessageClass(METHODS[method].input_type)
    async with ApiWorld(identify=identify) as world:
        walk = Walk(world, method)
        await walk.fill()

        async def told(who: str, name: str) -> str:
            return await walk.stream(who, name, named(request_type(), name))

        assert "PERMISSION_DENIED" in await told("", THERE)
        await assert_refusals_are_the_same(told, ("", "bob"), GRANTS)


ASKED: Final[Mapping[str, Mapping[str, Any]]] = {
    "DiscardDamaged": {"all": True},
    "ResetGroup": {"to": groups_pb2.START_AT_FIRST, "count_only": True},
    "RedriveDeadLetters": {"message_ids": ["0" * 48]},
}
"""What requests need that a name alone does not make whole."""
HALVES: Final = {
    f"{kind}s-{'-'.join(operations)}": (kind, frozenset(operations))
    for kind in KINDS
    for operations in [*((one,) for one in Operation), tuple(Operation)]
}
"""Caller -> what it may on all things of one kind; nothing on those of the other."""


def asked_of(method: str, topic: str, group: str) -> Any:
    """A request that is about these."""
    descriptor = METHODS[method].input_type

    def filled_in(request: Any) -> Any:
        for field in request.DESCRIPTOR.fields:
            value = getattr(request, field.name)
            text = {"topic": topic, "topics": topic, "group": group}.get(field.name, "")
            if field.name == "name":
                text = topic if "Topic" in method else group if "Group" in method else "it"
            if field.type == field.TYPE_STRING and text:
                if field.is_repeated:
                    value[:] = [text]
                else:
                    setattr(request, field.name, text)
            elif (
                field.type == field.TYPE_MESSAGE
                and field.is_repeated
                and "topic" in field.message_type.fields_by_name
            ):
                filled_in(value.add())
        return request

    more = ASKED.get(method.rpartition(".")[2], {})
    return filled_in(GetMessageClass(descriptor)(**more))


async def test_who_may_on_one_kind_is_told_nothing_of_the_other(tmp_path: Path) -> None:
    """By a node with all that is in it: what a call needs is asked, and what it finds out, too."""
    base = {"disk": {"free_bytes_min": 0}}
    async with EmbeddedNode(tmp_path, base) as node, AsyncAdmin(node.address) as admin:
        for name in ("group", THERE):
            await admin.create_topic(name.replace("group", "topic"))
            await admin.put_group(name)
        await admin.put_user("root", "secret")
        for who, (kind, operations) in HALVES.items():
            await admin.put_user(who, "secret")
            await admin.grant(who, operations, kind, "*")
    on = {**base, "access": {"is_on": True, "administrators": "root"}}
    let_in: set[str] = set()
    async with EmbeddedNode(tmp_path, on) as node, aio.insecure_channel(node.address) as channel:

        async def told(who: str, method: str, request: Any) -> str:
            service, _, last = method.rpartition(".")
            call: Any = channel.unary_unary(f"/{service}/{last}")
            login = (("authorization", basic(who, "secret")),)
            try:
                return str(await call(request.SerializeToString(), metadata=login, timeout=60))
            except aio.AioRpcError as error:
                if error.code() != grpc.StatusCode.PERMISSION_DENIED:
                    let_in.add(last)
                sent = sorted(map(str, error.trailing_metadata() or ()))
                return str([error.code(), error.details(), sent])

        for method in [one for one in RULES if not METHODS[one].client_streaming]:
            for who, (kind, _) in HALVES.items():
                is_of_groups = kind is ResourceKind.GROUP
                there, gone = (
                    asked_of(method, *((name, "group") if is_of_groups else ("topic", name)))
                    for name in (THERE, GONE)
                )
                if there != gone:
                    answers = await told(who, method, there), await told(who, method, gone)
                    told_there, told_gone = answers
                    assert told_there.replace(THERE, GONE) == told_gone, (method, who)
    assert not let_in


@pytest.mark.parametrize("call", [one.name for one in SessionCall.DESCRIPTOR.oneofs[0].fields])
async def test_call_of_a_session_says_nothing_to_whom_it_refuses(call: str) -> None:
    async with ApiWorld(identify=identify) as world:
        walk = Walk(world, "hourwheel.v1.SessionService.Session")
        await walk.fill()

        async def told(who: str, name: str) -> str:
            asked = SessionCall(call_id=1)
            named(getattr(asked, call), name).SetInParent()
            return await walk.stream(who, name, SessionRequest(calls=[asked]))

        for who in ("", "bob", "alice"):
            assert "PERMISSION_DENIED" in await told(who, THERE)
        await assert_refusals_are_the_same(told, ("", "bob"), GRANTS)


async def published_id(address: str, secret: str) -> str:
    """Of a message for tomorrow, with the key of the routes' examples."""
    message = Message(b"x", delay_ms=86_400_000, keys=["order-17"])
    async with AsyncProducer(address, user=("root", secret)) as producer:
        return str(await producer.publish(THERE, message))


async def test_route_of_the_gateway_says_nothing_to_whom_it_refuses(tmp_path: Path) -> None:
    async with HttpWorld(
        tmp_path, values_of(tmp_path, Signer.new()), call_timeout_ms=3_000
    ) as world:
        await administered(world, grant_each)
        async with AsyncAdmin(world.node.address, user=("root", "secret")) as admin:
            await admin.put_group(THERE)
        ids = {THERE: await published_id(world.node.address, "secret"), GONE: "0" * 48}
        for route in ROUTES:

            async def told(who: str, name: str, route: Any = route) -> str:
                path = route.path.format(topic=name, group=name, id=ids[name])
                body = json.dumps(route.example).replace("orders", name)
                body = body.replace("0" * 48, ids[name])
                answer = await world.ask(
                    route.method,
                    f"{path}?key=order-17" if route.query else path,
                    None if route.body is None else body.encode(),
                    content_type="application/json",
                    authorization=basic(who, "guessed" if who == "nobody" else "secret"),
                )
                sent = {key: text for key, text in answer.headers.items() if key != "date"}
                sent.pop("content-length")
                found = f"{answer.status} {sorted(sent.items())} {answer.raw.decode()}"
                return found.replace(ids[name], "id").replace(name, "it")

            assert "UNAUTHENTICATED" in await told("nobody", THERE), route.name
            assert "PERMISSION_DENIED" in await told("eve", THERE), route.name
            await assert_refusals_are_the_same(told, ("nobody", "eve"), ONLY)


EXAMPLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "cluster": {},
    "wheel": {"from_ms": 0, "step_ms": 60_000, "count": 10},
    "topics": {"search": "{name}"},
    "groups": {"search": "{name}"},
    "access": {"search": "{user}"},
    "message": {"id": "{id}"},
    "pending": {"topic": "{name}"},
    "operation": {"number": "{number}"},
    "publish": {"topic": "{name}", "body": "x", "delay_ms": 86_400_000},
    "cancel": {"message_id": "{id}"},
    "count": {"topic": "{name}"},
    "cancel-counted": {"number": "{number}"},
    "stop": {"number": "{number}"},
    "transfer": {"to": "{node}", "epoch": 1},
    "grant": {
        "principal": "{user}",
        "kind": "topic",
        "resource": "{name}",
        "operations": ["look"],
        "expected_version": 0,
    },
    "revoke": {"principal": "{user}", "kind": "topic", "resource": "{name}", "expected_version": 1},
    "retention": {"topic": "{name}", "retention_ms": 86_400_000, "expected_version": 1},
    "count-reset": {"group": "{name}", "topic": "{name}", "to": "first"},
    "reset": {"group": "{name}", "topic": "{name}", "to": "now"},
}
"""Call of the console -> what is given; in braces what there is of it, or is not."""


def filled(example: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers stay numbers."""
    return {
        field: values.get(str(given)[1:-1], given) if isinstance(given, str) else given
        for field, given in example.items()
    }


async def test_call_of_the_console_says_nothing_to_whom_it_refuses(tmp_path: Path) -> None:
    assert EXAMPLES.keys() == Api.READS.keys() | Api.CHANGES.keys()
    base = {"console": {"listen": "127.0.0.1:0"}, "disk": {"free_bytes_min": 0}}
    async with EmbeddedNode(tmp_path, base) as node, AsyncAdmin(node.address) as admin:
        for who in ("root", "eve", *ONLY):
            await admin.put_user(who, "secret")
        for one in Operation:
            await admin.grant(f"only-{one}", [one], "topic", "*")
        await admin.put_group(THERE)
    on = {**base, "access": {"is_on": True, "administrators": "root"}}
    async with EmbeddedNode(tmp_path, on) as node:
        consoles = {
            who: await ConsoleClient(node.console_address, (who, "secret")).open()
            for who in ("root", "eve", *ONLY)
        }
        message_id = await published_id(node.address, "secret")
        for _ in range(9):  # more than others will have, each of whom counts from 1
            _, counting = await consoles["root"].post("count", {"topic": THERE})
        _, cluster = await consoles["root"].get("cluster")
        found = {
            THERE: {"number": counting["number"], "id": message_id, "user": "root"},
            GONE: {"number": 99, "id": "0" * 48, "user": "nobody"},
        }
        found[THERE] |= {"node": cluster["shard"]["master"], "name": THERE}
        found[GONE] |= {"node": "n99", "name": GONE}
        for name, example in EXAMPLES.items():

            async def told(who: str, which: str, name: str = name, example: Any = example) -> str:
                given = filled(example, found[which])
                if name in Api.CHANGES:
                    status, answer = await consoles[who].post(name, given)
                else:
                    query = "&".join(f"{field}={value}" for field, value in given.items())
                    status, answer = await consoles[who].get(f"{name}?{query}")
                answer.pop("poll_ms")
                if name == "count":
                    answer.pop("number", None)  # counts up
                text = f"{status} {answer}"
                for kind, value in found[which].items():
                    text = text.replace(str(value), f"<{kind}>") if kind != "number" else text
                return text

            if example:
                await assert_refusals_are_the_same(told, ("eve",), ONLY)
            assert THERE not in await told("eve", GONE), name
