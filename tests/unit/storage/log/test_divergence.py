"""Where two logs part: held against a comparison of the logs themselves, batch by batch."""

from hypothesis import given
from hypothesis import strategies as st

from hourwheel.types import Epoch, Offset
from storage.files.file_header import Identity
from storage.log.epochs import EpochEntry, EpochFile, find_divergence
from tests.sim.disk import SimulatedDisk

Log = list[tuple[int, int]]
"""(epoch, number in it) of each batch; every batch has length 1."""


def common_length(one: Log, other: Log) -> int:
    """How far two logs are the same."""
    length = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        length += 1
    return length


def entries_of(log: Log) -> list[EpochEntry]:
    """The epochs of a log."""
    found: list[EpochEntry] = []
    for offset, (epoch, _) in enumerate(log):
        if not found or found[-1].epoch != epoch:
            found.append(EpochEntry(Epoch(epoch), Offset(offset)))
    return found


@st.composite
def related_logs(draw: st.DrawFn) -> list[Log]:
    """Three logs after some epochs: the master appends, others copy some of its log or nothing."""
    logs: list[Log] = [[], [], []]
    for epoch in range(1, draw(st.integers(1, 8)) + 1):
        master = draw(st.integers(0, 2))
        logs[master] = logs[master] + [(epoch, number) for number in range(draw(st.integers(1, 4)))]
        for other in range(3):
            if other != master and draw(st.booleans()):
                kept = common_length(logs[master], logs[other])
                end = draw(st.integers(kept, len(logs[master])))
                logs[other] = logs[master][:end]
    return logs


@given(related_logs())
def test_parting_is_where_the_logs_differ_first(logs: list[Log]) -> None:
    for master in logs:
        for follower in logs:
            found = find_divergence(
                entries_of(master), (0, len(master)), entries_of(follower), (0, len(follower))
            )
            assert found == common_length(master, follower)


@given(related_logs(), st.data())
def test_parting_is_no_further_when_the_follower_knows_epochs_without_any_batch(
    logs: list[Log], data: st.DataObject
) -> None:
    """An epoch of which nothing was written, or a log that was cut before its epochs were."""
    master, follower = logs[0], logs[1]
    cut = data.draw(st.integers(0, len(follower)))
    found = find_divergence(entries_of(master), (0, len(master)), entries_of(follower), (0, cut))
    assert found == common_length(master, follower[:cut])


@given(related_logs(), st.data())
def test_parting_is_none_when_the_master_does_not_have_it_any_more(
    logs: list[Log], data: st.DataObject
) -> None:
    master, follower = logs[0], logs[1]
    start = data.draw(st.integers(0, len(master)))
    kept = [one for one in entries_of(master) if one.start_offset <= start][-1:]
    kept += [one for one in entries_of(master) if one.start_offset > start]
    found = find_divergence(kept, (start, len(master)), entries_of(follower), (0, len(follower)))
    if found is not None:
        assert start <= found
        assert found == common_length(master, follower)


def left_of(log: Log, start: int) -> list[EpochEntry]:
    """The epochs that the node still knows when its log begins at `start`."""
    disk = SimulatedDisk()
    epochs = EpochFile.open(disk, "epochs", Identity(bytes(range(16)), 0))
    for epoch, at in entries_of(log):
        epochs.append(epoch, at)
    latest = 0 if epochs.latest is None else epochs.latest.epoch
    epochs.append(latest + 100, len(log), log_start_offset=start)
    return list(epochs.entries)[:-1]


@given(related_logs(), st.data())
def test_parting_is_the_same_when_epochs_before_the_logs_are_forgotten(
    logs: list[Log], data: st.DataObject
) -> None:
    master, follower = logs[0], logs[1]
    starts = [data.draw(st.integers(0, len(log))) for log in (master, follower)]
    spans = (starts[0], len(master)), (starts[1], len(follower))
    found = find_divergence(
        left_of(master, starts[0]), spans[0], left_of(follower, starts[1]), spans[1]
    )
    known = find_divergence(entries_of(master), spans[0], entries_of(follower), spans[1])
    assert found == known


def entries(*pairs: tuple[int, int]) -> list[EpochEntry]:
    return [EpochEntry(Epoch(epoch), Offset(start)) for epoch, start in pairs]


def test_parting_is_the_beginning_when_the_follower_is_blank() -> None:
    assert find_divergence(entries((1, 0), (2, 50)), (0, 90), [], (0, 0)) == 0


def test_parting_is_unknown_when_the_follower_is_blank_and_the_log_was_trimmed() -> None:
    assert find_divergence(entries((2, 50)), (60, 90), [], (0, 0)) is None


def test_parting_is_unknown_when_no_epoch_is_common_and_the_follower_was_trimmed() -> None:
    assert find_divergence(entries((1, 0)), (0, 90), entries((2, 40)), (50, 80)) is None


def test_one_epoch_at_two_places_is_not_one_epoch() -> None:
    assert (
        find_divergence(entries((1, 0), (3, 40)), (0, 90), entries((1, 0), (3, 50)), (0, 70)) == 40
    )
