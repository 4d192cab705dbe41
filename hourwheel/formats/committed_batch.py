"""The PUBLISH batch of a transaction that is committed."""

from hourwheel.formats.record_batch import Flag, RecordBatch, unpack_header


def of_transaction(raw: bytes, prepare_offset: int) -> RecordBatch:
    """An unstamped PUBLISH batch as the messages of a transaction that is committed."""
    header = unpack_header(raw)
    flags = header.flags | Flag.TRANSACTION
    return RecordBatch(raw, header._replace(flags=flags, producer_id=prepare_offset))
