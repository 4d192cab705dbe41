"""What the console shows of access, and changes: as whoever is logged in, and by nobody else."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Message
from hourwheel.client.access import Limits
from tests.support.console_client import ConsoleClient
from tests.support.embedded_node import EmbeddedNode

BASE: Final = {
    "console": {"listen": "127.0.0.1:0"},
    "disk": {"free_bytes_min": 0, "reserve_bytes": 0},
}
ON: Final = {**BASE, "access": {"is_on": True, "administrators": "root"}}
ORDERS: Final = {"kind": "topic", "resource": "orders"}
DAY_MS: Final = 86_400_000
PEOPLE: Final = ("root", "eve", "bob")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[EmbeddedNode]:
    """With users, made while access control was off."""
    async with EmbeddedNode(tmp_path, BASE) as open_node, AsyncAdmin(open_node.address) as admin:
        for name in PEOPLE:
            await admin.put_user(name, f"of {name}")
        await admin.put_quota("*", Limits(topics=3))
        await admin.create_topic("orders")
    async with EmbeddedNode(tmp_path, ON) as closed_node:
        yield closed_node


async def console_of(node: EmbeddedNode, name: str) -> ConsoleClient:
    return await ConsoleClient(node.console_address, (name, f"of {name}")).open()


def reason(answer: tuple[int, dict[str, Any]]) -> tuple[int, str]:
    return answer[0], answer[1]["error"]["reason"]


async def test_grants_users_and_quotas_are_shown_to_who_may_see_them(node: EmbeddedNode) -> None:
    root, eve = await console_of(node, "root"), await console_of(node, "eve")
    _, told = await root.get("access")
    assert (told["grants"], told["users_total"]) == ([], 3)
    (quota,) = told["quotas"]
    assert (quota["principal"], quota["limits"]["topics"]) == ("*", 3)
    assert quota["limits"]["groups"] is None
    given = {"principal": "eve", **ORDERS, "operations": ["look"], "expected_version": 0}
    assert (await root.post("grant", given))[0] == 200
    assert (await root.post("grant", {**given, "principal": "bob"}))[0] == 200
    _, told = await eve.get("access")
    assert [told[name] for name in ("grants", "users", "quotas")] == [None] * 3
    _, told = await root.get("access?search=BO")
    assert [one["principal"] for one in told["grants"]] == ["bob"]
    assert [one["name"] for one in told["users"]] == ["bob"]
    assert (told["grants_total"], told["quotas_total"]) == (1, 0)


async def test_a_grant_counts_at_once_and_no_more_when_it_is_revoked(
    node: EmbeddedNode, caplog: pytest.LogCaptureFixture
) -> None:
    root, eve = await console_of(node, "root"), await console_of(node, "eve")
    message = {"topic": "orders", "body": "x"}
    assert reason(await eve.post("publish", message)) == (403, "PERMISSION_DENIED")
    given = {"principal": "eve", **ORDERS, "operations": ["publish"], "expected_version": 0}
    _, granted = await root.post("grant", given)
    assert (await eve.post("publish", message))[0] == 200
    revoked = {"principal": "eve", **ORDERS, "expected_version": granted["version"]}
    assert (await root.post("revoke", revoked))[0] == 200
    assert reason(await eve.post("publish", message)) == (403, "PERMISSION_DENIED")
    assert reason(await root.post("revoke", revoked))[0] in {404, 409}
    logged: list[Any] = [one.msg for one in caplog.records if isinstance(one.msg, dict)]
    audited = [one for one in logged if one["event"] == "call_audited" and "Grant" in one["method"]]
    assert [(one["principal"], one["outcome"]) for one in audited][:2] == [("root", "OK")] * 2
    (noted,) = [one for one in logged if one["event"] == "console_granted"]
    assert (noted["principal"], noted["operations"]) == ("eve", ["publish"])


async def test_who_does_not_administer_grants_nothing_not_to_itself(node: EmbeddedNode) -> None:
    eve = await console_of(node, "eve")
    given = {"principal": "eve", **ORDERS, "operations": ["publish"], "expected_version": 0}
    assert reason(await eve.post("grant", given)) == (403, "PERMISSION_DENIED")
    assert reason(await eve.post("revoke", given)) == (403, "PERMISSION_DENIED")
    kept = {"topic": "orders", "retention_ms": DAY_MS, "expected_version": 1}
    refused = await eve.post("retention", kept)
    unknown = await eve.post("retention", {**kept, "topic": "nothing"})
    assert reason(refused) == (403, "PERMISSION_DENIED")
    assert [part.replace("nothing", "orders") for part in map(str, unknown)] == [
        str(part) for part in refused
    ], "no word about whether the topic exists"


async def test_a_change_of_what_has_changed_since_is_refused(node: EmbeddedNode) -> None:
    root = await console_of(node, "root")
    given = {"principal": "eve", **ORDERS, "operations": ["publish"], "expected_version": 0}
    _, first = await root.post("grant", given)
    assert reason(await root.post("grant", given)) == (409, "FAILED_PRECONDITION")
    later = {**given, "operations": ["look"], "expected_version": first["version"]}
    assert (await root.post("grant", later))[0] == 200
    assert reason(await root.post("revoke", later)) == (409, "FAILED_PRECONDITION")
    (topic,) = (await root.get("topics"))[1]["topics"]
    kept = {"topic": "orders", "retention_ms": DAY_MS, "expected_version": topic["version"]}
    status, told = await root.post("retention", kept)
    assert (status, told["retention_ms"]) == (200, DAY_MS)
    assert reason(await root.post("retention", kept)) == (409, "FAILED_PRECONDITION")
    (topic,) = (await root.get("topics"))[1]["topics"]
    assert topic["retention_ms"] == DAY_MS


async def test_who_administers_a_group_counts_and_then_lets_it_begin_anew(
    node: EmbeddedNode, caplog: pytest.LogCaptureFixture
) -> None:
    root, eve = await console_of(node, "root"), await console_of(node, "eve")
    options: dict[str, Any] = {"user": ("root", "of root")}
    async with (
        AsyncProducer(node.address, **options) as producer,
        AsyncConsumer(node.address, group="billing", topic="orders", **options) as consumer,
    ):
        await producer.publish_many("orders", [Message(b"a"), Message(b"b")])
        got: list[bytes] = []
        while len(got) < 2:
            messages = await consumer.receive(2, wait_ms=20_000)
            await consumer.ack(messages)
            got += [one.body for one in messages]
        asked = {"group": "billing", "topic": "orders", "to": "first"}
        for name in ("count-reset", "reset"):
            assert reason(await eve.post(name, asked)) == (403, "PERMISSION_DENIED")
        status, counted = await root.post("count-reset", asked)
        assert (status, counted["again_count"], counted["unresolved_count"]) == (200, 2, 2)
        async with AsyncAdmin(node.address, **options) as admin:
            assert (await admin.get_group("billing")).lags[0].unresolved_count == 0
        assert (await root.post("reset", asked))[0] == 200
        again = await consumer.receive(2, wait_ms=20_000)
        assert again[0].body == b"a"
    logged: list[Any] = [one.msg for one in caplog.records if isinstance(one.msg, dict)]
    (noted,) = [one for one in logged if one["event"] == "console_group_reset"]
    assert (noted["group"], noted["topic"], noted["again_count"]) == ("billing", "orders", 2)
    audited = [one for one in logged if one.get("method", "").endswith(".ResetGroup")]
    told = [(one["principal"], one["outcome"]) for one in audited]
    assert told == [("eve", "PERMISSION_DENIED")] * 2 + [("root", "OK")] * 2


@pytest.mark.parametrize("wrong", [{}, {"to": "now", "to_ms": 5}, {"to": "then"}, {"to_ms": -1}])
async def test_what_is_no_place_to_begin_is_refused(
    node: EmbeddedNode, wrong: dict[str, Any]
) -> None:
    root = await console_of(node, "root")
    for name in ("count-reset", "reset"):
        assert (await root.post(name, {"group": "g", "topic": "orders", **wrong}))[0] == 400


@pytest.mark.parametrize(
    "wrong",
    [
        {"operations": []},
        {"operations": ["fly"]},
        {"operations": "publish"},
        {"kind": "planet"},
        {"principal": ""},
        {"principal": 7},
        {"resource": ""},
        {"expected_version": -1},
        {"expected_version": None},
    ],
)
async def test_what_is_no_grant_is_refused(node: EmbeddedNode, wrong: dict[str, Any]) -> None:
    root = await console_of(node, "root")
    given = {"principal": "eve", **ORDERS, "operations": ["look"], "expected_version": 0}
    assert (await root.post("grant", {**given, **wrong}))[0] == 400
    assert (await root.get("access"))[1]["grants"] == []


async def test_another_page_grants_nothing(node: EmbeddedNode) -> None:
    root = await console_of(node, "root")
    given = {"principal": "eve", **ORDERS, "operations": ["look"], "expected_version": 0}
    for headers in (
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"X-Hourwheel-Token": "guessed"},
        {"Content-Type": "text/plain"},
    ):
        for name in ("grant", "revoke", "retention", "reset"):
            assert (await root.post(name, given, **headers))[0] in {403, 415}, headers
    assert (await root.get("access"))[1]["grants"] == []
