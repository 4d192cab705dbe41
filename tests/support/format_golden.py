"""Golden files of messages, batches and the wheel: `python -m tests.support.format_golden`.

Writes those of tests/golden that are missing: one for each function in `BUILDERS`, whose docstring
says what is in it. A file that exists is never written: for a new version of a format, add a
function with a name of its own, and keep the old one.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.committed_batch import of_transaction
from hourwheel.formats.dedup_key import NO_DEDUP_KEY, make_dedup_key
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.record_batch import (
    CANCEL_ROW,
    DISPATCH_ROW,
    EXPIRE_ROW,
    FEATURE_LEVEL_ROW,
    PREPARE_ROW,
    RESCHEDULE_ROW,
    RESOLVE_ROW,
    TRANSACT_ROW,
    TRIM_ROW,
    TRIM_SEQUENCES_ROW,
    Kind,
    Outcome,
    RecordBatch,
    Stamp,
    build_blob,
    build_publish,
    build_rows,
    stamp,
)
from hourwheel.formats.transaction_step import Step
from hourwheel.internal.v1.state_pb2 import RecurrenceChange, RecurrenceConfig
from hourwheel.types import Epoch, Offset, SequenceNumber, ShardId
from storage.views.unit import Units
from tests.sim.disk import SimulatedDisk
from tests.support.golden import FOLDER
from tests.support.runs import DIRECTORY, IDENTITY, keyed, run_bytes, write_run
from tests.support.wheel_world import MemoryLog
from timewheel.bodies import Bodies
from timewheel.delay_log import DelayLogWriter, places_in_log
from timewheel.levels import DAY_LEVEL, DAY_MS, HOUR_LEVEL, HOUR_MS, SLOTS
from timewheel.run_format import delay_log_path

STAMP: Final = Stamp(
    Offset(0x1_0000_0000),
    SequenceNumber(1_000_000),
    1_700_000_000_000,
    Offset(0xFFFF_FF00),
    Epoch(7),
)
DUE_MS: Final = 1_800_000_000_123
HOUR: Final = DUE_MS // HOUR_MS
DAY: Final = DUE_MS // DAY_MS
BODIES: Final = (b"first body", b"", b"third")
METAS: Final = (b"", b"\x0a\x03tag", b"\x0a\x01t")


_QUEUES: Final = (0x0101, 0x0102, 0x0200)


def stamped(raw: bytes | RecordBatch, queues: tuple[int, int, int] = _QUEUES) -> bytes:
    """A batch as a master writes it; `queues` of a PUBLISH of three messages."""
    batch = raw if isinstance(raw, RecordBatch) else RecordBatch(raw)
    if batch.header.kind == Kind.PUBLISH:
        numbers = np.array(queues, np.uint32)
        pieces = stamp(batch, STAMP, due_ms=batch.due_ms, topic_queue=numbers)
    else:
        pieces = stamp(batch, STAMP)
    return b"".join(pieces)


def rows_of(kind: Kind, dtype: "np.dtype[np.void]", *rows: tuple[int, ...]) -> bytes:
    """A stamped batch of rows."""
    return stamped(build_rows(kind, np.array(list(rows), dtype)))


def publish_unstamped() -> bytes:
    """What a client builds: three messages with delays, metas, genes and a producer."""
    return build_publish(
        [0, 1_500, 86_400_000],
        BODIES,
        metas=METAS,
        tag_genes=[0, 0x8000_0000_0000_0041, 2],
        key_hashes=[7, 0, 0xFFFF_FFFF_FFFF_FFFF],
        relative_due=True,
        producer_id=0x1122_3344_5566_7788,
        producer_sequence=42,
        gene_kind=1,
    )


def publish() -> bytes:
    """The same messages with instants, stamped by a master."""
    return stamped(build_publish([DUE_MS, DUE_MS, DUE_MS + 1], BODIES, metas=METAS, producer_id=9))


def publish_merged() -> bytes:
    """Messages of three producers that a node merged, stamped: with the two producer columns."""
    producers = ([9, 0, 8], [5, 0, 6])
    return stamped(build_publish([DUE_MS] * 3, BODIES, message_producers=producers))


def publish_with_spec() -> bytes:
    """As `publish`, with genes and the number of the specification they were made by."""
    return stamped(
        build_publish(
            [DUE_MS, DUE_MS, DUE_MS + 1],
            BODIES,
            metas=METAS,
            tag_genes=[0, 0x8000_0000_0000_0041, 2],
            gene_kind=1,
            gene_spec=0x0102_0304,
        )
    )


def publish_dedup() -> bytes:
    """As `publish_merged`, with dedup keys: one to keep, none, one to replace."""
    keys = [make_dedup_key("order-17", 2), NO_DEDUP_KEY, make_dedup_key("ä", 3)]
    producers = ([9, 0, 8], [5, 0, 6])
    return stamped(build_publish([DUE_MS] * 3, BODIES, message_producers=producers, dedup=keys))


def dispatch() -> bytes:
    """Two dispatches, the second of which begins where the first ends."""
    return rows_of(
        Kind.DISPATCH,
        DISPATCH_ROW,
        (-1, 0, DUE_MS, 5, 4_096, 3, 0xE220_A839_7B1D_CDAF),
        (DUE_MS, 5, DUE_MS + 1_000, (1 << 63) - 1, 4_096, 3, 0xE220_A839_7B1D_CDAF),
    )


def cancel() -> bytes:
    """Two cancels by id."""
    return rows_of(Kind.CANCEL, CANCEL_ROW, (DUE_MS, 5, 7, 0), (DUE_MS + 1, 6, 1, 0))


def reschedule() -> bytes:
    """Two moves of one message, the second back to where it was."""
    return rows_of(
        Kind.RESCHEDULE,
        RESCHEDULE_ROW,
        (DUE_MS, 5, DUE_MS + 3_600_000, 7, 0),
        (DUE_MS, 5, DUE_MS, 7, 0),
    )


def prepare() -> bytes:
    """A transaction with a message for each of two topics (the blob need not be one here)."""
    rows = np.array([(1, 2, 3, 1), (1, 2, 4, 1)], PREPARE_ROW)
    return stamped(build_rows(Kind.PREPARE, rows, b"\x0a\x05tills"))


def transact() -> bytes:
    """A check, and two ends."""
    return rows_of(
        Kind.TRANSACT,
        TRANSACT_ROW,
        (4_096, Step.CHECK, 0),
        (4_096, Step.ROLL_BACK, 0),
        (8_192, Step.EXPIRE, 0),
    )


def publish_transaction() -> bytes:
    """The messages of a transaction that is committed."""
    raw = build_publish([DUE_MS, DUE_MS, DUE_MS + 1], BODIES, metas=METAS)
    return stamped(of_transaction(raw, 4_096))


def recurrence() -> bytes:
    """A recurrence that is defined anew, whose last occurrence is taken back."""
    config = RecurrenceConfig(
        name="orders\nreport", topic="orders", cron="0 9 * * MON-FRI", zone="Europe/Berlin",
        count_max=3, missed=2, excluded_days=[20_000, 20_400], body=b"x",
    )  # fmt: skip
    change = RecurrenceChange(expected_version=4_096, put=config)
    rows = np.array([(DUE_MS, 5, 7, 0)], CANCEL_ROW)
    blob = change.SerializeToString(deterministic=True)
    return stamped(build_rows(Kind.RECURRENCE, rows, blob))


def occurrences() -> bytes:
    """Occurrences of two recurrences."""
    return stamped(
        build_publish(
            [DUE_MS, DUE_MS + 1, DUE_MS],
            BODIES,
            message_producers=([4_096, 4_096, 8_192], [0, 1, 7]),
            are_occurrences=True,
            gene_spec=0xFFFF_FFFF,
        )
    )


def resolve() -> bytes:
    """An acknowledgement, a retry and a dead letter."""
    return rows_of(
        Kind.RESOLVE,
        RESOLVE_ROW,
        (3, 0x0101, 1_000_000_007, 30, Outcome.ACK, 0),
        (3, 0x0101, 1_000_000_037, 1, Outcome.RETRY, DUE_MS),
        (4, 0x0102, 0, 2, Outcome.DEAD, 0),
    )


def resolve_filtered() -> bytes:
    """A long stretch that a filter passed over."""
    return rows_of(Kind.RESOLVE, RESOLVE_ROW, (3, 0x0101, 7, 3_000_000_000, Outcome.FILTERED, 0))


def resolve_redrive() -> bytes:
    """Dead letters that a group is given again."""
    return rows_of(Kind.RESOLVE, RESOLVE_ROW, (3, 0x0200, 40, 3, Outcome.REDRIVE, DUE_MS))


def resolve_skipped() -> bytes:
    """What a group was let go on behind."""
    return rows_of(Kind.RESOLVE, RESOLVE_ROW, (3, 0x0101, 0, 3_000_000_000, Outcome.SKIPPED, 0))


def resolve_in_place() -> bytes:
    """What an ordered group gave back, for a while or for an operator; and what it gets again."""
    return rows_of(
        Kind.RESOLVE,
        RESOLVE_ROW,
        (3, 0x0101, 7, 1, Outcome.HELD, DUE_MS),
        (3, 0x0101, 9, 2, Outcome.HELD, 1 << 62),
        (3, 0x0101, 9, 1, Outcome.FREED, 0),
    )


def resolve_expired() -> bytes:
    """What has expired: dropped, and kept as dead letters."""
    return rows_of(
        Kind.RESOLVE,
        RESOLVE_ROW,
        (3, 0x0101, 7, 3_000_000_000, Outcome.EXPIRED, 0),
        (4, 0x0101, 7, 2, Outcome.EXPIRED_LETTER, 0),
    )


def publish_expiring() -> bytes:
    """Messages that expire at an instant, so long after they were stored, and never."""
    metas = [encode(MessageMeta(tags=("t",), expires_ms=at)).raw for at in (DUE_MS + 1, -500, 0)]
    return stamped(build_publish([DUE_MS, DUE_MS, DUE_MS], BODIES, metas=metas))


def publish_prioritised() -> bytes:
    """Messages with a priority: one that expires, one with an ordering key; and one without."""
    metas = [
        encode(MessageMeta(expires_ms=DUE_MS + 1, priority=9)),
        encode(MessageMeta(ordering_key="k", priority=1)),
        encode(MessageMeta(tags=("t",))),
    ]
    raw = build_publish([DUE_MS] * 3, BODIES, metas=[meta.raw for meta in metas])
    return stamped(raw, (0x01FF, 0x0100, 0x0100))


def config() -> bytes:
    """A CONFIG with a blob (the bytes need not be a message of its kind here)."""
    return stamped(build_blob(Kind.CONFIG, b"\x10\x05"))


def trim() -> bytes:
    """Entries released before an instant leave their queues."""
    return rows_of(Kind.TRIM, TRIM_ROW, (DUE_MS,))


def trim_sequences() -> bytes:
    """A TRIM_SEQUENCES record."""
    return rows_of(Kind.TRIM_SEQUENCES, TRIM_SEQUENCES_ROW, (1_000_000,))


def expire() -> bytes:
    """Producers idle since an instant are forgotten."""
    return rows_of(Kind.EXPIRE, EXPIRE_ROW, (DUE_MS,))


def feature_level() -> bytes:
    """Feature level 1."""
    return rows_of(Kind.FEATURE_LEVEL, FEATURE_LEVEL_ROW, (1, 0))


def epoch_start() -> bytes:
    """An EPOCH_START of node "n"."""
    return stamped(build_blob(Kind.EPOCH_START, b"\x0a\x01n"))


def message_id() -> bytes:
    """The text of one message id, in ASCII."""
    return str(
        MessageId(ShardId(1), Epoch(7), SequenceNumber(0x0123_4567_89AB_CDEF), DUE_MS)
    ).encode()


def units_of_run() -> Units:
    """Six units of three hours in two days, with different values in all columns."""
    units = keyed(
        [
            *((DUE_MS, 5), (DUE_MS, 6), (DUE_MS + 1_000, 1), (DUE_MS + 999_999, 1 << 40)),
            *(((HOUR + 1) * HOUR_MS - 1, 2), ((DAY + 1) * DAY_MS, (1 << 63) - 1)),
        ]
    )
    for factor, name in enumerate(units.dtype.names or (), 3):
        if name not in ("due_ms", "sequence"):
            units[name] = np.arange(1, len(units) + 1) * factor
    units["store_ms"] += 1_700_000_000_000
    return units


def run_hours() -> bytes:
    """Run 9 at the hour level: five units of one hour; older runs have units in two seconds."""

    def heads(bucket: int) -> NDArray[np.uint32]:
        found = np.zeros(SLOTS[HOUR_LEVEL], np.uint32)
        found[[0, 1_200]] = 3, 8
        return found

    disk = SimulatedDisk()
    write_run(disk, units_of_run()[:5], level=HOUR_LEVEL, run_id=9, heads=heads)
    return run_bytes(disk, 9)


def run_hours_pages() -> bytes:
    """As `run_hours` was, with the pages of first releases in the footer: 2 and 3."""
    disk, units = SimulatedDisk(), units_of_run()[:5].copy()
    units["sequence"] = np.arange(5) + (3 << 16) - 2
    units["attempt"] = 0, 1, 1, 1, 2
    units["due_ms"] = units["due_ms"][0]
    write_run(disk, units, level=HOUR_LEVEL, run_id=9)
    return run_bytes(disk, 9)


def run_days() -> bytes:
    """Run 8 at the day level, which stands for 5 to 8: six units of two days."""

    def heads(bucket: int) -> NDArray[np.uint32]:
        return np.arange(SLOTS[DAY_LEVEL], dtype=np.uint32) % 5

    disk = SimulatedDisk()
    write_run(disk, units_of_run(), level=DAY_LEVEL, run_id=8, covers_first=5, heads=heads)
    return run_bytes(disk, 8, 5)


def delay_log() -> bytes:
    """Delay log 9: blobs of three units out of a span of the log, in another order than there."""
    disk, log = SimulatedDisk(), MemoryLog()
    disk.make_dir(DIRECTORY)
    span = b"metabody" + b"second" + b"not taken" + b"third"
    units = keyed([(DUE_MS, 1), (DUE_MS + 1, 0), (DUE_MS + 2, 2)], dlog_id=0)
    units["position"] = [1_008, 1_000, 1_023]
    units["body_len"], units["meta_len"] = [6, 4, 5], [0, 4, 0]
    writer = DelayLogWriter(disk, DIRECTORY, IDENTITY, 9)
    places = places_in_log(units, Offset(1_000), Offset(1_000 + len(span)))
    writer.append_from_log(units, span, places, Bodies(disk, DIRECTORY, log))
    writer.finish()
    file = disk.open(delay_log_path(DIRECTORY, 9))
    return file.pread(file.size(), 0)


BATCHES: Final[dict[str, Callable[[], bytes]]] = {
    "batch_publish_unstamped": publish_unstamped,
    "batch_publish": publish,
    "batch_publish_merged": publish_merged,
    "batch_publish_dedup": publish_dedup,
    "batch_publish_with_spec": publish_with_spec,
    "batch_dispatch": dispatch,
    "batch_cancel": cancel,
    "batch_reschedule": reschedule,
    "batch_prepare": prepare,
    "batch_transact": transact,
    "batch_publish_transaction": publish_transaction,
    "batch_recurrence": recurrence,
    "batch_publish_occurrences": occurrences,
    "batch_resolve": resolve,
    "batch_resolve_filtered": resolve_filtered,
    "batch_resolve_redrive": resolve_redrive,
    "batch_resolve_skipped": resolve_skipped,
    "batch_resolve_in_place": resolve_in_place,
    "batch_resolve_expired": resolve_expired,
    "batch_publish_expiring": publish_expiring,
    "batch_publish_prioritised": publish_prioritised,
    "batch_config": config,
    "batch_trim": trim,
    "batch_trim_sequences": trim_sequences,
    "batch_expire": expire,
    "batch_feature_level": feature_level,
    "batch_epoch_start": epoch_start,
}
"""Name of the golden file -> what makes it: batches of every kind."""

BUILDERS: Final[dict[str, Callable[[], bytes]]] = {
    **BATCHES,
    "message_id": message_id,
    "run_hours": run_hours,
    "run_hours_pages": run_hours_pages,
    "run_days": run_days,
    "delay_log": delay_log,
}
"""Name of the golden file -> what makes it."""

_LINE_BYTES: Final = 32


def main() -> None:
    """Write the golden files that are missing."""
    for name, build in BUILDERS.items():
        path = FOLDER / f"{name}.hex"
        if not path.exists():
            raw = build()
            lines = [raw[at : at + _LINE_BYTES].hex() for at in range(0, len(raw), _LINE_BYTES)]
            path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
