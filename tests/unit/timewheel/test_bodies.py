from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.crc32c import crc32c
from storage.views.unit import Units, join
from tests.sim.disk import SimulatedDisk
from tests.support.runs import DIRECTORY, keyed
from tests.support.wheel_world import MemoryLog, body_of
from timewheel.bodies import (
    GAP_BYTES_MAX,
    PIECE_BYTES_MAX,
    Bodies,
    Overlay,
    Place,
    place_of,
)
from timewheel.run_format import delay_log_path


class Counting(MemoryLog):
    """A log that tells how it was read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[int, int]] = []

    def read(self, offset: int, length: int) -> bytes:
        self.reads.append((offset, length))
        return super().read(offset, length)


class Blobs:
    """Blobs in the log and in delay logs, and the units that point at them."""

    def __init__(self, **limits: int) -> None:
        self.disk, self.log = SimulatedDisk(), Counting()
        self.disk.make_dir(DIRECTORY)
        self.bodies = Bodies(self.disk, DIRECTORY, self.log, **limits)

    def put(self, blob: bytes, file: int = 0, gap: int = 0, meta_len: int = 0) -> Units:
        """Write a blob behind what the file has, with a gap before it."""
        unit = keyed([(0, 0)], dlog_id=file, meta_len=meta_len, body_len=len(blob) - meta_len)
        unit["crc"] = crc32c(blob)
        if file:
            delay_log = self.disk.open(delay_log_path(DIRECTORY, file), create=True)
            unit["position"] = delay_log.size() + gap
            delay_log.pwrite([bytes(gap) + blob], delay_log.size())
        else:
            self.log.data += bytes(gap)
            unit["position"] = len(self.log.data)
            self.log.data += blob
        return unit

    def read(self, units: Units) -> list[bytes]:
        """All blobs, none of which is bad."""
        found, bad = self.bodies.read(units)
        assert not bad
        return [bytes(blob) for blob in found]


@given(
    places=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from([0, 0, 0, 1, GAP_BYTES_MAX, GAP_BYTES_MAX + 1]),
            st.one_of(st.integers(0, 40), st.sampled_from([0, 5_000])),
        ),
        max_size=25,
    ),
    order=st.randoms(use_true_random=False),
    is_shuffled=st.booleans(),
)
def test_read_when_blobs_lie_anywhere(
    places: list[tuple[int, int, int]], order: object, *, is_shuffled: bool
) -> None:
    blobs = Blobs()
    written = [
        (blobs.put(bytes([n + 1]) * size, file, gap), bytes([n + 1]) * size)
        for n, (file, gap, size) in enumerate(places)
    ]
    if is_shuffled:
        order.shuffle(written)  # type: ignore[attr-defined]
    units = join([unit for unit, _ in written])
    assert blobs.read(units) == [blob for _, blob in written]
    assert blobs.bodies.read_joined(units) == (b"".join(blob for _, blob in written), [])


def test_read_when_meta_and_body_stand_together() -> None:
    blobs = Blobs()
    assert blobs.read(blobs.put(b"metabody", meta_len=4)) == [b"metabody"]


def test_read_when_one_message_is_asked_for_several_times() -> None:
    blobs = Blobs()
    units = [blobs.put(body_of(n), file=2) for n in range(40)]
    assert blobs.read(join([units[7], units[7], units[8], units[6], units[7]])) == [
        body_of(n) for n in (7, 7, 8, 6, 7)
    ]


def test_read_when_blobs_follow_on_one_another_reads_once() -> None:
    blobs = Blobs()
    units = join([blobs.put(body_of(n), gap=n % 3 * 1_000) for n in range(100)])
    blobs.read(units)
    assert len(blobs.log.reads) == 1


def test_read_when_a_gap_is_wide_does_not_read_it() -> None:
    blobs = Blobs()
    parts = [
        [blobs.put(body_of(n), gap=0 if n else GAP_BYTES_MAX + 1) for n in range(20)]
        for _ in range(2)
    ]
    blobs.read(join([unit for part in parts for unit in part]))
    assert len(blobs.log.reads) == 2
    assert sum(length for _, length in blobs.log.reads) < GAP_BYTES_MAX


def test_read_when_one_blob_is_larger_than_a_piece() -> None:
    blobs = Blobs()
    large = b"x" * (PIECE_BYTES_MAX + 1)
    units = join([blobs.put(blob) for blob in (b"a", large, b"b", b"", large, b"c")])
    assert blobs.read(units) == [b"a", large, b"b", b"", large, b"c"]


def test_read_when_many_blobs_fill_several_pieces_reads_no_larger_ones() -> None:
    blobs = Blobs()
    blob = b"y" * (1 << 20)
    units = join([blobs.put(blob) for _ in range(20)])
    assert blobs.read(units) == [blob] * 20
    assert max(length for _, length in blobs.log.reads) <= PIECE_BYTES_MAX


def test_read_when_nothing_is_asked_for() -> None:
    assert Blobs().bodies.read(keyed([])) == ([], [])
    assert Blobs().bodies.read_joined(keyed([])) == (b"", [])


@pytest.mark.parametrize("file", [0, 5])
@pytest.mark.parametrize("scattered", [False, True])
def test_I8_read_when_blobs_are_damaged_serves_the_others_and_names_the_place(  # noqa: N802
    file: int, *, scattered: bool
) -> None:
    blobs = Blobs()
    gap = GAP_BYTES_MAX + 1 if scattered else 0
    units = join([blobs.put(body_of(n) + b"!", file, gap) for n in range(30)])
    for ordinal in (0, 13, 29):
        position = int(units["position"][ordinal])
        if file:
            blobs.disk.flip_bit(delay_log_path(DIRECTORY, file), position)
        else:
            blobs.log.data[position] ^= 1
    found, bad = blobs.bodies.read(units)
    assert [one.ordinal for one in bad] == [0, 13, 29]
    assert [bytes(blob) for blob in found] == [
        b"" if n in (0, 13, 29) else body_of(n) + b"!" for n in range(30)
    ]
    for one in bad:
        assert isinstance(one.error, errors.CorruptFile if file else errors.CorruptLog)
        assert one.error.params["offset"] == str(units["position"][one.ordinal])
        place = delay_log_path(DIRECTORY, 5) if file else "log/memory"
        assert one.error.params["file"] == place
        assert place in one.error.message
    assert [one.ordinal for one in blobs.bodies.read_joined(units)[1]] == [0, 13, 29]


@pytest.mark.parametrize("scattered", [False, True])
def test_read_when_a_delay_log_is_cut_short_finds_what_is_missing(*, scattered: bool) -> None:
    blobs = Blobs()
    gap = GAP_BYTES_MAX + 1 if scattered else 0
    units = join([blobs.put(bytes([n] * 10), 5, gap) for n in range(30)])
    blobs.disk.open(delay_log_path(DIRECTORY, 5)).truncate(int(units["position"][20]) + 5)
    found, bad = blobs.bodies.read(units)
    assert [one.ordinal for one in bad] == list(range(20, 30))
    assert [bytes(blob) for blob in found[:20]] == [bytes([n] * 10) for n in range(20)]


def test_read_when_a_delay_log_is_missing_only_its_messages_are_bad() -> None:
    blobs = Blobs()
    units = join([blobs.put(b"body %d" % n, file=5 if n % 2 else 6) for n in range(8)])
    blobs.disk.remove(delay_log_path(DIRECTORY, 5))
    for part in (units, units[units["dlog_id"] == 5].repeat(8)):
        found, bad = blobs.bodies.read(part)
        lost = np.flatnonzero(part["dlog_id"] == 5).tolist()
        assert [one.ordinal for one in bad] == lost
        assert {one.error.params["file"] for one in bad} == {delay_log_path(DIRECTORY, 5)}
        assert [bytes(blob) for n, blob in enumerate(found) if n not in lost] == (
            [b"body %d" % n for n in range(0, 8, 2)] if len(lost) < len(part) else []
        )


def test_read_when_a_lost_message_has_the_checksum_of_nothing_is_bad() -> None:
    blobs = Blobs()
    blob = bytes.fromhex("ab9be09b")
    assert crc32c(blob) == crc32c(b"")
    units = join([blobs.put(blob, file=5), blobs.put(blob, file=6)])
    blobs.disk.remove(delay_log_path(DIRECTORY, 5))
    found, bad = blobs.bodies.read(units)
    assert [one.ordinal for one in bad] == [0]
    assert bytes(found[1]) == blob


def test_read_when_bytes_are_those_of_another_message_is_bad() -> None:
    blobs = Blobs()
    units = join([blobs.put(b"one body"), blobs.put(b"the next")])
    units["position"] = units["position"][::-1].copy()
    assert [one.ordinal for one in blobs.bodies.read(units)[1]] == [0, 1]


def test_read_when_there_are_more_delay_logs_than_may_be_open() -> None:
    blobs = Blobs(open_count_max=3)
    units = join([blobs.put(b"body %d" % file, file) for file in range(1, 20)])
    for _ in range(2):
        assert blobs.read(units) == [b"body %d" % file for file in range(1, 20)]
        assert len(blobs.bodies._files) == 3


def test_forget_when_a_delay_log_is_written_anew_reads_the_new_one() -> None:
    blobs = Blobs()
    old = blobs.put(b"old body", file=5)
    blobs.read(old)
    blobs.disk.remove(delay_log_path(DIRECTORY, 5))
    blobs.bodies.forget(5)
    blobs.bodies.forget(6)  # never opened
    assert blobs.read(blobs.put(b"new body", file=5)) == [b"new body"]
    blobs.bodies.close()
    assert blobs.read(blobs.put(b"again", file=5)) == [b"again"]


# -- what is kept in memory instead of damaged bytes -----------------------------------------------


def test_overlay_stands_in_for_damaged_bytes_only_where_it_is_right() -> None:
    world = Blobs()
    units = join([world.put(b"one", file=3), world.put(b"two", file=3), world.put(b"three")])
    file = world.disk.open(delay_log_path(DIRECTORY, 3))
    file.pwrite([b"TWO"], int(units["position"][1]))
    assert [one.ordinal for one in world.bodies.read(units)[1]] == [1]
    overlay, place = world.bodies.overlay, place_of(units[1])
    for wrong in (b"twO", b"tw", b"twoo"):
        overlay.put(place, wrong)
        assert [one.ordinal for one in world.bodies.read(units)[1]] == [1]
    overlay.put(place, b"two")
    assert world.read(units) == [b"one", b"two", b"three"]
    assert world.bodies.read_joined(units[:2]) == (b"onetwo", [])
    assert (overlay.size_bytes, overlay.items()) == (3, [(place, b"two")])
    world.bodies.forget(3)
    assert (overlay.size_bytes, overlay.items()) == (0, [])


def test_overlay_is_bounded_and_lets_the_oldest_go() -> None:
    overlay = Overlay(bytes_max=10)
    for number in range(4):
        overlay.put(Place(0, number), bytes(4))
    assert [place.position for place, _ in overlay.items()] == [2, 3]
    overlay.put(Place(1, 9), bytes(50))
    assert [place for place, _ in overlay.items()] == [(1, 9)], "one is kept, whatever its size"
    overlay.drop(Place(1, 9))
    overlay.drop(Place(1, 9))
    assert overlay.size_bytes == 0


def test_delay_log_is_read_anew_when_another_one_has_its_name() -> None:
    world = Blobs()
    unit = world.put(b"one", file=3)
    path = delay_log_path(DIRECTORY, 3)
    assert world.read(unit) == [b"one"]
    other = world.disk.open(path + ".new", create=True)
    other.pwrite([b"bad"], int(unit["position"][0]))
    world.disk.rename(path + ".new", path)
    assert world.read(unit) == [b"one"]
    world.bodies.reopen(3)
    assert [one.ordinal for one in world.bodies.read(unit)[1]] == [0]


def test_sector_that_cannot_be_read_is_damage_of_those_in_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Blobs()
    units = join([world.put(b"one", file=3), world.put(b"two", file=3, gap=50_000)])
    file = world.disk.open(delay_log_path(DIRECTORY, 3))
    pread = type(file).pread

    def failing(self: Any, length: int, position: int) -> bytes:
        if position <= 1 < position + length:
            raise errors.DiskFailed("a sector cannot be read")
        return pread(self, length, position)

    monkeypatch.setattr(type(file), "pread", failing)
    blobs, bad = world.bodies.read(units)
    assert [one.ordinal for one in bad] == [0]
    assert bytes(blobs[1]) == b"two"
