"""A node that goes on while it is audited is not accused of what it has replaced meanwhile."""

import asyncio
import shutil
from pathlib import Path

import pytest

from node.shard.dispatcher import DispatchConfig
from node.shard.node_meta import open_node_meta
from node.shard.recovery import ShardConfig
from spark_jobs.audit import recheck
from spark_jobs.audit.delivery import audit_shard
from spark_jobs.audit.facts.findings import Made
from spark_jobs.audit.shard import ShardState
from spark_jobs.logs.discovery import discover
from spark_jobs.logs.queue_reader import plan_queues
from spark_jobs.logs.replica import Inventory
from spark_jobs.runtime.runner import LocalRunner
from storage.files.disk import RealDisk
from storage.log.commit_log import LogConfig
from tests.support.audit_runs import SMALL
from tests.support.audited import copied
from tests.support.engine_world import LEAD_MS, EngineWorld, within
from tests.support.eventually import until
from tests.support.log_maker import CLUSTER_ID, segments
from timewheel.wheel import WheelConfig

CHUNK = "shard-0/queues/00000100/000000000000.cq"


def runs_of(inventory: Inventory) -> list[str]:
    """The files of the runs that the checkpoint names."""
    ((_, copy),) = inventory.copies(0)
    assert copy.manifest is not None
    return [
        f"shard-0/wheel/{one.covers_first:010d}-{one.run_id:010d}.run" for one in copy.manifest.runs
    ]


async def live(directory: Path, early: Path) -> None:
    """A node publishes and writes checkpoints; `early` is its directory some of them before."""
    open_node_meta(RealDisk(directory), "node-1", CLUSTER_ID)
    shard = ShardConfig(
        log=LogConfig(segment_bytes=8_192, index_interval_bytes=4_096),
        wheel=WheelConfig(memtable_units_max=64, merge_run_count=4),
        dispatch=DispatchConfig(lead_ms_min=LEAD_MS, lead_ms_max=LEAD_MS),
    )
    async with EngineWorld(directory, shard=shard) as world:
        await within(world.engine.create_topic("orders", 1))
        number, runs = 0, list[str]()
        # Merges are a matter of threads, and take runs that are none of a merge first.
        while number < 8 or all((directory / run).exists() for run in runs):
            before = world.engine.status().checkpoint_offset
            for after_ms in (5_000, 500_000, 90_000_000):
                await world.publish(*(world.now_ms + after_ms + one for one in range(40)))
            world.advance(6_000)
            await within(until(lambda: world.engine.status().checkpoint_offset > before))  # noqa: B023
            number += 1
            if number > 2 and not runs:
                await world.restart()
                found = runs_of(discover([str(directory)]))
                if sum(is_unmerged(run) for run in found) > 1:
                    shutil.rmtree(early, ignore_errors=True)
                    try:
                        shutil.copytree(directory, early)
                    except shutil.Error:  # a file went while it was copied: next time
                        continue
                    # The node may have merged while it was copied: what counts is in the copy.
                    found = runs_of(discover([str(early)]))
                    if sum(is_unmerged(run) for run in found) > 1:
                        runs = found


