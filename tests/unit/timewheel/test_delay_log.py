from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.crc32c import crc32c
from storage.files.file_header import FileType, check_file_header
from storage.views.unit import Units, join
from tests.sim.disk import SimulatedDisk
from tests.support.runs import DIRECTORY, IDENTITY, keyed
from tests.support.wheel_world import MemoryLog
from timewheel.bodies import Bodies
from timewheel.delay_log import DelayLogWriter, places_in_log
from timewheel.run_format import delay_log_path

FIRST_PART = 1_000
"""Where the span begins: messages below are foreign to a flush, as retries of old ones are."""


class World:
    """A log whose end is the span of a flush, and delay logs beside it."""

    def __init__(self, blobs: list[bytes]) -> None:
        self.disk = SimulatedDisk()
        self.disk.make_dir(DIRECTORY)
        self.log = MemoryLog()
        self.log.data += bytes(FIRST_PART)
        self.blobs = list(blobs)
        sizes = np.array([len(blob) for blob in blobs], np.int64)
        self.units = keyed([(n, n) for n in range(len(blobs))], dlog_id=0)
        self.units["position"] = FIRST_PART + np.cumsum(sizes) - sizes
        self.units["body_len"] = sizes
        self.units["crc"] = [crc32c(blob) for blob in blobs]
        self.log.data += b"".join(blobs)

    def put_elsewhere(self, ordinal: int, blob: bytes, file: int = 0) -> None:
        """Let a unit point below the span, or into an older delay log (anywhere)."""
        at = (100 if ordinal % 2 or not file else FIRST_PART) + 50 * ordinal
        unit = self.units[ordinal : ordinal + 1]
        unit["body_len"], unit["crc"], unit["dlog_id"] = len(blob), crc32c(blob), file
        unit["position"] = at
        self.blobs[ordinal] = blob
        if file:
            old = self.disk.open(delay_log_path(DIRECTORY, file), create=True)
            old.pwrite([blob], at)
        else:
            self.log.data[at : at + len(blob)] = blob

    def flush(self, number: int = 9, chunk: int = 1_000) -> Units:
        """Write the delay log in chunks, as a flush does."""
        others = Bodies(self.disk, DIRECTORY, self.log)
        writer = DelayLogWriter(self.disk, DIRECTORY, IDENTITY, number)
        before = self.units.copy()
        span = bytes(self.log.data[FIRST_PART:])
        places = places_in_log(self.units, FIRST_PART, len(self.log.data))
        parts = [slice(low, low + chunk) for low in range(0, len(self.units), chunk)]
        moved = [
            writer.append_from_log(self.units[part], span, places[part], others) for part in parts
        ]
        writer.finish()
        self.disk.sync_dir(DIRECTORY)
        assert self.units.tobytes() == before.tobytes()
        assert writer.size_bytes == self.disk.open(writer.path).size()
        return join(moved)

    def read(self, units: Units) -> tuple[list[bytes], list[int]]:
        """(blobs, ordinals of the bad ones)."""
        found, bad = Bodies(self.disk, DIRECTORY, self.log).read(units)
        return [bytes(blob) for blob in found], [one.ordinal for one in bad]


def bodies(count: int) -> list[bytes]:
    return [bytes([n % 256]) * (n * 7 % 40) for n in range(count)]


@given(
    blobs=st.lists(st.binary(max_size=30), max_size=12),
    chunk=st.integers(1, 5),
    elsewhere=st.dictionaries(st.integers(0, 11), st.sampled_from([0, 1, 2])),
)
def test_append_from_log_when_some_messages_lie_elsewhere(
    blobs: list[bytes], chunk: int, elsewhere: dict[int, int]
) -> None:
    world = World(blobs)
    for ordinal, file in elsewhere.items():
        if ordinal < len(blobs):
            world.put_elsewhere(ordinal, b"older %d" % ordinal, file)
    moved = world.flush(chunk=chunk)
    assert world.read(moved) == (world.blobs, [])
    ends = moved["position"] + moved["body_len"]
    assert moved["position"].tolist() == [64, *ends.tolist()][: len(blobs)]
    assert set(moved["dlog_id"].tolist()) <= {9}
    for name in ("due_ms", "sequence", "body_len", "crc"):
        assert moved[name].tolist() == world.units[name].tolist()


def test_delay_log_when_written_is_a_header_and_the_blobs() -> None:
    world = World([b"one", b"", b"three"])
    world.flush(7)
    file = world.disk.open(delay_log_path(DIRECTORY, 7))
    raw = file.pread(file.size(), 0)
    check_file_header(raw[:64], file.path, FileType.DELAY_LOG, IDENTITY, 7)
    assert raw[64:] == b"onethree"


