"""A node alone with access control: its users and grants are there again after a restart."""

from pathlib import Path
from typing import Any

import pytest

from hourwheel import AsyncAdmin, AsyncProducer, Message, errors
from node.access.user_secrets import hash_of
from node.cluster.promotion import is_promotion_wanted, want_promotion
from node.shard.node_meta import CONTROL, CONTROL_ALONE
from storage.files.disk import RealDisk
from tests.support.embedded_node import EmbeddedNode

ROOT = ("root", "of root")
ALICE = ("alice", "of alice")


def values_of(tmp_path: Path) -> dict[str, Any]:
    users = tmp_path / "users"
    users.write_text(f"root:{hash_of(ROOT[1])}\n")
    return {
        "access": {"is_on": True, "administrators": "root"},
        "authentication": {"users_file": str(users)},
    }


async def publish_as_alice(node: EmbeddedNode, topic: str) -> None:
    async with AsyncProducer(node.address, user=ALICE) as producer:
        await producer.publish(topic, Message(b"x"))


async def test_users_and_grants_hold_at_a_node_alone_and_after_a_restart(tmp_path: Path) -> None:
    values, directory = values_of(tmp_path), tmp_path / "data"
    async with EmbeddedNode(directory, values) as node:
        assert not (directory / CONTROL_ALONE).exists()
        async with AsyncAdmin(node.address, user=ROOT) as admin:
            version = await admin.put_user(*ALICE)
            with pytest.raises(errors.FailedPrecondition):
                await admin.put_user("alice", "of mallory", expected_version=version + 1)
            with pytest.raises(errors.PermissionDenied):
                await publish_as_alice(node, "orders")
            await admin.grant("alice", ["publish"], "topic", "ord*")
            await publish_as_alice(node, "orders")
    async with EmbeddedNode(directory, values) as node:
        await publish_as_alice(node, "orders")
        with pytest.raises(errors.PermissionDenied):
            await publish_as_alice(node, "bills")
        async with AsyncAdmin(node.address, user=ROOT) as admin:
            assert [one.name for one in await admin.users()] == ["alice"]
            await admin.revoke("alice", "topic", "ord*")
            with pytest.raises(errors.PermissionDenied):
                await publish_as_alice(node, "orders")


async def test_node_with_a_damaged_control_state_does_not_start(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    async with EmbeddedNode(directory) as node, AsyncAdmin(node.address) as admin:
        await admin.grant("alice", ["look"], "cluster")
    journal = directory / CONTROL_ALONE / "journal"
    raw = bytearray(journal.read_bytes())
    raw[140] ^= 1
    journal.write_bytes(raw)
    with pytest.raises(errors.CorruptFile, match=f"{CONTROL_ALONE}/journal"):
        async with EmbeddedNode(directory):
            pass


async def test_wish_to_be_promoted_ends_with_a_start_that_has_no_cluster(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    async with EmbeddedNode(directory):
        disk = RealDisk(directory)
        want_promotion(disk)
    async with EmbeddedNode(directory):
        assert not is_promotion_wanted(disk)
        assert not (directory / CONTROL).exists()