def is_unmerged(run: str) -> bool:
    first, last = Path(run).stem.split("-")
    return first == last


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(a node's directory, the same one some checkpoints later)."""
    folder = tmp_path_factory.mktemp("lives")
    (folder / "late" / "node-1").mkdir(parents=True)
    asyncio.run(live(folder / "late" / "node-1", folder / "early" / "node-1"))
    return folder / "early" / "node-1", folder / "late" / "node-1"


@pytest.fixture
def moved(lives: tuple[Path, Path], tmp_path: Path) -> tuple[Inventory, Path]:
    """What an audit saw when it began, and the directory as it is now."""
    place = copied(lives[0], tmp_path)
    inventory = discover([str(place)])
    shutil.rmtree(place)
    shutil.copytree(lives[1], place)
    return inventory, place


def audited(inventory: Inventory) -> ShardState:
    state = ShardState(0, inventory, LocalRunner(), SMALL, lambda _: None)
    audit_shard(state)
    return state


def errors_in(state: ShardState) -> set[tuple[str, str]]:
    return {(one.check, one.file) for one in state.findings.kept if one.severity == "error"}


def made(state: ShardState, area: str) -> tuple[Made, str]:
    (found,) = {(one.made, one.reason) for one in state.checks if one.area == area}
    return found


def test_files_when_a_node_has_replaced_them_are_no_damage(
    moved: tuple[Inventory, Path],
) -> None:
    inventory, place = moved
    assert not all((place / run).exists() for run in runs_of(inventory))
    state = audited(inventory)
    assert errors_in(state) == set()
    assert not any(severity == "error" for severity, _, _ in state.findings.counts)
    is_made, reason = made(state, "wheel")
    assert is_made is Made.LIMITED
    assert "replaced by the node while they were read" in reason
    assert not made(state, "queues")[0].leaves_out, "its checkpoint is behind, and no more"


def test_file_when_the_newest_checkpoint_cannot_read_it_either_is_damaged(
    moved: tuple[Inventory, Path],
) -> None:
    inventory, place = moved
    raw = bytearray((place / CHUNK).read_bytes())
    raw[300] ^= 1
    (place / CHUNK).write_bytes(raw)
    state = audited(inventory)
    assert ("queue-damaged", CHUNK) in errors_in(state)
    assert made(state, "queues")[0] is Made.NOT_MADE


def test_file_when_nothing_was_replaced_is_damaged(
    lives: tuple[Path, Path], tmp_path: Path
) -> None:
    place = copied(lives[1], tmp_path)
    inventory = discover([str(place)])
    log, *_ = sorted((place / "shard-0" / "wheel").glob("*.dlog"))
    run = runs_of(inventory)[0]
    (place / run).unlink()
    (place / CHUNK).unlink()
    log.unlink()
    # The next chunk may have been made already, or be all that the queue has.
    is_next = any((place / CHUNK).parent.iterdir())
    assert errors_in(audited(inventory)) == {
        ("queue-damaged", CHUNK if is_next else str(Path(CHUNK).parent)),
        ("wheel-damaged", run),
        ("body-lost", f"shard-0/wheel/{log.name}"),
    }


def test_segments_when_retention_takes_them_make_nothing_certain(
    lives: tuple[Path, Path], tmp_path: Path
) -> None:
    place = copied(lives[1], tmp_path)
    inventory = discover([str(place)])

    class Runner(LocalRunner):
        """Removes the first segment behind the scan."""

        def share(self, value):  # type: ignore[no-untyped-def]
            segments(place)[0].unlink(missing_ok=True)
            return super().share(value)

    state = ShardState(0, inventory, Runner(), SMALL, lambda _: None)
    audit_shard(state)
    assert errors_in(state) == set()
    assert state.findings.count("warning") == 0
    reasons = [one.reason for one in state.checks if one.made is Made.NOT_MADE]
    assert any("by retention while it was read: audit again" in one for one in reasons)


def test_segment_when_it_went_before_it_was_read_is_not_missing(
    lives: tuple[Path, Path], tmp_path: Path
) -> None:
    place = copied(lives[1], tmp_path)
    inventory = discover([str(place)])
    first = segments(place)[0]
    first.unlink()
    state = audited(inventory)
    assert "log-missing" not in {check for check, _ in errors_in(state)}
    # The last file of a log is none that retention takes.
    place = copied(lives[1], tmp_path / "other")
    inventory = discover([str(place)])
    segments(place)[-1].unlink()
    assert "log-missing" in {check for check, _ in errors_in(audited(inventory))}


def test_part_of_a_queue_is_told_by_the_chunks_file(lives: tuple[Path, Path]) -> None:
    ((replica, copy),) = discover([str(lives[1])]).copies(0)
    (queue,) = plan_queues(replica, copy)
    queue = queue._replace(chunk_entries=100, end_position=250)
    assert recheck.part_in(queue, queue.folder) == [queue]
    assert recheck.part_in(queue, queue.chunk_path(2)) == [
        queue._replace(start_position=200, end_position=250)
    ]
    assert recheck.part_in(queue, "another") == []
