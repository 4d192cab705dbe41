"""Messages of a log whose own CRC does not fit their bytes, in batches whose CRCs do."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel.crc32c import crc32c
from hourwheel.formats.record_batch import RecordBatch, Stamp, build_publish, stamp
from spark_jobs.audit.facts.crcs import bad_in_log
from spark_jobs.logs.segment_reader import read_blocks
from tests.support.audit_faults import copies
from tests.support.audit_runs import errors_of, run_audit
from tests.support.audited import in_memory, only_copy, range_of, tables_of
from tests.support.log_copies import Cluster
from tests.support.log_maker import Made, replicate
from tests.support.tampering import corrupt_message


@given(data=st.data())
def test_bad_messages_of_a_log_are_those_whose_bytes_or_crcs_changed(data: st.DataObject) -> None:
    """Against one CRC a message, for lengths from nothing on."""
    rng = random.Random(data.draw(st.integers(0, 1 << 32)))
    raw, offset, every = b"", 0, 0
    wanted = []
    for _ in range(data.draw(st.integers(1, 6))):
        count = data.draw(st.integers(1, 12))
        lengths = data.draw(st.sampled_from([(0,), (0, 1, 2, 3, 5), (4, 5, 100), (100,)]))
        bodies = [rng.randbytes(rng.choice(lengths)) for _ in range(count)]
        batch = RecordBatch(build_publish([1_000] * count, bodies))
        payload, crcs = bytearray(batch.payload), batch.crc.copy()
        columns = batch.header.column_bytes
        crcs_at = bytes(payload).index(crcs.tobytes(), 16 * count)
        for _ in range(data.draw(st.integers(0, 2))):
            if batch.header.blob_bytes and rng.random() < 0.7:
                payload[columns + rng.randrange(batch.header.blob_bytes)] ^= 1 << rng.randrange(8)
            else:
                crcs[rng.randrange(count)] ^= 1 << rng.randrange(32)
        payload[crcs_at : crcs_at + 4 * count] = crcs.tobytes()
        end = columns
        for at, body in enumerate(bodies):
            begin, end = end, end + len(body)
            if crc32c(bytes(payload[begin:end])) != int(crcs[at]):
                wanted.append(every + at)
        every += count
        fields = batch.header._replace(payload_crc=crc32c(bytes(payload[:end])))
        place = Stamp(offset, every - count, 1, 0, 1)
        whole = RecordBatch(bytes(batch.head) + bytes(payload), fields)
        zero = np.zeros(count, np.uint32)
        head, rest = stamp(whole, place, due_ms=batch.due_ms, topic_queue=zero)
        raw += head + bytes(rest)
        offset = len(raw)
    segment = bytes(64) + raw
    (table,) = read_blocks(range_of(segment), disk=in_memory(segment))
    assert table.damages == ()
    assert len(table.messages) == every
    assert bad_in_log(table).tolist() == wanted


def test_every_message_of_a_real_log_has_its_crc(made: Made, tmp_path: Path) -> None:
    tables = list(tables_of(*only_copy(made.directory)))
    assert sum(len(one.messages) for one in tables) > 100
    assert all(len(bad_in_log(one)) == 0 for one in tables if len(one.messages))
    nodes = copies(replicate(copies([made.directory], tmp_path / "a")[0], 1), tmp_path / "b")
    (expected,) = corrupt_message(Cluster(nodes), random.Random(3))
    bad = [
        int(one.messages.column("sequence")[at])
        for one in tables_of(*only_copy(nodes[0]))
        if len(one.messages)
        for at in bad_in_log(one).tolist()
    ]
    assert bad == [expected.sequence]


def test_audit_when_many_messages_are_corrupt_counts_what_it_does_not_name(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node,) = copies([made.directory], tmp_path)
    monkeypatch.setattr(
        "spark_jobs.audit.facts.scan.bad_in_log", lambda table: np.arange(len(table.messages))
    )
    monkeypatch.setattr("spark_jobs.audit.facts.scan.FINDINGS_MAX", 3)
    found = [one for one in errors_of(run_audit(node)) if one.check == "message-corrupt"]
    rest = [one for one in found if one.sequence < 0]
    assert rest
    told = sum(int(one.detail.partition(" ")[0].replace(",", "")) for one in rest)
    assert told + len(found) - len(rest) == len(made.accepted) + made.void
