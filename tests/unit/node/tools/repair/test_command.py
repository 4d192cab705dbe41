"""A node alone whose log was trimmed, each file of it damaged in turn, on real files."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from hourwheel import errors
from hourwheel.formats.message_id import parse
from node.delivery.deliveries import Delivery
from node.shard.checkpoint import MANIFEST
from node.shard.node_meta import open_node_meta
from node.shard.recovery import ShardConfig, open_shard
from node.tools.repair.command import EXIT_DAMAGE, EXIT_OK, EXIT_USAGE, main
from storage.files.directory_lock import DirectoryLock
from storage.files.disk import RealDisk
from storage.log.commit_log import LogConfig
from storage.queues.queue_chunk import ENTRIES_AT
from tests.support.shard_proposals import body_of, split
from tests.support.shard_world import IDENTITY, START_MS, ShardWorld
from timewheel.levels import HOUR_MS

CONFIG: Final = ShardConfig(log=LogConfig(segment_bytes=20_000, index_interval_bytes=512))
EARLY: Final = [START_MS + HOUR_MS + 2 * one for one in range(400)]
"""Pending, and the log has them no more; those below it still has, in between."""
LATE: Final = [due + 1 for due in EARLY]
RELEASED: Final = [START_MS - 400 + one for one in range(400)]
CANCELLED: Final = range(40, 60)


class LoneWorld(ShardWorld):
    """A shard on real files; what it delivers is compared with its model until it is damaged."""

    def __init__(self, root: Path) -> None:
        open_node_meta(RealDisk(root), "node-1", IDENTITY.cluster_id)
        self.root = root
        self.is_lossy = False
        self.got: list[int] = []
        super().__init__(RealDisk(root), CONFIG)  # type: ignore[arg-type]

    def check_opened(self) -> None:
        if not self.is_lossy:
            super().check_opened()

    def note(self) -> None:
        if not self.is_lossy:
            super().note()

    def _check_delivery(self, delivery: Delivery) -> None:
        for unit, blob in split(delivery):
            assert blob == body_of(int(unit["due_ms"])), "not what was published"
            assert int(unit["due_ms"]) <= self.now_ms, "early"
            self.got.append(int(unit["sequence"]))

    def consume_all(self) -> list[int]:
        """Sequences in the order in which they come, from now until nothing is pending."""
        for step_ms in (0, 2 * HOUR_MS):
            self.advance(step_ms)
            while (delivery := self.receive()) is not None:
                self.ack(delivery)
                self.commit()
        return self.got


@pytest.fixture
def world(tmp_path: Path) -> LoneWorld:
    """A stopped node; its log begins behind the early messages."""
    world = LoneWorld(tmp_path)
    for low in range(0, len(EARLY), 50):
        world.publish(EARLY[low : low + 50])
        world.commit()
    trimmed = world.shard.log.end_offset
    for low in range(0, len(LATE), 50):
        world.publish(LATE[low : low + 50])
        world.publish(RELEASED[low : low + 50])
        world.commit()
    world.cancel(list(CANCELLED))
    world.commit()
    delivery = world.receive(10)
    assert delivery is not None
    world.ack(delivery)
    world.commit()
    world.save()
    log = world.shard.log
    ends = [one.end_offset for one in log.segments() if one.end_offset <= trimmed]
    for work in log.begin_delete_below(ends[-1]):
        work()
    assert 0 < log.start_offset <= trimmed
    world.remove()
    log.close()
    return world


def part(share: float) -> Callable[[bytes], int]:
    return lambda raw: 64 + int((len(raw) - 1 - 64) * share)


BITS: Final[dict[str, tuple[str, Callable[[bytes], int], bool]]] = {
    "run header": ("wheel/*.run", lambda _: 20, True),
    "run units": ("wheel/*.run", lambda _: 64 + 64 * 300 + 9, False),
    "run directory": ("wheel/*.run", lambda raw: len(raw) - 5_000, False),
    "run block checks": ("wheel/*.run", lambda raw: len(raw) - 70, True),
    "run footer": ("wheel/*.run", lambda raw: len(raw) - 50, True),
    "run footer check": ("wheel/*.run", lambda raw: len(raw) - 1, True),
    "queue header": ("queues/*/*.cq", lambda _: 20, True),
    "queue seal": ("queues/*/*.cq", lambda _: 64 + 5, True),
    "queue entry": ("queues/*/*.cq", lambda _: ENTRIES_AT + 64 * 70 + 17, False),
    "sequence header": ("sequences/*.seq", lambda _: 20, True),
    "sequence block": ("sequences/*.seq", part(0.5), False),
    "sequence tail": ("sequences/tail", part(0.9), True),
    "tombstone header": ("tombstones/*.tomb", lambda _: 20, True),
    "tombstones": ("tombstones/*.tomb", part(0.5), True),
    "checkpoint": (MANIFEST, part(0.6), True),
    "checkpoint length": (MANIFEST, lambda _: 65, True),
    "epochs": ("epochs", part(0.9), True),
}
"""File, byte in it, and whether opening looks there."""


def change(world: LoneWorld, pattern: str, at: Callable[[bytes], int], raw: bytes = b"") -> Path:
    """Flip a bit of the first such file, or put other bytes there."""
    path = min((world.root / "shard-0").glob(pattern))
    whole = bytearray(path.read_bytes())
    first = at(bytes(whole))
    whole[first : first + max(1, len(raw))] = raw or bytes((whole[first] ^ 4,))
    path.write_bytes(whole)
    return path


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(one.relative_to(root)): one.read_bytes()
        for one in root.rglob("*")
        if one.is_file() and one.name != "LOCK"
    }


def repair(
    world: LoneWorld, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, dict[str, Any]]:
    code = main([str(world.root), "--json", *options])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("place", BITS)
def test_nothing_is_lost_when_one_bit_of_a_file_is_flipped(
    world: LoneWorld, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    pattern, at, is_read = BITS[place]
    path = change(world, pattern, at)
    damaged = contents(world.root)
    if is_read:
        with pytest.raises(errors.DataLoss):
            open_shard(world.place, CONFIG)
        assert contents(world.root).keys() == damaged.keys()
    damaged = contents(world.root)
    code, answer = repair(world, capsys)
    assert (code, answer["lost"], answer["refused"]) == (EXIT_DAMAGE, [], [])
    assert contents(world.root) == damaged, "looking changes nothing"
    code, answer = repair(world, capsys, "--mend")
    assert (code, answer["is_repaired"]) == (EXIT_OK, True)
    name = path.relative_to(world.root)
    assert (Path(answer["kept_aside"]) / name).read_bytes() == damaged[str(name)]
    world.open()  # which holds all views against what was published
    got = world.consume_all()
    assert len(got) == len(set(got))
    assert len(got) == len(EARLY) + len(LATE) + len(RELEASED) - len(CANCELLED)


def test_what_the_log_has_is_made_again_when_blocks_of_a_run_are_gone(
    world: LoneWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    change(world, "wheel/*.run", lambda _: 64 + 64 * 10, b"\xa5" * 8_192)
    code, answer = repair(world, capsys, "--mend")
    assert (code, answer["is_repaired"]) == (EXIT_DAMAGE, False)
    lost = {parse(one["message_id"]).sequence for one in answer["lost"]}
    dues = {one["due_ms"] for one in answer["lost"]}
    assert dues
    assert dues <= set(EARLY)
    assert answer["found_in_log"] >= len(lost)
    assert answer["lost_without_a_name"] == 0
    code, answer = repair(world, capsys, "--discard")
    assert (code, answer["is_repaired"]) == (EXIT_OK, True)
    world.is_lossy = True
    world.open()
    got = world.consume_all()
    everything = set(range(len(EARLY) + len(LATE) + len(RELEASED)))
    assert sorted(got) == sorted(everything - lost - set(CANCELLED))
    world.shard.check()


@pytest.mark.parametrize("harm", ["missing", "cut off"])
def test_a_run_is_lost_by_name_when_it_is_not_there(
    world: LoneWorld, capsys: pytest.CaptureFixture[str], harm: str
) -> None:
    path = min((world.root / "shard-0").glob("wheel/*.run"))
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:5_000])
    code, answer = repair(world, capsys, "--discard")
    assert code == EXIT_OK
    lost = {parse(one["message_id"]).sequence for one in answer["lost"]}
    assert lost <= set(range(len(EARLY))) - set(CANCELLED)
    assert all(one["is_certain"] for one in answer["lost"])
    world.is_lossy = True
    world.open()
    got = world.consume_all()
    everything = set(range(len(EARLY) + len(LATE) + len(RELEASED)))
    assert sorted(got) == sorted(everything - lost - set(CANCELLED))
    world.shard.check()


def test_other_entries_are_delivered_when_some_of_a_queue_are_gone(
    world: LoneWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    first = 20
    at = ENTRIES_AT + 64 * first
    change(world, "queues/*/*.cq", lambda _: at, b"\xa5" * 640)
    code, answer = repair(world, capsys)
    assert code == EXIT_DAMAGE
    assert [one["position"] for one in answer["lost"]] == list(range(first, first + 10))
    assert not any(one["is_acknowledged"] for one in answer["lost"])
    code, answer = repair(world, capsys, "--discard")
    assert (code, answer["is_repaired"]) == (EXIT_OK, True)
    world.is_lossy = True
    world.open()
    got = world.consume_all()
    assert len(got) == len(set(got))
    assert len(got) == len(EARLY) + len(LATE) + len(RELEASED) - len(CANCELLED) - 10
    assert not world.mastership.receiver.corrupt


@pytest.mark.parametrize(
    "pattern", [MANIFEST, "sequences/tail", "sequences/*.seq", "tombstones/*.tomb", "epochs"]
)
def test_nothing_is_changed_when_a_file_is_beyond_repair(
    world: LoneWorld, capsys: pytest.CaptureFixture[str], pattern: str
) -> None:
    path = change(world, pattern, lambda raw: max(80, len(raw) // 2), b"\xa5\x5a\x0f\xf0")
    before = contents(world.root)
    code, answer = repair(world, capsys, "--discard")
    assert code == EXIT_DAMAGE
    assert path.name in answer["refused"][0]
    assert contents(world.root) == before


def test_nothing_is_done_when_nothing_is_damaged(
    world: LoneWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(world.root)
    code, answer = repair(world, capsys, "--discard")
    assert (code, answer["is_needed"]) == (EXIT_OK, False)
    assert contents(world.root) == before


def test_text_says_what_to_do_when_something_is_lost(
    world: LoneWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    change(world, "wheel/*.run", lambda _: 64, b"\xa5" * 100)
    assert main([str(world.root)]) == EXIT_DAMAGE
    told = capsys.readouterr().out
    assert "lost: pending" in told
    assert "--discard" in told
    assert main([str(world.root), "--discard"]) == EXIT_OK
    assert "repaired; the damaged files are in" in capsys.readouterr().out


def test_report_is_written_before_anything_and_an_interrupted_one_is_told(
    world: LoneWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    change(world, "wheel/*.run", lambda _: 64, b"\xa5" * 100)
    code, answer = repair(world, capsys, "--discard")
    assert (code, answer["interrupted"]) == (EXIT_OK, [])
    report = Path(answer["kept_aside"]) / "report.json"
    assert json.loads(report.read_text())["lost"] == answer["lost"] != []
    unfinished = report.rename(report.with_name("unfinished.json"))
    code, answer = repair(world, capsys)
    assert (code, answer["is_needed"]) == (EXIT_OK, False)
    assert answer["interrupted"] == [str(unfinished)]
    assert main([str(world.root)]) == EXIT_OK
    assert f"interrupted: {unfinished}" in capsys.readouterr().out


def test_real_process_repairs_a_directory_that_stays_as_others_left_it(world: LoneWorld) -> None:
    path = change(world, "wheel/*.run", lambda _: 64, b"\xa5" * 100)
    command = [sys.executable, "-m", "node", "repair", str(world.root), "--json"]
    looked = subprocess.run(command, capture_output=True, check=False, text=True)
    assert looked.returncode == EXIT_DAMAGE, looked.stderr
    named = json.loads(looked.stdout)["lost"]
    done = subprocess.run([*command, "--discard"], capture_output=True, check=True, text=True)
    answer = json.loads(done.stdout)
    assert (answer["lost"], answer["is_repaired"]) == (named, True)
    assert (Path(answer["kept_aside"]) / path.relative_to(world.root)).exists()
    again = subprocess.run(command, capture_output=True, check=True, text=True)
    assert json.loads(again.stdout)["is_needed"] is False
    world.is_lossy = True
    world.open()
    lost = {parse(one["message_id"]).sequence for one in named}
    everything = set(range(len(EARLY) + len(LATE) + len(RELEASED)))
    assert sorted(world.consume_all()) == sorted(everything - lost - set(CANCELLED))


def test_directory_is_refused_when_it_is_in_use_or_of_a_cluster_or_none(
    world: LoneWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    with DirectoryLock.acquire(world.root):
        assert main([str(world.root)]) == EXIT_DAMAGE
    assert "in use" in capsys.readouterr().err
    assert main([str(world.root / "shard-0")]) == EXIT_USAGE
    (world.root / "control").mkdir()
    assert main([str(world.root)]) == EXIT_USAGE
    assert "peers" in capsys.readouterr().err


def test_nothing_is_needed_when_the_log_reaches_back_to_its_beginning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = LoneWorld(tmp_path)
    world.publish([START_MS])
    world.commit()
    world.save()
    world.shard.log.close()
    code, answer = repair(world, capsys, "--discard")
    assert (code, answer["is_needed"]) == (EXIT_OK, False)
    assert "views" in answer["why"]
