"""A lost node of three real ones is replaced under load, and does not come back."""

import asyncio
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

from hourwheel import AsyncAdmin, errors
from node.tools.local_cluster.nodes import LocalCluster, LocalNode, toml_of
from tests.support.addresses import free_address
from tests.support.cluster_load import ClusterLoad
from tests.support.eventually import until_told
from tests.support.guide_commands import commands_of

NEW = "node-4"
GUIDE = "docs/guides/members.md"


async def run_command(words: list[str], servers: str) -> str:
    """What a command of the guide prints, as a person types it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hourwheel.cli", *words, "--server", servers),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, problems = await process.communicate()
    assert process.returncode == 0, problems
    return out.decode()


def write_new(cluster: LocalCluster) -> tuple[LocalNode, str]:
    """A fourth node that waits to be made a member; where its control process is."""
    like = cluster.nodes[0].config_file
    sections = tomllib.loads(like.read_text())
    at = [free_address() for _ in range(4)]
    sections["node"] |= {
        "id": NEW,
        "data_directory": str(cluster.directory.absolute() / NEW),
        "listen": at[0],
        "metrics_listen": at[1],
    }
    sections["console"]["listen"] = ""
    sections["cluster"] |= {"join": True}
    sections["cluster"]["nodes"] += f" {NEW}={at[0]},{at[2]},{at[3]}"
    file = cluster.directory / f"{NEW}.toml"
    file.write_text(toml_of(sections))
    return LocalNode(file), at[3]


async def test_lost_node_is_replaced_under_load_and_does_not_come_back(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 3, values={"cluster": {"id": "ab" * 16}})
    new, control = write_new(cluster)
    try:
        async with cluster, AsyncAdmin(cluster.servers) as admin:
            master = await cluster.wait_for_master(in_sync=3)
            lost = (master + 1) % 3
            lost_id = cluster.nodes[lost].node_id
            async with ClusterLoad(cluster.servers) as load:
                await load.some(100)
                await cluster.kill_node(lost)
                await load.some(100)
                await new.start()
                before = await admin.members()
                assert (before.generation, before.is_changing) == (0, False)
                assert before.cluster_id == "ab" * 16
                (words,) = (each for each in commands_of(GUIDE, "hourwheel") if "replace" in each)
                said = await run_command([*words[:2], lost_id, f"{NEW}={control}"], cluster.servers)
                assert "generation 1 is in force" in said
                stale = admin.change_members({}, [NEW], expected_generation=0)
                with pytest.raises(errors.FailedPrecondition, match="generation 1 is in force"):
                    await stale
                await load.some(100)

                async def has_followed() -> bool:
                    found = await admin.members()
                    return not found.is_changing and all(one.is_in_sync for one in found.members)

                await until_told(has_followed)
                found = await admin.members()
                assert NEW in {one.node_id for one in found.members}
                assert found.former_node_ids == (lost_id,)
                await cluster.kill_node(master)  # the new one is needed now, for everything
                await load.some(100)
                await load.finish()
                assert not load.early()
                assert await load.released_count() >= len(load.acknowledged)
            former = cluster.nodes[lost]
            with suppress(errors.Unavailable):  # it may even answer, until it is told
                await former.start()
                await former.failed()
            with pytest.raises(errors.Unavailable):
                await former.start()
            log = cluster.nodes[lost].log_file.read_text()
            assert f"node {lost_id} is not a member of the cluster since generation 1" in log
    finally:
        if new.is_running:
            await new.kill()
