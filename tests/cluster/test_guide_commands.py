"""Every `hourwheel` command of docs/guides and docs/examples, word for word, at real nodes."""

import json
import os
import shlex
from pathlib import Path
from typing import Any, Final

import pytest

from hourwheel import AsyncConsumer, AsyncProducer, Message
from node.process.subprocess_node import ChildNode
from node.tools.local_cluster import security
from node.tools.local_cluster.nodes import LocalCluster
from tests.support import forked
from tests.support.guide_commands import commands_of, fenced
from tests.support.s3_server import BUCKET, s3_server
from tests.tidy import tree

VALUES: Final = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}}
GUIDES: Final = tuple(
    path for path in tree.files_named(".md") if path.startswith(("docs/guides/", "docs/examples/"))
)
BACKUP: Final = "docs/guides/backup.md"
OBJECTS: Final = "s3://acme-backups"
ACCESS: Final = "docs/guides/access.md"
UNTIL_ENDED: Final = frozenset({"cluster", "node", "worker", "http", "push"})
"""Commands that run until they are ended."""


async def run(words: list[str], servers: str = "", stdin: str = "") -> str:
    """What the command prints."""
    environ = {**os.environ, "HOURWHEEL_SERVER": servers, "COLUMNS": "100"}
    code, out, problems = await forked.run("hourwheel.cli", words, environ, stdin.encode())
    assert code == 0, (words, out, problems)
    return out.decode()


async def make_dead_letter(servers: str) -> str:
    """What a worker of Celery's group rejects; the id of it."""
    async with AsyncProducer(servers) as producer:
        message_id = await producer.publish("celery", Message(b"a task"))
        async with AsyncConsumer(servers, group="celery", topic="celery") as consumer:
            messages = await consumer.receive(1, wait_ms=30_000)
            await consumer.nack(messages, dead_letter=True, reason="unknown task")
    return str(message_id)


def needs_other_nodes(words: list[str]) -> bool:
    """Whether another test runs the command: of this file, or test_members.py."""
    return words[0] in {"backup", "restore", "access", "members"} or "--tls-ca" in words


async def test_commands_of_the_guides_do_what_is_said_at_three_nodes(tmp_path: Path) -> None:
    """In their order: what is published for later is received from whoever is master then."""
    async with LocalCluster(tmp_path, 3, values=VALUES) as cluster:
        await cluster.wait_for_master(in_sync=3)
        names = {"a": cluster.nodes[0].node_id, "ID": await make_dead_letter(cluster.servers)}
        told = []
        for words in (words for page in GUIDES for words in commands_of(page, "hourwheel")):
            if UNTIL_ENDED.intersection(words[:3]) or needs_other_nodes(words):
                continue
            here = [
                word.replace("a.example:7400", cluster.nodes[0].address)
                .replace("127.0.0.1:7401", cluster.nodes[0].metrics_address)
                .replace("0s", "s")
                for word in (names.get(one, one) for one in words)
            ]
            told.append((words[0], await run(here, cluster.servers, "y\n")))
        assert {"status", "publish", "consume", "drain"} <= {name for name, _ in told}
        assert all("feed the cat" in out for name, out in told if name == "consume")


async def test_commands_of_the_guide_to_backups_make_a_node_and_a_cluster(tmp_path: Path) -> None:
    data, folder = tmp_path / "data", tmp_path / "backups"
    names = {"/var/lib/hourwheel": str(data), "/mnt/backups/hourwheel": str(folder)}
    names["BACKUPS"] = str(folder)
    commands = [words for words in commands_of(BACKUP, "hourwheel") if OBJECTS not in str(words)]
    every = [words for words in commands if words[0] == "backup"]
    backups, mending = every[:4], every[4:]
    restores = [words for words in commands if words[0] == "restore"]
    assert [words[1] for words in backups] == ["create", "list", "verify", "remove"]
    assert [words[1] for words in mending] == ["verify", "create", "verify"]
    async with ChildNode(data, VALUES, log_file=tmp_path / "node.log") as node:
        async with AsyncProducer(node.address) as producer:
            await producer.publish_many("orders", [Message(b"", delay_ms=3_600_000)] * 7)
        for words in backups[:-1]:
            out = await run([*(names.get(word, word) for word in words), "--json"])
            names["ID"] = json.loads(out)["backup"]
    assert len(restores) == 3
    for number, words in enumerate(restores):
        names["/var/lib/hourwheel"] = str(tmp_path / f"restored-{number}")
        out = await run([*(names.get(word, word) for word in words), "--json"])
        made: dict[str, Any] = json.loads(out)
        assert (made["pending_count"], made["discarded_count"]) == (7, 0)
        names |= {"CLUSTER": made["cluster_id"], "MS": str(made["now_ms"])}
    await run([names.get(word, word) for word in backups[-1]])
    assert await run(["backup", "list", str(folder)]) == ""
    names["/var/lib/hourwheel"] = str(data)
    said = [await run([names.get(word, word) for word in words]) for words in mending]
    assert "good" in said[-1]


async def test_commands_of_the_guide_to_backups_use_an_object_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"/var/lib/hourwheel": tmp_path / "data", "/var/lib/hourwheel-new": tmp_path / "new"}
    commands = [words for words in commands_of(BACKUP, "hourwheel") if OBJECTS in str(words)]
    assert [words[:2] for words in commands[:-1]] == [["backup", "create"], ["backup", "verify"]]
    assert commands[-1][0] == "restore"
    async with (
        ChildNode(tmp_path / "data", VALUES) as node,
        AsyncProducer(node.address) as producer,
    ):
        await producer.publish_many("orders", [Message(b"", delay_ms=3_600_000)] * 7)
        with s3_server(monkeypatch):
            for words in commands:
                here = [
                    str(names.get(one, one.replace(OBJECTS, f"s3://{BUCKET}"))) for one in words
                ]
                out = json.loads(await run([*here, "--json"]))
    assert out["pending_count"] == 7


async def test_commands_of_the_guides_to_access_do_what_is_said_over_tls(tmp_path: Path) -> None:
    values = {**VALUES, "access": {"is_on": True, "administrators": security.ADMIN}}
    async with LocalCluster(tmp_path, 3, values=values, is_secure=True) as cluster:
        await cluster.wait_for_master(in_sync=3)
        options = security.options_for(cluster.security_directory).split()
        named = dict(zip(options[::2], options[1::2], strict=True))
        (words,) = (
            words
            for page in GUIDES
            for words in commands_of(page, "hourwheel")
            if "--tls-ca" in words
        )
        for option in ("--tls-ca", "--login-file"):
            words[words.index(option) + 1] = named[option]
        words[words.index("--server") + 1] = cluster.servers
        assert "ready" in await run(words)
        lines = [line for script in fenced(ACCESS, "sh") for line in script.splitlines()]
        asked = [shlex.split(line, comments=True) for line in lines]
        outs = {}
        for program, *words in asked:
            assert program == "hourwheel"
            outs[words[1]] = await run([*options, *words], cluster.servers, "s3cret-of-shop\n" * 2)
        assert {"put-user", "grant", "grants", "revoke", "delete-user"} <= set(outs)
        assert {"put-quota", "quotas", "delete-quota"} <= set(outs)
        assert "5,000,000" in outs["quotas"]
        assert "orders-*" in outs["grants"]
