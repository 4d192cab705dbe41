"""The requests that a PUBLISH batch is made of."""

from hourwheel.formats.record_batch import Flag, RecordBatch


def requests_of(batch: RecordBatch) -> list[tuple[int, int, int, int]]:
    """(first ordinal, end, producer, its number of the first) of each request in a batch."""
    header = batch.header
    if not header.flags & Flag.PER_MESSAGE_PRODUCER:
        return [(0, header.count, header.producer_id, header.producer_sequence)]
    ids, numbers = (column.tolist() for column in batch.message_producers)
    found: list[tuple[int, int, int, int]] = []
    for at, producer in enumerate(ids):
        is_one = producer and not header.flags & Flag.OCCURRENCES
        if is_one and found and found[-1][2] == producer and found[-1][1] == at:
            found[-1] = (found[-1][0], at + 1, *found[-1][2:])
        else:
            found.append((at, at + 1, producer, numbers[at]))
    return found
