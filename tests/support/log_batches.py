"""What a log holds."""

from hourwheel.formats.record_batch import RecordBatch
from storage.log.commit_log import CommitLog


def batches_of(log: CommitLog) -> list[RecordBatch]:
    """All batches that are in its files and were flushed."""
    return list(log.scan(log.start_offset, log.flushed_end_offset))