def test_append_from_log_when_a_place_in_an_older_delay_log_looks_like_one_in_the_span() -> None:
    world = World([b"0123456789" * 9, b"x", b"y"])
    world.put_elsewhere(0, b"older", 3)
    assert FIRST_PART <= world.units["position"][0] < len(world.log.data)
    assert world.read(world.flush()) == ([b"older", b"x", b"y"], [])


def test_append_from_log_when_meta_and_body_are_counted_together() -> None:
    world = World([b"metabody", b"next"])
    world.units["meta_len"][0], world.units["body_len"][0] = 4, 4
    assert world.read(world.flush()) == ([b"metabody", b"next"], [])


def test_append_from_log_when_a_message_ends_with_the_span_or_begins_it() -> None:
    world = World([b"first", b"last"])
    span = bytes(world.log.data[FIRST_PART:])
    assert span == b"firstlast"
    world.log.data[FIRST_PART:] = bytes(len(span))  # so it must have come from the span
    writer = DelayLogWriter(world.disk, DIRECTORY, IDENTITY, 1)
    others = Bodies(world.disk, DIRECTORY, world.log)
    places = places_in_log(world.units, FIRST_PART, FIRST_PART + len(span))
    moved = writer.append_from_log(world.units, span, places, others)
    writer.finish()
    assert world.read(moved) == ([b"first", b"last"], [])


@pytest.mark.parametrize("file", [0, 3])
def test_I8_append_from_log_when_a_message_that_lies_elsewhere_is_corrupt(file: int) -> None:  # noqa: N802
    world = World(bodies(6))
    for ordinal in (1, 4):
        world.put_elsewhere(ordinal, b"an older message", file)
    damaged = world.units[4]
    if file:
        world.disk.flip_bit(delay_log_path(DIRECTORY, file), int(damaged["position"]))
    else:
        world.log.data[int(damaged["position"])] ^= 1
    moved = world.flush()
    # It is bad where it was, with its old place; its neighbours are whole.
    assert (moved["dlog_id"][4], moved["position"][4]) == (file, damaged["position"])
    found, bad = world.read(moved)
    assert bad == [4]
    assert found == [*world.blobs[:4], b"", world.blobs[5]]


def test_I8_append_from_log_when_a_message_in_the_span_is_corrupt_stays_so() -> None:  # noqa: N802
    world = World(bodies(40))
    world.log.data[int(world.units["position"][5])] ^= 1
    moved = world.flush()
    found, bad = world.read(moved)
    assert bad == [5]
    assert found == [*world.blobs[:5], b"", *world.blobs[6:]]


def test_append_blobs_when_some_are_lost() -> None:
    world = World(bodies(5))
    moved = world.flush(1)
    world.disk.flip_bit(delay_log_path(DIRECTORY, 1), int(moved["position"][2]))
    old = Bodies(world.disk, DIRECTORY, world.log)
    writer = DelayLogWriter(world.disk, DIRECTORY, IDENTITY, 2)
    again = writer.append_blobs(moved[:3], *old.read(moved[:3]))
    last = writer.append_blobs(moved[3:], *old.read(moved[3:]))
    writer.finish()
    assert again["dlog_id"].tolist() == [2, 2, 1]
    assert moved["dlog_id"].tolist() == [1] * 5
    assert world.read(again) == ([world.blobs[0], world.blobs[1], b""], [2])
    assert world.read(last) == (world.blobs[3:], [])


def test_append_blobs_when_there_are_none() -> None:
    world = World([])
    writer = DelayLogWriter(world.disk, DIRECTORY, IDENTITY, 2)
    assert len(writer.append_blobs(world.units, [], [])) == 0
    writer.finish()
    assert writer.size_bytes == 64


def test_writer_when_a_longer_file_was_left_there_begins_anew() -> None:
    world = World([b"one"])
    world.disk.open(delay_log_path(DIRECTORY, 9), create=True).pwrite([b"x" * 999], 0)
    world.flush(9)
    assert world.disk.open(delay_log_path(DIRECTORY, 9)).size() == 64 + 3


@pytest.mark.parametrize("seed", range(8))
def test_delay_log_when_finished_and_named_survives_any_power_cut(seed: int) -> None:
    world = World(bodies(200))
    moved = world.flush()
    world.disk.crash(Random(seed))
    assert world.read(moved) == (world.blobs, [])


def test_writer_when_the_disk_is_full_says_so() -> None:
    world = World([b"x" * 9_000])
    world.disk.capacity_bytes = world.disk.used_bytes("") + 4_096
    with pytest.raises(errors.DiskFull):
        world.flush()
