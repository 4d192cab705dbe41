"""Looking into a data directory."""

from pathlib import Path

import grpc
import pytest

from hourwheel import errors
from hourwheel.record_batch import build_publish
from hourwheel.wire import broker_pb2, broker_pb2_grpc
from node.embedded import EmbeddedNode
from node.inspect import Inspection, instant
from node.node_meta import NODE_META

SMALL = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}}
HOUR_MS = 3_600_000


async def fill(directory: Path, count: int = 3) -> None:
    """Schedule messages for the next hours and for days to come, and stop the node."""
    async with (
        EmbeddedNode(directory, SMALL) as node,
        grpc.aio.insecure_channel(node.address) as channel,
    ):
        stream = broker_pb2_grpc.ProducerServiceStub(channel).PublishStream()
        for number in range(count):
            delays = [hour * HOUR_MS + number for hour in range(1, 101)]
            raw = build_publish(delays, [b"x" * 50] * 100, relative_due=True)
            await stream.write(broker_pb2.PublishStreamRequest(topic="orders", record_batch=raw))
        await stream.done_writing()
        assert [answer.published.count async for answer in stream] == [100] * count


@pytest.fixture
async def directory(tmp_path: Path) -> Path:
    await fill(tmp_path)
    return tmp_path


async def test_log_is_shown_batch_by_batch(directory: Path) -> None:
    inspection = Inspection(str(directory))
    (segment,) = inspection.segments()
    rows = list(inspection.batches(0, 1_000))
    kinds = [row["kind"] for row in rows]
    assert kinds.count("PUBLISH") == 3
    assert {"EPOCH_START", "CONFIG"} <= set(kinds)
    assert rows[-1]["offset"] + rows[-1]["bytes"] == segment["end_offset"]
    (topic,) = [row["what"] for row in rows if row["kind"] == "CONFIG"]
    assert topic == "put_topic orders"
    (begin,) = [row["what"] for row in rows if row["kind"] == "EPOCH_START"]
    assert begin == "node node-1"
    last = [row["offset"] for row in rows if row["kind"] == "PUBLISH"][-1]
    assert [row["base_sequence"] for row in inspection.batches(last, 1)] == [200]


async def test_wheel_is_shown_down_to_its_slots(directory: Path) -> None:
    inspection = Inspection(str(directory))
    runs = list(inspection.runs())
    assert {run["level"] for run in runs} == {"hours", "days"}
    assert sum(run["units"] for run in runs) == 300
    buckets = list(inspection.buckets())
    assert sum(bucket["units"] for bucket in buckets) == 300
    hours = next(run["run"] for run in runs if run["level"] == "hours")
    bucket = next(each for each in inspection.buckets(hours))
    slots = list(inspection.slots(hours, bucket["bucket"]))
    assert sum(slot["units"] for slot in slots) == bucket["units"] == 3
    assert len(list(inspection.slots(hours))) >= len(slots)
    units = list(inspection.units(hours, 0, 2))
    assert [unit["global_index"] for unit in units] == [0, 1]
    assert {unit["body_len"] for unit in units} == {50}
    assert list(inspection.units(hours, 10_000, 5)) == []


async def test_owner_epochs_and_checkpoint_are_shown(directory: Path) -> None:
    await fill(directory, count=1)
    inspection = Inspection(str(directory))
    (owner,) = inspection.nodes()
    assert (owner["node_id"], owner["shards"]) == ("node-1", "shard-0")
    assert [row["epoch"] for row in inspection.epochs()] == [1, 2]
    parts = list(inspection.checkpoint())
    assert parts[0]["next_sequence"] == "400"
    assert {part["part"] for part in parts} >= {"checkpoint", "topics", "runs", "epochs"}


async def test_damage_of_the_log_is_a_row_and_the_rest_is_shown(directory: Path) -> None:
    inspection = Inspection(str(directory))
    rows = list(inspection.batches(0, 1_000))
    victim = rows[2]
    path = directory / "shard-0" / "log" / "00000000000000000000.log"
    raw = bytearray(path.read_bytes())
    raw[64 + victim["offset"] + 100] ^= 1
    path.write_bytes(bytes(raw))
    shown = list(Inspection(str(directory)).batches(0, 1_000))
    assert [row["offset"] for row in shown] == [row["offset"] for row in rows[:3]]
    assert "CRC32C" in shown[-1]["fault"]
    after = list(Inspection(str(directory)).batches(rows[3]["offset"], 1))
    assert "fault" not in after[0]


async def test_damage_of_a_run_is_a_row_and_the_rest_is_shown(directory: Path) -> None:
    first, second = sorted((directory / "shard-0" / "wheel").glob("*.run"))
    raw = bytearray(first.read_bytes())
    raw[-1] ^= 1
    first.write_bytes(bytes(raw))
    rows = list(Inspection(str(directory)).runs())
    assert [("fault" in row, Path(row["file"]).name) for row in rows] == [
        (True, first.name),
        (False, second.name),
    ]
    for found in (
        list(Inspection(str(directory)).buckets()),
        list(Inspection(str(directory)).slots(2)),
    ):
        assert "fault" in found[0]


async def test_nothing_is_written_when_a_directory_is_inspected(directory: Path) -> None:
    def state() -> dict[Path, tuple[int, int]]:
        return {
            path: (path.stat().st_size, path.stat().st_mtime_ns)
            for path in directory.rglob("*")
            if path.is_file()
        }

    before = state()
    inspection = Inspection(str(directory))
    for rows in (
        inspection.nodes(),
        inspection.segments(),
        inspection.batches(0, 10),
        inspection.epochs(),
        inspection.checkpoint(),
        inspection.runs(),
        inspection.buckets(),
        inspection.slots(1),
        inspection.units(1, 0, 5),
    ):
        list(rows)
    assert state() == before


def test_other_directories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.CorruptFile, match=NODE_META):
        Inspection(str(tmp_path))


@pytest.mark.parametrize(
    ("due_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_800_000_000_123, "2027-01-15T08:00:00.123Z"),
        (-1, "-1"),
        (1 << 62, str(1 << 62)),
    ],
)
def test_instants_are_written_for_people_where_they_can_be(due_ms: int, text: str) -> None:
    assert instant(due_ms) == text
