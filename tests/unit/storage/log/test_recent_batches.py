"""The window on the end of the log."""

from hypothesis import given
from hypothesis import strategies as st

from hourwheel.formats.record_batch import Kind, RecordBatch, Stamp, build_blob, stamp
from storage.log.recent_batches import Piece, RecentBatches


def batch_at(offset: int, epoch: int) -> RecordBatch:
    """A batch of an epoch, stamped for its place in the log."""
    batch = RecordBatch(build_blob(Kind.CONFIG, bytes(16)))
    return RecordBatch.from_pieces(*stamp(batch, Stamp(offset, 0, 1, 0, epoch)))


def filled(epochs: list[int], bytes_max: int = 1 << 20) -> tuple[RecentBatches, list[RecordBatch]]:
    """A window into which a batch of each of these epochs was appended."""
    recent, batches, offset = RecentBatches(bytes_max), [], 0
    for epoch in epochs:
        batch = batch_at(offset, epoch)
        batches.append(batch)
        recent.append(batch)
        offset += batch.header.total_bytes
    return recent, batches


def raw_of(batches: list[RecordBatch]) -> bytes:
    return b"".join(bytes(one.head) + bytes(one.payload) for one in batches)


_epochs = st.lists(st.integers(0, 1), min_size=1, max_size=12).map(
    lambda steps: [1 + sum(steps[: at + 1]) for at in range(len(steps))]
)


@given(_epochs, st.integers(1, 2_000), st.integers(1, 1_000), st.data())
def test_find_gives_whole_batches_of_one_epoch_from_where_it_is_asked(
    epochs: list[int], bytes_max: int, piece_max: int, data: st.DataObject
) -> None:
    recent, batches = filled(epochs, bytes_max)
    cut = data.draw(st.integers(0, len(batches)))
    if cut < len(batches):
        recent.truncate(batches[cut].header.offset)
        del batches[cut:]
    first = data.draw(st.integers(0, cut))
    end = batches[-1].header.offset + batches[-1].header.total_bytes if batches else 0
    offset = batches[first].header.offset if first < cut else end
    piece = recent.find(offset, piece_max)
    kept = raw_of(batches[first:])
    if piece is None:
        assert first == cut or len(raw_of(batches[first:])) > 0
        return
    assert piece.offset == offset
    assert kept.startswith(piece.raw)
    taken = [one for one in batches if offset <= one.header.offset < piece.end_offset]
    assert {one.header.epoch for one in taken} == {piece.epoch}
    assert raw_of(taken) == piece.raw
    assert len(raw_of(taken[:-1])) < piece_max
    rest = [one for one in batches if one.header.offset >= piece.end_offset]
    assert not rest or rest[0].header.epoch != piece.epoch or len(piece.raw) >= piece_max


@given(_epochs, st.integers(1, 2_000))
def test_last_batches_are_there_as_far_as_there_is_room(epochs: list[int], bytes_max: int) -> None:
    recent, batches = filled(epochs, bytes_max)
    size = 0
    for batch in reversed(batches):
        size += batch.header.total_bytes
        fits = size <= bytes_max or batch is batches[-1]
        assert (recent.find(batch.header.offset, 1) is not None) == fits


def test_find_gives_nothing_when_it_is_not_there() -> None:
    recent, batches = filled([1, 1, 1])
    end = batches[-1].header.offset + batches[-1].header.total_bytes
    assert recent.find(end, 100) is None
    assert recent.find(batches[1].header.offset + 8, 100) is None
    assert RecentBatches(100).find(0, 100) is None


def test_appending_goes_on_when_it_was_cut_to_nothing() -> None:
    recent, batches = filled([1, 1])
    recent.truncate(0)
    assert recent.find(0, 100) is None
    recent.append(batches[0])
    assert recent.find(0, 1) == Piece(0, 1, raw_of(batches[:1]))
