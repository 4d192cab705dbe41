"""Verifying queues, sequences, tombstones and the manifest itself."""

from collections.abc import Callable

import numpy as np
import pytest

from hourwheel.internal.v1.state_pb2 import Checkpoint
from node.tools.inspect.files import ShardFiles
from node.tools.inspect.report import Report
from node.tools.inspect.verify_log import LogFacts
from node.tools.inspect.verify_views import (
    verify_chunk,
    verify_manifest,
    verify_queues,
    verify_sequences,
    verify_tombstones,
)
from storage.queues.queue_chunk import ENTRIES_AT, NO_ENTRIES, pack_seal, seal_position
from storage.views.unit import UNIT
from tests.support.inspected import SHARD, Image, files_of, flipped, made_image, paths

Check = Callable[[ShardFiles, Checkpoint, Report], None]
Change = Callable[[Checkpoint], object]
TAIL = f"{SHARD}/sequences/tail"


def queues(files: ShardFiles, manifest: Checkpoint, report: Report) -> None:
    verify_queues(files, manifest, report, log_start=0)


def run(check: Check, image: Image, change: Change = lambda _: None) -> Report:
    files, report = files_of(image), Report()
    manifest = files.manifest()
    assert manifest is not None
    change(manifest)
    check(files, manifest, report)
    return report


@pytest.mark.parametrize("check", [queues, verify_sequences, verify_tombstones])
def test_views_are_good_when_nothing_is_damaged(check: Check) -> None:
    assert run(check, made_image()).is_good


# --- queues -------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [9, 300, 256 + 64 * 31])
def test_chunk_is_named_when_it_is_damaged(position: int) -> None:
    image = made_image()
    for path in paths(image, "queues/", "0.cq"):
        assert {one.file for one in run(queues, flipped(image, path, position)).damage} == {path}


def test_chunk_is_good_when_damage_is_behind_what_counts() -> None:
    image = made_image()
    path = paths(image, "queues/00000100", ".cq")[1]
    assert run(queues, flipped(image, path, 256 + 64 * 30)).is_good


def seal_more(manifest: Checkpoint) -> None:
    manifest.queues[0].end_position += 1
    manifest.cursor.released_count += 1


def turn_around(manifest: Checkpoint) -> None:
    manifest.queues[0].start_position = manifest.queues[0].end_position + 1


def rename_queue(manifest: Checkpoint) -> None:
    manifest.queues[0].topic_queue = 0x00000900


def resolve_too_much(manifest: Checkpoint) -> None:
    manifest.acks[0].resolved_range_deltas.extend([1_000, 5])


def release_more(manifest: Checkpoint) -> None:
    manifest.cursor.released_count += 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (seal_more, "no seal over"),
        (turn_around, "begins behind its end"),
        (rename_queue, "of no topic"),
        (resolve_too_much, "has resolved position"),
        (release_more, "were released"),
    ],
)
def test_queues_are_damage_when_the_manifest_says_something_else(change: Change, why: str) -> None:
    report = run(queues, made_image(), change)
    assert why in " ".join(damage.why for damage in report.damage)


def test_counts_of_queues_are_not_compared_when_a_topic_was_deleted() -> None:
    def delete(manifest: Checkpoint) -> None:
        manifest.next_topic_id += 1
        manifest.cursor.released_count += 7

    assert run(queues, made_image(), delete).is_good


def test_missing_queue_is_damage_and_a_chunk_of_no_size_is_too() -> None:
    image = made_image()
    both = paths(image, "queues/00000101", ".cq")
    assert not run(queues, {path: raw for path, raw in image.items() if path not in both}).is_good
    assert not run(queues, {**image, **dict.fromkeys(both, b"")}).is_good


def test_entries_that_need_a_log_that_is_gone_are_damage() -> None:
    files, report = files_of(made_image()), Report()
    manifest = files.manifest()
    assert manifest is not None
    verify_queues(files, manifest, report, log_start=7_856)
    assert "of a log that begins at 7856" in report.damage[0].why


@pytest.mark.parametrize("shift", [8, -8, 1 << 40, 1 << 63])
def test_entry_that_points_to_other_bytes_than_its_message_is_damage(shift: int) -> None:
    image, path, sequence = shifted_entry(shift)
    (damage,) = run(queues, image).damage
    assert f"message {sequence} of {path}" in damage.why
    assert damage.file.endswith(".log")


def shifted_entry(shift: int) -> tuple[Image, str, int]:
    """(the image in which one entry has another place, its chunk, its sequence)."""
    image = made_image()
    manifest = files_of(image).manifest()
    assert manifest is not None
    for queue in manifest.queues:
        for number, path in enumerate(paths(image, f"queues/{queue.topic_queue:08x}", ".cq")):
            raw = bytearray(image[path])
            size = (len(raw) - ENTRIES_AT) // UNIT.itemsize
            count = min(size, queue.end_position - number * size)
            units = np.frombuffer(raw, UNIT, count, ENTRIES_AT).copy()
            for at in np.flatnonzero(units["dlog_id"] == 0)[-1:].tolist():
                units["position"][at] = (int(units["position"][at]) + shift) % (1 << 64)
                raw[ENTRIES_AT : ENTRIES_AT + units.nbytes] = units.tobytes()
                seal = pack_seal(NO_ENTRIES.extended(units), queue.topic_queue)
                for slot in (0, 1):
                    raw[seal_position(slot) : seal_position(slot) + len(seal)] = seal
                return {**image, path: bytes(raw)}, path, int(units["sequence"][at])
    raise AssertionError("no such entry")


def test_chunk_is_verified_alone() -> None:
    image = made_image()
    for path in paths(image, "queues/", ".cq"):
        report = Report()
        verify_chunk(files_of(image), path, report)
        assert report.is_good
        verify_chunk(files_of(flipped(image, path, 300)), path, report)
        assert [damage.file for damage in report.damage] == [path]


# --- sequences, tombstones, manifest ------------------------------------------------------------


def test_sequences_are_as_many_as_were_given() -> None:
    def give_more(manifest: Checkpoint) -> None:
        manifest.next_sequence += 1

    assert "were given" in run(verify_sequences, made_image(), give_more).damage[0].why


def test_tail_may_be_of_a_later_checkpoint_and_not_of_an_earlier_one() -> None:
    def at(count: int) -> Change:
        def change(manifest: Checkpoint) -> None:
            manifest.sequence_index_count = manifest.next_sequence = count

        return change

    image = made_image()
    for count in (256, 270, 288, 200, 128):
        assert run(verify_sequences, image, at(count)).is_good, count
    for count in (300, 400):
        assert not run(verify_sequences, image, at(count)).is_good, count
    assert not run(verify_sequences, flipped(image, TAIL, 90)).is_good


def test_cancelled_messages_are_not_more_than_were_cancelled() -> None:
    def fewer(manifest: Checkpoint) -> None:
        manifest.cancelled_count -= 1

    def none(manifest: Checkpoint) -> None:
        manifest.tombstone_file = 0

    assert "marked as cancelled" in run(verify_tombstones, made_image(), fewer).damage[0].why
    assert run(verify_tombstones, made_image(), none).is_good


def test_manifest_is_damage_when_the_log_has_another_sequence_there() -> None:
    for found, is_good in ((288, True), (None, True), (287, False)):
        facts = LogFacts(sequence_at_applied=found)
        report = run(
            lambda files, manifest, report, facts=facts: verify_manifest(  # type: ignore[misc]
                files, manifest, report, facts
            ),
            made_image(),
        )
        assert report.is_good == is_good
