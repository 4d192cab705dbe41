"""A log file is read as `log_model` understands it, with the bytes of the public format alone."""

from pathlib import Path
from typing import Final

import numpy as np
import pytest

from chaos.history import Begun, Entry, body_of
from chaos.stored import LogFiles, read_stored
from hourwheel import errors
from hourwheel.formats import record_batch
from hourwheel.formats.record_batch import (
    CANCEL_ROW,
    DISPATCH_ROW,
    Kind,
    RecordBatch,
    Stamp,
    build_blob,
    build_publish,
    build_rows,
)
from hourwheel.internal.v1.state_pb2 import (
    ConfigChange,
    EpochStart,
    GroupConfig,
    Subscription,
    SubscriptionReset,
    TopicConfig,
)

NOW_MS: Final = 1_800_000_000_000


class Writer:
    """Writes segments as a node does, but for the content of their headers."""

    def __init__(self) -> None:
        self.raw, self.sequence, self.cuts = b"", 0, [0]

    def add(self, unstamped: bytes, count: int = 0) -> None:
        batch = RecordBatch(unstamped)
        place = Stamp(len(self.raw), self.sequence, NOW_MS, 0, 1)
        columns = {}
        if count:
            columns = {"due_ms": batch.due_ms, "topic_queue": batch.topic_queue}
        head, payload = record_batch.stamp(batch, place, **columns)
        self.raw += head + bytes(payload)
        self.sequence += count

    def publish(self, first_serial: int, *due_ms: int) -> None:
        bodies = [body_of(first_serial + at) for at in range(len(due_ms))]
        self.add(build_publish(due_ms, bodies, topic_queues=[1 << 8] * len(due_ms)), len(due_ms))

    def write(self, directory: Path) -> None:
        folder = directory / "shard-0" / "log"
        folder.mkdir(parents=True)
        for start, end in zip(self.cuts, [*self.cuts[1:], len(self.raw)], strict=True):
            (folder / f"{start:020}.log").write_bytes(bytes(64) + self.raw[start:end])


def a_log() -> Writer:
    writer = Writer()
    writer.add(build_blob(Kind.EPOCH_START, EpochStart().SerializeToString()))
    topic = TopicConfig(topic_id=1, name="orders", queue_count=1)
    writer.add(build_blob(Kind.CONFIG, ConfigChange(put_topic=topic).SerializeToString()))
    writer.publish(1, NOW_MS + 100, NOW_MS + 200, NOW_MS + 900, NOW_MS)
    cancel = np.zeros(1, CANCEL_ROW)
    cancel["sequence"], cancel["due_ms"], cancel["epoch"] = 1, NOW_MS + 200, 1
    writer.add(build_rows(Kind.CANCEL, cancel))
    writer.cuts.append(len(writer.raw))
    dispatch = np.zeros(1, DISPATCH_ROW)
    dispatch["prev_due_ms"], dispatch["to_due_ms"] = -1, NOW_MS + 500
    writer.add(build_rows(Kind.DISPATCH, dispatch))
    return writer


def test_messages_are_where_the_log_says_when_it_is_read(tmp_path: Path) -> None:
    writer = a_log()
    writer.write(tmp_path)
    log = LogFiles(tmp_path)
    model, stored = read_stored(log, len(writer.raw))
    assert [one.serial for one in stored.messages.values()] == [1, 2, 3, 4]
    assert stored.queued == [Entry("orders", 3, 1), Entry("orders", 0, 1)]
    assert stored.pending == [Entry("orders", 2, 1)]
    assert stored.cancelled == {1}
    assert model.offset == len(writer.raw)


def test_log_is_read_up_to_an_offset_when_there_is_more(tmp_path: Path) -> None:
    writer = a_log()
    writer.write(tmp_path)
    log = LogFiles(tmp_path)
    _, stored = read_stored(log, writer.cuts[1])
    assert stored.queued == [Entry("orders", 3, 1)]
    cut = writer.cuts[1]
    assert log.raw(cut - 5, cut + 5) == writer.raw[cut - 5 : cut + 5]
    assert log.raw(0, 1 << 40) == writer.raw


def test_I8_damage_is_raised_when_a_byte_is_wrong(tmp_path: Path) -> None:  # noqa: N802
    writer = a_log()
    at = writer.raw.rindex(body_of(3)[:8])
    writer.raw = writer.raw[:at] + b"\xff" + writer.raw[at + 1 :]
    writer.write(tmp_path)
    with pytest.raises(errors.HourwheelError):
        read_stored(LogFiles(tmp_path), len(writer.raw))


def test_log_makes_no_sense_when_a_dispatch_stands_twice(tmp_path: Path) -> None:
    writer = a_log()
    dispatch = np.zeros(1, DISPATCH_ROW)
    dispatch["prev_due_ms"], dispatch["to_due_ms"] = -1, NOW_MS + 500
    writer.add(build_rows(Kind.DISPATCH, dispatch))
    writer.write(tmp_path)
    with pytest.raises(AssertionError):
        read_stored(LogFiles(tmp_path), len(writer.raw))


def test_resets_are_told_with_where_they_begin_and_which_leases_are_void(tmp_path: Path) -> None:
    writer = a_log()
    retries = TopicConfig(topic_id=2, name="%RETRY%billing|orders", queue_count=1, internal=True)
    reset = SubscriptionReset(
        group_id=1,
        topic_id=1,
        former_retry_topic_id=2,
        retry_topic_id=3,
        topic_queues=[1 << 8],
        positions=[1],
        receipts_epoch=4,
        receipts_lease_id=5,
    )
    changes = [
        ConfigChange(put_topic=retries),
        ConfigChange(put_group=GroupConfig(group_id=1, name="billing", attempts_max=3)),
        ConfigChange(put_subscription=Subscription(group_id=1, topic_id=1, retry_topic_id=2)),
        ConfigChange(reset_subscription=reset),
        ConfigChange(reset_subscription=reset),  # somebody was faster: it is void
    ]
    for change in changes:
        writer.add(build_blob(Kind.CONFIG, change.SerializeToString()))
    writer.write(tmp_path)
    _, stored = read_stored(LogFiles(tmp_path), len(writer.raw))
    assert stored.begun == {"billing": [Begun({1 << 8: 1}, (4, 5), NOW_MS)]}
    assert stored.places == {3: (1 << 8, 0), 0: (1 << 8, 1)}
