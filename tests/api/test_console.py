"""The console of a real node, as a browser's program asks it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Message
from hourwheel.errors import ConfigError
from node.config.model import NodeConfig
from node.console.site import SECURITY
from node.process.app import Node
from tests.support.console_client import ConsoleClient
from tests.support.embedded_node import EmbeddedNode

CONSOLE: Final = {
    "console": {"listen": "127.0.0.1:0"},
    "disk": {"free_bytes_min": 0, "reserve_bytes": 0},
}
HOUR_MS: Final = 3_600_000
HOSTILE: Final = "<img src=x onerror=alert(1)>'\"&\u202e\u2603"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[EmbeddedNode]:
    async with EmbeddedNode(tmp_path, CONSOLE) as started:
        yield started


@pytest.fixture
async def console(node: EmbeddedNode) -> ConsoleClient:
    return await ConsoleClient(node.console_address).open()


async def publish(console: ConsoleClient, **more: Any) -> str:
    message = {"topic": "orders", "delay_ms": HOUR_MS, "body": "x", **more}
    status, told = await console.post("publish", message)
    assert status == 200, told
    return str(told["message_id"])


async def test_cluster_of_one_is_shown_with_its_history(console: ConsoleClient) -> None:
    await publish(console)
    status, told = await console.get("cluster?since_ms=0")
    assert (status, told["master"], told["read_only_because"]) == (200, "node-1", "")
    assert (told["shard"]["pending_count"], told["problems"]) == (1, [])
    (point,) = told["history"]
    assert (point["master"], point["released"]) == ("node-1/1", 0)
    assert (await console.get(f"cluster?since_ms={point['at_ms']}"))[1]["history"] == []
    assert told["poll_ms"] >= 2_000


async def test_message_is_published_found_with_all_it_has_and_cancelled(
    console: ConsoleClient,
) -> None:
    message_id = await publish(
        console,
        body=HOSTILE,
        tags=[HOSTILE],
        keys=["k"],
        properties={"a": HOSTILE},
        content_type="text/html",
    )
    _, told = await console.get(f"message?id=%20{message_id.upper()}")
    pending = told["pending"]
    assert (told["state"], pending["topic"], pending["body"]) == ("PENDING", "orders", HOSTILE)
    assert (pending["tags"], pending["keys"]) == ([HOSTILE], ["k"])
    assert (pending["properties"], pending["content_type"]) == ([["a", HOSTILE]], "text/html")
    assert await console.post("cancel", {"message_id": message_id}) == (
        200,
        {"outcome": "CANCELLED", "poll_ms": 2_000},
    )
    _, told = await console.get(f"message?id={message_id}")
    assert (told["state"], told["pending"]) == ("CANCELLED", None)


async def test_body_is_found_among_many_that_are_due_at_one_time(console: ConsoleClient) -> None:
    due_ms = (await console.get("cluster"))[1]["now_ms"] + HOUR_MS
    ids = [await publish(console, due_ms=due_ms, body=f"body {at}") for at in range(5)]
    _, told = await console.get(f"message?id={ids[3]}")
    assert told["pending"]["body"] == "body 3"


async def test_wheel_counts_what_falls_due(console: ConsoleClient) -> None:
    for delay_ms in (30 * 60_000, 30 * 60_000, 25 * HOUR_MS, 3 * 365 * 24 * HOUR_MS // 2):
        await publish(console, delay_ms=delay_ms)
    now_ms = (await console.get("cluster"))[1]["now_ms"]
    from_ms = now_ms - now_ms % HOUR_MS
    _, told = await console.get(f"wheel?from_ms={from_ms}&step_ms={HOUR_MS}&count=48")
    assert sum(told["counts"]) == 3
    assert sum(told["counts"][:2]) == 2
    assert told["ahead_counts"] == [0, 2, 0, 1]
    assert (told["later_count"], told["overdue_count"], told["pending_count"]) == (1, 0, 4)


async def test_all_that_match_are_cancelled_when_they_were_counted_before(
    console: ConsoleClient,
) -> None:
    for at in range(10):
        await publish(console, tags=["unpaid" if at % 2 else "paid"])
    query = {"topic": "orders", "filter": "unpaid"}
    _, listed = await console.get("pending?topic=orders&filter=unpaid")
    assert (len(listed["messages"]), listed["has_more"]) == (5, False)
    _, begun = await console.post("count", query)
    counted = await console.finish(begun["number"])
    assert (counted["state"], counted["result"]["matched_count"]) == ("done", 5)
    _, begun = await console.post("cancel-counted", {"number": counted["number"]})
    done = await console.finish(begun["number"])
    assert (done["state"], done["result"]["cancelled_count"]) == ("done", 5)
    assert len((await console.get("pending?topic=orders"))[1]["messages"]) == 5
    # Once: what was counted is no longer true.
    status, told = await console.post("cancel-counted", {"number": counted["number"]})
    assert (status, told["error"]["reason"]) == (409, "FAILED_PRECONDITION")


async def test_count_fails_with_the_reason_when_the_filter_is_wrong(
    console: ConsoleClient,
) -> None:
    await publish(console)
    _, begun = await console.post("count", {"topic": "orders", "filter": "a &&"})
    found = await console.finish(begun["number"])
    assert found["state"] == "failed"
    assert found["error"]
    status, _ = await console.post("cancel-counted", {"number": begun["number"]})
    assert status == 409
    status, told = await console.get("pending?topic=nowhere")
    assert (status, told["error"]["reason"]) == (404, "UNKNOWN_TOPIC")


async def test_groups_have_lag_leases_and_dead_letters(
    node: EmbeddedNode, console: ConsoleClient
) -> None:
    async with AsyncProducer(node.address) as producer, AsyncAdmin(node.address) as admin:
        await admin.put_group("billing", attempts_max=1)
        await producer.publish("orders", Message(b"x"))
        async with AsyncConsumer(node.address, group="billing", topic="orders") as consumer:
            (first,) = await consumer.receive()
            await consumer.nack(first)
            await producer.publish("orders", Message(b"y"))
            assert len(await consumer.receive()) == 1
            async with asyncio.timeout(60):
                while True:
                    _, told = await console.get("groups?search=BILL")
                    (group,) = told["groups"]
                    if group["dead_letters"]:
                        break
            assert (group["unresolved"], group["leased"], group["dead_letters"]) == (1, 1, 1)
            assert group["lags"][0]["topic"] == "orders"
    _, told = await console.get(f"message?id={first.message_id}")
    (letter,) = told["dead_letters"]
    assert (letter["group"], letter["attempts"], letter["reason"]) == (
        "billing",
        1,
        "ATTEMPTS_USED_UP",
    )


async def test_lists_are_told_in_pages_and_searched(
    node: EmbeddedNode, console: ConsoleClient
) -> None:
    async with AsyncAdmin(node.address) as admin:
        for number in range(120):
            await admin.create_topic(f"topic-{number:03}")
    found, after = list[str](), ""
    while True:
        _, told = await console.get(f"topics?after={after}")
        found += [one["name"] for one in told["topics"]]
        if not (after := told["more_after"]):
            break
    assert found == [f"topic-{number:03}" for number in range(120)]
    _, told = await console.get("topics?search=11")
    assert [one["name"] for one in told["topics"]] == [
        "topic-011",
        *(f"topic-11{digit}" for digit in range(10)),
    ]
    assert told["total"] == 120


@pytest.mark.parametrize(
    ("name", "given", "status", "reason"),
    [
        ("publish", {"topic": "a b", "body": ""}, 400, "INVALID_TOPIC"),
        ("publish", {"topic": "orders", "delay_ms": -1}, 400, "INVALID_ARGUMENT"),
        ("publish", {"topic": "orders", "delay_ms": 10**15}, 400, "BEYOND_HORIZON"),
        ("publish", {"topic": "orders", "tags": "a"}, 400, "INVALID_ARGUMENT"),
        ("publish", {}, 400, "INVALID_ARGUMENT"),
        ("publish", [], 400, "INVALID_ARGUMENT"),
        ("cancel", {"message_id": HOSTILE}, 400, "INVALID_MESSAGE_ID"),
        ("stop", {"number": 99}, 404, "NOT_FOUND"),
        ("transfer", {"to": "node-2", "epoch": 99}, 409, "FAILED_PRECONDITION"),
        ("reboot", {}, 404, "NO_SUCH_CALL"),
        ("cluster", {}, 404, "NO_SUCH_CALL"),
    ],
)
async def test_change_is_refused_with_the_reason_when_it_is_wrong(
    name: str, given: object, status: int, reason: str, console: ConsoleClient
) -> None:
    found, told = await console.post(name, given)
    assert (found, told["error"]["reason"]) == (status, reason)
    assert told["error"]["message"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("wheel?from_ms=0&step_ms=1&count=100000", 400),
        ("wheel", 400),
        ("message?id=", 400),
        ("message?" + "a=b&" * 40, 400),
        ("operation?number=7", 404),
        ("publish", 404),
    ],
)
async def test_question_is_refused_when_it_is_wrong(
    path: str, status: int, console: ConsoleClient
) -> None:
    assert (await console.get(path))[0] == status


async def test_change_is_refused_when_it_is_no_json(console: ConsoleClient) -> None:
    headers = {"Origin": f"http://{console.address}", "Content-Type": "application/json"}
    _, told = await console.get("session")
    headers["X-Hourwheel-Token"] = told["token"]
    for body in (b"", b"{", b"[" * 100_000, b"\xff", b'{"topic": NaN'):
        assert (await console.raw("POST", "/api/publish", headers, body))[0] == 400


async def test_nothing_is_told_or_done_when_another_page_asks(console: ConsoleClient) -> None:
    given = {"topic": "orders", "body": "x"}
    for headers in (
        {"Origin": "http://evil.example"},
        {"Host": "evil.example"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"X-Hourwheel-Token": "guessed"},
        {"Content-Type": "text/plain"},
    ):
        status, told = await console.post("publish", given, **headers)
        assert status in {403, 415, 421}, headers
        assert set(told) == {"error"}
    for headers in ({"Host": "evil.example"}, {"Origin": "null"}):
        assert (await console.get("session", **headers))[0] in {403, 421}
    assert (await console.raw("OPTIONS", "/api/publish", {}))[0] == 405
    assert (await console.get("cluster"))[1]["shard"]["published_count"] == 0


async def test_files_are_told_once_and_every_answer_has_the_policy(
    console: ConsoleClient,
) -> None:
    status, page, headers = await console.raw("GET", "/?x=1", {})
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert page.startswith(b"<!doctype html>")
    again = await console.raw("GET", "/", {"If-None-Match": headers["ETag"]})
    assert again[:2] == (304, b"")
    for path in ("/", "/js/app.js", "/api/cluster", "/nothing", "/../site.py", "/js/%2e%2e/x"):
        _, _, headers = await console.raw("GET", path, {})
        assert SECURITY.items() <= headers.items(), path
    assert (await console.raw("GET", "/../site.py", {}))[0] == 404


async def test_console_only_shows_when_its_configuration_says_so(tmp_path: Path) -> None:
    values = {**CONSOLE, "console": {"listen": "127.0.0.1:0", "changes": "never"}}
    async with EmbeddedNode(tmp_path, values) as node:
        async with AsyncAdmin(node.address) as admin:
            await admin.create_topic("orders")
        console = await ConsoleClient(node.console_address).open()
        assert "console.changes" in (await console.get("cluster"))[1]["read_only_because"]
        status, told = await console.post("publish", {"topic": "orders"})
        assert (status, "console.changes" in told["error"]["message"]) == (503, True)
        _, begun = await console.post("count", {"topic": "orders"})  # changes nothing
        assert (await console.finish(begun["number"]))["result"]["matched_count"] == 0


async def test_console_that_others_reach_only_shows_unless_it_is_told_otherwise(
    tmp_path: Path,
) -> None:
    for changes, is_locked in (("auto", True), ("always", False)):
        values = {**CONSOLE, "console": {"listen": "0.0.0.0:0", "changes": changes}}
        async with EmbeddedNode(tmp_path / changes, values) as node:
            port = node.console_address.rpartition(":")[2]
            console = await ConsoleClient(f"127.0.0.1:{port}").open()
            _, told = await console.get("cluster")
            assert bool(told["read_only_because"]) == is_locked


async def test_node_without_a_console_has_none(tmp_path: Path) -> None:
    async with EmbeddedNode(tmp_path, {"console": {"listen": ""}}) as node:
        assert node.console_address == ""


async def test_node_refuses_to_start_when_the_consoles_port_is_taken(
    node: EmbeddedNode, tmp_path: Path
) -> None:
    values = {"console": {"listen": node.console_address}}
    other = EmbeddedNode(tmp_path / "other", values)
    with pytest.raises(ConfigError, match=r"console\.listen"):
        await other.node.start()


async def test_node_works_without_a_console_when_another_has_the_default_port(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Several nodes of one machine, each with its own ports for all but the console."""
    node = Node(
        NodeConfig.of(
            {
                "node": {
                    "data_directory": tmp_path,
                    "listen": "127.0.0.1:0",
                    "metrics_listen": "127.0.0.1:0",
                },
                "disk": CONSOLE["disk"],
            }
        )
    )
    host, _, port = node.config.console.listen.rpartition(":")
    with ExitStack() as taken:
        with suppress(OSError):  # then it is taken already
            taken.enter_context(socket.create_server((host, int(port))))
        await node.start()
        try:
            assert node.console_address == ""
            async with AsyncProducer(node.address) as producer:
                await producer.publish("orders", Message(b"x"))
        finally:
            await node.stop(0)
    assert "console_not_started" in caplog.text


async def test_no_secret_is_shown(tmp_path: Path, console: ConsoleClient) -> None:
    """The configuration has files' names, and the console does not tell even those."""
    for path in ("cluster", "topics", "groups"):
        _, body, _ = await console.raw("GET", f"/api/{path}", {})
        assert str(tmp_path).encode() not in body
        assert b"secret" not in body
